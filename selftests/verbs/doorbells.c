// SPDX-License-Identifier: GPL-2.0
/*
 * Bursts of doorbells, whose requests are held to leave in batches. A program that stops in the middle of what looked
 * like a burst waits for a timer, but not again and again.
 *
 * Test: batches of doorbells
 */

#include <pthread.h>

#include "test.h"

#define DEPTH 128
#define SIZE 4096
#define WAIT_MS 20000
/* After that, the devices know the program. */
#define FIRST 1000
#define TRIPS 2000
#define MOST_WAITS 16
#define BURSTS 200
#define TRIES 5
#define QKEY 0x11223344
#define LENGTH 12
#define LONGEST 300
#define HANDLES 20
#define QUIET_MS 2000
/* On one queue pair, and how many messages each sends. */
#define THREADS 2
#define NUMBERS (HANDLES * LENGTH)
/*
 * Queue pairs that are tried; how many requests of each are not held (`THRESHOLD_FIRST` of qp/doorbell.rs), how many then
 * are, fewer than a batch has, and for how long, in ns. The next ones come up to 20 steps after that.
 */
#define MOVES 200
#define AT_ONCE 8
#define HELD 20
#define HOLD_NS 500000
#define STEP_NS 50000
/* A number that is not there after so long is lost; it may be, in so many moves. */
#define LOST_MS 2000
#define MOST_LOST 1
/* How often threads send. */
#define ROUNDS_OF_THREADS 10
/* Queue pairs that are destroyed amid a burst: the timer does not send before that each time. */
#define ENDS 20
/* Of a row's argument: its queue pairs are UC. */
#define UC (1 << 16)

static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];
static struct region regions[2];

static void pair_make(int argument)
{
	const enum ibv_qp_type type = argument & UC ? IBV_QPT_UC : IBV_QPT_RC;
	const struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 1, .inline_size = sizeof(uint32_t) };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		memset(regions[i].memory, 0, SIZE);
		qps[i] = qp_make(&devices[i], type, cqs[i], cqs[i], depth, NULL);
	}
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, PATIENT);
}

static void pair_end(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		qp_free(qps[i]);
		cq_drain(cqs[i]);
	}
}

/* How often requests have been held until the timer fired. */
static unsigned long long waits(void)
{
	return device_counter_now(&devices[0], "hold_timeouts") + device_counter_now(&devices[1], "hold_timeouts");
}

/* Writes `value` where the peer of that side reads it. */
static void post(unsigned int side, uint32_t value, bool is_signaled)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&value, .length = sizeof(value) };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE | (is_signaled ? IBV_SEND_SIGNALED : 0),
		.wr.rdma = { (uintptr_t)regions[!side].memory, regions[!side].mr->rkey },
	};

	send_post(qps[side], &wr);
}

/* Waits for `value`. */
static bool comes(unsigned int side, uint32_t value)
{
	volatile uint32_t *place = (volatile uint32_t *)regions[side].memory;
	uint64_t end = now_ms() + patience_ms(WAIT_MS);

	while (*place != value) {
		if (now_ms() > end) {
			ksft_print_msg("%s: no message %u\n", devices[side].name, value);
			return false;
		}
	}
	return true;
}

static bool trips(unsigned int from, unsigned int to, unsigned int interval)
{
	bool is_signaled;
	unsigned int side;
	uint32_t i;

	for (i = from; i < to; i++) {
		is_signaled = i % interval == 0;
		for (side = 0; side < 2; side++) {
			post(side, i, is_signaled);
			if (!comes(!side, i))
				return false;
			if (is_signaled && !cq_expect(cqs[side], "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS))
				return false;
		}
	}
	return true;
}

/* Both sides look at their memory for the next message, and at the completion of one WRITE of so many only. */
static bool run_ping_pong(int argument)
{
	const unsigned int interval = argument & ~UC;
	unsigned long long before, after;
	bool ok;

	pair_make(argument);
	before = waits();
	ok = trips(1, FIRST, interval);
	after = waits();
	ksft_print_msg("%llu waits in the first %u round trips\n", after - before, FIRST);
	before = after;
	ok = ok && trips(FIRST, FIRST + TRIPS, interval);
	after = waits();
	ksft_print_msg("%llu waits in the next %u\n", after - before, TRIPS);
	pair_end();
	return ok && after - before <= MOST_WAITS;
}

/* So many messages are under way to the second device, which answers each that it sees. Completions as above. */
static bool window_trips(unsigned int from, unsigned int to, unsigned int window, unsigned int interval)
{
	const volatile uint32_t *there = (volatile uint32_t *)regions[1].memory;
	const volatile uint32_t *here = (volatile uint32_t *)regions[0].memory;
	uint64_t limit = now_ms() + patience_ms(WAIT_MS);
	uint32_t posted = from - 1, seen = posted;
	bool is_signaled;

	while (*here != to - 1) {
		if (posted < to - 1 && (posted < window || *here >= posted - window + 1)) {
			posted++;
			is_signaled = posted % interval == 0;
			post(0, posted, is_signaled);
			if (is_signaled && !cq_expect(cqs[0], "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS))
				return false;
		}
		if (*there != seen) {
			seen = *there;
			post(1, seen, true);
			if (!cq_expect(cqs[1], "answer", 0, IBV_WC_SUCCESS, WAIT_MS))
				return false;
		}
		if (now_ms() > limit) {
			ksft_print_msg("%u posted, %u seen, %u answered\n", posted, seen, *here);
			return false;
		}
	}
	return true;
}

static bool run_window(int window)
{
	const unsigned int interval = window + 8;
	unsigned long long before, after;
	bool ok;

	pair_make(window);
	ok = window_trips(1, FIRST, window, interval);
	before = waits();
	ok = ok && window_trips(FIRST, FIRST + TRIPS, window, interval);
	after = waits();
	ksft_print_msg("%llu waits in %u messages\n", after - before, TRIPS);
	pair_end();
	return ok && after - before <= MOST_WAITS;
}

/* The debug kernel takes longer to post a batch than requests are held. selftests/skips lists its skips. */
static bool is_slow(void)
{
	return patience_ms(1) > 1;
}

/*
 * All of a burst is posted, then its completions are taken. The messages are acknowledged together. Over UC nothing is:
 * there the doorbells count behind which a message is seen to arrive. Between namespaces it arrives before the doorbell
 * has returned.
 */
static bool bursts_once(int argument, uint32_t *value, bool *ok)
{
	unsigned long long acknowledgements = device_counter_now(&devices[1], "sent_pkts");
	const volatile uint32_t *there = (volatile uint32_t *)regions[1].memory;
	const unsigned int length = argument & ~UC, messages = BURSTS * length;
	unsigned int arrivals = 0, seen, i, j;

	for (i = 0; *ok && i < BURSTS; i++) {
		for (j = 0; j < length; j++) {
			seen = *there;
			post(0, ++*value, true);
			arrivals += *there != seen;
		}
		for (j = 0; *ok && j < length; j++)
			*ok = cq_expect(cqs[0], "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS);
		*ok = *ok && comes(1, *value);
	}
	acknowledgements = device_counter_now(&devices[1], "sent_pkts") - acknowledgements;
	ksft_print_msg("%llu acknowledgements of %u, arrivals behind %u doorbells\n", acknowledgements, messages, arrivals);
	return 2 * (argument & UC ? arrivals : acknowledgements) <= messages;
}

/* Where the timer has fired, the host gave the machine no time amid a burst: then once more. */
static bool bursts(int argument)
{
	unsigned long long before, after = waits();
	bool ok = true, are;
	uint32_t value = 0;
	unsigned int i = 0;

	do {
		before = after;
		are = bursts_once(argument, &value, &ok);
		after = waits();
		ksft_print_msg("%llu waits\n", after - before);
	} while (ok && !are && after > before && ++i < TRIES);
	if (ok && is_slow())
		return row_skip("the timer fires before a batch is posted");
	return ok && are;
}

static bool run_bursts(int length)
{
	bool ok;

	pair_make(length);
	ok = bursts(length);
	pair_end();
	return ok;
}

static bool run_change(int length)
{
	bool ok;

	pair_make(length);
	ok = trips(1, FIRST, 64) && bursts(length);
	pair_end();
	return ok;
}

/*
 * The requests of a burst, and of a list that is its last doorbell, are sent though their address handle is destroyed at
 * once, as mckey does it.
 */
static bool run_handle(int list)
{
	const unsigned int count = LENGTH + list;
	const struct depth depth = { .send = count, .receive = count, .sges = 1, .inline_size = sizeof(uint32_t) };
	struct ibv_sge from = { .length = sizeof(uint32_t) }, to = region_sge(&regions[1], 0, GRH + sizeof(uint32_t));
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 };
	struct ibv_send_wr wr = {
		.sg_list = &from,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};
	struct ibv_send_wr chain[LONGEST], *bad;
	unsigned int i, j, missing = 0;
	struct ibv_wc wc;

	for (i = 0; i < 2; i++)
		qps[i] = ud_make(&devices[i], cqs[i], cqs[i], depth, QKEY);
	wr.wr.ud.remote_qpn = qps[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	for (i = 0; i < HANDLES && !missing; i++) {
		wr.wr.ud.ah = ah_make(&devices[0], &devices[1]);
		for (j = 0; j < count; j++)
			recv_post(qps[1], &receive);
		for (j = 0; j < LENGTH; j++) {
			from.addr = (uintptr_t)&j;
			send_post(qps[0], &wr);
		}
		for (j = 0; j < (unsigned int)list; j++) {
			chain[j] = wr;
			chain[j].next = j + 1 < (unsigned int)list ? &chain[j + 1] : NULL;
		}
		if (list && ibv_post_send(qps[0], chain, &bad))
			die("ibv_post_send of a list: %s", strerror(errno));
		ah_free(wr.wr.ud.ah);
		for (j = 0; j < count && cq_poll(cqs[1], &wc, QUIET_MS) && !wc.status; j++)
			;
		missing = count - j;
	}
	if (missing)
		ksft_print_msg("%u of %u messages do not arrive\n", missing, count);
	pair_end();
	return !missing;
}

/* Sends numbers in bursts, with an address handle for each burst. The top byte of each is the thread's own number. */
static void *thread_sends(void *argument)
{
	const uint32_t thread = (uintptr_t)argument;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_IMM,
		.wr.ud = { .remote_qpn = qps[1]->qp_num, .remote_qkey = QKEY },
	};
	uint32_t number = 0;
	unsigned int i, j;

	for (i = 0; i < HANDLES; i++) {
		wr.wr.ud.ah = ah_make(&devices[0], &devices[1]);
		for (j = 0; j < LENGTH; j++) {
			wr.imm_data = htobe32(thread << 24 | number++);
			send_post(qps[0], &wr);
		}
		ah_free(wr.wr.ud.ah);
	}
	return NULL;
}

/* Threads send on one queue pair at once. All messages must arrive. in_order: those of each did so in their order. */
static bool threads_send(bool *in_order)
{
	const struct depth depth = { .send = THREADS * NUMBERS, .receive = THREADS * NUMBERS, .sges = 1 };
	struct ibv_sge to = region_sge(&regions[1], 0, GRH);
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 };
	bool came[THREADS][NUMBERS] = { 0 };
	uint32_t next[THREADS] = { 0 }, thread, number;
	pthread_t threads[THREADS];
	struct ibv_wc wc;
	bool ok = true;
	uintptr_t i;

	for (i = 0; i < 2; i++)
		qps[i] = ud_make(&devices[i], cqs[i], cqs[i], depth, QKEY);
	for (i = 0; i < THREADS * NUMBERS; i++)
		recv_post(qps[1], &receive);
	for (i = 0; i < THREADS; i++) {
		thread_start(&threads[i], thread_sends, (void *)i);
	}
	*in_order = true;
	for (i = 0; ok && i < THREADS * NUMBERS; i++) {
		ok = cq_poll(cqs[1], &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS;
		thread = ok ? be32toh(wc.imm_data) >> 24 : 0;
		number = ok ? be32toh(wc.imm_data) & 0xffffff : 0;
		ok = ok && thread < THREADS && number < NUMBERS && !came[thread][number];
		if (!ok) {
			ksft_print_msg("message %lu is not there, or one that none has sent, or twice\n", (unsigned long)i);
			break;
		}
		came[thread][number] = true;
		*in_order &= number == next[thread]++;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pair_end();
	return ok;
}

/*
 * The threads send in turn, each on its CPU. If the host lets one stand still amid what it sends, the kernel may leave the
 * rest to a thread, and the other CPU's messages overtake it. That is rare, as in run_moving(). None may be lost.
 */
static bool run_threads(void)
{
	unsigned int overtaken = 0, i;
	bool ok = true, in_order;

	for (i = 0; ok && overtaken <= MOST_LOST && i < ROUNDS_OF_THREADS; i++) {
		ok = threads_send(&in_order);
		overtaken += !in_order;
	}
	ksft_print_msg("messages overtaken in %u of %u rounds\n", overtaken, i);
	return ok && overtaken <= MOST_LOST;
}

/* WRITEs all memory `count` times, each time with the next number, the first one `from`. */
static void send_numbers(uint32_t from, uint32_t count)
{
	struct ibv_sge sge = region_sge(&regions[0], 0, SIZE);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)regions[1].memory, regions[1].mr->rkey },
	};
	uint32_t i;

	for (i = 0; i < count; i++) {
		wr.imm_data = htobe32(from + i);
		send_post(qps[0], &wr);
	}
}

/* Whether all arrive, in their order. */
static bool numbers_arrive(unsigned int count, int timeout_ms)
{
	struct ibv_wc wc;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (!cq_poll(cqs[1], &wc, timeout_ms) || wc.status != IBV_WC_SUCCESS || be32toh(wc.imm_data) != i) {
			ksft_print_msg("number %u is not there, or another one\n", i);
			return false;
		}
	}
	return true;
}

/*
 * A timer sends held requests, on the CPU where they were posted. About that time the program goes on to post on another
 * CPU. The later requests must not overtake the held ones: over UC, packets that were overtaken are lost. They may do so
 * if the host lets the first CPU stand still for long, which is rare.
 */
static bool run_moving(void)
{
	struct ibv_recv_wr receive = { 0 };
	unsigned long long before = waits();
	unsigned int lost = 0, i, j;
	struct ibv_wc wc;
	cpu_set_t cpus;
	uint64_t end;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return row_skip("there is one CPU");
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		die("sched_getaffinity: %s", strerror(errno));
	for (i = 0; lost <= MOST_LOST && i < MOVES; i++) {
		pair_make(UC);
		for (j = 0; j < HELD + 2 * AT_ONCE; j++)
			recv_post(qps[1], &receive);
		stay_on(i % 2);
		send_numbers(0, AT_ONCE);
		end = now_ns() + HOLD_NS + (i % 20) * STEP_NS;
		send_numbers(AT_ONCE, HELD);
		stay_on(!(i % 2));
		/* It ends the burst: the next requests are not held. */
		if (!cq_poll(cqs[0], &wc, WAIT_MS))
			die("no completion");
		while (now_ns() < end)
			;
		send_numbers(AT_ONCE + HELD, AT_ONCE);
		lost += !numbers_arrive(HELD + 2 * AT_ONCE, LOST_MS);
		pair_end();
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
	ksft_print_msg("%llu waits, numbers lost in %u of %u moves\n", waits() - before, lost, i);
	return lost <= MOST_LOST && waits() - before >= MOVES / 4;
}

/* The last requests of a burst are held when their queue pair is destroyed. They are sent before it goes. */
static bool run_destroyed(void)
{
	struct ibv_recv_wr receive = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM };
	unsigned int i, j;
	bool ok = true;

	for (i = 0; ok && i < ENDS; i++) {
		pair_make(UC);
		for (j = 0; j < LENGTH; j++)
			recv_post(qps[1], &receive);
		for (j = 0; j < LENGTH; j++) {
			wr.imm_data = htobe32(j);
			send_post(qps[0], &wr);
		}
		qp_free(qps[0]);
		qps[0] = NULL;
		ok = numbers_arrive(LENGTH, QUIET_MS);
		pair_end();
	}
	return ok;
}

static const struct row rows[] = {
	{ "ping-pong of WRITEs, each signaled", .run_with = run_ping_pong, 1 },
	{ "ping-pong of WRITEs, one of 4 signaled", .run_with = run_ping_pong, 4 },
	{ "ping-pong of WRITEs, one of 16 signaled", .run_with = run_ping_pong, 16 },
	{ "ping-pong of WRITEs, one of 64 signaled", .run_with = run_ping_pong, 64 },
	{ "16 WRITEs under way, one of 24 signaled", .run_with = run_window, 16 },
	{ "bursts of 12 WRITEs", .run_with = run_bursts, 12 },
	{ "bursts of 16 WRITEs", .run_with = run_bursts, 16 },
	{ "bursts of 40 WRITEs", .run_with = run_bursts, 40 },
	{ "bursts of 100 WRITEs", .run_with = run_bursts, 100 },
	{ "bursts of 16 WRITEs after a ping-pong", .run_with = run_change, 16 },
	{ "UC: ping-pong of WRITEs, one of 16 signaled", .run_with = run_ping_pong, UC | 16 },
	{ "UC: bursts of 12 WRITEs", .run_with = run_bursts, UC | 12 },
	{ "UC: bursts of 40 WRITEs", .run_with = run_bursts, UC | 40 },
	{ "UC: nothing overtakes what was held", run_moving },
	{ "UC: a burst, and its queue pair is destroyed", run_destroyed },
	{ "UD: a burst, and its address handle is destroyed", .run_with = run_handle, 0 },
	{ "UD: the same, behind it a list of 300", .run_with = run_handle, LONGEST },
	{ "UD: two threads, each with address handles of its own", run_threads },
};

static void begin(char **names)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		cqs[i] = cq_make(&devices[i], 4 * DEPTH);
		region_make(&regions[i], &devices[i], SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	}
}

static void end(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		cq_free(cqs[i]);
		region_free(&regions[i]);
	}
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end };
