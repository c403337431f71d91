// SPDX-License-Identifier: GPL-2.0
/* Rings that are mapped, what is posted and polled in them, and streams of messages: see verbsfuzz.c. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_user_rxe.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "endpoint.h"
#include "verbsfuzz.h"

#define MAPPINGS 24
/* Posts of a stream, and how often it looks for completions after each. */
#define ROUNDS 60
#define LOOKS 400
/* Of a work request for sending, as all but the length of its message in the number that its completion has. */
#define SEND_MARK 0x5e4d0000000000ULL

struct ring {
	uint8_t *memory;
	size_t size;
	enum kind kind;
	bool sends;
	int file;
	/* Of the object that it belongs to. */
	uint32_t handle, type, pd;
	uint32_t mask, shift;
};

/* A ring that the threads of the process share. */
struct mapping {
	pthread_mutex_t lock;
	struct ring ring;
};

static struct mapping mappings[MAPPINGS];

void rings_prepare(void)
{
	unsigned int i;

	for (i = 0; i < MAPPINGS; i++)
		pthread_mutex_init(&mappings[i].lock, NULL);
}

/* --- Rings ---------------------------------------------------------------------------------- */

/* False if it is not what a ring should be: its mask and shift are what another process has written. */
static bool ring_open(struct ring *ring, int file, enum kind kind, const struct object *object, bool sends)
{
	const struct span *span = &object->rings[sends];

	*ring = (struct ring){
		.memory = MAP_FAILED, .size = span->size, .kind = kind, .sends = sends, .file = file,
		.handle = object->handle, .type = object->type, .pd = object->pd,
	};
	errno = EINVAL;
	if (span->size)
		ring->memory = mmap(NULL, span->size, PROT_READ | PROT_WRITE, MAP_SHARED, files[file], span->offset);
	if (ring->memory == MAP_FAILED) {
		ring->memory = NULL;
		return false;
	}
	memcpy(&ring->shift, ring->memory + offsetof(struct rxe_queue_buf, log2_elem_size), 4);
	memcpy(&ring->mask, ring->memory + offsetof(struct rxe_queue_buf, index_mask), 4);
	/* An element of any ring has room for a completion. */
	if (ring->shift <= 20 && (1U << ring->shift) >= sizeof(struct ib_uverbs_wc) &&
	    sizeof(struct rxe_queue_buf) + ((ring->mask + 1ULL) << ring->shift) <= ring->size)
		return true;
	munmap(ring->memory, ring->size);
	ring->memory = NULL;
	errno = EINVAL;
	return false;
}

/* Other threads may have it now. */
static void ring_leave(struct hand *hand, struct ring *ring)
{
	struct mapping *mapping = &mappings[below(&hand->choice, MAPPINGS)];
	struct ring old = *ring;

	if (!pthread_mutex_trylock(&mapping->lock)) {
		old = mapping->ring;
		mapping->ring = *ring;
		pthread_mutex_unlock(&mapping->lock);
	}
	if (old.memory)
		munmap(old.memory, old.size);
	ring->memory = NULL;
}

/* Where there is no ring, or not like that. */
static int wrong_map(struct hand *hand, struct span span)
{
	int protection = one_in(&hand->choice, 2) ? PROT_READ | PROT_WRITE | PROT_EXEC : PROT_READ;
	void *memory;

	hand->lies.lied = true;
	if (!span.size || one_in(&hand->choice, 2))
		span.size = 1 + below(&hand->choice, 1 << 20);
	if (one_in(&hand->choice, 2))
		span.offset = 4096 * (uint64_t)below(&hand->choice, 1 << 20);
	memory = mmap(NULL, span.size, protection, MAP_SHARED, files[hand->file], span.offset);
	if (memory == MAP_FAILED)
		return errno;
	munmap(memory, span.size);
	return 0;
}

static int ring_map(struct hand *hand)
{
	static const enum kind with_rings[] = { CQ, QP, QP, SRQ };
	enum kind kind = with_rings[below(&hand->choice, ARRAY_SIZE(with_rings))];
	bool sends = kind == QP && one_in(&hand->choice, 2);
	struct object *object = object_pick(hand, hand->file, kind);
	struct ring ring;

	if (!object)
		return NOTHING;
	if (one_in(&hand->choice, LIE))
		return wrong_map(hand, object->rings[sends]);
	if (!object->rings[sends].size)
		return NOTHING;
	if (!ring_open(&ring, hand->file, kind, object, sends))
		return errno;
	ring_leave(hand, &ring);
	return 0;
}

/* One that is held by nobody else: to be unlocked. */
static struct mapping *mapping_pick(struct hand *hand)
{
	struct mapping *mapping = &mappings[below(&hand->choice, MAPPINGS)];

	if (pthread_mutex_trylock(&mapping->lock))
		return NULL;
	if (mapping->ring.memory)
		return mapping;
	pthread_mutex_unlock(&mapping->lock);
	return NULL;
}

static int ring_unmap(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	struct ring *ring;

	if (!mapping)
		return NOTHING;
	ring = &mapping->ring;
	/* The first page on its own, where there are more: what is mapped there next is somebody else's. */
	if (ring->size > 4096 && one_in(&hand->choice, 4)) {
		munmap(ring->memory, 4096);
		munmap(ring->memory + 4096, ring->size - 4096);
	} else {
		munmap(ring->memory, ring->size);
	}
	ring->memory = NULL;
	pthread_mutex_unlock(&mapping->lock);
	return 0;
}

static uint32_t *producer(const struct ring *ring)
{
	return (uint32_t *)(ring->memory + offsetof(struct rxe_queue_buf, producer_index));
}

static uint32_t *consumer(const struct ring *ring)
{
	return (uint32_t *)(ring->memory + offsetof(struct rxe_queue_buf, consumer_index));
}

static uint8_t *element(const struct ring *ring, uint32_t index)
{
	return ring->memory + sizeof(struct rxe_queue_buf) + ((size_t)(index & ring->mask) << ring->shift);
}

/* --- Work requests -------------------------------------------------------------------------- */

/* The numbers of what a work request is made of. */
struct means {
	uint32_t key, remote_key, window, handle, peer;
};

static uint32_t number_of(const struct object *object)
{
	return object ? object->number : 0;
}

/* Makes a request to send; one that should work if the means do, unless it may be odd. */
static void send_make(struct hand *hand, const struct ring *ring, const struct means *means, bool odd,
		      struct rxe_send_wqe *wqe)
{
	/* The first three for datagrams, too, the next two for UC, the last three for nobody who wants them to work. */
	static const uint8_t opcodes[] = {
		IB_UVERBS_WR_SEND, IB_UVERBS_WR_SEND, IB_UVERBS_WR_SEND_WITH_IMM, IB_UVERBS_WR_RDMA_WRITE,
		IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, IB_UVERBS_WR_RDMA_READ, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD,
		IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, IB_UVERBS_WR_LOCAL_INV, IB_UVERBS_WR_BIND_MW,
		IB_UVERBS_WR_SEND_WITH_INV,
	};
	uint32_t known = ring->type == IBV_QPT_RC ? ARRAY_SIZE(opcodes) - 3 * !odd : ring->type == IBV_QPT_UC ? 5 : 3;
	struct rxe_sge *piece = (struct rxe_sge *)(wqe + 1);

	memset(wqe, 0, sizeof(*wqe) + sizeof(*piece));
	wqe->wr.opcode = opcodes[below(&hand->choice, known)];
	wqe->wr.send_flags = below(&hand->choice, 8);
	piece->addr = (uintptr_t)arena + below(&hand->choice, 2) * 4096;
	piece->length = below(&hand->choice, one_in(&hand->choice, 8) ? 30000 : 2000);
	piece->lkey = means->key;
	wqe->dma.num_sge = !odd || !one_in(&hand->choice, 4);
	switch (wqe->wr.opcode) {
	case IB_UVERBS_WR_RDMA_WRITE:
	case IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
	case IB_UVERBS_WR_RDMA_READ:
		wqe->wr.wr.rdma.remote_addr = (uintptr_t)arena;
		wqe->wr.wr.rdma.rkey = means->remote_key;
		break;
	case IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
	case IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		wqe->wr.wr.atomic.remote_addr = (uintptr_t)arena;
		wqe->wr.wr.atomic.rkey = means->remote_key;
		piece->length = 8;
		break;
	case IB_UVERBS_WR_LOCAL_INV:
		wqe->wr.ex.invalidate_rkey = means->window;
		wqe->dma.num_sge = 0;
		break;
	case IB_UVERBS_WR_SEND_WITH_INV:
		wqe->wr.ex.invalidate_rkey = means->window;
		break;
	case IB_UVERBS_WR_BIND_MW:
		wqe->wr.wr.mw.addr = (uintptr_t)arena;
		wqe->wr.wr.mw.length = 4096;
		wqe->wr.wr.mw.mr_lkey = means->key;
		wqe->wr.wr.mw.mw_rkey = means->window;
		wqe->wr.wr.mw.rkey = means->window;
		wqe->wr.wr.mw.access = IBV_ACCESS_REMOTE_WRITE;
		wqe->dma.num_sge = 0;
		break;
	default:
		if (ring->type != IBV_QPT_UD)
			break;
		wqe->wr.wr.ud.remote_qpn = means->peer;
		wqe->wr.wr.ud.remote_qkey = QKEY;
		wqe->wr.wr.ud.ah_num = means->handle;
		piece->length %= 1024;
		break;
	}
	wqe->dma.length = wqe->dma.num_sge ? piece->length : 0;
	wqe->dma.resid = wqe->dma.length;
	wqe->wr.wr_id = SEND_MARK | wqe->dma.length;
}

/*
 * Appends an element; false if there is no room. Sometimes a byte of it is wrong, but never one of an address: there
 * are regions of all addresses, and what is written to must be ours.
 */
static bool append(struct hand *hand, const struct ring *ring, const void *bytes, size_t size, bool odd)
{
	size_t counts = ring->sends ? offsetof(struct rxe_send_wqe, dma) : offsetof(struct rxe_recv_wqe, dma);
	uint32_t at = __atomic_load_n(producer(ring), __ATOMIC_ACQUIRE);

	if (size > 1U << ring->shift ||
	    ((at + 1 - __atomic_load_n(consumer(ring), __ATOMIC_ACQUIRE)) & ring->mask) == 0)
		return false;
	memcpy(element(ring, at), bytes, size);
	if (odd && one_in(&hand->choice, 24))
		element(ring, at)[(one_in(&hand->choice, 2) ? counts : 0) + below(&hand->choice, 16)] =
			any(&hand->choice);
	__atomic_store_n(producer(ring), (at + 1) & ring->mask, __ATOMIC_RELEASE);
	count(ring->sends ? &shared->sends : &shared->receives);
	return true;
}

static void send_append(struct hand *hand, const struct ring *ring, const struct means *means, bool odd)
{
	struct {
		struct rxe_send_wqe wqe;
		struct rxe_sge piece;
	} request;

	send_make(hand, ring, means, odd, &request.wqe);
	append(hand, ring, &request, sizeof(request), odd);
}

static void receives_append(struct hand *hand, const struct ring *ring, uint32_t number, uint32_t key, bool odd)
{
	struct {
		struct rxe_recv_wqe wqe;
		struct rxe_sge piece;
	} receive = {
		.wqe.dma.num_sge = 1,
		.piece = { .addr = (uintptr_t)arena + odd * 4096, .length = ARENA / 4, .lkey = key },
	};

	while (number-- && append(hand, ring, &receive, sizeof(receive), odd))
		;
}

static int doorbell(struct hand *hand, uint32_t handle)
{
	struct ib_uverbs_post_send core = {
		.qp_handle = handle,
		.wqe_size = sizeof(struct ib_uverbs_send_wr),
	};

	return RUN(hand, POST_SEND, &core, sizeof(struct ib_uverbs_post_send_resp));
}

static int sends_post(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	uint32_t number = 1 + below(&hand->choice, 4);
	int file, to = file_pick(hand);
	struct means means;
	struct ring ring;

	if (!mapping)
		return NOTHING;
	ring = mapping->ring;
	file = ring.file;
	if (!ring.sends || files[file] < 0) {
		pthread_mutex_unlock(&mapping->lock);
		return NOTHING;
	}
	to = to < 0 ? file : to;
	means = (struct means){
		.key = number_of(object_pick_of(hand, file, MR, ring.pd)),
		.remote_key = number_of(object_pick(hand, to, MR)),
		.window = number_of(object_pick_of(hand, file, MW, ring.pd)),
		.handle = number_of(object_pick_of(hand, file, AH, ring.pd)),
		.peer = number_of(object_pick(hand, to, QP)),
	};
	while (number--)
		send_append(hand, &ring, &means, true);
	pthread_mutex_unlock(&mapping->lock);
	hand->file = file;
	return doorbell(hand, ring.handle);
}

static int receives_post(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	const struct ring *ring;
	bool fits;

	if (!mapping)
		return NOTHING;
	ring = &mapping->ring;
	fits = !ring->sends && ring->kind != CQ;
	if (fits)
		receives_append(hand, ring, 1 + below(&hand->choice, 16),
				number_of(object_pick_of(hand, ring->file, MR, ring->pd)), true);
	pthread_mutex_unlock(&mapping->lock);
	return fits ? 0 : NOTHING;
}

/* Takes what is there; the sends among them, and whether one of all has failed. */
static uint32_t completions_take(const struct ring *ring, bool *failed)
{
	uint32_t at = __atomic_load_n(consumer(ring), __ATOMIC_ACQUIRE), most = 32, sends = 0;
	uint32_t end = __atomic_load_n(producer(ring), __ATOMIC_ACQUIRE);
	struct ib_uverbs_wc found;
	bool is_send;

	for (; ((at ^ end) & ring->mask) && most--; at++) {
		memcpy(&found, element(ring, at), sizeof(found));
		is_send = (found.wr_id & ~0xffffffffULL) == SEND_MARK;
		sends += is_send;
		count(&shared->completions);
		*failed = *failed || found.status;
		if (found.status)
			continue;
		count(&shared->successes);
		if (is_send) {
			count(&shared->good_sends);
			__atomic_fetch_add(&shared->bytes, found.wr_id & (ARENA - 1), __ATOMIC_RELAXED);
		}
	}
	__atomic_store_n(consumer(ring), at & ring->mask, __ATOMIC_RELEASE);
	return sends;
}

static int completions_poll(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	bool is_cq, failed = false;

	if (!mapping)
		return NOTHING;
	is_cq = mapping->ring.kind == CQ;
	if (is_cq)
		completions_take(&mapping->ring, &failed);
	pthread_mutex_unlock(&mapping->lock);
	return is_cq ? 0 : NOTHING;
}

/* Work requests in the command itself: not for queue pairs whose rings are mapped. */
static int list_post(struct hand *hand)
{
	struct {
		struct ib_uverbs_post_send command;
		struct ib_uverbs_send_wr request;
		struct ib_uverbs_sge piece;
	} core = {
		.command = {
			.qp_handle = hand->with[0]->handle,
			.wr_count = 1,
			.sge_count = 1,
			.wqe_size = sizeof(struct ib_uverbs_send_wr),
		},
		.request = { .num_sge = 1, .opcode = below(&hand->choice, 16) },
	};

	return RUN(hand, POST_SEND, &core, sizeof(struct ib_uverbs_post_send_resp));
}

/* --- Streams -------------------------------------------------------------------------------- */

/* One of the two ends, with all that it needs, in a file of its own or in the other's. */
struct end {
	int file;
	struct object pd, cq, mr, mw, ah, qp;
	struct ring sends, receives, completions;
	struct means means;
};

/* An object that is there, one time in so many, or a new one by that action. */
static int obtain(struct hand *hand, enum kind kind, uint32_t fresh, int (*make)(struct hand *), struct object *found)
{
	struct object *there = kind == PD ? object_pick(hand, hand->file, PD) :
					    object_pick_of(hand, hand->file, kind, hand->with[0]->handle);
	bool fits = there && (kind == PD || there->pd == hand->with[0]->handle) &&
		    (kind != MR || there->rings[0].size == ARENA);
	int error;

	if (fits && !one_in(&hand->choice, fresh)) {
		*found = *there;
		return 0;
	}
	error = make(hand);
	*found = hand->made;
	return error;
}

static int end_make(struct hand *hand, struct end *end, uint32_t type, uint32_t peer_device)
{
	static const uint8_t regions[] = { PINNED, PINNED, PAGED, ALL_ADDRESSES };
	int error;

	hand->file = end->file;
	error = obtain(hand, PD, 40, pd_alloc, &end->pd);
	hand->with[0] = &end->pd;
	error = error ? error : cq_create(hand);
	end->cq = hand->made;
	hand->argument = regions[below(&hand->choice, ARRAY_SIZE(regions))];
	error = error ? error : obtain(hand, MR, 4, region_register, &end->mr);
	error = error ? error : obtain(hand, MW, 8, window_alloc, &end->mw);
	hand->argument = peer_device;
	if (type == IBV_QPT_UD && !error) {
		error = handle_create(hand);
		end->ah = hand->made;
	}
	hand->with[1] = hand->with[2] = &end->cq;
	hand->argument = type;
	error = error ? error : qp_create(hand);
	end->qp = hand->made;
	if (error)
		return error;
	return ring_open(&end->sends, end->file, QP, &end->qp, true) &&
	       ring_open(&end->receives, end->file, QP, &end->qp, false) &&
	       ring_open(&end->completions, end->file, CQ, &end->cq, false) ? 0 : errno;
}

static void end_use(struct end *end, const struct end *other, struct used *used)
{
	end->means = (struct means){ end->mr.number, other->mr.number, end->mw.number, end->ah.number,
				     other->qp.number };
	/* No object has this handle. */
	memset(used->handles, 0xff, sizeof(used->handles));
	used->file = end->file;
	used->generation = shared->files[end->file].generation;
	used->handles[MR] = end->mr.handle;
	used->handles[QP] = end->qp.handle;
	if (end->qp.type == IBV_QPT_UD)
		used->handles[AH] = end->ah.handle;
	used->busy = true;
}

/* Messages one way, and what completes by them: false if a message did not work, or nothing came of it. */
static bool messages_move(struct hand *hand, struct end *from, struct end *to)
{
	uint32_t number = 1 + below(&hand->choice, 4), looks = LOOKS, left;
	bool failed = false;

	receives_append(hand, &to->receives, 8, to->mr.number, false);
	for (left = number; left; left--)
		send_append(hand, &from->sends, &from->means, one_in(&hand->choice, 100));
	hand->file = from->file;
	if (doorbell(hand, from->qp.handle))
		return false;
	for (left = number; left && looks && !failed && !shared->over; looks--) {
		uint32_t taken = completions_take(&from->completions, &failed);

		left -= taken < left ? taken : left;
		completions_take(&to->completions, &failed);
		if (left)
			usleep(500);
	}
	return looks && !failed;
}

/*
 * Two new queue pairs of any files that are connected, and messages between them for as long as that works: others
 * know all of their objects, and destroy them meanwhile.
 */
static int stream_run(struct hand *hand)
{
	static const uint8_t types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	uint32_t type = types[below(&hand->choice, ARRAY_SIZE(types))], rounds = ROUNDS, i;
	struct end ends[2] = { { .file = hand->file }, { .file = file_pick(hand) } };
	struct object *const qps[2] = { &ends[0].qp, &ends[1].qp };
	int in[2], error = 0;

	if (ends[1].file < 0)
		return NOTHING;
	hand->honest = true;
	for (i = 0; i < 2 && !error; i++) {
		in[i] = ends[i].file;
		error = end_make(hand, &ends[i], type, shared->files[ends[!i].file].device);
	}
	if (!error)
		error = qps_connect(hand, in, qps);
	if (!error) {
		for (i = 0; i < 2; i++)
			end_use(&ends[i], &ends[!i], &hand->used[i]);
		count(&shared->streams);
		while (rounds-- && !shared->over) {
			i = below(&hand->choice, 2);
			if (!messages_move(hand, &ends[i], &ends[!i]))
				break;
		}
		hand->used[0].busy = hand->used[1].busy = false;
	}
	hand->honest = false;
	for (i = 0; i < 2; i++) {
		struct ring *rings[] = { &ends[i].sends, &ends[i].receives, &ends[i].completions };
		uint32_t j;

		for (j = 0; j < ARRAY_SIZE(rings); j++)
			if (rings[j]->memory)
				ring_leave(hand, rings[j]);
	}
	return error;
}

const struct action traffic_actions[] = {
	{ "map a ring", ring_map, .weight = 60, .needs = { A_FILE } },
	{ "unmap a ring", ring_unmap, .weight = 8 },
	{ "post sends", sends_post, .weight = 80 },
	{ "post receives", receives_post, .weight = 60 },
	{ "poll", completions_poll, .weight = 80 },
	{ "post a list", list_post, .weight = 4, .needs = { QP }, .in_vain = true },
	{ "stream of messages", stream_run, .weight = 20, .needs = { A_FILE } },
	{ .name = NULL },
};
