// SPDX-License-Identifier: GPL-2.0
/*
 * What a queue pair must refuse: the status at either end, the bytes that stay as
 * they were, the state it is in afterwards, and the flush of what was queued. And
 * what it must not refuse, as there are no bytes that a key would be for.
 *
 * Test: what must be refused, and how
 * Suites: all
 */

#include <arpa/inet.h>
#include <sys/fsuid.h>
#include <sys/wait.h>

#include "test.h"

#define SIZE 16384
#define LENGTH 3000
#define DEPTH 16
#define WAIT_MS 10000
#define QUIET_MS 200
/* Longer than it takes until the device looks for late receives once a second only, and what that may then take. */
#define IDLE_MS 2500
#define LATE_MS 5000
#define QKEY 0x1234567
#define IMMEDIATE 0xab54a98c
/* Of the longest list. */
#define SGES 5

struct end {
	struct device device;
	/* One for everything, one that only its owner may read. */
	struct region open;
	struct region shut;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_qp *qp;
};

static struct end ends[2];
/* The one that sends, and its peer. */
static struct end *const a = &ends[0], *const b = &ends[1];

static void start(struct patience patience)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = SGES };
	int i;

	for (i = 0; i < 2; i++) {
		ends[i].qp = qp_make(&ends[i].device, IBV_QPT_RC, ends[i].send_cq,
				     ends[i].recv_cq, depth, NULL);
		region_fill(&ends[i].open);
		region_fill(&ends[i].shut);
	}
	qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, patience);
}

static bool finish(void)
{
	bool ok = true;
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(ends[i].qp);
		ok &= region_check(&ends[i].open, i ? "the peer's memory" : "our memory");
		ok &= region_check(&ends[i].shut, i ? "the peer's shut memory" : "our shut memory");
		cq_drain(ends[i].send_cq);
		cq_drain(ends[i].recv_cq);
	}
	return ok;
}

static struct ibv_send_wr wr_of(unsigned int flags, enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *sge,
				uint64_t address, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = opcode,
		.send_flags = flags,
		.sg_list = sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = address, .rkey = rkey },
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		memset(&wr.wr, 0, sizeof(wr.wr));
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = rkey;
	}
	return wr;
}

static void post_flagged(unsigned int flags, enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge,
			 uint64_t address, uint32_t rkey)
{
	struct ibv_send_wr wr = wr_of(flags, opcode, id, &sge, address, rkey);

	send_post(a->qp, &wr);
}

static void post(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge, uint64_t address,
		 uint32_t rkey)
{
	post_flagged(IBV_SEND_SIGNALED, opcode, id, sge, address, rkey);
}

static void post_receive(struct end *end, uint64_t id, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	recv_post(end->qp, &wr);
}

static bool completed(struct ibv_cq *cq, const char *what, uint64_t id, enum ibv_wc_status status)
{
	return cq_expect(cq, what, id, status, WAIT_MS);
}

static bool in_error(struct end *end, const char *what)
{
	uint64_t until = now_ms() + patience_ms(WAIT_MS);

	while (qp_state(end->qp) != IBV_QPS_ERR) {
		if (now_ms() > until) {
			printf("# %s is in state %d, not in error\n", what, qp_state(end->qp));
			return false;
		}
	}
	return true;
}

/* What is posted to a queue pair in error is flushed, in order. */
static bool flushes(void)
{
	uint64_t id;

	for (id = 100; id < 104; id++)
		post(IBV_WR_SEND, id, region_sge(&a->open, 0, 8), 0, 0);
	for (id = 100; id < 104; id++) {
		if (!completed(a->send_cq, "a send posted in error", id, IBV_WC_WR_FLUSH_ERR))
			return false;
	}
	return true;
}

/* The beginning of a message from there may be here, as far as both are within their regions. */
static void may_have_arrived(size_t from, size_t at)
{
	size_t i;

	for (i = 0; i < LENGTH && from + i < SIZE && at + i < SIZE; i++) {
		if (b->open.memory[at + i] != a->open.memory[from + i])
			break;
		b->open.expected[at + i] = b->open.memory[at + i];
	}
}

/* A request that the peer refuses, or this side, before anything has moved. */
static bool refused(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t address, uint32_t rkey,
		    enum ibv_wc_status status)
{
	bool ok;

	post(opcode, 1, sge, address, rkey);
	post(IBV_WR_RDMA_WRITE, 2, region_sge(&a->open, 0, 64), (uintptr_t)b->open.memory,
	     b->open.mr->rkey);
	ok = completed(a->send_cq, "the request", 1, status) &&
	     completed(a->send_cq, "the one behind it", 2, IBV_WC_WR_FLUSH_ERR) &&
	     in_error(a, "the requester") && flushes();
	/* A message may be cut short by an error at this end: the start of it has arrived. */
	if (status == IBV_WC_LOC_PROT_ERR && opcode == IBV_WR_RDMA_WRITE && sge.lkey == a->open.mr->lkey)
		may_have_arrived(sge.addr - (uintptr_t)a->open.memory, 0);
	return finish() && ok;
}

enum {
	WRONG_KEY, WRONG_VARIANT, AFTER_END, BEFORE_START, BEYOND_ALL, WRITE_SHUT, READ_SHUT, READ_AFTER_END, LOCAL_KEY,
	LOCAL_END, LOCAL_SHUT, ATOMIC_SHUT, TOO_LONG
};

/* Where in an end's memory, if not at the beginning of the open region, and which bits of the key are wrong. */
struct place {
	bool is_shut;
	size_t at;
	uint32_t key;
};

static const struct refusal {
	enum ibv_wr_opcode opcode;
	enum ibv_wc_status status;
	struct place ours, theirs;
	/* If not LENGTH, and if not an address there. */
	uint32_t length;
	uint64_t address;
} refusals[] = {
	[WRONG_KEY] = { IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, .theirs.key = 0x5a5a00 },
	[WRONG_VARIANT] = { IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, .theirs.key = 1 },
	[AFTER_END] = { IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, .theirs.at = SIZE - LENGTH + 1 },
	[BEFORE_START] = { IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, .theirs.at = -1 },
	[BEYOND_ALL] = { IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, .address = UINT64_MAX - 10 },
	[WRITE_SHUT] = { IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, .theirs.is_shut = true },
	[READ_SHUT] = { IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, .theirs.is_shut = true },
	[READ_AFTER_END] = { IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, .theirs.at = SIZE - LENGTH + 1 },
	[LOCAL_KEY] = { IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, .ours.key = 0x5a5a00 },
	[LOCAL_END] = { IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, .ours.at = SIZE - LENGTH + 1 },
	/* The answer of a READ must not be written where nothing may be written. */
	[LOCAL_SHUT] = { IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR, .ours.is_shut = true },
	[ATOMIC_SHUT] = { IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_REM_ACCESS_ERR, .theirs.is_shut = true, .length = 8 },
	/* IBTA 9.7.7.1.1: a message has no more than 2 GiB. */
	[TOO_LONG] = { IBV_WR_RDMA_WRITE, IBV_WC_LOC_LEN_ERR, .length = 0x80000001 },
};

static bool run_refused(int which)
{
	const struct refusal *refusal = &refusals[which];
	const struct place *ours = &refusal->ours, *theirs = &refusal->theirs;
	const struct region *target = theirs->is_shut ? &b->shut : &b->open;
	struct ibv_sge sge = region_sge(ours->is_shut ? &a->shut : &a->open, ours->at, refusal->length ?: LENGTH);

	start(PATIENT);
	sge.lkey ^= ours->key;
	return refused(refusal->opcode, sge, refusal->address ?: (uintptr_t)target->memory + theirs->at,
		       target->mr->rkey ^ theirs->key, refusal->status);
}

/*
 * A key is checked for each request, also where one to the same place comes right behind another. Both have one
 * length, so that they arrive together.
 */
static bool run_wrong_key_behind(void)
{
	static const uint32_t wrong_bits[] = { 1, 0x5a5a00 };
	uint64_t address = (uintptr_t)b->open.memory;
	struct ibv_sge sges[2];
	struct ibv_send_wr wrs[2];
	bool ok = true;
	unsigned int i;
	int j;

	for (i = 0; ok && i < ARRAY_SIZE(wrong_bits); i++) {
		for (j = 0; j < 2; j++) {
			sges[j] = region_sge(&a->open, j * 64, 64);
			wrs[j] = wr_of(IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE, 1 + j, &sges[j], address,
				       b->open.mr->rkey ^ (j ? wrong_bits[i] : 0));
		}
		wrs[0].next = &wrs[1];
		start(PATIENT);
		send_post(a->qp, wrs);
		memcpy(b->open.expected, a->open.memory, 64);
		ok = completed(a->send_cq, "the request", 1, IBV_WC_SUCCESS) &&
		     completed(a->send_cq, "the one behind it", 2, IBV_WC_REM_ACCESS_ERR) &&
		     in_error(a, "the requester");
		ok = finish() && ok;
	}
	return ok;
}

/* Of requests that are not signaled only errors complete. */
static bool run_not_signaled(void)
{
	struct ibv_sge sge = region_sge(&a->open, 0, 64);
	uint64_t address = (uintptr_t)b->shut.memory;
	uint32_t rkey = b->shut.mr->rkey;
	bool ok;

	start(PATIENT);
	post_receive(b, 7, region_sge(&b->open, 0, 64));
	post_flagged(0, IBV_WR_SEND, 1, region_sge(&a->open, 0, 0), 0, 0);
	post_flagged(0, IBV_WR_RDMA_WRITE, 2, sge, address, rkey);
	post_flagged(0, IBV_WR_RDMA_WRITE, 3, sge, address, rkey);
	ok = completed(b->recv_cq, "the receive", 7, IBV_WC_SUCCESS) &&
	     completed(a->send_cq, "the refused one", 2, IBV_WC_REM_ACCESS_ERR) &&
	     completed(a->send_cq, "the one behind it", 3, IBV_WC_WR_FLUSH_ERR);
	return finish() && ok;
}

/* The peer's queue pair itself allows nothing, whatever the region does. */
static bool run_shut_qp(int opcode)
{
	start(PATIENT);
	qp_change(b->qp, (struct ibv_qp_attr){ .qp_access_flags = 0 }, IBV_QP_ACCESS_FLAGS, "the access flags");
	return refused(opcode, region_sge(&a->open, 0, LENGTH), (uintptr_t)b->open.memory,
		       b->open.mr->rkey, IBV_WC_REM_INV_REQ_ERR);
}

/* The key of a region in another protection domain. */
static bool run_other_domain(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(b->device.context);
	struct ibv_mr *mr;
	bool ok;

	if (!pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	mr = mr_make(pd, b->open.memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	start(PATIENT);
	ok = refused(IBV_WR_RDMA_WRITE, region_sge(&a->open, 0, LENGTH), (uintptr_t)b->open.memory,
		     mr->rkey, IBV_WC_REM_ACCESS_ERR);
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(pd))
		die("the other domain does not go away");
	return ok;
}

/* Service levels have four bits. */
static bool run_service_level(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = PORT,
		.sl = 16,
		.grh = { .dgid = b->device.gid, .sgid_index = a->device.gid_index, .hop_limit = 64 },
	};
	struct ibv_ah *refused = ibv_create_ah(a->device.pd, &attr), *taken;
	int error = errno;

	attr.sl = 15;
	taken = ibv_create_ah(a->device.pd, &attr);
	printf("# 16: %s, 15: %s\n", refused ? "taken" : strerror(error), taken ? "taken" : strerror(errno));
	ah_free(taken);
	return !refused && error == EINVAL && taken;
}

/* Two new queue pairs, and a datagram from one to the other: of an element, or of none. */
static void datagram_post(struct ibv_qp *qps[2], struct ibv_ah *ah, struct ibv_sge *sge)
{
	struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	struct ibv_sge room = region_sge(&b->open, 0, GRH + LENGTH);
	struct ibv_recv_wr receive = { .wr_id = 11, .sg_list = &room, .num_sge = 1 };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
	};
	int i;

	for (i = 0; i < 2; i++)
		qps[i] = ud_make(&ends[i].device, ends[i].send_cq, ends[i].recv_cq, depth, QKEY);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qps[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	recv_post(qps[1], &receive);
	send_post(qps[0], &wr);
}

/* A datagram by way of an address handle in another protection domain. */
static bool run_other_domain_handle(void)
{
	struct device other = a->device;
	struct ibv_qp *qps[2];
	struct ibv_ah *ah;
	bool ok;
	int i;

	other.pd = ibv_alloc_pd(a->device.context);
	if (!other.pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	ah = ah_make(&other, &b->device);
	datagram_post(qps, ah, NULL);
	ok = completed(a->send_cq, "the datagram", 1, IBV_WC_LOC_QP_OP_ERR) && cq_quiet(b->recv_cq, QUIET_MS);
	for (i = 0; i < 2; i++)
		qp_free(qps[i]);
	if (ibv_destroy_ah(ah) || ibv_dealloc_pd(other.pd))
		die("the other domain does not go away");
	return ok;
}

/* The key of a region that is no more. */
static uint32_t key_deregistered(void)
{
	struct ibv_mr *mr = mr_make(b->device.pd, b->open.memory, SIZE,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	uint32_t rkey = mr->rkey;

	mr_free(mr);
	return rkey;
}

static bool run_deregistered(void)
{
	uint32_t rkey = key_deregistered();

	start(PATIENT);
	return refused(IBV_WR_RDMA_WRITE, region_sge(&a->open, 0, LENGTH), (uintptr_t)b->open.memory,
		       rkey, IBV_WC_REM_ACCESS_ERR);
}

/* A WRITE with immediate data of so many bytes has come. Its immediate data says which of them. */
static bool told(uint64_t id, uint32_t length)
{
	struct ibv_wc wc;

	if (!cq_poll(b->recv_cq, &wc, WAIT_MS)) {
		printf("# receive %llu does not complete\n", (unsigned long long)id);
		return false;
	}
	if (wc.wr_id == id && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
	    wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == IMMEDIATE + id && wc.byte_len == length)
		return true;
	printf("# receive %llu: wr_id %llu, %s, opcode %d, immediate %#x, byte_len %u\n", (unsigned long long)id,
	       (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.opcode, ntohl(wc.imm_data), wc.byte_len);
	return false;
}

/*
 * No key is looked at for no bytes, by either end (IBTA 9.7.4.1.5, C9-88): neither none, nor one that is no more. The
 * first request has no list, the second one a list of nothing.
 */
static bool run_no_bytes(int opcode)
{
	struct ibv_sge nothing = {};
	struct ibv_send_wr wrs[2] = {
		wr_of(IBV_SEND_SIGNALED, opcode, 1, NULL, 0, 0),
		wr_of(IBV_SEND_SIGNALED, opcode, 2, &nothing, (uintptr_t)b->open.memory, key_deregistered()),
	};
	bool ok = true;
	int i;

	wrs[0].num_sge = 0;
	start(PATIENT);
	for (i = 0; i < 2; i++) {
		if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
			wrs[i].imm_data = htonl(IMMEDIATE + wrs[i].wr_id);
			post_receive(b, wrs[i].wr_id, region_sge(&b->open, 4096, 64));
		}
		send_post(a->qp, &wrs[i]);
	}
	/* The queue pairs go on. */
	post(IBV_WR_RDMA_WRITE, 3, region_sge(&a->open, 0, 64), (uintptr_t)b->open.memory, b->open.mr->rkey);
	memcpy(b->open.expected, a->open.memory, 64);
	for (i = 0; ok && i < 2; i++)
		ok = opcode != IBV_WR_RDMA_WRITE_WITH_IMM || told(wrs[i].wr_id, 0);
	ok = ok && completed(a->send_cq, "the one without a key", 1, IBV_WC_SUCCESS) &&
	     completed(a->send_cq, "the one with a key that is no more", 2, IBV_WC_SUCCESS) &&
	     completed(a->send_cq, "the one of some bytes", 3, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* The receive is for the immediate data only. */
static bool run_no_memory(void)
{
	struct ibv_sge sge = region_sge(&a->open, 0, LENGTH);
	struct ibv_send_wr wr = wr_of(IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE_WITH_IMM, 1, &sge,
				      (uintptr_t)b->open.memory + 5, b->open.mr->rkey);
	struct ibv_recv_wr receive = { .wr_id = 11 };
	bool ok;

	wr.imm_data = htonl(IMMEDIATE + receive.wr_id);
	start(PATIENT);
	recv_post(b->qp, &receive);
	send_post(a->qp, &wr);
	memcpy(b->open.expected + 5, a->open.memory, LENGTH);
	ok = told(receive.wr_id, LENGTH) && completed(a->send_cq, "the request", 1, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* LENGTH bytes in two parts, and elements of nothing before, between and behind them. */
static void list_make(struct ibv_sge list[SGES], const struct region *region, size_t first, size_t second,
		      uint32_t split)
{
	memset(list, 0, SGES * sizeof(list[0]));
	list[1] = region_sge(region, first, split);
	list[3] = region_sge(region, second, LENGTH - split);
}

/* Where the bytes of a message should come. */
static void list_expect(const struct ibv_sge list[SGES], struct region *region, const uint8_t *message)
{
	int i;

	for (i = 1; i < SGES; i += 2) {
		memcpy(region->expected + (list[i].addr - (uintptr_t)region->memory), message, list[i].length);
		message += list[i].length;
	}
}

static bool run_empty_elements(int opcode)
{
	struct ibv_sge ours[SGES], theirs[SGES];
	struct ibv_recv_wr receive = { .wr_id = 11, .sg_list = theirs, .num_sge = SGES };
	struct ibv_send_wr wr;
	uint8_t message[LENGTH];
	bool ok = true;

	start(PATIENT);
	list_make(ours, &a->open, 64, 5000, 1000);
	list_make(theirs, &b->open, 200, 7001, 1701);
	wr = wr_of(IBV_SEND_SIGNALED, opcode, 1, ours, (uintptr_t)b->open.memory + 300, b->open.mr->rkey);
	wr.num_sge = SGES;
	if (opcode == IBV_WR_SEND) {
		memcpy(message, a->open.memory + 64, 1000);
		memcpy(message + 1000, a->open.memory + 5000, LENGTH - 1000);
		list_expect(theirs, &b->open, message);
		recv_post(b->qp, &receive);
	} else {
		list_expect(ours, &a->open, b->open.memory + 300);
	}
	send_post(a->qp, &wr);
	if (opcode == IBV_WR_SEND)
		ok = completed(b->recv_cq, "the receive", 11, IBV_WC_SUCCESS);
	ok = ok && completed(a->send_cq, "the request", 1, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* Nothing but the network header arrives. */
static bool run_empty_datagram(void)
{
	struct ibv_ah *ah = ah_make(&a->device, &b->device);
	struct ibv_sge nothing = {};
	struct ibv_qp *qps[2];
	struct ibv_wc wc;
	bool ok;
	int i;

	region_fill(&b->open);
	datagram_post(qps, ah, &nothing);
	ok = completed(a->send_cq, "the datagram", 1, IBV_WC_SUCCESS);
	if (!cq_poll(b->recv_cq, &wc, WAIT_MS)) {
		printf("# the receive does not complete\n");
		ok = false;
	} else if (wc.wr_id != 11 || wc.status != IBV_WC_SUCCESS || wc.byte_len != GRH) {
		printf("# the receive: wr_id %llu, %s, byte_len %u\n", (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status), wc.byte_len);
		ok = false;
	}
	ok = ok && grh_check(b->open.memory, &a->device.gid, &b->device.gid, 0, 64);
	memcpy(b->open.expected, b->open.memory, GRH);
	for (i = 0; i < 2; i++)
		qp_free(qps[i]);
	ah_free(ah);
	return region_check(&b->open, "the peer's memory") && ok;
}

/* A SEND that the peer's receive cannot take: what either end hears of it. */
static bool run_receive(struct ibv_sge sge, enum ibv_wc_status theirs, enum ibv_wc_status ours)
{
	bool ok;

	start(PATIENT);
	post_receive(b, 11, sge);
	post(IBV_WR_SEND, 1, region_sge(&a->open, 0, LENGTH), 0, 0);
	ok = completed(b->recv_cq, "the receive", 11, theirs) &&
	     completed(a->send_cq, "the send", 1, ours) && in_error(a, "the requester") &&
	     in_error(b, "the responder");
	/* How much of a message arrives before it is found too long is not said. */
	if (sge.lkey == b->open.mr->lkey)
		may_have_arrived(0, 0);
	return finish() && ok;
}

static bool run_receive_shut(void)
{
	return run_receive(region_sge(&b->shut, 0, LENGTH), IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}

static bool run_receive_short(void)
{
	return run_receive(region_sge(&b->open, 0, LENGTH - 1), IBV_WC_LOC_LEN_ERR,
			   IBV_WC_REM_INV_REQ_ERR);
}

/* A receive may be longer than what is left of its region: it is the message that counts. */
static bool run_receive_beyond(void)
{
	bool ok;

	start(PATIENT);
	post_receive(b, 11, region_sge(&b->open, SIZE - LENGTH, 2 * LENGTH));
	post_receive(b, 12, region_sge(&b->open, SIZE - LENGTH + 1, 2 * LENGTH));
	post(IBV_WR_SEND, 1, region_sge(&a->open, 0, LENGTH), 0, 0);
	post(IBV_WR_SEND, 2, region_sge(&a->open, 0, LENGTH), 0, 0);
	ok = completed(b->recv_cq, "the receive", 11, IBV_WC_SUCCESS) &&
	     completed(b->recv_cq, "the receive of a byte less", 12, IBV_WC_LOC_PROT_ERR) &&
	     completed(a->send_cq, "the send", 1, IBV_WC_SUCCESS) &&
	     completed(a->send_cq, "the send of a byte more", 2, IBV_WC_REM_OP_ERR);
	/* The first one has arrived, and the beginning of the second one may have. */
	memcpy(b->open.expected + SIZE - LENGTH, a->open.memory, LENGTH);
	may_have_arrived(0, SIZE - LENGTH + 1);
	return finish() && ok;
}

static bool run_no_receive(void)
{
	start((struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 1 });
	return refused(IBV_WR_SEND, region_sge(&a->open, 0, LENGTH), 0, 0, IBV_WC_RNR_RETRY_EXC_ERR);
}

static bool run_no_peer(void)
{
	start((struct patience){ .timeout = 10, .retries = 2, .rnr_retries = 7 });
	qp_free(b->qp);
	b->qp = NULL;
	return refused(IBV_WR_RDMA_WRITE, region_sge(&a->open, 0, LENGTH), (uintptr_t)b->open.memory,
		       b->open.mr->rkey, IBV_WC_RETRY_EXC_ERR);
}

/* Queued receives are flushed by the change of state alone. */
static bool run_flush_receives(void)
{
	bool ok = true;
	uint64_t id;

	start(PATIENT);
	for (id = 0; id < DEPTH; id++)
		post_receive(b, id, region_sge(&b->open, 0, 64));
	qp_change(b->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "RTS to ERR");
	for (id = 0; ok && id < DEPTH; id++)
		ok = completed(b->recv_cq, "a receive", id, IBV_WC_WR_FLUSH_ERR);
	ok = ok && cq_quiet(b->recv_cq, QUIET_MS);
	return finish() && ok;
}

/* So are those posted later: nothing but the kernel's own look finds them. */
static bool run_flush_late(void)
{
	unsigned int round;
	bool ok = true;
	uint64_t id;

	start(PATIENT);
	qp_change(b->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "RTS to ERR");
	for (round = 0; ok && round < 2; round++) {
		for (id = 0; id < DEPTH; id++)
			post_receive(b, id, region_sge(&b->open, 0, 64));
		/* There is no doorbell: the device looks every now and then, and once a second in the end. */
		for (id = 0; ok && id < DEPTH; id++)
			ok = cq_expect(b->recv_cq, "a receive", id, IBV_WC_WR_FLUSH_ERR, LATE_MS);
		ok = ok && cq_quiet(b->recv_cq, IDLE_MS);
	}
	return finish() && ok;
}

/* Returns what ibv_post_send() says. */
static int write_small(uint64_t id)
{
	struct ibv_sge sge = region_sge(&a->open, 0, 64);
	struct ibv_send_wr wr = wr_of(IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE, id, &sge, (uintptr_t)b->open.memory,
				      b->open.mr->rkey), *bad;

	return ibv_post_send(a->qp, &wr, &bad);
}

/* A child has credentials of its own. */
static int write_of_child(uint64_t id)
{
	int status;
	pid_t child = fork_child();

	if (child == 0)
		_exit(write_small(id));
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Another user's files for a while: the credentials are the same again, but not the very ones. */
static void *change_and_write(void *id)
{
	uid_t user = geteuid(), other = user + 1;

	/* It returns the former one, and -1 is none. */
	if ((uid_t)setfsuid(other) != user || (uid_t)setfsuid(user) != other || (uid_t)setfsuid(-1) != user)
		die("setfsuid");
	return (void *)(intptr_t)write_small((uintptr_t)id);
}

static int write_of_thread(uint64_t id)
{
	pthread_t thread;
	void *error;

	thread_start(&thread, change_and_write, (void *)(uintptr_t)id);
	pthread_join(thread, &error);
	return (intptr_t)error;
}

enum { CHILD, THREAD };

static bool run_credentials(int who)
{
	const char *provider = getenv("FERROCE_PROVIDER");
	/* By an ioctl. */
	bool rings_anyway = provider && !strcmp(provider, "ferroce"), ok;
	int error;

	start(PATIENT);
	error = who == CHILD ? write_of_child(1) : write_of_thread(1);
	ksft_print_msg("the other's post: %s\n", error < 0 ? "no status" : strerror(error));
	ok = error == (rings_anyway ? 0 : EACCES) && (rings_anyway || cq_quiet(a->send_cq, QUIET_MS));
	/* Its request is in the ring: the next doorbell, by one who may, sends both. */
	memcpy(b->open.expected, a->open.memory, 64);
	post(IBV_WR_RDMA_WRITE, 2, region_sge(&a->open, 0, 64), (uintptr_t)b->open.memory, b->open.mr->rkey);
	ok = ok && completed(a->send_cq, "the other's", 1, IBV_WC_SUCCESS) &&
	     completed(a->send_cq, "our own", 2, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* ibv_post_send() of the provider refuses it: the other way to post does not look. */
static bool run_atomic_unaligned(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a->device.pd,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp_ex *qp;
	bool ok;

	start(PATIENT);
	if (ibv_destroy_qp(a->qp) || ibv_destroy_qp(b->qp))
		die("ibv_destroy_qp: %s", strerror(errno));
	a->qp = ibv_create_qp_ex(a->device.context, &attr);
	if (!a->qp)
		die("ibv_create_qp_ex: %s", strerror(errno));
	b->qp = qp_make(&b->device, IBV_QPT_RC, b->send_cq, b->recv_cq,
			(struct depth){ .send = DEPTH, .receive = DEPTH, .sges = 1 }, NULL);
	qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, PATIENT);
	qp = ibv_qp_to_qp_ex(a->qp);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(qp, b->open.mr->rkey, (uintptr_t)b->open.memory + 4, 1);
	ibv_wr_set_sge(qp, a->open.mr->lkey, (uintptr_t)a->open.memory, 8);
	if (ibv_wr_complete(qp))
		die("ibv_wr_complete: %s", strerror(errno));
	ok = completed(a->send_cq, "the request", 1, IBV_WC_REM_INV_REQ_ERR) &&
	     in_error(a, "the requester") && flushes();
	return finish() && ok;
}

static bool run_shut_qp_atomic(void)
{
	start(PATIENT);
	qp_change(b->qp, (struct ibv_qp_attr){ .qp_access_flags = IBV_ACCESS_REMOTE_WRITE }, IBV_QP_ACCESS_FLAGS,
		  "the access flags");
	return refused(IBV_WR_ATOMIC_FETCH_AND_ADD, region_sge(&a->open, 0, 8),
		       (uintptr_t)b->open.memory, b->open.mr->rkey, IBV_WC_REM_INV_REQ_ERR);
}

static const struct row rows[] = {
	{ "write with an unknown key", .run_with = run_refused, WRONG_KEY },
	{ "unsignaled requests: no completion for success, one for an error", run_not_signaled },
	{ "write with another variant of the key", .run_with = run_refused, WRONG_VARIANT },
	{ "a wrong key behind the right one, in one list", run_wrong_key_behind },
	{ "write after the region's end", .run_with = run_refused, AFTER_END },
	{ "write before the region", .run_with = run_refused, BEFORE_START },
	{ "write beyond the end of all addresses", .run_with = run_refused, BEYOND_ALL },
	{ "write where the region does not allow it", .run_with = run_refused, WRITE_SHUT },
	{ "write where the queue pair does not allow it", .run_with = run_shut_qp, IBV_WR_RDMA_WRITE },
	{ "write with a key of another protection domain", run_other_domain },
	{ "an address with a service level of five bits", run_service_level },
	{ "datagram with an address handle of another protection domain", run_other_domain_handle },
	{ "write with the key of a deregistered region", run_deregistered },
	{ "write of no bytes needs no key", .run_with = run_no_bytes, IBV_WR_RDMA_WRITE },
	{ "write with immediate data of no bytes needs no key", .run_with = run_no_bytes, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "read of no bytes needs no key", .run_with = run_no_bytes, IBV_WR_RDMA_READ },
	{ "write with immediate data, and a receive without memory", run_no_memory },
	{ "send and receive with elements of no bytes", .run_with = run_empty_elements, IBV_WR_SEND },
	{ "read with elements of no bytes", .run_with = run_empty_elements, IBV_WR_RDMA_READ },
	{ "datagram of an element of no bytes", run_empty_datagram },
	{ "read where the region does not allow it", .run_with = run_refused, READ_SHUT },
	{ "read where the queue pair does not allow it", .run_with = run_shut_qp, IBV_WR_RDMA_READ },
	{ "read after the region's end", .run_with = run_refused, READ_AFTER_END },
	{ "atomic at an address that is not a multiple of eight", run_atomic_unaligned },
	{ "atomic where the region does not allow it", .run_with = run_refused, ATOMIC_SHUT },
	{ "atomic where the queue pair does not allow it", run_shut_qp_atomic },
	{ "write of more than 2 GiB", .run_with = run_refused, TOO_LONG },
	{ "gather with an unknown key", .run_with = run_refused, LOCAL_KEY },
	{ "gather after the region's end", .run_with = run_refused, LOCAL_END },
	{ "read into a region that may not be written", .run_with = run_refused, LOCAL_SHUT },
	{ "receive into a region that may not be written", run_receive_shut },
	{ "receive too short for the message", run_receive_short },
	{ "receive longer than its region", run_receive_beyond },
	{ "no receive at the peer", run_no_receive },
	{ "no queue pair at the peer", run_no_peer },
	{ "receives are flushed", run_flush_receives },
	{ "receives posted to a queue pair in error are flushed", run_flush_late },
	{ "a doorbell with other credentials is refused", .run_with = run_credentials, CHILD },
	{ "a doorbell after a change of the thread's user and back is refused", .run_with = run_credentials, THREAD },
};

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, names[i], family);
		region_make(&end->open, &end->device, SIZE,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		region_make(&end->shut, &end->device, SIZE, 0);
		end->send_cq = cq_make(&end->device, 64);
		end->recv_cq = cq_make(&end->device, 64);
	}
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		cq_free(ends[i].send_cq);
		cq_free(ends[i].recv_cq);
		region_free(&ends[i].open);
		region_free(&ends[i].shut);
		device_close(&ends[i].device);
	}
}

const struct test test = { ROWS(rows), .begin = begin, .end = end };
