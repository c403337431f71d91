// SPDX-License-Identifier: GPL-2.0
/*
 * Each asynchronous event and completion status that no other test produces, once, and of
 * the right object; and the states of a queue pair that go with them: SQD and SQE, and what
 * ibv_query_qp() says of each attribute.
 *
 * Some packets come from the second device's netdev that it would not send.
 *
 * events -w DEVICE
 *	holds a queue pair, prints "ready", then a line for each event, until the device ends
 */

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/rdma_user_rxe.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "command.h"
#include "growth.h"
#include "namespace.h"
#include "test.h"
#include "wire.h"

#define SIZE (4 << 20)
#define LENGTH 64
#define DEPTH 16
#define WAIT_MS 20000
/* The most max_rd_atomic that a queue pair takes. */
#define MOST_READS 128
#define QUIET_MS 300
#define QKEY 0x11223344
#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)
/* The first PSN of a queue pair, and that of its peer. */
#define OUR_PSN 0xfffffe
#define THEIR_PSN 0x1000

struct end {
	struct device device;
	struct region region;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_qp *qp;
};

static struct end ends[2];
static struct end *const a = &ends[0], *const b = &ends[1];
static struct wire wire;

/* --- Events ------------------------------------------------------------------------------ */

struct expected {
	enum ibv_event_type type;
	const void *element;
};

/*
 * The events that come until it is quiet are those, each once, in any order. A port's number
 * stands for an element.
 */
static bool events_are(struct end *end, const struct expected *wanted, unsigned int count)
{
	struct ibv_context *context = end->device.context;
	struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
	bool seen[8] = {}, ok = true;
	struct ibv_async_event event;
	unsigned int found = 0, i;

	while (poll(&ready, 1, found < count ? patience_ms(WAIT_MS) : quiet_ms(QUIET_MS)) > 0) {
		if (ibv_get_async_event(context, &event))
			die("ibv_get_async_event: %s", strerror(errno));
		for (i = 0; i < count; i++) {
			if (!seen[i] && event.event_type == wanted[i].type &&
			    (const void *)event.element.qp == wanted[i].element)
				break;
		}
		if (i < count) {
			seen[i] = true;
			found++;
		} else {
			printf("# %s has an event that should not be: %s\n", end->device.name,
			       ibv_event_type_str(event.event_type));
			ok = false;
		}
		ibv_ack_async_event(&event);
	}
	for (i = 0; i < count; i++) {
		if (!seen[i]) {
			printf("# %s has no event %s\n", end->device.name,
			       ibv_event_type_str(wanted[i].type));
			ok = false;
		}
	}
	return ok;
}

static bool event_is(struct end *end, enum ibv_event_type type, const void *element)
{
	return events_are(end, &(struct expected){ type, element }, 1);
}

static bool no_event(struct end *end)
{
	return events_are(end, NULL, 0);
}

/* --- Queue pairs ------------------------------------------------------------------------- */

static struct ibv_qp_attr query(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int error;

	/* Whatever is not written shows. */
	memset(&attr, 0x5a, sizeof(attr));
	error = ibv_query_qp(qp, &attr, 2 * IBV_QP_DEST_QPN - 1, &init);
	if (error)
		die("ibv_query_qp: %s", strerror(error));
	return attr;
}

static const struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 2 };

static struct ibv_qp *make(struct end *end, enum ibv_qp_type type)
{
	return qp_make(&end->device, type, end->send_cq, end->recv_cq, depth, NULL);
}

/* What a connected queue pair of the tests is like, if not otherwise. */
static struct ibv_qp_attr usual(const struct end *from, const struct end *to, uint32_t to_qpn)
{
	return (struct ibv_qp_attr){
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to_qpn,
		.rq_psn = from == a ? THEIR_PSN : OUR_PSN,
		.sq_psn = from == a ? OUR_PSN : THEIR_PSN,
		.qp_access_flags = ACCESS,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.port_num = PORT,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = to->device.gid,
				.sgid_index = from->device.gid_index,
				.hop_limit = 64,
			},
		},
	};
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RTR_RC_MASK (RTR_MASK | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK (IBV_QP_STATE | IBV_QP_SQ_PSN)
#define RTS_RC_MASK                                                                                \
	(RTS_MASK | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

/* From RESET to a state not behind RTS. */
static void connect_to(struct ibv_qp *qp, struct ibv_qp_attr attr, enum ibv_qp_state state)
{
	bool rc = qp->qp_type == IBV_QPT_RC;

	attr.qp_state = IBV_QPS_INIT;
	qp_change(qp, attr, INIT_MASK, "RESET to INIT");
	if (state == IBV_QPS_INIT)
		return;
	attr.qp_state = IBV_QPS_RTR;
	qp_change(qp, attr, rc ? RTR_RC_MASK : RTR_MASK, "INIT to RTR");
	if (state == IBV_QPS_RTR)
		return;
	attr.qp_state = IBV_QPS_RTS;
	qp_change(qp, attr, rc ? RTS_RC_MASK : RTS_MASK, "RTR to RTS");
}

static void to_rts(struct end *from, struct end *to)
{
	struct ibv_qp_attr attr = usual(from, to, to->qp->qp_num);

	attr.qp_state = IBV_QPS_RTS;
	qp_change(from->qp, attr, from->qp->qp_type == IBV_QPT_RC ? RTS_RC_MASK : RTS_MASK,
		  "RTR to RTS");
}

/* Two connected queue pairs; the second one as far as that state. */
static void pair_start(enum ibv_qp_type type, enum ibv_qp_state state)
{
	int i;

	for (i = 0; i < 2; i++)
		ends[i].qp = make(&ends[i], type);
	connect_to(b->qp, usual(b, a, a->qp->qp_num), state);
	connect_to(a->qp, usual(a, b, b->qp->qp_num), IBV_QPS_RTS);
}

/* A queue pair whose peer takes no packets: the answers are ours to make. */
static void lone_start(struct ibv_qp_attr attr)
{
	b->qp = make(b, IBV_QPT_RC);
	a->qp = make(a, IBV_QPT_RC);
	attr.dest_qp_num = b->qp->qp_num;
	connect_to(a->qp, attr, IBV_QPS_RTS);
	wire_drain(&wire);
}

/* Waits for answers for ever. */
static struct ibv_qp_attr patient(void)
{
	struct ibv_qp_attr attr = usual(a, b, 0);

	attr.timeout = 0;
	return attr;
}

static void datagrams_start(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		ends[i].qp = make(&ends[i], IBV_QPT_UD);
		if (qp_init(ends[i].qp, 0, QKEY))
			die("RESET to INIT");
		qp_ready_ud(ends[i].qp);
	}
}

/* Nothing more has happened, and both queue pairs go. */
static bool finish(void)
{
	struct ibv_wc wc;
	bool ok = true;
	int i;

	for (i = 0; i < 2; i++) {
		ok &= no_event(&ends[i]);
		qp_free(ends[i].qp);
		ends[i].qp = NULL;
		while (ibv_poll_cq(ends[i].send_cq, 1, &wc) > 0 ||
		       ibv_poll_cq(ends[i].recv_cq, 1, &wc) > 0) {
			printf("# %s has one completion too many: wr_id %llu, %s\n",
			       ends[i].device.name, (unsigned long long)wc.wr_id,
			       ibv_wc_status_str(wc.status));
			ok = false;
		}
	}
	return ok;
}

static bool state_is(struct end *end, enum ibv_qp_state state)
{
	enum ibv_qp_state now = qp_state(end->qp);

	if (now != state)
		printf("# the queue pair of %s is in state %d, not %d\n", end->device.name, now, state);
	return now == state;
}

static bool becomes(struct end *end, enum ibv_qp_state state)
{
	uint64_t until = now_ms() + patience_ms(WAIT_MS);

	while (qp_state(end->qp) != state && now_ms() < until)
		;
	return state_is(end, state);
}

/* --- Requests ---------------------------------------------------------------------------- */

static struct ibv_sge piece(const struct end *end, uint32_t length)
{
	return region_sge(&end->region, 0, length);
}

/* To or from the beginning of the peer's region; a datagram by way of ah. */
static int try_post(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge,
		    struct ibv_ah *ah, uint32_t rkey)
{
	struct end *peer = end == a ? b : a;
	struct ibv_send_wr *bad, wr = {
		.wr_id = id,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
	};

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = peer->qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->region.memory;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->region.memory;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

static void post_sge(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge,
		     struct ibv_ah *ah)
{
	struct end *peer = end == a ? b : a;
	int error = try_post(end, opcode, id, sge, ah, peer->region.mr->rkey);

	if (error)
		die("ibv_post_send: %s", strerror(error));
}

static void post(struct end *end, enum ibv_wr_opcode opcode, uint64_t id)
{
	post_sge(end, opcode, id, piece(end, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH), NULL);
}

static void post_receive(struct end *end, uint64_t id)
{
	struct ibv_sge sge = piece(end, LENGTH + 40);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	recv_post(end->qp, &wr);
}

static bool completed(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	return cq_expect(cq, "a request", id, status, WAIT_MS);
}

static bool sent(struct end *end, uint64_t id, enum ibv_wc_status status)
{
	return completed(end->send_cq, id, status);
}

static bool received(struct end *end, uint64_t id, enum ibv_wc_status status)
{
	return completed(end->recv_cq, id, status);
}

/* --- The wire ---------------------------------------------------------------------------- */

/* An answer to the packet with that number, counted from the first. */
static void answer(uint8_t opcode, uint32_t number, uint8_t syndrome, uint32_t payload)
{
	struct wire_packet packet = {
		.opcode = opcode,
		.qpn = a->qp->qp_num,
		.psn = OUR_PSN + number,
		.syndrome = syndrome,
		.payload = payload,
	};

	wire_send(&wire, &packet, 1);
}

static void acknowledge(uint32_t number)
{
	answer(RC_ACKNOWLEDGE, number, WIRE_ACK, 0);
}

/* The next packet to the peer is that one. */
static bool on_wire(uint8_t opcode, uint32_t number, struct wire_packet *seen)
{
	struct wire_packet packet;

	if (!wire_receive(&wire, b->qp->qp_num, &packet, WAIT_MS)) {
		printf("# packet %u does not come\n", number);
		return false;
	}
	if (seen)
		*seen = packet;
	if (packet.opcode == opcode && packet.psn == ((OUR_PSN + number) & 0xffffff))
		return true;
	printf("# opcode %#x, psn %#x instead of opcode %#x, psn %#x\n", packet.opcode, packet.psn,
	       opcode, (OUR_PSN + number) & 0xffffff);
	return false;
}

static bool wire_quiet(void)
{
	struct wire_packet packet;

	if (!wire_receive(&wire, b->qp->qp_num, &packet, QUIET_MS))
		return true;
	printf("# a packet that should not be: opcode %#x, psn %#x\n", packet.opcode, packet.psn);
	return false;
}

/* --- Attributes -------------------------------------------------------------------------- */

static bool same(const char *name, unsigned long long is, unsigned long long wanted)
{
	if (is != wanted)
		printf("# %s is %llu, not %llu\n", name, is, wanted);
	return is == wanted;
}

#define CHECK(field) ok &= same(#field, is.field, wanted.field)

/*
 * Every attribute there is, APM's apart, and en_sqd_async_notify, which the core does not
 * hand through.
 */
static bool attributes_are(struct ibv_qp *qp, struct ibv_qp_attr wanted)
{
	struct ibv_qp_attr is = query(qp);
	bool ok = true;

	CHECK(qp_state);
	ok &= same("cur_qp_state", is.cur_qp_state, wanted.qp_state);
	CHECK(path_mtu);
	CHECK(path_mig_state);
	CHECK(qkey);
	CHECK(rq_psn);
	CHECK(sq_psn);
	CHECK(dest_qp_num);
	CHECK(qp_access_flags);
	CHECK(cap.max_send_wr);
	CHECK(cap.max_recv_wr);
	CHECK(cap.max_send_sge);
	CHECK(cap.max_recv_sge);
	CHECK(cap.max_inline_data);
	CHECK(ah_attr.is_global);
	CHECK(ah_attr.port_num);
	CHECK(ah_attr.sl);
	CHECK(ah_attr.static_rate);
	CHECK(ah_attr.grh.sgid_index);
	CHECK(ah_attr.grh.hop_limit);
	CHECK(ah_attr.grh.traffic_class);
	CHECK(ah_attr.grh.flow_label);
	CHECK(pkey_index);
	CHECK(sq_draining);
	CHECK(max_rd_atomic);
	CHECK(max_dest_rd_atomic);
	CHECK(min_rnr_timer);
	CHECK(port_num);
	CHECK(timeout);
	CHECK(retry_cnt);
	CHECK(rnr_retry);
	if (memcmp(&is.ah_attr.grh.dgid, &wanted.ah_attr.grh.dgid, 16)) {
		printf("# ah_attr.grh.dgid is another one\n");
		ok = false;
	}
	return ok;
}

static struct ibv_qp *make_with_cap(enum ibv_qp_type type, struct ibv_qp_attr *wanted)
{
	struct ibv_qp_init_attr init = {
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.qp_type = type,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 5, .max_recv_wr = 9, .max_send_sge = 3, .max_recv_sge = 2,
			 .max_inline_data = 100 },
	};
	struct ibv_qp *qp = ibv_create_qp(a->device.pd, &init);

	if (!qp)
		die("ibv_create_qp: %s", strerror(errno));
	memset(wanted, 0, sizeof(*wanted));
	wanted->cap = init.cap;
	/* The least there is, or all that the port can do. */
	wanted->path_mtu = type == IBV_QPT_UD ? a->device.active_mtu : IBV_MTU_256;
	return qp;
}

static bool init_attributes_are(struct ibv_qp *qp, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	bool ok = true;

	memset(&init, 0x5a, sizeof(init));
	if (ibv_query_qp(qp, &attr, IBV_QP_CAP, &init))
		die("ibv_query_qp");
	ok &= same("qp_type", init.qp_type, type);
	ok &= same("sq_sig_all", init.sq_sig_all, 1);
	ok &= same("send_cq", (uintptr_t)init.send_cq, (uintptr_t)a->send_cq);
	ok &= same("recv_cq", (uintptr_t)init.recv_cq, (uintptr_t)a->recv_cq);
	ok &= same("srq", (uintptr_t)init.srq, 0);
	return ok && !memcmp(&init.cap, &attr.cap, sizeof(init.cap));
}

static bool attributes_step(struct ibv_qp *qp, struct ibv_qp_attr *wanted, int mask, const char *what)
{
	qp_change(qp, *wanted, mask, what);
	if (attributes_are(qp, *wanted))
		return true;
	printf("# after %s\n", what);
	return false;
}

static bool run_attributes_rc(void)
{
	struct ibv_qp_attr wanted, fresh;
	struct ibv_qp *qp = make_with_cap(IBV_QPT_RC, &wanted);
	bool ok;

	fresh = wanted;
	ok = attributes_are(qp, wanted) && init_attributes_are(qp, IBV_QPT_RC);
	wanted.qp_state = IBV_QPS_INIT;
	wanted.port_num = PORT;
	wanted.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	ok = ok && attributes_step(qp, &wanted, INIT_MASK, "RESET to INIT");
	wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, "INIT to INIT");
	wanted.qp_state = IBV_QPS_RTR;
	wanted.path_mtu = IBV_MTU_512;
	wanted.dest_qp_num = 0x123456;
	wanted.rq_psn = 0x654321;
	wanted.max_dest_rd_atomic = 13;
	wanted.min_rnr_timer = 31;
	wanted.ah_attr = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT,
		.sl = 3,
		.static_rate = IBV_RATE_10_GBPS,
		.grh = {
			.dgid = b->device.gid,
			.sgid_index = a->device.gid_index,
			/* Of the route: the core looks it up. */
			.hop_limit = 64,
			.traffic_class = 0x48,
			.flow_label = 0x12345,
		},
	};
	ok = ok && attributes_step(qp, &wanted, RTR_RC_MASK, "INIT to RTR");
	wanted.qp_state = IBV_QPS_RTS;
	wanted.timeout = 31;
	wanted.retry_cnt = 6;
	wanted.rnr_retry = 5;
	wanted.sq_psn = 0xfedcba;
	wanted.max_rd_atomic = 9;
	ok = ok && attributes_step(qp, &wanted, RTS_RC_MASK, "RTR to RTS");
	wanted.min_rnr_timer = 1;
	wanted.qp_access_flags = ACCESS;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS,
				   "a change in RTS");
	wanted.qp_state = IBV_QPS_SQD;
	wanted.en_sqd_async_notify = 1;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, "RTS to SQD");
	ok = ok && event_is(a, IBV_EVENT_SQ_DRAINED, qp);
	wanted.timeout = 20;
	wanted.retry_cnt = 1;
	wanted.rnr_retry = 2;
	/* As rdma_rxe has it, whatever max_qp_init_rd_atom says: perftest takes what its peer says. */
	wanted.max_rd_atomic = MOST_READS;
	wanted.max_dest_rd_atomic = a->device.attr.max_qp_rd_atom;
	wanted.min_rnr_timer = 0;
	wanted.qp_access_flags = 0;
	wanted.ah_attr.grh.traffic_class = 0x20;
	wanted.ah_attr.sl = 0;
	ok = ok && attributes_step(qp, &wanted,
				   IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
				   IBV_QP_PORT, "a change in SQD");
	wanted.qp_state = IBV_QPS_RTS;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE, "SQD to RTS");
	wanted.qp_state = IBV_QPS_SQD;
	wanted.en_sqd_async_notify = 0;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE, "RTS to SQD without a word");
	wanted.qp_state = IBV_QPS_ERR;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE, "SQD to ERR");
	qp_change(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE, "ERR to RESET");
	ok = ok && attributes_are(qp, fresh) && no_event(a);
	qp_free(qp);
	return ok;
}

static bool run_attributes_ud(void)
{
	struct ibv_qp_attr wanted, fresh;
	struct ibv_qp *qp = make_with_cap(IBV_QPT_UD, &wanted);
	bool ok;

	fresh = wanted;
	ok = attributes_are(qp, wanted) && init_attributes_are(qp, IBV_QPT_UD);
	wanted.qp_state = IBV_QPS_INIT;
	wanted.port_num = PORT;
	wanted.qkey = QKEY;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   IBV_QP_QKEY, "RESET to INIT");
	wanted.qp_state = IBV_QPS_RTR;
	wanted.qkey = QKEY + 1;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_STATE | IBV_QP_QKEY, "INIT to RTR");
	wanted.qp_state = IBV_QPS_RTS;
	wanted.sq_psn = 0x777777;
	ok = ok && attributes_step(qp, &wanted, RTS_MASK, "RTR to RTS");
	wanted.qkey = QKEY + 2;
	ok = ok && attributes_step(qp, &wanted, IBV_QP_QKEY, "a change in RTS");
	qp_change(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE, "RTS to RESET");
	ok = ok && attributes_are(qp, fresh) && no_event(a);
	qp_free(qp);
	return ok;
}

static bool refused(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask, const char *what)
{
	int error = ibv_modify_qp(qp, &attr, mask);

	if (error == EINVAL)
		return true;
	printf("# %s: %s\n", what, error ? strerror(error) : "is taken");
	return false;
}

static bool run_out_of_range(void)
{
	struct ibv_qp_attr attr, before;
	bool ok = true;

	pair_start(IBV_QPT_RC, IBV_QPS_INIT);
	/* On the way to RTR, at the peer. */
	attr = usual(b, a, a->qp->qp_num);
	attr.qp_state = IBV_QPS_RTR;
	attr.max_dest_rd_atomic = b->device.attr.max_qp_rd_atom + 1;
	ok &= refused(b->qp, attr, RTR_RC_MASK, "max_dest_rd_atomic");
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 32;
	ok &= refused(b->qp, attr, RTR_RC_MASK, "min_rnr_timer");
	attr.min_rnr_timer = 1;
	attr.path_mtu = 0;
	ok &= refused(b->qp, attr, RTR_RC_MASK, "no path_mtu");
	attr.path_mtu = 6;
	ok &= refused(b->qp, attr, RTR_RC_MASK, "path_mtu");
	attr.path_mtu = IBV_MTU_256;
	ok &= refused(b->qp, attr, RTR_RC_MASK & ~IBV_QP_RQ_PSN, "no rq_psn");
	ok &= refused(b->qp, attr, RTR_RC_MASK | IBV_QP_SQ_PSN, "sq_psn");
	ok &= state_is(b, IBV_QPS_INIT);
	attr.ah_attr.port_num = PORT + 1;
	ok &= refused(b->qp, attr, RTR_RC_MASK, "ah_attr.port_num");
	attr.ah_attr.port_num = PORT;
	/* 239.1.1.1 */
	attr.ah_attr.grh.dgid = (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, 1, 1, 1 } };
	ok &= refused(b->qp, attr, RTR_RC_MASK, "a group");

	/* In SQD. */
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD }, IBV_QP_STATE, "RTS to SQD");
	before = query(a->qp);
	attr = before;
	attr.max_rd_atomic = MOST_READS + 1;
	ok &= refused(a->qp, attr, IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic");
	attr = before;
	attr.timeout = 32;
	ok &= refused(a->qp, attr, IBV_QP_TIMEOUT, "timeout");
	attr.retry_cnt = 8;
	ok &= refused(a->qp, attr, IBV_QP_RETRY_CNT, "retry_cnt");
	attr.rnr_retry = 8;
	ok &= refused(a->qp, attr, IBV_QP_RNR_RETRY, "rnr_retry");
	attr.port_num = PORT + 1;
	ok &= refused(a->qp, attr, IBV_QP_PORT, "port_num");
	attr.pkey_index = 1;
	ok &= refused(a->qp, attr, IBV_QP_PKEY_INDEX, "pkey_index");
	ok &= refused(a->qp, attr, IBV_QP_PATH_MTU, "path_mtu in SQD");
	ok &= refused(a->qp, attr, IBV_QP_CAP, "cap");
	ok &= refused(a->qp, attr, IBV_QP_DEST_QPN, "dest_qp_num in SQD");
	ok &= attributes_are(a->qp, before);
	return finish() && ok;
}

static int netdev_mtu(const char *namespace, const char *netdev)
{
	int home = namespace_enter(namespace), file = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq request = {};

	strncpy(request.ifr_name, netdev, IFNAMSIZ - 1);
	if (file < 0 || ioctl(file, SIOCGIFMTU, &request))
		die("%s: no MTU: %s", netdev, strerror(errno));
	close(file);
	namespace_leave(home);
	return request.ifr_mtu;
}

/* The port's MTU follows the netdev's at once: with 1500 bytes, 2048 are too many, and 1024 are not. */
static bool run_path_mtu(void)
{
	int mtu = netdev_mtu("n2", netdev_of(2));
	struct ibv_qp_attr attr;
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_INIT);
	attr = usual(b, a, a->qp->qp_num);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_2048;
	ok = command("ip -n n2 link set %s mtu 1500", netdev_of(2)) &&
	     refused(b->qp, attr, RTR_RC_MASK, "a path_mtu above the port's") && state_is(b, IBV_QPS_INIT);
	attr.path_mtu = IBV_MTU_1024;
	ok = ok && same("ibv_modify_qp", ibv_modify_qp(b->qp, &attr, RTR_RC_MASK), 0) && state_is(b, IBV_QPS_RTR);
	ok = command("ip -n n2 link set %s mtu %d", netdev_of(2), mtu) && ok;
	return finish() && ok;
}

static bool run_current_state(void)
{
	const int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	bool ok = true;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	attr.cur_qp_state = IBV_QPS_SQD;
	ok &= refused(a->qp, attr, mask, "SQD for RTS");
	attr.cur_qp_state = IBV_QPS_RTR;
	ok &= refused(a->qp, attr, mask, "RTR for RTS");
	attr.cur_qp_state = IBV_QPS_RTS;
	qp_change(a->qp, attr, mask, "RTS to RTS");
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD }, IBV_QP_STATE, "RTS to SQD");
	ok &= refused(a->qp, attr, mask, "RTS for SQD");
	attr.cur_qp_state = IBV_QPS_SQD;
	qp_change(a->qp, attr, mask, "SQD to RTS");
	ok &= state_is(a, IBV_QPS_RTS);
	return finish() && ok;
}

/* --- SQD --------------------------------------------------------------------------------- */

static void drain(bool tell)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = tell };

	qp_change(a->qp, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, "RTS to SQD");
}

static void go_on(void)
{
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS }, IBV_QP_STATE, "SQD to RTS");
}

static bool run_drain(void)
{
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS }, attr = patient();
	bool ok;

	lone_start(attr);
	post(a, IBV_WR_SEND, 1);
	post(a, IBV_WR_SEND, 2);
	ok = on_wire(RC_SEND_ONLY, 0, NULL) && on_wire(RC_SEND_ONLY, 1, NULL);
	drain(true);
	ok = ok && same("sq_draining", query(a->qp).sq_draining, 1) && no_event(a);
	/* It is taken, and held. */
	post(a, IBV_WR_SEND, 3);
	ok = ok && wire_quiet();
	/* What is under way is not to be changed. */
	ok = ok && refused(a->qp, rts, IBV_QP_STATE, "SQD to RTS while it drains") &&
	     refused(a->qp, attr, IBV_QP_TIMEOUT, "a timeout while it drains") &&
	     state_is(a, IBV_QPS_SQD);
	acknowledge(0);
	ok = ok && sent(a, 1, IBV_WC_SUCCESS) && no_event(a) &&
	     same("sq_draining", query(a->qp).sq_draining, 1);
	acknowledge(1);
	ok = ok && sent(a, 2, IBV_WC_SUCCESS) && event_is(a, IBV_EVENT_SQ_DRAINED, a->qp) &&
	     same("sq_draining", query(a->qp).sq_draining, 0) && state_is(a, IBV_QPS_SQD);
	post(a, IBV_WR_SEND, 4);
	ok = ok && wire_quiet();
	/* An answer to what was not sent is none. */
	acknowledge(2);
	ok = ok && cq_quiet(a->send_cq, QUIET_MS);
	go_on();
	ok = ok && on_wire(RC_SEND_ONLY, 2, NULL) && on_wire(RC_SEND_ONLY, 3, NULL);
	acknowledge(3);
	ok = ok && sent(a, 3, IBV_WC_SUCCESS) && sent(a, 4, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* What is under way goes on, retransmission included. */
static bool run_drain_repeats(void)
{
	struct ibv_qp_attr attr = usual(a, b, 0);
	bool ok;

	attr.timeout = 17;
	lone_start(attr);
	post(a, IBV_WR_SEND, 1);
	ok = on_wire(RC_SEND_ONLY, 0, NULL);
	drain(true);
	post(a, IBV_WR_SEND, 2);
	ok = ok && on_wire(RC_SEND_ONLY, 0, NULL);
	acknowledge(0);
	ok = ok && sent(a, 1, IBV_WC_SUCCESS) && event_is(a, IBV_EVENT_SQ_DRAINED, a->qp);
	wire_drain(&wire);
	ok = ok && wire_quiet();
	return finish() && ok;
}

static bool run_drained_already(void)
{
	bool ok;
	int i;

	lone_start(patient());
	for (ok = true, i = 0; ok && i < 2; i++) {
		drain(true);
		ok = event_is(a, IBV_EVENT_SQ_DRAINED, a->qp);
		go_on();
	}
	/* Nobody has asked. */
	drain(false);
	ok = ok && no_event(a);
	go_on();
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD }, IBV_QP_STATE, "RTS to SQD");
	ok = ok && no_event(a);
	return finish() && ok;
}

static bool run_drain_datagrams(void)
{
	struct ibv_ah *ah;
	bool ok;

	datagrams_start();
	ah = ah_make(&a->device, &b->device);
	post_receive(b, 11);
	drain(true);
	ok = event_is(a, IBV_EVENT_SQ_DRAINED, a->qp);
	post_sge(a, IBV_WR_SEND, 1, piece(a, LENGTH), ah);
	ok = ok && cq_quiet(b->recv_cq, QUIET_MS);
	go_on();
	ok = ok && sent(a, 1, IBV_WC_SUCCESS) && received(b, 11, IBV_WC_SUCCESS);
	ah_free(ah);
	return finish() && ok;
}

static bool run_drain_fails(void)
{
	bool ok;

	lone_start(patient());
	post(a, IBV_WR_SEND, 1);
	ok = on_wire(RC_SEND_ONLY, 0, NULL);
	drain(true);
	post(a, IBV_WR_SEND, 2);
	answer(RC_ACKNOWLEDGE, 0, WIRE_NAK_REMOTE_OPERATIONAL, 0);
	ok = ok && sent(a, 1, IBV_WC_REM_OP_ERR) && state_is(a, IBV_QPS_ERR) &&
	     sent(a, 2, IBV_WC_WR_FLUSH_ERR);
	/* It has not drained. */
	return finish() && ok;
}

static bool run_held_are_flushed(void)
{
	bool ok;

	lone_start(patient());
	drain(true);
	ok = event_is(a, IBV_EVENT_SQ_DRAINED, a->qp);
	post(a, IBV_WR_SEND, 1);
	post(a, IBV_WR_SEND, 2);
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "SQD to ERR");
	ok = ok && sent(a, 1, IBV_WC_WR_FLUSH_ERR) && sent(a, 2, IBV_WC_WR_FLUSH_ERR) && wire_quiet();
	return finish() && ok;
}

/* A request of one packet to the queue pair, as many packets behind the peer's first one. */
static struct wire_packet request_of(uint8_t opcode, uint32_t number)
{
	return (struct wire_packet){
		.opcode = opcode,
		.qpn = a->qp->qp_num,
		.psn = THEIR_PSN + number,
		.va = (uintptr_t)a->region.memory,
		.rkey = a->region.mr->rkey,
		.length = LENGTH,
		.payload = opcode == RC_SEND_ONLY ? LENGTH : 0,
	};
}

/* Sends a request to the queue pair and returns the syndrome of the answer; 0 if there is none. */
static uint8_t asked(uint8_t opcode, uint32_t number)
{
	struct wire_packet answer, packet = request_of(opcode, number);

	wire_drain(&wire);
	wire_send(&wire, &packet, 1);
	if (wire_receive(&wire, b->qp->qp_num, &answer, WAIT_MS))
		return answer.syndrome;
	printf("# a request of opcode %#x is not answered\n", opcode);
	return 0;
}

/* The UDP source port as all devices choose it: by the flow label, or if there is none, by the numbers of both QPs. */
static uint16_t port_of_label(uint32_t label)
{
	return 0xc000 | ((label & 0x3fff) ^ (label & 0xfc000) >> 14);
}

static uint32_t label_of(uint32_t own, uint32_t peer)
{
	uint64_t product = (uint64_t)own * peer;

	product ^= product >> 20;
	product ^= product >> 40;
	return product & 0xfffff;
}

static bool run_changed_path(void)
{
	struct ibv_qp_attr attr = patient();
	struct wire_packet packet = {};
	bool ok;

	lone_start(attr);
	post(a, IBV_WR_SEND, 0);
	ok = on_wire(RC_SEND_ONLY, 0, &packet) &&
	     same("the port of both QPs", packet.source_port, port_of_label(label_of(a->qp->qp_num, b->qp->qp_num)));
	acknowledge(0);
	ok = ok && sent(a, 0, IBV_WC_SUCCESS);
	drain(false);
	post(a, IBV_WR_SEND, 1);
	/* The lower two bits would say that a packet has been marked: nobody may say so before it leaves. */
	attr.ah_attr.grh.traffic_class = 0x43;
	attr.ah_attr.grh.flow_label = 0x12345;
	qp_change(a->qp, attr, IBV_QP_AV, "a path in SQD");
	go_on();
	ok = ok && on_wire(RC_SEND_ONLY, 1, &packet) && same("traffic_class", packet.traffic_class, 0x40) &&
	     same("the port of the flow label", packet.source_port, port_of_label(0x12345));
	acknowledge(1);
	ok = ok && sent(a, 1, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* The core adds IB_QP_PORT to it. */
static bool run_changed_path_uc(void)
{
	struct ibv_qp_attr attr = usual(a, b, 0);
	struct wire_packet packet = {};
	bool ok;

	pair_start(IBV_QPT_UC, IBV_QPS_RTS);
	drain(false);
	attr.ah_attr.grh.flow_label = 0x12345;
	qp_change(a->qp, attr, IBV_QP_AV, "a path in SQD");
	ok = query(a->qp).ah_attr.grh.flow_label == 0x12345;
	go_on();
	wire_drain(&wire);
	post_receive(b, 1);
	post(a, IBV_WR_SEND, 1);
	ok = ok && sent(a, 1, IBV_WC_SUCCESS) && received(b, 1, IBV_WC_SUCCESS);
	/* A SEND of one packet, over UC. */
	ok = ok && on_wire(0x24, 0, &packet) &&
	     same("the port of the flow label", packet.source_port, port_of_label(0x12345));
	return finish() && ok;
}

static bool run_changed_retries(void)
{
	struct ibv_qp_attr attr = patient();
	unsigned int i;
	bool ok;

	attr.retry_cnt = 0;
	lone_start(attr);
	drain(false);
	attr.timeout = 15;
	attr.retry_cnt = 2;
	qp_change(a->qp, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, "retries in SQD");
	go_on();
	post(a, IBV_WR_SEND, 1);
	for (ok = true, i = 0; i < 3; i++)
		ok = ok && on_wire(RC_SEND_ONLY, 0, NULL);
	ok = ok && sent(a, 1, IBV_WC_RETRY_EXC_ERR) && wire_quiet() && state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

static bool run_changed_rnr_retries(void)
{
	struct ibv_qp_attr attr = patient();
	unsigned int i;
	bool ok;

	attr.rnr_retry = 0;
	lone_start(attr);
	drain(false);
	attr.rnr_retry = 2;
	qp_change(a->qp, attr, IBV_QP_RNR_RETRY, "RNR retries in SQD");
	go_on();
	post(a, IBV_WR_SEND, 1);
	for (ok = true, i = 0; i < 3; i++) {
		ok = ok && on_wire(RC_SEND_ONLY, 0, NULL);
		answer(RC_ACKNOWLEDGE, 0, WIRE_RNR | 1, 0);
	}
	ok = ok && sent(a, 1, IBV_WC_RNR_RETRY_EXC_ERR) && wire_quiet();
	return finish() && ok;
}

static bool run_changed_responder(void)
{
	struct ibv_qp_attr attr = patient();
	bool ok;

	attr.min_rnr_timer = 3;
	attr.max_dest_rd_atomic = 0;
	lone_start(attr);
	ok = same("the syndrome", asked(RC_SEND_ONLY, 0), WIRE_RNR | 3);
	drain(false);
	attr.min_rnr_timer = 20;
	attr.max_dest_rd_atomic = 1;
	qp_change(a->qp, attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC, "the responder in SQD");
	ok = ok && same("the syndrome", asked(RC_SEND_ONLY, 0), WIRE_RNR | 20) &&
	     same("the syndrome of the READ", asked(RC_READ_REQUEST, 0), WIRE_ACK) &&
	     state_is(a, IBV_QPS_SQD);
	return finish() && ok;
}

static bool run_changed_reads(void)
{
	struct ibv_qp_attr attr = patient();
	bool ok;

	lone_start(attr);
	drain(false);
	attr.max_rd_atomic = 1;
	qp_change(a->qp, attr, IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic in SQD");
	go_on();
	post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1);
	post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 2);
	ok = on_wire(RC_FETCH_ADD, 0, NULL) && wire_quiet();
	answer(RC_ATOMIC_ACKNOWLEDGE, 0, WIRE_ACK, 0);
	ok = ok && sent(a, 1, IBV_WC_SUCCESS) && on_wire(RC_FETCH_ADD, 1, NULL);
	answer(RC_ATOMIC_ACKNOWLEDGE, 1, WIRE_ACK, 0);
	ok = ok && sent(a, 2, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* Query shows where a connection is. */
static bool run_psns(void)
{
	struct ibv_qp_attr sender, receiver;
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	post_receive(b, 11);
	post(a, IBV_WR_SEND, 1);
	ok = sent(a, 1, IBV_WC_SUCCESS) && received(b, 11, IBV_WC_SUCCESS);
	sender = query(a->qp);
	receiver = query(b->qp);
	ok = ok && same("sq_psn", sender.sq_psn, (OUR_PSN + 1) & 0xffffff) && same("rq_psn", sender.rq_psn, THEIR_PSN) &&
	     same("its rq_psn", receiver.rq_psn, sender.sq_psn) && same("its sq_psn", receiver.sq_psn, THEIR_PSN);
	return finish() && ok;
}

/* --- READs and ATOMICs outstanding ------------------------------------------------------ */

static bool run_requester_limit(void)
{
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ,
						    IBV_WR_RDMA_READ };
	struct ibv_qp_attr attr = patient();
	const unsigned int limit = 2;
	unsigned int i;
	bool ok = true;

	attr.max_rd_atomic = limit;
	lone_start(attr);
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		post(a, kinds[i], i);
	for (i = 0; ok && i < ARRAY_SIZE(kinds); i++) {
		bool read = kinds[i] == IBV_WR_RDMA_READ;

		ok = on_wire(read ? RC_READ_REQUEST : RC_FETCH_ADD, i, NULL);
		if (i + 1 < limit)
			continue;
		/* So many are outstanding now. */
		ok = ok && wire_quiet();
		read = kinds[i + 1 - limit] == IBV_WR_RDMA_READ;
		answer(read ? RC_READ_RESPONSE_ONLY : RC_ATOMIC_ACKNOWLEDGE, i + 1 - limit,
		       WIRE_ACK, read ? LENGTH : 0);
		ok = ok && sent(a, i + 1 - limit, IBV_WC_SUCCESS);
	}
	answer(RC_READ_RESPONSE_ONLY, ARRAY_SIZE(kinds) - 1, WIRE_ACK, LENGTH);
	ok = ok && sent(a, ARRAY_SIZE(kinds) - 1, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* Nothing of it leaves, and no other request behind it. */
static bool run_no_reads_asked(void)
{
	struct ibv_qp_attr attr = patient();
	bool ok;

	attr.max_rd_atomic = 0;
	lone_start(attr);
	post(a, IBV_WR_RDMA_READ, 1);
	post(a, IBV_WR_SEND, 2);
	ok = sent(a, 1, IBV_WC_LOC_QP_OP_ERR) && sent(a, 2, IBV_WC_WR_FLUSH_ERR) && wire_quiet() && state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

static bool run_no_reads(void)
{
	struct ibv_qp_attr attr = patient();
	bool ok;

	attr.max_dest_rd_atomic = 0;
	lone_start(attr);
	ok = same("the syndrome", asked(RC_READ_REQUEST, 0), WIRE_NAK_INVALID_REQUEST) &&
	     event_is(a, IBV_EVENT_QP_REQ_ERR, a->qp) && state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

/* A READ of so many bytes by the peer, as many packets behind its first one. */
static struct wire_packet read_request(uint32_t number, uint32_t length)
{
	return (struct wire_packet){
		.opcode = RC_READ_REQUEST,
		.qpn = a->qp->qp_num,
		.psn = THEIR_PSN + number,
		.va = (uintptr_t)a->region.memory,
		.rkey = a->region.mr->rkey,
		.length = length,
	};
}

/* Whether this READ of one packet is answered; or the queue pair fails. */
static bool is_answered(const struct wire_packet *request)
{
	uint64_t until = now_ms() + patience_ms(WAIT_MS);
	struct wire_packet answer;

	while (qp_state(a->qp) != IBV_QPS_ERR && now_ms() < until) {
		if (wire_receive(&wire, b->qp->qp_num, &answer, 10) && answer.psn == request->psn &&
		    answer.opcode == RC_READ_RESPONSE_ONLY)
			return true;
	}
	return false;
}

/*
 * While one long READ is being answered, there is no room for another. On a busy machine the second one may leave so late
 * that the first has been answered: then both are sent again.
 */
static bool run_responder_limit(void)
{
	struct ibv_qp_attr attr = patient();
	bool ok = true, is_late = true;
	struct wire_packet packets[2];
	int tries;

	attr.max_dest_rd_atomic = 1;
	for (tries = 0; ok && is_late && tries < 10; tries++) {
		lone_start(attr);
		packets[0] = read_request(0, SIZE);
		packets[1] = read_request(SIZE / mtu_bytes(attr.path_mtu), LENGTH);
		wire_send(&wire, packets, 2);
		is_late = is_answered(&packets[1]);
		ok = is_late || (event_is(a, IBV_EVENT_QP_REQ_ERR, a->qp) && state_is(a, IBV_QPS_ERR));
		ok = finish() && ok;
	}
	if (is_late)
		printf("# in each of %d tries the second READ is answered, too\n", tries);
	return ok && !is_late;
}

/*
 * Responders round max_dest_rd_atomic up to a power of two, and requesters of other drivers their limit: of 3, a fourth
 * READ is answered, too.
 */
static bool run_responder_limit_rounded(void)
{
	struct ibv_qp_attr attr = patient();
	const uint32_t size = SIZE / mtu_bytes(attr.path_mtu);
	struct wire_packet packets[4], answer;
	uint64_t until;
	unsigned int i;
	bool ok;

	attr.max_dest_rd_atomic = 3;
	lone_start(attr);
	for (i = 0; i < ARRAY_SIZE(packets); i++)
		packets[i] = read_request(i * size, i < 3 ? SIZE : LENGTH);
	wire_send(&wire, packets, ARRAY_SIZE(packets));
	until = now_ms() + patience_ms(WAIT_MS);
	do {
		ok = wire_receive(&wire, b->qp->qp_num, &answer, WAIT_MS);
	} while (ok && answer.psn != packets[3].psn && now_ms() < until);
	if (!ok || answer.psn != packets[3].psn) {
		printf("# the fourth READ is not answered\n");
		ok = false;
	}
	ok = ok && state_is(a, IBV_QPS_RTS);
	return finish() && ok;
}

/* A receive that is too short, behind a READ that is long to answer: its completion does not come before the state. */
static bool run_fails_behind_read(void)
{
	struct ibv_qp_attr attr = patient();
	struct wire_packet packets[2];
	bool ok;

	lone_start(attr);
	post_receive(a, 11);
	packets[0] = read_request(0, SIZE);
	packets[1] = (struct wire_packet){
		.opcode = RC_SEND_ONLY,
		.qpn = a->qp->qp_num,
		.psn = THEIR_PSN + SIZE / mtu_bytes(attr.path_mtu),
		.payload = 2 * LENGTH,
	};
	wire_send(&wire, packets, 2);
	ok = received(a, 11, IBV_WC_LOC_LEN_ERR) && state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

/* Attributes that fit each other: whatever is posted at once, none is refused. */
static bool run_limits_fit(void)
{
	struct ibv_qp_attr attr = usual(a, b, 0);
	bool ok = true;
	uint64_t id;

	b->qp = make(b, IBV_QPT_RC);
	a->qp = make(a, IBV_QPT_RC);
	attr.dest_qp_num = b->qp->qp_num;
	attr.max_rd_atomic = 1;
	connect_to(a->qp, attr, IBV_QPS_RTS);
	attr = usual(b, a, a->qp->qp_num);
	attr.max_dest_rd_atomic = 1;
	connect_to(b->qp, attr, IBV_QPS_RTS);
	for (id = 0; id < DEPTH; id++)
		post(a, id & 1 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, id);
	for (id = 0; ok && id < DEPTH; id++)
		ok = sent(a, id, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* --- SQE --------------------------------------------------------------------------------- */

/* Of three requests the second one fails, and receives go on. */
static bool run_sqe(int type)
{
	const int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTS };
	struct ibv_ah *there = NULL, *back = NULL;
	struct ibv_sge bad;
	bool ok;

	if (type == IBV_QPT_UD) {
		datagrams_start();
		there = ah_make(&a->device, &b->device);
		back = ah_make(&b->device, &a->device);
	} else {
		pair_start(type, IBV_QPS_RTS);
	}
	bad = piece(a, LENGTH);
	bad.lkey ^= 0x5a5a00;
	post_receive(a, 21);
	post_receive(b, 11);
	post_receive(b, 12);
	post_sge(a, IBV_WR_SEND, 1, piece(a, LENGTH), there);
	ok = sent(a, 1, IBV_WC_SUCCESS) && received(b, 11, IBV_WC_SUCCESS);
	post_sge(a, IBV_WR_SEND, 2, bad, there);
	/* It is there as soon as the error is seen. */
	ok = ok && sent(a, 2, IBV_WC_LOC_PROT_ERR) && state_is(a, IBV_QPS_SQE);
	post_sge(a, IBV_WR_SEND, 3, piece(a, LENGTH), there);
	ok = ok && sent(a, 3, IBV_WC_WR_FLUSH_ERR);
	post_sge(b, IBV_WR_SEND, 4, piece(b, LENGTH), back);
	ok = ok && sent(b, 4, IBV_WC_SUCCESS) && received(a, 21, IBV_WC_SUCCESS) &&
	     state_is(a, IBV_QPS_SQE) && refused(a->qp, rts, mask, "RTS for SQE");
	rts.cur_qp_state = IBV_QPS_SQE;
	qp_change(a->qp, rts, mask, "SQE to RTS");
	post_sge(a, IBV_WR_SEND, 5, piece(a, LENGTH), there);
	ok = ok && sent(a, 5, IBV_WC_SUCCESS) && received(b, 12, IBV_WC_SUCCESS) &&
	     state_is(a, IBV_QPS_RTS);
	if (there && (ibv_destroy_ah(there) || ibv_destroy_ah(back)))
		die("ibv_destroy_ah");
	return finish() && ok;
}

/* What was posted together with the one that fails is flushed behind it. */
static bool run_sqe_list(void)
{
	struct ibv_send_wr wrs[4] = {};
	struct ibv_sge sges[4];
	struct ibv_ah *ah;
	unsigned int i;
	bool ok;

	datagrams_start();
	ah = ah_make(&a->device, &b->device);
	post_receive(b, 11);
	post_receive(b, 12);
	for (i = 0; i < 4; i++) {
		sges[i] = piece(a, LENGTH);
		wrs[i].wr_id = i;
		wrs[i].opcode = IBV_WR_SEND;
		wrs[i].send_flags = IBV_SEND_SIGNALED;
		wrs[i].sg_list = &sges[i];
		wrs[i].num_sge = 1;
		wrs[i].wr.ud.ah = ah;
		wrs[i].wr.ud.remote_qpn = b->qp->qp_num;
		wrs[i].wr.ud.remote_qkey = QKEY;
		wrs[i].next = i < 3 ? &wrs[i + 1] : NULL;
	}
	/* Longer than a datagram can be. */
	sges[1].length = 4096 + 1;
	send_post(a->qp, wrs);
	ok = sent(a, 0, IBV_WC_SUCCESS) && sent(a, 1, IBV_WC_LOC_LEN_ERR) &&
	     state_is(a, IBV_QPS_SQE) && sent(a, 2, IBV_WC_WR_FLUSH_ERR) &&
	     sent(a, 3, IBV_WC_WR_FLUSH_ERR) && received(b, 11, IBV_WC_SUCCESS) &&
	     cq_quiet(b->recv_cq, QUIET_MS);
	/* It does not end the queue pair's other ways. */
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "SQE to ERR");
	ah_free(ah);
	return finish() && ok;
}

/*
 * A request that no doorbell has told of is flushed on the way to RTS, and the queue notifies of that. The
 * doorbell is a write() to the file of the commands, which is replaced by /dev/null meanwhile.
 * Before that, it is quiet for so long that nothing works on the error any more.
 */
static bool run_sqe_notifies(void)
{
	const int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };
	struct ibv_context *context = a->device.context;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	int commands = context->cmd_fd, nothing = open("/dev/null", O_WRONLY);
	struct ibv_cq *own = a->send_cq, *from;
	struct pollfd ready = { .events = POLLIN };
	struct ibv_sge bad;
	void *unused;
	bool ok;

	if (!channel || nothing < 0)
		die("no completion channel, or no /dev/null: %s", strerror(errno));
	ready.fd = channel->fd;
	a->send_cq = ibv_create_cq(context, DEPTH, NULL, channel, 0);
	if (!a->send_cq)
		die("ibv_create_cq: %s", strerror(errno));
	pair_start(IBV_QPT_UC, IBV_QPS_RTS);
	bad = piece(a, LENGTH);
	bad.lkey ^= 0x5a5a00;
	post_sge(a, IBV_WR_SEND, 1, bad, NULL);
	ok = sent(a, 1, IBV_WC_LOC_PROT_ERR) && state_is(a, IBV_QPS_SQE) && cq_quiet(a->send_cq, QUIET_MS);
	if (ibv_req_notify_cq(a->send_cq, 0))
		die("ibv_req_notify_cq");
	context->cmd_fd = nothing;
	post(a, IBV_WR_SEND, 2);
	context->cmd_fd = commands;
	ok = ok && cq_quiet(a->send_cq, QUIET_MS);
	qp_change(a->qp, rts, mask, "SQE to RTS");
	ok = ok && sent(a, 2, IBV_WC_WR_FLUSH_ERR);
	if (ok && (poll(&ready, 1, patience_ms(WAIT_MS)) != 1 || ibv_get_cq_event(channel, &from, &unused))) {
		printf("# the queue does not notify\n");
		ok = false;
	} else if (ok) {
		ibv_ack_cq_events(from, 1);
	}
	ok = finish() && ok;
	cq_free(a->send_cq);
	a->send_cq = own;
	if (ibv_destroy_comp_channel(channel) || close(nothing))
		die("ibv_destroy_comp_channel: %s", strerror(errno));
	return ok;
}

static bool run_rc_has_no_sqe(void)
{
	struct ibv_sge bad;
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	bad = piece(a, LENGTH);
	bad.lkey ^= 0x5a5a00;
	post_receive(a, 21);
	post_sge(a, IBV_WR_SEND, 1, bad, NULL);
	ok = sent(a, 1, IBV_WC_LOC_PROT_ERR) && state_is(a, IBV_QPS_ERR) &&
	     received(a, 21, IBV_WC_WR_FLUSH_ERR);
	return finish() && ok;
}

/* --- Events of queue pairs and queues ------------------------------------------------- */

static bool run_established(int type)
{
	bool ok;

	pair_start(type, IBV_QPS_RTR);
	post_receive(b, 11);
	post_receive(b, 12);
	post_receive(b, 13);
	post(a, IBV_WR_SEND, 1);
	post(a, IBV_WR_SEND, 2);
	ok = sent(a, 1, IBV_WC_SUCCESS) && sent(a, 2, IBV_WC_SUCCESS) &&
	     received(b, 11, IBV_WC_SUCCESS) && received(b, 12, IBV_WC_SUCCESS) &&
	     event_is(b, IBV_EVENT_COMM_EST, b->qp);
	to_rts(b, a);
	post(a, IBV_WR_SEND, 3);
	ok = ok && sent(a, 3, IBV_WC_SUCCESS) && received(b, 13, IBV_WC_SUCCESS);
	return finish() && ok;
}

/* In RTS everybody knows already. */
static bool run_established_late(void)
{
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	post_receive(b, 11);
	post(a, IBV_WR_SEND, 1);
	ok = sent(a, 1, IBV_WC_SUCCESS) && received(b, 11, IBV_WC_SUCCESS);
	return finish() && ok;
}

static bool run_request_error(void)
{
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	qp_change(b->qp, (struct ibv_qp_attr){ .qp_access_flags = 0 }, IBV_QP_ACCESS_FLAGS, "no access");
	post(a, IBV_WR_RDMA_READ, 1);
	ok = sent(a, 1, IBV_WC_REM_INV_REQ_ERR) && event_is(b, IBV_EVENT_QP_REQ_ERR, b->qp) &&
	     becomes(b, IBV_QPS_ERR) && state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

static bool run_access_error(void)
{
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	if (try_post(a, IBV_WR_RDMA_WRITE, 1, piece(a, LENGTH), NULL, b->region.mr->rkey ^ 0x5a5a00))
		die("ibv_post_send");
	ok = sent(a, 1, IBV_WC_REM_ACCESS_ERR) && event_is(b, IBV_EVENT_QP_ACCESS_ERR, b->qp) &&
	     becomes(b, IBV_QPS_ERR) && state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

/*
 * The queue pairs of a completion queue that has overflowed, and no others, fail with it; and when it overflows
 * once more, one that was made since. The queue itself is in error once.
 */
static bool run_lost_completions(void)
{
	struct ibv_cq *cq = cq_make(&a->device, 3), *own = a->send_cq;
	struct growth lost = { &a->device, "cq_overflow", 2 };
	struct ibv_qp *idle, *other;
	struct expected wanted[3];
	int i, capacity;
	bool ok;

	capacity = cq->cqe;
	growths_begin(&lost, 1);
	other = make(a, IBV_QPT_RC);
	connect_to(other, usual(a, b, 0x123456), IBV_QPS_RTS);
	a->send_cq = cq;
	idle = make(a, IBV_QPT_RC);
	connect_to(idle, usual(a, b, 0x123456), IBV_QPS_RTS);
	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	a->send_cq = own;
	if (capacity + 1 > DEPTH)
		die("a completion queue of 3 has room for %d", capacity);
	for (i = 0; i <= capacity; i++)
		post(a, IBV_WR_RDMA_WRITE, i);
	wanted[0] = (struct expected){ IBV_EVENT_CQ_ERR, cq };
	wanted[1] = (struct expected){ IBV_EVENT_QP_FATAL, a->qp };
	wanted[2] = (struct expected){ IBV_EVENT_QP_FATAL, idle };
	ok = events_are(a, wanted, 3) && state_is(a, IBV_QPS_ERR) &&
	     same("the idle one's state", qp_state(idle), IBV_QPS_ERR) &&
	     same("the other's state", qp_state(other), IBV_QPS_RTS);
	for (i = 0; ok && i < capacity; i++)
		ok = completed(cq, i, IBV_WC_SUCCESS);
	ok = finish() && ok;
	a->send_cq = cq;
	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	a->send_cq = own;
	for (i = 0; i <= capacity; i++)
		post(a, IBV_WR_RDMA_WRITE, i);
	ok = ok && event_is(a, IBV_EVENT_QP_FATAL, a->qp) && state_is(a, IBV_QPS_ERR);
	for (i = 0; ok && i < capacity; i++)
		ok = completed(cq, i, IBV_WC_SUCCESS);
	ok = finish() && ok;
	if (ibv_destroy_qp(idle) || ibv_destroy_qp(other) || ibv_destroy_cq(cq))
		die("what was made for it does not go away");
	return growths_are(&lost, 1) && ok;
}

/* The ring that the process has mapped last. */
static struct rxe_queue_buf *last_ring(struct ibv_context *context, unsigned long before)
{
	unsigned long start, end, offset, best = 0, found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], name[IBV_SYSFS_NAME_MAX + 3];

	snprintf(name, sizeof(name), "/%s\n", context->device->dev_name);
	while (maps && fgets(line, sizeof(line), maps)) {
		if (strstr(line, name) &&
		    sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 &&
		    offset >= best && offset != before) {
			best = offset;
			found = start;
		}
	}
	if (!maps || !found)
		die("no ring is mapped");
	fclose(maps);
	return (struct rxe_queue_buf *)found;
}

/* A ring whose indices make no sense cannot be told from one full of requests. */
static bool run_srq_error(void)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 7, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(b->device.pd, &srq_init);
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_sge sge = piece(b, LENGTH);
	struct ibv_recv_wr wr = { .wr_id = 11, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp_init_attr init = {
		.send_cq = b->send_cq,
		.recv_cq = b->recv_cq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1 },
	};
	struct ibv_qp_attr attr = usual(a, b, 0);
	struct rxe_queue_buf *ring;
	struct expected wanted[5];
	struct ibv_qp *idle;
	bool ok;

	/* The requests that fail have no answer: they must not end before they are flushed. */
	attr.timeout = 19;
	if (!srq)
		die("ibv_create_srq: %s", strerror(errno));
	ring = last_ring(b->device.context, 0);
	if (ibv_post_srq_recv(srq, &wr, &bad))
		die("ibv_post_srq_recv");
	if (ring->producer_index != 1)
		die("that is not the ring of the shared receive queue");
	a->qp = make(a, IBV_QPT_RC);
	b->qp = ibv_create_qp(b->device.pd, &init);
	idle = ibv_create_qp(b->device.pd, &init);
	if (!b->qp || !idle)
		die("ibv_create_qp: %s", strerror(errno));
	connect_to(b->qp, usual(b, a, a->qp->qp_num), IBV_QPS_RTS);
	connect_to(idle, usual(b, a, 0x123456), IBV_QPS_RTS);
	attr.dest_qp_num = b->qp->qp_num;
	connect_to(a->qp, attr, IBV_QPS_RTS);
	post(a, IBV_WR_SEND, 1);
	ok = sent(a, 1, IBV_WC_SUCCESS) && received(b, 11, IBV_WC_SUCCESS);

	ring->producer_index = 0xdeadbeef;
	ok = ok && no_event(b);
	post(a, IBV_WR_SEND, 2);
	wanted[0] = (struct expected){ IBV_EVENT_SRQ_ERR, srq };
	wanted[1] = (struct expected){ IBV_EVENT_QP_FATAL, b->qp };
	wanted[2] = (struct expected){ IBV_EVENT_QP_FATAL, idle };
	wanted[3] = (struct expected){ IBV_EVENT_QP_LAST_WQE_REACHED, b->qp };
	wanted[4] = (struct expected){ IBV_EVENT_QP_LAST_WQE_REACHED, idle };
	ok = ok && events_are(b, wanted, 5) && state_is(b, IBV_QPS_ERR) &&
	     same("the idle one's state", qp_state(idle), IBV_QPS_ERR);
	/* It stays so, whatever stands there now. */
	ring->producer_index = 2;
	ok = ok && same("ibv_modify_srq", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) ? errno : 0, EINVAL);
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "RTS to ERR");
	ok = ok && sent(a, 2, IBV_WC_WR_FLUSH_ERR);
	ok = finish() && ok;
	/* One that is made since fails with its first message, and nobody answers that any more. */
	a->qp = make(a, IBV_QPT_RC);
	b->qp = ibv_create_qp(b->device.pd, &init);
	if (!b->qp)
		die("ibv_create_qp: %s", strerror(errno));
	connect_to(b->qp, usual(b, a, a->qp->qp_num), IBV_QPS_RTS);
	attr.dest_qp_num = b->qp->qp_num;
	connect_to(a->qp, attr, IBV_QPS_RTS);
	post(a, IBV_WR_SEND, 1);
	wanted[0] = (struct expected){ IBV_EVENT_QP_FATAL, b->qp };
	wanted[1] = (struct expected){ IBV_EVENT_QP_LAST_WQE_REACHED, b->qp };
	ok = ok && events_are(b, wanted, 2) && state_is(b, IBV_QPS_ERR);
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "RTS to ERR");
	ok = ok && sent(a, 1, IBV_WC_WR_FLUSH_ERR);
	ok = finish() && ok;
	if (ibv_destroy_qp(idle) || ibv_destroy_srq(srq))
		die("what was made for it does not go away");
	return ok;
}

/* --- Statuses ---------------------------------------------------------------------------- */

/* A WRITE that fails has used up the receive that its immediate data were for. */
static bool run_local_access(void)
{
	bool ok;

	pair_start(IBV_QPT_RC, IBV_QPS_RTS);
	post_receive(b, 11);
	post_receive(b, 12);
	if (try_post(a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, piece(a, LENGTH), NULL,
		     b->region.mr->rkey ^ 0x5a5a00))
		die("ibv_post_send");
	ok = received(b, 11, IBV_WC_LOC_ACCESS_ERR) && received(b, 12, IBV_WC_WR_FLUSH_ERR) &&
	     sent(a, 1, IBV_WC_REM_ACCESS_ERR) && state_is(b, IBV_QPS_ERR);
	return finish() && ok;
}

/* A request that interrupts a SEND fails the receive that the SEND was filling, not only the queue pair. */
static bool run_interrupted_send(void)
{
	struct ibv_qp_attr attr = patient();
	struct ibv_sge sge = piece(a, 512);
	struct ibv_recv_wr wr = { .wr_id = 11, .sg_list = &sge, .num_sge = 1 };
	struct wire_packet first;
	bool ok;

	attr.path_mtu = IBV_MTU_256;
	lone_start(attr);
	recv_post(a->qp, &wr);
	post_receive(a, 12);
	first = (struct wire_packet){
		.opcode = RC_SEND_FIRST,
		.qpn = a->qp->qp_num,
		.psn = THEIR_PSN,
		.payload = 256,
	};
	wire_send(&wire, &first, 1);
	ok = same("the syndrome", asked(RC_READ_REQUEST, 1), WIRE_NAK_INVALID_REQUEST) &&
	     received(a, 11, IBV_WC_REM_INV_REQ_ERR) && received(a, 12, IBV_WC_WR_FLUSH_ERR) &&
	     state_is(a, IBV_QPS_ERR);
	return finish() && ok;
}

/* A request that is answered with something, and how it ends then. */
static bool answered(enum ibv_wr_opcode request, uint8_t seen, uint8_t opcode, uint8_t syndrome,
		     uint32_t payload, enum ibv_wc_status status)
{
	bool ok;

	lone_start(patient());
	post(a, request, 1);
	post(a, request, 2);
	ok = on_wire(seen, 0, NULL);
	answer(opcode, 0, syndrome, payload);
	ok = ok && sent(a, 1, status) && state_is(a, IBV_QPS_ERR) && sent(a, 2, IBV_WC_WR_FLUSH_ERR);
	return finish() && ok;
}

static bool run_bad_response(void)
{
	/* Two kinds of answer that are none to such a request. */
	return answered(IBV_WR_RDMA_READ, RC_READ_REQUEST, RC_ATOMIC_ACKNOWLEDGE, WIRE_ACK, 0,
			IBV_WC_BAD_RESP_ERR) &&
	       answered(IBV_WR_ATOMIC_FETCH_AND_ADD, RC_FETCH_ADD, RC_READ_RESPONSE_ONLY,
			WIRE_ACK, LENGTH, IBV_WC_BAD_RESP_ERR);
}

static bool run_short_response(void)
{
	return answered(IBV_WR_RDMA_READ, RC_READ_REQUEST, RC_READ_RESPONSE_ONLY, WIRE_ACK,
			LENGTH - 4, IBV_WC_LOC_LEN_ERR) &&
	       answered(IBV_WR_RDMA_READ, RC_READ_REQUEST, RC_READ_RESPONSE_ONLY, WIRE_ACK,
			LENGTH + 4, IBV_WC_LOC_LEN_ERR);
}

static bool run_naks(void)
{
	static const struct {
		uint8_t syndrome;
		enum ibv_wc_status status;
	} naks[] = {
		{ WIRE_NAK_INVALID_REQUEST, IBV_WC_REM_INV_REQ_ERR },
		{ WIRE_NAK_REMOTE_ACCESS, IBV_WC_REM_ACCESS_ERR },
		{ WIRE_NAK_REMOTE_OPERATIONAL, IBV_WC_REM_OP_ERR },
	};
	unsigned int i;
	bool ok = true;

	for (i = 0; i < ARRAY_SIZE(naks); i++)
		ok &= answered(IBV_WR_SEND, RC_SEND_ONLY, RC_ACKNOWLEDGE, naks[i].syndrome, 0,
			       naks[i].status);
	return ok;
}

/* --- Packets that nobody takes ----------------------------------------------------------- */

/* The counters of packets that are dropped, or refused by an answer (Documentation/counters.rst). */
static const char *const drop_counters[] = {
	"steering_dropped", "page_fault_dropped", "icrc_err", "malformed_pkts", "unknown_qp", "unknown_group",
	"bad_pkey", "bad_qkey", "refused_pkts", "no_receive", "stale_response", "implied_nak_seq_err",
	"duplicate_request", "out_of_seq_request", "forgotten_request", "send_rnr_err", "sent_seq_err", "sent_nak",
};

/* A request and a response come for the queue pair, and nobody answers. */
static bool is_silent(const char *state)
{
	const struct wire_packet packets[] = {
		{ .opcode = RC_SEND_ONLY, .qpn = a->qp->qp_num, .psn = THEIR_PSN, .payload = LENGTH },
		{ .opcode = RC_ACKNOWLEDGE, .qpn = a->qp->qp_num, .psn = OUR_PSN, .syndrome = WIRE_ACK },
	};
	unsigned long long before = device_counter_now(&a->device, "rcvd_pkts"), now;
	uint64_t until = now_ms() + patience_ms(WAIT_MS);
	bool ok;

	wire_drain(&wire);
	wire_send(&wire, packets, ARRAY_SIZE(packets));
	do {
		now = device_counter_now(&a->device, "rcvd_pkts");
	} while (now < before + ARRAY_SIZE(packets) && now_ms() < until);
	ok = now >= before + ARRAY_SIZE(packets) && wire_quiet();
	if (!ok)
		printf("# in %s, rcvd_pkts %llu, then %llu\n", state, before, now);
	return ok;
}

/* In RTS a request is answered. In the states that take no packets none is, and none counts as dropped. */
static bool run_silent_states(void)
{
	unsigned long long before[ARRAY_SIZE(drop_counters)];
	struct ibv_qp_attr attr = patient();
	unsigned int i;
	bool ok;

	lone_start(attr);
	ok = same("the syndrome", asked(RC_SEND_ONLY, 0), WIRE_RNR | attr.min_rnr_timer);
	for (i = 0; i < ARRAY_SIZE(drop_counters); i++)
		before[i] = device_counter_now(&a->device, drop_counters[i]);
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "RTS to ERR");
	ok = ok && is_silent("ERR");
	qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE, "ERR to RESET");
	ok = ok && is_silent("RESET");
	connect_to(a->qp, attr, IBV_QPS_INIT);
	ok = ok && is_silent("INIT");
	for (i = 0; i < ARRAY_SIZE(drop_counters); i++)
		ok &= same(drop_counters[i], device_counter_now(&a->device, drop_counters[i]), before[i]);
	return finish() && ok;
}

/* --- The end of a queue pair ------------------------------------------------------------- */

/* Stands for no state. */
#define DESTROYED (-1)

/*
 * The consumer has seen that a message came, and the peer has not asked for an acknowledgement: that leaves
 * before the queue pair ends, as nobody answers the peer afterwards.
 */
static bool run_acknowledged(int end)
{
	struct wire_packet answer, request;
	bool ok;

	lone_start(patient());
	post_receive(a, 11);
	request = request_of(RC_SEND_ONLY, 0);
	wire_send(&wire, &request, 1);
	ok = received(a, 11, IBV_WC_SUCCESS) && wire_quiet();
	if (end == DESTROYED) {
		qp_free(a->qp);
		a->qp = NULL;
	} else {
		qp_change(a->qp, (struct ibv_qp_attr){ .qp_state = end }, IBV_QP_STATE, "RTS to the end");
	}
	if (ok && !wire_receive(&wire, b->qp->qp_num, &answer, WAIT_MS)) {
		printf("# the message is not acknowledged\n");
		ok = false;
	}
	ok = ok && same("the opcode", answer.opcode, RC_ACKNOWLEDGE) &&
	     same("the PSN", answer.psn, THEIR_PSN) && same("the syndrome", answer.syndrome, WIRE_ACK);
	return finish() && ok;
}

/* --- Counters ---------------------------------------------------------------------------- */

/* A syndrome that means nothing (IBTA table 43). */
#define WIRE_RESERVED 0x40

/* A requester hears of a loss by a NAK, and by an answer behind one that is missing. Both make it repeat two packets. */
static bool run_counted_requester(void)
{
	struct growth growths[] = {
		{ &a->device, "rcvd_seq_err", 1 },
		{ &a->device, "implied_nak_seq_err", 1 },
		{ &a->device, "retransmitted_pkts", 4 },
		{ &a->device, "completer_retry_err", 0 },
		{ &a->device, "stale_response", 1 },
		{ &a->device, "refused_pkts", 1 },
		{ &a->device, "rdma_sends", 4 },
	};
	bool ok;

	lone_start(patient());
	growths_begin(growths, ARRAY_SIZE(growths));
	post(a, IBV_WR_SEND, 1);
	post(a, IBV_WR_SEND, 2);
	ok = on_wire(RC_SEND_ONLY, 0, NULL) && on_wire(RC_SEND_ONLY, 1, NULL);
	answer(RC_ACKNOWLEDGE, 0, WIRE_NAK_SEQUENCE, 0);
	ok = ok && on_wire(RC_SEND_ONLY, 0, NULL) && on_wire(RC_SEND_ONLY, 1, NULL);
	acknowledge(1);
	ok = ok && sent(a, 1, IBV_WC_SUCCESS) && sent(a, 2, IBV_WC_SUCCESS);
	post(a, IBV_WR_RDMA_READ, 3);
	post(a, IBV_WR_SEND, 4);
	ok = ok && on_wire(RC_READ_REQUEST, 2, NULL) && on_wire(RC_SEND_ONLY, 3, NULL);
	/* That of the READ is missing. */
	acknowledge(3);
	ok = ok && on_wire(RC_READ_REQUEST, 2, NULL) && on_wire(RC_SEND_ONLY, 3, NULL);
	answer(RC_READ_RESPONSE_ONLY, 2, WIRE_ACK, LENGTH);
	acknowledge(3);
	ok = ok && sent(a, 3, IBV_WC_SUCCESS) && sent(a, 4, IBV_WC_SUCCESS);
	post(a, IBV_WR_SEND, 5);
	ok = ok && on_wire(RC_SEND_ONLY, 4, NULL);
	answer(RC_ACKNOWLEDGE, 4, WIRE_RESERVED, 0);
	acknowledge(4);
	ok = ok && sent(a, 5, IBV_WC_SUCCESS) && growths_are(growths, ARRAY_SIZE(growths));
	return finish() && ok;
}

/* A responder that remembers one READ gets a request behind a gap, one without a receive, and two again. */
static bool run_counted_responder(void)
{
	struct growth growths[] = {
		{ &a->device, "out_of_seq_request", 1 },
		{ &a->device, "sent_seq_err", 1 },
		{ &a->device, "send_rnr_err", 1 },
		{ &a->device, "no_receive", 0 },
		{ &a->device, "sent_nak", 0 },
		{ &a->device, "rdma_recvs", 1 },
		{ &a->device, "duplicate_request", 2 },
		{ &a->device, "forgotten_request", 1 },
	};
	struct ibv_qp_attr attr = patient();
	struct wire_packet request;
	unsigned int i;
	bool ok;

	attr.max_dest_rd_atomic = 1;
	lone_start(attr);
	growths_begin(growths, ARRAY_SIZE(growths));
	ok = same("the syndrome behind a gap", asked(RC_SEND_ONLY, 1), WIRE_NAK_SEQUENCE) &&
	     same("the syndrome without a receive", asked(RC_SEND_ONLY, 0), WIRE_RNR | attr.min_rnr_timer);
	post_receive(a, 11);
	request = request_of(RC_SEND_ONLY, 0);
	wire_send(&wire, &request, 1);
	ok = ok && received(a, 11, IBV_WC_SUCCESS) && same("the syndrome", asked(RC_SEND_ONLY, 0), WIRE_ACK);
	for (i = 1; i <= 2; i++) {
		request = request_of(RC_READ_REQUEST, i);
		wire_send(&wire, &request, 1);
		ok = ok && is_answered(&request);
	}
	/* The second one has taken the place of the first. */
	request = request_of(RC_READ_REQUEST, 1);
	wire_drain(&wire);
	wire_send(&wire, &request, 1);
	ok = ok && wire_quiet() && growths_are(growths, ARRAY_SIZE(growths));
	return finish() && ok;
}

/* As ibv_query_port_speed() of rdma-core 62. */
#define METHOD_QUERY_PORT_SPEED (UVERBS_METHOD_QUERY_GID_ENTRY + 1)

/* A veth pair's is 10 Gb/s, in units of 100 Mb/s. */
static bool run_port_speed(void)
{
	uint64_t speed = 0;
	struct ib_uverbs_attr attributes[] = {
		{ 0, sizeof(uint64_t), .data = PORT },
		{ 1, sizeof(speed), .data = (uintptr_t)&speed },
	};
	int error = command_method(a->device.context, UVERBS_OBJECT_DEVICE, METHOD_QUERY_PORT_SPEED, attributes,
				   ARRAY_SIZE(attributes));

	if (error || speed != 100)
		ksft_print_msg("%s, %lu\n", strerror(error), speed);
	return !error && speed == 100;
}

static const struct row rows[] = {
	{ "attributes: the port's speed", run_port_speed },
	{ "attributes: RC: what was set is read", run_attributes_rc },
	{ "attributes: UD: what was set is read", run_attributes_ud },
	{ "attributes: PSNs go on with each packet", run_psns },
	{ "attributes: out of range, or not in this state", run_out_of_range },
	{ "attributes: a path MTU above the port's", run_path_mtu },
	{ "attributes: the current state must be the one given", run_current_state },
	{ "SQD: what is under way is waited for, the rest held", run_drain },
	{ "SQD: what is lost is sent again", run_drain_repeats },
	{ "SQD: drained at once, told each time it is asked for", run_drained_already },
	{ "SQD: datagrams", run_drain_datagrams },
	{ "SQD: an error while it drains", run_drain_fails },
	{ "SQD: what is held is flushed", run_held_are_flushed },
	{ "SQD: another path", run_changed_path },
	{ "SQD: another path, UC", run_changed_path_uc },
	{ "SQD: another timeout and retry count", run_changed_retries },
	{ "SQD: another RNR retry count", run_changed_rnr_retries },
	{ "SQD: another RNR timer, more READs from the peer", run_changed_responder },
	{ "SQD: fewer READs and atomics", run_changed_reads },
	{ "reads: no more outstanding than max_rd_atomic", run_requester_limit },
	{ "reads: none asked for with max_rd_atomic 0", run_no_reads_asked },
	{ "reads: none taken with max_dest_rd_atomic 0", run_no_reads },
	{ "reads: one more than max_dest_rd_atomic", run_responder_limit },
	{ "reads: one more than a max_dest_rd_atomic of three", run_responder_limit_rounded },
	{ "reads: a receive fails behind a long one", run_fails_behind_read },
	{ "reads: many, one at a time", run_limits_fit },
	{ "SQE: UC", .run_with = run_sqe, IBV_QPT_UC },
	{ "SQE: UD", .run_with = run_sqe, IBV_QPT_UD },
	{ "SQE: what follows is flushed", run_sqe_list },
	{ "SQE: what is flushed on the way to RTS is told", run_sqe_notifies },
	{ "SQE: not RC", run_rc_has_no_sqe },
	{ "event: COMM_EST, RC", .run_with = run_established, IBV_QPT_RC },
	{ "event: COMM_EST, UC", .run_with = run_established, IBV_QPT_UC },
	{ "event: no COMM_EST in RTS", run_established_late },
	{ "event: QP_REQ_ERR", run_request_error },
	{ "event: QP_ACCESS_ERR", run_access_error },
	{ "event: CQ_ERR, and QP_FATAL of its queue pairs", run_lost_completions },
	{ "event: SRQ_ERR, and QP_FATAL of its queue pairs", run_srq_error },
	{ "status: LOC_ACCESS_ERR", run_local_access },
	{ "status: REM_INV_REQ_ERR of a receive", run_interrupted_send },
	{ "status: BAD_RESP_ERR", run_bad_response },
	{ "status: LOC_LEN_ERR of a READ", run_short_response },
	{ "status: each NAK", run_naks },
	{ "dropped: what comes for a queue pair in RESET, INIT or ERR", run_silent_states },
	{ "end: ERR: what was executed is acknowledged before", .run_with = run_acknowledged, IBV_QPS_ERR },
	{ "end: RESET: what was executed is acknowledged before", .run_with = run_acknowledged, IBV_QPS_RESET },
	{ "end: destroyed: what was executed is acknowledged before", .run_with = run_acknowledged, DESTROYED },
	{ "counted: what a requester hears of a loss, and repeats", run_counted_requester },
	{ "counted: what a responder refuses, and what it gets again", run_counted_responder },
};

/* --- Events of ports and devices --------------------------------------------------------- */

static int watch(const char *name)
{
	bool qp_lost = false, device_lost = false;
	struct ibv_async_event event;
	struct pollfd readable = { .events = POLLIN };

	setvbuf(stdout, NULL, _IOLBF, 0);
	device_open(&a->device, name, 4);
	readable.fd = a->device.context->async_fd;
	a->send_cq = cq_make(&a->device, 16);
	a->recv_cq = a->send_cq;
	a->qp = make(a, IBV_QPT_RC);
	connect_to(a->qp, usual(a, a, 0x123456), IBV_QPS_RTS);
	printf("ready\n");
	for (;;) {
		/* Work delivers both events of the end, in either order. Then nothing may come twice. */
		if (qp_lost || device_lost) {
			int milliseconds = qp_lost && device_lost ? 1000 : 20000;

			if (poll(&readable, 1, milliseconds) == 0)
				return 0;
		}
		if (ibv_get_async_event(a->device.context, &event))
			die("ibv_get_async_event: %s", strerror(errno));
		switch (event.event_type) {
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_GID_CHANGE:
			printf("event %s of port %d\n", ibv_event_type_str(event.event_type),
			       event.element.port_num);
			break;
		default:
			printf("event %s%s\n", ibv_event_type_str(event.event_type),
			       event.element.qp == a->qp ? " of the queue pair" : "");
		}
		qp_lost |= event.event_type == IBV_EVENT_QP_FATAL;
		device_lost |= event.event_type == IBV_EVENT_DEVICE_FATAL;
		ibv_ack_async_event(&event);
	}
}

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];

		device_open(&end->device, names[i], family);
		region_make(&end->region, &end->device, SIZE, ACCESS);
		end->send_cq = cq_make(&end->device, 64);
		end->recv_cq = cq_make(&end->device, 64);
	}
	wire_open(&wire, "n2", netdev_of(2), &b->device.gid, &a->device.gid);
}

static void end(void)
{
	int i;

	wire_close(&wire);
	for (i = 0; i < 2; i++) {
		cq_free(ends[i].send_cq);
		cq_free(ends[i].recv_cq);
		region_free(&ends[i].region);
		device_close(&ends[i].device);
	}
}

static bool take_option(int option, const char *argument)
{
	exit(watch(argument));
}

const struct test test = { ROWS(rows), .options = "w:", .option = take_option, .begin = begin, .end = end };
