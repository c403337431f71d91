// SPDX-License-Identifier: GPL-2.0
/* See exchange.h. */

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "exchange.h"

/* A completion's wr_id says which message of which way it is of. */
#define ID_MARK 0xfe66u

static uint64_t id_make(unsigned int way, unsigned int message, bool receive)
{
	return (uint64_t)ID_MARK << 48 | (uint64_t)receive << 32 | way << 16 | message;
}

const enum ibv_wr_opcode opcodes[OPCODES] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,
};

const char *opcode_name(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
		return "send";
	case IBV_WR_SEND_WITH_IMM:
		return "send with immediate";
	case IBV_WR_RDMA_WRITE:
		return "write";
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return "write with immediate";
	case IBV_WR_RDMA_READ:
		return "read";
	default:
		return "?";
	}
}

static bool is_send(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

static bool has_imm(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return is_send(opcode) || has_imm(opcode);
}

static enum ibv_wc_opcode sent_opcode(enum ibv_wr_opcode opcode)
{
	if (is_send(opcode))
		return IBV_WC_SEND;
	return opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
}

void side_make(struct side *side, struct device *device, size_t size, int cqes)
{
	side->device = device;
	side->sink_next = 0;
	region_make(&side->source, device, size, IBV_ACCESS_REMOTE_READ);
	region_make(&side->sink, device, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	side->send_cq = cq_make(device, cqes);
	side->recv_cq = cq_make(device, cqes);
}

static bool sink_check(const struct side *side)
{
	char name[64];

	snprintf(name, sizeof(name), "%s: sink", side->device->name);
	return region_check(&side->sink, name);
}

bool side_check(const struct side *side)
{
	char name[64];

	snprintf(name, sizeof(name), "%s: source", side->device->name);
	return region_check(&side->source, name) & sink_check(side);
}

struct side sides[2];

void sides_make(struct device devices[2], size_t size, int cqes)
{
	side_make(&sides[0], &devices[0], size, cqes);
	side_make(&sides[1], &devices[1], size, cqes);
}

void sides_free(void)
{
	side_free(&sides[0]);
	side_free(&sides[1]);
}

void qps_make(struct ibv_qp *qps[2], enum ibv_qp_type type, struct depth depth, enum ibv_mtu mtu,
	      struct patience patience)
{
	int i;

	for (i = 0; i < 2; i++)
		qps[i] = qp_make(sides[i].device, type, sides[i].send_cq, sides[i].recv_cq, depth, NULL);
	qp_connect(sides[0].device, qps[0], sides[1].device, qps[1], mtu, patience);
}

void qps_free(struct ibv_qp *qps[2])
{
	int i;

	for (i = 0; i < 2; i++)
		qp_free(qps[i]);
	for (i = 0; i < 2; i++) {
		cq_drain(sides[i].send_cq);
		cq_drain(sides[i].recv_cq);
	}
}

void side_free(struct side *side)
{
	if (ibv_destroy_cq(side->send_cq) || ibv_destroy_cq(side->recv_cq))
		die("ibv_destroy_cq");
	region_free(&side->source);
	region_free(&side->sink);
}

void ways_between(struct way ways[2], struct side *a, struct ibv_qp *qp_a, struct side *b,
		  struct ibv_qp *qp_b)
{
	ways[0].from = ways[1].to = a;
	ways[0].to = ways[1].from = b;
	ways[0].qp = ways[1].peer = qp_a;
	ways[0].peer = ways[1].qp = qp_b;
}

void ways_start(struct way *ways, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		ways[i].count = 0;
		ways[i].sent = 0;
		ways[i].received = 0;
		ways[i].from->sink_next = random_between(1, 64);
		ways[i].to->sink_next = random_between(1, 64);
	}
}

/* A slot of the sink that no other message of this round writes. */
static bool slot_take(struct side *side, uint32_t length, struct segment *segment)
{
	/* At least one untouched byte after each slot, and mostly odd starts. */
	size_t next = side->sink_next + length + random_between(1, 67);

	if (next >= side->sink.size)
		return false;
	segment->region = &side->sink;
	segment->offset = side->sink_next;
	segment->length = length;
	side->sink_next = next;
	return true;
}

static void source_take(struct side *side, uint32_t length, struct segment *segment)
{
	segment->region = &side->source;
	segment->offset = random_between(0, side->source.size - length);
	segment->length = length;
}

/* Cuts length in so many pieces, none of them empty. */
static unsigned int cut(uint32_t length, unsigned int pieces, uint32_t *lengths)
{
	unsigned int i;

	if (!length)
		return 0;
	if (pieces > length)
		pieces = length;
	for (i = 0; i < pieces; i++) {
		uint32_t rest = pieces - i - 1;
		uint32_t most = 2 * (length / (rest + 1));

		if (most > length - rest)
			most = length - rest;
		lengths[i] = rest ? random_between(1, most ? most : 1) : length;
		length -= lengths[i];
	}
	return pieces;
}

static bool segments_take(struct side *side, bool sink, uint32_t length, unsigned int pieces,
			  struct segment *segments, unsigned int *count)
{
	uint32_t lengths[MAX_SEGMENTS];
	unsigned int i;

	*count = cut(length, pieces, lengths);
	for (i = 0; i < *count; i++) {
		if (!sink)
			source_take(side, lengths[i], &segments[i]);
		else if (!slot_take(side, lengths[i], &segments[i]))
			return false;
	}
	return true;
}

struct message *message_add(struct way *way, enum ibv_wr_opcode opcode, uint32_t length,
			    unsigned int pieces)
{
	struct message *message = &way->messages[way->count];
	bool read = opcode == IBV_WR_RDMA_READ;
	bool fits;

	if (way->count == MAX_MESSAGES)
		return NULL;
	memset(message, 0, sizeof(*message));
	message->opcode = opcode;
	message->length = length;
	message->imm = random_next();
	fits = segments_take(way->from, read, length, pieces, message->local, &message->locals);
	if (is_send(opcode)) {
		/* Sometimes there is more room than the message needs: it stays as it was. */
		uint32_t room = length + (random_next() % 2 ? random_between(1, 200) : 0);

		fits = fits && segments_take(way->to, true, room, pieces, message->remote,
					     &message->remotes);
	} else if (read) {
		source_take(way->to, length, &message->remote[0]);
		message->remotes = 1;
	} else {
		fits = fits && slot_take(way->to, length, &message->remote[0]);
		message->remotes = 1;
	}
	if (!fits)
		return NULL;
	way->count++;
	return message;
}

static unsigned int sges_make(const struct segment *segments, unsigned int count,
			      struct ibv_sge *sges)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		sges[i].addr = (uintptr_t)segments[i].region->memory + segments[i].offset;
		sges[i].length = segments[i].length;
		sges[i].lkey = segments[i].region->mr->lkey;
	}
	return count;
}

static void post_receive(struct way *way, unsigned int index, unsigned int number)
{
	const struct message *message = &way->messages[number];
	struct ibv_sge sges[MAX_SEGMENTS];
	struct ibv_recv_wr wr = { .wr_id = id_make(index, number, true), .sg_list = sges };
	struct segment idle;

	if (is_send(message->opcode)) {
		wr.num_sge = sges_make(message->remote, message->remotes, sges);
	} else if (slot_take(way->to, 33, &idle)) {
		/* The memory of a receive that a WRITE with immediate consumes stays untouched. */
		wr.num_sge = sges_make(&idle, 1, sges);
	}
	recv_post(way->peer, &wr);
}

static void post_message(struct way *way, unsigned int index, unsigned int number)
{
	const struct message *message = &way->messages[number];
	const struct segment *remote = &message->remote[0];
	static uint8_t bounce[4096];
	struct ibv_sge sges[MAX_SEGMENTS];
	struct ibv_send_wr wr = {
		.wr_id = id_make(index, number, false),
		.opcode = message->opcode,
		.sg_list = sges,
		.imm_data = htonl(message->imm),
	};
	struct ibv_send_wr *bad;
	size_t used = 0;
	int error, i;

	wr.num_sge = sges_make(message->local, message->locals, sges);
	if (!is_send(message->opcode)) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->region->memory + remote->offset;
		wr.wr.rdma.rkey = remote->region->mr->rkey;
	}
	/* The last one must complete, or nobody knows when all have. */
	if (!message->unsignaled || number + 1 == way->count)
		wr.send_flags |= IBV_SEND_SIGNALED;
	if (message->inlined) {
		/* From memory that no key covers, and that changes as soon as it is posted. */
		wr.send_flags |= IBV_SEND_INLINE;
		for (i = 0; i < wr.num_sge; i++) {
			memcpy(bounce + used, (void *)(uintptr_t)sges[i].addr, sges[i].length);
			sges[i].addr = (uintptr_t)bounce + used;
			sges[i].lkey = 0xdeadbeef;
			used += sges[i].length;
		}
	}
	error = ibv_post_send(way->qp, &wr, &bad);
	memset(bounce, 0xa5, used);
	if (error)
		die("ibv_post_send of a %s: %s", opcode_name(message->opcode), strerror(error));
}

static bool wc_refuse(const struct ibv_wc *wc, const char *what)
{
	printf("# completion with wr_id %#llx, qp_num %#x, opcode %d, byte_len %u, flags %#x, %s: %s\n",
	       (unsigned long long)wc->wr_id, wc->qp_num, wc->opcode, wc->byte_len, wc->wc_flags,
	       ibv_wc_status_str(wc->status), what);
	return false;
}

static unsigned int next_signaled(const struct way *way)
{
	unsigned int next = way->sent;

	while (next + 1 < way->count && way->messages[next].unsignaled)
		next++;
	return next;
}

static bool take_sent(struct way *ways, unsigned int count, const struct ibv_wc *wc)
{
	unsigned int index = wc->wr_id >> 16 & 0xffff, number = wc->wr_id & 0xffff;
	const struct message *message;
	struct way *way;

	if (wc->status != IBV_WC_SUCCESS)
		return wc_refuse(wc, "a send completes with an error");
	if (index >= count || wc->wr_id != id_make(index, number, false))
		return wc_refuse(wc, "nothing was posted with that wr_id");
	way = &ways[index];
	if (way->sent == way->count || number != next_signaled(way))
		return wc_refuse(wc, "out of order, or twice");
	message = &way->messages[number];
	way->sent = number + 1;
	if (wc->qp_num != way->qp->qp_num)
		return wc_refuse(wc, "wrong qp_num");
	if (wc->opcode != sent_opcode(message->opcode))
		return wc_refuse(wc, "wrong opcode");
	if (message->opcode == IBV_WR_RDMA_READ && wc->byte_len != message->length)
		return wc_refuse(wc, "wrong byte_len");
	return true;
}

/* The next message of the way that consumes a receive; way->count if there is none. */
static unsigned int next_receive(const struct way *way)
{
	unsigned int next = way->received;

	while (next < way->count && !takes_receive(way->messages[next].opcode))
		next++;
	return next;
}

static bool take_received(struct way *ways, unsigned int count, const struct ibv_wc *wc)
{
	unsigned int index = wc->wr_id >> 16 & 0xffff, number = wc->wr_id & 0xffff;
	unsigned int flags = wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV);
	const struct message *message;
	struct way *way;

	if (wc->status != IBV_WC_SUCCESS)
		return wc_refuse(wc, "a receive completes with an error");
	if (index >= count || wc->wr_id != id_make(index, number, true))
		return wc_refuse(wc, "nothing was posted with that wr_id");
	way = &ways[index];
	if (number != next_receive(way))
		return wc_refuse(wc, "out of order, or twice");
	message = &way->messages[number];
	way->received = number + 1;
	if (wc->qp_num != way->peer->qp_num)
		return wc_refuse(wc, "wrong qp_num");
	if (wc->opcode != (is_send(message->opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
		return wc_refuse(wc, "wrong opcode");
	if (wc->byte_len != message->length)
		return wc_refuse(wc, "wrong byte_len");
	if (flags != (has_imm(message->opcode) ? IBV_WC_WITH_IMM : 0))
		return wc_refuse(wc, "wrong wc_flags");
	if (flags && wc->imm_data != htonl(message->imm))
		return wc_refuse(wc, "wrong immediate");
	return true;
}

/* Polls a queue once; ok is cleared by a completion that should not be as it is. */
static void take(struct ibv_cq *cq, bool receive, struct way *ways, unsigned int count, bool *ok)
{
	struct ibv_wc wcs[16];
	int found = ibv_poll_cq(cq, 16, wcs);
	int i;

	if (found < 0)
		die("ibv_poll_cq: %d", found);
	for (i = 0; i < found; i++)
		*ok = *ok && (receive ? take_received(ways, count, &wcs[i])
				      : take_sent(ways, count, &wcs[i]));
}

static bool all_done(const struct way *ways, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		if (ways[i].sent < ways[i].count || next_receive(&ways[i]) < ways[i].count)
			return false;
	}
	return true;
}

/* What a message does to the bytes that are expected. */
static void expect(const struct message *message)
{
	bool read = message->opcode == IBV_WR_RDMA_READ;
	const struct segment *from = read ? message->remote : message->local;
	const struct segment *to = read ? message->local : message->remote;
	uint32_t left = message->length, from_used = 0, to_used = 0, size;

	while (left) {
		size = from->length - from_used;
		if (size > to->length - to_used)
			size = to->length - to_used;
		if (size > left)
			size = left;
		memcpy(to->region->expected + to->offset + to_used,
		       from->region->expected + from->offset + from_used, size);
		left -= size;
		from_used += size;
		to_used += size;
		if (from_used == from->length) {
			from++;
			from_used = 0;
		}
		if (to_used == to->length) {
			to++;
			to_used = 0;
		}
	}
}

bool exchange(struct way *ways, unsigned int count, unsigned int seconds)
{
	struct side *sides[2] = { ways[0].from, ways[0].to };
	uint64_t end = now_ms() + patience_ms(seconds * 1000);
	unsigned int i, j;
	bool ok = true;

	for (i = 0; i < count; i++) {
		for (j = 0; j < ways[i].count; j++) {
			if (takes_receive(ways[i].messages[j].opcode))
				post_receive(&ways[i], i, j);
		}
	}
	/* One of each in turn, so that the queue pairs really run at once. */
	for (j = 0; j < MAX_MESSAGES; j++) {
		for (i = 0; i < count; i++) {
			if (j < ways[i].count)
				post_message(&ways[i], i, j);
		}
	}
	while (ok && !all_done(ways, count)) {
		for (i = 0; i < 2; i++) {
			take(sides[i]->send_cq, false, ways, count, &ok);
			take(sides[i]->recv_cq, true, ways, count, &ok);
		}
		if (now_ms() > end) {
			printf("# not done after %u s\n", seconds);
			ok = false;
		}
		sched_yield();
	}
	for (i = 0; ok && i < count; i++) {
		for (j = 0; j < ways[i].count; j++)
			expect(&ways[i].messages[j]);
	}
	return ok && sink_check(sides[0]) & sink_check(sides[1]);
}
