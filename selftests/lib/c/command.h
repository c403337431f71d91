/* SPDX-License-Identifier: GPL-2.0 */
/* Commands to uverbs by write(), for what libibverbs or librxe cannot ask for. */
#ifndef COMMAND_H
#define COMMAND_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/*
 * `bytes` begins with room for a struct ib_uverbs_cmd_hdr, which is filled in; `answer_size` is that of the response whose
 * address the command has. Returns zero, or the error.
 */
int command_write(const struct ibv_context *context, int number, void *bytes, size_t size, size_t answer_size);

/* As ibv_modify_cq(). */
int command_modify_cq(const struct ibv_cq *cq, const struct ibv_modify_cq_attr *attr);

/* Tells the kernel that there are send requests in the ring, as librxe does. Returns zero, or the error. */
int command_doorbell(const struct ibv_context *context, uint32_t qp_handle);

#endif
