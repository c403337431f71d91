// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Posting: requests are put into the rings; for sends, a system call tells the kernel that there are some. */

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "ferroce.h"

/* What the kernel goes by (Documentation/user-abi.rst). */
static_assert(sizeof(struct rxe_send_wqe) == 208 && offsetof(struct rxe_send_wqe, dma) == 184, "the layout of a send");
static_assert(sizeof(struct rxe_recv_wqe) == 40, "the layout of a receive");

#define ATOMIC_WRITE_LENGTH 8

/*
 * Tells the kernel that the send queue has new elements. The command has no list of requests: these stand in the ring.
 * Where the state of the QP takes no sends, the kernel drops them and says so.
 */
static int doorbell(struct ibv_qp *qp)
{
	struct ib_uverbs_post_send_resp response;
	struct ibv_post_send command = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_POST_SEND,
			.in_words = sizeof(command) / 4,
			.out_words = sizeof(response) / 4,
		},
		.response = (uintptr_t)&response,
		.qp_handle = qp->handle,
		.wqe_size = sizeof(struct ib_uverbs_send_wr),
	};

	if (write(qp->context->cmd_fd, &command, sizeof(command)) == sizeof(command))
		return 0;
	/*
	 * The kernel lets only those write who have the very credentials that opened the device: no other process, and nobody
	 * after setuid(). libibverbs gives the same command by an ioctl, which all may call.
	 */
	if (errno == EACCES)
		return ibv_cmd_post_send(qp, NULL, &(struct ibv_send_wr *){ NULL });
	return errno;
}

/* --- Elements --------------------------------------------------------------------------------- */

/* All fields that nobody sets are 0. */
static struct rxe_send_wqe *wqe_begin(struct qp *qp, uint32_t at, uint64_t id, uint32_t opcode, uint32_t flags)
{
	struct rxe_send_wqe *wqe;

	if (ring_is_full(&qp->sends, at))
		return NULL;
	wqe = ring_slot(&qp->sends, at);
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr.wr_id = id;
	wqe->wr.opcode = opcode;
	wqe->wr.send_flags = flags;
	return wqe;
}

static void wqe_set_length(struct rxe_send_wqe *wqe, uint32_t length)
{
	wqe->dma.length = length;
	wqe->dma.resid = length;
}

static int wqe_set_sges(const struct qp *qp, struct rxe_send_wqe *wqe, const struct ibv_sge *list, size_t count)
{
	uint32_t length = 0;
	size_t i;

	if (count > qp->max_sge)
		return EINVAL;
	for (i = 0; i < count; i++) {
		wqe->dma.sge[i] = (struct rxe_sge){
			.addr = list[i].addr, .length = list[i].length, .lkey = list[i].lkey,
		};
		length += list[i].length;
	}
	wqe_set_length(wqe, length);
	wqe->dma.num_sge = count;
	return 0;
}

/* Appends to the inline data of an element, which has so many bytes. That number is not read from the shared ring. */
static int wqe_add_inline(const struct qp *qp, struct rxe_send_wqe *wqe, uint32_t *used, const void *data,
			  size_t length)
{
	if (length > qp->max_inline - *used)
		return EINVAL;
	/* Nothing may stand at no address. */
	if (length)
		memcpy(wqe->dma.inline_data + *used, data, length);
	*used += length;
	return 0;
}

static int wqe_set_inline_sges(const struct qp *qp, struct rxe_send_wqe *wqe, const struct ibv_sge *list, size_t count)
{
	uint32_t used = 0;
	size_t i;
	int error;

	for (i = 0; i < count; i++) {
		error = wqe_add_inline(qp, wqe, &used, (const void *)(uintptr_t)list[i].addr, list[i].length);
		if (error)
			return error;
	}
	wqe_set_length(wqe, used);
	wqe->dma.num_sge = count;
	return 0;
}

static void wqe_set_rdma(struct rxe_send_wqe *wqe, uint64_t addr, uint32_t rkey)
{
	wqe->wr.wr.rdma.remote_addr = addr;
	wqe->wr.wr.rdma.rkey = rkey;
}

static void wqe_set_atomic(struct rxe_send_wqe *wqe, uint64_t addr, uint32_t rkey, uint64_t compare_add, uint64_t swap)
{
	wqe->wr.wr.atomic.remote_addr = addr;
	wqe->wr.wr.atomic.rkey = rkey;
	wqe->wr.wr.atomic.compare_add = compare_add;
	wqe->wr.wr.atomic.swap = swap;
}

static void wqe_set_datagram(struct rxe_send_wqe *wqe, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	wqe->wr.wr.ud.remote_qpn = qpn;
	wqe->wr.wr.ud.remote_qkey = qkey;
	wqe->wr.wr.ud.ah_num = container_of(ah, struct ah, ah)->number;
}

/* The keys say which region and window these are, so the kernel is asked, and nobody else. */
static void wqe_set_bind(struct rxe_send_wqe *wqe, const struct ibv_mw *mw, uint32_t rkey,
			 const struct ibv_mw_bind_info *info)
{
	wqe->wr.wr.mw.addr = info->addr;
	wqe->wr.wr.mw.length = info->length;
	wqe->wr.wr.mw.mr_lkey = info->mr ? info->mr->lkey : 0;
	wqe->wr.wr.mw.mw_rkey = mw->rkey;
	wqe->wr.wr.mw.rkey = rkey;
	wqe->wr.wr.mw.access = info->mw_access_flags;
}

/* --- ibv_post_send ---------------------------------------------------------------------------- */

/* The operation's own fields. */
static int wqe_set_operation(const struct qp *qp, struct rxe_send_wqe *wqe, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wqe->wr.ex.imm_data = wr->imm_data;
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		wqe->wr.ex.invalidate_rkey = wr->invalidate_rkey;
		break;
	default:
		break;
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		wqe_set_rdma(wqe, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
		return 0;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		if (qp->verbs.qp.qp_type != IBV_QPT_UD)
			return 0;
		if (!wr->wr.ud.ah)
			return EINVAL;
		wqe_set_datagram(wqe, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
		return 0;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe_set_atomic(wqe, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey, wr->wr.atomic.compare_add,
			       wr->wr.atomic.swap);
		return 0;
	case IBV_WR_BIND_MW:
		if (!wr->bind_mw.mw)
			return EINVAL;
		wqe_set_bind(wqe, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return 0;
	default:
		return EINVAL;
	}
}

static int post_one(struct qp *qp, uint32_t at, const struct ibv_send_wr *wr)
{
	struct rxe_send_wqe *wqe;
	int error;

	if (wr->num_sge < 0)
		return EINVAL;
	wqe = wqe_begin(qp, at, wr->wr_id, wr->opcode, wr->send_flags);
	if (!wqe)
		return ENOMEM;
	error = wqe_set_operation(qp, wqe, wr);
	if (error)
		return error;
	/* These two have neither a payload nor an SRQ. */
	if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV)
		return 0;
	if (qp->verbs.qp.qp_type == IBV_QPT_XRC_SEND)
		wqe->wr.reserved = wr->qp_type.xrc.remote_srqn;
	return wr->send_flags & IBV_SEND_INLINE ? wqe_set_inline_sges(qp, wqe, wr->sg_list, wr->num_sge) :
						  wqe_set_sges(qp, wqe, wr->sg_list, wr->num_sge);
}

int qp_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *first = wr;
	struct qp *qp = qp_of(ibqp);
	uint32_t begin, at;
	int error = 0, refused;

	if (!qp->sends.head) {
		*bad = wr;
		return EINVAL;
	}
	lock_take(&qp->lock);
	begin = ring_producer(&qp->sends);
	for (at = begin; wr; wr = wr->next, at++) {
		error = post_one(qp, at, wr);
		if (error) {
			*bad = wr;
			break;
		}
	}
	if (at != begin)
		ring_publish(&qp->sends, at);
	lock_release(&qp->lock);
	if (at == begin)
		return error;
	refused = doorbell(ibqp);
	if (!refused)
		return error;
	*bad = first;
	return refused;
}

int qp_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = qp_of(ibqp);

	/* What is posted in RESET would be lost. */
	if (!qp->receives.ring.head || ibqp->state == IBV_QPS_RESET) {
		*bad = wr;
		return EINVAL;
	}
	return receives_post(&qp->receives, wr, bad);
}

/* Of a window of type 1: each bind gives it another key. */
int qp_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info },
	}, *bad;
	int error;

	/* Only a window of type 2 can have addresses that begin at 0. */
	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL;
	error = qp_post_send(qp, &wr, &bad);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}

/* --- ibv_wr_* --------------------------------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *ibqp)
{
	struct qp *qp = qp_of_ex(ibqp);

	lock_take(&qp->lock);
	qp->next = ring_producer(&qp->sends);
	qp->wqe = NULL;
	qp->error = 0;
}

static int wr_complete(struct ibv_qp_ex *ibqp)
{
	struct qp *qp = qp_of_ex(ibqp);
	bool posts = qp->wqe && !qp->error;
	int error = qp->error;

	if (posts)
		ring_publish(&qp->sends, qp->next);
	lock_release(&qp->lock);
	return posts ? doorbell(&qp->verbs.qp) : error;
}

static void wr_abort(struct ibv_qp_ex *ibqp)
{
	lock_release(&qp_of_ex(ibqp)->lock);
}

/* A request. After an error there are no more, and NULL. */
static struct rxe_send_wqe *wr_begin(struct ibv_qp_ex *ibqp, uint32_t opcode)
{
	struct qp *qp = qp_of_ex(ibqp);

	if (qp->error)
		return NULL;
	/* What makes data inline here is how they are given. */
	qp->wqe = wqe_begin(qp, qp->next, ibqp->wr_id, opcode, ibqp->wr_flags & ~IBV_SEND_INLINE);
	if (qp->wqe)
		qp->next++;
	else
		qp->error = ENOMEM;
	return qp->wqe;
}

static void wr_send(struct ibv_qp_ex *qp)
{
	wr_begin(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		wqe->wr.ex.imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_SEND_WITH_INV);

	if (wqe)
		wqe->wr.ex.invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_LOCAL_INV);

	if (wqe)
		wqe->wr.ex.invalidate_rkey = rkey;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_RDMA_READ);

	if (wqe)
		wqe_set_rdma(wqe, addr, rkey);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_RDMA_WRITE);

	if (wqe)
		wqe_set_rdma(wqe, addr, rkey);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm_data)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM);

	if (!wqe)
		return;
	wqe_set_rdma(wqe, addr, rkey);
	wqe->wr.ex.imm_data = imm_data;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP);

	if (wqe)
		wqe_set_atomic(wqe, addr, rkey, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);

	if (wqe)
		wqe_set_atomic(wqe, addr, rkey, add, 0);
}

/* Its eight bytes stand where segments would, and are not inline data. */
static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_ATOMIC_WRITE);

	if (!wqe)
		return;
	wqe_set_rdma(wqe, addr, rkey);
	memcpy(wqe->dma.atomic_wr, value, ATOMIC_WRITE_LENGTH);
	wqe_set_length(wqe, ATOMIC_WRITE_LENGTH);
}

#if HAS_FLUSH
static void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_FLUSH);

	if (!wqe)
		return;
	/* A flush of a whole region has neither address nor length. */
	if (level == IBV_FLUSH_MR)
		length = 0;
	if (length > UINT32_MAX) {
		qp_of_ex(qp)->error = EINVAL;
		return;
	}
	wqe->wr.wr.flush.remote_addr = addr;
	wqe->wr.wr.flush.length = length;
	wqe->wr.wr.flush.rkey = rkey;
	wqe->wr.wr.flush.type = type;
	wqe->wr.wr.flush.level = level;
	wqe_set_length(wqe, length);
}
#endif

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct rxe_send_wqe *wqe = wr_begin(qp, IBV_WR_BIND_MW);

	if (!wqe)
		return;
	if (mw)
		wqe_set_bind(wqe, mw, rkey, info);
	else
		qp_of_ex(qp)->error = EINVAL;
}

/* The request that is being completed. */
static struct rxe_send_wqe *wr_current(struct qp *qp)
{
	if (!qp->error && !qp->wqe)
		qp->error = EINVAL;
	return qp->error ? NULL : qp->wqe;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct qp *qp = qp_of_ex(ibqp);
	struct rxe_send_wqe *wqe = wr_current(qp);

	if (!wqe)
		return;
	if (ah)
		wqe_set_datagram(wqe, ah, qpn, qkey);
	else
		qp->error = EINVAL;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ibqp, uint32_t srqn)
{
	struct rxe_send_wqe *wqe = wr_current(qp_of_ex(ibqp));

	if (wqe)
		wqe->wr.reserved = srqn;
}

static void wr_set_inline_data(struct ibv_qp_ex *ibqp, void *data, size_t length)
{
	struct ibv_data_buf buffer = { .addr = data, .length = length };

	ibqp->wr_set_inline_data_list(ibqp, 1, &buffer);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ibqp, size_t count, const struct ibv_data_buf *list)
{
	struct qp *qp = qp_of_ex(ibqp);
	struct rxe_send_wqe *wqe = wr_current(qp);
	uint32_t used = 0;
	size_t i;

	if (!wqe)
		return;
	wqe->wr.send_flags |= IBV_SEND_INLINE;
	for (i = 0; i < count && !qp->error; i++)
		qp->error = wqe_add_inline(qp, wqe, &used, list[i].addr, list[i].length);
	wqe_set_length(wqe, used);
}

static void wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t count, const struct ibv_sge *list)
{
	struct qp *qp = qp_of_ex(ibqp);
	struct rxe_send_wqe *wqe = wr_current(qp);

	if (!wqe)
		return;
	/* Of several calls of setters the last one counts. */
	wqe->wr.send_flags &= ~IBV_SEND_INLINE;
	qp->error = wqe_set_sges(qp, wqe, list, count);
}

static void wr_set_sge(struct ibv_qp_ex *ibqp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ibqp, 1, &sge);
}

/* What the kernel executes on each type of QP: UC has no SEND with invalidate, XRC neither FLUSH nor ATOMIC WRITE. */
static uint64_t operations_of(enum ibv_qp_type type)
{
	const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const uint64_t windows = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
	const uint64_t answered = IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

	switch (type) {
	case IBV_QPT_RC:
		return sends | writes | windows | answered | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE;
	case IBV_QPT_XRC_SEND:
		return sends | writes | windows | answered;
	case IBV_QPT_UC:
		return sends | writes | windows;
	case IBV_QPT_UD:
		return sends;
	case IBV_QPT_RAW_PACKET:
		return IBV_QP_EX_WITH_SEND;
	default:
		return 0;
	}
}

int qp_set_operations(struct qp *qp, uint64_t operations)
{
	const uint64_t known = operations_of(qp->verbs.qp.qp_type);
	struct ibv_qp_ex *ex = &qp->verbs.qp_ex;

	/* The target of an XRC connection sends nothing. */
	if (!known || operations & ~known)
		return EOPNOTSUPP;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_bind_mw = wr_bind_mw;
#if HAS_FLUSH
	ex->wr_flush = wr_flush;
#endif
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	return 0;
}
