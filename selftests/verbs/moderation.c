// SPDX-License-Identifier: GPL-2.0
/*
 * A CQ with moderation raises an event after so many completions, or so long after the first of them.
 *
 * Some rows check that there is no event before the period is over. Such a row must be faster than the longest period,
 * and is tried again if it is not.
 *
 * Test: moderation of completion events
 */

#include <errno.h>
#include <poll.h>

#include "command.h"
#include "test.h"

#define MOST 65535
#define SIZE 4096
#define LENGTH 64
#define WAIT_MS 20000
#define ATTEMPTS 50
/* Of a row: it is tried again if it takes longer than the longest period. */
#define WITHIN_PERIOD 1

static struct device *const a = &devices[0], *const b = &devices[1];
static struct ibv_comp_channel *channel;
/* Of a, with the channel: of its requests, and of its receives. */
static struct ibv_cq *sends, *receives;
static struct ibv_cq *peer_cq;
static struct ibv_qp *qps[2];
static struct region source, target;

/* ibv_modify_cq(). Stock librxe does not have it: then the kernel's command. */
static int modify(struct ibv_cq *cq, struct ibv_modify_cq_attr attr)
{
	return has_own_provider() ? ibv_modify_cq(cq, &attr) : command_modify_cq(cq, &attr);
}

static void moderate(struct ibv_cq *cq, unsigned int count, unsigned int period)
{
	int error = modify(cq, (struct ibv_modify_cq_attr){ IBV_CQ_ATTR_MODERATE, { count, period } });

	if (error)
		die("moderation of %u and %u us: %s", count, period, strerror(error));
}

static void arm(struct ibv_cq *cq, bool solicited)
{
	if (ibv_req_notify_cq(cq, solicited))
		die("ibv_req_notify_cq fails");
}

/* Whether there is an event within ms. It is taken. */
static bool has_event(unsigned int ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, ms) <= 0)
		return false;
	if (ibv_get_cq_event(channel, &cq, &context))
		die("ibv_get_cq_event: %s", strerror(errno));
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* An event never came: to try again would take as long again. */
static bool is_lost;

static bool comes(const char *what)
{
	is_lost = !has_event(patience_ms(WAIT_MS));
	if (is_lost)
		ksft_print_msg("%s: no event\n", what);
	return !is_lost;
}

/* On the queues above. */
static void pair_make(void)
{
	const struct depth depth = { .send = 4, .receive = 4, .sges = 1 };

	qps[0] = qp_make(a, IBV_QPT_RC, sends, receives, depth, NULL);
	qps[1] = qp_make(b, IBV_QPT_RC, peer_cq, peer_cq, depth, NULL);
	qp_connect(a, qps[0], b, qps[1], IBV_MTU_1024, PATIENT);
}

static void request(void)
{
	struct ibv_sge sge = region_sge(&source, 0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)target.memory, target.mr->rkey },
	};

	send_post(qps[0], &wr);
}

/* Polls their completions. */
static void requests_end(unsigned int count)
{
	while (count--)
		if (!cq_expect(sends, "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS))
			die("nothing moves");
}

static void complete(void)
{
	request();
	requests_end(1);
}

/* b sends a message, which a receives. */
static void receive(bool solicited)
{
	struct ibv_sge sge = region_sge(&target, 0, LENGTH), room = region_sge(&source, 0, LENGTH);
	struct ibv_recv_wr receive = { .sg_list = &room, .num_sge = 1 };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | (solicited ? IBV_SEND_SOLICITED : 0),
	};

	recv_post(qps[0], &receive);
	send_post(qps[1], &wr);
	if (!cq_expect(receives, "receive", 0, IBV_WC_SUCCESS, WAIT_MS) ||
	    !cq_expect(peer_cq, "SEND", 0, IBV_WC_SUCCESS, WAIT_MS))
		die("nothing moves");
}

/* No event is left for the next row, and none comes. */
static void reset(void)
{
	moderate(sends, 0, 0);
	moderate(receives, 0, 0);
	/* The driver may still be about to raise one. */
	while (has_event(10))
		;
}

/* Runs `attempt` until it takes less than the longest period, so that no period can have ended meanwhile. */
static bool within_period(bool (*attempt)(void))
{
	unsigned int i;
	uint64_t begin;
	bool ok;

	is_lost = false;
	for (i = 0; i < ATTEMPTS; i++) {
		begin = now_us();
		ok = attempt();
		if (now_us() - begin < MOST || is_lost)
			return ok;
		reset();
	}
	ksft_print_msg("it never takes less than %d us\n", MOST);
	return false;
}

static bool run_limits(void)
{
	struct ibv_device_attr_ex attr = {};

	if (ibv_query_device_ex(a->context, NULL, &attr))
		die("ibv_query_device_ex fails");
	ksft_print_msg("at most %u completions, %u us\n", attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period);
	return attr.cq_mod_caps.max_cq_count == MOST && attr.cq_mod_caps.max_cq_period == MOST;
}

static bool run_count(void)
{
	unsigned int i;

	moderate(sends, 4, MOST);
	arm(sends, false);
	for (i = 0; i < 3; i++) {
		complete();
		if (has_event(0)) {
			ksft_print_msg("an event after %u completions\n", i + 1);
			return false;
		}
	}
	complete();
	return comes("four completions");
}

/* Not before this period, and not as late as the longest one. */
static bool run_period(void)
{
	const unsigned int period = 20000;
	uint64_t begin, took;

	moderate(sends, MOST, period);
	arm(sends, false);
	begin = now_us();
	complete();
	if (!comes("one completion"))
		return false;
	took = now_us() - begin;
	ksft_print_msg("after %llu us\n", (unsigned long long)took);
	return took >= period;
}

static bool attempt_two(void)
{
	moderate(sends, 2, MOST);
	arm(sends, false);
	request();
	request();
	if (!comes("two completions"))
		return false;
	/* In this order, as programs do. */
	arm(sends, false);
	requests_end(2);
	return true;
}

/* The period of the second event begins with its first completion. */
static bool run_second_period(void)
{
	const unsigned int period = MOST;
	uint64_t begin, took;

	if (!within_period(attempt_two))
		return false;
	usleep(period / 2);
	begin = now_us();
	complete();
	if (!comes("one more"))
		return false;
	took = now_us() - begin;
	ksft_print_msg("after %llu us\n", (unsigned long long)took);
	return took >= period;
}

static struct {
	unsigned int count, period;
} off;

static bool attempt_off(void)
{
	moderate(sends, off.count, off.period);
	arm(sends, false);
	complete();
	return comes("moderation that is off");
}

/* Without a period, fewer completions would wait for ever. */
static bool run_off(void)
{
	static const unsigned int pairs[][2] = { { 0, 0 }, { 0, MOST }, { 4, 0 }, { 1, MOST } };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		off.count = pairs[i][0];
		off.period = pairs[i][1];
		if (!within_period(attempt_off))
			return false;
	}
	return true;
}

/* The first of the two completions that an event takes. */
static bool one_waits(void)
{
	moderate(sends, 2, MOST);
	arm(sends, false);
	complete();
	if (has_event(0)) {
		ksft_print_msg("an event after one completion\n");
		return false;
	}
	return true;
}

static bool run_late(void)
{
	if (!one_waits())
		return false;
	moderate(sends, 1, MOST);
	return comes("fewer are asked for");
}

/* Completions that the program polled before it armed the queue do not count. */
static bool run_polled(void)
{
	unsigned int i;

	moderate(sends, 4, MOST);
	for (i = 0; i < 3; i++)
		request();
	requests_end(2);
	arm(sends, false);
	request();
	requests_end(2);
	if (has_event(0)) {
		ksft_print_msg("an event after two completions that were not polled\n");
		return false;
	}
	complete();
	complete();
	return comes("four completions");
}

/* Completions that the program did not poll before it armed the queue count. */
static bool run_unpolled(void)
{
	volatile uint8_t *last = &target.memory[LENGTH - 1];
	uint64_t deadline = now_ms() + patience_ms(WAIT_MS);
	bool ok;

	moderate(sends, 2, MOST);
	*last = ~source.memory[LENGTH - 1];
	request();
	while (*last != source.memory[LENGTH - 1])
		if (now_ms() > deadline)
			die("nothing moves");
	/* Its acknowledgement. */
	usleep(5000);
	arm(sends, false);
	ok = !has_event(0);
	if (!ok)
		ksft_print_msg("an event after one completion\n");
	request();
	ok = ok && comes("two completions");
	requests_end(2);
	return ok;
}

static bool run_solicited(void)
{
	moderate(receives, 2, MOST);
	arm(receives, true);
	receive(true);
	receive(false);
	receive(false);
	if (has_event(0)) {
		ksft_print_msg("an event after one that is solicited\n");
		return false;
	}
	receive(true);
	return comes("two that are solicited");
}

static bool run_refused(void)
{
	/* libibverbs refuses what it does not know before the kernel does. */
	int wanted = has_own_provider() ? EINVAL : EOPNOTSUPP;
	int none = modify(sends, (struct ibv_modify_cq_attr){ 0, { 4, 4 } });
	int unknown = modify(sends, (struct ibv_modify_cq_attr){ IBV_CQ_ATTR_MODERATE << 1, { 4, 4 } });

	if (none != EINVAL || unknown != wanted)
		ksft_print_msg("without attributes: %s; unknown ones: %s\n", strerror(none), strerror(unknown));
	return none == EINVAL && unknown == wanted;
}

/* The timer holds a reference to the queue. If it is not stopped, the module says when it unloads that a queue is left. */
static bool run_destroyed(void)
{
	struct ibv_qp *before = qps[0], *peer_before = qps[1];
	struct ibv_cq *kept = sends;
	bool waits;

	sends = ibv_create_cq(a->context, 16, NULL, channel, 0);
	if (!sends)
		die("ibv_create_cq: %s", strerror(errno));
	pair_make();
	waits = within_period(one_waits);
	qp_free(qps[0]);
	qp_free(qps[1]);
	cq_free(sends);
	sends = kept;
	qps[0] = before;
	qps[1] = peer_before;
	return waits && !has_event(patience_ms(100));
}

static const struct row rows[] = {
	{ "the device tells its limits", run_limits },
	{ "an event after as many completions", run_count, .needs = WITHIN_PERIOD },
	{ "an event after the period", run_period, .needs = WITHIN_PERIOD },
	{ "the period begins with the first completion", run_second_period },
	{ "zero turns it off", run_off },
	{ "set while completions wait", run_late, .needs = WITHIN_PERIOD },
	{ "completions before the queue was armed", run_unpolled, .needs = WITHIN_PERIOD },
	{ "completions that were polled before it was armed", run_polled, .needs = WITHIN_PERIOD },
	{ "only solicited completions count", run_solicited, .needs = WITHIN_PERIOD },
	{ "unknown attributes are refused", run_refused },
	{ "a queue is destroyed while completions wait", run_destroyed },
};

static void begin(char **names)
{
	channel = ibv_create_comp_channel(a->context);
	sends = channel ? ibv_create_cq(a->context, 16, NULL, channel, 0) : NULL;
	receives = sends ? ibv_create_cq(a->context, 16, NULL, channel, 0) : NULL;
	if (!receives)
		die("no CQs with a channel: %s", strerror(errno));
	peer_cq = cq_make(b, 16);
	region_make(&source, a, SIZE, IBV_ACCESS_LOCAL_WRITE);
	region_make(&target, b, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	pair_make();
}

static void end(void)
{
	qp_free(qps[0]);
	qp_free(qps[1]);
	cq_free(sends);
	cq_free(receives);
	cq_free(peer_cq);
	ibv_destroy_comp_channel(channel);
	region_free(&source);
	region_free(&target);
}

static bool run_row(const struct row *row)
{
	bool ok = row->needs == WITHIN_PERIOD ? within_period(row->run) : row_run(row);

	reset();
	return ok;
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end, .run_row = run_row };
