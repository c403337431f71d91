// SPDX-License-Identifier: GPL-2.0
/*
 * Packets between queue pairs of one device: their bytes, that no network sees them, and that no chain of
 * answers, nor any flood, is too long for the kernel.
 *
 * loopback NAMESPACE DEVICE NETDEV ADDRESS ADDRESS6 SECOND-ADDRESS OTHER-DEVICE OTHER-ADDRESS
 *
 * DEVICE is on NETDEV in the network namespace NAMESPACE, and the three addresses are NETDEV's, all but the
 * second of IPv4. OTHER-DEVICE is on another netdev of the namespace, with OTHER-ADDRESS.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "exchange.h"
#include "namespace.h"
#include "test.h"
#include "wire.h"

/* Two packets each, and a packet would take some 1500 of the kernel's 16 KiB of stack if it was taken in within another. */
#define LINKS 600
#define SIDE_SIZE (1 << 18)
#define QKEY 0x11223344
#define ROCE_PORT 4791
#define SECONDS 60
#define WAIT_MS 20000
#define QUIET_MS 200
#define FAILURES 20
#define FLUSHED 4
#define RESIZED_ROUNDS 2
#define RESIZED_LEAST 4
/* Packets that a netdev may have for reasons of its own, as neighbour discovery. */
#define NOISE 30

static const struct patience forever = { .timeout = 0, .retries = 7, .rnr_retries = 7 };
/* Gives up after some ten milliseconds. */
static const struct patience brief = { .timeout = 9, .retries = 3, .rnr_retries = 3 };
/* After half a second or more: not because somebody had the CPU meanwhile. And after four. */
static const struct patience moderate = { .timeout = 15, .retries = 3, .rnr_retries = 3 };
static const struct patience enduring = { .timeout = 17, .retries = 7, .rnr_retries = 7 };

static const char *netdev, *address, *address6, *second, *other_name, *other_address;

static unsigned int opcodes_of(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? OPCODES : OPCODES - 1;
}

/* Finds the GID of an address, which may not be there yet; the device as it is seen from there. */
static struct device device_at(const struct device *device, const char *text)
{
	struct device at = *device;
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	struct ibv_gid_entry entries[64];
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };
	ssize_t count, i;

	if (inet_pton(AF_INET, text, gid.raw + 12) != 1 && inet_pton(AF_INET6, text, gid.raw) != 1)
		die("%s is no address", text);
	do {
		count = ibv_query_gid_table(device->context, entries, ARRAY_SIZE(entries), 0);
		for (i = 0; i < count; i++) {
			if (entries[i].gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(&entries[i].gid, &gid, 16))
				continue;
			at.gid = gid;
			at.gid_index = entries[i].gid_index;
			return at;
		}
		usleep(10000);
	} while (now_ms() < end);
	die("%s: no GID for %s", device->name, text);
}

/* Two queue pairs, connected with each other, that of either side at an address of its own. */
struct pair {
	struct ibv_qp *qps[2];
};

static void pair_make(struct pair *pair, enum ibv_qp_type type, const char *const at[2],
		      enum ibv_mtu mtu, struct patience patience)
{
	struct depth depth = { .send = MAX_MESSAGES, .receive = MAX_MESSAGES, .sges = MAX_SEGMENTS };
	struct device ends[2];
	int i;

	for (i = 0; i < 2; i++) {
		ends[i] = device_at(sides[i].device, at[i]);
		pair->qps[i] = qp_make(sides[i].device, type, sides[i].send_cq, sides[i].recv_cq, depth, NULL);
	}
	qp_connect(&ends[0], pair->qps[0], &ends[1], pair->qps[1], mtu, patience);
}

static void pair_ways(const struct pair *pair, struct way *ways)
{
	ways_between(ways, &sides[0], pair->qps[0], &sides[1], pair->qps[1]);
}

/* Each length by itself, in both directions: around multiples of the path MTU, and of pages. */
static bool each_length(enum ibv_mtu mtu, enum ibv_qp_type type, struct way *ways, unsigned int count)
{
	uint32_t bytes = mtu_bytes(mtu), page = sysconf(_SC_PAGESIZE);
	const uint32_t lengths[] = {
		0, 1, 3, bytes - 1, bytes, bytes + 1, 2 * bytes - 1, 2 * bytes, 2 * bytes + 1, 5 * bytes + 2,
		page - 1, page, page + 1, 2 * page - 1, 2 * page, 2 * page + 1, 65535, 65536, 65537,
	};
	unsigned int i, which, way;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		for (which = 0; which < opcodes_of(type); which++) {
			for (way = 0; way < count; way++) {
				ways_start(ways, count);
				if (!message_add(&ways[way], opcodes[which], lengths[i], 1 + i % 3))
					die("no room for %u bytes", lengths[i]);
				if (exchange(ways, count, SECONDS))
					continue;
				ksft_print_msg("%s of %u bytes\n", opcode_name(opcodes[which]), lengths[i]);
				return false;
			}
		}
	}
	return true;
}

/* As many random messages as there is room for, on all ways at once; adds up how many there were. */
static bool mixed(struct way *ways, unsigned int count, unsigned int rounds,
		  unsigned long long *messages)
{
	unsigned int i, j;

	while (rounds--) {
		ways_start(ways, count);
		for (j = 0; j < MAX_MESSAGES; j++) {
			for (i = 0; i < count; i++)
				message_add(&ways[i], opcodes[random_between(0, OPCODES - 1)],
					    random_between(0, 5000), random_between(1, MAX_SEGMENTS));
		}
		for (i = 0; messages && i < count; i++)
			*messages += ways[i].count;
		if (!exchange(ways, count, SECONDS))
			return false;
	}
	return true;
}

static struct ibv_send_wr fetch_add(struct ibv_sge *result, struct region *words, size_t word, uint64_t add)
{
	return (struct ibv_send_wr){
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = result,
		.num_sge = 1,
		.wr.atomic = {
			.remote_addr = (uintptr_t)words->memory + word,
			.rkey = words->mr->rkey,
			.compare_add = add,
		},
	};
}

static void word_add(struct region *words, size_t at, uint64_t add)
{
	uint64_t word;

	memcpy(&word, words->expected + at, sizeof(word));
	word += add;
	memcpy(words->expected + at, &word, sizeof(word));
}

/* Each request may leave once the answer to the one before has come, and the list is posted by one doorbell. */
static bool run_chain(void)
{
	struct depth depth = { .send = LINKS, .receive = 1, .sges = 1 };
	static struct ibv_send_wr wrs[LINKS];
	static struct ibv_sge sges[LINKS];
	struct region words, results;
	struct ibv_qp *qps[2];
	uint64_t began, posted;
	struct ibv_cq *cq;
	unsigned int i;
	bool ok = true;

	cq = cq_make(&devices[0], LINKS);
	region_make(&words, &devices[0], 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	region_make(&results, &devices[0], 8 * LINKS, IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < 2; i++)
		qps[i] = qp_make(&devices[0], IBV_QPT_RC, cq, cq, depth, NULL);
	qp_connect(&devices[0], qps[0], &devices[0], qps[1], IBV_MTU_256, forever);
	for (i = 0; i < LINKS; i++) {
		sges[i] = region_sge(&results, 8 * i, 8);
		wrs[i] = fetch_add(&sges[i], &words, 0, 2 + i);
		wrs[i].wr_id = i;
		wrs[i].send_flags |= IBV_SEND_FENCE;
		wrs[i].next = i + 1 < LINKS ? &wrs[i + 1] : NULL;
		/* It gets what was there before. */
		memcpy(results.expected + 8 * i, words.expected, 8);
		word_add(&words, 0, 2 + i);
	}
	began = now_ms();
	send_post(qps[0], wrs);
	posted = now_ms();
	for (i = 0; ok && i < LINKS; i++)
		ok = cq_expect(cq, "a link", i, IBV_WC_SUCCESS, WAIT_MS);
	ksft_print_msg("%u links: posted after %llu ms, all done after %llu ms\n", LINKS,
		       (unsigned long long)(posted - began), (unsigned long long)(now_ms() - began));
	ok = ok && cq_quiet(cq, QUIET_MS) && region_check(&words, "the words") && region_check(&results, "the results");
	qps_free(qps);
	cq_free(cq);
	region_free(&words);
	region_free(&results);
	return ok;
}

/* Sends to itself; every length, and atomics. */
static bool run_itself(int type)
{
	struct depth depth = { .send = MAX_MESSAGES, .receive = MAX_MESSAGES, .sges = MAX_SEGMENTS };
	struct ibv_qp *qp = qp_make(&devices[0], type, sides[0].send_cq, sides[0].recv_cq, depth, NULL);
	static struct way way;
	struct region words;
	unsigned int i;
	bool ok;

	if (qp_init(qp, access_of(type), 0))
		die("RESET to INIT");
	qp_ready_connected(&devices[0], qp, &devices[0], qp->qp_num, IBV_MTU_1024, PATIENT, 0xfffffe, 0xfffffe);
	way = (struct way){ .from = &sides[0], .to = &sides[0], .qp = qp, .peer = qp };
	ok = each_length(IBV_MTU_1024, type, &way, 1) && (type != IBV_QPT_RC || mixed(&way, 1, 4, NULL));
	region_make(&words, &devices[0], 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	for (i = 0; ok && type == IBV_QPT_RC && i < 16; i++) {
		struct ibv_sge sge = region_sge(&words, 2048 + 8 * i, 8);
		struct ibv_send_wr wr = fetch_add(&sge, &words, 8, i + 5);
		struct ibv_wc wc;

		wr.wr_id = i;
		memcpy(words.expected + 2048 + 8 * i, words.expected + 8, 8);
		word_add(&words, 8, i + 5);
		send_post(qp, &wr);
		ok = cq_poll(sides[0].send_cq, &wc, WAIT_MS) && !wc.status && wc.wr_id == i &&
		     region_check(&words, "the words");
	}
	ok = side_check(&sides[0]) && ok;
	qp_free(qp);
	region_free(&words);
	cq_drain(sides[0].send_cq);
	cq_drain(sides[0].recv_cq);
	return ok;
}

static struct ibv_qp *datagrams_make(struct device *device, struct ibv_cq *cq, uint32_t depth)
{
	struct depth how = { .send = depth, .receive = depth, .sges = 1 };

	return ud_make(device, cq, cq, how, QKEY);
}

static int ud_send(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn, const struct region *from,
		   size_t at, uint32_t length)
{
	struct ibv_sge sge = region_sge(from, at, length);
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	};

	return ibv_post_send(qp, &wr, &bad);
}

static int receive(struct ibv_qp *qp, const struct region *to, size_t at, uint32_t length)
{
	struct ibv_sge sge = region_sge(to, at, length);
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	return ibv_post_recv(qp, &wr, &bad);
}

/* What the headers of datagrams are between two queue pairs, the test datagrams shows. */
static bool run_itself_ud(void)
{
	struct side *side = &sides[0];
	struct ibv_qp *qp = datagrams_make(&devices[0], side->send_cq, 16);
	struct ibv_ah *ah = ah_make(&devices[0], &devices[0]);
	uint32_t mtu = mtu_bytes(devices[0].active_mtu), length;
	bool ok = true;

	for (length = 1; ok && length <= mtu; length = length < mtu && length * 3 > mtu ? mtu : length * 3) {
		size_t at = random_between(1, 200), from = random_between(0, 5000);
		struct ibv_wc wc[2];
		int i;

		ok = !receive(qp, &side->sink, at, GRH + length) &&
		     !ud_send(qp, ah, qp->qp_num, &side->source, from, length) &&
		     cq_poll(side->send_cq, &wc[0], WAIT_MS) && cq_poll(side->send_cq, &wc[1], WAIT_MS);
		for (i = 0; ok && i < 2; i++)
			ok = !wc[i].status && (wc[i].opcode != IBV_WC_RECV ||
					       (wc[i].src_qp == qp->qp_num && wc[i].byte_len == GRH + length));
		ok = ok && wc[0].opcode + wc[1].opcode == IBV_WC_SEND + IBV_WC_RECV;
		memcpy(side->sink.expected + at, side->sink.memory + at, GRH);
		memcpy(side->sink.expected + at + GRH, side->source.expected + from, length);
		ok = side_check(side) && ok;
		if (!ok)
			ksft_print_msg("%u bytes\n", length);
	}
	ah_free(ah);
	qp_free(qp);
	cq_drain(side->send_cq);
	return ok;
}

/* How messages go, if not as RC, over IPv4 and with an MTU of 256. */
#define OVER_UC 1
#define OVER_IPV6 2
#define LARGEST_MTU 4

static bool run_lengths(int how)
{
	enum ibv_qp_type type = how & OVER_UC ? IBV_QPT_UC : IBV_QPT_RC;
	enum ibv_mtu mtu = how & LARGEST_MTU ? IBV_MTU_4096 : IBV_MTU_256;
	const char *at = how & OVER_IPV6 ? address6 : address;
	const char *const both[] = { at, at };
	static struct way ways[2];
	struct pair pair;
	bool ok;

	pair_make(&pair, type, both, mtu, PATIENT);
	pair_ways(&pair, ways);
	ok = each_length(mtu, type, ways, 2);
	ok = side_check(&sides[0]) & side_check(&sides[1]) && ok;
	qps_free(pair.qps);
	return ok;
}

static bool run_addresses(void)
{
	const char *const at[][2] = {
		{ address, address }, { address6, address6 }, { address, second }, { second, second },
	};
	struct pair pairs[ARRAY_SIZE(at)];
	static struct way ways[2 * ARRAY_SIZE(at)];
	unsigned int i;
	bool ok;

	for (i = 0; i < ARRAY_SIZE(at); i++) {
		pair_make(&pairs[i], IBV_QPT_RC, at[i], i % 2 ? IBV_MTU_1024 : IBV_MTU_4096, PATIENT);
		pair_ways(&pairs[i], &ways[2 * i]);
	}
	ok = mixed(ways, ARRAY_SIZE(ways), 8, NULL);
	ok = side_check(&sides[0]) & side_check(&sides[1]) && ok;
	for (i = 0; i < ARRAY_SIZE(at); i++)
		qps_free(pairs[i].qps);
	return ok;
}

static unsigned long long counter(const char *name)
{
	return device_counter_now(&devices[0], name);
}

static int post_write(struct ibv_qp *qp, uint64_t id, uint32_t length)
{
	struct ibv_sge sge = region_sge(&sides[0].source, 0, length);
	struct ibv_send_wr *bad, wr = {
		.wr_id = id,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {
			.remote_addr = (uintptr_t)sides[1].sink.memory,
			.rkey = sides[1].sink.mr->rkey,
		},
	};

	return ibv_post_send(qp, &wr, &bad);
}

/* One of type RC, in INIT. */
static struct ibv_qp *rc_make(int end)
{
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };
	struct ibv_qp *qp;

	qp = qp_make(&devices[end], IBV_QPT_RC, sides[end].send_cq, sides[end].recv_cq, depth, NULL);
	if (qp_init(qp, access_of(IBV_QPT_RC), 0))
		die("RESET to INIT");
	return qp;
}

/* The peer of a queue pair at one address believes that it is at another, of the same device. */
static bool run_stranger(const char *from, const char *to, const char *believed, const char *peer_at)
{
	struct device sender = device_at(&devices[0], from), target = device_at(&devices[1], to);
	struct device wrong = device_at(&devices[0], believed), home = device_at(&devices[1], peer_at);
	struct ibv_qp *qps[2];
	unsigned long long before;
	struct ibv_wc wc;
	bool ok;
	int i;

	for (i = 0; i < 2; i++)
		qps[i] = rc_make(i);
	qp_ready_connected(&sender, qps[0], &target, qps[1]->qp_num, IBV_MTU_1024, brief, 5, 5);
	qp_ready_connected(&home, qps[1], &wrong, qps[0]->qp_num, IBV_MTU_1024, brief, 5, 5);
	before = counter("unknown_qp");
	ok = !post_write(qps[0], 77, 100) && cq_poll(sides[0].send_cq, &wc, WAIT_MS);
	if (ok && (wc.status != IBV_WC_RETRY_EXC_ERR || wc.wr_id != 77)) {
		ksft_print_msg("from %s to %s: %s\n", from, to, ibv_wc_status_str(wc.status));
		ok = false;
	}
	before = counter("unknown_qp") - before;
	/* The first time, and each repetition. */
	if (before != 1ull + brief.retries) {
		ksft_print_msg("from %s to %s: %llu unknown\n", from, to, before);
		ok = false;
	}
	ok = ok && side_check(&sides[1]) && qp_state(qps[1]) == IBV_QPS_RTS;
	for (i = 0; i < 2; i++) {
		qp_free(qps[i]);
		cq_drain(sides[i].send_cq);
	}
	return ok;
}

static bool run_strangers(void)
{
	return run_stranger(address, address, address6, address6) &&
	       run_stranger(address, address, second, address) &&
	       run_stranger(address, address, address, second) &&
	       run_stranger(address6, address6, address, address);
}

/* A third queue pair is connected to one whose peer it is not. It knows all of the peer but the number. */
static bool run_impostor(void)
{
	const char *const at[2] = { address, address };
	struct device sender = device_at(&devices[0], address), target = device_at(&devices[1], address);
	unsigned long long before;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *impostor;
	struct pair pair;
	bool ok;

	pair_make(&pair, IBV_QPT_RC, at, IBV_MTU_1024, forever);
	if (ibv_query_qp(pair.qps[1], &attr, IBV_QP_RQ_PSN, &init))
		die("the receiver: %s", strerror(errno));
	impostor = rc_make(0);
	qp_ready_connected(&sender, impostor, &target, pair.qps[1]->qp_num, IBV_MTU_1024, brief, attr.rq_psn, 5);
	before = counter("unknown_qp");
	ok = !post_write(impostor, 1, 100) && cq_expect(sides[0].send_cq, "the impostor", 1, IBV_WC_RETRY_EXC_ERR, WAIT_MS);
	before = counter("unknown_qp") - before;
	if (before != 1ull + brief.retries) {
		ksft_print_msg("%llu packets were dropped because they are not the peer's\n", before);
		ok = false;
	}
	ok = ok && side_check(&sides[1]);
	/* The peer has noticed nothing. */
	ok = ok && !post_write(pair.qps[0], 2, 100) && cq_expect(sides[0].send_cq, "the peer", 2, IBV_WC_SUCCESS, WAIT_MS);
	qp_free(impostor);
	qps_free(pair.qps);
	cq_drain(sides[0].send_cq);
	return ok;
}

/* A queue pair's number has 24 bits. On the way to a peer, more do not count; so they do not within a device. */
static bool run_high_bits(void)
{
	struct device at = device_at(&devices[0], address);
	struct ibv_qp *qps[2];
	bool ok;
	int i;

	for (i = 0; i < 2; i++)
		qps[i] = rc_make(i);
	for (i = 0; i < 2; i++)
		qp_ready_connected(&at, qps[i], &at, qps[!i]->qp_num | 0xa5000000, IBV_MTU_1024, brief, 5, 5);
	ok = !post_write(qps[0], 1, 100) && cq_expect(sides[0].send_cq, "a WRITE", 1, IBV_WC_SUCCESS, WAIT_MS);
	qps_free(qps);
	cq_drain(sides[0].send_cq);
	return ok;
}

static bool address_change(const char *action, const char *text)
{
	return command("ip address %s %s/24 dev %s", action, text, netdev);
}

/*
 * WRITEs go on while the address of both ends goes and, after so many milliseconds, if there are any, comes
 * back. Returns what was wrong in the end; *after is the number of those that were complete after that.
 */
static enum ibv_wc_status write_on(struct ibv_qp *qp, int back_ms, unsigned int *after)
{
	uint64_t posted = 0, done = 0, gone = 0, end = now_ms() + patience_ms(3 * WAIT_MS);
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	bool is_gone = false, is_back = false, in_order = true;
	struct ibv_wc wc;

	*after = 0;
	while (status == IBV_WC_SUCCESS && now_ms() < end && *after < 300) {
		while (posted - done < MAX_MESSAGES && !post_write(qp, posted, 3000))
			posted++;
		if (!is_gone && done > 500) {
			if (!address_change("del", second))
				return IBV_WC_GENERAL_ERR;
			is_gone = true;
			gone = now_ms();
		}
		if (is_gone && !is_back && back_ms >= 0 && now_ms() - gone >= (uint64_t)back_ms) {
			if (!address_change("add", second))
				return IBV_WC_GENERAL_ERR;
			is_back = true;
		}
		while (ibv_poll_cq(sides[0].send_cq, 1, &wc) > 0) {
			in_order &= wc.wr_id == done++;
			/* The first error is what was wrong; the rest is flushed. */
			if (!status)
				status = wc.status;
			*after += is_back && !wc.status;
		}
		sched_yield();
	}
	while (done < posted && cq_poll(sides[0].send_cq, &wc, WAIT_MS))
		in_order &= wc.wr_id == done++;
	if (!in_order) {
		ksft_print_msg("the requests do not complete in order, each once\n");
		return IBV_WC_GENERAL_ERR;
	}
	if (done != posted) {
		ksft_print_msg("%llu of %llu requests are complete\n", (unsigned long long)done,
			       (unsigned long long)posted);
		return IBV_WC_GENERAL_ERR;
	}
	ksft_print_msg("%llu requests, %s\n", (unsigned long long)done, ibv_wc_status_str(status));
	return status;
}

static void second_pair_make(struct pair *pair, struct patience patience)
{
	const char *const at[] = { second, second };

	pair_make(pair, IBV_QPT_RC, at, IBV_MTU_1024, patience);
}

/* As the sink has it after write_on(): how often is all the same. */
static void expect_written(void)
{
	memcpy(sides[1].sink.expected, sides[0].source.expected, 3000);
}

static bool run_address_goes(void)
{
	enum ibv_wc_status status;
	static struct way ways[2];
	unsigned int after;
	struct pair pair;
	bool ok;

	second_pair_make(&pair, moderate);
	status = write_on(pair.qps[0], -1, &after);
	expect_written();
	ok = status == IBV_WC_RETRY_EXC_ERR && qp_state(pair.qps[0]) == IBV_QPS_ERR;
	qps_free(pair.qps);
	ok = address_change("add", second) && ok;
	second_pair_make(&pair, PATIENT);
	pair_ways(&pair, ways);
	ok = mixed(ways, 2, 2, NULL) && ok;
	qps_free(pair.qps);
	return ok;
}

/* Soon enough for who is patient. */
static bool run_address_comes_back(void)
{
	static struct way ways[2];
	unsigned int after;
	struct pair pair;
	bool ok;

	second_pair_make(&pair, enduring);
	ok = write_on(pair.qps[0], 60, &after) == IBV_WC_SUCCESS && after >= 300;
	expect_written();
	pair_ways(&pair, ways);
	ok = ok && mixed(ways, 2, 2, NULL);
	qps_free(pair.qps);
	return ok;
}

/* What the network has seen so far, and what the device has. */
struct tally {
	/* Packets of all netdevs of the namespace, in and out. */
	unsigned long long netdevs;
	/* Packets of this machine that IP has sent. */
	unsigned long long ip;
	/* Packets for the RoCE port that a packet socket saw. */
	unsigned long long captured;
	unsigned long long sent;
	unsigned long long received;
	unsigned long long sent_bytes;
	unsigned long long received_bytes;
};

static int packets;

static void packets_open(void)
{
	int room = 8 << 20;

	packets = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, htons(ETH_P_ALL));
	if (packets < 0 || setsockopt(packets, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		die("no packet socket: %s", strerror(errno));
}

static unsigned long long captured(void)
{
	unsigned long long count = 0;
	uint8_t packet[128];
	ssize_t length;

	while ((length = recv(packets, packet, sizeof(packet), MSG_TRUNC)) >= 0) {
		/* Of IPv6, no extension headers are expected. */
		size_t udp = packet[0] >> 4 == 6 ? 40 : (packet[0] & 15) * 4;

		if (length >= 48 && (packet[udp + 2] << 8 | packet[udp + 3]) == ROCE_PORT)
			count++;
	}
	return count;
}

/* Adds up the two numbers of packets in each line of the namespace's netdevs. */
static unsigned long long netdev_packets(void)
{
	unsigned long long sum = 0, in, out;
	char line[512];
	FILE *file = fopen("/proc/thread-self/net/dev", "r");

	if (!file)
		die("/proc/net/dev: %s", strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');

		if (colon && sscanf(colon + 1, "%*u %llu %*u %*u %*u %*u %*u %*u %*u %llu", &in, &out) == 2)
			sum += in + out;
	}
	fclose(file);
	return sum;
}

static unsigned long long ip_packets(void)
{
	unsigned long long sum = 0, out;
	char line[512];
	FILE *file = fopen("/proc/thread-self/net/snmp", "r");

	/* The tenth number behind "Ip:" is that of requests out; the line before has their names. */
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Ip: %*u %*u %*u %*u %*u %*u %*u %*u %*u %llu", &out) == 1)
			sum += out;
	}
	if (file)
		fclose(file);
	file = fopen("/proc/thread-self/net/snmp6", "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Ip6OutRequests %llu", &out) == 1)
			sum += out;
	}
	if (file)
		fclose(file);
	return sum;
}

static struct tally tally_since(const struct tally *before)
{
	struct tally now = {
		.netdevs = netdev_packets(),
		.ip = ip_packets(),
		.captured = captured(),
		.sent = counter("sent_pkts"),
		.received = counter("rcvd_pkts"),
		.sent_bytes = counter("sent_bytes"),
		.received_bytes = counter("rcvd_bytes"),
	};

	if (!before)
		return now;
	now.netdevs -= before->netdevs;
	now.ip -= before->ip;
	now.sent -= before->sent;
	now.received -= before->received;
	now.sent_bytes -= before->sent_bytes;
	now.received_bytes -= before->received_bytes;
	return now;
}

static void tally_show(const struct tally *tally, unsigned long long messages)
{
	ksft_print_msg("%llu messages: sent %llu, received %llu, netdevs %llu, IP %llu, captured %llu\n",
		       messages, tally->sent, tally->received, tally->netdevs, tally->ip, tally->captured);
}

static bool run_unseen(int how)
{
	const char *at = how & OVER_IPV6 ? address6 : address;
	const char *const both[] = { at, at };
	unsigned long long messages = 0;
	struct tally before, seen;
	static struct way ways[2];
	struct pair pair;
	bool ok;

	pair_make(&pair, IBV_QPT_RC, both, IBV_MTU_1024, PATIENT);
	pair_ways(&pair, ways);
	before = tally_since(NULL);
	ok = mixed(ways, 2, 16, &messages);
	seen = tally_since(&before);
	tally_show(&seen, messages);
	qps_free(pair.qps);
	return ok && messages > 500 && seen.netdevs <= NOISE && seen.ip <= NOISE && !seen.captured &&
	       seen.sent >= messages && seen.sent == seen.received && seen.sent_bytes == seen.received_bytes;
}

/*
 * Two devices have a network between them, even where that is one machine's own. It shows that the rows
 * above could have seen something.
 */
static bool run_seen(void)
{
	struct depth depth = { .send = MAX_MESSAGES, .receive = MAX_MESSAGES, .sges = MAX_SEGMENTS };
	struct device other;
	struct side *const ours = &sides[0];
	static struct way ways[2];
	static struct side theirs;
	unsigned long long messages = 0;
	struct tally before, seen;
	struct ibv_qp *qps[2];
	int i;
	bool ok;

	device_open(&other, other_name, 4);
	other = device_at(&other, other_address);
	side_make(&theirs, &other, SIDE_SIZE, 2 * MAX_MESSAGES);
	qps[0] = qp_make(&devices[0], IBV_QPT_RC, ours->send_cq, ours->recv_cq, depth, NULL);
	qps[1] = qp_make(&other, IBV_QPT_RC, theirs.send_cq, theirs.recv_cq, depth, NULL);
	qp_connect(&devices[0], qps[0], &other, qps[1], IBV_MTU_1024, PATIENT);
	ways_between(ways, ours, qps[0], &theirs, qps[1]);
	before = tally_since(NULL);
	ok = mixed(ways, 2, 16, &messages);
	seen = tally_since(&before);
	tally_show(&seen, messages);
	ok = ok && side_check(&theirs);
	for (i = 0; i < 2; i++)
		qp_free(qps[i]);
	side_free(&theirs);
	device_close(&other);
	/* Several may have left as one. */
	return ok && seen.netdevs >= messages / 4 && seen.ip >= messages / 4 && seen.captured >= messages / 4;
}

/* A pair of connections with room for all the requests that a queue may have, and those requests. */
struct full {
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	unsigned int count;
	struct ibv_send_wr *wrs;
	struct ibv_sge *sges;
};

static void full_make(struct full *full)
{
	struct device *device = &devices[0];
	struct depth depth = { .send = device->attr.max_qp_wr, .receive = 1, .sges = 1 };
	struct side *side = &sides[0];
	unsigned int i;

	full->count = depth.send;
	full->cq = ibv_create_cq(device->context, full->count, NULL, NULL, 0);
	full->wrs = calloc(full->count, sizeof(*full->wrs));
	full->sges = calloc(full->count, sizeof(*full->sges));
	if (!full->cq || !full->wrs || !full->sges)
		die("a full queue: %s", strerror(errno));
	for (i = 0; i < 2; i++)
		full->qps[i] = qp_make(device, IBV_QPT_RC, full->cq, full->cq, depth, NULL);
	qp_connect(device, full->qps[0], device, full->qps[1], IBV_MTU_1024, PATIENT);
	for (i = 0; i < full->count; i++) {
		full->sges[i] = region_sge(&side->source, 0, 8);
		full->wrs[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < full->count ? &full->wrs[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.sg_list = &full->sges[i],
			.num_sge = 1,
			.wr.rdma = {
				.remote_addr = (uintptr_t)side->sink.memory,
				.rkey = side->sink.mr->rkey,
			},
		};
	}
}

/* Posts all requests with one doorbell. They have to complete in order, each once, all with this status. */
static bool full_round(struct full *full, enum ibv_wc_status status)
{
	unsigned int i;
	struct ibv_wc wc;

	send_post(full->qps[0], full->wrs);
	for (i = 0; i < full->count; i++) {
		if (!cq_poll(full->cq, &wc, WAIT_MS)) {
			ksft_print_msg("%u of %u completions\n", i, full->count);
			return false;
		}
		if (wc.wr_id != i || wc.status != status) {
			ksft_print_msg("completion %u is of request %u: %s\n", i, (unsigned int)wc.wr_id,
				       ibv_wc_status_str(wc.status));
			return false;
		}
	}
	return cq_quiet(full->cq, 1);
}

static bool full_free(struct full *full)
{
	struct side *side = &sides[0];
	unsigned int i;

	for (i = 0; i < 2; i++)
		qp_free(full->qps[i]);
	cq_free(full->cq);
	free(full->wrs);
	free(full->sges);
	memcpy(side->sink.expected, side->source.expected, 8);
	return side_check(side);
}

static bool run_full(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct full full;
	bool ok;

	full_make(&full);
	ok = full_round(&full, IBV_WC_SUCCESS) && full_round(&full, IBV_WC_SUCCESS);
	if (ibv_modify_qp(full.qps[0], &attr, IBV_QP_STATE))
		die("ibv_modify_qp: %s", strerror(errno));
	ok = ok && full_round(&full, IBV_WC_WR_FLUSH_ERR);
	return full_free(&full) && ok;
}

/*
 * Receives that are flushed because a request failed come behind it in a completion queue of both. No specification
 * says so, but rdma-core's suite and programs like it poll for the request first.
 */
static bool run_failed_first(void)
{
	struct depth depth = { .send = 1, .receive = FLUSHED, .sges = 1 };
	struct device *device = &devices[0];
	struct side *side = &sides[0];
	struct ibv_sge sge = region_sge(&side->source, 0, 3 * 4096), small = region_sge(&side->sink, 0, 8);
	struct ibv_send_wr wr = {
		.wr_id = FLUSHED,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)side->sink.memory, .rkey = side->sink.mr->rkey ^ 0x5a5a00 },
	};
	struct ibv_qp *qp, *peer;
	unsigned int i, id;
	bool ok = true;

	for (i = 0; ok && i < FAILURES; i++) {
		qp = qp_make(device, IBV_QPT_RC, side->send_cq, side->send_cq, depth, NULL);
		peer = qp_make(device, IBV_QPT_RC, sides[1].send_cq, sides[1].recv_cq, depth, NULL);
		qp_connect(device, qp, device, peer, IBV_MTU_1024, PATIENT);
		for (id = 0; id < FLUSHED; id++)
			recv_post(qp, &(struct ibv_recv_wr){ .wr_id = id, .sg_list = &small, .num_sge = 1 });
		send_post(qp, &wr);
		ok = cq_expect(side->send_cq, "the request", FLUSHED, IBV_WC_REM_ACCESS_ERR, WAIT_MS);
		for (id = 0; ok && id < FLUSHED; id++)
			ok = cq_expect(side->send_cq, "a receive", id, IBV_WC_WR_FLUSH_ERR, WAIT_MS);
		qp_free(qp);
		qp_free(peer);
		cq_drain(side->send_cq);
		cq_drain(sides[1].recv_cq);
	}
	return side_check(side) && ok;
}

/* Has a queue pair go on as soon as it is in SQE. */
static void *go_on(void *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };
	uint64_t end = now_ms() + patience_ms(WAIT_MS);

	while (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE)) {
		if (now_ms() > end)
			die("the queue pair is not in SQE");
	}
	return NULL;
}

/*
 * A request fails, and all that were posted with it are flushed: no matter how many of them the queue pair has looked
 * at when it goes on.
 */
static bool run_full_sqe(void)
{
	struct device *device = &devices[0];
	unsigned int count = device->attr.max_qp_wr, i;
	struct ibv_cq *cq = cq_make(device, count);
	struct ibv_ah *ah = ah_make(device, device);
	struct ibv_send_wr *wrs = calloc(count, sizeof(*wrs));
	struct ibv_sge sge = region_sge(&sides[0].source, 0, 8), too_long = sge;
	struct ibv_qp *qp;
	pthread_t thread;
	struct ibv_wc wc;
	bool ok = true;

	if (!wrs)
		die("a full queue: %s", strerror(errno));
	qp = datagrams_make(device, cq, count);
	too_long.length = mtu_bytes(device->active_mtu) + 1;
	for (i = 0; i < count; i++) {
		wrs[i].wr_id = i;
		wrs[i].next = i + 1 < count ? &wrs[i + 1] : NULL;
		wrs[i].opcode = IBV_WR_SEND;
		wrs[i].send_flags = IBV_SEND_SIGNALED;
		wrs[i].sg_list = i ? &sge : &too_long;
		wrs[i].num_sge = 1;
		wrs[i].wr.ud.ah = ah;
		wrs[i].wr.ud.remote_qpn = qp->qp_num;
		wrs[i].wr.ud.remote_qkey = QKEY;
	}
	thread_start(&thread, go_on, qp);
	send_post(qp, wrs);
	pthread_join(thread, NULL);
	for (i = 0; ok && i < count; i++) {
		enum ibv_wc_status status = i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_LEN_ERR;

		ok = cq_poll(cq, &wc, WAIT_MS);
		if (ok && (wc.wr_id != i || wc.status != status)) {
			ksft_print_msg("completion %u is of request %u: %s\n", i, (unsigned int)wc.wr_id,
				       ibv_wc_status_str(wc.status));
			ok = false;
		}
	}
	ok = ok && cq_quiet(cq, 1);
	qp_free(qp);
	if (ibv_destroy_ah(ah) || ibv_destroy_cq(cq))
		die("what was made for it does not go away");
	free(wrs);
	return ok;
}

struct resizer {
	struct full *full;
	volatile bool ends;
	volatile unsigned int count;
};

static void *resize_on(void *argument)
{
	struct resizer *resizer = argument;

	while (!resizer->ends) {
		unsigned int entries = resizer->full->count << (resizer->count++ & 1);
		int error = ibv_resize_cq(resizer->full->cq, entries);

		if (error)
			die("ibv_resize_cq: %s", strerror(error));
		/* Who polls wants the queue, too. */
		usleep(2000);
	}
	return NULL;
}

/* What is in the queue moves, in order, and what comes meanwhile is not lost. */
static bool run_resized(void)
{
	struct resizer resizer = {};
	struct full full;
	pthread_t thread;
	bool ok = true;
	int i;

	full_make(&full);
	resizer.full = &full;
	thread_start(&thread, resize_on, &resizer);
	for (i = 0; ok && (i < RESIZED_ROUNDS || resizer.count < RESIZED_LEAST); i++)
		ok = full_round(&full, IBV_WC_SUCCESS);
	resizer.ends = true;
	pthread_join(thread, NULL);
	ksft_print_msg("resized %u times\n", resizer.count);
	return full_free(&full) && ok;
}

/* Processes that flood a device from one CPU until they are killed. */
#define FLOOD_CPU 0
/* Requests that make a flood: some hundred a second are all that a machine which checks everything posts. */
#define FLOOD_LEAST 200
#define FLOOD_MS 3000
#define FLOODERS 2
#define SOURCES 8
#define TARGETS 8
#define FLOOD_DEPTH 64
#define FLOOD_SIZE 32768

struct flood {
	struct device device;
	struct region region;
	struct ibv_ah *ah;
	/* Where datagrams go, some of them in vain. */
	volatile uint32_t targets[TARGETS];
};

/* What a flooder tells; shared with it. */
struct news {
	volatile uint64_t posted;
	volatile uint64_t received;
};

static void flood_receive(struct flood *flood, struct ibv_qp *qp)
{
	if (receive(qp, &flood->region, 0, GRH + 4096))
		die("ibv_post_recv");
}

struct destroyer {
	pthread_t thread;
	struct flood *flood;
	struct news *news;
};

/* Destroys queue pairs and makes others while datagrams come to them. */
static void *destroy_on(void *argument)
{
	struct destroyer *destroyer = argument;
	struct flood *flood = destroyer->flood;
	struct ibv_qp *qps[TARGETS] = {};
	struct ibv_cq *cq = cq_make(&flood->device, 4 * TARGETS * FLOOD_DEPTH);
	struct ibv_wc wc;
	unsigned int i, j;

	for (i = 0;; i = (i + 1) % TARGETS) {
		if (qps[i])
			qp_free(qps[i]);
		qps[i] = datagrams_make(&flood->device, cq, FLOOD_DEPTH);
		flood->targets[i] = qps[i]->qp_num;
		for (j = 0; j < FLOOD_DEPTH; j++)
			flood_receive(flood, qps[i]);
		usleep(1000);
		while (ibv_poll_cq(cq, 1, &wc) > 0)
			destroyer->news->received += !wc.status;
	}
	return NULL;
}

static void flood_datagrams(struct flood *flood, struct news *news)
{
	struct destroyer destroyer = { .flood = flood, .news = news };
	struct ibv_cq *cq = cq_make(&flood->device, 2 * SOURCES * FLOOD_DEPTH);
	struct ibv_qp *qps[SOURCES];
	unsigned int room[SOURCES], i;
	struct ibv_wc wc;

	thread_start(&destroyer.thread, destroy_on, &destroyer);
	for (i = 0; i < SOURCES; i++) {
		qps[i] = datagrams_make(&flood->device, cq, FLOOD_DEPTH);
		room[i] = FLOOD_DEPTH;
	}
	for (i = 0;; i = (i + 1) % SOURCES) {
		while (room[i]) {
			if (ud_send(qps[i], flood->ah, flood->targets[news->posted % TARGETS], &flood->region,
				    8192, 1000))
				die("ibv_post_send: %s", strerror(errno));
			room[i]--;
			news->posted++;
		}
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			unsigned int which;

			for (which = 0; which < SOURCES && qps[which]->qp_num != wc.qp_num; which++)
				;
			if (which == SOURCES || wc.status)
				die("a datagram: %s", ibv_wc_status_str(wc.status));
			room[which]++;
		}
	}
}

/*
 * Messages on many connections: UC WRITEs, whose peers never say anything, or long RC READs, which go on by
 * themselves.
 */
static void flood_messages(struct flood *flood, struct news *news, enum ibv_qp_type type,
			   uint32_t length)
{
	struct depth depth = { .send = FLOOD_DEPTH, .receive = 1, .sges = 1 };
	struct ibv_cq *cq = cq_make(&flood->device, 4 * SOURCES * FLOOD_DEPTH);
	struct ibv_qp *qps[2 * SOURCES];
	unsigned int room[2 * SOURCES], i;
	struct ibv_wc wc;

	for (i = 0; i < 2 * SOURCES; i++) {
		qps[i] = qp_make(&flood->device, type, cq, cq, depth, NULL);
		room[i] = FLOOD_DEPTH;
	}
	for (i = 0; i < 2 * SOURCES; i += 2)
		qp_connect(&flood->device, qps[i], &flood->device, qps[i + 1], IBV_MTU_1024, PATIENT);
	for (i = 0;; i = (i + 1) % (2 * SOURCES)) {
		struct ibv_sge sge = region_sge(&flood->region, 0, length);
		struct ibv_send_wr wr = {
			.wr_id = i,
			.opcode = type == IBV_QPT_RC ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.sg_list = &sge,
			.num_sge = 1,
			.wr.rdma = {
				.remote_addr = (uintptr_t)flood->region.memory,
				.rkey = flood->region.mr->rkey,
			},
		};

		while (room[i]) {
			send_post(qps[i], &wr);
			room[i]--;
			news->posted++;
		}
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			if (wc.status)
				die("a message: %s", ibv_wc_status_str(wc.status));
			room[wc.wr_id]++;
			news->received++;
		}
	}
}

enum flood_kind {
	DATAGRAMS,
	WRITES,
	READS,
};

static pid_t flooder_start(enum flood_kind kind, struct news *news)
{
	struct flood *flood;
	pid_t pid;

	pid = fork_child();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	stay_on(FLOOD_CPU);
	flood = calloc(1, sizeof(*flood));
	if (!flood)
		die("no memory for a flooder");
	device_open(&flood->device, devices[0].name, 4);
	region_make(&flood->region, &flood->device, FLOOD_SIZE,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	flood->ah = ah_make(&flood->device, &flood->device);
	if (kind == DATAGRAMS)
		flood_datagrams(flood, news);
	else if (kind == WRITES)
		flood_messages(flood, news, IBV_QPT_UC, 4 * 1024);
	else
		flood_messages(flood, news, IBV_QPT_RC, FLOOD_SIZE);
	_exit(1);
}

/*
 * A process that only looks at the clock, on the same CPU, sees how long others keep it, and how much is left. True if
 * that is more than a twentieth.
 */
static bool watch_clock(uint64_t ms, uint64_t *longest_us)
{
	struct timespec used;
	uint64_t share, now, last = now_us(), end = last + 1000 * ms;

	*longest_us = 0;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	share = used.tv_sec * 1000 + used.tv_nsec / 1000000;
	/* A wait that lasts beyond the end counts, too. */
	do {
		now = now_us();
		if (now - last > *longest_us)
			*longest_us = now - last;
		last = now;
	} while (now < end);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	share = used.tv_sec * 1000 + used.tv_nsec / 1000000 - share;
	ksft_print_msg("%llu of %llu ms are left to others, the longest wait is %llu us\n",
		       (unsigned long long)share, (unsigned long long)ms, (unsigned long long)*longest_us);
	return share > ms / 20;
}

/*
 * Enough is left to others, in each attempt; and in one of three no wait lasts for half of the time: a machine that is
 * shared may stand still.
 */
static bool others_may_run(void)
{
	const uint64_t ms = patience_ms(FLOOD_MS), most = 1000 * ms / 2;
	uint64_t longest = most;
	int i;

	for (i = 0; longest >= most && i < 3; i++) {
		if (!watch_clock(ms, &longest))
			return false;
	}
	return longest < most;
}

static bool run_flood(int kind)
{
	struct news *news = mmap(NULL, FLOODERS * sizeof(*news), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *const both[] = { address, address };
	pid_t flooders[FLOODERS];
	uint64_t began, end = now_ms() + patience_ms(WAIT_MS);
	static struct way ways[2];
	cpu_set_t before;
	struct pair pair;
	bool ok = true;
	int i, status;

	if (news == MAP_FAILED || sched_getaffinity(0, sizeof(before), &before))
		die("a flood does not start: %s", strerror(errno));
	for (i = 0; i < FLOODERS; i++)
		flooders[i] = flooder_start(kind, &news[i]);
	for (i = 0; i < FLOODERS; i++) {
		while (news[i].posted < FLOOD_LEAST && now_ms() < end)
			usleep(10000);
	}
	stay_on(FLOOD_CPU);
	ok = others_may_run();
	sched_setaffinity(0, sizeof(before), &before);
	began = now_ms();
	for (i = 0; i < FLOODERS; i++) {
		if (waitpid(flooders[i], &status, WNOHANG)) {
			ksft_print_msg("a flooder has ended by itself, with status %#x\n", status);
			ok = false;
			continue;
		}
		kill(flooders[i], SIGKILL);
		if (waitpid(flooders[i], &status, 0) != flooders[i])
			die("waitpid: %s", strerror(errno));
		ksft_print_msg("%llu requests, %llu received\n", (unsigned long long)news[i].posted,
			       (unsigned long long)news[i].received);
		ok = ok && news[i].posted >= FLOOD_LEAST && (kind == WRITES || news[i].received);
	}
	if (now_ms() - began > patience_ms(WAIT_MS / 2)) {
		ksft_print_msg("ending them takes %llu ms\n", (unsigned long long)(now_ms() - began));
		ok = false;
	}
	munmap(news, FLOODERS * sizeof(*news));
	/* Whatever of it was still waiting, others have the device now. */
	pair_make(&pair, IBV_QPT_RC, both, IBV_MTU_1024, PATIENT);
	pair_ways(&pair, ways);
	ok = mixed(ways, 2, 2, NULL) && ok;
	qps_free(pair.qps);
	return ok;
}

/*
 * Waits until datagrams have the short way again: one arrives, and the network has not seen it. One that is lost leaves
 * its receive to the next. All are complete in the end.
 */
static bool short_way_wait(struct ibv_qp *qp, struct ibv_ah *ah)
{
	struct side *side = &sides[0];
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	unsigned int sends = 0, receives = 0;
	struct ibv_wc wc;

	do {
		if (!receives && receive(qp, &side->sink, 0, GRH + 64))
			die("ibv_post_recv");
		receives = 1;
		captured();
		if (ud_send(qp, ah, qp->qp_num, &side->source, 0, 64))
			die("ibv_post_send");
		sends++;
		while ((sends || receives) && cq_poll(side->send_cq, &wc, 100)) {
			if (wc.status) {
				ksft_print_msg("a datagram: %s\n", ibv_wc_status_str(wc.status));
				return false;
			}
			if (wc.opcode == IBV_WC_RECV)
				receives--;
			else
				sends--;
		}
		if (!sends && !receives && !captured())
			return true;
		usleep(1000);
	} while (now_ms() < end);
	ksft_print_msg("datagrams do not find the short way\n");
	return false;
}

/*
 * Datagrams go on while their address goes and comes back. The route is there before the device knows of the
 * address again; in the end they must have found the short way, nevertheless.
 */
static bool run_datagrams_come_back(void)
{
	struct side *side = &sides[0];
	struct device at = device_at(&devices[0], second);
	struct ibv_qp *qp = datagrams_make(&devices[0], side->send_cq, MAX_MESSAGES);
	struct ibv_ah *ah = ah_make(&at, &at);
	unsigned int room = MAX_MESSAGES, posted, arrived = 0;
	struct tally before, seen;
	struct ibv_wc wc;
	int status;
	pid_t child;
	bool ok;

	child = fork_child();
	if (!child) {
		usleep(50000);
		ok = address_change("del", second);
		usleep(50000);
		_exit(!(address_change("add", second) && ok));
	}
	while (!waitpid(child, &status, WNOHANG)) {
		for (; room; room--) {
			if (ud_send(qp, ah, qp->qp_num, &side->source, 0, 64))
				die("ibv_post_send: %s", strerror(errno));
		}
		while (ibv_poll_cq(side->send_cq, 1, &wc) > 0)
			room++;
	}
	ok = !status;
	for (; room < MAX_MESSAGES; room++)
		ok = cq_poll(side->send_cq, &wc, WAIT_MS) && ok;
	device_at(&devices[0], second);
	ok = short_way_wait(qp, ah) && ok;
	for (posted = 0; posted < MAX_MESSAGES; posted++)
		ok = !receive(qp, &side->sink, 0, GRH + 64) && ok;
	before = tally_since(NULL);
	for (posted = 0; ok && posted < MAX_MESSAGES; posted++)
		ok = !ud_send(qp, ah, qp->qp_num, &side->source, 0, 64);
	for (posted = 0; ok && posted < 2 * MAX_MESSAGES; posted++) {
		ok = cq_poll(side->send_cq, &wc, WAIT_MS) && !wc.status;
		arrived += ok && wc.opcode == IBV_WC_RECV;
	}
	seen = tally_since(&before);
	tally_show(&seen, MAX_MESSAGES);
	memcpy(side->sink.expected, side->sink.memory, GRH);
	memcpy(side->sink.expected + GRH, side->source.expected, 64);
	ah_free(ah);
	qp_free(qp);
	cq_drain(side->send_cq);
	return ok && arrived == MAX_MESSAGES && side_check(side) && !seen.captured && seen.netdevs <= NOISE;
}

/*
 * A SEND that is right in all but where it comes from: by the network, from the device's own address, as any process of
 * the namespace can send UDP.
 */
static bool run_posed(void)
{
	const char *const at[2] = { address, address };
	struct side *side = &sides[1];
	struct wire_packet packet = { .opcode = RC_SEND_ONLY, .payload = 64 };
	unsigned long long before, after;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct device end;
	struct wire wire;
	struct pair pair;
	bool ok;

	pair_make(&pair, IBV_QPT_RC, at, IBV_MTU_1024, forever);
	if (ibv_query_qp(pair.qps[1], &attr, IBV_QP_RQ_PSN, &init) || receive(pair.qps[1], &side->sink, 0, 64))
		die("the receiver: %s", strerror(errno));
	packet.qpn = pair.qps[1]->qp_num;
	packet.psn = attr.rq_psn;
	end = device_at(side->device, address);
	wire_open(&wire, "/proc/thread-self/ns/net", "lo", &end.gid, &end.gid);
	before = device_counter(&end, "unknown_qp");
	wire_send(&wire, &packet, 1);
	ok = cq_quiet(side->recv_cq, QUIET_MS);
	after = device_counter(&end, "unknown_qp");
	if (after != before + 1) {
		printf("# %llu packets were dropped because they are not the peer's\n", after - before);
		ok = false;
	}
	wire_close(&wire);
	qps_free(pair.qps);
	return ok && side_check(side);
}

static const struct row rows[] = {
	{ "a chain of answers", run_chain },
	{ "to itself, RC", .run_with = run_itself, IBV_QPT_RC },
	{ "to itself, UC", .run_with = run_itself, IBV_QPT_UC },
	{ "to itself, UD", run_itself_ud },
	{ "every length, RC, IPv4, MTU 256", .run_with = run_lengths, 0 },
	{ "every length, RC, IPv4, MTU 4096", .run_with = run_lengths, LARGEST_MTU },
	{ "every length, RC, IPv6, MTU 256", .run_with = run_lengths, OVER_IPV6 },
	{ "every length, RC, IPv6, MTU 4096", .run_with = run_lengths, OVER_IPV6 | LARGEST_MTU },
	{ "every length, UC, IPv4, MTU 256", .run_with = run_lengths, OVER_UC },
	{ "every length, UC, IPv4, MTU 4096", .run_with = run_lengths, OVER_UC | LARGEST_MTU },
	{ "every length, UC, IPv6, MTU 256", .run_with = run_lengths, OVER_UC | OVER_IPV6 },
	{ "every length, UC, IPv6, MTU 4096", .run_with = run_lengths, OVER_UC | OVER_IPV6 | LARGEST_MTU },
	{ "several addresses at once", run_addresses },
	{ "to a queue pair whose peer is at another address", run_strangers },
	{ "the network cannot pose as a peer", run_posed },
	{ "another queue pair cannot pose as a peer", run_impostor },
	{ "a peer's number with more than 24 bits", run_high_bits },
	{ "an address that goes", run_address_goes },
	{ "an address that comes back", run_address_comes_back },
	{ "an address that comes back, datagrams", run_datagrams_come_back },
	{ "the network does not see it, IPv4", .run_with = run_unseen, 0 },
	{ "the network does not see it, IPv6", .run_with = run_unseen, OVER_IPV6 },
	{ "the network sees it between two devices", run_seen },
	{ "all the requests that a queue may have", run_full },
	{ "all the requests behind one that fails", run_full_sqe },
	{ "a request that fails, before the receives that are flushed", run_failed_first },
	{ "a completion queue that is resized meanwhile", run_resized },
	{ "a flood of datagrams", .run_with = run_flood, DATAGRAMS },
	{ "a flood of WRITEs", .run_with = run_flood, WRITES },
	{ "a flood of READs", .run_with = run_flood, READS },
};

static void begin(char **operands)
{
	int i;

	close(namespace_enter(operands[0]));
	netdev = operands[2];
	address = operands[3];
	address6 = operands[4];
	second = operands[5];
	other_name = operands[6];
	other_address = operands[7];
	for (i = 0; i < 2; i++) {
		device_open(&devices[i], operands[1], 4);
		devices[i] = device_at(&devices[i], address);
	}
	sides_make(devices, SIDE_SIZE, 8 * MAX_MESSAGES);
	packets_open();
}

static void end(void)
{
	sides_free();
	device_close(&devices[0]);
	device_close(&devices[1]);
}

const struct test test = {
	ROWS(rows),
	.operands = "NAMESPACE DEVICE NETDEV ADDRESS IPV6-ADDRESS ANOTHER-ADDRESS ANOTHER-DEVICE ITS-ADDRESS",
	.begin = begin, .end = end,
};
