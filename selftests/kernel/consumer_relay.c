// SPDX-License-Identifier: GPL-2.0
/*
 * Messages that are posted where a completion is handled; requests of many posters at once.
 */

#include <linux/slab.h>
#include <linux/workqueue.h>

#include "consumer.h"

/* --- There and back --------------------------------------------------------------------------- */

#define MESSAGES 300
#define LENGTH 1500
#define SLOTS 4
/* Where a slot is in memory: those of receives, behind them those of sends. */
#define SLOT 2048
#define SENDS_AT (SLOTS * SLOT)

struct relay {
	struct ib_cqe receive, send;
	struct relays *all;
	struct side *side;
	unsigned int received;
};

struct relays {
	struct relay a, b;
	/* The number of the last message. */
	atomic_t last, sent, wrong;
};

static int relay_receive(struct relay *relay, unsigned int slot)
{
	struct ib_sge piece = piece_of(relay->side, slot * SLOT, SLOT);
	struct ib_recv_wr wr = { .wr_cqe = &relay->receive, .sg_list = &piece, .num_sge = 1 };

	return ib_post_recv(relay->side->qp, &wr, NULL);
}

static int relay_send(struct relay *relay, u32 number)
{
	unsigned int at = SENDS_AT + number % SLOTS * SLOT;
	struct ib_sge piece = piece_of(relay->side, at, LENGTH);
	struct ib_send_wr wr = {
		.wr_cqe = &relay->send,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
		.sg_list = &piece,
		.num_sge = 1,
	};

	*(u32 *)(relay->side->memory + at) = number;
	pattern_fill(relay->side->memory + at + sizeof(u32), LENGTH - sizeof(u32), number);
	return ib_post_send(relay->side->qp, &wr, NULL);
}

static void relay_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct relay *relay = container_of(wc->wr_cqe, struct relay, send);

	if (wc->status == IB_WC_SUCCESS && wc->opcode == IB_WC_SEND)
		atomic_inc(&relay->all->sent);
	wake_up_all(&relay->side->link->wait);
}

static void relay_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct relay *relay = container_of(wc->wr_cqe, struct relay, receive);
	unsigned int slot = relay->received++ % SLOTS;
	const u8 *memory = relay->side->memory + slot * SLOT;
	struct relays *all = relay->all;
	u32 number = *(const u32 *)memory;

	/* At the end they are flushed. */
	if (wc->status == IB_WC_WR_FLUSH_ERR)
		return;
	if (wc->status != IB_WC_SUCCESS || wc->opcode != IB_WC_RECV || wc->byte_len != LENGTH ||
	    wc->qp != relay->side->qp || number != atomic_read(&all->last) + 1 ||
	    !pattern_is(memory + sizeof(u32), LENGTH - sizeof(u32), number) || relay_receive(relay, slot)) {
		atomic_inc(&all->wrong);
	} else {
		/* The answer may come before this returns. */
		atomic_set(&all->last, number);
		if (number < MESSAGES && relay_send(relay, number + 1))
			atomic_inc(&all->wrong);
	}
	wake_up_all(&relay->side->link->wait);
}

static bool relays_end(struct relays *all)
{
	return atomic_read(&all->wrong) ||
	       (atomic_read(&all->last) == MESSAGES && atomic_read(&all->sent) == MESSAGES);
}

static int relay(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct relays *all = (struct relays *)memory_new(test, 0);
	unsigned long deadline = jiffies + patience();
	unsigned int i;

	if (!link)
		return -1;
	must(test, all, "no memory");
	memset(all, 0, sizeof(*all));
	all->a = (struct relay) { { relay_received }, { relay_sent }, all, &link->a };
	all->b = (struct relay) { { relay_received }, { relay_sent }, all, &link->b };
	for (i = 0; i < SLOTS; i++)
		must(test, !relay_receive(&all->a, i) && !relay_receive(&all->b, i), "ib_post_recv fails");
	must(test, !relay_send(&all->a, 1), "ib_post_send fails");
	while (!relays_end(all) && !time_after(jiffies, deadline)) {
		queue_poll(&link->a.queue, 8);
		queue_poll(&link->b.queue, 8);
		wait_event_timeout(link->wait, relays_end(all), 1);
	}
	must(test, !atomic_read(&all->wrong), "message %d is wrong", atomic_read(&all->last) + 1);
	must(test, relays_end(all), "it ends at message %d; %d were sent", atomic_read(&all->last), atomic_read(&all->sent));
	ib_drain_qp(link->a.qp);
	ib_drain_qp(link->b.qp);
	must(test, !atomic_read(&all->wrong), "another message");
	return 0;
}

/* --- Many at once ----------------------------------------------------------------------------- */

#define POSTERS 5
#define EACH 60

struct poster {
	struct work_struct work;
	struct link *link;
	enum context context;
	unsigned int number;
	struct request *requests;
	bool has_failed;
};

/* Each message says whose it is, and its number among the poster's. */
static void post_each(struct work_struct *work)
{
	struct poster *poster = container_of(work, struct poster, work);
	struct side *side = &poster->link->a;
	struct ib_send_wr send;
	struct ib_sge piece;
	unsigned int i, at;

	for (i = 0; i < EACH && !poster->has_failed; i++) {
		at = (poster->number * EACH + i) * 64;
		*(u32 *)(side->memory + at) = poster->number << 16 | i;
		piece = piece_of(side, at, 64);
		poster->has_failed = post_sends(side, poster->context,
						send_of(&send, &poster->requests[i], IB_WR_SEND, &piece, 1));
	}
}

static const enum context contexts[POSTERS] = {
	FROM_TASK, FROM_BH_OFF, FROM_SOFTIRQ, FROM_IRQS_OFF, FROM_HARDIRQ,
};

static int crowd(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .sends = 512, .receives = 512 };
	struct link *link = link_make(test, &shape);
	unsigned int i, next[POSTERS] = {};
	struct poster *posters;
	struct request *receives;
	bool has_failed = false;
	u32 mark;

	if (!link)
		return -1;
	BUILD_BUG_ON(POSTERS * EACH * 64 > MEMORY);
	posters = (struct poster *)memory_new(test, 1);
	must(test, posters, "no memory");
	memset(posters, 0, POSTERS * sizeof(*posters));
	receives = requests_new(link, POSTERS * EACH);
	for (i = 0; i < POSTERS * EACH; i++)
		try(post_receive(&link->b, FROM_TASK, &receives[i], i * 64, 64));
	for (i = 0; i < POSTERS; i++) {
		posters[i].link = link;
		posters[i].context = contexts[i];
		posters[i].number = i;
		posters[i].requests = requests_new(link, EACH);
		INIT_WORK(&posters[i].work, post_each);
	}
	for (i = 0; i < POSTERS; i++)
		queue_work(system_dfl_wq, &posters[i].work);
	for (i = 0; i < POSTERS; i++) {
		flush_work(&posters[i].work);
		has_failed |= posters[i].has_failed;
	}
	if (has_failed)
		return -1;
	for (i = 0; i < POSTERS * EACH; i++) {
		try(receive_ends(&link->b, &receives[i], IB_WC_RECV, 64, 0, 0));
		mark = *(u32 *)(link->b.memory + i * 64);
		must(test, mark >> 16 < POSTERS && next[mark >> 16] == (mark & 0xffff), "message %u is %#x", i, mark);
		next[mark >> 16]++;
	}
	for (i = 0; i < POSTERS * EACH; i++)
		try(send_ends(&link->a, &posters[i / EACH].requests[i % EACH], IB_WC_SEND));
	return 0;
}

static const struct row rows[] = {
	{ "posted where the completion is handled, IB_POLL_DIRECT", relay, 0, QUEUE_DIRECT },
	{ "posted where the completion is handled, IB_POLL_SOFTIRQ", relay, 0, QUEUE_SOFTIRQ },
	{ "posted where the completion is handled, IB_POLL_WORKQUEUE", relay, 0, QUEUE_WORKQUEUE },
	{ "posted where the completion is handled, IB_POLL_UNBOUND_WORKQUEUE", relay, 0, QUEUE_UNBOUND },
	{ "posted where the completion is handled, shared queue", relay, 0, QUEUE_SHARED_SOFTIRQ },
	{ "posted where the completion is handled, ib_create_cq", relay, 0, QUEUE_BARE },
	{ "posted from all contexts at once, IB_POLL_SOFTIRQ", crowd, 0, QUEUE_SOFTIRQ },
	{ "posted from all contexts at once, IB_POLL_WORKQUEUE", crowd, 0, QUEUE_WORKQUEUE },
	{ "posted from all contexts at once, ib_create_cq", crowd, 0, QUEUE_BARE },
};

const struct rows relay_rows = { rows, ARRAY_SIZE(rows) };
