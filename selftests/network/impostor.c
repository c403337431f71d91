// SPDX-License-Identifier: GPL-2.0
/*
 * A host with the address of a peer, on another link or in another VRF, sends to a queue pair with the number and the PSN
 * of that peer. Nothing of it may arrive, and what the peer sends then must.
 *
 * impostor DEVICE GID-INDEX PEER GID-INDEX IMPOSTOR GID-INDEX
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

#define PSN 1000
#define SIZE 64
#define WAIT_MS 10000

/* It is of no use to wait long for one that nobody acknowledges. */
static const struct patience hasty = { .timeout = 12, .retries = 1, .rnr_retries = 1 };
static const struct depth depth = { .send = 1, .receive = 2, .sges = 1 };

struct end {
	struct device device;
	struct region region;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void end_make(struct end *end, const char *name, const char *index)
{
	device_open(&end->device, name, 4);
	end->device.gid_index = atoi(index);
	if (ibv_query_gid(end->device.context, PORT, end->device.gid_index, &end->device.gid))
		die("%s: no GID %s", name, index);
	region_make(&end->region, &end->device, SIZE, IBV_ACCESS_LOCAL_WRITE);
	end->cq = cq_make(&end->device, 4);
	end->qp = qp_make(&end->device, IBV_QPT_RC, end->cq, end->cq, depth, NULL);
	if (qp_init(end->qp, access_of(IBV_QPT_RC), 0))
		die("%s: RESET to INIT", name);
}

static void end_connect(struct end *end, const struct end *to, struct patience patience)
{
	qp_ready_connected(&end->device, end->qp, &to->device, to->qp->qp_num, IBV_MTU_1024, patience, PSN, PSN);
}

static void end_send(struct end *end)
{
	struct ibv_sge sge = region_sge(&end->region, 0, SIZE);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
	};

	send_post(end->qp, &wr);
}

static void end_free(struct end *end)
{
	qp_free(end->qp);
	cq_free(end->cq);
	region_free(&end->region);
	device_close(&end->device);
}

int main(int argc, char **argv)
{
	static struct end victim, peer, impostor;
	struct ibv_recv_wr wr = { .num_sge = 1 };
	unsigned long long before;
	struct ibv_sge sge;
	bool ok;

	if (argc != 7) {
		fprintf(stderr, "impostor DEVICE GID-INDEX PEER GID-INDEX IMPOSTOR GID-INDEX\n");
		return 2;
	}
	end_make(&victim, argv[1], argv[2]);
	end_make(&peer, argv[3], argv[4]);
	end_make(&impostor, argv[5], argv[6]);
	if (memcmp(&peer.device.gid, &impostor.device.gid, sizeof(peer.device.gid)))
		die("the GIDs of peer and impostor differ");
	sge = region_sge(&victim.region, 0, SIZE);
	wr.sg_list = &sge;
	end_connect(&victim, &peer, PATIENT);
	end_connect(&peer, &victim, PATIENT);
	end_connect(&impostor, &victim, hasty);
	recv_post(victim.qp, &wr);
	before = device_counter_now(&victim.device, "unknown_qp");

	end_send(&impostor);
	ok = cq_expect(impostor.cq, "the impostor", ANY_REQUEST, IBV_WC_RETRY_EXC_ERR, WAIT_MS) & cq_quiet(victim.cq, 1);
	if (device_counter_now(&victim.device, "unknown_qp") == before) {
		printf("# its packets did not come to the device\n");
		ok = false;
	}
	if (ok) {
		end_send(&peer);
		ok = cq_expect(victim.cq, "a receive", ANY_REQUEST, IBV_WC_SUCCESS, WAIT_MS) &
		     cq_expect(peer.cq, "the peer", ANY_REQUEST, IBV_WC_SUCCESS, WAIT_MS);
	}
	end_free(&impostor);
	end_free(&peer);
	end_free(&victim);
	return !ok;
}
