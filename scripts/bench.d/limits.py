# SPDX-License-Identifier: GPL-2.0
"""What a case could do at best, from the yardsticks of the same run.

Every byte of a message is copied at least once, where it is taken in. Between two machines it passes crc32_le() at each
end, each end has a CPU of its own, and every packet must cross, which a bare UDP packet of that size does in the time
that the yardstick has. Between two namespaces it passes crc32_le() once, where it is sent. All CPUs may share the work,
but of one flow, one CPU at a time sends, and one takes in. Within one device there is one copy and no packet. No message
is faster than a bare UDP packet of 16 bytes, unless many leave at once.

A latency is at best that of a bare UDP packet, from a program that polls or blocks as well, and the time
that the bytes take.
"""

FULL_PACKET = 4096
SMALL_PACKET = 16


def seconds_per_byte(case, yardsticks, cpus):
    """Of the CPU that is busiest."""
    memcpy, crc32_le = yardsticks["memcpy"], yardsticks["crc32_le"]
    if case.place == "device":
        return 1 / memcpy / min(case.qps, cpus)
    if case.place == "wire":
        return 1 / crc32_le + 1 / memcpy
    return max((1 / crc32_le + 1 / memcpy) / cpus, max(1 / crc32_le, 1 / memcpy) / case.qps)


def seconds_per_packet(size, yardsticks):
    """Of a bare UDP packet, between the two sizes that were measured."""
    small, full = 1 / yardsticks["udp_16"], 1 / yardsticks["udp_4096"]
    return small + max(full - small, 0) * (size - SMALL_PACKET) / (FULL_PACKET - SMALL_PACKET)


def limit(case, yardsticks, cpus):
    """Of a rate case, messages per second; of a latency case, seconds."""
    data = case.size * seconds_per_byte(case, yardsticks, cpus)
    if case.kind == "latency":
        how = "blocking" if case.events else "polling"
        round_trip = yardsticks[f"udp_round_trip_{how}"] * 1e-9
        return data + (round_trip if case.there_and_back else round_trip / 2)
    message = max(1 / yardsticks["udp_16"], data)
    if case.place == "wire":
        packets = max(1, -(-case.size // case.mtu))
        packet = max(min(case.size, case.mtu), SMALL_PACKET)
        message = max(message, packets * seconds_per_packet(packet, yardsticks))
    return 1 / message
