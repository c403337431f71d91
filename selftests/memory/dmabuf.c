// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions of buffers that belong to other drivers (dma-bufs): every byte, both ways, and what is refused.
 *
 * dmabuf DEVICE DEVICE, with the module exporter loaded.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "exchange.h"
#include "test.h"

#define SIZE (1 << 18)
/* A multiple of the page of every kernel. */
#define PAGE 65536
#define SECONDS 60
#define WAIT_MS 20000
#define ROUNDS 20
#define LENGTH 6000

#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* What selftests/kernel/exporter.c can export. */
enum kind {
	KIND_MEMORY = _IO('F', 0),
	KIND_REGISTERS = _IO('F', 1),
	KIND_UNPINNABLE = _IO('F', 2),
	KIND_BUSY = _IO('F', 3),
};

static struct device *const a = &devices[0], *const b = &devices[1];

/* --- Buffers ---------------------------------------------------------------------------------- */

struct buffer {
	int fd;
	uint8_t *memory;
	size_t size;
};

static int opened(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	return fd;
}

static uint8_t *mapped(int fd, size_t size)
{
	uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return memory;
}

/* A process's memory. */
static struct buffer buffer_of_process(size_t size)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = size };
	struct buffer buffer = { .size = size };
	int file = opened("/dev/udmabuf");

	create.memfd = memfd_create("buffer", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	if (ftruncate(create.memfd, size) || fcntl(create.memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		die("memfd: %s", strerror(errno));
	buffer.memory = mapped(create.memfd, size);
	buffer.fd = ioctl(file, UDMABUF_CREATE, &create);
	if (buffer.fd < 0)
		die("UDMABUF_CREATE: %s", strerror(errno));
	close(create.memfd);
	close(file);
	return buffer;
}

static struct buffer buffer_of_heap(size_t size)
{
	struct dma_heap_allocation_data data = { .len = size, .fd_flags = O_RDWR | O_CLOEXEC };
	int file = opened("/dev/dma_heap/system");

	if (ioctl(file, DMA_HEAP_IOCTL_ALLOC, &data))
		die("DMA_HEAP_IOCTL_ALLOC: %s", strerror(errno));
	close(file);
	return (struct buffer){ .fd = data.fd, .memory = mapped(data.fd, size), .size = size };
}

static struct buffer buffer_of_driver(enum kind kind, size_t size)
{
	int file = opened("/dev/ferroce_exporter");
	int fd = ioctl(file, kind, size);

	if (fd < 0)
		die("the exporter: %s", strerror(errno));
	close(file);
	return (struct buffer){ .fd = fd, .memory = mapped(fd, size), .size = size };
}

static struct buffer buffer_that_moves(size_t size)
{
	return buffer_of_driver(KIND_MEMORY, size);
}

static void buffer_free(struct buffer *buffer)
{
	munmap(buffer->memory, buffer->size);
	close(buffer->fd);
}

static const struct exporter {
	const char *name;
	/* What it needs, if not every kernel has it. */
	const char *file;
	struct buffer (*make)(size_t size);
} exporters[] = {
	{ "memory of a process", "/dev/udmabuf", buffer_of_process },
	{ "memory of a heap", "/dev/dma_heap/system", buffer_of_heap },
	{ "a driver's memory that moves", NULL, buffer_that_moves },
};

static bool is_missing(const struct exporter *exporter)
{
	return exporter->file && access(exporter->file, F_OK) && row_skip("this kernel has no %s", exporter->file);
}

/* --- Regions ---------------------------------------------------------------------------------- */

/* As ibv_reg_dmabuf_mr(), which librxe does not have: the kernel's command. Zero, or the error. */
static int command_register(const struct device *device, uint64_t offset, uint64_t size, uint64_t iova, int fd,
			    uint32_t access, struct ibv_mr *mr)
{
	struct ib_uverbs_attr attributes[] = {
		{ UVERBS_ATTR_REG_DMABUF_MR_HANDLE },
		{ UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, .data = device->pd->handle },
		{ UVERBS_ATTR_REG_DMABUF_MR_OFFSET, sizeof(offset), .data = offset },
		{ UVERBS_ATTR_REG_DMABUF_MR_LENGTH, sizeof(size), .data = size },
		{ UVERBS_ATTR_REG_DMABUF_MR_IOVA, sizeof(iova), .data = iova },
		{ UVERBS_ATTR_REG_DMABUF_MR_FD, sizeof(uint32_t), .data = (uint32_t)fd },
		{ UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, sizeof(access), .data = access },
		{ UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, sizeof(mr->lkey), .data = (uintptr_t)&mr->lkey },
		{ UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, sizeof(mr->rkey), .data = (uintptr_t)&mr->rkey },
	};
	int error = command_method(device->context, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, attributes,
				   ARRAY_SIZE(attributes));

	if (error)
		return error;
	mr->context = device->context;
	mr->pd = device->pd;
	mr->handle = attributes[0].data;
	return 0;
}

/* With libferroce, its call. Zero, or the error. */
static int registered(const struct device *device, uint64_t offset, uint64_t size, uint64_t iova, int fd, int access,
		      struct ibv_mr **mr)
{
	int error;

	if (has_own_provider()) {
		*mr = ibv_reg_dmabuf_mr(device->pd, offset, size, iova, fd, access);
		return *mr ? 0 : errno;
	}
	*mr = calloc(1, sizeof(**mr));
	if (!*mr)
		die("no memory");
	error = command_register(device, offset, size, iova, fd, access, *mr);
	if (error)
		free(*mr);
	return error;
}

/* Asks the kernel for a region's length and address, as a process that imports it does. Zero, or the error. */
static int queried(const struct ibv_mr *mr, uint64_t *length, uint64_t *iova)
{
	uint32_t lkey = 0, rkey = 0;
	struct ib_uverbs_attr attributes[] = {
		{ UVERBS_ATTR_QUERY_MR_HANDLE, .data = mr->handle },
		{ UVERBS_ATTR_QUERY_MR_RESP_LKEY, sizeof(lkey), .data = (uintptr_t)&lkey },
		{ UVERBS_ATTR_QUERY_MR_RESP_RKEY, sizeof(rkey), .data = (uintptr_t)&rkey },
		{ UVERBS_ATTR_QUERY_MR_RESP_LENGTH, sizeof(*length), .data = (uintptr_t)length },
		{ UVERBS_ATTR_QUERY_MR_RESP_IOVA, sizeof(*iova), .data = (uintptr_t)iova },
	};
	int error = command_method(mr->context, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, attributes,
				   ARRAY_SIZE(attributes));

	if (error)
		return error;
	return lkey == mr->lkey && rkey == mr->rkey ? 0 : EBADMSG;
}

static void deregistered(struct ibv_mr *mr)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_dereg_mr core;
	} command = { .core = { .mr_handle = mr->handle } };
	int error;

	if (has_own_provider()) {
		mr_free(mr);
		return;
	}
	error = command_write(mr->context, IB_USER_VERBS_CMD_DEREG_MR, &command, sizeof(command), 0);
	if (error)
		die("DEREG_MR: %s", strerror(error));
	free(mr);
}

/* All of a buffer as a region, at the address where this process has it. */
static struct region region_of(struct device *device, const struct buffer *buffer)
{
	struct region region = { .memory = buffer->memory, .size = buffer->size, .expected = malloc(buffer->size) };
	int error = registered(device, 0, buffer->size, (uintptr_t)buffer->memory, buffer->fd, ALL_RIGHTS, &region.mr);

	if (error || !region.expected)
		die("REG_DMABUF_MR: %s", strerror(error));
	region_fill(&region);
	return region;
}

static void region_end(struct region *region)
{
	deregistered(region->mr);
	free(region->expected);
}

/* --- Rows ------------------------------------------------------------------------------------- */

static struct ibv_qp *qps[2];

static void pair_make(void)
{
	struct depth depth = { .send = MAX_MESSAGES, .receive = MAX_MESSAGES, .sges = MAX_SEGMENTS };

	qps_make(qps, IBV_QPT_RC, depth, IBV_MTU_1024, PATIENT);
}

/* LENGTH bytes from a's ordinary memory, or into it. */
static enum ibv_wc_status access_by(enum ibv_wr_opcode opcode, uint64_t at, uint32_t rkey)
{
	struct ibv_sge sge = region_sge(opcode == IBV_WR_RDMA_READ ? &sides[0].sink : &sides[0].source, 0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = at, .rkey = rkey },
	};
	struct ibv_wc wc;

	send_post(qps[0], &wr);
	if (!cq_poll(sides[0].send_cq, &wc, WAIT_MS))
		die("no completion");
	return wc.status;
}

/* Messages of all kinds, in both directions, from buffers into buffers. */
static bool run_messages(int which)
{
	const struct exporter *exporter = &exporters[which];
	struct buffer buffers[4];
	struct region ordinary[4];
	struct way ways[2];
	unsigned int i, round;
	bool ok = true;

	if (is_missing(exporter))
		return true;
	for (i = 0; i < 4; i++) {
		struct side *side = &sides[i / 2];
		struct region *region = i % 2 ? &side->sink : &side->source;

		buffers[i] = exporter->make(SIZE);
		ordinary[i] = *region;
		*region = region_of(side->device, &buffers[i]);
	}
	pair_make();
	ways_between(ways, &sides[0], qps[0], &sides[1], qps[1]);
	for (round = 0; ok && round < 4; round++) {
		ways_start(ways, 2);
		for (i = 0; i < 2 * OPCODES; i++) {
			if (!message_add(&ways[i % 2], opcodes[i / 2], random_between(1, 12000), 1 + i % 3))
				die("no room for a message");
		}
		ok = exchange(ways, 2, SECONDS);
	}
	ok = side_check(&sides[0]) && side_check(&sides[1]) && ok;
	qps_free(qps);
	for (i = 0; i < 4; i++) {
		struct region *region = i % 2 ? &sides[i / 2].sink : &sides[i / 2].source;

		region_end(region);
		*region = ordinary[i];
		buffer_free(&buffers[i]);
	}
	return ok;
}

/* A driver may map its buffer without caching, where no CPU but x86 promises atomic instructions. */
static const enum ibv_wc_status atomics_end =
#ifdef __x86_64__
	IBV_WC_SUCCESS;
#else
	IBV_WC_REM_ACCESS_ERR;
#endif

/* Words of a buffer that many requests add to. */
static bool run_atomics(int which)
{
	const struct exporter *exporter = &exporters[which];
	struct ibv_sge sge = region_sge(&sides[0].sink, 0, 8);
	struct buffer buffer;
	struct region region;
	uint64_t word, old;
	bool ok = true;
	int i;

	if (is_missing(exporter))
		return true;
	buffer = exporter->make(PAGE);
	region = region_of(b, &buffer);
	pair_make();
	for (i = 0; ok && i < 16; i++) {
		struct ibv_send_wr wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.atomic = { .remote_addr = (uintptr_t)region.memory + PAGE - 8, .compare_add = i + 5,
				       .rkey = region.mr->rkey },
		};

		send_post(qps[0], &wr);
		memcpy(&old, region.expected + PAGE - 8, 8);
		ok = cq_expect(sides[0].send_cq, "the atomic", 0, atomics_end, WAIT_MS);
		if (atomics_end) {
			ok = ok && region_check(&region, "the buffer");
			break;
		}
		ok = ok && !memcmp(sides[0].sink.memory, &old, 8);
		word = old + i + 5;
		memcpy(region.expected + PAGE - 8, &word, 8);
		ok = ok && region_check(&region, "the buffer");
	}
	memcpy(sides[0].sink.expected, sides[0].sink.memory, 8);
	qps_free(qps);
	region_end(&region);
	buffer_free(&buffer);
	return ok;
}

/* A region that is the middle of a buffer, at another address: what is outside of it is out of reach. */
static bool run_part(void)
{
	struct buffer buffer = buffer_that_moves(8 * PAGE);
	const size_t offset = 3 * PAGE + 100, size = 2 * PAGE;
	const uint64_t iova = (0x7ULL << 44) + 100;
	const struct {
		uint64_t at;
		enum ibv_wc_status status;
	} cases[] = {
		{ iova, IBV_WC_SUCCESS },
		{ iova + size - LENGTH, IBV_WC_SUCCESS },
		{ iova - 1, IBV_WC_REM_ACCESS_ERR },
		{ iova + size - LENGTH + 1, IBV_WC_REM_ACCESS_ERR },
		{ (uintptr_t)buffer.memory + offset, IBV_WC_REM_ACCESS_ERR },
	};
	static uint8_t expected[8 * PAGE];
	struct ibv_mr *mr;
	unsigned int i;
	bool ok = true;
	int error;

	random_fill(expected, sizeof(expected));
	memcpy(buffer.memory, expected, sizeof(expected));
	error = registered(b, offset, size, iova, buffer.fd, ALL_RIGHTS, &mr);
	if (error)
		die("REG_DMABUF_MR: %s", strerror(error));
	for (i = 0; ok && i < ARRAY_SIZE(cases); i++) {
		enum ibv_wc_status status;

		pair_make();
		status = access_by(IBV_WR_RDMA_WRITE, cases[i].at, mr->rkey);
		qps_free(qps);
		if (status == IBV_WC_SUCCESS)
			memcpy(expected + offset + (cases[i].at - iova), sides[0].source.memory, LENGTH);
		if (status != cases[i].status) {
			ksft_print_msg("case %u: %s\n", i, ibv_wc_status_str(status));
			ok = false;
		}
		ok = ok && !memcmp(buffer.memory, expected, sizeof(expected));
	}
	deregistered(mr);
	buffer_free(&buffer);
	return ok;
}

/* A process that imports a region is told its length and address. */
static bool run_query(void)
{
	struct buffer buffer = buffer_that_moves(4 * PAGE);
	const uint64_t size = 2 * PAGE + 8, iova = (0x7ULL << 44) + 100;
	uint64_t length = 0, address = 0;
	struct ibv_mr *mr;
	int error = registered(b, 100, size, iova, buffer.fd, ALL_RIGHTS, &mr);

	if (error)
		die("REG_DMABUF_MR: %s", strerror(error));
	error = queried(mr, &length, &address);
	ksft_print_msg("%s: %#llx bytes at %#llx\n", strerror(error), (unsigned long long)length,
		       (unsigned long long)address);
	deregistered(mr);
	buffer_free(&buffer);
	return !error && length == size && address == iova;
}

/* A region that its owner alone may use, and one that peers may only read. */
static bool run_rights(void)
{
	struct buffer buffer = buffer_that_moves(2 * PAGE);
	const struct {
		int access;
		enum ibv_wc_status read_ends;
	} cases[] = {
		{ IBV_ACCESS_LOCAL_WRITE, IBV_WC_REM_ACCESS_ERR },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS },
	};
	static uint8_t expected[2 * PAGE];
	const uint64_t at = (uintptr_t)buffer.memory;
	struct ibv_mr *mr;
	unsigned int i;
	bool ok = true;

	random_fill(expected, sizeof(expected));
	memcpy(buffer.memory, expected, sizeof(expected));
	for (i = 0; ok && i < ARRAY_SIZE(cases); i++) {
		enum ibv_wc_status written, read;

		if (registered(b, 0, buffer.size, at, buffer.fd, cases[i].access, &mr))
			die("REG_DMABUF_MR");
		pair_make();
		written = access_by(IBV_WR_RDMA_WRITE, at, mr->rkey);
		qps_free(qps);
		pair_make();
		read = access_by(IBV_WR_RDMA_READ, at, mr->rkey);
		qps_free(qps);
		deregistered(mr);
		if (written != IBV_WC_REM_ACCESS_ERR || read != cases[i].read_ends) {
			ksft_print_msg("case %u: WRITE %s, READ %s\n", i, ibv_wc_status_str(written),
				       ibv_wc_status_str(read));
			ok = false;
		}
		if (!cases[i].read_ends)
			memcpy(sides[0].sink.expected, expected, LENGTH);
		ok = ok && !memcmp(buffer.memory, expected, sizeof(expected)) && side_check(&sides[0]);
	}
	buffer_free(&buffer);
	return ok;
}

static bool is_error(const char *what, int expected, uint64_t offset, uint64_t size, uint64_t iova, int fd, int access)
{
	struct ibv_mr *mr;
	int error = registered(a, offset, size, iova, fd, access, &mr);

	if (!error)
		deregistered(mr);
	if (error != expected)
		ksft_print_msg("%s: %s\n", what, strerror(error));
	return error == expected;
}

/* What makes no sense. */
static bool run_nonsense(void)
{
	struct buffer buffer = buffer_that_moves(4 * PAGE);
	int file = opened("/dev/null");
	bool ok;

	ok = is_error("no file", EBADF, 0, PAGE, 0, 9999, ALL_RIGHTS);
	ok = is_error("no buffer", EINVAL, 0, PAGE, 0, file, ALL_RIGHTS) && ok;
	ok = is_error("a device's own file", EINVAL, 0, PAGE, 0, a->context->cmd_fd, ALL_RIGHTS) && ok;
	ok = is_error("no bytes", EINVAL, 0, 0, 0, buffer.fd, ALL_RIGHTS) && ok;
	ok = is_error("a byte too many", EINVAL, 0, buffer.size + 1, 0, buffer.fd, ALL_RIGHTS) && ok;
	ok = is_error("behind it", EINVAL, buffer.size, 1, 0, buffer.fd, ALL_RIGHTS) && ok;
	ok = is_error("a sum too large", EINVAL, PAGE, UINT64_MAX, 0, buffer.fd, ALL_RIGHTS) && ok;
	ok = is_error("another place in the page", EINVAL, 100, 100, 101, buffer.fd, ALL_RIGHTS) && ok;
	ok = is_error("no last address", EINVAL, 0, 2 * PAGE, UINT64_MAX - PAGE + 1, buffer.fd, ALL_RIGHTS) && ok;
	ok = is_error("write without local write", EINVAL, 0, PAGE, 0, buffer.fd, IBV_ACCESS_REMOTE_WRITE) && ok;
	ok = is_error("all of it", 0, 0, buffer.size, 0, buffer.fd, ALL_RIGHTS) && ok;
	close(file);
	buffer_free(&buffer);
	return ok;
}

/* What the buffer's driver does not let anybody do. */
static bool run_driver_refuses(void)
{
	const struct {
		const char *what;
		enum kind kind;
		int error;
	} cases[] = {
		{ "memory of a device", KIND_REGISTERS, EOPNOTSUPP },
		{ "a buffer that cannot be pinned", KIND_UNPINNABLE, ENOSPC },
		{ "a buffer that the CPU has no access to", KIND_BUSY, EBUSY },
	};
	bool ok = true;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buffer buffer = buffer_of_driver(cases[i].kind, PAGE);

		ok = is_error(cases[i].what, cases[i].error, 0, PAGE, 0, buffer.fd, ALL_RIGHTS) && ok;
		buffer_free(&buffer);
	}
	return ok;
}

/* That the exporter has so many. */
static bool are_buffers(unsigned int expected)
{
	FILE *file = fopen("/dev/ferroce_exporter", "r");
	unsigned int count;

	if (!file || fscanf(file, "%u buffers", &count) != 1)
		die("the exporter says nothing");
	fclose(file);
	if (count != expected)
		ksft_print_msg("%u buffers, not %u\n", count, expected);
	return count == expected;
}

static bool succeeds(enum ibv_wr_opcode opcode, uint64_t at, uint32_t rkey)
{
	enum ibv_wc_status status = access_by(opcode, at, rkey);

	if (status)
		ksft_print_msg("%s: %s\n", opcode_name(opcode), ibv_wc_status_str(status));
	return !status;
}

/* The region keeps the buffer, when the process has closed it; and gives it back. */
static bool run_closed(void)
{
	struct buffer buffer = buffer_that_moves(2 * PAGE);
	struct ibv_mr *mr;
	bool ok;

	if (registered(b, 0, buffer.size, 0, buffer.fd, ALL_RIGHTS, &mr))
		die("REG_DMABUF_MR");
	buffer_free(&buffer);
	pair_make();
	ok = are_buffers(1) && succeeds(IBV_WR_RDMA_WRITE, 0, mr->rkey) && succeeds(IBV_WR_RDMA_READ, 0, mr->rkey);
	qps_free(qps);
	deregistered(mr);
	memcpy(sides[0].sink.expected, sides[0].source.expected, LENGTH);
	return ok && are_buffers(0) && side_check(&sides[0]);
}

/* A process ends without a word. */
static bool run_killed(void)
{
	int status, ready[2];
	pid_t child;
	char byte;
	bool ok;

	if (pipe(ready))
		die("pipe: %s", strerror(errno));
	child = fork_child();
	if (!child) {
		struct device own;
		struct buffer buffer;
		struct ibv_mr *mr;

		device_open(&own, b->name, family);
		buffer = buffer_that_moves(1 << 20);
		if (registered(&own, 0, buffer.size, 0, buffer.fd, ALL_RIGHTS, &mr) || write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	ok = read(ready[0], &byte, 1) == 1 && are_buffers(1);
	close(ready[0]);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return ok && WIFSIGNALED(status) && are_buffers(0);
}

/* A region that a thread deregisters. */
struct ending {
	struct ibv_mr *mr;
	const uint8_t *memory;
	/* A copy of the buffer, made right after that. */
	uint8_t copy[SIZE];
	atomic_bool is_over;
};

static void *end_region(void *argument)
{
	struct ending *ending = argument;

	deregistered(ending->mr);
	memcpy(ending->copy, ending->memory, SIZE);
	ending->is_over = true;
	return NULL;
}

static void write_somewhere(struct ibv_send_wr *wr)
{
	wr->wr.rdma.remote_addr = random_between(0, SIZE - LENGTH);
	send_post(qps[0], wr);
}

/*
 * Keeps WRITEs outstanding while the region ends, and for some time after. Returns whether exactly one is refused; all
 * before it succeed, and all after it are flushed.
 */
static bool is_one_refused(struct ibv_send_wr *wr, struct ending *ending)
{
	unsigned int i, outstanding = MAX_MESSAGES, refused = 0, posted_after = 0;
	struct ibv_wc wc = { 0 };
	pthread_t thread;
	bool ok = true;

	for (i = 0; i < MAX_MESSAGES; i++)
		write_somewhere(wr);
	thread_start(&thread, end_region, ending);
	for (; ok && outstanding; outstanding--) {
		enum ibv_wc_status expected = refused ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;

		ok = cq_poll(sides[0].send_cq, &wc, WAIT_MS);
		if (ok && !refused && wc.status == IBV_WC_REM_ACCESS_ERR) {
			refused++;
		} else if (!ok || wc.status != expected) {
			ksft_print_msg("%s\n", ok ? ibv_wc_status_str(wc.status) : "no completion");
			ok = false;
		}
		if (!refused && posted_after < MAX_MESSAGES) {
			posted_after += ending->is_over;
			write_somewhere(wr);
			outstanding++;
		}
	}
	pthread_join(thread, NULL);
	return ok && refused;
}

/* A region ends in the midst of WRITEs: none changes the buffer after that. */
static bool run_ends(void)
{
	struct ibv_sge sge = region_sge(&sides[0].source, 0, LENGTH);
	struct buffer buffer = buffer_that_moves(SIZE);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	static struct ending ending;
	bool ok = true;
	int round;

	ending.memory = buffer.memory;
	for (round = 0; ok && round < ROUNDS; round++) {
		if (registered(b, 0, SIZE, 0, buffer.fd, ALL_RIGHTS, &ending.mr))
			die("REG_DMABUF_MR");
		wr.wr.rdma.rkey = ending.mr->rkey;
		ending.is_over = false;
		pair_make();
		ok = is_one_refused(&wr, &ending) && !memcmp(ending.copy, buffer.memory, SIZE);
		qps_free(qps);
	}
	buffer_free(&buffer);
	return ok;
}

static const struct row rows[] = {
	{ "a part of a buffer, at an address of its own", run_part },
	{ "length and address, as others are told", run_query },
	{ "rights", run_rights },
	{ "nonsense is refused", run_nonsense },
	{ "what the buffer's driver refuses", run_driver_refuses },
	{ "a buffer that is closed", run_closed },
	{ "a process that is killed", run_killed },
	{ "a region that ends in the midst of WRITEs", run_ends },
};

static void add(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(exporters); i++) {
		row_add((struct row){ .name = row_name("messages: %s", exporters[i].name), .run_with = run_messages,
				      .argument = i });
		row_add((struct row){ .name = row_name("atomics: %s", exporters[i].name), .run_with = run_atomics,
				      .argument = i });
	}
}

static void begin(char **names)
{
	sides_make(devices, SIZE, 8 * MAX_MESSAGES);
}

static void end(void)
{
	sides_free();
}

const struct test test = { ROWS(rows), .with_devices = true, .add = add, .begin = begin, .end = end };
