// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a device open with a protection domain, a completion queue, memory
 * regions, connected queue pairs, one in a multicast group, and very many address
 * handles, says what it holds, and waits.
 *
 * hold [-i|-s] DEVICE
 *	-i	ignores the end of the device: stays until it is killed
 *	-s	as -i, and is stuck in a verb from before "ready" on: in the registration of
 *		memory whose pages never come
 *
 * Prints one line "TYPE KEY=VALUE..." for each object, then "ready". Once the
 * device has gone it prints "fatal" (the asynchronous event) and "error NAME" (what
 * a verb returns then), and exits with 3.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "endpoint.h"

#define QPS 4
#define REGION (256 << 10)
/* To take them away takes a while, in which everything else may come to its end. */
#define HANDLES 2000

static struct device device;

static void objects_make(void)
{
	struct depth depth = { .send = 64, .receive = 64, .sges = 4 };
	static struct region regions[3];
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	struct ibv_qp *qps[QPS];
	struct ibv_cq *cq;
	unsigned int i;

	printf("ctx pid=%d\n", getpid());
	cq = cq_make(&device, 256);
	printf("cq cqe=%d\n", cq->cqe);
	for (i = 0; i < 3; i++) {
		region_make(&regions[i], &device, REGION << i,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		printf("mr lkey=%#x rkey=%#x mrlen=%u\n", regions[i].mr->lkey,
		       regions[i].mr->rkey, REGION << i);
	}
	for (i = 0; i < QPS; i++)
		qps[i] = qp_make(&device, IBV_QPT_RC, cq, cq, depth, NULL);
	for (i = 0; i < QPS; i += 2)
		qp_connect(&device, qps[i], &device, qps[i + 1], IBV_MTU_1024, PATIENT);
	for (i = 0; i < QPS; i++)
		printf("qp lqpn=%u rqpn=%u type=RC state=RTS\n", qps[i]->qp_num,
		       qps[i ^ 1]->qp_num);
	qps[0] = qp_make(&device, IBV_QPT_UD, cq, cq, depth, NULL);
	printf("qp lqpn=%u type=UD state=RESET\n", qps[0]->qp_num);
	/* The IPv4 group 239.1.2.3. */
	if (ibv_attach_mcast(qps[0], &group, 0))
		die("ibv_attach_mcast: %s", strerror(errno));
	for (i = 0; i < HANDLES; i++)
		ah_make(&device, &device);
}

static void *register_memory(void *memory)
{
	ibv_reg_mr(device.pd, memory, REGION, IBV_ACCESS_LOCAL_WRITE);
	/* It does not return but for a signal that kills. */
	die("memory without pages was registered");
}

/* Returns once another thread waits inside of ibv_reg_mr(). */
static void get_stuck(void)
{
	pthread_t thread;
	void *memory;
	int fd;

	memory = pages_make(REGION, MAP_PRIVATE | MAP_ANONYMOUS);
	fd = absence_begin(memory, REGION);
	thread_start(&thread, register_memory, memory);
	absence_noticed(fd);
}

static void wait_for_end(void)
{
	struct ibv_async_event event;

	do {
		if (ibv_get_async_event(device.context, &event)) {
			printf("error-event %s\n", strerrorname_np(errno));
			return;
		}
		ibv_ack_async_event(&event);
		printf("event %s\n", ibv_event_type_str(event.event_type));
		fflush(stdout);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	printf("fatal\n");
}

int main(int argc, char **argv)
{
	int option, error;
	struct ibv_pd *pd;
	bool ignore = false, stuck = false;

	while ((option = getopt(argc, argv, "is")) != -1) {
		if (option != 'i' && option != 's')
			return 1;
		ignore = true;
		stuck = option == 's';
	}
	if (argc - optind != 1)
		die("a device is needed");
	setvbuf(stdout, NULL, _IOLBF, 0);
	device_open(&device, argv[optind], 4);
	objects_make();
	if (stuck)
		get_stuck();
	printf("ready\n");
	if (ignore) {
		for (;;)
			pause();
	}
	wait_for_end();
	pd = ibv_alloc_pd(device.context);
	error = pd ? 0 : errno;
	printf("error %s\n", error ? strerrorname_np(error) : "none");
	return error ? 3 : 1;
}
