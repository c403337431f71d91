// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams without end: four UD queue pairs of a device send as fast as their requests complete, to a queue pair that
 * the peer does not have.
 *
 * flood DEVICE PEER COUNT
 *
 * COUNT is of each queue pair. A request of a datagram completes when it is sent, whatever becomes of it.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

#define QPS 4
#define DEPTH 64
#define SIZE 4096
#define QKEY 0x11223344
#define NOBODY 0xfffffe
#define WAIT_MS 60000

struct sender {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	unsigned long posted;
	unsigned long completed;
};

static void post(struct sender *sender, struct ibv_ah *ah, const struct region *region)
{
	struct ibv_sge sge = region_sge(region, 0, SIZE);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.ud = { .ah = ah, .remote_qpn = NOBODY, .remote_qkey = QKEY },
	};

	send_post(sender->qp, &wr);
	sender->posted++;
}

static void complete(struct sender *sender)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(sender->cq, 1, &wc) > 0) {
		if (wc.status)
			die("a datagram: %s", ibv_wc_status_str(wc.status));
		sender->completed++;
	}
}

int main(int argc, char **argv)
{
	struct depth depth = { .send = DEPTH, .receive = 1, .sges = 1 };
	struct sender senders[QPS] = {};
	struct device device, peer;
	struct region region;
	struct ibv_ah *ah;
	unsigned long count, left;
	uint64_t last = now_ms();
	int i;

	if (argc != 4)
		die("flood DEVICE PEER COUNT");
	count = strtoul(argv[3], NULL, 0);
	device_open(&device, argv[1], 4);
	device_open(&peer, argv[2], 4);
	region_make(&region, &device, SIZE, 0);
	ah = ah_make(&device, &peer);
	for (i = 0; i < QPS; i++) {
		senders[i].cq = cq_make(&device, DEPTH);
		senders[i].qp = ud_make(&device, senders[i].cq, senders[i].cq, depth, QKEY);
	}
	do {
		left = 0;
		for (i = 0; i < QPS; i++) {
			struct sender *sender = &senders[i];
			unsigned long before = sender->completed;

			while (sender->posted < count && sender->posted - sender->completed < DEPTH)
				post(sender, ah, &region);
			complete(sender);
			left += count - sender->completed;
			if (sender->completed != before)
				last = now_ms();
		}
		if (now_ms() - last > WAIT_MS)
			die("%lu datagrams do not complete", left);
	} while (left);
	printf("%lu datagrams\n", QPS * count);
	for (i = 0; i < QPS; i++) {
		if (ibv_destroy_qp(senders[i].qp) || ibv_destroy_cq(senders[i].cq))
			die("destroy: %s", strerror(errno));
	}
	ah_free(ah);
	region_free(&region);
	device_close(&peer);
	device_close(&device);
	return 0;
}
