// SPDX-License-Identifier: GPL-2.0
/*
 * Raw packet queue pairs: whole Ethernet frames, as they come out at the other end of the cable.
 *
 * frames DEVICE NAMESPACE NETDEV PEER-NAMESPACE PEER-NETDEV
 *
 * DEVICE is on NETDEV in the network namespace NAMESPACE, and loses it in the end.
 */
#define _GNU_SOURCE

#include <linux/capability.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "namespace.h"
#include "packet.h"
#include "test.h"

/* A type for experiments, and that of a VLAN tag. */
#define TYPE 0x88b5
#define TAG 0x8100
#define HEADER 14
#define MTU 1500
#define JUMBO 9000
#define SIZE 16384
#define DEPTH 256
#define PIECES 6
#define INLINE 512
#define WAIT_MS 10000
#define QUIET_MS 300


static struct device device;
static struct region region;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static const char *own_namespace, *own_netdev;
static int peer;
static uint8_t peer_mac[6];

/* Sees all frames that come to the other end of the cable. */
static void peer_open(const char *namespace, const char *netdev)
{
	int yes = 1;

	peer = capture_open(namespace, netdev, peer_mac);
	if (setsockopt(peer, SOL_PACKET, PACKET_AUXDATA, &yes, sizeof(yes)))
		die("%s: no PACKET_AUXDATA: %s", netdev, strerror(errno));
}

/* The next frame of ours, with the tag that the stack has taken out put back; its length, 0 if there is none. */
static size_t frame_receive(int capture, uint8_t *frame, unsigned int ms)
{
	uint64_t end = now_ms() + patience_ms(ms);

	for (;;) {
		uint64_t now = now_ms();
		struct pollfd wait = { .fd = capture, .events = POLLIN };
		char control[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
		struct iovec vector = { .iov_base = frame, .iov_len = SIZE };
		struct msghdr message = {
			.msg_iov = &vector,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};
		struct cmsghdr *about;
		ssize_t length;

		if (poll(&wait, 1, now < end ? end - now : 0) != 1)
			return 0;
		length = recvmsg(capture, &message, 0);
		if (length < HEADER)
			die("recvmsg: %s", strerror(errno));
		if (frame[12] != TYPE >> 8 || frame[13] != (TYPE & 0xff))
			continue;
		for (about = CMSG_FIRSTHDR(&message); about; about = CMSG_NXTHDR(&message, about)) {
			struct tpacket_auxdata data;

			if (about->cmsg_level != SOL_PACKET || about->cmsg_type != PACKET_AUXDATA)
				continue;
			memcpy(&data, CMSG_DATA(about), sizeof(data));
			if (!(data.tp_status & TP_STATUS_VLAN_VALID))
				continue;
			memmove(frame + 16, frame + 12, length - 12);
			put16(put16(frame + 12, data.tp_vlan_tpid), data.tp_vlan_tci);
			length += 4;
		}
		return length;
	}
}

static size_t peer_receive(uint8_t *frame, unsigned int ms)
{
	return frame_receive(peer, frame, ms);
}

static bool peer_quiet(void)
{
	uint8_t frame[SIZE + 4];
	size_t length = peer_receive(frame, QUIET_MS);

	if (!length)
		return true;
	printf("# a frame of %zu bytes that should not be\n", length);
	return false;
}

static bool peer_gets(const uint8_t *wanted, size_t length)
{
	uint8_t frame[SIZE + 4];
	size_t got = peer_receive(frame, WAIT_MS), at;

	if (got != length) {
		printf("# a frame of %zu bytes arrives instead of %zu\n", got, length);
		return false;
	}
	for (at = 0; at < length; at++) {
		if (frame[at] == wanted[at])
			continue;
		printf("# byte %zu of %zu is %02x instead of %02x\n", at, length, frame[at], wanted[at]);
		return false;
	}
	return true;
}

/* A frame at this place of the region: random, but for its header as far as there is room. */
static uint8_t *frame_make(size_t at, size_t length, bool tagged)
{
	uint8_t header[HEADER + 4], *end;
	size_t room = tagged ? sizeof(header) : HEADER;

	memcpy(header, peer_mac, 6);
	random_fill(header + 6, 6);
	header[6] &= 0xfe;
	end = header + 12;
	if (tagged)
		end = put16(put16(end, TAG), 77);
	put16(end, TYPE);
	random_fill(region.memory + at, length);
	memcpy(region.memory + at, header, length < room ? length : room);
	memcpy(region.expected, region.memory, SIZE);
	return region.memory + at;
}

/* Posts so many bytes of the region, in so many pieces. */
static int post(uint64_t id, size_t at, size_t length, int pieces, unsigned int flags)
{
	struct ibv_sge list[PIECES];
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | flags,
		.sg_list = list,
		.num_sge = pieces,
	};
	struct ibv_send_wr *bad;
	int i;

	for (i = 0; i < pieces; i++) {
		size_t part = length;

		if (i + 1 < pieces)
			part = random_between(0, length / 2);
		list[i] = region_sge(&region, at, part);
		at += part;
		length -= part;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static bool completes(uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!cq_poll(cq, &wc, WAIT_MS)) {
		printf("# request %llu does not complete\n", (unsigned long long)id);
		return false;
	}
	if (wc.wr_id == id && wc.status == status && wc.qp_num == qp->qp_num &&
	    (status || wc.opcode == IBV_WC_SEND))
		return true;
	printf("# wr_id %llu, %s, opcode %d instead of %llu, %s\n", (unsigned long long)wc.wr_id,
	       ibv_wc_status_str(wc.status), wc.opcode, (unsigned long long)id,
	       ibv_wc_status_str(status));
	return false;
}

static int modify(enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = PORT };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static bool go(enum ibv_qp_state state, int mask)
{
	int error = modify(state, mask);

	if (!error && qp_state(qp) == state)
		return true;
	printf("# to state %d: %s, state %d\n", state, strerror(error), qp_state(qp));
	return false;
}

static bool is_refused(enum ibv_qp_state state, int mask)
{
	enum ibv_qp_state before = qp_state(qp);
	int error = modify(state, mask);

	if (error && qp_state(qp) == before)
		return true;
	printf("# from state %d to %d with %#x: %s, state %d\n", before, state, mask, strerror(error),
	       qp_state(qp));
	return false;
}

static void qp_open(void)
{
	struct depth depth = {
		.send = DEPTH,
		.receive = 16,
		.sges = PIECES,
		.inline_size = INLINE,
	};

	qp = qp_make(&device, IBV_QPT_RAW_PACKET, cq, cq, depth, NULL);
}

static bool qp_ready(void)
{
	return go(IBV_QPS_INIT, IBV_QP_PORT) && go(IBV_QPS_RTR, 0) && go(IBV_QPS_RTS, 0);
}

static bool qp_close(void)
{
	int error = ibv_destroy_qp(qp);

	if (error)
		printf("# ibv_destroy_qp: %s\n", strerror(error));
	return !error;
}

static bool run_frame(size_t length, int pieces, unsigned int flags, bool tagged)
{
	size_t at = random_between(0, 4000);
	uint8_t *frame = frame_make(at, length, tagged);
	uint64_t id = random_next();
	int error = post(id, at, length, pieces, flags);
	uint8_t sent[SIZE];

	memcpy(sent, frame, length);
	if (flags & IBV_SEND_INLINE)
		/* It was taken. */
		memset(frame, 0, length);
	if (!error && completes(id, IBV_WC_SUCCESS) && peer_gets(sent, length))
		return (flags & IBV_SEND_INLINE) || region_check(&region, "the region");
	printf("# a frame of %zu bytes in %d pieces, flags %#x: %s\n", length, pieces, flags,
	       strerror(error));
	return false;
}

static bool run_lengths(void)
{
	static const size_t lengths[] = { HEADER, HEADER + 1, 59, 60, 64, 65, 1000, MTU + 13, MTU + HEADER };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		if (!run_frame(lengths[i], 1, 0, false))
			return false;
	}
	return peer_quiet();
}

static bool run_tagged(void)
{
	/* The stack drops what has less than two bytes behind the tag. */
	return run_frame(HEADER + 4 + 2, 1, 0, true) && run_frame(64, 1, 0, true) &&
	       run_frame(MTU + HEADER, 1, 0, true) && run_frame(MTU + HEADER + 4, 1, 0, true);
}

static bool run_pieces(void)
{
	int pieces, i;

	for (pieces = 2; pieces <= PIECES; pieces++) {
		for (i = 0; i < 8; i++) {
			size_t length = i ? random_between(HEADER, MTU + HEADER) : HEADER;

			if (!run_frame(length, pieces, 0, false))
				return false;
		}
	}
	return true;
}

static bool run_inline(void)
{
	return run_frame(HEADER, 1, IBV_SEND_INLINE, false) &&
	       run_frame(60, 1, IBV_SEND_INLINE, false) &&
	       run_frame(INLINE, 1, IBV_SEND_INLINE, false) &&
	       run_frame(333, 4, IBV_SEND_INLINE, false);
}

static bool run_jumbo(void)
{
	bool ok = command("ip -n %s link set %s mtu %d", own_namespace, own_netdev, JUMBO);

	ok = ok && run_frame(JUMBO + HEADER, 3, 0, false) && run_frame(JUMBO + HEADER + 4, 1, 0, true);
	return command("ip -n %s link set %s mtu %d", own_namespace, own_netdev, MTU) && ok;
}

/* Posts so many, one by one, each of a random length, with its number and its length behind the header. */
static bool post_many(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		size_t length = random_between(64, MTU + HEADER);

		frame_make(0, length, false);
		put16(put16(region.memory + HEADER, i), length);
		if (post(i, 0, length, 1, 0) || !completes(i, IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

static bool many_arrive(unsigned int count)
{
	uint8_t frame[SIZE + 4];
	unsigned int i;

	for (i = 0; i < count; i++) {
		size_t length = peer_receive(frame, WAIT_MS);
		unsigned int number = frame[HEADER] << 8 | frame[HEADER + 1];
		size_t told = frame[HEADER + 2] << 8 | frame[HEADER + 3];

		if (length && number == i && length == told)
			continue;
		printf("# frame %u: %zu bytes, number %u, %zu bytes\n", i, length, number, told);
		return false;
	}
	return peer_quiet();
}

/* A list that is longer than a batch of the driver, in order. */
static bool run_burst(void)
{
	struct ibv_send_wr wrs[DEPTH] = {}, *bad;
	struct ibv_sge list[DEPTH];
	unsigned int i;
	int error;

	for (i = 0; i < DEPTH; i++) {
		uint8_t *frame = frame_make(i * 64, 64, false);

		put16(put16(frame + HEADER, i), 64);
		list[i] = (struct ibv_sge){ (uintptr_t)frame, 64, region.mr->lkey };
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i,
			.opcode = IBV_WR_SEND,
			.send_flags = i % 16 == 15 ? IBV_SEND_SIGNALED : 0,
			.sg_list = &list[i],
			.num_sge = 1,
			.next = i + 1 < DEPTH ? &wrs[i + 1] : NULL,
		};
	}
	error = ibv_post_send(qp, wrs, &bad);
	if (error) {
		printf("# ibv_post_send: %s\n", strerror(error));
		return false;
	}
	for (i = 15; i < DEPTH; i += 16) {
		if (!completes(i, IBV_WC_SUCCESS))
			return false;
	}
	return many_arrive(DEPTH);
}

/* The request fails, what is behind it is flushed, and after SQE it goes on. Nothing arrives. */
static bool fails(const char *what, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_send_wr *bad;
	int error;

	wr->wr_id = 1;
	wr->send_flags |= IBV_SEND_SIGNALED;
	error = ibv_post_send(qp, wr, &bad);
	if (!error && completes(1, status) && qp_state(qp) == IBV_QPS_SQE && !post(2, 0, 64, 1, 0) &&
	    completes(2, IBV_WC_WR_FLUSH_ERR) && go(IBV_QPS_RTS, 0) && peer_quiet())
		return true;
	printf("# %s: %s, state %d\n", what, strerror(error), qp_state(qp));
	return false;
}

static bool run_length(const char *what, size_t length, bool tagged)
{
	struct ibv_sge sge = { .length = length, .lkey = region.mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = length ? 1 : 0 };

	sge.addr = (uintptr_t)frame_make(0, length, tagged);
	return fails(what, &wr, IBV_WC_LOC_LEN_ERR);
}

static bool run_wrong_lengths(void)
{
	return run_length("no byte", 0, false) && run_length("one byte", 1, false) &&
	       run_length("a header but one byte", HEADER - 1, false) &&
	       run_length("a byte more than the MTU", MTU + HEADER + 1, false) &&
	       run_length("no tag, and the room of one", MTU + HEADER + 4, false) &&
	       run_length("a tag, and a byte more", MTU + HEADER + 5, true) &&
	       run_length("very long", SIZE, false) && run_frame(64, 1, 0, false);
}

static bool run_memory(void)
{
	struct ibv_sge list[2];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = list, .num_sge = 2 };
	uintptr_t frame = (uintptr_t)frame_make(0, 64, false);

	list[0] = (struct ibv_sge){ frame, 32, region.mr->lkey };
	list[1] = (struct ibv_sge){ frame + 32, 32, region.mr->lkey ^ 0x5500 };
	if (!fails("an unknown key", &wr, IBV_WC_LOC_PROT_ERR))
		return false;
	list[1] = (struct ibv_sge){ (uintptr_t)region.memory + SIZE - 31, 32, region.mr->lkey };
	return fails("beyond the end", &wr, IBV_WC_LOC_PROT_ERR) && run_frame(64, 1, 0, false);
}

/* Pages that nobody has touched since the registration, or ever: those are zeros. */
static bool run_paged(void)
{
	size_t page = sysconf(_SC_PAGESIZE), length = 1400;
	uint8_t *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_sge sge = { .length = length };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_send_wr *bad;
	struct ibv_mr *mr;
	uint8_t sent[SIZE] = {};
	bool ok;

	if (memory == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	mr = ibv_reg_mr(device.pd, memory, 2 * page, IBV_ACCESS_ON_DEMAND);
	if (!mr) {
		printf("# ibv_reg_mr: %s\n", strerror(errno));
		return false;
	}
	memcpy(sent, frame_make(0, length / 2, false), length / 2);
	memcpy(memory + page - length / 2, sent, length / 2);
	sge.addr = (uintptr_t)memory + page - length / 2;
	sge.lkey = mr->lkey;
	ok = !ibv_post_send(qp, &wr, &bad) && completes(1, IBV_WC_SUCCESS) && peer_gets(sent, length);
	ok &= !ibv_dereg_mr(mr);
	munmap(memory, 2 * page);
	return ok;
}

static bool run_operations(void)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} others[] = {
		{ "SEND with immediate", IBV_WR_SEND_WITH_IMM },
		{ "SEND with invalidate", IBV_WR_SEND_WITH_INV },
		{ "WRITE", IBV_WR_RDMA_WRITE },
		{ "READ", IBV_WR_RDMA_READ },
		{ "TSO", IBV_WR_TSO },
	};
	struct ibv_sge sge = { .length = 64, .lkey = region.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 };
	unsigned int i;

	sge.addr = (uintptr_t)frame_make(0, 64, false);
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		wr.opcode = others[i].opcode;
		wr.send_flags = 0;
		if (!fails(others[i].name, &wr, IBV_WC_LOC_QP_OP_ERR))
			return false;
	}
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_IP_CSUM;
	return fails("checksums to be filled in", &wr, IBV_WC_LOC_QP_OP_ERR) &&
	       run_frame(64, 1, 0, false);
}

static bool run_states(void)
{
	struct ibv_qp *other = qp;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint8_t *frame;
	bool ok;

	qp_open();
	ok = qp_state(qp) == IBV_QPS_RESET && is_refused(IBV_QPS_INIT, 0) &&
	     is_refused(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_QKEY) &&
	     is_refused(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX) &&
	     is_refused(IBV_QPS_RTR, 0) && go(IBV_QPS_INIT, IBV_QP_PORT) && go(IBV_QPS_INIT, 0) &&
	     is_refused(IBV_QPS_RTS, 0) && post(1, 0, 64, 1, 0) && go(IBV_QPS_RTR, 0) &&
	     is_refused(IBV_QPS_RTS, IBV_QP_SQ_PSN) && go(IBV_QPS_RTS, 0);
	ok = ok && !ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CAP, &init) &&
	     attr.port_num == PORT && attr.cap.max_send_wr >= DEPTH && attr.cap.max_inline_data >= INLINE &&
	     init.qp_type == IBV_QPT_RAW_PACKET;
	/* Drained, it keeps what is posted. */
	frame = frame_make(0, 100, false);
	ok = ok && go(IBV_QPS_SQD, 0) && !post(2, 0, 100, 1, 0) && cq_quiet(cq, QUIET_MS) && peer_quiet() &&
	     go(IBV_QPS_RTS, 0) && completes(2, IBV_WC_SUCCESS) && peer_gets(frame, 100);
	ok = ok && go(IBV_QPS_RESET, 0) && qp_ready() && run_frame(64, 1, 0, false);
	ok &= qp_close();
	qp = other;
	return ok;
}

/* Frames come to the netdev: one to all, and one to its own address. */
static bool strays_come(void)
{
	uint8_t mac[6], sent[64], frame[SIZE + 4];
	int capture = capture_open(own_namespace, own_netdev, mac);
	bool ok = true;
	int i;

	for (i = 0; ok && i < 2; i++) {
		random_fill(sent, sizeof(sent));
		if (i)
			memcpy(sent, mac, 6);
		else
			memset(sent, 0xff, 6);
		memcpy(sent + 6, peer_mac, 6);
		put16(sent + 12, TYPE);
		ok = send(peer, sent, sizeof(sent), 0) == sizeof(sent) &&
		     frame_receive(capture, frame, WAIT_MS) == sizeof(sent) && !memcmp(frame, sent, sizeof(sent));
		if (!ok)
			printf("# frame %d from the peer does not come: %s\n", i, strerror(errno));
	}
	close(capture);
	return ok;
}

static bool run_receives(void)
{
	struct ibv_sge sge = { (uintptr_t)region.memory, SIZE, region.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp *other = qp;
	struct ibv_wc wc;
	unsigned int i;
	bool ok;

	qp_open();
	ok = qp_ready();
	for (i = 0; ok && i < 8; i++) {
		wr.wr_id = i;
		ok = !ibv_post_recv(qp, &wr, &bad);
	}
	/* Frames that come to the netdev are not for it; nor are those that it sends itself. */
	ok = ok && run_frame(64, 1, 0, false) && strays_come() && cq_quiet(cq, QUIET_MS) &&
	     region_check(&region, "the region") && go(IBV_QPS_ERR, 0);
	for (i = 0; ok && i < 8; i++) {
		ok = cq_poll(cq, &wc, WAIT_MS) && wc.wr_id == i && wc.status == IBV_WC_WR_FLUSH_ERR &&
		     wc.qp_num == qp->qp_num;
	}
	ok = ok && !post(9, 0, 64, 1, 0) && completes(9, IBV_WC_WR_FLUSH_ERR) && cq_quiet(cq, QUIET_MS);
	ok &= qp_close();
	qp = other;
	return ok;
}

/* A datagram for the number of a raw packet queue pair. */
static bool run_stranger(void)
{
	struct ibv_sge sge = { (uintptr_t)region.memory, SIZE, region.mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };
	struct ibv_ah *ah = ah_make(&device, &device);
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.ud = { .ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 0 },
	};
	struct ibv_qp *ud = ud_make(&device, cq, cq, depth, 0);
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	bool ok;

	ok = !ibv_post_recv(qp, &receive, &bad_receive);
	sge.length = 100;
	ok = ok && !ibv_post_send(ud, &wr, &bad) && cq_poll(cq, &wc, WAIT_MS) && wc.wr_id == 2 && !wc.status &&
	     cq_quiet(cq, QUIET_MS) && region_check(&region, "the region");
	/* The receive goes, without a completion. */
	ok = ok && go(IBV_QPS_RESET, 0) && qp_ready();
	return !ibv_destroy_qp(ud) && !ibv_destroy_ah(ah) && ok;
}

static bool run_refusals(void)
{
	static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 1 } };
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = PORT };
	struct ibv_flow *rule;
	int error = ibv_attach_mcast(qp, &group, 0);

	if (error != EINVAL) {
		printf("# ibv_attach_mcast: %s\n", strerror(error));
		return false;
	}
	errno = 0;
	rule = ibv_create_flow(qp, &flow);
	if (rule || errno != EOPNOTSUPP)
		printf("# ibv_create_flow: %s\n", strerror(errno));
	return !rule && errno == EOPNOTSUPP;
}

/* In a process of its own: 0 if it is as it should be. */
static int without_capability(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct device own;

	device_open(&own, device.name, 4);
	attr.send_cq = attr.recv_cq = ibv_create_cq(own.context, 4, NULL, NULL, 0);
	if (!attr.send_cq || syscall(SYS_capget, &header, data))
		return 1;
	data[0].effective &= ~(1U << CAP_NET_RAW);
	if (syscall(SYS_capset, &header, data))
		return 2;
	errno = 0;
	if (ibv_create_qp(own.pd, &attr) || errno != EPERM) {
		printf("# without CAP_NET_RAW: %s\n", strerror(errno));
		fflush(stdout);
		return 3;
	}
	attr.qp_type = IBV_QPT_UD;
	if (!ibv_create_qp(own.pd, &attr))
		return 4;
	data[0].effective |= 1U << CAP_NET_RAW;
	if (syscall(SYS_capset, &header, data))
		return 5;
	attr.qp_type = IBV_QPT_RAW_PACKET;
	return ibv_create_qp(own.pd, &attr) ? 0 : 6;
}

static bool run_capability(void)
{
	int status;
	pid_t child;

	child = fork_child();
	if (!child)
		_exit(without_capability());
	if (waitpid(child, &status, 0) != child)
		die("waitpid: %s", strerror(errno));
	if (status)
		printf("# the child ends with %#x\n", status);
	return !status;
}

/* What a netdev without Ethernet headers sends are IP packets. */
static bool run_no_ethernet(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	const char *type = getenv("link_type");
	int carrier = tun_open(own_namespace, "frames3", IFF_TUN);
	struct ibv_qp *datagrams;
	struct device own;
	char name[64];
	bool ok;

	if (!type)
		die("no link_type");
	snprintf(name, sizeof(name), "%s3", device.name);
	if (!command("ip -n %s address add 10.8.0.1/24 dev frames3 && ip -n %s link set frames3 up && "
		     "ip netns exec %s rdma link add %s type %s netdev frames3",
		     own_namespace, own_namespace, own_namespace, name, type))
		return false;
	device_open(&own, name, 4);
	attr.send_cq = attr.recv_cq = cq_make(&own, 4);
	errno = 0;
	ok = !ibv_create_qp(own.pd, &attr) && errno == EOPNOTSUPP;
	if (!ok)
		printf("# on a tun netdev: %s\n", strerror(errno));
	attr.qp_type = IBV_QPT_UD;
	datagrams = ibv_create_qp(own.pd, &attr);
	ok = ok && datagrams && !ibv_destroy_qp(datagrams) && !ibv_destroy_cq(attr.send_cq);
	device_close(&own);
	close(carrier);
	return ok;
}

/* Frames that are in the netdev's queue outlive the queue pair, and the memory that they came from. */
static bool run_destroy(void)
{
	struct ibv_qp *other = qp;
	uint8_t sent[SIZE];
	bool ok = command("tc -n %s qdisc replace dev %s root netem delay 500ms limit 1000", own_namespace,
			  own_netdev);

	qp_open();
	ok = ok && qp_ready();
	memcpy(sent, frame_make(0, 1000, false), 1000);
	ok = ok && !post(1, 0, 1000, 1, 0) && completes(1, IBV_WC_SUCCESS);
	ok &= qp_close();
	qp = other;
	region_fill(&region);
	ok = ok && peer_gets(sent, 1000);
	qp_open();
	ok = ok && qp_ready() && post_many(DEPTH / 2);
	ok &= qp_close();
	qp = other;
	ok = ok && many_arrive(DEPTH / 2);
	return command("tc -n %s qdisc del dev %s root", own_namespace, own_netdev) && ok;
}

/* How many bytes are in the netdev's queue. */
static bool queued(unsigned long long *bytes)
{
	char line[256];
	FILE *said;
	bool ok;

	snprintf(line, sizeof(line),
		 "tc -n %s -s -j qdisc show dev %s | sed -n 's/.*\"backlog\":\\([0-9]*\\).*/\\1/p'", own_namespace,
		 own_netdev);
	said = popen(line, "r");
	ok = said && fscanf(said, "%llu", bytes) == 1;
	if (!ok)
		printf("# tc does not tell the backlog\n");
	if (said)
		pclose(said);
	return ok;
}

/* Posts as many frames as the send queue has room for, by one doorbell. */
static int post_full(void)
{
	struct ibv_sge sge = region_sge(&region, 0, MTU + HEADER);
	struct ibv_send_wr wrs[DEPTH], *bad;
	unsigned int i;

	for (i = 0; i < DEPTH; i++) {
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
			.sg_list = &sge,
			.num_sge = 1,
			.next = i + 1 < DEPTH ? &wrs[i + 1] : NULL,
		};
	}
	return ibv_post_send(qp, wrs, &bad);
}

/*
 * A queue pair waits where the netdev's queue is full, and is gone at once all the same. It waits for a millisecond, then
 * sends some frames, and waits again: it may have sent all before it is destroyed, so there are several tries.
 */
static bool run_full_queue(void)
{
	const unsigned long long all = DEPTH * (MTU + HEADER);
	unsigned long long before = 0, after = 0;
	struct ibv_qp *other = qp;
	uint8_t frame[SIZE + 4];
	bool ok, held = false;
	unsigned int i, j, tries;
	uint64_t begin;

	/* The device is charged for the frames that tbf keeps, other than with netem. tbf may be a module. */
	ok = command("modprobe sch_tbf 2>/dev/null; "
		     "tc -n %s qdisc replace dev %s root tbf rate 8kbit burst 16kb limit 2000000000",
		     own_namespace, own_netdev);
	frame_make(0, MTU + HEADER, false);
	for (i = 0; ok && i < 8; i++) {
		ok = !post_full();
		for (j = 0; ok && j < DEPTH; j++)
			ok = completes(j, IBV_WC_SUCCESS);
	}
	ok = ok && queued(&before);
	printf("# %llu bytes are queued, of 8 times %llu\n", before, all);
	/* Some have left. */
	ok = ok && before > 7 * all;
	for (tries = 0; ok && !held && tries < 10; tries++) {
		ok = queued(&before);
		qp_open();
		ok = ok && qp_ready() && !post_full();
		begin = now_ms();
		ok &= qp_close();
		if (now_ms() - begin > patience_ms(5000)) {
			printf("# destroying it takes %llu ms\n", (unsigned long long)(now_ms() - begin));
			ok = false;
		}
		qp = other;
		cq_drain(cq);
		ok = ok && queued(&after);
		/* A batch or more of it has not left. */
		held = after < before + all - all / 8;
	}
	printf("# try %u: %llu bytes are queued, %llu before\n", tries, after, before);
	ok = command("tc -n %s qdisc del dev %s root", own_namespace, own_netdev) && ok;
	while (peer_receive(frame, QUIET_MS))
		;
	cq_drain(cq);
	return ok && held;
}

static bool run_down(void)
{
	unsigned int posted = 0, came;
	uint64_t deadline;
	bool ok = command("ip -n %s link set %s down", own_namespace, own_netdev);

	frame_make(0, 64, false);
	ok = ok && !post(1, 0, 64, 1, 0) && completes(1, IBV_WC_SUCCESS) && peer_quiet() &&
	     qp_state(qp) == IBV_QPS_RTS;
	ok = command("ip -n %s link set %s up", own_namespace, own_netdev) && ok;
	/* The link takes its time. */
	for (deadline = now_ms() + patience_ms(WAIT_MS); ok && now_ms() < deadline;) {
		uint8_t frame[SIZE + 4];

		posted++;
		if (post(2, 0, 64, 1, 0) || !completes(2, IBV_WC_SUCCESS))
			return false;
		if (peer_receive(frame, QUIET_MS) != 64)
			continue;
		/* Frames of earlier posts may come late. */
		for (came = 1; peer_receive(frame, QUIET_MS); came++)
			;
		return came <= posted && run_frame(64, 1, 0, false);
	}
	return false;
}

/* The netdev goes in the middle of it, and waits for nobody: each request completes once, with an error in the end. */
static bool run_gone(void)
{
	unsigned int posted = 0, done = 0, flushed = 0;
	uint64_t deadline = now_ms() + patience_ms(3 * WAIT_MS);
	struct ibv_wc wc;
	int status;
	pid_t child;
	bool ok = true, goes_on = true;

	child = fork_child();
	if (!child) {
		usleep(200000);
		_exit(!command("ip -n %s link del %s", own_namespace, own_netdev));
	}
	frame_make(0, 1000, false);
	while (goes_on && ok && !flushed && now_ms() < deadline) {
		while (goes_on && posted - done < DEPTH / 2) {
			goes_on = !post(posted, 0, 1000, 1, 0);
			posted += goes_on;
		}
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			ok &= wc.wr_id == done++ &&
			      (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
			flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
		}
	}
	while (done < posted && cq_poll(cq, &wc, 1000))
		ok &= wc.wr_id == done++;
	printf("# %u posted, %u complete, %u flushed\n", posted, done, flushed);
	if (waitpid(child, &status, 0) != child || status) {
		printf("# the netdev does not go\n");
		ok = false;
	}
	/* librxe has put a request into the ring before the kernel refuses its doorbell: it may be flushed, too. */
	return ok && (flushed || !goes_on) && (done == posted || (!goes_on && flushed && done == posted + 1));
}

static const struct row rows[] = {
	{ "frames of all lengths", run_lengths },
	{ "frames with a VLAN tag", run_tagged },
	{ "frames in several pieces", run_pieces },
	{ "frames in the request itself", run_inline },
	{ "frames of another MTU", run_jumbo },
	{ "a long list, in order", run_burst },
	{ "too short and too long", run_wrong_lengths },
	{ "memory that may not be read", run_memory },
	{ "memory that is paged on demand", run_paged },
	{ "operations other than SEND", run_operations },
	{ "states and attributes", run_states },
	{ "receives are flushed, and nothing comes to them", run_receives },
	{ "a datagram for a raw packet queue pair", run_stranger },
	{ "multicast groups and flow rules", run_refusals },
	{ "without CAP_NET_RAW", run_capability },
	{ "on a netdev without Ethernet", run_no_ethernet },
	{ "destroyed with frames in the queue", run_destroy },
	{ "a queue that is full", run_full_queue },
	{ "a netdev that is down", run_down },
	{ "a netdev that goes", run_gone },
};

static void begin(char **operands)
{
	own_namespace = operands[1];
	own_netdev = operands[2];
	device_open(&device, operands[0], 4);
	peer_open(operands[3], operands[4]);
	region_make(&region, &device, SIZE, IBV_ACCESS_LOCAL_WRITE);
	cq = cq_make(&device, 4 * DEPTH);
	qp_open();
	if (!qp_ready())
		die("the queue pair does not become ready");
}

static void end(void)
{
	if (!qp_close())
		die("the queue pair does not go away");
	cq_free(cq);
	region_free(&region);
	device_close(&device);
}

const struct test test = {
	ROWS(rows), .operands = "DEVICE NAMESPACE NETDEV NAMESPACE NETDEV", .begin = begin, .end = end,
};
