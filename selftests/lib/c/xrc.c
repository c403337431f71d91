// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>
#include <sys/mman.h>

#include "command.h"
#include "xrc.h"

/* enum ib_uverbs_srq_type. */
#define SRQT_XRC 1

int xrc_domain_open(const struct ibv_context *context, int file, int flags, uint32_t *domain)
{
	struct ib_uverbs_open_xrcd_resp answer = {};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_open_xrcd core;
	} bytes = { .core = { .response = (uintptr_t)&answer, .fd = file, .oflags = flags } };
	int error = command_write(context, IB_USER_VERBS_CMD_OPEN_XRCD, &bytes, sizeof(bytes), sizeof(answer));

	*domain = answer.xrcd_handle;
	return error;
}

int xrc_domain_close(const struct ibv_context *context, uint32_t domain)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_close_xrcd core;
		uint32_t padding;
	} bytes = { .core = { .xrcd_handle = domain } };

	return command_write(context, IB_USER_VERBS_CMD_CLOSE_XRCD, &bytes, sizeof(bytes), 0);
}

/* --- Rings ------------------------------------------------------------------------------------ */

static int ring_map(struct xrc_ring *ring, const struct ibv_context *context, const struct mminfo *info)
{
	void *memory = mmap(NULL, info->size, PROT_READ | PROT_WRITE, MAP_SHARED, context->cmd_fd, info->offset);

	if (memory == MAP_FAILED)
		return errno;
	*ring = (struct xrc_ring){ .head = memory, .size = info->size };
	return 0;
}

static int ring_unmap(struct xrc_ring *ring)
{
	return ring->head && munmap(ring->head, ring->size) ? errno : 0;
}

static void *ring_next(const struct xrc_ring *ring)
{
	uint32_t at = ring->head->producer_index & ring->head->index_mask;
	void *element = ring->head->data + ((size_t)at << ring->head->log2_elem_size);

	memset(element, 0, (size_t)1 << ring->head->log2_elem_size);
	return element;
}

static void ring_push(const struct xrc_ring *ring)
{
	__atomic_store_n(&ring->head->producer_index,
			 (ring->head->producer_index + 1) & ring->head->index_mask, __ATOMIC_RELEASE);
}

/* --- Shared receive queues -------------------------------------------------------------------- */

int xrc_srq_create(struct xrc_srq *srq, uint32_t domain, const struct ibv_pd *pd, const struct ibv_cq *cq,
		   uint32_t depth)
{
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct rxe_create_srq_resp driver;
	} answer = {};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_create_xsrq core;
	} bytes = {
		.core = {
			.response = (uintptr_t)&answer,
			.user_handle = (uintptr_t)srq,
			.srq_type = SRQT_XRC,
			.pd_handle = pd->handle,
			.max_wr = depth,
			.max_sge = 1,
			.xrcd_handle = domain,
			.cq_handle = cq->handle,
		},
	};
	int error = command_write(pd->context, IB_USER_VERBS_CMD_CREATE_XSRQ, &bytes, sizeof(bytes), sizeof(answer));

	if (error)
		return error;
	if (answer.core.srqn != answer.driver.srq_num)
		die("the SRQ's number is %u, and %u to the provider", answer.core.srqn, answer.driver.srq_num);
	*srq = (struct xrc_srq){
		.context = pd->context,
		.handle = answer.core.srq_handle,
		.number = answer.core.srqn,
	};
	error = ring_map(&srq->ring, srq->context, &answer.driver.mi);
	if (error)
		xrc_srq_destroy(srq);
	return error;
}

int xrc_srq_destroy(struct xrc_srq *srq)
{
	struct ib_uverbs_destroy_srq_resp answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_destroy_srq core;
	} bytes = { .core = { .response = (uintptr_t)&answer, .srq_handle = srq->handle } };
	int error = command_write(srq->context, IB_USER_VERBS_CMD_DESTROY_SRQ, &bytes, sizeof(bytes), sizeof(answer));

	return error ? error : ring_unmap(&srq->ring);
}

int xrc_srq_arm(const struct xrc_srq *srq, uint32_t limit)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_modify_srq core;
	} bytes = { .core = { .srq_handle = srq->handle, .attr_mask = IBV_SRQ_LIMIT, .srq_limit = limit } };

	return command_write(srq->context, IB_USER_VERBS_CMD_MODIFY_SRQ, &bytes, sizeof(bytes), 0);
}

void xrc_srq_post(const struct xrc_srq *srq, uint64_t id, const void *memory, uint32_t length, uint32_t lkey)
{
	struct rxe_recv_wqe *wqe = ring_next(&srq->ring);

	wqe->wr_id = id;
	wqe->dma.length = length;
	wqe->dma.resid = length;
	wqe->dma.num_sge = 1;
	wqe->dma.sge[0] = (struct rxe_sge){ .addr = (uintptr_t)memory, .length = length, .lkey = lkey };
	ring_push(&srq->ring);
}

/* --- Queue pairs ------------------------------------------------------------------------------ */

/* `owner` is the PD of an initiator, the domain of a target. */
static int qp_create(struct xrc_qp *qp, struct ibv_context *context, int type, uint32_t owner, uint32_t cq,
		     uint32_t depth)
{
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct rxe_create_qp_resp driver;
	} answer = {};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_create_qp core;
	} bytes = {
		.core = {
			.response = (uintptr_t)&answer,
			.user_handle = (uintptr_t)qp,
			.pd_handle = owner,
			.send_cq_handle = cq,
			.max_send_wr = depth,
			.max_send_sge = 1,
			.qp_type = type,
		},
	};
	int error = command_write(context, IB_USER_VERBS_CMD_CREATE_QP, &bytes, sizeof(bytes), sizeof(answer));

	memset(qp, 0, sizeof(*qp));
	if (error)
		return error;
	qp->qp.context = context;
	qp->qp.handle = answer.core.qp_handle;
	qp->qp.qp_num = answer.core.qpn;
	qp->qp.qp_type = type;
	if (type == IBV_QPT_XRC_SEND)
		error = ring_map(&qp->sends, context, &answer.driver.sq_mi);
	/* Neither end has a receive queue. */
	if (!error && (answer.core.max_recv_wr || answer.driver.rq_mi.size))
		error = EPROTO;
	if (error)
		xrc_qp_destroy(qp);
	return error;
}

int xrc_initiator_create(struct xrc_qp *qp, const struct ibv_pd *pd, const struct ibv_cq *cq, uint32_t depth)
{
	return qp_create(qp, pd->context, IBV_QPT_XRC_SEND, pd->handle, cq->handle, depth);
}

int xrc_target_create(struct xrc_qp *qp, struct ibv_context *context, uint32_t domain)
{
	return qp_create(qp, context, IBV_QPT_XRC_RECV, domain, 0, 0);
}

int xrc_target_open(struct xrc_qp *qp, struct ibv_context *context, uint32_t domain, uint32_t number)
{
	struct ib_uverbs_create_qp_resp answer = {};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_open_qp core;
	} bytes = {
		.core = {
			.response = (uintptr_t)&answer,
			.user_handle = (uintptr_t)qp,
			.pd_handle = domain,
			.qpn = number,
			.qp_type = IBV_QPT_XRC_RECV,
		},
	};
	int error = command_write(context, IB_USER_VERBS_CMD_OPEN_QP, &bytes, sizeof(bytes), sizeof(answer));

	memset(qp, 0, sizeof(*qp));
	qp->qp.context = context;
	qp->qp.handle = answer.qp_handle;
	qp->qp.qp_num = answer.qpn;
	qp->qp.qp_type = IBV_QPT_XRC_RECV;
	return error;
}

int xrc_qp_destroy(struct xrc_qp *qp)
{
	struct ib_uverbs_destroy_qp_resp answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_destroy_qp core;
	} bytes = { .core = { .response = (uintptr_t)&answer, .qp_handle = qp->qp.handle } };
	int error = command_write(qp->qp.context, IB_USER_VERBS_CMD_DESTROY_QP, &bytes, sizeof(bytes), sizeof(answer));

	return error ? error : ring_unmap(&qp->sends);
}

void xrc_qp_ready(struct xrc_qp *qp, const struct device *from, const struct device *to, uint32_t to_qpn,
		  enum ibv_mtu mtu, struct patience patience, uint32_t psn, uint32_t to_psn)
{
	int error = qp_init(&qp->qp, access_of(qp->qp.qp_type), 0);

	if (error)
		die("%s: an XRC queue pair, RESET to INIT: %s", from->name, strerror(error));
	qp_ready_connected(from, &qp->qp, to, to_qpn, mtu, patience, psn, to_psn);
}

/* --- Requests --------------------------------------------------------------------------------- */

struct rxe_send_wqe *xrc_request(const struct xrc_qp *qp)
{
	return ring_next(&qp->sends);
}

void xrc_request_push(const struct xrc_qp *qp)
{
	ring_push(&qp->sends);
}

int xrc_doorbell(const struct xrc_qp *qp)
{
	return command_doorbell(qp->qp.context, qp->qp.handle);
}

int xrc_send_post(const struct xrc_qp *qp, const struct ibv_send_wr *wr, uint32_t srqn)
{
	struct rxe_send_wqe *wqe = xrc_request(qp);

	wqe->wr.wr_id = wr->wr_id;
	wqe->wr.reserved = srqn;
	wqe->wr.opcode = wr->opcode;
	wqe->wr.send_flags = wr->send_flags;
	wqe->wr.ex.imm_data = wr->imm_data;
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wqe->wr.wr.atomic.remote_addr = wr->wr.atomic.remote_addr;
		wqe->wr.wr.atomic.compare_add = wr->wr.atomic.compare_add;
		wqe->wr.wr.atomic.swap = wr->wr.atomic.swap;
		wqe->wr.wr.atomic.rkey = wr->wr.atomic.rkey;
	} else {
		wqe->wr.wr.rdma.remote_addr = wr->wr.rdma.remote_addr;
		wqe->wr.wr.rdma.rkey = wr->wr.rdma.rkey;
	}
	wqe->dma.length = wr->sg_list->length;
	wqe->dma.resid = wr->sg_list->length;
	wqe->dma.num_sge = 1;
	wqe->dma.sge[0] = (struct rxe_sge){
		.addr = wr->sg_list->addr, .length = wr->sg_list->length, .lkey = wr->sg_list->lkey,
	};
	xrc_request_push(qp);
	return xrc_doorbell(qp);
}
