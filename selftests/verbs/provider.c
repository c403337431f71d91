// SPDX-License-Identifier: GPL-2.0
/*
 * What libferroce promises, and librxe does not: other credentials than those that opened the device, completions of
 * queue pairs that are no more, rings that cannot be mapped.
 *
 * Test: what libferroce promises
 * Runs: never
 * Needs: --provider ferroce
 */

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define SIZE 4096
#define LENGTH 64
#define WAIT_MS 20000
#define CQES 64
#define NOBODY 65534

static const struct depth depth = { .send = 8, .receive = 8, .sges = 1, .inline_size = LENGTH };
static struct device *const a = &devices[0], *const b = &devices[1];
static struct region source, target;

struct pair {
	struct ibv_cq *cq, *peer_cq;
	struct ibv_qp *qp, *peer;
};

/* Two connected queue pairs; the first one completes to cq. */
static struct pair pair_make(struct ibv_cq *cq)
{
	struct pair pair = { .cq = cq, .peer_cq = cq_make(b, CQES) };

	pair.qp = qp_make(a, IBV_QPT_RC, cq, cq, depth, NULL);
	pair.peer = qp_make(b, IBV_QPT_RC, pair.peer_cq, pair.peer_cq, depth, NULL);
	qp_connect(a, pair.qp, b, pair.peer, IBV_MTU_1024, PATIENT);
	return pair;
}

static void pair_free(struct pair *pair)
{
	qp_free(pair->qp);
	qp_free(pair->peer);
	cq_free(pair->peer_cq);
}

static int write_post(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = region_sge(&source, 0, LENGTH);
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)target.memory, target.mr->rkey },
	}, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

/* Posts WRITEs with these numbers, and waits until all have completed, without polling. */
static void writes_complete(struct ibv_qp *qp, const uint64_t *ids, unsigned int count)
{
	uint64_t deadline = now_ms() + patience_ms(WAIT_MS);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	unsigned int i;

	for (i = 0; i < count; i++)
		if (write_post(qp, ids[i]))
			die("a WRITE is refused");
	/* In SQD all that was posted before has completed, once it is drained. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD };
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("no SQD");
	do {
		if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
			die("ibv_query_qp fails");
		if (now_ms() > deadline)
			die("nothing moves");
	} while (attr.sq_draining);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE))
		die("no RTS behind SQD");
}

/* That the completions in the queue are these, and no more. */
static bool holds(struct ibv_cq *cq, const uint64_t *ids, unsigned int count)
{
	struct ibv_wc wc[CQES];
	int found = ibv_poll_cq(cq, CQES, wc), i;
	bool ok = found == (int)count;

	for (i = 0; i < found; i++) {
		ok = ok && wc[i].wr_id == ids[i] && wc[i].status == IBV_WC_SUCCESS;
		ksft_print_msg("completion %d: request %llu, %s\n", i, (unsigned long long)wc[i].wr_id,
			       ibv_wc_status_str(wc[i].status));
	}
	return ok;
}

/* --- Credentials ------------------------------------------------------------------------------ */

/* In a child: posts as somebody who has not opened the device. Ends with 0, or an errno. */
static bool as_another(struct ibv_qp *qp, struct ibv_cq *cq, int (*post)(struct ibv_qp *qp, uint64_t id))
{
	int status;
	pid_t child = fork_child();

	if (child == 0) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(errno);
		_exit(post(qp, 7));
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
		ksft_print_msg("the post: %s\n", WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "a signal");
		return false;
	}
	return cq_expect(cq, "WRITE", 7, IBV_WC_SUCCESS, WAIT_MS);
}

/* The rings are shared memory, so a child posts to them, too. */
static bool run_credentials(void)
{
	struct ibv_cq *cq = cq_make(a, CQES);
	struct pair pair = pair_make(cq);
	bool ok = as_another(pair.qp, cq, write_post);

	/* And nothing is wrong with it. */
	ok = ok && !write_post(pair.qp, 8) && cq_expect(cq, "WRITE", 8, IBV_WC_SUCCESS, WAIT_MS);
	pair_free(&pair);
	cq_free(cq);
	return ok;
}

/* As another process imports it. */
static bool run_imported(void)
{
	int fd = dup(a->context->cmd_fd);
	struct ibv_context *context = fd < 0 ? NULL : ibv_import_device(fd);
	struct ibv_pd *pd = context ? ibv_import_pd(context, a->pd->handle) : NULL;
	struct device device = *a;
	struct ibv_cq *cq, *peer_cq = cq_make(b, CQES);
	struct ibv_qp *qp, *peer;
	bool ok;

	if (!pd)
		die("the import: %s", strerror(errno));
	device.context = context;
	device.pd = pd;
	cq = cq_make(&device, CQES);
	qp = qp_make(&device, IBV_QPT_RC, cq, cq, depth, NULL);
	peer = qp_make(b, IBV_QPT_RC, peer_cq, peer_cq, depth, NULL);
	qp_connect(&device, qp, b, peer, IBV_MTU_1024, PATIENT);
	ok = as_another(qp, cq, write_post);
	qp_free(qp);
	qp_free(peer);
	cq_free(cq);
	cq_free(peer_cq);
	ibv_unimport_pd(pd);
	ibv_close_device(context);
	return ok;
}

/* --- Completions of queue pairs that are no more ---------------------------------------------- */

static bool run_destroyed(void)
{
	struct ibv_cq *cq = cq_make(a, CQES);
	struct pair gone = pair_make(cq), left = pair_make(cq);
	bool ok;

	writes_complete(gone.qp, (uint64_t[]){ 1, 2 }, 2);
	writes_complete(left.qp, (uint64_t[]){ 3 }, 1);
	writes_complete(gone.qp, (uint64_t[]){ 4 }, 1);
	writes_complete(left.qp, (uint64_t[]){ 5 }, 1);
	pair_free(&gone);
	ok = holds(cq, (uint64_t[]){ 3, 5 }, 2);
	pair_free(&left);
	cq_free(cq);
	return ok;
}

/* A single-threaded CQ, and two QPs that complete there. A test may change the CQ or reset a QP while it polls. */
struct batch {
	struct ibv_cq_ex *ex;
	struct ibv_cq *cq;
	struct pair gone, left;
};

static struct batch batch_make(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQES,
		.wc_flags = IBV_WC_EX_WITH_QP_NUM,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct batch batch = { .ex = ibv_create_cq_ex(a->context, &attr) };

	if (!batch.ex)
		die("ibv_create_cq_ex: %s", strerror(errno));
	batch.cq = ibv_cq_ex_to_cq(batch.ex);
	batch.gone = pair_make(batch.cq);
	batch.left = pair_make(batch.cq);
	return batch;
}

static void start_poll(struct ibv_cq_ex *cq, uint64_t id)
{
	struct ibv_poll_cq_attr attr = {};

	if (ibv_start_poll(cq, &attr) || cq->wr_id != id)
		die("ibv_start_poll does not find request %llu", (unsigned long long)id);
}

/* The next completion is of that request; or with 0 there is none. */
static bool next_is(struct ibv_cq_ex *cq, uint64_t id)
{
	int error = ibv_next_poll(cq);

	if (!id && error == ENOENT)
		return true;
	if (id && !error && cq->wr_id == id)
		return true;
	ksft_print_msg("%s, request %llu instead of %llu\n", error ? strerror(error) : "found",
		       (unsigned long long)cq->wr_id, (unsigned long long)id);
	return false;
}

/* The kernel knows what was taken: the queue goes round. */
static bool batch_end(struct batch *batch)
{
	unsigned int i;
	bool ok = true;

	ibv_end_poll(batch->ex);
	for (i = 0; ok && i < 3 * CQES; i++)
		ok = !write_post(batch->left.qp, i) && cq_expect(batch->cq, "WRITE", i, IBV_WC_SUCCESS, WAIT_MS);
	pair_free(&batch->gone);
	pair_free(&batch->left);
	cq_free(batch->cq);
	return ok;
}

static void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("no RESET");
}

/* The queue pair whose completion it has just read. */
static bool run_reset_in_batch(void)
{
	struct batch batch = batch_make();
	bool ok;

	writes_complete(batch.gone.qp, (uint64_t[]){ 1 }, 1);
	writes_complete(batch.left.qp, (uint64_t[]){ 2 }, 1);
	writes_complete(batch.gone.qp, (uint64_t[]){ 3 }, 1);
	writes_complete(batch.left.qp, (uint64_t[]){ 4 }, 1);
	start_poll(batch.ex, 1);
	reset(batch.gone.qp);
	/* What was read stays readable. */
	ok = ibv_wc_read_qp_num(batch.ex) == batch.gone.qp->qp_num && next_is(batch.ex, 2) && next_is(batch.ex, 4) &&
	     next_is(batch.ex, 0);
	return batch_end(&batch) && ok;
}

/* Behind the last completion, when more have come. */
static bool run_reset_behind_batch(void)
{
	struct batch batch = batch_make();
	bool ok;

	writes_complete(batch.left.qp, (uint64_t[]){ 1 }, 1);
	start_poll(batch.ex, 1);
	ok = next_is(batch.ex, 0);
	writes_complete(batch.gone.qp, (uint64_t[]){ 2, 3 }, 2);
	writes_complete(batch.left.qp, (uint64_t[]){ 4 }, 1);
	reset(batch.gone.qp);
	ok = ok && next_is(batch.ex, 4) && next_is(batch.ex, 0);
	return batch_end(&batch) && ok;
}

static bool run_resize_in_batch(void)
{
	struct batch batch = batch_make();
	struct ibv_qp *qp = batch.left.qp;
	bool ok;

	writes_complete(qp, (uint64_t[]){ 1, 2, 3 }, 3);
	start_poll(batch.ex, 1);
	ok = next_is(batch.ex, 2);
	if (ibv_resize_cq(batch.cq, 4 * CQES))
		die("ibv_resize_cq fails");
	ok = ok && ibv_wc_read_qp_num(batch.ex) == qp->qp_num && next_is(batch.ex, 3) && next_is(batch.ex, 0);
	return batch_end(&batch) && ok;
}

/* --- Rings that cannot be mapped -------------------------------------------------------------- */

static struct rlimit no_more_mappings(void)
{
	struct rlimit before, now;
	unsigned long pages;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &before))
		die("no size of the process");
	fclose(file);
	now = before;
	now.rlim_cur = pages * sysconf(_SC_PAGESIZE);
	if (setrlimit(RLIMIT_AS, &now))
		die("setrlimit: %s", strerror(errno));
	return before;
}

/* The old ring makes room for the new one. */
static bool run_resize_in_place(void)
{
	struct ibv_cq *cq = cq_make(a, CQES * 16);
	struct pair pair = pair_make(cq);
	struct rlimit before;
	int error;
	bool ok;

	writes_complete(pair.qp, (uint64_t[]){ 1, 2 }, 2);
	before = no_more_mappings();
	error = ibv_resize_cq(cq, CQES * 8);
	setrlimit(RLIMIT_AS, &before);
	if (error)
		ksft_print_msg("ibv_resize_cq: %s\n", strerror(error));
	ok = !error && holds(cq, (uint64_t[]){ 1, 2 }, 2);
	ok = ok && !write_post(pair.qp, 3) && cq_expect(cq, "WRITE", 3, IBV_WC_SUCCESS, WAIT_MS);
	pair_free(&pair);
	cq_free(cq);
	return ok;
}

/* There is no room at all: the call fails, and so do those that follow, but nothing worse happens. */
static bool run_resize_without_room(void)
{
	struct ibv_cq *cq = cq_make(a, CQES);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(a->pd, &init);
	struct ibv_srq_attr larger = { .max_wr = 1 << 14 };
	struct ibv_recv_wr wr = {}, *bad;
	struct rlimit before;
	struct ibv_wc wc;
	int of_cq, of_srq, post, found;

	if (!srq)
		die("ibv_create_srq: %s", strerror(errno));
	before = no_more_mappings();
	of_cq = ibv_resize_cq(cq, 1 << 16);
	of_srq = ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR);
	setrlimit(RLIMIT_AS, &before);
	found = ibv_poll_cq(cq, 1, &wc);
	post = ibv_post_srq_recv(srq, &wr, &bad);
	ksft_print_msg("ibv_resize_cq: %s; ibv_modify_srq: %s; %d found; a receive: %s\n", strerror(of_cq), strerror(of_srq),
		       found, strerror(post));
	ibv_destroy_srq(srq);
	cq_free(cq);
	return of_cq == ENOMEM && of_srq == ENOMEM && found == 0 && post == ENOMEM;
}

/* --- What is refused at once ------------------------------------------------------------------ */

static bool run_uc_invalidate(void)
{
	struct ibv_cq *cq = cq_make(a, CQES);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(a->context, &attr);
	int error = errno;
	bool ok = !qp && error == EOPNOTSUPP;

	if (qp)
		ibv_destroy_qp(qp);
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	qp = ibv_create_qp_ex(a->context, &attr);
	ok = ok && qp;
	if (qp)
		ibv_destroy_qp(qp);
	cq_free(cq);
	return ok;
}

static bool run_zero_based(void)
{
	struct ibv_cq *cq = cq_make(a, CQES);
	struct pair pair = pair_make(cq);
	struct ibv_mw *mw = ibv_alloc_mw(a->pd, IBV_MW_TYPE_1);
	struct region region;
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	int refused, taken;

	if (!mw)
		die("ibv_alloc_mw: %s", strerror(errno));
	region_make(&region, a, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = region.mr,
		.addr = (uintptr_t)region.memory,
		.length = SIZE,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED,
	};
	refused = ibv_bind_mw(pair.qp, mw, &bind);
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	taken = ibv_bind_mw(pair.qp, mw, &bind);
	if (!taken && !cq_expect(cq, "bind", 0, IBV_WC_SUCCESS, WAIT_MS))
		taken = EIO;
	ksft_print_msg("zero-based: %s; otherwise: %s\n", strerror(refused), strerror(taken));
	ibv_dealloc_mw(mw);
	pair_free(&pair);
	region_free(&region);
	cq_free(cq);
	return refused == EINVAL && !taken;
}

/* --- The functions that build a request -------------------------------------------------------- */

/* A queue pair with these functions, connected to a peer. */
static struct ibv_qp_ex *builder_make(struct pair *pair)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = pair->cq,
		.recv_cq = pair->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = LENGTH },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW,
	};

	pair->qp = ibv_create_qp_ex(a->context, &attr);
	if (!pair->qp)
		die("ibv_create_qp_ex: %s", strerror(errno));
	pair->peer_cq = cq_make(b, CQES);
	pair->peer = qp_make(b, IBV_QPT_RC, pair->peer_cq, pair->peer_cq, depth, NULL);
	qp_connect(a, pair->qp, b, pair->peer, IBV_MTU_1024, PATIENT);
	return ibv_qp_to_qp_ex(pair->qp);
}

/* Two setters for one request: the last one counts. */
static bool run_last_setter(void)
{
	struct pair pair = { .cq = cq_make(a, CQES) };
	struct ibv_qp_ex *qp = builder_make(&pair);
	unsigned char data[LENGTH];
	bool ok;

	memset(data, 0x11, LENGTH);
	memset(source.memory, 0x22, LENGTH);
	memset(target.memory, 0, LENGTH);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, target.mr->rkey, (uintptr_t)target.memory);
	ibv_wr_set_inline_data(qp, data, LENGTH);
	ibv_wr_set_sge(qp, source.mr->lkey, (uintptr_t)source.memory, LENGTH);
	ok = !ibv_wr_complete(qp) && cq_expect(pair.cq, "WRITE", 1, IBV_WC_SUCCESS, WAIT_MS) &&
	     !memcmp(target.memory, source.memory, LENGTH);
	pair_free(&pair);
	cq_free(pair.cq);
	return ok;
}

static bool run_no_window(void)
{
	struct pair pair = { .cq = cq_make(a, CQES) };
	struct ibv_qp_ex *qp = builder_make(&pair);
	struct ibv_mw_bind_info info = {};
	int error;

	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, NULL, 0, &info);
	error = ibv_wr_complete(qp);
	ksft_print_msg("ibv_wr_complete: %s\n", strerror(error));
	pair_free(&pair);
	cq_free(pair.cq);
	return error == EINVAL;
}

static const struct row rows[] = {
	{ "a process without the credentials that opened the device posts", run_credentials },
	{ "a context and a domain that were imported, and other credentials", run_imported },
	{ "completions of a queue pair that is destroyed", run_destroyed },
	{ "RESET of a queue pair whose completion is being read", run_reset_in_batch },
	{ "RESET of a queue pair behind the last completion that was read", run_reset_behind_batch },
	{ "a queue is resized while a completion is being read", run_resize_in_batch },
	{ "a smaller ring takes the place of the old one's mapping", run_resize_in_place },
	{ "a ring that cannot be mapped", run_resize_without_room },
	{ "UC: SEND with invalidate is refused with the queue pair", run_uc_invalidate },
	{ "a window of type 1 with addresses from 0 on is refused", run_zero_based },
	{ "ibv_wr_set_sge() after ibv_wr_set_inline_data()", run_last_setter },
	{ "ibv_wr_bind_mw() without a window", run_no_window },
};

static void begin(char **names)
{
	region_make(&source, a, SIZE, IBV_ACCESS_LOCAL_WRITE);
	region_make(&target, b, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void end(void)
{
	region_free(&source);
	region_free(&target);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end };
