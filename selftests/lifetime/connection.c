// SPDX-License-Identifier: GPL-2.0
/*
 * An idle connection of the RDMA connection manager between two namespaces:
 *
 * connection NAMESPACE ADDRESS NAMESPACE
 *
 * The first two are those of the passive side, the last one is that of the active side. Prints "ready" once they are
 * connected. Then the active side waits for the next event, prints its name, and exits with 0 if the peer has
 * disconnected. The passive side does nothing of its own.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "endpoint.h"
#include "namespace.h"

#define SERVICE "7480"

static struct rdma_cm_id *endpoint_make(const char *address, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(address, SERVICE, &hints, &found))
		die("rdma_getaddrinfo: %s", strerror(errno));
	if (rdma_create_ep(&id, found, NULL, &attr))
		die("rdma_create_ep: %s", strerror(errno));
	return id;
}

static void passive_side(const char *address, int listening)
{
	struct rdma_cm_id *listener = endpoint_make(address, RAI_PASSIVE), *id;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (rdma_listen(listener, 1))
		die("rdma_listen: %s", strerror(errno));
	if (write(listening, "", 1) != 1 || rdma_get_request(listener, &id) || rdma_accept(id, NULL))
		die("rdma_accept: %s", strerror(errno));
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int listening[2];
	char byte;

	if (argc != 4)
		die("a namespace, an address and a namespace are needed");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (pipe(listening))
		die("pipe: %s", strerror(errno));
	switch (fork()) {
	case -1:
		die("fork: %s", strerror(errno));
	case 0:
		close(listening[0]);
		namespace_enter(argv[1]);
		passive_side(argv[2], listening[1]);
	}
	close(listening[1]);
	if (read(listening[0], &byte, 1) != 1)
		die("the passive side does not listen");
	namespace_enter(argv[3]);
	id = endpoint_make(argv[2], 0);
	/* Events come by themselves from now on. */
	channel = rdma_create_event_channel();
	if (!channel || rdma_connect(id, NULL))
		die("rdma_connect: %s", strerror(errno));
	if (rdma_migrate_id(id, channel))
		die("rdma_migrate_id: %s", strerror(errno));
	printf("ready\n");
	if (rdma_get_cm_event(channel, &event))
		die("rdma_get_cm_event: %s", strerror(errno));
	printf("event %s\n", rdma_event_str(event->event));
	return event->event != RDMA_CM_EVENT_DISCONNECTED;
}
