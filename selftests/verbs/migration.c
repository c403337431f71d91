// SPDX-License-Identifier: GPL-2.0
/*
 * Automatic path migration between two devices with two addresses each: the states and what may be asked of
 * them, migration by request of either end and because the path is dead or has a gap, and what becomes of the data.
 *
 * migration [-r] [-c COMMAND] [-o COMMAND] [-m COMMAND] DEVICE DEVICE INDEX INDEX
 *	INDEX	of the GID of the second address of each device
 *	-c	cuts the path between the first addresses; -o only from the first device to the second; -m mends it
 *	-r	only shows that the kernel refuses alternate paths
 */

#include <poll.h>

#include "exchange.h"
#include "test.h"
#include "wire.h"

#define LENGTH 5000
#define MTU 1024
#define SLOTS 32
#define SIZE (SLOTS * LENGTH)
#define DEPTH 64
#define WAIT_MS 20000
#define QUIET_MS 200
#define ALT_TIMEOUT 15

/* An address of a device. */
struct address {
	int index;
	union ibv_gid gid;
};

enum { FIRST, SECOND, SIX, ADDRESSES };

/* Of each device; and a queue pair of each. */
static struct address addresses[2][ADDRESSES];
static struct ibv_qp *qps[2];
static const char *cut_command, *cut_one_way_command, *mend_command;
/* Half a second until a path is given up. */
static const struct patience brief = { .timeout = 14, .retries = 3, .rnr_retries = 7 };
/* Waits for ever, and the first gap uses up the last retry. */
static const struct patience once = { .timeout = 0, .retries = 0, .rnr_retries = 7 };
/* Of the alternate paths. */
static uint8_t alt_timeout = ALT_TIMEOUT;

static void make(enum ibv_qp_type type)
{
	struct depth depth = { .send = DEPTH, .receive = DEPTH, .sges = 1 };
	int i;

	for (i = 0; i < 2; i++) {
		region_fill(&sides[i].source);
		region_fill(&sides[i].sink);
		qps[i] = qp_make(&devices[i], type, sides[i].send_cq, sides[i].recv_cq, depth, NULL);
	}
}

static struct ibv_ah_attr way(const struct address *source, const struct address *target)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT,
		.grh = { .dgid = target->gid, .sgid_index = source->index, .hop_limit = 64 },
	};
}

static void connect_uc(int i, uint32_t psn)
{
	int error = qp_init(qps[i], IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0);

	if (error)
		die("UC: RESET to INIT: %s", strerror(error));
	qp_ready_connected(&devices[i], qps[i], &devices[!i], qps[!i]->qp_num, IBV_MTU_1024, brief, psn, psn);
}

static void start_with(enum ibv_qp_type type, struct patience patience)
{
	make(type);
	if (type == IBV_QPT_UC) {
		connect_uc(0, 0xfffffe);
		connect_uc(1, 0xfffffe);
		return;
	}
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, patience);
}

static void start(enum ibv_qp_type type)
{
	start_with(type, brief);
}

#define MIGRATED_EVENT (1u << IBV_EVENT_PATH_MIG)
#define REFUSED_EVENT (1u << IBV_EVENT_PATH_MIG_ERR)
#define TWICE (1u << 31)

/* The types of events that came within some time for the queue pair of an end, a bit each, and TWICE. */
static uint32_t events(int i, uint32_t wanted)
{
	struct ibv_context *context = devices[i].context;
	struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	uint32_t seen = 0;

	while (poll(&ready, 1, (seen & wanted) == wanted ? quiet_ms(QUIET_MS) : patience_ms(WAIT_MS)) > 0) {
		if (ibv_get_async_event(context, &event))
			die("ibv_get_async_event: %s", strerror(errno));
		if (event.element.qp == qps[i]) {
			if (seen & 1u << event.event_type)
				seen |= TWICE;
			seen |= 1u << event.event_type;
		}
		ibv_ack_async_event(&event);
	}
	return seen;
}

/* That those are the events of an end since the last time, and no others. */
static bool told(int i, uint32_t wanted)
{
	uint32_t seen = events(i, wanted);

	if (seen == wanted)
		return true;
	ksft_print_msg("%s: events %#x instead of %#x\n", devices[i].name, seen, wanted);
	return false;
}

static bool quiet(int i)
{
	return told(i, 0);
}

static struct ibv_sge piece(const struct region *region, size_t slot)
{
	return region_sge(region, slot * LENGTH, LENGTH);
}

/* A SEND, WRITE or READ from an end, of the slot of one region into that of the other; READs go the other way. */
static void post(int i, enum ibv_wr_opcode opcode, size_t slot)
{
	bool reads = opcode == IBV_WR_RDMA_READ;
	struct side *from = &sides[reads ? !i : i], *to = &sides[reads ? i : !i];
	struct ibv_sge sge = piece(reads ? &to->sink : &from->source, slot);
	struct region *remote = reads ? &from->source : &to->sink;
	struct ibv_send_wr wr = {
		.wr_id = slot,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {
			.remote_addr = (uintptr_t)remote->memory + slot * LENGTH,
			.rkey = remote->mr->rkey,
		},
	};

	if (opcode == IBV_WR_SEND) {
		struct ibv_sge into = piece(&to->sink, slot);
		struct ibv_recv_wr receive = { .wr_id = slot, .sg_list = &into, .num_sge = 1 };

		recv_post(qps[!i], &receive);
	}
	memcpy(to->sink.expected + slot * LENGTH, from->source.memory + slot * LENGTH, LENGTH);
	send_post(qps[i], &wr);
}

/* So many successes, in the order of the slots from `slot` on. */
static bool succeeds(struct ibv_cq *cq, const char *what, size_t slot, size_t count)
{
	struct ibv_wc wc;
	size_t i;

	for (i = slot; i < slot + count; i++) {
		if (!cq_poll(cq, &wc, WAIT_MS)) {
			ksft_print_msg("%s: %zu does not complete\n", what, i);
			return false;
		}
		if (wc.wr_id != i || wc.status != IBV_WC_SUCCESS) {
			ksft_print_msg("%s: %llu, %s instead of %zu\n", what, (unsigned long long)wc.wr_id,
				       ibv_wc_status_str(wc.status), i);
			return false;
		}
	}
	return true;
}

static bool bytes_right(void)
{
	bool ok = region_check(&sides[0].sink, "sink 0");

	return region_check(&sides[1].sink, "sink 1") && ok;
}

/* A message from an end, with its bytes. */
static bool sends(int i)
{
	static size_t slot;

	slot = (slot + 1) % SLOTS;
	post(i, IBV_WR_SEND, slot);
	return succeeds(sides[i].send_cq, "send", slot, 1) &&
	       succeeds(sides[!i].recv_cq, "receive", slot, 1) && bytes_right();
}

/* One of each end. */
static bool talk(void)
{
	bool ok = sends(0);

	return sends(1) && ok;
}

static struct ibv_qp_attr query(int i)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int error = ibv_query_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_ALT_PATH |
				 IBV_QP_PATH_MIG_STATE | IBV_QP_TIMEOUT, &init);

	if (error)
		die("ibv_query_qp: %s", strerror(error));
	return attr;
}

static bool in_state(int i, enum ibv_mig_state state)
{
	enum ibv_mig_state now = query(i).path_mig_state;

	if (now == state)
		return true;
	ksft_print_msg("%s: in state %d instead of %d\n", devices[i].name, now, state);
	return false;
}

static bool both_in(enum ibv_mig_state state)
{
	bool ok = in_state(0, state);

	return in_state(1, state) && ok;
}

/* That an address vector leads from that address of an end to that one of its peer. */
static bool leads(int i, const struct ibv_ah_attr *attr, int address)
{
	if (attr->grh.sgid_index == addresses[i][address].index && attr->is_global &&
	    !memcmp(&attr->grh.dgid, &addresses[!i][address].gid, sizeof(attr->grh.dgid)))
		return true;
	ksft_print_msg("%s: an address vector from GID %d, not between the addresses %d\n",
		       devices[i].name, attr->grh.sgid_index, address);
	return false;
}

static struct ibv_qp_attr alternate(int i, int address)
{
	return (struct ibv_qp_attr){
		.alt_ah_attr = way(&addresses[i][address], &addresses[!i][address]),
		.alt_port_num = PORT,
		.alt_timeout = alt_timeout,
		.path_mig_state = IBV_MIG_REARM,
	};
}

static void rearm(int i, int address)
{
	struct ibv_qp_attr attr = alternate(i, address);
	int error = ibv_modify_qp(qps[i], &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);

	if (error)
		die("%s: loading an alternate path: %s", devices[i].name, strerror(error));
}

/* Both ends armed, with the path between those addresses. */
static bool arm(int address)
{
	rearm(0, address);
	rearm(1, address);
	return talk() && both_in(IBV_MIG_ARMED) && quiet(0) && quiet(1);
}

static int request(int i, enum ibv_mig_state state)
{
	struct ibv_qp_attr attr = { .path_mig_state = state };

	return ibv_modify_qp(qps[i], &attr, IBV_QP_PATH_MIG_STATE);
}

/* Both have migrated to the path between those addresses, and have been told once. */
static bool migrated(int address)
{
	bool ok = true;
	int i;

	for (i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = query(i);

		ok &= in_state(i, IBV_MIG_MIGRATED) && leads(i, &attr.ah_attr, address);
		if (attr.timeout != alt_timeout || attr.alt_port_num || attr.alt_timeout ||
		    attr.alt_ah_attr.is_global) {
			ksft_print_msg("%s: timeout %u, alternate port %u, timeout %u\n",
				       devices[i].name, attr.timeout, attr.alt_port_num,
				       attr.alt_timeout);
			ok = false;
		}
		ok &= told(i, MIGRATED_EVENT);
	}
	return ok;
}

static void shell(const char *command)
{
	if (system(command))
		die("failed: %s", command);
}

static bool run_states(void)
{
	struct ibv_qp_attr attr, load;
	bool ok;
	int i;

	start(IBV_QPT_RC);
	ok = both_in(IBV_MIG_MIGRATED) && talk();
	load = alternate(0, SECOND);
	if (ibv_modify_qp(qps[0], &load, IBV_QP_ALT_PATH))
		die("loading an alternate path");
	attr = query(0);
	ok &= in_state(0, IBV_MIG_MIGRATED) && leads(0, &attr.ah_attr, FIRST) &&
	      leads(0, &attr.alt_ah_attr, SECOND) && attr.alt_port_num == PORT &&
	      attr.alt_timeout == ALT_TIMEOUT && attr.alt_pkey_index == 0 &&
	      attr.timeout == brief.timeout;
	ok &= !request(0, IBV_MIG_REARM) && in_state(0, IBV_MIG_REARM);
	/* The peer does not rearm yet. */
	ok &= talk() && in_state(0, IBV_MIG_REARM);
	rearm(1, SECOND);
	ok &= in_state(1, IBV_MIG_REARM) && sends(1);
	/* Its message, and the answer to it. */
	ok &= both_in(IBV_MIG_ARMED) && talk();
	for (i = 0; i < 2; i++) {
		attr = query(i);
		ok &= leads(i, &attr.ah_attr, FIRST) && leads(i, &attr.alt_ah_attr, SECOND) && quiet(i);
	}
	qps_free(qps);
	return ok;
}

static bool refuses(int i, struct ibv_qp_attr attr, int mask, int expected, const char *what)
{
	enum ibv_mig_state before = query(i).path_mig_state;
	int error = ibv_modify_qp(qps[i], &attr, mask);

	if (error != expected) {
		ksft_print_msg("%s: %s instead of %s\n", what, strerror(error), strerror(expected));
		return false;
	}
	return in_state(i, before);
}

static bool refuses_state(int i, int state, const char *what)
{
	struct ibv_qp_attr attr = { .path_mig_state = state };

	return refuses(i, attr, IBV_QP_PATH_MIG_STATE, EINVAL, what);
}

/* What is refused in each state, with EINVAL, and changes nothing. */
static bool run_refused(void)
{
	struct ibv_qp_attr attr;
	bool ok;

	start(IBV_QPT_RC);
	ok = refuses_state(0, IBV_MIG_REARM, "to REARM without an alternate path");
	ok &= refuses_state(0, IBV_MIG_ARMED, "from MIGRATED to ARMED");
	ok &= refuses_state(0, 3, "to a state that is none");
	attr = alternate(0, SECOND);
	attr.alt_port_num = attr.alt_ah_attr.port_num = 2;
	ok &= refuses(0, attr, IBV_QP_ALT_PATH, EINVAL, "another port");
	attr = alternate(0, SECOND);
	attr.alt_pkey_index = 1;
	ok &= refuses(0, attr, IBV_QP_ALT_PATH, EINVAL, "another partition");
	attr = alternate(0, SECOND);
	attr.alt_timeout = 32;
	ok &= refuses(0, attr, IBV_QP_ALT_PATH, EINVAL, "a timeout of 32");
	attr = alternate(0, SECOND);
	attr.alt_ah_attr.grh.sgid_index = 200;
	/* As the core answers for the primary path, too. */
	ok &= refuses(0, attr, IBV_QP_ALT_PATH, ENODATA, "a source that is not there");
	attr = alternate(0, SECOND);
	attr.path_mig_state = IBV_MIG_ARMED;
	ok &= refuses(0, attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE, EINVAL, "a path, and ARMED");
	ok &= query(0).alt_port_num == 0;
	rearm(0, SECOND);
	ok &= refuses_state(0, IBV_MIG_MIGRATED, "from REARM to MIGRATED");
	ok &= refuses_state(0, IBV_MIG_ARMED, "from REARM to ARMED");
	rearm(0, SECOND);
	rearm(1, SECOND);
	ok &= talk() && both_in(IBV_MIG_ARMED);
	ok &= refuses_state(0, IBV_MIG_REARM, "from ARMED to REARM");
	ok &= refuses_state(0, IBV_MIG_ARMED, "from ARMED to ARMED");
	attr = alternate(0, SIX);
	ok &= refuses(0, attr, IBV_QP_ALT_PATH, EINVAL, "a path while ARMED");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD };
	if (ibv_modify_qp(qps[0], &attr, IBV_QP_STATE))
		die("RTS to SQD");
	attr = (struct ibv_qp_attr){ .ah_attr = way(&addresses[0][SIX], &addresses[1][SIX]) };
	ok &= refuses(0, attr, IBV_QP_AV, EINVAL, "another primary path while ARMED");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	if (ibv_modify_qp(qps[0], &attr, IBV_QP_STATE))
		die("SQD to RTS");
	ok &= talk() && both_in(IBV_MIG_ARMED) && quiet(0) && quiet(1);
	qps_free(qps);
	return ok;
}

static bool run_datagrams_refuse(void)
{
	struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	struct ibv_qp *qp = qp_make(&devices[0], IBV_QPT_UD, sides[0].send_cq, sides[0].recv_cq, depth, NULL);
	struct ibv_qp_attr attr = alternate(0, SECOND);
	int path, state;

	if (qp_init(qp, 0, 1))
		die("UD: RESET to INIT");
	qp_ready_ud(qp);
	path = ibv_modify_qp(qp, &attr, IBV_QP_ALT_PATH);
	state = ibv_modify_qp(qp, &attr, IBV_QP_PATH_MIG_STATE);
	qp_free(qp);
	return path == EINVAL && state == EINVAL;
}

/* With the alternate path loaded on the way to RTR, and armed on the way to RTS. */
static bool run_early(void)
{
	struct ibv_qp_attr attr;
	bool ok = true;
	int i;

	make(IBV_QPT_UC);
	for (i = 0; i < 2; i++) {
		attr = alternate(i, SECOND);
		attr.qp_state = IBV_QPS_RTR;
		attr.path_mtu = IBV_MTU_1024;
		attr.dest_qp_num = qps[!i]->qp_num;
		attr.ah_attr = way(&addresses[i][FIRST], &addresses[!i][FIRST]);
		if (qp_init(qps[i], IBV_ACCESS_LOCAL_WRITE, 0) ||
		    ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_ALT_PATH))
			die("INIT to RTR with an alternate path");
		ok &= in_state(i, IBV_MIG_MIGRATED);
		attr.qp_state = IBV_QPS_RTS;
		if (ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_PATH_MIG_STATE))
			die("RTR to RTS, to REARM");
		ok &= in_state(i, IBV_MIG_REARM);
	}
	ok &= talk() && both_in(IBV_MIG_ARMED);
	qps_free(qps);
	return ok;
}

/* There and back again, by request of one end, with a message of that end or of the other next. */
static bool run_request(enum ibv_qp_type type, int who, int first_to_send, int address)
{
	bool ok;

	start(type);
	ok = arm(address) && !request(who, IBV_MIG_MIGRATED) && in_state(who, IBV_MIG_MIGRATED);
	ok = ok && sends(first_to_send) && talk() && migrated(address) && talk();
	/* It is used up. */
	ok = ok && refuses_state(who, IBV_MIG_REARM, "to REARM without another path");
	ok = ok && arm(FIRST) && !request(!who, IBV_MIG_MIGRATED) && sends(!who) && talk() &&
	     migrated(FIRST) && talk();
	qps_free(qps);
	return ok;
}

/* The ends send these in turn. */
static enum ibv_wr_opcode opcode_of(size_t slot)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	return opcodes[slot / 2 % 3];
}

/* All SENDs of an end have been received, in order, each once. */
static bool all_received(int i)
{
	struct ibv_cq *cq = sides[!i].recv_cq;
	size_t slot;

	for (slot = i; slot < SLOTS; slot += 2) {
		if (opcode_of(slot) == IBV_WR_SEND && !succeeds(cq, "receive", slot, 1))
			return false;
	}
	return cq_quiet(cq, 0);
}

/* Both ends send all that they can while something happens in the middle. */
static bool run_traffic(void (*happens)(void), int address)
{
	size_t slot, sent[2] = { 0 };
	bool ok;
	int i;

	start(IBV_QPT_RC);
	ok = arm(address);
	for (i = 0; i < 2; i++) {
		region_fill(&sides[i].source);
		region_fill(&sides[i].sink);
	}
	/* An end's READs take from where the other end's messages do not go. */
	for (slot = 0; ok && slot < SLOTS; slot++) {
		i = slot % 2;
		if (slot == SLOTS / 2)
			happens();
		post(i, opcode_of(slot), slot);
		sent[i]++;
	}
	for (i = 0; ok && i < 2; i++) {
		struct ibv_wc wc;
		size_t done;

		for (done = 0; ok && done < sent[i]; done++) {
			ok = cq_poll(sides[i].send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS &&
			     wc.wr_id == 2 * done + i;
			if (!ok)
				ksft_print_msg("%s: completion %zu is missing or wrong: %s\n",
					       devices[i].name, done, ibv_wc_status_str(wc.status));
		}
	}
	for (i = 0; ok && i < 2; i++)
		ok = all_received(i);
	ok = ok && bytes_right() && migrated(address) && talk();
	qps_free(qps);
	return ok;
}

static void ask(void)
{
	if (request(0, IBV_MIG_MIGRATED))
		die("to MIGRATED");
}

static void cut(void)
{
	shell(cut_command);
}

static bool run_dead_path(int address)
{
	bool ok = run_traffic(cut, address);

	shell(mend_command);
	return ok;
}

/*
 * The test sends a READ response over the first path, whose predecessor is missing. Requests over that path are lost,
 * and no timer runs: so nothing else comes unless the READ is asked for again over the other path at once.
 */
static bool run_gap(void)
{
	struct wire_packet request, response = {
		.opcode = RC_READ_RESPONSE_MIDDLE,
		.payload = MTU,
	};
	struct wire wire;
	bool ok;

	alt_timeout = once.timeout;
	start_with(IBV_QPT_RC, once);
	ok = arm(SECOND);
	/* So is the payload of that response. What is placed before its turn is not asked for again. */
	memset(sides[1].source.memory + MTU, 0, MTU);
	shell(cut_one_way_command);
	wire_open(&wire, "n2", netdev_of(2), &addresses[1][FIRST].gid, &addresses[0][FIRST].gid);
	post(0, IBV_WR_RDMA_READ, 0);
	if (!wire_receive(&wire, qps[1]->qp_num, &request, WAIT_MS) || request.opcode != RC_READ_REQUEST) {
		ksft_print_msg("no READ request over the first path\n");
		ok = false;
	}
	response.qpn = qps[0]->qp_num;
	response.psn = request.psn + 1;
	if (ok)
		wire_send(&wire, &response, 1);
	ok = ok && succeeds(sides[0].send_cq, "read", 0, 1) && bytes_right() && migrated(SECOND) && talk();
	wire_close(&wire);
	shell(mend_command);
	qps_free(qps);
	alt_timeout = ALT_TIMEOUT;
	return ok;
}

/* One that has an alternate path but is not armed ends as ever. */
static bool run_dead_unarmed(void)
{
	struct ibv_wc wc;
	bool ok;

	start(IBV_QPT_RC);
	rearm(0, SECOND);
	ok = talk() && in_state(0, IBV_MIG_REARM);
	cut();
	post(0, IBV_WR_RDMA_WRITE, 0);
	ok = ok && cq_poll(sides[0].send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_RETRY_EXC_ERR &&
	     quiet(0) && quiet(1);
	shell(mend_command);
	qps_free(qps);
	return ok;
}

/* The ends do not mean the same alternate path: the peer is told, once, and stays where it is. */
static bool run_disagreement(void)
{
	struct ibv_wc wc;
	bool ok;

	start(IBV_QPT_RC);
	rearm(0, SECOND);
	rearm(1, SIX);
	ok = talk() && both_in(IBV_MIG_ARMED) && !request(0, IBV_MIG_MIGRATED);
	post(0, IBV_WR_RDMA_WRITE, 0);
	ok = ok && cq_poll(sides[0].send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_RETRY_EXC_ERR;
	ok = ok && told(0, MIGRATED_EVENT) && told(1, REFUSED_EVENT) && in_state(1, IBV_MIG_ARMED);
	qps_free(qps);
	return ok;
}

/* RESET forgets all of it. */
static bool run_reset(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	bool ok;

	start(IBV_QPT_RC);
	ok = arm(SECOND);
	if (ibv_modify_qp(qps[0], &attr, IBV_QP_STATE))
		die("to RESET");
	attr = query(0);
	ok &= attr.path_mig_state == IBV_MIG_MIGRATED && !attr.alt_port_num && !attr.alt_ah_attr.is_global;
	qps_free(qps);
	return ok;
}

/* If this fails, the kernel has learnt it: then the device should say so (IBV_DEVICE_AUTO_PATH_MIG). */
static bool run_core_refuses(void)
{
	struct ibv_qp_attr attr;
	bool ok;

	start(IBV_QPT_RC);
	attr = alternate(0, SECOND);
	ok = refuses(0, attr, IBV_QP_ALT_PATH, EINVAL, "an alternate path") &&
	     !(devices[0].attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
	ok &= refuses_state(0, IBV_MIG_REARM, "to REARM") & refuses_state(0, IBV_MIG_ARMED, "to ARMED");
	ok &= !request(0, IBV_MIG_MIGRATED) && talk();
	qps_free(qps);
	return ok;
}

static void addresses_find(int i, int index)
{
	struct device six;

	device_open(&six, devices[i].name, 6);
	addresses[i][SIX] = (struct address){ six.gid_index, six.gid };
	device_close(&six);
	addresses[i][FIRST] = (struct address){ devices[i].gid_index, devices[i].gid };
	addresses[i][SECOND].index = index;
	if (ibv_query_gid(devices[i].context, PORT, index, &addresses[i][SECOND].gid))
		die("%s: no GID %d", devices[i].name, index);
}

static bool run_by_request(void)
{
	return run_request(IBV_QPT_RC, 0, 0, SECOND);
}

static bool run_by_request_v6(void)
{
	return run_request(IBV_QPT_RC, 0, 1, SIX);
}

static bool run_by_request_uc(void)
{
	return run_request(IBV_QPT_UC, 1, 1, SECOND);
}

static bool run_midst(void)
{
	return run_traffic(ask, SECOND);
}

static const struct row refused_row = { "the kernel refuses alternate paths on RoCE", run_core_refuses };

static const struct row rows[] = {
	{ "states, and what is read back", run_states },
	{ "what each state refuses", run_refused },
	{ "datagrams have no alternate path", run_datagrams_refuse },
	{ "loaded before RTR, armed with RTS", run_early },
	{ "by request, and back", run_by_request },
	{ "by request, to IPv6; the peer sends before it knows", run_by_request_v6 },
	{ "by request, and back, UC", run_by_request_uc },
	{ "by request, in the midst of messages", run_midst },
	{ "a dead path, in the midst of messages", .run_with = run_dead_path, SECOND },
	{ "a dead path, to IPv6", .run_with = run_dead_path, SIX },
	{ "a gap at the last retry", run_gap },
	{ "a dead path of a queue pair that is not armed", run_dead_unarmed },
	{ "a peer that migrates elsewhere is refused", run_disagreement },
	{ "RESET forgets the alternate path", run_reset },
};

static bool is_refused;

static void add(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rows) && !is_refused; i++)
		row_add(rows[i]);
	if (is_refused)
		row_add(refused_row);
}

static void begin(char **operands)
{
	int i;

	for (i = 0; i < 2; i++)
		addresses_find(i, atoi(operands[2 + i]));
	sides_make(devices, SIZE, 2 * DEPTH);
}

static bool take_option(int option, const char *argument)
{
	switch (option) {
	case 'r': is_refused = true; break;
	case 'c': cut_command = argument; break;
	case 'o': cut_one_way_command = argument; break;
	case 'm': mend_command = argument; break;
	}
	return true;
}

const struct test test = {
	.operands = "DEVICE DEVICE INDEX INDEX", .options = "rc:o:m:", .option = take_option, .add = add,
	.with_devices = true, .begin = begin, .end = sides_free,
};
