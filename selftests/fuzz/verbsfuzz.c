// SPDX-License-Identifier: GPL-2.0
/*
 * Verbs by many hands: some processes with some threads each, which share files of uverbs and the
 * objects in them, and do with them what they like: make, change, use and destroy, with arguments
 * that make sense and with others, beside each other. They map rings and post, pass files on and close
 * them, listen and connect by rdma_cm, dump by netlink, fork. Meanwhile the processes are killed, run
 * out of memory and out of objects, and are replaced. A bystander must not notice.
 *
 * verbsfuzz DEVICE DEVICE NAMESPACE NAMESPACE
 *	NAMESPACE	the network namespace of each device
 *
 * The seed decides what each thread does, but not how threads interleave. Each file in verbsfuzz has a table of the
 * actions that threads choose from.
 */

#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bystander.h"
#include "cgroup.h"
#include "coverage.h"
#include "fuzzer.h"
#include "namespace.h"
#include "test.h"
#include "verbsfuzz/verbsfuzz.h"

#define FEWEST_COMMANDS 3000
/* Messages that arrived, and objects of a kind that were destroyed while they flowed. */
#define FEWEST_MESSAGES 1000
#define FEWEST_UNDER_USE 10
/* How long the last commands may take when the time is over. */
#define LAST_COMMANDS_MS 200000
/* Of the cgroup of one process that is to run out of memory, and of all of them together. */
#define LITTLE_MEMORY "33554432"
#define MUCH_MEMORY "805306368"
/* Each is a page in the kernel's log. */
#define MOST_OOM_KILLS 16
#define GROUP CGROUPS "/verbsfuzz"
#define POOR GROUP "/poor"
#define RICH GROUP "/rich"

struct shared *shared;
struct known_device known[2];
uint8_t arena[ARENA] __attribute__((aligned(4096)));
unsigned int crew_index;

static bool has_memory_cgroups, has_rdma_cgroups;

/* --- What can be done ----------------------------------------------------------------------- */

static struct action actions[MOST_ACTIONS];
static unsigned int actions_number;

static void actions_add(const struct action *more)
{
	for (; more->name; more++) {
		if (actions_number == MOST_ACTIONS)
			die("more actions than MOST_ACTIONS");
		actions[actions_number++] = *more;
	}
}

/* Chooses what the action is done to; false if there is nothing. */
static bool needs_meet(struct hand *hand, const struct action *action)
{
	unsigned int i;

	hand->argument = action->argument;
	if (action->needs[0] == CM_ID) {
		hand->id = cm_pick(hand, action->argument);
		return hand->id;
	}
	if (action->needs[0] == NO_KIND)
		return true;
	hand->file = file_pick(hand);
	if (hand->file < 0)
		return false;
	for (i = 0; i < ARRAY_SIZE(action->needs) && action->needs[i] >= PD; i++) {
		hand->with[i] = object_pick(hand, hand->file, action->needs[i]);
		if (!hand->with[i])
			return false;
	}
	return true;
}

static void act(struct hand *hand)
{
	unsigned int chosen = weighted(&hand->choice, &actions[0].weight, sizeof(actions[0]), actions_number);
	int error;

	if (!needs_meet(hand, &actions[chosen]))
		return;
	hand->lies.lied = false;
	error = actions[chosen].run(hand);
	if (error == NOTHING)
		return;
	if (hand->lies.lied)
		count(error ? &shared->lies_refused : &shared->lies_done);
	else
		count(error ? &shared->refused[chosen] : &shared->done[chosen]);
}

/* A child with all that its parent has works with it for a while, and ends in one way or another. */
static int child_fork(struct hand *hand)
{
	static struct used nobody[2];
	pid_t parent = getpid(), pid = fork();
	unsigned int left = below(&hand->choice, 60);

	if (pid < 0)
		return errno;
	if (pid)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	choice_seed(&hand->choice, any(&hand->choice), 0);
	hand->used = nobody;
	/* The parent goes on using its ids, so the child's copies of their states would soon be wrong: see CM_ASKED. */
	cm_renew();
	while (left-- && !shared->over && getppid() == parent)
		act(hand);
	_exit(0);
}

static const struct action process_actions[] = {
	{ "fork", child_fork, .weight = 2 },
	{ .name = NULL },
};

/* --- Processes ------------------------------------------------------------------------------ */

static struct hand hands[HANDS];

/* Uses up memory that somebody wants back: the last of the crew has little. */
static void gorge(void)
{
	static unsigned int eaten;

	if (!shared->gorge || crew_index != CREW - 1 || eaten > 128)
		return;
	eaten++;
	mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static void *hand_run(void *argument)
{
	struct hand *hand = argument;

	coverage_start();
	while (!shared->over) {
		act(hand);
		coverage_collect();
		gorge();
	}
	return NULL;
}

/* A process that has no memory to start with ends as one does that the OOM killer has chosen. */
static void give_up(void)
{
	raise(SIGKILL);
}

static void crew_run(unsigned int index, uint64_t number)
{
	pthread_t threads[HANDS];
	unsigned int i, started;

	crew_index = index;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	if (has_memory_cgroups || has_rdma_cgroups)
		cgroup_write(index == CREW - 1 ? POOR "/cgroup.procs" : RICH "/cgroup.procs", "0");
	namespace_enter(known[index % 2].space);
	files_prepare();
	rings_prepare();
	cm_renew();
	for (i = 0; i < HANDS; i++) {
		choice_seed(&hands[i].choice, seed, number * HANDS + i);
		hands[i].used = &shared->used[index][2 * i];
		hands[i].answer = mmap(NULL, ANSWER_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		hands[i].netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
		if (hands[i].answer == MAP_FAILED || hands[i].netlink < 0)
			give_up();
	}
	for (started = 0; started < HANDS; started++) {
		if (pthread_create(&threads[started], NULL, hand_run, &hands[started]))
			give_up();
	}
	for (i = 0; i < HANDS; i++)
		pthread_join(threads[i], NULL);
}

static struct {
	pid_t crew[CREW];
	uint64_t started;
	/* Those that neither were killed nor came to their end. */
	unsigned int wrong;
	struct choice choice;
	uint64_t next_kill, next_limit, next_gorge;
} supervisor;

static struct bystander bystander;

/* Whether a thread of the process moves messages. */
static bool has_stream(unsigned int index)
{
	unsigned int i;

	for (i = 0; i < 2 * HANDS; i++) {
		if (shared->used[index][i].busy)
			return true;
	}
	return false;
}

static void crew_start(unsigned int index)
{
	uint64_t number = supervisor.started++;
	unsigned int i;
	pid_t pid;

	for (i = 0; i < 2 * HANDS; i++)
		shared->used[index][i].busy = false;
	pid = fork_child();
	if (!pid) {
		crew_run(index, number);
		fflush(stdout);
		_exit(0);
	}
	supervisor.crew[index] = pid;
	if (number >= CREW)
		count(&shared->replaced);
}

/* Takes notice of all that have ended; whether there is anybody else. */
static bool crew_reap(void)
{
	unsigned int i;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, member = false;

		for (i = 0; i < CREW; i++) {
			if (supervisor.crew[i] == pid) {
				supervisor.crew[i] = 0;
				member = true;
			}
		}
		/* Children of those that were killed end by themselves. */
		if (killed || (!status && (shared->over || !member)))
			continue;
		ksft_print_msg("a process ends with wait status %#x\n", status);
		supervisor.wrong++;
	}
	return !pid;
}

/* Not of handles: see context_avoid(). */
static void limit_set(bool little)
{
	char line[128];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		if (little)
			snprintf(line, sizeof(line), "%s hca_object=%u", known[i].name,
				 1 + below(&supervisor.choice, 40));
		else
			snprintf(line, sizeof(line), "%s hca_object=max", known[i].name);
		cgroup_write(GROUP "/rdma.max", line);
	}
}

static void memory_watch(uint64_t now)
{
	uint64_t kills = cgroup_number(GROUP "/memory.events", "oom_kill");

	if (kills > shared->oom_kills) {
		shared->oom_kills = kills;
		shared->gorge = false;
		supervisor.next_gorge = now + patience_ms(2000 + below(&supervisor.choice, 2000));
		if (kills >= MOST_OOM_KILLS)
			cgroup_write(POOR "/memory.max", "max");
	}
	if (now >= supervisor.next_gorge && kills < MOST_OOM_KILLS)
		shared->gorge = true;
}

static uint64_t executions(void)
{
	uint64_t sum = shared->lies_done + shared->lies_refused;
	unsigned int i;

	for (i = 0; i < actions_number; i++)
		sum += shared->done[i] + shared->refused[i];
	return sum;
}

static bool flowed(void)
{
	return shared->good_sends >= FEWEST_MESSAGES && shared->under_use[QP] >= FEWEST_UNDER_USE &&
	       shared->under_use[MR] >= FEWEST_UNDER_USE;
}

/* The first that has not been yet, or NULL. */
static const char *missing(void)
{
	unsigned int i;

	for (i = 0; i < actions_number; i++) {
		if (!actions[i].in_vain && !shared->done[i])
			return actions[i].name;
	}
	if (!flowed())
		return "messages through objects that are destroyed";
	if (!shared->kills || !shared->replaced)
		return "kills";
	if (has_memory_cgroups && !shared->oom_kills)
		return "OOM kills";
	if (has_rdma_cgroups && !shared->limited)
		return "limits of a cgroup";
	if (!bystander_has_moved(&bystander))
		return "messages of the bystander";
	return executions() < FEWEST_COMMANDS ? "enough commands" : NULL;
}

static void supervise(unsigned int seconds)
{
	uint64_t end = now_ms() + seconds * 1000, now, told = end;
	unsigned int i;

	choice_seed(&supervisor.choice, seed, UINT32_MAX);
	supervisor.next_gorge = now_ms() + 1000;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	while (fuzzer_goes_on(end, !missing())) {
		crew_reap();
		for (i = 0; i < CREW; i++) {
			if (!supervisor.crew[i])
				crew_start(i);
		}
		usleep(20000);
		now = now_ms();
		if (now > told && missing()) {
			ksft_print_msg("more time: %" PRIu64 " commands, without %s\n", executions(), missing());
			fflush(stdout);
			told += 10000;
		}
		if (now >= supervisor.next_kill) {
			unsigned int index = below(&supervisor.choice, CREW);
			pid_t pid = supervisor.crew[index];
			bool busy = has_stream(index);

			if (supervisor.next_kill && pid && !kill(pid, SIGKILL)) {
				count(&shared->kills);
				if (busy)
					count(&shared->under_use[NO_KIND]);
				/* Its end may take long, if rdma_cm waits for an answer. */
				supervisor.crew[index] = 0;
			}
			/* On a slow kernel, too, it has to do something first. */
			supervisor.next_kill = now + patience_ms(500 + below(&supervisor.choice, 3000));
		}
		if (has_rdma_cgroups && now >= supervisor.next_limit) {
			limit_set(one_in(&supervisor.choice, 6));
			supervisor.next_limit = now + patience_ms(200 + below(&supervisor.choice, 800));
		}
		if (has_memory_cgroups)
			memory_watch(now);
	}
	shared->gorge = false;
	shared->over = true;
	now = now_ms();
	while (crew_reap()) {
		if (now_ms() > now + LAST_COMMANDS_MS) {
			ksft_print_msg("there are processes that do not end\n");
			return;
		}
		usleep(20000);
	}
	ksft_print_msg("the last process ended %" PRIu64 " ms after the time was over\n", now_ms() - now);
	shared->ended = !supervisor.wrong;
}

static void groups_make(void)
{
	has_memory_cgroups = cgroup_has("memory");
	has_rdma_cgroups = cgroup_has("rdma");
	if (!has_memory_cgroups && !has_rdma_cgroups)
		return;
	if (mkdir(GROUP, 0755))
		die(GROUP ": %s", strerror(errno));
	if (has_memory_cgroups)
		cgroup_write(GROUP "/cgroup.subtree_control", "+memory");
	if (has_rdma_cgroups)
		cgroup_write(GROUP "/cgroup.subtree_control", "+rdma");
	if (mkdir(POOR, 0755) || mkdir(RICH, 0755))
		die(GROUP ": %s", strerror(errno));
	if (has_memory_cgroups) {
		cgroup_write(POOR "/memory.max", LITTLE_MEMORY);
		cgroup_write(GROUP "/memory.max", MUCH_MEMORY);
	}
}

/* A group that cannot be removed has a process that has not ended. */
static bool groups_end(void)
{
	if (!has_memory_cgroups && !has_rdma_cgroups)
		return true;
	if (!rmdir(POOR) && !rmdir(RICH) && !rmdir(GROUP))
		return true;
	ksft_print_msg(GROUP ": %s\n", strerror(errno));
	return false;
}

static void devices_know(char *const *names, char *const *spaces)
{
	struct device device;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		known[i].name = names[i];
		known[i].space = spaces[i];
		device_open(&device, names[i], 4);
		known[i].gid_index = device.gid_index;
		known[i].gid = device.gid;
		snprintf(known[i].path, sizeof(known[i].path), "/dev/infiniband/%s",
			 device.context->device->dev_name);
		device_close(&device);
	}
}

static void report(void)
{
	unsigned int i;

	for (i = 0; i < actions_number; i++)
		ksft_print_msg("%s: %" PRIu64 " ok, %" PRIu64 " refused\n", actions[i].name, shared->done[i],
			       shared->refused[i]);
	ksft_print_msg("commands that lie: %" PRIu64 " ok, %" PRIu64 " refused\n", shared->lies_done,
		       shared->lies_refused);
	ksft_print_msg("%" PRIu64 " streams, %" PRIu64 " sends posted, %" PRIu64 " receives posted\n", shared->streams,
		       shared->sends, shared->receives);
	ksft_print_msg("%" PRIu64 " completions, %" PRIu64 " of success, %" PRIu64 " of these of sends of %" PRIu64
		       " bytes\n", shared->completions, shared->successes, shared->good_sends, shared->bytes);
	ksft_print_msg("ended under use: %" PRIu64 " QPs, %" PRIu64 " MRs, %" PRIu64 " AHs; %" PRIu64
		       " files closed, %" PRIu64 " processes killed\n", shared->under_use[QP], shared->under_use[MR],
		       shared->under_use[AH], shared->under_use[A_FILE], shared->under_use[NO_KIND]);
	ksft_print_msg("%" PRIu64 " kills, %" PRIu64 " OOM kills, %" PRIu64 " processes replaced, %" PRIu64
		       " objects refused by rdma.max\n",
		       shared->kills, shared->oom_kills, shared->replaced, shared->limited);
	ksft_print_msg("executions %" PRIu64 "\n", executions());
}

static bool all_succeeded(void)
{
	const char *what = missing();
	unsigned int i;

	for (i = 0; i < actions_number; i++) {
		if (!actions[i].in_vain && !shared->done[i])
			ksft_print_msg("never succeeded: %s\n", actions[i].name);
	}
	if (what)
		ksft_print_msg("without %s\n", what);
	return !what;
}

static void begin(char **operands)
{
	static const struct action *const tables[] = {
		file_actions, object_actions, event_actions, traffic_actions, netlink_actions, cm_actions,
		process_actions,
	};
	unsigned int i;

	fuzzer_begin();
	for (i = 0; i < ARRAY_SIZE(tables); i++)
		actions_add(tables[i]);
	shared = fuzzer_shared(sizeof(*shared));
	devices_know(operands, operands + 2);
	groups_make();
}

static void tell(void)
{
	bool gone, ended;
	pid_t pid;

	bystander_start(&bystander, known[0].name, known[1].name, seed);
	domain_prepare();
	mail_open();
	pid = fuzzer_fork();
	if (!pid) {
		supervise(fuzzer.seconds);
		fflush(stdout);
		_exit(0);
	}
	ended = fuzzer_wait(pid, 2 * LAST_COMMANDS_MS) && shared->ended;
	/* With files in them that nobody has taken. */
	mail_close();
	report();
	gone = groups_end();
	row_result(ended && gone, "verbs: all processes end", NULL);
	row_result(all_succeeded(), "verbs: all that can succeed has succeeded", NULL);
	row_result(flowed(), "verbs: messages flow through objects that are destroyed", NULL);
	row_result(shared->kills && shared->replaced, "verbs: processes were killed and replaced", NULL);
	row_result(shared->oom_kills || !has_memory_cgroups, "verbs: processes were killed for want of memory",
		   has_memory_cgroups ? NULL : "no memory cgroups");
	row_result(shared->limited || !has_rdma_cgroups, "verbs: a cgroup's limits were reached",
		   has_rdma_cgroups ? NULL : "no rdma cgroups");
	row_result(bystander_stop(&bystander), "verbs: others notice nothing", NULL);
	bystander_start(&bystander, known[0].name, known[1].name, seed + 1);
	row_result(bystander_finish(&bystander), "verbs: both devices work afterwards", NULL);
	fuzzer_end();
}

const struct test test = {
	.operands = "DEVICE DEVICE NAMESPACE NAMESPACE", .begin = begin, .told = 8, .tell = tell,
};
