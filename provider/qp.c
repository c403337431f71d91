// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Queue pairs, from the cradle to the grave. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ferroce.h"

/*
 * Maps the rings of a QP that the kernel has made. Without a receive queue of its own it has no ring for it. The target
 * of an XRC connection has no ring at all.
 */
static int qp_map(struct qp *qp, struct ibv_pd *pd, const struct rxe_create_qp_resp *response,
		  const struct ibv_qp_cap *cap)
{
	int error;

	if (qp->verbs.qp.qp_type == IBV_QPT_XRC_RECV)
		return 0;
	error = ring_map(&qp->sends, pd->context, &response->sq_mi,
			 SEND_WQE_ROOM(cap->max_send_sge, cap->max_inline_data));
	if (error)
		return error;
	qp->max_sge = cap->max_send_sge;
	qp->max_inline = cap->max_inline_data;
	return response->rq_mi.size ? receives_map(&qp->receives, pd, &response->rq_mi, cap->max_recv_sge) : 0;
}

static void qp_free(struct qp *qp)
{
	ring_unmap(&qp->sends);
	receives_unmap(&qp->receives);
	lock_destroy(&qp->lock);
	free(qp);
}

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	/* There are no flags; programs give none in many words. */
	const uint32_t empty = attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && !attr->create_flags ?
			       IBV_QP_INIT_ATTR_CREATE_FLAGS : 0;
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct rxe_create_qp_resp driver;
	} response = {};
	/* The target of an XRC connection has none, and no rings. */
	struct ibv_pd *pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
	struct ibv_create_qp command;
	struct qp *qp;
	int error;

	if (attr->comp_mask & ~(known | empty)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* libibverbs takes the domain as it comes. */
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && !attr->xrcd) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	lock_init(&qp->lock, pd_is_of_one_thread(pd));
	qp->verbs.qp.qp_type = attr->qp_type;
	error = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? qp_set_operations(qp, attr->send_ops_flags) : 0;
	if (error)
		goto free;
	attr->comp_mask &= ~empty;
	error = ibv_cmd_create_qp_ex(context, &qp->verbs, attr, &command, sizeof(command), &response.core,
				     sizeof(response));
	attr->comp_mask |= empty;
	if (error)
		goto free;
	/* libibverbs notes the queues that the program named. The kernel keeps only those that the QP completes to. */
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		qp->verbs.qp.send_cq = NULL;
	if (attr->qp_type == IBV_QPT_XRC_RECV || attr->qp_type == IBV_QPT_XRC_SEND)
		qp->verbs.qp.recv_cq = NULL;
	error = qp_map(qp, pd, &response.driver, &attr->cap);
	if (error)
		goto destroy;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->verbs.comp_mask |= VERBS_QP_EX;
	return &qp->verbs.qp;

destroy:
	ibv_cmd_destroy_qp(&qp->verbs.qp);
free:
	qp_free(qp);
	errno = error;
	return NULL;
}

struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex extended = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = qp_create_ex(pd->context, &extended);

	if (qp)
		attr->cap = extended.cap;
	return qp;
}

/* The target of an XRC connection, which another process may have made. */
struct ibv_qp *qp_open(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp response;
	struct ibv_open_qp command;
	struct qp *qp;
	int error;

	/* libibverbs takes the domain as it comes. */
	if (!attr->xrcd) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	lock_init(&qp->lock, false);
	error = ibv_cmd_open_qp(context, &qp->verbs, sizeof(qp->verbs), attr, &command, sizeof(command), &response,
				sizeof(response));
	if (error) {
		qp_free(qp);
		errno = error;
		return NULL;
	}
	return &qp->verbs.qp;
}

/* Nobody polls completions of before any more. */
static void qp_forget_completions(struct ibv_qp *qp)
{
	if (qp->send_cq)
		cq_forget(qp->send_cq, qp->qp_num);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		cq_forget(qp->recv_cq, qp->qp_num);
}

int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_modify_qp command;
	int error;

	/* The command has no such field. */
	if (mask & IBV_QP_RATE_LIMIT)
		return EOPNOTSUPP;
	error = ibv_cmd_modify_qp(qp, attr, mask, &command, sizeof(command));
	if (!error && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET)
		qp_forget_completions(qp);
	return error;
}

int qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct ibv_query_qp command;

	return ibv_cmd_query_qp(qp, attr, mask, init, &command, sizeof(command));
}

int qp_destroy(struct ibv_qp *ibqp)
{
	int error = ibv_cmd_destroy_qp(ibqp);

	if (error)
		return error;
	/* The kernel gives QP numbers in turn, so nobody has this one again. */
	qp_forget_completions(ibqp);
	qp_free(qp_of(ibqp));
	return 0;
}
