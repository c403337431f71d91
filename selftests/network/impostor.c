// SPDX-License-Identifier: GPL-2.0
/*
 * A host with the address of a peer, on another link or in another VRF, sends to a queue pair in the name of that peer.
 * Nothing of it may arrive.
 *
 * impostor [-s] DEVICE GID-INDEX PEER GID-INDEX IMPOSTOR GID-INDEX
 *
 * Over RC, with the PSN that the peer would use, before the peer sends. With -s over UC, which takes any PSN, amid a stream of
 * the peer: another CPU takes in the packets of both, one behind the other. Status 4: there is no other CPU.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"

#define PSN 1000
#define SIZE 64
#define WAIT_MS 10000

/* It is of no use to wait long for one that nobody acknowledges. */
static const struct patience hasty = { .timeout = 12, .retries = 1, .rnr_retries = 1 };
/* Of a stream. */
#define FLOW_LABEL 0x12345
#define MESSAGE (64 << 10)
#define MESSAGES 2000
#define AHEAD 16
#define FORGED 0xffffffff
#define NO_OTHER_CPU 4

struct end {
	struct device device;
	struct region region;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct end victim, peer, impostor;

static void end_make(struct end *end, char **name_and_index, enum ibv_qp_type type)
{
	struct depth depth = { .send = 2 * AHEAD, .receive = 2 * AHEAD, .sges = 1 };
	struct device *device = &end->device;

	device_open(device, name_and_index[0], 4);
	device->gid_index = atoi(name_and_index[1]);
	if (ibv_query_gid(device->context, PORT, device->gid_index, &device->gid))
		die("%s: no GID %s", device->name, name_and_index[1]);
	device->flow_label = type == IBV_QPT_UC ? FLOW_LABEL : 0;
	region_make(&end->region, device, MESSAGE, access_of(type));
	end->cq = cq_make(device, 4 * AHEAD);
	end->qp = qp_make(device, type, end->cq, end->cq, depth, NULL);
	if (qp_init(end->qp, access_of(type), 0))
		die("%s: RESET to INIT", device->name);
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

static void end_write(struct end *end, uint32_t length, uint32_t imm)
{
	struct ibv_sge sge = region_sge(&end->region, 0, length);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.imm_data = imm,
		.wr.rdma = { .remote_addr = (uintptr_t)victim.region.memory, .rkey = victim.region.mr->rkey },
	};

	send_post(end->qp, &wr);
}

/* Before the peer sends. */
static bool run_first(void)
{
	struct ibv_sge sge = region_sge(&victim.region, 0, SIZE);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	bool ok;

	recv_post(victim.qp, &wr);
	end_send(&impostor);
	ok = cq_expect(impostor.cq, "the impostor", ANY_REQUEST, IBV_WC_RETRY_EXC_ERR, WAIT_MS) & cq_quiet(victim.cq, 1);
	if (ok) {
		end_send(&peer);
		ok = cq_expect(victim.cq, "a receive", ANY_REQUEST, IBV_WC_SUCCESS, WAIT_MS) &
		     cq_expect(peer.cq, "the peer", ANY_REQUEST, IBV_WC_SUCCESS, WAIT_MS);
	}
	return ok;
}

/* Behind each message of the peer. UC may lose messages: the next one has their receives. */
static bool run_amid(void)
{
	unsigned long long before = device_counter_now(&victim.device, "steered_pkts"), steered;
	unsigned int sent, done = 0, forged = 0, i;
	struct ibv_recv_wr wr = { 0 };
	struct ibv_wc wc;

	for (i = 0; i < 2 * AHEAD; i++)
		recv_post(victim.qp, &wr);
	for (sent = 0; sent < MESSAGES; sent++) {
		while (sent - done >= AHEAD) {
			if (!cq_expect(peer.cq, "the peer", ANY_REQUEST, IBV_WC_SUCCESS, WAIT_MS))
				return false;
			done++;
		}
		end_write(&peer, MESSAGE, sent);
		end_write(&impostor, SIZE, FORGED);
		cq_drain(impostor.cq);
		while (ibv_poll_cq(victim.cq, 1, &wc) > 0) {
			if (wc.status != IBV_WC_SUCCESS)
				die("a receive: %s", ibv_wc_status_str(wc.status));
			forged += wc.imm_data == FORGED;
			recv_post(victim.qp, &wr);
		}
	}
	steered = device_counter_now(&victim.device, "steered_pkts") - before;
	printf("# %llu packets steered, %u of %u forged messages arrived\n", steered, forged, MESSAGES);
	return steered && !forged;
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
	bool amid = argc > 1 && !strcmp(argv[1], "-s");
	enum ibv_qp_type type = amid ? IBV_QPT_UC : IBV_QPT_RC;
	unsigned long long before;
	bool ok;

	argv += 1 + amid;
	if (argc != 7 + amid) {
		fprintf(stderr, "impostor [-s] DEVICE GID-INDEX PEER GID-INDEX IMPOSTOR GID-INDEX\n");
		return 2;
	}
	if (amid && sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return NO_OTHER_CPU;
	end_make(&victim, argv, type);
	end_make(&peer, argv + 2, type);
	end_make(&impostor, argv + 4, type);
	if (memcmp(&peer.device.gid, &impostor.device.gid, sizeof(peer.device.gid)))
		die("the GIDs of peer and impostor differ");
	end_connect(&victim, &peer, PATIENT);
	end_connect(&peer, &victim, PATIENT);
	end_connect(&impostor, &victim, hasty);
	before = device_counter_now(&victim.device, "unknown_qp");
	ok = amid ? run_amid() : run_first();
	if (device_counter_now(&victim.device, "unknown_qp") == before) {
		printf("# no packet of the impostor's was dropped\n");
		ok = false;
	}
	end_free(&impostor);
	end_free(&peer);
	end_free(&victim);
	return !ok;
}
