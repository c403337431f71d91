// SPDX-License-Identifier: GPL-2.0
/*
 * A connection of rdma_cm from the device to itself.
 */

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/rdma_cm.h>

#include "consumer.h"

#define RESOLVE_MS 5000

struct connection {
	struct test *test;
	struct ib_pd *pd;
	struct ib_cq *cq;
	/* The listener, and the two ends. */
	struct rdma_cm_id *listener, *active, *passive;
	/* Of the active end: it is connected, or has failed; and it has heard of the end. */
	struct completion begun, ended;
	int error;
	/* The passive end does not answer when the connection ends. */
	bool is_silent;
};

static int connection_queue_pair(struct connection *connection, struct rdma_cm_id *id)
{
	struct ib_qp_init_attr attr = {
		.send_cq = connection->cq,
		.recv_cq = connection->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};

	return rdma_create_qp(id, connection->pd, &attr);
}

static struct rdma_conn_param connection_param(void)
{
	return (struct rdma_conn_param) {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
}

static int passive_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct connection *connection = id->context;
	struct rdma_conn_param param = connection_param();
	int error;

	if (event->event == RDMA_CM_EVENT_DISCONNECTED && !connection->is_silent)
		rdma_disconnect(id);
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return 0;
	error = connection_queue_pair(connection, id);
	if (error)
		return error;
	error = rdma_accept(id, &param);
	if (error) {
		rdma_destroy_qp(id);
		return error;
	}
	connection->passive = id;
	return 0;
}

/* The next step, as the one before has ended. */
static int active_step(struct connection *connection, struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = connection_param();
	int error;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(id, RESOLVE_MS);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		error = connection_queue_pair(connection, id);
		return error ?: rdma_connect_locked(id, &param);
	case RDMA_CM_EVENT_ESTABLISHED:
		complete(&connection->begun);
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		complete(&connection->ended);
		return 0;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return 0;
	default:
		return event->status ?: -EPROTO;
	}
}

static int active_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct connection *connection = id->context;
	int error = active_step(connection, id, event);

	if (error) {
		connection->error = error;
		complete(&connection->begun);
	}
	return 0;
}

static int connection_make(struct connection *connection)
{
	struct test *test = connection->test;
	struct sockaddr_storage address = {};
	struct ib_cq_init_attr attr = { .cqe = 16 };
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	union ib_gid gid;
	int error;

	error = rdma_query_gid(test->device, PORT, test->gid_index, &gid);
	must(test, !error, "rdma_query_gid: %d", error);
	rdma_gid2ip((struct sockaddr *)&address, &gid);
	pd = ib_alloc_pd(test->device, 0);
	must(test, !IS_ERR(pd), "ib_alloc_pd: %pe", pd);
	connection->pd = pd;
	cq = ib_create_cq(test->device, NULL, NULL, NULL, &attr);
	must(test, !IS_ERR(cq), "ib_create_cq: %pe", cq);
	connection->cq = cq;
	id = rdma_create_id(&init_net, passive_event, connection, RDMA_PS_TCP, IB_QPT_RC);
	must(test, !IS_ERR(id), "rdma_create_id: %pe", id);
	connection->listener = id;
	error = rdma_bind_addr(id, (struct sockaddr *)&address);
	must(test, !error, "rdma_bind_addr: %d", error);
	error = rdma_listen(id, 1);
	must(test, !error, "rdma_listen: %d", error);
	address = id->route.addr.src_addr;
	id = rdma_create_id(&init_net, active_event, connection, RDMA_PS_TCP, IB_QPT_RC);
	must(test, !IS_ERR(id), "rdma_create_id: %pe", id);
	connection->active = id;
	error = rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS);
	must(test, !error, "rdma_resolve_addr: %d", error);
	must(test, wait_for_completion_timeout(&connection->begun, patience()), "no connection");
	must(test, !connection->error, "no connection: %d", connection->error);
	return 0;
}

struct connection *connection_start(struct test *test, bool is_silent)
{
	struct connection *connection = kzalloc(sizeof(*connection), GFP_KERNEL);

	if (!connection) {
		row_fails(test, "no memory");
		return NULL;
	}
	connection->test = test;
	connection->is_silent = is_silent;
	init_completion(&connection->begun);
	init_completion(&connection->ended);
	if (connection_make(connection)) {
		connection_end(connection);
		return NULL;
	}
	return connection;
}

static void id_end(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

bool connection_end(struct connection *connection)
{
	bool is_told = true;

	if (connection->active && connection->active->qp) {
		rdma_disconnect(connection->active);
		is_told = wait_for_completion_timeout(&connection->ended, patience());
	}
	/* The listener first: no other passive end comes. */
	id_end(connection->listener);
	id_end(connection->active);
	id_end(connection->passive);
	if (connection->cq)
		ib_destroy_cq(connection->cq);
	if (connection->pd)
		ib_dealloc_pd(connection->pd);
	kfree(connection);
	return is_told;
}
