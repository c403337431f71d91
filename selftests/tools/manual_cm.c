// SPDX-License-Identifier: GPL-2.0
/*
 * Chapters 4, 5 and 6.3 of the "RDMA Aware Networks Programming" manual, entry by entry: each function of
 * librdmacm that asks the kernel once, and each event that can come on RoCE. Then the functions that librdmacm has
 * beyond the manual. Documentation/manual.rst says what else shows them.
 *
 * manual_cm -r COMMAND -a COMMAND -g COMMAND -R ADDRESS -A ADDRESS -G ADDRESS -b ADDRESS -i NETDEV
 *	     NAMESPACE ADDRESS NAMESPACE ADDRESS
 *	the server's network namespace and address, then the client's
 *	-i	the server's netdev
 *	-b	an address for the client at which nobody answers, though it has a neighbour entry
 *	-r, -R	removes the device below the address, both in the network namespace of the program
 *	-a, -A	lets the hardware address below the address change, likewise
 *	-g, -G	removes the address, likewise
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>

#include "test.h"
#include "waiter.h"
#include "wire.h"

#define LENGTH 5000
#define RESOLVE_MS 5000
#define WAIT_MS 30000
/* The connection manager asks 16 times, and waits 4.3 s for an answer each time. */
#define UNREACHABLE_MS 120000
#define TIMEWAIT_MS 60000
/* IBTA 12.6.7.2, reason 35: vendor option not supported. */
#define REJECTED_VENDOR_OPTION 35

struct party {
	const char *namespace;
	const char *address;
};

/* What an event says; the event itself is acknowledged. */
struct news {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id, *listener;
	char private[256];
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud;
	} param;
};

static struct party server, client;
static int home;

static void entry(bool ok, const char *name)
{
	row_result(ok, name, NULL);
}

/* From here on this thread's identifiers belong to that network namespace. */
static void enter(const struct party *party)
{
	char path[64];
	int fd = home;

	if (party) {
		snprintf(path, sizeof(path), "/run/netns/%s", party->namespace);
		fd = open(path, O_RDONLY);
	}
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die("%s: setns: %s", party ? path : "home", strerror(errno));
	if (party)
		close(fd);
}

static struct sockaddr_in socket_address(const char *address, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		die("%s is no address", address);
	return to;
}

/* The next event of a channel; it must be that one. */
static bool await_for(struct rdma_event_channel *channel, enum rdma_cm_event_type type, struct news *news, int ms)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	memset(news, 0, sizeof(*news));
	if (poll(&ready, 1, patience_ms(ms)) != 1) {
		ksft_print_msg("no %s\n", rdma_event_str(type));
		return false;
	}
	if (rdma_get_cm_event(channel, &event)) {
		ksft_print_msg("rdma_get_cm_event: %s\n", strerror(errno));
		return false;
	}
	*news = (struct news){ .type = event->event, .status = event->status, .id = event->id,
			       .listener = event->listen_id };
	if (event->id->ps == RDMA_PS_UDP) {
		news->param.ud = event->param.ud;
	} else {
		news->param.conn = event->param.conn;
		if (event->param.conn.private_data)
			memcpy(news->private, event->param.conn.private_data, event->param.conn.private_data_len);
	}
	if (rdma_ack_cm_event(event))
		die("rdma_ack_cm_event: %s", strerror(errno));
	if (news->type == type)
		return true;
	ksft_print_msg("%s (%d) instead of %s\n", rdma_event_str(news->type), news->status, rdma_event_str(type));
	return false;
}

static bool await(struct rdma_event_channel *channel, enum rdma_cm_event_type type, struct news *news)
{
	return await_for(channel, type, news, WAIT_MS);
}

static struct rdma_event_channel *channel_make(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel)
		die("rdma_create_event_channel: %s", strerror(errno));
	return channel;
}

static struct rdma_cm_id *id_make(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, &server, space))
		die("rdma_create_id: %s", strerror(errno));
	return id;
}

static struct ibv_qp_init_attr qp_attr(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.qp_type = type,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2 },
	};
}

/* With completion queues of its own, which rdma_create_qp() notes in the attributes: they are for one use. */
static bool qp_create(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = qp_attr(type);

	return !rdma_create_qp(id, NULL, &attr);
}

static void resolve(struct rdma_cm_id *id, const char *address, uint16_t port)
{
	struct sockaddr_in to = socket_address(address, port);
	struct news news;

	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS) ||
	    !await(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, &news) || rdma_resolve_route(id, RESOLVE_MS) ||
	    !await(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, &news))
		die("%s is not resolved", address);
}

/* A client that knows the way. */
static struct rdma_cm_id *resolved(struct rdma_event_channel *channel, enum rdma_port_space space,
				   const char *address, uint16_t port)
{
	struct rdma_cm_id *id = id_make(channel, space);

	resolve(id, address, port);
	return id;
}

static struct rdma_cm_id *listening(struct rdma_event_channel *channel, uint16_t *port)
{
	struct sockaddr_in here = socket_address(server.address, 0);
	struct rdma_cm_id *id = id_make(channel, RDMA_PS_TCP);

	if (rdma_bind_addr(id, (struct sockaddr *)&here) || rdma_listen(id, 4))
		die("nobody listens at %s: %s", server.address, strerror(errno));
	*port = ntohs(rdma_get_src_port(id));
	return id;
}

/* 6.3, the events that take their time: begun first and looked at last. */
static struct rdma_event_channel *unreachable_channel;
static struct rdma_cm_id *unreachable_id;

static void unreachable_begin(const char *address)
{
	struct rdma_conn_param param = { .retry_count = 7 };

	enter(&client);
	unreachable_channel = channel_make();
	unreachable_id = resolved(unreachable_channel, RDMA_PS_TCP, address, 7471);
	if (!qp_create(unreachable_id, IBV_QPT_RC) || rdma_connect(unreachable_id, &param))
		die("rdma_connect to %s: %s", address, strerror(errno));
}

static void unreachable_end(void)
{
	struct news news;

	entry(await_for(unreachable_channel, RDMA_CM_EVENT_UNREACHABLE, &news, UNREACHABLE_MS) && news.status,
	      "6.3 RDMA_CM_EVENT_UNREACHABLE");
	rdma_destroy_qp(unreachable_id);
	rdma_destroy_id(unreachable_id);
	rdma_destroy_event_channel(unreachable_channel);
}

static void lists(void)
{
	struct ibv_context **list;
	int count = 0;

	list = rdma_get_devices(&count);
	entry(list && count >= 2 && list[0] && !list[count], "4.2.21 rdma_get_devices");
	rdma_free_devices(list);
	list = rdma_get_devices(&count);
	entry(list && count >= 2, "4.2.22 rdma_free_devices");
	rdma_free_devices(list);
}

static struct rdma_addrinfo *information(const char *address, const char *port, int flags, enum ibv_qp_type type)
{
	struct rdma_addrinfo hints = {
		.ai_flags = flags,
		.ai_port_space = type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP,
		.ai_qp_type = type,
	}, *found = NULL;

	if (rdma_getaddrinfo(address, port, &hints, &found))
		die("rdma_getaddrinfo %s: %s", address, strerror(errno));
	return found;
}

/*
 * Chapter 4 with event channels: one connection that the server rejects, one that it accepts, one whose queue pair
 * is spoilt, one that leaves its queue pair to the client.
 */
static void connections(void)
{
	struct rdma_event_channel *at_server, *at_client, *other;
	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 6, .responder_resources = 2,
					 .initiator_depth = 2, .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_conn_param answer = { .responder_resources = 2, .initiator_depth = 2, .rnr_retry_count = 7 };
	struct sockaddr_in here = socket_address(server.address, 0), to;
	struct rdma_cm_id *listener, *id, *child = NULL;
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_ERR };
	uint8_t tos = 0x20;
	int other_fd;
	struct news news;
	uint16_t port;
	bool ok, told;

	enter(&server);
	at_server = channel_make();
	at_client = channel_make();
	other = channel_make();
	entry(at_server->fd >= 0 && at_client->fd != at_server->fd, "4.1.1 rdma_create_event_channel");
	ok = !rdma_create_id(at_server, &listener, &here, RDMA_PS_TCP);
	entry(ok && listener->context == &here && listener->ps == RDMA_PS_TCP && listener->channel == at_server,
	      "4.2.1 rdma_create_id");
	if (!ok)
		die("rdma_create_id: %s", strerror(errno));
	entry(!rdma_bind_addr(listener, (struct sockaddr *)&here) && listener->verbs, "4.2.8 rdma_bind_addr");
	port = ntohs(rdma_get_src_port(listener));
	entry(port, "4.2.17 rdma_get_src_port");
	entry(!rdma_listen(listener, 4), "4.2.10 rdma_listen");

	enter(&client);
	id = id_make(at_client, RDMA_PS_TCP);
	entry(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), "4.2.4 rdma_set_option");
	to = socket_address(server.address, port);
	ok = !rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS);
	told = await(at_client, RDMA_CM_EVENT_ADDR_RESOLVED, &news);
	entry(ok && told && id->verbs && id->port_num == PORT, "4.2.7 rdma_resolve_addr");
	entry(told && news.id == id && !news.status, "6.3 RDMA_CM_EVENT_ADDR_RESOLVED");
	ok = !rdma_resolve_route(id, RESOLVE_MS);
	told = await(at_client, RDMA_CM_EVENT_ROUTE_RESOLVED, &news);
	entry(ok && told && id->route.num_paths == 1, "4.2.9 rdma_resolve_route");
	entry(told && !news.status, "6.3 RDMA_CM_EVENT_ROUTE_RESOLVED");
	ok = qp_create(id, IBV_QPT_RC);
	entry(ok && id->qp && qp_state(id->qp) == IBV_QPS_INIT && id->send_cq && id->recv_cq, "4.2.25 rdma_create_qp");
	if (!ok)
		die("rdma_create_qp: %s", strerror(errno));
	ok = !rdma_connect(id, &param);
	told = await(at_server, RDMA_CM_EVENT_CONNECT_REQUEST, &news);
	entry(ok && told && !strcmp(news.private, "hello"), "4.2.11 rdma_connect");
	entry(told && news.listener == listener && news.id != listener && news.param.conn.initiator_depth == 2,
	      "6.3 RDMA_CM_EVENT_CONNECT_REQUEST");
	if (!told)
		die("no connection");
	child = news.id;
	ok = !rdma_reject(child, "no", 3);
	told = await(at_client, RDMA_CM_EVENT_REJECTED, &news);
	entry(ok && told && !strcmp(news.private, "no"), "4.2.14 rdma_reject");
	rdma_destroy_qp(id);
	entry(!id->qp, "4.2.26 rdma_destroy_qp");
	entry(!rdma_destroy_id(child) && !rdma_destroy_id(id), "4.2.2 rdma_destroy_id");

	/* Nobody listens at the next port. */
	id = resolved(at_client, RDMA_PS_TCP, server.address, port == 65535 ? 1024 : port + 1);
	ok = qp_create(id, IBV_QPT_RC) && !rdma_connect(id, &param);
	entry(ok && await(at_client, RDMA_CM_EVENT_REJECTED, &news) && news.status == 8,
	      "6.3 RDMA_CM_EVENT_REJECTED");
	rdma_destroy_qp(id);
	rdma_destroy_id(id);

	id = resolved(at_client, RDMA_PS_TCP, server.address, port);
	if (!qp_create(id, IBV_QPT_RC) || rdma_connect(id, &param) ||
	    !await(at_server, RDMA_CM_EVENT_CONNECT_REQUEST, &news))
		die("no second connection: %s", strerror(errno));
	child = news.id;
	entry(rdma_get_dst_port(id) == htons(port) && rdma_get_dst_port(child) == rdma_get_src_port(id),
	      "4.2.18 rdma_get_dst_port");
	entry(((struct sockaddr_in *)rdma_get_local_addr(child))->sin_addr.s_addr == here.sin_addr.s_addr,
	      "4.2.19 rdma_get_local_addr");
	entry(((struct sockaddr_in *)rdma_get_peer_addr(child))->sin_addr.s_addr ==
	      socket_address(client.address, 0).sin_addr.s_addr, "4.2.20 rdma_get_peer_addr");
	if (!qp_create(child, IBV_QPT_RC))
		die("rdma_create_qp: %s", strerror(errno));
	entry(!rdma_accept(child, &answer) && qp_state(child->qp) == IBV_QPS_RTS, "4.2.13 rdma_accept");
	/* The client has not said yet that it is ready: a message of it that comes first has the same meaning. */
	ok = !rdma_notify(child, IBV_EVENT_COMM_EST);
	told = await(at_server, RDMA_CM_EVENT_ESTABLISHED, &news);
	entry(ok && told && news.id == child, "4.2.15 rdma_notify");
	entry(await(at_client, RDMA_CM_EVENT_ESTABLISHED, &news) && qp_state(id->qp) == IBV_QPS_RTS,
	      "6.3 RDMA_CM_EVENT_ESTABLISHED");
	ok = !rdma_migrate_id(id, other) && id->channel == other;
	told = !rdma_disconnect(id);
	entry(told && qp_state(id->qp) == IBV_QPS_ERR, "4.2.16 rdma_disconnect");
	told = await(at_server, RDMA_CM_EVENT_DISCONNECTED, &news) && news.id == child && !rdma_disconnect(child);
	entry(await(other, RDMA_CM_EVENT_DISCONNECTED, &news) && ok, "4.2.3 rdma_migrate_id");
	entry(told, "6.3 RDMA_CM_EVENT_DISCONNECTED");
	entry(await_for(other, RDMA_CM_EVENT_TIMEWAIT_EXIT, &news, TIMEWAIT_MS) && news.id == id,
	      "6.3 RDMA_CM_EVENT_TIMEWAIT_EXIT");
	rdma_destroy_qp(child);
	rdma_destroy_qp(id);
	rdma_destroy_id(child);
	rdma_destroy_id(id);

	/* A queue pair that cannot be made ready when the answer is there. */
	id = resolved(at_client, RDMA_PS_TCP, server.address, port);
	if (!qp_create(id, IBV_QPT_RC) || rdma_connect(id, &param) ||
	    ibv_modify_qp(id->qp, &state, IBV_QP_STATE) || !await(at_server, RDMA_CM_EVENT_CONNECT_REQUEST, &news))
		die("no third connection: %s", strerror(errno));
	child = news.id;
	if (!qp_create(child, IBV_QPT_RC) || rdma_accept(child, &answer))
		die("rdma_accept: %s", strerror(errno));
	entry(await(at_client, RDMA_CM_EVENT_CONNECT_ERROR, &news) && news.status, "6.3 RDMA_CM_EVENT_CONNECT_ERROR");
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_qp(child);
	rdma_destroy_id(child);

	/* A queue pair that librdmacm knows nothing of: the client brings it up by itself. */
	id = resolved(at_client, RDMA_PS_TCP, server.address, port);
	param.qp_num = 0x123;
	if (rdma_connect(id, &param) || !await(at_server, RDMA_CM_EVENT_CONNECT_REQUEST, &news))
		die("no fourth connection: %s", strerror(errno));
	child = news.id;
	if (!qp_create(child, IBV_QPT_RC) || rdma_accept(child, &answer))
		die("rdma_accept: %s", strerror(errno));
	entry(await(at_client, RDMA_CM_EVENT_CONNECT_RESPONSE, &news) && news.param.conn.qp_num == child->qp->qp_num,
	      "6.3 RDMA_CM_EVENT_CONNECT_RESPONSE");
	rdma_destroy_id(id);
	rdma_destroy_qp(child);
	rdma_destroy_id(child);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(at_server);
	rdma_destroy_event_channel(at_client);
	other_fd = other->fd;
	ok = fcntl(other_fd, F_GETFD) >= 0;
	rdma_destroy_event_channel(other);
	entry(ok && fcntl(other_fd, F_GETFD) < 0 && errno == EBADF, "4.1.2 rdma_destroy_event_channel");
}

static const struct rdma_conn_param asked = { .private_data = "hello", .private_data_len = 6, .responder_resources = 2,
					      .initiator_depth = 2, .retry_count = 7, .rnr_retry_count = 7 };
static const struct rdma_conn_param answered = { .responder_resources = 2, .initiator_depth = 2,
						 .rnr_retry_count = 7 };

/* The server's identifier of a connection that a client asks for. */
static struct rdma_cm_id *request(struct rdma_cm_id *id, uint32_t qpn, struct rdma_event_channel *at_server)
{
	struct rdma_conn_param param = asked;
	struct news news;

	param.qp_num = qpn;
	if (rdma_connect(id, &param) || !await(at_server, RDMA_CM_EVENT_CONNECT_REQUEST, &news))
		die("no connection: %s", strerror(errno));
	return news.id;
}

static void accepted(struct rdma_cm_id *child)
{
	struct rdma_conn_param param = answered;

	if (rdma_accept(child, &param))
		die("rdma_accept: %s", strerror(errno));
}

static union ibv_gid gid_of(const char *address)
{
	struct sockaddr_in to = socket_address(address, 0);
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff } };

	memcpy(gid.raw + 12, &to.sin_addr, 4);
	return gid;
}

/* 4.2.4: what the connection manager sends, and what the queue pair does, has the type of service that was asked for. */
static void type_of_service(const char *netdev)
{
	struct rdma_event_channel *at_server = channel_make(), *at_client = channel_make();
	const union ibv_gid own = gid_of(server.address), peer = gid_of(client.address);
	struct rdma_cm_id *listener, *id, *child;
	/* No bit of explicit congestion notification, which are not for users to set. */
	uint8_t tos = 0x48, mask = 0xfc;
	struct wire_packet packet;
	struct wire wire;
	struct news news;
	uint16_t port;
	bool ok;

	enter(&server);
	listener = listening(at_server, &port);
	enter(&client);
	id = id_make(at_client, RDMA_PS_TCP);
	ok = !rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	resolve(id, server.address, port);
	if (!qp_create(id, IBV_QPT_RC))
		die("rdma_create_qp: %s", strerror(errno));
	wire_open(&wire, server.namespace, netdev, &own, &peer);
	child = request(id, 0, at_server);
	ok &= wire_receive(&wire, 1, &packet, WAIT_MS) && (packet.traffic_class & mask) == tos;
	if (!ok)
		ksft_print_msg("the request for a connection: %#x\n", packet.traffic_class);
	if (!qp_create(child, IBV_QPT_RC) || rdma_post_recvv(child, NULL, NULL, 0))
		die("the server's queue pair: %s", strerror(errno));
	accepted(child);
	if (!await(at_client, RDMA_CM_EVENT_ESTABLISHED, &news) || !await(at_server, RDMA_CM_EVENT_ESTABLISHED, &news) ||
	    rdma_post_sendv(id, NULL, NULL, 0, 0))
		die("no connection: %s", strerror(errno));
	if (!wire_receive(&wire, child->qp->qp_num, &packet, WAIT_MS) || (packet.traffic_class & mask) != tos) {
		ksft_print_msg("the message: %#x\n", packet.traffic_class);
		ok = false;
	}
	entry(ok, "4.2.4 rdma_set_option: the type of service, on the wire");
	wire_close(&wire);
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	rdma_destroy_qp(child);
	rdma_destroy_id(id);
	rdma_destroy_id(child);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(at_server);
	rdma_destroy_event_channel(at_client);
}

/* One that librdmacm knows nothing of, brought to that state with the attributes that it knows. */
static bool qp_step(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	return !rdma_init_qp_attr(id, &attr, &mask) && mask & IBV_QP_STATE && attr.qp_state == state &&
	       !ibv_modify_qp(qp, &attr, mask) && qp_state(qp) == state;
}

/*
 * The functions of rdma_cm(7) that the manual does not have: for a client that makes its queue pair itself; for
 * servers; and those of enhanced connection establishment (ECE), which passes on what the two say, though no
 * provider without it does anything with that.
 */
static void beyond_the_manual(void)
{
	struct rdma_event_channel *at_server = channel_make(), *at_client = channel_make();
	struct ibv_ece ours = { .vendor_id = 0x1234, .options = 0x56789 }, theirs = {};
	struct ibv_srq_init_attr_ex shared = {
		.attr = { .max_wr = 8, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
	};
	struct ibv_qp_init_attr_ex extended = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_send_wr wr = { .wr_id = 31, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_init_attr attr = qp_attr(IBV_QPT_RC);
	struct rdma_cm_id *listener, *id, *child;
	struct ibv_wc wc = {};
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct news news;
	bool ok, has_srq;
	uint16_t port;

	enter(&server);
	listener = listening(at_server, &port);
	enter(&client);
	id = resolved(at_client, RDMA_PS_TCP, server.address, port);
	ok = !rdma_set_local_ece(id, &ours);
	child = request(id, 0x123, at_server);
	ok &= !rdma_get_remote_ece(child, &theirs) && theirs.vendor_id == ours.vendor_id &&
	      theirs.options == ours.options && !theirs.comp_mask;
	entry(ok, "rdma_set_local_ece");
	entry(!rdma_reject_ece(child, "no", 3) && await(at_client, RDMA_CM_EVENT_REJECTED, &news) &&
	      news.status == REJECTED_VENDOR_OPTION && !strcmp(news.private, "no"), "rdma_reject_ece");
	rdma_destroy_id(child);
	rdma_destroy_id(id);

	id = resolved(at_client, RDMA_PS_TCP, server.address, port);
	cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = cq ? ibv_create_qp(id->pd, &attr) : NULL;
	if (!qp || rdma_set_local_ece(id, &ours))
		die("no queue pair: %s", strerror(errno));
	ok = qp_step(id, qp, IBV_QPS_INIT);
	child = request(id, qp->qp_num, at_server);
	has_srq = !rdma_create_srq_ex(child, &shared) && child->srq;
	entry(!rdma_create_qp_ex(child, &extended) && child->qp && child->qp->srq == child->srq &&
	      ibv_qp_to_qp_ex(child->qp) && qp_state(child->qp) == IBV_QPS_INIT, "rdma_create_qp_ex");
	if (!child->qp || rdma_post_recvv(child, (void *)32, NULL, 0))
		die("the server's queue pair: %s", strerror(errno));
	accepted(child);
	if (!await(at_client, RDMA_CM_EVENT_CONNECT_RESPONSE, &news))
		die("no answer");
	/* The server's queue pair has no options. */
	entry(!rdma_get_remote_ece(id, &theirs) && theirs.vendor_id == ours.vendor_id && !theirs.options,
	      "rdma_get_remote_ece");
	ok &= qp_step(id, qp, IBV_QPS_RTR) && qp_step(id, qp, IBV_QPS_RTS);
	entry(ok, "rdma_init_qp_attr");
	entry(!rdma_establish(id) && await(at_server, RDMA_CM_EVENT_ESTABLISHED, &news) && news.id == child,
	      "rdma_establish");
	ok = !ibv_post_send(qp, &wr, &bad) && cq_poll(cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS;
	if (!ok)
		die("a message does not come through: %s", ibv_wc_status_str(wc.status));
	entry(has_srq && rdma_get_recv_comp(child, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 32,
	      "rdma_create_srq_ex");
	rdma_disconnect(id);
	rdma_destroy_qp(child);
	if (has_srq)
		rdma_destroy_srq(child);
	rdma_destroy_id(child);
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq))
		die("what is not used any more cannot be destroyed");

	shared = (struct ibv_srq_init_attr_ex){ .attr = { .max_wr = 8, .max_sge = 1 },
						.comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_XRC };
	errno = 0;
	if (has_own_provider()) {
		entry(!rdma_create_srq_ex(id, &shared) && id->srq, "rdma_create_srq_ex: XRC");
		if (id->srq)
			rdma_destroy_srq(id);
	} else {
		entry(rdma_create_srq_ex(id, &shared) == -1 && errno == EOPNOTSUPP && !id->srq,
		      "rdma_create_srq_ex: the provider has no XRC");
	}
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(at_server);
	rdma_destroy_event_channel(at_client);
}

#ifdef NO_ADDRINFO_EVENTS
static void address_information(void)
{
	row_result(true, "rdma_resolve_addrinfo", "librdmacm has none");
	row_result(true, "rdma_query_addrinfo", "librdmacm has none");
	row_result(true, "rdma_write_cm_event", "librdmacm has none");
}
#else
static void address_information(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_DNS | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP };
	struct rdma_event_channel *channel = channel_make();
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct sockaddr_in to = socket_address(server.address, 7476);
	struct rdma_addrinfo *found = NULL;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct news news;
	bool ok;

	enter(&client);
	id = id_make(channel, RDMA_PS_TCP);
	entry(!rdma_resolve_addrinfo(id, server.address, "7476", &hints) &&
	      await(channel, RDMA_CM_EVENT_ADDRINFO_RESOLVED, &news) && !news.status, "rdma_resolve_addrinfo");
	ok = !rdma_query_addrinfo(id, &found);
	entry(ok && found->ai_dst_len == sizeof(to) && !memcmp(found->ai_dst_addr, &to, sizeof(to)),
	      "rdma_query_addrinfo");
	if (ok)
		rdma_freeaddrinfo(found);
	/* Its argument takes the place of what await() looks at. */
	ok = !rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 5, 0x123456789abcdef0) &&
	     poll(&ready, 1, patience_ms(WAIT_MS)) == 1 && !rdma_get_cm_event(channel, &event);
	entry(ok && event->event == RDMA_CM_EVENT_USER && event->id == id && event->status == 5 &&
	      event->param.arg == 0x123456789abcdef0, "rdma_write_cm_event");
	if (ok)
		rdma_ack_cm_event(event);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}
#endif

static void destroy_id(void *id)
{
	if (rdma_destroy_id(id))
		die("rdma_destroy_id: %s", strerror(errno));
}

/* 4.3: an event is there once, says what it is about, and holds its identifier until it is acknowledged. */
static void event_operations(void)
{
	struct rdma_event_channel *channel = channel_make();
	struct sockaddr_in to = socket_address(server.address, 1);
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct waiter destroyer;
	struct rdma_cm_id *id;
	bool ok;

	enter(&client);
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK))
		die("O_NONBLOCK: %s", strerror(errno));
	ok = rdma_get_cm_event(channel, &event) && errno == EAGAIN;
	id = id_make(channel, RDMA_PS_TCP);
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS))
		die("rdma_resolve_addr: %s", strerror(errno));
	if (poll(&ready, 1, patience_ms(WAIT_MS)) != 1 || rdma_get_cm_event(channel, &event))
		die("no event");
	ok &= event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->id == id && !event->listen_id &&
	      !event->status;
	{
		struct rdma_cm_event *second;

		ok &= rdma_get_cm_event(channel, &second) && errno == EAGAIN;
	}
	entry(ok, "4.3.1 rdma_get_cm_event");
	/* What the acknowledgement is for is that this waits for it. */
	waiter_start(&destroyer, destroy_id, id);
	ok = waiter_waits(&destroyer, WAIT_MS);
	if (!ok)
		ksft_print_msg("rdma_destroy_id() does not wait for the event\n");
	ok &= !rdma_ack_cm_event(event);
	waiter_end(&destroyer);
	entry(ok, "4.3.2 rdma_ack_cm_event");
	rdma_destroy_event_channel(channel);
}

/* What a command does to an address. */
struct misfortune {
	const char *address, *command;
};

static bool gid_is_there(struct ibv_context *context, const union ibv_gid *gid)
{
	struct ibv_gid_entry entries[64];
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0), i;

	if (count < 0)
		die("ibv_query_gid_table: %zd", count);
	for (i = 0; i < count; i++) {
		if (!memcmp(&entries[i].gid, gid, sizeof(*gid)))
			return true;
	}
	return false;
}

/* A group is joined from an address that is not there any more: the way to it has no source. */
static void lost_source(struct rdma_event_channel *channel, const struct misfortune *loss)
{
	struct sockaddr_in group = socket_address("239.77.3.4", 0), source = socket_address(loss->address, 0);
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	struct rdma_cm_id *id = id_make(channel, RDMA_PS_UDP);
	union ibv_gid gid = gid_of(loss->address);
	struct news news;
	bool ok;

	if (rdma_bind_addr(id, (struct sockaddr *)&source))
		die("rdma_bind_addr to %s: %s", loss->address, strerror(errno));
	if (!gid_is_there(id->verbs, &gid) || system(loss->command))
		die("%s: no GID, or it stays", loss->address);
	while (gid_is_there(id->verbs, &gid)) {
		if (now_ms() > end)
			die("%s is still a GID", loss->address);
		usleep(1000);
	}
	ok = !rdma_join_multicast(id, (struct sockaddr *)&group, &group);
	entry(ok && await(channel, RDMA_CM_EVENT_MULTICAST_ERROR, &news) && news.id == id &&
	      news.param.ud.private_data == &group, "6.3 RDMA_CM_EVENT_MULTICAST_ERROR");
	rdma_destroy_id(id);
}

/* Of addresses that are none, of devices that go and addresses that go or change. */
static void misfortunes(const struct misfortune *removal, const struct misfortune *change,
			const struct misfortune *loss)
{
	struct rdma_event_channel *channel = channel_make();
	struct sockaddr_in nobody = socket_address("203.0.113.7", 1), source;
	struct rdma_cm_id *id;
	struct news news;
	bool ok;

	enter(&client);
	id = id_make(channel, RDMA_PS_TCP);
	nobody.sin_addr.s_addr = (socket_address(client.address, 0).sin_addr.s_addr & htonl(0xffffff00)) | htonl(0x4e);
	ok = !rdma_resolve_addr(id, NULL, (struct sockaddr *)&nobody, 1000);
	entry(ok && await(channel, RDMA_CM_EVENT_ADDR_ERROR, &news) && news.status, "6.3 RDMA_CM_EVENT_ADDR_ERROR");
	rdma_destroy_id(id);

	enter(NULL);
	lost_source(channel, loss);
	id = id_make(channel, RDMA_PS_TCP);
	source = socket_address(change->address, 0);
	if (rdma_bind_addr(id, (struct sockaddr *)&source))
		die("rdma_bind_addr to %s: %s", change->address, strerror(errno));
	ok = !system(change->command);
	entry(ok && await(channel, RDMA_CM_EVENT_ADDR_CHANGE, &news) && news.id == id, "6.3 RDMA_CM_EVENT_ADDR_CHANGE");
	rdma_destroy_id(id);
	id = id_make(channel, RDMA_PS_TCP);
	source = socket_address(removal->address, 0);
	if (rdma_bind_addr(id, (struct sockaddr *)&source))
		die("rdma_bind_addr to %s: %s", removal->address, strerror(errno));
	ok = !system(removal->command);
	entry(ok && await(channel, RDMA_CM_EVENT_DEVICE_REMOVAL, &news) && news.id == id,
	      "6.3 RDMA_CM_EVENT_DEVICE_REMOVAL");
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static bool joins(struct rdma_cm_id *id, struct sockaddr_in *group, uint32_t flags, union ibv_gid *gid)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = (struct sockaddr *)group,
	};
	struct news news;

	if (rdma_join_multicast_ex(id, &attr, group) || !await(id->channel, RDMA_CM_EVENT_MULTICAST_JOIN, &news))
		return false;
	*gid = news.param.ud.ah_attr.grh.dgid;
	return news.param.ud.private_data == group;
}

static void multicast(void)
{
	struct sockaddr_in group = socket_address("239.77.3.2", 0), source = socket_address(client.address, 0);
	struct rdma_event_channel *channel = channel_make();
	struct rdma_cm_id *id;
	union ibv_gid gid;
	struct news news;
	bool ok, told;

	enter(&client);
	id = id_make(channel, RDMA_PS_UDP);
	if (rdma_bind_addr(id, (struct sockaddr *)&source) || !qp_create(id, IBV_QPT_UD))
		die("no queue pair for multicast: %s", strerror(errno));
	ok = !rdma_join_multicast(id, (struct sockaddr *)&group, &group);
	told = await(channel, RDMA_CM_EVENT_MULTICAST_JOIN, &news);
	entry(ok && told, "4.2.27 rdma_join_multicast");
	entry(told && news.param.ud.private_data == &group && news.param.ud.qp_num == 0xffffff && news.param.ud.qkey,
	      "6.3 RDMA_CM_EVENT_MULTICAST_JOIN");
	entry(!rdma_leave_multicast(id, (struct sockaddr *)&group) &&
	      rdma_leave_multicast(id, (struct sockaddr *)&group), "4.2.28 rdma_leave_multicast");
	/* Whether the queue pair is attached shows where it is detached. */
	ok = joins(id, &group, RDMA_MC_JOIN_FLAG_FULLMEMBER, &gid) && !ibv_detach_mcast(id->qp, &gid, 0) &&
	     !ibv_attach_mcast(id->qp, &gid, 0);
	entry(ok && !rdma_leave_multicast(id, (struct sockaddr *)&group) && ibv_detach_mcast(id->qp, &gid, 0),
	      "rdma_join_multicast_ex: a full member");
	ok = joins(id, &group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, &gid) && ibv_detach_mcast(id->qp, &gid, 0);
	entry(ok && !rdma_leave_multicast(id, (struct sockaddr *)&group),
	      "rdma_join_multicast_ex: one that only sends");
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

/* Chapter 5, without event channels: the calls wait. The server is a thread. */
static struct {
	pthread_t thread;
	enum ibv_qp_type type;
	struct rdma_cm_id *listener, *id;
	struct ibv_mr *messages, *readable, *writable;
	uint8_t inbox[GRH + 2 * LENGTH], source[LENGTH], sink[LENGTH];
	bool has_srq, is_received, is_got;
	struct ibv_wc wc;
} peer;

static void *serve(void *unused)
{
	struct rdma_conn_param param = { .responder_resources = 2, .initiator_depth = 2, .rnr_retry_count = 7 };
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_qp_init_attr attr = qp_attr(peer.type);
	struct ibv_sge pieces[2];

	(void)unused;
	if (rdma_get_request(peer.listener, &peer.id))
		die("rdma_get_request: %s", strerror(errno));
	peer.is_got = peer.id && peer.id->event && peer.id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	if (peer.type == IBV_QPT_RC) {
		peer.has_srq = !rdma_create_srq(peer.id, NULL, &shared) && peer.id->srq;
		attr.srq = peer.id->srq;
	}
	if (rdma_create_qp(peer.id, NULL, &attr))
		die("rdma_create_qp: %s", strerror(errno));
	peer.messages = rdma_reg_msgs(peer.id, peer.inbox, sizeof(peer.inbox));
	peer.readable = rdma_reg_read(peer.id, peer.source, LENGTH);
	peer.writable = rdma_reg_write(peer.id, peer.sink, LENGTH);
	if (!peer.messages || !peer.readable || !peer.writable)
		die("memory is not registered: %s", strerror(errno));
	pieces[0] = (struct ibv_sge){ (uintptr_t)peer.inbox, GRH + 100, peer.messages->lkey };
	pieces[1] = (struct ibv_sge){ (uintptr_t)peer.inbox + GRH + 100, LENGTH, peer.messages->lkey };
	if (rdma_post_recvv(peer.id, (void *)11, pieces, 2))
		die("rdma_post_recvv: %s", strerror(errno));
	if (peer.type == IBV_QPT_RC &&
	    rdma_post_recv(peer.id, (void *)12, peer.inbox + GRH + LENGTH, LENGTH, peer.messages))
		die("rdma_post_recv: %s", strerror(errno));
	param.qp_num = peer.id->qp->qp_num;
	if (rdma_accept(peer.id, &param))
		die("rdma_accept: %s", strerror(errno));
	peer.is_received = rdma_get_recv_comp(peer.id, &peer.wc) == 1 && peer.wc.status == IBV_WC_SUCCESS;
	return NULL;
}

/* The client's end of a connection to the thread above. */
static struct rdma_cm_id *call(enum ibv_qp_type type, const char *port)
{
	struct rdma_conn_param param = { .responder_resources = 2, .initiator_depth = 2, .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = qp_attr(type);
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	memset(&peer, 0, sizeof(peer));
	random_fill(peer.source, LENGTH);
	peer.type = type;
	enter(&server);
	found = information(server.address, port, RAI_PASSIVE, type);
	if (rdma_create_ep(&peer.listener, found, NULL, NULL) || rdma_listen(peer.listener, 2))
		die("rdma_create_ep, to listen: %s", strerror(errno));
	rdma_freeaddrinfo(found);
	thread_start(&peer.thread, serve, NULL);
	enter(&client);
	found = information(server.address, port, 0, type);
	if (rdma_create_ep(&id, found, NULL, &attr))
		die("rdma_create_ep, to connect: %s", strerror(errno));
	rdma_freeaddrinfo(found);
	if (rdma_connect(id, &param))
		die("rdma_connect: %s", strerror(errno));
	return id;
}

static bool sent(struct rdma_cm_id *id, uintptr_t context, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	return rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == context &&
	       wc.opcode == opcode;
}

static void messages(void)
{
	static uint8_t outbox[LENGTH], got[LENGTH];
	struct rdma_cm_id *id = call(IBV_QPT_RC, "7473");
	struct ibv_mr *out, *in;
	struct ibv_sge pieces[2];
	struct ibv_wc wc = {};
	bool ok;

	random_fill(outbox, LENGTH);
	out = rdma_reg_msgs(id, outbox, LENGTH);
	in = rdma_reg_msgs(id, got, LENGTH);
	entry(id->qp && id->pd && id->send_cq, "4.2.5 rdma_create_ep");
	entry(out && in && out->length == LENGTH, "5.1.1 rdma_reg_msgs");
	if (!out || !in)
		die("rdma_reg_msgs: %s", strerror(errno));
	ok = !rdma_post_send(id, (void *)1, outbox, LENGTH, out, 0);
	entry(ok && sent(id, 1, IBV_WC_SEND), "5.2.6 rdma_post_send");
	pthread_join(peer.thread, NULL);
	entry(peer.is_got, "4.2.12 rdma_get_request");
	entry(peer.has_srq, "5.1.5 rdma_create_srq");
	/* The first piece of that receive has the room of a GRH and 100 bytes. */
	entry(peer.is_received && peer.wc.wr_id == 11 && peer.wc.byte_len == LENGTH &&
	      !memcmp(peer.inbox, outbox, LENGTH), "5.2.1 rdma_post_recvv");
	pieces[0] = (struct ibv_sge){ (uintptr_t)outbox, 1000, out->lkey };
	pieces[1] = (struct ibv_sge){ (uintptr_t)outbox + 3000, 2000, out->lkey };
	ok = !rdma_post_sendv(id, (void *)2, pieces, 2, 0) && sent(id, 2, IBV_WC_SEND);
	entry(ok && rdma_get_recv_comp(peer.id, &wc) == 1 && wc.byte_len == 3000, "5.2.2 rdma_post_sendv");
	entry(wc.wr_id == 12 && !memcmp(peer.inbox + GRH + LENGTH, outbox, 1000) &&
	      !memcmp(peer.inbox + GRH + LENGTH + 1000, outbox + 3000, 2000), "5.2.5 rdma_post_recv");
	entry(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.qp_num == peer.id->qp->qp_num,
	      "5.2.11 rdma_get_recv_comp");
	ok = !rdma_post_read(id, (void *)3, got, LENGTH, in, 0, (uintptr_t)peer.source, peer.readable->rkey);
	entry(ok && sent(id, 3, IBV_WC_RDMA_READ), "5.2.7 rdma_post_read");
	entry(!memcmp(got, peer.source, LENGTH), "5.1.2 rdma_reg_read");
	memset(got, 0, LENGTH);
	pieces[0] = (struct ibv_sge){ (uintptr_t)got + 500, 700, in->lkey };
	pieces[1] = (struct ibv_sge){ (uintptr_t)got + 2000, 2500, in->lkey };
	ok = !rdma_post_readv(id, (void *)4, pieces, 2, 0, (uintptr_t)peer.source + 8, peer.readable->rkey);
	entry(ok && sent(id, 4, IBV_WC_RDMA_READ) && !memcmp(got + 500, peer.source + 8, 700) &&
	      !memcmp(got + 2000, peer.source + 708, 2500) && !got[499] && !got[1999], "5.2.3 rdma_post_readv");
	ok = !rdma_post_write(id, (void *)5, outbox, LENGTH, out, 0, (uintptr_t)peer.sink, peer.writable->rkey);
	entry(ok && sent(id, 5, IBV_WC_RDMA_WRITE), "5.2.8 rdma_post_write");
	entry(!memcmp(peer.sink, outbox, LENGTH), "5.1.3 rdma_reg_write");
	pieces[0] = (struct ibv_sge){ (uintptr_t)outbox + 1000, 10, out->lkey };
	pieces[1] = (struct ibv_sge){ (uintptr_t)outbox, 990, out->lkey };
	ok = !rdma_post_writev(id, (void *)6, pieces, 2, 0, (uintptr_t)peer.sink + 2000, peer.writable->rkey);
	entry(ok && sent(id, 6, IBV_WC_RDMA_WRITE) && !memcmp(peer.sink + 2000, outbox + 1000, 10) &&
	      !memcmp(peer.sink + 2010, outbox, 990) && !memcmp(peer.sink, outbox, 2000) &&
	      !memcmp(peer.sink + 3000, outbox + 3000, 2000), "5.2.4 rdma_post_writev");
	/* A region that does not allow it, and what its completion says. */
	ok = !rdma_post_write(id, (void *)7, outbox, 8, out, 0, (uintptr_t)peer.source, peer.readable->rkey);
	entry(ok && rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 7,
	      "5.2.10 rdma_get_send_comp");
	rdma_disconnect(id);
	entry(!rdma_dereg_mr(out) && !rdma_dereg_mr(in) && !rdma_dereg_mr(peer.messages) &&
	      !rdma_dereg_mr(peer.readable) && !rdma_dereg_mr(peer.writable), "5.1.4 rdma_dereg_mr");
	rdma_destroy_qp(peer.id);
	rdma_destroy_srq(peer.id);
	entry(!peer.id->srq, "5.1.6 rdma_destroy_srq");
	rdma_destroy_ep(peer.id);
	rdma_destroy_ep(id);
	rdma_destroy_ep(peer.listener);
	/* Its port is free again. */
	enter(&server);
	{
		struct rdma_addrinfo *found = information(server.address, "7473", RAI_PASSIVE, IBV_QPT_RC);

		entry(found->ai_src_len && found->ai_port_space == RDMA_PS_TCP && found->ai_qp_type == IBV_QPT_RC &&
		      found->ai_flags & RAI_PASSIVE, "4.2.23 rdma_getaddrinfo");
		entry(!rdma_create_ep(&id, found, NULL, NULL), "4.2.6 rdma_destroy_ep");
		rdma_freeaddrinfo(found);
	}
	/* What was found is not needed any more. */
	if (rdma_get_src_port(id) != htons(7473))
		die("the endpoint has lost its port with what was found");
	rdma_destroy_ep(id);
}

static void datagrams(void)
{
	static uint8_t outbox[1000];
	struct rdma_cm_id *id = call(IBV_QPT_UD, "7474");
	struct rdma_ud_param *at = &id->event->param.ud;
	struct ibv_mr *out = rdma_reg_msgs(id, outbox, sizeof(outbox));
	struct ibv_ah *ah = ibv_create_ah(id->pd, &at->ah_attr);
	bool ok;

	random_fill(outbox, sizeof(outbox));
	if (!out || !ah)
		die("no memory or no way for a datagram: %s", strerror(errno));
	ok = !rdma_post_ud_send(id, (void *)8, outbox, sizeof(outbox), out, 0, ah, at->qp_num);
	ok &= sent(id, 8, IBV_WC_SEND);
	pthread_join(peer.thread, NULL);
	entry(ok && peer.is_received && peer.wc.byte_len == GRH + sizeof(outbox) &&
	      !memcmp(peer.inbox + GRH, outbox, sizeof(outbox)), "5.2.9 rdma_post_ud_send");
	if (ibv_destroy_ah(ah) || rdma_dereg_mr(out) || rdma_dereg_mr(peer.messages) ||
	    rdma_dereg_mr(peer.readable) || rdma_dereg_mr(peer.writable))
		die("what is not used any more cannot be destroyed");
	rdma_destroy_ep(id);
	rdma_destroy_ep(peer.id);
	rdma_destroy_ep(peer.listener);
}

static struct misfortune removal, change, loss;
static const char *black_hole, *netdev;

static bool take_option(int option, const char *argument)
{
	switch (option) {
	case 'r': removal.command = argument; break;
	case 'a': change.command = argument; break;
	case 'g': loss.command = argument; break;
	case 'R': removal.address = argument; break;
	case 'A': change.address = argument; break;
	case 'G': loss.address = argument; break;
	case 'b': black_hole = argument; break;
	case 'i': netdev = argument; break;
	}
	return true;
}

static void begin(char **operands)
{
	if (!removal.address || !removal.command || !change.address || !change.command || !loss.address ||
	    !loss.command || !black_hole || !netdev)
		die("see the head of its source for the options");
	server = (struct party){ operands[0], operands[1] };
	client = (struct party){ operands[2], operands[3] };
	home = open("/proc/self/ns/net", O_RDONLY);
}

static void tell(void)
{
	unreachable_begin(black_hole);
	lists();
	connections();
	type_of_service(netdev);
	event_operations();
	multicast();
	messages();
	datagrams();
	beyond_the_manual();
	address_information();
	misfortunes(&removal, &change, &loss);
	unreachable_end();
}

const struct test test = {
	.operands = "NAMESPACE ADDRESS NAMESPACE ADDRESS", .options = "r:a:g:R:A:G:b:i:", .option = take_option,
	.begin = begin, .told = 77, .tell = tell,
};
