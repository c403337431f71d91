// SPDX-License-Identifier: GPL-2.0
/*
 * A server of 9P over RDMA, for the kernel's client: what arrives goes to a 9P server that knows only sockets, and its
 * answers go back. Each SEND is one message of 9P, as in net/9p/trans_rdma.c.
 *
 * ninep ADDRESS PORT COMMAND ARG...: takes connections, one after the other; for each, COMMAND serves file descriptor 3.
 */

#include <err.h>
#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* What the client may have under way, and the longest message that it may ask for. */
#define DEPTH 32
#define LONGEST (1 << 20)

struct connection {
	struct rdma_cm_id *id;
	uint8_t *received, *sent;
	struct ibv_mr *received_mr, *sent_mr;
	int socket;
};

static bool read_all(int fd, uint8_t *to, size_t length)
{
	while (length) {
		ssize_t got = read(fd, to, length);

		if (got <= 0)
			return false;
		to += got;
		length -= (size_t)got;
	}
	return true;
}

static bool write_all(int fd, const uint8_t *from, size_t length)
{
	while (length) {
		ssize_t put = write(fd, from, length);

		if (put <= 0)
			return false;
		from += put;
		length -= (size_t)put;
	}
	return true;
}

/* From the 9P server to the client, until the socket ends. */
static void *answers(void *argument)
{
	struct connection *connection = argument;
	struct ibv_wc wc;

	for (;;) {
		uint32_t length;

		if (!read_all(connection->socket, connection->sent, sizeof(length)))
			break;
		memcpy(&length, connection->sent, sizeof(length));
		length = le32toh(length);
		if (length < sizeof(length) || length > LONGEST)
			errx(1, "an answer of %u bytes", length);
		if (!read_all(connection->socket, connection->sent + sizeof(length), length - sizeof(length)))
			break;
		if (rdma_post_send(connection->id, NULL, connection->sent, length, connection->sent_mr,
				   IBV_SEND_SIGNALED) ||
		    rdma_get_send_comp(connection->id, &wc) != 1 || wc.status)
			break;
	}
	rdma_disconnect(connection->id);
	return NULL;
}

/* Flushes the queue pair once the client has disconnected: librdmacm leaves that to the program. */
static void *disconnection(void *argument)
{
	struct connection *connection = argument;
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	do {
		if (rdma_get_cm_event(connection->id->channel, &event))
			err(1, "rdma_get_cm_event");
		type = event->event;
		rdma_ack_cm_event(event);
	} while (type != RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(connection->id);
	return NULL;
}

static int post_receive(struct connection *connection, uintptr_t index)
{
	return rdma_post_recv(connection->id, (void *)index, connection->received + index * LONGEST, LONGEST,
			      connection->received_mr);
}

static pid_t start(int socket, char **command)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		if (dup2(socket, 3) < 0)
			err(1, "dup2");
		closefrom(4);
		execvp(command[0], command);
		err(1, "%s", command[0]);
	}
	return pid;
}

static void serve(struct rdma_cm_id *id, char **command)
{
	struct connection connection = { .id = id };
	int sockets[2], status;
	pthread_t threads[2];
	struct ibv_wc wc;
	uintptr_t index;
	pid_t pid;

	connection.received = aligned_alloc(4096, (size_t)DEPTH * LONGEST);
	connection.sent = aligned_alloc(4096, LONGEST);
	if (!connection.received || !connection.sent)
		errx(1, "no memory");
	connection.received_mr = rdma_reg_msgs(id, connection.received, (size_t)DEPTH * LONGEST);
	connection.sent_mr = rdma_reg_msgs(id, connection.sent, LONGEST);
	if (!connection.received_mr || !connection.sent_mr)
		err(1, "rdma_reg_msgs");
	for (index = 0; index < DEPTH; index++)
		if (post_receive(&connection, index))
			err(1, "rdma_post_recv");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "socketpair");
	pid = start(sockets[1], command);
	close(sockets[1]);
	connection.socket = sockets[0];
	if (rdma_accept(id, NULL))
		err(1, "rdma_accept");
	if (pthread_create(&threads[0], NULL, answers, &connection) ||
	    pthread_create(&threads[1], NULL, disconnection, &connection))
		errx(1, "pthread_create");
	while (rdma_get_recv_comp(id, &wc) == 1 && !wc.status) {
		index = wc.wr_id;
		if (!write_all(connection.socket, connection.received + index * LONGEST, wc.byte_len) ||
		    post_receive(&connection, index))
			break;
	}
	shutdown(connection.socket, SHUT_RDWR);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	close(connection.socket);
	waitpid(pid, &status, 0);
	rdma_dereg_mr(connection.received_mr);
	rdma_dereg_mr(connection.sent_mr);
	rdma_destroy_ep(id);
	free(connection.received);
	free(connection.sent);
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *listener, *id;

	if (argc < 4)
		errx(2, "ninep ADDRESS PORT COMMAND ARG...");
	if (rdma_getaddrinfo(argv[1], argv[2], &hints, &found))
		err(1, "rdma_getaddrinfo %s %s", argv[1], argv[2]);
	if (rdma_create_ep(&listener, found, NULL, &attributes) || rdma_listen(listener, 1))
		err(1, "rdma_listen");
	printf("listening\n");
	fflush(stdout);
	while (!rdma_get_request(listener, &id))
		serve(id, argv + 3);
	err(1, "rdma_get_request");
}
