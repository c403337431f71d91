#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""UDP datagrams on a port, and answers.

answer ADDRESS PORT: sends each datagram back, with :: those of both families; says `ready` first, and ends when it
is killed.
ask ADDRESS PORT SECONDS: sends datagrams of several lengths, each until it has been answered, so long at the most.
send ADDRESS PORT COUNT: sends datagrams that nobody answers.
"""

import os
import socket
import sys
import time

LENGTHS = (0, 1, 12, 16, 64, 1000, 1400)


def resolved(address, port):
    family, kind, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    return socket.socket(family, kind), where


def answer(address, port):
    udp, where = resolved(address, port)
    udp.bind(where)
    print("ready", flush=True)
    while True:
        datagram, sender = udp.recvfrom(65536)
        udp.sendto(datagram, sender)


def ask(address, port, seconds):
    udp, where = resolved(address, port)
    udp.connect(where)
    udp.settimeout(1)
    end = time.monotonic() + float(seconds)
    for number in range(5 * len(LENGTHS)):
        datagram = bytes([number]) + os.urandom(LENGTHS[number % len(LENGTHS)])
        while True:
            if time.monotonic() > end:
                sys.exit(f"no answer to datagram {number} of {len(datagram)} bytes in {seconds} s")
            try:
                udp.send(datagram)
                # An answer to an earlier try of another one may come late.
                if udp.recv(65536) == datagram:
                    break
            except (TimeoutError, ConnectionRefusedError):
                pass


def send(address, port, count):
    udp, where = resolved(address, port)
    for number in range(int(count)):
        udp.sendto(bytes([number]) * 64, where)


if __name__ == "__main__":
    {"answer": answer, "ask": ask, "send": send}[sys.argv[1]](*sys.argv[2:])
