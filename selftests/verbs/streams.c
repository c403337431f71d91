// SPDX-License-Identifier: GPL-2.0
/*
 * Streams of long messages, and small messages of several queue pairs, which another CPU
 * takes in than the one that they came by; and messages that come one at a time, which it
 * does not. Every byte is checked.
 */

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "exchange.h"
#include "namespace.h"
#include "test.h"

#define MESSAGE (128 << 10)
#define SIDE_SIZE ((MAX_MESSAGES + 2) * MESSAGE)
#define SECONDS 120
#define ROUNDS 4
/* The CPU that goes and comes: the first one may not be able to. */
#define OTHER_CPU "/sys/devices/system/cpu/cpu1/online"
#define CPU_ONLINE "/sys/devices/system/cpu/cpu%u/online"
/* What it gives to others, while a real-time program has all the rest: nanoseconds of each second. */
#define OTHER_CPU_SHARE "/sys/kernel/debug/sched/fair_server/cpu1/runtime"
/* Such a program runs so long at the most. */
#define KEPT_SECONDS 18


/* Two queue pairs, connected; each is a way. */
struct link {
	struct ibv_qp *qps[2];
	struct way ways[2];
};

static void link_make(struct link *link)
{
	struct depth depth = {
		.send = MAX_MESSAGES,
		.receive = MAX_MESSAGES,
		.sges = MAX_SEGMENTS,
	};
	unsigned int i;

	memset(link, 0, sizeof(*link));
	qps_make(link->qps, IBV_QPT_RC, depth, devices[0].active_mtu, PATIENT);
	ways_between(link->ways, &sides[0], link->qps[0], &sides[1], link->qps[1]);
	for (i = 0; i < 2; i++) {
		region_fill(&sides[i].source);
		region_fill(&sides[i].sink);
	}
}

static bool link_end(struct link *link)
{
	qps_free(link->qps);
	return side_check(&sides[0]) & side_check(&sides[1]);
}

/* One round: so many messages from the first device, and as many back if both ways are to be used. */
static bool stream(struct link *link, enum ibv_wr_opcode opcode, unsigned int ways,
		   unsigned int messages, uint32_t length)
{
	unsigned int i, j;

	ways_start(link->ways, 2);
	for (i = 0; i < ways; i++) {
		for (j = 0; j < messages; j++) {
			if (!message_add(&link->ways[i], opcode, length, 1))
				die("no room for message %u", j);
		}
	}
	return exchange(link->ways, 2, SECONDS);
}

static bool rounds(struct link *link, enum ibv_wr_opcode opcode, unsigned int ways,
		   unsigned int messages)
{
	bool ok = true;
	unsigned int i;

	for (i = 0; ok && i < ROUNDS; i++)
		ok = stream(link, opcode, ways, messages, MESSAGE);
	return ok;
}

static unsigned long long packets_of(unsigned int messages, uint32_t length)
{
	return messages * (length / mtu_bytes(devices[0].active_mtu));
}

static unsigned long long steered(const struct device *device)
{
	return device_counter_now(device, "steered_pkts");
}

static unsigned int cpus(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN);
}

/*
 * A share of packets is measured until it is as it should be, for so long: the host may give one CPU of the machine hardly
 * any time for seconds.
 */
#define TRY_MS 30000
#define PAUSE_US 300000

/* Whether to measure: `end` is 0 at first. */
static bool tries(uint64_t *end)
{
	if (*end)
		usleep(PAUSE_US);
	else
		*end = now_ms() + patience_ms(TRY_MS);
	return now_ms() < *end;
}

/* Measures until `is_right`. That clears `ok` if the traffic fails. */
static bool in_time(bool (*is_right)(int argument, bool *ok), int argument)
{
	bool ok = true, is = false;
	uint64_t end = 0;

	while (ok && !is && tries(&end))
		is = is_right(argument, &ok);
	return ok && is;
}

/*
 * For what must not happen: more than half of the measurements must be right, and at least so many. Measures until they
 * are.
 */
#define RIGHT_ONES 3

static bool mostly_in_time(bool (*is_right)(int argument, bool *ok), int argument)
{
	unsigned int right = 0, wrong = 0;
	uint64_t end = 0;
	bool ok = true;

	while (ok && (right < RIGHT_ONES || right <= wrong) && tries(&end)) {
		if (is_right(argument, &ok))
			right++;
		else
			wrong++;
	}
	ksft_print_msg("%u of %u measurements are right\n", right, right + wrong);
	return ok && right >= RIGHT_ONES && right > wrong;
}

static bool is_mostly_steered(int opcode, bool *ok)
{
	const struct device *taker = &devices[opcode != IBV_WR_RDMA_READ];
	unsigned long long packets = packets_of(ROUNDS * MAX_MESSAGES, MESSAGE);
	unsigned long long before = steered(taker), after;
	struct link link;

	link_make(&link);
	*ok = rounds(&link, opcode, 1, MAX_MESSAGES);
	after = steered(taker);
	ksft_print_msg("%llu of %llu packets steered\n", after - before, packets);
	*ok = link_end(&link) && *ok;
	return 2 * (after - before) > packets;
}

/* More than half of a stream's packets are steered, where they are taken in. */
static bool one_way(int opcode)
{
	return in_time(is_mostly_steered, opcode);
}

static bool both_ways(int opcode)
{
	struct link link;
	bool ok;

	link_make(&link);
	ok = rounds(&link, opcode, 2, MAX_MESSAGES / 2);
	return link_end(&link) && ok;
}

static bool is_hardly_steered(int opcode, bool *ok)
{
	unsigned long long packets = packets_of(MAX_MESSAGES, MESSAGE / 2);
	unsigned long long before = steered(&devices[1]), after;
	struct link link;
	unsigned int i;

	link_make(&link);
	for (i = 0; *ok && i < MAX_MESSAGES; i++)
		*ok = stream(&link, opcode, 1, 1, MESSAGE / 2);
	after = steered(&devices[1]);
	ksft_print_msg("%llu of %llu packets steered\n", after - before, packets);
	*ok = link_end(&link) && *ok;
	return 10 * (after - before) < packets;
}

/* Less than a tenth is: on a busy machine some may come as if they were a stream. */
static bool one_at_a_time(int opcode)
{
	return mostly_in_time(is_hardly_steered, opcode);
}

static atomic_bool over;
static atomic_uint changes;
static atomic_bool is_kept;

#define FLOWS 8
#define BATCH 16
#define BATCHES 4
#define SMALL_MS 300

/* Writes of a number each, which grows: the last one stays. */
struct flow {
	struct ibv_qp *qps[2];
	unsigned int batches;
	uint64_t number;
};

static void flow_post(struct flow *flow, unsigned int index)
{
	uint64_t *numbers = (uint64_t *)sides[0].source.memory + index * BATCH * BATCHES;
	uint64_t *target = (uint64_t *)sides[1].sink.memory + index;
	struct ibv_send_wr wrs[BATCH], *bad;
	struct ibv_sge sges[BATCH];
	/* A CPU decides every 10 ms, and then has to have met several queue pairs. */
	unsigned int batch = BATCH / patience_ms(1), i, at;

	for (i = 0; i < batch; i++) {
		at = ++flow->number % (BATCH * BATCHES);
		numbers[at] = flow->number;
		sges[i] = region_sge(&sides[0].source, (uint8_t *)&numbers[at] - sides[0].source.memory, 8);
		wrs[i] = (struct ibv_send_wr){
			.wr_id = index,
			.next = i + 1 < batch ? &wrs[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i + 1 < batch ? 0 : IBV_SEND_SIGNALED,
			.sg_list = &sges[i],
			.num_sge = 1,
			.wr.rdma = { .remote_addr = (uintptr_t)target, .rkey = sides[1].sink.mr->rkey },
		};
	}
	if (ibv_post_send(flow->qps[0], wrs, &bad))
		die("ibv_post_send: %s", strerror(errno));
	flow->batches++;
}

static bool flow_polled(struct flow *flows)
{
	struct ibv_wc wc;

	if (!cq_poll(sides[0].send_cq, &wc, SECONDS * 1000) || wc.status != IBV_WC_SUCCESS || wc.wr_id >= FLOWS)
		return false;
	flows[wc.wr_id].batches--;
	return true;
}

static void cpus_now(cpu_set_t *cpus)
{
	if (sched_getaffinity(0, sizeof(*cpus), cpus))
		die("sched_getaffinity: %s", strerror(errno));
}

/* The share of packets, in percent, that other CPUs take in while a program writes to so many queue pairs. */
static unsigned int small_share(unsigned int count, bool *ok)
{
	struct depth depth = { .send = BATCH * BATCHES, .receive = 1, .sges = 1 };
	unsigned long long before, share, overtaken, packets = 0;
	struct flow flows[FLOWS] = { 0 };
	cpu_set_t cpus;
	unsigned int i;
	uint64_t end;

	for (i = 0; i < count; i++)
		qps_make(flows[i].qps, IBV_QPT_RC, depth, devices[0].active_mtu, PATIENT);
	cpus_now(&cpus);
	stay_on(0);
	before = steered(&devices[1]);
	overtaken = device_counter(&devices[1], "out_of_seq_request");
	end = now_ms() + patience_ms(SMALL_MS);
	while (*ok && now_ms() < end) {
		for (i = 0; i < count; i++) {
			while (flows[i].batches < BATCHES)
				flow_post(&flows[i], i);
		}
		*ok = flow_polled(flows);
	}
	for (i = 0; i < count; i++) {
		while (*ok && flows[i].batches)
			*ok = flow_polled(flows);
		packets += flows[i].number;
		if (*ok && ((uint64_t *)sides[1].sink.memory)[i] != flows[i].number) {
			ksft_print_msg("the last write of queue pair %u is not there\n", i);
			*ok = false;
		}
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
	share = (steered(&devices[1]) - before) * 100 / (packets ?: 1);
	/* ACKs arrive on the CPU that took the writes in: it sends what they allow, while this one has more of its own. */
	overtaken = device_counter(&devices[1], "out_of_seq_request") - overtaken;
	ksft_print_msg("%u queue pairs: %llu %% of %llu packets steered, %llu overtaken\n", count, share, packets,
		       overtaken);
	for (i = 0; i < count; i++)
		qps_free(flows[i].qps);
	return share;
}

/*
 * In percent. Other CPUs take in more of the packets of several queue pairs, and less of those of one. How much more depends
 * on the time that the host gives to the CPUs of a virtual machine: 9 to 83 % in thirty runs.
 */
#define SMALL_SHARE 10

static bool is_small_share(int count, bool *ok)
{
	return (small_share(count, ok) >= SMALL_SHARE) == (count > 1);
}

/*
 * Other CPUs take in messages of several queue pairs, and hardly those of one. On a busy machine they may have no time now
 * and then, and the device may count the queue pairs of the row before for 20 ms.
 */
static bool small(int count)
{
	return count > 1 ? in_time(is_small_share, count) : mostly_in_time(is_small_share, count);
}

/* Of each queue pair, on their way: less than what a netdev's queue holds. */
#define NUMBERS_AHEAD 64
/* So many bytes of a batch are no stream yet. */
#define NUMBER_SIZE 128
#define NUMBERS_MS 1500
/* So long all queue pairs send, then one: a CPU decides anew every 10 ms where it receives. */
#define PHASE_MS 30
/* So many packets have to be steered for their order to mean something. */
#define STEERED_LEAST 100

/* Numbered messages of UC, whose requester sends each once, from the CPU that posts it. */
struct numbers {
	struct ibv_qp *qps[2];
	unsigned int posted;
	unsigned int received;
};

static void numbers_post(struct numbers *numbers)
{
	struct ibv_sge sge = region_sge(&sides[0].source, 0, NUMBER_SIZE);
	struct ibv_send_wr wrs[BATCH];
	unsigned int i;

	for (i = 0; i < BATCH; i++) {
		wrs[i] = (struct ibv_send_wr){
			.next = i + 1 < BATCH ? &wrs[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.send_flags = i + 1 < BATCH ? 0 : IBV_SEND_SIGNALED,
			.sg_list = &sge,
			.num_sge = 1,
			.imm_data = numbers->posted++,
			.wr.rdma = { .remote_addr = (uintptr_t)sides[1].sink.memory, .rkey = sides[1].sink.mr->rkey },
		};
	}
	send_post(numbers->qps[0], wrs);
}

static void number_wait(struct numbers *numbers)
{
	struct ibv_recv_wr wr = { 0 };

	recv_post(numbers->qps[1], &wr);
}

static void numbers_make(struct numbers *numbers, struct ibv_cq *cqs[2])
{
	struct depth depth = { .send = 2 * NUMBERS_AHEAD, .receive = NUMBERS_AHEAD, .sges = 1 };
	unsigned int i;

	memset(numbers, 0, sizeof(*numbers));
	for (i = 0; i < 2; i++)
		numbers->qps[i] = qp_make(&devices[i], IBV_QPT_UC, cqs[i], cqs[i], depth, NULL);
	qp_connect(&devices[0], numbers->qps[0], &devices[1], numbers->qps[1], devices[0].active_mtu, PATIENT);
	for (i = 0; i < NUMBERS_AHEAD; i++)
		number_wait(numbers);
}

static bool number_follows(struct numbers *all, const struct ibv_wc *wc)
{
	unsigned int i;

	for (i = 0; i < FLOWS; i++) {
		if (all[i].qps[1]->qp_num != wc->qp_num)
			continue;
		if (wc->status == IBV_WC_SUCCESS && wc->imm_data == all[i].received) {
			all[i].received++;
			number_wait(&all[i]);
			return true;
		}
		ksft_print_msg("%s: message %u arrived, %u was expected\n", ibv_wc_status_str(wc->status), wc->imm_data,
			       all[i].received);
	}
	return false;
}

/* Sends numbers for some time. Returns whether each arrived behind the one before. */
static bool numbers_follow(struct numbers *all, struct ibv_cq *cqs[2])
{
	uint64_t now = now_ms(), end = now + patience_ms(NUMBERS_MS), latest = now + patience_ms(SECONDS * 1000);
	unsigned int left = 0;
	struct ibv_wc wcs[BATCH];
	int i, count;

	do {
		now = now_ms();
		count = now >= end ? 0 : now / patience_ms(PHASE_MS) % 2 ? FLOWS : 1;
		for (i = 0; i < count; i++) {
			while (all[i].posted - all[i].received <= NUMBERS_AHEAD - BATCH) {
				numbers_post(&all[i]);
				left += BATCH;
			}
		}
		cq_drain(cqs[0]);
		count = ibv_poll_cq(cqs[1], BATCH, wcs);
		if (count < 0)
			die("ibv_poll_cq: %d", count);
		for (i = 0; i < count; i++) {
			if (!number_follows(all, &wcs[i]))
				return false;
		}
		left -= count;
	} while ((now < end || left) && now < latest);
	if (left)
		ksft_print_msg("%u messages did not arrive\n", left);
	return !left;
}

static void *share_cpu(void *unused)
{
	(void)unused;
	stay_on(1);
	while (!over)
		;
	return NULL;
}

/*
 * While another CPU takes some of them in, which has other work, too: no message overtakes another one of its queue
 * pair.
 */
static bool small_in_order(int unused)
{
	unsigned long long before = steered(&devices[1]), count = 0;
	struct numbers all[FLOWS];
	struct ibv_cq *cqs[2];
	unsigned int i, j;
	pthread_t thread;
	uint64_t end = 0;
	cpu_set_t cpus;
	bool ok = true;

	(void)unused;
	for (i = 0; i < 2; i++)
		cqs[i] = cq_make(&devices[i], 2 * FLOWS * NUMBERS_AHEAD);
	cpus_now(&cpus);
	stay_on(0);
	over = false;
	thread_start(&thread, share_cpu, NULL);
	while (ok && count < STEERED_LEAST && tries(&end)) {
		for (j = 0; j < FLOWS; j++)
			numbers_make(&all[j], cqs);
		ok = numbers_follow(all, cqs);
		count = steered(&devices[1]) - before;
		for (j = 0; j < FLOWS; j++) {
			qp_free(all[j].qps[0]);
			qp_free(all[j].qps[1]);
		}
		cq_drain(cqs[1]);
	}
	over = true;
	pthread_join(thread, NULL);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	cq_free(cqs[0]);
	cq_free(cqs[1]);
	ksft_print_msg("%llu packets steered\n", count);
	return ok && count >= STEERED_LEAST;
}

/* Returns whether it could be done. */
static bool cpu_set_online(unsigned int cpu, bool online)
{
	char path[64];
	bool ok;
	int fd;

	snprintf(path, sizeof(path), CPU_ONLINE, cpu);
	fd = open(path, O_WRONLY);
	ok = fd >= 0 && write(fd, online ? "1" : "0", 1) == 1;
	if (fd >= 0)
		close(fd);
	return ok;
}

static bool other_cpu(bool online)
{
	return cpu_set_online(1, online);
}

/* Takes all CPUs but the first two off, or puts them on again. */
static void further_cpus(bool online)
{
	unsigned int cpu, count = sysconf(_SC_NPROCESSORS_CONF);

	for (cpu = 2; cpu < count; cpu++) {
		if (!cpu_set_online(cpu, online))
			die("CPU %u: %s", cpu, strerror(errno));
	}
}

static bool alone(int opcode)
{
	unsigned long long before, after;
	struct link link;
	bool ok;

	if (!other_cpu(false))
		die("%s: %s", OTHER_CPU, strerror(errno));
	before = steered(&devices[1]);
	link_make(&link);
	ok = rounds(&link, opcode, 1, MAX_MESSAGES);
	after = steered(&devices[1]);
	if (!other_cpu(true))
		die("%s: %s", OTHER_CPU, strerror(errno));
	ksft_print_msg("%llu packets steered\n", after - before);
	return link_end(&link) && ok && after == before;
}

static void *come_and_go(void *unused)
{
	(void)unused;
	while (!over) {
		if (!other_cpu(changes % 2))
			break;
		changes++;
	}
	return NULL;
}

/* Streams until a thread has made so many changes. Returns whether it has, and all arrived. */
static bool stream_while(void *(*change)(void *unused), unsigned int least, enum ibv_wr_opcode opcode)
{
	uint64_t end = now_ms() + patience_ms(SECONDS * 1000);
	pthread_t thread;
	struct link link;
	bool ok = true;

	over = false;
	changes = 0;
	link_make(&link);
	thread_start(&thread, change, NULL);
	while (ok && changes < least && now_ms() < end)
		ok = stream(&link, opcode, 1, MAX_MESSAGES, MESSAGE);
	over = true;
	pthread_join(thread, NULL);
	return link_end(&link) && ok && changes >= least;
}

/* Until it has gone and come ten times. */
static bool unsteady(int opcode)
{
	bool ok = stream_while(come_and_go, 20, opcode);

	if (!other_cpu(true))
		die("%s: %s", OTHER_CPU, strerror(errno));
	ksft_print_msg("%u changes\n", changes);
	return ok;
}

#define CAPTURES 200

static void *capture(void *unused)
{
	(void)unused;
	while (!over) {
		int socket = capture_open("n2", netdev_of(2), NULL);

		usleep(4000);
		close(socket);
		changes++;
		usleep(4000);
	}
	return NULL;
}

/* While there is a capture, super-packets come by UDP's socket, in segments, and find a lane that is open. */
static bool captured(int opcode)
{
	unsigned long long before = steered(&devices[1]), after;
	bool ok = stream_while(capture, CAPTURES, opcode);

	after = steered(&devices[1]);
	ksft_print_msg("%u captures, %llu packets steered\n", changes, after - before);
	return ok && after > before;
}

static unsigned long share_set(unsigned long share)
{
	FILE *file = fopen(OTHER_CPU_SHARE, "r+");
	unsigned long before = 0;

	if (!file || fscanf(file, "%lu", &before) != 1)
		die("%s: %s", OTHER_CPU_SHARE, strerror(errno));
	rewind(file);
	if (fprintf(file, "%lu\n", share) < 0 || fclose(file))
		die("%s: %s", OTHER_CPU_SHARE, strerror(errno));
	return before;
}

static void *keep_cpu(void *unused)
{
	struct sched_param param = { .sched_priority = 1 };
	uint64_t end = now_ms() + KEPT_SECONDS * 1000;

	(void)unused;
	stay_on(1);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("sched_setscheduler: %s", strerror(errno));
	is_kept = true;
	while (!over && now_ms() < end)
		;
	is_kept = false;
	return NULL;
}

/* Packets are steered while another program keeps the other CPU, and few of them come twice. */
static bool is_starved(int opcode, bool *ok)
{
	const struct device *taker = &devices[opcode != IBV_WR_RDMA_READ];
	/* Those that come late enough come twice: no more than these. */
	unsigned long long packets = packets_of(ROUNDS * MAX_MESSAGES, MESSAGE);
	unsigned long long before, after;
	unsigned long share;
	pthread_t thread;
	bool was_kept;
	struct link link;
	cpu_set_t cpus;

	cpus_now(&cpus);
	link_make(&link);
	/* The first READs are answered where they came. */
	stay_on(1);
	*ok = stream(&link, opcode, 1, MAX_MESSAGES, MESSAGE);
	stay_on(0);
	share = share_set(0);
	over = false;
	thread_start(&thread, keep_cpu, NULL);
	while (!is_kept)
		usleep(1000);
	before = steered(taker);
	*ok = *ok && rounds(&link, opcode, 1, MAX_MESSAGES);
	after = steered(taker);
	was_kept = is_kept;
	over = true;
	pthread_join(thread, NULL);
	share_set(share);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	ksft_print_msg("%llu steered, of %llu packets%s\n", after - before, packets,
		       was_kept ? "" : ": it took longer than the other program");
	*ok = link_end(&link) && *ok;
	return was_kept && after > before && after - before < 2 * packets;
}

/* The other CPU, where threads are to take in what comes, and to answer READs, is another program's. */
static bool starved(int opcode)
{
	return in_time(is_starved, opcode);
}

/* How many CPUs a row needs, and what it does to one of them. */
enum { ONE_CPU, TWO_CPUS, OFFLINE, SHARE };

static const struct row rows[] = {
	{ "a stream of sends is taken in by another CPU", .run_with = one_way, IBV_WR_SEND, TWO_CPUS },
	{ "a stream of writes is taken in by another CPU", .run_with = one_way, IBV_WR_RDMA_WRITE, TWO_CPUS },
	{ "a stream of reads is taken in by another CPU", .run_with = one_way, IBV_WR_RDMA_READ, TWO_CPUS },
	{ "sends in both directions", .run_with = both_ways, IBV_WR_SEND, ONE_CPU },
	{ "writes in both directions", .run_with = both_ways, IBV_WR_RDMA_WRITE, ONE_CPU },
	{ "reads in both directions", .run_with = both_ways, IBV_WR_RDMA_READ, ONE_CPU },
	{ "messages one at a time are taken in at once", .run_with = one_at_a_time, IBV_WR_SEND, TWO_CPUS },
	{ "a capture comes and goes during sends", .run_with = captured, IBV_WR_SEND, TWO_CPUS },
	{ "small messages of several queue pairs are taken in by another CPU", .run_with = small, FLOWS, TWO_CPUS },
	{ "small messages of several queue pairs stay in order", .run_with = small_in_order, .needs = TWO_CPUS },
	{ "small messages of one queue pair are taken in at once", .run_with = small, 1, TWO_CPUS },
	{ "one CPU takes in a stream itself", .run_with = alone, IBV_WR_SEND, OFFLINE },
	{ "a CPU goes and comes during sends", .run_with = unsteady, IBV_WR_SEND, OFFLINE },
	{ "a CPU goes and comes during reads", .run_with = unsteady, IBV_WR_RDMA_READ, OFFLINE },
	{ "sends past a CPU that a program keeps", .run_with = starved, IBV_WR_SEND, SHARE },
	{ "reads past a CPU that a program keeps", .run_with = starved, IBV_WR_RDMA_READ, SHARE },
};

static void begin(char **names)
{
	sides_make(devices, SIDE_SIZE, 2 * MAX_MESSAGES);
}

static bool run_row(const struct row *row)
{
	static const char *const controls[] = { [OFFLINE] = OTHER_CPU, [SHARE] = OTHER_CPU_SHARE };
	bool ok;

	if (row->needs == ONE_CPU)
		return row_run(row);
	if (cpus() < 2)
		return row_skip("there is one CPU");
	if (row->needs == TWO_CPUS)
		return row_run(row);
	if (access(controls[row->needs], W_OK))
		return row_skip("%s: %s", controls[row->needs], strerror(errno));
	further_cpus(false);
	ok = row_run(row);
	further_cpus(true);
	return ok;
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = sides_free, .run_row = run_row };
