#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The RoCE v2 packets of a capture: their invariant CRC, and how many of each opcode.

icrc.py CAPTURE [NAME...]

Prints one line "opcode NAME COUNT PAYLOAD" for each opcode, "packets COUNT" and
"bad COUNT". Fails where a CRC is wrong, a packet is cut or not what its length
says, or an opcode that is named as an argument does not occur.

It is written from the InfiniBand specification (volume 1, annex A17, 9.8) on
purpose, without a look at any driver: an error common to sender and receiver
would otherwise pass.
"""

import struct
import sys
import zlib

ROCE_PORT = 4791
BTH_SIZE = 12
ICRC_SIZE = 4

# Opcode: (name, bytes of extended headers after the BTH)
RC = {
    0x00: ("RC_SEND_FIRST", 0),
    0x01: ("RC_SEND_MIDDLE", 0),
    0x02: ("RC_SEND_LAST", 0),
    0x03: ("RC_SEND_LAST_IMM", 4),
    0x04: ("RC_SEND_ONLY", 0),
    0x05: ("RC_SEND_ONLY_IMM", 4),
    0x06: ("RC_WRITE_FIRST", 16),
    0x07: ("RC_WRITE_MIDDLE", 0),
    0x08: ("RC_WRITE_LAST", 0),
    0x09: ("RC_WRITE_LAST_IMM", 4),
    0x0A: ("RC_WRITE_ONLY", 16),
    0x0B: ("RC_WRITE_ONLY_IMM", 20),
    0x0C: ("RC_READ_REQUEST", 16),
    0x0D: ("RC_READ_RESPONSE_FIRST", 4),
    0x0E: ("RC_READ_RESPONSE_MIDDLE", 0),
    0x0F: ("RC_READ_RESPONSE_LAST", 4),
    0x10: ("RC_READ_RESPONSE_ONLY", 4),
    0x11: ("RC_ACKNOWLEDGE", 4),
    0x12: ("RC_ATOMIC_ACKNOWLEDGE", 12),
    0x13: ("RC_COMPARE_SWAP", 28),
    0x14: ("RC_FETCH_ADD", 28),
    0x16: ("RC_SEND_LAST_INV", 4),
    0x17: ("RC_SEND_ONLY_INV", 4),
}
# Annex A19.
PLACEMENT = {0x1C: ("RC_FLUSH", 20), 0x1D: ("RC_ATOMIC_WRITE", 16)}
# UC has SENDs and WRITEs.
UC = {0x20 | code: (name.replace("RC_", "UC_", 1), size) for code, (name, size) in RC.items() if code < 0x0C}
# XRC has the same packets as RC, without those of annex A19; each request has an XRCETH of 4 bytes.
RESPONSES = range(0x0D, 0x13)
XRC = {
    0xA0 | code: (name.replace("RC_", "XRC_", 1), size if code in RESPONSES else size + 4)
    for code, (name, size) in RC.items()
}
UD = {0x64: ("UD_SEND_ONLY", 8), 0x65: ("UD_SEND_ONLY_IMM", 12)}
OPCODES = {**RC, **PLACEMENT, **UC, **XRC, **UD}


class Bad(Exception):
    """What is wrong with a packet."""


def frames(path):
    """The frames of a classic pcap file, as (captured bytes, length on the wire)."""
    with open(path, "rb") as file:
        data = file.read()
    order = {0xA1B2C3D4: "<", 0xD4C3B2A1: ">", 0xA1B23C4D: "<", 0x4D3CB2A1: ">"}.get(
        struct.unpack_from("<I", data)[0]
    )
    if order is None:
        raise SystemExit(f"{path} is no pcap file")
    (link,) = struct.unpack_from(order + "I", data, 20)
    if link != 1:
        raise SystemExit(f"{path}: link type {link} is not Ethernet")
    at = 24
    while at + 16 <= len(data):
        captured, length = struct.unpack_from(order + "II", data, at + 8)
        at += 16
        if at + captured > len(data):
            # tcpdump was ended in the middle of a frame.
            break
        yield data[at : at + captured], length
        at += captured


def transport(frame, length):
    """(network header, UDP header, transport packet) of a RoCE v2 frame, or None."""
    (kind,) = struct.unpack_from("!H", frame, 12)
    ip = frame[14:]
    if kind == 0x0800:
        size = (ip[0] & 15) * 4
        protocol = ip[9]
        (total,) = struct.unpack_from("!H", ip, 2)
    elif kind == 0x86DD:
        size = 40
        protocol = ip[6]
        total = 40 + struct.unpack_from("!H", ip, 4)[0]
    else:
        return None
    if protocol != 17 or len(ip) < size + 8:
        return None
    udp = ip[size : size + 8]
    _, port, udp_length, checksum = struct.unpack("!4H", udp)
    if port != ROCE_PORT:
        return None
    if len(frame) != length:
        raise Bad(f"{len(frame)} bytes of {length} captured")
    if kind == 0x0800 and (size != 20 or struct.unpack_from("!H", ip, 6)[0] & 0x3FFF):
        raise Bad("IPv4 options or a fragment")
    if kind == 0x0800 and ones_sum(ip[:20]) != 0xFFFF:
        raise Bad("wrong IPv4 header checksum")
    if total != size + udp_length or total > len(ip):
        raise Bad(f"IP length {total}, UDP length {udp_length}")
    if checksum:
        raise Bad(f"UDP checksum {checksum:#06x} instead of zero")
    return ip[:size], udp, ip[size + 8 : total]


def ones_sum(data):
    """The one's complement sum of 16-bit words."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def icrc(network, udp, packet):
    """CRC-32 over what no router changes; the variable fields count as ones."""
    network = bytearray(network)
    if len(network) == 20:
        network[1] = 0xFF  # type of service
        network[8] = 0xFF  # time to live
        network[10:12] = b"\xff\xff"  # header checksum
    else:
        network[0] |= 0x0F  # traffic class, flow label
        network[1:4] = b"\xff\xff\xff"
        network[7] = 0xFF  # hop limit
    header = bytearray(packet[:BTH_SIZE])
    header[4] = 0xFF  # FECN, BECN, reserved
    stand_in = b"\xff" * 8  # for the local route header that RoCE has not
    return zlib.crc32(
        stand_in + bytes(network) + udp[:6] + b"\xff\xff" + bytes(header) + packet[BTH_SIZE:-ICRC_SIZE]
    )


def check(network, udp, packet):
    """(opcode's name, payload bytes) of a right packet."""
    if len(packet) < BTH_SIZE + ICRC_SIZE:
        raise Bad(f"{len(packet)} bytes are no packet")
    opcode, flags = packet[0], packet[1]
    if opcode not in OPCODES:
        raise Bad(f"unknown opcode {opcode:#04x}")
    name, extended = OPCODES[opcode]
    if flags & 0x0F:
        raise Bad(f"{name}: transport version {flags & 15}")
    pad = flags >> 4 & 3
    payload = len(packet) - BTH_SIZE - extended - pad - ICRC_SIZE
    if payload < 0:
        raise Bad(f"{name}: only {len(packet)} bytes")
    if (payload + pad) % 4:
        raise Bad(f"{name}: payload {payload}, pad {pad}")
    (found,) = struct.unpack("<I", packet[-ICRC_SIZE:])
    wanted = icrc(network, udp, packet)
    if found != wanted:
        raise Bad(f"{name}: ICRC {found:#010x} instead of {wanted:#010x}")
    return name, payload


def main(path, wanted):
    counts, payloads, packets, bad = {}, {}, 0, 0
    for number, (frame, length) in enumerate(frames(path), 1):
        try:
            parts = transport(frame, length)
            if parts is None:
                continue
            packets += 1
            name, payload = check(*parts)
        except (Bad, struct.error, IndexError) as error:
            bad += 1
            if bad <= 10:
                print(f"frame {number}: {error}")
            continue
        counts[name] = counts.get(name, 0) + 1
        payloads[name] = payloads.get(name, 0) + payload
    for name, count in sorted(counts.items()):
        print("opcode", name, count, payloads[name])
    print("packets", packets)
    print("bad", bad)
    missing = [name for name in wanted if name not in counts]
    if missing:
        print("missing", *missing)
    return 1 if bad or missing or not packets else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
