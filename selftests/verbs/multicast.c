// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast (UD) between two devices: who gets a packet, its bytes and its network
 * header, and who must not get it.
 *
 * multicast [-4|-6] -h DEVICE
 *	holds an attached queue pair, says "ready", and stays until it is killed
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "namespace.h"
#include "test.h"

#define SLOT (4096 + GRH)
#define QKEY 0x11223344
#define GROUP_QPN 0xffffff
#define WAIT_MS 10000
#define QUIET_MS 300
/* A copy too many comes with the one that was expected, or soon after it. */
#define SURPLUS_MS 20
#define HOPS 7
/* Of a datagram that is scattered over them. */
#define PAGES 16

/* At each device three queue pairs that can be in groups. */
#define MEMBERS 3
/* All of them, a bit each: the lowest is that of the first one of the first device. */
#define EVERYBODY ((1u << 2 * MEMBERS) - 1)

struct member {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct region sink;
	bool attached;
	/* How many of its receives are posted, and not used. */
	unsigned int receives;
};

struct end {
	struct device device;
	struct region source;
	struct ibv_cq *cq;
	struct ibv_qp *sender;
	struct ibv_ah *ah;
	struct member members[MEMBERS];
};

static struct end ends[2];
static union ibv_gid group;

static union ibv_gid group_number(unsigned int number)
{
	char text[64];
	union ibv_gid gid;

	if (family == 4)
		snprintf(text, sizeof(text), "::ffff:239.77.%u.%u", number >> 8, number & 0xff);
	else
		snprintf(text, sizeof(text), "ff15::77:%x", number);
	if (inet_pton(AF_INET6, text, &gid) != 1)
		die("%s", text);
	return gid;
}

static struct ibv_ah *group_ah(struct end *from, const union ibv_gid *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = PORT,
		.grh = { .dgid = *to, .sgid_index = from->device.gid_index, .hop_limit = HOPS },
	};
	struct ibv_ah *ah = ibv_create_ah(from->device.pd, &attr);

	if (!ah)
		die("ibv_create_ah: %s", strerror(errno));
	return ah;
}

static void attach(struct member *member)
{
	int error = ibv_attach_mcast(member->qp, &group, 0);

	if (error)
		die("ibv_attach_mcast: %s", strerror(error));
	member->attached = true;
}

static void detach(struct member *member)
{
	int error = ibv_detach_mcast(member->qp, &group, 0);

	if (error)
		die("ibv_detach_mcast: %s", strerror(error));
	member->attached = false;
}

static struct member *member_at(unsigned int number)
{
	return &ends[number / MEMBERS].members[number % MEMBERS];
}

static void attach_all(void)
{
	unsigned int i;

	for (i = 0; i < 2 * MEMBERS; i++)
		attach(member_at(i));
}

static void detach_all(void)
{
	unsigned int i;

	for (i = 0; i < 2 * MEMBERS; i++) {
		if (member_at(i)->attached)
			detach(member_at(i));
	}
}

/* Two receives: one more than a member may use of a packet. Without a receive a copy too many would be dropped unseen. */
static void post_receives(struct member *member)
{
	struct ibv_sge sge = region_sge(&member->sink, 0, SLOT);
	struct ibv_recv_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1 };

	for (; member->receives < 2; member->receives++)
		recv_post(member->qp, &wr);
}

static bool send_from(struct end *from, struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_ah *ah,
		      size_t at, uint32_t length, uint32_t qpn)
{
	struct ibv_sge sge = region_sge(&from->source, at, length);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htonl(length),
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	};
	struct ibv_wc wc;

	send_post(qp, &wr);
	do {
		if (!cq_poll(cq, &wc, WAIT_MS)) {
			printf("# the send does not complete\n");
			return false;
		}
		/* A looped back copy may be first. */
	} while (wc.opcode != IBV_WC_SEND);
	return wc.status == IBV_WC_SUCCESS;
}

static bool received(struct member *member, struct end *from, struct ibv_qp *qp, size_t at,
		     uint32_t length, const union ibv_gid *to)
{
	struct ibv_wc wc;

	if (!cq_poll(member->cq, &wc, WAIT_MS)) {
		printf("# nothing arrives\n");
		return false;
	}
	member->receives--;
	if (wc.status || wc.opcode != IBV_WC_RECV || wc.wr_id != 77 || wc.byte_len != GRH + length ||
	    wc.qp_num != member->qp->qp_num || wc.src_qp != qp->qp_num ||
	    wc.wc_flags != (IBV_WC_GRH | IBV_WC_WITH_IMM) || wc.imm_data != htonl(length)) {
		printf("# receive: %s, opcode %d, byte_len %u, src_qp %#x, flags %#x\n",
		       ibv_wc_status_str(wc.status), wc.opcode, wc.byte_len, wc.src_qp, wc.wc_flags);
		return false;
	}
	if (!grh_check(member->sink.memory, &from->device.gid, to, length, HOPS))
		return false;
	memcpy(member->sink.expected, member->sink.memory, GRH);
	memcpy(member->sink.expected + GRH, from->source.expected + at, length);
	return region_check(&member->sink, "sink");
}

/*
 * Sends one packet to a group; those whose bit is set in expected must get it, once,
 * and all others nothing, though they have receives, too.
 */
static bool run_to(unsigned int from, uint32_t length, unsigned int expected, struct ibv_ah *ah,
		   const union ibv_gid *to, uint32_t qpn)
{
	struct end *end = &ends[from];
	size_t at = random_between(0, 2000);
	unsigned int i;
	bool good;

	for (i = 0; i < 2 * MEMBERS; i++)
		post_receives(member_at(i));
	good = send_from(end, end->sender, end->cq, ah, at, length, qpn);
	for (i = 0; good && i < 2 * MEMBERS; i++) {
		if (expected & 1 << i && !received(member_at(i), end, end->sender, at, length, to)) {
			printf("# device %u, queue pair %u\n", i / MEMBERS + 1, i % MEMBERS + 1);
			good = false;
		}
	}
	/* A copy that comes even later does not pass for the next packet, which has another length or sender. */
	usleep(quiet_ms(expected == EVERYBODY && length != 1 ? SURPLUS_MS : QUIET_MS) * 1000);
	for (i = 0; good && i < 2 * MEMBERS; i++) {
		if (cq_quiet(member_at(i)->cq, 0))
			continue;
		printf("# device %u, queue pair %u has too much\n", i / MEMBERS + 1,
		       i % MEMBERS + 1);
		good = false;
	}
	return good;
}

static bool run(unsigned int from, uint32_t length, unsigned int expected)
{
	return run_to(from, length, expected, ends[from].ah, &group, GROUP_QPN);
}

/* One from each device. */
static bool run_all(unsigned int expected)
{
	return run(0, 64, expected) && run(1, 65, expected);
}

static void qp_again(struct member *member, uint32_t qkey)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int error = ibv_modify_qp(member->qp, &attr, IBV_QP_STATE);

	if (!error)
		error = qp_init(member->qp, 0, qkey);
	if (error)
		die("to INIT: %s", strerror(error));
	member->receives = 0;
	qp_ready_ud(member->qp);
}

/* Everybody at both devices, the sender's own included, in all lengths. */
static bool row_everybody(void)
{
	uint32_t mtu = mtu_bytes(ends[0].device.active_mtu), i;
	const uint32_t lengths[] = { 1, 3, 4, 255, 1024, mtu - 1, mtu };
	bool good = true;

	attach_all();
	for (i = 0; good && i < 2 * ARRAY_SIZE(lengths); i++)
		good = run(i % 2, lengths[i / 2], EVERYBODY);
	return good;
}

/* A queue pair that is attached gets what it sends. */
static bool row_sender(void)
{
	struct member *member = &ends[0].members[1], *other = &ends[1].members[0];

	attach_all();
	if (!run(0, 50, EVERYBODY))
		return false;
	post_receives(member);
	post_receives(other);
	/* Both completions come to one queue; the looped back one may be first. */
	{
		struct ibv_sge sge = region_sge(&ends[0].source, 0, 20);
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_SEND,
			.sg_list = &sge,
			.num_sge = 1,
			.wr.ud = {
				.ah = ends[0].ah,
				.remote_qpn = GROUP_QPN,
				.remote_qkey = QKEY,
			},
		};
		struct ibv_send_wr *bad;
		struct ibv_wc wc;

		if (ibv_post_send(member->qp, &wr, &bad))
			return false;
		if (!cq_poll(member->cq, &wc, WAIT_MS) || wc.status ||
		    wc.src_qp != member->qp->qp_num || wc.byte_len != GRH + 20) {
			printf("# its own packet does not come\n");
			return false;
		}
		memcpy(member->sink.expected, member->sink.memory, GRH);
		memcpy(member->sink.expected + GRH, ends[0].source.expected, 20);
		if (!region_check(&member->sink, "sink"))
			return false;
		if (!cq_poll(other->cq, &wc, WAIT_MS) || wc.status || wc.src_qp != member->qp->qp_num)
			return false;
		memcpy(other->sink.expected, other->sink.memory, GRH);
		memcpy(other->sink.expected + GRH, ends[0].source.expected, 20);
		return region_check(&other->sink, "sink") && cq_quiet(member->cq, SURPLUS_MS) &&
		       cq_quiet(other->cq, SURPLUS_MS);
	}
}

/* The datagram waits for one page after the other, more often than datagrams to this group are sent at once. */
static bool row_absent(void)
{
	struct member *member = &ends[0].members[0];
	const struct device *device = &ends[0].device;
	struct depth depth = { .send = 1, .receive = 1, .sges = PAGES };
	const size_t page = sysconf(_SC_PAGESIZE);
	struct ibv_sge sges[PAGES];
	struct ibv_send_wr wr = {
		.wr_id = 5,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sges,
		.num_sge = PAGES,
		.wr.ud = { .ah = ends[0].ah, .remote_qpn = GROUP_QPN, .remote_qkey = QKEY },
	};
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ibv_wc wc;
	unsigned int i;
	bool good;

	memory = pages_make(PAGES * page, MAP_PRIVATE | MAP_ANONYMOUS);
	mr = mr_make(device->pd, memory, PAGES * page, IBV_ACCESS_ON_DEMAND);
	for (i = 0; i < PAGES; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)memory + i * page, 4, mr->lkey };
	cq = cq_make(device, 2);
	qp = ud_make(&ends[0].device, cq, cq, depth, QKEY);
	attach(member);
	post_receives(member);
	send_post(qp, &wr);
	good = cq_expect(cq, "the send", 5, IBV_WC_SUCCESS, WAIT_MS) && cq_poll(member->cq, &wc, WAIT_MS) &&
	       !wc.status && wc.byte_len == GRH + 4 * PAGES;
	if (good) {
		memcpy(member->sink.expected, member->sink.memory, GRH);
		memset(member->sink.expected + GRH, 0, 4 * PAGES);
		good = region_check(&member->sink, "sink");
	}
	qp_free(qp);
	cq_free(cq);
	mr_free(mr);
	munmap(memory, PAGES * page);
	return good;
}

static bool row_qkey(void)
{
	bool good;

	attach_all();
	qp_again(&ends[0].members[0], QKEY + 1);
	qp_again(&ends[1].members[2], QKEY + 1);
	good = run_all(036);
	qp_again(&ends[0].members[0], QKEY);
	qp_again(&ends[1].members[2], QKEY);
	return good && run_all(EVERYBODY);
}

static bool row_detach(void)
{
	bool good;

	attach_all();
	detach(&ends[0].members[2]);
	detach(&ends[1].members[0]);
	good = run_all(063);
	detach_all();
	return good && run_all(0);
}

/* The second time is no news; with another MLID it is another attachment. */
static bool row_twice(void)
{
	struct member *member = &ends[1].members[1];
	bool good;

	attach(member);
	attach(member);
	if (!run_all(020))
		return false;
	if (ibv_attach_mcast(member->qp, &group, 0xc001))
		return false;
	good = run_all(020);
	detach(member);
	good = good && run_all(020);
	if (ibv_detach_mcast(member->qp, &group, 0xc001))
		return false;
	return good && run_all(0) && ibv_detach_mcast(member->qp, &group, 0) == EINVAL;
}

/* A queue pair is not destroyed as long as it is attached; a process that ends is. */
static bool row_destroy(void)
{
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };
	struct end *end = &ends[0];
	struct ibv_qp *qp = qp_make(&end->device, IBV_QPT_UD, end->cq, end->cq, depth, NULL);

	return !ibv_attach_mcast(qp, &group, 0) && ibv_destroy_qp(qp) == EBUSY &&
	       !ibv_detach_mcast(qp, &group, 0) && !ibv_destroy_qp(qp);
}

static bool refused(struct ibv_qp *qp, const char *gid)
{
	union ibv_gid raw;

	if (inet_pton(AF_INET6, gid, &raw) != 1)
		die("%s", gid);
	if (ibv_attach_mcast(qp, &raw, 0) == EINVAL)
		return true;
	printf("# %s is not refused\n", gid);
	return false;
}

static bool row_refused(void)
{
	struct depth depth = { .send = 4, .receive = 4, .sges = 1 };
	struct end *end = &ends[0];
	struct ibv_qp *rc = qp_make(&end->device, IBV_QPT_RC, end->cq, end->cq, depth, NULL);
	bool good = ibv_attach_mcast(rc, &group, 0) == EINVAL &&
		    refused(end->sender, "::ffff:10.0.0.2") && refused(end->sender, "fd00::2") &&
		    refused(end->sender, "::ffff:255.255.255.255") && refused(end->sender, "::") &&
		    ibv_detach_mcast(end->sender, &group, 0) == EINVAL;

	return !ibv_destroy_qp(rc) && good;
}

/* The number of a group's packets is 0xffffff; that of a queue pair's own is not. */
static bool row_numbers(void)
{
	struct member *member = &ends[1].members[0];
	struct ibv_ah *ah = ah_make(&ends[0].device, &ends[1].device);
	bool good;

	attach(member);
	good = run_to(0, 30, 0, ends[0].ah, &group, member->qp->qp_num) &&
	       run_to(0, 31, 0, ah, &group, GROUP_QPN);
	good = good && run_all(010);
	detach(member);
	return !ibv_destroy_ah(ah) && good;
}

/* ff0e::ffff:a.b.c.d is an IPv6 group, and that IPv4 group for those of IPv4. */
static bool row_forms(void)
{
	union ibv_gid form = group_number(9), plain;
	struct member *member = &ends[1].members[0], *other = &ends[1].members[1];
	struct ibv_ah *by_form, *by_plain;
	bool good;

	inet_pton(AF_INET6, "ff0e::ffff:239.77.0.9", &form);
	inet_pton(AF_INET6, family == 4 ? "::ffff:239.77.0.9" : "ff0e::ffff:239.77.0.9", &plain);
	if (ibv_attach_mcast(member->qp, &form, 0) || ibv_attach_mcast(other->qp, &plain, 0))
		return false;
	by_form = group_ah(&ends[0], &form);
	by_plain = group_ah(&ends[0], &plain);
	good = run_to(0, 40, 030, by_form, &plain, GROUP_QPN) &&
	       run_to(0, 41, 030, by_plain, &plain, GROUP_QPN);
	/* By both at once: one copy, and one detach leaves the other. */
	if (family == 4) {
		good = good && !ibv_attach_mcast(member->qp, &plain, 0) &&
		       run_to(0, 42, 030, by_form, &plain, GROUP_QPN) &&
		       !ibv_detach_mcast(member->qp, &form, 0) &&
		       run_to(0, 43, 030, by_form, &plain, GROUP_QPN) &&
		       !ibv_detach_mcast(member->qp, &plain, 0);
	} else {
		good = good && !ibv_detach_mcast(member->qp, &form, 0);
	}
	good = good && run_to(0, 44, 020, by_form, &plain, GROUP_QPN) &&
	       !ibv_detach_mcast(other->qp, &plain, 0);
	return !ibv_destroy_ah(by_form) && !ibv_destroy_ah(by_plain) && good;
}

/* In its namespace, the index of the netdev that has a device's address: there may be others, as those of tunnels. */
static unsigned int netdev_index(const struct device *device)
{
	char path[128], name[IF_NAMESIZE] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%d",
		 ibv_get_device_name(device->context->device), device->gid_index);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%15s", name) != 1)
		die("%s: %s", path, strerror(errno));
	fclose(file);
	return if_nametoindex(name);
}

/* What comes for a group that only others of the host are in is counted. */
static bool row_nobody(void)
{
	unsigned long long before = 0;
	struct ipv6_mreq mreq6 = { .ipv6mr_multiaddr = *(struct in6_addr *)&group };
	struct ip_mreqn mreq = { .imr_address.s_addr = *(uint32_t *)(ends[1].device.gid.raw + 12) };
	int home, sock, error;
	bool good = false;
	unsigned int i;

	home = namespace_enter("n2");
	sock = socket(family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
	mreq.imr_multiaddr.s_addr = *(uint32_t *)(group.raw + 12);
	if (family == 4) {
		error = setsockopt(sock, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq));
	} else {
		mreq6.ipv6mr_interface = netdev_index(&ends[1].device);
		error = setsockopt(sock, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &mreq6, sizeof(mreq6));
	}
	if (error)
		die("joining: %s", strerror(errno));
	namespace_leave(home);
	before = device_counter(&ends[1].device, "unknown_group");
	if (!run(0, 100, 0))
		return false;
	for (i = 0; !good && i < 50; i++) {
		usleep(20000);
		good = device_counter(&ends[1].device, "unknown_group") == before + 1;
	}
	close(sock);
	return good;
}

/* As many queue pairs and groups as the device says, and not one more. */
static bool row_limits(void)
{
	struct end *end = &ends[0];
	struct depth depth = { .send = 1, .receive = 1, .sges = 1 };
	int most = end->device.attr.max_mcast_qp_attach, groups = end->device.attr.max_mcast_grp;
	struct ibv_qp *qps[256];
	union ibv_gid gid;
	int i, error = 0;
	bool good;

	if (most < 1 || most > 255 || groups < 1 || groups > 16384 ||
	    end->device.attr.max_total_mcast_qp_attach < groups) {
		printf("# limits of %d and %d\n", most, groups);
		return false;
	}
	for (i = 0; i <= most; i++)
		qps[i] = qp_make(&end->device, IBV_QPT_UD, end->cq, end->cq, depth, NULL);
	for (i = 0; i < most && !error; i++)
		error = ibv_attach_mcast(qps[i], &group, 0);
	good = !error && ibv_attach_mcast(qps[most], &group, 0) == ENOMEM;
	if (!good)
		printf("# queue pair %d of %d: %s\n", i, most, strerror(error));
	for (i = 0; i < most; i++)
		ibv_detach_mcast(qps[i], &group, 0);
	for (i = 0; i < groups && !error; i++) {
		gid = group_number(256 + i);
		error = ibv_attach_mcast(qps[0], &gid, 0);
	}
	good = good && !error && ibv_attach_mcast(qps[1], &group, 0) == ENOMEM;
	if (error)
		printf("# group %d of %d: %s\n", i, groups, strerror(error));
	for (i = 0; i < groups; i++) {
		gid = group_number(256 + i);
		error = ibv_detach_mcast(qps[0], &gid, 0);
		good = good && !error;
	}
	for (i = 0; i <= most; i++)
		good = !ibv_destroy_qp(qps[i]) && good;
	return good;
}

static void end_make(struct end *end, const char *name)
{
	struct depth depth = { .send = 64, .receive = 64, .sges = 2 };
	struct member *member;

	device_open(&end->device, name, family);
	region_make(&end->source, &end->device, 2 * 4096, 0);
	end->cq = cq_make(&end->device, 256);
	end->sender = ud_make(&end->device, end->cq, end->cq, depth, QKEY);
	for (member = end->members; member < end->members + MEMBERS; member++) {
		region_make(&member->sink, &end->device, SLOT, IBV_ACCESS_LOCAL_WRITE);
		member->cq = cq_make(&end->device, 256);
		member->qp = ud_make(&end->device, member->cq, member->cq, depth, QKEY);
	}
	end->ah = group_ah(end, &group);
}

static void end_close(struct end *end)
{
	struct member *member;

	for (member = end->members; member < end->members + MEMBERS; member++) {
		qp_free(member->qp);
		cq_free(member->cq);
		region_free(&member->sink);
	}
	ah_free(end->ah);
	qp_free(end->sender);
	cq_free(end->cq);
	region_free(&end->source);
	device_close(&end->device);
}

static bool has_gid(const struct device *device)
{
	struct ibv_gid_entry entries[256];
	ssize_t i, count = ibv_query_gid_table(device->context, entries, ARRAY_SIZE(entries), 0);

	for (i = 0; i < count; i++) {
		if (!memcmp(&entries[i].gid, &device->gid, sizeof(device->gid)))
			return true;
	}
	return false;
}

/* Takes the address of the first device away, or puts it back, and waits until it is a GID no more, or again. */
static void address_change(const char *action)
{
	const struct device *device = &ends[0].device;
	const bool is_wanted = !strcmp(action, "add");
	uint64_t limit = now_ms() + patience_ms(WAIT_MS);
	char text[INET6_ADDRSTRLEN];

	inet_ntop(family == 4 ? AF_INET : AF_INET6, family == 4 ? device->gid.raw + 12 : device->gid.raw, text,
		  sizeof(text));
	if (!command("ip -n n1 address %s %s/%d dev %s %s", action, text, family == 4 ? 24 : 64, netdev_of(1),
		     is_wanted && family == 6 ? "nodad" : ""))
		die("ip address %s", action);
	while (has_gid(device) != is_wanted) {
		if (now_ms() > limit)
			die("ip address %s changes no GID", action);
		usleep(1000);
	}
}

/* Address handles of groups are of use again, once the address that they send from is. */
static bool row_address(void)
{
	struct member *member = &ends[1].members[0];
	bool good;

	attach(member);
	good = run(0, 20, 010);
	address_change("del");
	address_change("add");
	good = good && run(0, 21, 010);
	detach(member);
	return good;
}

static const struct row rows[] = {
	{ "everybody in the group", row_everybody },
	{ "the sender too", row_sender },
	{ "from absent pages", row_absent },
	{ "a wrong Q_Key", row_qkey },
	{ "nothing after detach", row_detach },
	{ "attached twice", row_twice },
	{ "destroyed while attached", row_destroy },
	{ "refused arguments", row_refused },
	{ "wrong QP numbers", row_numbers },
	{ "ff0e::ffff:a.b.c.d", row_forms },
	{ "a group of nobody's", row_nobody },
	{ "the limits", row_limits },
	/* The last: the address has another index then. */
	{ "the sender's address goes and comes back", row_address },
};

static void add(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		row_add((struct row){ row_name("IPv%d: %s", family, rows[i].name), rows[i].run });
}

/* Nobody is in the group when the next one begins, which may be any other, and nobody has completions of this one. */
static bool run_row(const struct row *row)
{
	bool good = row_run(row);
	unsigned int i;

	detach_all();
	for (i = 0; i < 2 * MEMBERS; i++) {
		qp_again(member_at(i), QKEY);
		cq_drain(member_at(i)->cq);
	}
	return good;
}

static void begin(char **names)
{
	int i;

	group = group_number(1);
	for (i = 0; i < 2; i++)
		end_make(&ends[i], names[i]);
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++)
		end_close(&ends[i]);
}

/* Is in a group until it is killed. */
static bool hold(int option, const char *device)
{
	int i;

	group = group_number(1);
	end_make(&ends[0], device);
	for (i = 0; i < MEMBERS; i++)
		attach(&ends[0].members[i]);
	printf("ready\n");
	fflush(stdout);
	while (pause() < 0)
		;
	return true;
}

const struct test test = {
	.options = "h:", .option = hold, .add = add, .begin = begin, .end = end, .run_row = run_row,
};
