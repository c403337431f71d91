// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams, with address handles that are made in each context.
 */

#include <rdma/ib_cache.h>

#include "consumer.h"

#define QKEY 0x1234
#define GRH sizeof(struct ib_grh)

struct making {
	struct ib_pd *pd;
	struct rdma_ah_attr *attr;
	struct ib_ah *ah;
	u32 flags;
};

static void ah_make(void *argument)
{
	struct making *making = argument;

	making->ah = rdma_create_ah(making->pd, making->attr, making->flags);
}

static void ah_end(void *argument)
{
	struct making *making = argument;

	rdma_destroy_ah(making->ah, making->flags ? RDMA_DESTROY_AH_SLEEPABLE : 0);
}

/* One message by way of that handle, and every field of its completion. */
static int datagram(struct side *from, struct side *to, struct ib_ah *ah, enum context context, u32 length,
		    bool is_immediate, struct request **receiving)
{
	struct link *link = from->link;
	struct test *test = link->test;
	struct request *sending = request_new(link);
	struct ib_sge piece = piece_of(from, 0, length);
	struct ib_ud_wr send = { .ah = ah, .remote_qpn = to->qp->qp_num, .remote_qkey = QKEY };
	const struct ib_wc *wc;
	u32 extra = 0xabcdef01;

	*receiving = request_new(link);
	pattern_fill(from->memory, MEMORY, length);
	memset(to->memory, UNTOUCHED, MEMORY);
	try(post_receive(to, context, *receiving, 0, GRH + length + 100));
	send_of(&send.wr, sending, is_immediate ? IB_WR_SEND_WITH_IMM : IB_WR_SEND, &piece, length ? 1 : 0);
	send.wr.ex.imm_data = cpu_to_be32(extra);
	try(post_sends(from, context, &send.wr));
	try(send_ends(from, sending, IB_WC_SEND));
	try(receive_ends(to, *receiving, IB_WC_RECV, GRH + length, IB_WC_GRH | (is_immediate ? IB_WC_WITH_IMM : 0), extra));
	wc = &(*receiving)->wc;
	must(test, wc->src_qp == from->qp->qp_num, "src_qp %u, expected %u", wc->src_qp, from->qp->qp_num);
	must(test, wc->port_num == PORT && wc->pkey_index == 0, "port %u, P_Key index %u", wc->port_num, wc->pkey_index);
	if (wc->wc_flags & IB_WC_WITH_NETWORK_HDR_TYPE)
		must(test, wc->network_hdr_type == RDMA_NETWORK_IPV4, "network header type %u", wc->network_hdr_type);
	must(test, pattern_is(to->memory + GRH, length, length), "other bytes");
	must(test, untouched(to->memory + GRH + length, MEMORY - GRH - length), "bytes behind the message");
	return 0;
}

static int datagrams(struct test *test, const struct row *row)
{
	static const u32 lengths[] = { 0, 1, 64, 999, 1024 };
	const struct link_shape shape = { .type = IB_QPT_UD, .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct making making = { .flags = row->first == FROM_TASK ? RDMA_CREATE_AH_SLEEPABLE : 0 };
	struct rdma_ah_attr attr, asked = {};
	struct request *receiving;
	int i, failed = 0;

	if (!link)
		return -1;
	try(side_address(test, &attr, NULL));
	making.pd = link->pd;
	making.attr = &attr;
	must(test, call_from(row->first, ah_make, &making), "another context");
	must(test, !IS_ERR(making.ah), "rdma_create_ah: %pe", making.ah);
	for (i = 0; i < ARRAY_SIZE(lengths) && !failed; i++)
		failed = datagram(&link->a, &link->b, making.ah, row->first, lengths[i], i % 2, &receiving);
	if (!failed && rdma_query_ah(making.ah, &asked) == 0 &&
	    memcmp(&rdma_ah_read_grh(&asked)->dgid, &rdma_ah_read_grh(&attr)->dgid, sizeof(union ib_gid)))
		failed = row_fails(test, "rdma_query_ah tells of another address");
	if (!call_from(row->first, ah_end, &making))
		failed = row_fails(test, "another context");
	return failed;
}

#define EARLY 32
#define EARLY_LENGTH 100

/* A handle of the address that both sides have; NULL if the row has failed. */
static struct ib_ah *handle_make(struct link *link)
{
	struct rdma_ah_attr attr;
	struct ib_ah *ah;

	if (side_address(link->test, &attr, NULL))
		return NULL;
	ah = rdma_create_ah(link->pd, &attr, RDMA_CREATE_AH_SLEEPABLE);
	if (!IS_ERR(ah))
		return ah;
	row_fails(link->test, "rdma_create_ah: %pe", ah);
	return NULL;
}

/* Posts EARLY SENDs from side a to side b. */
static int send_early(struct link *link, struct ib_ah *ah, struct request *sends)
{
	struct ib_sge piece = piece_of(&link->a, 0, EARLY_LENGTH);
	struct ib_ud_wr send = { .ah = ah, .remote_qpn = link->b.qp->qp_num, .remote_qkey = QKEY };
	int i, error = 0;

	for (i = 0; i < EARLY && !error; i++)
		error = ib_post_send(link->a.qp, send_of(&send.wr, &sends[i], IB_WR_SEND, &piece, 1), NULL);
	return error;
}

/* A handle that is destroyed while requests that name it wait. All datagrams arrive. */
static int early_end(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .type = IB_QPT_UD };
	struct link *link = link_make(test, &shape);
	const u32 room = GRH + EARLY_LENGTH + 100;
	struct request *sends, *receives;
	struct ib_ah *ah;
	int i, error;

	if (!link)
		return -1;
	sends = requests_new(link, EARLY);
	receives = requests_new(link, EARLY);
	pattern_fill(link->a.memory, EARLY_LENGTH, EARLY);
	for (i = 0; i < EARLY; i++)
		try(post_receive(&link->b, FROM_TASK, &receives[i], i * room, room));
	ah = handle_make(link);
	if (!ah)
		return -1;
	error = send_early(link, ah, sends);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	must(test, !error, "ib_post_send: %d", error);
	for (i = 0; i < EARLY; i++)
		try(send_ends(&link->a, &sends[i], IB_WC_SEND));
	for (i = 0; i < EARLY; i++) {
		try(receive_ends(&link->b, &receives[i], IB_WC_RECV, GRH + EARLY_LENGTH, IB_WC_GRH, 0));
		must(test, pattern_is(link->b.memory + i * room + GRH, EARLY_LENGTH, EARLY), "other bytes");
	}
	return 0;
}

/* The answer goes to whom the completion names. */
static int answer(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .type = IB_QPT_UD, .queue = QUEUE_WORKQUEUE };
	struct link *link = link_make(test, &shape);
	struct request *receiving;
	struct ib_ah *ah;
	int failed;

	if (!link)
		return -1;
	ah = handle_make(link);
	if (!ah)
		return -1;
	failed = datagram(&link->a, &link->b, ah, FROM_TASK, 500, false, &receiving);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	if (failed)
		return -1;
	ah = ib_create_ah_from_wc(link->pd, &receiving->wc, (struct ib_grh *)link->b.memory, PORT);
	must(test, !IS_ERR(ah), "ib_create_ah_from_wc: %pe", ah);
	failed = datagram(&link->b, &link->a, ah, FROM_TASK, 600, true, &receiving);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return failed;
}

/* When ib_drain_qp() returns, all requests have completed. */
static int drain(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .type = IB_QPT_UD, .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct ib_ah *ah;
	int i, times, error;

	if (!link)
		return -1;
	sends = requests_new(link, EARLY);
	receives = requests_new(link, EARLY);
	for (i = 0; i < EARLY; i++)
		try(post_receive(&link->a, FROM_TASK, &receives[i], 0, 100));
	ah = handle_make(link);
	if (!ah)
		return -1;
	error = send_early(link, ah, sends);
	ib_drain_qp(link->a.qp);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	must(test, !error, "ib_post_send: %d", error);
	for (i = 0; i < EARLY; i++) {
		times = atomic_read_acquire(&sends[i].times);
		must(test, times == 1, "%d completions of SEND %d", times, i);
		must(test, !i || sends[i].order > sends[i - 1].order, "out of order");
		times = atomic_read_acquire(&receives[i].times);
		must(test, times == 1, "%d completions of receive %d", times, i);
		must(test, receives[i].wc.status == IB_WC_WR_FLUSH_ERR, "status %s",
		     ib_wc_status_msg(receives[i].wc.status));
	}
	return 0;
}

static const struct row rows[] = {
	{ "datagrams, rdma_create_ah that may sleep, IB_POLL_WORKQUEUE", datagrams, FROM_TASK, QUEUE_WORKQUEUE },
	{ "datagrams, rdma_create_ah without bottom halves, IB_POLL_DIRECT", datagrams, FROM_BH_OFF, QUEUE_DIRECT },
	{ "datagrams, rdma_create_ah in softirq, IB_POLL_SOFTIRQ", datagrams, FROM_SOFTIRQ, QUEUE_SOFTIRQ },
	{ "datagrams, rdma_create_ah under an irqsave lock, ib_create_cq", datagrams, FROM_IRQS_OFF, QUEUE_BARE },
	{ "an address handle that goes before its requests", early_end },
	{ "an address handle of a completion", answer },
	{ "ib_drain_qp of datagrams, IB_POLL_DIRECT", drain, 0, QUEUE_DIRECT },
	{ "ib_drain_qp of datagrams, IB_POLL_WORKQUEUE", drain, 0, QUEUE_WORKQUEUE },
};

const struct rows datagram_rows = { rows, ARRAY_SIZE(rows) };
