// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes a provider of rdma-core with hostile answers: a process makes objects, posts and polls, and the test spoils
 * what the kernel answers before the provider sees it, and the rings that both share. The provider may refuse anything.
 * It must touch nothing behind its rings, and each call must return. Each process has its own seed.
 *
 * ioctl(), mmap() and munmap() here come before those of libc for the libraries of the program, too. Behind each ring
 * is a page that nobody may touch.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/rdma_user_rxe.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "choice.h"
#include "fuzzer.h"
#include "test.h"

#define OBJECTS 4
#define RINGS 32
#define PAGE ((size_t)4096)
#define REQUESTS 40
#define MOST_SGES 64
#define PAYLOAD 4096
/* What a process does, and how long it may take for it. */
#define STEPS 150
#define STEP_SECONDS 60
/* Of all processes of a row together, on a slow machine, too. */
#define FEWEST_PROCESSES 20
#define FEWEST_SPOILT 200

static struct shared {
	/* Of the row. */
	unsigned int processes, spoilt, calls, done;
} *shared;

static struct choice choice;
static const char *device_name;
/* What is spoilt, one time in so many; 0 is never. */
static uint32_t of_driver, of_core, of_rings;

static void count(unsigned int *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* --- Hostile answers -------------------------------------------------------------------------- */

/* One of its numbers, or several. */
static void spoil(void *memory, size_t size)
{
	uint8_t *bytes = memory;
	uint32_t times = one_in(&choice, 4) ? 4 : 1;

	for (; times; times--) {
		uint64_t value = odd_value(&choice, any(&choice));
		size_t width = size >= 8 && one_in(&choice, 3) ? 8 : size >= 4 ? 4 : 1;

		memcpy(bytes + width * below(&choice, size / width), &value, width);
	}
	count(&shared->spoilt);
}

static bool may_spoil(uint32_t seldom)
{
	return seldom && one_in(&choice, seldom);
}

/* What the kernel has written, the driver or the core. */
static bool is_answer(const struct ib_uverbs_attr *attr, bool of_the_driver)
{
	return attr->flags & UVERBS_ATTR_F_VALID_OUTPUT && attr->len &&
	       (attr->attr_id == UVERBS_ATTR_UHW_OUT) == of_the_driver;
}

int ioctl(int fd, unsigned long request, ...)
{
	struct ib_uverbs_ioctl_hdr *header;
	bool has_driver = false;
	va_list arguments;
	unsigned int i;
	int result;

	va_start(arguments, request);
	header = va_arg(arguments, void *);
	va_end(arguments);
	result = syscall(SYS_ioctl, fd, request, header);
	if (result || request != RDMA_VERBS_IOCTL)
		return result;
	for (i = 0; i < header->num_attrs; i++)
		has_driver = has_driver || is_answer(&header->attrs[i], true);
	/* Other answers are for libibverbs alone, which waits for as many events as they say. */
	for (i = 0; has_driver && i < header->num_attrs; i++) {
		struct ib_uverbs_attr *attr = &header->attrs[i];

		if ((is_answer(attr, true) && may_spoil(of_driver)) || (is_answer(attr, false) && may_spoil(of_core)))
			spoil((void *)(uintptr_t)attr->data, attr->len);
	}
	return result;
}

static struct {
	void *memory;
	size_t size;
} rings[RINGS];

/* Its header, or an element. */
static void ring_spoil(unsigned int i)
{
	size_t from = one_in(&choice, 2) ? 0 : sizeof(struct rxe_queue_buf);

	spoil((uint8_t *)rings[i].memory + from, from ? rings[i].size - from : sizeof(struct rxe_queue_buf));
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	size_t whole = (size + PAGE - 1) & ~(PAGE - 1);
	void *room, *memory;
	unsigned int i;

	if (fd < 0 || !(flags & MAP_SHARED) || address)
		return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
	room = (void *)syscall(SYS_mmap, NULL, whole + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return room;
	memory = (void *)syscall(SYS_mmap, room, size, protection, flags | MAP_FIXED, fd, offset);
	if (memory == MAP_FAILED) {
		int error = errno;

		syscall(SYS_munmap, room, whole + PAGE);
		errno = error;
		return memory;
	}
	for (i = 0; i < RINGS && rings[i].memory; i++)
		;
	if (i < RINGS) {
		rings[i].memory = memory;
		rings[i].size = whole;
		if (may_spoil(of_rings))
			ring_spoil(i);
	}
	return memory;
}

int munmap(void *memory, size_t size)
{
	unsigned int i;

	for (i = 0; i < RINGS; i++) {
		if (rings[i].memory != memory || !memory)
			continue;
		rings[i].memory = NULL;
		return syscall(SYS_munmap, memory, rings[i].size + PAGE);
	}
	return syscall(SYS_munmap, memory, size);
}

/* --- What a process has ----------------------------------------------------------------------- */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static struct ibv_xrcd *xrcd;
static struct ibv_cq *cqs[OBJECTS];
/* Whether it can be polled by ibv_start_poll(). */
static bool is_extended[OBJECTS];
static struct ibv_srq *srqs[OBJECTS];
static struct ibv_qp *qps[OBJECTS];
/* Whether it has ibv_wr_*. */
static bool has_calls[OBJECTS];
static uint8_t payload[PAYLOAD];
static struct ibv_sge sges[MOST_SGES];

static void sges_choose(void)
{
	unsigned int i;

	for (i = 0; i < MOST_SGES; i++)
		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)payload, .length = below(&choice, 64), .lkey = mr ? mr->lkey : 1,
		};
}

/* --- Steps ------------------------------------------------------------------------------------ */

static void cq_step(unsigned int at)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1 + below(&choice, 300), .wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq_ex *extended;

	if (cqs[at]) {
		if (one_in(&choice, 2))
			ibv_resize_cq(cqs[at], 1 + below(&choice, 300));
		else if (!ibv_destroy_cq(cqs[at]))
			cqs[at] = NULL;
		return;
	}
	is_extended[at] = one_in(&choice, 2);
	if (!is_extended[at]) {
		cqs[at] = ibv_create_cq(context, attr.cqe, NULL, NULL, 0);
		return;
	}
	extended = ibv_create_cq_ex(context, &attr);
	cqs[at] = extended ? ibv_cq_ex_to_cq(extended) : NULL;
}

static void srq_step(unsigned int at)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 1 + below(&choice, 100), .max_sge = 1 + below(&choice, 8) },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_srq_attr size = { .max_wr = 1 + below(&choice, 100) };

	if (srqs[at]) {
		if (one_in(&choice, 2))
			ibv_modify_srq(srqs[at], &size, IBV_SRQ_MAX_WR);
		else if (!ibv_destroy_srq(srqs[at]))
			srqs[at] = NULL;
		return;
	}
	if (xrcd && cqs[0] && one_in(&choice, 2)) {
		attr.srq_type = IBV_SRQT_XRC;
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.xrcd = xrcd;
		attr.cq = cqs[0];
	}
	srqs[at] = ibv_create_srq_ex(context, &attr);
}

static void qp_make_one(unsigned int at)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
	};
	static const uint64_t operations[] = {
		[IBV_QPT_RC] = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE |
			       IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_FLUSH,
		[IBV_QPT_UC] = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
		[IBV_QPT_UD] = IBV_QP_EX_WITH_SEND,
		[IBV_QPT_XRC_SEND] = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
		[IBV_QPT_XRC_RECV] = 0,
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = types[below(&choice, ARRAY_SIZE(types))],
		.send_cq = cqs[below(&choice, OBJECTS)],
		.recv_cq = cqs[below(&choice, OBJECTS)],
		.srq = srqs[below(&choice, OBJECTS)],
		.cap = {
			.max_send_wr = 1 + below(&choice, 100),
			.max_recv_wr = 1 + below(&choice, 100),
			.max_send_sge = 1 + below(&choice, 8),
			.max_recv_sge = 1 + below(&choice, 8),
			.max_inline_data = below(&choice, 400),
		},
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	if (attr.qp_type == IBV_QPT_XRC_RECV) {
		if (!xrcd)
			return;
		attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		attr.xrcd = xrcd;
		attr.send_cq = attr.recv_cq = NULL;
		attr.srq = NULL;
		memset(&attr.cap, 0, sizeof(attr.cap));
	} else if (!attr.send_cq || !attr.recv_cq) {
		return;
	}
	if (attr.qp_type == IBV_QPT_XRC_SEND) {
		attr.recv_cq = NULL;
		attr.srq = NULL;
	}
	has_calls[at] = one_in(&choice, 2);
	if (has_calls[at]) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = operations[attr.qp_type];
	}
	qps[at] = ibv_create_qp_ex(context, &attr);
}

static void qp_step(unsigned int at)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET, .path_mtu = IBV_MTU_1024 }, found;
	struct ibv_qp_init_attr init;

	if (!qps[at]) {
		qp_make_one(at);
		return;
	}
	switch (below(&choice, 6)) {
	case 0:
		if (!ibv_destroy_qp(qps[at]))
			qps[at] = NULL;
		break;
	case 1:
		ibv_modify_qp(qps[at], &attr, IBV_QP_STATE);
		break;
	case 2:
		attr.qp_state = IBV_QPS_ERR;
		ibv_modify_qp(qps[at], &attr, IBV_QP_STATE);
		break;
	case 3:
		ibv_query_qp(qps[at], &found, IBV_QP_STATE | IBV_QP_CAP, &init);
		break;
	default:
		qp_init(qps[at], IBV_ACCESS_REMOTE_WRITE, 1);
	}
}

static void post_by_list(struct ibv_qp *qp)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_LOCAL_INV, IBV_WR_BIND_MW,
	};
	struct ibv_send_wr list[REQUESTS], *bad;
	uint32_t number = 1 + below(&choice, REQUESTS), i;

	memset(list, 0, sizeof(list));
	for (i = 0; i < number; i++) {
		struct ibv_send_wr *wr = &list[i];

		wr->opcode = opcodes[below(&choice, ARRAY_SIZE(opcodes))];
		wr->sg_list = sges;
		wr->num_sge = below(&choice, 10);
		wr->send_flags = below(&choice, 16);
		wr->next = i + 1 < number ? wr + 1 : NULL;
		if (qp->qp_type == IBV_QPT_UD) {
			wr->opcode = IBV_WR_SEND;
			wr->wr.ud.ah = ah;
		} else if (wr->opcode == IBV_WR_BIND_MW) {
			wr->bind_mw.mw = mw;
		}
	}
	ibv_post_send(qp, list, &bad);
}

static void post_by_calls(struct ibv_qp *qp)
{
	struct ibv_qp_ex *calls = ibv_qp_to_qp_ex(qp);
	uint32_t number = 1 + below(&choice, REQUESTS);

	if (!calls)
		return;
	ibv_wr_start(calls);
	for (; number; number--) {
		calls->wr_flags = below(&choice, 4);
		if (qp->qp_type == IBV_QPT_RC && one_in(&choice, 4)) {
			ibv_wr_atomic_write(calls, 1, 8, payload);
			continue;
		}
		ibv_wr_send(calls);
		if (qp->qp_type == IBV_QPT_UD)
			ibv_wr_set_ud_addr(calls, ah, 1, 1);
		if (qp->qp_type == IBV_QPT_XRC_SEND)
			ibv_wr_set_xrc_srqn(calls, 1);
		if (one_in(&choice, 2))
			ibv_wr_set_inline_data(calls, payload, below(&choice, 500));
		else
			ibv_wr_set_sge_list(calls, below(&choice, 10), sges);
	}
	if (one_in(&choice, 8))
		ibv_wr_abort(calls);
	else
		ibv_wr_complete(calls);
}

static void post_step(unsigned int at)
{
	struct ibv_recv_wr list[REQUESTS], *bad;
	uint32_t number = 1 + below(&choice, REQUESTS), i;

	sges_choose();
	if (qps[at] && one_in(&choice, 2)) {
		if (has_calls[at] && one_in(&choice, 2))
			post_by_calls(qps[at]);
		else
			post_by_list(qps[at]);
		return;
	}
	memset(list, 0, sizeof(list));
	for (i = 0; i < number; i++) {
		list[i].sg_list = sges;
		list[i].num_sge = below(&choice, 10);
		list[i].next = i + 1 < number ? &list[i + 1] : NULL;
	}
	if (srqs[at] && one_in(&choice, 2))
		ibv_post_srq_recv(srqs[at], list, &bad);
	else if (qps[at])
		ibv_post_recv(qps[at], list, &bad);
}

static void poll_step(unsigned int at)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_cq_ex *extended;
	struct ibv_wc wcs[REQUESTS];
	uint64_t sum = 0;
	int left = 2 * REQUESTS;

	if (!cqs[at])
		return;
	if (!is_extended[at] || one_in(&choice, 2)) {
		ibv_poll_cq(cqs[at], REQUESTS, wcs);
		return;
	}
	extended = (struct ibv_cq_ex *)cqs[at];
	if (ibv_start_poll(extended, &attr))
		return;
	do {
		sum += ibv_wc_read_opcode(extended) + ibv_wc_read_wc_flags(extended) + ibv_wc_read_byte_len(extended) +
		       ibv_wc_read_imm_data(extended) + ibv_wc_read_qp_num(extended) + ibv_wc_read_src_qp(extended) +
		       ibv_wc_read_vendor_err(extended) + ibv_wc_read_slid(extended) + ibv_wc_read_sl(extended);
	} while (--left && !ibv_next_poll(extended));
	ibv_end_poll(extended);
	payload[0] = sum;
}

static void region_step(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_ah_attr to = { .is_global = 1, .port_num = PORT, .grh = { .hop_limit = 1 } };

	if (ah && !ibv_destroy_ah(ah))
		ah = NULL;
	if (!ah && !ibv_query_gid(context, PORT, 0, &gid)) {
		to.grh.dgid = gid;
		ah = ibv_create_ah(pd, &to);
	}
	if (mw && !ibv_dealloc_mw(mw))
		mw = NULL;
	mw = mw ? mw : ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (mr && !ibv_dereg_mr(mr))
		mr = NULL;
	mr = mr ? mr : ibv_reg_mr(pd, payload, PAYLOAD, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	ibv_query_device_ex(context, NULL, &attr);
	ibv_query_port(context, PORT, &port);
}

static bool context_open(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_device **devices_found = ibv_get_device_list(NULL);
	unsigned int i;

	for (i = 0; devices_found && devices_found[i]; i++)
		if (!strcmp(ibv_get_device_name(devices_found[i]), device_name))
			context = ibv_open_device(devices_found[i]);
	if (!context)
		return false;
	pd = ibv_alloc_pd(context);
	if (pd)
		xrcd = ibv_open_xrcd(context, &attr);
	return pd;
}

static void process_run(uint64_t number)
{
	uint32_t steps, i;

	choice_seed(&choice, seed, number);
	alarm(patience_ms(STEP_SECONDS * 1000) / 1000);
	if (!context_open())
		_exit(0);
	for (steps = STEPS; steps; steps--) {
		unsigned int at = below(&choice, OBJECTS);

		count(&shared->calls);
		for (i = 0; i < RINGS; i++)
			if (rings[i].memory && may_spoil(of_rings))
				ring_spoil(i);
		switch (below(&choice, 10)) {
		case 0:
			cq_step(at);
			break;
		case 1:
			srq_step(at);
			break;
		case 2 ... 3:
			qp_step(at);
			break;
		case 4 ... 6:
			post_step(at);
			break;
		case 7 ... 8:
			poll_step(at);
			break;
		default:
			region_step();
		}
	}
	count(&shared->done);
	_exit(0);
}

/* --- Rows ------------------------------------------------------------------------------------- */

/* Who ends by a signal has touched what it must not, or does not end. */
static bool run(int what)
{
	uint64_t end = now_ms() + fuzzer.seconds * 1000 / 4;
	uint64_t number = 1000000ULL * what;
	int status = 0;

	memset(shared, 0, sizeof(*shared));
	of_driver = what & 1 ? 6 : 0;
	of_core = what & 2 ? 12 : 0;
	of_rings = what & 4 ? 12 : 0;
	while (!status && fuzzer_goes_on(end, shared->processes >= FEWEST_PROCESSES && shared->spoilt >= FEWEST_SPOILT)) {
		pid_t pid = fuzzer_fork();

		if (!pid)
			process_run(number);
		if (waitpid(pid, &status, 0) != pid)
			die("waitpid: %s", strerror(errno));
		count(&shared->processes);
		number++;
	}
	ksft_print_msg("%u processes, %u steps, %u answers and rings spoilt; %u processes came to their end\n",
		       shared->processes, shared->calls, shared->spoilt, shared->done);
	if (status)
		ksft_print_msg("process %llu ends with wait status %#x\n", (unsigned long long)number - 1, status);
	return !status && shared->done && shared->processes >= FEWEST_PROCESSES && shared->spoilt >= FEWEST_SPOILT;
}

static const struct row rows[] = {
	{ "spoilt answers of the driver", .run_with = run, 1 },
	{ "spoilt answers of the core", .run_with = run, 2 },
	{ "spoilt rings", .run_with = run, 4 },
	{ "all together", .run_with = run, 7 },
};

static void begin(char **operands)
{
	device_name = operands[0];
	fuzzer_begin();
	shared = fuzzer_shared(sizeof(*shared));
}

const struct test test = { ROWS(rows), .operands = "DEVICE", .begin = begin };
