// SPDX-License-Identifier: GPL-2.0
/*
 * What happens when something runs out: retries, after the time that the attributes
 * promise; a queue pair's life, with requests still in its queues; a queue that is
 * not open yet; the room in a completion queue. And whose memory it is.
 *
 * Test: retries, time, room in queues: what runs out
 * Suites: all
 */

#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cgroup.h"
#include "growth.h"
#include "namespace.h"
#include "test.h"

#define SIZE 4096
#define LENGTH 64
#define DEPTH 16
#define WAIT_MS 20000
#define QUIET_MS 200
/* A min_rnr_timer of 0 (IBTA 9.7.5.2.8, table 45). */
#define LONGEST_RNR_US 655360
#define NAKS 100

static struct region regions[2];
static struct ibv_cq *send_cqs[2], *recv_cqs[2];
static struct ibv_qp *qps[2];

static void make(struct ibv_cq *send_cq)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 1 };
	int i;

	for (i = 0; i < 2; i++)
		qps[i] = qp_make(&devices[i], IBV_QPT_RC, i || !send_cq ? send_cqs[i] : send_cq,
				 recv_cqs[i], depth, NULL);
}

static void start(struct patience patience)
{
	make(NULL);
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, patience);
}

static void finish(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(qps[i]);
		qps[i] = NULL;
		cq_drain(send_cqs[i]);
		cq_drain(recv_cqs[i]);
	}
}

static struct ibv_sge piece(int end, size_t at)
{
	return region_sge(&regions[end], at, LENGTH);
}

static int try_send(uint64_t id, size_t at)
{
	struct ibv_sge sge = piece(0, at);
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(qps[0], &wr, &bad);
}

static void send_one(uint64_t id)
{
	int error = try_send(id, 0);

	if (error)
		die("ibv_post_send: %s", strerror(error));
}

static void receive_one(int end, uint64_t id, size_t at)
{
	struct ibv_sge sge = piece(end, at);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	recv_post(qps[end], &wr);
}

static bool completed(struct ibv_cq *cq, const char *what, uint64_t id, enum ibv_wc_status status)
{
	return cq_expect(cq, what, id, status, WAIT_MS);
}

/* How long, in us, a SEND without a receive takes to fail; 0 if it fails in another way. */
static uint64_t rnr_time(uint8_t timer, uint8_t retries)
{
	uint64_t before, took;
	bool ok;

	/* No ACK timeout: on a machine that stands still, one would add a repetition. */
	start((struct patience){ .timeout = 0, .retries = 7, .rnr_retries = retries });
	qp_change(qps[1], (struct ibv_qp_attr){ .min_rnr_timer = timer }, IBV_QP_MIN_RNR_TIMER,
		  "RNR timer");
	before = now_us();
	send_one(1);
	ok = completed(send_cqs[0], "the send", 1, IBV_WC_RNR_RETRY_EXC_ERR);
	took = now_us() - before;
	finish();
	return ok ? took : 0;
}

/* So often a time is taken, to know the least. */
#define TIMES 5

static uint64_t least_rnr_time(uint8_t timer, uint8_t retries)
{
	uint64_t least = UINT64_MAX, time;
	int i;

	for (i = 0; i < TIMES; i++) {
		time = rnr_time(timer, retries);
		if (time < least)
			least = time;
	}
	return least;
}

/*
 * The codes of IBTA table 45 mean 10 us and 40.96 ms. Six waits of either: the long ones
 * last what they should, at least, and against them the short ones are nothing: with the stock
 * kernel a clock tick of 4 ms for each would show.
 */
static bool run_rnr_timer(void)
{
	/* Ten SENDs fail, each after six repetitions. */
	struct growth growths[] = {
		{ &devices[0], "retry_rnr_exceeded_err", 2 * TIMES },
		{ &devices[0], "rcvd_rnr_err", 2 * TIMES * 7 },
		{ &devices[0], "retransmitted_pkts", 2 * TIMES * 6 },
		{ &devices[1], "send_rnr_err", 2 * TIMES * 7 },
	};
	uint64_t short_us, long_us;

	growths_begin(growths, ARRAY_SIZE(growths));
	short_us = least_rnr_time(1, 6);
	long_us = least_rnr_time(24, 6);
	ksft_print_msg("6 x 10 us: %llu us, 6 x 40960 us: %llu us\n", (unsigned long long)short_us,
		       (unsigned long long)long_us);
	return short_us >= 60 && long_us >= 6 * 40960 && short_us / 1000 < patience_ms(long_us / 12 / 1000) &&
	       growths_are(growths, ARRAY_SIZE(growths));
}

/* Each try is one packet, however many wait: a responder without a receive drops all of them. */
static bool run_not_ready(void)
{
	unsigned long long naks_before, before, sent, naks;
	uint64_t id, end = now_ms() + patience_ms(WAIT_MS);
	bool ok;

	start(VERY_PATIENT);
	before = device_counter_now(&devices[0], "sent_pkts");
	naks_before = device_counter(&devices[0], "rcvd_rnr_err");
	for (id = 0; id < DEPTH; id++)
		send_one(id);
	do {
		sent = device_counter_now(&devices[0], "sent_pkts") - before;
		naks = device_counter(&devices[0], "rcvd_rnr_err") - naks_before;
	} while (naks < NAKS && now_ms() < end);
	ksft_print_msg("%llu packets, %llu RNR NAKs\n", sent, naks);
	ok = naks >= NAKS && sent <= DEPTH + naks;
	for (id = 0; id < DEPTH; id++)
		receive_one(1, id, 0);
	for (id = 0; id < DEPTH; id++)
		ok = ok && completed(recv_cqs[1], "a receive", id, IBV_WC_SUCCESS) &&
		     completed(send_cqs[0], "a send", id, IBV_WC_SUCCESS);
	finish();
	return ok;
}

#define ATTEMPTS 3

/*
 * One of several attempts takes less than `most` ms: others may have had the CPU in the first. An attempt returns how
 * long it took, or -1 if anything else was wrong with it: that is never tried again.
 */
static bool in_time(int64_t (*attempt)(void), unsigned int most)
{
	int64_t took;
	int i;

	for (i = 0; i < ATTEMPTS; i++) {
		took = attempt();
		if (took < patience_ms(most))
			return took >= 0;
	}
	ksft_print_msg("%d attempts took %u ms, or longer\n", i, patience_ms(most));
	return false;
}

/* The local ACK timeout that smaller ones count as. */
#define LEAST_TIMEOUT 10

/* So long, in us, a request and its repetitions take at least: 4.096 us * 2^timeout each. */
static uint64_t least_time(uint8_t timeout, uint8_t retries)
{
	if (timeout < LEAST_TIMEOUT)
		timeout = LEAST_TIMEOUT;
	return (4096ULL << timeout) / 1000 * (retries + 1);
}

static int64_t timeout_attempt(uint8_t timeout, uint8_t retries)
{
	struct growth growths[] = {
		{ &devices[0], "completer_retry_err", retries + 1 },
		{ &devices[0], "retry_exceeded_err", 1 },
		{ &devices[0], "retransmitted_pkts", retries },
	};
	uint64_t before, took, least = least_time(timeout, retries);
	bool ok;

	growths_begin(growths, ARRAY_SIZE(growths));
	start((struct patience){ .timeout = timeout, .retries = retries, .rnr_retries = 7 });
	qp_free(qps[1]);
	qps[1] = NULL;
	before = now_us();
	send_one(1);
	ok = completed(send_cqs[0], "the send", 1, IBV_WC_RETRY_EXC_ERR);
	took = now_us() - before;
	finish();
	ksft_print_msg("timeout %u, %u retries: %llu us of %llu to %llu\n", timeout, retries,
		       (unsigned long long)took, (unsigned long long)least,
		       (unsigned long long)least * 4);
	return ok && took >= least && growths_are(growths, ARRAY_SIZE(growths)) ? (int64_t)took / 1000 : -1;
}

static int64_t one_retry(void)
{
	return timeout_attempt(15, 1);
}

static int64_t five_retries(void)
{
	return timeout_attempt(14, 5);
}

/* Up to four times what it takes at least (IBTA 9.7.6.1.3). */
static bool run_timeout_short(void)
{
	return in_time(one_retry, least_time(15, 1) * 4 / 1000);
}

static bool run_timeout_retries(void)
{
	return in_time(five_retries, least_time(14, 5) * 4 / 1000);
}

/*
 * The shortest timeouts are too short for a round trip through software: they count as the least one. Of so many attempts
 * not all take long because the machine is busy.
 */
static bool run_timeout_least(void)
{
	int64_t took, shortest = INT64_MAX;
	unsigned int i;

	for (i = 0; i < 10; i++) {
		took = timeout_attempt(1, 7);
		if (took < 0)
			return false;
		if (took < shortest)
			shortest = took;
	}
	return shortest < patience_ms(1000);
}

/* Whatever is in either queue when the queue pair fails comes out once, in order. */
static bool run_flush(void)
{
	bool ok = true;
	uint64_t id;

	start((struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 7 });
	/* The first is under way for as long as the peer has no receive. */
	for (id = 0; id < DEPTH; id++)
		send_one(id);
	for (id = 0; id < DEPTH; id++)
		receive_one(0, 100 + id, 0);
	qp_change(qps[0], (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "RTS to ERR");
	for (id = 0; id < DEPTH; id++)
		ok = ok && completed(send_cqs[0], "a send", id, IBV_WC_WR_FLUSH_ERR) &&
		     completed(recv_cqs[0], "a receive", 100 + id, IBV_WC_WR_FLUSH_ERR);
	ok = ok && cq_quiet(send_cqs[0], QUIET_MS) && cq_quiet(recv_cqs[0], QUIET_MS);
	/* The error state ends with RESET only, and then for good. */
	qp_change(qps[0], (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE, "ERR to RESET");
	ok = ok && cq_quiet(send_cqs[0], QUIET_MS) && cq_quiet(recv_cqs[0], QUIET_MS);
	finish();
	return ok;
}

/* The kernel leaves a process's completions where they are when their queue pair goes. */
static bool run_completions_stay(int by_reset)
{
	/* Ours drop them. */
	bool stay = !has_own_provider(), ok = true;
	uint64_t id;

	start(PATIENT);
	for (id = 0; id < DEPTH; id++) {
		receive_one(1, 100 + id, 0);
		send_one(id);
	}
	for (id = 0; ok && id < DEPTH; id++)
		ok = completed(send_cqs[0], "a send", id, IBV_WC_SUCCESS);
	if (by_reset) {
		qp_change(qps[1], (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE, "RTS to RESET");
	} else {
		qp_free(qps[1]);
		qps[1] = NULL;
	}
	for (id = 0; ok && stay && id < DEPTH; id++)
		ok = completed(recv_cqs[1], "a receive", 100 + id, IBV_WC_SUCCESS);
	ok = ok && cq_quiet(recv_cqs[1], QUIET_MS);
	finish();
	return ok;
}

/* The same queue pairs, by way of RESET. */
static void start_again(struct patience patience)
{
	int i;

	for (i = 0; i < 2; i++)
		qp_change(qps[i], (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE, "RTS to RESET");
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, patience);
}

static bool at_least(uint64_t took, uint64_t least)
{
	ksft_print_msg("after %llu us, %llu at the least\n", (unsigned long long)took, (unsigned long long)least);
	return took >= least;
}

/* What was armed before RESET is forgotten: a later deadline counts. */
static bool run_timeout_after_reset(void)
{
	uint64_t before, took;
	bool ok;

	start((struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 7 });
	receive_one(1, 1, 0);
	send_one(1);
	ok = completed(send_cqs[0], "the send", 1, IBV_WC_SUCCESS) &&
	     completed(recv_cqs[1], "the receive", 1, IBV_WC_SUCCESS);
	/* Without a receive it is under way until RESET. */
	send_one(2);
	start_again((struct patience){ .timeout = 16, .retries = 1, .rnr_retries = 7 });
	qp_free(qps[1]);
	qps[1] = NULL;
	before = now_us();
	send_one(3);
	ok = ok && completed(send_cqs[0], "the send after RESET", 3, IBV_WC_RETRY_EXC_ERR);
	took = now_us() - before;
	finish();
	return ok && at_least(took, least_time(16, 1));
}

static bool run_rnr_after_reset(void)
{
	unsigned long long naks;
	uint64_t before, took, end;
	bool ok;

	start((struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 7 });
	send_one(1);
	start_again(VERY_PATIENT);
	/* It is longer than what was armed. */
	qp_change(qps[1], (struct ibv_qp_attr){ .min_rnr_timer = 0 }, IBV_QP_MIN_RNR_TIMER, "RNR timer");
	naks = device_counter_now(&devices[0], "rcvd_rnr_err");
	before = now_us();
	send_one(2);
	end = now_ms() + patience_ms(WAIT_MS);
	while (device_counter_now(&devices[0], "rcvd_rnr_err") == naks && now_ms() < end)
		;
	receive_one(1, 2, 0);
	ok = completed(recv_cqs[1], "the receive after RESET", 2, IBV_WC_SUCCESS) &&
	     completed(send_cqs[0], "the send after RESET", 2, IBV_WC_SUCCESS);
	took = now_us() - before;
	finish();
	return ok && at_least(took, LONGEST_RNR_US);
}

/* A receive that no message has taken is gone with RESET: the first message after that takes a later one. */
static bool run_receives_after_reset(void)
{
	bool ok;

	region_fill(&regions[0]);
	region_fill(&regions[1]);
	start(PATIENT);
	receive_one(1, 1, 0);
	receive_one(1, 2, LENGTH);
	send_one(1);
	ok = completed(send_cqs[0], "the send", 1, IBV_WC_SUCCESS) &&
	     completed(recv_cqs[1], "the receive", 1, IBV_WC_SUCCESS);
	start_again(PATIENT);
	receive_one(1, 3, 2 * LENGTH);
	send_one(2);
	ok = ok && completed(send_cqs[0], "the send after RESET", 2, IBV_WC_SUCCESS) &&
	     completed(recv_cqs[1], "the receive after RESET", 3, IBV_WC_SUCCESS) &&
	     cq_quiet(recv_cqs[1], QUIET_MS);
	memcpy(regions[1].expected, regions[0].memory, LENGTH);
	memcpy(regions[1].expected + 2 * LENGTH, regions[0].memory, LENGTH);
	ok = ok && region_check(&regions[1], "the receiver");
	finish();
	return ok;
}

#define NUMBERS 8

/* The number of a queue pair that is gone rests: packets that are late for that one must not find another. */
static bool run_numbers(void)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 1 };
	uint32_t numbers[NUMBERS];
	unsigned int i, j;
	bool ok = true;

	for (i = 0; i < NUMBERS; i++) {
		qps[0] = qp_make(&devices[0], IBV_QPT_RC, send_cqs[0], recv_cqs[0], depth, NULL);
		numbers[i] = qps[0]->qp_num;
		qp_free(qps[0]);
		qps[0] = NULL;
		for (j = 0; j < i; j++) {
			if (numbers[j] != numbers[i])
				continue;
			ksft_print_msg("queue pairs %u and %u have the number %#x\n", j, i, numbers[i]);
			ok = false;
		}
	}
	return ok;
}

static int64_t flush_many(void)
{
	struct depth depth = { .send = 1, .receive = 8000, .sges = 1 };
	struct ibv_cq *cq = cq_make(&devices[0], depth.receive);
	uint64_t began, took;
	unsigned int i;
	bool ok = true;

	qps[0] = qp_make(&devices[0], IBV_QPT_RC, send_cqs[0], cq, depth, NULL);
	if (qp_init(qps[0], 0, 0))
		die("RESET to INIT");
	for (i = 0; i < depth.receive; i++)
		receive_one(0, i, 0);
	qp_change(qps[0], (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "INIT to ERR");
	began = now_ms();
	for (i = 0; ok && i < depth.receive; i++)
		ok = completed(cq, "a receive", i, IBV_WC_WR_FLUSH_ERR);
	took = now_ms() - began;
	ksft_print_msg("%u receives: %llu ms\n", i, (unsigned long long)took);
	ok = ok && cq_quiet(cq, QUIET_MS);
	finish();
	cq_free(cq);
	return ok ? (int64_t)took : -1;
}

/* As many receives as a queue can hold do not take long. */
static bool run_flush_many(void)
{
	return in_time(flush_many, 4000);
}

/* The route of that end to the other one. */
static void route_change(int end, const char *action)
{
	if (!command("ip -n n%d route %s 10.0.0.0/24 dev %s proto kernel scope link src 10.0.0.%d", end + 1, action,
		     netdev_of(end + 1), end + 1))
		die("ip route %s", action);
}

static int64_t no_route(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256,
				    .ah_attr = { .is_global = 1, .port_num = PORT,
						 .grh = { .dgid = devices[1].gid,
							  .sgid_index = devices[0].gid_index,
							  .hop_limit = 64 } } };
	struct depth depth = { .send = 200, .receive = 1, .sges = 1 };
	struct ibv_cq *cq = cq_make(&devices[0], depth.send);
	struct ibv_sge sge = piece(0, 0);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };
	uint64_t began;
	unsigned int i;

	qps[0] = qp_make(&devices[0], IBV_QPT_UC, cq, recv_cqs[0], depth, NULL);
	if (qp_init(qps[0], 0, 0))
		die("RESET to INIT");
	qp_change(qps[0], attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, "UC to RTR");
	qp_change(qps[0], (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS }, IBV_QP_STATE | IBV_QP_SQ_PSN, "UC to RTS");
	route_change(0, "del");
	sge.length = 1u << 31;
	began = now_ms();
	for (i = 0; i < depth.send; i++) {
		send_post(qps[0], &wr);
	}
	qp_change(qps[0], (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "UC to ERR");
	began = now_ms() - began;
	route_change(0, "add");
	ksft_print_msg("%u requests of 2 GiB, and to ERR: %llu ms\n", i, (unsigned long long)began);
	finish();
	cq_free(cq);
	return began;
}

/*
 * Where no route is left, nothing stops an unreliable service: what it has queued, as many packets as anybody may
 * ask for, must not be gone through in one go, with the queue pair locked.
 */
static bool run_no_route(void)
{
	return in_time(no_route, 4000);
}

static unsigned long long unsent(int end)
{
	return device_counter_now(&devices[end], "send_err");
}

/* The port's counter of 16 bits says the same. */
static bool is_shown_by_port(int end)
{
	unsigned long long wanted = unsent(end), shown = device_counter(&devices[end], "../counters/port_xmit_discards");

	ksft_print_msg("port_xmit_discards: %llu of %llu\n", shown, wanted);
	return shown == (wanted < UINT16_MAX ? wanted : UINT16_MAX);
}

/* A burst of requests is as many packets. The second end cannot acknowledge the first request until its route is back. */
static bool run_unsent(void)
{
	struct ibv_sge sge = region_sge(&regions[0], 0, SIZE);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };
	unsigned long long before, count;
	bool ok;

	/* The ACK timeout is so long that the route comes back first. */
	start(VERY_PATIENT);
	receive_one(1, 1, 0);
	before = unsent(1);
	route_change(1, "del");
	send_one(1);
	ok = completed(recv_cqs[1], "the receive", 1, IBV_WC_SUCCESS);
	count = unsent(1) - before;
	route_change(1, "add");
	ok = ok && completed(send_cqs[0], "the send", 1, IBV_WC_SUCCESS);
	ksft_print_msg("%llu acknowledgements are not sent\n", count);
	ok = ok && count > 0;

	before = unsent(0);
	route_change(0, "del");
	send_post(qps[0], &wr);
	/* The packets are counted once: the time to repeat them has not come. */
	count = unsent(0) - before;
	route_change(0, "add");
	ksft_print_msg("%llu of %d packets of a WRITE are not sent\n", count, SIZE / 1024);
	ok = ok && count == SIZE / 1024 && is_shown_by_port(0);
	finish();
	return ok;
}

/*
 * READ responses without a route are a loss, which is counted once: nobody makes them anew before the
 * requester asks again. It does so after 2 s.
 */
static bool run_unsent_responses(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr = mr_make(devices[1].pd, regions[1].memory, SIZE, access);
	struct ibv_sge sge = region_sge(&regions[0], 0, SIZE);
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { (uintptr_t)regions[1].memory, mr->rkey },
	};
	unsigned long long before, count;
	bool ok;

	region_fill(&regions[1]);
	start((struct patience){ .timeout = 19, .retries = 7, .rnr_retries = 7 });
	before = unsent(1);
	route_change(1, "del");
	send_post(qps[0], &wr);
	usleep(quiet_ms(QUIET_MS) * 1000);
	count = unsent(1) - before;
	route_change(1, "add");
	ksft_print_msg("%llu packets are not sent, of %d responses\n", count, SIZE / 1024);
	ok = completed(send_cqs[0], "the READ", 1, IBV_WC_SUCCESS) && count == SIZE / 1024;
	if (memcmp(regions[0].memory, regions[1].memory, SIZE)) {
		ksft_print_msg("other bytes are read\n");
		ok = false;
	}
	finish();
	mr_free(mr);
	return ok;
}

/* A doorbell that is refused drops what was posted: it is not sent when the queue opens. */
static bool run_refused_doorbell(int state)
{
	bool ok;
	int error;

	make(NULL);
	if (state == IBV_QPS_INIT && qp_init(qps[0], 0, 0))
		die("RESET to INIT: %s", strerror(errno));
	error = try_send(1, 0);
	if (!error)
		ksft_print_msg("a send posted in state %d is taken\n", state);
	if (state == IBV_QPS_INIT)
		qp_change(qps[0], (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE,
			  "INIT to RESET");
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, PATIENT);
	region_fill(&regions[0]);
	receive_one(1, 11, 0);
	receive_one(1, 12, LENGTH);
	if (try_send(2, LENGTH))
		die("ibv_post_send in RTS");
	ok = completed(send_cqs[0], "the send", 2, IBV_WC_SUCCESS) &&
	     completed(recv_cqs[1], "the receive", 11, IBV_WC_SUCCESS) &&
	     cq_quiet(send_cqs[0], QUIET_MS) && cq_quiet(recv_cqs[1], QUIET_MS);
	if (memcmp(regions[1].memory, regions[0].memory + LENGTH, LENGTH)) {
		ksft_print_msg("it is not the second message that arrived\n");
		ok = false;
	}
	finish();
	return ok && error;
}

/* True if the device has an asynchronous event of that type within patience_ms(ms). */
static bool has_event(struct ibv_context *context, enum ibv_event_type type, int ms)
{
	struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	bool is;

	if (poll(&ready, 1, patience_ms(ms)) <= 0)
		return false;
	if (ibv_get_async_event(context, &event))
		die("ibv_get_async_event: %s", strerror(errno));
	is = event.event_type == type;
	if (!is)
		ksft_print_msg("event: %s\n", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	return is;
}

/* What fits in the queue is there, the rest is lost, and that is told once. */
static bool run_cq_overflow(void)
{
	struct ibv_cq *cq = cq_make(&devices[0], 3);
	struct ibv_context *context = devices[0].context;
	unsigned int capacity, id;
	bool ok = true;

	capacity = cq->cqe;
	if (capacity + 4 > DEPTH)
		die("a completion queue of 3 has room for %u", capacity);
	make(cq);
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, PATIENT);
	for (id = 0; id < capacity + 4; id++)
		receive_one(1, id, 0);
	for (id = 0; id < capacity + 4; id++)
		send_one(id);
	ok = has_event(context, IBV_EVENT_CQ_ERR, WAIT_MS);
	if (!ok)
		ksft_print_msg("there is no CQ_ERR\n");
	for (id = 0; ok && id < capacity; id++)
		ok = completed(cq, "a send", id, IBV_WC_SUCCESS);
	ok = ok && !has_event(context, IBV_EVENT_CQ_ERR, QUIET_MS);
	finish();
	cq_free(cq);
	return ok;
}

/* Completions that a queue holds, and room that is too little for them: also if it is rounded up to a power of two. */
#define HELD 20
#define TOO_FEW 10

static bool resized(struct ibv_cq *cq, int entries, int wanted)
{
	int error = ibv_resize_cq(cq, entries);

	if (error != wanted)
		ksft_print_msg("a resize to %d: %s\n", entries, strerror(error));
	return error == wanted;
}

/* A queue does not become smaller than what it holds. It stays as it is, with all of that, in order. */
static bool run_cq_holds_more(void)
{
	struct depth depth = { .send = HELD, .receive = HELD, .sges = 1 };
	struct ibv_cq *cq = cq_make(&devices[1], HELD);
	struct ibv_wc wc;
	uint64_t id;
	bool ok = true;

	qps[0] = qp_make(&devices[0], IBV_QPT_RC, send_cqs[0], recv_cqs[0], depth, NULL);
	qps[1] = qp_make(&devices[1], IBV_QPT_RC, send_cqs[1], cq, depth, NULL);
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, PATIENT);
	region_fill(&regions[0]);
	region_fill(&regions[1]);
	for (id = 0; id < HELD; id++)
		receive_one(1, id, id * LENGTH);
	for (id = 0; id < HELD; id++) {
		if (try_send(id, id * LENGTH))
			die("ibv_post_send");
	}
	/* A message that is acknowledged has been received: it is in the queue. */
	for (id = 0; ok && id < HELD; id++)
		ok = completed(send_cqs[0], "a send", id, IBV_WC_SUCCESS);
	ok = ok && resized(cq, TOO_FEW, EINVAL) && resized(cq, HELD, 0);
	for (id = 0; ok && id < HELD; id++) {
		ok = cq_poll(cq, &wc, 0) && wc.wr_id == id && wc.status == IBV_WC_SUCCESS && wc.byte_len == LENGTH;
		if (!ok)
			ksft_print_msg("completion %u is missing, or another\n", (unsigned int)id);
	}
	ok = ok && resized(cq, TOO_FEW, 0) && cq_quiet(cq, 0);
	if (memcmp(regions[1].memory, regions[0].memory, HELD * LENGTH)) {
		ksft_print_msg("the bytes that arrived are others\n");
		ok = false;
	}
	/* Otherwise the queues may still be full. */
	if (ok) {
		receive_one(1, HELD, 0);
		send_one(HELD);
		ok = completed(cq, "the receive behind it", HELD, IBV_WC_SUCCESS);
	}
	finish();
	cq_free(cq);
	return ok;
}

/* An event, and that the queue is polled until nothing is found, as ibv_start_poll(3) wants it. */
static bool polled(struct ibv_comp_channel *channel, struct ibv_cq_ex *cq, unsigned int id)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq *from;
	void *context;
	bool ok;

	if (poll(&ready, 1, patience_ms(WAIT_MS)) != 1 || ibv_get_cq_event(channel, &from, &context)) {
		ksft_print_msg("no event for completion %u\n", id);
		return false;
	}
	ibv_ack_cq_events(from, 1);
	if (ibv_req_notify_cq(from, 0))
		die("ibv_req_notify_cq");
	if (ibv_start_poll(cq, &attr)) {
		ksft_print_msg("completion %u is not there\n", id);
		return false;
	}
	ok = cq->wr_id == id && cq->status == IBV_WC_SUCCESS;
	if (!ok)
		ksft_print_msg("wr_id %llu, %s instead of %u\n", (unsigned long long)cq->wr_id,
			       ibv_wc_status_str(cq->status), id);
	if (ibv_next_poll(cq) != ENOENT) {
		ksft_print_msg("there is more than completion %u\n", id);
		ok = false;
	}
	ibv_end_poll(cq);
	return ok;
}

/* The provider of rdma-core 44 goes one slot too far with it. */
static bool run_cq_ex(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(devices[0].context);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 3,
		.channel = channel,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN,
	};
	struct ibv_context *context = devices[0].context;
	struct ibv_cq_ex *cq;
	struct ibv_wc wc;
	unsigned int id;
	bool ok = true;

	cq = channel ? ibv_create_cq_ex(context, &attr) : NULL;
	if (!cq)
		die("ibv_create_cq_ex: %s", strerror(errno));
	make(ibv_cq_ex_to_cq(cq));
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, PATIENT);
	if (ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0))
		die("ibv_req_notify_cq");
	for (id = 0; ok && id < 4 * DEPTH; id++) {
		receive_one(1, id, 0);
		send_one(id);
		ok = cq_poll(recv_cqs[1], &wc, WAIT_MS) && polled(channel, cq, id);
		/* The room is looked for when a completion comes, or before that. */
		if (id % 3 == 0 && ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0))
			die("ibv_req_notify_cq");
	}
	ok = ok && !has_event(context, IBV_EVENT_CQ_ERR, QUIET_MS);
	finish();
	if (ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) || ibv_destroy_comp_channel(channel))
		die("ibv_destroy_cq: %s", strerror(errno));
	return ok;
}

#define CHARGED 8000

static void make_window(struct device *device)
{
	if (!ibv_alloc_mw(device->pd, IBV_MW_TYPE_1))
		die("ibv_alloc_mw: %s", strerror(errno));
}

static void make_region(struct device *device)
{
	static uint8_t page[4096] __attribute__((aligned(4096)));

	if (!ibv_reg_mr(device->pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE))
		die("ibv_reg_mr: %s", strerror(errno));
}

static void make_handle(struct device *device)
{
	ah_make(device, device);
}

/* Frees the objects that CPUs' caches and KASAN keep: they count as active. */
static void caches_shrink(void)
{
	glob_t caches;
	size_t i;
	int fd;

	if (glob("/sys/kernel/slab/kmalloc-cg-*/shrink", 0, NULL, &caches))
		die("/sys/kernel/slab: there are no kmalloc-cg caches");
	for (i = 0; i < caches.gl_pathc; i++) {
		fd = open(caches.gl_pathv[i], O_WRONLY);
		if (fd < 0 || write(fd, "1", 1) != 1)
			die("%s: %s", caches.gl_pathv[i], strerror(errno));
		close(fd);
	}
	globfree(&caches);
}

/* Active objects in all kmalloc-cg caches. */
static long charged_allocations(void)
{
	long sum = 0, active;
	char line[512];
	FILE *file;

	caches_shrink();
	file = fopen("/proc/slabinfo", "r");
	if (!file)
		die("/proc/slabinfo: %s", strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "kmalloc-cg-%*s %ld", &active) == 1)
			sum += active;
	}
	fclose(file);
	return sum;
}

/*
 * An object takes several allocations, of the core and of the driver; `allocations` of them are charged to the
 * process's cgroup on Linux 7.2. Allocations are counted, as bytes include the process's own memory. Objects end with
 * their process.
 */
struct object {
	void (*make)(struct device *device);
	unsigned int allocations;
};

static bool is_charged(const void *argument)
{
	const struct object *object = argument;
	unsigned long long bytes;
	struct device device;
	long charged;
	int i;

	device_open(&device, devices[0].name, 4);
	object->make(&device);
	bytes = cgroup_number(CGROUP "/memory.current", NULL);
	charged = charged_allocations();
	for (i = 0; i < CHARGED; i++)
		object->make(&device);
	charged = charged_allocations() - charged;
	bytes = cgroup_number(CGROUP "/memory.current", NULL) - bytes;
	ksft_print_msg("each: %.2f allocations, of %u; the cgroup has %lld bytes more\n",
		       (double)charged / CHARGED, object->allocations, (long long)bytes / CHARGED);
	return 2 * charged >= (2 * object->allocations - 1) * (long)CHARGED;
}

/*
 * Workers may still free objects of an earlier row, which lowers the count of one try. A charge that is missing lowers
 * that of each.
 */
static bool run_charged(void (*make_object)(struct device *device), unsigned int allocations)
{
	struct object object = { make_object, allocations };

	return cgroup_run(is_charged, &object) || cgroup_run(is_charged, &object) || cgroup_run(is_charged, &object);
}

static bool run_windows_charged(void)
{
	return run_charged(make_window, 2);
}

static bool run_regions_charged(void)
{
	return run_charged(make_region, 5);
}

static bool run_handles_charged(void)
{
	return run_charged(make_handle, 2);
}

/* Rows that need control groups which charge memory. */
#define CHARGES true

static const struct row rows[] = {
	{ "RNR retries take as long as the timer's code says", run_rnr_timer },
	{ "a responder that is not ready is tried with one packet", run_not_ready },
	{ "one retry takes as long as the timeout says", run_timeout_short },
	{ "five retries take as long as the timeout says", run_timeout_retries },
	{ "the shortest timeout takes as long as the least one", run_timeout_least },
	{ "a retry after RESET, and its timeout", run_timeout_after_reset },
	{ "a retry after RESET, and its RNR timer", run_rnr_after_reset },
	{ "receives of before RESET are gone", run_receives_after_reset },
	{ "both queues are flushed in order, once", run_flush },
	{ "completions of a queue pair that is reset stay", .run_with = run_completions_stay, true },
	{ "completions of a queue pair that is destroyed stay", .run_with = run_completions_stay, false },
	{ "numbers of queue pairs are not used again at once", run_numbers },
	{ "thousands of receives are flushed at once", run_flush_many },
	{ "without a route a queue of long messages holds up nobody", run_no_route },
	{ "packets without a route count as not sent", run_unsent },
	{ "READ responses without a route", run_unsent_responses },
	{ "a doorbell in RESET is refused, and its request gone", .run_with = run_refused_doorbell, IBV_QPS_RESET },
	{ "a doorbell in INIT is refused, and its request gone", .run_with = run_refused_doorbell, IBV_QPS_INIT },
	{ "a completion queue overflows", run_cq_overflow },
	{ "a completion queue holds more than it is to have room for", run_cq_holds_more },
	{ "a completion queue is polled until it is empty, by ibv_start_poll()", run_cq_ex },
	{ "memory windows are charged to who makes them", run_windows_charged, .needs = CHARGES },
	{ "memory regions are charged to who makes them", run_regions_charged, .needs = CHARGES },
	{ "address handles are charged to who makes them", run_handles_charged, .needs = CHARGES },
};

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		region_make(&regions[i], &devices[i], SIZE, IBV_ACCESS_LOCAL_WRITE);
		send_cqs[i] = cq_make(&devices[i], 4 * DEPTH);
		recv_cqs[i] = cq_make(&devices[i], 4 * DEPTH);
	}
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		cq_free(send_cqs[i]);
		cq_free(recv_cqs[i]);
		region_free(&regions[i]);
	}
}

static bool run_row(const struct row *row)
{
	if (row->needs == CHARGES && !cgroup_has("memory"))
		return row_skip("no memory cgroups");
	return row_run(row);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end, .run_row = run_row };
