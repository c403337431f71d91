// SPDX-License-Identifier: GPL-2.0
/*
 * Chapter 3 of the "RDMA Aware Networks Programming" manual, entry by entry: each function that asks a device once,
 * as the manual describes it. What each does in full is other tests' business; Documentation/manual.rst says whose.
 */

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include "test.h"
#include "waiter.h"

#define LENGTH 5000
#define QKEY 0x1234567
#define WAIT_MS 10000

struct end {
	struct device device;
	struct region source, sink;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct end ends[2];

static void entry(bool ok, const char *name)
{
	row_result(ok, name, NULL);
}

/* 3.1 and 3.2 */
static void device_operations(const char *name)
{
	struct ibv_device **list, *device = NULL;
	struct ibv_context *context;
	int count = 0, i;

	list = ibv_get_device_list(&count);
	for (i = 0; list && i < count; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			device = list[i];
	}
	entry(list && count >= 2 && !list[count], "3.2.1 ibv_get_device_list");
	if (!device)
		die("no device %s", name);
	entry(!strcmp(ibv_get_device_name(device), name), "3.2.3 ibv_get_device_name");
	context = ibv_open_device(device);
	if (!context)
		die("%s: ibv_open_device: %s", name, strerror(errno));
	{
		struct ibv_device_attr attr = {};

		entry(ibv_get_device_guid(device) && !ibv_query_device(context, &attr) &&
		      attr.node_guid == ibv_get_device_guid(device), "3.2.4 ibv_get_device_guid");
	}
	entry(context->device == device && context->cmd_fd >= 0 && context->async_fd >= 0 &&
	      context->num_comp_vectors > 0 && device->node_type == IBV_NODE_CA &&
	      device->transport_type == IBV_TRANSPORT_IB, "3.2.5 ibv_open_device");
	{
		struct ibv_port_attr port = {};

		entry(!ibv_query_port(context, PORT, &port) &&
		      !strcmp(ibv_port_state_str(port.state), "active"), "3.2.8 ibv_port_state_str");
	}
	/* What was opened stays so when the list goes. */
	ibv_free_device_list(list);
	{
		struct ibv_device_attr attr;

		entry(!ibv_query_device(context, &attr), "3.2.2 ibv_free_device_list");
	}
	entry(!ibv_close_device(context), "3.2.6 ibv_close_device");
}

static struct ibv_sge piece(struct region *region, uint32_t length)
{
	return region_sge(region, 0, length);
}

static bool post_message(struct ibv_qp *qp, enum ibv_wr_opcode opcode, unsigned int flags, struct region *region,
			 uint32_t length)
{
	struct ibv_sge sge = piece(region, length);
	struct region *to = &ends[1].sink;
	struct ibv_send_wr wr = { .wr_id = 2, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED | flags,
				  .sg_list = &sge, .num_sge = 1,
				  /* Of a write only. */
				  .wr.rdma = { .remote_addr = (uintptr_t)to->memory, .rkey = to->mr->rkey } }, *bad;

	return !ibv_post_send(qp, &wr, &bad);
}

static bool post_receive(struct ibv_qp *qp, struct region *region)
{
	struct ibv_sge sge = piece(region, LENGTH);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	return !ibv_post_recv(qp, &wr, &bad);
}

static bool completes(struct ibv_cq *cq, uint64_t wr_id, struct ibv_wc *wc)
{
	return cq_poll(cq, wc, WAIT_MS) && wc->status == IBV_WC_SUCCESS && wc->wr_id == wr_id;
}

static bool readable(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, patience_ms(WAIT_MS)) == 1;
}

/* One event of a completion queue, which is acknowledged. */
static bool told(struct end *end, struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_cq *which = NULL;
	void *cookie = NULL;

	if (!readable(channel->fd))
		return false;
	if (ibv_get_cq_event(channel, &which, &cookie))
		die("ibv_get_cq_event: %s", strerror(errno));
	ibv_ack_cq_events(which, 1);
	return which == cq && cookie == end;
}

static bool is_told(const struct ibv_comp_channel *channel)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };

	return poll(&ready, 1, 0) == 1;
}

/* Connected queue pairs of both ends; the completions of what arrives go to another queue than the end's. */
static void pair_make(struct ibv_qp *qps[2], struct ibv_cq *arrivals)
{
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };

	qps[0] = qp_make(&ends[0].device, IBV_QPT_RC, ends[0].cq, ends[0].cq, depth, NULL);
	qps[1] = qp_make(&ends[1].device, IBV_QPT_RC, ends[1].cq, arrivals, depth, NULL);
	qp_connect(&ends[0].device, qps[0], &ends[1].device, qps[1], IBV_MTU_1024, PATIENT);
}

static void pair_end(struct ibv_qp *qps[2])
{
	if (ibv_destroy_qp(qps[0]) || ibv_destroy_qp(qps[1]))
		die("ibv_destroy_qp");
}

/* A message from the first end to the second, whose two completions are taken. */
static bool message_passes(struct ibv_qp *qps[2], enum ibv_wr_opcode opcode, unsigned int flags)
{
	struct ibv_wc wc;

	return post_receive(qps[1], &ends[1].sink) &&
	       post_message(qps[0], opcode, flags, &ends[0].source, 8) && completes(qps[1]->recv_cq, 1, &wc) &&
	       completes(ends[0].cq, 2, &wc);
}

/* 3.3.7: completions come, and events of them, whichever vector it is. */
static bool vector_works(int vector)
{
	struct end *end = &ends[1];
	struct ibv_comp_channel *channel = ibv_create_comp_channel(end->device.context);
	struct ibv_cq *cq = channel ? ibv_create_cq(end->device.context, 8, end, channel, vector) : NULL;
	struct ibv_qp *qps[2];
	bool ok;

	if (!cq) {
		ksft_print_msg("vector %d: %s\n", vector, strerror(errno));
		return false;
	}
	pair_make(qps, cq);
	ok = !ibv_req_notify_cq(cq, 0) && message_passes(qps, IBV_WR_SEND, 0) && told(end, channel, cq);
	if (!ok)
		ksft_print_msg("vector %d: no completion or no event\n", vector);
	pair_end(qps);
	return !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && ok;
}

static void completion_vectors(void)
{
	struct ibv_context *context = ends[1].device.context;
	int count = context->num_comp_vectors, vector;
	bool all = count > 0, refused = true;

	for (vector = 0; vector < count; vector++)
		all &= vector_works(vector);
	entry(all, "3.3.7 ibv_create_cq: each completion vector");
	for (vector = count; refused && vector < count + 2; vector++) {
		errno = 0;
		refused = !ibv_create_cq(context, 8, NULL, NULL, vector) && errno == EINVAL;
	}
	errno = 0;
	entry(refused && !ibv_create_cq(context, 8, NULL, NULL, -1) && errno == EINVAL,
	      "3.3.7 ibv_create_cq: a vector that is not there");
}

/* 3.3 */
static void context_operations(struct end *end)
{
	struct ibv_context *context = end->device.context;
	struct ibv_device_attr device = {};
	struct ibv_port_attr port = {};
	struct ibv_comp_channel *channel;
	union ibv_gid gid = {};
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	__be16 pkey = 0;
	int i;

	entry(!ibv_query_device(context, &device) && device.phys_port_cnt == 1 && device.max_qp > 0 &&
	      device.max_qp_wr > 0 && device.max_sge > 0 && device.max_cq > 0 && device.max_cqe > 0 &&
	      device.max_mr > 0 && device.max_mr_size > 0 && device.max_pd > 0 && device.max_ah > 0 &&
	      device.max_srq > 0 && device.max_mw > 0 && device.max_mcast_grp > 0 &&
	      device.max_qp_rd_atom > 0 && device.max_qp_init_rd_atom > 0 && device.max_pkeys == 1 &&
	      device.device_cap_flags & IBV_DEVICE_BAD_PKEY_CNTR && device.device_cap_flags & IBV_DEVICE_BAD_QKEY_CNTR &&
	      device.atomic_cap != IBV_ATOMIC_NONE && device.page_size_cap & 4096, "3.3.1 ibv_query_device");
	entry(!ibv_query_port(context, PORT, &port) && port.link_layer == IBV_LINK_LAYER_ETHERNET &&
	      port.state == IBV_PORT_ACTIVE && port.gid_tbl_len > 0 && port.pkey_tbl_len == 1 &&
	      port.max_mtu == IBV_MTU_4096 && !port.lid && port.max_msg_sz >= 1u << 30 &&
	      ibv_query_port(context, 2, &port) == EINVAL, "3.3.2 ibv_query_port");
	entry(!ibv_query_gid(context, PORT, end->device.gid_index, &gid) &&
	      !memcmp(&gid, &end->device.gid, sizeof(gid)), "3.3.3 ibv_query_gid");
	entry(!ibv_query_pkey(context, PORT, 0, &pkey) && ntohs(pkey) == 0xffff &&
	      ibv_query_pkey(context, PORT, 1, &pkey), "3.3.4 ibv_query_pkey");
	pd = ibv_alloc_pd(context);
	entry(pd && pd->context == context, "3.3.5 ibv_alloc_pd");
	entry(pd && !ibv_dealloc_pd(pd), "3.3.6 ibv_dealloc_pd");
	channel = ibv_create_comp_channel(context);
	cq = channel ? ibv_create_cq(context, 100, &i, channel, 0) : NULL;
	entry(cq && cq->cqe >= 100 && cq->cq_context == &i && cq->channel == channel, "3.3.7 ibv_create_cq");
	entry(cq && !ibv_resize_cq(cq, 1000) && cq->cqe >= 1000 && !ibv_resize_cq(cq, 10) && cq->cqe >= 10 &&
	      ibv_resize_cq(cq, device.max_cqe + 1) == EINVAL, "3.3.8 ibv_resize_cq");
	entry(channel && ibv_destroy_comp_channel(channel) == EBUSY && cq && !ibv_destroy_cq(cq),
	      "3.3.9 ibv_destroy_cq");
	entry(channel && channel->fd >= 0, "3.3.10 ibv_create_comp_channel");
	entry(channel && !ibv_destroy_comp_channel(channel), "3.3.11 ibv_destroy_comp_channel");
}

/* Whether another context can open the target, too, and uses it on when the first has left it. */
static bool target_is_shared(struct end *end, struct ibv_xrcd_init_attr *domain, struct ibv_qp *first)
{
	struct ibv_context *other = ibv_open_device(end->device.context->device);
	struct ibv_xrcd *xrcd = other ? ibv_open_xrcd(other, domain) : NULL;
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = first->qp_num,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *second = xrcd ? ibv_open_qp(other, &attr) : NULL;
	bool ok = second && second->qp_num == first->qp_num && !qp_init(second, access_of(IBV_QPT_RC), 0) &&
		  qp_state(first) == IBV_QPS_INIT;

	ok = !ibv_destroy_qp(first) && ok && qp_state(second) == IBV_QPS_INIT;
	ok = (!second || !ibv_destroy_qp(second)) && ok;
	ok = (!xrcd || !ibv_close_xrcd(xrcd)) && ok;
	return (!other || !ibv_close_device(other)) && ok;
}

/*
 * The old calls of XRC are gone from libibverbs; these are what came in their place. Our own provider has them, and
 * librxe has not.
 */
static void xrc(struct end *end)
{
	const char *provider = getenv("FERROCE_PROVIDER");
	bool is_libferroce = provider && !strcmp(provider, "ferroce");
	bool has_xrc = has_own_provider(), ok;
	FILE *file = tmpfile();
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					     .fd = file ? fileno(file) : -1, .oflags = O_CREAT };
	struct ibv_srq_init_attr_ex srq_init = {
		.attr = { .max_wr = 16, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.srq_context = &domain,
		.pd = end->device.pd,
		.cq = end->cq,
	};
	struct ibv_qp_init_attr_ex qp_init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t number = 0;

	errno = 0;
	xrcd = ibv_open_xrcd(end->device.context, &domain);
	ok = has_xrc ? !!xrcd : !xrcd && errno == EOPNOTSUPP;
	ok = ok && !(end->device.attr.device_cap_flags & IBV_DEVICE_XRC) == !has_xrc;
	entry(ok, has_xrc ? "3.4.8 ibv_open_xrc_domain: ibv_open_xrcd" :
			    "3.4.8 ibv_open_xrc_domain: the provider has none");
	if (xrcd) {
		srq_init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
		srq_init.xrcd = xrcd;
		qp_init.xrcd = xrcd;
	}
	errno = 0;
	srq = ibv_create_srq_ex(end->device.context, &srq_init);
	ok = has_xrc ? srq && !ibv_get_srq_num(srq, &number) && number : !srq && errno == EINVAL;
	/* ibv_cmd_create_srq_ex() forgets them. */
	if (srq && is_libferroce)
		ok = ok && srq->srq_context == &domain && srq->pd == end->device.pd;
	entry(ok, has_xrc ? "3.4.9 ibv_create_xrc_srq: ibv_create_srq_ex" :
			    "3.4.9 ibv_create_xrc_srq: the provider has none");
	errno = 0;
	qp = ibv_create_qp_ex(end->device.context, &qp_init);
	if (!qp)
		ok = !has_xrc && errno;
	else
		ok = has_xrc && ibv_close_xrcd(xrcd) == EBUSY && target_is_shared(end, &domain, qp);
	/* A QP without a domain is none that could be opened. */
	if (is_libferroce) {
		struct ibv_qp_open_attr nowhere = { .qp_num = 1, .qp_type = IBV_QPT_XRC_RECV };

		errno = 0;
		ok = ok && !ibv_open_qp(end->device.context, &nowhere) && errno == EINVAL;
	}
	/* Its SRQ keeps the domain, too. */
	ok = (!srq || (ibv_close_xrcd(xrcd) == EBUSY && !ibv_destroy_srq(srq))) && ok;
	ok = (!xrcd || !ibv_close_xrcd(xrcd)) && ok;
	entry(ok, has_xrc ? "3.4.11 ibv_create_xrc_rcv_qp: ibv_create_qp_ex, ibv_open_qp" :
			    "3.4.11 ibv_create_xrc_rcv_qp: the provider has none");
	if (file)
		fclose(file);
}

/* 3.4 */
static void domain_operations(struct end *end)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 2 } };
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 10, .max_recv_wr = 20, .max_send_sge = 2, .max_recv_sge = 3 },
	};
	struct ibv_srq_attr attr = { .max_wr = 200 };
	uint8_t *memory = calloc(1, LENGTH);
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	mr = ibv_reg_mr(end->device.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	errno = 0;
	entry(mr && mr->addr == memory && mr->length == LENGTH && mr->pd == end->device.pd && mr->rkey &&
	      !ibv_reg_mr(end->device.pd, memory, LENGTH, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL,
	      "3.4.1 ibv_reg_mr");
	entry(mr && !ibv_dereg_mr(mr), "3.4.2 ibv_dereg_mr");
	qp = ibv_create_qp(end->device.pd, &init);
	entry(qp && qp->qp_num > 1 && qp->state == IBV_QPS_RESET && init.cap.max_send_wr >= 10 &&
	      init.cap.max_recv_wr >= 20 && init.cap.max_send_sge >= 2 && init.cap.max_recv_sge >= 3,
	      "3.4.3 ibv_create_qp");
	entry(qp && !ibv_destroy_qp(qp), "3.4.4 ibv_destroy_qp");
	srq = ibv_create_srq(end->device.pd, &shared);
	entry(srq && shared.attr.max_wr >= 16 && shared.attr.max_sge >= 2, "3.4.5 ibv_create_srq");
	entry(srq && !ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) && !ibv_query_srq(srq, &attr) &&
	      attr.max_wr >= 200, "3.4.6 ibv_modify_srq");
	entry(srq && !ibv_destroy_srq(srq), "3.4.7 ibv_destroy_srq");
	xrc(end);
	{
		struct ibv_ah_attr way = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = end->device.gid, .sgid_index = end->device.gid_index, .hop_limit = 1 },
		};

		ah = ibv_create_ah(end->device.pd, &way);
		way.is_global = 0;
		errno = 0;
		entry(ah && !ibv_create_ah(end->device.pd, &way) && errno == EINVAL, "3.4.15 ibv_create_ah");
	}
	entry(ah && !ibv_destroy_ah(ah), "3.4.16 ibv_destroy_ah");
	free(memory);
}

static struct ibv_qp *rc_qp(struct end *end)
{
	struct depth depth = { .send = 16, .receive = 16, .sges = 2, .inline_size = 64 };

	return qp_make(&end->device, IBV_QPT_RC, end->cq, end->cq, depth, NULL);
}

/* 3.5, one transition after the other, with what the manual requires for each. */
static void bringup(void)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	bool initialized = true, ready = true, sends = true, refused = true;
	int i;

	for (i = 0; i < 2; i++)
		ends[i].qp = rc_qp(&ends[i]);
	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i], *peer = &ends[!i];
		struct ibv_qp_attr rtr = {
			.qp_state = IBV_QPS_RTR,
			.path_mtu = IBV_MTU_1024,
			.dest_qp_num = peer->qp->qp_num,
			.rq_psn = 100 + !i,
			.max_dest_rd_atomic = 4,
			.min_rnr_timer = 12,
			.ah_attr = {
				.is_global = 1,
				.port_num = PORT,
				.grh = { .dgid = peer->device.gid, .sgid_index = end->device.gid_index,
					 .hop_limit = 64 },
			},
		};
		struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
					   .rnr_retry = 7, .sq_psn = 100 + i, .max_rd_atomic = 4 };
		int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		int rts_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

		refused &= ibv_modify_qp(end->qp, &rtr, rtr_mask) == EINVAL;
		initialized &= !ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS) && qp_state(end->qp) == IBV_QPS_INIT;
		refused &= ibv_modify_qp(end->qp, &rtr, rtr_mask & ~IBV_QP_DEST_QPN) == EINVAL;
		ready &= !ibv_modify_qp(end->qp, &rtr, rtr_mask) && qp_state(end->qp) == IBV_QPS_RTR;
		refused &= ibv_modify_qp(end->qp, &rts, rts_mask & ~IBV_QP_SQ_PSN) == EINVAL;
		sends &= !ibv_modify_qp(end->qp, &rts, rts_mask) && qp_state(end->qp) == IBV_QPS_RTS;
	}
	entry(refused, "3.5.1 ibv_modify_qp: what is missing or out of order is refused");
	entry(initialized, "3.5.2 RESET to INIT");
	entry(ready, "3.5.3 INIT to RTR");
	entry(sends, "3.5.4 RTR to RTS");
}

/* 3.6.1 to 3.6.10: a message, with an event for its completion. */
static void queue_pair_operations(void)
{
	struct end *sender = &ends[0], *receiver = &ends[1];
	struct ibv_sge sge = piece(&receiver->sink, LENGTH);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq_attr limits = {};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_cq *cq = NULL;
	void *cookie = NULL;
	struct ibv_srq *srq;
	struct ibv_wc wc;
	int i;

	entry(!ibv_query_qp(sender->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_AV, &init) &&
	      attr.qp_state == IBV_QPS_RTS && attr.timeout == 14 && attr.retry_cnt == 7 &&
	      attr.dest_qp_num == receiver->qp->qp_num && attr.path_mtu == IBV_MTU_1024 &&
	      !memcmp(&attr.ah_attr.grh.dgid, &receiver->device.gid, 16) && init.qp_type == IBV_QPT_RC &&
	      init.send_cq == sender->cq && init.cap.max_send_wr >= 16, "3.6.1 ibv_query_qp");
	srq = ibv_create_srq(sender->device.pd, &shared);
	if (!srq)
		die("ibv_create_srq: %s", strerror(errno));
	entry(!ibv_query_srq(srq, &limits) && limits.max_wr >= 16 && limits.max_sge >= 1 && !limits.srq_limit,
	      "3.6.2 ibv_query_srq");
	entry(!ibv_post_recv(receiver->qp, &wr, &bad_receive), "3.6.4 ibv_post_recv");
	entry(!ibv_req_notify_cq(receiver->cq, 0), "3.6.7 ibv_req_notify_cq");
	region_fill(&sender->source);
	entry(post_message(sender->qp, IBV_WR_SEND, 0, &sender->source, LENGTH), "3.6.5 ibv_post_send");
	sge = piece(&sender->sink, LENGTH);
	{
		/* As many as were granted, and then one too many. */
		bool fits = true;

		for (i = 0; i < (int)limits.max_wr; i++)
			fits &= !ibv_post_srq_recv(srq, &wr, &bad_receive);
		while (!ibv_post_srq_recv(srq, &wr, &bad_receive) && i++ < 100000)
			;
		entry(fits && i < 100000 && bad_receive == &wr && !ibv_destroy_srq(srq), "3.6.6 ibv_post_srq_recv");
	}
	entry(readable(receiver->channel->fd) && !ibv_get_cq_event(receiver->channel, &cq, &cookie) &&
	      cq == receiver->cq && cookie == receiver, "3.6.8 ibv_get_cq_event");
	ibv_ack_cq_events(receiver->cq, 1);
	memcpy(receiver->sink.expected, sender->source.memory, LENGTH);
	entry(completes(receiver->cq, 1, &wc) && wc.opcode == IBV_WC_RECV && wc.byte_len == LENGTH &&
	      wc.qp_num == receiver->qp->qp_num && region_check(&receiver->sink, "sink") &&
	      completes(sender->cq, 2, &wc) && wc.opcode == IBV_WC_SEND, "3.6.10 ibv_poll_cq");
}

/*
 * 3.6.7: who asks for solicited completions has events of these and of errors. A message's event comes before that of
 * the next one: where the last of some is there, so would the first one's be.
 */
static void solicited_only(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ends[1].device.context);
	struct ibv_cq *cq = channel ? ibv_create_cq(ends[1].device.context, 8, &ends[1], channel, 0) : NULL;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	bool quiet, sent_quietly, by_send, by_write, by_error;
	struct ibv_qp *qps[2];
	struct ibv_wc wc;
	int i;

	if (!cq)
		die("ibv_create_cq: %s", strerror(errno));
	pair_make(qps, cq);
	quiet = !ibv_req_notify_cq(cq, 1);
	sent_quietly = !ibv_req_notify_cq(ends[0].cq, 1);
	for (i = 0; i < 3; i++) {
		quiet &= message_passes(qps, IBV_WR_SEND, 0);
		quiet &= message_passes(qps, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
	}
	quiet &= !is_told(channel);
	by_send = message_passes(qps, IBV_WR_SEND, IBV_SEND_SOLICITED) && told(&ends[1], channel, cq);
	sent_quietly &= !is_told(ends[0].channel);
	by_write = !ibv_req_notify_cq(cq, 1) && message_passes(qps, IBV_WR_SEND, 0) && !is_told(channel) &&
		   message_passes(qps, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SOLICITED) &&
		   told(&ends[1], channel, cq);
	entry(quiet && sent_quietly, "3.6.7 ibv_req_notify_cq, solicited only: no event of another message");
	entry(by_send && by_write, "3.6.7 ibv_req_notify_cq, solicited only: an event of a solicited message");
	by_error = !ibv_req_notify_cq(cq, 1) && post_receive(qps[1], &ends[1].sink) &&
		   !ibv_modify_qp(qps[1], &error, IBV_QP_STATE) && told(&ends[1], channel, cq) &&
		   cq_poll(cq, &wc, WAIT_MS) && wc.status == IBV_WC_WR_FLUSH_ERR;
	entry(by_error, "3.6.7 ibv_req_notify_cq, solicited only: an event of an error");
	pair_end(qps);
	cq_drain(cq);
	pair_make(qps, cq);
	entry(!ibv_req_notify_cq(cq, 0) && !ibv_req_notify_cq(cq, 1) && message_passes(qps, IBV_WR_SEND, 0) &&
	      told(&ends[1], channel, cq) && !is_told(channel),
	      "3.6.7 ibv_req_notify_cq, solicited only: asked for after all completions, it is these");
	pair_end(qps);
	if (ibv_destroy_cq(cq) || ibv_destroy_comp_channel(channel))
		die("what is not used any more cannot be destroyed");
}

/* A message whose completion stays in the queue of what arrives. */
static bool message_waits(struct ibv_qp *qps[2], unsigned int flags)
{
	struct ibv_wc wc;

	return post_receive(qps[1], &ends[1].sink) && post_message(qps[0], IBV_WR_SEND, flags, &ends[0].source, 8) &&
	       completes(ends[0].cq, 2, &wc);
}

/*
 * 3.6.7: who polls, asks and sleeps, in this order, does not oversleep what has come in between. RDMA network cards tell
 * of that at once; IBTA does not ask for it.
 */
static void asked_late(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ends[1].device.context);
	struct ibv_cq *cq = channel ? ibv_create_cq(ends[1].device.context, 8, &ends[1], channel, 0) : NULL;
	bool at_once, once, unsolicited;
	struct ibv_qp *qps[2];
	struct ibv_wc wc;

	if (!cq)
		die("ibv_create_cq: %s", strerror(errno));
	pair_make(qps, cq);
	unsolicited = message_waits(qps, 0) && !ibv_req_notify_cq(cq, 1) && !is_told(channel) &&
		      message_waits(qps, IBV_SEND_SOLICITED) && told(&ends[1], channel, cq);
	cq_drain(cq);
	/* Nor does it count that a solicited one was there, and was polled. */
	unsolicited = unsolicited && message_waits(qps, IBV_SEND_SOLICITED) && cq_poll(cq, &wc, 0) &&
		      message_waits(qps, 0) && !ibv_req_notify_cq(cq, 1) && !is_told(channel);
	cq_drain(cq);
	at_once = message_waits(qps, 0) && !ibv_req_notify_cq(cq, 0) && told(&ends[1], channel, cq);
	once = !ibv_req_notify_cq(cq, 0) && !is_told(channel) && cq_poll(cq, &wc, 0) && !is_told(channel) &&
	       message_waits(qps, 0) && told(&ends[1], channel, cq);
	entry(at_once && once, "3.6.7 ibv_req_notify_cq: an event at once of a completion that nobody was told of, and one");
	entry(unsolicited, "3.6.7 ibv_req_notify_cq, solicited only: no event of another completion that is there");
	pair_end(qps);
	if (ibv_destroy_cq(cq) || ibv_destroy_comp_channel(channel))
		die("what is not used any more cannot be destroyed");
}

/* 3.6.11 and 3.6.12: a datagram, and the way back to its sender. */
static void ways_back(void)
{
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };
	struct end *sender = &ends[0], *receiver = &ends[1];
	struct ibv_sge sge = piece(&receiver->sink, GRH + LENGTH);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_ah *ah, *back = NULL;
	struct ibv_ah_attr attr = {};
	bool arrived, returned = false;
	struct ibv_qp *qps[2];
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++) {
		qps[i] = ud_make(&ends[i].device, ends[i].cq, ends[i].cq, depth, QKEY);
	}
	ah = ah_make(&sender->device, &receiver->device);
	recv_post(qps[1], &wr);
	sge = piece(&sender->sink, GRH + LENGTH);
	recv_post(qps[0], &wr);
	{
		struct ibv_sge from = piece(&sender->source, 100);
		struct ibv_send_wr datagram = {
			.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &from,
			.num_sge = 1, .wr.ud = { .ah = ah, .remote_qpn = qps[1]->qp_num, .remote_qkey = QKEY },
		}, *bad;

		send_post(qps[0], &datagram);
		arrived = completes(sender->cq, 2, &wc) && completes(receiver->cq, 1, &wc) &&
			  wc.wc_flags & IBV_WC_GRH && wc.src_qp == qps[0]->qp_num && wc.byte_len == GRH + 100;
		entry(arrived && !ibv_init_ah_from_wc(receiver->device.context, PORT, &wc,
						       (struct ibv_grh *)receiver->sink.memory, &attr) &&
		      attr.is_global && attr.grh.sgid_index == receiver->device.gid_index &&
		      !memcmp(&attr.grh.dgid, &sender->device.gid, 16), "3.6.11 ibv_init_ah_from_wc");
		back = ibv_create_ah_from_wc(receiver->device.pd, &wc, (struct ibv_grh *)receiver->sink.memory, PORT);
		if (back) {
			from = piece(&receiver->source, 200);
			datagram.wr.ud.ah = back;
			datagram.wr.ud.remote_qpn = wc.src_qp;
			returned = !ibv_post_send(qps[1], &datagram, &bad) && completes(receiver->cq, 2, &wc) &&
				   completes(sender->cq, 1, &wc) && wc.byte_len == GRH + 200 &&
				   !memcmp(sender->sink.memory + GRH, receiver->source.memory, 200);
		}
		entry(returned, "3.6.12 ibv_create_ah_from_wc");
	}
	ah_free(back);
	if (ibv_destroy_ah(ah) || ibv_destroy_qp(qps[0]) || ibv_destroy_qp(qps[1]))
		die("what is not used any more cannot be destroyed");
}

/* 3.6.13 and 3.6.14 */
static void groups(void)
{
	/* ::ffff:239.77.3.1 */
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 77, 3, 1 } };
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };
	struct end *end = &ends[0];
	struct ibv_qp *qp;

	qp = qp_make(&end->device, IBV_QPT_UD, end->cq, end->cq, depth, NULL);
	if (qp_init(qp, 0, QKEY))
		die("UD: RESET to INIT");
	entry(!ibv_attach_mcast(qp, &group, 0) && ibv_attach_mcast(end->qp, &group, 0) == EINVAL,
	      "3.6.13 ibv_attach_mcast");
	entry(!ibv_detach_mcast(qp, &group, 0) && ibv_detach_mcast(qp, &group, 0), "3.6.14 ibv_detach_mcast");
	qp_free(qp);
}

static void destroy_qp(void *qp)
{
	qp_free(qp);
}

static void destroy_cq(void *cq)
{
	cq_free(cq);
}

/* 3.7: SQ_DRAINED, the one event that can be asked for. What an event is about stays until it is acknowledged. */
static void events(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_context *context = ends[0].device.context;
	struct ibv_async_event event = {};
	struct waiter destroyer;
	bool ok;

	if (ibv_modify_qp(ends[0].qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY))
		die("RTS to SQD");
	do
		ok = readable(context->async_fd) && !ibv_get_async_event(context, &event);
	while (ok && event.event_type != IBV_EVENT_SQ_DRAINED && (ibv_ack_async_event(&event), true));
	entry(ok && event.element.qp == ends[0].qp, "3.7.1 ibv_get_async_event");
	waiter_start(&destroyer, destroy_qp, ends[0].qp);
	if (ok) {
		ok = waiter_waits(&destroyer, WAIT_MS);
		ibv_ack_async_event(&event);
	}
	waiter_end(&destroyer);
	entry(ok, "3.7.2 ibv_ack_async_event: ibv_destroy_qp() waits for it");
}

/* 3.6.9, of the second end: its completion queue is gone thereafter. */
static void acknowledgement(void)
{
	struct end *end = &ends[1];
	struct waiter destroyer;
	struct ibv_cq *which;
	struct ibv_qp *qps[2];
	void *cookie;
	bool ok;

	pair_make(qps, end->cq);
	ok = !ibv_req_notify_cq(end->cq, 0) && message_passes(qps, IBV_WR_SEND, 0) && readable(end->channel->fd) &&
	     !ibv_get_cq_event(end->channel, &which, &cookie) && which == end->cq;
	pair_end(qps);
	waiter_start(&destroyer, destroy_cq, end->cq);
	if (ok) {
		ok = waiter_waits(&destroyer, WAIT_MS);
		ibv_ack_cq_events(end->cq, 1);
	}
	waiter_end(&destroyer);
	entry(ok, "3.6.9 ibv_ack_cq_events: ibv_destroy_cq() waits for it");
}

/* Not in the manual: the provider of a device without enhanced connection establishment says so. */
static void enhanced_establishment(struct end *end)
{
	struct ibv_ece ece = {}, ours = { .vendor_id = 0x1234, .options = 0x56 };
	struct ibv_qp *qp = rc_qp(end);

	entry(ibv_query_ece(qp, &ece) == EOPNOTSUPP && !ece.vendor_id, "ibv_query_ece: the provider has none");
	entry(ibv_set_ece(qp, &ece) == EOPNOTSUPP && ibv_set_ece(qp, &ours) == EOPNOTSUPP,
	      "ibv_set_ece: the provider has none");
	qp_free(qp);
}

/* 3.8: the vendor's experimental calls became these of everybody's. */
static void extended(struct end *end)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_device_attr_ex attr = {};
	struct ibv_qp *qp = NULL;
	struct ibv_qp_ex *qpx;
	struct ibv_cq *cq;

	entry(!ibv_query_device_ex(end->device.context, NULL, &attr) && attr.odp_caps.general_caps & IBV_ODP_SUPPORT &&
	      attr.orig_attr.max_qp == end->device.attr.max_qp, "3.8.1 ibv_exp_query_device: ibv_query_device_ex");
	cq = ibv_create_cq(end->device.context, 8, NULL, NULL, 0);
	init.send_cq = cq;
	init.recv_cq = cq;
	init.pd = end->device.pd;
	if (cq)
		qp = ibv_create_qp_ex(end->device.context, &init);
	entry(qp, "3.8.2 ibv_exp_create_qp: ibv_create_qp_ex");
	if (!qp)
		die("ibv_create_qp_ex: %s", strerror(errno));
	qpx = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qpx);
	ibv_wr_set_sge(qpx, end->source.mr->lkey, (uintptr_t)end->source.memory, 8);
	/* Nothing can be sent before RTS, which is what the last call must say. */
	entry(ibv_wr_complete(qpx) == EINVAL, "3.8.3 ibv_exp_post_send: ibv_wr_start ... ibv_wr_complete");
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq))
		die("what is not used any more cannot be destroyed");
}

static void begin(char **names)
{
	int i;

	device_operations(names[0]);
	for (i = 0; i < 2; i++) {
		struct end *end = &ends[i];
		int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

		device_open(&end->device, names[i], 4);
		region_make(&end->source, &end->device, LENGTH, access);
		region_make(&end->sink, &end->device, GRH + LENGTH, access);
		end->channel = ibv_create_comp_channel(end->device.context);
		if (!end->channel)
			die("ibv_create_comp_channel: %s", strerror(errno));
		end->cq = ibv_create_cq(end->device.context, 64, end, end->channel, 0);
		if (!end->cq)
			die("ibv_create_cq: %s", strerror(errno));
	}
}

static void tell(void)
{
	context_operations(&ends[0]);
	completion_vectors();
	domain_operations(&ends[0]);
	bringup();
	queue_pair_operations();
	solicited_only();
	asked_late();
	ways_back();
	groups();
	enhanced_establishment(&ends[0]);
	events();
	qp_free(ends[1].qp);
	acknowledgement();
	cq_free(ends[0].cq);
	extended(&ends[0]);
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (ibv_destroy_comp_channel(ends[i].channel))
			die("ibv_destroy_comp_channel");
		region_free(&ends[i].source);
		region_free(&ends[i].sink);
		device_close(&ends[i].device);
	}
}

const struct test test = { .begin = begin, .end = end, .told = 62, .tell = tell };
