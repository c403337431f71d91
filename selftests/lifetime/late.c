// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs and receives that come late to a device that is being deleted:
 *
 * late [-r] DEVICE COMMAND
 *
 * Opens the device, starts the shell command in the background, which is to delete the device, and makes queue pairs, one
 * after the other. Exits with 0 once one that goes to INIT is in the error state instead.
 *
 * With -r: a queue pair has been in the error state for so long that the device looks for its receives once a second.
 * Receives are posted right before the command starts. They must be flushed, before the queue pair goes with the device.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"

#define RECEIVES 4
/* The device looks after 4 ms, then each time after twice as long, up to a second. */
#define IDLE_US 2200000

static struct device device;

static bool receives_flushed(const char *delete)
{
	struct depth depth = { .send = 1, .receive = RECEIVES, .sges = 1 };
	struct ibv_cq *cq = cq_make(&device, RECEIVES);
	struct ibv_qp *qp = qp_make(&device, IBV_QPT_RC, cq, cq, depth, NULL);
	uint64_t id;

	if (qp_init(qp, 0, 0))
		die("ibv_modify_qp");
	qp_change(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE, "INIT to ERR");
	usleep(IDLE_US);
	for (id = 0; id < RECEIVES; id++)
		recv_post(qp, &(struct ibv_recv_wr){ .wr_id = id });
	if (!command("(%s) &", delete))
		return false;
	for (id = 0; id < RECEIVES; id++) {
		if (!cq_expect(cq, "a receive", id, IBV_WC_WR_FLUSH_ERR, patience_ms(5000)))
			return false;
	}
	return true;
}

static bool made_in_error(const char *delete)
{
	struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	uint64_t deadline = now_ms() + patience_ms(20000);
	enum ibv_qp_state state;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	if (!command("(%s) &", delete))
		return false;
	/* From some time on, as soon as the command has come so far. */
	do {
		cq = cq_make(&device, 1);
		qp = qp_make(&device, IBV_QPT_RC, cq, cq, depth, NULL);
		if (qp_init(qp, 0, 0))
			die("ibv_modify_qp");
		state = qp_state(qp);
		if (state == IBV_QPS_ERR)
			return true;
		qp_free(qp);
		cq_free(cq);
	} while (now_ms() < deadline);
	printf("the state is %d\n", state);
	return false;
}

int main(int argc, char **argv)
{
	bool receives = argc > 1 && !strcmp(argv[1], "-r");

	argv += receives;
	if (argc != 3 + receives)
		die("a device and a command are needed");
	device_open(&device, argv[1], 4);
	return !(receives ? receives_flushed(argv[2]) : made_in_error(argv[2]));
}
