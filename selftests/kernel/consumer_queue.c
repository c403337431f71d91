// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: budgets, notifications. Queue pairs that are reset. Shared receive queues.
 */

#include <linux/cpu.h>

#include "consumer.h"

/* Receives and SENDs of that many messages, the second ones signaled. */
static int post_messages(struct link *link, unsigned int count, struct request **sends, struct request **receives)
{
	struct ib_sge piece = piece_of(&link->a, 0, 64);
	struct ib_send_wr send;
	unsigned int i;

	*sends = requests_new(link, count);
	*receives = requests_new(link, count);
	for (i = 0; i < count; i++)
		try(post_receive(&link->b, FROM_TASK, *receives + i, 0, 64));
	for (i = 0; i < count; i++)
		try(post_sends(&link->a, FROM_TASK, send_of(&send, *sends + i, IB_WR_SEND, &piece, 1)));
	return 0;
}

/* The same; returns when all receives have completed, and are polled. */
static int messages(struct link *link, unsigned int count, struct request **sends, struct request **receives)
{
	unsigned int i;

	try(post_messages(link, count, sends, receives));
	for (i = 0; i < count; i++)
		try(receive_ends(&link->b, *receives + i, IB_WC_RECV, 64, 0, 0));
	return 0;
}

struct polling {
	struct ib_cq *cq;
	int budget, completed;
};

static void poll_direct(void *argument)
{
	struct polling *polling = argument;

	polling->completed = ib_process_cq_direct(polling->cq, polling->budget);
}

/* From each context: never more than the budget, all of them in the end, in order. */
static int budget(struct test *test, const struct row *row)
{
	static const int budgets[] = { 1, 3, 8, 11 };
	const struct link_shape shape = { .queue = QUEUE_DIRECT };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	unsigned long deadline;
	int i, all = 0;

	if (!link)
		return -1;
	try(messages(link, 40, &sends, &receives));
	deadline = jiffies + patience();
	for (i = 0; all < 40 && !time_after(jiffies, deadline); i++) {
		struct polling polling = { .cq = link->a.queue.cq, .budget = budgets[i % ARRAY_SIZE(budgets)] };

		must(test, call_from(row->first, poll_direct, &polling), "another context");
		must(test, polling.completed >= 0 && polling.completed <= polling.budget,
		     "%d completions, %d were asked for", polling.completed, polling.budget);
		all += polling.completed;
		if (!polling.completed)
			schedule_timeout_uninterruptible(1);
	}
	must(test, all == 40, "%d completions of 40", all);
	for (i = 0; i < 40; i++) {
		try(send_ends(&link->a, &sends[i], IB_WC_SEND));
		must(test, !i || sends[i].order > sends[i - 1].order, "out of order");
	}
	must(test, ib_process_cq_direct(link->a.queue.cq, 8) == 0, "one more completion");
	return 0;
}

/* A link whose queues nobody polls by himself. */
static struct link *link_with_silent_queues(struct test *test)
{
	const struct link_shape shape = { .queue = QUEUE_BARE, .is_idle = true };
	struct link *link = link_make(test, &shape);

	if (!link)
		return NULL;
	/* The handlers polled and armed; the queues are empty, and nothing can come into them yet. */
	link->a.queue.handler_polls = false;
	link->b.queue.handler_polls = false;
	return link;
}

/*
 * The notifications that the side's queue was armed for have come, and no others: destroys it, after which its
 * handler does not run any more.
 */
static int calls_are(struct side *side, int calls)
{
	struct test *test = side->link->test;
	struct queue *queue = &side->queue;

	must(test, wait_on(side, atomic_read(&queue->calls) >= calls), "%d notifications, expected %d",
	     atomic_read(&queue->calls), calls);
	if (ib_destroy_qp(side->qp))
		return row_fails(test, "ib_destroy_qp fails");
	side->qp = NULL;
	queue_close(queue);
	must(test, atomic_read(&queue->calls) == calls, "%d notifications, expected %d", atomic_read(&queue->calls), calls);
	return 0;
}

/*
 * One notification for each time that the queue was armed. The first is there already: queues that are polled by their
 * handlers are armed as they are made.
 */
static int notify_next(struct test *test, const struct row *row)
{
	struct link *link = link_with_silent_queues(test);
	struct request *sends, *receives;

	if (!link)
		return -1;
	try(link_connect(link));
	try(messages(link, 3, &sends, &receives));
	must(test, wait_on(&link->b, atomic_read(&link->b.queue.calls) == 1), "no notification");
	/* Not armed. */
	try(messages(link, 3, &sends, &receives));
	must(test, ib_req_notify_cq(link->b.queue.cq, IB_CQ_NEXT_COMP) == 0, "ib_req_notify_cq fails");
	/* Twice is as good as once, and solicited only does not take it back. */
	must(test, ib_req_notify_cq(link->b.queue.cq, IB_CQ_NEXT_COMP) == 0, "ib_req_notify_cq fails");
	must(test, ib_req_notify_cq(link->b.queue.cq, IB_CQ_SOLICITED) == 0, "ib_req_notify_cq fails");
	try(messages(link, 1, &sends, &receives));
	must(test, wait_on(&link->b, atomic_read(&link->b.queue.calls) == 2), "no second notification");
	try(messages(link, 2, &sends, &receives));
	return calls_are(&link->b, 2);
}

/* Returns the CPU that notifies of a completion, or -1 with the row failed. */
static int notified_on(struct test *test, int vector)
{
	const struct link_shape shape = { .queue = QUEUE_BARE, .vector = vector };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;

	if (!link)
		return -1;
	try(messages(link, 1, &sends, &receives));
	must(test, wait_on(&link->b, atomic_read_acquire(&link->b.queue.calls)), "no notification");
	return READ_ONCE(link->b.queue.cpu);
}

static int vectors(struct test *test, const struct row *row)
{
	int vector, cpu;

	for (vector = 0; vector < test->device->num_comp_vectors; vector++) {
		if (!cpu_online(vector))
			continue;
		cpu = notified_on(test, vector);
		if (cpu < 0)
			return -1;
		must(test, cpu == vector, "vector %d: CPU %d notifies", vector, cpu);
	}
	return 0;
}

static int vector_offline(struct test *test, const struct row *row)
{
	const int vector = 1;
	int cpu, error;

	if (test->device->num_comp_vectors <= vector)
		return row_skips(test, "there is one CPU only");
	error = remove_cpu(vector);
	must(test, !error, "remove_cpu: %d", error);
	cpu = notified_on(test, vector);
	error = add_cpu(vector);
	must(test, !error, "add_cpu: %d", error);
	return cpu < 0 ? -1 : 0;
}

/* A connected link with queues that nobody polls by himself. The receiver's queue is moderated. */
static struct link *link_with_moderation(struct test *test, u16 count, u16 period_us)
{
	struct link *link = link_with_silent_queues(test);

	if (!link)
		return NULL;
	if (rdma_set_cq_moderation(link->b.queue.cq, count, period_us)) {
		row_fails(test, "rdma_set_cq_moderation fails");
		return NULL;
	}
	return link_connect(link) ? NULL : link;
}

#define PERIOD_US 50000

/* Three completions from now on, which are too few for a notification before the period is over. */
static int three_wait(struct link *link)
{
	struct test *test = link->test;
	struct queue *queue = &link->b.queue;
	const int calls = atomic_read(&queue->calls);
	const ktime_t begin = ktime_get();
	struct request *sends, *receives;
	s64 took;

	try(messages(link, 3, &sends, &receives));
	must(test, wait_on(&link->b, atomic_read(&queue->calls) > calls), "no notification");
	took = ktime_us_delta(ktime_get(), begin);
	must(test, took >= PERIOD_US, "a notification after %lld us", took);
	return 0;
}

static int notify_moderated(struct test *test, const struct row *row)
{
	struct link *link = link_with_moderation(test, U16_MAX, PERIOD_US);

	if (!link)
		return -1;
	try(three_wait(link));
	return calls_are(&link->b, 1);
}

/* Completions that came before the queue was armed do not count. */
static int notify_later_ones(struct test *test, const struct row *row)
{
	struct link *link = link_with_moderation(test, 4, PERIOD_US);
	struct request *sends, *receives;

	if (!link)
		return -1;
	try(messages(link, 4, &sends, &receives));
	must(test, wait_on(&link->b, atomic_read(&link->b.queue.calls) == 1), "no notification");
	/* Not armed, and not polled. */
	try(post_messages(link, 3, &sends, &receives));
	try(send_ends(&link->a, sends + 2, IB_WC_SEND));
	must(test, ib_req_notify_cq(link->b.queue.cq, IB_CQ_NEXT_COMP) == 0, "ib_req_notify_cq fails");
	try(three_wait(link));
	return calls_are(&link->b, 2);
}

/* As many completions as are asked for, before the period is over. On a slow machine that takes several attempts. */
static int notify_counted(struct test *test, const struct row *row)
{
	struct link *link = link_with_moderation(test, 3, U16_MAX);
	struct request *sends, *receives;
	ktime_t begin;
	int calls;

	if (!link)
		return -1;
	for (calls = 1; calls <= 20; calls++) {
		begin = ktime_get();
		try(messages(link, 3, &sends, &receives));
		must(test, wait_on(&link->b, atomic_read(&link->b.queue.calls) == calls), "no notification");
		if (ktime_us_delta(ktime_get(), begin) < U16_MAX)
			return calls_are(&link->b, calls);
		must(test, ib_req_notify_cq(link->b.queue.cq, IB_CQ_NEXT_COMP) == 0, "ib_req_notify_cq fails");
	}
	return row_fails(test, "the notification always comes after the period");
}

static int one_message(struct link *link, int flags, enum ib_wr_opcode opcode)
{
	struct request *sending = request_new(link), *receiving = request_new(link);
	struct ib_sge piece = piece_of(&link->a, 0, 10);
	struct ib_send_wr send;

	send_of(&send, sending, opcode, &piece, 1)->send_flags |= flags;
	try(post_receive(&link->b, FROM_TASK, receiving, 0, 100));
	try(post_sends(&link->a, FROM_TASK, &send));
	try(send_ends(&link->a, sending, IB_WC_SEND));
	return receive_ends(&link->b, receiving, IB_WC_RECV, 10, opcode == IB_WR_SEND ? 0 : IB_WC_WITH_IMM, 0);
}

/* Of a queue that is armed for solicited completions: those, and errors. */
static int notify_solicited(struct test *test, const struct row *row)
{
	struct link *link = link_with_silent_queues(test);
	struct request *flushed;
	struct ib_cq *cq;
	int i;

	if (!link)
		return -1;
	cq = link->b.queue.cq;
	try(link_connect(link));
	try(one_message(link, 0, IB_WR_SEND));
	must(test, wait_on(&link->b, atomic_read(&link->b.queue.calls) == 1), "no notification");

	must(test, ib_req_notify_cq(cq, IB_CQ_SOLICITED) == 0, "ib_req_notify_cq fails");
	/* So many that a notification for the first ones would have come by the last. */
	for (i = 0; i < 16; i++)
		try(one_message(link, 0, i % 2 ? IB_WR_SEND : IB_WR_SEND_WITH_IMM));
	must(test, atomic_read(&link->b.queue.calls) == 1, "a notification of what is not solicited");
	try(one_message(link, IB_SEND_SOLICITED, IB_WR_SEND));
	must(test, wait_on(&link->b, atomic_read(&link->b.queue.calls) >= 2), "no solicited notification");
	try(one_message(link, IB_SEND_SOLICITED, IB_WR_SEND));

	must(test, ib_req_notify_cq(cq, IB_CQ_SOLICITED) == 0, "ib_req_notify_cq fails");
	try(one_message(link, 0, IB_WR_SEND));
	flushed = request_new(link);
	try(post_receive(&link->b, FROM_TASK, flushed, 0, 100));
	try(side_to_error(&link->b));
	try(request_ends(&link->b, flushed, IB_WC_WR_FLUSH_ERR));
	return calls_are(&link->b, 3);
}

/* Whether there is something in the queue is told if it is asked for, and only then. */
static int notify_missed(struct test *test, const struct row *row)
{
	struct link *link = link_with_silent_queues(test);
	struct request *sends, *receives, *sending;
	struct ib_send_wr send;
	struct ib_sge piece;
	struct ib_cq *cq;
	struct ib_wc wc;

	if (!link)
		return -1;
	try(link_connect(link));
	try(messages(link, 4, &sends, &receives));
	cq = link->b.queue.cq;
	must(test, ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) == 0, "missed in an empty queue");
	must(test, ib_poll_cq(cq, 1, &wc) == 0, "a completion in an empty queue");
	cq = link->a.queue.cq;
	must(test, wait_on(&link->a, atomic_read_acquire(&sends[3].times)), "no completion");
	must(test, wait_on(&link->a, atomic_read(&link->a.queue.calls) == 1), "no notification");
	must(test, ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) == 0, "missed in an empty queue");

	/* From here on nobody polls the first side's queue. */
	sending = request_new(link);
	piece = piece_of(&link->a, 0, 10);
	try(post_receive(&link->b, FROM_TASK, request_new(link), 0, 10));
	try(post_sends(&link->a, FROM_TASK, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	must(test, wait_on(&link->b, atomic_read(&link->a.queue.calls) == 2), "no notification");
	must(test, ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0, "nothing missed");
	must(test, ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) == 0, "told without having been asked");
	must(test, ib_poll_cq(cq, 0, &wc) == 0, "a completion in no room");
	must(test, ib_poll_cq(cq, 1, &wc) == 1, "no completion");
	must(test, wc.wr_cqe == &sending->cqe && wc.status == IB_WC_SUCCESS, "another completion");
	must(test, ib_poll_cq(cq, 1, &wc) == 0, "two completions");
	return 0;
}

/* Two users of the pool with the same queue: neither gets what is the other's. */
static int pooled(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = QUEUE_SHARED_SOFTIRQ };
	struct link *first = link_make(test, &shape), *second;
	struct request *sends[2], *receives[2];
	struct ib_cq *more[8];
	int i, is_same = 0;

	if (!first)
		return -1;
	second = link_make(test, &shape);
	if (!second)
		return -1;
	/* There are no more queues than CPUs until the first are full. */
	for (i = 0; i < ARRAY_SIZE(more); i++) {
		more[i] = ib_cq_pool_get(test->device, 16, -1, IB_POLL_SOFTIRQ);
		if (IS_ERR(more[i]))
			break;
		is_same += more[i] == first->a.queue.cq || more[i] == second->a.queue.cq;
	}
	while (i-- > 0)
		ib_cq_pool_put(more[i], 16);
	must(test, is_same, "no queue is shared");
	try(messages(first, 20, &sends[0], &receives[0]));
	try(messages(second, 20, &sends[1], &receives[1]));
	for (i = 0; i < 20; i++) {
		try(send_ends(&first->a, &sends[0][i], IB_WC_SEND));
		try(send_ends(&second->a, &sends[1][i], IB_WC_SEND));
	}
	return 0;
}

/*
 * Consumers ask for completions of what is signaled, but a QP in error completes everything, and they wait for the last one
 * (ib_drain_qp()). The SENDs meet no receive.
 */
static int flush_of_many(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = QUEUE_DIRECT, .completions = 4 };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct ib_sge piece;
	struct ib_send_wr send;
	int i;

	if (!link)
		return -1;
	sends = requests_new(link, 60);
	receives = requests_new(link, 60);
	piece = piece_of(&link->a, 0, 64);
	for (i = 0; i < 60; i++) {
		try(post_receive(&link->a, FROM_TASK, &receives[i], 0, 64));
		send_of(&send, &sends[i], IB_WR_SEND, &piece, 1)->send_flags = 0;
		try(post_sends(&link->a, FROM_TASK, &send));
	}
	try(side_to_error(&link->a));
	for (i = 0; i < 60; i++) {
		try(request_ends(&link->a, &sends[i], IB_WC_WR_FLUSH_ERR));
		try(request_ends(&link->a, &receives[i], IB_WC_WR_FLUSH_ERR));
	}
	return 0;
}

/* --- Queue pairs that are reset --------------------------------------------------------------- */

static int side_to_reset(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	int error = ib_modify_qp(side->qp, &attr, IB_QP_STATE);

	must(side->link->test, !error, "side %s to RESET: %d", side->name, error);
	return 0;
}

/* None of a list is taken in this state, and the first of it is named. */
static int sends_refused(struct side *side, const char *state)
{
	struct request *requests = requests_new(side->link, 2);
	struct ib_sge piece = piece_of(side, 0, 64);
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr sends[2];
	int error;

	send_of(&sends[0], &requests[0], IB_WR_SEND, &piece, 1)->next = &sends[1];
	send_of(&sends[1], &requests[1], IB_WR_SEND, &piece, 1);
	error = ib_post_send(side->qp, sends, &bad);
	must(side->link->test, error == -EINVAL, "ib_post_send in %s: %d", state, error);
	must(side->link->test, bad == &sends[0], "ib_post_send in %s names another request", state);
	return 0;
}

static int receives_refused(struct side *side, const char *state)
{
	struct request *requests = requests_new(side->link, 2);
	struct ib_sge piece = piece_of(side, 0, 64);
	const struct ib_recv_wr *bad = NULL;
	struct ib_recv_wr receives[2];
	int error;

	receives[1] = (struct ib_recv_wr) { .wr_cqe = &requests[1].cqe, .sg_list = &piece, .num_sge = 1 };
	receives[0] = receives[1];
	receives[0].wr_cqe = &requests[0].cqe;
	receives[0].next = &receives[1];
	error = ib_post_recv(side->qp, receives, &bad);
	must(side->link->test, error == -EINVAL, "ib_post_recv in %s: %d", state, error);
	must(side->link->test, bad == &receives[0], "ib_post_recv in %s names another request", state);
	return 0;
}

/*
 * Nothing is left of before: neither a completion that was not polled, nor a receive that no message has
 * taken, and that a message of the next connection would take.
 */
static int reset(struct test *test, const struct row *row)
{
	struct link *link = link_with_silent_queues(test);
	struct request *sending, *receives, *receiving;
	struct ib_send_wr send;
	struct ib_sge piece;
	struct ib_wc wc;
	int i, polled;

	if (!link)
		return -1;
	try(link_connect(link));
	pattern_fill(link->a.memory, 64, 4);
	receives = requests_new(link, 2);
	for (i = 0; i < 2; i++)
		try(post_receive(&link->b, FROM_TASK, &receives[i], i * 64, 64));
	sending = request_new(link);
	piece = piece_of(&link->a, 0, 64);
	try(post_sends(&link->a, FROM_TASK, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	/* A message that is acknowledged has been received. Nobody polls for that completion. */
	try(send_ends(&link->a, sending, IB_WC_SEND));

	try(side_to_reset(&link->b));
	polled = ib_poll_cq(link->b.queue.cq, 1, &wc);
	must(test, polled == 0, "ib_poll_cq: %d", polled);
	try(receives_refused(&link->b, "RESET"));
	try(side_to_reset(&link->a));
	try(sends_refused(&link->a, "RESET"));
	try(side_init(&link->a));
	try(sends_refused(&link->a, "INIT"));

	try(link_connect(link));
	receiving = request_new(link);
	try(post_receive(&link->b, FROM_TASK, receiving, 1000, 64));
	sending = request_new(link);
	try(post_sends(&link->a, FROM_TASK, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	try(send_ends(&link->a, sending, IB_WC_SEND));
	try(receive_ends(&link->b, receiving, IB_WC_RECV, 64, 0, 0));
	polled = ib_poll_cq(link->b.queue.cq, 1, &wc);
	must(test, polled == 0, "ib_poll_cq behind the message: %d", polled);
	for (i = 0; i < 2; i++)
		must(test, !atomic_read(&receives[i].times), "receive %d of before completes", i);
	must(test, pattern_is(link->b.memory + 1000, 64, 4), "other bytes");
	must(test, untouched(link->b.memory + 64, 64), "bytes in what a receive of before has");
	return 0;
}

/* --- Shared receive queues -------------------------------------------------------------------- */

static int srq(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .is_shared = true };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct ib_srq_attr attr = { .srq_limit = 5 };
	struct ib_sge piece;
	struct ib_send_wr send;
	int i, error;

	if (!link)
		return -1;
	sends = requests_new(link, 8);
	receives = requests_new(link, 8);
	for (i = 0; i < 8; i++)
		try(post_receive(&link->b, row->first, &receives[i], i * 100, 100));
	error = ib_modify_srq(link->srq, &attr, IB_SRQ_LIMIT);
	must(test, !error, "ib_modify_srq: %d", error);
	error = ib_query_srq(link->srq, &attr);
	must(test, !error && attr.srq_limit == 5 && attr.max_wr >= 64 && attr.max_sge >= 4, "ib_query_srq: %d, limit %u",
	     error, attr.srq_limit);
	pattern_fill(link->a.memory, MEMORY, 9);
	for (i = 0; i < 8; i++) {
		piece = piece_of(&link->a, i * 100, 100);
		try(post_sends(&link->a, row->first, send_of(&send, &sends[i], IB_WR_SEND, &piece, 1)));
		try(receive_ends(&link->b, &receives[i], IB_WC_RECV, 100, 0, 0));
		try(send_ends(&link->a, &sends[i], IB_WC_SEND));
		/* 8 - 3 is not below the limit. */
		if (i == 2)
			must(test, !atomic_read(&link->srq_events[IB_EVENT_SRQ_LIMIT_REACHED]), "the event comes early");
		if (i == 3)
			must(test, wait_on(&link->b, atomic_read(&link->srq_events[IB_EVENT_SRQ_LIMIT_REACHED])),
			     "no event");
	}
	must(test, !memcmp(link->a.memory, link->b.memory, 800), "other bytes");
	must(test, atomic_read(&link->srq_events[IB_EVENT_SRQ_LIMIT_REACHED]) == 1, "more than one event");
	error = ib_query_srq(link->srq, &attr);
	must(test, !error && attr.srq_limit == 0, "ib_query_srq: %d, limit %u", error, attr.srq_limit);
	return 0;
}

/* The size of a kernel consumer's queue stays what it is, and the rest of the request is not done either. */
static int srq_resize(struct test *test, const struct row *row)
{
	static const int masks[] = { IB_SRQ_MAX_WR, IB_SRQ_MAX_WR | IB_SRQ_LIMIT };
	const struct link_shape shape = { .is_shared = true };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct ib_srq_attr before, attr;
	int i, error;

	if (!link)
		return -1;
	error = ib_query_srq(link->srq, &before);
	must(test, !error, "ib_query_srq: %d", error);
	for (i = 0; i < ARRAY_SIZE(masks); i++) {
		attr = (struct ib_srq_attr) { .max_wr = 2 * before.max_wr, .srq_limit = 5 };
		error = ib_modify_srq(link->srq, &attr, masks[i]);
		must(test, error == -EOPNOTSUPP, "ib_modify_srq: %d", error);
		error = ib_query_srq(link->srq, &attr);
		must(test, !error && attr.max_wr == before.max_wr && attr.srq_limit == 0,
		     "ib_query_srq: %d, %u receives, %u before, limit %u", error, attr.max_wr, before.max_wr,
		     attr.srq_limit);
	}
	return messages(link, 4, &sends, &receives);
}

static const struct row rows[] = {
	{ "ib_process_cq_direct with a budget, from a task", budget, FROM_TASK },
	{ "ib_process_cq_direct with a budget, from softirq", budget, FROM_SOFTIRQ },
	{ "ib_process_cq_direct with a budget, from under an irqsave lock", budget, FROM_IRQS_OFF },
	{ "ib_process_cq_direct with a budget, from a hard interrupt", budget, FROM_HARDIRQ },
	{ "ib_req_notify_cq: IB_CQ_NEXT_COMP", notify_next },
	{ "ib_req_notify_cq: IB_CQ_SOLICITED", notify_solicited },
	{ "rdma_set_cq_moderation: the period", notify_moderated },
	{ "rdma_set_cq_moderation: the count", notify_counted },
	{ "rdma_set_cq_moderation: completions from before", notify_later_ones },
	{ "ib_req_notify_cq: IB_CQ_REPORT_MISSED_EVENTS", notify_missed },
	{ "the completion vector's CPU notifies", vectors },
	{ "the completion vector's CPU is offline", vector_offline },
	{ "two users of one queue of the pool", pooled },
	{ "120 requests are flushed into a queue of 4", flush_of_many },
	{ "a queue pair that is reset, and connected again", reset },
	{ "shared receive queue and its limit, from a task, IB_POLL_DIRECT", srq, FROM_TASK, QUEUE_DIRECT },
	{ "shared receive queue and its limit, from softirq, IB_POLL_SOFTIRQ", srq, FROM_SOFTIRQ, QUEUE_SOFTIRQ },
	{
		"shared receive queue and its limit, from under an irqsave lock, IB_POLL_WORKQUEUE", srq, FROM_IRQS_OFF,
		QUEUE_WORKQUEUE
	},
	{ "shared receive queue and its limit, from a hard interrupt, ib_create_cq", srq, FROM_HARDIRQ, QUEUE_BARE },
	{ "shared receive queue of another size", srq_resize },
};

const struct rows queue_rows = { rows, ARRAY_SIZE(rows) };
