// SPDX-License-Identifier: GPL-2.0
/*
 * ib_drain_qp() and its parts: when they return, all requests have completed.
 */

#include "consumer.h"

#define SENDS 40
#define RECEIVES 20

struct outstanding {
	struct request *sends, *receives;
};

/* SENDs of side a that no receive waits for, and receives that nothing is sent to. */
static int post_outstanding(struct link *link, struct outstanding *outstanding)
{
	struct ib_sge piece = piece_of(&link->a, 0, 3000);
	struct ib_send_wr send;
	int i;

	outstanding->sends = requests_new(link, SENDS);
	outstanding->receives = requests_new(link, RECEIVES);
	for (i = 0; i < RECEIVES; i++)
		try(post_receive(&link->a, FROM_TASK, &outstanding->receives[i], 0, 100));
	for (i = 0; i < SENDS; i++)
		try(post_sends(&link->a, FROM_TASK, send_of(&send, &outstanding->sends[i], IB_WR_SEND, &piece, 1)));
	return 0;
}

/* All of them have completed, in order: nothing is waited for. */
static int are_flushed(struct link *link, const struct request *requests, int count)
{
	struct test *test = link->test;
	int i, times;

	for (i = 0; i < count; i++) {
		times = atomic_read_acquire(&requests[i].times);
		must(test, times == 1, "%d completions of request %d of %d", times, i, count);
		must(test, requests[i].wc.status == IB_WC_WR_FLUSH_ERR, "status %s",
		     ib_wc_status_msg(requests[i].wc.status));
		must(test, !i || requests[i].order > requests[i - 1].order, "out of order");
	}
	return 0;
}

enum part { DRAIN_QP, DRAIN_SQ, DRAIN_RQ };

static int drain(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct outstanding outstanding;

	if (!link)
		return -1;
	try(post_outstanding(link, &outstanding));
	switch (row->first) {
	case DRAIN_QP:
		ib_drain_qp(link->a.qp);
		break;
	case DRAIN_SQ:
		ib_drain_sq(link->a.qp);
		break;
	case DRAIN_RQ:
		ib_drain_rq(link->a.qp);
		break;
	}
	if (row->first != DRAIN_RQ)
		try(are_flushed(link, outstanding.sends, SENDS));
	if (row->first != DRAIN_SQ)
		try(are_flushed(link, outstanding.receives, RECEIVES));
	must(test, qp_state(&link->a) == IB_QPS_ERR, "the state is %d", qp_state(&link->a));
	/* Again, with nothing there. */
	ib_drain_qp(link->a.qp);
	try(are_flushed(link, outstanding.sends, SENDS));
	try(are_flushed(link, outstanding.receives, RECEIVES));
	ib_drain_qp(link->b.qp);
	return 0;
}

#define FIRST 30

/* Messages are on their way: those that came first may have arrived, the SENDs behind them, which no receive waits for, not. */
static int drain_under_way(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .rights = ALL_RIGHTS, .sends = 128 };
	struct link *link = link_make(test, &shape);
	struct request *sends;
	struct ib_rdma_wr send = {};
	struct ib_sge piece;
	int i, flushed = 0;

	if (!link)
		return -1;
	sends = requests_new(link, 100);
	piece = piece_of(&link->a, 0, 50000);
	for (i = 0; i < 100; i++) {
		enum ib_wr_opcode opcode = i >= FIRST ? IB_WR_SEND : i % 3 ? IB_WR_RDMA_WRITE : IB_WR_RDMA_READ;

		try(post_sends(&link->a, FROM_TASK,
			       rdma_of(&send, &sends[i], opcode, &piece, 1, link->b.address, link->b.region->rkey)));
	}
	must(test, wait_on(&link->a, atomic_read_acquire(&sends[3].times)), "no message comes");
	ib_drain_qp(link->a.qp);
	for (i = 0; i < 100; i++) {
		must(test, atomic_read_acquire(&sends[i].times) == 1, "%d completions of request %d",
		     atomic_read(&sends[i].times), i);
		must(test, sends[i].wc.status == (flushed ? IB_WC_WR_FLUSH_ERR : sends[i].wc.status),
		     "status %s behind one that was flushed", ib_wc_status_msg(sends[i].wc.status));
		must(test, sends[i].wc.status == IB_WC_SUCCESS || sends[i].wc.status == IB_WC_WR_FLUSH_ERR, "status %s",
		     ib_wc_status_msg(sends[i].wc.status));
		flushed += sends[i].wc.status == IB_WC_WR_FLUSH_ERR;
		must(test, !i || sends[i].order > sends[i - 1].order, "out of order");
	}
	must(test, flushed >= 100 - FIRST, "%d of 100 were flushed", flushed);
	return 0;
}

/* Of a shared queue no receive is flushed; the queue pair says that it takes no more. */
static int drain_shared(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .is_shared = true };
	struct link *link = link_make(test, &shape);
	struct request *receives, *sends, *sending;
	struct ib_sge piece;
	struct ib_send_wr send;
	int i;

	if (!link)
		return -1;
	receives = requests_new(link, RECEIVES);
	sends = requests_new(link, SENDS);
	for (i = 0; i < RECEIVES; i++)
		try(post_receive(&link->b, FROM_TASK, &receives[i], 0, 100));
	piece = piece_of(&link->a, 0, 10);
	sending = request_new(link);
	try(post_sends(&link->a, FROM_TASK, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	try(receive_ends(&link->b, &receives[0], IB_WC_RECV, 10, 0, 0));
	/* Its own sends, which nobody receives. */
	for (i = 0; i < SENDS; i++)
		try(post_sends(&link->b, FROM_TASK, send_of(&send, &sends[i], IB_WR_SEND, &piece, 1)));
	ib_drain_qp(link->b.qp);
	try(are_flushed(link, sends, SENDS));
	for (i = 1; i < RECEIVES; i++)
		must(test, !atomic_read(&receives[i].times), "a receive of the shared queue completes");
	must(test, wait_on(&link->b, atomic_read(&link->b.events[IB_EVENT_QP_LAST_WQE_REACHED])), "no event");
	must(test, atomic_read(&link->b.events[IB_EVENT_QP_LAST_WQE_REACHED]) == 1, "more than one event");
	return 0;
}

static const struct row rows[] = {
	{ "ib_drain_qp, IB_POLL_DIRECT", drain, DRAIN_QP, QUEUE_DIRECT },
	{ "ib_drain_qp, IB_POLL_SOFTIRQ", drain, DRAIN_QP, QUEUE_SOFTIRQ },
	{ "ib_drain_qp, IB_POLL_WORKQUEUE", drain, DRAIN_QP, QUEUE_WORKQUEUE },
	{ "ib_drain_qp, IB_POLL_UNBOUND_WORKQUEUE", drain, DRAIN_QP, QUEUE_UNBOUND },
	{ "ib_drain_qp, shared queue, IB_POLL_SOFTIRQ", drain, DRAIN_QP, QUEUE_SHARED_SOFTIRQ },
	{ "ib_drain_qp, shared queue, IB_POLL_WORKQUEUE", drain, DRAIN_QP, QUEUE_SHARED_WORKQUEUE },
	{ "ib_drain_sq, IB_POLL_DIRECT", drain, DRAIN_SQ, QUEUE_DIRECT },
	{ "ib_drain_sq, IB_POLL_SOFTIRQ", drain, DRAIN_SQ, QUEUE_SOFTIRQ },
	{ "ib_drain_sq, IB_POLL_WORKQUEUE", drain, DRAIN_SQ, QUEUE_WORKQUEUE },
	{ "ib_drain_sq, IB_POLL_UNBOUND_WORKQUEUE", drain, DRAIN_SQ, QUEUE_UNBOUND },
	{ "ib_drain_rq, IB_POLL_DIRECT", drain, DRAIN_RQ, QUEUE_DIRECT },
	{ "ib_drain_rq, IB_POLL_SOFTIRQ", drain, DRAIN_RQ, QUEUE_SOFTIRQ },
	{ "ib_drain_rq, IB_POLL_WORKQUEUE", drain, DRAIN_RQ, QUEUE_WORKQUEUE },
	{ "ib_drain_rq, IB_POLL_UNBOUND_WORKQUEUE", drain, DRAIN_RQ, QUEUE_UNBOUND },
	{ "ib_drain_qp in the middle of messages, IB_POLL_DIRECT", drain_under_way, 0, QUEUE_DIRECT },
	{ "ib_drain_qp in the middle of messages, IB_POLL_SOFTIRQ", drain_under_way, 0, QUEUE_SOFTIRQ },
	{ "ib_drain_qp in the middle of messages, IB_POLL_WORKQUEUE", drain_under_way, 0, QUEUE_WORKQUEUE },
	{ "ib_drain_qp in the middle of messages, shared queue", drain_under_way, 0, QUEUE_SHARED_WORKQUEUE },
	{ "ib_drain_qp with a shared receive queue, IB_POLL_DIRECT", drain_shared, 0, QUEUE_DIRECT },
	{ "ib_drain_qp with a shared receive queue, IB_POLL_SOFTIRQ", drain_shared, 0, QUEUE_SOFTIRQ },
	{ "ib_drain_qp with a shared receive queue, IB_POLL_WORKQUEUE", drain_shared, 0, QUEUE_WORKQUEUE },
};

const struct rows drain_rows = { rows, ARRAY_SIZE(rows) };
