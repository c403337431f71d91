/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where releases of rdma-core differ in what providers call. Elsewhere it is called as 56 has it; config.h, of
 * `headers`, says which release this is.
 */
#ifndef RELEASE_H
#define RELEASE_H

#include "config.h"

#define HAS_FLUSH (RDMA_CORE_RELEASE >= 45)
#if !HAS_FLUSH
#define IBV_QP_EX_WITH_FLUSH 0
#endif

#if RDMA_CORE_RELEASE < 54
#define ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr, driver) \
	ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr)
#endif

#if RDMA_CORE_RELEASE >= 57
/* No files are passed. */
#define ibv_cmd_get_context(context, command, command_size, response, response_size) \
	ibv_cmd_get_context(context, command, command_size, NULL, response, response_size)
#endif

#if RDMA_CORE_RELEASE >= 59
/* The memory is the kernel's. */
#define ibv_cmd_create_cq_ex(context, attr, cq, ...) ibv_cmd_create_cq_ex(context, attr, NULL, cq, __VA_ARGS__)
#endif

#endif
