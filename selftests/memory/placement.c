// SPDX-License-Identifier: GPL-2.0
/*
 * ATOMIC WRITE and FLUSH between two devices (IBTA 1.7, annex A19): the bytes, the
 * completions, that nobody sees half a word, and what must be refused.
 *
 * placement [-4|-6] [-l] [-p FILE] DEVICE DEVICE
 *	-l	the network is lossy: leave out what is refused, by a NAK that is sent once
 *	-p	only flushes for persistence, of memory that keeps its contents: FILE is a device
 *		like /dev/dax0.0
 *
 * Test: ATOMIC WRITE and FLUSH
 * Suites: all
 */

#include <fcntl.h>
#include <sys/mman.h>

#include "test.h"
#include "watcher.h"

#ifdef NO_FLUSH
/* libibverbs of rdma-core 44 cannot post a FLUSH: rows that do are skipped. The kernel's values. */
enum {
	IBV_ACCESS_FLUSH_GLOBAL = 1 << 8,
	IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9,
	IBV_FLUSH_GLOBAL = 1,
	IBV_FLUSH_PERSISTENT = 2,
	IBV_FLUSH_RANGE = 0,
	IBV_FLUSH_MR = 1,
	IBV_QP_EX_WITH_FLUSH = 0,
};
#define IBV_WC_FLUSH ((enum ibv_wc_opcode)8)
#define ibv_wr_flush(qp, rkey, address, length, type, level)                                       \
	die("%p: no FLUSH %x %llx %zu %u %u", (void *)(qp), rkey, (unsigned long long)(address),   \
	    length, type, level)
#endif

#define SIZE 16384
#define WORD 8
#define LENGTH 3000
#define DEPTH 64
#define WAIT_MS 20000
#define ROUNDS 200

#define QP_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define MR_ACCESS (QP_ACCESS | IBV_ACCESS_FLUSH_GLOBAL)
#define BOTH (IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT)

struct end {
	struct device device;
	/* What a peer may do anything to but flush it for persistence, and what it may do nothing to. */
	struct region open;
	struct region shut;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct end ends[2];
/* The one that asks, and its peer. */
static struct end *const a = &ends[0], *const b = &ends[1];

static struct ibv_qp *qp_ex_make(struct end *end)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->device.pd,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->device.context, &attr);

	if (!qp)
		die("%s: ibv_create_qp_ex: %s", end->device.name, strerror(errno));
	return qp;
}

/* access is what b's queue pair allows its peer. */
static void start(int access)
{
	int i;

	for (i = 0; i < 2; i++) {
		ends[i].qp = qp_ex_make(&ends[i]);
		region_fill(&ends[i].open);
		region_fill(&ends[i].shut);
	}
	qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, PATIENT);
	qp_change(b->qp, (struct ibv_qp_attr){ .qp_access_flags = access }, IBV_QP_ACCESS_FLAGS, "the access flags");
}

static void start_open(void)
{
	start(QP_ACCESS | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT);
}

static bool finish(void)
{
	bool ok = true;
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(ends[i].qp);
		ok &= region_check(&ends[i].open, i ? "the peer's memory" : "our memory");
		ok &= region_check(&ends[i].shut, i ? "the peer's shut memory" : "our shut memory");
		cq_drain(ends[i].cq);
	}
	return ok;
}

static struct ibv_qp_ex *work_begin(uint64_t id, unsigned int flags)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a->qp);

	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = flags;
	return qp;
}

static void end_of(struct ibv_qp_ex *qp)
{
	int error = ibv_wr_complete(qp);

	if (error)
		die("ibv_wr_complete: %s", strerror(error));
}

static void atomic_write(uint64_t id, uint32_t rkey, uint64_t address, uint64_t value,
			 unsigned int flags)
{
	struct ibv_qp_ex *qp = work_begin(id, flags);

	ibv_wr_atomic_write(qp, rkey, address, &value);
	end_of(qp);
}

static void flush(uint64_t id, uint32_t rkey, uint64_t address, size_t length, uint8_t type,
		  uint8_t level)
{
	struct ibv_qp_ex *qp = work_begin(id, IBV_SEND_SIGNALED);

	ibv_wr_flush(qp, rkey, address, length, type, level);
	end_of(qp);
}

static void write_or_read(uint64_t id, bool writes, size_t from, size_t to, uint32_t length,
			  unsigned int flags)
{
	struct ibv_qp_ex *qp = work_begin(id, flags);
	uint64_t address = (uintptr_t)b->open.memory + to;

	if (writes)
		ibv_wr_rdma_write(qp, b->open.mr->rkey, address);
	else
		ibv_wr_rdma_read(qp, b->open.mr->rkey, address);
	ibv_wr_set_sge(qp, a->open.mr->lkey, (uintptr_t)a->open.memory + from, length);
	end_of(qp);
}

static bool completed(const char *what, uint64_t id, enum ibv_wc_status status,
		      enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	if (!cq_poll(a->cq, &wc, WAIT_MS)) {
		printf("# %s does not complete\n", what);
		return false;
	}
	if (wc.wr_id == id && wc.status == status && (status || wc.opcode == opcode))
		return true;
	printf("# %s: wr_id %llu, %s, opcode %d instead of %llu, %s, %d\n", what,
	       (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.opcode,
	       (unsigned long long)id, ibv_wc_status_str(status), opcode);
	return false;
}

static bool run_capabilities(void)
{
	const struct {
		uint64_t bit;
		const char *name;
	} bits[] = {
		{ 1ULL << 38, "FLUSH_GLOBAL" },
		{ 1ULL << 39, "FLUSH_PERSISTENT" },
		{ 1ULL << 40, "ATOMIC_WRITE" },
	};
	struct ibv_device_attr_ex attr;
	bool ok = true;
	unsigned int i;

	if (ibv_query_device_ex(a->device.context, NULL, &attr))
		die("ibv_query_device_ex: %s", strerror(errno));
	for (i = 0; i < ARRAY_SIZE(bits); i++) {
		if (attr.device_cap_flags_ex & bits[i].bit)
			continue;
		printf("# the device has not IB_DEVICE_%s\n", bits[i].name);
		ok = false;
	}
	return ok;
}

static bool run_atomic_write(void)
{
	bool ok = true;
	unsigned int i;

	start_open();
	for (i = 0; ok && i < ROUNDS; i++) {
		size_t at = random_between(0, SIZE / WORD - 1) * WORD;
		uint64_t value = random_next();

		/* A flag that means nothing here must not matter. */
		atomic_write(i, b->open.mr->rkey, (uintptr_t)b->open.memory + at, value,
			     IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_INLINE : 0));
		memcpy(b->open.expected + at, &value, WORD);
		ok = completed("the atomic write", i, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE) &&
		     region_check(&b->open, "the peer's memory");
	}
	return finish() && ok;
}

/* More at a time than may be outstanding; the last one of each word counts. */
static bool run_atomic_write_queue(void)
{
	bool ok = true;
	unsigned int i;

	start_open();
	for (i = 0; i < DEPTH; i++) {
		size_t at = i % 5 * WORD;
		uint64_t value = random_next();

		atomic_write(i, b->open.mr->rkey, (uintptr_t)b->open.memory + at, value,
			     IBV_SEND_SIGNALED);
		memcpy(b->open.expected + at, &value, WORD);
	}
	for (i = 0; ok && i < DEPTH; i++)
		ok = completed("an atomic write", i, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE);
	return finish() && ok;
}

/* The values of a word, one after the other: each bit differs. */
static uint64_t values[2];

static bool is_written(uint64_t value)
{
	return value == values[0] || value == values[1];
}

/* All bits of a word change, again and again, under the eyes of somebody. */
static bool run_whole_words(void)
{
	uint64_t *word = (uint64_t *)b->open.memory + 7, end = now_ms() + patience_ms(WAIT_MS);
	struct watcher watcher;
	bool ok = true;
	unsigned int i;

	start_open();
	values[0] = *word;
	values[1] = ~*word;
	watcher_start(&watcher, word, WORD, is_written);
	/* The thread may begin late, or share a CPU with this one. */
	for (i = 0; ok && (i < ROUNDS || (watcher.changes < CHANGES && now_ms() < end)); i++) {
		atomic_write(i, b->open.mr->rkey, (uintptr_t)word, values[(i + 1) % 2], IBV_SEND_SIGNALED);
		ok = completed("the atomic write", i, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE);
	}
	watcher_end(&watcher);
	memcpy(b->open.expected + 7 * WORD, &values[i % 2], WORD);
	ksft_print_msg("%u atomic writes, %u changes seen\n", i, watcher.changes);
	if (watcher.torn)
		printf("# half a word was seen: %#llx\n", (unsigned long long)watcher.torn_value);
	return finish() && ok && !watcher.torn && watcher.changes >= CHANGES;
}

/* Once the FLUSH is complete, what was written before is there; the WRITE need not tell. */
static bool run_flush(int level)
{
	bool ok = true;
	unsigned int i;

	start_open();
	for (i = 0; ok && i < ROUNDS; i++) {
		size_t length = random_between(1, LENGTH);
		size_t from = random_between(0, SIZE - length);
		size_t to = random_between(0, SIZE - length);
		uint64_t address = (uintptr_t)b->open.memory + to;

		write_or_read(1000, true, from, to, length, 0);
		memcpy(b->open.expected + to, a->open.expected + from, length);
		if (level == IBV_FLUSH_MR) {
			/* They mean nothing. */
			address = random_next();
			length = i % 3 ? random_between(0, UINT32_MAX) : 0;
		} else if (i % 8 == 0) {
			length = 0;
		}
		flush(i, b->open.mr->rkey, address, length, IBV_FLUSH_GLOBAL, level);
		ok = completed("the flush", i, IBV_WC_SUCCESS, IBV_WC_FLUSH) &&
		     region_check(&b->open, "the peer's memory");
	}
	return finish() && ok;
}

/* As a log is kept: data, flush, pointer, flush; and it is read back. More than may be outstanding. */
static bool run_log(void)
{
	const enum ibv_wc_opcode opcodes[5] = {
		IBV_WC_RDMA_WRITE, IBV_WC_FLUSH, IBV_WC_ATOMIC_WRITE, IBV_WC_FLUSH, IBV_WC_RDMA_READ,
	};
	uint64_t address = (uintptr_t)b->open.memory, id = 0;
	uint32_t rkey = b->open.mr->rkey;
	bool ok = true;
	unsigned int i, j;

	start_open();
	for (i = 0; i < DEPTH / 5; i++) {
		size_t at = 4096 + i * 64, back = 8192 + i * 128;
		uint64_t value = random_next();

		write_or_read(id++, true, i * 64, at, 64, IBV_SEND_SIGNALED);
		memcpy(b->open.expected + at, a->open.expected + i * 64, 64);
		flush(id++, rkey, address + at, 64, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		atomic_write(id++, rkey, address + i * WORD, value, IBV_SEND_SIGNALED);
		memcpy(b->open.expected + i * WORD, &value, WORD);
		flush(id++, rkey, 0, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
		write_or_read(id++, false, back, at, 64, IBV_SEND_SIGNALED);
		memcpy(a->open.expected + back, b->open.expected + at, 64);
	}
	for (i = 0, id = 0; ok && i < DEPTH / 5; i++) {
		for (j = 0; ok && j < 5; j++, id++)
			ok = completed("a step", id, IBV_WC_SUCCESS, opcodes[j]);
	}
	return finish() && ok;
}

/* What was just posted is refused, what is behind it is flushed, and nothing was written. */
static bool refused(enum ibv_wc_status status)
{
	bool ok;

	atomic_write(2, b->open.mr->rkey, (uintptr_t)b->open.memory, 1, IBV_SEND_SIGNALED);
	ok = completed("the request", 1, status, 0) &&
	     completed("the one behind it", 2, IBV_WC_WR_FLUSH_ERR, 0);
	if (ok && qp_state(a->qp) != IBV_QPS_ERR) {
		printf("# the queue pair is in state %d\n", qp_state(a->qp));
		ok = false;
	}
	return finish() && ok;
}

static bool refused_flush(uint32_t rkey, const void *address, size_t length, uint8_t type,
			  uint8_t level, enum ibv_wc_status status)
{
	flush(1, rkey, (uintptr_t)address, length, type, level);
	return refused(status);
}

/* Atomic writes, then flushes, which are refused. */
enum {
	WRITE_UNALIGNED, WRITE_KEY, WRITE_END, WRITE_SHUT, WRITE_SHUT_QP,
	FLUSH_KEY, FLUSH_KEY_REGION, FLUSH_END, FLUSH_SHUT, FLUSH_SHUT_REGION, FLUSH_SHUT_QP, PERSISTENT,
	PERSISTENT_AND_GLOBAL, PERSISTENT_SHUT_QP, NO_PLACEMENT, NO_SUCH_PLACEMENT, NO_SUCH_LEVEL
};

static const struct refusal {
	enum ibv_wc_status status;
	/* Of a FLUSH; without a length it has no address either. */
	uint8_t type;
	uint8_t level;
	size_t length;
	/* Of the peer's shut region, not of the open one. */
	bool is_shut;
	/* Its key is wrong in these bits. */
	uint32_t key;
	size_t at;
	/* The rights of the peer's queue pair; 0: all. */
	int access;
} refusals[] = {
	[WRITE_UNALIGNED] = { IBV_WC_REM_INV_REQ_ERR, .at = 4 },
	[WRITE_KEY] = { IBV_WC_REM_ACCESS_ERR, .key = 0x5a5a00 },
	[WRITE_END] = { IBV_WC_REM_ACCESS_ERR, .at = SIZE },
	[WRITE_SHUT] = { IBV_WC_REM_ACCESS_ERR, .is_shut = true },
	[WRITE_SHUT_QP] = { IBV_WC_REM_INV_REQ_ERR,
			    .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL },
	[FLUSH_KEY] = { IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, 8, .key = 0x5a5a00 },
	[FLUSH_KEY_REGION] = { IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, .key = 1 },
	[FLUSH_END] = { IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, SIZE, .at = 1 },
	[FLUSH_SHUT] = { IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, 8, .is_shut = true },
	[FLUSH_SHUT_REGION] = { IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, .is_shut = true },
	[FLUSH_SHUT_QP] = { IBV_WC_REM_INV_REQ_ERR, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, 8,
			    .access = QP_ACCESS | IBV_ACCESS_FLUSH_PERSISTENT },
	/* The region is for global visibility only, and so is, in the last of them, the queue pair. */
	[PERSISTENT] = { IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, 8 },
	[PERSISTENT_AND_GLOBAL] = { IBV_WC_REM_ACCESS_ERR, BOTH, IBV_FLUSH_MR },
	[PERSISTENT_SHUT_QP] = { IBV_WC_REM_INV_REQ_ERR, BOTH, IBV_FLUSH_RANGE, 8,
				 .access = QP_ACCESS | IBV_ACCESS_FLUSH_GLOBAL },
	[NO_PLACEMENT] = { IBV_WC_LOC_QP_OP_ERR, 0, IBV_FLUSH_RANGE, 8 },
	[NO_SUCH_PLACEMENT] = { IBV_WC_LOC_QP_OP_ERR, IBV_FLUSH_GLOBAL | 4, IBV_FLUSH_RANGE, 8 },
	[NO_SUCH_LEVEL] = { IBV_WC_LOC_QP_OP_ERR, IBV_FLUSH_GLOBAL, 2, 8 },
};

static bool run_refused(int which)
{
	const struct refusal *refusal = &refusals[which];
	const struct region *region = refusal->is_shut ? &b->shut : &b->open;
	const uint8_t *address = region->memory + refusal->at;
	uint32_t rkey = region->mr->rkey ^ refusal->key;

	if (refusal->access)
		start(refusal->access);
	else
		start_open();
	if (which >= FLUSH_KEY)
		return refused_flush(rkey, refusal->length ? address : NULL, refusal->length, refusal->type,
				     refusal->level, refusal->status);
	atomic_write(1, rkey, (uintptr_t)address, 1, IBV_SEND_SIGNALED);
	return refused(refusal->status);
}

/* Memory that forgets cannot be registered as if it did not. */
static bool registers(int access, int expected)
{
	struct ibv_mr *mr = ibv_reg_mr(a->device.pd, a->open.memory, SIZE,
				       access | IBV_ACCESS_FLUSH_PERSISTENT);

	if (mr) {
		printf("# ordinary memory is registered for persistence\n");
		ibv_dereg_mr(mr);
		return false;
	}
	if (errno == expected)
		return true;
	printf("# %s instead of %s\n", strerror(errno), strerror(expected));
	return false;
}

static bool run_register(void)
{
	return registers(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_GLOBAL, EINVAL);
}

static bool run_register_on_demand(void)
{
	return registers(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP);
}

/* Memory that is paged on demand: the word is written to a page that was never touched. */
static bool run_on_demand(void)
{
	struct ibv_mr *mr;
	uint8_t *memory;
	uint64_t value = random_next();
	bool ok;

	start_open();
	memory = aligned_alloc(4096, 64 * 4096);
	if (!memory)
		die("no memory");
	mr = mr_make(b->device.pd, memory, 64 * 4096, MR_ACCESS | IBV_ACCESS_ON_DEMAND);
	flush(1, mr->rkey, 0, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
	atomic_write(2, mr->rkey, (uintptr_t)memory + 50 * 4096 + 8, value, IBV_SEND_SIGNALED);
	flush(3, mr->rkey, (uintptr_t)memory, 64 * 4096, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	ok = completed("the flush before", 1, IBV_WC_SUCCESS, IBV_WC_FLUSH) &&
	     completed("the atomic write", 2, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE) &&
	     completed("the flush behind", 3, IBV_WC_SUCCESS, IBV_WC_FLUSH);
	if (ok && memcmp(memory + 50 * 4096 + 8, &value, WORD)) {
		printf("# the word was not written\n");
		ok = false;
	}
	if (ibv_dereg_mr(mr))
		die("ibv_dereg_mr");
	free(memory);
	return finish() && ok;
}

/* A window on half of the peer's memory, of a region that allows a peer nothing. */
#define WINDOW (SIZE / 2)

static struct ibv_mr *window_mr;

static struct ibv_mw *window_make(int access, enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = {
		.wr_id = 7,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.addr = (uintptr_t)b->open.memory + WINDOW,
			.length = WINDOW,
			.mw_access_flags = access,
		},
	};
	struct ibv_mw *mw = ibv_alloc_mw(b->device.pd, IBV_MW_TYPE_1);
	struct ibv_wc wc;
	int error;

	window_mr = ibv_reg_mr(b->device.pd, b->open.memory, SIZE,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!mw || !window_mr)
		die("no window: %s", strerror(errno));
	bind.bind_info.mr = window_mr;
	error = ibv_bind_mw(b->qp, mw, &bind);
	if (error)
		die("ibv_bind_mw: %s", strerror(error));
	if (cq_poll(b->cq, &wc, WAIT_MS) && wc.wr_id == 7 && wc.status == status)
		return mw;
	printf("# the window is not bound as it should be\n");
	if (ibv_dealloc_mw(mw) || ibv_dereg_mr(window_mr))
		die("the window does not go away");
	return NULL;
}

static void window_free(struct ibv_mw *mw)
{
	if (ibv_dealloc_mw(mw) || ibv_dereg_mr(window_mr))
		die("the window does not go away");
}

static bool run_window(void)
{
	uint64_t address = (uintptr_t)b->open.memory + WINDOW, value = random_next();
	struct ibv_mw *mw;
	bool ok;

	start_open();
	mw = window_make(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL, IBV_WC_SUCCESS);
	if (!mw)
		return finish() && false;
	atomic_write(3, mw->rkey, address + 64, value, IBV_SEND_SIGNALED);
	memcpy(b->open.expected + WINDOW + 64, &value, WORD);
	flush(4, mw->rkey, address, WINDOW, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	flush(5, mw->rkey, 3, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
	ok = completed("the atomic write", 3, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE) &&
	     completed("the flush of a range", 4, IBV_WC_SUCCESS, IBV_WC_FLUSH) &&
	     completed("the flush of all", 5, IBV_WC_SUCCESS, IBV_WC_FLUSH);
	ok = refused_flush(mw->rkey, (void *)(uintptr_t)(address - 1), 8, IBV_FLUSH_GLOBAL,
			   IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR) && ok;
	window_free(mw);
	return ok;
}

static bool run_window_shut(void)
{
	struct ibv_mw *mw;
	bool ok;

	start_open();
	mw = window_make(IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	if (!mw)
		return finish() && false;
	ok = refused_flush(mw->rkey, NULL, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR,
			   IBV_WC_REM_ACCESS_ERR);
	window_free(mw);
	return ok;
}

static bool run_window_persistent(void)
{
	struct ibv_mw *mw;

	start_open();
	mw = window_make(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_PERSISTENT,
			 IBV_WC_MW_BIND_ERR);
	if (mw)
		window_free(mw);
	return finish() && mw;
}

/* What a device like /dev/dax0.0 maps at the least. */
#define DURABLE_ALIGN (2u << 20)

static const char *durable_file;

static struct region durable_make(void)
{
	struct region region = { .size = SIZE };
	int fd = open(durable_file, O_RDWR);

	if (fd < 0)
		die("%s: %s", durable_file, strerror(errno));
	region.memory = mmap(NULL, DURABLE_ALIGN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region.expected = malloc(SIZE);
	if (region.memory == MAP_FAILED || !region.expected)
		die("%s: mmap: %s", durable_file, strerror(errno));
	close(fd);
	region_fill(&region);
	region.mr = mr_make(b->device.pd, region.memory, SIZE, MR_ACCESS | IBV_ACCESS_FLUSH_PERSISTENT);
	return region;
}

/* That it is persistent cannot be seen from here; that all of it works, and every byte, can. */
static bool run_durable(void)
{
	struct region open = b->open, durable = durable_make();
	bool ok = true;
	unsigned int i;

	start_open();
	for (i = 0; ok && i < ROUNDS; i++) {
		size_t length = random_between(1, LENGTH);
		size_t from = random_between(0, SIZE - length);
		size_t to = random_between(0, SIZE - length);
		size_t at = random_between(0, SIZE / WORD - 1) * WORD;
		uint64_t address = (uintptr_t)durable.memory, value = random_next();

		/* The WRITE goes to what is open. */
		b->open = durable;
		write_or_read(1000, true, from, to, length, 0);
		b->open = open;
		memcpy(durable.expected + to, a->open.expected + from, length);
		flush(i, durable.mr->rkey, address + to, length, i % 2 ? IBV_FLUSH_PERSISTENT : BOTH,
		      i % 3 ? IBV_FLUSH_RANGE : IBV_FLUSH_MR);
		atomic_write(1001, durable.mr->rkey, address + at, value, IBV_SEND_SIGNALED);
		memcpy(durable.expected + at, &value, WORD);
		ok = completed("the flush", i, IBV_WC_SUCCESS, IBV_WC_FLUSH) &&
		     completed("the atomic write", 1001, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE) &&
		     region_check(&durable, "the memory that keeps its contents");
	}
	if (ibv_dereg_mr(durable.mr))
		die("ibv_dereg_mr");
	munmap(durable.memory, DURABLE_ALIGN);
	free(durable.expected);
	return finish() && ok;
}

/* Of the same memory, a region that is not registered for persistence. */
static bool run_durable_not_registered(void)
{
	struct region durable = durable_make();
	struct ibv_mr *mr = ibv_reg_mr(b->device.pd, durable.memory, SIZE, MR_ACCESS);
	bool ok;

	if (!mr)
		die("ibv_reg_mr: %s", strerror(errno));
	start_open();
	ok = refused_flush(mr->rkey, durable.memory, 8, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE,
			   IBV_WC_REM_ACCESS_ERR);
	if (ibv_dereg_mr(mr) || ibv_dereg_mr(durable.mr))
		die("ibv_dereg_mr");
	munmap(durable.memory, DURABLE_ALIGN);
	free(durable.expected);
	return ok;
}

/* What a row is: */
enum {
	/* Nothing in it depends on a packet that is sent once. */
	ROW_PATIENT = 1,
	/* It is for -p. */
	ROW_DURABLE = 2,
	/* It posts a FLUSH. */
	ROW_FLUSHES = 4,
};

#define REFUSED_FLUSH(which) .run_with = run_refused, (which), .needs = ROW_FLUSHES

static const struct row rows[] = {
	{ "the device says what it can do", run_capabilities },
	{ "atomic write", run_atomic_write, .needs = ROW_PATIENT },
	{ "atomic writes in a queue", run_atomic_write_queue, .needs = ROW_PATIENT },
	{ "atomic write of whole words", run_whole_words, .needs = ROW_PATIENT },
	{ "atomic write and flush of memory that is paged on demand", run_on_demand, .needs = ROW_PATIENT | ROW_FLUSHES },
	{ "flush of a range", .run_with = run_flush, IBV_FLUSH_RANGE, .needs = ROW_PATIENT | ROW_FLUSHES },
	{ "flush of a region", .run_with = run_flush, IBV_FLUSH_MR, .needs = ROW_PATIENT | ROW_FLUSHES },
	{ "write, flush, atomic write, flush, read", run_log, .needs = ROW_PATIENT | ROW_FLUSHES },
	{ "atomic write at an address that is not a multiple of eight", .run_with = run_refused, WRITE_UNALIGNED },
	{ "atomic write with an unknown key", .run_with = run_refused, WRITE_KEY },
	{ "atomic write after the region's end", .run_with = run_refused, WRITE_END },
	{ "atomic write where the region does not allow it", .run_with = run_refused, WRITE_SHUT },
	{ "atomic write where the queue pair does not allow it", .run_with = run_refused, WRITE_SHUT_QP },
	{ "flush with an unknown key", REFUSED_FLUSH(FLUSH_KEY) },
	{ "flush of a region with another variant of its key", REFUSED_FLUSH(FLUSH_KEY_REGION) },
	{ "flush beyond the region's end", REFUSED_FLUSH(FLUSH_END) },
	{ "flush of a range where the region does not allow it", REFUSED_FLUSH(FLUSH_SHUT) },
	{ "flush of a region that does not allow it", REFUSED_FLUSH(FLUSH_SHUT_REGION) },
	{ "flush where the queue pair does not allow it", REFUSED_FLUSH(FLUSH_SHUT_QP) },
	{ "flush for persistence of what is not registered for it", REFUSED_FLUSH(PERSISTENT) },
	{ "flush for both of what is not registered for it", REFUSED_FLUSH(PERSISTENT_AND_GLOBAL) },
	{ "flush for both where the queue pair does not allow it", REFUSED_FLUSH(PERSISTENT_SHUT_QP) },
	{ "atomic write and flush through a window", run_window, .needs = ROW_FLUSHES },
	{ "flush through a window that does not allow it", run_window_shut, .needs = ROW_FLUSHES },
	{ "a window for persistence on ordinary memory", run_window_persistent },
	{ "flush for nothing", REFUSED_FLUSH(NO_PLACEMENT) },
	{ "flush for something that is not known", REFUSED_FLUSH(NO_SUCH_PLACEMENT) },
	{ "flush of something that is not known", REFUSED_FLUSH(NO_SUCH_LEVEL) },
	{ "ordinary memory cannot be registered for persistence", run_register },
	{ "nor what is paged on demand", run_register_on_demand },
	{ "flush for persistence", run_durable, .needs = ROW_PATIENT | ROW_DURABLE | ROW_FLUSHES },
	{ "flush for persistence through another region", run_durable_not_registered, .needs = ROW_DURABLE | ROW_FLUSHES },
};

#ifdef NO_FLUSH
static const bool has_flush = false;
#else
static const bool has_flush = true;
#endif

static bool is_lossy;

static void add(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (!!(rows[i].needs & ROW_DURABLE) == !!durable_file && (!is_lossy || rows[i].needs & ROW_PATIENT))
			row_add(rows[i]);
}

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, names[i], family);
		region_make(&end->open, &end->device, SIZE, MR_ACCESS);
		region_make(&end->shut, &end->device, SIZE,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
			    IBV_ACCESS_REMOTE_READ);
		end->cq = cq_make(&end->device, 2 * DEPTH);
	}
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		cq_free(ends[i].cq);
		region_free(&ends[i].open);
		region_free(&ends[i].shut);
		device_close(&ends[i].device);
	}
}

static bool run_row(const struct row *row)
{
	if (row->needs & ROW_FLUSHES && !has_flush)
		return row_skip("libibverbs has no FLUSH");
	return row_run(row);
}

static bool take_option(int option, const char *argument)
{
	if (option == 'l')
		is_lossy = true;
	else
		durable_file = argument;
	return true;
}

const struct test test = {
	.options = "lp:", .option = take_option, .add = add, .begin = begin, .end = end, .run_row = run_row,
};
