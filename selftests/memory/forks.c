// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is registered when a process forks. The kernel copies pinned pages for the child at once, so the parent
 * keeps those that the device has, whoever stores first.
 *
 * Test: pinned memory and fork()
 * Suites: all
 */

#include <sys/wait.h>

#include "test.h"

/* Some pages, also where a page has 16 KiB. */
#define SIZE (4 * 16384)
#define RECEIVE 7
#define WAIT_MS 20000

/* The device of the process that forks, and its peer, which has memory for what it writes, reads and receives. */
static struct device *const a = &devices[0], *const b = &devices[1];
static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];
static struct region ours, theirs;
/* The bytes that the child stores. */
static uint8_t childs[SIZE];

enum { CHILD_STAYS, CHILD_ENDS, FOR_READING };

/* By one of the two; a READ or WRITE is of all our memory. */
static bool moved(unsigned int from, enum ibv_wr_opcode opcode, struct ibv_sge sge)
{
	struct ibv_send_wr wr = {
		.wr_id = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)ours.memory, .rkey = ours.mr->rkey },
	};

	send_post(qps[from], &wr);
	return cq_expect(cqs[from], "the request", opcode, IBV_WC_SUCCESS, WAIT_MS);
}

/* The peer gets the parent's bytes, and the parent those of the peer. */
static bool is_the_parents(bool is_written)
{
	struct ibv_sge room = region_sge(&theirs, 2 * SIZE, SIZE);
	struct ibv_recv_wr receive = { .wr_id = RECEIVE, .sg_list = &room, .num_sge = 1 };
	bool ok;

	recv_post(qps[1], &receive);
	memcpy(theirs.expected + SIZE, ours.expected, SIZE);
	memcpy(theirs.expected + 2 * SIZE, ours.expected, SIZE);
	ok = moved(1, IBV_WR_RDMA_READ, region_sge(&theirs, SIZE, SIZE)) &&
	     moved(0, IBV_WR_SEND, region_sge(&ours, 0, SIZE)) &&
	     cq_expect(cqs[1], "the receive", RECEIVE, IBV_WC_SUCCESS, WAIT_MS);
	if (is_written) {
		memcpy(ours.expected, theirs.expected, SIZE);
		ok = ok && moved(1, IBV_WR_RDMA_WRITE, region_sge(&theirs, 0, SIZE));
	}
	return ok && region_check(&theirs, "the peer's memory") && region_check(&ours, "the parent's memory");
}

/* Stores its bytes when it is told to, and says so. They must still be there once the parent has closed the pipe. */
static void be_the_child(int from_parent, int to_parent)
{
	char byte;

	if (read(from_parent, &byte, 1) != 1)
		_exit(2);
	memcpy(ours.memory, childs, SIZE);
	if (write(to_parent, "", 1) != 1 || read(from_parent, &byte, 1))
		_exit(2);
	_exit(memcmp(ours.memory, childs, SIZE) ? 1 : 0);
}

static bool child_stores(int to_child, int from_child)
{
	char byte;

	if (write(to_child, "", 1) == 1 && read(from_child, &byte, 1) == 1)
		return true;
	ksft_print_msg("the child stores nothing\n");
	return false;
}

static bool child_ends(pid_t child, int to_child)
{
	int status;

	close(to_child);
	if (waitpid(child, &status, 0) == child && !status)
		return true;
	ksft_print_msg("the child ends with status %#x: 0x100 says that its memory has changed\n", status);
	return false;
}

static bool run_forked(int which)
{
	int to_child[2], to_parent[2];
	pid_t child;
	bool ok;

	region_make(&ours, a, SIZE,
		    which == FOR_READING ? IBV_ACCESS_REMOTE_READ :
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	region_fill(&theirs);
	random_fill(childs, SIZE);
	if (pipe(to_child) || pipe(to_parent))
		die("pipe: %s", strerror(errno));
	child = fork_child();
	if (!child) {
		close(to_child[1]);
		close(to_parent[0]);
		be_the_child(to_child[0], to_parent[1]);
	}
	close(to_child[0]);
	close(to_parent[1]);
	if (which == CHILD_ENDS) {
		ok = child_stores(to_child[1], to_parent[0]);
		ok = child_ends(child, to_child[1]) && ok;
		region_fill(&ours);
		ok = is_the_parents(true) && ok;
	} else {
		region_fill(&ours);
		ok = child_stores(to_child[1], to_parent[0]);
		ok = is_the_parents(which != FOR_READING) && ok;
		ok = child_ends(child, to_child[1]) && ok;
	}
	close(to_parent[0]);
	region_free(&ours);
	return ok;
}

/* As the kernel tells it: programs need no ibv_fork_init(), which would keep pages from the child. */
static bool run_unneeded(void)
{
	enum ibv_fork_status status = ibv_is_fork_initialized();

	ksft_print_msg("ibv_is_fork_initialized() says %d\n", status);
	return status == IBV_FORK_UNNEEDED;
}

static const struct row rows[] = {
	{ "ibv_fork_init() is not needed", run_unneeded },
	{ "the parent stores first, and the child lives on", .run_with = run_forked, CHILD_STAYS },
	{ "the child stores first, and ends", .run_with = run_forked, CHILD_ENDS },
	{ "memory that is registered for reading", .run_with = run_forked, FOR_READING },
};

static bool run_row(const struct row *row)
{
	const struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	bool ok;
	int i;

	for (i = 0; i < 2; i++)
		qps[i] = qp_make(&devices[i], IBV_QPT_RC, cqs[i], cqs[i], depth, NULL);
	qp_connect(a, qps[0], b, qps[1], IBV_MTU_1024, PATIENT);
	ok = row_run(row);
	for (i = 0; i < 2; i++) {
		qp_free(qps[i]);
		cq_drain(cqs[i]);
	}
	return ok;
}

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++)
		cqs[i] = cq_make(&devices[i], 16);
	region_make(&theirs, b, 3 * SIZE, IBV_ACCESS_LOCAL_WRITE);
}

static void end(void)
{
	int i;

	region_free(&theirs);
	for (i = 0; i < 2; i++)
		cq_free(cqs[i]);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end, .run_row = run_row };
