/* SPDX-License-Identifier: GPL-2.0 */
/* What RoCE packets are made of. */
#ifndef PACKET_H
#define PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the BTH, and of the invariant CRC. */
#define BTH 12
#define CRC 4

enum opcode {
	RC_SEND_FIRST = 0x00,
	RC_SEND_LAST = 0x02,
	RC_SEND_LAST_IMM = 0x03,
	RC_SEND_ONLY = 0x04,
	RC_SEND_ONLY_IMM = 0x05,
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_LAST = 0x08,
	RC_WRITE_LAST_IMM = 0x09,
	RC_WRITE_ONLY = 0x0a,
	RC_WRITE_ONLY_IMM = 0x0b,
	RC_READ_REQUEST = 0x0c,
	RC_READ_RESPONSE_FIRST = 0x0d,
	RC_READ_RESPONSE_MIDDLE = 0x0e,
	RC_READ_RESPONSE_ONLY = 0x10,
	RC_ACKNOWLEDGE = 0x11,
	RC_ATOMIC_ACKNOWLEDGE = 0x12,
	RC_COMPARE_SWAP = 0x13,
	RC_FETCH_ADD = 0x14,
	RC_FLUSH = 0x1c,
	RC_ATOMIC_WRITE = 0x1d,
	/* No packet is it. */
	RC_NONE = 0xff,
	UD_SEND_ONLY = 0x64,
	UD_SEND_ONLY_IMM = 0x65,
	CNP = 0x81,
};

/* Write a number in network order, and return where it ends. */
static inline uint8_t *put16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value;
	return at + 2;
}

static inline uint8_t *put32(uint8_t *at, uint32_t value)
{
	return put16(put16(at, value >> 16), value);
}

static inline uint8_t *put64(uint8_t *at, uint64_t value)
{
	return put32(put32(at, value >> 32), value);
}

/*
 * The invariant CRC, from the specification (IBTA annex A17, 9.8), of the size bytes from the BTH on, behind these
 * headers of IP and UDP.
 */
uint32_t icrc(const uint8_t *ip, bool v6, const uint8_t *udp, const uint8_t *bth, size_t size);
/* Writes it, lowest byte first, and returns where it ends. */
uint8_t *put_icrc(uint8_t *at, uint32_t crc);

#endif
