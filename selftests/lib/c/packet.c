// SPDX-License-Identifier: GPL-2.0
/* See packet.h. */

#include <string.h>

#include "packet.h"

static uint32_t crc_table[256];

__attribute__((constructor)) static void crc_prepare(void)
{
	uint32_t i, bit, crc;

	for (i = 0; i < 256; i++) {
		crc = i;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
		crc_table[i] = crc;
	}
}

static uint32_t crc_add(uint32_t crc, const uint8_t *bytes, size_t size)
{
	while (size--)
		crc = crc >> 8 ^ crc_table[(crc ^ *bytes++) & 0xff];
	return crc;
}

/* What routers change counts as ones: in the IP header, the UDP checksum and the BTH. */
uint32_t icrc(const uint8_t *ip, bool v6, const uint8_t *udp, const uint8_t *bth, size_t size)
{
	size_t ip_size = v6 ? 40 : 20, first = size < BTH ? size : BTH;
	uint8_t ones[8], network[40], transport[8], header[BTH];
	uint32_t crc = 0xffffffff;

	memset(ones, 0xff, sizeof(ones));
	memcpy(network, ip, ip_size);
	if (v6) {
		network[0] |= 0x0f;
		memset(network + 1, 0xff, 3);
		network[7] = 0xff;
	} else {
		network[1] = 0xff;
		network[8] = 0xff;
		memset(network + 10, 0xff, 2);
	}
	memcpy(transport, udp, 6);
	memset(transport + 6, 0xff, 2);
	memcpy(header, bth, first);
	if (first > 4)
		header[4] = 0xff;
	crc = crc_add(crc, ones, sizeof(ones));
	crc = crc_add(crc, network, ip_size);
	crc = crc_add(crc, transport, sizeof(transport));
	crc = crc_add(crc, header, first);
	return ~crc_add(crc, bth + first, size - first);
}

uint8_t *put_icrc(uint8_t *at, uint32_t crc)
{
	return put32(at, __builtin_bswap32(crc));
}
