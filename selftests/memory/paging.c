// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is paged on demand: messages from and to pages that are not there yet,
 * that move, that change hands, that may not be written to, or that never come; of regions
 * of their own, and of one of all addresses. And advice about such memory, given by the
 * kernel's own interface: the provider of rdma-core 56 has no ibv_advise_mr().
 *
 * paging [-4|-6] [-q QPS] DEVICE DEVICE
 *
 * QPS wait together for a page that never comes. From the first device's netdev packets are sent by hand.
 *
 * Test: memory that is paged on demand
 */

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "cgroup.h"
#include "command.h"
#include "test.h"
#include "wire.h"

#define PAGES 48
#define DEPTH 16
#define WAIT_MS 60000
/* The value of a word before an atomic, the number that one adds, and the value that the other one puts there. */
#define OLD 0x0123456789abcdef
#define ADDED 5
#define SWAPPED 0x1122334455667788
/* Bytes that take several signals to bring in, how often those come, and how many. */
#define INTERRUPTED (16 << 20)
#define SIGNAL_US 2000
#define SIGNALS 50
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
/* Regions are of all addresses. */
static bool everywhere;
/* Rights that they do not have. */
static int without;

#define CHUNK ((size_t)2 << 20)
#define SPARSE ((size_t)4 << 30)
/* Page tables that are enough to tell. */
#define TABLES 16

static void *map(void *address, int flags, int fd)
{
	void *memory = mmap(address, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (memory == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return memory;
}

/* As a kernel without huge pages has them anyway: PREEMPT_RT has none. */
static bool small_pages(void *range, size_t length)
{
	return !madvise(range, length, MADV_NOHUGEPAGE) || errno == EINVAL;
}

static void *map_anonymous(void *address)
{
	return map(address, MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED : 0), -1);
}

static void adopt(struct end *end, void *memory)
{
	end->memory = memory;
	end->mr = mr_make(end->device.pd, everywhere ? NULL : memory, everywhere ? SIZE_MAX : size, ALL & ~without);
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
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(ends[i].qp);
		ends[i].qp = NULL;
		if (ends[i].mr && ibv_dereg_mr(ends[i].mr))
			die("ibv_dereg_mr: %s", strerror(errno));
		ends[i].mr = NULL;
		munmap(ends[i].memory, size);
	}
	for (i = 0; i < 2; i++) {
		cq_drain(ends[i].send_cq);
		cq_drain(ends[i].recv_cq);
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
	};
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 };

	if (opcode == IBV_WR_SEND) {
		recv_post(b->qp, &receive);
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		   opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = to.addr;
		wr.wr.atomic.rkey = b->mr->rkey;
		wr.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? ADDED : OLD;
		wr.wr.atomic.swap = SWAPPED;
	} else {
		wr.wr.rdma.remote_addr = to.addr;
		wr.wr.rdma.rkey = b->mr->rkey;
	}
	send_post(a->qp, &wr);
}

static bool completed(struct ibv_cq *cq, const char *what, enum ibv_wc_status status)
{
	return cq_expect(cq, what, ANY_REQUEST, status, WAIT_MS);
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

/* Pages that are absent, but not zeros: they come from a file, which begins with this word. */
static void map_word(void *address, uint64_t word)
{
	int fd = memfd_create("word", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, size) || pwrite(fd, &word, sizeof(word), 0) != sizeof(word))
		die("memfd_create: %s", strerror(errno));
	map(address, MAP_PRIVATE | MAP_FIXED, fd);
	close(fd);
}

/* The old value comes back into a page of zeros: were it zero, too, a device that writes no answer would pass. */
static bool atomic_done(int opcode)
{
	uint64_t *theirs = (uint64_t *)b->memory, *ours = (uint64_t *)a->memory;
	uint64_t wanted = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? OLD + ADDED : SWAPPED;

	map_word(theirs, OLD);
	post(opcode, 8);
	if (!completed(a->send_cq, "the atomic", IBV_WC_SUCCESS))
		return false;
	if (*ours == OLD && *theirs == wanted)
		return true;
	ksft_print_msg("the answer is %#llx, and then %#llx is there instead of %#llx\n", (unsigned long long)*ours,
		       (unsigned long long)*theirs, (unsigned long long)wanted);
	return false;
}

static bool run_absent(int opcode)
{
	switch (opcode) {
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return atomic_done(opcode);
	default:
		/* Then again, now that it is there. */
		return moved(opcode) && moved(opcode);
	}
}

/* Other pages take the place of those that a message has used. */
static bool run_replaced(int opcode)
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

static bool run_discarded(int opcode)
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
static bool run_forked(int opcode)
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
	child = fork_child();
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
			++*(atomic_uint *)count;
		}
	}
	return NULL;
}

static bool run_many_forks(int opcode)
{
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	atomic_uint forks = 0;
	pthread_t thread;
	unsigned int i;
	bool ok = true;

	atomic_store(&ended, false);
	thread_start(&thread, keep_forking, &forks);
	/* The thread may begin late. */
	for (i = 0; ok && (i < 100 || (!forks && now_ms() < end)); i++)
		ok = moved(opcode);
	atomic_store(&ended, true);
	pthread_join(thread, NULL);
	ksft_print_msg("%u messages, %u forks\n", i, forks);
	return ok && forks > 0;
}

/* What the process could not do itself, its peer cannot do either. */
static bool run_write_protected(int opcode)
{
	struct end *to = opcode == IBV_WR_RDMA_READ ? a : b;
	enum ibv_wc_status status;

	if (!moved(opcode) || mprotect(to->memory, size, PROT_READ))
		return false;
	memcpy(expected, to->memory + at, length);
	/* Other bytes than those that are there by now. */
	random_fill((opcode == IBV_WR_RDMA_READ ? b : a)->memory + at, length);
	status = opcode == IBV_WR_SEND ? IBV_WC_REM_OP_ERR :
		 opcode == IBV_WR_RDMA_READ ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR;
	post(opcode, length);
	if (!completed(a->send_cq, "the request", status))
		return false;
	if (opcode == IBV_WR_SEND && !completed(b->recv_cq, "the receive", IBV_WC_LOC_PROT_ERR))
		return false;
	return !memcmp(expected, to->memory + at, length);
}

static bool run_unmapped_source(int opcode)
{
	struct end *from = opcode == IBV_WR_RDMA_READ ? b : a;

	if (!moved(opcode) || munmap(from->memory, size))
		return false;
	post(opcode, length);
	return completed(a->send_cq, "the request",
			 opcode == IBV_WR_RDMA_READ ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
}

/* The process's own permission is asked for, page by page. */
static bool run_last_page(int opcode)
{
	if (!moved(opcode) || munmap(b->memory + size - page, page))
		return false;
	post(opcode, length);
	return completed(a->send_cq, "the request", IBV_WC_REM_ACCESS_ERR);
}

/* Pages that the kernel itself cannot reach. */
static bool run_secret(int opcode)
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

/* A message over the border of two of the pieces that the kernel cuts the address space into. */
static bool run_border(int opcode)
{
	uint8_t *ranges[2];
	bool ok = true;
	int i;

	for (i = 0; i < 2; i++) {
		munmap(ends[i].memory, size);
		ranges[i] = mmap(NULL, 3 * CHUNK, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (ranges[i] == MAP_FAILED)
			die("mmap: %s", strerror(errno));
	}
	for (i = 0; ok && i < 2 * PAGES; i++) {
		int side;

		for (side = 0; side < 2; side++) {
			uintptr_t border = ((uintptr_t)ranges[side] + 2 * CHUNK - 1) & -CHUNK;

			size_t pages = (side ? i : 2 * PAGES - i) % PAGES;

			/* The two ends meet it at other places; some do not cross it. */
			ends[side].memory = (uint8_t *)(border - pages * page);
			map_anonymous(ends[side].memory);
		}
		ok = moved(opcode);
		for (side = 0; side < 2; side++)
			munmap(ends[side].memory, size);
	}
	for (i = 0; i < 2; i++) {
		munmap(ranges[i], 3 * CHUNK);
		ends[i].memory = map_anonymous(NULL);
	}
	return ok;
}

/* Of a region so large that what is known of it is not cleared in one go, all is: also at the borders. */
static bool run_large(int opcode)
{
	const size_t step = 4096 * page, all = 4 * step + size;
	uint8_t *memory = b->memory, *range;
	struct ibv_mr *mr = b->mr;
	bool ok = true;
	int i, round;

	range = mmap(NULL, all, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	b->mr = mr_make(b->device.pd, range, all, ALL);
	for (round = 0; ok && round < 4; round++) {
		for (i = 0; ok && i <= 4; i++) {
			b->memory = range + (i ? i * step - size / 2 : 0);
			ok = moved(opcode);
		}
		if (madvise(range, all, MADV_DONTNEED))
			die("madvise: %s", strerror(errno));
	}
	mr_free(b->mr);
	munmap(range, all);
	b->memory = memory;
	b->mr = mr;
	return ok;
}

static uint8_t in_bss[3 * 4096];
static uint8_t in_data[3 * 4096] = { 1 };

/* Whatever address the process has, also one that it got after the registration. */
static bool run_everywhere(int opcode)
{
	uint8_t on_stack[3 * 4096];
	uint8_t *low = (uint8_t *)0x10000000, *high = (uint8_t *)0x7f0000000000 - 16 * CHUNK;
	uint8_t *memory[2] = { a->memory, b->memory };
	uint8_t *on_heap = malloc(sizeof(on_stack));
	uint8_t *places[] = { in_bss, in_data, on_stack, on_heap, low, high };
	const int count = ARRAY_SIZE(places);
	uint32_t all = length;
	bool ok = true;
	int i, j;

	length = sizeof(on_stack) - at;
	for (i = 4; i < count; i++) {
		if (mmap(places[i], sizeof(on_stack), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != places[i])
			die("mmap %p: %s", places[i], strerror(errno));
	}
	for (i = 0; ok && i < count; i++) {
		for (j = 0; ok && j < count; j++) {
			if (i == j)
				continue;
			a->memory = places[i];
			b->memory = places[j];
			ok = moved(opcode);
		}
	}
	for (i = 4; i < count; i++)
		munmap(places[i], sizeof(on_stack));
	free(on_heap);
	length = all;
	a->memory = memory[0];
	b->memory = memory[1];
	return ok;
}

/* More pieces of the address space than the kernel keeps lists for: one for each MiB of the
 * machine's memory, which is half as much as such a piece.
 */
static bool run_sparse(int opcode)
{
	size_t lists = (size_t)sysconf(_SC_PHYS_PAGES) * page / (CHUNK / 2);
	size_t count = lists + lists / 8, i;
	uint64_t *near = (uint64_t *)a->memory;
	uint8_t *memory = b->memory;
	uint8_t *range = mmap(NULL, count * CHUNK, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bool ok = true;

	if (range == MAP_FAILED || !small_pages(range, count * CHUNK))
		die("mmap: %s", strerror(errno));
	ksft_print_msg("%zu pieces\n", count);
	for (i = 0; ok && i < count; i++) {
		b->memory = range + i * CHUNK;
		*near = i + 1;
		post(opcode, 8);
		ok = completed(a->send_cq, "the request", IBV_WC_SUCCESS);
	}
	/* The first ones were forgotten meanwhile. */
	for (i = 0; ok && i < count; i += i < lists / 4 ? 1 : 64) {
		b->memory = range + i * CHUNK;
		if (*(uint64_t *)b->memory != i + 1) {
			ksft_print_msg("piece %zu has other bytes\n", i);
			ok = false;
		}
		*near = 0;
		post(IBV_WR_RDMA_READ, 8);
		ok = ok && completed(a->send_cq, "the READ", IBV_WC_SUCCESS) && *near == i + 1;
	}
	b->memory = memory;
	munmap(range, count * CHUNK);
	return ok;
}

/* An address where nothing can be. */
static bool refused_at(enum ibv_wr_opcode opcode, uint64_t address)
{
	uint8_t *memory = b->memory;
	bool ok = moved(opcode);

	b->memory = (uint8_t *)address;
	post(opcode, 64);
	ok = ok && completed(a->send_cq, "the request", IBV_WC_REM_ACCESS_ERR);
	b->memory = memory;
	return ok;
}

static bool run_null(int opcode)
{
	return refused_at(opcode, 0);
}

static bool run_kernel(int opcode)
{
	return refused_at(opcode, 0xffff888000001000);
}

static bool run_vsyscall(int opcode)
{
	return refused_at(opcode, 0xffffffffff600000);
}

static bool run_last_address(int opcode)
{
	return refused_at(opcode, UINT64_MAX - 63 - at);
}

static bool run_without_right(int opcode)
{
	post(opcode, length);
	return completed(a->send_cq, "the request", IBV_WC_REM_ACCESS_ERR);
}

static bool registers(struct ibv_pd *pd, void *start, size_t bytes, uint64_t iova, int access,
		      int wanted)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova(pd, start, bytes, iova, access);
	if (mr && ibv_dereg_mr(mr))
		die("ibv_dereg_mr: %s", strerror(errno));
	if (!mr == !wanted)
		ksft_print_msg("%p, %#zx bytes at %#llx, access %#x: %s\n", start, bytes,
			       (unsigned long long)iova, access, mr ? "registered" : strerror(errno));
	return wanted ? !mr && errno == wanted : !!mr;
}

static bool run_registrations(int opcode)
{
	struct ibv_query_device_ex_input input = {};
	struct ibv_device_attr_ex attr;
	struct ibv_pd *pd = a->device.pd;
	bool ok = true;

	(void)opcode;
	if (ibv_query_device_ex(a->device.context, &input, &attr))
		die("ibv_query_device_ex");
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT)) {
		ksft_print_msg("the device does not say that it can\n");
		ok = false;
	}
	ok = registers(pd, NULL, SIZE_MAX, 0, ALL, 0) && ok;
	ok = registers(pd, NULL, SIZE_MAX, page, ALL, EINVAL) && ok;
	ok = registers(pd, NULL, SIZE_MAX, 0, ALL | IBV_ACCESS_HUGETLB, EINVAL) && ok;
	ok = registers(pd, (void *)page, SIZE_MAX, page, ALL, EINVAL) && ok;
	/* There are such addresses, and not such a list; then no such addresses. */
	ok = registers(pd, NULL, (size_t)1 << 46, 0, ALL, ENOMEM) && ok;
	ok = registers(pd, NULL, SIZE_MAX - page, 0, ALL, EINVAL) && ok;
	ok = registers(pd, (void *)0xffff888000001000, page, 0, ALL, EINVAL) && ok;
	/* An address with a tag is another one than the process's mapping has. */
	ok = registers(pd, a->memory, size, 0, ALL, 0) && ok;
	ok = registers(pd, (void *)((uintptr_t)a->memory | 1ull << 57), size, 0, ALL, EINVAL) && ok;
	ok = registers(pd, (void *)((uintptr_t)a->memory | 1ull << 62), size, 0, ALL, EINVAL) && ok;
	ok = registers(pd, NULL, 0, 0, ALL, EINVAL) && ok;
	return ok;
}

/* What the parent must know of a child's region. */
struct told {
	uint64_t address;
	uint32_t rkey;
};

/* A child's own device, queue pair and region, for the peer of the parent's queue pair. Its
 * own child keeps the device open, so that they stay when it is gone.
 */
static void be_the_peer(int tell, int go, const int last[2])
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	struct told told;
	char byte;

	device_open(&b->device, b->device.name, family);
	b->send_cq = cq_make(&b->device, DEPTH);
	b->recv_cq = cq_make(&b->device, DEPTH);
	b->qp = qp_make(&b->device, IBV_QPT_RC, b->send_cq, b->recv_cq, depth, NULL);
	adopt(b, map_anonymous(NULL));
	qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, VERY_PATIENT);
	told = (struct told){ .address = (uintptr_t)b->memory, .rkey = b->mr->rkey };
	close(last[1]);
	if (!fork()) {
		/* Until the parent closes it. */
		if (read(last[0], &byte, 1))
			_exit(1);
		_exit(0);
	}
	if (write(tell, &told, sizeof(told)) != sizeof(told) || read(go, &byte, 1) != 1)
		_exit(1);
	_exit(*(uint64_t *)b->memory != *(uint64_t *)a->memory);
}

static bool run_orphaned(int opcode)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	struct end before = *b;
	int tell[2], go[2], last[2], status;
	struct told told = {};
	struct ibv_mr theirs;
	bool ok = false;
	pid_t child;

	if (pipe(tell) || pipe(go) || pipe(last))
		die("pipe: %s", strerror(errno));
	random_fill(a->memory, 8);
	qp_free(a->qp);
	a->qp = qp_make(&a->device, IBV_QPT_RC, a->send_cq, a->recv_cq, depth, NULL);
	child = fork_child();
	if (!child)
		be_the_peer(tell[1], go[0], last);
	close(tell[1]);
	close(go[0]);
	close(last[0]);
	if (read(tell[0], &told, sizeof(told)) == sizeof(told)) {
		/* The child has connected it. */
		a->qp->state = IBV_QPS_RTS;
		theirs = (struct ibv_mr){ .rkey = told.rkey };
		b->memory = (uint8_t *)told.address;
		b->mr = &theirs;
		post(opcode, 8);
		ok = completed(a->send_cq, "the request while it lives", IBV_WC_SUCCESS);
		if (write(go[1], "", 1) != 1 || waitpid(child, &status, 0) != child || status) {
			ksft_print_msg("the child ended with status %#x\n", status);
			ok = false;
		}
		post(opcode, 8);
		ok = completed(a->send_cq, "the request", IBV_WC_REM_ACCESS_ERR) && ok;
	}
	close(tell[0]);
	close(go[1]);
	close(last[1]);
	*b = before;
	return ok;
}

/* As ibv_advise_mr() does it where the provider has it. Returns an errno. */
static int advise(struct ibv_pd *pd, uint64_t advice, uint64_t flags, struct ibv_sge *pieces,
		  unsigned int count)
{
	struct ib_uverbs_attr attributes[] = {
		{ UVERBS_ATTR_ADVISE_MR_PD_HANDLE, .data = pd->handle },
		{ UVERBS_ATTR_ADVISE_MR_ADVICE, sizeof(advice), .data = advice },
		{ UVERBS_ATTR_ADVISE_MR_FLAGS, sizeof(flags), .data = flags },
		{ UVERBS_ATTR_ADVISE_MR_SGE_LIST, count * sizeof(*pieces), .data = (uintptr_t)pieces },
	};

	if (count * sizeof(*pieces) <= 8)
		attributes[3].data = 0;
	return command_method(pd->context, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, attributes,
			      ARRAY_SIZE(attributes));
}

static unsigned long long page_faults(const struct end *end)
{
	return device_counter_now(&end->device, "page_faults");
}

/* Pages of an end's memory that are there. */
static size_t resident(const struct end *end)
{
	unsigned char pages[PAGES];
	size_t i, count = 0;

	if (mincore(end->memory, size, pages))
		die("mincore: %s", strerror(errno));
	for (i = 0; i < PAGES; i++)
		count += pages[i] & 1;
	return count;
}

static bool advised(const struct end *end, uint64_t advice, uint64_t flags)
{
	struct ibv_sge all = piece(end, length);
	int error = advise(end->device.pd, advice, flags, &all, 1);

	if (error)
		ksft_print_msg("advice %d, flags %d: %s\n", (int)advice, (int)flags, strerror(error));
	return !error;
}

/* After the advice, all is there: the message finds no page absent. */
static bool run_prefetched(int opcode)
{
	unsigned long long before;
	bool ok;

	if (!moved(opcode) || madvise(b->memory, size, MADV_DONTNEED) || resident(b))
		return false;
	if (!advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH))
		return false;
	if (resident(b) != PAGES) {
		ksft_print_msg("%zu pages of %d are there\n", resident(b), PAGES);
		return false;
	}
	before = page_faults(b);
	ok = moved(opcode);
	if (page_faults(b) != before) {
		ksft_print_msg("%llu page faults\n", page_faults(b) - before);
		ok = false;
	}
	return ok;
}

/* Pages that are a child's, too: the advice makes us copies of them, and knows where these are. */
static bool run_prefetched_fork(int opcode)
{
	unsigned long long before;
	pid_t child;
	bool ok;

	memset(b->memory, 0x5a, size);
	child = fork_child();
	if (!child) {
		pause();
		_exit(0);
	}
	ok = advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH);
	before = page_faults(b);
	ok = moved(opcode) && ok;
	if (page_faults(b) != before) {
		ksft_print_msg("%llu page faults\n", page_faults(b) - before);
		ok = false;
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return ok;
}

static bool run_prefetched_later(int opcode)
{
	uint64_t began = now_ms();

	if (!advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0))
		return false;
	while (resident(b) != PAGES) {
		if (now_ms() - began > patience_ms(WAIT_MS)) {
			ksft_print_msg("%zu pages of %d are there\n", resident(b), PAGES);
			return false;
		}
		usleep(1000);
	}
	return moved(opcode);
}

/* For reading: it can be read from at once, but writing to it takes its own page fault. */
static bool run_prefetched_read(int opcode)
{
	unsigned long long before;

	if (!advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH))
		return false;
	before = page_faults(b);
	post(IBV_WR_RDMA_READ, length);
	if (!completed(a->send_cq, "the READ", IBV_WC_SUCCESS) || page_faults(b) != before) {
		ksft_print_msg("%llu page faults\n", page_faults(b) - before);
		return false;
	}
	memset(expected, 0, length);
	if (memcmp(a->memory + at, expected, length)) {
		ksft_print_msg("what was read is not zero\n");
		return false;
	}
	if (!moved(opcode))
		return false;
	if (page_faults(b) == before) {
		ksft_print_msg("no page fault\n");
		return false;
	}
	return true;
}

/* Only what is there: nothing is brought in. */
static bool run_if_present(int opcode)
{
	unsigned long long before;
	size_t i;

	for (i = 1; i < PAGES; i += 2)
		b->memory[i * page] = 1;
	if (!advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH))
		return false;
	if (resident(b) != PAGES / 2) {
		ksft_print_msg("%zu pages of %d are there\n", resident(b), PAGES);
		return false;
	}
	for (i = 0; i < PAGES; i++)
		b->memory[i * page] = 1;
	if (!advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH))
		return false;
	before = page_faults(b);
	if (!moved(opcode) || page_faults(b) != before) {
		ksft_print_msg("%llu page faults\n", page_faults(b) - before);
		return false;
	}
	return advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0) && moved(opcode);
}

/* Where nothing is mapped there is nothing to look for: that takes no time. */
static bool run_hole(int opcode)
{
	struct ibv_sge pieces[64];
	const size_t count = ARRAY_SIZE(pieces);
	uint8_t *hole = mmap(NULL, count * SPARSE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t began, took;
	size_t i;
	int error;

	if (hole == MAP_FAILED || munmap(hole, count * SPARSE))
		die("mmap: %s", strerror(errno));
	for (i = 0; i < count; i++) {
		pieces[i] = (struct ibv_sge){
			.addr = (uintptr_t)hole + i * SPARSE,
			.length = SPARSE - page,
			.lkey = b->mr->lkey,
		};
	}
	began = now_ms();
	error = advise(b->device.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, pieces, count);
	took = now_ms() - began;
	ksft_print_msg("advice about %zu GiB: %s, %llu ms\n", count * SPARSE >> 30, error ? strerror(error) : "taken",
		       (unsigned long long)took);
	return !error && took < patience_ms(5000) && moved(opcode);
}

static bool refuses(struct ibv_pd *pd, uint64_t advice, uint64_t flags, struct ibv_sge *pieces,
		    unsigned int count, int wanted, const char *what)
{
	int error = advise(pd, advice, flags, pieces, count);

	if (error == wanted)
		return true;
	ksft_print_msg("%s: %s\n", what, strerror(error));
	return false;
}

/* As ibv_advise_mr(3) has it. */
static bool run_advice_refused(int opcode)
{
	const uint64_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
	struct ibv_pd *pd = b->device.pd, *other = ibv_alloc_pd(b->device.context);
	struct ibv_mr *pinned = ibv_reg_mr(pd, expected, length, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *read_only = ibv_reg_mr(pd, b->memory, size, IBV_ACCESS_ON_DEMAND);
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_sge good = piece(b, length), bad[2] = { good, good };
	bool ok = true;

	(void)opcode;
	if (!other || !pinned || !read_only || !window)
		die("objects: %s", strerror(errno));

#define REFUSES(in, advice, flags, count, error, what) \
	(ok = refuses(in, advice, flags, bad, count, error, what) && ok)
	/* The second of two: then nothing is done for the first either. */
	bad[1].lkey = good.lkey ^ 0x80000000;
	REFUSES(pd, 1, flush, 2, ENOENT, "an unknown key");
	bad[1].lkey = good.lkey ^ 1;
	REFUSES(pd, 1, flush, 2, ENOENT, "another variant of a key");
	bad[1].lkey = window->rkey;
	REFUSES(pd, 1, flush, 2, EINVAL, "a window's key");
	bad[1] = (struct ibv_sge){ .addr = (uintptr_t)expected, .length = 8, .lkey = pinned->lkey };
	REFUSES(pd, 1, flush, 2, EINVAL, "a pinned region");
	bad[1] = good;
	bad[1].lkey = read_only->lkey;
	REFUSES(pd, 1, flush, 2, EPERM, "a read-only region");
	bad[1] = good;
	if (everywhere)
		bad[1].addr = UINT64_MAX - page;
	else
		bad[1].length++;
	REFUSES(pd, 1, flush, 2, EFAULT, "beyond the end");
	REFUSES(pd, 1, 0, 2, EFAULT, "beyond the end, later");
	bad[1] = good;
	REFUSES(other, 1, flush, 2, EPERM, "another protection domain");
	REFUSES(pd, 1, 2, 2, EINVAL, "an unknown flag");
	REFUSES(pd, 3, flush, 2, EOPNOTSUPP, "an unknown advice");
	if (resident(b)) {
		ksft_print_msg("%zu pages were brought in\n", resident(b));
		ok = false;
	}
	REFUSES(pd, 1, flush, 2, 0, "twice the same");
	bad[0].lkey = read_only->lkey;
	REFUSES(pd, 0, flush, 1, 0, "a read-only region, to be read");
	bad[0].length = 0;
	REFUSES(pd, 0, flush, 1, 0, "no bytes");
	bad[0] = good;
	munmap(b->memory + size - page, page);
	REFUSES(pd, 0, flush, 1, EFAULT, "an unmapped last page");
	REFUSES(pd, 0, 0, 1, 0, "an unmapped last page, later");
	REFUSES(pd, 2, flush, 1, 0, "an unmapped last page, if present");
#undef REFUSES
	if (ibv_dealloc_mw(window) || ibv_dereg_mr(read_only) || ibv_dereg_mr(pinned) ||
	    ibv_dealloc_pd(other))
		die("objects: %s", strerror(errno));
	return ok;
}

static bool has_userfaultfd(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno != ENOSYS;
}

/*
 * Two other queue pairs of the same devices: each message finds its pages absent, and has them brought in, while
 * others wait for theirs.
 */
static bool others_go_on(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND;
	struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	struct region regions[2];
	struct ibv_cq *cqs[2];
	struct ibv_qp *qps[2];
	struct ibv_wc wc;
	bool ok = true;
	int i;

	for (i = 0; i < 2; i++) {
		region_make(&regions[i], &ends[i].device, PAGES * page, access);
		cqs[i] = cq_make(&ends[i].device, 1);
		qps[i] = qp_make(&ends[i].device, IBV_QPT_RC, cqs[i], cqs[i], depth, NULL);
	}
	qp_connect(&a->device, qps[0], &b->device, qps[1], IBV_MTU_1024, VERY_PATIENT);
	for (i = 0; ok && i < 10; i++) {
		struct ibv_sge sge = region_sge(&regions[0], 0, PAGES * page);
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
						.sg_list = &sge, .num_sge = 1,
						.wr.rdma = { .remote_addr = (uintptr_t)regions[1].memory,
							     .rkey = regions[1].mr->rkey } };

		if (madvise(regions[1].memory, PAGES * page, MADV_DONTNEED))
			die("madvise: %s", strerror(errno));
		send_post(qps[0], &wr);
		ok = cq_poll(cqs[0], &wc, WAIT_MS) && !wc.status &&
		     !memcmp(regions[1].memory, regions[0].memory, PAGES * page);
	}
	if (!ok)
		ksft_print_msg("another queue pair does not go on\n");
	for (i = 0; i < 2; i++) {
		if (ibv_destroy_qp(qps[i]) || ibv_destroy_cq(cqs[i]))
			die("destroy: %s", strerror(errno));
		region_free(&regions[i]);
	}
	return ok;
}

/* A page that never comes holds nobody up but its own queue pair. */
enum cause { MESSAGE, ADVICE, FLUSHED_ADVICE };

static bool stuck(enum ibv_wr_opcode opcode, enum cause cause)
{
	int fd = absence_begin(b->memory, size);
	uint64_t began;
	struct ibv_wc wc;
	bool ok = true;
	int i, status;
	pid_t child;

	/* Pages for the row before, whose page came when its userfaultfd was closed, may be at the same place. */
	if (madvise(b->memory, size, MADV_DONTNEED))
		die("madvise: %s", strerror(errno));
	switch (cause) {
	case MESSAGE:
		post(opcode, length);
		absence_noticed(fd);
		break;
	case ADVICE:
		/* More than will be remembered. */
		for (i = 0; ok && i < 200; i++)
			ok = advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0);
		if (ok)
			absence_noticed(fd);
		break;
	case FLUSHED_ADVICE:
		child = fork_child();
		if (!child) {
			alarm(1);
			advised(b, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH);
			_exit(3);
		}
		if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) {
			ksft_print_msg("the child ended with status %#x\n", status);
			ok = false;
		}
		break;
	}
	ok = others_go_on() && ok;
	if (cq_poll(a->send_cq, &wc, 300)) {
		ksft_print_msg("a completion without the page: %s\n", ibv_wc_status_str(wc.status));
		ok = false;
	}
	began = now_ms();
	if (ibv_destroy_qp(b->qp) || ibv_dereg_mr(b->mr))
		die("destroy: %s", strerror(errno));
	b->qp = NULL;
	b->mr = NULL;
	if (now_ms() - began > patience_ms(2000)) {
		ksft_print_msg("destroying took %llu ms\n",
			       (unsigned long long)(now_ms() - began));
		ok = false;
	}
	close(fd);
	return ok;
}

static bool run_stuck(int opcode)
{
	return stuck(opcode, MESSAGE);
}

static bool run_stuck_advice(int opcode)
{
	return stuck(opcode, ADVICE);
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

/* Signals that come all the time do not keep it from its end. */
static bool run_interrupted_flush(int opcode)
{
	struct end *b = &ends[1];
	/* No SA_RESTART: a call that gives up is seen. */
	struct sigaction counted = { .sa_handler = count_signal }, before;
	struct itimerval often = { { 0, SIGNAL_US }, { 0, SIGNAL_US } }, never = {};
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	uint8_t *range = mmap(NULL, INTERRUPTED, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_sge all = { .addr = (uintptr_t)range, .length = INTERRUPTED };
	unsigned int calls = 0;
	struct ibv_mr *mr;
	int error = 0;

	(void)opcode;
	if (range == MAP_FAILED || !small_pages(range, INTERRUPTED))
		die("mmap: %s", strerror(errno));
	mr = mr_make(b->device.pd, range, INTERRUPTED, ALL);
	all.lkey = mr->lkey;
	signals = 0;
	if (sigaction(SIGALRM, &counted, &before) || setitimer(ITIMER_REAL, &often, NULL))
		die("a timer: %s", strerror(errno));
	for (; !error && signals < SIGNALS && now_ms() < end; calls++) {
		while (madvise(range, INTERRUPTED, MADV_DONTNEED) && errno == EINTR)
			;
		error = advise(b->device.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
			       &all, 1);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	ksft_print_msg("%u times, %d signals: %s\n", calls, (int)signals, strerror(error));
	mr_free(mr);
	munmap(range, INTERRUPTED);
	return !error && signals >= SIGNALS;
}

/* Who waits for what was advised can still be killed. */
static bool run_stuck_flush(int opcode)
{
	return stuck(opcode, FLUSHED_ADVICE);
}

/* Other queue pairs, of that patience. The pages of b do not come until the file that is returned is closed. */
static int pages_late(struct patience patience)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	int fd, i;

	for (i = 0; i < 2; i++) {
		qp_free(ends[i].qp);
		ends[i].qp = qp_make(&ends[i].device, IBV_QPT_RC, ends[i].send_cq, ends[i].recv_cq, depth, NULL);
	}
	qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, patience);
	fd = absence_begin(b->memory, size);
	if (madvise(b->memory, size, MADV_DONTNEED))
		die("madvise: %s", strerror(errno));
	return fd;
}

/* A page that comes after a peer of ordinary patience would have given up, had nobody told it. */
static bool run_late(int opcode)
{
	int fd = pages_late(PATIENT);
	struct ibv_wc wc;
	bool ok;

	post(opcode, length);
	ok = !cq_poll(a->send_cq, &wc, 3000);
	if (!ok)
		ksft_print_msg("a completion without the page: %s\n", ibv_wc_status_str(wc.status));
	/* It comes now. */
	close(fd);
	return ok && completed(a->send_cq, "the request", IBV_WC_SUCCESS);
}

/* A peer that is told to wait, but has no RNR retry left, gives up. The queue pair that waits for the page goes on. */
static bool run_too_late(int opcode)
{
	int fd = pages_late((struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 1 });
	enum ibv_qp_state state;
	bool ok;

	post(opcode, length);
	ok = completed(a->send_cq, "the request", IBV_WC_RNR_RETRY_EXC_ERR);
	state = qp_state(b->qp);
	if (state != IBV_QPS_RTS) {
		ksft_print_msg("the responder is in state %d\n", state);
		ok = false;
	}
	close(fd);
	return ok;
}

/* Packets that use far more memory than their bytes take. */
#define FRAGMENTED 256
#define FRAGMENT 8
#define MOST_FRAGMENTED (8L << 10)
/* More than a device keeps. */
#define CROWD 16
#define WAITING_PER_QP 511
#define MOST_WAITING (16 << 20)


/* The kernel's memory for small objects, in KiB, with what each CPU has counted for itself. */
static long kernel_memory(void)
{
	FILE *file = fopen("/proc/sys/vm/stat_refresh", "r");
	char line[128];
	long value = -1;

	if (file) {
		while (fgets(line, sizeof(line), file))
			;
		fclose(file);
	}
	file = fopen("/proc/meminfo", "r");
	if (!file)
		die("/proc/meminfo: %s", strerror(errno));
	while (value < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "SUnreclaim: %ld", &value);
	fclose(file);
	if (value < 0)
		die("/proc/meminfo does not say SUnreclaim");
	return value;
}

static void send_fragmented(const struct wire *wire, uint32_t qpn)
{
	struct wire_packet packet = { .opcode = RC_SEND_ONLY, .qpn = qpn, .payload = 1024 };
	unsigned int i;

	for (i = 1; i <= FRAGMENTED; i++) {
		packet.psn = packet.id = i;
		wire_send_fragments(wire, &packet, FRAGMENT);
	}
}

/* The test answers for a peer of that number on a's device, where no queue pair has it. */
#define NOBODY 0xfffffe

/* A queue pair of b, ready to send. */
static struct ibv_qp *ready_qp(struct ibv_cq *recv_cq, uint32_t peer)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	struct ibv_qp *qp = qp_make(&b->device, IBV_QPT_RC, b->send_cq, recv_cq, depth, NULL);

	if (qp_init(qp, access_of(IBV_QPT_RC), 0))
		die("RESET to INIT: %s", strerror(errno));
	qp_ready_connected(&b->device, qp, &a->device, peer, IBV_MTU_4096, VERY_PATIENT, 0, 0);
	return qp;
}

/* A queue pair of b that waits for a page that does not come, for the sake of its request 0. */
static struct ibv_qp *waiting_qp(const struct wire *wire, struct ibv_cq *cq)
{
	struct ibv_sge to = piece(b, 1024);
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 };
	struct wire_packet packet = { .opcode = RC_SEND_ONLY, .payload = 1024 };
	struct ibv_qp *qp = ready_qp(cq, a->qp->qp_num);

	recv_post(qp, &receive);
	packet.qpn = qp->qp_num;
	wire_send(wire, &packet, 1);
	return qp;
}

/* bytes: from page number of b's memory, or to it. */
static void request(struct ibv_qp *qp, enum ibv_wr_opcode opcode, unsigned int number, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)b->memory + number * page, bytes, b->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = bytes ? 1 : 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};

	send_post(qp, &wr);
}

/* Takes packets for NOBODY until that one comes. */
static bool comes(const struct wire *wire, uint8_t opcode, uint32_t psn)
{
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	struct wire_packet packet;

	while (wire_receive(wire, NOBODY, &packet, WAIT_MS) && now_ms() < end) {
		if (packet.opcode == opcode && packet.psn == psn)
			return true;
	}
	ksft_print_msg("packet %u does not come\n", psn);
	return false;
}

static void answer(const struct wire *wire, struct ibv_qp *qp, uint8_t opcode, uint32_t psn, uint8_t syndrome,
		   uint32_t payload)
{
	struct wire_packet packet = {
		.opcode = opcode, .qpn = qp->qp_num, .psn = psn, .syndrome = syndrome, .payload = payload,
	};

	wire_send(wire, &packet, 1);
}

/* The requester repeats a lost SEND, although a later one waits for its page. */
static bool run_lost_before(int opcode)
{
	int absence = absence_begin(b->memory, size);
	struct ibv_qp *qp = ready_qp(b->recv_cq, NOBODY);
	struct wire wire;
	bool ok;

	wire_open(&wire, "n1", netdev_of(1), &a->device.gid, &b->device.gid);
	request(qp, opcode, 0, 0);
	request(qp, opcode, 0, 0);
	request(qp, opcode, 0, 8);
	absence_noticed(absence);
	ok = comes(&wire, RC_SEND_ONLY, 1);
	wire_drain(&wire);
	answer(&wire, qp, RC_ACKNOWLEDGE, 1, WIRE_NAK_SEQUENCE, 0);
	ok = ok && completed(b->send_cq, "the first request", IBV_WC_SUCCESS) && comes(&wire, RC_SEND_ONLY, 1);
	answer(&wire, qp, RC_ACKNOWLEDGE, 1, WIRE_ACK, 0);
	ok = ok && completed(b->send_cq, "the second request", IBV_WC_SUCCESS);
	close(absence);
	ok = ok && comes(&wire, RC_SEND_ONLY, 2);
	answer(&wire, qp, RC_ACKNOWLEDGE, 2, WIRE_ACK, 0);
	ok = ok && completed(b->send_cq, "the third request", IBV_WC_SUCCESS);
	qp_free(qp);
	wire_close(&wire);
	return ok;
}

/* The page that a response waits for comes, and that of a later request does not. */
static bool run_response_before(int opcode)
{
	int absence = absence_begin(b->memory, size);
	struct uffdio_copy first = {
		.dst = (uintptr_t)b->memory, .src = (uintptr_t)a->memory, .len = page,
	};
	unsigned long long before = page_faults(b);
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_qp *qp = ready_qp(b->recv_cq, NOBODY);
	struct wire wire;
	bool ok;

	wire_open(&wire, "n1", netdev_of(1), &a->device.gid, &b->device.gid);
	request(qp, opcode, 0, 8);
	ok = comes(&wire, RC_READ_REQUEST, 0);
	answer(&wire, qp, RC_READ_RESPONSE_ONLY, 0, WIRE_ACK, 8);
	absence_noticed(absence);
	request(qp, IBV_WR_SEND, 1, 8);
	while (page_faults(b) - before < 2 && now_ms() < end)
		usleep(1000);
	ok = ok && page_faults(b) - before >= 2;
	if (ioctl(absence, UFFDIO_COPY, &first))
		die("UFFDIO_COPY: %s", strerror(errno));
	ok = ok && completed(b->send_cq, "the READ", IBV_WC_SUCCESS);
	close(absence);
	qp_free(qp);
	wire_close(&wire);
	return ok;
}

static unsigned long long counted(const char *name)
{
	return device_counter(&b->device, name);
}

/* Of each little fragment the kernel has hundreds of bytes besides. */
static bool run_fragments(int opcode)
{
	int absence = absence_begin(b->memory, size);
	unsigned long long came, dropped;
	long before, after, last;
	struct ibv_qp *qp;
	uint64_t end;
	struct wire wire;
	int tries = 0;

	(void)opcode;
	wire_open(&wire, "n1", netdev_of(1), &a->device.gid, &b->device.gid);
	qp = waiting_qp(&wire, b->recv_cq);
	absence_noticed(absence);
	/* For nobody, until the kernel has taken what memory it takes for such packets when none of them waits. */
	before = kernel_memory();
	do {
		last = before;
		send_fragmented(&wire, NOBODY);
		before = kernel_memory();
	} while (before > last + MOST_FRAGMENTED / 4 && tries++ < 10);
	usleep(30000);
	came = counted("rcvd_pkts");
	dropped = counted("page_fault_dropped");
	send_fragmented(&wire, qp->qp_num);
	end = now_ms() + patience_ms(2000);
	while (counted("rcvd_pkts") - came < FRAGMENTED && now_ms() < end)
		usleep(30000);
	usleep(30000);
	came = counted("rcvd_pkts") - came;
	dropped = counted("page_fault_dropped") - dropped;
	end = now_ms() + patience_ms(2000);
	/* Only what stays is the queue pair's. Others may have taken memory for a moment. */
	while ((after = kernel_memory()) - before >= MOST_FRAGMENTED && now_ms() < end)
		usleep(100000);
	ksft_print_msg("%llu of %d datagrams in fragments of %d bytes came, %llu of them were dropped\n", came, FRAGMENTED,
		       FRAGMENT, dropped);
	ksft_print_msg("%ld KiB more (%ld KiB when sent to nobody)\n", after - before, before - last);
	qp_free(qp);
	close(absence);
	wire_close(&wire);
	/* The kernel may lose fragments. Three quarters of the datagrams, kept as they come, would still be too much. */
	return came >= dropped + FRAGMENTED * 3 / 4 && after - before < MOST_FRAGMENTED;
}

/* Of packets for queue pairs that wait for a page. */
struct crowd {
	unsigned long long came;
	unsigned long long dropped;
};

/* Makes many of these, which nothing is left of afterwards. */
static struct crowd crowd_come(const struct wire *wire, int absence)
{
	const unsigned long long all = CROWD * WAITING_PER_QP;
	struct wire_packet packets[7];
	struct ibv_qp *qps[CROWD];
	unsigned long long lost;
	struct crowd crowd;
	uint64_t end;
	int i, j, k;

	for (i = 0; i < CROWD; i++) {
		qps[i] = waiting_qp(wire, b->recv_cq);
		absence_noticed(absence);
	}
	usleep(30000);
	crowd.came = counted("rcvd_pkts");
	crowd.dropped = counted("page_fault_dropped");
	lost = counted("steering_dropped");
	for (i = 0; i < CROWD; i++) {
		for (j = 1; j <= WAITING_PER_QP; j += 7) {
			for (k = 0; k < 7; k++) {
				packets[k] = (struct wire_packet){
					.opcode = RC_SEND_ONLY,
					.qpn = qps[i]->qp_num,
					.psn = j + k,
					.payload = 4096,
				};
			}
			wire_send(wire, packets, 7);
		}
	}
	end = now_ms() + WAIT_MS;
	while (counted("rcvd_pkts") + counted("steering_dropped") - crowd.came - lost < all && now_ms() < end)
		usleep(30000);
	usleep(30000);
	crowd.came = counted("rcvd_pkts") - crowd.came;
	crowd.dropped = counted("page_fault_dropped") - crowd.dropped;
	ksft_print_msg("%llu packets of %llu came, %llu of them wait\n", crowd.came, all,
		       crowd.came - crowd.dropped);
	for (i = 0; i < CROWD; i++) {
		qp_free(qps[i]);
	}
	return crowd;
}

static bool crowd_is_bounded(const struct crowd *crowd)
{
	/* Half of them could wait if a packet used no more than its payload. */
	return crowd->came > CROWD * WAITING_PER_QP * 3 / 4 && crowd->came > crowd->dropped &&
	       (crowd->came - crowd->dropped) * 4096 <= MOST_WAITING;
}

/*
 * Packets of many queue pairs: what they use together is bounded, by more than their number. Queue pairs
 * that go while they wait leave the room to those that come after them.
 */
static bool run_crowd(int opcode)
{
	int absence = absence_begin(b->memory, size);
	struct crowd first, second;
	struct wire wire;

	(void)opcode;
	wire_open(&wire, "n1", netdev_of(1), &a->device.gid, &b->device.gid);
	first = crowd_come(&wire, absence);
	second = crowd_come(&wire, absence);
	close(absence);
	wire_close(&wire);
	return crowd_is_bounded(&first) && crowd_is_bounded(&second) &&
	       2 * (second.came - second.dropped) >= first.came - first.dropped;
}

/* Another process, with devices of its own: one message, from and to pages that are not there yet. */
static bool another_goes_on(void)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	uint64_t began = now_ms();
	int status, i;
	pid_t child;

	child = fork_child();
	if (!child) {
		for (i = 0; i < 2; i++) {
			struct end *end = &ends[i];

			device_open(&end->device, end->device.name, family);
			end->send_cq = cq_make(&end->device, DEPTH);
			end->recv_cq = cq_make(&end->device, DEPTH);
			end->qp = qp_make(&end->device, IBV_QPT_RC, end->send_cq, end->recv_cq, depth, NULL);
			adopt(end, map_anonymous(NULL));
		}
		qp_connect(&a->device, a->qp, &b->device, b->qp, IBV_MTU_1024, VERY_PATIENT);
		_exit(!run_absent(IBV_WR_SEND) || fflush(stdout));
	}
	if (waitpid(child, &status, 0) != child || status) {
		ksft_print_msg("the other process ended with status %#x\n", status);
		return false;
	}
	ksft_print_msg("the other process took %llu ms\n", (unsigned long long)(now_ms() - began));
	return true;
}

/* Workers that a process may keep waiting. */
#define TURNS 64

static unsigned int stuck_qps = 100;

/* A process that waits for many pages has not all of the kernel's workers; and each of its queue pairs gets its turn. */
static bool run_many_stuck(int opcode)
{
	int absence = absence_begin(b->memory, size);
	struct ibv_qp **qps = calloc(stuck_qps, sizeof(*qps));
	struct ibv_cq *cq = ibv_create_cq(b->device.context, stuck_qps, NULL, NULL, 0);
	unsigned long long before = page_faults(b);
	uint64_t end = now_ms() + WAIT_MS;
	unsigned int i, workers = 0;
	struct uffd_msg message;
	struct wire wire;
	bool ok;

	(void)opcode;
	if (!cq || !qps)
		die("no memory");
	wire_open(&wire, "n1", netdev_of(1), &a->device.gid, &b->device.gid);
	for (i = 0; i < stuck_qps; i++)
		qps[i] = waiting_qp(&wire, cq);
	while (page_faults(b) - before < stuck_qps && now_ms() < end)
		;
	if (page_faults(b) - before < stuck_qps)
		die("only %llu of %u queue pairs wait", page_faults(b) - before, stuck_qps);
	ok = another_goes_on();
	/* By now all workers that there are for them wait. */
	while (read(absence, &message, sizeof(message)) == sizeof(message))
		workers++;
	ksft_print_msg("%u queue pairs wait, %u workers for them\n", stuck_qps, workers);
	if (!workers || workers > TURNS)
		ok = false;
	/* The page comes. */
	close(absence);
	for (i = 0; i < stuck_qps && completed(cq, "the receive", IBV_WC_SUCCESS); i++)
		;
	if (i < stuck_qps) {
		ksft_print_msg("%u of %u receives completed\n", i, stuck_qps);
		ok = false;
	}
	for (i = 0; i < stuck_qps; i++) {
		qp_free(qps[i]);
	}
	cq_free(cq);
	free(qps);
	wire_close(&wire);
	return ok;
}

/* What the regions are of. */
enum extent { OWN, EVERYWHERE, NOT_WRITABLE };

/* The bytes of the process's page tables. */
static size_t page_tables(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	size_t kib = 0;
	char line[256];

	while (file && !kib && fgets(line, sizeof(line), file))
		sscanf(line, "VmPTE: %zu kB", &kib);
	if (!kib)
		die("/proc/self/status: no VmPTE");
	fclose(file);
	return kib << 10;
}

/*
 * In a cgroup of its own: a worker takes the advice, as much of it as there is room for, and brings in one page of each
 * chunk: the zero page, which costs nothing but its page table.
 */
static bool is_charged(const void *unused)
{
	size_t before, charged_before, made, charged, offset;
	struct device device;
	uint8_t *range;
	uint32_t lkey;
	uint64_t end;

	(void)unused;
	device_open(&device, a->device.name, family);
	range = mmap(NULL, SPARSE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED || !small_pages(range, SPARSE))
		die("mmap: %s", strerror(errno));
	lkey = mr_make(device.pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND)->lkey;
	before = page_tables();
	charged_before = cgroup_number(CGROUP "/memory.stat", "pagetables");
	for (offset = 0; offset < SPARSE; offset += CHUNK) {
		struct ibv_sge piece = { .addr = (uintptr_t)range + offset, .length = 1, .lkey = lkey };
		int error = advise(device.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1);

		if (error)
			die("advice: %s", strerror(error));
	}
	end = now_ms() + patience_ms(10000);
	do {
		usleep(100000);
		made = page_tables() - before;
		charged = cgroup_number(CGROUP "/memory.stat", "pagetables") - charged_before;
	} while ((made < TABLES * page || charged < made / 4 * 3) && now_ms() < end);
	ksft_print_msg("page tables: %zu KiB, %zu KiB of them charged\n", made >> 10, charged >> 10);
	return made >= TABLES * page && charged >= made / 4 * 3;
}

static bool run_charged(int unused)
{
	(void)unused;
	return cgroup_run(is_charged, NULL);
}

static const struct row rows[] = {
	{ "SEND, absent pages", .run_with = run_absent, IBV_WR_SEND, OWN },
	{ "WRITE, absent pages", .run_with = run_absent, IBV_WR_RDMA_WRITE, OWN },
	{ "READ, absent pages", .run_with = run_absent, IBV_WR_RDMA_READ, OWN },
	{ "COMPARE AND SWAP, absent pages", .run_with = run_absent, IBV_WR_ATOMIC_CMP_AND_SWP, OWN },
	{ "FETCH AND ADD, absent pages", .run_with = run_absent, IBV_WR_ATOMIC_FETCH_AND_ADD, OWN },
	{ "SEND, replaced pages", .run_with = run_replaced, IBV_WR_SEND, OWN },
	{ "WRITE, replaced pages", .run_with = run_replaced, IBV_WR_RDMA_WRITE, OWN },
	{ "READ, replaced pages", .run_with = run_replaced, IBV_WR_RDMA_READ, OWN },
	{ "SEND, discarded pages", .run_with = run_discarded, IBV_WR_SEND, OWN },
	{ "READ, discarded pages", .run_with = run_discarded, IBV_WR_RDMA_READ, OWN },
	{ "WRITE, discarded pages of a large region", .run_with = run_large, IBV_WR_RDMA_WRITE, OWN },
	{ "WRITE, pages of a fork", .run_with = run_forked, IBV_WR_RDMA_WRITE, OWN },
	{ "READ, pages of a fork", .run_with = run_forked, IBV_WR_RDMA_READ, OWN },
	{ "SEND, many forks", .run_with = run_many_forks, IBV_WR_SEND, OWN },
	{ "WRITE, many forks", .run_with = run_many_forks, IBV_WR_RDMA_WRITE, OWN },
	{ "READ, many forks", .run_with = run_many_forks, IBV_WR_RDMA_READ, OWN },
	{ "SEND to write-protected pages", .run_with = run_write_protected, IBV_WR_SEND, OWN },
	{ "WRITE to write-protected pages", .run_with = run_write_protected, IBV_WR_RDMA_WRITE, OWN },
	{ "READ to write-protected pages", .run_with = run_write_protected, IBV_WR_RDMA_READ, OWN },
	{ "SEND from unmapped pages", .run_with = run_unmapped_source, IBV_WR_SEND, OWN },
	{ "WRITE from unmapped pages", .run_with = run_unmapped_source, IBV_WR_RDMA_WRITE, OWN },
	{ "READ from unmapped pages", .run_with = run_unmapped_source, IBV_WR_RDMA_READ, OWN },
	{ "WRITE to an unmapped last page", .run_with = run_last_page, IBV_WR_RDMA_WRITE, OWN },
	{ "WRITE to secret pages", .run_with = run_secret, IBV_WR_RDMA_WRITE, OWN },
	{ "WRITE to a page that never comes", .run_with = run_stuck, IBV_WR_RDMA_WRITE, OWN },
	{ "READ from a page that never comes", .run_with = run_stuck, IBV_WR_RDMA_READ, OWN },
	{ "SEND to a page that comes late", .run_with = run_late, IBV_WR_SEND, OWN },
	{ "WRITE to a page that comes late", .run_with = run_late, IBV_WR_RDMA_WRITE, OWN },
	{ "READ from a page that comes late", .run_with = run_late, IBV_WR_RDMA_READ, OWN },
	{ "WRITE to a page that comes after the last RNR retry", .run_with = run_too_late, IBV_WR_RDMA_WRITE, OWN },
	{ "SEND that was lost before one from a page that comes late", .run_with = run_lost_before, IBV_WR_SEND, OWN },
	{ "READ to a page that comes, before a SEND from one that does not",
	  .run_with = run_response_before, IBV_WR_RDMA_READ, OWN },
	{ "datagrams in fragments, behind a page that never comes", .run_with = run_fragments, IBV_WR_SEND, OWN },
	{ "many queue pairs behind a page that never comes, and another process",
	  .run_with = run_many_stuck, IBV_WR_SEND, OWN },
	{ "16 queue pairs with packets behind a page that never comes", .run_with = run_crowd, IBV_WR_SEND, OWN },
	{ "region of all addresses: what can be registered",
	  .run_with = run_registrations, IBV_WR_SEND, EVERYWHERE },
	{ "all addresses: SEND, absent pages", .run_with = run_absent, IBV_WR_SEND, EVERYWHERE },
	{ "all addresses: WRITE, absent pages", .run_with = run_absent, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: READ, absent pages", .run_with = run_absent, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: COMPARE AND SWAP, absent pages",
	  .run_with = run_absent, IBV_WR_ATOMIC_CMP_AND_SWP, EVERYWHERE },
	{ "all addresses: FETCH AND ADD, absent pages",
	  .run_with = run_absent, IBV_WR_ATOMIC_FETCH_AND_ADD, EVERYWHERE },
	{ "all addresses: SEND, everywhere", .run_with = run_everywhere, IBV_WR_SEND, EVERYWHERE },
	{ "all addresses: READ, everywhere", .run_with = run_everywhere, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: SEND over a border", .run_with = run_border, IBV_WR_SEND, EVERYWHERE },
	{ "all addresses: WRITE over a border", .run_with = run_border, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: READ over a border", .run_with = run_border, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: WRITE, sparse pages", .run_with = run_sparse, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE, replaced pages", .run_with = run_replaced, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: READ, discarded pages", .run_with = run_discarded, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: WRITE, pages of a fork", .run_with = run_forked, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: SEND, many forks", .run_with = run_many_forks, IBV_WR_SEND, EVERYWHERE },
	{ "all addresses: READ, many forks", .run_with = run_many_forks, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: SEND to write-protected pages",
	  .run_with = run_write_protected, IBV_WR_SEND, EVERYWHERE },
	{ "all addresses: WRITE to write-protected pages",
	  .run_with = run_write_protected, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE from unmapped pages",
	  .run_with = run_unmapped_source, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: READ from unmapped pages",
	  .run_with = run_unmapped_source, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: WRITE to an unmapped last page",
	  .run_with = run_last_page, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE to secret pages", .run_with = run_secret, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE to the address 0", .run_with = run_null, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE to the kernel", .run_with = run_kernel, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: READ from the vsyscall page",
	  .run_with = run_vsyscall, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: READ from the last address",
	  .run_with = run_last_address, IBV_WR_RDMA_READ, EVERYWHERE },
	{ "all addresses: WRITE without the right",
	  .run_with = run_without_right, IBV_WR_RDMA_WRITE, NOT_WRITABLE },
	{ "all addresses: WRITE to a process that is gone",
	  .run_with = run_orphaned, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE to a page that never comes",
	  .run_with = run_stuck, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "WRITE to a process that is gone", .run_with = run_orphaned, IBV_WR_RDMA_WRITE, OWN },
	{ "WRITE, prefetched pages", .run_with = run_prefetched, IBV_WR_RDMA_WRITE, OWN },
	{ "SEND, prefetched pages", .run_with = run_prefetched, IBV_WR_SEND, OWN },
	{ "all addresses: WRITE, prefetched pages", .run_with = run_prefetched, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "WRITE, prefetched pages of a fork", .run_with = run_prefetched_fork, IBV_WR_RDMA_WRITE, OWN },
	{ "all addresses: WRITE, prefetched pages of a fork",
	  .run_with = run_prefetched_fork, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "WRITE, pages prefetched later", .run_with = run_prefetched_later, IBV_WR_RDMA_WRITE, OWN },
	{ "all addresses: WRITE, pages prefetched later",
	  .run_with = run_prefetched_later, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "WRITE, pages prefetched for reading", .run_with = run_prefetched_read, IBV_WR_RDMA_WRITE, OWN },
	{ "all addresses: WRITE, pages prefetched for reading",
	  .run_with = run_prefetched_read, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "WRITE, pages prefetched if present", .run_with = run_if_present, IBV_WR_RDMA_WRITE, OWN },
	{ "all addresses: WRITE, pages prefetched if present",
	  .run_with = run_if_present, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "all addresses: WRITE, advice about a large hole", .run_with = run_hole, IBV_WR_RDMA_WRITE, EVERYWHERE },
	{ "advice that is refused", .run_with = run_advice_refused, IBV_WR_SEND, OWN },
	{ "all addresses: advice that is refused", .run_with = run_advice_refused, IBV_WR_SEND, EVERYWHERE },
	{ "advice about a page that never comes", .run_with = run_stuck_advice, IBV_WR_SEND, OWN },
	{ "all addresses: advice about a page that never comes",
	  .run_with = run_stuck_advice, IBV_WR_SEND, EVERYWHERE },
	{ "signals while waiting for advice to be taken", .run_with = run_interrupted_flush, IBV_WR_SEND, OWN },
	{ "killed while waiting for advice to be taken", .run_with = run_stuck_flush, IBV_WR_SEND, OWN },
	{ "page tables that advice makes are charged to the process", .run_with = run_charged, IBV_WR_SEND, OWN },
};

static void begin(char **names)
{
	int i;

	page = sysconf(_SC_PAGESIZE);
	size = PAGES * page;
	length = size - at;
	expected = malloc(length);
	if (!expected)
		die("no memory");
	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, names[i], family);
		end->send_cq = cq_make(&end->device, DEPTH);
		end->recv_cq = cq_make(&end->device, DEPTH);
	}
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		cq_free(ends[i].send_cq);
		cq_free(ends[i].recv_cq);
		device_close(&ends[i].device);
	}
}

static bool is_stuck(const struct row *row)
{
	return row->run_with == run_stuck || row->run_with == run_stuck_advice || row->run_with == run_stuck_flush ||
	       row->run_with == run_late || row->run_with == run_too_late || row->run_with == run_fragments ||
	       row->run_with == run_crowd || row->run_with == run_many_stuck || row->run_with == run_lost_before ||
	       row->run_with == run_response_before;
}

static bool run_row(const struct row *row)
{
	bool ok;

	if (is_stuck(row) && !has_userfaultfd())
		return row_skip("this kernel has no userfaultfd");
	if (row->run_with == run_charged && !cgroup_has("memory"))
		return row_skip("no memory cgroups");
	everywhere = row->needs != OWN;
	without = row->needs == NOT_WRITABLE ? IBV_ACCESS_REMOTE_WRITE : 0;
	start();
	ok = row_run(row);
	finish();
	return ok;
}

static bool take_option(int option, const char *argument)
{
	stuck_qps = strtoul(argument, NULL, 0);
	return stuck_qps;
}

const struct test test = {
	ROWS(rows), .options = "q:", .option = take_option, .begin = begin, .end = end, .run_row = run_row,
};
