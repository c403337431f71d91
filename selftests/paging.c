// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is paged on demand: messages from and to pages that are not there yet,
 * that move, that change hands, that may not be written to, or that never come.
 *
 * paging [-4|-6] [-s SEED] DEVICE DEVICE
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"
#include "kselftest.h"

#define PAGES 48
#define DEPTH 16
#define WAIT_MS 60000
/* Nothing answers for a page that is on its way: as long as a slow machine may take. */
#define VERY_PATIENT ((struct patience){ .timeout = 18, .retries = 7, .rnr_retries = 7 })
#define ALL                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |          \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND)

struct end {
	struct device device;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_qp *qp;
	uint8_t *memory;
	struct ibv_mr *mr;
};

static struct end ends[2];
/* The one that asks, and its peer. */
static struct end *const a = &ends[0], *const b = &ends[1];
static size_t page, size;
/* Neither aligned nor a multiple of anything. */
static const size_t at = 123;
static uint32_t length;
static uint8_t *expected;

static void *map(void *address, int flags, int fd)
{
	void *memory = mmap(address, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (memory == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return memory;
}

static void *map_anonymous(void *address)
{
	return map(address, MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED : 0), -1);
}

static void adopt(struct end *end, void *memory)
{
	end->memory = memory;
	end->mr = ibv_reg_mr(end->device.pd, memory, size, ALL);
	if (!end->mr)
		die("%s: ibv_reg_mr: %s", end->device.name, strerror(errno));
}

static void start(void)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	int i;

	for (i = 0; i < 2; i++) {
		ends[i].qp = qp_make(&ends[i].device, IBV_QPT_RC, ends[i].send_cq,
				     ends[i].recv_cq, depth, NULL);
		adopt(&ends[i], map_anonymous(NULL));
	}
	qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, VERY_PATIENT);
}

static void finish(void)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++) {
		if (ends[i].qp && ibv_destroy_qp(ends[i].qp))
			die("ibv_destroy_qp: %s", strerror(errno));
		ends[i].qp = NULL;
		if (ends[i].mr && ibv_dereg_mr(ends[i].mr))
			die("ibv_dereg_mr: %s", strerror(errno));
		ends[i].mr = NULL;
		munmap(ends[i].memory, size);
	}
	for (i = 0; i < 2; i++) {
		while (ibv_poll_cq(ends[i].send_cq, 1, &wc) > 0)
			;
		while (ibv_poll_cq(ends[i].recv_cq, 1, &wc) > 0)
			;
	}
}

static struct ibv_sge piece(const struct end *end, uint32_t bytes)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)end->memory + (bytes == 8 ? 0 : at),
		.length = bytes,
		.lkey = end->mr->lkey,
	};
}

static void post(enum ibv_wr_opcode opcode, uint32_t bytes)
{
	struct ibv_sge from = piece(a, bytes), to = piece(b, bytes);
	struct ibv_send_wr wr = {
		.sg_list = &from,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;

	if (opcode == IBV_WR_SEND) {
		if (ibv_post_recv(b->qp, &receive, &bad_receive))
			die("ibv_post_recv");
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		   opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = to.addr;
		wr.wr.atomic.rkey = b->mr->rkey;
		wr.wr.atomic.compare_add = 0;
		wr.wr.atomic.swap = 0x1122334455667788;
		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = to.addr;
		wr.wr.rdma.rkey = b->mr->rkey;
	}
	if (ibv_post_send(a->qp, &wr, &bad))
		die("ibv_post_send");
}

static bool completed(struct ibv_cq *cq, const char *what, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!cq_poll(cq, &wc, WAIT_MS)) {
		ksft_print_msg("no completion: %s\n", what);
		return false;
	}
	if (wc.status == status)
		return true;
	ksft_print_msg("%s: %s instead of %s\n", what, ibv_wc_status_str(wc.status),
		       ibv_wc_status_str(status));
	return false;
}

/* One message that arrives, whatever has to be brought in for it. */
static bool moved(enum ibv_wr_opcode opcode)
{
	struct end *from = opcode == IBV_WR_RDMA_READ ? b : a;
	struct end *to = opcode == IBV_WR_RDMA_READ ? a : b;

	random_fill(expected, length);
	memcpy(from->memory + at, expected, length);
	post(opcode, length);
	if (!completed(a->send_cq, "the request", IBV_WC_SUCCESS))
		return false;
	if (opcode == IBV_WR_SEND && !completed(b->recv_cq, "the receive", IBV_WC_SUCCESS))
		return false;
	if (memcmp(to->memory + at, expected, length)) {
		ksft_print_msg("the bytes that arrived are others\n");
		return false;
	}
	return true;
}

static bool run_absent(enum ibv_wr_opcode opcode)
{
	uint64_t *theirs = (uint64_t *)b->memory, *ours = (uint64_t *)a->memory;

	switch (opcode) {
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		post(opcode, 8);
		if (!completed(a->send_cq, "the atomic", IBV_WC_SUCCESS))
			return false;
		if (*ours != 0)
			return false;
		return *theirs == (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 5 : 0x1122334455667788);
	default:
		/* Then again, now that it is there. */
		return moved(opcode) && moved(opcode);
	}
}

/* Other pages take the place of those that a message has used. */
static bool run_replaced(enum ibv_wr_opcode opcode)
{
	int i;

	for (i = 0; i < 8; i++) {
		if (!moved(opcode))
			return false;
		map_anonymous(a->memory);
		map_anonymous(b->memory);
	}
	return moved(opcode);
}

static bool run_discarded(enum ibv_wr_opcode opcode)
{
	int i;

	for (i = 0; i < 8; i++) {
		if (!moved(opcode))
			return false;
		if (madvise(a->memory, size, MADV_DONTNEED) ||
		    madvise(b->memory, size, MADV_DONTNEED))
			die("madvise: %s", strerror(errno));
	}
	return moved(opcode);
}

/* After a fork the pages are the child's and ours, until one writes: it must be we. */
static bool run_forked(enum ibv_wr_opcode opcode)
{
	int to_child[2], status;
	uint8_t old = 0x5a;
	pid_t child;
	char byte = 0;
	bool ok;

	if (!moved(opcode) || pipe(to_child))
		return false;
	memset(b->memory, old, size);
	memset(a->memory, old, size);
	child = fork();
	if (child < 0)
		die("fork: %s", strerror(errno));
	if (!child) {
		size_t i;

		close(to_child[1]);
		if (read(to_child[0], &byte, 1) != 1)
			_exit(2);
		for (i = 0; i < size; i++) {
			if (a->memory[i] != old || b->memory[i] != old)
				_exit(1);
		}
		_exit(0);
	}
	close(to_child[0]);
	ok = moved(opcode);
	if (write(to_child[1], &byte, 1) != 1)
		ok = false;
	close(to_child[1]);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
		ksft_print_msg("the child's memory has changed\n");
		ok = false;
	}
	return ok;
}

static atomic_bool ended;

/* Each fork makes all pages read-only for a while. */
static void *keep_forking(void *count)
{
	while (!atomic_load(&ended)) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		if (child > 0) {
			waitpid(child, NULL, 0);
			++*(unsigned int *)count;
		}
	}
	return NULL;
}

static bool run_restless(enum ibv_wr_opcode opcode)
{
	unsigned int forks = 0, i;
	pthread_t thread;
	bool ok = true;

	atomic_store(&ended, false);
	if (pthread_create(&thread, NULL, keep_forking, &forks))
		die("pthread_create");
	for (i = 0; ok && i < 100; i++)
		ok = moved(opcode);
	atomic_store(&ended, true);
	pthread_join(thread, NULL);
	ksft_print_msg("%u messages, %u forks\n", i, forks);
	return ok && forks > 0;
}

/* What the process could not do itself, its peer cannot do either. */
static bool run_write_protected(enum ibv_wr_opcode opcode)
{
	struct end *to = opcode == IBV_WR_RDMA_READ ? a : b;
	enum ibv_wc_status status;

	if (!moved(opcode) || mprotect(to->memory, size, PROT_READ))
		return false;
	memcpy(expected, to->memory + at, length);
	status = opcode == IBV_WR_SEND ? IBV_WC_REM_OP_ERR :
		 opcode == IBV_WR_RDMA_READ ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR;
	post(opcode, length);
	if (!completed(a->send_cq, "the request", status))
		return false;
	if (opcode == IBV_WR_SEND && !completed(b->recv_cq, "the receive", IBV_WC_LOC_PROT_ERR))
		return false;
	return !memcmp(expected, to->memory + at, length);
}

static bool run_unmapped_source(enum ibv_wr_opcode opcode)
{
	struct end *from = opcode == IBV_WR_RDMA_READ ? b : a;

	if (!moved(opcode) || munmap(from->memory, size))
		return false;
	post(opcode, length);
	return completed(a->send_cq, "the request",
			 opcode == IBV_WR_RDMA_READ ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
}

/* The process's own permission is asked for, page by page. */
static bool run_last_page(enum ibv_wr_opcode opcode)
{
	if (!moved(opcode) || munmap(b->memory + size - page, page))
		return false;
	post(opcode, length);
	return completed(a->send_cq, "the request", IBV_WC_REM_ACCESS_ERR);
}

/* Pages that the kernel itself cannot reach. */
static bool run_secret(enum ibv_wr_opcode opcode)
{
	int fd = syscall(SYS_memfd_secret, 0);

	if (fd < 0)
		die("memfd_secret: %s", strerror(errno));
	if (ftruncate(fd, size))
		die("ftruncate: %s", strerror(errno));
	map(b->memory, MAP_SHARED | MAP_FIXED, fd);
	close(fd);
	memset(b->memory, 1, size);
	post(opcode, length);
	return completed(a->send_cq, "the request", IBV_WC_REM_ACCESS_ERR);
}

static bool has_userfaultfd(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno != ENOSYS;
}

/* A page that never comes holds nobody up but its own queue pair. */
static bool run_stuck(enum ibv_wr_opcode opcode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)b->memory, .len = size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	uint64_t began;
	struct ibv_wc wc;
	bool ok = true;

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
		die("userfaultfd: %s", strerror(errno));
	post(opcode, length);
	if (cq_poll(a->send_cq, &wc, 300)) {
		ksft_print_msg("a completion without the page: %s\n", ibv_wc_status_str(wc.status));
		ok = false;
	}
	began = now_ms();
	if (ibv_destroy_qp(b->qp) || ibv_dereg_mr(b->mr))
		die("destroy: %s", strerror(errno));
	b->qp = NULL;
	b->mr = NULL;
	if (now_ms() - began > 2000) {
		ksft_print_msg("destroying took %llu ms\n",
			       (unsigned long long)(now_ms() - began));
		ok = false;
	}
	close(fd);
	return ok;
}

static const struct {
	const char *name;
	bool (*run)(enum ibv_wr_opcode opcode);
	enum ibv_wr_opcode opcode;
} rows[] = {
	{ "SEND, absent pages", run_absent, IBV_WR_SEND },
	{ "WRITE, absent pages", run_absent, IBV_WR_RDMA_WRITE },
	{ "READ, absent pages", run_absent, IBV_WR_RDMA_READ },
	{ "COMPARE AND SWAP, absent pages", run_absent, IBV_WR_ATOMIC_CMP_AND_SWP },
	{ "FETCH AND ADD, absent pages", run_absent, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "SEND, replaced pages", run_replaced, IBV_WR_SEND },
	{ "WRITE, replaced pages", run_replaced, IBV_WR_RDMA_WRITE },
	{ "READ, replaced pages", run_replaced, IBV_WR_RDMA_READ },
	{ "SEND, discarded pages", run_discarded, IBV_WR_SEND },
	{ "READ, discarded pages", run_discarded, IBV_WR_RDMA_READ },
	{ "WRITE, pages of a fork", run_forked, IBV_WR_RDMA_WRITE },
	{ "READ, pages of a fork", run_forked, IBV_WR_RDMA_READ },
	{ "SEND, restless pages", run_restless, IBV_WR_SEND },
	{ "WRITE, restless pages", run_restless, IBV_WR_RDMA_WRITE },
	{ "READ, restless pages", run_restless, IBV_WR_RDMA_READ },
	{ "SEND to write-protected pages", run_write_protected, IBV_WR_SEND },
	{ "WRITE to write-protected pages", run_write_protected, IBV_WR_RDMA_WRITE },
	{ "READ to write-protected pages", run_write_protected, IBV_WR_RDMA_READ },
	{ "SEND from unmapped pages", run_unmapped_source, IBV_WR_SEND },
	{ "WRITE from unmapped pages", run_unmapped_source, IBV_WR_RDMA_WRITE },
	{ "READ from unmapped pages", run_unmapped_source, IBV_WR_RDMA_READ },
	{ "WRITE to an unmapped last page", run_last_page, IBV_WR_RDMA_WRITE },
	{ "WRITE to secret pages", run_secret, IBV_WR_RDMA_WRITE },
	{ "WRITE to a page that never comes", run_stuck, IBV_WR_RDMA_WRITE },
	{ "READ from a page that never comes", run_stuck, IBV_WR_RDMA_READ },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

int main(int argc, char **argv)
{
	int option, family = 4, i;
	uint64_t seed = time(NULL);
	unsigned int row;

	while ((option = getopt(argc, argv, "46s:")) != -1) {
		switch (option) {
		case '4':
		case '6':
			family = option - '0';
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		default:
			return KSFT_FAIL;
		}
	}
	if (argc - optind != 2)
		die("two devices are needed");
	ksft_print_header();
	ksft_set_plan(ROWS);
	ksft_print_msg("seed %#llx\n", (unsigned long long)seed);
	random_seed(seed);
	page = sysconf(_SC_PAGESIZE);
	size = PAGES * page;
	length = size - at;
	expected = malloc(length);
	if (!expected)
		die("no memory");
	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, argv[optind + i], family);
		end->send_cq = ibv_create_cq(end->device.context, DEPTH, NULL, NULL, 0);
		end->recv_cq = ibv_create_cq(end->device.context, DEPTH, NULL, NULL, 0);
		if (!end->send_cq || !end->recv_cq)
			die("ibv_create_cq: %s", strerror(errno));
	}
	for (row = 0; row < ROWS; row++) {
		bool ok;

		if (rows[row].run == run_stuck && !has_userfaultfd()) {
			ksft_test_result_skip("%s: this kernel has no userfaultfd\n",
					      rows[row].name);
			continue;
		}
		start();
		ok = rows[row].run(rows[row].opcode);
		finish();
		ksft_test_result(ok, "%s\n", rows[row].name);
	}
	for (i = 0; i < 2; i++) {
		if (ibv_destroy_cq(ends[i].send_cq) || ibv_destroy_cq(ends[i].recv_cq))
			die("ibv_destroy_cq: %s", strerror(errno));
		device_close(&ends[i].device);
	}
	ksft_finished();
}
