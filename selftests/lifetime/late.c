// SPDX-License-Identifier: GPL-2.0
/*
 * A queue pair that comes late:
 *
 * late DEVICE COMMAND
 *
 * Opens the device, starts the shell command in the background, which is to delete the device, and makes a queue pair a
 * second later. It must be in the error state as soon as it is to be of use. Exits with 0 if it is.
 */
#include <stdio.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"

int main(int argc, char **argv)
{
	struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	static struct device device;
	uint64_t deadline = now_ms() + patience_ms(20000);
	enum ibv_qp_state state;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	if (argc != 3)
		die("a device and a command are needed");
	device_open(&device, argv[1], 4);
	if (!command("(%s) &", argv[2]))
		return 1;
	/* From some time on, as soon as the command has come so far. */
	do {
		cq = cq_make(&device, 1);
		qp = qp_make(&device, IBV_QPT_RC, cq, cq, depth, NULL);
		if (qp_init(qp, 0, 0))
			die("ibv_modify_qp");
		state = qp_state(qp);
		if (state == IBV_QPS_ERR)
			return 0;
		qp_free(qp);
		cq_free(cq);
	} while (now_ms() < deadline);
	printf("the state is %d\n", state);
	return 1;
}
