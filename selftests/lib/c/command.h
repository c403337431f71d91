/* SPDX-License-Identifier: GPL-2.0 */
/* Commands to uverbs by write() and ioctl(), for what libibverbs or librxe cannot ask for. */
#ifndef COMMAND_H
#define COMMAND_H

#include <infiniband/verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stddef.h>
#include <stdint.h>

/*
 * `bytes` begins with room for a struct ib_uverbs_cmd_hdr, which is filled in; `answer_size` is that of the response whose
 * address the command has. Returns zero, or the error.
 */
int command_write(const struct ibv_context *context, int number, void *bytes, size_t size, size_t answer_size);

/*
 * A method of the ioctl() interface. All attributes are mandatory, COMMAND_ATTRIBUTES at the most; those of objects have the
 * kernel's answer then. Returns zero, or the error.
 */
#define COMMAND_ATTRIBUTES 9
int command_method(const struct ibv_context *context, unsigned int object, unsigned int method,
		   struct ib_uverbs_attr *attributes, unsigned int count);

/* As ibv_modify_cq(). */
int command_modify_cq(const struct ibv_cq *cq, const struct ibv_modify_cq_attr *attr);

/* Tells the kernel that there are send requests in the ring, as librxe does. Returns zero, or the error. */
int command_doorbell(const struct ibv_context *context, uint32_t qp_handle);

#endif
