/* SPDX-License-Identifier: GPL-2.0 */
/* Commands to uverbs by write(), for what libibverbs or librxe cannot ask for. */
#ifndef COMMAND_H
#define COMMAND_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include <stdint.h>

/*
 * `bytes` begins with room for a struct ib_uverbs_cmd_hdr, which is filled in; `answer_size` is that of the response whose
 * address the command has. Returns zero, or the error.
 */
int command_write(const struct ibv_context *context, int number, void *bytes, size_t size, size_t answer_size);

/* The same for an extended command without a response; `bytes` begins with room for a struct command_ex_header. */
int command_write_ex(const struct ibv_context *context, int number, void *bytes, size_t size);

struct command_ex_header {
	struct ib_uverbs_cmd_hdr header;
	struct ib_uverbs_ex_cmd_hdr extended;
};

/* Tells the kernel that there are send requests in the ring, as librxe does. Returns zero, or the error. */
int command_doorbell(const struct ibv_context *context, uint32_t qp_handle);

#endif
