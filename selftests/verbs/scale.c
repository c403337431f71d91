// SPDX-License-Identifier: GPL-2.0
/*
 * As much of everything as a large program has: queue pairs, memory regions, bytes of a region.
 */

#include <sys/mman.h>

#include "test.h"

#define WAIT_MS 60000
#define DEPTH 16
#define QPS 10000
/* KiB that an idle connected queue pair may take. */
#define MOST_OF_A_QP 64
#define MRS 100000
/* KiB that a region of one page may take. */
#define MOST_OF_AN_MR 4
#define LARGE ((size_t)3 << 29)
/* Messages of a round; rounds that there are at least and at most. */
#define MESSAGES 100
#define ROUNDS 50
#define MOST_ROUNDS 1000
#define ALL                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* The first asks, the second is its peer. */
static struct device *const a = &devices[0], *const b = &devices[1];

/* A queue pair of each device, connected with each other. */
struct pair {
	struct ibv_qp *qps[2];
};

static struct ibv_cq *cqs[2];
static const struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 1 };

/* A line of a file of /proc, in KiB. */
static long proc_kib(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	size_t length = strlen(name);
	char line[128];
	long value = -1;

	if (!file)
		die("%s: %s", path, strerror(errno));
	while (value < 0 && fgets(line, sizeof(line), file)) {
		if (!strncmp(line, name, length) && line[length] == ':')
			value = strtol(line + length + 1, NULL, 10);
	}
	fclose(file);
	if (value < 0)
		die("%s does not say %s", path, name);
	return value;
}

/* Memory that the kernel has taken for itself, but for a constant: what is not there any more, and is not ours. */
static long kernel_kib(void)
{
	return -proc_kib("/proc/meminfo", "MemAvailable") - proc_kib("/proc/self/status", "RssAnon");
}

static void connect_pair(struct pair *pair)
{
	int i;

	for (i = 0; i < 2; i++)
		pair->qps[i] = qp_make(&devices[i], IBV_QPT_RC, cqs[i], cqs[i], depth, NULL);
	qp_connect(a, pair->qps[0], b, pair->qps[1], IBV_MTU_1024, PATIENT);
}

static void destroy_pair(struct pair *pair)
{
	int i;

	for (i = 0; i < 2; i++)
		qp_free(pair->qps[i]);
}

/* A WRITE or READ of so many bytes, and its completion. */
static bool moves(struct pair *pair, enum ibv_wr_opcode opcode, void *local, struct ibv_mr *mr, void *remote,
		  uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)local, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)remote, .rkey = rkey },
	};
	struct ibv_wc wc;

	send_post(pair->qps[0], &wr);
	if (!cq_poll(cqs[0], &wc, WAIT_MS)) {
		ksft_print_msg("no completion\n");
		return false;
	}
	if (wc.status)
		ksft_print_msg("a message: %s\n", ibv_wc_status_str(wc.status));
	return !wc.status;
}

/*
 * Of so many rounds of messages that are waited for one by one, the fastest, if that is shorter than best: what else
 * the machine does only ever makes one longer.
 */
static uint64_t fastest(struct pair *pair, struct region *from, struct region *to, unsigned int rounds, uint64_t best)
{
	unsigned int i;

	while (rounds--) {
		uint64_t began = now_ns(), took;

		for (i = 0; i < MESSAGES; i++) {
			if (!moves(pair, IBV_WR_RDMA_WRITE, from->memory, from->mr, to->memory, to->mr->rkey, 64))
				die("the active queue pair has failed");
		}
		took = now_ns() - began;
		if (took < best)
			best = took;
	}
	return best;
}

/* Whether what took `among` is as fast as what took `alone`, within a tenth. */
static bool is_as_fast(uint64_t among, uint64_t alone)
{
	return among * 10 <= alone * 11;
}

static bool run_qps(void)
{
	static struct pair pairs[QPS / 2], active;
	uint64_t alone, among = UINT64_MAX, began;
	unsigned int i, rounds = ROUNDS;
	struct region from, to;
	long before, used;

	region_make(&from, a, 4096, ALL);
	region_make(&to, b, 4096, ALL);
	connect_pair(&active);
	alone = fastest(&active, &from, &to, ROUNDS, UINT64_MAX);
	before = kernel_kib();
	began = now_ms();
	for (i = 0; i < QPS / 2; i++)
		connect_pair(&pairs[i]);
	used = kernel_kib() - before;
	ksft_print_msg("%d queue pairs: %ld KiB each, %llu us each to create and connect\n", QPS, used / QPS,
		       (unsigned long long)(now_ms() - began) * 1000 / QPS);
	among = fastest(&active, &from, &to, ROUNDS, among);
	for (; !is_as_fast(among, alone) && rounds < MOST_ROUNDS; rounds += ROUNDS)
		among = fastest(&active, &from, &to, ROUNDS, among);
	/* The first and the last of them are there. */
	if (!moves(&pairs[0], IBV_WR_RDMA_WRITE, from.memory, from.mr, to.memory, to.mr->rkey, 64) ||
	    !moves(&pairs[QPS / 2 - 1], IBV_WR_RDMA_READ, from.memory, from.mr, to.memory, to.mr->rkey, 64))
		return false;
	began = now_ms();
	for (i = 0; i < QPS / 2; i++)
		destroy_pair(&pairs[i]);
	ksft_print_msg("%llu us each to destroy\n", (unsigned long long)(now_ms() - began) * 1000 / QPS);
	/* It may have been slow before because of others. */
	alone = fastest(&active, &from, &to, ROUNDS, alone);
	ksft_print_msg("one more: %llu ns a message alone, %llu among them, in the best of %u rounds\n",
		       (unsigned long long)alone / MESSAGES, (unsigned long long)among / MESSAGES, rounds);
	destroy_pair(&active);
	region_free(&from);
	region_free(&to);
	return is_as_fast(among, alone) && used / QPS < MOST_OF_A_QP;
}

static bool run_mrs(void)
{
	static struct ibv_mr *mrs[MRS];
	size_t page = sysconf(_SC_PAGESIZE);
	struct region from, to;
	struct pair pair;
	uint64_t began;
	long before, used;
	bool ok = true;
	int i;

	region_make(&from, a, page, ALL);
	region_make(&to, b, page, ALL);
	connect_pair(&pair);
	before = kernel_kib();
	began = now_ms();
	for (i = 0; i < MRS; i++)
		mrs[i] = mr_make(b->pd, to.memory, page, ALL);
	used = kernel_kib() - before;
	ksft_print_msg("%d regions: %ld bytes each, %llu us each to register\n", MRS, used * 1024 / MRS,
		       (unsigned long long)(now_ms() - began) * 1000 / MRS);
	for (i = 0; ok && i < MRS; i += i < 100 ? 1 : 997) {
		random_fill(from.memory, page);
		ok = moves(&pair, IBV_WR_RDMA_WRITE, from.memory, from.mr, to.memory, mrs[i]->rkey, page) &&
		     !memcmp(from.memory, to.memory, page);
		if (!ok)
			ksft_print_msg("region %d\n", i);
	}
	began = now_ms();
	for (i = 0; i < MRS; i++)
		mr_free(mrs[i]);
	ksft_print_msg("%llu us each to deregister\n", (unsigned long long)(now_ms() - began) * 1000 / MRS);
	destroy_pair(&pair);
	region_free(&from);
	region_free(&to);
	return ok && used / MRS < MOST_OF_AN_MR;
}

/* Bytes to and from places all over a region, also over the ends of its huge pages. */
static bool run_large(int access)
{
	size_t piece = (64 << 10) + 123, at;
	struct region from;
	struct ibv_mr *mr;
	struct pair pair;
	uint8_t *memory, *back;
	uint64_t began;
	bool ok = true;

	memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	back = malloc(piece);
	if (memory == MAP_FAILED || !back)
		die("no memory: %s", strerror(errno));
	region_make(&from, a, 2 * piece, ALL);
	connect_pair(&pair);
	began = now_ms();
	mr = mr_make(b->pd, memory, LARGE, ALL | access);
	ksft_print_msg("%llu ms to register\n", (unsigned long long)(now_ms() - began));
	for (at = 0; ok && at + piece <= LARGE; at += (16 << 20) - 4099) {
		random_fill(from.memory, piece);
		memcpy(back, from.memory, piece);
		ok = moves(&pair, IBV_WR_RDMA_WRITE, from.memory, from.mr, memory + at, mr->rkey, piece) &&
		     !memcmp(memory + at, back, piece) &&
		     moves(&pair, IBV_WR_RDMA_READ, from.memory + piece, from.mr, memory + at, mr->rkey, piece) &&
		     !memcmp(from.memory + piece, back, piece);
	}
	/* The last byte is its own, the next one is not. */
	ok = ok && moves(&pair, IBV_WR_RDMA_WRITE, from.memory, from.mr, memory + LARGE - 1, mr->rkey, 1) &&
	     memory[LARGE - 1] == from.memory[0];
	if (!ok)
		ksft_print_msg("at %#zx\n", at);
	began = now_ms();
	mr_free(mr);
	ksft_print_msg("%llu ms to deregister\n", (unsigned long long)(now_ms() - began));
	destroy_pair(&pair);
	region_free(&from);
	free(back);
	munmap(memory, LARGE);
	return ok;
}

static const struct row rows[] = {
	{ "10,000 connected queue pairs, and one that is as fast as alone", run_qps, .needs = 1100 },
	{ "100,000 memory regions", run_mrs, .needs = 600 },
	{ "a region of 1.5 GiB, pinned", .run_with = run_large, 0, .needs = 1700 },
	{ "a region of 1.5 GiB, paged on demand", .run_with = run_large, IBV_ACCESS_ON_DEMAND, .needs = 500 },
};

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++)
		cqs[i] = cq_make(&devices[i], DEPTH);
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++)
		cq_free(cqs[i]);
}

static bool run_row(const struct row *row)
{
	if (proc_kib("/proc/meminfo", "MemAvailable") < row->needs << 10)
		return row_skip("less than %ld MiB of memory: selftests/run --mem 4096", row->needs);
	return row_run(row);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end, .run_row = run_row };
