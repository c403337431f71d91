// SPDX-License-Identifier: GPL-2.0
/*
 * Every operation of a reliable connection, posted from each context, completed in each way.
 */

#include "consumer.h"

#define PIECES 16
#define GUARD 64

struct operation {
	const char *name;
	enum ib_wr_opcode opcode;
	u32 length;
	/* Of the local memory at each end. */
	unsigned int pieces;
	bool is_inline;
	/* Of an atomic operation; there is 100 in memory. */
	u64 compare_add, swap, result;
};

static const struct operation operations[] = {
	{ .name = "SEND of nothing", .opcode = IB_WR_SEND },
	{ .name = "SEND", .opcode = IB_WR_SEND, .length = 1 },
	{ .name = "SEND of packets", .opcode = IB_WR_SEND, .length = 20001 },
	{ .name = "SEND in pieces", .opcode = IB_WR_SEND, .length = 9999, .pieces = PIECES },
	{ .name = "SEND inline", .opcode = IB_WR_SEND, .length = 200, .is_inline = true },
	{ .name = "SEND inline in pieces", .opcode = IB_WR_SEND, .length = 256, .pieces = PIECES, .is_inline = true },
	{ .name = "SEND with immediate", .opcode = IB_WR_SEND_WITH_IMM, .length = 333 },
	{ .name = "SEND with invalidate", .opcode = IB_WR_SEND_WITH_INV, .length = 5000 },
	{ .name = "WRITE", .opcode = IB_WR_RDMA_WRITE, .length = 20001 },
	{ .name = "WRITE in pieces", .opcode = IB_WR_RDMA_WRITE, .length = 7777, .pieces = PIECES },
	{ .name = "WRITE inline", .opcode = IB_WR_RDMA_WRITE, .length = 256, .is_inline = true },
	{ .name = "WRITE with immediate", .opcode = IB_WR_RDMA_WRITE_WITH_IMM, .length = 5001 },
	{ .name = "WRITE with immediate of nothing", .opcode = IB_WR_RDMA_WRITE_WITH_IMM },
	{ .name = "READ", .opcode = IB_WR_RDMA_READ, .length = 20001 },
	{ .name = "READ in pieces", .opcode = IB_WR_RDMA_READ, .length = 8191, .pieces = PIECES },
	{
		.name = "fetch and add", .opcode = IB_WR_ATOMIC_FETCH_AND_ADD, .length = 8,
		.compare_add = 11, .result = 111,
	},
	{
		.name = "compare and swap", .opcode = IB_WR_ATOMIC_CMP_AND_SWP, .length = 8,
		.compare_add = 100, .swap = 7, .result = 7,
	},
	{
		.name = "compare and swap, another value", .opcode = IB_WR_ATOMIC_CMP_AND_SWP, .length = 8,
		.compare_add = 101, .swap = 7, .result = 100,
	},
};

static bool is_atomic(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_ATOMIC_FETCH_AND_ADD || opcode == IB_WR_ATOMIC_CMP_AND_SWP;
}

static bool is_received(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM || opcode == IB_WR_SEND_WITH_INV ||
	       opcode == IB_WR_RDMA_WRITE_WITH_IMM;
}

static enum ib_wc_opcode completion_of(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
		return IB_WC_RDMA_READ;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return IB_WC_FETCH_ADD;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		return IB_WC_COMP_SWAP;
	default:
		return IB_WC_SEND;
	}
}

/* Unequal pieces that lie one behind the other, in a list in that order. */
static int cut(struct side *side, u32 length, unsigned int count, struct ib_sge *pieces)
{
	u32 at = 0, part;
	unsigned int i;

	if (!length)
		return 0;
	count = max(count, 1U);
	for (i = 0; i < count; i++) {
		part = i + 1 == count ? length - at : length / count - i % 3;
		pieces[i] = piece_of(side, at, part);
		at += part;
	}
	return count;
}

static int operate(struct link *link, enum context context, const struct operation *operation)
{
	struct side *a = &link->a, *b = &link->b, *source = a, *target = b;
	enum ib_wr_opcode opcode = operation->opcode;
	struct request *sending = request_new(link), *receiving = NULL;
	struct test *test = link->test;
	struct ib_sge pieces[PIECES], receive_pieces[PIECES];
	struct ib_recv_wr receive = { .sg_list = receive_pieces };
	struct ib_mr *spare = NULL;
	u32 seed = sending - link->requests, length = operation->length, extra = 0;
	int i, count, flags = 0;
	union {
		struct ib_send_wr wr;
		struct ib_rdma_wr rdma;
		struct ib_atomic_wr atomic;
	} send = {};

	memset(a->memory, UNTOUCHED, MEMORY);
	memset(b->memory, UNTOUCHED, MEMORY);
	if (opcode == IB_WR_RDMA_READ) {
		source = b;
		target = a;
	}
	if (is_atomic(opcode))
		*(u64 *)b->memory = 100;
	else
		pattern_fill(source->memory, length, seed);

	count = cut(a, length, operation->pieces, pieces);
	rdma_of(&send.rdma, sending, opcode, pieces, count, b->address, b->region->rkey);
	if (is_atomic(opcode)) {
		send.atomic.remote_addr = b->address;
		send.atomic.rkey = b->region->rkey;
		send.atomic.compare_add = operation->compare_add;
		send.atomic.swap = operation->swap;
	}
	switch (opcode) {
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		extra = 0x01020304 + seed;
		send.wr.ex.imm_data = cpu_to_be32(extra);
		flags = IB_WC_WITH_IMM;
		break;
	case IB_WR_SEND_WITH_INV:
		spare = region_new(link, 1);
		if (!spare)
			return -1;
		try(region_map_side(b, spare, 0, PAGE_SIZE));
		try(region_register(b, spare, ALL_RIGHTS, context));
		extra = spare->rkey;
		send.wr.ex.invalidate_rkey = extra;
		flags = IB_WC_WITH_INVALIDATE;
		break;
	default:
		break;
	}
	if (is_received(opcode)) {
		receiving = request_new(link);
		receive.wr_cqe = &receiving->cqe;
		/* A WRITE needs no memory of it. */
		if (opcode != IB_WR_RDMA_WRITE_WITH_IMM)
			receive.num_sge = cut(b, length + GUARD, operation->pieces, receive_pieces);
		try(post_receives(b, context, &receive));
	}
	if (operation->is_inline) {
		send.wr.send_flags |= IB_SEND_INLINE;
		/* Keys mean nothing then, and memory may change at once. */
		for (i = 0; i < count; i++)
			pieces[i].lkey = 0xdeadbeef;
	}
	try(post_sends(a, context, &send.wr));
	if (operation->is_inline)
		memset(a->memory, 0, MEMORY);
	memset(pieces, 0xff, sizeof(pieces));
	memset(receive_pieces, 0xff, sizeof(receive_pieces));

	try(send_ends(a, sending, completion_of(opcode)));
	if (opcode == IB_WR_RDMA_READ || is_atomic(opcode))
		must(test, sending->wc.byte_len == length, "byte_len %u", sending->wc.byte_len);
	if (receiving)
		try(receive_ends(b, receiving, opcode == IB_WR_RDMA_WRITE_WITH_IMM ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
				 length, flags, extra));
	if (is_atomic(opcode)) {
		must(test, *(u64 *)a->memory == 100, "%llu was there", *(u64 *)a->memory);
		must(test, *(u64 *)b->memory == operation->result, "%llu is there", *(u64 *)b->memory);
	} else {
		must(test, pattern_is(target->memory, length, seed), "other bytes");
		must(test, operation->is_inline || pattern_is(source->memory, length, seed), "the source has changed");
	}
	must(test, untouched(target->memory + length, MEMORY - length), "bytes behind the message");
	if (spare) {
		/* What is valid cannot be registered. */
		try(region_register(b, spare, ALL_RIGHTS, context));
		try(region_invalidate(b, spare->rkey, context));
		regions_free(link, spare);
	}
	return 0;
}

static int every_operation(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second, .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape);
	int i;

	if (!link)
		return -1;
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if (operate(link, row->first, &operations[i]))
			return row_fails(test, "in: %s", operations[i].name);
	}
	return 0;
}

#define LIST 8

/* iSER has its pieces in packed structures. */
struct odd_piece {
	u8 odd;
	struct ib_sge sge;
} __packed;

/* Eight SENDs and eight receives, each posted as one list; of the SENDs only the last one is signaled. */
static int lists(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct request *sends[LIST], *receives[LIST];
	struct odd_piece pieces[LIST], receive_pieces[LIST];
	struct ib_recv_wr receive[LIST] = {};
	struct ib_send_wr send[LIST];
	int i;

	if (!link)
		return -1;
	for (i = 0; i < LIST; i++) {
		sends[i] = request_new(link);
		receives[i] = request_new(link);
		pieces[i].sge = piece_of(&link->a, i * 1000, 1000 + i);
		receive_pieces[i].sge = piece_of(&link->b, i * 2000, 2000);
		send_of(&send[i], sends[i], IB_WR_SEND, &pieces[i].sge, 1);
		if (i < LIST - 1)
			send[i].send_flags = 0;
		receive[i].wr_cqe = &receives[i]->cqe;
		receive[i].sg_list = &receive_pieces[i].sge;
		receive[i].num_sge = 1;
		if (i) {
			send[i - 1].next = &send[i];
			receive[i - 1].next = &receive[i];
		}
	}
	pattern_fill(link->a.memory, MEMORY, 5);
	try(post_receives(&link->b, row->first, receive));
	try(post_sends(&link->a, row->first, send));
	for (i = 0; i < LIST; i++) {
		try(receive_ends(&link->b, receives[i], IB_WC_RECV, 1000 + i, 0, 0));
		must(test, !memcmp(link->b.memory + i * 2000, link->a.memory + i * 1000, 1000 + i), "other bytes");
	}
	try(send_ends(&link->a, sends[LIST - 1], IB_WC_SEND));
	for (i = 0; i < LIST - 1; i++)
		must(test, !atomic_read(&sends[i]->times), "an unsignaled request completes");
	return 0;
}

struct bad_posting {
	struct side *side;
	const struct ib_send_wr *sends, *bad_send;
	const struct ib_recv_wr *receives, *bad_receive;
	int error;
};

static void post_bad(void *argument)
{
	struct bad_posting *posting = argument;

	if (posting->sends)
		posting->error = ib_post_send(posting->side->qp, posting->sends, &posting->bad_send);
	else
		posting->error = ib_post_recv(posting->side->qp, posting->receives, &posting->bad_receive);
}

enum wrong { TOO_MANY_PIECES, TOO_MUCH_INLINE, UNKNOWN_OPCODE };

/* A list of five SENDs with a wrong one in the middle: two are executed, and then what is posted next. */
static int wrong_send(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct ib_sge piece, small, many[40];
	struct request *sends[5], *receives[3], *next;
	struct bad_posting posting = {};
	struct ib_send_wr send[5], last;
	int i;

	if (!link)
		return -1;
	for (i = 0; i < 3; i++) {
		receives[i] = request_new(link);
		try(post_receive(&link->b, FROM_TASK, receives[i], i * 100, 100));
	}
	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = piece_of(&link->a, 0, 1);
	piece = piece_of(&link->a, 0, 50);
	small = piece;
	for (i = 0; i < 5; i++) {
		sends[i] = request_new(link);
		send_of(&send[i], sends[i], IB_WR_SEND, &piece, 1);
		if (i)
			send[i - 1].next = &send[i];
	}
	switch (row->second) {
	case TOO_MANY_PIECES:
		must(test, test->device->attrs.max_send_sge < ARRAY_SIZE(many), "more pieces are allowed");
		send[2].sg_list = many;
		send[2].num_sge = test->device->attrs.max_send_sge + 1;
		break;
	case TOO_MUCH_INLINE:
		/* More than any queue pair takes. */
		piece = piece_of(&link->a, 0, MEMORY);
		send[2].send_flags |= IB_SEND_INLINE;
		break;
	case UNKNOWN_OPCODE:
		send[2].opcode = 0x7f;
		break;
	}
	if (row->second == TOO_MUCH_INLINE) {
		for (i = 0; i < 5; i++) {
			if (i != 2)
				send[i].sg_list = &small;
		}
	}
	posting.side = &link->a;
	posting.sends = send;
	must(test, call_from(row->first, post_bad, &posting), "another context");
	must(test, posting.error == -EINVAL, "ib_post_send: %d", posting.error);
	must(test, posting.bad_send == &send[2], "bad_wr is %td", posting.bad_send - send);
	piece = piece_of(&link->a, 0, 60);
	next = request_new(link);
	try(post_sends(&link->a, row->first, send_of(&last, next, IB_WR_SEND, &piece, 1)));
	try(send_ends(&link->a, next, IB_WC_SEND));
	for (i = 0; i < 3; i++)
		try(receive_ends(&link->b, receives[i], IB_WC_RECV, i < 2 ? 50 : 60, 0, 0));
	for (i = 0; i < 5; i++)
		must(test, atomic_read(&sends[i]->times) == (i < 2), "%d completions of request %d",
		     atomic_read(&sends[i]->times), i);
	return 0;
}

static int wrong_receive(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct ib_sge piece, many[40];
	struct request *receives[3], *sending;
	struct ib_recv_wr receive[3] = {};
	struct bad_posting posting = {};
	struct ib_send_wr send;
	int i;

	if (!link)
		return -1;
	piece = piece_of(&link->b, 0, 100);
	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = piece;
	for (i = 0; i < 3; i++) {
		receives[i] = request_new(link);
		receive[i].wr_cqe = &receives[i]->cqe;
		receive[i].sg_list = &piece;
		receive[i].num_sge = 1;
		if (i)
			receive[i - 1].next = &receive[i];
	}
	receive[1].sg_list = many;
	receive[1].num_sge = test->device->attrs.max_recv_sge + 1;
	posting.side = &link->b;
	posting.receives = receive;
	must(test, call_from(row->first, post_bad, &posting), "another context");
	must(test, posting.error == -EINVAL, "ib_post_recv: %d", posting.error);
	must(test, posting.bad_receive == &receive[1], "bad_wr is %td", posting.bad_receive - receive);
	piece = piece_of(&link->a, 0, 10);
	sending = request_new(link);
	try(post_sends(&link->a, row->first, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	try(send_ends(&link->a, sending, IB_WC_SEND));
	try(receive_ends(&link->b, receives[0], IB_WC_RECV, 10, 0, 0));
	ib_drain_rq(link->b.qp);
	must(test, !atomic_read(&receives[1]->times) && !atomic_read(&receives[2]->times),
	     "what was not posted completes");
	return 0;
}

#define MANY 200

/* SENDs until no more fit, with nobody who takes them; then all that were posted arrive, in order. */
static int full_queue(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .sends = 16, .receives = 256 };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receives;
	struct bad_posting posting = {};
	struct ib_sge piece;
	struct ib_send_wr send;
	int i, count;

	if (!link)
		return -1;
	sends = requests_new(link, MANY);
	receives = requests_new(link, MANY);
	piece = piece_of(&link->a, 0, 10);
	posting.side = &link->a;
	for (count = 0; count < MANY; count++) {
		posting.sends = send_of(&send, &sends[count], IB_WR_SEND, &piece, 1);
		must(test, call_from(row->first, post_bad, &posting), "another context");
		if (posting.error)
			break;
	}
	must(test, posting.error == -ENOMEM, "after %d: %d", count, posting.error);
	must(test, posting.bad_send == &send, "another bad_wr");
	must(test, count >= 16, "only %d fit", count);
	for (i = 0; i < count; i++)
		try(post_receive(&link->b, row->first, &receives[i], 0, 10));
	for (i = 0; i < count; i++) {
		try(receive_ends(&link->b, &receives[i], IB_WC_RECV, 10, 0, 0));
		try(send_ends(&link->a, &sends[i], IB_WC_SEND));
		must(test, !i || sends[i].order > sends[i - 1].order, "out of order");
	}
	must(test, !atomic_read(&sends[count].times), "what was not posted completes");
	return 0;
}

#define FROM_ALL(kind, completed)									\
	{ "every operation, from a task, " completed, every_operation, FROM_TASK, kind },		\
	{ "every operation, from a task without bottom halves, " completed, every_operation, FROM_BH_OFF, kind }, \
	{ "every operation, from softirq, " completed, every_operation, FROM_SOFTIRQ, kind },		\
	{ "every operation, from under an irqsave lock, " completed, every_operation, FROM_IRQS_OFF, kind }, \
	{ "every operation, from a hard interrupt, " completed, every_operation, FROM_HARDIRQ, kind }

/* No request of the kernel's has a field for the number of an XRC SRQ. */
static int xrc_initiator(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct ib_qp_init_attr attr = { .qp_type = IB_QPT_XRC_INI, .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ib_qp *qp;

	if (!link)
		return -1;
	attr.send_cq = link->a.queue.cq;
	qp = ib_create_qp(link->pd, &attr);
	if (!IS_ERR(qp))
		ib_destroy_qp(qp);
	must(test, qp == ERR_PTR(-EOPNOTSUPP), "ib_create_qp: %pe", qp);
	return 0;
}

static const struct row rows[] = {
	FROM_ALL(QUEUE_DIRECT, "IB_POLL_DIRECT"),
	FROM_ALL(QUEUE_SOFTIRQ, "IB_POLL_SOFTIRQ"),
	FROM_ALL(QUEUE_WORKQUEUE, "IB_POLL_WORKQUEUE"),
	FROM_ALL(QUEUE_UNBOUND, "IB_POLL_UNBOUND_WORKQUEUE"),
	FROM_ALL(QUEUE_SHARED_SOFTIRQ, "shared queue, IB_POLL_SOFTIRQ"),
	FROM_ALL(QUEUE_SHARED_WORKQUEUE, "shared queue, IB_POLL_WORKQUEUE"),
	FROM_ALL(QUEUE_BARE, "ib_create_cq"),
	{ "lists, from a task, IB_POLL_DIRECT", lists, FROM_TASK, QUEUE_DIRECT },
	{ "lists, from softirq, IB_POLL_SOFTIRQ", lists, FROM_SOFTIRQ, QUEUE_SOFTIRQ },
	{ "lists, from under an irqsave lock, IB_POLL_WORKQUEUE", lists, FROM_IRQS_OFF, QUEUE_WORKQUEUE },
	{ "lists, from a hard interrupt, ib_create_cq", lists, FROM_HARDIRQ, QUEUE_BARE },
	{ "a list with too many pieces in the middle", wrong_send, FROM_TASK, TOO_MANY_PIECES },
	{ "a list with too much inline in the middle", wrong_send, FROM_TASK, TOO_MUCH_INLINE },
	{ "a list with an unknown opcode in the middle", wrong_send, FROM_IRQS_OFF, UNKNOWN_OPCODE },
	{ "a list of receives with too many pieces in the middle", wrong_receive, FROM_TASK },
	{ "an XRC initiator is refused", xrc_initiator },
	{ "a full send queue", full_queue, FROM_TASK },
	{ "a full send queue, from under an irqsave lock", full_queue, FROM_IRQS_OFF },
};

const struct rows verbs_rows = { rows, ARRAY_SIZE(rows) };
