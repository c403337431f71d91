// SPDX-License-Identifier: GPL-2.0
/*
 * Long messages between two devices with tunnels between them, over RC, UC and UD: each byte of what arrives is right.
 * RC must bring all. UC and UD may lose messages, as tunnels drop and reorder packets: they go on until enough have
 * arrived.
 *
 * tunnels [-4|-6] [-m MTU] DEVICE DEVICE
 *	-m	the path MTU (1024)
 */

#include <arpa/inet.h>

#include "exchange.h"
#include "test.h"

#define MESSAGE 65536
#define SIDE_SIZE (24 * MESSAGE)
/* Places in the sink that WRITEs go to in turn. */
#define SLOTS 16
#define QKEY 0x11223344
/* How many messages of UC must arrive, and how many of UD. */
#define UC_MESSAGES 8
#define UD_MESSAGES 64
/* How many of them are sent at once, and how long nothing arrives before the next are. */
#define UC_AT_ONCE 2
#define UD_AT_ONCE 32
#define PAUSE_MS 200
#define SECONDS 20

static enum ibv_mtu mtu = IBV_MTU_1024;

/* The first packet of a WRITE is longer than the others: a super-packet must not be cut up by its length. */
static const enum ibv_wr_opcode uc_opcodes[] = { IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM };

static const struct depth depth = { .send = MAX_MESSAGES, .receive = MAX_MESSAGES, .sges = MAX_SEGMENTS };

/*
 * A long message of each kind, first one way, then the other one, then both at once. An acknowledgement may take half a
 * second: the debug kernel takes some 3 ms to encrypt a packet, and a hundred wait in the tunnel.
 */
static bool run_rc(void)
{
	static struct way ways[2];
	struct ibv_qp *qps[2];
	unsigned int i, j, round;
	bool ok = true;

	qps_make(qps, IBV_QPT_RC, depth, mtu, VERY_PATIENT);
	ways_between(ways, &sides[0], qps[0], &sides[1], qps[1]);
	for (i = 0; i < 2; i++) {
		region_fill(&sides[i].source);
		region_fill(&sides[i].sink);
	}
	for (round = 1; ok && round <= 3; round++) {
		ways_start(ways, 2);
		for (i = 0; i < 2; i++) {
			for (j = 0; (round & 1 << i) && j < OPCODES; j++) {
				if (!message_add(&ways[i], opcodes[j],
						 j ? MESSAGE : MESSAGE - 3, 1))
					die("no room for another message");
			}
		}
		ok = exchange(ways, 2, SECONDS);
	}
	qps_free(qps);
	return side_check(&sides[0]) & side_check(&sides[1]) & ok;
}

static void post_receive(struct ibv_qp *qp, unsigned int slot, uint32_t length)
{
	struct ibv_sge sge = region_sge(&sides[1].sink, (size_t)slot * length, length);
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };

	recv_post(qp, &wr);
}

/*
 * The immediate says where the message is in the source, and its lowest byte to which slot a WRITE goes. A slot is used
 * again after SLOTS messages: one that comes late is not overwritten before.
 */
static void post_send(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_ah *ah, struct ibv_qp *to, uint32_t length,
		      unsigned int slot)
{
	uint32_t at = random_between(0, sides[0].source.size - length);
	struct ibv_sge sge = region_sge(&sides[0].source, at, length);
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.imm_data = htonl(at << 8 | slot),
	};

	if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wr.wr.rdma.remote_addr = (uintptr_t)sides[1].sink.memory + (size_t)slot * length;
		wr.wr.rdma.rkey = sides[1].sink.mr->rkey;
	}
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	send_post(qp, &wr);
}

/* Whether a message that has arrived is one that was sent: in the receive's memory, or where a WRITE went. */
static bool message_is_right(const struct ibv_wc *wc, enum ibv_wr_opcode opcode, uint32_t header, uint32_t length)
{
	bool is_write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t at = ntohl(wc->imm_data) >> 8, slot = is_write ? ntohl(wc->imm_data) & 0xff : wc->wr_id, i;
	const uint8_t *arrived = sides[1].sink.memory + (size_t)slot * (header + length) + header;

	if (wc->status || wc->opcode != (is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
	    wc->byte_len != header + length || !(wc->wc_flags & IBV_WC_WITH_IMM) || (is_write && slot >= SLOTS) ||
	    at > sides[0].source.size - length) {
		printf("# receive: %s, opcode %d, %u bytes, flags %#x, immediate %#x\n",
		       ibv_wc_status_str(wc->status), wc->opcode, wc->byte_len, wc->wc_flags, at);
		return false;
	}
	for (i = 0; i < length; i++) {
		if (arrived[i] != sides[0].source.expected[at + i]) {
			printf("# byte %u of a message of %u is %#x instead of %#x\n", i, length, arrived[i],
			       sides[0].source.expected[at + i]);
			return false;
		}
	}
	return true;
}

/*
 * Sends messages, so many at once, until as many as are wanted have arrived. What is lost leaves its receive to the
 * next one. A message that arrives is checked before its memory is given to another one.
 */
static bool until_arrived(struct ibv_qp *qps[2], enum ibv_wr_opcode opcode, struct ibv_ah *ah, uint32_t header,
			  uint32_t length, unsigned int at_once, unsigned int wanted)
{
	uint64_t end = now_ms() + patience_ms(SECONDS * 1000);
	unsigned int arrived = 0, sent = 0, pending = 0, i;
	struct ibv_wc wc;

	for (i = 0; i < at_once; i++)
		post_receive(qps[1], i, header + length);
	while (arrived < wanted) {
		if (now_ms() > end) {
			printf("# of %u messages, %u have arrived\n", sent, arrived);
			return false;
		}
		for (; pending < at_once; pending++, sent++)
			post_send(qps[0], opcode, ah, qps[1], length, sent % SLOTS);
		for (; pending; pending--) {
			if (!cq_poll(sides[0].send_cq, &wc, SECONDS * 1000) || wc.status) {
				printf("# a send does not complete, or with an error\n");
				return false;
			}
		}
		for (i = 0; i < at_once && cq_poll(sides[1].recv_cq, &wc, PAUSE_MS); i++) {
			if (!message_is_right(&wc, opcode, header, length))
				return false;
			arrived++;
			post_receive(qps[1], wc.wr_id, header + length);
		}
	}
	printf("# MTU %u, %s %s: of %u messages of %u bytes, %u have arrived\n", mtu_bytes(mtu), ah ? "UD" : "UC",
	       opcode == IBV_WR_SEND_WITH_IMM ? "SEND" : "WRITE", sent, length, arrived);
	return true;
}

static bool run_uc(void)
{
	struct ibv_qp *qps[2];
	bool ok = true;
	unsigned int i;

	for (i = 0; ok && i < ARRAY_SIZE(uc_opcodes); i++) {
		qps_make(qps, IBV_QPT_UC, depth, mtu, VERY_PATIENT);
		ok = until_arrived(qps, uc_opcodes[i], NULL, 0, MESSAGE, UC_AT_ONCE, UC_MESSAGES);
		qps_free(qps);
	}
	return ok;
}

static bool run_ud(void)
{
	struct ibv_qp *qps[2];
	struct ibv_ah *ah;
	unsigned int i;
	bool ok;

	for (i = 0; i < 2; i++) {
		qps[i] = ud_make(&devices[i], sides[i].send_cq, sides[i].recv_cq, depth, QKEY);
	}
	ah = ah_make(&devices[0], &devices[1]);
	ok = until_arrived(qps, IBV_WR_SEND_WITH_IMM, ah, GRH, mtu_bytes(mtu), UD_AT_ONCE, UD_MESSAGES);
	qps_free(qps);
	ah_free(ah);
	return ok;
}

static const struct row rows[] = { { "RC", run_rc }, { "UC", run_uc }, { "UD", run_ud } };

static bool take_option(int option, const char *argument)
{
	mtu = atoi(argument) == 4096 ? IBV_MTU_4096 : IBV_MTU_1024;
	return true;
}

static void begin(char **names)
{
	sides_make(devices, SIDE_SIZE, 4 * MAX_MESSAGES);
	if (devices[0].active_mtu < mtu || devices[1].active_mtu < mtu)
		die("the ports' MTU is smaller");
}

const struct test test = {
	ROWS(rows), .options = "m:", .option = take_option, .with_devices = true, .begin = begin, .end = sides_free,
};
