// SPDX-License-Identifier: GPL-2.0
/*
 * Messages without end, and objects of each kind with requests that wait: for the device to be removed.
 */

#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/slab.h>

#include "consumer.h"

#define LENGTH 10000

struct traffic {
	struct test test;
	/* One moves messages; the others have requests that wait. */
	struct link *busy, *waiting, *datagrams;
	struct ib_ah *ah;
	struct connection *connection;
	struct task_struct *thread;
	unsigned long messages;
	bool has_failed;
};

static int message(struct traffic *traffic)
{
	struct link *link = traffic->busy;
	struct request *writing = request_new(link), *sending = request_new(link), *receiving = request_new(link);
	struct ib_sge data = piece_of(&link->a, 0, LENGTH), note = piece_of(&link->a, 0, 100);
	struct ib_rdma_wr write = {};
	struct ib_send_wr send;
	u32 seed = traffic->messages;

	pattern_fill(link->a.memory, LENGTH, seed);
	rdma_of(&write, writing, IB_WR_RDMA_WRITE, &data, 1, link->b.address, link->b.region->rkey);
	write.wr.next = send_of(&send, sending, IB_WR_SEND, &note, 1);
	try(post_receive(&link->b, FROM_TASK, receiving, 50000, 100));
	try(post_sends(&link->a, FROM_TASK, &write.wr));
	try(receive_ends(&link->b, receiving, IB_WC_RECV, 100, 0, 0));
	must(&traffic->test, pattern_is(link->b.memory, LENGTH, seed), "other bytes");
	try(send_ends(&link->a, writing, IB_WC_RDMA_WRITE));
	try(send_ends(&link->a, sending, IB_WC_SEND));
	try(access(link, IB_WR_RDMA_READ, link->b.address, LENGTH, link->b.region->rkey, IB_WC_SUCCESS));
	must(&traffic->test, pattern_is(link->a.memory, LENGTH, seed), "other bytes are read");
	return 0;
}

static int run(void *argument)
{
	struct traffic *traffic = argument;

	while (!kthread_should_stop()) {
		if (!traffic->has_failed && !message(traffic)) {
			WRITE_ONCE(traffic->messages, traffic->messages + 1);
			continue;
		}
		/* What fails as the device goes, is as it should be. */
		if (!READ_ONCE(traffic->busy->is_ending))
			WRITE_ONCE(traffic->has_failed, true);
		schedule_timeout_interruptible(HZ / 10);
	}
	return 0;
}

/* SENDs that no receive waits for, receives that nothing is sent to. */
static int wait_for_ever(struct link *link)
{
	struct ib_sge piece = piece_of(&link->a, 0, 5000);
	struct ib_send_wr send;
	int i;

	for (i = 0; i < 30; i++) {
		try(post_receive(&link->a, FROM_TASK, request_new(link), 0, 100));
		try(post_sends(&link->a, FROM_TASK, send_of(&send, request_new(link), IB_WR_SEND, &piece, 1)));
	}
	return 0;
}

static int traffic_make(struct traffic *traffic, bool is_peer_silent)
{
	static const struct link_shape busy = { .queue = QUEUE_WORKQUEUE, .rights = ALL_RIGHTS };
	static const struct link_shape waiting = {
		.queue = IS_ENABLED(CONFIG_PREEMPT_RT) ? QUEUE_SHARED_WORKQUEUE : QUEUE_SHARED_SOFTIRQ,
		.rights = ALL_RIGHTS, .is_shared = true,
		.pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY,
	};
	static const struct link_shape datagrams = { .queue = QUEUE_BARE, .type = IB_QPT_UD };
	struct test *test = &traffic->test;
	struct rdma_ah_attr attr;

	traffic->busy = link_make(test, &busy);
	traffic->waiting = link_make(test, &waiting);
	traffic->datagrams = link_make(test, &datagrams);
	if (!traffic->busy || !traffic->waiting || !traffic->datagrams)
		return -1;
	try(wait_for_ever(traffic->waiting));
	try(side_address(test, &attr, NULL));
	traffic->ah = rdma_create_ah(traffic->datagrams->pd, &attr, RDMA_CREATE_AH_SLEEPABLE);
	must(test, !IS_ERR(traffic->ah), "rdma_create_ah: %pe", traffic->ah);
	traffic->connection = connection_start(test, is_peer_silent);
	if (!traffic->connection)
		return -1;
	traffic->thread = kthread_run(run, traffic, "consumer");
	must(test, !IS_ERR(traffic->thread), "no thread");
	return 0;
}

struct traffic *traffic_start(struct ib_device *device, u8 gid_index, bool is_peer_silent)
{
	struct traffic *traffic = kzalloc(sizeof(*traffic), GFP_KERNEL);

	if (!traffic)
		return NULL;
	test_init(&traffic->test, device, gid_index);
	if (traffic_make(traffic, is_peer_silent)) {
		pr_err("consumer: %s", traffic->test.text);
		traffic_end(traffic);
		return NULL;
	}
	return traffic;
}

bool traffic_end(struct traffic *traffic)
{
	bool is_right = true;

	if (traffic->busy) {
		WRITE_ONCE(traffic->busy->is_ending, true);
		wake_up_all(&traffic->busy->wait);
	}
	if (!IS_ERR_OR_NULL(traffic->thread))
		kthread_stop(traffic->thread);
	if (traffic->has_failed) {
		pr_err("consumer: the traffic failed: %s", traffic->test.text);
		is_right = false;
	}
	if (traffic->connection && !connection_end(traffic->connection)) {
		pr_err("consumer: the connection was not told\n");
		is_right = false;
	}
	if (!IS_ERR_OR_NULL(traffic->ah))
		rdma_destroy_ah(traffic->ah, RDMA_DESTROY_AH_SLEEPABLE);
	test_free(&traffic->test);
	kfree(traffic);
	return is_right;
}

unsigned long traffic_messages(const struct traffic *traffic)
{
	return READ_ONCE(traffic->messages);
}

const char *traffic_failure(const struct traffic *traffic)
{
	return READ_ONCE(traffic->has_failed) ? traffic->test.text : NULL;
}
