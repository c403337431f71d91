// SPDX-License-Identifier: GPL-2.0
/*
 * Messages and RDMA of RDS over verbs.
 *
 * rds ADDRESS		answers: each message comes back as it is; or RDMA is done as it asks for, and then it comes back
 * rds ADDRESS PEER	asks, and prints KTAP
 * rds ADDRESS PEER SECONDS
 *			asks for messages for so long; exits with 0 if all came back
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/rds.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"

#define PORT 18634
#define LONGEST 65536
#define AT_ONCE 8
#define ROUNDS 40
#define RDMA_LENGTH 300000

/* What a message begins with. */
struct header {
	uint32_t number;
	/* RDMA that the answerer is to do first, or 0. It answers once more when that is done. */
	uint32_t rdma;
	uint64_t is_right;
};

enum {
	RDMA_READ = 1,
	RDMA_WRITE = 2,
};

static uint8_t out[LONGEST], in[LONGEST];

static int make_socket(const char *address, uint16_t port, struct sockaddr_in *own)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0), transport = RDS_TRANS_IB, size = 1 << 20;
	struct timeval limit = { .tv_sec = 60 };

	*own = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	if (fd < 0)
		err(1, "a socket of RDS");
	if (inet_pton(AF_INET, address, &own->sin_addr) != 1)
		errx(1, "%s is no address", address);
	/* Without this the kernel may choose TCP. */
	if (setsockopt(fd, SOL_RDS, SO_RDS_TRANSPORT, &transport, sizeof(transport)))
		err(1, "SO_RDS_TRANSPORT");
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (bind(fd, (struct sockaddr *)own, sizeof(*own)))
		err(1, "bind to %s", address);
	return fd;
}

/* A send is refused while the peer is congested, or the own buffer full. */
static void send_message(int fd, struct sockaddr_in *to, void *memory, size_t length, void *control, size_t control_size)
{
	struct iovec vector = { .iov_base = memory, .iov_len = length };
	struct msghdr message = {
		.msg_name = to,
		.msg_namelen = sizeof(*to),
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = control_size,
	};
	time_t began = time(NULL);

	while (sendmsg(fd, &message, 0) != (ssize_t)length) {
		struct pollfd ready = { .fd = fd, .events = POLLOUT };

		if ((errno != EAGAIN && errno != ENOBUFS) || time(NULL) - began > 60)
			err(1, "sendmsg of %zu bytes", length);
		poll(&ready, 1, 100);
	}
}

static uint8_t byte_of(uint32_t number, size_t at)
{
	return (uint8_t)((at * 2654435761u + number * 40503u) >> 11);
}

static void fill(uint8_t *memory, size_t from, size_t length, uint32_t number)
{
	size_t at;

	for (at = from; at < length; at++)
		memory[at] = byte_of(number, at);
}

static bool is_filled(const uint8_t *memory, size_t from, size_t length, uint32_t number)
{
	size_t at;

	for (at = from; at < length; at++) {
		if (memory[at] != byte_of(number, at)) {
			ksft_print_msg("message %u: byte %zu is %#x, not %#x\n", number, at, memory[at],
				       byte_of(number, at));
			return false;
		}
	}
	return true;
}

/* Waits until the RDMA is done; nobody sends meanwhile. */
static bool is_rdma_done(int fd)
{
	struct {
		struct cmsghdr header;
		struct rds_rdma_notify notification;
	} control = {};
	struct msghdr message = { .msg_control = &control, .msg_controllen = sizeof(control) };

	return !recvmsg(fd, &message, 0) && control.header.cmsg_level == SOL_RDS &&
	       control.header.cmsg_type == RDS_CMSG_RDMA_STATUS && control.notification.status == RDS_RDMA_SUCCESS;
}

/* Also the peer's key, if there is one in the message; 0 if not. */
static ssize_t receive_message(int fd, struct sockaddr_in *from, rds_rdma_cookie_t *cookie)
{
	union {
		struct cmsghdr header;
		uint8_t bytes[256];
	} control;
	struct iovec piece = { .iov_base = in, .iov_len = sizeof(in) };
	struct msghdr message = {
		.msg_name = from,
		.msg_namelen = sizeof(*from),
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t length = recvmsg(fd, &message, 0);
	struct cmsghdr *part;

	*cookie = 0;
	for (part = length < 0 ? NULL : CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
		if (part->cmsg_level == SOL_RDS && part->cmsg_type == RDS_CMSG_RDMA_DEST)
			memcpy(cookie, CMSG_DATA(part), sizeof(*cookie));
	}
	return length;
}

static void answer(const char *address)
{
	static uint8_t memory[RDMA_LENGTH];
	struct sockaddr_in own, from;
	int fd = make_socket(address, PORT, &own);

	printf("listening\n");
	fflush(stdout);
	for (;;) {
		rds_rdma_cookie_t cookie;
		ssize_t length = receive_message(fd, &from, &cookie);
		struct header header;
		struct rds_iovec local = { .addr = (uintptr_t)memory, .bytes = sizeof(memory) };
		struct {
			struct cmsghdr header;
			struct rds_rdma_args args;
		} control = {
			.header = {
				.cmsg_len = CMSG_LEN(sizeof(control.args)),
				.cmsg_level = SOL_RDS,
				.cmsg_type = RDS_CMSG_RDMA_ARGS,
			},
		};

		if (length < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (length < (ssize_t)sizeof(header))
			err(1, "recvmsg: %zd", length);
		memcpy(&header, in, sizeof(header));
		if (!header.rdma) {
			send_message(fd, &from, in, (size_t)length, NULL, 0);
			continue;
		}
		if (header.rdma == RDMA_WRITE)
			fill(memory, 0, sizeof(memory), header.number);
		control.args = (struct rds_rdma_args){
			.cookie = cookie,
			.remote_vec = { .addr = 0, .bytes = sizeof(memory) },
			.local_vec_addr = (uintptr_t)&local,
			.nr_local = 1,
			.flags = RDS_RDMA_NOTIFY_ME | (header.rdma == RDMA_WRITE ? RDS_RDMA_READWRITE : 0),
		};
		send_message(fd, &from, in, (size_t)length, &control, sizeof(control));
		header.is_right = is_rdma_done(fd) &&
				  (header.rdma == RDMA_WRITE || is_filled(memory, 0, sizeof(memory), header.number));
		send_message(fd, &from, &header, sizeof(header), NULL, 0);
	}
}

/* Several under way at once, a fixed number of them or for so many seconds: all come back, in order and as they were. */
static bool run_messages(int fd, struct sockaddr_in *peer, time_t seconds)
{
	static const size_t lengths[] = { sizeof(struct header), 100, 4095, 4096, 4097, 16000, 65535, LONGEST };
	uint32_t sent = 0, returned = 0;
	time_t end = time(NULL) + seconds;

	for (;;) {
		bool is_over = seconds ? time(NULL) >= end : sent == ROUNDS * AT_ONCE;

		if (is_over && returned == sent)
			return true;
		for (; !is_over && sent < returned + AT_ONCE; sent++) {
			struct header header = { .number = sent };
			size_t length = lengths[sent % (sizeof(lengths) / sizeof(*lengths))];

			memcpy(out, &header, sizeof(header));
			fill(out, sizeof(header), length, sent);
			send_message(fd, peer, out, length, NULL, 0);
		}
		size_t wanted = lengths[returned % (sizeof(lengths) / sizeof(*lengths))];
		ssize_t length = recv(fd, in, sizeof(in), 0);
		struct header header;

		if (length != (ssize_t)wanted) {
			ksft_print_msg("message %u: %zd bytes, not %zu: %s\n", returned, length, wanted, strerror(errno));
			return false;
		}
		memcpy(&header, in, sizeof(header));
		if (header.number != returned || !is_filled(in, sizeof(header), wanted, returned))
			return false;
		returned++;
	}
}

static bool run_rdma(int fd, struct sockaddr_in *peer, uint32_t kind)
{
	static uint8_t memory[RDMA_LENGTH] __attribute__((aligned(4096)));
	struct header header = { .number = 77, .rdma = kind }, answer;
	rds_rdma_cookie_t cookie = 0;
	/* The kernel registers it by a request on the queue pair of the message, which brings the key. */
	struct {
		struct cmsghdr header;
		struct rds_get_mr_args args;
	} control = {
		.header = {
			.cmsg_len = CMSG_LEN(sizeof(control.args)),
			.cmsg_level = SOL_RDS,
			.cmsg_type = RDS_CMSG_RDMA_MAP,
		},
		.args = {
			.vec = { .addr = (uintptr_t)memory, .bytes = sizeof(memory) },
			.cookie_addr = (uintptr_t)&cookie,
			.flags = kind == RDMA_WRITE ? RDS_RDMA_READWRITE : 0,
		},
	};
	struct rds_free_mr_args free_args = {};
	bool ok;

	if (kind == RDMA_READ)
		fill(memory, 0, sizeof(memory), header.number);
	send_message(fd, peer, &header, sizeof(header), &control, sizeof(control));
	ok = recv(fd, &answer, sizeof(answer), 0) == sizeof(answer) && answer.number == header.number &&
	     (kind == RDMA_READ || is_filled(memory, 0, sizeof(memory), header.number)) &&
	     recv(fd, &answer, sizeof(answer), 0) == sizeof(answer) && answer.is_right;
	free_args.cookie = cookie;
	if (setsockopt(fd, SOL_RDS, RDS_FREE_MR, &free_args, sizeof(free_args))) {
		ksft_print_msg("RDS_FREE_MR: %s\n", strerror(errno));
		return false;
	}
	return ok;
}

int main(int argc, char **argv)
{
	struct sockaddr_in own, peer = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd;

	if (argc == 2)
		answer(argv[1]);
	if (argc < 3 || argc > 4 || inet_pton(AF_INET, argv[2], &peer.sin_addr) != 1)
		errx(2, "rds ADDRESS [PEER [SECONDS]]");
	fd = make_socket(argv[1], 0, &own);
	if (argc == 4)
		return run_messages(fd, &peer, atoi(argv[3])) ? 0 : 1;
	ksft_print_header();
	ksft_set_plan(3);
	ksft_test_result(run_messages(fd, &peer, 0), "messages of 24 to 65536 bytes, both ways\n");
	ksft_test_result(run_rdma(fd, &peer, RDMA_WRITE), "the peer's RDMA WRITE\n");
	ksft_test_result(run_rdma(fd, &peer, RDMA_READ), "the peer's RDMA READ\n");
	ksft_finished();
}
