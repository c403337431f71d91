// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Receive requests, and the shared queues of them; XRC domains, whose SRQs have numbers. */

#include <errno.h>
#include <stdlib.h>

#include "ferroce.h"

/* --- Rings of receive requests ---------------------------------------------------------------- */

int receives_map(struct receives *receives, struct ibv_pd *pd, const struct mminfo *info, uint32_t max_sge)
{
	int error = ring_map(&receives->ring, pd->context, info, RECV_WQE_ROOM(max_sge));

	if (error)
		return error;
	receives->max_sge = max_sge;
	lock_init(&receives->lock, pd_is_of_one_thread(pd));
	return 0;
}

void receives_unmap(struct receives *receives)
{
	if (!receives->ring.head)
		return;
	ring_unmap(&receives->ring);
	lock_destroy(&receives->lock);
}

static int receive_fill(const struct receives *receives, uint32_t at, const struct ibv_recv_wr *wr)
{
	struct rxe_recv_wqe *wqe = ring_slot(&receives->ring, at);
	uint32_t length = 0;
	int i;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > receives->max_sge)
		return EINVAL;
	if (ring_is_full(&receives->ring, at))
		return ENOMEM;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *from = &wr->sg_list[i];

		wqe->dma.sge[i] = (struct rxe_sge){ .addr = from->addr, .length = from->length, .lkey = from->lkey };
		length += from->length;
	}
	wqe->wr_id = wr->wr_id;
	wqe->reserved = 0;
	wqe->padding = 0;
	wqe->dma.length = length;
	wqe->dma.resid = length;
	wqe->dma.cur_sge = 0;
	wqe->dma.num_sge = wr->num_sge;
	wqe->dma.sge_offset = 0;
	wqe->dma.reserved = 0;
	return 0;
}

/* The kernel needs no word of it: it looks when a message comes. */
int receives_post(struct receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint32_t begin, at;
	int error = 0;

	lock_take(&receives->lock);
	begin = ring_producer(&receives->ring);
	for (at = begin; wr; wr = wr->next, at++) {
		error = receive_fill(receives, at, wr);
		if (error) {
			*bad = wr;
			break;
		}
	}
	if (at != begin)
		ring_publish(&receives->ring, at);
	lock_release(&receives->lock);
	return error;
}

/* --- XRC domains ------------------------------------------------------------------------------ */

struct ibv_xrcd *xrcd_open(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct verbs_xrcd *xrcd = calloc(1, sizeof(*xrcd));
	struct ib_uverbs_open_xrcd_resp response = {};
	struct ibv_open_xrcd command;
	int error;

	if (!xrcd)
		return NULL;
	error = ibv_cmd_open_xrcd(context, xrcd, sizeof(*xrcd), attr, &command, sizeof(command), &response,
				  sizeof(response));
	if (error) {
		free(xrcd);
		errno = error;
		return NULL;
	}
	return &xrcd->xrcd;
}

int xrcd_close(struct ibv_xrcd *ibxrcd)
{
	struct verbs_xrcd *xrcd = container_of(ibxrcd, struct verbs_xrcd, xrcd);
	int error = ibv_cmd_close_xrcd(xrcd);

	if (!error)
		free(xrcd);
	return error;
}

/* --- Shared receive queues -------------------------------------------------------------------- */

/* Maps the ring of a queue that the kernel has made. */
static int srq_finish(struct srq *srq, struct ibv_pd *pd, const struct mminfo *info, uint32_t max_sge)
{
	int error = receives_map(&srq->receives, pd, info, max_sge);

	if (error)
		ibv_cmd_destroy_srq(&srq->verbs.srq);
	return error;
}

struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct rxe_create_srq_resp driver;
	} response = {};
	struct srq *srq = calloc(1, sizeof(*srq));
	struct ibv_create_srq command;
	int error;

	if (!srq)
		return NULL;
	error = ibv_cmd_create_srq(pd, &srq->verbs.srq, attr, &command, sizeof(command), &response.core,
				   sizeof(response));
	if (!error)
		error = srq_finish(srq, pd, &response.driver.mi, attr->attr.max_sge);
	if (error) {
		free(srq);
		errno = error;
		return NULL;
	}
	return &srq->verbs.srq;
}

struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct rxe_create_srq_resp driver;
	} response = {};
	struct ibv_create_xsrq command;
	struct srq *srq;
	int error;

	/* There is no tag matching. */
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC &&
	    attr->srq_type != IBV_SRQT_XRC) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* libibverbs takes the domain as it comes. */
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD && !attr->xrcd) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	error = ibv_cmd_create_srq_ex(context, &srq->verbs, attr, &command, sizeof(command), &response.core,
				      sizeof(response));
	if (!error)
		error = srq_finish(srq, attr->pd, &response.driver.mi, attr->attr.max_sge);
	if (error) {
		free(srq);
		errno = error;
		return NULL;
	}
	/* ibv_cmd_create_srq_ex() forgets the context, and before release 60 the domain. */
	srq->verbs.srq.srq_context = attr->srq_context;
	srq->verbs.srq.pd = attr->pd;
	return &srq->verbs.srq;
}

/* A new size is a new ring, to which the kernel moves what is posted: nobody may post meanwhile. */
int srq_modify(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct srq *srq = srq_of(ibsrq);
	struct mminfo info = {};
	struct {
		struct ibv_modify_srq core;
		struct rxe_modify_srq_cmd driver;
	} command = { .driver.mmap_info_addr = (uintptr_t)&info };
	int error;

	if (!(mask & IBV_SRQ_MAX_WR))
		return ibv_cmd_modify_srq(ibsrq, attr, mask, &command.core, sizeof(command));
	lock_take(&srq->receives.lock);
	error = ibv_cmd_modify_srq(ibsrq, attr, mask, &command.core, sizeof(command));
	if (!error)
		error = ring_replace(&srq->receives.ring, ibsrq->context, &info,
				     RECV_WQE_ROOM(srq->receives.max_sge));
	lock_release(&srq->receives.lock);
	return error;
}

int srq_query(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq command;

	return ibv_cmd_query_srq(srq, attr, &command, sizeof(command));
}

/* Only XRC SRQs have a number that a peer can name. */
int srq_number(struct ibv_srq *ibsrq, uint32_t *number)
{
	struct srq *srq = srq_of(ibsrq);

	if (srq->verbs.srq_type != IBV_SRQT_XRC)
		return EINVAL;
	*number = srq->verbs.srq_num;
	return 0;
}

int srq_destroy(struct ibv_srq *ibsrq)
{
	struct srq *srq = srq_of(ibsrq);
	int error = ibv_cmd_destroy_srq(ibsrq);

	if (error)
		return error;
	receives_unmap(&srq->receives);
	free(srq);
	return 0;
}

int srq_post_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return receives_post(&srq_of(ibsrq)->receives, wr, bad);
}
