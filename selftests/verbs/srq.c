// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: what several queue pairs take from one of them, byte by
 * byte; its events; its sizes; what is refused.
 */

#include <poll.h>
#include <pthread.h>

#include "test.h"

#define PAIRS 4
#define SLOTS 64
#define SLOT 32768
#define SOURCE 65536
#define QKEY 0x11223344
#define WAIT_MS 20000
#define QUIET_MS 200
#define ACCESS IBV_ACCESS_LOCAL_WRITE

/* One that sends and one that receives, the latter from a shared queue. */
struct pair {
	enum ibv_qp_type type;
	struct ibv_qp *from;
	struct ibv_qp *to;
	/* Messages sent, and messages received. */
	uint32_t sent;
	uint32_t received;
};

struct message {
	uint32_t pair;
	uint32_t number;
	uint32_t offset;
	uint32_t length;
};

static struct device *const a = &devices[0], *const b = &devices[1];
static struct region source, target;
static struct ibv_cq *send_cq, *recv_cq, *idle_cq;
static struct ibv_ah *ah;
static struct ibv_srq *srq;
static struct pair pairs[PAIRS];
static unsigned int pair_count;
static struct patience patience = PATIENT;
static struct message messages[256];
static uint32_t message_count;

static struct ibv_srq *try_srq(struct ibv_pd *pd, uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = max_wr, .max_sge = max_sge } };
	struct ibv_srq *made = ibv_create_srq(pd, &attr);

	if (made && (attr.attr.max_wr < max_wr || attr.attr.max_sge < max_sge))
		die("ibv_create_srq gives less than was asked for");
	return made;
}

static struct ibv_qp *qp_on_srq(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = idle_cq,
		.recv_cq = recv_cq,
		.srq = srq,
		.qp_type = type,
		.cap = { .max_send_wr = 16, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(b->pd, &attr);

	if (!qp)
		die("ibv_create_qp with a shared queue: %s", strerror(errno));
	return qp;
}

static struct pair *pair_make(enum ibv_qp_type type, struct patience how)
{
	struct depth depth = { .send = SLOTS, .receive = 1, .sges = 2 };
	struct pair *pair = &pairs[pair_count++];

	*pair = (struct pair){ .type = type };
	pair->from = qp_make(a, type, send_cq, send_cq, depth, NULL);
	pair->to = qp_on_srq(type);
	if (type != IBV_QPT_UD) {
		qp_connect(a, pair->from, b, pair->to, IBV_MTU_1024, how);
		return pair;
	}
	if (qp_init(pair->from, 0, QKEY) || qp_init(pair->to, 0, QKEY))
		die("UD: RESET to INIT: %s", strerror(errno));
	qp_ready_ud(pair->from);
	qp_ready_ud(pair->to);
	return pair;
}

/* A shared queue in that domain, and queue pairs of those types on it. */
static void start(struct ibv_pd *pd, unsigned int rc, unsigned int ud)
{
	srq = try_srq(pd, SLOTS, 2);
	if (!srq)
		die("ibv_create_srq: %s", strerror(errno));
	region_fill(&target);
	while (rc--)
		pair_make(IBV_QPT_RC, patience);
	while (ud--)
		pair_make(IBV_QPT_UD, patience);
}

static void pair_free(struct pair *pair)
{
	qp_free(pair->to);
	qp_free(pair->from);
	pair->to = pair->from = NULL;
}

static bool finish(void)
{
	while (pair_count)
		pair_free(&pairs[--pair_count]);
	if (srq && ibv_destroy_srq(srq))
		die("ibv_destroy_srq: %s", strerror(errno));
	srq = NULL;
	cq_drain(send_cq);
	cq_drain(recv_cq);
	message_count = 0;
	return region_check(&target, "the receives' memory");
}

static int try_receive(uint64_t id, uint32_t length, uint32_t lkey)
{
	/* In two pieces. */
	struct ibv_sge sges[2] = {
		{ .addr = (uintptr_t)target.memory + id % SLOTS * SLOT, .length = length / 3,
		  .lkey = lkey },
		{ .addr = (uintptr_t)target.memory + id % SLOTS * SLOT + length / 3,
		  .length = length - length / 3, .lkey = lkey },
	};
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sges, .num_sge = 2 };
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void receive_of(uint64_t id, uint32_t length)
{
	int error = try_receive(id, length, target.mr->lkey);

	if (error)
		die("ibv_post_srq_recv: %s", strerror(error));
}

static void receive(uint64_t id)
{
	receive_of(id, SLOT);
}

static void post(struct pair *pair, struct ibv_sge *sges, int count, uint64_t id)
{
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = id,
		.sg_list = sges,
		.num_sge = count,
	};

	if (pair->type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = pair->to->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	send_post(pair->from, &wr);
}

static void send_of(struct pair *pair, uint32_t length)
{
	uint32_t id = message_count++ % 256;
	struct message *message = &messages[id];
	struct ibv_sge sge;

	*message = (struct message){
		.pair = pair - pairs,
		.number = pair->sent++,
		.offset = random_between(0, SOURCE - length),
		.length = length,
	};
	sge = region_sge(&source, message->offset, length);
	post(pair, &sge, 1, id);
}

/* Datagrams are of one packet, connected messages of up to 32. */
static void send_some(struct pair *pair)
{
	send_of(pair, random_between(0, pair->type == IBV_QPT_UD ? 1024 : SLOT));
}

static bool sent(enum ibv_wc_status status)
{
	return cq_expect(send_cq, "a send", ANY_REQUEST, status, WAIT_MS);
}

/* The next receive is complete: it holds the message that its queue pair sent next. */
static bool received(uint64_t *id)
{
	uint32_t grh;
	struct message *message;
	struct pair *pair;
	uint8_t *memory;
	struct ibv_wc wc;

	if (!cq_poll(recv_cq, &wc, WAIT_MS)) {
		ksft_print_msg("a receive does not complete\n");
		return false;
	}
	*id = wc.wr_id;
	if (wc.status != IBV_WC_SUCCESS || !(wc.wc_flags & IBV_WC_WITH_IMM)) {
		ksft_print_msg("receive %llu: %s, flags %#x\n", (unsigned long long)wc.wr_id,
			       ibv_wc_status_str(wc.status), wc.wc_flags);
		return false;
	}
	message = &messages[wc.imm_data % 256];
	pair = &pairs[message->pair];
	grh = pair->type == IBV_QPT_UD ? GRH : 0;
	memory = target.memory + wc.wr_id % SLOTS * SLOT;
	if (wc.qp_num != pair->to->qp_num || message->number != pair->received++ ||
	    wc.byte_len != message->length + grh ||
	    memcmp(memory + grh, source.memory + message->offset, message->length)) {
		ksft_print_msg("receive %llu: %u bytes, not message %u of %u bytes for pair %u\n",
			       (unsigned long long)wc.wr_id, wc.byte_len, message->number,
			       message->length, message->pair);
		return false;
	}
	memcpy(target.expected + (memory - target.memory), memory, wc.byte_len);
	return true;
}

static bool received_error(uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!cq_poll(recv_cq, &wc, WAIT_MS)) {
		ksft_print_msg("a receive does not complete\n");
		return false;
	}
	if (wc.wr_id == id && wc.status == status)
		return true;
	ksft_print_msg("receive %llu: %s, instead of %llu: %s\n", (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status), (unsigned long long)id,
		       ibv_wc_status_str(status));
	return false;
}

/* What a message was cut off in has bytes of it. */
static void forgive(uint64_t id)
{
	size_t at = id % SLOTS * SLOT;

	memcpy(target.expected + at, target.memory + at, SLOT);
}

/* One message of that pair arrives in that receive. */
static bool arrives(struct pair *pair, uint64_t wanted)
{
	uint64_t id;

	send_some(pair);
	if (!sent(IBV_WC_SUCCESS) || !received(&id))
		return false;
	if (id != wanted)
		ksft_print_msg("it is receive %llu, not %llu\n", (unsigned long long)id,
			       (unsigned long long)wanted);
	return id == wanted;
}

static int modify(struct ibv_srq *which, int mask, uint32_t max_wr, uint32_t limit)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = limit };

	/* Some versions of libibverbs return -1, some the error. */
	return ibv_modify_srq(which, &attr, mask) ? errno : 0;
}

static struct ibv_srq_attr query(void)
{
	struct ibv_srq_attr attr = { .max_wr = ~0u };

	if (ibv_query_srq(srq, &attr))
		die("ibv_query_srq: %s", strerror(errno));
	return attr;
}

/* The number of asynchronous events of that type, for the queue or the queue pair, until it is quiet. */
static int events(enum ibv_event_type type, const void *element, int first_ms)
{
	struct pollfd ready = { .fd = b->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	int count = 0, ms = first_ms;

	while (poll(&ready, 1, patience_ms(ms)) > 0) {
		if (ibv_get_async_event(b->context, &event))
			die("ibv_get_async_event: %s", strerror(errno));
		if (event.event_type == type && (const void *)event.element.srq == element)
			count++;
		else
			ksft_print_msg("event: %s\n", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
		ms = QUIET_MS;
	}
	return count;
}

static int limit_events(int first_ms)
{
	return events(IBV_EVENT_SRQ_LIMIT_REACHED, srq, first_ms);
}

static void set_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	qp_change(qp, (struct ibv_qp_attr){ .qp_state = state }, IBV_QP_STATE, "another state");
}

/* Everything at once: each receive is used once, each message arrives once. So many of the pairs are UD. */
static bool run_traffic(int ud)
{
	uint64_t seen[SLOTS] = {}, id;
	unsigned int i, round;
	bool ok = true;

	start(b->pd, PAIRS - ud, ud);
	for (round = 0; ok && round < 4; round++) {
		for (i = 0; i < SLOTS - 1; i++)
			receive(round * SLOTS + i);
		for (i = 0; i < SLOTS - 1; i++)
			send_some(&pairs[random_between(0, pair_count - 1)]);
		for (i = 0; ok && i < SLOTS - 1; i++) {
			ok = received(&id) && sent(IBV_WC_SUCCESS);
			if (ok && (id / SLOTS != round || seen[id % SLOTS]++ != round)) {
				ksft_print_msg("receive %llu completes again\n",
					       (unsigned long long)id);
				ok = false;
			}
		}
	}
	ok = ok && cq_quiet(recv_cq, QUIET_MS);
	return finish() && ok;
}

/* Receives into memory whose pages are brought in when messages come. */
static bool run_paged(void)
{
	struct region pinned = target;
	bool ok;

	region_make(&target, b, SLOTS * SLOT, ACCESS | IBV_ACCESS_ON_DEMAND);
	/* Nothing answers while pages are brought in, which a busy machine takes its time for. */
	patience.timeout = 18;
	ok = run_traffic(0);
	patience = PATIENT;
	region_free(&target);
	target = pinned;
	return ok;
}

static bool run_order(void)
{
	bool ok = true;
	uint64_t id;

	start(b->pd, 2, 2);
	for (id = 0; id < SLOTS - 1; id++)
		receive(id);
	for (id = 0; ok && id < SLOTS - 1; id++)
		ok = arrives(&pairs[random_between(0, 3)], id);
	return finish() && ok;
}

static bool run_limit(void)
{
	bool ok;
	uint64_t id;

	start(b->pd, 1, 1);
	for (id = 0; id < 10; id++)
		receive(id);
	ok = !modify(srq, IBV_SRQ_LIMIT, 0, 8) && query().srq_limit == 8;
	/* Eight are left: that is not below the limit. */
	ok = ok && arrives(&pairs[0], 0) && arrives(&pairs[1], 1) && !limit_events(QUIET_MS) &&
	     query().srq_limit == 8;
	ok = ok && arrives(&pairs[0], 2) && limit_events(WAIT_MS) == 1 && query().srq_limit == 0;
	ok = ok && arrives(&pairs[1], 3) && !limit_events(QUIET_MS);
	/* Again, if it is armed again; and not if it is disarmed. */
	ok = ok && !modify(srq, IBV_SRQ_LIMIT, 0, 6) && arrives(&pairs[0], 4) &&
	     limit_events(WAIT_MS) == 1;
	ok = ok && !modify(srq, IBV_SRQ_LIMIT, 0, 5) && !modify(srq, IBV_SRQ_LIMIT, 0, 0) &&
	     arrives(&pairs[0], 5) && !limit_events(QUIET_MS);
	return finish() && ok;
}

static bool run_limit_at_once(void)
{
	bool ok;
	int i;

	start(b->pd, 1, 0);
	receive(0);
	ok = !modify(srq, IBV_SRQ_LIMIT, 0, 2) && limit_events(WAIT_MS) == 1 &&
	     query().srq_limit == 0;
	/* As many events as the limit was armed. */
	for (i = 0; i < 5; i++)
		ok = ok && !modify(srq, IBV_SRQ_LIMIT, 0, 2);
	ok = ok && limit_events(WAIT_MS) == 5;
	return finish() && ok;
}

/* As start(), and the first sends packets so short that a message is longer than its window. */
static void start_half(unsigned int rc, unsigned int ud)
{
	start(b->pd, rc, ud);
	set_state(pairs[0].from, IBV_QPS_RESET);
	set_state(pairs[0].to, IBV_QPS_RESET);
	qp_connect(a, pairs[0].from, b, pairs[0].to, IBV_MTU_256, PATIENT);
}

/* The start of a message, whose rest its sender cannot read: it ends in the middle. */
static bool send_half(struct pair *pair)
{
	struct ibv_sge sges[2] = {
		region_sge(&source, 0, SLOT - 256),
		{ .addr = (uintptr_t)source.memory, .length = 256,
		  .lkey = source.mr->lkey ^ 0x5a5a00 },
	};
	uint64_t end = now_ms() + patience_ms(WAIT_MS);

	post(pair, sges, 2, 0);
	if (!sent(IBV_WC_LOC_PROT_ERR))
		return false;
	/* Its first bytes arrive, in the first receive. */
	while (memcmp(target.memory, source.memory, 256)) {
		if (now_ms() > end) {
			ksft_print_msg("half of a message does not arrive\n");
			return false;
		}
	}
	return true;
}

/* A queue pair in error completes what it has taken, says that it was the last, and leaves the rest. */
static bool run_last(int half)
{
	const enum ibv_event_type last = IBV_EVENT_QP_LAST_WQE_REACHED;
	bool ok = true;
	uint64_t id;

	start_half(2, 1);
	for (id = 0; id < 8; id++)
		receive(id);
	if (half)
		ok = send_half(&pairs[0]);
	set_state(pairs[0].to, IBV_QPS_ERR);
	if (half) {
		ok = ok && received_error(0, IBV_WC_WR_FLUSH_ERR);
		forgive(0);
	}
	ok = ok && events(last, pairs[0].to, WAIT_MS) == 1 && cq_quiet(recv_cq, QUIET_MS);
	set_state(pairs[0].to, IBV_QPS_ERR);
	ok = ok && !events(last, pairs[0].to, QUIET_MS);
	/* The others go on. */
	ok = ok && arrives(&pairs[1], half ? 1 : 0) && arrives(&pairs[2], half ? 2 : 1);
	set_state(pairs[2].to, IBV_QPS_ERR);
	ok = ok && events(last, pairs[2].to, WAIT_MS) == 1;
	/* Once for each time. */
	set_state(pairs[0].to, IBV_QPS_RESET);
	if (qp_init(pairs[0].to, 0, 0))
		die("RESET to INIT: %s", strerror(errno));
	set_state(pairs[0].to, IBV_QPS_ERR);
	ok = ok && events(last, pairs[0].to, WAIT_MS) == 1 && arrives(&pairs[1], half ? 3 : 2);
	return finish() && ok;
}

/* Without the error state, what was taken is lost with the message, and nothing else. */
static bool run_half_gone(int destroy)
{
	bool ok;

	start_half(2, 0);
	receive(0);
	receive(1);
	ok = send_half(&pairs[0]);
	if (destroy)
		pair_free(&pairs[0]);
	else
		set_state(pairs[0].to, IBV_QPS_RESET);
	forgive(0);
	ok = ok && cq_quiet(recv_cq, QUIET_MS) && arrives(&pairs[1], 1);
	return finish() && ok;
}

/* All the time messages arrive while the queue gets new sizes. */
static bool run_resize(void)
{
	uint64_t next = 0, oldest = 0, id;
	bool ok = true;
	int round, i;

	start(b->pd, PAIRS, 0);
	for (; next < 40; next++)
		receive(next);
	for (round = 0; ok && round < 40; round++) {
		uint32_t size = random_between(41, 200);
		int error;

		for (i = 0; i < 16; i++)
			send_some(&pairs[random_between(0, PAIRS - 1)]);
		error = modify(srq, IBV_SRQ_MAX_WR, size, 0);
		if (error || query().max_wr < size) {
			ksft_print_msg("a size of %u: %s, %u\n", size, strerror(error),
				       query().max_wr);
			ok = false;
		}
		for (i = 0; ok && i < 16; i++) {
			ok = received(&id) && sent(IBV_WC_SUCCESS);
			if (ok && (id < oldest || id >= next)) {
				ksft_print_msg("receive %llu of %llu to %llu\n",
					       (unsigned long long)id, (unsigned long long)oldest,
					       (unsigned long long)next);
				ok = false;
			}
		}
		oldest += 16;
		for (i = 0; ok && i < 16; i++)
			receive(next++);
	}
	/* What was left comes in order. */
	for (; ok && oldest < next; oldest++)
		ok = arrives(&pairs[0], oldest);
	return finish() && ok;
}

static bool run_resize_refused(void)
{
	uint32_t before, most = b->attr.max_srq_wr;
	bool ok;
	uint64_t id;
	int i;

	start(b->pd, 1, 0);
	for (id = 0; id < 20; id++)
		receive(id);
	before = query().max_wr;
	ok = modify(srq, IBV_SRQ_MAX_WR, 0, 0) == EINVAL &&
	     modify(srq, IBV_SRQ_MAX_WR, most + 1, 0) == EINVAL &&
	     modify(srq, IBV_SRQ_MAX_WR, ~0u, 0) == EINVAL &&
	     modify(srq, IBV_SRQ_MAX_WR, 7, 0) == EINVAL &&
	     modify(srq, IBV_SRQ_LIMIT, 0, before + 1) == EINVAL &&
	     modify(srq, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 200, 1000) == EINVAL &&
	     modify(srq, 1 << 5, 100, 0) == EINVAL;
	ok = ok && query().max_wr == before && query().srq_limit == 0;
	ok = ok && !modify(srq, IBV_SRQ_LIMIT, 0, before) && limit_events(WAIT_MS) == 1;
	for (i = 0; ok && i < 20; i++)
		ok = arrives(&pairs[0], i);
	ok = ok && !modify(srq, IBV_SRQ_MAX_WR, 7, 0) && query().max_wr == 7;
	receive(20);
	ok = ok && arrives(&pairs[0], 20);
	return finish() && ok;
}

static bool run_sizes(void)
{
	uint32_t most = b->attr.max_srq_wr, sges = b->attr.max_srq_sge;
	bool ok = b->attr.max_srq > 0 && most > 0 && sges > 0;
	struct ibv_srq *made, *again;
	struct ibv_srq_attr attr;

	ok = ok && !try_srq(b->pd, 0, 1) && errno == EINVAL;
	ok = ok && !try_srq(b->pd, most + 1, 1) && errno == EINVAL;
	ok = ok && !try_srq(b->pd, ~0u, 1) && errno == EINVAL;
	ok = ok && !try_srq(b->pd, 1, sges + 1) && errno == EINVAL;
	ok = ok && !try_srq(b->pd, 1, ~0u) && errno == EINVAL;
	made = ok ? try_srq(b->pd, most, sges) : NULL;
	/* Another SRQ can be made with the size that the first one reports. */
	ok = ok && made && !ibv_query_srq(made, &attr) && attr.max_wr >= most;
	again = ok ? try_srq(b->pd, attr.max_wr, sges) : NULL;
	ok = ok && again && !ibv_destroy_srq(again);
	if (made)
		ok = !ibv_destroy_srq(made) && ok;
	made = ok ? try_srq(b->pd, 1, 1) : NULL;
	return ok && made && !ibv_destroy_srq(made);
}

/* As much as was promised, and no more; and each is used. */
static bool run_full(void)
{
	uint32_t most, i;
	int error;
	bool ok;

	start(b->pd, 1, 0);
	most = query().max_wr;
	for (i = 0; i < most; i++)
		receive(i);
	error = try_receive(i, SLOT, target.mr->lkey);
	if (error != ENOMEM)
		ksft_print_msg("one more than %u: %s\n", most, strerror(error));
	ok = most >= SLOTS && error == ENOMEM;
	for (i = 0; ok && i < most; i++)
		ok = arrives(&pairs[0], i);
	return finish() && ok;
}

static bool run_rnr(void)
{
	bool ok;
	uint64_t id;

	start(b->pd, 1, 0);
	send_some(&pairs[0]);
	ok = cq_quiet(send_cq, QUIET_MS);
	receive(3);
	ok = ok && sent(IBV_WC_SUCCESS) && received(&id) && id == 3;
	return finish() && ok;
}

static bool run_rnr_exceeded(void)
{
	struct patience impatience = { .timeout = 14, .retries = 7, .rnr_retries = 1 };
	bool ok;

	start(b->pd, 1, 0);
	pair_make(IBV_QPT_RC, impatience);
	send_some(&pairs[1]);
	ok = sent(IBV_WC_RNR_RETRY_EXC_ERR);
	receive(0);
	ok = ok && arrives(&pairs[0], 0);
	return finish() && ok;
}

static bool run_drop(void)
{
	bool ok;

	start(b->pd, 0, 1);
	send_some(&pairs[0]);
	ok = sent(IBV_WC_SUCCESS) && cq_quiet(recv_cq, QUIET_MS);
	receive(5);
	ok = ok && cq_quiet(recv_cq, QUIET_MS);
	/* The one that was dropped is not missed. */
	pairs[0].received++;
	ok = ok && arrives(&pairs[0], 5);
	return finish() && ok;
}

/* A receive that does not do ends one queue pair; the others go on with the next ones. */
static bool refused(enum ibv_wc_status theirs, enum ibv_wc_status ours)
{
	bool ok;

	send_of(&pairs[0], 3000);
	ok = sent(ours) && received_error(0, theirs) &&
	     events(IBV_EVENT_QP_LAST_WQE_REACHED, pairs[0].to, WAIT_MS) == 1 &&
	     qp_state(pairs[0].to) == IBV_QPS_ERR;
	ok = ok && arrives(&pairs[1], 1);
	forgive(0);
	return finish() && ok;
}

static bool run_short(void)
{
	start(b->pd, 2, 0);
	receive_of(0, 2999);
	receive(1);
	return refused(IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
}

/*
 * A message that is too long is dropped. Its receive completes, as the other queue pair could have had it, and both queue
 * pairs go on.
 */
static bool run_short_unreliable(int type)
{
	bool ok;

	start(b->pd, 1, 0);
	pair_make(type, patience);
	receive_of(0, 99);
	receive(1);
	receive(2);
	send_of(&pairs[1], 100);
	ok = sent(IBV_WC_SUCCESS) && received_error(0, IBV_WC_LOC_LEN_ERR);
	pairs[1].received++;
	ok = ok && arrives(&pairs[0], 1) && arrives(&pairs[1], 2) && qp_state(pairs[1].to) == IBV_QPS_RTS;
	forgive(0);
	return finish() && ok;
}

/* The queue is in a domain of its own: its keys are of that, not of the queue pairs'. */
static bool run_domain(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(b->context);
	struct ibv_mr *mr;
	bool ok;

	if (!pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	mr = mr_make(pd, target.memory, target.size, ACCESS);
	start(pd, 2, 0);
	/* A key of the queue pair's domain, then one of the queue's. */
	ok = !try_receive(0, SLOT, target.mr->lkey) && !try_receive(1, SLOT, mr->lkey);
	ok = refused(IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR) && ok;
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(pd))
		die("the other domain does not go away");
	return ok;
}

static bool run_destroy_order(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(b->context);
	bool ok;

	if (!pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	start(pd, 1, 1);
	ok = ibv_destroy_srq(srq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY;
	pair_free(&pairs[0]);
	ok = ok && ibv_destroy_srq(srq) == EBUSY;
	ok = finish() && ok;
	if (ibv_dealloc_pd(pd))
		die("the domain does not go away");
	return ok;
}

/* A queue pair on a shared queue has none of its own. */
static bool run_own_queue(void)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	bool ok;

	start(b->pd, 1, 0);
	ok = ibv_post_recv(pairs[0].to, &wr, &bad) != 0;
	if (ibv_query_qp(pairs[0].to, &attr, IBV_QP_CAP, &init))
		die("ibv_query_qp: %s", strerror(errno));
	ok = ok && init.srq == srq && attr.cap.max_recv_wr == 0 && attr.cap.max_recv_sge == 0;
	return finish() && ok;
}

/* Where the process has the ring that it mapped last: the highest offset. */
static volatile uint32_t *last_ring(size_t *words)
{
	unsigned long from, to, offset, best = 0;
	volatile uint32_t *ring = NULL;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	if (!maps)
		die("/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "uverbs") ||
		    sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) != 3)
			continue;
		/* Both devices have rings; ours is the one with elements of a receive of two pieces. */
		if (((uint32_t *)from)[0] != 7 || (ring && offset < best))
			continue;
		best = offset;
		ring = (uint32_t *)from;
		*words = (to - from) / sizeof(*ring);
	}
	fclose(maps);
	return ring;
}

/* A receive of more pieces than there may be. */
static bool run_malformed(void)
{
	volatile uint32_t *ring;
	size_t words;

	start(b->pd, 2, 0);
	ring = last_ring(&words);
	if (!ring)
		die("the ring of the shared queue is not mapped");
	receive(0);
	receive(1);
	/* 384 bytes of header; then num_sge is at 28 bytes into the element. */
	ring[(384 + 28) / 4] = 1000000;
	return refused(IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR);
}

static struct {
	volatile uint32_t *ring;
	size_t words;
	/* Where the producer's index may lead: if beyond the ring, the queue fails. */
	uint32_t reach;
	volatile bool stop;
} scribble;

static void *scribble_run(void *unused)
{
	uint64_t state = 1;
	(void)unused;

	while (!scribble.stop) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		size_t at = (state >> 33) % scribble.words;

		if (at != 128 / 4)
			scribble.ring[at] = state >> (state >> 59);
		/* Most of the time the producer's index leads somewhere. */
		scribble.ring[128 / 4] = (state >> 40) & scribble.reach;
	}
	return NULL;
}

/* Rubbish, all over the ring, while messages come. What becomes of those is not said. */
static bool run_rubbish(void)
{
	struct ibv_wc wc;
	pthread_t thread;
	bool ok;
	int i, j, k;

	for (i = 0; i < 20; i++) {
		start(b->pd, 2, 2);
		scribble.ring = last_ring(&scribble.words);
		if (!scribble.ring)
			die("the ring of the shared queue is not mapped");
		scribble.reach = i & 1 ? ~0u : scribble.ring[1];
		scribble.stop = false;
		thread_start(&thread, scribble_run, NULL);
		for (j = 0; j < 8; j++) {
			for (k = 0; k < 4; k++)
				send_some(&pairs[k]);
			modify(srq, IBV_SRQ_LIMIT, 0, j);
			cq_poll(send_cq, &wc, 10);
		}
		scribble.stop = true;
		pthread_join(thread, NULL);
		/* A change of size has rubbish to copy, too. */
		modify(srq, IBV_SRQ_MAX_WR, 1000, 0);
		/* Keys are in the ring, and may have been hit: nobody knows what was written. */
		while (pair_count)
			pair_free(&pairs[--pair_count]);
		memcpy(target.expected, target.memory, target.size);
		finish();
		limit_events(0);
	}
	start(b->pd, 2, 2);
	for (i = 0; i < 4; i++)
		receive(i);
	ok = true;
	for (i = 0; ok && i < 4; i++)
		ok = arrives(&pairs[i], i);
	return finish() && ok;
}

static const struct row rows[] = {
	{ "four RC queue pairs on one queue", .run_with = run_traffic, 0 },
	{ "RC and UD queue pairs on one queue", .run_with = run_traffic, PAIRS / 2 },
	{ "memory that is paged on demand", run_paged },
	{ "receives are taken in order", run_order },
	{ "the limit is reached once", run_limit },
	{ "a limit above what is posted is reached at once", run_limit_at_once },
	{ "the last receive of an idle queue pair in error", .run_with = run_last, false },
	{ "the last receive in the middle of a message", .run_with = run_last, true },
	{ "reset in the middle of a message", .run_with = run_half_gone, false },
	{ "destroyed in the middle of a message", .run_with = run_half_gone, true },
	{ "resized while messages come", run_resize },
	{ "sizes and limits that are refused", run_resize_refused },
	{ "queues that are refused", run_sizes },
	{ "a full queue", run_full },
	{ "RC waits for a receive", run_rnr },
	{ "RC does not wait for ever", run_rnr_exceeded },
	{ "UD drops what finds no receive", run_drop },
	{ "receive too short for the message", run_short },
	{ "UC: receive too short for the message", .run_with = run_short_unreliable, IBV_QPT_UC },
	{ "UD: receive too short for the message", .run_with = run_short_unreliable, IBV_QPT_UD },
	{ "keys of the queue's protection domain", run_domain },
	{ "a queue in use is not destroyed", run_destroy_order },
	{ "no receive queue of its own", run_own_queue },
	{ "a receive that makes no sense", run_malformed },
	{ "rubbish in the ring", run_rubbish },
};

static void begin(char **names)
{
	region_make(&source, a, SOURCE, 0);
	region_make(&target, b, SLOTS * SLOT, ACCESS);
	send_cq = cq_make(a, 8 * SLOTS);
	recv_cq = cq_make(b, 8 * SLOTS);
	idle_cq = cq_make(b, 16);
	ah = ah_make(a, b);
}

static void end(void)
{
	ah_free(ah);
	cq_free(send_cq);
	cq_free(recv_cq);
	cq_free(idle_cq);
	region_free(&source);
	region_free(&target);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end };
