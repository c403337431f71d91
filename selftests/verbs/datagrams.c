// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams (UD) between two devices: their bytes, the 40 bytes of network header
 * before them, their completions, and those that must not arrive.
 *
 * datagrams [-4|-6] [-m MTU] DEVICE DEVICE
 *	-m	one row only, which changes the MTUs of their netdevs, and sets them to MTU; these are in n1 and n2
 */

#include <arpa/inet.h>

#include "growth.h"
#include "namespace.h"
#include "test.h"

#define SIZE (2 * 4096 + GRH)
#define QKEY 0x11223344
/* In a request, it asks for the queue pair's own Q_Key. */
#define OWN_QKEY 0x80000000
/* QP 1, for connection management, and its Q_Key. */
#define GENERAL_SERVICES 1
#define GENERAL_SERVICES_QKEY 0x80010000
#define WAIT_MS 10000
#define QUIET_MS 300
/*
 * What mlx5 has in sl of UD receives, and UCX reads: bit 3 is set for UDP, the others are 1 for IPv6 and 2 for IPv4.
 */
#define TYPE_IPV6 0x9
#define TYPE_IPV4 0xa

struct end {
	struct device device;
	struct region source;
	struct region sink;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
};

static struct end ends[2];
/* Receives whose sl is not the packet's type. */
static unsigned int wrong_types;

static void post_receive(struct end *end, uint64_t id, size_t at, uint32_t length)
{
	struct ibv_sge sge = region_sge(&end->sink, at, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	recv_post(end->qp, &wr);
}

/* To the queue pair of that number, at the other end's address. */
static void post_to(struct end *end, uint32_t number, uint64_t id, size_t at, uint32_t length, const uint32_t *imm,
		    uint32_t qkey)
{
	struct ibv_sge sge = region_sge(&end->source, at, length);
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.imm_data = htonl(imm ? *imm : 0),
		.wr.ud = {
			.ah = end->ah,
			.remote_qpn = number,
			.remote_qkey = qkey,
		},
	};

	send_post(end->qp, &wr);
}

static void post_send(struct end *end, struct end *to, uint64_t id, size_t at, uint32_t length,
		      const uint32_t *imm, uint32_t qkey)
{
	post_to(end, to->qp->qp_num, id, at, length, imm, qkey);
}

static bool sent(struct end *end, uint64_t id)
{
	struct ibv_wc wc;

	if (!cq_poll(end->cq, &wc, WAIT_MS)) {
		printf("# the send does not complete\n");
		return false;
	}
	if (!wc.status && wc.opcode == IBV_WC_SEND && wc.wr_id == id &&
	    wc.qp_num == end->qp->qp_num)
		return true;
	printf("# send: %s, opcode %d, wr_id %llu, qp_num %#x\n", ibv_wc_status_str(wc.status),
	       wc.opcode, (unsigned long long)wc.wr_id, wc.qp_num);
	return false;
}

static bool received(struct end *end, struct end *from, uint64_t id, uint32_t length,
		     const uint32_t *imm)
{
	struct ibv_wc wc;
	unsigned int imm_flag = imm ? IBV_WC_WITH_IMM : 0;

	if (!cq_poll(end->cq, &wc, WAIT_MS)) {
		printf("# nothing arrives\n");
		return false;
	}
	wrong_types += wc.sl != (family == 6 ? TYPE_IPV6 : TYPE_IPV4);
	if (!wc.status && wc.opcode == IBV_WC_RECV && wc.wr_id == id &&
	    wc.byte_len == GRH + length && wc.qp_num == end->qp->qp_num &&
	    wc.src_qp == from->qp->qp_num && wc.pkey_index == 0 && (wc.wc_flags & IBV_WC_GRH) &&
	    (wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == imm_flag &&
	    (!imm || wc.imm_data == htonl(*imm)))
		return true;
	printf("# receive: %s, opcode %d, wr_id %llu, byte_len %u, qp_num %#x, src_qp %#x, flags %#x, immediate %#x\n",
	       ibv_wc_status_str(wc.status), wc.opcode, (unsigned long long)wc.wr_id, wc.byte_len,
	       wc.qp_num, wc.src_qp, wc.wc_flags, ntohl(wc.imm_data));
	return false;
}

static bool run_one(unsigned int from, uint32_t length, uint32_t spare, bool with_imm)
{
	struct end *a = &ends[from], *b = &ends[!from];
	size_t at = random_between(1, 200), source = random_between(0, 4096);
	uint32_t imm = random_next(), *use = with_imm ? &imm : NULL;
	uint64_t id = random_next();

	post_receive(b, id, at, GRH + length + spare);
	post_send(a, b, id + 1, source, length, use, QKEY);
	memcpy(b->sink.expected + at + GRH, a->source.expected + source, length);
	if (!sent(a, id + 1) || !received(b, a, id, length, use) ||
	    !grh_check(b->sink.memory + at, &a->device.gid, &b->device.gid, length, 64))
		return false;
	/* The header has been looked at; the rest is compared as a whole. */
	memcpy(b->sink.expected + at, b->sink.memory + at, GRH);
	return region_check(&b->sink, "sink") && region_check(&a->source, "source");
}

static bool run_lengths(int with_imm)
{
	uint32_t mtu = mtu_bytes(ends[0].device.active_mtu), i;
	const uint32_t lengths[] = { 0, 1, 2, 3, 4, 5, 255, 256, 257, 1000, mtu - 1, mtu };

	for (i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
		if (!run_one(i % 2, lengths[i / 2], i % 5, with_imm)) {
			printf("# %u bytes\n", lengths[i / 2]);
			return false;
		}
	}
	return true;
}

/* Many at once, in order; what finds no receive is dropped without a word. */
static bool run_burst(void)
{
	struct end *a = &ends[0], *b = &ends[1];
	unsigned int i;

	for (i = 0; i < 32; i++)
		post_receive(b, 100 + i, i * (GRH + 16), GRH + 16);
	for (i = 0; i < 32; i++)
		post_send(a, b, 200 + i, i * 8, 16, &i, QKEY);
	for (i = 0; i < 32; i++) {
		if (!sent(a, 200 + i) || !received(b, a, 100 + i, 16, &i))
			return false;
		memcpy(b->sink.expected + i * (GRH + 16), b->sink.memory + i * (GRH + 16), GRH);
		memcpy(b->sink.expected + i * (GRH + 16) + GRH, a->source.expected + i * 8, 16);
	}
	post_send(a, b, 300, 0, 16, NULL, QKEY);
	return sent(a, 300) && cq_quiet(b->cq, QUIET_MS) && region_check(&b->sink, "sink");
}

/* A datagram with that Q_Key, the request `id` + 1, arrives in the receive `id`. */
static bool comes(struct end *from, struct end *to, uint64_t id, uint32_t qkey)
{
	post_send(from, to, id + 1, 0, 64, NULL, qkey);
	if (!sent(from, id + 1) || !received(to, from, id, 64, NULL))
		return false;
	memcpy(to->sink.expected, to->sink.memory, GRH);
	memcpy(to->sink.expected + GRH, from->source.expected, 64);
	return region_check(&to->sink, "sink");
}

/* A datagram with the wrong Q_Key completes at its sender and never arrives. */
static bool run_qkey(void)
{
	struct end *a = &ends[0], *b = &ends[1];

	post_receive(b, 1, 0, GRH + 64);
	post_send(a, b, 2, 0, 64, NULL, QKEY + 1);
	if (!sent(a, 2) || !cq_quiet(b->cq, QUIET_MS) || !region_check(&b->sink, "sink"))
		return false;
	/* The receive is still there for the next one. */
	return comes(a, b, 1, QKEY);
}

static const struct depth depth = { .send = 64, .receive = 64, .sges = 2 };

static void end_make_qp(struct end *end)
{
	end->qp = ud_make(&end->device, end->cq, end->cq, depth, QKEY);
}

/* New ones, with nothing of what rows have done to the old ones. */
static void qps_renew(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		qp_free(ends[i].qp);
		cq_drain(ends[i].cq);
		end_make_qp(&ends[i]);
	}
}

/*
 * Bit 31 of a request's Q_Key asks for that of the queue pair (IBTA 10.2.5). So no request can name that of QP 1,
 * which is for the kernel. The queue pair's own may change.
 */
static bool run_own_qkey(void)
{
	struct end *a = &ends[0], *b = &ends[1];
	struct growth dropped = { &b->device, "bad_qkey", 1 };
	bool ok;

	post_receive(b, 1, 0, GRH + 64);
	ok = comes(a, b, 1, OWN_QKEY | (QKEY + 1));
	if (ok) {
		growths_begin(&dropped, 1);
		post_to(a, GENERAL_SERVICES, 3, 0, 64, NULL, GENERAL_SERVICES_QKEY);
		ok = sent(a, 3) && growths_are(&dropped, 1);
	}
	if (ok) {
		qp_change(b->qp, (struct ibv_qp_attr){ .qkey = QKEY + 1 }, IBV_QP_QKEY, "another Q_Key");
		post_receive(b, 4, 0, GRH + 64);
		post_send(a, b, 5, 0, 64, NULL, QKEY);
		ok = sent(a, 5) && cq_quiet(b->cq, QUIET_MS) && comes(a, b, 4, QKEY + 1);
	}
	qps_renew();
	return ok;
}

/* Numbers are unique over all devices. One is no good at an address that its queue pair's device does not have. */
static bool run_other_device(void)
{
	struct end *a = &ends[0], *b = &ends[1];
	struct growth dropped = { &b->device, "unknown_qp", 1 };
	struct ibv_sge sge = region_sge(&a->sink, 0, GRH + 64);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_qp *other;
	struct ibv_cq *cq;
	bool ok;

	if (!strcmp(a->device.name, b->device.name))
		return row_skip("both ends are one device");
	cq = cq_make(&a->device, 4);
	other = ud_make(&a->device, cq, cq, depth, QKEY);
	recv_post(other, &wr);
	growths_begin(&dropped, 1);
	post_to(a, other->qp_num, 2, 0, 64, NULL, QKEY);
	ok = sent(a, 2) && growths_are(&dropped, 1) && cq_quiet(cq, QUIET_MS) && region_check(&a->sink, "sink");
	qp_free(other);
	cq_free(cq);
	return ok;
}

static void end_make(struct end *end, const char *name)
{
	device_open(&end->device, name, family);
	region_make(&end->source, &end->device, SIZE, 0);
	region_make(&end->sink, &end->device, SIZE, IBV_ACCESS_LOCAL_WRITE);
	end->cq = cq_make(&end->device, 256);
	end_make_qp(end);
}

static void end_close(struct end *end)
{
	ah_free(end->ah);
	qp_free(end->qp);
	cq_free(end->cq);
	region_free(&end->source);
	region_free(&end->sink);
	device_close(&end->device);
}

/* The types of all that has come before. */
static bool run_types(void)
{
	return (!rows_are_chosen() || run_lengths(false)) && !wrong_types;
}

/* The MTU of the netdevs, if it may be changed. */
static int netdev_mtu;

static bool netdevs_have_mtu(int mtu)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (!command("ip -n n%d link set %s mtu %d", i + 1, netdev_of(i + 1), mtu))
			return false;
	}
	return true;
}

/*
 * A datagram may be as long as the port's MTU is when it is sent, not when the QPs came to RTR and RTS. A longer one
 * does not leave, and is no error.
 */
static bool run_mtu(void)
{
	uint32_t longest = mtu_bytes(ends[0].device.active_mtu);
	unsigned long long unsent;
	bool ok;

	if (longest < 2048)
		return row_skip("the ports' MTU is %u", longest);
	ok = netdevs_have_mtu(1500);
	qps_renew();
	ok = ok && run_one(0, 1024, 0, false) && netdevs_have_mtu(netdev_mtu) && run_one(0, longest, 0, false) &&
	     run_one(1, longest, 0, false) && netdevs_have_mtu(1500) && run_one(0, 1024, 0, false);
	if (ok) {
		unsent = device_counter_now(&ends[0].device, "send_err");
		post_receive(&ends[1], 1, 0, SIZE);
		post_send(&ends[0], &ends[1], 2, 0, 1025, NULL, QKEY);
		ok = sent(&ends[0], 2) && cq_quiet(ends[1].cq, QUIET_MS) &&
		     device_counter_now(&ends[0].device, "send_err") == unsent + 1;
		/* The receive and the QP are there for the next one. */
		post_send(&ends[0], &ends[1], 3, 0, 1024, NULL, QKEY);
		ok = ok && sent(&ends[0], 3) && received(&ends[1], &ends[0], 1, 1024, NULL);
	}
	return netdevs_have_mtu(netdev_mtu) && ok;
}

/* A queue pair that has sent with an address handle does not keep it, nor its entry of the GID table. */
static bool run_destroyed_handle(void)
{
	struct ibv_ah *usual = ends[0].ah;
	long before = live_objects("ah");
	uint64_t until;
	bool ok;

	if (before < 0)
		return row_skip("the driver does not count address handles");
	ends[0].ah = ah_make(&ends[0].device, &ends[1].device);
	post_receive(&ends[1], 1, 0, SIZE);
	post_send(&ends[0], &ends[1], 2, 0, 64, NULL, QKEY);
	ok = sent(&ends[0], 2) && received(&ends[1], &ends[0], 1, 64, NULL);
	ah_free(ends[0].ah);
	ends[0].ah = usual;
	/* Those of the connection manager come and go. */
	for (until = now_ms() + patience_ms(WAIT_MS); ok && live_objects("ah") > before && now_ms() < until;)
		usleep(10000);
	return ok && live_objects("ah") <= before;
}

static const struct row rows[] = {
	{ "datagrams of all lengths", .run_with = run_lengths, false },
	{ "datagrams with immediate", .run_with = run_lengths, true },
	{ "a burst, and one without a receive", run_burst },
	{ "a wrong Q_Key", run_qkey },
	{ "the queue pair's own Q_Key", run_own_qkey },
	{ "a number of another device's queue pair", run_other_device },
	{ "the packet's type in sl", run_types },
	{ "a handle that is destroyed after its use", run_destroyed_handle },
};

static const struct row mtu_row = { "datagrams follow the port's MTU", run_mtu };

static void add(void)
{
	unsigned int i;

	if (netdev_mtu)
		row_add(mtu_row);
	for (i = 0; !netdev_mtu && i < ARRAY_SIZE(rows); i++)
		row_add(rows[i]);
}

static bool take_option(int option, const char *argument)
{
	netdev_mtu = atoi(argument);
	return true;
}

static void begin(char **names)
{
	int i;

	for (i = 0; i < 2; i++)
		end_make(&ends[i], names[i]);
	for (i = 0; i < 2; i++)
		ends[i].ah = ah_make(&ends[i].device, &ends[!i].device);
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++)
		end_close(&ends[i]);
}

const struct test test = { .options = "m:", .option = take_option, .add = add, .begin = begin, .end = end };
