// SPDX-License-Identifier: GPL-2.0
/*
 * What bare UDP packets can do on the same path as the messages that are measured.
 *
 *	packets receive ADDRESS PORT             how many arrive per second, a line for each 50 ms
 *	packets send ADDRESS PORT BYTES MS       one sendto() each, for so long
 *	packets echo ADDRESS PORT poll|block     sends each back
 *	packets ask ADDRESS PORT BYTES COUNT poll|block
 *	                                         nanoseconds there and back: median, 99 %
 *
 * receive and echo say "ready" first, and end when nothing has come for a while.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SLICE 50000000ULL
#define SECOND 1000000000ULL
#define LARGEST 65000
/* How long nothing may come, in seconds: a program's start takes a while in emulation. */
#define PATIENCE 10

static char buffer[LARGEST];

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * SECOND + time.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (inet_pton(AF_INET, address, &name.sin_addr) != 1) {
		fprintf(stderr, "%s is no address\n", address);
		exit(2);
	}
	return name;
}

static int open_socket(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	int size = 4 << 20;

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	return fd;
}

static int bound(const char *address, const char *port)
{
	struct sockaddr_in name = address_of(address, port);
	struct timeval patience = { PATIENCE, 0 };
	int fd = open_socket();

	if (bind(fd, (struct sockaddr *)&name, sizeof(name)))
		die("bind");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	puts("ready");
	fflush(stdout);
	return fd;
}

static int connected(const char *address, const char *port)
{
	struct sockaddr_in name = address_of(address, port);
	struct timeval patience = { PATIENCE, 0 };
	int fd = open_socket();

	if (connect(fd, (struct sockaddr *)&name, sizeof(name)))
		die("connect");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

static int receive(const char *address, const char *port)
{
	int fd = bound(address, port);
	struct timeval patience = { 0, 300000 };
	uint64_t begin = 0, count = 0, slices = 0;

	while (recv(fd, buffer, sizeof(buffer), 0) >= 0) {
		uint64_t time = now();

		if (!begin) {
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
			begin = time;
		}
		count++;
		if (time - begin < SLICE)
			continue;
		printf("%llu\n", (unsigned long long)(count * SECOND / (time - begin)));
		slices++;
		begin = time;
		count = 0;
	}
	return slices ? 0 : 1;
}

static int blast(const char *address, const char *port, int size, int milliseconds)
{
	int fd = connected(address, port);
	uint64_t end = now() + milliseconds * 1000000ULL;

	while (now() < end) {
		for (int i = 0; i < 16; i++) {
			if (send(fd, buffer, size, 0) < 0 && errno != ENOBUFS && errno != ECONNREFUSED)
				die("send");
		}
	}
	return 0;
}

static ssize_t next(int fd, bool polls, struct sockaddr_in *from)
{
	uint64_t begin = now();
	socklen_t length = sizeof(*from);
	ssize_t got;

	do {
		got = recvfrom(fd, buffer, sizeof(buffer), polls ? MSG_DONTWAIT : 0, (struct sockaddr *)from, &length);
	} while (polls && got < 0 && errno == EAGAIN && now() - begin < PATIENCE * SECOND);
	return got;
}

static int echo(const char *address, const char *port, bool polls)
{
	int fd = bound(address, port);
	struct sockaddr_in from;
	ssize_t got;

	while ((got = next(fd, polls, &from)) > 1) {
		if (sendto(fd, buffer, got, 0, (struct sockaddr *)&from, sizeof(from)) < 0)
			die("sendto");
	}
	return 0;
}

static int is_longer(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int ask(const char *address, const char *port, int size, int count, bool polls)
{
	int fd = connected(address, port);
	uint64_t *times = calloc(count, sizeof(*times));
	struct sockaddr_in from;

	if (!times || count < 1)
		die("count");
	for (int i = 0; i < count; i++) {
		uint64_t begin = now();

		if (send(fd, buffer, size, 0) < 0)
			die("send");
		if (next(fd, polls, &from) != size)
			die("recv");
		times[i] = now() - begin;
	}
	/* The end. */
	send(fd, buffer, 1, 0);
	qsort(times, count, sizeof(*times), is_longer);
	printf("%llu %llu\n", (unsigned long long)times[count / 2],
	       (unsigned long long)times[(uint64_t)count * 99 / 100]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[1] : "";
	int size = argc > 4 ? atoi(argv[4]) : 0;

	if (!strcmp(what, "receive") && argc == 4)
		return receive(argv[2], argv[3]);
	if (!strcmp(what, "send") && argc == 6 && size > 1 && size <= LARGEST)
		return blast(argv[2], argv[3], size, atoi(argv[5]));
	if (!strcmp(what, "echo") && argc == 5)
		return echo(argv[2], argv[3], !strcmp(argv[4], "poll"));
	if (!strcmp(what, "ask") && argc == 7 && size > 1 && size <= LARGEST)
		return ask(argv[2], argv[3], size, atoi(argv[5]), !strcmp(argv[6], "poll"));
	fprintf(stderr, "usage: see the head of packets.c\n");
	return 2;
}
