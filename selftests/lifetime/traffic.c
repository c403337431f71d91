// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic of one kind between two devices, both ways, until its time is over or a device goes. Each end is a process of
 * its own, in its own network namespace. Every byte that arrives must be right.
 *
 * traffic [-6] [-t SECONDS] [-p MICROSECONDS] [-m MESSAGES] KIND NAMESPACE DEVICE NAMESPACE DEVICE
 *	-p	how long an end pauses after each turn
 *	-m	how many messages each end must have received in the end
 *
 * KIND is rc, uc, ud, odp (RC with memory that is paged on demand, and taken away again), srq (two RC queue pairs of
 * each end share their receives), xrc (an initiator of each end asks two XRC SRQs of the other one) or raw (whole frames).
 *
 * RC and XRC messages arrive once and in order. UC, UD and raw messages may be lost, come twice, late, or in another
 * order, so each is only compared with the number that stands in it. One may even come after its sender has ended, when
 * netem has kept it, and its queue pair has the same number as one of a module that was loaded since: so it also has the
 * seed in it; one of an earlier run must be right, too, and is not counted.
 *
 * Prints "moves" with the first message that arrives, "moved N messages" in the end, and exits with 0 if its time was
 * over, 1 if what arrived was wrong, 2 if it could not start, 3 if a device or a connection was lost, 4 if too few
 * messages arrived.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "endpoint.h"
#include "kselftest.h"
#include "namespace.h"
#include "xrc.h"

#define PAIRS 2
#define WINDOW 8
#define RECEIVES 32
#define SLOT ((size_t)16384)
#define QKEY 0x11111111
#define ETHERNET 14
/* An Ethernet type for experiments. */
#define FRAME_TYPE 0x88b5
/* A frame fits the smallest MTU that a storm sets. */
#define LONGEST_FRAME 600
/* An immediate is the number of a message and its slot. */
#define SLOT_BITS 3
#define MEET_MS 20000
#define DRAIN_MS 20000
#define STALE_MS 20
#define KILL_MS 5000

/* REFUSED is an end's: the peer that refuses its request may be dying. */
enum status { OVER = 0, WRONG = 1, UNABLE = 2, LOST = 3, TOO_FEW = 4, REFUSED = 5 };

/* What each message begins with. */
struct head {
	uint64_t number;
	uint32_t length;
	/* The end that sends it, and its queue pair. */
	uint32_t source;
	uint64_t seed;
};

static const struct kind {
	const char *name;
	enum ibv_qp_type type;
	unsigned int pairs;
	bool paged;
	bool shared;
} kinds[] = {
	{ "rc", IBV_QPT_RC, 1, false, false },
	{ "uc", IBV_QPT_UC, 1, false, false },
	{ "ud", IBV_QPT_UD, 1, false, false },
	{ "odp", IBV_QPT_RC, 1, true, false },
	{ "srq", IBV_QPT_RC, PAIRS, false, true },
	/* Its pairs are XRC SRQs. */
	{ "xrc", IBV_QPT_XRC_SEND, PAIRS, false, false },
	{ "raw", IBV_QPT_RAW_PACKET, 1, false, false },
};

/* What each end tells the other one, in memory that both share. */
struct news {
	atomic_bool is_made, is_connected, is_drained;
	struct device device;
	/* XRC: of the initiator and of the target. */
	uint32_t qp_nums[PAIRS];
	uint32_t srq_nums[PAIRS];
	uint32_t psns[PAIRS];
	uint32_t rkey;
	uint64_t address;
	/* The last message that it has taken from each slot that the other one writes to. */
	_Atomic uint32_t taken[PAIRS][WINDOW];
	_Atomic uint64_t received;
};

/* One end's memory, by offset. */
enum {
	SENDS = 0,
	RECEIVED = SENDS + PAIRS * WINDOW * SLOT,
	WRITTEN = RECEIVED + PAIRS * RECEIVES * SLOT,
	STILL = WRITTEN + PAIRS * WINDOW * SLOT,
	COUNTERS = STILL + SLOT,
	SIZE = COUNTERS + 4096,
};

/* A request that is under way, or a slot whose last WRITE the peer has not taken yet. */
struct request {
	bool is_under_way;
	enum ibv_wr_opcode opcode;
	uint32_t number;
	uint32_t length;
	uint32_t offset;
	/* Of a WRITE whose slot the peer still reads. */
	uint32_t untaken;
};

static const struct kind *kind;
static const char *namespaces[2], *names[2];
static int family = 4;
static uint64_t seed = 1;
static unsigned int seconds = 10, pause_us = 5000, fewest;

static int self;
static struct news *own, *peer;
static struct device device;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qps[PAIRS];
static uint32_t domain;
static struct xrc_srq xrc_srqs[PAIRS];
static struct xrc_qp initiator, target;
static struct ibv_ah *ah;
static struct ibv_mr *mr;
static uint8_t *memory;
static int frames = -1;
static struct request requests[PAIRS][WINDOW];
static uint32_t sent[PAIRS], arrived[PAIRS];
static uint64_t added[PAIRS];
static uint8_t expected[SLOT], peer_still[SLOT];

static void leave(enum status status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

static void leave(enum status status, const char *format, ...)
{
	va_list arguments;

	printf("%s %s: %s: ", kind->name, names[self], status == WRONG ? "wrong" : "ended");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
	_exit(status);
}

static bool is_xrc(void)
{
	return kind->type == IBV_QPT_XRC_SEND;
}

/* The ordinary queue pairs of each end. */
static unsigned int qp_count(void)
{
	return is_xrc() ? 0 : kind->pairs;
}

static bool is_reliable(void)
{
	return kind->type == IBV_QPT_RC || is_xrc();
}

/* The bytes of a message are a function of what its head says. */
static void pattern(uint8_t *to, size_t size, uint64_t its_seed, uint64_t number, uint32_t source)
{
	uint64_t word = its_seed ^ number * 0x9e3779b97f4a7c15ULL ^ (uint64_t)source << 48;

	for (; size >= sizeof(word); size -= sizeof(word), to += sizeof(word)) {
		word = word * 6364136223846793005ULL + 1442695040888963407ULL;
		memcpy(to, &word, sizeof(word));
	}
	word = word * 6364136223846793005ULL + 1442695040888963407ULL;
	memcpy(to, &word, size);
}

static uint32_t source_of(int end, unsigned int pair)
{
	return end * PAIRS + pair;
}

static void message_make(uint8_t *to, uint32_t number, uint32_t length, unsigned int pair)
{
	struct head head = { number, length, source_of(self, pair), seed };

	pattern(to, length, seed, number, head.source);
	memcpy(to, &head, sizeof(head));
}

/* Checks a message that says itself what it should be; returns its number, 0 if it is of an earlier run. */
static uint32_t message_check(const uint8_t *at, uint32_t length, unsigned int pair, const char *how)
{
	uint32_t i, source = source_of(!self, pair);
	struct head head;

	memcpy(&head, at, sizeof(head));
	if (length < sizeof(head) || length > SLOT || head.length != length || head.source != source)
		leave(WRONG, "%s of %u bytes: head says number %llu, %u bytes, source %u instead of %u", how, length,
		      (unsigned long long)head.number, head.length, head.source, source);
	if (is_reliable() && head.seed != seed)
		leave(WRONG, "%s of %u bytes: seed %#llx instead of %#llx", how, length,
		      (unsigned long long)head.seed, (unsigned long long)seed);
	pattern(expected, length, head.seed, head.number, source);
	for (i = sizeof(head); i < length; i++) {
		if (at[i] != expected[i])
			leave(WRONG, "%s %llu of %u bytes: byte %u is %#x instead of %#x", how,
			      (unsigned long long)head.number, length, i, at[i], expected[i]);
	}
	return head.seed == seed ? head.number : 0;
}

static uint8_t *send_slot(unsigned int pair, unsigned int slot)
{
	return memory + SENDS + (pair * WINDOW + slot) * SLOT;
}

static void receive_post(unsigned int index)
{
	struct ibv_sge sge = { (uintptr_t)memory + RECEIVED + index * SLOT, SLOT, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;
	int error;

	if (is_xrc()) {
		xrc_srq_post(&xrc_srqs[index / RECEIVES], index, memory + RECEIVED + index * SLOT, SLOT, mr->lkey);
		return;
	}
	error = srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qps[index / RECEIVES], &wr, &bad);
	if (error)
		leave(LOST, "post a receive: %s", strerror(error));
}

/* Pages that have been read from go, so that the next message brings them in again. */
static void forget_pages(void *at)
{
	if (kind->paged && random_between(0, 3) == 0 && madvise(at, SLOT, MADV_DONTNEED))
		die("madvise: %s", strerror(errno));
}

static void memory_make(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;

	memory = pages_make(SIZE, MAP_PRIVATE | MAP_ANONYMOUS);
	pattern(memory + STILL, SLOT, seed, 0, source_of(self, 0));
	pattern(peer_still, SLOT, seed, 0, source_of(!self, 0));
	if (kind->paged)
		access |= IBV_ACCESS_ON_DEMAND;
	mr = mr_make(device.pd, memory, SIZE, access);
}

/* What the other end sees of raw frames. */
static void frames_open(void)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(FRAME_TYPE) };

	frames = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(FRAME_TYPE));
	if (frames < 0 || bind(frames, (struct sockaddr *)&at, sizeof(at)))
		die("no socket for frames: %s", strerror(errno));
}

/* So that a timer of the CQ often runs when something ends. Another driver may have no moderation. */
static void cq_moderate(void)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { random_between(0, 8), random_between(0, 20000) },
	};
	int error = command_modify_cq(cq, &attr);

	if (error && error != EOPNOTSUPP)
		die("MODIFY_CQ: %s", strerror(error));
}

static void xrc_make(void)
{
	int error = xrc_domain_open(device.context, -1, O_CREAT, &domain);
	unsigned int i;

	for (i = 0; !error && i < PAIRS; i++) {
		error = xrc_srq_create(&xrc_srqs[i], domain, device.pd, cq, RECEIVES);
		own->srq_nums[i] = xrc_srqs[i].number;
		own->psns[i] = random_between(0, 0xffffff);
	}
	error = error ? error : xrc_initiator_create(&initiator, device.pd, cq, PAIRS * WINDOW);
	error = error ? error : xrc_target_create(&target, device.context, domain);
	if (error)
		die("XRC: %s", strerror(error));
	own->qp_nums[0] = initiator.qp.qp_num;
	own->qp_nums[1] = target.qp.qp_num;
}

static void objects_make(void)
{
	struct depth depth = { .send = 2 * WINDOW, .receive = kind->shared ? 0 : RECEIVES, .sges = 1 };
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = PAIRS * RECEIVES, .max_sge = 1 } };
	unsigned int i;

	device_open(&device, names[self], family);
	memory_make();
	channel = ibv_create_comp_channel(device.context);
	if (!channel)
		die("ibv_create_comp_channel: %s", strerror(errno));
	cq = ibv_create_cq(device.context, PAIRS * (2 * WINDOW + RECEIVES), NULL, channel, 0);
	if (!cq)
		die("ibv_create_cq: %s", strerror(errno));
	cq_moderate();
	if (kind->shared) {
		srq = ibv_create_srq(device.pd, &shared);
		if (!srq)
			die("ibv_create_srq: %s", strerror(errno));
	}
	if (is_xrc())
		xrc_make();
	for (i = 0; i < qp_count(); i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.srq = srq,
			.qp_type = kind->type,
			.cap = {
				.max_send_wr = depth.send,
				.max_recv_wr = depth.receive,
				.max_send_sge = 1,
				.max_recv_sge = 1,
			},
		};

		qps[i] = ibv_create_qp(device.pd, &attr);
		if (!qps[i])
			die("ibv_create_qp: %s", strerror(errno));
		own->qp_nums[i] = qps[i]->qp_num;
		own->psns[i] = random_between(0, 0xffffff);
	}
	own->device = device;
	own->rkey = mr->rkey;
	own->address = (uintptr_t)memory;
}

/* Returns once the other end says so. */
static void await(atomic_bool *said)
{
	uint64_t end = now_ms() + patience_ms(MEET_MS);

	while (!*said) {
		if (now_ms() > end)
			leave(LOST, "the other end does not come");
		usleep(1000);
	}
}

static void connect_raw(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT };
	int error = ibv_modify_qp(qps[0], &attr, IBV_QP_STATE | IBV_QP_PORT);

	for (attr.qp_state = IBV_QPS_RTR; !error && attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
		error = ibv_modify_qp(qps[0], &attr, IBV_QP_STATE);
	if (error)
		die("raw: %s", strerror(error));
	frames_open();
}

static void connect_pairs(void)
{
	/* A flap of a second is survived. */
	struct patience patience = { .timeout = 16, .retries = 7, .rnr_retries = 7 };
	enum ibv_mtu mtu = device.active_mtu;
	unsigned int i;
	int error;

	own->is_made = true;
	await(&peer->is_made);
	if (peer->device.active_mtu < mtu)
		mtu = peer->device.active_mtu;
	if (is_xrc()) {
		xrc_qp_ready(&target, &device, &peer->device, peer->qp_nums[0], mtu, patience, own->psns[1],
			     peer->psns[0]);
		xrc_qp_ready(&initiator, &device, &peer->device, peer->qp_nums[1], mtu, patience, own->psns[0],
			     peer->psns[1]);
	}
	for (i = 0; i < qp_count() && kind->type != IBV_QPT_RAW_PACKET; i++) {
		error = qp_init(qps[i], kind->type == IBV_QPT_UD ? 0 : access_of(kind->type), QKEY);
		if (error)
			die("RESET to INIT: %s", strerror(error));
		if (kind->type == IBV_QPT_UD)
			qp_ready_ud(qps[i]);
		else
			qp_ready_connected(&device, qps[i], &peer->device, peer->qp_nums[i], mtu, patience,
					   own->psns[i], peer->psns[i]);
	}
	if (kind->type == IBV_QPT_UD)
		ah = ah_make(&device, &peer->device);
	if (kind->type == IBV_QPT_RAW_PACKET)
		connect_raw();
	else
		for (i = 0; i < kind->pairs * RECEIVES; i++)
			receive_post(i);
	own->is_connected = true;
	await(&peer->is_connected);
}

static enum ibv_wr_opcode opcode_choose(void)
{
	static const enum ibv_wr_opcode reliable[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	if (is_reliable())
		return reliable[random_between(0, 4)];
	return kind->type == IBV_QPT_RAW_PACKET || random_between(0, 1) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
}

static uint32_t length_choose(void)
{
	static const size_t most[] = { 64, 256, 4096, SLOT };
	size_t longest = most[random_between(0, 3)];

	if (kind->type == IBV_QPT_UD && longest > mtu_bytes(peer->device.active_mtu))
		longest = mtu_bytes(peer->device.active_mtu);
	if (kind->type == IBV_QPT_RAW_PACKET && longest > LONGEST_FRAME)
		longest = LONGEST_FRAME;
	return random_between(kind->type == IBV_QPT_RAW_PACKET ? 64 : sizeof(struct head), longest);
}

static void request_post(unsigned int pair, unsigned int slot)
{
	struct request *request = &requests[pair][slot];
	uint8_t *at = send_slot(pair, slot);
	uint32_t longest = mtu_bytes(device.active_mtu);
	struct ibv_sge sge = { .addr = (uintptr_t)at, .lkey = mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = RECEIVES * PAIRS + pair * WINDOW + slot,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int error;

	request->opcode = wr.opcode = opcode_choose();
	request->length = length_choose();
	if (kind->type == IBV_QPT_UD && request->length > longest)
		request->length = longest;
	forget_pages(at);
	switch (wr.opcode) {
	case IBV_WR_RDMA_READ:
		request->offset = random_between(0, SLOT - request->length);
		memset(at, 0xee, request->length);
		wr.wr.rdma.remote_addr = peer->address + STILL + request->offset;
		wr.wr.rdma.rkey = peer->rkey;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		request->length = 8;
		request->number = added[pair]++;
		wr.wr.atomic.remote_addr = peer->address + COUNTERS + 8 * pair;
		wr.wr.atomic.rkey = peer->rkey;
		wr.wr.atomic.compare_add = 1;
		break;
	default:
		request->number = ++sent[pair];
		message_make(at, request->number, request->length, pair);
		wr.imm_data = htonl(request->number << SLOT_BITS | slot);
		if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
			wr.wr.rdma.remote_addr = peer->address + WRITTEN + (pair * WINDOW + slot) * SLOT;
			wr.wr.rdma.rkey = peer->rkey;
			request->untaken = request->number;
		}
		if (kind->type == IBV_QPT_UD) {
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = peer->qp_nums[pair];
			wr.wr.ud.remote_qkey = QKEY;
		}
	}
	if (kind->type == IBV_QPT_RAW_PACKET) {
		memmove(at + ETHERNET, at, request->length);
		memset(at, 0xff, 6);
		memset(at + 6, 2, 6);
		at[12] = FRAME_TYPE >> 8;
		at[13] = FRAME_TYPE & 0xff;
		request->length += ETHERNET;
	}
	sge.length = request->length;
	request->is_under_way = true;
	error = is_xrc() ? xrc_send_post(&initiator, &wr, peer->srq_nums[pair]) : ibv_post_send(qps[pair], &wr, &bad);
	if (error)
		leave(LOST, "post a request: %s", strerror(error));
}

/* Posts what there is room for. */
static bool requests_post(void)
{
	unsigned int pair, slot;
	bool posted = false;

	for (pair = 0; pair < kind->pairs; pair++) {
		for (slot = 0; slot < WINDOW; slot++) {
			struct request *request = &requests[pair][slot];

			if (request->untaken && peer->taken[pair][slot] == request->untaken)
				request->untaken = 0;
			if (request->is_under_way || request->untaken)
				continue;
			request_post(pair, slot);
			posted = true;
		}
	}
	return posted;
}

static bool is_drained(void)
{
	unsigned int pair, slot;

	for (pair = 0; pair < kind->pairs; pair++)
		for (slot = 0; slot < WINDOW; slot++)
			if (requests[pair][slot].is_under_way)
				return false;
	return true;
}

static void request_completed(unsigned int index)
{
	unsigned int pair = index / WINDOW, slot = index % WINDOW;
	struct request *request = &requests[pair][slot];
	uint8_t *at = send_slot(pair, slot);
	uint64_t before;

	if (!request->is_under_way)
		leave(WRONG, "a request completes twice, or was never posted");
	request->is_under_way = false;
	if (request->opcode == IBV_WR_RDMA_READ && memcmp(at, peer_still + request->offset, request->length))
		leave(WRONG, "a READ of %u bytes at %u", request->length, request->offset);
	if (request->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		memcpy(&before, at, sizeof(before));
		if (before != request->number)
			leave(WRONG, "a FETCH AND ADD returns %llu instead of %u", (unsigned long long)before,
			      request->number);
	}
}

static unsigned int pair_of(const struct ibv_wc *wc)
{
	unsigned int pair;

	if (is_xrc() && wc->qp_num == target.qp.qp_num)
		return wc->wr_id / RECEIVES;
	for (pair = 0; pair < qp_count(); pair++)
		if (qps[pair]->qp_num == wc->qp_num)
			return pair;
	leave(WRONG, "a completion of the queue pair %u", wc->qp_num);
}

static void count_received(void)
{
	if (!own->received++)
		printf("moves\n");
}

static void received(const struct ibv_wc *wc)
{
	uint8_t *at = memory + RECEIVED + wc->wr_id * SLOT;
	unsigned int pair = pair_of(wc), slot;
	uint32_t number, length = wc->byte_len;

	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		slot = ntohl(wc->imm_data) % WINDOW;
		at = memory + WRITTEN + (pair * WINDOW + slot) * SLOT;
		number = message_check(at, length, pair, "WRITE");
		forget_pages(at);
		own->taken[pair][slot] = number;
	} else {
		if (kind->type == IBV_QPT_UD) {
			at += GRH;
			length -= GRH;
		}
		number = message_check(at, length, pair, "SEND");
		forget_pages(memory + RECEIVED + wc->wr_id * SLOT);
	}
	if (!number) {
		receive_post(wc->wr_id);
		return;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM && ntohl(wc->imm_data) >> SLOT_BITS != (number & UINT32_MAX >> SLOT_BITS))
		leave(WRONG, "message %u has the immediate %#x", number, ntohl(wc->imm_data));
	if (is_reliable() && number != ++arrived[pair])
		leave(WRONG, "message %u comes in the place of %u", number, arrived[pair]);
	count_received();
	receive_post(wc->wr_id);
}

static bool frames_take(void)
{
	static uint8_t frame[SLOT];
	bool taken = false;
	ssize_t length;

	while ((length = recv(frames, frame, sizeof(frame), 0)) > 0) {
		struct head head;

		/* If both devices are in one namespace, what this end sends arrives here, too. */
		memcpy(&head, frame + ETHERNET, sizeof(head));
		if (length >= (ssize_t)(ETHERNET + sizeof(head)) && head.source == source_of(self, 0))
			continue;
		if (message_check(frame + ETHERNET, length - ETHERNET, 0, "frame"))
			count_received();
		taken = true;
	}
	return taken;
}

/* What an end leaves with, if a request ends with an error. */
static enum status status_of_request(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return LOST;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
		return kind->paged ? REFUSED : WRONG;
	default:
		return WRONG;
	}
}

static bool completions_take(void)
{
	bool taken = frames >= 0 && frames_take();
	struct ibv_wc wcs[16];
	int count, i;

	while ((count = ibv_poll_cq(cq, 16, wcs)) > 0) {
		taken = true;
		for (i = 0; i < count; i++) {
			if (wcs[i].status != IBV_WC_SUCCESS)
				leave(status_of_request(wcs[i].status), "%s", ibv_wc_status_str(wcs[i].status));
			if (wcs[i].wr_id < PAIRS * RECEIVES)
				received(&wcs[i]);
			else
				request_completed(wcs[i].wr_id - PAIRS * RECEIVES);
		}
	}
	return taken;
}

static void event_take(void)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(device.context, &event))
		leave(LOST, "asynchronous event: %s", strerror(errno));
	ibv_ack_async_event(&event);
	if (event.event_type == IBV_EVENT_DEVICE_FATAL)
		leave(LOST, "the device goes");
}

/* Waits for a completion, but not for long: what the peer has taken, it says in shared memory only. */
static void completion_await(void)
{
	struct pollfd fds[3] = {
		{ .fd = channel->fd, .events = POLLIN },
		{ .fd = device.context->async_fd, .events = POLLIN },
		{ .fd = frames, .events = POLLIN },
	};
	struct ibv_cq *told;
	void *context;
	int error = ibv_req_notify_cq(cq, 0);

	if (error)
		leave(LOST, "ibv_req_notify_cq: %s", strerror(error));
	if (completions_take() || poll(fds, 3, STALE_MS) <= 0)
		return;
	if (fds[1].revents)
		event_take();
	if (!fds[0].revents)
		return;
	if (ibv_get_cq_event(channel, &told, &context))
		leave(LOST, "completion event: %s", strerror(errno));
	ibv_ack_cq_events(told, 1);
}

static int xrc_free(void)
{
	int error = xrc_qp_destroy(&initiator);
	unsigned int i;

	error = error ? error : xrc_qp_destroy(&target);
	for (i = 0; !error && i < PAIRS; i++)
		error = xrc_srq_destroy(&xrc_srqs[i]);
	return error ? error : xrc_domain_close(device.context, domain);
}

static void objects_free(void)
{
	unsigned int i;
	int error = 0;

	if (ah)
		error = ibv_destroy_ah(ah);
	for (i = 0; !error && i < qp_count(); i++)
		error = ibv_destroy_qp(qps[i]);
	if (is_xrc())
		error = xrc_free();
	if (!error && srq)
		error = ibv_destroy_srq(srq);
	if (!error)
		error = ibv_destroy_cq(cq);
	if (!error)
		error = ibv_destroy_comp_channel(channel);
	if (!error)
		error = ibv_dereg_mr(mr);
	/* Not device_close(), which would end with UNABLE. */
	if (!error)
		error = ibv_dealloc_pd(device.pd);
	if (!error)
		error = ibv_close_device(device.context);
	/* EIO: the device has gone. */
	if (error)
		leave(error == EIO ? LOST : WRONG, "destroy: %s", strerror(error));
}

static void end_run(void)
{
	uint64_t end_ms, drained_ms;
	bool moved;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* It stays there: what comes from the device's namespace is asked for in it. */
	namespace_enter(namespaces[self]);
	random_seed(seed * 2 + self + 1);
	objects_make();
	connect_pairs();
	end_ms = now_ms() + 1000ull * seconds;
	while (now_ms() < end_ms) {
		moved = completions_take();
		moved |= requests_post();
		if (!moved)
			completion_await();
		if (pause_us)
			usleep(pause_us);
	}
	drained_ms = now_ms() + patience_ms(DRAIN_MS);
	while (!own->is_drained || !peer->is_drained) {
		if (!completions_take())
			completion_await();
		if (is_drained())
			own->is_drained = true;
		/* Retries end, so each request completes, whatever becomes of the network and the peer. */
		if (now_ms() > drained_ms)
			leave(own->is_drained ? LOST : WRONG, "requests do not complete");
	}
	objects_free();
	_exit(OVER);
}

/* The worse of two statuses: what is wrong outweighs what was lost. */
static enum status status_of(int wait_status)
{
	if (WIFEXITED(wait_status))
		return WEXITSTATUS(wait_status);
	if (WTERMSIG(wait_status) == SIGKILL)
		return LOST;
	printf("%s: wrong: an end dies of signal %d\n", kind->name, WTERMSIG(wait_status));
	return WRONG;
}

/* Whether an end that has not been waited for dies of SIGKILL. */
static bool is_being_killed(pid_t pid)
{
	uint64_t end = now_ms() + patience_ms(KILL_MS);
	siginfo_t info = { 0 };

	while (!info.si_pid && now_ms() < end) {
		usleep(1000);
		if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT))
			return false;
	}
	return info.si_code == CLD_KILLED && info.si_status == SIGKILL;
}

int main(int argc, char **argv)
{
	bool is_killed[2] = { false, false };
	enum status status = OVER;
	struct news *news;
	pid_t pids[2], pid;
	int option, wait_status;
	size_t i;

	while ((option = getopt(argc, argv, "6t:s:p:m:")) != -1) {
		switch (option) {
		case '6':
			family = 6;
			break;
		case 't':
			seconds = strtoul(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			pause_us = strtoul(optarg, NULL, 0);
			break;
		case 'm':
			fewest = strtoul(optarg, NULL, 0);
			break;
		default:
			return UNABLE;
		}
	}
	if (argc - optind != 5)
		die("a kind, and a namespace and a device twice, are needed");
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].name, argv[optind]))
			kind = &kinds[i];
	if (!kind)
		die("there is no kind %s", argv[optind]);
	for (i = 0; i < 2; i++) {
		namespaces[i] = argv[optind + 1 + 2 * i];
		names[i] = argv[optind + 2 + 2 * i];
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	news = pages_make(2 * sizeof(*news), MAP_SHARED | MAP_ANONYMOUS);
	for (self = 0; self < 2; self++) {
		own = &news[self];
		peer = &news[!self];
		pids[self] = fork_child();
		if (!pids[self])
			end_run();
	}
	while ((pid = wait(&wait_status)) > 0) {
		enum status its = status_of(wait_status);
		unsigned int end = pid == pids[1];

		/* A process that is killed loses its memory before its queue pairs. */
		if (its == REFUSED && (is_killed[!end] || is_being_killed(pids[!end]))) {
			its = LOST;
		} else if (its == REFUSED) {
			printf("%s %s: wrong: a peer that lives refuses a request\n", kind->name, names[end]);
			its = WRONG;
		}
		is_killed[end] = WIFSIGNALED(wait_status);
		if (its == WRONG || status == OVER)
			status = its;
		/* Alone the other one would only wait. */
		if (its != OVER)
			kill(pids[!end], SIGKILL);
	}
	printf("moved %llu messages\n", (unsigned long long)(news[0].received + news[1].received));
	if (status == OVER && (news[0].received < fewest || news[1].received < fewest)) {
		printf("%s: too few of them: %llu and %llu\n", kind->name, (unsigned long long)news[0].received,
		       (unsigned long long)news[1].received);
		return TOO_FEW;
	}
	return status;
}
