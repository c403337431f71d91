// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues: the kernel produces, the process polls. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ferroce.h"

/* An element of the ring is what a program gets. */
static_assert(sizeof(struct ibv_wc) == sizeof(struct ib_uverbs_wc), "the layout of completions");
static_assert(offsetof(struct ibv_wc, imm_data) == offsetof(struct ib_uverbs_wc, ex), "the layout of completions");
static_assert(offsetof(struct ibv_wc, wc_flags) == offsetof(struct ib_uverbs_wc, wc_flags),
	      "the layout of completions");
static_assert(offsetof(struct ibv_wc, dlid_path_bits) == offsetof(struct ib_uverbs_wc, dlid_path_bits),
	      "the layout of completions");

/* What can be asked of an extended completion queue. */
#define WC_FIELDS (IBV_WC_STANDARD_FLAGS)

/* --- Polling ---------------------------------------------------------------------------------- */

int cq_poll(struct ibv_cq *ibcq, int count, struct ibv_wc *wc)
{
	struct cq *cq = cq_of(ibcq);
	int found = 0;
	uint32_t at;

	lock_take(&cq->lock);
	at = ring_consumer(&cq->ring);
	for (; found < count && !ring_is_empty(&cq->ring, at); found++, at++)
		memcpy(&wc[found], ring_slot(&cq->ring, at), sizeof(*wc));
	if (found)
		ring_give_back(&cq->ring, at);
	lock_release(&cq->lock);
	return found;
}

/*
 * Removes the completions of a queue pair that starts anew, or is no more, as providers of hardware do. The others move
 * towards the kernel's end, in order; the slots that become free are given back. The completion that is being read
 * stays: it is the first. Only a queue of one thread can have one here.
 */
void cq_forget(struct ibv_cq *ibcq, uint32_t qp_num)
{
	struct cq *cq = cq_of(ibcq);
	uint32_t consumer, from, to;

	lock_take(&cq->lock);
	consumer = ring_consumer(&cq->ring);
	for (from = consumer; !ring_is_empty(&cq->ring, from); from++)
		;
	for (to = from; from != consumer;) {
		const struct ibv_wc *wc = ring_slot(&cq->ring, --from);

		if (wc->qp_num == qp_num && wc != cq->current)
			continue;
		to--;
		if (to != from)
			memcpy(ring_slot(&cq->ring, to), wc, sizeof(*wc));
	}
	/* Otherwise nothing is written: where there is no lock, another thread may poll. */
	if (to != consumer) {
		ring_give_back(&cq->ring, to);
		cq->at = to;
		if (cq->current)
			cq->current = ring_slot(&cq->ring, to);
	}
	lock_release(&cq->lock);
}

static int cq_look(struct cq *cq)
{
	cq->current = NULL;
	if (ring_is_empty(&cq->ring, cq->at))
		return ENOENT;
	cq->current = ring_slot(&cq->ring, cq->at);
	cq->verbs.cq_ex.wr_id = cq->current->wr_id;
	cq->verbs.cq_ex.status = cq->current->status;
	return 0;
}

/* The current completion, if there is one, has been read. */
static void cq_take(struct cq *cq)
{
	if (!cq->current)
		return;
	cq->at++;
	ring_give_back(&cq->ring, cq->at);
}

/* The queue stays locked from here to cq_end_poll(), if there is a completion. */
static int cq_start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = cq_of_ex(ibcq);
	int error;

	if (attr->comp_mask)
		return EINVAL;
	lock_take(&cq->lock);
	cq->at = ring_consumer(&cq->ring);
	error = cq_look(cq);
	if (error)
		lock_release(&cq->lock);
	return error;
}

static int cq_next_poll(struct ibv_cq_ex *ibcq)
{
	struct cq *cq = cq_of_ex(ibcq);

	cq_take(cq);
	return cq_look(cq);
}

static void cq_end_poll(struct ibv_cq_ex *ibcq)
{
	struct cq *cq = cq_of_ex(ibcq);

	cq_take(cq);
	cq->current = NULL;
	lock_release(&cq->lock);
}

static enum ibv_wc_opcode cq_read_opcode(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->opcode;
}

static uint32_t cq_read_vendor_err(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->vendor_err;
}

static unsigned int cq_read_wc_flags(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->wc_flags;
}

static uint32_t cq_read_byte_len(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->byte_len;
}

/* Or the key that was invalidated: they share their place. */
static __be32 cq_read_imm_data(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->imm_data;
}

static uint32_t cq_read_qp_num(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->qp_num;
}

static uint32_t cq_read_src_qp(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->src_qp;
}

static uint32_t cq_read_slid(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->slid;
}

static uint8_t cq_read_sl(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->sl;
}

static uint8_t cq_read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return cq_of_ex(cq)->current->dlid_path_bits;
}

static void cq_set_functions(struct ibv_cq_ex *cq, uint64_t fields)
{
	cq->start_poll = cq_start_poll;
	cq->next_poll = cq_next_poll;
	cq->end_poll = cq_end_poll;
	cq->read_opcode = cq_read_opcode;
	cq->read_vendor_err = cq_read_vendor_err;
	cq->read_wc_flags = cq_read_wc_flags;
	if (fields & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = cq_read_byte_len;
	if (fields & IBV_WC_EX_WITH_IMM)
		cq->read_imm_data = cq_read_imm_data;
	if (fields & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = cq_read_qp_num;
	if (fields & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = cq_read_src_qp;
	if (fields & IBV_WC_EX_WITH_SLID)
		cq->read_slid = cq_read_slid;
	if (fields & IBV_WC_EX_WITH_SL)
		cq->read_sl = cq_read_sl;
	if (fields & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = cq_read_dlid_path_bits;
}

/* --- Creating and destroying ------------------------------------------------------------------ */

/* Maps the ring of a queue that the kernel has made. */
static int cq_finish(struct cq *cq, struct ibv_context *context, const struct mminfo *info, bool is_of_one_thread)
{
	int error = ring_map(&cq->ring, context, info, sizeof(struct ibv_wc));

	if (error) {
		/* libibverbs waits on these while it destroys the queue, and sets them up after us only. */
		verbs_init_cq(&cq->verbs.cq, context, NULL, NULL);
		ibv_cmd_destroy_cq(&cq->verbs.cq);
		return error;
	}
	lock_init(&cq->lock, is_of_one_thread);
	return 0;
}

struct ibv_cq *cq_create(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, int comp_vector)
{
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct rxe_create_cq_resp driver;
	} response = {};
	struct cq *cq = calloc(1, sizeof(*cq));
	struct ibv_create_cq command;
	int error;

	if (!cq)
		return NULL;
	error = ibv_cmd_create_cq(context, cqe, channel, comp_vector, &cq->verbs.cq, &command, sizeof(command),
				  &response.core, sizeof(response));
	if (!error)
		error = cq_finish(cq, context, &response.driver.mi, false);
	if (error) {
		free(cq);
		errno = error;
		return NULL;
	}
	return &cq->verbs.cq;
}

struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct {
		struct ib_uverbs_ex_create_cq_resp core;
		struct rxe_create_cq_resp driver;
	} response = {};
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	struct ibv_cq_init_attr_ex core = *attr;
	struct ibv_create_cq_ex command;
	bool is_of_one_thread;
	struct cq *cq;
	int error;

	if (attr->wc_flags & ~(uint64_t)WC_FIELDS || attr->comp_mask & ~known) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	is_of_one_thread = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
			    attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) ||
			   (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && pd_is_of_one_thread(attr->parent_domain));
	/* The kernel has no part in that. */
	core.comp_mask &= ~IBV_CQ_INIT_ATTR_MASK_PD;
	error = ibv_cmd_create_cq_ex(context, &core, &cq->verbs, &command, sizeof(command), &response.core,
				     sizeof(response), 0);
	if (!error)
		error = cq_finish(cq, context, &response.driver.mi, is_of_one_thread);
	if (error) {
		free(cq);
		errno = error;
		return NULL;
	}
	cq_set_functions(&cq->verbs.cq_ex, attr->wc_flags);
	return &cq->verbs.cq_ex;
}

/* The kernel moves what was not polled to a new ring, so nobody may poll meanwhile. */
int cq_resize(struct ibv_cq *ibcq, int cqe)
{
	struct {
		struct ib_uverbs_resize_cq_resp core;
		struct rxe_resize_cq_resp driver;
	} response = {};
	struct cq *cq = cq_of(ibcq);
	struct ibv_resize_cq command;
	int error;

	lock_take(&cq->lock);
	error = ibv_cmd_resize_cq(ibcq, cqe, &command, sizeof(command), &response.core, sizeof(response));
	if (!error)
		error = ring_replace(&cq->ring, ibcq->context, &response.driver.mi, sizeof(struct ibv_wc));
	/* The completion that is being read moved with the others: it is the first. */
	cq->at = ring_consumer(&cq->ring);
	if (cq->current)
		cq->current = ring_is_empty(&cq->ring, cq->at) ? NULL : ring_slot(&cq->ring, cq->at);
	lock_release(&cq->lock);
	return error;
}

int cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq command;

	return ibv_cmd_modify_cq(cq, attr, &command, sizeof(command));
}

int cq_destroy(struct ibv_cq *ibcq)
{
	struct cq *cq = cq_of(ibcq);
	int error = ibv_cmd_destroy_cq(ibcq);

	if (error)
		return error;
	ring_unmap(&cq->ring);
	lock_destroy(&cq->lock);
	free(cq);
	return 0;
}
