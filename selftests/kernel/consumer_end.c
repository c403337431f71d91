// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of all memory; queue pairs that are queried, end, or are destroyed in the middle of messages.
 */

#include "consumer.h"

/* Memory of any kind, by that one key. */
static int global_key(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY };
	struct link *link = link_make(test, &shape);
	u8 *memory;
	u64 address;
	u32 key;
	int i;

	if (!link)
		return -1;
	key = link->pd->unsafe_global_rkey;
	must(test, key, "there is no key");
	for (i = 0; i < 3; i++) {
		memory = memory_new(test, i);
		must(test, memory, "no memory");
		address = ib_dma_map_single(test->device, memory, PAGE_SIZE << i, DMA_BIDIRECTIONAL);
		pattern_fill(link->a.memory, PAGE_SIZE, i);
		try(access(link, IB_WR_RDMA_WRITE, address + 50, 3000, key, IB_WC_SUCCESS));
		must(test, pattern_is(memory + 50, 3000, i), "other bytes");
		must(test, untouched(memory, 50) && untouched(memory + 3050, (PAGE_SIZE << i) - 3050), "bytes around it");
		memset(link->a.memory, 0, PAGE_SIZE);
		try(access(link, IB_WR_RDMA_READ, address + 50, 3000, key, IB_WC_SUCCESS));
		must(test, pattern_is(link->a.memory, 3000, i), "other bytes are read");
	}
	/* Atomic operations are not among its rights. */
	return access(link, IB_WR_ATOMIC_FETCH_AND_ADD, link->b.address, 8, key, IB_WC_REM_ACCESS_ERR);
}

enum stranger { LOCAL_KEY, OTHER_DOMAIN, ENDED_DOMAIN };

/* Keys by which the peer may not come in. */
static int strange_key(struct test *test, const struct row *row)
{
	const struct link_shape shape = {}, other_shape = { .pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY };
	struct link *link = link_make(test, &shape), *other;
	u32 key;

	if (!link)
		return -1;
	key = link->pd->local_dma_lkey;
	if (row->first != LOCAL_KEY) {
		other = link_make(test, &other_shape);
		if (!other)
			return -1;
		key = other->pd->unsafe_global_rkey;
		try(access(other, IB_WR_RDMA_WRITE, other->b.address, 8, key, IB_WC_SUCCESS));
		if (row->first == ENDED_DOMAIN)
			link_free(other);
	}
	try(access(link, IB_WR_RDMA_WRITE, link->b.address, 8, key, IB_WC_REM_ACCESS_ERR));
	must(test, untouched(link->b.memory, MEMORY), "memory has changed");
	return 0;
}

#define SENDS 200

/* Sends of side a, all signaled, and receives for so many of them; none of them is waited for. */
static int post_load(struct link *link, struct request **sends, struct request **receives, int received)
{
	struct ib_sge piece = piece_of(&link->a, 0, 20000);
	struct ib_send_wr send;
	int i;

	*sends = requests_new(link, SENDS);
	*receives = requests_new(link, received);
	for (i = 0; i < received; i++)
		try(post_receive(&link->b, FROM_TASK, *receives + i, 0, 20000));
	for (i = 0; i < SENDS; i++)
		try(post_sends(&link->a, FROM_TASK, send_of(&send, *sends + i, IB_WR_SEND, &piece, 1)));
	return 0;
}

/* Each has completed once, in order: some with success, and all behind them flushed. */
static int success_then_flush(struct side *side, struct request *requests, int count, int *flushed)
{
	struct test *test = side->link->test;
	enum ib_wc_status status;
	int i;

	*flushed = 0;
	for (i = 0; i < count; i++) {
		must(test, wait_on(side, atomic_read_acquire(&requests[i].times)), "side %s: request %d does not complete",
		     side->name, i);
		status = requests[i].wc.status == IB_WC_SUCCESS && !*flushed ? IB_WC_SUCCESS : IB_WC_WR_FLUSH_ERR;
		try(request_ends(side, &requests[i], status));
		*flushed += status == IB_WC_WR_FLUSH_ERR;
		must(test, !i || requests[i].order > requests[i - 1].order, "out of order");
	}
	return 0;
}

static int error_under_load(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .sends = 256, .receives = 256 };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	int sends_flushed, receives_flushed;

	if (!link)
		return -1;
	/* The last ones wait. */
	try(post_load(link, &sends, &receives, SENDS / 2));
	/* Some have come. */
	must(test, wait_on(&link->b, atomic_read_acquire(&receives[3].times)), "no message comes");
	try(side_to_error(&link->a));
	must(test, qp_state(&link->a) == IB_QPS_ERR, "the state is %d", qp_state(&link->a));
	try(success_then_flush(&link->a, sends, SENDS, &sends_flushed));
	try(side_to_error(&link->b));
	try(success_then_flush(&link->b, receives, SENDS / 2, &receives_flushed));
	/* A message whose send has succeeded has come. */
	must(test, sends_flushed >= SENDS / 2 + receives_flushed, "%d sends and %d receives are flushed", sends_flushed,
	     receives_flushed);
	return 0;
}

static int query_under_load(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = QUEUE_SOFTIRQ, .sends = 256, .receives = 256 };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	int i, error, flushed;

	if (!link)
		return -1;
	try(post_load(link, &sends, &receives, SENDS));
	for (i = 0; i < 200; i++) {
		struct side *side = i % 2 ? &link->a : &link->b, *peer = i % 2 ? &link->b : &link->a;

		error = ib_query_qp(side->qp, &attr, IB_QP_STATE | IB_QP_DEST_QPN | IB_QP_CAP | IB_QP_AV | IB_QP_TIMEOUT,
				    &init);
		must(test, !error, "ib_query_qp: %d", error);
		must(test, attr.qp_state == IB_QPS_RTS && attr.cur_qp_state == IB_QPS_RTS, "states %d and %d", attr.qp_state,
		     attr.cur_qp_state);
		must(test, attr.dest_qp_num == peer->qp->qp_num, "another peer");
		must(test, attr.timeout == ACK_TIMEOUT && attr.retry_cnt == 7 && attr.rnr_retry == 7 &&
		     attr.min_rnr_timer == RNR_TIMER, "timeout %u, retries %u and %u, RNR timer %u", attr.timeout,
		     attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer);
		must(test, attr.max_rd_atomic == 8 && attr.max_dest_rd_atomic == 8, "%u and %u reads", attr.max_rd_atomic,
		     attr.max_dest_rd_atomic);
		must(test, (attr.qp_access_flags | IB_ACCESS_LOCAL_WRITE) == ALL_RIGHTS, "rights %#x", attr.qp_access_flags);
		must(test, rdma_ah_read_grh(&attr.ah_attr)->sgid_index == test->gid_index, "another GID");
		must(test, attr.cap.max_send_wr >= 256 && attr.cap.max_recv_wr >= 256, "%u sends and %u receives",
		     attr.cap.max_send_wr, attr.cap.max_recv_wr);
		must(test, init.send_cq == side->queue.cq && init.recv_cq == side->queue.cq && init.qp_type == IB_QPT_RC,
		     "other queues");
	}
	try(success_then_flush(&link->a, sends, SENDS, &flushed));
	must(test, !flushed, "%d are flushed", flushed);
	try(success_then_flush(&link->b, receives, SENDS, &flushed));
	must(test, !flushed, "%d are flushed", flushed);
	return 0;
}

/* Both queue pairs, the sender first or the receiver. None of the requests completes twice. */
static int destroy_under_load(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .sends = 256, .receives = 256 };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct side *sides[2];
	int i;

	if (!link)
		return -1;
	sides[0] = row->first ? &link->b : &link->a;
	sides[1] = row->first ? &link->a : &link->b;
	try(post_load(link, &sends, &receives, SENDS));
	/* Some have come. */
	must(test, wait_on(&link->b, atomic_read_acquire(&receives[3].times)), "no message comes");
	for (i = 0; i < 2; i++) {
		must(test, !ib_destroy_qp(sides[i]->qp), "ib_destroy_qp fails");
		sides[i]->qp = NULL;
	}
	queue_close(&link->a.queue);
	queue_close(&link->b.queue);
	for (i = 0; i < SENDS; i++) {
		must(test, atomic_read(&sends[i].times) <= 1 && atomic_read(&receives[i].times) <= 1,
		     "a request completes twice");
		if (atomic_read(&sends[i].times))
			must(test, sends[i].wc.status == IB_WC_SUCCESS, "status %s", ib_wc_status_msg(sends[i].wc.status));
	}
	return 0;
}

static const struct row rows[] = {
	{ "IB_PD_UNSAFE_GLOBAL_RKEY", global_key },
	{ "the local DMA key, by the peer", strange_key, LOCAL_KEY },
	{ "another domain's global key", strange_key, OTHER_DOMAIN },
	{ "the global key of a domain that has ended", strange_key, ENDED_DOMAIN },
	{ "ib_query_qp in the middle of messages", query_under_load },
	{ "to the error state in the middle of messages, IB_POLL_DIRECT", error_under_load, 0, QUEUE_DIRECT },
	{ "to the error state in the middle of messages, IB_POLL_SOFTIRQ", error_under_load, 0, QUEUE_SOFTIRQ },
	{ "to the error state in the middle of messages, IB_POLL_WORKQUEUE", error_under_load, 0, QUEUE_WORKQUEUE },
	{ "to the error state in the middle of messages, ib_create_cq", error_under_load, 0, QUEUE_BARE },
	{ "ib_destroy_qp in the middle of messages, IB_POLL_DIRECT", destroy_under_load, false, QUEUE_DIRECT },
	{ "ib_destroy_qp in the middle of messages, IB_POLL_SOFTIRQ", destroy_under_load, false, QUEUE_SOFTIRQ },
	{ "ib_destroy_qp in the middle of messages, IB_POLL_WORKQUEUE", destroy_under_load, false, QUEUE_WORKQUEUE },
	{ "ib_destroy_qp in the middle of messages, IB_POLL_UNBOUND_WORKQUEUE", destroy_under_load, false, QUEUE_UNBOUND },
	{ "ib_destroy_qp in the middle of messages, ib_create_cq", destroy_under_load, false, QUEUE_BARE },
	{ "ib_destroy_qp of the receiver first, IB_POLL_SOFTIRQ", destroy_under_load, true, QUEUE_SOFTIRQ },
	{ "ib_destroy_qp of the receiver first, ib_create_cq", destroy_under_load, true, QUEUE_BARE },
};

const struct rows end_rows = { rows, ARRAY_SIZE(rows) };
