/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the provider keeps of each object, and the operations that it gives to libibverbs. */
#ifndef FERROCE_H
#define FERROCE_H

#include <infiniband/driver.h>
#include <rdma/rdma_user_rxe.h>

#include "../include/uapi/rdma/ferroce-abi.h"
#include "lock.h"
#include "release.h"
#include "ring.h"

/* The tail of the send WQE: segments, inline data or the eight bytes of an ATOMIC WRITE. */
#define SEND_WQE_ROOM(sges, inline_data) \
	(sizeof(struct rxe_send_wqe) + \
	 ((sges) * sizeof(struct rxe_sge) > (inline_data) ? (sges) * sizeof(struct rxe_sge) : (inline_data)))
#define RECV_WQE_ROOM(sges) (sizeof(struct rxe_recv_wqe) + (sges) * sizeof(struct rxe_sge))

struct context {
	struct verbs_context verbs;
	/* What the kernel module has beyond rdma_rxe's ABI (enum ferroce_feature); none in one that does not say. */
	uint64_t features;
};

struct ah {
	struct ibv_ah ah;
	/* By this the kernel finds it. */
	uint32_t number;
};

struct cq {
	struct verbs_cq verbs;
	struct ring ring;
	struct lock lock;
	/* Between ibv_start_poll() and ibv_end_poll(): the completion, if there is one, and its index. */
	const struct ibv_wc *current;
	uint32_t at;
};

/* A ring of receive requests: a QP's own or an SRQ's. */
struct receives {
	struct ring ring;
	struct lock lock;
	uint32_t max_sge;
};

struct srq {
	struct verbs_srq verbs;
	struct receives receives;
};

struct qp {
	struct verbs_qp verbs;
	struct receives receives;
	struct ring sends;
	struct lock lock;
	uint32_t max_sge, max_inline;
	/* Between ibv_wr_start() and ibv_wr_complete(): the last request, the next one's index, and what went wrong. */
	struct rxe_send_wqe *wqe;
	uint32_t next;
	int error;
};

static inline struct cq *cq_of(struct ibv_cq *cq)
{
	return container_of(cq, struct cq, verbs.cq);
}

static inline struct cq *cq_of_ex(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct cq, verbs.cq_ex);
}

static inline struct srq *srq_of(struct ibv_srq *srq)
{
	return container_of(srq, struct srq, verbs.srq);
}

static inline struct qp *qp_of(struct ibv_qp *qp)
{
	return container_of(qp, struct qp, verbs.qp);
}

static inline struct qp *qp_of_ex(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct qp, verbs.qp_ex);
}

/* --- domain.c --------------------------------------------------------------------------------- */

struct ibv_pd *pd_alloc(struct ibv_context *context);
int pd_dealloc(struct ibv_pd *pd);
/* One that another process has made in the same context, by its handle. That process still owns it. */
struct ibv_pd *pd_import(struct ibv_context *context, uint32_t handle);
void pd_unimport(struct ibv_pd *pd);
struct ibv_td *td_alloc(struct ibv_context *context, struct ibv_td_init_attr *attr);
int td_dealloc(struct ibv_td *td);
struct ibv_pd *parent_domain_alloc(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
/* Whether it is a parent domain with a thread domain: one thread at a time uses its queues. None is not. */
bool pd_is_of_one_thread(struct ibv_pd *pd);

/* --- memory.c --------------------------------------------------------------------------------- */

struct ibv_mr *mr_reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access);
struct ibv_mr *mr_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
int mr_rereg(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);
int mr_dereg(struct verbs_mr *mr);
/* As pd_import(). */
struct ibv_mr *mr_import(struct ibv_pd *pd, uint32_t handle);
void mr_unimport(struct ibv_mr *mr);
struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type);
int mw_dealloc(struct ibv_mw *mw);

/* --- cq.c ------------------------------------------------------------------------------------- */

struct ibv_cq *cq_create(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int cq_resize(struct ibv_cq *cq, int cqe);
int cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int cq_destroy(struct ibv_cq *cq);
int cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
void cq_forget(struct ibv_cq *cq, uint32_t qp_num);

/* --- srq.c ------------------------------------------------------------------------------------ */

struct ibv_xrcd *xrcd_open(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int xrcd_close(struct ibv_xrcd *xrcd);
struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int srq_modify(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int srq_query(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int srq_number(struct ibv_srq *srq, uint32_t *number);
int srq_destroy(struct ibv_srq *srq);
int srq_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* `pd` is that of the queue. */
int receives_map(struct receives *receives, struct ibv_pd *pd, const struct mminfo *info, uint32_t max_sge);
void receives_unmap(struct receives *receives);
int receives_post(struct receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* --- qp.c ------------------------------------------------------------------------------------- */

struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *qp_open(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int qp_destroy(struct ibv_qp *qp);

/* --- post.c ----------------------------------------------------------------------------------- */

int qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int qp_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* The functions of ibv_qp_ex, if the QP can have all operations that are asked for. */
int qp_set_operations(struct qp *qp, uint64_t operations);

#endif
