// SPDX-License-Identifier: GPL-2.0
/*
 * What the shared receive queue example of the "RDMA Aware Networks Programming" manual (chapter 8.3) is about, written
 * from its synopsis: several connections of rdma_cm, whose queue pairs at either end share one receive queue. Each
 * message is answered over the connection on which it came, until all are through.
 *
 * example_srq [-p PORT] [-q QUEUE-PAIRS] [-n MESSAGES] [-c] ADDRESS
 *	-c	the client; ADDRESS is the server's in any case
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE 500
#define MAX_QPS 16
/* Fewer than the messages of all queue pairs together. */
#define SHARED 32

static struct {
	const char *address, *port;
	unsigned int qps, messages;
	bool is_client;
} options = { .port = "7475", .qps = 4, .messages = 100 };

static struct rdma_cm_id *listener, *ids[MAX_QPS];
static struct ibv_srq *srq;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr;
/* The last slot of each queue pair is what it sends. */
static uint8_t memory[SHARED + MAX_QPS][SIZE];
/* How many came over each, and how many it has sent. */
static unsigned int received[MAX_QPS], sent[MAX_QPS], completed[MAX_QPS];

/* What stands in a message: whose it is, and the how many-eth. */
static void fill(uint8_t *message, bool of_client, unsigned int number)
{
	unsigned int i;

	for (i = 0; i < SIZE; i++)
		message[i] = number * 13 + i + of_client;
}

static void post_receive(uint8_t *slot)
{
	struct ibv_sge sge = { (uintptr_t)slot, SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_srq_recv(srq, &wr, &bad))
		errx(1, "ibv_post_srq_recv");
}

/* With the first connection it is known which device it is. */
static void create_shared(struct rdma_cm_id *id)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = SHARED, .max_sge = 1 } };
	unsigned int i;

	channel = ibv_create_comp_channel(id->verbs);
	cq = channel ? ibv_create_cq(id->verbs, 2 * SHARED + 2 * MAX_QPS, NULL, channel, 0) : NULL;
	srq = cq ? ibv_create_srq(id->pd, &init) : NULL;
	mr = srq ? ibv_reg_mr(id->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!mr || ibv_req_notify_cq(cq, 0))
		err(1, "no completion queue, shared receive queue or memory region");
	for (i = 0; i < SHARED; i++)
		post_receive(memory[i]);
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
	};

	if (!srq)
		create_shared(id);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	attr.srq = srq;
	if (rdma_create_qp(id, NULL, &attr))
		err(1, "rdma_create_qp");
}

static void connect_all(void)
{
	struct rdma_addrinfo hints = { .ai_flags = options.is_client ? 0 : RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC }, *found;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	unsigned int i;

	if (rdma_getaddrinfo(options.address, options.port, &hints, &found))
		err(1, "rdma_getaddrinfo %s", options.address);
	if (!options.is_client && (rdma_create_ep(&listener, found, NULL, NULL) || rdma_listen(listener, MAX_QPS)))
		err(1, "rdma_listen at %s", options.address);
	for (i = 0; i < options.qps; i++) {
		if (options.is_client ? rdma_create_ep(&ids[i], found, NULL, NULL) :
					rdma_get_request(listener, &ids[i]))
			err(1, "connection %u", i);
		create_qp(ids[i]);
		if (options.is_client ? rdma_connect(ids[i], &param) : rdma_accept(ids[i], &param))
			err(1, "connection %u", i);
	}
	rdma_freeaddrinfo(found);
}

static void send_next(unsigned int i)
{
	struct ibv_sge sge = { (uintptr_t)memory[SHARED + i], SIZE, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad;

	fill(memory[SHARED + i], options.is_client, sent[i]++);
	if (ibv_post_send(ids[i]->qp, &wr, &bad))
		errx(1, "ibv_post_send");
}

static unsigned int index_of(uint32_t qpn)
{
	unsigned int i;

	for (i = 0; i < options.qps; i++) {
		if (ids[i]->qp->qp_num == qpn)
			return i;
	}
	errx(1, "a completion of queue pair %#x, which is none of ours", qpn);
}

static void take(const struct ibv_wc *wc)
{
	uint8_t expected[SIZE], *slot;
	unsigned int i = index_of(wc->qp_num);

	if (wc->status != IBV_WC_SUCCESS)
		errx(1, "queue pair %u: %s", i, ibv_wc_status_str(wc->status));
	if (wc->opcode == IBV_WC_SEND) {
		completed[i]++;
		return;
	}
	slot = (uint8_t *)(uintptr_t)wc->wr_id;
	fill(expected, !options.is_client, received[i]++);
	if (wc->byte_len != SIZE || memcmp(slot, expected, SIZE))
		errx(1, "queue pair %u: message %u is not what was sent", i, received[i] - 1);
	post_receive(slot);
}

static bool is_done(void)
{
	unsigned int i;

	for (i = 0; i < options.qps; i++) {
		if (received[i] < options.messages || completed[i] < options.messages)
			return false;
	}
	return true;
}

static void wait_for_completions(void)
{
	struct ibv_cq *ready;
	struct ibv_wc wc;
	void *context;
	int found;

	if (ibv_get_cq_event(channel, &ready, &context))
		err(1, "ibv_get_cq_event");
	ibv_ack_cq_events(ready, 1);
	if (ibv_req_notify_cq(ready, 0))
		errx(1, "ibv_req_notify_cq");
	while ((found = ibv_poll_cq(ready, 1, &wc)) > 0)
		take(&wc);
	if (found < 0)
		errx(1, "ibv_poll_cq");
}

static void converse(void)
{
	unsigned int i;

	while (true) {
		/* The client begins; from then on each waits for the other's word. */
		for (i = 0; i < options.qps; i++) {
			if (sent[i] < options.messages && sent[i] == completed[i] &&
			    sent[i] < received[i] + options.is_client)
				send_next(i);
		}
		if (is_done())
			return;
		wait_for_completions();
	}
}

int main(int argc, char **argv)
{
	unsigned int i;
	int option;

	while ((option = getopt(argc, argv, "p:q:n:c")) != -1) {
		switch (option) {
		case 'p': options.port = optarg; break;
		case 'q': options.qps = atoi(optarg); break;
		case 'n': options.messages = atoi(optarg); break;
		case 'c': options.is_client = true; break;
		default: return 1;
		}
	}
	options.address = argv[optind];
	if (!options.address || !options.qps || options.qps > MAX_QPS || !options.messages)
		errx(1, "an address, 1 to %d queue pairs and some messages are needed", MAX_QPS);
	connect_all();
	converse();
	for (i = 0; i < options.qps; i++) {
		/* Only the client, which has got the last answer, knows that all is through. */
		if (options.is_client)
			rdma_disconnect(ids[i]);
		rdma_destroy_ep(ids[i]);
	}
	if (listener)
		rdma_destroy_ep(listener);
	if (ibv_dereg_mr(mr) || ibv_destroy_srq(srq) || ibv_destroy_cq(cq) || ibv_destroy_comp_channel(channel))
		errx(1, "what is not used any more cannot be destroyed");
	printf("%u messages over each of %u queue pairs\n", options.messages, options.qps);
	return 0;
}
