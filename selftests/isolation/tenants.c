// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a completion has given back: whatever looks at the packets on their way, and however late, sees
 * what was sent, never what the sender's process wrote after the completion.
 *
 * tenants [-d DISK] DEVICE NAMESPACE NETDEV SENDER SENDER-NAMESPACE SENDER-NETDEV FILE
 *	-d	what the process sends are writes to DISK, which is FILE at the other end
 *
 * DEVICE is on NETDEV in NAMESPACE: there this process receives, and looks. The sender is another process, a new one
 * for each row, with the device SENDER.
 *
 * A row is what is sent and how it is looked at. The sender sends a message for each action below, each from memory
 * of its own. After the completion of each it does the action, and each ends with other content in that memory. Then
 * the packets are looked at: all of each message must be there, as it was sent.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "namespace.h"
#include "packet.h"
#include "test.h"
#include "wire.h"


/* The longest message, where its payload starts in its memory, and what that memory has room for. */
#define LONGEST 12288
#define PAYLOAD 64
#define ROOM (LONGEST + 4096)
#define QKEY 0x1234567
/* The headers of a raw packet: Ethernet, IPv4, UDP, to a port where nobody answers. */
#define RAW_HEADERS (14 + 20 + 8)
#define RAW_PORT 9
#define ROCE_PORT 4791
/* The number of the queue, and of the group, of the rules of nftables. */
#define NUMBER 7
/* How often a packet is peeked at after each action. */
#define PEEKS 3
/* How long each step may take. */
#define WAIT_MS 30000
/* Bytes of a frame, or of netlink's message with it, that are no payload: for each datagram in it, and once. */
#define HEADERS 64
#define ENVELOPE 512

/* What the process does after the completion. */
enum action {
	REWRITE,
	DEREGISTER,
	UNMAP,
	FORK,
	EXIT,
	ACTIONS,
};

static const char *const action_names[ACTIONS] = {
	[REWRITE] = "it rewrites its memory",
	[DEREGISTER] = "it deregisters its memory and rewrites it",
	[UNMAP] = "it unmaps its memory, and another process rewrites that",
	[FORK] = "it forks, and its child rewrites the memory",
	[EXIT] = "it ends, and another process rewrites the memory",
};

/* What is sent. */
struct sending {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t size;
	unsigned int flags;
	int access;
	/* Written to the disk: the kernel sends it. */
	bool is_disk;
};

static const struct sending sendings[] = {
	{ "RC SEND, 1 KiB", IBV_QPT_RC, IBV_WR_SEND, 1024, 0, 0, false },
	{ "RC SEND, 4 KiB", IBV_QPT_RC, IBV_WR_SEND, 4096, 0, 0, false },
	{ "RC SEND, 12 KiB", IBV_QPT_RC, IBV_WR_SEND, LONGEST, 0, 0, false },
	{ "RC SEND, inline", IBV_QPT_RC, IBV_WR_SEND, 512, IBV_SEND_INLINE, 0, false },
	{ "RC SEND, paged on demand", IBV_QPT_RC, IBV_WR_SEND, LONGEST, 0, IBV_ACCESS_ON_DEMAND, false },
	{ "RC WRITE, 4 KiB", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 4096, 0, 0, false },
	{ "RC WRITE, 12 KiB", IBV_QPT_RC, IBV_WR_RDMA_WRITE, LONGEST, 0, 0, false },
	{ "RC READ responses, 12 KiB", IBV_QPT_RC, IBV_WR_RDMA_READ, LONGEST, 0, IBV_ACCESS_REMOTE_READ, false },
	{ "UC SEND, 12 KiB", IBV_QPT_UC, IBV_WR_SEND, LONGEST, 0, 0, false },
	{ "UC WRITE, 12 KiB", IBV_QPT_UC, IBV_WR_RDMA_WRITE, LONGEST, 0, 0, false },
	{ "UD SEND, 4 KiB", IBV_QPT_UD, IBV_WR_SEND, 4096, 0, 0, false },
	{ "raw packet, 4 KiB", IBV_QPT_RAW_PACKET, IBV_WR_SEND, 4096, 0, 0, false },
	{ "NVMe write in a SEND, 4 KiB", IBV_QPT_RC, IBV_WR_SEND, 4096, 0, 0, true },
	{ "NVMe write read by the target, 12 KiB", IBV_QPT_RC, IBV_WR_SEND, LONGEST, 0, 0, true },
};

/* What the two processes of a row tell each other. */
struct meeting {
	uint32_t qpn[2];
	uint32_t psn[2];
	/* Memory that the peer may access. */
	uint64_t address[2][ACTIONS];
	uint32_t rkey[2][ACTIONS];
};

/* What was seen of the packets of a row. */
struct sight {
	/* Of each message, which words were there, as sent or not. */
	bool words[ACTIONS][LONGEST / 8];
	uint32_t covered[ACTIONS];
	/* Words that were written after the completion. */
	uint64_t late[ACTIONS];
	/* Frames of which more than the headers is nobody's payload. */
	unsigned int strange;
};

enum { OWN, SENDER };

static const char *disk, *disk_file;
static const char *namespaces[2], *netdevs[2];
static uint8_t macs[2][6];
static struct meeting *meeting;

/* The row. */
static const struct sending *sending;
static unsigned int combinations, leaks;
static uint32_t nonce;
static struct sight sight;
/* The sender's memory; of some of it there is a mapping in either process. */
static uint8_t *memory[ACTIONS];
/* Where it arrives. */
static struct region sinks[ACTIONS];
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static pid_t sender;
static int line;

/* The file that is read by who looks. */
static int looker;
/* How long netem keeps a packet. */
static unsigned int delay_ms;
/* A peer behind a tap, played by this process: where packets are routed to, and how it answers. */
#define VM_ADDRESS "10.0.5.9"
#define VM_QPN 0x1234
static struct device vm;
static struct wire vm_wire;
/* The last packet of the message that is being sent; 0 before the first. */
static uint32_t last_psn;
static uint8_t frame[1 << 18];

/* Every eight bytes of a payload say what row and message they are of, where they are, and when they were written. */
static uint64_t word(unsigned int message, bool late, uint32_t index)
{
	return (uint64_t)nonce << 32 | (uint64_t)message << 24 | (uint64_t)late << 23 | index;
}

static void fill(uint8_t *to, unsigned int message, bool late)
{
	uint32_t index;

	for (index = 0; index < sending->size / 8; index++) {
		uint64_t value = word(message, late, index);

		memcpy(to + index * 8, &value, 8);
	}
}

/* Takes note of what is in a frame, wherever in it; whether there is anything of this row. */
static bool look_at(const uint8_t *bytes, size_t size)
{
	size_t at = 0, known = 0, datagrams;

	while (at + 8 <= size) {
		unsigned int message;
		uint64_t value;
		uint32_t index;

		memcpy(&value, bytes + at, 8);
		message = value >> 24 & 0xff;
		index = value & 0x7fffff;
		if (value >> 32 != nonce || message >= ACTIONS || index >= sending->size / 8) {
			at++;
			continue;
		}
		sight.covered[message] += !sight.words[message][index];
		sight.words[message][index] = true;
		sight.late[message] += value >> 23 & 1;
		known += 8;
		at += 8;
	}
	datagrams = 1 + size / mtu_bytes(devices[OWN].active_mtu);
	if (known && size - known > ENVELOPE + datagrams * HEADERS) {
		printf("# %zu bytes of %zu are no payload of the message\n", size - known, size);
		sight.strange++;
	}
	return known;
}

/* What is next for who looks, in the frame: its length, or -1 with EAGAIN. */
static ssize_t take_packet(int flags)
{
	return recv(looker, frame, sizeof(frame), MSG_DONTWAIT | flags);
}

static ssize_t take_file(int flags)
{
	(void)flags;
	return read(looker, frame, sizeof(frame));
}

static bool capture_begin(void)
{
	looker = capture_open(namespaces[OWN], netdevs[OWN], NULL);
	return true;
}

static bool sender_capture_begin(void)
{
	looker = capture_open(namespaces[SENDER], netdevs[SENDER], NULL);
	return true;
}

static bool capture_end(void)
{
	return !close(looker);
}

/* What comes to NETDEV goes to another netdev of its namespace: a copy, or itself, for which ifb brings it back. */
static bool copies_begin(const char *netdev, bool redirected)
{
	return command("tc -n %s qdisc add dev %s clsact && tc -n %s filter add dev %s ingress matchall "
		       "action mirred egress %s dev %s",
		       namespaces[OWN], netdevs[OWN], namespaces[OWN], netdevs[OWN],
		       redirected ? "redirect" : "mirror", netdev);
}

static bool copies_end(void)
{
	return command("tc -n %s qdisc del dev %s clsact", namespaces[OWN], netdevs[OWN]);
}

static bool tap_begin(void)
{
	looker = tun_open(namespaces[OWN], "tenants1", IFF_TAP | IFF_NO_PI);
	return command("ip -n %s link set tenants1 mtu 9000 up", namespaces[OWN]) && copies_begin("tenants1", false);
}

static bool tap_end(void)
{
	return copies_end() && !close(looker);
}

/* NAMESPACE routes between the sender and the tap. */
static bool vm_begin(void)
{
	const uint8_t *via = devices[OWN].gid.raw + 12;

	vm = devices[OWN];
	if (inet_pton(AF_INET, VM_ADDRESS, vm.gid.raw + 12) != 1)
		die("no address: %s", VM_ADDRESS);
	looker = tun_open(namespaces[OWN], "tenants1", IFF_TAP | IFF_NO_PI);
	if (!command("ip -n %s link set tenants1 mtu 9000 up && ip -n %s route add %s dev tenants1 && "
		     "ip -n %s neigh add %s lladdr 02:00:00:00:00:09 dev tenants1 nud permanent",
		     namespaces[OWN], namespaces[OWN], VM_ADDRESS, namespaces[OWN], VM_ADDRESS) ||
	    !command("ip netns exec %s sysctl -qw net.ipv4.ip_forward=1 && ip -n %s route add %s via %u.%u.%u.%u",
		     namespaces[OWN], namespaces[SENDER], VM_ADDRESS, via[0], via[1], via[2], via[3]))
		return false;
	wire_open(&vm_wire, namespaces[OWN], "tenants1", &vm.gid, &devices[SENDER].gid);
	return true;
}

static bool vm_end(void)
{
	bool ok = command("ip -n %s route del %s && ip netns exec %s sysctl -qw net.ipv4.ip_forward=0",
			  namespaces[SENDER], VM_ADDRESS, namespaces[OWN]);

	wire_close(&vm_wire);
	return !close(looker) && ok;
}

/* Says that the message has arrived, though it is in the tap's ring, or not even there yet. */
static void vm_acknowledge(void)
{
	struct wire_packet answer = {
		.opcode = RC_ACKNOWLEDGE,
		.qpn = meeting->qpn[SENDER],
		.psn = last_psn,
		.syndrome = WIRE_ACK,
	};

	if (last_psn)
		wire_send(&vm_wire, &answer, 1);
}

static bool netem_begin(void)
{
	bool ok = command("ip -n %s link add tenants1 mtu 9000 type veth peer name tenants2 mtu 9000 && "
			  "ip -n %s link set tenants2 up && ip -n %s link set tenants1 up",
			  namespaces[OWN], namespaces[OWN], namespaces[OWN]) &&
		  copies_begin("tenants1", false);

	looker = capture_open(namespaces[OWN], "tenants2", NULL);
	return ok;
}

static bool netem_delay(void)
{
	return command("tc -n %s qdisc replace dev tenants1 root netem delay %ums limit 1000", namespaces[OWN],
		       delay_ms);
}

static bool link_end(void)
{
	bool ok = copies_end();

	return command("ip -n %s link del tenants1", namespaces[OWN]) && capture_end() && ok;
}

static bool ifb_begin(void)
{
	bool ok = command("ip -n %s link add tenants1 mtu 9000 type ifb && ip -n %s link set tenants1 up",
			  namespaces[OWN], namespaces[OWN]) &&
		  copies_begin("tenants1", true);

	looker = capture_open(namespaces[OWN], "tenants1", NULL);
	return ok;
}

/* A message of one attribute to nfnetlink. */
static ssize_t netlink_send(uint16_t type, uint16_t flags, uint16_t attribute, const void *value, size_t size)
{
	struct {
		struct nlmsghdr header;
		struct nfgenmsg about;
		struct nlattr attribute;
		uint8_t value[16];
	} message = {
		.header = {
			.nlmsg_len = NLMSG_LENGTH(sizeof(struct nfgenmsg)) + NLA_HDRLEN + NLA_ALIGN(size),
			.nlmsg_type = type,
			.nlmsg_flags = NLM_F_REQUEST | flags,
		},
		.about = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NUMBER) },
		.attribute = { .nla_len = NLA_HDRLEN + size, .nla_type = attribute },
	};

	memcpy(message.value, value, size);
	return send(looker, &message, message.header.nlmsg_len, 0);
}

static void netlink_set(uint16_t type, uint16_t attribute, const void *value, size_t size)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
	} answer;

	if (netlink_send(type, NLM_F_ACK, attribute, value, size) < 0 ||
	    recv(looker, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer) ||
	    answer.header.nlmsg_type != NLMSG_ERROR || answer.error.error)
		die("nfnetlink: message %#x, attribute %u: %s", type, attribute, strerror(errno));
}

static void netlink_open(void)
{
	int home = namespace_enter(namespaces[OWN]);
	int room = 8 << 20;

	looker = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	if (looker < 0 || setsockopt(looker, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		die("nfnetlink: no socket: %s", strerror(errno));
	namespace_leave(home);
}

/* All that carries payload comes in there. */
static bool rule_begin(const char *what)
{
	return command("ip netns exec %s nft 'table ip tenants { chain in { type filter hook input priority 0; "
		       "udp dport { %u, %u } %s %u; }; }'",
		       namespaces[OWN], ROCE_PORT, RAW_PORT, what, NUMBER);
}

static bool rule_end(void)
{
	return command("ip netns exec %s nft delete table ip tenants", namespaces[OWN]) && !close(looker);
}

static bool queue_begin(void)
{
	const uint16_t type = NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_CONFIG;
	struct nfqnl_msg_config_cmd bind = { .command = NFQNL_CFG_CMD_BIND, .pf = htons(AF_INET) };
	struct nfqnl_msg_config_params whole = { .copy_range = htonl(0xffff), .copy_mode = NFQNL_COPY_PACKET };

	netlink_open();
	netlink_set(type, NFQA_CFG_CMD, &bind, sizeof(bind));
	netlink_set(type, NFQA_CFG_PARAMS, &whole, sizeof(whole));
	return rule_begin("queue num");
}

/* All packets that wait may go on; the messages with their payload stay in the socket, unread. */
static void queue_accept(void)
{
	struct nfqnl_msg_verdict_hdr all = { .verdict = htonl(NF_ACCEPT), .id = htonl(0x7fffffff) };

	/* Where none wait that is an error, and the answer one more message that shows nothing. */
	netlink_send(NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_VERDICT_BATCH, 0, NFQA_VERDICT_HDR, &all, sizeof(all));
}

static bool log_begin(void)
{
	const uint16_t type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG;
	struct nfulnl_msg_config_cmd bind = { .command = NFULNL_CFG_CMD_BIND };
	struct nfulnl_msg_config_mode whole = { .copy_range = htonl(0xffff), .copy_mode = NFULNL_COPY_PACKET };
	uint32_t one = htonl(1), room = htonl(128 << 10);

	netlink_open();
	netlink_set(type, NFULA_CFG_CMD, &bind, sizeof(bind));
	netlink_set(type, NFULA_CFG_MODE, &whole, sizeof(whole));
	netlink_set(type, NFULA_CFG_NLBUFSIZ, &room, sizeof(room));
	netlink_set(type, NFULA_CFG_QTHRESH, &one, sizeof(one));
	return rule_begin("log group");
}

static const struct way {
	const char *name;
	bool (*begin)(void);
	bool (*end)(void);
	ssize_t (*take)(int flags);
	/* Lets packets go on that wait for this process to say so. */
	void (*accept)(void);
	/* A packet that waits is peeked at before and after the action. */
	bool peeks;
	/* Packets come late: if one is seen before the last action, the row is tried again with more delay. */
	bool delays;
	/* They wait until after the last action: for what completes without an answer of the peer. */
	bool holds;
	/* The peer is not the device, but whoever looks, and acknowledges what it has not read. */
	bool answers;
} ways[] = {
	{ "captured and read later", capture_begin, capture_end, take_packet, .accept = NULL },
	{ "captured and peeked at", capture_begin, capture_end, take_packet, .peeks = true },
	{ "captured where it is sent", sender_capture_begin, capture_end, take_packet, .accept = NULL },
	{ "a tap that is read later", tap_begin, tap_end, take_file, .accept = NULL },
	{ "a VM that acknowledges it and reads later", vm_begin, vm_end, take_file, .accept = vm_acknowledge,
	  .answers = true },
	{ "a copy that netem delays", netem_begin, link_end, take_packet, .delays = true },
	{ "captured on ifb", ifb_begin, link_end, take_packet, .accept = NULL },
	{ "nfqueue read later", queue_begin, rule_end, take_packet, .accept = queue_accept },
	{ "nfqueue that holds it", queue_begin, rule_end, take_packet, .accept = queue_accept, .holds = true },
	{ "nflog read later", log_begin, rule_end, take_packet, .accept = NULL },
};

static const struct way *way;
static bool way_is_ready;

/* Whether this process has a queue pair that the packets are for. */
static bool is_received(void)
{
	return sending->type != IBV_QPT_RAW_PACKET && !way->answers && !sending->is_disk;
}

/* The two processes tell each other a letter at a time. */
static bool say(int to, char letter)
{
	return write(to, &letter, 1) == 1;
}

/* 0 if the other one is gone. */
static char hear(int from)
{
	char letter;

	return read(from, &letter, 1) == 1 ? letter : 0;
}

/* Is done again and again by the process that looks, while it waits for anything. */
static void go_on(void)
{
	struct pollfd other = { .fd = line, .events = POLLIN };

	if (way->accept && !way->holds)
		way->accept();
	poll(&other, 1, 2);
}

/* What the sender says that it is done. */
static bool hear_done(void)
{
	struct pollfd other = { .fd = line, .events = POLLIN };
	uint64_t end = now_ms() + patience_ms(WAIT_MS);

	while (!poll(&other, 1, 0)) {
		if (now_ms() > end) {
			printf("# the sender does not answer\n");
			return false;
		}
		go_on();
	}
	return hear(line) == 'd';
}

static bool ask(char letter)
{
	return say(line, letter) && hear_done();
}

/* The state in which it can send and receive, on either side. */
static void qp_ready(unsigned int side)
{
	/* Responses to a READ that is repeated would show the memory as it is then: READs are not repeated. */
	struct patience patience = VERY_PATIENT;
	struct device *own = &devices[side], *other = way->answers ? &vm : &devices[!side];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT };

	if (sending->opcode == IBV_WR_RDMA_READ)
		patience.timeout = 0;
	switch (sending->type) {
	case IBV_QPT_RAW_PACKET:
		if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT))
			die("a raw packet queue pair to INIT");
		for (attr.qp_state = IBV_QPS_RTR; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++) {
			if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
				die("a raw packet queue pair to state %d", attr.qp_state);
		}
		return;
	case IBV_QPT_UD:
		if (qp_init(qp, 0, QKEY))
			die("UD: RESET to INIT");
		qp_ready_ud(qp);
		return;
	default:
		if (qp_init(qp, access_of(sending->type), 0))
			die("RESET to INIT");
		qp_ready_connected(own, qp, other, meeting->qpn[!side], own->active_mtu, patience,
				   meeting->psn[side], meeting->psn[!side]);
	}
}

static void qp_open(unsigned int side)
{
	struct depth depth = { .send = ACTIONS, .receive = ACTIONS, .sges = 1 };

	if (sending->flags & IBV_SEND_INLINE)
		depth.inline_size = sending->size;
	cq = cq_make(&devices[side], 2 * ACTIONS);
	qp = qp_make(&devices[side], sending->type, cq, cq, depth, NULL);
	meeting->qpn[side] = qp->qp_num;
	meeting->psn[side] = random_between(1, 0xffffff);
}

/* The header that makes a frame of a payload. */
static void headers_make(uint8_t *to)
{
	uint8_t *ip = to + 14, *udp = ip + 20;
	uint32_t sum = 0;
	unsigned int i;

	memcpy(to, macs[OWN], 6);
	memcpy(to + 6, macs[SENDER], 6);
	put16(to + 12, 0x0800);
	memset(ip, 0, 20);
	ip[0] = 0x45;
	put16(ip + 2, 20 + 8 + sending->size);
	ip[8] = 64;
	ip[9] = IPPROTO_UDP;
	memcpy(ip + 12, devices[SENDER].gid.raw + 12, 4);
	memcpy(ip + 16, devices[OWN].gid.raw + 12, 4);
	for (i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	put16(ip + 10, ~(sum + (sum >> 16)));
	put16(put16(put16(put16(udp, RAW_PORT), RAW_PORT), 8 + sending->size), 0);
}

/* Posts a message of sending, or a READ of it, and waits for its completion. */
static bool post(unsigned int side, unsigned int message, uint8_t *at, uint32_t lkey, struct ibv_ah *ah)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = sending->size, .lkey = lkey };
	struct ibv_send_wr wr = {
		.wr_id = message,
		.opcode = sending->opcode,
		.send_flags = IBV_SEND_SIGNALED | sending->flags,
		.sg_list = &sge,
		.num_sge = 1,
	};
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int error;

	if (sending->type == IBV_QPT_RAW_PACKET) {
		sge.addr -= RAW_HEADERS;
		sge.length += RAW_HEADERS;
	} else if (sending->type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = meeting->qpn[!side];
		wr.wr.ud.remote_qkey = QKEY;
	} else if (sending->opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = meeting->address[!side][message];
		wr.wr.rdma.rkey = meeting->rkey[!side][message];
	}
	error = ibv_post_send(qp, &wr, &bad);
	while (!error && now_ms() < end) {
		if (side == OWN)
			go_on();
		if (!cq_poll(cq, &wc, 1))
			continue;
		if (wc.wr_id == message && !wc.status)
			return true;
		printf("# message %llu: %s\n", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
		return false;
	}
	printf("# message %u does not complete: %s\n", message, strerror(error));
	return false;
}

/* Writes a message to its place on the disk: true when the disk says it is there. */
static bool disk_write(unsigned int message, const uint8_t *from)
{
	int file = open(disk, O_WRONLY | O_DIRECT | O_CLOEXEC);
	ssize_t written;

	if (file < 0)
		die("%s: %s", disk, strerror(errno));
	written = pwrite(file, from, sending->size, message * ROOM);
	if (written != (ssize_t)sending->size)
		printf("# message %u: %zd of %u bytes are written: %s\n", message, written, sending->size,
		       strerror(errno));
	close(file);
	return written == (ssize_t)sending->size;
}

static void disk_read(unsigned int message, uint8_t *to)
{
	int file = open(disk_file, O_RDONLY | O_CLOEXEC);

	if (file < 0 || pread(file, to, sending->size, message * ROOM) != (ssize_t)sending->size)
		die("%s: %s", disk_file, strerror(errno));
	close(file);
}

static bool is_shared(enum action action)
{
	return action == UNMAP || action == FORK || action == EXIT;
}

static uint8_t *memory_make(bool shared)
{
	uint8_t *made = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

	if (made == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return made;
}

static bool act(enum action action, struct ibv_mr *mr)
{
	uint8_t *payload = memory[action] + PAYLOAD;
	int status = 0;
	pid_t child;

	switch (action) {
	case DEREGISTER:
		/* The disk has none: the kernel registers, and deregisters, the memory of a write. */
		status = mr ? ibv_dereg_mr(mr) : 0;
		/* fallthrough */
	case REWRITE:
		fill(payload, action, true);
		break;
	case UNMAP:
		status = munmap(memory[action], ROOM);
		break;
	case FORK:
		child = fork_child();
		if (!child) {
			fill(payload, action, true);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child)
			return false;
		break;
	default:
		break;
	}
	return !status;
}

/* The process that sends. */
static void sender_run(int from)
{
	struct ibv_mr *mrs[ACTIONS] = {};
	struct ibv_ah *ah = NULL;
	unsigned int i;
	char letter;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* What was opened before the fork is the parent's. */
	device_open(&devices[SENDER], devices[SENDER].name, 4);
	if (!sending->is_disk)
		qp_open(SENDER);
	for (i = 0; i < ACTIONS; i++) {
		if (!memory[i])
			memory[i] = memory_make(false);
		if (sending->type == IBV_QPT_RAW_PACKET)
			headers_make(memory[i] + PAYLOAD - RAW_HEADERS);
		fill(memory[i] + PAYLOAD, i, false);
		if (sending->is_disk)
			continue;
		mrs[i] = mr_make(devices[SENDER].pd, memory[i], ROOM, sending->access);
		meeting->address[SENDER][i] = (uintptr_t)memory[i] + PAYLOAD;
		meeting->rkey[SENDER][i] = mrs[i]->rkey;
	}
	say(from, 'd');
	while ((letter = hear(from))) {
		bool ok = true;

		if (letter == 'q') {
			if (!sending->is_disk)
				qp_ready(SENDER);
			if (sending->type == IBV_QPT_UD)
				ah = ah_make(&devices[SENDER], &devices[OWN]);
		} else if (letter >= '0' && letter < '0' + ACTIONS) {
			i = letter - '0';
			ok = sending->is_disk ? disk_write(i, memory[i] + PAYLOAD) :
						post(SENDER, i, memory[i] + PAYLOAD, mrs[i]->lkey, ah);
		} else if (letter >= 'a' && letter < 'a' + ACTIONS) {
			ok = act(letter - 'a', mrs[letter - 'a']);
		}
		say(from, ok ? 'd' : 'n');
	}
	_exit(0);
}

static bool sender_start(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		die("socketpair: %s", strerror(errno));
	sender = fork_child();
	if (!sender) {
		close(ends[0]);
		sender_run(ends[1]);
	}
	close(ends[1]);
	line = ends[0];
	return hear_done();
}

static bool sender_end(void)
{
	int status;

	close(line);
	line = -1;
	if (waitpid(sender, &status, 0) != sender || status) {
		printf("# the sender ends with %#x\n", status);
		return false;
	}
	return true;
}

/* Message after message goes to memory of its own. */
static bool receive(unsigned int message)
{
	uint32_t grh = sending->type == IBV_QPT_UD ? GRH : 0;
	struct ibv_sge sge = region_sge(&sinks[message], PAYLOAD - grh, sending->size + grh);
	struct ibv_recv_wr wr = { .wr_id = ACTIONS + message, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	meeting->address[OWN][message] = (uintptr_t)sinks[message].memory + PAYLOAD;
	meeting->rkey[OWN][message] = sinks[message].mr->rkey;
	memset(sinks[message].memory, 0, ROOM);
	return !is_received() || sending->opcode != IBV_WR_SEND || !ibv_post_recv(qp, &wr, &bad);
}

/* Sent, and the sender knows it. */
static bool message_send(unsigned int message)
{
	uint32_t packets = 1 + (sending->size - 1) / mtu_bytes(devices[SENDER].active_mtu);

	last_psn = meeting->psn[SENDER] + packets * (message + 1) - 1;
	if (sending->opcode != IBV_WR_RDMA_READ)
		return ask('0' + message);
	return post(OWN, message, sinks[message].memory + PAYLOAD, sinks[message].mr->lkey, NULL);
}

static bool action_do(enum action action)
{
	bool ok = action == EXIT ? sender_end() : ask('a' + action);

	if (action == UNMAP || action == EXIT)
		fill(memory[action] + PAYLOAD, action, true);
	return ok;
}

/* Looks at all that there is; whether anything was of this row. */
static bool look(void)
{
	bool any = false;
	ssize_t size;

	while ((size = way->take(0)) >= 0)
		any |= look_at(frame, size);
	if (errno != EAGAIN)
		die("%s: %s", way->name, strerror(errno));
	return any;
}

/* Until messages first to last have been seen. */
static bool look_for(unsigned int first, unsigned int last)
{
	uint64_t end = now_ms() + patience_ms(WAIT_MS) + delay_ms;
	unsigned int i;

	for (i = first; i <= last; i++) {
		while (look(), sight.covered[i] < sending->size / 8) {
			if (now_ms() > end) {
				printf("# %s: %u of %u bytes are seen\n", action_names[i], sight.covered[i] * 8,
				       sending->size);
				return false;
			}
			go_on();
		}
	}
	return true;
}

/* Looks at the first packet of this row that waits, and leaves it there. */
static bool peek(void)
{
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	struct sight before = sight;

	while (now_ms() < end) {
		ssize_t size = way->take(MSG_PEEK);

		if (size >= 0 && look_at(frame, size)) {
			/* To be seen whole it has to be read, too. */
			memcpy(before.late, sight.late, sizeof(before.late));
			before.strange = sight.strange;
			sight = before;
			return true;
		}
		if (size >= 0)
			way->take(0);
		else
			go_on();
	}
	printf("# there is no packet to be peeked at\n");
	return false;
}

/* Packets wait while the sender acts: message by message, as only the first of a queue can be peeked at. */
static bool run_peeks(void)
{
	unsigned int i, j;

	for (i = 0; i < ACTIONS; i++) {
		if (!message_send(i) || !peek() || !action_do(i))
			return false;
		for (j = 0; j < PEEKS; j++) {
			if (!peek())
				return false;
		}
		if (!look_for(i, i))
			return false;
	}
	return true;
}

static bool run_later(bool *early)
{
	unsigned int i;

	for (i = 0; i < ACTIONS; i++) {
		if (!message_send(i))
			return false;
	}
	for (i = 0; i < ACTIONS; i++) {
		if (!action_do(i))
			return false;
	}
	*early = way->delays && look();
	return look_for(0, ACTIONS - 1);
}

/* What has arrived is what was sent. */
static bool arrives(void)
{
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	uint8_t expected[LONGEST];
	unsigned int i;

	for (i = 0; sending->is_disk && i < ACTIONS; i++) {
		fill(expected, i, false);
		disk_read(i, sinks[i].memory + PAYLOAD);
		if (memcmp(sinks[i].memory + PAYLOAD, expected, sending->size)) {
			printf("# %s: what is on the disk is not what was written\n", action_names[i]);
			return false;
		}
	}
	if (!is_received())
		return true;
	for (i = 0; i < ACTIONS; i++) {
		fill(expected, i, false);
		while (memcmp(sinks[i].memory + PAYLOAD, expected, sending->size)) {
			if (now_ms() > end) {
				printf("# %s: what arrives is not what was sent\n", action_names[i]);
				return false;
			}
			if (way->accept)
				way->accept();
			usleep(1000);
		}
	}
	return true;
}

/* One try; early if a packet came before it was meant to. */
static bool run_once(bool *early)
{
	unsigned int i;
	bool ok;

	*early = false;
	nonce = random_next() | 0x80000000;
	memset(&sight, 0, sizeof(sight));
	for (i = 0; i < ACTIONS; i++)
		memory[i] = is_shared(i) ? memory_make(true) : NULL;
	last_psn = 0;
	meeting->qpn[OWN] = VM_QPN;
	meeting->psn[OWN] = 0;
	if (is_received())
		qp_open(OWN);
	ok = sender_start();
	if (ok && is_received())
		qp_ready(OWN);
	for (i = 0; ok && i < ACTIONS; i++) {
		if (!receive(i))
			die("ibv_post_recv");
	}
	ok = ok && ask('q') && (way->peeks ? run_peeks() : run_later(early)) && arrives();
	if (line >= 0) {
		close(line);
		kill(sender, SIGKILL);
		/* It may wait for the disk, and that for packets which this process has to accept. */
		while (!waitpid(sender, NULL, WNOHANG)) {
			if (way->accept)
				way->accept();
			usleep(2000);
		}
	}
	if (is_received() && (ibv_destroy_qp(qp) || ibv_destroy_cq(cq)))
		die("an object does not go away: %s", strerror(errno));
	for (i = 0; i < ACTIONS; i++) {
		if (memory[i])
			munmap(memory[i], ROOM);
	}
	return ok;
}

/* Whether the peer has seen bytes that it must not see, early or not. */
static bool has_leaked(void)
{
	unsigned int i;

	for (i = 0; i < ACTIONS; i++) {
		if (sight.late[i])
			return true;
	}
	return sight.strange;
}

static bool run_row(int which)
{
	bool early, ok;
	unsigned int i;

	sending = &sendings[which];
	delay_ms = way->delays ? 300 : 0;
	do {
		if (way->delays && !netem_delay())
			return false;
		ok = run_once(&early);
		delay_ms *= 2;
	} while (early && ok && !has_leaked() && delay_ms < 30000);
	if (early) {
		printf("# packets were seen before the last action, with a delay of %u ms\n", delay_ms / 2);
		ok = false;
	}
	for (i = 0; i < ACTIONS; i++) {
		if (!sight.late[i])
			continue;
		printf("# %s: %llu bytes are seen that were written after the completion\n", action_names[i],
		       (unsigned long long)sight.late[i] * 8);
		leaks++;
		ok = false;
	}
	return ok && !sight.strange;
}

static bool is_row(const struct sending *what, const struct way *how)
{
	if (what->is_disk != !!disk)
		return false;
	if (how->holds && what->type == IBV_QPT_RC)
		return false;
	return !how->answers || (!what->is_disk && what->type == IBV_QPT_RC && what->opcode != IBV_WR_RDMA_READ);
}

static void add(void)
{
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(ways); i++)
		for (j = 0; j < ARRAY_SIZE(sendings); j++)
			if (is_row(&sendings[j], &ways[i]))
				row_add((struct row){
					.name = row_name("%s, %s", sendings[j].name, ways[i].name),
					.run_with = run_row, .argument = j, .needs = i,
				});
}

static void way_end(void)
{
	if (way && !way->end())
		ksft_print_msg("%s: what it needs does not go away\n", way->name);
}

/* The rows of a way follow one another. */
static bool run_on_way(const struct row *row)
{
	if (way != &ways[row->needs]) {
		way_end();
		way = &ways[row->needs];
		way_is_ready = way->begin();
	}
	combinations += ACTIONS;
	return way_is_ready && row_run(row);
}

static void begin(char **operands)
{
	int i;

	disk_file = disk ? operands[6] : NULL;
	meeting = pages_make(sizeof(*meeting), MAP_SHARED | MAP_ANONYMOUS);
	for (i = 0; i < 2; i++) {
		device_open(&devices[i], operands[3 * i], 4);
		namespaces[i] = operands[3 * i + 1];
		netdevs[i] = operands[3 * i + 2];
		close(capture_open(namespaces[i], netdevs[i], macs[i]));
	}
	for (i = 0; i < ACTIONS; i++)
		region_make(&sinks[i], &devices[OWN], ROOM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void end(void)
{
	int i;

	way_end();
	ksft_print_msg("%u combinations, of which %u show what was written after the completion\n", combinations,
		       leaks);
	for (i = 0; i < ACTIONS; i++)
		region_free(&sinks[i]);
	for (i = 0; i < 2; i++)
		device_close(&devices[i]);
}

static bool take_option(int option, const char *argument)
{
	disk = argument;
	return true;
}

const struct test test = {
	.operands = "DEVICE NAMESPACE NETDEV DEVICE NAMESPACE NETDEV FILE", .options = "d:", .option = take_option,
	.add = add, .begin = begin, .end = end, .run_row = run_on_way,
};
