// SPDX-License-Identifier: GPL-2.0
/*
 * Each verb, and the life of a device, with every allocation and every copy from or to
 * user space that the module asks for failing once: the first in the first attempt, the
 * second in the second, until there is none left to fail. Then messages, while one
 * allocation in ten fails.
 *
 * faults [-e] DEVICE DEVICE NETDEV
 *	-e	really every one, also of the thousands that make a device's files in sysfs
 *	NETDEV	for a device of our own
 */

#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "namespace.h"
#include "test.h"
#include "xrc.h"

#define SIZE (1 << 18)
#define DEPTH 16
/* Bytes of a message whose packets, with an MTU of 4096, take several blocks of the page pools. */
#define LONG 200000
#define WAIT_MS 20000
#define MOST 20000
#define EACH 200
#define STRIDE 23
#define OWN "fault0"

static struct region regions[2];
static struct ibv_cq *cqs[2];
static struct ibv_qp *rc[2], *ud[2];
static const char *netdev;
static bool every;

/* --- The kernel's fault injection ---------------------------------------------------- */

static const struct class {
	const char *name;
	const char *directory;
	/* What a verb says when it fails. */
	int error;
} classes[] = {
	{ "slab", "failslab", ENOMEM },
	{ "page", "fail_page_alloc", ENOMEM },
	{ "usercopy", "fail_usercopy", EFAULT },
};

#define CLASSES (ARRAY_SIZE(classes))

/* Sets of them. */
#define SLAB (1u << 0)
#define PAGES (1u << 1)
#define COPIES (1u << 2)

static unsigned long text_start = ~0UL, text_end;
/* Of kmemleak, which complains when it cannot note an allocation. */
static unsigned long kmemleak_start = ~0UL, kmemleak_end;

static void put(const char *directory, const char *file, const char *format, ...)
{
	char path[128];
	va_list arguments;
	FILE *to;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", directory, file);
	to = fopen(path, "w");
	if (!to)
		die("%s: %s", path, strerror(errno));
	va_start(arguments, format);
	vfprintf(to, format, arguments);
	va_end(arguments);
	if (fclose(to))
		die("%s: %s", path, strerror(errno));
}

static int get(const char *directory, const char *file)
{
	char path[128];
	FILE *from;
	int value;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", directory, file);
	from = fopen(path, "r");
	if (!from || fscanf(from, "%d", &value) != 1)
		die("%s: %s", path, strerror(errno));
	fclose(from);
	return value;
}

static void find_text(void)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	char line[1024], type, name[64], module[64];
	unsigned long address;

	while (symbols && fgets(line, sizeof(line), symbols)) {
		int found = sscanf(line, "%lx %c %63s [%63[^]]]", &address, &type, name, module);

		if (found == 3 && (!strcmp(name, "kmemleak_alloc") ||
				   !strcmp(name, "kmemleak_vmalloc") ||
				   !strcmp(name, "kmemleak_free") ||
				   !strcmp(name, "kmemleak_scan_area"))) {
			if (address < kmemleak_start)
				kmemleak_start = address;
			if (address > kmemleak_end)
				kmemleak_end = address;
		}
		if (found != 4)
			continue;
		if (strcmp(module, "ferroce") || (type != 't' && type != 'T'))
			continue;
		if (address < text_start)
			text_start = address;
		if (address > text_end)
			text_end = address;
	}
	if (symbols)
		fclose(symbols);
	if (text_end <= text_start)
		die("/proc/kallsyms does not tell where ferroce is");
	/* The last function has a length, too. */
	text_end += 4096;
	kmemleak_end += 4096;
}

/* Only what the module is on the stack of, and only these classes. */
static void choose(unsigned int chosen)
{
	unsigned int i;

	for (i = 0; i < CLASSES; i++) {
		bool on = chosen & 1u << i;

		put(classes[i].directory, "probability", "0");
		put(classes[i].directory, "verbose", "0");
		put(classes[i].directory, "stacktrace-depth", "32");
		put(classes[i].directory, "reject-start", "%#lx", kmemleak_start);
		put(classes[i].directory, "reject-end", "%#lx", kmemleak_end);
		put(classes[i].directory, "require-start", "%#lx", on ? text_start : 1);
		put(classes[i].directory, "require-end", "%#lx", on ? text_end : 2);
	}
	put("failslab", "ignore-gfp-wait", "N");
	put("failslab", "cache-filter", "N");
	put("fail_page_alloc", "ignore-gfp-wait", "N");
	put("fail_page_alloc", "ignore-gfp-highmem", "N");
	put("fail_page_alloc", "min-order", "0");
}

/* Has the n-th call from now on fail; 0 for none. Returns what was left of the last. */
static unsigned int fail_nth(unsigned int n)
{
	int fd = open("/proc/thread-self/fail-nth", O_RDWR);
	char text[16] = "";
	unsigned int left;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		die("fail-nth: %s", strerror(errno));
	left = strtoul(text, NULL, 0);
	snprintf(text, sizeof(text), "%u", n);
	if (pwrite(fd, text, strlen(text), 0) < 0)
		die("fail-nth: %s", strerror(errno));
	close(fd);
	return left;
}

/* --- rdma link ----------------------------------------------------------------------- */

static void attribute(struct nlmsghdr *message, unsigned short type, const void *data, size_t len)
{
	struct nlattr *to = (void *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));

	to->nla_type = type;
	to->nla_len = NLA_HDRLEN + len;
	memcpy((char *)to + NLA_HDRLEN, data, len);
	message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) + NLA_ALIGN(to->nla_len);
}

/* Sends a command of nldev. Returns the errno that it is answered with. */
static int nldev(struct nlmsghdr *message, unsigned int command)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[512];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	ssize_t got;

	message->nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
	message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	if (fd < 0 || sendto(fd, message, message->nlmsg_len, 0, (void *)&kernel,
			     sizeof(kernel)) < 0)
		die("netlink: %s", strerror(errno));
	got = recv(fd, &answer, sizeof(answer), 0);
	close(fd);
	if (got < (ssize_t)sizeof(answer.header) || answer.header.nlmsg_type != NLMSG_ERROR)
		die("netlink: no answer");
	return -answer.error.error;
}

static int link_add(void)
{
	union {
		struct nlmsghdr header;
		char room[256];
	} message = { .header.nlmsg_len = NLMSG_HDRLEN };

	attribute(&message.header, RDMA_NLDEV_ATTR_DEV_NAME, OWN, sizeof(OWN));
	attribute(&message.header, RDMA_NLDEV_ATTR_LINK_TYPE, "ferroce", sizeof("ferroce"));
	attribute(&message.header, RDMA_NLDEV_ATTR_NDEV_NAME, netdev, strlen(netdev) + 1);
	return nldev(&message.header, RDMA_NLDEV_CMD_NEWLINK);
}

static int link_del(void)
{
	return system("rdma link del " OWN) ? EIO : 0;
}

/* --- The verbs ----------------------------------------------------------------------- */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static uint32_t domain;
static struct xrc_srq xrc_srq;
static struct xrc_qp initiator, target, opened;
static void *memory;

static int open_device(void)
{
	context = ibv_open_device(devices[0].context->device);
	return context ? 0 : errno;
}

static int close_device(void)
{
	return ibv_close_device(context);
}

static int alloc_pd(void)
{
	pd = ibv_alloc_pd(devices[0].context);
	return pd ? 0 : errno;
}

static int dealloc_pd(void)
{
	return ibv_dealloc_pd(pd);
}

static int create_cq(void)
{
	cq = ibv_create_cq(devices[0].context, 1000, NULL, NULL, 0);
	return cq ? 0 : errno;
}

static int create_cq_with_events(void)
{
	channel = ibv_create_comp_channel(devices[0].context);
	if (!channel)
		die("ibv_create_comp_channel: %s", strerror(errno));
	cq = ibv_create_cq(devices[0].context, 1000, NULL, channel, 0);
	if (cq)
		return 0;
	ibv_destroy_comp_channel(channel);
	return errno;
}

static int destroy_cq(void)
{
	int error = ibv_destroy_cq(cq);

	if (channel)
		ibv_destroy_comp_channel(channel);
	channel = NULL;
	return error;
}

static int resize_cq(void)
{
	static int entries = 100;

	entries = entries == 100 ? 3000 : 100;
	return ibv_resize_cq(cq, entries);
}

static int reg_mr(int access)
{
	mr = ibv_reg_mr(devices[0].pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | access);
	return mr ? 0 : errno;
}

static int reg_mr_pinned(void)
{
	return reg_mr(0);
}

static int reg_mr_on_demand(void)
{
	return reg_mr(IBV_ACCESS_ON_DEMAND);
}

static int dereg_mr(void)
{
	return ibv_dereg_mr(mr);
}

static int alloc_mw(void)
{
	mw = ibv_alloc_mw(devices[0].pd, IBV_MW_TYPE_2);
	return mw ? 0 : errno;
}

static int dealloc_mw(void)
{
	return ibv_dealloc_mw(mw);
}

static int create_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = PORT,
		.grh = { .dgid = devices[1].gid, .sgid_index = devices[0].gid_index, .hop_limit = 64 },
	};

	ah = ibv_create_ah(devices[0].pd, &attr);
	return ah ? 0 : errno;
}

static int destroy_ah(void)
{
	return ibv_destroy_ah(ah);
}

static int create_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 100, .max_sge = 4 } };

	srq = ibv_create_srq(devices[0].pd, &attr);
	return srq ? 0 : errno;
}

static int resize_srq(void)
{
	static struct ibv_srq_attr attr = { .max_wr = 100 };

	attr.max_wr = attr.max_wr == 100 ? 3000 : 100;
	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static int destroy_srq(void)
{
	int error = ibv_destroy_srq(srq);

	if (!error)
		srq = NULL;
	return error;
}

static int create_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cqs[0],
		.recv_cq = cqs[0],
		.srq = srq,
		.qp_type = type,
		.cap = { .max_send_wr = 100, .max_recv_wr = 100, .max_send_sge = 4,
			 .max_recv_sge = 4, .max_inline_data = 128 },
	};

	qp = ibv_create_qp(devices[0].pd, &attr);
	return qp ? 0 : errno;
}

static int create_rc(void)
{
	return create_qp(IBV_QPT_RC);
}

static int create_ud(void)
{
	return create_qp(IBV_QPT_UD);
}

static int destroy_qp(void)
{
	return ibv_destroy_qp(qp);
}

static int to_init(void)
{
	int error = qp_init(qp, IBV_ACCESS_REMOTE_READ, 0);

	return error < 0 ? errno : error;
}

static int create_rc_to_init(void)
{
	int error = create_rc();

	return error ? error : to_init();
}

static int to_rtr(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 0x123456,
		.max_dest_rd_atomic = 16,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = devices[1].gid, .sgid_index = devices[0].gid_index,
				 .hop_limit = 64 },
		},
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .max_rd_atomic = 16, .timeout = 14 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int to_error(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static int to_reset(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static int query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

static int query_device(void)
{
	struct ibv_device_attr_ex attr;

	return ibv_query_device_ex(devices[0].context, NULL, &attr);
}

static int query_port(void)
{
	struct ibv_port_attr attr;

	return ibv_query_port(devices[0].context, PORT, &attr);
}

static int open_domain(void)
{
	return xrc_domain_open(devices[0].context, -1, O_CREAT, &domain);
}

static int close_domain(void)
{
	return xrc_domain_close(devices[0].context, domain);
}

static int create_xrc_srq(void)
{
	return xrc_srq_create(&xrc_srq, domain, devices[0].pd, cqs[0], 100);
}

static int destroy_xrc_srq(void)
{
	return xrc_srq_destroy(&xrc_srq);
}

static int create_initiator(void)
{
	return xrc_initiator_create(&initiator, devices[0].pd, cqs[0], 100);
}

static int destroy_initiator(void)
{
	return xrc_qp_destroy(&initiator);
}

static int create_target(void)
{
	return xrc_target_create(&target, devices[0].context, domain);
}

static int destroy_target(void)
{
	return xrc_qp_destroy(&target);
}

static int open_domain_and_target(void)
{
	int error = open_domain();

	return error ? error : create_target();
}

static int close_domain_and_target(void)
{
	int error = destroy_target();

	return error ? error : close_domain();
}

static int open_target(void)
{
	return xrc_target_open(&opened, devices[0].context, domain, target.qp.qp_num);
}

static int close_target(void)
{
	return xrc_qp_destroy(&opened);
}

/* Of the second device, which asks, and the first one. */
static int connect_xrc(void)
{
	int error = open_domain_and_target();

	error = error ? error : create_xrc_srq();
	error = error ? error : xrc_initiator_create(&initiator, devices[1].pd, cqs[1], DEPTH);
	if (error)
		return error;
	xrc_qp_ready(&target, &devices[0], &devices[1], initiator.qp.qp_num, IBV_MTU_4096, PATIENT, 0, 0);
	xrc_qp_ready(&initiator, &devices[1], &devices[0], target.qp.qp_num, IBV_MTU_4096, PATIENT, 0, 0);
	return 0;
}

static int disconnect_xrc(void)
{
	int error = destroy_initiator();

	error = error ? error : destroy_xrc_srq();
	return error ? error : close_domain_and_target();
}

static int arm(void)
{
	return ibv_req_notify_cq(cq, 0);
}

static struct ibv_sge piece(int side, size_t at, uint32_t length)
{
	return region_sge(&regions[side], at, length);
}

/* Where messages are, in both regions. */
#define AT 64

/* Whether memory is as such a message leaves it. Before, the source was filled anew, and the sink held `old`. */
static int compare(enum ibv_wr_opcode opcode, uint32_t length, size_t header, uint64_t old)
{
	const uint8_t *local = regions[0].memory + AT, *remote = regions[1].memory + AT;
	uint64_t sum = old + 1;
	bool is_right;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		is_right = !memcmp(local, &old, sizeof(old)) && !memcmp(remote, &sum, sizeof(sum));
	else
		is_right = !memcmp(local, remote + header, length);
	if (!is_right)
		ksft_print_msg("a message: other bytes arrived\n");
	return is_right ? 0 : EILSEQ;
}

/* One message from the first device to the second; the errno says what went wrong. */
static int transfer(struct ibv_qp **qps, enum ibv_wr_opcode opcode, uint32_t length)
{
	bool datagram = qps == ud, receives = opcode == IBV_WR_SEND;
	size_t header = datagram ? GRH : 0;
	struct ibv_sge from = piece(0, AT, length), to = piece(1, AT, length + header);
	struct ibv_send_wr wr = {
		.sg_list = &from,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_wc wc;
	uint64_t old;

	random_fill(regions[0].memory + AT, length);
	random_fill(regions[1].memory + AT, length + header);
	memcpy(&old, regions[1].memory + AT, sizeof(old));
	if (receives && ibv_post_recv(qps[1], &receive, &bad_receive))
		return EBADMSG;
	if (datagram) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qps[1]->qp_num;
		wr.wr.ud.remote_qkey = 0;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = to.addr;
		wr.wr.atomic.rkey = regions[1].mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = to.addr;
		wr.wr.rdma.rkey = regions[1].mr->rkey;
	}
	if (ibv_post_send(qps[0], &wr, &bad))
		return EBADMSG;
	if (!cq_poll(cqs[0], &wc, WAIT_MS))
		return ETIME;
	if (wc.status != IBV_WC_SUCCESS) {
		ksft_print_msg("a message: %s\n", ibv_wc_status_str(wc.status));
		return EPROTO;
	}
	/* A datagram may be lost. */
	if (receives && !cq_poll(cqs[1], &wc, datagram ? 500 : WAIT_MS))
		return datagram ? 0 : ETIME;
	return compare(opcode, length, header, old);
}

static int send_one(void)
{
	return transfer(rc, IBV_WR_SEND, LONG);
}

static int write_one(void)
{
	return transfer(rc, IBV_WR_RDMA_WRITE, LONG);
}

static int read_one(void)
{
	return transfer(rc, IBV_WR_RDMA_READ, LONG);
}

static int add_one(void)
{
	return transfer(rc, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
}

static int datagram_one(void)
{
	return transfer(ud, IBV_WR_SEND, 1000);
}

/* READs in one go, each into this page, which is taken away before each. */
#define ABSENCES 10
static void *absent;
static struct ibv_mr *absent_mr;

/*
 * The response waits for the page, as a copy. If there is no memory for that, it is one more loss on the
 * way, and the requester asks again.
 */
static int read_absent(void)
{
	struct ibv_sge to = { (uintptr_t)absent, sizeof(uint64_t), absent_mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &to,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)regions[1].memory + AT, regions[1].mr->rkey },
	}, *bad;
	unsigned int i;

	for (i = 0; i < ABSENCES; i++) {
		random_fill(regions[1].memory + AT, to.length);
		if (madvise(absent, sysconf(_SC_PAGESIZE), MADV_DONTNEED))
			return errno;
		if (ibv_post_send(rc[0], &wr, &bad))
			return EBADMSG;
		if (!cq_expect(cqs[0], "a READ into an absent page", 0, IBV_WC_SUCCESS, WAIT_MS))
			return ETIME;
		if (memcmp(absent, regions[1].memory + AT, to.length))
			return EILSEQ;
	}
	return 0;
}

/* Messages that take more memory than the page pools of a CPU keep. */
#define DRAINING 40
static int holder = -1;

/*
 * A packet socket that nobody reads holds packets, and so their memory: the page pools have none left, and each long
 * message has to allocate some.
 */
static int hold_packets(void)
{
	int error = 0, room = 64 << 20;
	unsigned int i;

	holder = capture_open("n1", netdev_of(1), NULL);
	if (setsockopt(holder, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		die("SO_RCVBUFFORCE: %s", strerror(errno));
	for (i = 0; !error && i < DRAINING; i++)
		error = send_one();
	return error;
}

static int release_packets(void)
{
	return close(holder);
}

static int xrc_send_one(void)
{
	struct ibv_sge sge = piece(1, 0, LONG);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
	};
	int error;

	region_fill(&regions[1]);
	xrc_srq_post(&xrc_srq, 0, regions[0].memory, LONG, regions[0].mr->lkey);
	error = xrc_send_post(&initiator, &wr, xrc_srq.number);
	if (error)
		return error;
	if (!cq_expect(cqs[1], "the send", 0, IBV_WC_SUCCESS, WAIT_MS) ||
	    !cq_expect(cqs[0], "the receive", 0, IBV_WC_SUCCESS, WAIT_MS))
		return ETIMEDOUT;
	return memcmp(regions[0].memory, regions[1].memory, LONG) ? EBADMSG : 0;
}

static int connect_xrc_and_hold(void)
{
	return connect_xrc() ? : hold_packets();
}

static int disconnect_xrc_and_release(void)
{
	return release_packets() ? : disconnect_xrc();
}

static int nothing(void)
{
	return 0;
}

/*
 * What is done, and undone after it was done. A verb may fail only with its class's
 * errno. With `steady` it must not fail at all: what ends an object's life, and
 * messages, for which a failed allocation is a loss on the way.
 */
static const struct operation {
	const char *name;
	int (*does)(void);
	int (*undoes)(void);
	/* Around all attempts. */
	int (*before)(void);
	int (*after)(void);
	bool steady;
	/* Errnos that stand for a failed allocation, too. */
	int also[2];
	/*
	 * The classes of calls that it must make: a row without one shows nothing. Of others there may be none: for
	 * the memory of packets, which goes round in page pools, a message seldom makes a call.
	 */
	unsigned int makes;
} operations[] = {
	{ "open device", open_device, close_device, nothing, nothing, false, { 0 }, SLAB },
	{ "query device", query_device, nothing, nothing, nothing, false, { 0 }, 0 },
	{ "query port", query_port, nothing, nothing, nothing, false, { 0 }, SLAB },
	{ "alloc PD", alloc_pd, dealloc_pd, nothing, nothing, false, { 0 }, SLAB },
	{ "create CQ", create_cq, destroy_cq, nothing, nothing, false, { 0 }, SLAB | PAGES | COPIES },
	{ "create CQ with events", create_cq_with_events, destroy_cq, nothing, nothing, false, { 0 }, SLAB | PAGES | COPIES },
	{ "resize CQ", resize_cq, nothing, create_cq, destroy_cq, false, { 0 }, SLAB | PAGES | COPIES },
	{ "arm CQ", arm, nothing, create_cq_with_events, destroy_cq, true, { 0 }, 0 },
	{ "register MR", reg_mr_pinned, dereg_mr, nothing, nothing, false, { 0 }, SLAB },
	{ "register MR, paged on demand", reg_mr_on_demand, dereg_mr, nothing, nothing, false, { 0 }, SLAB },
	{ "alloc MW", alloc_mw, dealloc_mw, nothing, nothing, false, { 0 }, SLAB },
	{ "create AH", create_ah, destroy_ah, nothing, nothing, false, { 0 }, SLAB | COPIES },
	{ "create RC QP", create_rc, destroy_qp, nothing, nothing, false, { 0 }, SLAB | PAGES | COPIES },
	{ "create UD QP", create_ud, destroy_qp, nothing, nothing, false, { 0 }, SLAB | PAGES | COPIES },
	{ "create SRQ", create_srq, destroy_srq, nothing, nothing, false, { 0 }, SLAB | PAGES | COPIES },
	{ "resize SRQ", resize_srq, nothing, create_srq, destroy_srq, false, { 0 }, SLAB | PAGES | COPIES },
	{ "create RC QP on an SRQ", create_rc, destroy_qp, create_srq, destroy_srq, false, { 0 }, SLAB | PAGES | COPIES },
	{ "destroy SRQ", destroy_srq, create_srq, create_srq, destroy_srq, true, { 0 }, 0 },
	{ "reset QP to INIT", to_init, to_reset, create_rc, destroy_qp, false, { 0 }, 0 },
	{ "QP to RTR", to_rtr, nothing, NULL, destroy_qp, false, { 0 }, SLAB },
	{ "QP to RTS", to_rts, nothing, NULL, destroy_qp, false, { 0 }, 0 },
	{ "QP to ERR", to_error, nothing, create_rc_to_init, destroy_qp, true, { 0 }, 0 },
	{ "query QP", query_qp, nothing, create_rc, destroy_qp, false, { 0 }, 0 },
	{ "destroy QP", destroy_qp, create_rc, create_rc, destroy_qp, true, { 0 }, 0 },
	{ "destroy CQ", destroy_cq, create_cq, create_cq, destroy_cq, true, { 0 }, 0 },
	{ "destroy AH", destroy_ah, create_ah, create_ah, destroy_ah, true, { 0 }, 0 },
	{ "deregister MR", dereg_mr, reg_mr_pinned, reg_mr_pinned, dereg_mr, true, { 0 }, 0 },
	{ "deregister MR, paged on demand", dereg_mr, reg_mr_on_demand, reg_mr_on_demand, dereg_mr,
	  true, { 0 }, 0 },
	{ "dealloc MW", dealloc_mw, alloc_mw, alloc_mw, dealloc_mw, true, { 0 }, 0 },
	{ "dealloc PD", dealloc_pd, alloc_pd, alloc_pd, dealloc_pd, true, { 0 }, 0 },
	{ "SEND", send_one, nothing, hold_packets, release_packets, true, { 0 }, PAGES },
	{ "WRITE", write_one, nothing, hold_packets, release_packets, true, { 0 }, PAGES },
	{ "READ", read_one, nothing, nothing, nothing, true, { 0 }, 0 },
	{ "FETCH AND ADD", add_one, nothing, nothing, nothing, true, { 0 }, 0 },
	{ "datagram", datagram_one, nothing, create_ah, destroy_ah, true, { 0 }, 0 },
	{ "open XRC domain", open_domain, close_domain, nothing, nothing, false, { 0 }, SLAB },
	{ "create XRC SRQ", create_xrc_srq, destroy_xrc_srq, open_domain, close_domain, false, { 0 }, SLAB | PAGES | COPIES },
	{ "create XRC initiator", create_initiator, destroy_initiator, nothing, nothing, false, { 0 }, SLAB | PAGES | COPIES },
	{ "create XRC target", create_target, destroy_target, open_domain, close_domain, false, { 0 }, SLAB },
	{ "open XRC target", open_target, close_target, open_domain_and_target, close_domain_and_target,
	  false, { 0 }, 0 },
	{ "destroy XRC SRQ", destroy_xrc_srq, create_xrc_srq, connect_xrc, disconnect_xrc, true, { 0 }, 0 },
	{ "destroy XRC target", destroy_target, create_target, open_domain_and_target, close_domain_and_target,
	  true, { 0 }, 0 },
	{ "close XRC domain", close_domain, open_domain, open_domain, close_domain, true, { 0 }, 0 },
	{ "XRC SEND", xrc_send_one, nothing, connect_xrc_and_hold, disconnect_xrc_and_release, true, { 0 }, PAGES },
	/* A socket without an inode is one file too many; memory of a socket is a buffer. */
	{ "rdma link add", link_add, link_del, nothing, nothing, false, { ENFILE, ENOBUFS }, SLAB },
};

#define OPERATIONS (ARRAY_SIZE(operations))

/* A transition is done once: each attempt that succeeds needs a fresh queue pair. */
static int prepare(const struct operation *operation)
{
	int error;

	if (operation->before)
		return operation->before();
	error = create_rc_to_init();
	if (!error && operation->does == to_rts)
		error = to_rtr();
	return error;
}

/* How many calls of each class have failed. */
static unsigned int failures[CLASSES];

static bool is_expected(const struct operation *operation, const struct class *class, int error)
{
	return error == class->error || error == operation->also[0] || error == operation->also[1];
}

/* Only a new device has more than EACH of them. */
static unsigned int next(unsigned int n)
{
	return n < EACH || every ? n + 1 : n + STRIDE;
}

/*
 * The pages that are pinned for us, in kB: those of a region whose registration failed must not stay so.
 * kmemleak alone may miss them, as a stale pointer somewhere is enough for it.
 */
static long pinned(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kilobytes = -1;

	while (status && fgets(line, sizeof(line), status)) {
		if (sscanf(line, "VmPin: %ld kB", &kilobytes) == 1)
			break;
	}
	if (status)
		fclose(status);
	if (kilobytes < 0)
		die("/proc/self/status does not tell what is pinned");
	return kilobytes;
}

/* made is how many calls of the class the operation has made, each of which has failed once. */
static bool sweep(const struct operation *operation, const struct class *class, unsigned int *made)
{
	unsigned int n, failed = 0, survived = 0;
	long before = pinned(), after;
	bool ok = true;
	int error;

	if (prepare(operation))
		die("before %s: %s", operation->name, strerror(errno));
	for (n = 1; ok && n < MOST; n = next(n)) {
		unsigned int left;

		choose(1u << (class - classes));
		fail_nth(n);
		error = operation->does();
		left = fail_nth(0);
		choose(0);
		if (error && (left || operation->steady || !is_expected(operation, class, error))) {
			ksft_print_msg("%s number %u%s: %s\n", class->name, n,
				       left ? ", which did not fail" : "", strerror(error));
			ok = false;
			break;
		}
		if (error) {
			failed++;
			continue;
		}
		if (operation->undoes()) {
			ksft_print_msg("cannot be undone after %s number %u\n", class->name, n);
			ok = false;
			break;
		}
		if (!operation->before) {
			destroy_qp();
			if (prepare(operation))
				die("before %s: %s", operation->name, strerror(errno));
		}
		if (left)
			break;
		survived++;
	}
	if (n >= MOST) {
		ksft_print_msg("it never ends\n");
		ok = false;
	}
	operation->after();
	after = pinned();
	if (after != before) {
		ksft_print_msg("pinned before: %ld kB, after: %ld kB\n", before, after);
		ok = false;
	}
	*made = failed + survived;
	failures[class - classes] += *made;
	ksft_print_msg("%s: %u calls of class %s: %u made it fail, %u did not\n", operation->name,
		       failed + survived, class->name, failed, survived);
	return ok;
}

/* Wherever the packets are worked on: softirq, work, the caller. */
static bool run_messages(void)
{
	int (*const kinds[])(void) = { send_one, write_one, read_one, add_one, read_absent };
	unsigned long long unkept = device_counter_now(&devices[0], "page_fault_dropped");
	const size_t page = sysconf(_SC_PAGESIZE);
	unsigned int i;
	int error = hold_packets(), failed = 0;

	absent = pages_make(page, MAP_PRIVATE | MAP_ANONYMOUS);
	absent_mr = mr_make(devices[0].pd, absent, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	choose(SLAB | PAGES);
	for (i = 0; i < 2; i++) {
		put(classes[i].directory, "task-filter", "N");
		put(classes[i].directory, "times", "%d", MOST);
		put(classes[i].directory, "probability", "10");
	}
	for (i = 0; !error && i < 10 * ARRAY_SIZE(kinds); i++)
		error = kinds[i % ARRAY_SIZE(kinds)]();
	if (error)
		ksft_print_msg("message %u: %s\n", i, strerror(error));
	for (i = 0; i < 2; i++) {
		failed += MOST - get(classes[i].directory, "times");
		put(classes[i].directory, "times", "-1");
	}
	choose(0);
	release_packets();
	mr_free(absent_mr);
	munmap(absent, page);
	unkept = device_counter_now(&devices[0], "page_fault_dropped") - unkept;
	ksft_print_msg("%d calls have failed, %llu responses could not wait for a page\n", failed, unkept);
	return !error && failed >= 10 && unkept;
}

static bool run_sweep(int which)
{
	const struct operation *operation = &operations[which / CLASSES];
	unsigned int class = which % CLASSES, made;
	bool ok = sweep(operation, &classes[class], &made);

	if (!made && operation->makes & 1u << class) {
		ksft_print_msg("there was no call that could fail\n");
		ok = false;
	}
	return made ? ok : row_skip("it makes no such call") && ok;
}

static bool run_failures(void)
{
	return failures[0] > 100 && failures[1] > 10 && failures[2] > 3;
}

static void add(void)
{
	unsigned int i;

	for (i = 0; i < OPERATIONS * CLASSES; i++)
		row_add((struct row){
			row_name("%s: %s", operations[i / CLASSES].name, classes[i % CLASSES].name),
			.run_with = run_sweep, i,
		});
	/* Of all these together. */
	if (!rows_are_chosen())
		row_add((struct row){ "calls of each class have failed", run_failures });
	row_add((struct row){ "messages while one allocation in ten fails", run_messages });
}

static bool take_option(int option, const char *argument)
{
	every = true;
	return true;
}

static void begin(char **operands)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };
	int i;

	netdev = operands[2];
	/* Each CPU has its page pools. */
	stay_on(0);
	find_text();
	choose(0);
	for (i = 0; i < 2; i++) {
		region_make(&regions[i], &devices[i], SIZE,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		cqs[i] = cq_make(&devices[i], 4 * DEPTH);
		rc[i] = qp_make(&devices[i], IBV_QPT_RC, cqs[i], cqs[i], depth, NULL);
		ud[i] = ud_make(&devices[i], cqs[i], cqs[i], depth, 0);
	}
	qp_connect(&devices[0], rc[0], &devices[1], rc[1], IBV_MTU_4096, PATIENT);
	memory = pages_make(SIZE, MAP_PRIVATE | MAP_ANONYMOUS);
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(rc[i]);
		qp_free(ud[i]);
		cq_free(cqs[i]);
		region_free(&regions[i]);
	}
}

const struct test test = {
	.operands = "DEVICE DEVICE NETDEV", .options = "e", .option = take_option, .add = add,
	.with_devices = true, .begin = begin, .end = end,
};
