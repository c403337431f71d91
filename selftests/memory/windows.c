// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: each state of a window with each thing that can be done to it, who
 * may bind what to which region, and who may then reach which bytes.
 *
 * Test: memory windows: each state, each operation
 * Suites: all
 */

#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "test.h"

#define SIZE 16384
#define START 4120
#define LENGTH 3000
#define DEPTH 64
#define WAIT_MS 10000
#define QUIET_MS 300
#define BINDABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
#define ALL (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct device device;
	struct ibv_cq *cq;
	struct ibv_cq *recv_cq;
	/* The second one is for those who have nothing to do with a window. */
	struct ibv_qp *qp[2];
};

static struct end ends[2];
/* The peer, and the owner of the windows. */
static struct end *const a = &ends[0], *const b = &ends[1];
/* Of the peer, for everything. Of the owner, for nothing but windows. */
static struct region data, hidden;
/* The owner's memory again: what windows are bound to. */
static struct ibv_mr *mr;
static struct ibv_mw *mw;
/* What the peer uses. */
static uint32_t key;
/* Of the devices. */
static char **names;

static void start(enum ibv_mw_type type)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 1 };
	int i, j;

	for (i = 0; i < 2; i++) {
		for (j = 0; j < 2; j++)
			ends[j].qp[i] = qp_make(&ends[j].device, IBV_QPT_RC, ends[j].cq,
						ends[j].recv_cq, depth, NULL);
		qp_connect(&a->device, a->qp[i], &b->device, b->qp[i], IBV_MTU_1024, PATIENT);
	}
	region_fill(&data);
	region_fill(&hidden);
	mr = ibv_reg_mr(b->device.pd, hidden.memory, SIZE, BINDABLE);
	mw = ibv_alloc_mw(b->device.pd, type);
	if (!mr || !mw)
		die("ibv_reg_mr or ibv_alloc_mw: %s", strerror(errno));
	key = mw->rkey;
}

static void destroy_pairs(void)
{
	int i, j;

	for (i = 0; i < 2; i++) {
		for (j = 0; j < 2; j++) {
			qp_free(ends[j].qp[i]);
			ends[j].qp[i] = NULL;
		}
	}
}

static bool finish(void)
{
	bool ok = true;
	int i;

	destroy_pairs();
	if (mw && ibv_dealloc_mw(mw)) {
		printf("# ibv_dealloc_mw: %s\n", strerror(errno));
		ok = false;
	}
	if (mr && ibv_dereg_mr(mr)) {
		printf("# ibv_dereg_mr: %s\n", strerror(errno));
		ok = false;
	}
	mw = NULL;
	mr = NULL;
	for (i = 0; i < 2; i++) {
		cq_drain(ends[i].cq);
		cq_drain(ends[i].recv_cq);
	}
	ok &= region_check(&data, "the peer's memory");
	ok &= region_check(&hidden, "the owner's memory");
	return ok;
}

static bool completes(struct ibv_cq *cq, const char *what, enum ibv_wc_status status,
		      struct ibv_wc *wc)
{
	if (!cq_poll(cq, wc, WAIT_MS)) {
		printf("# %s does not complete\n", what);
		return false;
	}
	if (wc->status == status)
		return true;
	printf("# %s: %s instead of %s\n", what, ibv_wc_status_str(wc->status),
	       ibv_wc_status_str(status));
	return false;
}

static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	send_post(qp, wr);
}

/* Posts it. If it is to fail, what is behind it is flushed and the queue pair is in error. */
static bool does(struct end *end, int pair, struct ibv_send_wr *wr, const char *what,
		 enum ibv_wc_status status)
{
	enum ibv_wc_opcode opcode = wr->opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV;
	bool is_local = wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV;
	struct ibv_send_wr next = { .opcode = IBV_WR_RDMA_WRITE };
	uint64_t until = now_ms() + patience_ms(WAIT_MS);
	struct ibv_wc wc;

	post(end->qp[pair], wr);
	if (status != IBV_WC_SUCCESS)
		post(end->qp[pair], &next);
	if (!completes(end->cq, what, status, &wc))
		return false;
	if (status == IBV_WC_SUCCESS) {
		if (!is_local || wc.opcode == opcode)
			return true;
		printf("# %s completes with the opcode %d\n", what, wc.opcode);
		return false;
	}
	if (!completes(end->cq, "what is behind it", IBV_WC_WR_FLUSH_ERR, &wc))
		return false;
	while (qp_state(end->qp[pair]) != IBV_QPS_ERR) {
		if (now_ms() > until) {
			printf("# %s: the queue pair is not in error\n", what);
			return false;
		}
	}
	return true;
}

/* A bind by hand: the provider looks at nothing but the keys of window and region. */
struct bind {
	uint32_t window;
	uint32_t key;
	uint32_t region;
	uint64_t start;
	uint64_t length;
	unsigned int access;
	int pair;
};

static struct bind usual(void)
{
	return (struct bind){
		.window = mw->rkey,
		.key = ibv_inc_rkey(mw->rkey),
		.region = mr ? mr->lkey : 0,
		.start = (uintptr_t)hidden.memory + START,
		.length = LENGTH,
		.access = ALL,
	};
}

static bool bind_as(struct bind bind, enum ibv_wc_status status)
{
	struct ibv_mw window = *mw;
	struct ibv_mr region = { .context = b->device.context, .pd = b->device.pd,
				 .lkey = bind.region };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {
			.mw = &window,
			.rkey = bind.key,
			.bind_info = {
				.mr = &region,
				.addr = bind.start,
				.length = bind.length,
				.mw_access_flags = bind.access,
			},
		},
	};

	window.rkey = bind.window;
	if (!does(b, bind.pair, &wr, "the bind", status))
		return false;
	if (status == IBV_WC_SUCCESS) {
		mw->rkey = bind.key;
		key = bind.key;
	}
	return true;
}

static bool bind_usual(void)
{
	return bind_as(usual(), IBV_WC_SUCCESS);
}

/* As programs do it; for windows of type 1. */
static bool bind_verb(uint64_t length)
{
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = mr,
			.addr = (uintptr_t)hidden.memory + START,
			.length = length,
			.mw_access_flags = length ? ALL : 0,
		},
	};
	struct ibv_wc wc;
	int error = ibv_bind_mw(b->qp[0], mw, &bind);

	if (error)
		die("ibv_bind_mw: %s", strerror(error));
	key = mw->rkey;
	return completes(b->cq, "ibv_bind_mw", IBV_WC_SUCCESS, &wc);
}

static bool invalidate(int pair, uint32_t which, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = which };

	return does(b, pair, &wr, "the local invalidate", status);
}

/* By the peer, with a message. */
static bool invalidate_remotely(int pair, uint32_t which, bool allowed)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = which };
	struct ibv_recv_wr receive = { .wr_id = 1 };
	struct ibv_wc wc;

	recv_post(b->qp[pair], &receive);
	if (!does(a, pair, &wr, "the send with invalidate",
		  allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR))
		return false;
	if (!completes(b->recv_cq, "the receive", allowed ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR,
		       &wc))
		return false;
	if (allowed && (!(wc.wc_flags & IBV_WC_WITH_INV) || wc.invalidated_rkey != which)) {
		printf("# the receive says %#x, flags %#x, instead of %#x\n", wc.invalidated_rkey,
		       wc.wc_flags, which);
		return false;
	}
	return true;
}

/* What the peer does, to `at` of the owner's memory, which has the address `address`. */
static bool reach_at(int pair, enum ibv_wr_opcode opcode, uint64_t address, size_t at,
		     uint32_t length, bool allowed)
{
	struct ibv_sge sge = region_sge(&data, 0, length);
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = address, .rkey = key },
	};
	uint64_t sum;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		memset(&wr.wr, 0, sizeof(wr.wr));
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.compare_add = 0x123456789;
		wr.wr.atomic.rkey = key;
		sge.length = 8;
	}
	if (!does(a, pair, &wr, "the peer's access", allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR))
		return false;
	if (!allowed)
		return true;
	if (opcode == IBV_WR_RDMA_WRITE) {
		memcpy(hidden.expected + at, data.memory, length);
		return true;
	}
	memcpy(data.expected, hidden.expected + at, sge.length);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		memcpy(&sum, hidden.expected + at, 8);
		sum += wr.wr.atomic.compare_add;
		memcpy(hidden.expected + at, &sum, 8);
	}
	return true;
}

static bool reach(enum ibv_wr_opcode opcode, bool allowed)
{
	return reach_at(0, opcode, (uintptr_t)hidden.memory + START, START, LENGTH, allowed);
}

static bool writes(bool allowed)
{
	return reach(IBV_WR_RDMA_WRITE, allowed);
}

/* Each state with each operation. */

enum state { NEVER, BOUND, UNBOUND, REGION_GONE, DESTROYED, STATES };
enum op { BIND, LOCAL_INV, REMOTE_INV, WRITE, READ, ATOMIC, DEALLOC, OPS };

static const char *const state_names[STATES] = {
	"never bound", "bound", "unbound again", "whose region is gone", "destroyed",
};

static const char *const op_names[OPS] = {
	"bind", "local invalidate", "remote invalidate", "write", "read", "atomic", "destroy",
};

/* Which of them succeed. */
static const bool allowed[2][STATES][OPS] = {
	{
		[NEVER] = { [BIND] = true, [DEALLOC] = true },
		[BOUND] = { [BIND] = true, [WRITE] = true, [READ] = true, [ATOMIC] = true,
			    [DEALLOC] = true },
		[UNBOUND] = { [BIND] = true, [DEALLOC] = true },
		[REGION_GONE] = { [DEALLOC] = true },
	},
	{
		[NEVER] = { [BIND] = true, [DEALLOC] = true },
		[BOUND] = { [LOCAL_INV] = true, [REMOTE_INV] = true, [WRITE] = true, [READ] = true,
			    [ATOMIC] = true, [DEALLOC] = true },
		[UNBOUND] = { [BIND] = true, [DEALLOC] = true },
		[REGION_GONE] = { [DEALLOC] = true },
	},
};

static bool is_type_1(void)
{
	return mw->type == IBV_MW_TYPE_1;
}

static bool unbind(void)
{
	return is_type_1() ? bind_verb(0) : invalidate(0, key, IBV_WC_SUCCESS);
}

/* A window that is gone, as its owner remembers it: the provider frees what it is told to. */
static struct ibv_mw *copy_of(const struct ibv_mw *window)
{
	struct ibv_mw *copy = malloc(sizeof(*copy));

	if (!copy)
		die("no memory for a window");
	*copy = *window;
	return copy;
}

static bool dealloc(bool ok)
{
	struct ibv_mw *copy = copy_of(mw);
	int error = ibv_dealloc_mw(mw);

	mw = copy;
	if (!error == ok)
		return true;
	printf("# ibv_dealloc_mw: %s\n", strerror(error));
	return false;
}

static bool bring_to(enum state state)
{
	uint32_t lkey;

	if (state == NEVER)
		return true;
	if (!(is_type_1() ? bind_verb(LENGTH) : bind_usual()))
		return false;
	switch (state) {
	case UNBOUND:
		return unbind();
	case REGION_GONE:
		lkey = mr->lkey;
		if (!unbind())
			return false;
		mr_free(mr);
		/* Its key stays what it was. */
		mr = calloc(1, sizeof(*mr));
		if (!mr)
			die("no memory for a region");
		mr->lkey = lkey;
		return true;
	case DESTROYED:
		return dealloc(true);
	default:
		return true;
	}
}

static bool try_op(enum op op, bool ok)
{
	switch (op) {
	case BIND:
		return bind_as(usual(), ok ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR) &&
		       (!ok || writes(true));
	case LOCAL_INV:
		return invalidate(0, key, ok ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR) &&
		       (!ok || writes(false));
	case REMOTE_INV:
		return invalidate_remotely(0, key, ok) && (!ok || writes(false));
	case WRITE:
		return writes(ok);
	case READ:
		return reach(IBV_WR_RDMA_READ, ok);
	case ATOMIC:
		return reach(IBV_WR_ATOMIC_FETCH_AND_ADD, ok);
	default:
		return dealloc(ok) && writes(false);
	}
}

static bool run_combination(int combination)
{
	enum ibv_mw_type type = combination / (STATES * OPS) ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;
	enum state state = combination / OPS % STATES;
	enum op op = combination % OPS;
	bool ok;

	start(type);
	ok = bring_to(state) && try_op(op, allowed[type == IBV_MW_TYPE_2][state][op]);
	if (state == DESTROYED || op == DEALLOC) {
		free(mw);
		mw = NULL;
	}
	if (state == REGION_GONE) {
		free(mr);
		mr = NULL;
	}
	return finish() && ok;
}

/* What may not be bound. */
static bool bind_refused(struct bind bind)
{
	bool ok = bind_as(bind, IBV_WC_MW_BIND_ERR);

	return finish() && ok;
}

/* Each differs from the usual one in this. */
enum mistake {
	UNKNOWN_REGION, OTHER_VARIANT, WINDOW_AS_REGION, REGION_AS_WINDOW, KEY_OF_ANOTHER, SAME_KEY, ZERO_BASED, NO_BYTES,
	UNKNOWN_RIGHTS
};

static bool run_mistake(int mistake)
{
	struct bind bind;

	start(mistake == SAME_KEY || mistake == ZERO_BASED ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	bind = usual();
	switch ((enum mistake)mistake) {
	case UNKNOWN_REGION:
		bind.region ^= 0x5a5a00;
		break;
	case OTHER_VARIANT:
		bind.region ^= 1;
		break;
	case WINDOW_AS_REGION:
		bind.region = mw->rkey;
		break;
	case REGION_AS_WINDOW:
		bind.window = mr->rkey;
		bind.key = ibv_inc_rkey(mr->rkey);
		break;
	case KEY_OF_ANOTHER:
		bind.key ^= 0x100;
		break;
	case SAME_KEY:
		bind.key = bind.window;
		break;
	case ZERO_BASED:
		bind.access |= IBV_ACCESS_ZERO_BASED;
		break;
	case NO_BYTES:
		bind.length = 0;
		break;
	case UNKNOWN_RIGHTS:
		bind.access |= IBV_ACCESS_ON_DEMAND;
		break;
	}
	return bind_refused(bind);
}

static bool run_old_window_key(void)
{
	struct bind bind;
	uint32_t old;

	start(IBV_MW_TYPE_1);
	old = mw->rkey;
	if (!bind_usual())
		return finish() && false;
	bind = usual();
	bind.window = old;
	return bind_refused(bind);
}

/* Bounds of the region, for both types. */
static bool run_bounds(uint64_t first, uint64_t length)
{
	bool ok = true;
	int type;

	for (type = 1; type <= 2; type++) {
		struct bind bind;

		start(type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		bind = usual();
		bind.start = (uintptr_t)hidden.memory + first;
		bind.length = length;
		ok &= bind_refused(bind);
	}
	return ok;
}

static bool run_after_end(void)
{
	return run_bounds(SIZE - LENGTH + 1, LENGTH);
}

static bool run_before_start(void)
{
	return run_bounds(-1, LENGTH);
}

static bool run_overflow(void)
{
	return run_bounds(8, UINT64_MAX) & run_bounds(8, UINT64_MAX - 8) & run_bounds(8, 1ULL << 63);
}

/* A region with other rights. */
static bool run_region_rights(int rights, unsigned int access, bool ok)
{
	struct bind bind;
	bool done;

	start(IBV_MW_TYPE_2);
	mr_free(mr);
	mr = mr_make(b->device.pd, hidden.memory, SIZE, rights);
	bind = usual();
	bind.access = access;
	done = bind_as(bind, ok ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR);
	if (done && ok)
		done = reach(IBV_WR_RDMA_READ, true) && writes(false);
	return finish() && done;
}

static bool run_no_bind_right(void)
{
	return run_region_rights(IBV_ACCESS_LOCAL_WRITE | ALL, IBV_ACCESS_REMOTE_READ, false);
}

static bool run_no_local_write(void)
{
	return run_region_rights(IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_WRITE, false) &&
	       run_region_rights(IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, false);
}

static bool run_read_only_region(void)
{
	return run_region_rights(IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_READ, true);
}

/* Window or region of another protection domain. */
static bool run_other_domain(int is_region)
{
	struct ibv_pd *pd = ibv_alloc_pd(b->device.context);
	struct ibv_mw *window = pd ? ibv_alloc_mw(pd, IBV_MW_TYPE_1) : NULL;
	struct ibv_mr *region = window ? ibv_reg_mr(pd, hidden.memory, SIZE, BINDABLE) : NULL;
	struct bind bind;
	bool ok;

	if (!region)
		die("another domain: %s", strerror(errno));
	start(IBV_MW_TYPE_1);
	bind = usual();
	if (is_region) {
		bind.region = region->lkey;
	} else {
		bind.window = window->rkey;
		bind.key = ibv_inc_rkey(window->rkey);
	}
	ok = bind_refused(bind);
	if (ibv_dereg_mr(region) || ibv_dealloc_mw(window) || ibv_dealloc_pd(pd))
		die("the other domain does not go away");
	return ok;
}

/* What a window gives access to. */

static bool run_edges(void)
{
	uint64_t first = (uintptr_t)hidden.memory + START;
	bool ok = true;
	int type, row;

	for (type = 1; type <= 2; type++) {
		for (row = 0; row < 4; row++) {
			start(type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
			ok &= bind_usual();
			if (row == 0)
				ok &= reach_at(0, IBV_WR_RDMA_WRITE, first + LENGTH - 1,
					       START + LENGTH - 1, 1, true);
			if (row == 1)
				ok &= reach_at(0, IBV_WR_RDMA_WRITE, first + LENGTH, 0, 1, false);
			if (row == 2)
				ok &= reach_at(0, IBV_WR_RDMA_READ, first - 1, 0, 8, false);
			if (row == 3)
				ok &= reach_at(0, IBV_WR_RDMA_WRITE, UINT64_MAX - 3, 0, 8, false);
			ok &= finish();
		}
	}
	return ok;
}

static bool run_rights(void)
{
	static const struct {
		unsigned int access;
		enum ibv_wr_opcode opcode;
	} rights[] = {
		{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE },
		{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ },
		{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD },
	};
	bool ok = true;
	int type, i, j;

	for (type = 1; type <= 2; type++) {
		for (i = 0; i < 3; i++) {
			for (j = 0; j < 3; j++) {
				struct bind bind;

				start(type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
				bind = usual();
				bind.access = rights[i].access;
				ok &= bind_as(bind, IBV_WC_SUCCESS) && reach(rights[j].opcode, i == j);
				ok &= finish();
			}
		}
	}
	return ok;
}

/* The region's own remote rights are not the window's. */
static bool run_no_rights(void)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct bind bind;
	unsigned int i;
	bool ok = true;

	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		start(IBV_MW_TYPE_2);
		mr_free(mr);
		mr = mr_make(b->device.pd, hidden.memory, SIZE, BINDABLE | ALL);
		bind = usual();
		bind.access = 0;
		ok &= bind_as(bind, IBV_WC_SUCCESS) && reach(opcodes[i], false);
		ok &= finish();
	}
	return ok;
}

static bool run_zero_based(void)
{
	struct bind bind;
	bool ok;

	start(IBV_MW_TYPE_2);
	bind = usual();
	bind.access |= IBV_ACCESS_ZERO_BASED;
	ok = bind_as(bind, IBV_WC_SUCCESS) &&
	     reach_at(0, IBV_WR_RDMA_WRITE, 0, START, LENGTH, true) &&
	     reach_at(0, IBV_WR_RDMA_READ, 100, START + 100, LENGTH - 100, true) &&
	     reach_at(0, IBV_WR_ATOMIC_FETCH_AND_ADD, 16, START + 16, 8, true) &&
	     reach_at(0, IBV_WR_RDMA_WRITE, 1, 0, LENGTH, false);
	return finish() && ok;
}

static bool run_other_pair(int type)
{
	bool ok;

	start(type);
	ok = bind_usual() && reach_at(1, IBV_WR_RDMA_WRITE, (uintptr_t)hidden.memory + START, START, LENGTH,
				      type == IBV_MW_TYPE_1);
	return finish() && ok;
}

/* The other queue pair must not invalidate it either; it goes on to work. */
static bool run_other_pair_invalidates(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = bind_usual() && invalidate(1, key, IBV_WC_MW_BIND_ERR) && writes(true) &&
	     invalidate(0, key, IBV_WC_SUCCESS);
	return finish() && ok;
}

static bool run_other_peer_invalidates(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = bind_usual() && invalidate_remotely(1, key, false) && writes(true);
	return finish() && ok;
}

static bool run_other_variant(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = bind_usual();
	key = ibv_inc_rkey(key);
	ok = ok && writes(false);
	return finish() && ok;
}

static bool run_invalidate_other_variant(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = bind_usual() && invalidate(0, ibv_inc_rkey(key), IBV_WC_MW_BIND_ERR);
	return finish() && ok;
}

static bool run_invalidate_region(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = invalidate(0, mr->rkey, IBV_WC_MW_BIND_ERR);
	return finish() && ok;
}

static bool run_invalidate_region_remotely(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = invalidate_remotely(0, mr->rkey, false);
	return finish() && ok;
}

/* A window is for peers: its owner's own requests cannot name it. */
static bool run_local_use(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)hidden.memory + START, .length = LENGTH };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };
	bool ok;

	start(IBV_MW_TYPE_1);
	ok = bind_usual();
	sge.lkey = key;
	wr.wr.rdma.remote_addr = (uintptr_t)data.memory;
	wr.wr.rdma.rkey = data.mr->rkey;
	ok = ok && does(b, 0, &wr, "the owner's write", IBV_WC_LOC_PROT_ERR);
	return finish() && ok;
}

/* A bind gives a window of type 1 another key: the old one is worth nothing. */
static bool run_bind_again(void)
{
	struct bind bind;
	uint32_t old;
	bool ok;

	start(IBV_MW_TYPE_1);
	ok = bind_verb(LENGTH) && writes(true);
	old = key;
	bind = usual();
	bind.start += 64;
	ok = ok && bind_as(bind, IBV_WC_SUCCESS) &&
	     reach_at(0, IBV_WR_RDMA_WRITE, bind.start, START + 64, LENGTH, true);
	key = old;
	ok = ok && reach_at(0, IBV_WR_RDMA_WRITE, bind.start, 0, 8, false);
	return finish() && ok;
}

/* 256 binds bring the key back to what it was. */
static bool run_many_binds(void)
{
	bool ok = true;
	uint32_t first;
	int i;

	start(IBV_MW_TYPE_1);
	first = key;
	for (i = 0; ok && i < 256; i++)
		ok = bind_verb(i % 3 ? LENGTH : 0);
	ok = ok && key == first && bind_verb(LENGTH) && writes(true);
	return finish() && ok;
}

/* Its owner chooses the key; that it has not noted the last one does no harm. */
static bool run_type_2_again(void)
{
	struct bind bind;
	uint32_t old;
	bool ok;

	start(IBV_MW_TYPE_2);
	bind = usual();
	bind.key = (bind.window & ~0xff) | 0xfe;
	ok = bind_as(bind, IBV_WC_SUCCESS) && writes(true) && invalidate(0, key, IBV_WC_SUCCESS);
	old = key;
	bind.key = (bind.window & ~0xff) | 0x07;
	ok = ok && bind_as(bind, IBV_WC_SUCCESS) && writes(true) &&
	     invalidate_remotely(0, key, true) && bind_as(bind, IBV_WC_SUCCESS) && writes(true);
	key = old;
	ok = ok && writes(false);
	return finish() && ok;
}

/* Its region stays as long as a window is bound to it. */
static bool run_deregister(int type)
{
	int error;
	bool ok;

	start(type);
	ok = bind_usual();
	error = ibv_dereg_mr(mr);
	if (!error)
		mr = NULL;
	if (error != EBUSY) {
		printf("# ibv_dereg_mr: %s\n", strerror(error));
		ok = false;
	}
	ok = ok && writes(true) && unbind() && !ibv_dereg_mr(mr);
	if (ok)
		mr = NULL;
	ok = ok && writes(false);
	return finish() && ok;
}

/*
 * A window of a queue pair that is gone holds its region until it is destroyed. The other queue pair cannot use it, nor
 * invalidate it.
 */
static bool run_pair_gone(int invalidates)
{
	int error;
	bool ok;

	start(IBV_MW_TYPE_2);
	ok = bind_usual();
	qp_free(b->qp[0]);
	b->qp[0] = NULL;
	if (invalidates)
		ok = ok && invalidate(1, key, IBV_WC_MW_BIND_ERR);
	else
		ok = ok && reach_at(1, IBV_WR_RDMA_WRITE, (uintptr_t)hidden.memory + START, START, 8, false);
	error = ibv_dereg_mr(mr);
	if (!error)
		mr = NULL;
	ok &= error == EBUSY;
	return finish() && ok;
}

/* Several requests in one list: each sees what those before it did. */
static bool run_in_order(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)hidden.memory, .length = SIZE };
	struct ibv_send_wr wrs[5] = {};
	struct ibv_recv_wr receive = {};
	struct ibv_wc wc;
	bool ok = true;
	int i;

	start(IBV_MW_TYPE_2);
	recv_post(a->qp[0], &receive);
	for (i = 0; i < 5; i++) {
		wrs[i].wr_id = i;
		wrs[i].send_flags = IBV_SEND_SIGNALED;
		wrs[i].next = i < 4 ? &wrs[i + 1] : NULL;
	}
	/* The bind waits for the read in front of it. */
	sge.lkey = mr->lkey;
	wrs[0].opcode = IBV_WR_RDMA_READ;
	wrs[0].sg_list = &sge;
	wrs[0].num_sge = 1;
	wrs[0].wr.rdma.remote_addr = (uintptr_t)data.memory;
	wrs[0].wr.rdma.rkey = data.mr->rkey;
	for (i = 1; i < 4; i++) {
		wrs[i].opcode = IBV_WR_BIND_MW;
		wrs[i].bind_mw.mw = mw;
		wrs[i].bind_mw.rkey = mw->rkey + i;
		wrs[i].bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = mr,
			.addr = (uintptr_t)hidden.memory + START,
			.length = LENGTH,
			.mw_access_flags = ALL,
		};
	}
	wrs[1].send_flags |= IBV_SEND_FENCE;
	wrs[2].opcode = IBV_WR_LOCAL_INV;
	wrs[2].invalidate_rkey = mw->rkey + 1;
	wrs[4].opcode = IBV_WR_SEND;
	post(b->qp[0], wrs);
	memcpy(hidden.expected, data.expected, SIZE);
	for (i = 0; ok && i < 5; i++) {
		ok = completes(b->cq, "a request of the list", IBV_WC_SUCCESS, &wc);
		if (ok && wc.wr_id != (uint64_t)i) {
			printf("# request %d completes as %llu\n", i, (unsigned long long)wc.wr_id);
			ok = false;
		}
	}
	key = mw->rkey + 3;
	ok = ok && completes(a->recv_cq, "the peer's receive", IBV_WC_SUCCESS, &wc) && writes(true);
	return finish() && ok;
}

/*
 * A WRITE behind the peer's own invalidation is refused, though all three come together: for that, their
 * datagrams have one length. A SEND that invalidates has 12 bytes more of payload.
 */
static bool run_write_behind(void)
{
	static const uint32_t lengths[] = { 24, 36, 24 };
	struct ibv_send_wr wrs[3] = {};
	struct ibv_sge sges[3], place;
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &place, .num_sge = 1 };
	struct ibv_wc wc;
	bool ok;
	int i;

	start(IBV_MW_TYPE_2);
	ok = bind_usual();
	place = (struct ibv_sge){ .addr = (uintptr_t)hidden.memory, .length = lengths[1], .lkey = mr->lkey };
	recv_post(b->qp[0], &receive);
	for (i = 0; i < 3; i++) {
		sges[i] = region_sge(&data, 64 * i, lengths[i]);
		wrs[i].wr_id = i;
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].send_flags = IBV_SEND_SIGNALED;
		wrs[i].sg_list = &sges[i];
		wrs[i].num_sge = 1;
		wrs[i].wr.rdma.remote_addr = (uintptr_t)hidden.memory + START;
		wrs[i].wr.rdma.rkey = key;
		wrs[i].next = i < 2 ? &wrs[i + 1] : NULL;
	}
	wrs[1].opcode = IBV_WR_SEND_WITH_INV;
	wrs[1].invalidate_rkey = key;
	post(a->qp[0], wrs);
	memcpy(hidden.expected + START, data.memory, lengths[0]);
	memcpy(hidden.expected, data.memory + 64, lengths[1]);
	for (i = 0; ok && i < 3; i++) {
		ok = completes(a->cq, "a request of the list", i < 2 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR, &wc);
		if (ok && wc.wr_id != (uint64_t)i) {
			printf("# request %d completes as %llu\n", i, (unsigned long long)wc.wr_id);
			ok = false;
		}
	}
	ok = ok && completes(b->recv_cq, "the owner's receive", IBV_WC_SUCCESS, &wc);
	if (ok && (!(wc.wc_flags & IBV_WC_WITH_INV) || wc.invalidated_rkey != key)) {
		printf("# the receive says %#x, flags %#x\n", wc.invalidated_rkey, wc.wc_flags);
		ok = false;
	}
	return finish() && ok;
}

/* Once it is invalidated nothing arrives any more, though the peer has not heard of it. */
static bool run_invalidate_in_traffic(int type)
{
	static uint8_t before[SIZE];
	unsigned int cut = 0;
	bool ok = true;
	int round;

	/* Eight times at least, and until a round had WRITEs on both sides of the invalidation. */
	for (round = 0; ok && round < (cut ? 8 : 200); round++) {
		unsigned int written = 0, refused = 0;
		struct ibv_sge sge = region_sge(&data, 0, LENGTH);
		struct ibv_wc wc = {};
		int i;

		start(type);
		ok = bind_usual();
		for (i = 0; i < DEPTH - 2; i++) {
			struct ibv_send_wr wr = {
				.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
				.wr.rdma = { .remote_addr = (uintptr_t)hidden.memory + START,
					     .rkey = key },
			};

			sge.addr = (uintptr_t)data.memory + i * 8;
			post(a->qp[0], &wr);
		}
		/* By another queue pair, which does not wait for the first. */
		if (type == IBV_MW_TYPE_1) {
			struct bind bind = usual();

			bind.length = 0;
			bind.pair = 1;
			ok = ok && bind_as(bind, IBV_WC_SUCCESS);
		} else {
			struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key };

			/* The queue pair may have flushed it, in error since before. */
			post(b->qp[0], &wr);
			ok = ok && cq_poll(b->cq, &wc, WAIT_MS);
		}
		memcpy(before, hidden.memory, SIZE);
		for (i = 0; ok && i < DEPTH - 2; i++) {
			ok = cq_poll(a->cq, &wc, WAIT_MS);
			written += ok && wc.status == IBV_WC_SUCCESS;
			refused += ok && wc.status != IBV_WC_SUCCESS;
		}
		cut += written && refused;
		if (memcmp(before, hidden.memory, SIZE)) {
			printf("# bytes arrived after the window was invalidated\n");
			ok = false;
		}
		memcpy(hidden.expected + START, hidden.memory + START, LENGTH);
		ok &= finish();
	}
	printf("# in %u of %d rounds some WRITEs were before the invalidation, and others behind it\n", cut, round);
	return ok && cut;
}

/* Memory that is paged on demand. */
static bool run_on_demand(void)
{
	bool ok;

	start(IBV_MW_TYPE_2);
	mr_free(mr);
	mr = mr_make(b->device.pd, hidden.memory, SIZE, BINDABLE | IBV_ACCESS_ON_DEMAND);
	ok = bind_usual() && writes(true) && reach(IBV_WR_RDMA_READ, true) &&
	     invalidate(0, key, IBV_WC_SUCCESS) && writes(false);
	return finish() && ok;
}

static void open_all(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, names[i], family);
		end->cq = cq_make(&end->device, 4 * DEPTH);
		end->recv_cq = cq_make(&end->device, 4 * DEPTH);
	}
	region_make(&data, &a->device, SIZE,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	region_make(&hidden, &b->device, SIZE, 0);
}

/* How many regions, windows and queue pairs the module has; always the same if it does not say so. */
static long objects(void)
{
	return live_objects("mr") + live_objects("mw") + live_objects("qp");
}

/* The same once it is at rest: what rows before have destroyed may end a grace period later. */
static long objects_at_rest(void)
{
	uint64_t since = now_ms();
	long before, now = objects();

	while (now_ms() - since < quiet_ms(QUIET_MS)) {
		usleep(10000);
		before = now;
		now = objects();
		if (now != before)
			since = now_ms();
	}
	return now;
}

/*
 * A process ends with bound windows, under traffic. Its youngest objects are destroyed first:
 * the region of an older window has to be tried again.
 */
static bool run_end_of_process(int type)
{
	long before = objects_at_rest(), now;
	struct ibv_sge sge;
	uint64_t until;
	int status, i;
	pid_t child;

	child = fork_child();
	if (child == 0) {
		open_all();
		start(type);
		if (ibv_dereg_mr(mr))
			_exit(2);
		mr = ibv_reg_mr(b->device.pd, hidden.memory, SIZE, BINDABLE);
		if (!mr || !bind_usual() || !writes(true))
			_exit(3);
		sge = region_sge(&data, 0, LENGTH);
		for (i = 0; i < DEPTH - 4; i++) {
			struct ibv_send_wr wr = {
				.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
				.wr.rdma = { .remote_addr = (uintptr_t)hidden.memory + START,
					     .rkey = key },
			};

			post(a->qp[0], &wr);
		}
		kill(getpid(), SIGKILL);
	}
	if (waitpid(child, &status, 0) != child)
		die("waitpid: %s", strerror(errno));
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		printf("# the process ends with %#x\n", status);
		return false;
	}
	until = now_ms() + patience_ms(WAIT_MS);
	while ((now = objects()) > before && now_ms() < until)
		usleep(10000);
	if (now > before)
		printf("# %ld regions, windows and queue pairs are there, and %ld before\n", now, before);
	return now <= before;
}

static bool run_attributes(void)
{
	unsigned int wanted = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	const struct ibv_device_attr *attr = &b->device.attr;

	if (attr->max_mw > 0 && (attr->device_cap_flags & wanted) == wanted &&
	    !(attr->device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A))
		return true;
	printf("# max_mw %d, flags %#x\n", attr->max_mw, attr->device_cap_flags);
	return false;
}

/* The registration of a region, to be answered where its key is, but not all of the answer, on a page that is there. */
struct registration {
	struct ib_uverbs_cmd_hdr header;
	struct ib_uverbs_reg_mr command;
};

#define KEY_END (offsetof(struct ib_uverbs_reg_mr_resp, lkey) + sizeof(uint32_t))

static struct registration registration;

static void *write_registration(void *written)
{
	*(ssize_t *)written = write(b->device.context->cmd_fd, &registration, sizeof(registration));
	return NULL;
}

/*
 * Who reads the key while the answer is being written, and binds a window, must not keep a region alive of which nobody
 * is told: uverbs takes it back, and warns if it cannot.
 */
static bool run_unanswered(void)
{
	long page = sysconf(_SC_PAGESIZE);
	uint8_t *answer = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct bind bind;
	pthread_t thread;
	ssize_t written;
	bool ok;
	int fd;

	start(IBV_MW_TYPE_2);
	if (answer == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	fd = absence_begin(answer + page, page);
	memset(answer, 0, page);
	registration = (struct registration){
		.header = {
			.command = IB_USER_VERBS_CMD_REG_MR,
			.in_words = sizeof(registration) / 4,
			.out_words = sizeof(struct ib_uverbs_reg_mr_resp) / 4,
		},
		.command = {
			.response = (uintptr_t)answer + page - KEY_END,
			.start = (uintptr_t)hidden.memory,
			.length = SIZE,
			.hca_va = (uintptr_t)hidden.memory,
			.pd_handle = b->device.pd->handle,
			.access_flags = BINDABLE,
		},
	};
	thread_start(&thread, write_registration, &written);
	absence_noticed(fd);
	bind = usual();
	memcpy(&bind.region, answer + page - sizeof(bind.region), sizeof(bind.region));
	ok = bind_as(bind, IBV_WC_SUCCESS) && writes(true);
	/* The page never comes. */
	munmap(answer + page, page);
	close(fd);
	pthread_join(thread, NULL);
	if (written != -1) {
		printf("# the registration returned %zd\n", written);
		ok = false;
	}
	ok = ok && writes(false);
	munmap(answer, page);
	return finish() && ok;
}

static const struct row rows[] = {
	{ "the device's attributes", run_attributes },
	{ "bind: an unknown region", .run_with = run_mistake, UNKNOWN_REGION },
	{ "bind: a region whose registration then fails", run_unanswered },
	{ "bind: another variant of the region's key", .run_with = run_mistake, OTHER_VARIANT },
	{ "bind: a window instead of a region", .run_with = run_mistake, WINDOW_AS_REGION },
	{ "bind: a region instead of a window", .run_with = run_mistake, REGION_AS_WINDOW },
	{ "bind: a new key of another window", .run_with = run_mistake, KEY_OF_ANOTHER },
	{ "bind: the window's key of before", run_old_window_key },
	{ "bind: the same key again", .run_with = run_mistake, SAME_KEY },
	{ "bind: zero-based, type 1", .run_with = run_mistake, ZERO_BASED },
	{ "bind: no bytes, type 2", .run_with = run_mistake, NO_BYTES },
	{ "bind: unknown rights", .run_with = run_mistake, UNKNOWN_RIGHTS },
	{ "bind: after the region's end", run_after_end },
	{ "bind: before the region", run_before_start },
	{ "bind: beyond the end of all addresses", run_overflow },
	{ "bind: a region that allows no windows", run_no_bind_right },
	{ "bind: writes to a region that may not be written", run_no_local_write },
	{ "bind: reads of a region that may not be written", run_read_only_region },
	{ "bind: a region of another protection domain", .run_with = run_other_domain, true },
	{ "bind: a window of another protection domain", .run_with = run_other_domain, false },
	{ "bind again, type 1", run_bind_again },
	{ "bind again, type 2", run_type_2_again },
	{ "256 binds", run_many_binds },
	{ "access: the first and last byte, and those beyond", run_edges },
	{ "access: each right alone", run_rights },
	{ "access: without rights, to a region that has them", run_no_rights },
	{ "access: zero-based", run_zero_based },
	{ "access: another queue pair, type 1", .run_with = run_other_pair, IBV_MW_TYPE_1 },
	{ "access: another queue pair, type 2", .run_with = run_other_pair, IBV_MW_TYPE_2 },
	{ "access: another variant of the key", run_other_variant },
	{ "access: by the owner, as local key", run_local_use },
	{ "access: memory that is paged on demand", run_on_demand },
	{ "invalidate: another queue pair", run_other_pair_invalidates },
	{ "invalidate: another queue pair's peer", run_other_peer_invalidates },
	{ "invalidate: another variant of the key", run_invalidate_other_variant },
	{ "invalidate: a region", run_invalidate_region },
	{ "invalidate: a region, remotely", run_invalidate_region_remotely },
	{ "a region with a bound window is not deregistered, type 1", .run_with = run_deregister, IBV_MW_TYPE_1 },
	{ "a region with a bound window is not deregistered, type 2", .run_with = run_deregister, IBV_MW_TYPE_2 },
	{ "the window's queue pair is destroyed: access", .run_with = run_pair_gone, false },
	{ "the window's queue pair is destroyed: local invalidate", .run_with = run_pair_gone, true },
	{ "the window's process is killed, type 1", .run_with = run_end_of_process, IBV_MW_TYPE_1 },
	{ "the window's process is killed, type 2", .run_with = run_end_of_process, IBV_MW_TYPE_2 },
	{ "read, bind, invalidate, bind, send: in order", run_in_order },
	{ "write, invalidate, write in one list", run_write_behind },
	{ "unbind under traffic", .run_with = run_invalidate_in_traffic, IBV_MW_TYPE_1 },
	{ "local invalidate under traffic", .run_with = run_invalidate_in_traffic, IBV_MW_TYPE_2 },
};

static void add(void)
{
	int i;

	for (i = 0; i < 2 * STATES * OPS; i++)
		row_add((struct row){
			.name = row_name("type %d, %s: %s", 1 + i / (STATES * OPS), state_names[i / OPS % STATES],
					 op_names[i % OPS]),
			.run_with = run_combination, i,
		});
	for (i = 0; i < (int)ARRAY_SIZE(rows); i++)
		row_add(rows[i]);
}

static void begin(char **operands)
{
	names = operands;
	open_all();
}

static void end(void)
{
	int i;

	region_free(&data);
	region_free(&hidden);
	for (i = 0; i < 2; i++) {
		cq_free(ends[i].cq);
		cq_free(ends[i].recv_cq);
		device_close(&ends[i].device);
	}
}

const struct test test = { .add = add, .begin = begin, .end = end };
