// SPDX-License-Identifier: GPL-2.0
/* See bystander.h. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bystander.h"
#include "exchange.h"

#define SIDE_SIZE (1 << 18)
#define MESSAGES 6
#define LONGEST 12000
/* A round takes milliseconds; one that takes so long will not come to an end. */
#define STALL_SECONDS 120
#define FEWEST_ROUNDS 10
#define READY_MS 60000

/* Who is flooded answers late: that is no error, so the timer is two seconds. */
static const struct patience patience = { .timeout = 19, .retries = 7, .rnr_retries = 7 };

static void round_make(struct way *ways)
{
	unsigned int i, j;

	ways_start(ways, 2);
	for (i = 0; i < 2; i++) {
		for (j = 0; j < MESSAGES; j++)
			message_add(&ways[i], opcodes[random_between(0, OPCODES - 1)],
				    random_between(0, LONGEST), random_between(1, MAX_SEGMENTS));
		if (!ways[i].count)
			die("bystander: no room for a message");
	}
}

static bool rounds_run(struct bystander_news *news, struct side *sides, struct way *ways)
{
	bool ok = true;

	while (ok && !news->stop) {
		uint64_t began = now_ms();
		uint32_t took;

		round_make(ways);
		ok = exchange(ways, 2, STALL_SECONDS);
		took = now_ms() - began;
		if (took > news->longest_ms)
			news->longest_ms = took;
		if (ok)
			news->rounds++;
		news->ready = true;
		usleep(2000);
	}
	return ok & side_check(&sides[0]) & side_check(&sides[1]);
}

static bool bystander_run(struct bystander_news *news, const char *const *names)
{
	struct depth depth = {
		.send = MAX_MESSAGES,
		.receive = MAX_MESSAGES,
		.sges = MAX_SEGMENTS,
	};
	struct device devices[2];
	struct ibv_qp *qps[2];
	struct side sides[2];
	struct way ways[2];
	bool ok;
	int i;

	for (i = 0; i < 2; i++) {
		device_open(&devices[i], names[i], 4);
		side_make(&sides[i], &devices[i], SIDE_SIZE, 4 * MAX_MESSAGES);
		qps[i] = qp_make(&devices[i], IBV_QPT_RC, sides[i].send_cq, sides[i].recv_cq, depth,
				 NULL);
		news->qp_nums[i] = qps[i]->qp_num;
	}
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_1024, patience);
	ways_between(ways, &sides[0], qps[0], &sides[1], qps[1]);
	ok = rounds_run(news, sides, ways);
	for (i = 0; i < 2; i++) {
		if (ibv_destroy_qp(qps[i]))
			die("bystander: ibv_destroy_qp: %s", strerror(errno));
		side_free(&sides[i]);
		device_close(&devices[i]);
	}
	return ok;
}

void bystander_start(struct bystander *bystander, const char *device, const char *other,
		     uint64_t seed)
{
	const char *names[2] = { device, other };
	uint64_t end = now_ms() + patience_ms(READY_MS);
	struct bystander_news *news;

	news = mmap(NULL, sizeof(*news), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (news == MAP_FAILED)
		die("no memory for a bystander");
	fflush(stdout);
	bystander->news = news;
	bystander->pid = fork_child();
	if (!bystander->pid) {
		bool ok;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		random_seed(seed);
		ok = bystander_run(news, names);
		fflush(stdout);
		_exit(ok ? 0 : 1);
	}
	while (!news->ready) {
		if (waitpid(bystander->pid, NULL, WNOHANG) || now_ms() > end)
			die("the bystander does not start");
		usleep(10000);
	}
}

bool bystander_has_moved(const struct bystander *bystander)
{
	return bystander->news->rounds >= FEWEST_ROUNDS;
}

bool bystander_stop(struct bystander *bystander)
{
	struct bystander_news *news = bystander->news;
	uint32_t rounds = news->rounds;
	int status;

	news->stop = true;
	if (waitpid(bystander->pid, &status, 0) != bystander->pid)
		die("waitpid: %s", strerror(errno));
	printf("# bystander: %u rounds, the longest took %u ms\n", rounds, news->longest_ms);
	if (status)
		printf("# bystander: wait status %#x\n", status);
	if (rounds < FEWEST_ROUNDS)
		printf("# bystander: that is fewer than %u\n", FEWEST_ROUNDS);
	return !status && rounds >= FEWEST_ROUNDS;
}

bool bystander_finish(struct bystander *bystander)
{
	siginfo_t ended = { 0 };

	/* A round that stands still ends it. */
	while (!bystander_has_moved(bystander) &&
	       !waitid(P_PID, bystander->pid, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid)
		usleep(10000);
	return bystander_stop(bystander);
}
