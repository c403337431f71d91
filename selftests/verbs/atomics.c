// SPDX-License-Identifier: GPL-2.0
/*
 * Fetch-and-add and compare-and-swap between two devices: the values returned,
 * the values left, the bytes around them, and that two never see the same value; nor do they
 * and a CPU that changes the same word.
 *
 * atomics [-4|-6] [-c] [-l] DEVICE DEVICE
 *	-c	one more row, with a CPU
 *	-l	the network is lossy: leave out what is refused, by a NAK that is sent once
 */

#include <pthread.h>
#include <stdatomic.h>

#include "test.h"

#define SIZE 4096
#define WORD 8
#define LINKS 8
#define DEPTH 16
#define WAIT_MS 20000
/* Of the peer, beside the CPU. */
#define TURNS 2000

#define TARGET_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct device device;
	struct region results;
	struct region target;
	struct ibv_cq *cq;
};

static struct end ends[2];
static struct ibv_qp *qps[LINKS][2];

static void links_make(unsigned int count)
{
	struct depth depth = { .send = DEPTH, .receive = 1, .sges = 1 };
	unsigned int i, j;

	for (i = 0; i < count; i++) {
		for (j = 0; j < 2; j++)
			qps[i][j] = qp_make(&ends[j].device, IBV_QPT_RC, ends[j].cq, ends[j].cq,
					    depth, NULL);
		qp_connect(&ends[0].device, qps[i][0], &ends[1].device, qps[i][1], IBV_MTU_1024, PATIENT);
	}
	for (j = 0; j < 2; j++) {
		region_fill(&ends[j].results);
		region_fill(&ends[j].target);
	}
}

static bool links_end(unsigned int count)
{
	unsigned int i, j;
	bool ok = true;

	for (i = 0; i < count; i++) {
		for (j = 0; j < 2; j++) {
			qp_free(qps[i][j]);
		}
	}
	for (j = 0; j < 2; j++) {
		ok &= region_check(&ends[j].results, "results");
		ok &= region_check(&ends[j].target, "target");
		ok &= cq_quiet(ends[j].cq, 0);
	}
	return ok;
}

struct atomic {
	enum ibv_wr_opcode opcode;
	uint64_t compare_add;
	uint64_t swap;
	size_t result;
	/* Bytes of the request's list, if not those of the result. */
	uint32_t room;
	size_t target;
	/* Where the target is, if not in the region for it. */
	const struct ibv_mr *mr;
};

static void post(unsigned int link, unsigned int from, const struct atomic *atomic, uint64_t id)
{
	struct ibv_sge sge = region_sge(&ends[from].results, atomic->result, atomic->room ? atomic->room : WORD);
	const struct ibv_mr *mr = atomic->mr ? atomic->mr : ends[!from].target.mr;
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = atomic->opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.atomic = {
			.remote_addr = (uintptr_t)mr->addr + atomic->target,
			.rkey = mr->rkey,
			.compare_add = atomic->compare_add,
			.swap = atomic->swap,
		},
	};

	send_post(qps[link][from], &wr);
}

static bool completed(unsigned int from, const struct atomic *atomic, uint64_t id,
		      enum ibv_wc_status status)
{
	enum ibv_wc_opcode opcode = atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP
		? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD;
	struct ibv_wc wc;

	if (!cq_poll(ends[from].cq, &wc, WAIT_MS)) {
		printf("# no completion\n");
		return false;
	}
	if (wc.status == status && wc.wr_id == id &&
	    (status || (wc.opcode == opcode && wc.byte_len == WORD)))
		return true;
	printf("# %s, wr_id %llu, opcode %d, byte_len %u instead of %s, %llu, %d, %d\n",
	       ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id, wc.opcode, wc.byte_len,
	       ibv_wc_status_str(status), (unsigned long long)id, opcode, WORD);
	return false;
}

/* The same on both sides' expected bytes. */
static void expect(unsigned int from, const struct atomic *atomic)
{
	uint8_t *target = ends[!from].target.expected + atomic->target;
	uint64_t old, new;

	memcpy(&old, target, WORD);
	memcpy(ends[from].results.expected + atomic->result, &old, WORD);
	if (atomic->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		new = old + atomic->compare_add;
	else
		new = old == atomic->compare_add ? atomic->swap : old;
	memcpy(target, &new, WORD);
}

static bool run_each(enum ibv_wr_opcode opcode, bool hit, uint32_t room)
{
	unsigned int i, from;
	bool ok = true;

	links_make(1);
	for (i = 0; ok && i < 200; i++) {
		struct atomic atomic = {
			.opcode = opcode,
			.compare_add = random_next(),
			.swap = random_next(),
			/* The result may lie anywhere; the target must be aligned. */
			.result = random_between(0, SIZE - room),
			.room = room,
			.target = random_between(0, SIZE / WORD - 1) * WORD,
		};

		from = i % 2;
		if (hit)
			memcpy(&atomic.compare_add, ends[!from].target.expected + atomic.target,
			       WORD);
		post(0, from, &atomic, i);
		expect(from, &atomic);
		ok = completed(from, &atomic, i, IBV_WC_SUCCESS) &&
		     region_check(&ends[from].results, "results") &&
		     region_check(&ends[!from].target, "target");
	}
	return links_end(1) && ok;
}

static int by_value(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* All queue pairs add 1 to one word: every old value is seen just once. */
static bool run_counter(void)
{
	struct atomic atomic = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .compare_add = 1 };
	uint64_t seen[LINKS * DEPTH], first, last;
	unsigned int i, j;
	bool ok = true;
	struct ibv_wc wc;

	links_make(LINKS);
	atomic.target = 128 * WORD;
	memcpy(&first, ends[1].target.memory + atomic.target, WORD);
	for (j = 0; j < DEPTH; j++) {
		for (i = 0; i < LINKS; i++) {
			atomic.result = (i * DEPTH + j) * WORD;
			post(i, 0, &atomic, i);
		}
	}
	for (i = 0; ok && i < LINKS * DEPTH; i++) {
		ok = cq_poll(ends[0].cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS;
		if (!ok)
			printf("# completion %u is missing or wrong\n", i);
	}
	memcpy(seen, ends[0].results.memory, sizeof(seen));
	memcpy(ends[0].results.expected, seen, sizeof(seen));
	qsort(seen, LINKS * DEPTH, sizeof(seen[0]), by_value);
	for (i = 0; ok && i < LINKS * DEPTH; i++) {
		ok = seen[i] == first + i;
		if (!ok)
			printf("# value %u is %#llx instead of %#llx\n", i,
			       (unsigned long long)seen[i], (unsigned long long)first + i);
	}
	last = first + LINKS * DEPTH;
	memcpy(ends[1].target.expected + atomic.target, &last, WORD);
	return links_end(LINKS) && ok;
}

/*
 * What a CPU does with the target's words meanwhile: it adds to the upper half of the first, and turns the uppermost
 * bit of the second, which a peer only compares. Nobody else changes these: each time they must be as it left them.
 */
#define WORDS 2
#define UPPER (1ULL << 32)
#define FLIP (1ULL << 63)

static struct cpu {
	pthread_t thread;
	uint64_t *words;
	uint64_t added;
	bool is_flipped;
	bool is_undone;
	atomic_bool ends;
} cpu;

static void *run_cpu(void *unused)
{
	uint64_t old;

	(void)unused;
	while (!cpu.ends && !cpu.is_undone) {
		old = __atomic_fetch_add(&cpu.words[0], UPPER, __ATOMIC_SEQ_CST);
		cpu.is_undone |= old / UPPER != cpu.added++;
		old = __atomic_fetch_xor(&cpu.words[1], FLIP, __ATOMIC_SEQ_CST);
		cpu.is_undone |= !!(old & FLIP) != cpu.is_flipped;
		cpu.is_flipped = !cpu.is_flipped;
	}
	return NULL;
}

/* Atomic operations of a peer and of the CPU upon the same words: each is as if it were alone. */
static bool run_with_cpu(void)
{
	struct atomic add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .compare_add = 1 };
	struct atomic swap = { .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .target = WORD };
	uint64_t old, swapped = 0, first, second;
	unsigned int i, link;
	bool ok = true;

	links_make(LINKS);
	cpu = (struct cpu){ .words = (uint64_t *)ends[1].target.memory };
	memset(cpu.words, 0, WORDS * WORD);
	thread_start(&cpu.thread, run_cpu, NULL);
	/* It may begin late. */
	while (!__atomic_load_n(&cpu.added, __ATOMIC_RELAXED))
		;
	for (i = 0; ok && i < TURNS; i++) {
		/* Several: they may be on several CPUs. */
		link = i % LINKS;
		post(link, 0, &add, i);
		ok = completed(0, &add, i, IBV_WC_SUCCESS);
		memcpy(&old, ends[0].results.memory, WORD);
		if (ok && old % UPPER != i) {
			printf("# fetch and add %u: %#llx\n", i, (unsigned long long)old);
			ok = false;
		}
		swap.compare_add = swapped;
		swap.swap = swapped + 1;
		post(link, 0, &swap, i);
		ok = completed(0, &swap, i, IBV_WC_SUCCESS) && ok;
		memcpy(&old, ends[0].results.memory, WORD);
		if (ok && (old & ~FLIP) != swapped) {
			printf("# compare and swap %u: %#llx instead of %#llx\n", i, (unsigned long long)old,
			       (unsigned long long)swapped);
			ok = false;
		}
		swapped += old == swapped;
	}
	cpu.ends = true;
	pthread_join(cpu.thread, NULL);
	memcpy(&first, &cpu.words[0], WORD);
	memcpy(&second, &cpu.words[1], WORD);
	if (cpu.is_undone || first != cpu.added * UPPER + i || second != swapped + (cpu.is_flipped ? FLIP : 0)) {
		printf("# lost: %#llx and %#llx after %#llx additions and %s turns of the CPU, %u and %#llx of the peer\n",
		       (unsigned long long)first, (unsigned long long)second, (unsigned long long)cpu.added,
		       cpu.is_flipped ? "odd" : "even", i, (unsigned long long)swapped);
		ok = false;
	}
	/* Some must have met a word that the CPU had turned, and some not. */
	printf("# %u additions, %llu of as many swaps; %llu of the CPU of each\n", i, (unsigned long long)swapped,
	       (unsigned long long)cpu.added);
	ok &= swapped > 0 && swapped < i && cpu.added > i;
	if (ends[1].device.attr.atomic_cap != IBV_ATOMIC_GLOB) {
		printf("# the device promises atomicity of its own operations only\n");
		ok = false;
	}
	memcpy(ends[0].results.expected, ends[0].results.memory, WORD);
	memcpy(ends[1].target.expected, cpu.words, WORDS * WORD);
	return links_end(LINKS) && ok;
}

/* The target refuses, nothing changes, and the queue pair is in error. */
static bool run_refused(const struct ibv_mr *mr, size_t target)
{
	struct atomic atomic = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.compare_add = 1,
		.target = target,
		.mr = mr,
	};
	bool ok;

	links_make(1);
	post(0, 0, &atomic, 7);
	ok = completed(0, &atomic, 7, IBV_WC_REM_ACCESS_ERR);
	if (qp_state(qps[0][0]) != IBV_QPS_ERR) {
		printf("# the queue pair is in state %d\n", qp_state(qps[0][0]));
		ok = false;
	}
	return links_end(1) && ok;
}

static bool run_fetch_add(void)
{
	return run_each(IBV_WR_ATOMIC_FETCH_AND_ADD, false, WORD);
}

static bool run_equal(void)
{
	return run_each(IBV_WR_ATOMIC_CMP_AND_SWP, true, WORD);
}

static bool run_unequal(void)
{
	return run_each(IBV_WR_ATOMIC_CMP_AND_SWP, false, WORD);
}

/* Only the first eight bytes change. */
static bool run_with_room(void)
{
	return run_each(IBV_WR_ATOMIC_FETCH_AND_ADD, false, 5 * WORD + 3);
}

static bool run_beyond(void)
{
	return run_refused(ends[1].target.mr, SIZE);
}

static bool run_not_allowed(void)
{
	return run_refused(ends[1].results.mr, 0);
}

enum { ALWAYS, WITH_CPU, NOT_LOSSY };

static const struct row rows[] = {
	{ "fetch and add", run_fetch_add },
	{ "compare and swap, equal", run_equal },
	{ "compare and swap, unequal", run_unequal },
	{ "more room than for the result", run_with_room },
	{ "8 queue pairs count in one word", run_counter },
	{ "a CPU counts in the same words", run_with_cpu, .needs = WITH_CPU },
	{ "a target after the region", run_beyond, .needs = NOT_LOSSY },
	{ "a target without the permission", run_not_allowed, .needs = NOT_LOSSY },
};

static bool is_lossy, with_cpu;

static void add(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].needs == ALWAYS || (rows[i].needs == WITH_CPU ? with_cpu : !is_lossy))
			row_add(rows[i]);
}

static bool take_option(int option, const char *argument)
{
	if (option == 'l')
		is_lossy = true;
	else
		with_cpu = true;
	return true;
}

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, names[i], family);
		region_make(&end->results, &end->device, SIZE, IBV_ACCESS_LOCAL_WRITE);
		region_make(&end->target, &end->device, SIZE, TARGET_ACCESS);
		end->cq = cq_make(&end->device, LINKS * DEPTH);
	}
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		cq_free(ends[i].cq);
		region_free(&ends[i].results);
		region_free(&ends[i].target);
		device_close(&ends[i].device);
	}
}

const struct test test = { .options = "cl", .option = take_option, .add = add, .begin = begin, .end = end };
