// SPDX-License-Identifier: GPL-2.0
/*
 * What the multicast example of the "RDMA Aware Networks Programming" manual (chapters 7 and 8.2) is about, written
 * from its synopsis: receivers and a sender join a group over rdma_cm; the sender's datagrams reach all receivers.
 *
 * example_multicast -b BIND-ADDRESS -m GROUP [-s] [-n MESSAGES]
 *	-s	sends; else receives
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRH 40
#define SIZE 1000
#define DEPTH 64

static struct sockaddr_in parse(const char *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET };

	if (!text || inet_pton(AF_INET, text, &address.sin_addr) != 1)
		errx(1, "%s is no IPv4 address", text ? text : "nothing");
	return address;
}

static void fill(uint8_t *datagram, unsigned int number)
{
	unsigned int i;

	for (i = 0; i < SIZE; i++)
		datagram[i] = number * 31 + i;
}

static struct rdma_ud_param join(struct rdma_cm_id *id, struct sockaddr_in *group)
{
	struct rdma_cm_event *event;
	struct rdma_ud_param param;

	if (rdma_join_multicast(id, (struct sockaddr *)group, NULL))
		err(1, "rdma_join_multicast");
	if (rdma_get_cm_event(id->channel, &event))
		err(1, "rdma_get_cm_event");
	if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN)
		errx(1, "%s (%d) instead of the group", rdma_event_str(event->event), event->status);
	param = event->param.ud;
	rdma_ack_cm_event(event);
	return param;
}

static void receive_all(struct rdma_cm_id *id, struct ibv_mr *mr, uint8_t *memory, unsigned int count)
{
	uint8_t expected[SIZE];
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < count; i++) {
		uint8_t *slot = memory + i * (GRH + SIZE);

		if (rdma_post_recv(id, slot, slot, GRH + SIZE, mr))
			err(1, "rdma_post_recv");
	}
	printf("ready\n");
	fflush(stdout);
	for (i = 0; i < count; i++) {
		if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
			errx(1, "rdma_get_recv_comp: %s", ibv_wc_status_str(wc.status));
		fill(expected, ntohl(wc.imm_data));
		if (wc.byte_len != GRH + SIZE || !(wc.wc_flags & IBV_WC_GRH) || ntohl(wc.imm_data) != i ||
		    memcmp((uint8_t *)(uintptr_t)wc.wr_id + GRH, expected, SIZE))
			errx(1, "datagram %u is not what was sent", i);
	}
}

static void send_all(struct rdma_cm_id *id, struct ibv_mr *mr, uint8_t *memory, unsigned int count,
		     struct rdma_ud_param *to)
{
	struct ibv_ah *ah = ibv_create_ah(id->pd, &to->ah_attr);
	struct ibv_wc wc;
	unsigned int i;

	if (!ah)
		err(1, "ibv_create_ah");
	for (i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_SEND_WITH_IMM,
			.send_flags = IBV_SEND_SIGNALED,
			.imm_data = htonl(i),
			.sg_list = &sge,
			.num_sge = 1,
			.wr.ud = { .ah = ah, .remote_qpn = to->qp_num, .remote_qkey = to->qkey },
		}, *bad;

		fill(memory, i);
		if (ibv_post_send(id->qp, &wr, &bad))
			errx(1, "ibv_post_send");
		if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
			errx(1, "rdma_get_send_comp: %s", ibv_wc_status_str(wc.status));
	}
	if (ibv_destroy_ah(ah))
		errx(1, "ibv_destroy_ah");
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	const char *bound = NULL, *joined = NULL;
	struct sockaddr_in source, group;
	unsigned int count = DEPTH;
	struct rdma_ud_param param;
	struct rdma_cm_id *id;
	bool sends = false;
	uint8_t *memory;
	struct ibv_mr *mr;
	int option;

	while ((option = getopt(argc, argv, "b:m:n:s")) != -1) {
		switch (option) {
		case 'b': bound = optarg; break;
		case 'm': joined = optarg; break;
		case 'n': count = atoi(optarg); break;
		case 's': sends = true; break;
		default: return 1;
		}
	}
	source = parse(bound);
	group = parse(joined);
	if (!count || count > DEPTH)
		errx(1, "1 to %d messages", DEPTH);
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_UDP))
		err(1, "rdma_create_id");
	if (rdma_bind_addr(id, (struct sockaddr *)&source) || !id->verbs)
		errx(1, "no device has the address %s", bound);
	if (rdma_create_qp(id, NULL, &attr))
		err(1, "rdma_create_qp");
	memory = calloc(DEPTH, GRH + SIZE);
	mr = memory ? rdma_reg_msgs(id, memory, DEPTH * (GRH + SIZE)) : NULL;
	if (!mr)
		err(1, "rdma_reg_msgs");
	param = join(id, &group);
	if (sends)
		send_all(id, mr, memory, count, &param);
	else
		receive_all(id, mr, memory, count);
	if (rdma_leave_multicast(id, (struct sockaddr *)&group))
		err(1, "rdma_leave_multicast");
	rdma_destroy_qp(id);
	if (rdma_dereg_mr(mr) || rdma_destroy_id(id))
		errx(1, "what is not used any more cannot be destroyed");
	rdma_destroy_event_channel(channel);
	free(memory);
	printf("%u datagrams\n", count);
	return 0;
}
