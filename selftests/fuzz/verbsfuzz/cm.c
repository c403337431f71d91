// SPDX-License-Identifier: GPL-2.0
/* Connections by rdma_cm: see verbsfuzz.c. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"
#include "verbsfuzz.h"

#define CM_FILES 2
/* Ids of a file of rdma_cm: each may have a MAD under way when it is destroyed, which is waited for. */
#define CM_IDS 3
#define FIRST_PORT 7000
#define CM_PORTS 2

/* As in librdmacm's rdma/rdma_cma.h, which cannot be included beside the kernel's rdma_user_cm.h. */
enum cm_event_type {
	ADDRESS_RESOLVED, ADDRESS_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE, CONNECT_ERROR,
	UNREACHABLE, REJECTED, ESTABLISHED, DISCONNECTED, TIMEWAIT_EXIT = 15,
};

/* How far an id is, as far as is known: bits. */
enum cm_state {
	CM_FREE, CM_NEW, CM_BOUND = 1 << 1, CM_LISTENING = 1 << 2, CM_RESOLVED = 1 << 3, CM_ROUTED = 1 << 4,
	CM_CONNECTING = 1 << 5, CM_REQUESTED = 1 << 6, CM_ANSWERED = 1 << 7, CM_CONNECTED = 1 << 8, CM_DEAD = 1 << 9,
	CM_ANY = (1 << 10) - 1,
	/*
	 * They wait for an answer. Who rejects, or cannot accept, what has a request or reply of its own under way
	 * makes ib_cm forget that message without cancelling it: cm_send_rej_locked(). It is repeated 15 times, for
	 * 69 s, and who destroys the id waits for that, with any driver.
	 */
	CM_ASKED = CM_REQUESTED | CM_ANSWERED,
};

struct cm_id {
	volatile enum cm_state state;
	uint32_t number;
};

static int cm_files[CM_FILES] = { -1, -1 };
static struct cm_id cm_ids[CM_FILES * CM_IDS];

static int file_of(const struct cm_id *id)
{
	return (id - cm_ids) / CM_IDS;
}

/* No states: one that is free. */
static struct cm_id *cm_find(struct hand *hand, unsigned int states)
{
	uint32_t first = below(&hand->choice, CM_FILES * CM_IDS), i;

	for (i = 0; i < CM_FILES * CM_IDS; i++) {
		struct cm_id *id = &cm_ids[(first + i) % (CM_FILES * CM_IDS)];

		if (states ? id->state & states : id->state == CM_FREE)
			return id;
	}
	return NULL;
}

struct cm_id *cm_pick(struct hand *hand, unsigned int states)
{
	/* Sometimes in any state. */
	return cm_find(hand, states != CM_ASKED && states && one_in(&hand->choice, 20) ? CM_ANY : states);
}

/* A command, whose body begins with an address if it has one, and whether it is a lie. */
static int cm_run(struct hand *hand, int file, uint32_t number, const void *body, size_t size, size_t answer_size)
{
	struct {
		struct rdma_ucm_cmd_hdr header;
		uint8_t body[1024];
	} request = { .header = { .cmd = number, .in = size, .out = answer_size } };

	memcpy(request.body, body, size);
	hand->lies.lied = one_in(&hand->choice, 2 * LIE);
	if (hand->lies.lied) {
		switch (below(&hand->choice, 4)) {
		case 0:
			request.header.in = below(&hand->choice, 600);
			break;
		case 1:
			request.header.out = below(&hand->choice, 600);
			break;
		case 2:
			size = below(&hand->choice, sizeof(request.body));
			break;
		default:
			request.body[8 + below(&hand->choice, size + 1)] = any(&hand->choice);
			break;
		}
	}
	memset(hand->answer, 0, 512);
	return write(cm_files[file], &request, sizeof(request.header) + size) < 0 ? errno : 0;
}

/* The same for the hand's id, which may go to another state by it. */
static int cm_step(struct hand *hand, uint32_t number, const void *body, size_t size, size_t answer_size,
		   enum cm_state next)
{
	int error = cm_run(hand, file_of(hand->id), number, body, size, answer_size);

	if (!error && !hand->lies.lied && next)
		hand->id->state = next;
	return error;
}

#define CM_STEP(hand, name, body, answer_size, next)                                               \
	cm_step(hand, RDMA_USER_CM_CMD_##name, body, sizeof(*(body)), answer_size, next)

static void cm_open(int file)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	/* With the old one its ids go. */
	memset(&cm_ids[file * CM_IDS], 0, CM_IDS * sizeof(cm_ids[0]));
	descriptor_set(&cm_files[file], fd);
}

void cm_renew(void)
{
	int i;

	for (i = 0; i < CM_FILES; i++)
		cm_open(i);
}

static int cm_create(struct hand *hand)
{
	static const uint8_t types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct rdma_ucm_create_id body = {
		.response = (uintptr_t)hand->answer,
		.uid = hand->id - cm_ids,
		.qp_type = types[below(&hand->choice, ARRAY_SIZE(types))],
	};
	int error;

	if (one_in(&hand->choice, 16))
		cm_open(file_of(hand->id));
	body.ps = body.qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	error = CM_STEP(hand, CREATE_ID, &body, sizeof(struct rdma_ucm_create_id_resp), CM_FREE);
	if (error)
		return error;
	memcpy(&hand->id->number, hand->answer, 4);
	hand->id->state = CM_NEW;
	return 0;
}

static void cm_address(struct hand *hand, struct __kernel_sockaddr_storage *to, uint32_t device)
{
	uint16_t port = FIRST_PORT + below(&hand->choice, CM_PORTS), family = AF_INET;
	uint8_t bytes[2] = { port >> 8, port };

	memcpy(to, &family, sizeof(family));
	memcpy((uint8_t *)to + 2, bytes, sizeof(bytes));
	/* The GID of an IPv4 address ends with it. */
	memcpy((uint8_t *)to + 4, known[device].gid.raw + 12, 4);
}

static int cm_bind(struct hand *hand)
{
	struct rdma_ucm_bind body = { .id = hand->id->number, .addr_size = 16 };

	cm_address(hand, &body.addr, crew_index % 2);
	return CM_STEP(hand, BIND, &body, 0, CM_BOUND);
}

static int cm_listen(struct hand *hand)
{
	struct rdma_ucm_listen body = { .id = hand->id->number, .backlog = 4 };

	return CM_STEP(hand, LISTEN, &body, 0, CM_LISTENING);
}

static int cm_resolve_address(struct hand *hand)
{
	struct rdma_ucm_resolve_addr body = { .id = hand->id->number, .timeout_ms = 500, .dst_size = 16 };

	cm_address(hand, &body.dst_addr, below(&hand->choice, 2));
	return CM_STEP(hand, RESOLVE_ADDR, &body, 0, CM_FREE);
}

static int cm_resolve_route(struct hand *hand)
{
	struct rdma_ucm_resolve_route body = { .id = hand->id->number, .timeout_ms = 500 };

	return CM_STEP(hand, RESOLVE_ROUTE, &body, 0, CM_FREE);
}

static struct rdma_ucm_conn_param cm_parameters(struct hand *hand)
{
	return (struct rdma_ucm_conn_param){
		.qp_num = below(&hand->choice, 1 << 24),
		.private_data_len = below(&hand->choice, 32),
		.responder_resources = below(&hand->choice, 4),
		.initiator_depth = below(&hand->choice, 4),
		.retry_count = below(&hand->choice, 8),
		.rnr_retry_count = below(&hand->choice, 8),
		.valid = 1,
	};
}

static int cm_connect(struct hand *hand)
{
	struct rdma_ucm_connect body = { .id = hand->id->number, .conn_param = cm_parameters(hand) };

	return CM_STEP(hand, CONNECT, &body, 0, CM_CONNECTING);
}

static int cm_accept(struct hand *hand)
{
	struct rdma_ucm_accept body = {
		.id = hand->id->number,
		.uid = hand->id - cm_ids,
		.conn_param = cm_parameters(hand),
	};

	/* Nobody else is to answer, too. */
	hand->id->state = CM_DEAD;
	return CM_STEP(hand, ACCEPT, &body, 0, CM_CONNECTED);
}

static int cm_reject(struct hand *hand)
{
	/* By the consumer: the kernel takes no other reason. */
	struct rdma_ucm_reject body = {
		.id = hand->id->number,
		.reason = 28,
		.private_data_len = below(&hand->choice, 32),
	};

	/* Nobody else is to answer, too. */
	hand->id->state = CM_DEAD;
	return CM_STEP(hand, REJECT, &body, 0, CM_DEAD);
}

static int cm_disconnect(struct hand *hand)
{
	struct rdma_ucm_disconnect body = { .id = hand->id->number };

	return CM_STEP(hand, DISCONNECT, &body, 0, CM_DEAD);
}

static int cm_query(struct hand *hand)
{
	struct rdma_ucm_query body = {
		.response = (uintptr_t)hand->answer,
		.id = hand->id->number,
		.option = below(&hand->choice, 3),
	};

	if (one_in(&hand->choice, 2))
		return CM_STEP(hand, QUERY_ROUTE, &body, sizeof(struct rdma_ucm_query_route_resp), CM_FREE);
	return CM_STEP(hand, QUERY, &body, 512, CM_FREE);
}

static int cm_attributes(struct hand *hand)
{
	struct rdma_ucm_init_qp_attr body = {
		.response = (uintptr_t)hand->answer,
		.id = hand->id->number,
		.qp_state = 1 + below(&hand->choice, 3),
	};

	return CM_STEP(hand, INIT_QP_ATTR, &body, sizeof(struct ib_uverbs_qp_attr), CM_FREE);
}

static int cm_option(struct hand *hand)
{
	struct rdma_ucm_set_option body = {
		.optval = (uintptr_t)hand->answer,
		.id = hand->id->number,
		.level = RDMA_OPTION_ID,
		.optname = below(&hand->choice, 4),
	};

	body.optlen = body.optname == RDMA_OPTION_ID_TOS || body.optname == RDMA_OPTION_ID_ACK_TIMEOUT ? 1 : 4;
	return CM_STEP(hand, SET_OPTION, &body, 0, CM_FREE);
}

static int cm_join(struct hand *hand)
{
	struct rdma_ucm_join_mcast body = {
		.response = (uintptr_t)hand->answer,
		.id = hand->id->number,
		.uid = CM_FILES * CM_IDS,
		.addr_size = 16,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
	};
	const uint8_t group[4] = { 239, 1, 2, below(&hand->choice, 4) };

	cm_address(hand, &body.addr, 0);
	memcpy((uint8_t *)&body.addr + 4, group, sizeof(group));
	return CM_STEP(hand, JOIN_MCAST, &body, sizeof(struct rdma_ucm_create_id_resp), CM_FREE);
}

static int cm_migrate(struct hand *hand)
{
	struct cm_id *from = hand->id, *to = cm_find(hand, CM_FREE);
	struct rdma_ucm_migrate_id body = {
		.response = (uintptr_t)hand->answer,
		.id = from->number,
		.fd = cm_files[file_of(from)],
	};
	int error;

	if (!to)
		return NOTHING;
	hand->id = to;
	error = CM_STEP(hand, MIGRATE_ID, &body, sizeof(struct rdma_ucm_migrate_resp), CM_FREE);
	if (!error && !hand->lies.lied) {
		*to = *from;
		from->state = CM_FREE;
	}
	return error;
}

static int cm_destroy_number(struct hand *hand, int file, uint32_t number)
{
	struct rdma_ucm_destroy_id body = { .response = (uintptr_t)hand->answer, .id = number };

	return cm_run(hand, file, RDMA_USER_CM_CMD_DESTROY_ID, &body, sizeof(body),
		      sizeof(struct rdma_ucm_destroy_id_resp));
}

static int cm_destroy(struct hand *hand)
{
	struct cm_id *id = cm_pick(hand, one_in(&hand->choice, 2) ? CM_DEAD : 1u << below(&hand->choice, 10));
	int error;

	if (!id)
		return NOTHING;
	error = cm_destroy_number(hand, file_of(id), id->number);
	if (!error && !hand->lies.lied)
		id->state = CM_FREE;
	return error;
}

/* Each request to connect comes with an id of its own, of the listener's file. */
static void cm_requested(struct hand *hand, int file, uint32_t number)
{
	struct cm_id *id;

	for (id = &cm_ids[file * CM_IDS]; id < &cm_ids[(file + 1) * CM_IDS]; id++) {
		if (id->state != CM_FREE)
			continue;
		id->number = number;
		id->state = CM_REQUESTED;
		return;
	}
	cm_destroy_number(hand, file, number);
	hand->lies.lied = false;
}

static int cm_event(struct hand *hand)
{
	static const enum cm_state next[] = {
		[ADDRESS_RESOLVED] = CM_RESOLVED,
		[ADDRESS_ERROR] = CM_DEAD,
		[ROUTE_RESOLVED] = CM_ROUTED,
		[ROUTE_ERROR] = CM_DEAD,
		[CONNECT_RESPONSE] = CM_ANSWERED,
		[CONNECT_ERROR] = CM_DEAD,
		[UNREACHABLE] = CM_DEAD,
		[REJECTED] = CM_DEAD,
		[ESTABLISHED] = CM_CONNECTED,
		[DISCONNECTED] = CM_DEAD,
		[TIMEWAIT_EXIT] = CM_DEAD,
	};
	struct rdma_ucm_get_event body = { .response = (uintptr_t)hand->answer };
	int file = below(&hand->choice, CM_FILES), error;
	struct rdma_ucm_event_resp event;

	error = cm_run(hand, file, RDMA_USER_CM_CMD_GET_EVENT, &body, sizeof(body), sizeof(event));
	if (error == EAGAIN && !hand->lies.lied)
		return NOTHING;
	if (error || hand->lies.lied)
		return error;
	memcpy(&event, hand->answer, sizeof(event));
	if (event.event == CONNECT_REQUEST)
		cm_requested(hand, file, event.id);
	else if (event.uid < CM_FILES * CM_IDS && event.event < ARRAY_SIZE(next) && next[event.event])
		cm_ids[event.uid].state = next[event.event];
	return 0;
}

static int cm_nonsense(struct hand *hand)
{
	uint32_t words[64], number = below(&hand->choice, 26), i;
	const uint64_t answer = (uintptr_t)hand->answer;

	/* See CM_ASKED. */
	if (number == RDMA_USER_CM_CMD_ACCEPT || number == RDMA_USER_CM_CMD_REJECT)
		return NOTHING;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = one_in(&hand->choice, 4) ? any(&hand->choice) : below(&hand->choice, 32);
	memcpy(words, &answer, sizeof(answer));
	return cm_run(hand, below(&hand->choice, CM_FILES), number, words,
		      4 * below(&hand->choice, ARRAY_SIZE(words)), below(&hand->choice, 512));
}

const struct action cm_actions[] = {
	{ "rdma_cm: create id", cm_create, .weight = 10, .needs = { CM_ID }, .argument = CM_FREE },
	{ "rdma_cm: bind", cm_bind, .weight = 6, .needs = { CM_ID }, .argument = CM_NEW },
	{ "rdma_cm: listen", cm_listen, .weight = 10, .needs = { CM_ID }, .argument = CM_BOUND },
	{ "rdma_cm: resolve address", cm_resolve_address, .weight = 12, .needs = { CM_ID }, .argument = CM_NEW },
	{ "rdma_cm: resolve route", cm_resolve_route, .weight = 12, .needs = { CM_ID }, .argument = CM_RESOLVED },
	{ "rdma_cm: connect", cm_connect, .weight = 12, .needs = { CM_ID }, .argument = CM_ROUTED },
	{ "rdma_cm: get event", cm_event, .weight = 40 },
	{ "rdma_cm: accept", cm_accept, .weight = 16, .needs = { CM_ID }, .argument = CM_ASKED, .in_vain = true },
	{ "rdma_cm: reject", cm_reject, .weight = 4, .needs = { CM_ID }, .argument = CM_ASKED, .in_vain = true },
	{ "rdma_cm: disconnect", cm_disconnect, .weight = 6, .needs = { CM_ID }, .argument = CM_CONNECTED, .in_vain = true },
	{ "rdma_cm: query", cm_query, .weight = 8, .needs = { CM_ID }, .argument = CM_ANY },
	{ "rdma_cm: QP attributes", cm_attributes, .weight = 6, .needs = { CM_ID }, .argument = CM_REQUESTED | CM_ROUTED },
	{ "rdma_cm: set option", cm_option, .weight = 4, .needs = { CM_ID }, .argument = CM_NEW },
	{ "rdma_cm: join a group", cm_join, .weight = 4, .needs = { CM_ID }, .argument = CM_RESOLVED | CM_BOUND, .in_vain = true },
	{ "rdma_cm: id to another file", cm_migrate, .weight = 2, .needs = { CM_ID }, .argument = CM_ANY },
	{ "rdma_cm: destroy id", cm_destroy, .weight = 10 },
	{ "rdma_cm: bytes without a meaning", cm_nonsense, .weight = 6, .in_vain = true },
	{ .name = NULL },
};
