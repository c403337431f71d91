// SPDX-License-Identifier: GPL-2.0
/*
 * What the RC example of the "RDMA Aware Networks Programming" manual (chapter 7) is about, written from its
 * synopsis: two processes tell each other over TCP what they need to know, and bring up an RC queue pair each.
 * The server sends a message; then it is the client alone that reads another from the server's memory and
 * writes a third into it.
 *
 * example_rc [-p TCP-PORT] [-d DEVICE] [-g GID-INDEX] [SERVER]
 */

#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 1
#define SIZE 64
#define SENT "the server sends this"
#define READ "the client reads this from the server"
#define WRITTEN "the client writes this to the server"
#define POLL_SECONDS 20

/* What one end tells the other, in network order. */
struct connection {
	uint64_t address;
	uint32_t rkey;
	uint32_t qpn;
	uint32_t psn;
	uint8_t gid[16];
} __attribute__((packed));

static struct {
	const char *device, *server, *tcp_port;
	int gid_index;
} options = { .tcp_port = "19875" };

static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	struct connection peer;
	char *buffer;
	int socket;
} resources;

static int connect_tcp(void)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	int listener, connected, one = 1, error;
	struct addrinfo *found;

	error = getaddrinfo(options.server, options.tcp_port, &hints, &found);
	if (error)
		errx(1, "%s: %s", options.server ? options.server : "any address", gai_strerror(error));
	listener = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
	if (listener < 0)
		err(1, "socket");
	if (options.server) {
		if (connect(listener, found->ai_addr, found->ai_addrlen))
			err(1, "connect");
		freeaddrinfo(found);
		return listener;
	}
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, found->ai_addr, found->ai_addrlen) || listen(listener, 1))
		err(1, "port %s", options.tcp_port);
	freeaddrinfo(found);
	connected = accept(listener, NULL, NULL);
	if (connected < 0)
		err(1, "accept");
	close(listener);
	return connected;
}

/* Gives and takes as many bytes. With one byte each it makes the two wait for each other. */
static void exchange(const void *ours, void *theirs, size_t size)
{
	size_t done = 0;
	ssize_t got;

	if (write(resources.socket, ours, size) != (ssize_t)size)
		err(1, "write");
	while (done < size) {
		got = read(resources.socket, (char *)theirs + done, size - done);
		if (got <= 0)
			errx(1, "the other end is gone");
		done += got;
	}
}

static void synchronize(void)
{
	char theirs;

	exchange("s", &theirs, 1);
}

static void create(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int i;

	for (i = 0; list && list[i]; i++) {
		if (!options.device || !strcmp(ibv_get_device_name(list[i]), options.device)) {
			resources.context = ibv_open_device(list[i]);
			break;
		}
	}
	if (!resources.context)
		errx(1, "there is no device %s", options.device ? options.device : "at all");
	ibv_free_device_list(list);
	resources.pd = ibv_alloc_pd(resources.context);
	resources.cq = ibv_create_cq(resources.context, 1, NULL, NULL, 0);
	resources.buffer = calloc(1, SIZE);
	if (!resources.pd || !resources.cq || !resources.buffer)
		errx(1, "no protection domain, completion queue or memory");
	resources.mr = ibv_reg_mr(resources.pd, resources.buffer, SIZE,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = resources.cq;
	init.recv_cq = resources.cq;
	resources.qp = resources.mr ? ibv_create_qp(resources.pd, &init) : NULL;
	if (!resources.qp)
		err(1, "no memory region or queue pair");
}

static void modify(enum ibv_qp_state state, struct ibv_qp_attr attr, int mask)
{
	int error;

	attr.qp_state = state;
	error = ibv_modify_qp(resources.qp, &attr, IBV_QP_STATE | mask);
	if (error)
		errx(1, "to state %d: %s", state, strerror(error));
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)resources.buffer, SIZE, resources.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(resources.qp, &wr, &bad))
		errx(1, "ibv_post_recv");
}

static void connect_qp(void)
{
	struct connection ours = {
		.address = htobe64((uintptr_t)resources.buffer),
		.rkey = htonl(resources.mr->rkey),
		.qpn = htonl(resources.qp->qp_num),
		.psn = htonl((getpid() * 7919) & 0xffffff),
	};
	struct ibv_ah_attr way = { .is_global = 1, .port_num = PORT,
				   .grh = { .sgid_index = options.gid_index, .hop_limit = 64 } };
	union ibv_gid gid;

	if (ibv_query_gid(resources.context, PORT, options.gid_index, &gid))
		errx(1, "there is no GID %d", options.gid_index);
	memcpy(ours.gid, gid.raw, sizeof(ours.gid));
	exchange(&ours, &resources.peer, sizeof(ours));
	memcpy(way.grh.dgid.raw, resources.peer.gid, sizeof(resources.peer.gid));
	modify(IBV_QPS_INIT, (struct ibv_qp_attr){
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	}, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (options.server)
		post_receive();
	modify(IBV_QPS_RTR, (struct ibv_qp_attr){
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = ntohl(resources.peer.qpn),
		.rq_psn = ntohl(resources.peer.psn),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = way,
	}, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	   IBV_QP_MIN_RNR_TIMER);
	modify(IBV_QPS_RTS, (struct ibv_qp_attr){
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = ntohl(ours.psn),
		.max_rd_atomic = 1,
	}, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	/* Nobody sends before both are ready. */
	synchronize();
}

static void post_send(enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)resources.buffer, SIZE, resources.mr->lkey };
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { be64toh(resources.peer.address), ntohl(resources.peer.rkey) },
	}, *bad;

	if (ibv_post_send(resources.qp, &wr, &bad))
		errx(1, "ibv_post_send");
}

static void poll_completion(enum ibv_wc_opcode opcode)
{
	time_t end = time(NULL) + POLL_SECONDS;
	struct ibv_wc wc;
	int found;

	do
		found = ibv_poll_cq(resources.cq, 1, &wc);
	while (!found && time(NULL) <= end);
	if (found != 1)
		errx(1, "no completion in %d s", POLL_SECONDS);
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode)
		errx(1, "%s, opcode %d", ibv_wc_status_str(wc.status), wc.opcode);
}

static void expect(const char *text)
{
	printf("%s\n", resources.buffer);
	if (strcmp(resources.buffer, text))
		errx(1, "that should be: %s", text);
}

static void set(const char *text)
{
	memset(resources.buffer, 0, SIZE);
	strncpy(resources.buffer, text, SIZE - 1);
}

static void destroy(void)
{
	if (ibv_destroy_qp(resources.qp) || ibv_dereg_mr(resources.mr) || ibv_destroy_cq(resources.cq) ||
	    ibv_dealloc_pd(resources.pd) || ibv_close_device(resources.context))
		errx(1, "what is not used any more cannot be destroyed");
	free(resources.buffer);
	close(resources.socket);
}

int main(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "p:d:g:")) != -1) {
		switch (option) {
		case 'p': options.tcp_port = optarg; break;
		case 'd': options.device = optarg; break;
		case 'g': options.gid_index = atoi(optarg); break;
		default: return 1;
		}
	}
	options.server = argv[optind];
	resources.socket = connect_tcp();
	create();
	connect_qp();
	if (options.server) {
		poll_completion(IBV_WC_RECV);
		expect(SENT);
	} else {
		set(SENT);
		post_send(IBV_WR_SEND);
		poll_completion(IBV_WC_SEND);
		set(READ);
	}
	synchronize();
	if (options.server) {
		post_send(IBV_WR_RDMA_READ);
		poll_completion(IBV_WC_RDMA_READ);
		expect(READ);
		set(WRITTEN);
		post_send(IBV_WR_RDMA_WRITE);
		poll_completion(IBV_WC_RDMA_WRITE);
	}
	synchronize();
	if (!options.server)
		expect(WRITTEN);
	destroy();
	return 0;
}
