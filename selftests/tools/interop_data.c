// SPDX-License-Identifier: GPL-2.0
/*
 * One message of each kind between two machines over RC, with all that arrives compared: bytes, lengths, immediate data
 * and what atomics answer. Each end computes what it expects, so that no error can cancel itself out on the way back.
 *
 * interop_data -a ADDRESS [-s]
 *	-s	serves one connection; else the client of a server at ADDRESS
 */

#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT "7174"
/* No multiple of a path MTU, or of four. */
#define LONG ((1 << 20) - 3)
#define SHORT 5001
#define SIZE (1 << 20)
#define WRITE_IMM 0x12345678
#define SEND_IMM 0x89abcdef
#define ANSWER_IMM 0xfedcba98

enum content { WRITTEN = 1, WRITTEN_WITH_IMM, SENT, ANSWERED };

/* The server's, in the private data of the connection. */
struct memory {
	__be64 address;
	__be32 rkey;
} __attribute__((packed));

static struct rdma_cm_id *id;
static uint8_t *memory, *received;
static struct ibv_mr *memory_mr, *received_mr;

static uint8_t byte_of(enum content content, size_t at)
{
	return content * 101 + at * 31 + (at >> 8) * 7 + (at >> 16);
}

static void fill(uint8_t *to, enum content content, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		to[i] = byte_of(content, i);
}

static void check(const uint8_t *is, enum content content, size_t from, size_t to, const char *what)
{
	size_t i;

	for (i = from; i < to; i++) {
		if (is[i] != byte_of(content, i))
			errx(1, "%s: byte %zu is %02x instead of %02x", what, i, is[i], byte_of(content, i));
	}
}

static struct ibv_mr *region_make(uint8_t **region)
{
	struct ibv_mr *mr;

	*region = aligned_alloc(4096, SIZE);
	if (!*region)
		err(1, "no memory");
	memset(*region, 0, SIZE);
	mr = ibv_reg_mr(id->pd, *region, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		err(1, "ibv_reg_mr");
	return mr;
}

static void receive_post(void)
{
	if (rdma_post_recv(id, NULL, received, SIZE, received_mr))
		err(1, "rdma_post_recv");
}

static void receive(enum ibv_wc_opcode opcode, uint32_t length, uint32_t imm)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(id, &wc) != 1)
		err(1, "rdma_get_recv_comp");
	if (wc.status != IBV_WC_SUCCESS)
		errx(1, "a receive: %s", ibv_wc_status_str(wc.status));
	if (wc.opcode != opcode || wc.byte_len != length || !(wc.wc_flags & IBV_WC_WITH_IMM) || ntohl(wc.imm_data) != imm)
		errx(1, "a receive: opcode %d, %u bytes, immediate data %08x, instead of %d, %u, %08x", wc.opcode, wc.byte_len,
		     ntohl(wc.imm_data), opcode, length, imm);
}

/* A request of `length` bytes of `memory` or, where it brings something, `received`. */
static void request(struct ibv_send_wr wr, uint32_t length, const char *what)
{
	bool brings = wr.opcode == IBV_WR_RDMA_READ || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		      wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_sge sge = { (uintptr_t)(brings ? received : memory), length, (brings ? received_mr : memory_mr)->lkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(id->qp, &wr, &bad))
		errx(1, "%s: ibv_post_send", what);
	if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
		errx(1, "%s: %s", what, ibv_wc_status_str(wc.status));
}

static void rdma(enum ibv_wr_opcode opcode, uint32_t length, const struct memory *to, const char *what)
{
	request((struct ibv_send_wr){
		.opcode = opcode,
		.imm_data = htonl(WRITE_IMM),
		.wr.rdma = { .remote_addr = be64toh(to->address), .rkey = ntohl(to->rkey) },
	}, length, what);
}

static void atomic(enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap, const struct memory *to,
		   uint64_t expected, const char *what)
{
	uint64_t is;

	memset(received, 0, sizeof(is));
	request((struct ibv_send_wr){
		.opcode = opcode,
		.wr.atomic = {
			.remote_addr = be64toh(to->address),
			.rkey = ntohl(to->rkey),
			.compare_add = compare_add,
			.swap = swap,
		},
	}, sizeof(is), what);
	memcpy(&is, received, sizeof(is));
	if (is != expected)
		errx(1, "%s: it was %016llx instead of %016llx", what, (unsigned long long)is, (unsigned long long)expected);
}

static void atomics(const struct memory *to)
{
	/* Each byte differs, and the sum carries. */
	const uint64_t first = 0x01234567ffffffff, second = 0xfedcba9876543210;
	uint64_t is;

	memcpy(memory, &first, sizeof(first));
	rdma(IBV_WR_RDMA_WRITE, sizeof(first), to, "WRITE of 8 bytes");
	atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, to, first, "FETCH AND ADD");
	atomic(IBV_WR_ATOMIC_CMP_AND_SWP, first + 2, second, to, first + 2, "COMPARE AND SWAP");
	atomic(IBV_WR_ATOMIC_CMP_AND_SWP, first, 1, to, second, "COMPARE AND SWAP of another value");
	rdma(IBV_WR_RDMA_READ, sizeof(is), to, "READ of 8 bytes");
	memcpy(&is, received, sizeof(is));
	if (is != second)
		errx(1, "%016llx is left instead of %016llx", (unsigned long long)is, (unsigned long long)second);
}

static void serve(void)
{
	struct memory mine = { htobe64((uintptr_t)memory), htonl(memory_mr->rkey) };
	struct rdma_conn_param param = {
		.private_data = &mine,
		.private_data_len = sizeof(mine),
		.responder_resources = 1,
		.initiator_depth = 1,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_event *event;

	receive_post();
	receive_post();
	if (rdma_accept(id, &param))
		err(1, "rdma_accept");
	receive(IBV_WC_RECV_RDMA_WITH_IMM, SHORT, WRITE_IMM);
	check(memory, WRITTEN_WITH_IMM, 0, SHORT, "what the WRITE with immediate data left");
	check(memory, WRITTEN, SHORT, LONG, "what the WRITE left");
	receive(IBV_WC_RECV, LONG, SEND_IMM);
	check(received, SENT, 0, LONG, "what the SEND brought");
	fill(memory, ANSWERED, SHORT);
	request((struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(ANSWER_IMM) }, SHORT, "the answer");
	/* The client is done. */
	if (rdma_get_cm_event(id->channel, &event))
		err(1, "rdma_get_cm_event");
	if (event->event != RDMA_CM_EVENT_DISCONNECTED)
		errx(1, "%s instead of the end", rdma_event_str(event->event));
}

static void ask(void)
{
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct memory peer;

	receive_post();
	if (rdma_connect(id, &param))
		err(1, "rdma_connect");
	memcpy(&peer, id->event->param.conn.private_data, sizeof(peer));
	fill(memory, WRITTEN, LONG);
	rdma(IBV_WR_RDMA_WRITE, LONG, &peer, "WRITE");
	fill(memory, WRITTEN_WITH_IMM, SHORT);
	rdma(IBV_WR_RDMA_WRITE_WITH_IMM, SHORT, &peer, "WRITE with immediate data");
	fill(memory, SENT, LONG);
	request((struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(SEND_IMM) }, LONG, "SEND");
	receive(IBV_WC_RECV, SHORT, ANSWER_IMM);
	check(received, ANSWERED, 0, SHORT, "the answer");
	memset(received, 0, SIZE);
	rdma(IBV_WR_RDMA_READ, LONG, &peer, "READ");
	check(received, ANSWERED, 0, SHORT, "the beginning of what the READ brought");
	check(received, WRITTEN, SHORT, LONG, "what the READ brought");
	atomics(&peer);
	if (rdma_disconnect(id))
		err(1, "rdma_disconnect");
}

static struct rdma_cm_id *endpoint_make(const char *address, bool serves)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = serves ? RAI_PASSIVE : 0 }, *info;
	struct rdma_cm_id *listener, *made;

	if (rdma_getaddrinfo(address, PORT, &hints, &info))
		err(1, "rdma_getaddrinfo");
	if (rdma_create_ep(&made, info, NULL, &attr))
		err(1, "rdma_create_ep");
	rdma_freeaddrinfo(info);
	if (!serves)
		return made;
	listener = made;
	if (rdma_listen(listener, 1))
		err(1, "rdma_listen");
	if (rdma_get_request(listener, &made))
		err(1, "rdma_get_request");
	return made;
}

int main(int argc, char **argv)
{
	const char *address = NULL;
	bool serves = false;
	int option;

	while ((option = getopt(argc, argv, "a:s")) != -1) {
		switch (option) {
		case 'a': address = optarg; break;
		case 's': serves = true; break;
		default: return 1;
		}
	}
	if (!address)
		errx(1, "-a ADDRESS is missing");
	id = endpoint_make(address, serves);
	memory_mr = region_make(&memory);
	received_mr = region_make(&received);
	if (serves)
		serve();
	else
		ask();
	printf("all is as expected\n");
	return 0;
}
