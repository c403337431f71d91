// SPDX-License-Identifier: GPL-2.0
/* See endpoint.h. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"

static uint64_t random_state = 1;

void die(const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	printf("Bail out! ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
	exit(2);
}

uint64_t random_next(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1dULL;
}

void random_seed(uint64_t seed)
{
	random_state = seed ? seed : 1;
}

size_t random_between(size_t low, size_t high)
{
	return low + random_next() % (high - low + 1);
}

void random_fill(void *memory, size_t size)
{
	uint8_t *to = memory;
	uint64_t word;

	for (; size >= sizeof(word); size -= sizeof(word), to += sizeof(word)) {
		word = random_next();
		memcpy(to, &word, sizeof(word));
	}
	word = random_next();
	memcpy(to, &word, size);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t now_us(void)
{
	return now_ns() / 1000;
}

uint64_t now_ms(void)
{
	return now_ns() / 1000000;
}

static unsigned int slowness(void)
{
	const char *text = getenv("FERROCE_SLOWNESS");
	int times = text ? atoi(text) : 1;

	if (times < 1)
		die("FERROCE_SLOWNESS is %s", text);
	return times;
}

unsigned int patience_ms(unsigned int ms)
{
	return ms * slowness();
}

unsigned int quiet_ms(unsigned int ms)
{
	return ms * slowness();
}

void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity: %s", strerror(errno));
}

static bool gid_is_v4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static bool gid_fits(const union ibv_gid *gid, int family)
{
	bool link_local = gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;

	return family == 4 ? gid_is_v4(gid) : !gid_is_v4(gid) && !link_local;
}

static void gid_find(struct device *device, int family)
{
	struct ibv_gid_entry entries[64];
	ssize_t count, i;

	count = ibv_query_gid_table(device->context, entries, 64, 0);
	if (count < 0)
		die("%s: ibv_query_gid_table: %zd", device->name, count);
	for (i = 0; i < count; i++) {
		if (entries[i].gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (gid_fits(&entries[i].gid, family)) {
			device->gid_index = entries[i].gid_index;
			device->gid = entries[i].gid;
			return;
		}
	}
	die("%s: no IPv%d address among %zd GIDs", device->name, family, count);
}

int absence_begin(void *memory, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = {
		.range = { .start = (uintptr_t)memory, .len = size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &area))
		die("userfaultfd: %s", strerror(errno));
	return fd;
}

void absence_noticed(int fd)
{
	struct pollfd pending = { .fd = fd, .events = POLLIN };
	struct uffd_msg message;

	if (poll(&pending, 1, patience_ms(20000)) != 1 || read(fd, &message, sizeof(message)) != sizeof(message) ||
	    message.event != UFFD_EVENT_PAGEFAULT)
		die("no page fault");
}

void device_open(struct device *device, const char *name, int family)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	int i;

	memset(device, 0, sizeof(*device));
	for (i = 0; list && list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			device->context = ibv_open_device(list[i]);
	}
	if (!device->context)
		die("no device %s", name);
	ibv_free_device_list(list);
	device->name = name;
	if (ibv_query_device(device->context, &device->attr))
		die("%s: ibv_query_device", name);
	if (ibv_query_port(device->context, PORT, &port))
		die("%s: ibv_query_port", name);
	if (port.state != IBV_PORT_ACTIVE)
		die("%s: the port is not active but in state %d", name, port.state);
	device->active_mtu = port.active_mtu;
	gid_find(device, family);
	device->pd = ibv_alloc_pd(device->context);
	if (!device->pd)
		die("%s: ibv_alloc_pd: %s", name, strerror(errno));
}

void device_close(struct device *device)
{
	int error = ibv_dealloc_pd(device->pd);

	if (error)
		die("%s: ibv_dealloc_pd: %s", device->name, strerror(error));
	error = ibv_close_device(device->context);
	if (error)
		die("%s: ibv_close_device: %s", device->name, strerror(error));
}

void *pages_make(size_t size, int flags)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory of %zu bytes: %s", size, strerror(errno));
	return memory;
}

struct ibv_mr *mr_make(struct ibv_pd *pd, void *memory, size_t size, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, size, access);

	if (!mr)
		die("%s: ibv_reg_mr of %zu bytes: %s", ibv_get_device_name(pd->context->device), size, strerror(errno));
	return mr;
}

void mr_free(struct ibv_mr *mr)
{
	int error = ibv_dereg_mr(mr);

	if (error)
		die("ibv_dereg_mr: %s", strerror(error));
}

pid_t fork_child(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	return pid;
}

void thread_start(pthread_t *thread, void *(*function)(void *argument), void *argument)
{
	int error = pthread_create(thread, NULL, function, argument);

	if (error)
		die("pthread_create: %s", strerror(error));
}

void region_make(struct region *region, struct device *device, size_t size, int access)
{
	size_t page = sysconf(_SC_PAGESIZE);

	region->size = size;
	region->memory = aligned_alloc(page, (size + page - 1) / page * page);
	region->expected = malloc(size);
	if (!region->memory || !region->expected)
		die("no memory for a region of %zu bytes", size);
	region_fill(region);
	region->mr = mr_make(device->pd, region->memory, size, access);
}

void region_fill(struct region *region)
{
	random_fill(region->memory, region->size);
	memcpy(region->expected, region->memory, region->size);
}

bool region_check(const struct region *region, const char *name)
{
	size_t first = 0, wrong = 0, i;

	if (!memcmp(region->memory, region->expected, region->size))
		return true;
	for (i = 0; i < region->size; i++) {
		if (region->memory[i] == region->expected[i])
			continue;
		if (!wrong)
			first = i;
		wrong++;
	}
	printf("# %s: %zu of %zu bytes are wrong, the first at %zu: %02x instead of %02x\n", name,
	       wrong, region->size, first, region->memory[first], region->expected[first]);
	return false;
}

void region_free(struct region *region)
{
	mr_free(region->mr);
	free(region->memory);
	free(region->expected);
}

struct ibv_sge region_sge(const struct region *region, size_t at, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)region->memory + at, .length = length, .lkey = region->mr->lkey };
}

void send_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(qp, wr, &bad);

	if (error)
		die("ibv_post_send: %s", strerror(error));
}

void recv_post(struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(qp, wr, &bad);

	if (error)
		die("ibv_post_recv: %s", strerror(error));
}

struct ibv_cq *cq_make(const struct device *device, int cqes)
{
	struct ibv_cq *cq = ibv_create_cq(device->context, cqes, NULL, NULL, 0);

	if (!cq)
		die("%s: ibv_create_cq: %s", device->name, strerror(errno));
	return cq;
}

void cq_free(struct ibv_cq *cq)
{
	int error = ibv_destroy_cq(cq);

	if (error)
		die("ibv_destroy_cq: %s", strerror(error));
}

void qp_change(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask, const char *what)
{
	int error = ibv_modify_qp(qp, &attr, mask);

	if (error)
		die("ibv_modify_qp, %s: %s", what, strerror(error));
}

void qp_free(struct ibv_qp *qp)
{
	int error = qp ? ibv_destroy_qp(qp) : 0;

	if (error)
		die("ibv_destroy_qp: %s", strerror(error));
}

struct ibv_qp *qp_make(struct device *device, enum ibv_qp_type type, struct ibv_cq *send_cq,
		       struct ibv_cq *recv_cq, struct depth depth, uint32_t *inline_size)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.qp_type = type,
		.cap = {
			.max_send_wr = depth.send,
			.max_recv_wr = depth.receive,
			.max_send_sge = depth.sges,
			.max_recv_sge = depth.sges,
			.max_inline_data = depth.inline_size,
		},
	};
	struct ibv_qp *qp = ibv_create_qp(device->pd, &attr);

	if (!qp)
		die("%s: ibv_create_qp: %s", device->name, strerror(errno));
	if (attr.cap.max_send_wr > (uint32_t)device->attr.max_qp_wr ||
	    attr.cap.max_recv_wr > (uint32_t)device->attr.max_qp_wr)
		die("a queue that cannot be asked for: %u, %u", attr.cap.max_send_wr, attr.cap.max_recv_wr);
	if (attr.cap.max_send_wr < depth.send || attr.cap.max_recv_wr < depth.receive ||
	    attr.cap.max_send_sge < depth.sges || attr.cap.max_recv_sge < depth.sges ||
	    attr.cap.max_inline_data < depth.inline_size)
		die("%s: ibv_create_qp gives less than was asked for", device->name);
	if (inline_size)
		*inline_size = attr.cap.max_inline_data;
	return qp;
}

int qp_init(struct ibv_qp *qp, int access, uint32_t qkey)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = access,
		.qkey = qkey,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, mask);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

int access_of(enum ibv_qp_type type)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV)
		access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

void qp_ready_connected(const struct device *from, struct ibv_qp *qp, const struct device *to, uint32_t to_qpn,
			enum ibv_mtu mtu, struct patience patience, uint32_t psn, uint32_t to_psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = to_qpn,
		.rq_psn = to_psn,
		.max_dest_rd_atomic = least(16, from->attr.max_qp_rd_atom),
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = to->gid,
				.sgid_index = from->gid_index,
				.flow_label = from->flow_label,
				.hop_limit = 64,
			},
		},
	};
	bool asks = qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND;
	bool answers = qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV;
	int error, mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (answers)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	error = ibv_modify_qp(qp, &attr, mask);
	if (error)
		die("%s: INIT to RTR: %s", from->name, strerror(error));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = patience.timeout;
	attr.retry_cnt = patience.retries;
	attr.rnr_retry = patience.rnr_retries;
	attr.sq_psn = psn;
	attr.max_rd_atomic = least(16, least(from->attr.max_qp_init_rd_atom, to->attr.max_qp_rd_atom));
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (asks)
		mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if (asks || answers)
		mask |= IBV_QP_TIMEOUT;
	error = ibv_modify_qp(qp, &attr, mask);
	if (error)
		die("%s: RTR to RTS: %s", from->name, strerror(error));
}

void qp_connect(struct device *a, struct ibv_qp *qp_a, struct device *b, struct ibv_qp *qp_b,
		enum ibv_mtu mtu, struct patience patience)
{
	int access = access_of(qp_a->qp_type);
	/* Near the end of the circle: most runs pass it. */
	uint32_t psn_a = 0xffffff - random_between(0, 64);
	uint32_t psn_b = 0xffffff - random_between(0, 64);
	int error;

	error = qp_init(qp_a, access, 0);
	if (!error)
		error = qp_init(qp_b, access, 0);
	if (error)
		die("RESET to INIT: %s", strerror(error));
	qp_ready_connected(a, qp_a, b, qp_b->qp_num, mtu, patience, psn_a, psn_b);
	qp_ready_connected(b, qp_b, a, qp_a->qp_num, mtu, patience, psn_b, psn_a);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);

	if (error)
		die("ibv_query_qp: %s", strerror(error));
	return attr.qp_state;
}

void qp_ready_ud(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int error;

	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (error)
		die("UD: INIT to RTR: %s", strerror(error));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = random_between(0, 0xffffff);
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (error)
		die("UD: RTR to RTS: %s", strerror(error));
}

struct ibv_qp *ud_make(struct device *device, struct ibv_cq *send_cq, struct ibv_cq *recv_cq, struct depth depth,
		       uint32_t qkey)
{
	struct ibv_qp *qp = qp_make(device, IBV_QPT_UD, send_cq, recv_cq, depth, NULL);
	int error = qp_init(qp, 0, qkey);

	if (error)
		die("%s: UD: RESET to INIT: %s", device->name, strerror(error));
	qp_ready_ud(qp);
	return qp;
}

void ah_free(struct ibv_ah *ah)
{
	int error = ah ? ibv_destroy_ah(ah) : 0;

	if (error)
		die("ibv_destroy_ah: %s", strerror(error));
}

struct ibv_ah *ah_make(struct device *from, const struct device *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = PORT,
		.grh = {
			.dgid = to->gid,
			.sgid_index = from->gid_index,
			.hop_limit = 64,
		},
	};
	struct ibv_ah *ah = ibv_create_ah(from->pd, &attr);

	if (!ah)
		die("%s: ibv_create_ah: %s", from->name, strerror(errno));
	return ah;
}

/* Whether the ones' complement sum over an IPv4 header is what it must be (RFC 1071). */
static bool checksum_is_right(const uint8_t *ip)
{
	uint32_t sum = 0;
	int i;

	for (i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

bool grh_check(const uint8_t *grh, const union ibv_gid *from, const union ibv_gid *to, uint32_t length, uint8_t hops)
{
	const uint8_t *ip = grh + 20;

	if (!gid_is_v4(from)) {
		/* 40 bytes of IPv6, then UDP 8, BTH 12, DETH 8, at least 4 of ICRC. */
		unsigned int payload = grh[4] << 8 | grh[5];

		if (grh[0] >> 4 == 6 && grh[6] == 17 && grh[7] == hops && payload >= length + 32 &&
		    payload <= length + 32 + 4 + 3 && !memcmp(grh + 8, from, 16) && !memcmp(grh + 24, to, 16))
			return true;
	} else {
		/* The last 20 bytes are the IPv4 header. */
		unsigned int total = ip[2] << 8 | ip[3];

		if (ip[0] == 0x45 && ip[8] == hops && ip[9] == 17 && checksum_is_right(ip) && total >= length + 20 + 32 &&
		    total <= length + 20 + 32 + 4 + 3 && !memcmp(ip + 12, from->raw + 12, 4) &&
		    !memcmp(ip + 16, to->raw + 12, 4))
			return true;
	}
	printf("# wrong network header for %u bytes:", length);
	for (ip = grh; ip < grh + GRH; ip++)
		printf(" %02x", *ip);
	printf("\n");
	return false;
}

bool cq_poll(struct ibv_cq *cq, struct ibv_wc *wc, unsigned int ms)
{
	uint64_t end = now_ms() + patience_ms(ms);
	int found;

	do {
		found = ibv_poll_cq(cq, 1, wc);
		if (found < 0)
			die("ibv_poll_cq: %d", found);
		if (found)
			return true;
		sched_yield();
	} while (now_ms() <= end);
	return false;
}

bool cq_expect(struct ibv_cq *cq, const char *what, uint64_t id, enum ibv_wc_status status, unsigned int ms)
{
	struct ibv_wc wc;

	if (!cq_poll(cq, &wc, ms)) {
		printf("# %s does not complete\n", what);
		return false;
	}
	if ((wc.wr_id == id || id == ANY_REQUEST) && wc.status == status)
		return true;
	printf("# %s: wr_id %llu, %s, instead of %llu, %s\n", what, (unsigned long long)wc.wr_id,
	       ibv_wc_status_str(wc.status), (unsigned long long)id, ibv_wc_status_str(status));
	return false;
}

bool cq_quiet(struct ibv_cq *cq, unsigned int ms)
{
	struct ibv_wc wc;

	if (!cq_poll(cq, &wc, ms))
		return true;
	printf("# a completion that should not be: wr_id %#llx, %s, opcode %d\n",
	       (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.opcode);
	return false;
}

void cq_drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

unsigned int mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

unsigned long long device_counter(const struct device *device, const char *name)
{
	unsigned long long value = 0;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/hw_counters/%s", device->name, PORT, name);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &value) != 1)
		die("%s: %s", path, strerror(errno));
	fclose(file);
	return value;
}

unsigned long long device_counter_now(const struct device *device, const char *name)
{
	usleep(30000);
	return device_counter(device, name);
}

long live_objects(const char *type)
{
	FILE *file = fopen("/sys/kernel/debug/ferroce/live_objects", "r");
	long count, found = -1;
	char name[16];

	while (file && fscanf(file, "%15s %ld", name, &count) == 2) {
		if (!strcmp(name, type))
			found = count;
	}
	if (file)
		fclose(file);
	return found;
}
