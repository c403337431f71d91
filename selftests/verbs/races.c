// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of several threads at once on one object. ib_core trusts programs not to do that with some of them. What goes
 * wrong shows in the kernel log: references to GIDs that are dropped twice, or never.
 *
 * Test: calls at once on one object
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#define THREADS 4
#define SECONDS 3

/* The device by its IPv4 and by its IPv6 address, and the peer likewise. */
static struct device own[2], peer[2];
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static uint64_t deadline;

struct tally {
	pthread_t thread;
	unsigned int first, done, busy;
	int error;
};

static struct ibv_qp_attr over(unsigned int which)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_SQD,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = peer[which].gid,
				.sgid_index = own[which].gid_index,
				.hop_limit = 64,
			},
		},
	};
}

static void *change_path(void *argument)
{
	struct tally *tally = argument;
	struct ibv_qp_attr attr;
	unsigned int turn;
	int error;

	for (turn = tally->first; now_ms() < deadline; turn++) {
		attr = over(turn % 2);
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV);
		if (!error)
			tally->done++;
		else if (error == EBUSY)
			tally->busy++;
		else
			tally->error = error;
	}
	return NULL;
}

/* The kernel log from here on. */
static int log_open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);

	if (fd < 0 || lseek(fd, 0, SEEK_END) < 0)
		die("/dev/kmsg: %s", strerror(errno));
	return fd;
}

/* Whether it says that references were miscounted. */
static bool log_has_miscount(int fd)
{
	char record[8192];
	bool found = false;
	ssize_t size;

	while ((size = read(fd, record, sizeof(record) - 1)) > 0) {
		record[size] = 0;
		found = found || strstr(record, "refcount_t");
	}
	close(fd);
	return found;
}

static bool run_paths(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr init;
	struct tally tallies[THREADS] = {};
	unsigned int done = 0, busy = 0, i;
	int error = 0, log = log_open();
	bool is_wrong;

	qp = qp_make(&own[0], IBV_QPT_RC, cq, cq, (struct depth){ .send = 1, .receive = 1, .sges = 1 }, NULL);
	if (qp_init(qp, 0, 0))
		die("no INIT");
	/* The peer need not be there. */
	qp_ready_connected(&own[0], qp, &peer[0], 77, IBV_MTU_1024, PATIENT, 0, 0);
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("no SQD");
	do {
		if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
			die("ibv_query_qp fails");
	} while (attr.sq_draining);
	deadline = now_ms() + SECONDS * 1000;
	for (i = 0; i < THREADS; i++) {
		tallies[i].first = i;
		thread_start(&tallies[i].thread, change_path, &tallies[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(tallies[i].thread, NULL);
		done += tallies[i].done;
		busy += tallies[i].busy;
		error = error ? error : tallies[i].error;
	}
	/* Alone, each succeeds. */
	for (i = 0; i < 4; i++) {
		attr = over(i % 2);
		if (!error)
			error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV);
	}
	qp_free(qp);
	ksft_print_msg("%u changes, %u refused\n", done, busy);
	if (error)
		ksft_print_msg("ibv_modify_qp: %s\n", strerror(error));
	is_wrong = log_has_miscount(log);
	if (is_wrong)
		ksft_print_msg("references were miscounted\n");
	return done > busy && !error && !is_wrong;
}

static const struct row rows[] = {
	{ "a queue pair gets another source address", run_paths },
};

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++) {
		device_open(&own[i], names[0], i ? 6 : 4);
		device_open(&peer[i], names[1], i ? 6 : 4);
	}
	cq = cq_make(&own[0], 16);
}

static void end(void)
{
	int i;

	cq_free(cq);
	for (i = 0; i < 2; i++) {
		device_close(&own[i]);
		device_close(&peer[i]);
	}
}

const struct test test = { ROWS(rows), .begin = begin, .end = end };
