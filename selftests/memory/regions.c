// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions that are registered again (REREG_MR): other rights, other memory, another protection domain.
 * Whatever a peer may do is seen through the region's key, which it must not be able to guess.
 *
 * Test: memory regions that are registered again
 */

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <rdma/ib_user_verbs.h>

#include "command.h"
#include "test.h"

#define SIZE (16 * 4096)
#define LENGTH 6000
#define WAIT_MS 20000
#define ROUNDS 400

#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)

/* The one that asks, and the one whose regions these are. */
static struct device *const a = &devices[0], *const b = &devices[1];
static struct ibv_cq *cqs[2];
/* What a sends. */
static struct region source;
/* Memory of b, and what it should contain. */
static uint8_t *places[2], expected[2][SIZE];

struct link {
	struct ibv_qp *qps[2];
};

/* b's end is in the protection domain pd. */
static struct link link_make(struct ibv_pd *pd)
{
	const struct depth depth = { .send = 4, .receive = 1, .sges = 1 };
	struct device other = *b;
	struct link link;

	other.pd = pd;
	link.qps[0] = qp_make(a, IBV_QPT_RC, cqs[0], cqs[0], depth, NULL);
	link.qps[1] = qp_make(&other, IBV_QPT_RC, cqs[1], cqs[1], depth, NULL);
	qp_connect(a, link.qps[0], &other, link.qps[1], IBV_MTU_1024, PATIENT);
	return link;
}

static void link_free(struct link *link)
{
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(link->qps[i]);
		cq_drain(cqs[i]);
	}
}

/* LENGTH bytes. Returns how the request ends. */
static enum ibv_wc_status access_by(struct link *link, enum ibv_wr_opcode opcode, const void *at, uint32_t rkey)
{
	struct ibv_sge sge = region_sge(&source, 0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)at, .rkey = rkey },
	};
	struct ibv_wc wc;

	send_post(link->qps[0], &wr);
	if (!cq_poll(cqs[0], &wc, WAIT_MS))
		die("no completion");
	return wc.status;
}

/* New bytes for the place from there on. */
static bool is_written(struct ibv_pd *pd, unsigned int place, size_t from, uint32_t rkey)
{
	struct link link = link_make(pd);
	enum ibv_wc_status status;

	region_fill(&source);
	status = access_by(&link, IBV_WR_RDMA_WRITE, places[place] + from, rkey);
	link_free(&link);
	if (status) {
		ksft_print_msg("WRITE to place %u + %zu: %s\n", place, from, ibv_wc_status_str(status));
		return false;
	}
	memcpy(expected[place] + from, source.expected, LENGTH);
	return true;
}

static bool is_refused(struct ibv_pd *pd, enum ibv_wr_opcode opcode, const void *at, uint32_t rkey)
{
	struct link link = link_make(pd);
	enum ibv_wc_status status = access_by(&link, opcode, at, rkey);

	link_free(&link);
	if (status != IBV_WC_REM_ACCESS_ERR)
		ksft_print_msg("%s: %s\n", opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE", ibv_wc_status_str(status));
	return status == IBV_WC_REM_ACCESS_ERR;
}

static bool are_as_expected(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		if (memcmp(places[i], expected[i], SIZE)) {
			ksft_print_msg("place %u has other bytes\n", i);
			return false;
		}
	}
	return true;
}

/* Zero, or the error. As ibv_rereg_mr(), which the provider does not have: the kernel's command. */
static int again_at(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *at, size_t size, int access, void *iova)
{
	struct ib_uverbs_rereg_mr_resp response = {};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_rereg_mr core;
	} command = {
		.core = {
			.response = (uintptr_t)&response,
			.mr_handle = mr->handle,
			.flags = flags,
			.start = (uintptr_t)at,
			.length = size,
			.hca_va = (uintptr_t)iova,
			.pd_handle = pd ? pd->handle : 0,
			.access_flags = access,
		},
	};
	int error;

	error = command_write(b->context, IB_USER_VERBS_CMD_REREG_MR, &command, sizeof(command), sizeof(response));
	if (error)
		return error;
	mr->lkey = response.lkey;
	mr->rkey = response.rkey;
	return 0;
}

static int again(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *at, size_t size, int access)
{
	return again_at(mr, flags, pd, at, size, access, at);
}

/* KiB of memory of this process that are pinned. */
static unsigned long pinned(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[200];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "VmPin: %lu", &kib) == 1)
			break;
	}
	if (!file || fclose(file))
		die("/proc/self/status: %s", strerror(errno));
	return kib;
}

static bool run_rights(void)
{
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	bool ok = is_written(b->pd, 0, 100, mr->rkey);

	ok = ok && !again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE);
	ok = ok && is_refused(b->pd, IBV_WR_RDMA_WRITE, places[0], mr->rkey);
	ok = ok && is_refused(b->pd, IBV_WR_RDMA_READ, places[0], mr->rkey);
	ok = ok && !again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS);
	ok = ok && is_written(b->pd, 0, 9000, mr->rkey);
	mr_free(mr);
	return ok;
}

static bool run_memory(void)
{
	unsigned long before = pinned();
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	bool ok = is_written(b->pd, 0, 0, mr->rkey);

	ok = ok && !again(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, places[1], SIZE / 2, 0);
	ok = ok && is_written(b->pd, 1, SIZE / 2 - LENGTH, mr->rkey);
	ok = ok && is_refused(b->pd, IBV_WR_RDMA_WRITE, places[0], mr->rkey);
	ok = ok && is_refused(b->pd, IBV_WR_RDMA_WRITE, places[1] + SIZE / 2 - LENGTH + 1, mr->rkey);
	if (ok && pinned() != before + SIZE / 2048) {
		ksft_print_msg("%lu KiB pinned, %lu before\n", pinned(), before);
		ok = false;
	}
	mr_free(mr);
	return ok && pinned() == before;
}

static bool run_domain(void)
{
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	struct ibv_pd *pd = ibv_alloc_pd(b->context);
	bool ok;

	if (!pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	ok = is_refused(pd, IBV_WR_RDMA_WRITE, places[0], mr->rkey);
	ok = ok && !again(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0);
	ok = ok && is_refused(b->pd, IBV_WR_RDMA_WRITE, places[0], mr->rkey);
	ok = ok && is_written(pd, 0, 1, mr->rkey);
	/* It is the region's now. */
	ok = ok && ibv_dealloc_pd(pd) == EBUSY;
	mr_free(mr);
	return !ibv_dealloc_pd(pd) && ok;
}

static bool run_all(void)
{
	const int flags = IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_pd *pd = ibv_alloc_pd(b->context);
	bool ok;

	if (!pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	ok = !again(mr, flags, pd, places[1] + 7, SIZE - 7, ALL_RIGHTS);
	ok = ok && is_written(pd, 1, 7, mr->rkey);
	ok = ok && is_refused(pd, IBV_WR_RDMA_WRITE, places[1] + 6, mr->rkey);
	ok = ok && is_refused(b->pd, IBV_WR_RDMA_WRITE, places[1] + 7, mr->rkey);
	mr_free(mr);
	return !ibv_dealloc_pd(pd) && ok;
}

static bool run_read_only(void)
{
	uint8_t *memory = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	struct link link;
	bool ok;

	if (memory == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	mr = mr_make(b->pd, memory, SIZE, 0);
	ok = again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS);
	ok = ok && !again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ);
	link = link_make(b->pd);
	region_fill(&source);
	ok = ok && access_by(&link, IBV_WR_RDMA_READ, memory, mr->rkey) == IBV_WC_SUCCESS &&
	     !memcmp(source.memory, memory, LENGTH);
	link_free(&link);
	mr_free(mr);
	munmap(memory, SIZE);
	return ok;
}

static bool run_on_demand(void)
{
	const int flags = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
	unsigned long before = pinned();
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	bool ok;

	/* How memory is held cannot change alone. */
	ok = again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS | IBV_ACCESS_ON_DEMAND) == EINVAL;
	ok = ok && is_written(b->pd, 0, 0, mr->rkey);
	ok = ok && !again(mr, flags, NULL, places[1], SIZE, ALL_RIGHTS | IBV_ACCESS_ON_DEMAND);
	ok = ok && pinned() == before;
	ok = ok && is_written(b->pd, 1, 5000, mr->rkey);
	ok = ok && again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS) == EINVAL;
	ok = ok && !again(mr, flags, NULL, places[0], SIZE, ALL_RIGHTS);
	ok = ok && is_written(b->pd, 0, 20000, mr->rkey);
	mr_free(mr);
	return ok;
}

/* A window keeps its region as it is. */
static bool run_window(void)
{
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	struct ibv_mw *window = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr, .addr = (uintptr_t)places[0], .length = SIZE,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	struct link link = link_make(b->pd);
	struct ibv_wc wc;
	bool ok;

	if (!window)
		die("ibv_alloc_mw: %s", strerror(errno));
	ok = !ibv_bind_mw(link.qps[1], window, &bind) && cq_poll(cqs[1], &wc, WAIT_MS) && !wc.status;
	ok = ok && again(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, places[1], SIZE, 0) == EBUSY;
	ok = ok && again(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == EBUSY;
	ok = ok && is_written(b->pd, 0, 300, window->rkey) && is_written(b->pd, 0, 9000, mr->rkey);
	link_free(&link);
	if (ibv_dealloc_mw(window))
		die("ibv_dealloc_mw: %s", strerror(errno));
	ok = ok && !again(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, places[1], SIZE, 0);
	ok = ok && is_written(b->pd, 1, 300, mr->rkey);
	mr_free(mr);
	return ok;
}

/* What cannot be registered leaves the region as it was. */
static bool run_nothing_there(void)
{
	uint8_t *gap = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	unsigned long before = pinned();
	bool ok;

	if (gap == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	ok = again(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, gap, SIZE, 0);
	ok = ok && again(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, gap, SIZE, ALL_RIGHTS);
	ok = ok && is_written(b->pd, 0, 4000, mr->rkey) && pinned() == before;
	mr_free(mr);
	munmap(gap, SIZE);
	return ok;
}

/* More than max_mr_size is refused for its length: nothing is pinned, which would fail otherwise. */
static bool run_too_long(void)
{
	struct ibv_mr *mr = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	struct ibv_device_attr device;
	uint8_t *gap;
	size_t size;
	bool ok;

	if (ibv_query_device(b->context, &device))
		die("ibv_query_device");
	size = device.max_mr_size + 4096;
	gap = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (gap == MAP_FAILED)
		die("mmap of %zu bytes: %s", size, strerror(errno));
	ok = !ibv_reg_mr(b->pd, gap, size, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL;
	ok = ok && again(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, gap, size, 0) == EINVAL;
	ok = ok && is_written(b->pd, 0, 4000, mr->rkey);
	mr_free(mr);
	munmap(gap, size);
	return ok;
}

/* Addresses from zero on are for windows. */
static bool run_zero_based(void)
{
	struct ibv_mr *mr = ibv_reg_mr(b->pd, places[0], SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
	int error = mr ? 0 : errno;

	if (mr)
		mr_free(mr);
	ksft_print_msg("%s\n", strerror(error));
	return error == EOPNOTSUPP;
}

#define KEYS 16
/* By chance there is none. */
#define MOST_FOLLOW 3

/* The number of a region is above the low byte of its key. If they were given out in turn, all would follow. */
static bool run_keys(void)
{
	struct ibv_mr *mrs[KEYS];
	unsigned int i, follow = 0;

	for (i = 0; i < KEYS; i++)
		mrs[i] = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	for (i = 1; i < KEYS; i++)
		follow += mrs[i]->lkey >> 8 == (mrs[i - 1]->lkey >> 8) + 1;
	ksft_print_msg("%u of %u keys follow the one before\n", follow, KEYS);
	for (i = 0; i < KEYS; i++)
		mr_free(mrs[i]);
	return follow <= MOST_FOLLOW;
}

static struct ibv_mr *shared;
static atomic_bool is_over;

/* Now this memory, now that. What the region has given up must stay as it is. */
static void *move_about(void *result)
{
	static uint8_t before[SIZE];
	bool *ok = result;
	int place = 0;

	while (!is_over && *ok) {
		uint8_t *former = places[place];

		place = !place;
		if (again_at(shared, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, places[place], SIZE, 0, places[0])) {
			ksft_print_msg("REREG_MR: %s\n", strerror(errno));
			*ok = false;
		}
		memcpy(before, former, SIZE);
		usleep(3000);
		if (memcmp(before, former, SIZE)) {
			ksft_print_msg("memory that was given up is written to\n");
			*ok = false;
		}
	}
	return NULL;
}

/*
 * A region that goes from one memory to another and back, in the midst of WRITEs and READs. It is as if it had been away for
 * a moment (IBTA 11.2.8.6): a message that has begun may be refused.
 */
static bool run_traffic(void)
{
	struct link link = link_make(b->pd);
	bool ok = true, is_quiet = true;
	int done = 0, refused = 0;
	pthread_t thread;

	shared = mr_make(b->pd, places[0], SIZE, ALL_RIGHTS);
	is_over = false;
	thread_start(&thread, move_about, &is_quiet);
	while (ok && is_quiet && done + refused < ROUNDS) {
		uint8_t *at = places[0] + random_between(0, SIZE - LENGTH);
		enum ibv_wr_opcode opcode = done % 4 == 3 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		enum ibv_wc_status status;

		region_fill(&source);
		status = access_by(&link, opcode, at, shared->rkey);
		if (!status) {
			done++;
		} else if (status == IBV_WC_REM_ACCESS_ERR) {
			refused++;
			link_free(&link);
			link = link_make(b->pd);
		} else {
			ksft_print_msg("%s\n", ibv_wc_status_str(status));
			ok = false;
		}
	}
	is_over = true;
	pthread_join(thread, NULL);
	ksft_print_msg("%d done, %d refused\n", done, refused);
	link_free(&link);
	ok = ok && is_quiet && done > ROUNDS / 4;
	ok = ok && !again(shared, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, places[0], SIZE, 0);
	for (unsigned int i = 0; i < 2; i++)
		memcpy(expected[i], places[i], SIZE);
	ok = ok && is_written(b->pd, 0, 5, shared->rkey);
	mr_free(shared);
	return ok;
}

static const struct row rows[] = {
	{ "other rights", run_rights },
	{ "other memory", run_memory },
	{ "another protection domain", run_domain },
	{ "all of it at once", run_all },
	{ "memory that is pinned for reading", run_read_only },
	{ "memory on demand, and back", run_on_demand },
	{ "a region that a window is bound to", run_window },
	{ "memory that is not there", run_nothing_there },
	{ "memory longer than max_mr_size", run_too_long },
	{ "a region that begins at zero", run_zero_based },
	{ "keys are not given out in turn", run_keys },
	{ "in the midst of messages", run_traffic },
};

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		cqs[i] = cq_make(&devices[i], 16);
		places[i] = pages_make(SIZE, MAP_PRIVATE | MAP_ANONYMOUS);
	}
	region_make(&source, a, LENGTH, IBV_ACCESS_LOCAL_WRITE);
}

static void end(void)
{
	int i;

	region_free(&source);
	for (i = 0; i < 2; i++)
		cq_free(cqs[i]);
}

static bool run_row(const struct row *row)
{
	int place;

	for (place = 0; place < 2; place++) {
		random_fill(expected[place], SIZE);
		memcpy(places[place], expected[place], SIZE);
	}
	return row_run(row) && are_as_expected();
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end, .run_row = run_row };
