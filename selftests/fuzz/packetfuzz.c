// SPDX-License-Identifier: GPL-2.0
/*
 * Sends packets to the RoCE port of a device that nobody should send: first some of
 * each class that the device counts, and looks at the counters; then floods it with
 * packets made of what could be, each with something odd about it. Half of them are for
 * queue pairs that exist. A bystander on the same device must not notice, and the
 * machine's memory must not go.
 *
 * packetfuzz [-n NAMESPACE] [-T] -i NETDEV -m MAC [-d DEVICE] DEVICE DEVICE
 *	-i	where the packets are sent from; in the network namespace -n
 *	-m	whom they are for
 *	-d	whose packets they are, if not the first device's
 *	-T	NETDEV is a tap under the device itself: then the module works at packets in
 *		the system call that writes them, which kcov sees, and the peer is imagined
 *
 * The invariant CRC is written from the specification, as in lib/icrc.py.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "bystander.h"
#include "coverage.h"
#include "fuzzer.h"
#include "namespace.h"
#include "packet.h"
#include "test.h"

#define ROCE_PORT 4791
#define REGION_SIZE (1 << 16)
#define QKEY 0x11223344
#define DEPTH 64
/* Of the victim. */
#define MTU 1024
/* Of each class, to see its counter. */
#define SAMPLES 64
#define COUNTER_MS 10000
#define FRAME_ROOM 9000
/* The victims are made ready again after so many packets: few stay so for long. */
#define EPOCH 100
#define WARM_UP_SECONDS 2
/* A machine that is slow gets more time, until it has done so much. */
#define FEWEST_FRAMES 2000
/* Fragments wait for others, and slabs have some air; a kernel with KASAN keeps what is freed. */
#define GROWTH_KIB (8 << 10)
#define GROWTH_DEBUG_KIB (192 << 10)

static uint32_t below(uint32_t limit)
{
	return (random_next() >> 32) % limit;
}

static bool one_in(uint32_t limit)
{
	return !below(limit);
}

/* --- Packets ----------------------------------------------------------------------------- */

/* Extension headers, by the low bits of the opcode: the same for all connected services. */
enum extension { RETH = 1, AETH = 2, ATOMIC = 4, ATOMIC_ACK = 8, IMMEDIATE = 16, IETH = 32,
		 DETH = 64, PAYLOAD = 128, FETH = 256 };

static const uint16_t extensions[32] = {
	[0x00] = PAYLOAD, [0x01] = PAYLOAD, [0x02] = PAYLOAD, [0x03] = IMMEDIATE | PAYLOAD,
	[0x04] = PAYLOAD, [0x05] = IMMEDIATE | PAYLOAD, [0x06] = RETH | PAYLOAD,
	[0x07] = PAYLOAD, [0x08] = PAYLOAD, [0x09] = IMMEDIATE | PAYLOAD,
	[0x0a] = RETH | PAYLOAD, [0x0b] = RETH | IMMEDIATE | PAYLOAD, [0x0c] = RETH,
	[0x0d] = AETH | PAYLOAD, [0x0e] = PAYLOAD, [0x0f] = AETH | PAYLOAD,
	[0x10] = AETH | PAYLOAD, [0x11] = AETH, [0x12] = AETH | ATOMIC_ACK, [0x13] = ATOMIC,
	[0x14] = ATOMIC, [0x16] = IETH | PAYLOAD, [0x17] = IETH | PAYLOAD, [0x1c] = FETH | RETH,
	[0x1d] = RETH | PAYLOAD,
};

/* What a packet says, before it is made odd. */
struct packet {
	uint8_t opcode;
	uint8_t flags;
	uint16_t pkey;
	uint32_t qpn;
	uint32_t psn;
	bool acknowledge;
	uint64_t va;
	uint32_t rkey;
	uint32_t dma_length;
	/* Of a FLUSH: selectivity level and placement type. */
	uint8_t flush;
	uint8_t syndrome;
	uint32_t msn;
	uint32_t qkey;
	uint32_t payload;
};

struct network {
	bool v6;
	uint8_t source[16], destination[16];
	uint16_t port;
};

static unsigned int extensions_of(uint8_t opcode)
{
	if (opcode >> 5 == 3)
		return DETH | extensions[opcode & 31];
	return extensions[opcode & 31];
}

/* From the BTH to the pad. */
static size_t packet_emit(const struct packet *packet, uint8_t *bytes)
{
	unsigned int has = extensions_of(packet->opcode);
	uint32_t payload = has & PAYLOAD ? packet->payload : 0, i;
	uint8_t *at = bytes;

	*at++ = packet->opcode;
	*at++ = packet->flags | (-payload & 3) << 4;
	at = put16(at, packet->pkey);
	at = put32(at, packet->qpn & 0xffffff);
	at = put32(at, (uint32_t)packet->acknowledge << 31 | (packet->psn & 0xffffff));
	if (packet->opcode == CNP) {
		memset(at, 0, 16);
		return at + 16 - bytes;
	}
	if (has & DETH) {
		at = put32(at, packet->qkey);
		at = put32(at, below(1 << 24));
	}
	if (has & FETH)
		at = put32(at, packet->flush);
	if (has & RETH) {
		at = put64(at, packet->va);
		at = put32(at, packet->rkey);
		at = put32(at, packet->dma_length);
	}
	if (has & ATOMIC) {
		at = put64(at, packet->va);
		at = put32(at, packet->rkey);
		at = put64(at, random_next());
		at = put64(at, below(2));
	}
	if (has & AETH)
		at = put32(at, (uint32_t)packet->syndrome << 24 | (packet->msn & 0xffffff));
	if (has & ATOMIC_ACK)
		at = put64(at, random_next());
	if (has & IMMEDIATE)
		at = put32(at, random_next());
	if (has & IETH)
		at = put32(at, packet->rkey);
	for (i = 0; i < payload; i++)
		at[i] = i;
	/*
	 * The MAD layer prints a line about each MAD of another version than 1, and thousands of lines push
	 * what must be judged out of the log. One that is for QP 0 it drops in silence.
	 */
	if (packet->qpn == 1 && payload && !one_in(64))
		at[0] = 1;
	at += payload;
	for (i = 0; i < (-payload & 3); i++)
		*at++ = 0;
	return at - bytes;
}

static uint32_t sum_add(uint32_t sum, const uint8_t *bytes, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		sum += i & 1 ? bytes[i] : bytes[i] << 8;
	return sum;
}

static uint16_t sum_end(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* --- Frames ------------------------------------------------------------------------------ */

/* What is odd about how a packet is wrapped. */
struct oddity {
	bool wrong_crc;
	/* Bytes that are cut off behind the ICRC, and that the lengths do not know of. */
	uint32_t cut;
	int udp_length_lie;
	int ip_length_lie;
	enum { CHECKSUM_ZERO, CHECKSUM_RIGHT, CHECKSUM_WRONG } checksum;
	bool options;
	bool wrong_ip_checksum;
	bool fragments;
	bool last_missing;
	bool overlapping;
	bool multicast;
	uint8_t traffic_class;
};

static struct {
	int file;
	bool tap;
	uint8_t own[ETH_ALEN], target[ETH_ALEN];
	uint64_t frames;
} line;

static void line_drain(void)
{
	static uint8_t nothing[FRAME_ROOM];

	while (line.tap && read(line.file, nothing, sizeof(nothing)) > 0)
		;
}

static void frame_send(const uint8_t *ip, size_t size, bool v6, bool multicast)
{
	static uint8_t frame[ETH_HLEN + 65536];
	size_t whole = ETH_HLEN + size;
	ssize_t sent;

	memcpy(frame, line.target, ETH_ALEN);
	if (multicast && v6)
		memcpy(frame, "\x33\x33\0\0\0\1", ETH_ALEN);
	else if (multicast)
		memcpy(frame, "\1\0\x5e\0\0\1", ETH_ALEN);
	memcpy(frame + ETH_ALEN, line.own, ETH_ALEN);
	put16(frame + 2 * ETH_ALEN, v6 ? ETH_P_IPV6 : ETH_P_IP);
	memcpy(frame + ETH_HLEN, ip, size);
	/* A flood meets full queues: what is lost there is lost. */
	sent = line.tap ? write(line.file, frame, whole) : send(line.file, frame, whole, 0);
	if (sent < 0 && errno != ENOBUFS && errno != EAGAIN && errno != EINVAL && errno != EIO &&
	    errno != EMSGSIZE)
		die("a frame of %zu bytes cannot be sent: %s", whole, strerror(errno));
	line.frames++;
	line_drain();
}

static void checksum_fill(const uint8_t *ip, bool v6, uint8_t *udp, size_t size,
			  const struct oddity *oddity)
{
	uint32_t sum = 17 + size;
	uint16_t end;

	put16(udp + 6, 0);
	if (oddity->checksum == CHECKSUM_ZERO)
		return;
	sum = v6 ? sum_add(sum, ip + 8, 32) : sum_add(sum, ip + 12, 8);
	end = sum_end(sum_add(sum, udp, size));
	if (oddity->checksum == CHECKSUM_WRONG)
		end ^= 1 + below(0xfffe);
	put16(udp + 6, end ? end : 0xffff);
}

static uint16_t datagram_number;

static void v4_send(const struct network *network, const uint8_t *udp, size_t size,
		    const struct oddity *oddity, size_t from, size_t to, uint16_t identification)
{
	size_t header = oddity->options ? 24 + 4 * below(9) : 20;
	static uint8_t ip[65536 + 64];
	bool more = to < size, part = more || from;

	memset(ip, 0, header);
	ip[0] = 0x40 | header / 4;
	ip[1] = oddity->traffic_class;
	put16(ip + 2, header + to - from + oddity->ip_length_lie);
	put16(ip + 4, identification);
	put16(ip + 6, part ? from / 8 | (uint16_t)more << 13 : 0x4000);
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, network->source + 12, 4);
	memcpy(ip + 16, network->destination + 12, 4);
	if (oddity->multicast)
		memcpy(ip + 16, "\xe0\0\0\1", 4);
	/* No-operation up to the end. */
	memset(ip + 20, 1, header - 20);
	put16(ip + 10, sum_end(sum_add(0, ip, header)) ^ oddity->wrong_ip_checksum);
	memcpy(ip + header, udp + from, to - from);
	frame_send(ip, header + to - from, false, oddity->multicast);
}

static void v6_send(const struct network *network, const uint8_t *udp, size_t size,
		    const struct oddity *oddity, size_t from, size_t to, uint16_t identification)
{
	static uint8_t ip[65536 + 64];
	bool part = to < size || from;
	uint8_t *at = ip + 40, *next = ip + 6;

	put32(ip, 0x60000000 | oddity->traffic_class << 20);
	ip[7] = 64;
	memcpy(ip + 8, network->source, 16);
	memcpy(ip + 24, network->destination, 16);
	if (oddity->multicast)
		memcpy(ip + 24, "\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	*next = 17;
	if (oddity->options) {
		/* Hop-by-hop or destination options: eight bytes of padding. */
		*next = one_in(2) ? 0 : 60;
		next = at;
		memcpy(at, "\x11\0\1\4\0\0\0\0", 8);
		at += 8;
	}
	if (part) {
		*next = 44;
		at[0] = 17;
		at[1] = 0;
		put16(at + 2, from | (to < size));
		put32(at + 4, identification);
		at += 8;
	}
	memcpy(at, udp + from, to - from);
	at += to - from;
	put16(ip + 4, at - ip - 40 + oddity->ip_length_lie);
	frame_send(ip, at - ip, true, oddity->multicast);
}

static void datagram_send(const struct network *network, const uint8_t *udp, size_t size,
			  const struct oddity *oddity)
{
	void (*send)(const struct network *, const uint8_t *, size_t, const struct oddity *, size_t,
		     size_t, uint16_t) = network->v6 ? v6_send : v4_send;
	uint16_t identification = ++datagram_number;
	size_t from = 0, to;

	if (!oddity->fragments) {
		send(network, udp, size, oddity, 0, size, identification);
		return;
	}
	while (from < size) {
		to = from + 8 * (1 + below(1 + size / 16));
		if (to >= size) {
			if (oddity->last_missing)
				return;
			to = size;
		}
		send(network, udp, size, oddity, from, to, identification);
		from = oddity->overlapping && to < size && to > 8 ? to - 8 : to;
	}
}

/* Wraps a packet without its ICRC, which is made here, and sends it. */
static void packet_send(const struct network *network, const uint8_t *packet, size_t size,
			const struct oddity *oddity)
{
	static uint8_t udp[8 + 65536];
	uint8_t ip[40] = { 0 };
	uint32_t crc;

	put16(udp, network->port);
	put16(udp + 2, ROCE_PORT);
	/* The ICRC covers the UDP length: it is computed over the value that is sent. */
	put16(udp + 4, 8 + size + CRC + oddity->udp_length_lie);
	memcpy(udp + 8, packet, size);
	/* The header as it is without oddities; a fragment's is put together again. */
	if (network->v6) {
		put32(ip, 0x60000000);
		put16(ip + 4, 8 + size + CRC);
		ip[6] = 17;
		memcpy(ip + 8, network->source, 16);
		memcpy(ip + 24, network->destination, 16);
	} else {
		ip[0] = 0x45;
		put16(ip + 2, 20 + 8 + size + CRC);
		put16(ip + 4, datagram_number + 1);
		put16(ip + 6, oddity->fragments ? 0 : 0x4000);
		ip[9] = 17;
		memcpy(ip + 12, network->source + 12, 4);
		memcpy(ip + 16, network->destination + 12, 4);
	}
	crc = icrc(ip, network->v6, udp, packet, size);
	if (oddity->wrong_crc)
		crc ^= 1 + below(0xfffffffe);
	/* Least significant byte first, other than all else. */
	put_icrc(udp + 8 + size, crc);
	size += 8 + CRC - (oddity->cut > size + CRC ? size + CRC : oddity->cut);
	put16(udp + 4, size + oddity->udp_length_lie);
	checksum_fill(ip, network->v6, udp, size, oddity);
	datagram_send(network, udp, size, oddity);
}

/* --- Victims ------------------------------------------------------------------------------- */

static struct device target, peer;
static bool peer_imagined;
static struct network networks[2];
static struct bystander bystander;

static struct {
	uint8_t *memory;
	struct ibv_mr *mr, *peer_mr;
	struct ibv_cq *cq, *peer_cq;
	struct ibv_qp *rc, *peer_rc, *ud;
	/* Of one that has been destroyed. */
	uint32_t gone;
	/* Of the next request, and of the oldest that waits for a response. */
	uint32_t psn, response_psn;
	/* The message that the requests are in the middle of, by its first packet. */
	uint8_t within;
} victim;

static struct ibv_mr *victims_mr(struct device *device)
{
	return mr_make(device->pd, victim.memory, REGION_SIZE,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL);
}

/* Completions of the victims: how far the packets came. */
static uint64_t successes, errors;

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wcs[16];
	int found, i;

	while (cq && (found = ibv_poll_cq(cq, 16, wcs)) > 0) {
		for (i = 0; i < found; i++) {
			if (wcs[i].status == IBV_WC_SUCCESS)
				successes++;
			else if (wcs[i].status != IBV_WC_WR_FLUSH_ERR)
				errors++;
		}
	}
}

static void receives_fill(struct ibv_qp *qp)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)victim.memory,
		.length = REGION_SIZE,
		.lkey = victim.mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	unsigned int i;

	/* Until it is full; some have no room for what comes. */
	for (i = 0; i < DEPTH; i++) {
		sge.length = one_in(16) ? below(64) : REGION_SIZE;
		if (ibv_post_recv(qp, &wr, &bad))
			break;
	}
}

static void sends_post(struct ibv_qp *qp, struct ibv_mr *local, struct ibv_mr *remote)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sge = { .addr = (uintptr_t)victim.memory, .lkey = local->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	unsigned int i;

	for (i = 0; i < 1 + below(4); i++) {
		wr.opcode = opcodes[below(ARRAY_SIZE(opcodes))];
		sge.length = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : below(6000);
		wr.wr.rdma.remote_addr = (uintptr_t)victim.memory;
		wr.wr.rdma.rkey = remote->rkey;
		if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = (uintptr_t)victim.memory;
			wr.wr.atomic.rkey = remote->rkey;
		}
		wr.send_flags = one_in(2) ? IBV_SEND_SIGNALED : 0;
		if (ibv_post_send(qp, &wr, &bad))
			break;
	}
}

/* Connected with whoever sends from that address. Packets may put it in error at any moment. */
static void rc_ready(struct device *device, struct ibv_qp *qp, uint32_t other,
		     const union ibv_gid *gid, uint32_t rq_psn, uint32_t sq_psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RESET,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other,
		.rq_psn = rq_psn,
		.sq_psn = sq_psn,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1 + below(12),
		.timeout = 12,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = *gid,
				.sgid_index = device->gid_index,
				.hop_limit = 64,
			},
		},
	};
	int error;

	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (error)
		die("to RESET: %s", strerror(error));
	error = qp_init(qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL, 0);
	if (error)
		die("RESET to INIT: %s", strerror(error));
	attr.qp_state = IBV_QPS_RTR;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER);
	if (error)
		die("INIT to RTR: %s", strerror(error));
	attr.qp_state = IBV_QPS_RTS;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	/* In error already. */
	if (error && error != EINVAL)
		die("RTR to RTS: %s", strerror(error));
}

static void gid_of(const struct network *network, union ibv_gid *gid)
{
	memcpy(gid->raw, network->source, 16);
	if (!network->v6) {
		memset(gid->raw, 0, 10);
		memset(gid->raw + 10, 0xff, 2);
	}
}

static void victims_revive(bool busy)
{
	uint32_t psn = below(4) ? 0xfffff8 : below(1 << 24), back = below(1 << 24);
	union ibv_gid gid;

	gid_of(&networks[0], &gid);
	drain(victim.cq);
	drain(victim.peer_cq);
	victim.psn = psn;
	victim.response_psn = back;
	victim.within = RC_NONE;
	rc_ready(&target, victim.rc, victim.peer_rc ? victim.peer_rc->qp_num : below(1 << 24), &gid,
		 psn, back);
	receives_fill(victim.rc);
	receives_fill(victim.ud);
	if (victim.peer_rc) {
		rc_ready(&peer, victim.peer_rc, victim.rc->qp_num, &target.gid, back, psn);
		if (busy)
			sends_post(victim.peer_rc, victim.peer_mr, victim.mr);
	}
	if (busy)
		sends_post(victim.rc, victim.mr, victim.peer_mr ? victim.peer_mr : victim.mr);
}

static struct ibv_qp *victim_qp(struct device *device, enum ibv_qp_type type, struct ibv_cq *cq)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };

	return qp_make(device, type, cq, cq, depth, NULL);
}

static void victims_make(void)
{
	struct ibv_qp *gone;

	victim.memory = pages_make(REGION_SIZE, MAP_SHARED | MAP_ANONYMOUS);
	victim.mr = victims_mr(&target);
	victim.cq = cq_make(&target, 4 * DEPTH);
	victim.rc = victim_qp(&target, IBV_QPT_RC, victim.cq);
	victim.ud = victim_qp(&target, IBV_QPT_UD, victim.cq);
	if (qp_init(victim.ud, 0, QKEY))
		die("UD: RESET to INIT");
	qp_ready_ud(victim.ud);
	if (!peer_imagined) {
		victim.peer_mr = victims_mr(&peer);
		victim.peer_cq = cq_make(&peer, 4 * DEPTH);
		victim.peer_rc = victim_qp(&peer, IBV_QPT_RC, victim.peer_cq);
	}
	gone = victim_qp(&target, IBV_QPT_RC, victim.cq);
	victim.gone = gone->qp_num;
	qp_free(gone);
}

static void victims_end(void)
{
	if (ibv_destroy_qp(victim.rc) || ibv_destroy_qp(victim.ud) || ibv_destroy_cq(victim.cq) ||
	    ibv_dereg_mr(victim.mr))
		die("a victim cannot be destroyed: %s", strerror(errno));
	if (!peer_imagined && (ibv_destroy_qp(victim.peer_rc) || ibv_destroy_cq(victim.peer_cq) ||
			       ibv_dereg_mr(victim.peer_mr)))
		die("a victim's peer cannot be destroyed: %s", strerror(errno));
}

/* --- Counters and memory -------------------------------------------------------------------- */

static uint64_t counter(const char *name)
{
	return device_counter(&target, name);
}

/* KiB that are in use, without what could be given back at once. */
static long memory_used(void)
{
	FILE *from = fopen("/proc/meminfo", "r");
	char line_of_it[128], name[64];
	long used = 0, value;

	if (!from)
		die("/proc/meminfo: %s", strerror(errno));
	while (fgets(line_of_it, sizeof(line_of_it), from)) {
		if (sscanf(line_of_it, "%63[^:]: %ld", name, &value) != 2)
			continue;
		if (!strcmp(name, "MemTotal"))
			used += value;
		else if (!strcmp(name, "MemFree") || !strcmp(name, "Buffers") ||
			 !strcmp(name, "Cached") || !strcmp(name, "SReclaimable"))
			used -= value;
	}
	fclose(from);
	return used;
}

/* --- One class after the other ---------------------------------------------------------------- */

static struct packet packet_plain(uint8_t opcode, uint32_t qpn)
{
	return (struct packet){
		.opcode = opcode,
		.pkey = 0xffff,
		.qpn = qpn,
		.psn = victim.psn,
		.va = (uintptr_t)victim.memory,
		.rkey = victim.mr->rkey,
		.dma_length = 64,
		.flush = IBV_FLUSH_GLOBAL,
		.qkey = QKEY,
		.payload = 64,
	};
}

static void sample_send(const struct packet *packet, const struct oddity *oddity, bool v6)
{
	uint8_t bytes[256];
	struct network network = networks[v6];

	packet_send(&network, bytes, packet_emit(packet, bytes), oddity);
}

static void sample_short(unsigned int i)
{
	struct packet packet = packet_plain(RC_READ_REQUEST, victim.rc->qp_num);

	/* Too short for its headers; also for a BTH. */
	sample_send(&packet, &(struct oddity){ .cut = 4 + i % 28 }, i & 1);
}

static void sample_udp_length(unsigned int i)
{
	struct packet packet = packet_plain(RC_WRITE_ONLY, victim.rc->qp_num);

	/*
	 * The stack trims the datagram to its UDP length, and with it the ICRC, which is right: without that the packet
	 * would be accepted.
	 */
	sample_send(&packet, &(struct oddity){ .udp_length_lie = -4 }, i & 1);
}

static void sample_version(unsigned int i)
{
	struct packet packet = packet_plain(RC_SEND_ONLY, victim.rc->qp_num);

	packet.flags = 1 + i % 15;
	sample_send(&packet, &(struct oddity){ 0 }, i & 1);
}

static void sample_opcode(unsigned int i)
{
	/* Of no service, of RD, and none of XRC. */
	static const uint8_t none[] = { 0x18, 0x1f, 0x2c, 0x40, 0x55, 0x66, 0x80, 0x82, 0xb5, 0xb8, 0xff };
	struct packet packet = packet_plain(none[i % sizeof(none)], victim.rc->qp_num);

	sample_send(&packet, &(struct oddity){ 0 }, i & 1);
}

static void sample_crc(unsigned int i)
{
	struct packet packet = packet_plain(RC_SEND_ONLY, victim.rc->qp_num);

	sample_send(&packet, &(struct oddity){ .wrong_crc = true }, i & 1);
}

static void sample_nobody(unsigned int i)
{
	uint32_t numbers[] = { victim.gone, 0, 0xffffff, victim.ud->qp_num };
	struct packet packet = packet_plain(RC_SEND_ONLY, numbers[i % 4]);

	sample_send(&packet, &(struct oddity){ 0 }, i & 1);
}

static void sample_stranger(unsigned int i)
{
	struct packet packet = packet_plain(RC_SEND_ONLY, victim.rc->qp_num);
	struct network network = networks[0];
	uint8_t bytes[256];

	network.source[15] = 100 + i % 100;
	packet_send(&network, bytes, packet_emit(&packet, bytes), &(struct oddity){ 0 });
}

static void sample_cnp(unsigned int i)
{
	struct packet packet = packet_plain(CNP, victim.rc->qp_num);

	sample_send(&packet, &(struct oddity){ 0 }, i & 1);
}

static void sample_pkey(unsigned int i)
{
	struct packet packet = packet_plain(i & 2 ? RC_SEND_ONLY : UD_SEND_ONLY,
					    i & 2 ? victim.rc->qp_num : victim.ud->qp_num);

	packet.pkey = 0x1234;
	sample_send(&packet, &(struct oddity){ 0 }, !(i & 2) && i & 1);
}

static void sample_qkey(unsigned int i)
{
	struct packet packet = packet_plain(UD_SEND_ONLY, i & 2 ? 1 : victim.ud->qp_num);

	packet.qkey = QKEY + 1;
	sample_send(&packet, &(struct oddity){ 0 }, i & 1);
}

static void sample_gap(unsigned int i)
{
	struct packet packet = packet_plain(RC_SEND_ONLY, victim.rc->qp_num);

	packet.psn = victim.psn + 5 + i;
	sample_send(&packet, &(struct oddity){ 0 }, false);
}

static void sample_duplicate(unsigned int i)
{
	struct packet packet = packet_plain(RC_SEND_ONLY, victim.rc->qp_num);

	packet.psn = victim.psn - 1 - i;
	sample_send(&packet, &(struct oddity){ 0 }, false);
}

static void sample_ghost(unsigned int i)
{
	static const uint8_t answers[] = { RC_ACKNOWLEDGE, RC_ATOMIC_ACKNOWLEDGE,
					   RC_READ_RESPONSE_ONLY, RC_READ_RESPONSE_MIDDLE };
	struct packet packet = packet_plain(answers[i % 4], victim.rc->qp_num);

	packet.psn = victim.response_psn + 1000 + i;
	sample_send(&packet, &(struct oddity){ 0 }, false);
}

static void sample_too_long(unsigned int i)
{
	/* There are only so many receives: all before it are used up. */
	struct packet packet = packet_plain(UD_SEND_ONLY, victim.ud->qp_num);

	sample_send(&packet, &(struct oddity){ 0 }, i & 1);
}

static const struct {
	const char *name;
	const char *counter;
	void (*send)(unsigned int number);
	/* The bystander's packets, if they are late, count there too. */
	bool shared;
} classes[] = {
	{ "too short", "malformed_pkts", sample_short, false },
	{ "a UDP length that is four bytes short", "icrc_err", sample_udp_length, false },
	{ "another version", "malformed_pkts", sample_version, false },
	{ "opcodes that there are not", "malformed_pkts", sample_opcode, false },
	{ "wrong ICRC", "icrc_err", sample_crc, false },
	{ "for nobody", "unknown_qp", sample_nobody, false },
	{ "not from the peer", "unknown_qp", sample_stranger, false },
	{ "congestion notifications", "rcvd_cnp", sample_cnp, false },
	{ "wrong partition", "bad_pkey", sample_pkey, false },
	{ "wrong queue key", "bad_qkey", sample_qkey, false },
	{ "behind a gap", "out_of_seq_request", sample_gap, true },
	{ "duplicates", "duplicate_request", sample_duplicate, true },
	{ "responses nobody asked for", "stale_response", sample_ghost, true },
	{ "no receive", "no_receive", sample_too_long, false },
};

/* How many packets of a class the port has counted. */
static uint32_t of_port(int which)
{
	struct ibv_port_attr attr;

	if (ibv_query_port(target.context, PORT, &attr))
		die("ibv_query_port fails");
	return classes[which].send == sample_pkey ? attr.bad_pkey_cntr : attr.qkey_viol_cntr;
}

static bool class_run(int which)
{
	bool is_of_port = classes[which].send == sample_pkey || classes[which].send == sample_qkey;
	uint32_t port_before = of_port(which), port;
	uint64_t before, after, end;
	unsigned int i;

	victims_revive(false);
	/* The last one is about receives that are missing. */
	if (classes[which].send == sample_too_long) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

		if (ibv_modify_qp(victim.ud, &attr, IBV_QP_STATE) || qp_init(victim.ud, 0, QKEY))
			die("UD: to INIT");
		qp_ready_ud(victim.ud);
	}
	usleep(100000);
	before = counter(classes[which].counter);
	for (i = 0; i < SAMPLES; i++)
		classes[which].send(i);
	end = now_ms() + COUNTER_MS;
	do {
		usleep(50000);
		after = counter(classes[which].counter);
	} while (after - before < SAMPLES && now_ms() < end);
	/* Whatever comes on top. */
	usleep(50000);
	after = counter(classes[which].counter) - before;
	if (after < SAMPLES || (after > SAMPLES && !classes[which].shared)) {
		ksft_print_msg("%u packets raise %s by %" PRIu64 "\n", SAMPLES,
			       classes[which].counter, after);
		return false;
	}
	port = of_port(which) - port_before;
	if (port != (is_of_port ? SAMPLES : 0)) {
		ksft_print_msg("%u packets raise the port's counter by %u\n", SAMPLES, port);
		return false;
	}
	return true;
}

/* --- The flood --------------------------------------------------------------------------------- */

static uint32_t number_choose(void)
{
	uint32_t number;

	switch (below(16)) {
	case 0 ... 7:
		return victim.rc->qp_num;
	case 8 ... 9:
		return victim.ud->qp_num;
	case 10 ... 11:
		return 1;
	case 12:
		return 0;
	case 13:
		return victim.gone;
	case 14:
		return victim.peer_rc ? victim.peer_rc->qp_num : 2;
	default:
		/* Anybody but the bystander. */
		do {
			number = below(1 << 24);
		} while (number == bystander.news->qp_nums[0] ||
			 number == bystander.news->qp_nums[1]);
		return number;
	}
}

/* All that there could be in turn, or one that suits the queue pair. */
static uint8_t opcode_choose(uint32_t number)
{
	static uint8_t next;
	uint8_t opcode;

	if (one_in(6))
		return next++;
	if (one_in(60))
		return CNP;
	if (number == 1 || number == victim.ud->qp_num)
		return one_in(2) ? UD_SEND_ONLY : UD_SEND_ONLY_IMM;
	do {
		opcode = below(ARRAY_SIZE(extensions));
	} while (!extensions[opcode]);
	return opcode;
}

static uint32_t length_choose(void)
{
	static const uint16_t lengths[] = { 0, 1, 2, 3, 4, 7, 8, 9, 40, 64, 255, 256, 257, 1023, 1024,
					    1025, 1024, 1024, 4096, 4100 };

	return one_in(8) ? below(4200) : lengths[below(ARRAY_SIZE(lengths))];
}

static uint32_t odd_number(uint32_t usual)
{
	switch (below(10)) {
	case 0:
		return random_next();
	case 1:
		return 0x80000000 - 1 + below(3);
	case 2:
		return -below(3);
	case 3:
		return usual + below(5) - 2;
	default:
		return usual;
	}
}

/* The request that comes next on a connection that is as it should be. */
static void packet_follow(struct packet *packet)
{
	static const uint8_t whole[] = { RC_SEND_ONLY, RC_SEND_ONLY_IMM, RC_WRITE_ONLY,
					 RC_WRITE_ONLY_IMM, RC_READ_REQUEST, RC_READ_REQUEST,
					 RC_COMPARE_SWAP, RC_FETCH_ADD, RC_FLUSH,
					 RC_ATOMIC_WRITE, RC_SEND_FIRST, RC_WRITE_FIRST };

	*packet = packet_plain(whole[below(ARRAY_SIZE(whole))], victim.rc->qp_num);
	if (victim.within == RC_SEND_FIRST)
		packet->opcode = one_in(2) ? RC_SEND_LAST : RC_SEND_LAST_IMM;
	else if (victim.within == RC_WRITE_FIRST)
		packet->opcode = one_in(2) ? RC_WRITE_LAST : RC_WRITE_LAST_IMM;
	packet->acknowledge = one_in(2);
	packet->flags = one_in(4) << 7 | 1 << 6;
	packet->payload = below(MTU) + 1;
	packet->dma_length = packet->payload;
	packet->va += 8 * below(REGION_SIZE / 16);
	if (packet->opcode == RC_READ_REQUEST)
		packet->dma_length = below(4 * MTU);
	if (packet->opcode == RC_FLUSH)
		packet->flush |= below(2) << 4;
	if (packet->opcode == RC_ATOMIC_WRITE) {
		packet->payload = 8;
		packet->dma_length = 8;
	}
	if (packet->opcode == RC_SEND_FIRST || packet->opcode == RC_WRITE_FIRST ||
	    victim.within != RC_NONE) {
		packet->payload = MTU;
		packet->dma_length = 2 * MTU;
	}
}

/* It was sent as it should be, so the victim is further than before. */
static void packet_followed(const struct packet *packet)
{
	victim.within = RC_NONE;
	if (packet->opcode == RC_SEND_FIRST || packet->opcode == RC_WRITE_FIRST)
		victim.within = packet->opcode;
	if (packet->opcode == RC_READ_REQUEST && packet->dma_length)
		victim.psn += (packet->dma_length - 1) / MTU;
	victim.psn++;
}

static void packet_choose(struct packet *packet)
{
	uint32_t number = number_choose();

	*packet = packet_plain(opcode_choose(number), number);
	packet->payload = length_choose();
	packet->dma_length = one_in(2) ? packet->payload : odd_number(below(8) * MTU);
	packet->flush = one_in(2) ? random_next() & 0x3f : packet->flush;
	packet->acknowledge = one_in(2);
	packet->flags = one_in(32) ? random_next() : (uint8_t)(one_in(4) << 7 | 1 << 6);
	packet->syndrome = one_in(2) ? random_next() & 31 : random_next();
	packet->msn = one_in(2) ? below(8) : random_next();
	packet->va += below(REGION_SIZE);
	if (one_in(16))
		packet->va = random_next() << below(64);
	if (one_in(16))
		packet->rkey ^= 1u << below(32);
	if (one_in(32))
		packet->pkey = random_next();
	if (number == 1 && !one_in(8))
		packet->qkey = 0x80010000;
	else if (one_in(32))
		packet->qkey = random_next();
	if (packet->opcode >= RC_READ_RESPONSE_FIRST && packet->opcode <= RC_ATOMIC_ACKNOWLEDGE)
		packet->psn = victim.response_psn + below(12);
	/* What does not come in its turn is lost on a connection, so mostly it is late or early. */
	else if (number == victim.rc->qp_num && !one_in(8))
		packet->psn += one_in(2) ? 1 + below(8) : -1 - below(8);
	if (one_in(12))
		packet->psn = random_next();
}

static void oddity_choose(struct oddity *oddity)
{
	memset(oddity, 0, sizeof(*oddity));
	/* Zero, as RoCE has it, or right: both are to be taken. */
	oddity->checksum = one_in(8) ? CHECKSUM_RIGHT : CHECKSUM_ZERO;
	oddity->traffic_class = below(256);
	/* A third of the packets has one, and seldom there are two. */
	do {
		switch (below(30)) {
		case 0 ... 1:
			oddity->wrong_crc = true;
			break;
		case 2:
			oddity->cut = below(80);
			break;
		case 3:
			oddity->udp_length_lie = (int)below(64) - 32;
			break;
		case 4:
			oddity->ip_length_lie = (int)below(64) - 32;
			break;
		case 5:
			oddity->checksum = CHECKSUM_WRONG;
			break;
		case 6:
			oddity->options = true;
			break;
		case 7:
			oddity->wrong_ip_checksum = true;
			break;
		case 8 ... 9:
			oddity->fragments = true;
			oddity->last_missing = one_in(4);
			oddity->overlapping = one_in(8);
			break;
		case 10:
			oddity->multicast = true;
			break;
		default:
			break;
		}
	} while (one_in(8));
}

/* Cuts and changes bytes, with an ICRC that is right all the same. */
static size_t bytes_spoil(uint8_t *bytes, size_t size)
{
	size_t i;

	/* Cut at any byte, with lengths that say so. */
	if (one_in(12))
		size = below(size + 1);
	else if (one_in(16))
		size += below(8);
	if (one_in(12))
		for (i = 0; i < 1 + below(4) && size; i++)
			bytes[below(size < 64 ? size : 64)] = random_next();
	/* A pad that is none. */
	if (one_in(24) && size > 1)
		bytes[1] = (bytes[1] & ~0x30) | below(4) << 4;
	return size;
}

static bool for_bystander(const uint8_t *bytes, size_t size)
{
	uint32_t number;

	if (size < 8)
		return false;
	number = bytes[5] << 16 | bytes[6] << 8 | bytes[7];
	return number == bystander.news->qp_nums[0] || number == bystander.news->qp_nums[1];
}

static void flood_one(void)
{
	static uint8_t bytes[FRAME_ROOM];
	/* The victim is connected over IPv4. */
	struct network network = networks[one_in(5)];
	struct oddity oddity = { 0 };
	struct packet packet;
	size_t size;

	if (one_in(3)) {
		packet_follow(&packet);
		size = packet_emit(&packet, bytes);
		packet_send(&networks[0], bytes, size, &oddity);
		packet_followed(&packet);
		return;
	}
	packet_choose(&packet);
	oddity_choose(&oddity);
	if (one_in(8))
		network.port = random_next();
	if (one_in(16))
		network.source[15] = random_next();
	size = bytes_spoil(bytes, packet_emit(&packet, bytes));
	/* Whatever the bytes are by now. */
	if (!for_bystander(bytes, size))
		packet_send(&network, bytes, size, &oddity);
}

static void flood(unsigned int seconds, uint64_t fewest, long *most)
{
	uint64_t end = now_ms() + seconds * 1000, frames = line.frames;
	unsigned int i;
	long used;

	while (fuzzer_goes_on(end, line.frames - frames >= fewest && (!fewest || bystander_has_moved(&bystander)))) {
		victims_revive(one_in(2));
		for (i = 0; i < EPOCH; i++) {
			flood_one();
			coverage_collect();
		}
		used = memory_used();
		if (most && used > *most)
			*most = used;
	}
}

static const char *const raised[] = {
	"malformed_pkts", "icrc_err", "unknown_qp", "bad_pkey", "bad_qkey", "rcvd_cnp",
	"out_of_seq_request", "duplicate_request", "stale_response", "no_receive", "sent_nak",
};

/* The device's own count of what it dropped, by class: each must have gone up. */
static bool counters_rose(const uint64_t *before)
{
	bool ok = true;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(raised); i++) {
		uint64_t rise = counter(raised[i]) - before[i];

		ksft_print_msg("%s +%" PRIu64 "\n", raised[i], rise);
		ok = ok && rise;
	}
	return ok;
}

static bool memory_back(long before, long most, bool checkers)
{
	long bound = checkers ? GROWTH_DEBUG_KIB : GROWTH_KIB, after = memory_used();
	unsigned int i;

	/* What is freed after a grace period takes a moment. */
	for (i = 0; i < 30 && after - before > bound / 4; i++) {
		usleep(200000);
		after = memory_used();
	}
	ksft_print_msg("memory: %ld KiB more at the most, %ld KiB more at the end\n", most - before,
		       after - before);
	return most - before < 2 * bound && after - before < bound;
}

/* --- Start ----------------------------------------------------------------------------------- */

static void line_open(const char *netdev, const char *space)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };
	struct ifreq request = { 0 };

	if (space)
		close(namespace_enter(space));
	strncpy(request.ifr_name, netdev, IFNAMSIZ - 1);
	if (line.tap) {
		request.ifr_flags = IFF_TAP | IFF_NO_PI;
		line.file = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
		if (line.file < 0 || ioctl(line.file, TUNSETIFF, &request))
			die("%s: %s", netdev, strerror(errno));
		/* The other end of a tap is nobody that has an address. */
		memcpy(line.own, "\2\0\0\0\0\2", ETH_ALEN);
		return;
	}
	line.file = socket(AF_PACKET, SOCK_RAW, 0);
	if (line.file < 0 || ioctl(line.file, SIOCGIFHWADDR, &request))
		die("%s: %s", netdev, strerror(errno));
	memcpy(line.own, request.ifr_hwaddr.sa_data, ETH_ALEN);
	if (ioctl(line.file, SIOCGIFINDEX, &request))
		die("%s: %s", netdev, strerror(errno));
	address.sll_ifindex = request.ifr_ifindex;
	if (bind(line.file, (struct sockaddr *)&address, sizeof(address)))
		die("%s: bind: %s", netdev, strerror(errno));
}

/* The port comes up a moment after the netdev. */
static void port_wait(const char *name)
{
	char path[128], state[32] = "";
	unsigned int i;
	FILE *from;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/state", name);
	for (i = 0; i < 100 && !strstr(state, "ACTIVE"); i++) {
		from = fopen(path, "r");
		if (!from || !fgets(state, sizeof(state), from))
			die("%s: %s", path, strerror(errno));
		fclose(from);
		usleep(50000);
	}
}

/* The addresses of both ends: the last byte of an imagined peer's is 2 where the other's is 1. */
static void networks_find(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct device to, from;

		networks[i].v6 = i;
		networks[i].port = 0xc000 + below(0x4000);
		device_open(&to, target.name, i ? 6 : 4);
		memcpy(networks[i].destination, to.gid.raw, 16);
		device_close(&to);
		memcpy(networks[i].source, networks[i].destination, 16);
		networks[i].source[15] ^= 3;
		if (peer_imagined)
			continue;
		device_open(&from, peer.name, i ? 6 : 4);
		memcpy(networks[i].source, from.gid.raw, 16);
		device_close(&from);
	}
}

static const char *netdev, *space, *attacked;
static bool bystander_stops;
static uint64_t before[ARRAY_SIZE(raised)], frames;
static long used, most;

static bool run_flood(void)
{
	unsigned int i;

	flood(WARM_UP_SECONDS, 0, NULL);
	successes = 0;
	errors = 0;
	for (i = 0; i < ARRAY_SIZE(raised); i++)
		before[i] = counter(raised[i]);
	used = memory_used();
	frames = line.frames;
	flood(fuzzer.seconds, FEWEST_FRAMES, &most);
	frames = line.frames - frames;
	ksft_print_msg("executions %" PRIu64 "\n", frames);
	ksft_print_msg("%" PRIu64 " completions of success, %" PRIu64 " with an error\n", successes,
		       errors);
	return frames >= FEWEST_FRAMES && successes && errors;
}

static bool run_counters(void)
{
	return counters_rose(before);
}

static bool run_memory(void)
{
	return memory_back(used, most, !access("/sys/kernel/debug/kmemleak", F_OK));
}

static bool run_others(void)
{
	bystander_stops = true;
	return bystander_stop(&bystander);
}

/* About the flood. */
static const struct row rows[] = {
	{ "packets: a flood", run_flood },
	{ "packets: the counters show each class", run_counters },
	{ "packets: the memory is there", run_memory },
	{ "packets: others notice nothing", run_others },
};

static void add(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(classes); i++)
		row_add((struct row){
			row_name("packets: counted: %s", classes[i].name), .run_with = class_run, i,
		});
	for (i = 0; i < ARRAY_SIZE(rows) && !rows_are_chosen(); i++)
		row_add(rows[i]);
}

static bool take_option(int option, const char *argument)
{
	switch (option) {
	case 'n': space = argument; break;
	case 'i': netdev = argument; break;
	case 'd': attacked = argument; break;
	case 'T':
		line.tap = true;
		peer_imagined = true;
		break;
	case 'm':
		return ether_aton_r(argument, (struct ether_addr *)line.target);
	}
	return true;
}

static void begin(char **names)
{
	if (!netdev)
		die("a netdev is needed");
	fuzzer_begin();
	bystander_start(&bystander, names[0], names[1], seed);
	random_seed(seed);
	line_open(netdev, space);
	target.name = attacked ? attacked : names[0];
	port_wait(target.name);
	device_open(&target, target.name, 4);
	if (!peer_imagined)
		device_open(&peer, names[1], 4);
	networks_find();
	victims_make();
	coverage_start();
}

static void end(void)
{
	if (!bystander_stops)
		bystander_stop(&bystander);
	victims_end();
	if (!peer_imagined)
		device_close(&peer);
	device_close(&target);
	fuzzer_end();
}

const struct test test = {
	.options = "n:Ti:m:d:", .option = take_option, .add = add, .begin = begin, .end = end,
};
