// SPDX-License-Identifier: GPL-2.0
/* See wire.h. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "namespace.h"
#include "wire.h"

#define ROCE_PORT 4791
#define IP 20
#define UDP 8
#define ROOM 8192
#define MOST 8

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static uint64_t get64(const uint8_t *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

void wire_open(struct wire *wire, const char *namespace, const char *netdev, const union ibv_gid *own,
	       const union ibv_gid *peer)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	int home = namespace_enter(namespace), room = 32 << 20;

	wire->to = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	wire->from = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
	at.sll_ifindex = if_nametoindex(netdev);
	if (wire->to < 0 || wire->from < 0 || !at.sll_ifindex ||
	    setsockopt(wire->from, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    bind(wire->from, (struct sockaddr *)&at, sizeof(at)))
		die("%s: no socket: %s", netdev, strerror(errno));
	namespace_leave(home);
	memcpy(&wire->own, own->raw + 12, 4);
	memcpy(&wire->peer, peer->raw + 12, 4);
}

void wire_close(struct wire *wire)
{
	close(wire->to);
	close(wire->from);
}

static size_t emit(const struct wire *wire, const struct wire_packet *packet, bool may_be_fragmented,
		   uint8_t *ip)
{
	uint8_t *udp = ip + IP, *at = udp + UDP;
	size_t size;

	*at++ = packet->opcode;
	*at++ = 0;
	at = put16(at, 0xffff);
	at = put32(at, packet->qpn);
	at = put32(at, packet->psn & 0xffffff);
	switch (packet->opcode) {
	case RC_READ_REQUEST:
		at = put32(put32(put64(at, packet->va), packet->rkey), packet->length);
		break;
	case RC_ATOMIC_ACKNOWLEDGE:
		at = put64(put32(at, (uint32_t)packet->syndrome << 24), 0);
		break;
	case RC_ACKNOWLEDGE:
	case RC_READ_RESPONSE_ONLY:
		at = put32(at, (uint32_t)packet->syndrome << 24);
		break;
	}
	memset(at, 0, packet->payload);
	at += packet->payload;
	size = at - ip;

	memset(ip, 0, IP + UDP);
	ip[0] = 0x45;
	put16(ip + 2, size + CRC);
	/* A zero would be replaced by the kernel, and the CRC covers it. */
	put16(ip + 4, packet->id ? packet->id : 1);
	ip[6] = may_be_fragmented ? 0 : 0x40;
	ip[8] = 64;
	ip[9] = IPPROTO_UDP;
	memcpy(ip + 12, &wire->own, 4);
	memcpy(ip + 16, &wire->peer, 4);
	put16(udp, 0xc123);
	put16(udp + 2, ROCE_PORT);
	put16(udp + 4, size + CRC - IP);
	put_icrc(at, icrc(ip, false, udp, udp + UDP, size - IP - UDP));
	return size + CRC;
}

void wire_send(const struct wire *wire, const struct wire_packet *packets, unsigned int count)
{
	static uint8_t bytes[MOST][ROOM];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = wire->peer };
	struct mmsghdr messages[MOST] = {};
	struct iovec parts[MOST];
	unsigned int i;

	if (count > MOST)
		die("%u packets at once", count);
	for (i = 0; i < count; i++) {
		parts[i].iov_base = bytes[i];
		parts[i].iov_len = emit(wire, &packets[i], false, bytes[i]);
		messages[i].msg_hdr.msg_name = &to;
		messages[i].msg_hdr.msg_namelen = sizeof(to);
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	if (sendmmsg(wire->to, messages, count, 0) != (int)count)
		die("packets cannot be sent: %s", strerror(errno));
}

void wire_send_fragments(const struct wire *wire, const struct wire_packet *packet, size_t bytes)
{
	static uint8_t whole[ROOM], headers[ROOM / 8][IP];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = wire->peer };
	size_t size = emit(wire, packet, true, whole), at;
	static struct mmsghdr messages[ROOM / 8];
	static struct iovec parts[ROOM / 8][2];
	unsigned int count = 0, sent = 0;
	int result;

	for (at = IP; at < size; at += bytes, count++) {
		bool is_last = at + bytes >= size;
		size_t length = is_last ? size - at : bytes;

		memcpy(headers[count], whole, IP);
		put16(headers[count] + 6, (is_last ? 0 : 0x2000) | (at - IP) / 8);
		parts[count][0] = (struct iovec){ headers[count], IP };
		parts[count][1] = (struct iovec){ whole + at, length };
		messages[count].msg_hdr = (struct msghdr){
			.msg_name = &to,
			.msg_namelen = sizeof(to),
			.msg_iov = parts[count],
			.msg_iovlen = 2,
		};
	}
	for (; sent < count; sent += result) {
		result = sendmmsg(wire->to, messages + sent, count - sent, 0);
		if (result <= 0)
			die("fragments cannot be sent: %s", strerror(errno));
	}
}

/* False if it is none of RoCE for that queue pair. */
static bool parse(const struct wire *wire, const uint8_t *ip, size_t size, uint32_t qpn,
		  struct wire_packet *packet)
{
	const uint8_t *bth = ip + IP + UDP, *at = bth + BTH;

	if (size < IP + UDP + BTH + CRC || ip[0] != 0x45 || ip[9] != IPPROTO_UDP ||
	    memcmp(ip + 12, &wire->peer, 4) || memcmp(ip + 16, &wire->own, 4) ||
	    (ip[IP + 2] << 8 | ip[IP + 3]) != ROCE_PORT)
		return false;
	memset(packet, 0, sizeof(*packet));
	packet->traffic_class = ip[1];
	packet->source_port = ip[IP] << 8 | ip[IP + 1];
	packet->opcode = bth[0];
	packet->qpn = get32(bth + 4) & 0xffffff;
	packet->psn = get32(bth + 8) & 0xffffff;
	size -= IP + UDP + BTH + CRC;
	switch (packet->opcode) {
	case RC_READ_REQUEST:
	case RC_COMPARE_SWAP:
	case RC_FETCH_ADD:
		if (size < 16)
			return false;
		packet->va = get64(at);
		packet->rkey = get32(at + 8);
		packet->length = get32(at + 12);
		break;
	case RC_ACKNOWLEDGE:
	case RC_ATOMIC_ACKNOWLEDGE:
	case RC_READ_RESPONSE_ONLY:
		if (size < 4)
			return false;
		packet->syndrome = at[0];
		break;
	}
	return packet->qpn == qpn;
}

bool wire_receive(const struct wire *wire, uint32_t qpn, struct wire_packet *packet, unsigned int ms)
{
	struct pollfd ready = { .fd = wire->from, .events = POLLIN };
	uint64_t end = now_ms() + patience_ms(ms), now;
	static uint8_t bytes[1 << 16];
	struct sockaddr_ll source;
	socklen_t source_size;
	ssize_t size;

	for (;;) {
		now = now_ms();
		if (now > end || poll(&ready, 1, end - now) <= 0)
			return false;
		source_size = sizeof(source);
		size = recvfrom(wire->from, bytes, sizeof(bytes), 0, (struct sockaddr *)&source,
				&source_size);
		if (size < 0)
			die("recvfrom: %s", strerror(errno));
		if (source.sll_pkttype != PACKET_OUTGOING && parse(wire, bytes, size, qpn, packet))
			return true;
	}
}

void wire_drain(const struct wire *wire)
{
	uint8_t nothing;

	while (recv(wire->from, &nothing, 1, MSG_DONTWAIT) >= 0)
		;
}
