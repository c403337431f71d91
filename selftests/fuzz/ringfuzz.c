// SPDX-License-Identifier: GPL-2.0
/*
 * Writes nonsense into the rings that a process shares with the module, from a second
 * thread and while traffic runs on them; rings doorbells; posts work request lists by
 * write(); and moves queue pairs through all states, destroys and makes them again,
 * with completion queues and regions. A bystander must not notice.
 *
 * The seed decides what each thread does; how the threads interleave it does not.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bystander.h"
#include "choice.h"
#include "command.h"
#include "coverage.h"
#include "fuzzer.h"
#include "test.h"

#define SLOTS 3
#define RINGS 48
#define REGION_SIZE (1 << 16)
#define QKEY 0x11223344
#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL)
/* Spoilt per hold of the lock of the rings. */
#define BURST 64
/* A machine that is slow gets more time, until it has done so much. */
#define FEWEST_ACTIONS 1000
/* How long the worker may need for the action that it is in when the time is over. */
#define LAST_ACTION_MS 120000
/* Of an action that is as seldom as that, chance may leave out all. */
#define SELDOM 10

/* --- What was done --------------------------------------------------------------------- */

enum action {
	POST_ELEMENTS,
	POST_LIBRARY,
	POST_RECEIVES,
	DOORBELL,
	WRITE_LIST,
	POLL,
	ARM,
	MODIFY,
	REVIVE,
	QUERY,
	RENEW_QP,
	RENEW_REGION,
	RESIZE,
	SPOIL_INDEX,
	FORK,
	RENEW_SLOT,
	ACTIONS,
};

static const struct {
	const char *name;
	/* How often, compared with the others. */
	unsigned int weight;
} actions[ACTIONS] = {
	[POST_ELEMENTS] = { "posts by hand", 300 },
	[POST_LIBRARY] = { "posts by libibverbs", 80 },
	[POST_RECEIVES] = { "receives", 160 },
	[DOORBELL] = { "bare doorbells", 60 },
	[WRITE_LIST] = { "lists by write()", 40 },
	[POLL] = { "polls", 160 },
	[ARM] = { "requests for notification", 20 },
	[MODIFY] = { "changes of state", 30 },
	[REVIVE] = { "revivals", 80 },
	[QUERY] = { "queries", 10 },
	[RENEW_QP] = { "new queue pairs", 12 },
	[RENEW_REGION] = { "new regions", 12 },
	[RESIZE] = { "resizes", 12 },
	[SPOIL_INDEX] = { "indices", 40 },
	[FORK] = { "forks", 2 },
	[RENEW_SLOT] = { "new slots", 4 },
};

/* Shared between the test and the worker, which may die. */
struct counts {
	volatile uint64_t done[ACTIONS];
	volatile uint64_t spoilt_fields;
	volatile uint64_t spoilt_elements;
	volatile uint64_t spoilt_headers;
	volatile uint64_t completions;
	volatile uint64_t successes;
	volatile bool ended;
};

static struct counts *counts;

/* --- Rings ----------------------------------------------------------------------------- */

enum kind { SEND_RING, RECEIVE_RING, COMPLETION_RING };

/* How much of a ring the second thread spoils. */
enum spoil { NOTHING, IGNORED_FIELDS, ELEMENTS, EVERYTHING, SPOILS };

struct ring {
	enum kind kind;
	enum spoil spoil;
	/* A mapping of our own: libibverbs does not know of it, and it outlives the object. */
	uint8_t *memory;
	size_t size;
	/* As they were at first: what stands in the ring is spoilt. */
	uint32_t mask, shift;
	/* Where we write or read next, if the index in the ring is spoilt. */
	uint32_t own;
	bool live;
};

static struct ring rings[RINGS];
/* Whoever spoils must not find a mapping gone. */
static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t *word(struct ring *ring, size_t offset)
{
	return (uint32_t *)(ring->memory + offset);
}

static uint32_t *producer(struct ring *ring)
{
	return word(ring, offsetof(struct rxe_queue_buf, producer_index));
}

static uint32_t *consumer(struct ring *ring)
{
	return word(ring, offsetof(struct rxe_queue_buf, consumer_index));
}

static uint8_t *element(struct ring *ring, uint32_t index)
{
	return ring->memory + sizeof(struct rxe_queue_buf) +
	       ((size_t)(index & ring->mask) << ring->shift);
}

static uint32_t load(const uint32_t *from)
{
	return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *to, uint32_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

/* The mappings of a uverbs file in this process. */
struct mapping {
	uintptr_t start, end;
	uint64_t offset;
};

struct mappings {
	struct mapping all[512];
	unsigned int count;
};

static void mappings_read(const struct ibv_context *context, struct mappings *mappings)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], name[IBV_SYSFS_NAME_MAX + 3];

	if (!maps)
		die("/proc/self/maps: %s", strerror(errno));
	snprintf(name, sizeof(name), "/%s\n", context->device->dev_name);
	mappings->count = 0;
	while (fgets(line, sizeof(line), maps)) {
		struct mapping *next = &mappings->all[mappings->count];

		if (!strstr(line, name))
			continue;
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64, &next->start, &next->end,
			   &next->offset) != 3)
			die("not understood: %s", line);
		if (++mappings->count == ARRAY_SIZE(mappings->all))
			die("too many mappings");
	}
	fclose(maps);
}

static bool mapping_known(const struct mappings *mappings, const struct mapping *mapping)
{
	unsigned int i;

	for (i = 0; i < mappings->count; i++) {
		if (mappings->all[i].start == mapping->start &&
		    mappings->all[i].offset == mapping->offset)
			return true;
	}
	return false;
}

/* A ring whose object is gone is kept as long as there is room for others. */
static struct ring *ring_room(void)
{
	static unsigned int turn;
	unsigned int i;

	for (i = 0; i < RINGS; i++) {
		if (!rings[i].memory)
			return &rings[i];
	}
	for (i = 0; i < RINGS; i++) {
		struct ring *old = &rings[turn++ % RINGS];

		if (!old->live) {
			munmap(old->memory, old->size);
			return old;
		}
	}
	die("no room for a ring");
}

/* Maps again what was mapped since `before`: one ring, or the two of a queue pair. */
static void rings_find(struct ibv_context *context, const struct mappings *before,
		       struct ring **found, unsigned int wanted)
{
	static struct mappings after;
	unsigned int i, count = 0;

	mappings_read(context, &after);
	for (i = 0; i < after.count; i++) {
		const struct mapping *mapping = &after.all[i];
		struct ring *ring;
		void *memory;

		if (mapping_known(before, mapping))
			continue;
		if (count == wanted)
			die("more new rings than %u", wanted);
		memory = mmap(NULL, mapping->end - mapping->start, PROT_READ | PROT_WRITE,
			      MAP_SHARED, context->cmd_fd, mapping->offset);
		if (memory == MAP_FAILED)
			die("a ring cannot be mapped twice: %s", strerror(errno));
		pthread_mutex_lock(&rings_lock);
		ring = ring_room();
		memset(ring, 0, sizeof(*ring));
		ring->memory = memory;
		ring->size = mapping->end - mapping->start;
		ring->shift = *word(ring, offsetof(struct rxe_queue_buf, log2_elem_size));
		ring->mask = *word(ring, offsetof(struct rxe_queue_buf, index_mask));
		ring->live = true;
		pthread_mutex_unlock(&rings_lock);
		if (sizeof(struct rxe_queue_buf) + ((ring->mask + 1ULL) << ring->shift) > ring->size)
			die("a ring of %zu bytes has %u elements of 2^%u", ring->size,
			    ring->mask + 1, ring->shift);
		found[count++] = ring;
	}
	if (count != wanted)
		die("%u new rings instead of %u", count, wanted);
}

static void ring_set(struct ring *ring, enum kind kind, enum spoil spoil)
{
	pthread_mutex_lock(&rings_lock);
	ring->kind = kind;
	ring->own = load(producer(ring));
	ring->spoil = spoil;
	pthread_mutex_unlock(&rings_lock);
}

/* The object is gone, or has another ring: the mapping stays for a while. */
static void ring_leave(struct ring **ring)
{
	pthread_mutex_lock(&rings_lock);
	if (*ring)
		(*ring)->live = false;
	pthread_mutex_unlock(&rings_lock);
	*ring = NULL;
}

/* --- Spoiling -------------------------------------------------------------------------- */

struct field {
	size_t offset;
	size_t size;
	/* The module must not care. */
	bool ignored;
};

#define SEND_FIELD(name, ignored)                                                                  \
	{ offsetof(struct rxe_send_wqe, name), sizeof(((struct rxe_send_wqe *)0)->name), ignored }
#define RECEIVE_FIELD(name, ignored)                                                               \
	{ offsetof(struct rxe_recv_wqe, name), sizeof(((struct rxe_recv_wqe *)0)->name), ignored }

static const struct field send_fields[] = {
	SEND_FIELD(wr.wr_id, true),
	SEND_FIELD(wr.reserved, true),
	SEND_FIELD(wr.opcode, false),
	SEND_FIELD(wr.opcode, false),
	SEND_FIELD(wr.send_flags, false),
	SEND_FIELD(wr.ex.imm_data, false),
	SEND_FIELD(wr.wr.rdma.remote_addr, false),
	SEND_FIELD(wr.wr.rdma.rkey, false),
	SEND_FIELD(wr.wr.atomic.swap, false),
	SEND_FIELD(wr.wr.atomic.rkey, false),
	SEND_FIELD(wr.wr.flush.length, false),
	SEND_FIELD(wr.wr.flush.type, false),
	SEND_FIELD(wr.wr.flush.level, false),
	SEND_FIELD(wr.wr.ud.remote_qpn, false),
	SEND_FIELD(wr.wr.ud.remote_qkey, false),
	SEND_FIELD(wr.wr.ud.pkey_index, false),
	SEND_FIELD(wr.wr.ud.ah_num, false),
	SEND_FIELD(wr.wr.ud.av.port_num, true),
	SEND_FIELD(wr.wr.ud.av.network_type, true),
	SEND_FIELD(wr.wr.ud.av.grh.sgid_index, true),
	SEND_FIELD(wr.wr.mw.addr, false),
	SEND_FIELD(wr.wr.mw.length, false),
	SEND_FIELD(wr.wr.mw.mr_lkey, false),
	SEND_FIELD(wr.wr.mw.mw_rkey, false),
	SEND_FIELD(wr.wr.mw.access, false),
	SEND_FIELD(status, true),
	SEND_FIELD(state, true),
	SEND_FIELD(iova, true),
	SEND_FIELD(mask, true),
	SEND_FIELD(first_psn, true),
	SEND_FIELD(last_psn, true),
	SEND_FIELD(ack_length, true),
	SEND_FIELD(ssn, true),
	SEND_FIELD(has_rd_atomic, true),
	SEND_FIELD(dma.length, false),
	SEND_FIELD(dma.length, false),
	SEND_FIELD(dma.resid, true),
	SEND_FIELD(dma.cur_sge, true),
	SEND_FIELD(dma.num_sge, false),
	SEND_FIELD(dma.num_sge, false),
	SEND_FIELD(dma.sge_offset, true),
	SEND_FIELD(dma.reserved, true),
	/* The first of the list, and the second. */
	{ sizeof(struct rxe_send_wqe), 8, false },
	{ sizeof(struct rxe_send_wqe) + 8, 4, false },
	{ sizeof(struct rxe_send_wqe) + 12, 4, false },
	{ sizeof(struct rxe_send_wqe) + 24, 4, false },
	{ sizeof(struct rxe_send_wqe) + 28, 4, false },
};

static const struct field receive_fields[] = {
	RECEIVE_FIELD(wr_id, true),
	RECEIVE_FIELD(reserved, true),
	RECEIVE_FIELD(padding, true),
	RECEIVE_FIELD(dma.length, true),
	RECEIVE_FIELD(dma.resid, true),
	RECEIVE_FIELD(dma.cur_sge, true),
	RECEIVE_FIELD(dma.num_sge, false),
	RECEIVE_FIELD(dma.num_sge, false),
	RECEIVE_FIELD(dma.sge_offset, true),
	RECEIVE_FIELD(dma.reserved, true),
	{ sizeof(struct rxe_recv_wqe), 8, false },
	{ sizeof(struct rxe_recv_wqe) + 8, 4, false },
	{ sizeof(struct rxe_recv_wqe) + 12, 4, false },
};

static const struct field *field_choose(struct choice *choice, const struct ring *ring)
{
	if (ring->kind == SEND_RING)
		return &send_fields[below(choice, ARRAY_SIZE(send_fields))];
	return &receive_fields[below(choice, ARRAY_SIZE(receive_fields))];
}

static void put(uint8_t *to, uint64_t value, size_t size)
{
	memcpy(to, &value, size);
}

static void spoil_field(struct choice *choice, struct ring *ring, uint8_t *at)
{
	const struct field *field = field_choose(choice, ring);

	if (ring->spoil == IGNORED_FIELDS && !field->ignored)
		return;
	if (field->offset + field->size > (size_t)1 << ring->shift)
		return;
	/* Mostly small, as counts and opcodes are. */
	put(at + field->offset, one_in(choice, 3) ? below(choice, 20) : odd_value(choice, ring->mask),
	    field->size);
	counts->spoilt_fields++;
}

static void spoil_bytes(struct choice *choice, struct ring *ring, uint8_t *at)
{
	size_t size = (size_t)1 << ring->shift, i;

	if (one_in(choice, 2)) {
		memcpy(at, element(ring, any(choice)), size);
	} else {
		for (i = 0; i + 8 <= size; i += 8)
			put(at + i, any(choice), 8);
	}
	counts->spoilt_elements++;
}

static void spoil_header(struct choice *choice, struct ring *ring)
{
	static const size_t offsets[] = {
		offsetof(struct rxe_queue_buf, log2_elem_size),
		offsetof(struct rxe_queue_buf, index_mask),
		offsetof(struct rxe_queue_buf, producer_index),
		offsetof(struct rxe_queue_buf, producer_index),
		offsetof(struct rxe_queue_buf, consumer_index),
		offsetof(struct rxe_queue_buf, consumer_index),
		offsetof(struct rxe_queue_buf, pad_1),
		offsetof(struct rxe_queue_buf, pad_2),
		offsetof(struct rxe_queue_buf, pad_3),
	};
	uint32_t *at = word(ring, offsets[below(choice, ARRAY_SIZE(offsets))]);

	if (one_in(choice, 3))
		store(at, load(at) + below(choice, 3) - 1);
	else
		store(at, odd_value(choice, ring->mask));
	counts->spoilt_headers++;
}

static void spoil(struct choice *choice, struct ring *ring)
{
	uint8_t *at;

	if (!ring->memory || ring->spoil == NOTHING)
		return;
	if (ring->kind == COMPLETION_RING && ring->spoil != EVERYTHING)
		return;
	if (ring->spoil == EVERYTHING && one_in(choice, 4)) {
		spoil_header(choice, ring);
		return;
	}
	/* Near where they are worked at, or anywhere. */
	at = element(ring, one_in(choice, 4) ? any(choice)
					     : load(consumer(ring)) + below(choice, 4));
	if (ring->spoil >= ELEMENTS && one_in(choice, 8))
		spoil_bytes(choice, ring, at);
	else if (ring->kind == COMPLETION_RING)
		put(at + 4 * below(choice, 12), any(choice), 4);
	else
		spoil_field(choice, ring, at);
}

static volatile bool over;

static void *spoiler(void *argument)
{
	struct choice choice = *(struct choice *)argument;
	unsigned int i;

	while (!over) {
		pthread_mutex_lock(&rings_lock);
		for (i = 0; i < BURST; i++)
			spoil(&choice, &rings[below(&choice, RINGS)]);
		pthread_mutex_unlock(&rings_lock);
		/* The others are to get on with their work, too. */
		if (one_in(&choice, 4))
			usleep(200);
	}
	return NULL;
}

/* --- Queue pairs and what they need ----------------------------------------------------- */

static struct device opened[2];
static struct ibv_comp_channel *channels[2];

struct memory {
	uint8_t *start;
	struct ibv_mr *mr;
	bool paged;
};

/* One of two peers. */
struct end {
	struct device *device;
	struct memory memory;
	struct ibv_cq *cq;
	struct ring *cq_ring;
	struct ibv_qp *qp;
	struct ring *send_ring, *receive_ring;
	struct ibv_ah *ah;
	/* What the module calls the address handle; only libibverbs knows. */
	uint32_t ah_number;
	uint32_t inline_size, sges;
};

struct slot {
	struct end ends[2];
	enum ibv_qp_type type;
	enum spoil spoil;
};

static struct slot slots[SLOTS];
static bool without_uc, without_paging;

static void memory_register(struct choice *choice, struct end *end)
{
	int access = ACCESS;

	end->memory.paged = !without_paging && one_in(choice, 3);
	if (end->memory.paged)
		access |= IBV_ACCESS_ON_DEMAND;
	end->memory.mr = ibv_reg_mr(end->device->pd, end->memory.start, REGION_SIZE, access);
	if (!end->memory.mr && end->memory.paged) {
		without_paging = true;
		memory_register(choice, end);
		return;
	}
	if (!end->memory.mr)
		die("ibv_reg_mr: %s", strerror(errno));
}

static void memory_deregister(struct end *end)
{
	int error = ibv_dereg_mr(end->memory.mr);

	if (error)
		die("ibv_dereg_mr: %s", strerror(error));
}

static void cq_create(struct choice *choice, struct slot *slot, struct end *end)
{
	unsigned int which = end - slot->ends;
	static struct mappings before;

	mappings_read(end->device->context, &before);
	end->cq = ibv_create_cq(end->device->context, 1 + below(choice, one_in(choice, 2) ? 8 : 200),
				NULL, one_in(choice, 2) ? channels[which] : NULL, 0);
	if (!end->cq)
		die("ibv_create_cq: %s", strerror(errno));
	rings_find(end->device->context, &before, &end->cq_ring, 1);
	ring_set(end->cq_ring, COMPLETION_RING, slot->spoil);
}

/* One of the type that is asked for, or RC where there is none of it. */
static struct ibv_qp *qp_create(struct slot *slot, struct end *end,
				struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;

	attr->qp_type = slot->type;
	qp = ibv_create_qp(end->device->pd, attr);
	if (!qp && (slot->type == IBV_QPT_UC || slot->type == IBV_QPT_RAW_PACKET)) {
		without_uc |= slot->type == IBV_QPT_UC;
		slot->type = IBV_QPT_RC;
		attr->qp_type = slot->type;
		qp = ibv_create_qp(end->device->pd, attr);
	}
	if (!qp)
		die("ibv_create_qp: %s", strerror(errno));
	return qp;
}

static void qp_new(struct choice *choice, struct slot *slot, struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.sq_sig_all = one_in(choice, 4),
		.cap = {
			.max_send_wr = 1 + below(choice, 40),
			.max_recv_wr = 1 + below(choice, 40),
			.max_send_sge = 1 + below(choice, 4),
			/* Receive elements stay smaller than send elements. */
			.max_recv_sge = 1 + below(choice, 4),
			.max_inline_data = below(choice, 300),
		},
	};
	static struct mappings before;
	struct ring *found[2];

	mappings_read(end->device->context, &before);
	end->qp = qp_create(slot, end, &attr);
	end->inline_size = attr.cap.max_inline_data;
	end->sges = attr.cap.max_send_sge;
	rings_find(end->device->context, &before, found, 2);
	if (found[0]->shift == found[1]->shift)
		die("the rings of a queue pair look the same");
	end->send_ring = found[found[0]->shift < found[1]->shift];
	end->receive_ring = found[found[0]->shift > found[1]->shift];
	ring_set(end->send_ring, SEND_RING, slot->spoil);
	ring_set(end->receive_ring, RECEIVE_RING, slot->spoil);
}

/* Events that nobody takes would hold up the end of what they are of. */
static void events_drain(void)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;
	int i;

	for (i = 0; i < 2; i++) {
		while (!ibv_get_cq_event(channels[i], &cq, &context))
			ibv_ack_cq_events(cq, 1);
		while (!ibv_get_async_event(opened[i].context, &event))
			ibv_ack_async_event(&event);
	}
}

static void qp_end(struct end *end)
{
	int error;

	events_drain();
	error = ibv_destroy_qp(end->qp);
	if (error)
		die("ibv_destroy_qp: %s", strerror(error));
	end->qp = NULL;
	ring_leave(&end->send_ring);
	ring_leave(&end->receive_ring);
}

/* Any value of an attribute may be one that the module refuses: that is no failure. */
static int qp_modify(struct choice *choice, struct slot *slot, struct end *end,
		     enum ibv_qp_state state, bool odd)
{
	struct end *peer = &slot->ends[end == slot->ends];
	bool reliable = slot->type == IBV_QPT_RC, connected = reliable || slot->type == IBV_QPT_UC;
	bool raw = slot->type == IBV_QPT_RAW_PACKET;
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = PORT,
		.qkey = QKEY,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_256 + below(choice, 4),
		.dest_qp_num = odd ? any(choice) & 0xffffff : peer->qp->qp_num,
		.rq_psn = 0xfffff0,
		.sq_psn = odd ? any(choice) & 0xffffff : 0xfffff0,
		.max_dest_rd_atomic = below(choice, 17),
		.max_rd_atomic = below(choice, 17),
		.min_rnr_timer = 1 + below(choice, 12),
		.timeout = 10 + below(choice, 5),
		.retry_cnt = below(choice, 8),
		.rnr_retry = below(choice, 8),
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = peer->device->gid,
				.sgid_index = end->device->gid_index,
				.hop_limit = 64,
			},
		},
	};
	int mask = IBV_QP_STATE;

	switch (state) {
	case IBV_QPS_INIT:
		mask |= IBV_QP_PORT;
		if (!raw)
			mask |= IBV_QP_PKEY_INDEX | (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
		break;
	case IBV_QPS_RTR:
		if (connected)
			mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		if (reliable)
			mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		if (!raw)
			mask |= IBV_QP_SQ_PSN;
		if (reliable)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	if (odd && one_in(choice, 2))
		mask ^= 1 << below(choice, 24);
	return ibv_modify_qp(end->qp, &attr, mask);
}

static void post_library(struct choice *choice, struct slot *slot, struct end *end);

/* Ready to send, wherever it was. */
static void slot_revive(struct choice *choice, struct slot *slot)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						 IBV_QPS_RTS };
	unsigned int i, step;

	for (step = 0; step < ARRAY_SIZE(way); step++) {
		for (i = 0; i < 2; i++) {
			int error = qp_modify(choice, slot, &slot->ends[i], way[step], false);

			/* A packet of the peer may have put it in error again. */
			if (error && error != EINVAL)
				die("to state %d: %s", way[step], strerror(error));
		}
	}
}

static void slot_make(struct choice *choice, struct slot *slot)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UD,
						  IBV_QPT_RAW_PACKET, IBV_QPT_UC };
	enum spoil spoil = below(choice, SPOILS);
	unsigned int i;

	slot->type = types[below(choice, ARRAY_SIZE(types) - without_uc)];
	/* Most of the time most is at stake; but not before libibverbs has done its part. */
	if (spoil == NOTHING && one_in(choice, 2))
		spoil = EVERYTHING;
	slot->spoil = NOTHING;
	for (i = 0; i < 2; i++) {
		struct end *end = &slot->ends[i];

		end->device = &opened[i];
		end->memory.start = pages_make(REGION_SIZE, MAP_PRIVATE | MAP_ANONYMOUS);
		memory_register(choice, end);
		cq_create(choice, slot, end);
	}
	for (i = 0; i < 2; i++)
		qp_new(choice, slot, &slot->ends[i]);
	slot_revive(choice, slot);
	for (i = 0; i < 2 && slot->type == IBV_QPT_UD; i++) {
		struct end *end = &slot->ends[i];

		end->ah = ah_make(end->device, slot->ends[!i].device);
		post_library(choice, slot, end);
		memcpy(&end->ah_number,
		       element(end->send_ring, 0) + offsetof(struct rxe_send_wqe, wr.wr.ud.ah_num),
		       sizeof(end->ah_number));
	}
	slot->spoil = spoil;
	for (i = 0; i < 2; i++) {
		struct end *end = &slot->ends[i];

		ring_set(end->cq_ring, COMPLETION_RING, spoil);
		ring_set(end->send_ring, SEND_RING, spoil);
		ring_set(end->receive_ring, RECEIVE_RING, spoil);
	}
}

static void slot_end(struct slot *slot)
{
	unsigned int i;
	int error = 0;

	for (i = 0; i < 2; i++)
		qp_end(&slot->ends[i]);
	for (i = 0; i < 2; i++) {
		struct end *end = &slot->ends[i];

		events_drain();
		error = ibv_destroy_cq(end->cq);
		if (error)
			die("ibv_destroy_cq: %s", strerror(error));
		ring_leave(&end->cq_ring);
		memory_deregister(end);
		munmap(end->memory.start, REGION_SIZE);
		ah_free(end->ah);
		end->ah = NULL;
	}
}

/* --- Work requests ---------------------------------------------------------------------- */

static const uint32_t opcodes[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_FLUSH, IBV_WR_ATOMIC_WRITE, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV,
};

static uint32_t opcode_choose(struct choice *choice, const struct slot *slot)
{
	if (slot->type == IBV_QPT_UD)
		return one_in(choice, 2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
	if (slot->type == IBV_QPT_RAW_PACKET && !one_in(choice, 20))
		return IBV_WR_SEND;
	if (slot->type == IBV_QPT_UC)
		return opcodes[below(choice, 4)];
	/* The last three mostly put the queue pair in error. */
	return opcodes[below(choice, one_in(choice, 20) ? ARRAY_SIZE(opcodes) : 9)];
}

static uint32_t sges_choose(struct choice *choice, const struct end *end, struct rxe_sge *sges,
			    uint32_t most, uint32_t longest)
{
	uint32_t count = below(choice, most + 1), i;

	for (i = 0; i < count; i++) {
		sges[i].length = below(choice, longest);
		sges[i].addr = (uintptr_t)end->memory.start +
			       below(choice, REGION_SIZE - sges[i].length);
		sges[i].lkey = end->memory.mr->lkey;
	}
	return count;
}

/* A request that could be carried out, in the form of the rings. Returns its bytes. */
static size_t send_make(struct choice *choice, const struct slot *slot, const struct end *end,
			uint8_t *bytes)
{
	const struct end *peer = &slot->ends[end == slot->ends];
	struct rxe_send_wqe *wqe = (struct rxe_send_wqe *)bytes;
	struct rxe_sge *sges = (struct rxe_sge *)(bytes + sizeof(*wqe));
	uint32_t longest = slot->type == IBV_QPT_UD ? 512 : 6000, i;
	bool atomic;

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr.wr_id = any(choice);
	wqe->wr.opcode = opcode_choose(choice, slot);
	wqe->wr.send_flags = one_in(choice, 2) ? IBV_SEND_SIGNALED : 0;
	wqe->wr.send_flags |= one_in(choice, 8) ? IBV_SEND_FENCE : 0;
	wqe->wr.send_flags |= one_in(choice, 8) ? IBV_SEND_SOLICITED : 0;
	wqe->wr.ex.imm_data = any(choice);
	atomic = wqe->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		 wqe->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	if (slot->type == IBV_QPT_UD) {
		wqe->wr.wr.ud.remote_qpn = peer->qp->qp_num;
		wqe->wr.wr.ud.remote_qkey = QKEY;
		wqe->wr.wr.ud.ah_num = end->ah_number;
	} else if (atomic) {
		wqe->wr.wr.atomic.remote_addr = (uintptr_t)peer->memory.start +
						8 * below(choice, REGION_SIZE / 8);
		wqe->wr.wr.atomic.rkey = peer->memory.mr->rkey;
		wqe->wr.wr.atomic.compare_add = below(choice, 2);
	} else if (wqe->wr.opcode == IBV_WR_FLUSH) {
		wqe->wr.wr.flush.remote_addr = (uintptr_t)peer->memory.start +
					       below(choice, REGION_SIZE / 4);
		wqe->wr.wr.flush.rkey = peer->memory.mr->rkey;
		wqe->wr.wr.flush.type = IBV_FLUSH_GLOBAL;
		wqe->wr.wr.flush.level = below(choice, 2);
		wqe->dma.length = below(choice, longest);
		return (size_t)1 << end->send_ring->shift;
	} else if (wqe->wr.opcode == IBV_WR_ATOMIC_WRITE) {
		uint64_t value = any(choice);

		wqe->wr.wr.rdma.remote_addr = (uintptr_t)peer->memory.start +
					      8 * below(choice, REGION_SIZE / 8);
		wqe->wr.wr.rdma.rkey = peer->memory.mr->rkey;
		memcpy(bytes + sizeof(*wqe), &value, sizeof(value));
		wqe->dma.length = sizeof(value);
		return (size_t)1 << end->send_ring->shift;
	} else {
		wqe->wr.wr.rdma.remote_addr = (uintptr_t)peer->memory.start +
					      below(choice, REGION_SIZE / 4);
		wqe->wr.wr.rdma.rkey = peer->memory.mr->rkey;
	}
	if (end->inline_size && one_in(choice, 4) && !atomic &&
	    wqe->wr.opcode != IBV_WR_RDMA_READ) {
		wqe->wr.send_flags |= IBV_SEND_INLINE;
		wqe->dma.length = below(choice, end->inline_size + 1);
		for (i = 0; i < wqe->dma.length; i++)
			bytes[sizeof(*wqe) + i] = i;
		wqe->dma.num_sge = below(choice, 2);
	} else {
		wqe->dma.num_sge = sges_choose(choice, end, sges, end->sges, longest);
		if (atomic) {
			wqe->dma.num_sge = 1;
			sges[0].addr = (uintptr_t)end->memory.start;
			sges[0].length = 8;
			sges[0].lkey = end->memory.mr->lkey;
		}
		for (i = 0; i < wqe->dma.num_sge; i++)
			wqe->dma.length += sges[i].length;
	}
	wqe->dma.resid = wqe->dma.length;
	return (size_t)1 << end->send_ring->shift;
}

static void doorbell(const struct end *end)
{
	int error = command_doorbell(end->device->context, end->qp->handle);

	/* In some states it is refused. */
	if (error && error != EINVAL && error != ENOMEM && error != EIO)
		die("a doorbell: %s", strerror(error));
}

/* Appends an element, where the library or we would, and says so in the ring. */
static void append(struct ring *ring, const uint8_t *bytes, size_t size)
{
	uint32_t at = ring->spoil == EVERYTHING ? ring->own : load(producer(ring));

	memcpy(element(ring, at), bytes, size);
	ring->own = (at + 1) & ring->mask;
	store(producer(ring), ring->own);
}

static bool full(struct ring *ring)
{
	uint32_t at = ring->spoil == EVERYTHING ? ring->own : load(producer(ring));

	return ((at + 1) & ring->mask) == (load(consumer(ring)) & ring->mask);
}

static void post_elements(struct choice *choice, struct slot *slot, struct end *end)
{
	static uint64_t room[1 << 10];
	uint8_t *bytes = (uint8_t *)room;
	uint32_t count = 1 + below(choice, 8);
	size_t size;

	while (count--) {
		struct ring whole = *end->send_ring;

		/* Sometimes over what the module has not done with. */
		if (full(end->send_ring) && !(slot->spoil == EVERYTHING && one_in(choice, 8)))
			break;
		size = send_make(choice, slot, end, bytes);
		whole.spoil = EVERYTHING;
		if (slot->spoil != NOTHING && one_in(choice, 10))
			spoil_field(choice, &whole, bytes);
		append(end->send_ring, bytes, size);
	}
	doorbell(end);
}

static void post_receives(struct choice *choice, struct slot *slot, struct end *end)
{
	static uint64_t room[1 << 8];
	struct rxe_recv_wqe *wqe = (struct rxe_recv_wqe *)room;
	struct rxe_sge *sges = (struct rxe_sge *)(wqe + 1);
	struct ring *ring = end->receive_ring;
	uint32_t most = ((1u << ring->shift) - sizeof(*wqe)) / sizeof(*sges);
	uint32_t count = 1 + below(choice, 16);

	while (count-- && !full(ring)) {
		struct ring whole = *ring;

		memset(wqe, 0, sizeof(*wqe));
		wqe->wr_id = any(choice);
		wqe->dma.num_sge = sges_choose(choice, end, sges, most, REGION_SIZE / 2);
		whole.spoil = EVERYTHING;
		if (slot->spoil != NOTHING && one_in(choice, 16))
			spoil_field(choice, &whole, (uint8_t *)wqe);
		append(ring, (uint8_t *)wqe, (size_t)1 << ring->shift);
	}
}

/* libibverbs trusts the header of a ring, so only where that is not spoilt. */
static void post_library(struct choice *choice, struct slot *slot, struct end *end)
{
	const struct end *peer = &slot->ends[end == slot->ends];
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->memory.start,
		.length = below(choice, 512),
		.lkey = end->memory.mr->lkey,
	};
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1 }, *bad_send;

	send.opcode = opcode_choose(choice, slot);
	if (send.opcode > IBV_WR_RDMA_READ)
		send.opcode = IBV_WR_SEND;
	send.send_flags = one_in(choice, 2) ? IBV_SEND_SIGNALED : 0;
	if (slot->type == IBV_QPT_UD) {
		send.wr.ud.ah = end->ah;
		send.wr.ud.remote_qpn = peer->qp->qp_num;
		send.wr.ud.remote_qkey = QKEY;
	} else {
		send.wr.rdma.remote_addr = (uintptr_t)peer->memory.start;
		send.wr.rdma.rkey = peer->memory.mr->rkey;
	}
	/* Whether they are taken depends on the state and on the room that is left. */
	ibv_post_recv(end->qp, &receive, &bad_receive);
	ibv_post_send(end->qp, &send, &bad_send);
}

/* A list of work requests as a program may write it that is not libibverbs. */
static void write_list(struct choice *choice, struct end *end)
{
	/* As much as out_words can say: ib_uverbs clears what it does not fill. */
	static uint8_t answer[4 << 16];
	static uint8_t bytes[1 << 14];
	struct ib_uverbs_cmd_hdr *header = (struct ib_uverbs_cmd_hdr *)bytes;
	struct ib_uverbs_post_send *command = (struct ib_uverbs_post_send *)(header + 1);
	struct ib_uverbs_send_wr *wrs = command->send_wr;
	static const uint32_t commands[] = {
		IB_USER_VERBS_CMD_POST_SEND, IB_USER_VERBS_CMD_POST_SEND,
		IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_POST_SRQ_RECV,
		IB_USER_VERBS_CMD_POLL_CQ,
	};
	uint32_t count = one_in(choice, 4) ? odd_value(choice, 0) : below(choice, 5), i;
	size_t size;

	for (i = 0; i + 8 <= sizeof(bytes); i += 8)
		put(bytes + i, any(choice), 8);
	header->command = commands[below(choice, ARRAY_SIZE(commands))];
	command->response = one_in(choice, 8) ? odd_value(choice, 0) : (uintptr_t)answer;
	command->qp_handle = one_in(choice, 8) ? odd_value(choice, 0) : end->qp->handle;
	command->wr_count = count;
	command->sge_count = one_in(choice, 4) ? odd_value(choice, 0) : below(choice, 9);
	command->wqe_size = one_in(choice, 4) ? odd_value(choice, 0) : sizeof(*wrs);
	for (i = 0; i < 4; i++) {
		wrs[i].num_sge = one_in(choice, 4) ? odd_value(choice, 0) : below(choice, 3);
		wrs[i].opcode = one_in(choice, 4) ? odd_value(choice, 0)
						  : opcodes[below(choice, ARRAY_SIZE(opcodes))];
		wrs[i].wr.ud.ah = one_in(choice, 2) ? below(choice, 16)
						    : (end->ah ? end->ah->handle : 0);
	}
	size = sizeof(*header) + sizeof(*command) + (size_t)command->wr_count * command->wqe_size +
	       (size_t)command->sge_count * sizeof(struct ib_uverbs_sge);
	if (size > sizeof(bytes) || one_in(choice, 8))
		size = below(choice, sizeof(bytes) / 4) * 4;
	header->in_words = one_in(choice, 8) ? any(choice) : size / 4;
	header->out_words = one_in(choice, 8) ? any(choice) : 16;
	if (write(end->device->context->cmd_fd, bytes, size) >= 0 && count && count < 5 &&
	    header->command != IB_USER_VERBS_CMD_POLL_CQ && command->qp_handle == end->qp->handle)
		die("command %u: a list of %u by write() is taken", header->command, count);
}

/* --- Actions ----------------------------------------------------------------------------- */

static void poll_completions(struct choice *choice, struct slot *slot, struct end *end)
{
	struct ring *ring = end->cq_ring;
	struct ibv_wc wcs[16];
	int found, i;

	if (slot->spoil == EVERYTHING) {
		/* The kernel's index in the ring is spoilt, too: what is there is not looked at. */
		store(consumer(ring), load(producer(ring)) - below(choice, 3));
		return;
	}
	found = ibv_poll_cq(end->cq, 16, wcs);
	for (i = 0; i < found; i++) {
		counts->completions++;
		counts->successes += wcs[i].status == IBV_WC_SUCCESS;
		/* An unknown status is not of this slot's making: nobody spoils its completions. */
		if ((unsigned int)wcs[i].status > IBV_WC_TM_RNDV_INCOMPLETE)
			die("a completion with status %d", wcs[i].status);
	}
}

static void resize(struct choice *choice, struct slot *slot, struct end *end)
{
	static struct mappings before;
	struct ring *old = end->cq_ring;
	int error;

	mappings_read(end->device->context, &before);
	error = ibv_resize_cq(end->cq, 1 + below(choice, 300));
	/* Too small for what is in it, or what its indices make of that. */
	if (error == EINVAL)
		return;
	if (error)
		die("ibv_resize_cq: %s", strerror(error));
	rings_find(end->device->context, &before, &end->cq_ring, 1);
	ring_set(end->cq_ring, COMPLETION_RING, slot->spoil);
	ring_leave(&old);
}

static void spoil_index(struct choice *choice, struct slot *slot, struct end *end)
{
	struct ring *all[] = { end->send_ring, end->receive_ring, end->cq_ring };
	struct ring *ring = all[below(choice, 3)];

	if (slot->spoil != EVERYTHING)
		return;
	spoil_header(choice, ring);
	doorbell(end);
}

/* A child that keeps the mappings, and writes to them when the objects are gone. */
static void fork_spoiler(struct choice *choice)
{
	pid_t child;
	unsigned int i;

	pthread_mutex_lock(&rings_lock);
	child = fork_child();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (i = 0; i < 20000; i++) {
			spoil(choice, &rings[below(choice, RINGS)]);
			if (i % 100 == 0)
				usleep(2000);
		}
		_exit(0);
	}
	pthread_mutex_unlock(&rings_lock);
}

static void act(struct choice *choice, enum action action)
{
	struct slot *slot = &slots[below(choice, SLOTS)];
	struct end *end = &slot->ends[below(choice, 2)];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	switch (action) {
	case POST_ELEMENTS:
		post_elements(choice, slot, end);
		break;
	case POST_LIBRARY:
		if (slot->spoil != EVERYTHING)
			post_library(choice, slot, end);
		break;
	case POST_RECEIVES:
		post_receives(choice, slot, end);
		break;
	case DOORBELL:
		doorbell(end);
		break;
	case WRITE_LIST:
		write_list(choice, end);
		break;
	case POLL:
		poll_completions(choice, slot, end);
		break;
	case ARM:
		if (ibv_req_notify_cq(end->cq, below(choice, 2)))
			die("ibv_req_notify_cq");
		events_drain();
		break;
	case MODIFY:
		qp_modify(choice, slot, end, below(choice, IBV_QPS_UNKNOWN), one_in(choice, 4));
		break;
	case REVIVE:
		if (qp_state(end->qp) != IBV_QPS_RTS)
			slot_revive(choice, slot);
		break;
	case QUERY:
		ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init);
		break;
	case RENEW_QP:
		qp_end(end);
		qp_new(choice, slot, end);
		slot_revive(choice, slot);
		break;
	case RENEW_REGION:
		memory_deregister(end);
		memory_register(choice, end);
		if (one_in(choice, 2) && madvise(end->memory.start, REGION_SIZE, MADV_DONTNEED))
			die("madvise: %s", strerror(errno));
		break;
	case RESIZE:
		resize(choice, slot, end);
		break;
	case SPOIL_INDEX:
		spoil_index(choice, slot, end);
		break;
	case FORK:
		fork_spoiler(choice);
		break;
	case RENEW_SLOT:
		slot_end(slot);
		slot_make(choice, slot);
		break;
	default:
		break;
	}
	counts->done[action]++;
}

static uint64_t acted(void)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < ACTIONS; i++)
		sum += counts->done[i];
	return sum;
}

static void not_blocking(int file)
{
	if (fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK))
		die("fcntl: %s", strerror(errno));
}

static struct choice spoiler_choice;
static struct bystander bystander;

/* The process that may die of its own doing. */
static void worker(const char *const *names, uint64_t seed, unsigned int seconds)
{
	struct choice choice = { seed * 2 + 1 };
	uint64_t end = now_ms() + seconds * 1000;
	pthread_t thread;
	unsigned int i;

	coverage_start();
	for (i = 0; i < 2; i++) {
		device_open(&opened[i], names[i], 4);
		channels[i] = ibv_create_comp_channel(opened[i].context);
		if (!channels[i])
			die("ibv_create_comp_channel");
		not_blocking(channels[i]->fd);
		not_blocking(opened[i].context->async_fd);
	}
	for (i = 0; i < SLOTS; i++)
		slot_make(&choice, &slots[i]);
	spoiler_choice.state = seed ^ 0x5a5a5a5a5a5a5a5a;
	if (!spoiler_choice.state)
		spoiler_choice.state = 1;
	thread_start(&thread, spoiler, &spoiler_choice);
	while (fuzzer_goes_on(end, acted() >= FEWEST_ACTIONS && bystander_has_moved(&bystander))) {
		act(&choice, weighted(&choice, &actions[0].weight, sizeof(actions[0]), ACTIONS));
		coverage_collect();
		events_drain();
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	for (i = 0; i < SLOTS; i++)
		slot_end(&slots[i]);
	over = true;
	pthread_join(thread, NULL);
	for (i = 0; i < 2; i++) {
		events_drain();
		if (ibv_destroy_comp_channel(channels[i]))
			die("ibv_destroy_comp_channel");
		device_close(&opened[i]);
	}
	while (wait(NULL) > 0)
		;
	counts->ended = true;
}

static bool enough(void)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < ACTIONS; i++) {
		ksft_print_msg("%" PRIu64 " %s\n", counts->done[i], actions[i].name);
		all = all && (counts->done[i] || actions[i].weight < SELDOM);
	}
	ksft_print_msg("%" PRIu64 " fields, %" PRIu64 " elements, %" PRIu64 " headers spoilt\n",
		       counts->spoilt_fields, counts->spoilt_elements, counts->spoilt_headers);
	ksft_print_msg("%" PRIu64 " completions looked at, %" PRIu64 " of success\n",
		       counts->completions, counts->successes);
	ksft_print_msg("executions %" PRIu64 "\n", acted());
	return all && acted() >= FEWEST_ACTIONS && counts->successes && counts->spoilt_headers &&
	       counts->spoilt_elements && counts->spoilt_fields;
}

static const char *const *names;

static void begin(char **operands)
{
	names = (const char *const *)operands;
	fuzzer_begin();
	counts = fuzzer_shared(sizeof(*counts));
}

static void tell(void)
{
	bool ended;
	pid_t pid;

	bystander_start(&bystander, names[0], names[1], seed);
	pid = fuzzer_fork();
	if (!pid) {
		worker(names, seed, fuzzer.seconds);
		fuzzer_end();
		fflush(stdout);
		_exit(0);
	}
	ended = fuzzer_wait(pid, LAST_ACTION_MS) && counts->ended;
	row_result(ended, "rings: all is destroyed as it should", NULL);
	row_result(enough(), "rings: everything was tried", NULL);
	row_result(bystander_stop(&bystander), "rings: others notice nothing", NULL);
}

const struct test test = { .begin = begin, .told = 3, .tell = tell };
