/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The other end of the wire: sees the RoCE packets that come to a network namespace, and
 * sends some of its own making from there, for a peer that does what no device would.
 */
#ifndef WIRE_H
#define WIRE_H

#include "endpoint.h"
#include "packet.h"

/* Syndromes (IBTA 9.7.5.2.1); to the RNR NAK the timer's code is added. */
#define WIRE_ACK 0x1f
#define WIRE_RNR 0x20
#define WIRE_NAK_SEQUENCE 0x60
#define WIRE_NAK_INVALID_REQUEST 0x61
#define WIRE_NAK_REMOTE_ACCESS 0x62
#define WIRE_NAK_REMOTE_OPERATIONAL 0x63

/* What a packet says: of these fields, those that its opcode has. */
struct wire_packet {
	uint8_t opcode;
	uint32_t qpn;
	uint32_t psn;
	uint8_t syndrome;
	uint64_t va;
	uint32_t rkey;
	uint32_t length;
	/* Bytes behind the headers: zeros, to be sent. A multiple of four. */
	uint32_t payload;
	/* Of the IP header, and of that of UDP. */
	uint8_t traffic_class;
	uint16_t id;
	uint16_t source_port;
};

struct wire {
	int from;
	int to;
	/* IPv4 addresses in network byte order: of this end, and of the device that it talks with. */
	uint32_t own;
	uint32_t peer;
};

/* namespace: a file; netdev: the one in it that packets come to. */
void wire_open(struct wire *wire, const char *namespace, const char *netdev, const union ibv_gid *own,
	       const union ibv_gid *peer);
void wire_close(struct wire *wire);
/* All at once, as far as that can be. */
void wire_send(const struct wire *wire, const struct wire_packet *packets, unsigned int count);
/* One packet, as IP fragments of so many bytes of payload: a multiple of eight. */
void wire_send_fragments(const struct wire *wire, const struct wire_packet *packet, size_t bytes);
/* The next packet for the queue pair qpn within so many milliseconds; false if there is none. */
bool wire_receive(const struct wire *wire, uint32_t qpn, struct wire_packet *packet, unsigned int ms);
/* Forgets what has come. */
void wire_drain(const struct wire *wire);

#endif
