/* SPDX-License-Identifier: GPL-2.0 */
/* Objects of XRC (IBTA annex A14) without a provider that knows them: commands to the kernel, and its rings. */
#ifndef XRC_H
#define XRC_H

#include <infiniband/verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <stddef.h>
#include <stdint.h>

#include "endpoint.h"

struct xrc_ring {
	struct rxe_queue_buf *head;
	size_t size;
};

/* An XRC SRQ. */
struct xrc_srq {
	const struct ibv_context *context;
	uint32_t handle, number;
	struct xrc_ring ring;
};

/* libibverbs needs no more of `qp` to modify it. Only an initiator has a ring. */
struct xrc_qp {
	struct ibv_qp qp;
	struct xrc_ring sends;
};

/* What returns int returns zero, or the error. */

/* `file` is -1 for a domain of this process only. */
int xrc_domain_open(const struct ibv_context *context, int file, int flags, uint32_t *domain);
int xrc_domain_close(const struct ibv_context *context, uint32_t domain);

int xrc_srq_create(struct xrc_srq *srq, uint32_t domain, const struct ibv_pd *pd, const struct ibv_cq *cq,
		   uint32_t depth);
int xrc_srq_destroy(struct xrc_srq *srq);
/* The asynchronous event, once there are fewer receives. */
int xrc_srq_arm(const struct xrc_srq *srq, uint32_t limit);
/* The caller sees to it that there is room. */
void xrc_srq_post(const struct xrc_srq *srq, uint64_t id, const void *memory, uint32_t length, uint32_t lkey);

int xrc_initiator_create(struct xrc_qp *qp, const struct ibv_pd *pd, const struct ibv_cq *cq, uint32_t depth);
int xrc_target_create(struct xrc_qp *qp, struct ibv_context *context, uint32_t domain);
/* A target that somebody else has made. */
int xrc_target_open(struct xrc_qp *qp, struct ibv_context *context, uint32_t domain, uint32_t number);
int xrc_qp_destroy(struct xrc_qp *qp);
/* From RESET to RTS, or the program ends: psn is that of its own first request. A target takes requests from RTR on. */
void xrc_qp_ready(struct xrc_qp *qp, const struct device *from, const struct device *to, uint32_t to_qpn,
		  enum ibv_mtu mtu, struct patience patience, uint32_t psn, uint32_t to_psn);

/* The next request of an initiator, of zeros, to be filled in. The caller sees to it that there is room. */
struct rxe_send_wqe *xrc_request(const struct xrc_qp *qp);
/* It has been filled in. */
void xrc_request_push(const struct xrc_qp *qp);
/* There are requests. */
int xrc_doorbell(const struct xrc_qp *qp);
/* One request, of one piece of memory, that the SRQ of this number takes at the peer; and the doorbell. */
int xrc_send_post(const struct xrc_qp *qp, const struct ibv_send_wr *wr, uint32_t srqn);

#endif
