// SPDX-License-Identifier: GPL-2.0
/*
 * Two queue pairs of one device, their queues, regions and memory: what the rows are made of.
 */

#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_cache.h>

#include "consumer.h"

static unsigned int slowness = 1;
module_param(slowness, uint, 0444);
MODULE_PARM_DESC(slowness, "how many times longer all may take");

unsigned long patience(void)
{
	return 20 * HZ * slowness;
}

/* --- Contexts --------------------------------------------------------------------------------- */

struct call {
	enum context context;
	void (*function)(void *argument);
	void *argument;
	bool was_right;
	struct work_struct work;
	struct irq_work irq;
};

static void call_now(struct call *call)
{
	switch (call->context) {
	case FROM_TASK:
		call->was_right = in_task() && !in_softirq() && !irqs_disabled();
		break;
	case FROM_BH_OFF:
		call->was_right = in_softirq() && !in_serving_softirq() && !irqs_disabled();
		break;
	case FROM_SOFTIRQ:
		call->was_right = in_serving_softirq();
		break;
	case FROM_IRQS_OFF:
		/* With PREEMPT_RT such a lock leaves interrupts on. */
		call->was_right = in_task() && (IS_ENABLED(CONFIG_PREEMPT_RT) || irqs_disabled());
		break;
	case FROM_HARDIRQ:
		/* With PREEMPT_RT the handlers of interrupts are threads. */
		call->was_right = IS_ENABLED(CONFIG_PREEMPT_RT) ? in_task() : in_hardirq();
		break;
	}
	call->function(call->argument);
}

static void call_work(struct work_struct *work)
{
	call_now(container_of(work, struct call, work));
}

static void call_irq(struct irq_work *irq)
{
	call_now(container_of(irq, struct call, irq));
}

bool call_from(enum context context, void (*function)(void *), void *argument)
{
	static DEFINE_SPINLOCK(lock);
	struct call call = { .context = context, .function = function, .argument = argument };
	unsigned long flags;

	switch (context) {
	case FROM_TASK:
		call_now(&call);
		break;
	case FROM_BH_OFF:
		local_bh_disable();
		call_now(&call);
		local_bh_enable();
		break;
	case FROM_SOFTIRQ:
		INIT_WORK_ONSTACK(&call.work, call_work);
		queue_work(system_bh_wq, &call.work);
		flush_work(&call.work);
		destroy_work_on_stack(&call.work);
		break;
	case FROM_IRQS_OFF:
		spin_lock_irqsave(&lock, flags);
		call_now(&call);
		spin_unlock_irqrestore(&lock, flags);
		break;
	case FROM_HARDIRQ:
		/* Not a "hard" one: that must not take spinlocks that sleep with PREEMPT_RT. */
		init_irq_work(&call.irq, call_irq);
		irq_work_queue(&call.irq);
		irq_work_sync(&call.irq);
		break;
	}
	return call.was_right;
}

/* --- Completions ------------------------------------------------------------------------------ */

const char *const queue_names[] = {
	[QUEUE_DIRECT] = "IB_POLL_DIRECT",
	[QUEUE_SOFTIRQ] = "IB_POLL_SOFTIRQ",
	[QUEUE_WORKQUEUE] = "IB_POLL_WORKQUEUE",
	[QUEUE_UNBOUND] = "IB_POLL_UNBOUND_WORKQUEUE",
	[QUEUE_SHARED_SOFTIRQ] = "shared, IB_POLL_SOFTIRQ",
	[QUEUE_SHARED_WORKQUEUE] = "shared, IB_POLL_WORKQUEUE",
	[QUEUE_BARE] = "ib_create_cq",
};

static const enum ib_poll_context poll_contexts[] = {
	[QUEUE_DIRECT] = IB_POLL_DIRECT,
	[QUEUE_SOFTIRQ] = IB_POLL_SOFTIRQ,
	[QUEUE_WORKQUEUE] = IB_POLL_WORKQUEUE,
	[QUEUE_UNBOUND] = IB_POLL_UNBOUND_WORKQUEUE,
	[QUEUE_SHARED_SOFTIRQ] = IB_POLL_SOFTIRQ,
	[QUEUE_SHARED_WORKQUEUE] = IB_POLL_WORKQUEUE,
	[QUEUE_BARE] = IB_POLL_DIRECT,
};

static bool is_pooled(enum queue_kind kind)
{
	return kind == QUEUE_SHARED_SOFTIRQ || kind == QUEUE_SHARED_WORKQUEUE;
}

static int bare_poll(struct ib_cq *cq, int budget)
{
	struct ib_wc wcs[4];
	int i, count, all = 0;

	while (all < budget) {
		count = ib_poll_cq(cq, min_t(int, ARRAY_SIZE(wcs), budget - all), wcs);
		if (count <= 0)
			break;
		for (i = 0; i < count; i++)
			wcs[i].wr_cqe->done(cq, &wcs[i]);
		all += count;
	}
	return all;
}

static void bare_handler(struct ib_cq *cq, void *argument)
{
	struct queue *queue = argument;

	WRITE_ONCE(queue->cpu, raw_smp_processor_id());
	atomic_inc_return_release(&queue->calls);
	if (!queue->handler_polls)
		return;
	do
		bare_poll(cq, INT_MAX);
	while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

int queue_poll(struct queue *queue, int budget)
{
	if (queue->kind == QUEUE_DIRECT)
		return ib_process_cq_direct(queue->cq, budget);
	if (queue->kind == QUEUE_BARE && !queue->handler_polls)
		return bare_poll(queue->cq, budget);
	return 0;
}

int queue_open(struct test *test, struct queue *queue, unsigned int entries)
{
	struct ib_cq_init_attr attr = { .cqe = entries, .comp_vector = queue->vector };
	struct ib_cq *cq;

	queue->entries = entries;
	if (IS_ENABLED(CONFIG_PREEMPT_RT) && poll_contexts[queue->kind] == IB_POLL_SOFTIRQ)
		return row_skips(test, "irq_poll can crash with PREEMPT_RT");
	if (queue->kind == QUEUE_BARE)
		cq = ib_create_cq(test->device, bare_handler, NULL, queue, &attr);
	else if (is_pooled(queue->kind))
		cq = ib_cq_pool_get(test->device, entries, -1, poll_contexts[queue->kind]);
	else
		cq = ib_alloc_cq_any(test->device, queue, entries, poll_contexts[queue->kind]);
	must(test, !IS_ERR(cq), "a queue of %u: %pe", entries, cq);
	queue->cq = cq;
	must(test, cq->cqe >= entries, "a queue of %u has room for %d", entries, cq->cqe);
	if (queue->handler_polls)
		must(test, ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) == 0, "a notification is refused");
	return 0;
}

void queue_close(struct queue *queue)
{
	if (!queue->cq)
		return;
	if (queue->kind == QUEUE_BARE)
		ib_destroy_cq(queue->cq);
	else if (is_pooled(queue->kind))
		ib_cq_pool_put(queue->cq, queue->entries);
	else
		ib_free_cq(queue->cq);
	queue->cq = NULL;
}

static void request_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct request *request = container_of(wc->wr_cqe, struct request, cqe);

	request->wc = *wc;
	request->in_softirq = in_serving_softirq();
	request->order = atomic_inc_return(&request->link->completed);
	atomic_inc_return_release(&request->times);
	wake_up_all(&request->link->wait);
}

struct request *requests_new(struct link *link, unsigned int count)
{
	struct request *first;
	unsigned int i;

	/* Those that are used again have ended: no row has as many outstanding. */
	if (link->used + count > REQUESTS)
		link->used = 0;
	first = &link->requests[link->used];
	link->used += count;
	memset(first, 0, count * sizeof(*first));
	for (i = 0; i < count; i++) {
		first[i].cqe.done = request_done;
		first[i].link = link;
	}
	return first;
}

struct request *request_new(struct link *link)
{
	return requests_new(link, 1);
}

static bool is_softirq(enum queue_kind kind)
{
	return kind == QUEUE_SOFTIRQ || kind == QUEUE_SHARED_SOFTIRQ;
}

int request_ends(struct side *side, struct request *request, enum ib_wc_status status)
{
	struct test *test = side->link->test;
	const struct ib_wc *wc = &request->wc;
	int times;

	must(test, wait_on(side, atomic_read_acquire(&request->times)), "side %s: no completion", side->name);
	times = atomic_read(&request->times);
	must(test, times == 1, "side %s: %d completions of one request", side->name, times);
	must(test, wc->wr_cqe == &request->cqe, "side %s: another wr_cqe", side->name);
	must(test, wc->status == status, "side %s: status %s (vendor %#x), expected %s", side->name,
	     ib_wc_status_msg(wc->status), wc->vendor_err, ib_wc_status_msg(status));
	must(test, wc->qp == side->qp, "side %s: another queue pair in the completion", side->name);
	if (side->queue.kind != QUEUE_BARE && side->queue.kind != QUEUE_DIRECT)
		must(test, request->in_softirq == is_softirq(side->queue.kind), "side %s: completed %s softirq",
		     side->name, request->in_softirq ? "in" : "outside of");
	return 0;
}

int send_ends(struct side *side, struct request *request, enum ib_wc_opcode opcode)
{
	struct test *test = side->link->test;

	try(request_ends(side, request, IB_WC_SUCCESS));
	must(test, request->wc.opcode == opcode, "opcode %d, expected %d", request->wc.opcode, opcode);
	must(test, !(request->wc.wc_flags & (IB_WC_WITH_IMM | IB_WC_WITH_INVALIDATE)), "flags %#x of a send",
	     request->wc.wc_flags);
	return 0;
}

int receive_ends(struct side *side, struct request *request, enum ib_wc_opcode opcode, u32 length, int flags, u32 extra)
{
	struct test *test = side->link->test;
	const struct ib_wc *wc = &request->wc;

	try(request_ends(side, request, IB_WC_SUCCESS));
	must(test, wc->opcode == opcode, "opcode %d, expected %d", wc->opcode, opcode);
	must(test, wc->byte_len == length, "byte_len %u, expected %u", wc->byte_len, length);
	must(test, (wc->wc_flags & (IB_WC_WITH_IMM | IB_WC_WITH_INVALIDATE | IB_WC_GRH)) == flags,
	     "flags %#x, expected %#x", wc->wc_flags, flags);
	if (flags & IB_WC_WITH_IMM)
		must(test, be32_to_cpu(wc->ex.imm_data) == extra, "immediate data %#x, expected %#x",
		     be32_to_cpu(wc->ex.imm_data), extra);
	if (flags & IB_WC_WITH_INVALIDATE)
		must(test, wc->ex.invalidate_rkey == extra, "invalidated %#x, expected %#x", wc->ex.invalidate_rkey,
		     extra);
	return 0;
}

/* --- Posting ---------------------------------------------------------------------------------- */

struct posting {
	struct side *side;
	const struct ib_send_wr *sends;
	const struct ib_recv_wr *receives;
	int error;
};

static void post_now(void *argument)
{
	struct posting *posting = argument;
	const struct ib_send_wr *bad_send;
	const struct ib_recv_wr *bad_receive;

	if (posting->sends)
		posting->error = ib_post_send(posting->side->qp, posting->sends, &bad_send);
	else if (posting->side->qp->srq)
		posting->error = ib_post_srq_recv(posting->side->qp->srq, posting->receives, &bad_receive);
	else
		posting->error = ib_post_recv(posting->side->qp, posting->receives, &bad_receive);
}

int post_sends(struct side *side, enum context context, const struct ib_send_wr *list)
{
	struct posting posting = { .side = side, .sends = list };

	must(side->link->test, call_from(context, post_now, &posting), "another context than %d", context);
	must(side->link->test, !posting.error, "side %s: ib_post_send: %d", side->name, posting.error);
	return 0;
}

int post_receives(struct side *side, enum context context, const struct ib_recv_wr *list)
{
	struct posting posting = { .side = side, .receives = list };

	must(side->link->test, call_from(context, post_now, &posting), "another context than %d", context);
	must(side->link->test, !posting.error, "side %s: ib_post_recv: %d", side->name, posting.error);
	return 0;
}

int post_receive(struct side *side, enum context context, struct request *request, unsigned int at, u32 length)
{
	struct ib_sge piece = piece_of(side, at, length);
	struct ib_recv_wr wr = { .wr_cqe = &request->cqe, .sg_list = &piece, .num_sge = length ? 1 : 0 };

	return post_receives(side, context, &wr);
}

struct ib_sge piece_of(struct side *side, unsigned int at, u32 length)
{
	return (struct ib_sge) {
		.addr = side->address + at,
		.length = length,
		.lkey = side->link->pd->local_dma_lkey,
	};
}

struct ib_send_wr *send_of(struct ib_send_wr *wr, struct request *request, enum ib_wr_opcode opcode,
			   struct ib_sge *list, int count)
{
	*wr = (struct ib_send_wr) {
		.wr_cqe = &request->cqe,
		.opcode = opcode,
		.send_flags = IB_SEND_SIGNALED,
		.sg_list = list,
		.num_sge = count,
	};
	return wr;
}

struct ib_send_wr *rdma_of(struct ib_rdma_wr *wr, struct request *request, enum ib_wr_opcode opcode,
			   struct ib_sge *list, int count, u64 address, u32 key)
{
	send_of(&wr->wr, request, opcode, list, count);
	wr->remote_addr = address;
	wr->rkey = key;
	return &wr->wr;
}

struct ib_send_wr *registration_of(struct ib_reg_wr *wr, struct request *request, struct ib_mr *region, int rights)
{
	send_of(&wr->wr, request, IB_WR_REG_MR, NULL, 0);
	wr->mr = region;
	wr->key = region->rkey;
	wr->access = rights;
	return &wr->wr;
}

struct ib_send_wr *invalidation_of(struct ib_send_wr *wr, struct request *request, u32 key)
{
	send_of(wr, request, IB_WR_LOCAL_INV, NULL, 0);
	wr->ex.invalidate_rkey = key;
	return wr;
}

int access(struct link *link, enum ib_wr_opcode opcode, u64 address, u32 length, u32 key, enum ib_wc_status status)
{
	struct request *request = request_new(link);
	struct ib_sge piece = piece_of(&link->a, 0, length);
	struct ib_atomic_wr atomic = { .remote_addr = address, .rkey = key, .compare_add = 1 };
	struct ib_rdma_wr rdma = {};
	struct ib_send_wr *wr;

	if (opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		wr = send_of(&atomic.wr, request, opcode, &piece, 1);
	else
		wr = rdma_of(&rdma, request, opcode, &piece, 1, address, key);
	try(post_sends(&link->a, FROM_TASK, wr));
	return request_ends(&link->a, request, status);
}

/* --- Regions and memory ----------------------------------------------------------------------- */

struct owned_region {
	struct list_head entry;
	struct ib_mr *region;
};

struct owned_memory {
	struct list_head entry;
	unsigned long pages;
	unsigned int order;
};

struct ib_mr *region_new(struct link *link, unsigned int pages)
{
	return region_new_of(link, IB_MR_TYPE_MEM_REG, pages);
}

struct ib_mr *region_new_of(struct link *link, enum ib_mr_type type, unsigned int pieces)
{
	struct test *test = link->test;
	struct owned_region *owned = kzalloc(sizeof(*owned), GFP_KERNEL);
	struct ib_mr *region;

	if (!owned) {
		row_fails(test, "no memory");
		return NULL;
	}
	region = ib_alloc_mr(link->pd, type, pieces);
	if (IS_ERR(region)) {
		row_fails(test, "ib_alloc_mr for %u pieces: %pe", pieces, region);
		kfree(owned);
		return NULL;
	}
	owned->region = region;
	list_add(&owned->entry, &link->regions);
	return region;
}

void regions_free(struct link *link, struct ib_mr *region)
{
	struct owned_region *owned, *next;

	list_for_each_entry_safe(owned, next, &link->regions, entry) {
		if (region && owned->region != region)
			continue;
		if (ib_dereg_mr(owned->region))
			row_fails(link->test, "ib_dereg_mr fails");
		list_del(&owned->entry);
		kfree(owned);
	}
}

int region_map_side(struct side *side, struct ib_mr *region, unsigned int at, unsigned int length)
{
	struct scatterlist list;
	int count;

	sg_init_one(&list, side->memory + at, length);
	sg_dma_address(&list) = side->address + at;
	sg_dma_len(&list) = length;
	count = ib_map_mr_sg(region, &list, 1, NULL, PAGE_SIZE);
	must(side->link->test, count == 1, "ib_map_mr_sg: %d", count);
	must(side->link->test, region->length == length && region->iova == side->address + at,
	     "%llu bytes at %#llx are mapped", region->length, region->iova);
	return 0;
}

int region_register(struct side *side, struct ib_mr *region, int rights, enum context context)
{
	struct request *request = request_new(side->link);
	struct ib_reg_wr wr = {};

	ib_update_fast_reg_key(region, ib_inc_rkey(region->rkey));
	try(post_sends(side, context, registration_of(&wr, request, region, rights)));
	return send_ends(side, request, IB_WC_REG_MR);
}

int region_invalidate(struct side *side, u32 key, enum context context)
{
	struct request *request = request_new(side->link);
	struct ib_send_wr wr;

	try(post_sends(side, context, invalidation_of(&wr, request, key)));
	return send_ends(side, request, IB_WC_LOCAL_INV);
}

u8 *memory_new(struct test *test, unsigned int order)
{
	struct owned_memory *owned = kzalloc(sizeof(*owned), GFP_KERNEL);

	if (!owned)
		return NULL;
	owned->order = order;
	owned->pages = __get_free_pages(GFP_KERNEL | __GFP_NOWARN, order);
	if (!owned->pages) {
		kfree(owned);
		return NULL;
	}
	list_add(&owned->entry, &test->memories);
	memset((void *)owned->pages, UNTOUCHED, PAGE_SIZE << order);
	return (u8 *)owned->pages;
}

void pattern_fill(void *memory, size_t length, u32 seed)
{
	u8 *bytes = memory;
	size_t i;

	for (i = 0; i < length; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = seed >> 24;
	}
}

bool pattern_is(const void *memory, size_t length, u32 seed)
{
	const u8 *bytes = memory;
	size_t i;

	for (i = 0; i < length; i++) {
		seed = seed * 1664525 + 1013904223;
		if (bytes[i] != (u8)(seed >> 24))
			return false;
	}
	return true;
}

bool untouched(const void *memory, size_t length)
{
	return !memchr_inv(memory, UNTOUCHED, length);
}

/* --- Links ------------------------------------------------------------------------------------ */

static void side_event(struct ib_event *event, void *argument)
{
	struct side *side = argument;

	if (event->event < EVENTS)
		atomic_inc(&side->events[event->event]);
	wake_up_all(&side->link->wait);
}

static void srq_event(struct ib_event *event, void *argument)
{
	struct link *link = argument;

	if (event->event < EVENTS)
		atomic_inc(&link->srq_events[event->event]);
	wake_up_all(&link->wait);
}

int qp_state(struct side *side)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	if (ib_query_qp(side->qp, &attr, IB_QP_STATE, &init))
		return -1;
	return attr.qp_state;
}

int side_to_error(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	int error = ib_modify_qp(side->qp, &attr, IB_QP_STATE);

	must(side->link->test, !error, "to the error state: %d", error);
	return 0;
}

int side_address(struct test *test, struct rdma_ah_attr *attr, enum ib_mtu *mtu)
{
	struct ib_port_attr port;
	union ib_gid gid;
	int error;

	error = ib_query_port(test->device, PORT, &port);
	must(test, !error, "ib_query_port: %d", error);
	must(test, port.state == IB_PORT_ACTIVE, "port state %d", port.state);
	error = rdma_query_gid(test->device, PORT, test->gid_index, &gid);
	must(test, !error, "rdma_query_gid of index %u: %d", test->gid_index, error);
	memset(attr, 0, sizeof(*attr));
	attr->type = rdma_ah_find_type(test->device, PORT);
	rdma_ah_set_port_num(attr, PORT);
	rdma_ah_set_grh(attr, &gid, 0, test->gid_index, 64, 0);
	if (mtu)
		*mtu = port.active_mtu;
	return 0;
}

int side_init(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = PORT };
	int mask = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT;
	int error;

	if (side->qp->qp_type == IB_QPT_UD) {
		attr.qkey = 0x1234;
		mask |= IB_QP_QKEY;
	} else {
		attr.qp_access_flags = ALL_RIGHTS;
		mask |= IB_QP_ACCESS_FLAGS;
	}
	error = ib_modify_qp(side->qp, &attr, mask);
	must(side->link->test, !error, "side %s to INIT: %d", side->name, error);
	return 0;
}

static int side_connect(struct side *side, struct side *peer)
{
	struct test *test = side->link->test;
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->qp->qp_num & 0xffff,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = RNR_TIMER,
	};
	int error, mask = IB_QP_STATE;

	if (side->qp->qp_type == IB_QPT_RC) {
		mask |= IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			IB_QP_MIN_RNR_TIMER;
		try(side_address(test, &attr.ah_attr, &attr.path_mtu));
	}
	error = ib_modify_qp(side->qp, &attr, mask);
	must(test, !error, "side %s to RTR: %d", side->name, error);

	attr = (struct ib_qp_attr) {
		.qp_state = IB_QPS_RTS,
		.sq_psn = side->qp->qp_num & 0xffff,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 8,
	};
	mask = IB_QP_STATE | IB_QP_SQ_PSN;
	if (side->qp->qp_type == IB_QPT_RC)
		mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
	error = ib_modify_qp(side->qp, &attr, mask);
	must(test, !error, "side %s to RTS: %d", side->name, error);
	return 0;
}

static int side_make(struct link *link, struct side *side, const char *name, const struct link_shape *shape)
{
	struct test *test = link->test;
	unsigned int sends = shape->sends ?: 64, receives = shape->receives ?: 64;
	unsigned int completions = shape->completions ?: sends + receives + 2 + 4 * shape->rw_contexts;
	struct ib_qp_init_attr attr = {
		.event_handler = side_event,
		.qp_context = side,
		.srq = side == &link->b ? link->srq : NULL,
		.cap.max_send_wr = sends,
		.cap.max_recv_wr = receives,
		.cap.max_send_sge = test->device->attrs.max_send_sge,
		.cap.max_recv_sge = test->device->attrs.max_recv_sge,
		.cap.max_inline_data = 256,
		.cap.max_rdma_ctxs = shape->rw_contexts,
		.sq_sig_type = shape->is_signal_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR,
		.qp_type = shape->type ?: IB_QPT_RC,
		.port_num = PORT,
	};
	struct ib_qp *qp;

	side->name = name;
	side->link = link;
	side->memory = memory_new(test, MEMORY_ORDER);
	must(test, side->memory, "no memory");
	side->address = ib_dma_map_single(test->device, side->memory, MEMORY, DMA_BIDIRECTIONAL);
	must(test, !ib_dma_mapping_error(test->device, side->address), "memory cannot be mapped");
	side->queue.kind = shape->queue;
	side->queue.vector = shape->vector;
	side->queue.handler_polls = shape->queue == QUEUE_BARE;
	try(queue_open(test, &side->queue, completions));
	attr.send_cq = side->queue.cq;
	attr.recv_cq = side->queue.cq;
	qp = ib_create_qp(link->pd, &attr);
	must(test, !IS_ERR(qp), "ib_create_qp: %pe", qp);
	side->qp = qp;
	must(test, attr.cap.max_send_wr >= sends && attr.cap.max_inline_data >= 256, "%u sends, %u bytes inline",
	     attr.cap.max_send_wr, attr.cap.max_inline_data);
	return 0;
}

int link_connect(struct link *link)
{
	try(side_init(&link->a));
	try(side_init(&link->b));
	try(side_connect(&link->a, &link->b));
	try(side_connect(&link->b, &link->a));
	link->a.is_connected = true;
	link->b.is_connected = true;
	return 0;
}

static int link_fill(struct link *link, const struct link_shape *shape)
{
	struct test *test = link->test;
	struct ib_srq_init_attr attr = {
		.event_handler = srq_event,
		.srq_context = link,
		.attr.max_wr = 64,
		.attr.max_sge = 4,
		.srq_type = IB_SRQT_BASIC,
	};
	struct ib_pd *pd;
	struct ib_srq *srq;

	link->requests = kvcalloc(REQUESTS, sizeof(*link->requests), GFP_KERNEL);
	must(test, link->requests, "no memory");
	pd = ib_alloc_pd(test->device, shape->pd_flags);
	must(test, !IS_ERR(pd), "ib_alloc_pd: %pe", pd);
	link->pd = pd;
	if (shape->is_shared) {
		srq = ib_create_srq(pd, &attr);
		must(test, !IS_ERR(srq), "ib_create_srq: %pe", srq);
		link->srq = srq;
	}
	try(side_make(link, &link->a, "a", shape));
	try(side_make(link, &link->b, "b", shape));
	if (!shape->is_idle)
		try(link_connect(link));
	if (shape->rights || shape->has_no_rights) {
		link->b.region = region_new(link, 1 << MEMORY_ORDER);
		if (!link->b.region)
			return -1;
		try(region_map_side(&link->b, link->b.region, 0, MEMORY));
		try(region_register(&link->b, link->b.region, shape->rights, FROM_TASK));
	}
	return 0;
}

struct link *link_make(struct test *test, const struct link_shape *shape)
{
	struct link *link = kzalloc(sizeof(*link), GFP_KERNEL);

	if (!link) {
		row_fails(test, "no memory");
		return NULL;
	}
	link->test = test;
	init_waitqueue_head(&link->wait);
	INIT_LIST_HEAD(&link->regions);
	list_add(&link->entry, &test->links);
	if (link_fill(link, shape))
		return NULL;
	return link;
}

static void side_end(struct side *side)
{
	/* Others go on polling a queue of the pool: nothing of ours may be in it any more. */
	if (side->qp && side->is_connected && is_pooled(side->queue.kind))
		ib_drain_qp(side->qp);
	if (side->qp && ib_destroy_qp(side->qp))
		row_fails(side->link->test, "ib_destroy_qp fails");
	side->qp = NULL;
}

void link_free(struct link *link)
{
	struct ib_device *device = link->test->device;

	side_end(&link->a);
	side_end(&link->b);
	if (link->srq)
		ib_destroy_srq(link->srq);
	queue_close(&link->a.queue);
	queue_close(&link->b.queue);
	regions_free(link, NULL);
	if (link->pd)
		ib_dealloc_pd(link->pd);
	if (link->a.address)
		ib_dma_unmap_single(device, link->a.address, MEMORY, DMA_BIDIRECTIONAL);
	if (link->b.address)
		ib_dma_unmap_single(device, link->b.address, MEMORY, DMA_BIDIRECTIONAL);
	kvfree(link->requests);
	list_del(&link->entry);
	kfree(link);
}

void test_free(struct test *test)
{
	struct owned_memory *owned, *next_owned;
	struct link *link, *next;

	list_for_each_entry_safe(link, next, &test->links, entry)
		link_free(link);
	list_for_each_entry_safe(owned, next_owned, &test->memories, entry) {
		free_pages(owned->pages, owned->order);
		list_del(&owned->entry);
		kfree(owned);
	}
}
