// SPDX-License-Identifier: GPL-2.0
/*
 * What the path migration example of the "RDMA Aware Networks Programming" manual (chapter 8.1) is about, written from
 * its synopsis: a connection of rdma_cm gets an alternate path, is told to migrate, and goes on over it. Both ends
 * do the same; the client begins.
 *
 * example_migration [-p PORT] [-x COMMAND] [-c] ADDRESS INDEX PEER
 *	-c	the client; ADDRESS is the server's in any case
 *	-x	run by the client between the connection and the alternate path
 *	INDEX	of the GID of this end's second address
 *	PEER	the other end's second address
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

#define SIZE 3000
#define MESSAGES 10
#define DEPTH 32

static bool is_client;
static struct rdma_cm_id *id;
static struct ibv_mr *mr;
/* Ours in the first half, the other end's in the second. */
static uint8_t memory[2 * SIZE];

static void connect_to(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_flags = is_client ? 0 : RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP,
				       .ai_qp_type = IBV_QPT_RC }, *found;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_id *listener = NULL;

	if (rdma_getaddrinfo(address, port, &hints, &found))
		err(1, "rdma_getaddrinfo %s", address);
	if (is_client) {
		if (rdma_create_ep(&id, found, NULL, &attr))
			err(1, "rdma_create_ep");
	} else if (rdma_create_ep(&listener, found, NULL, &attr) || rdma_listen(listener, 1) ||
		   rdma_get_request(listener, &id)) {
		err(1, "no connection at %s", address);
	}
	rdma_freeaddrinfo(found);
	mr = rdma_reg_msgs(id, memory, sizeof(memory));
	if (!mr || rdma_post_recv(id, NULL, memory + SIZE, SIZE, mr))
		err(1, "no receive");
	if (is_client ? rdma_connect(id, &param) : rdma_accept(id, &param))
		err(1, "no connection with %s", address);
}

/* The second pair of addresses becomes the alternate path, and is armed. */
static void load_path(int index, const char *address)
{
	struct ibv_qp_attr attr = {
		.path_mig_state = IBV_MIG_REARM,
		.alt_port_num = id->port_num,
		.alt_timeout = 14,
		.alt_ah_attr = {
			.is_global = 1,
			.port_num = id->port_num,
			.grh = { .sgid_index = index, .hop_limit = 64 },
		},
	};
	struct in_addr peer;
	int error;

	if (inet_pton(AF_INET, address, &peer) != 1)
		errx(1, "%s is no IPv4 address", address);
	memset(attr.alt_ah_attr.grh.dgid.raw + 10, 0xff, 2);
	memcpy(attr.alt_ah_attr.grh.dgid.raw + 12, &peer, sizeof(peer));
	error = ibv_modify_qp(id->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
	if (error)
		errx(1, "alternate path: %s", strerror(error));
}

static struct ibv_qp_attr query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(id->qp, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_AV, &init))
		errx(1, "ibv_query_qp");
	return attr;
}

/* A word each, and an answer. */
static void talk(uint8_t word)
{
	unsigned int turn;
	struct ibv_wc wc;

	for (turn = 0; turn < 2; turn++) {
		if (is_client == !turn) {
			memset(memory, word + turn, SIZE);
			if (rdma_post_send(id, NULL, memory, SIZE, mr, 0) || rdma_get_send_comp(id, &wc) != 1 ||
			    wc.status != IBV_WC_SUCCESS)
				errx(1, "a message does not arrive: %s", ibv_wc_status_str(wc.status));
			continue;
		}
		if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS || wc.byte_len != SIZE)
			errx(1, "a message does not come: %s", ibv_wc_status_str(wc.status));
		if (memory[SIZE] != word + turn || memcmp(memory + SIZE, memory + SIZE + 1, SIZE - 1))
			errx(1, "a message is not what was sent");
		if (rdma_post_recv(id, NULL, memory + SIZE, SIZE, mr))
			err(1, "rdma_post_recv");
	}
}

static void wait_for_migration(void)
{
	struct ibv_async_event event;

	do {
		if (ibv_get_async_event(id->verbs, &event))
			err(1, "ibv_get_async_event");
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_PATH_MIG || event.element.qp != id->qp);
}

int main(int argc, char **argv)
{
	struct ibv_qp_attr migrate = { .path_mig_state = IBV_MIG_MIGRATED };
	const char *port = "7476", *command = NULL;
	int option, error, index;
	uint8_t word;

	while ((option = getopt(argc, argv, "p:x:c")) != -1) {
		switch (option) {
		case 'p': port = optarg; break;
		case 'x': command = optarg; break;
		case 'c': is_client = true; break;
		default: return 1;
		}
	}
	if (argc - optind != 3)
		errx(1, "an address, an index and an address are needed");
	index = atoi(argv[optind + 1]);
	connect_to(argv[optind], port);
	if (is_client && command && system(command))
		errx(1, "%s: it fails", command);
	/* Neither loads its path before the other is there. */
	talk(1);
	load_path(index, argv[optind + 2]);
	/* The first packets make both ends armed. */
	for (word = 3; word < 2 * MESSAGES; word += 2)
		talk(word);
	/* Only the client knows that no end has migrated yet: the server may look after the client's next message. */
	if (is_client) {
		if (query().path_mig_state != IBV_MIG_ARMED)
			errx(1, "the queue pair is in state %d instead of armed", query().path_mig_state);
		error = ibv_modify_qp(id->qp, &migrate, IBV_QP_PATH_MIG_STATE);
		if (error)
			errx(1, "to migrated: %s", strerror(error));
	}
	for (; word < 4 * MESSAGES; word += 2)
		talk(word);
	wait_for_migration();
	if (query().path_mig_state != IBV_MIG_MIGRATED || query().ah_attr.grh.sgid_index != index)
		errx(1, "the queue pair has not gone to the alternate path");
	printf("migrated\n");
	if (!is_client) {
		struct rdma_cm_event *event;

		if (rdma_get_cm_event(id->channel, &event) || event->event != RDMA_CM_EVENT_DISCONNECTED)
			errx(1, "the client does not disconnect");
		rdma_ack_cm_event(event);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return 0;
}
