#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Sockets of SMC: smc.py eid NAME; smc.py serve ADDRESS; smc.py exchange ADDRESS; smc.py fallbacks.

A server sends back what it receives. The client compares that with what it sent.
"""

import os
import socket
import struct
import sys
import threading

# linux/smc.h: AF_INET's other way to SMC, as Python's sockets have no addresses of AF_SMC.
IPPROTO_SMC = 256
PORT = 9043
# asm-generic/socket.h: Python does not have it.
SO_RCVBUFFORCE = 33
# linux/netlink.h, linux/genetlink.h, linux/smc.h: Python does not have them.
NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 1, 4, 0x300, 2, 3
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 0x10, 3, 1, 2
SMC_NETLINK_GET_FBACK_STATS, SMC_NETLINK_ADD_UEID, SMC_NLA_EID_TABLE_ENTRY = 8, 10, 1


def attribute(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def netlink(family, command, attributes, flags=0):
    """Sends a generic netlink command; returns the type of what comes back, and its attributes."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as sock:
        body = struct.pack("BBH", command, 1, 0) + attributes
        sock.send(struct.pack("IHHII", 16 + len(body), family, NLM_F_REQUEST | flags, 1, 0) + body)
        answer = sock.recv(65536)
    kind = struct.unpack_from("IH", answer)[1]
    if kind == NLMSG_ERROR:
        error = struct.unpack_from("i", answer, 16)[0]
        if error:
            raise OSError(-error, os.strerror(-error))
    return kind, answer[20:]


def smc(command, attributes=b"", flags=0):
    """The same, of SMC's family."""
    name = attribute(CTRL_ATTR_FAMILY_NAME, b"SMC_GEN_NETLINK\0")
    _, answer = netlink(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, name)
    at = 0
    while True:
        length, kind = struct.unpack_from("HH", answer, at)
        if kind == CTRL_ATTR_FAMILY_ID:
            break
        at += (length + 3) & ~3
    return netlink(struct.unpack_from("H", answer, at + 4)[0], command, attributes, flags)


def set_eid(name):
    """SMC-R version 2 needs a name that both ends have."""
    entry = attribute(SMC_NLA_EID_TABLE_ENTRY, name.encode().ljust(32) + b"\0")
    try:
        smc(SMC_NETLINK_ADD_UEID, entry, NLM_F_ACK)
    except FileExistsError:
        pass


def fallbacks():
    """Whether a connection has gone over TCP: then there are reasons."""
    kind, _ = smc(SMC_NETLINK_GET_FBACK_STATS, flags=NLM_F_DUMP)
    return kind != NLMSG_DONE


def echo(connection):
    with connection:
        while True:
            data = connection.recv(100_000)
            if not data:
                return
            connection.sendall(data)


def serve(address):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, PORT))
        listener.listen(64)
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=echo, args=(connection,), daemon=True).start()


# SMC makes one connection after the other, and gives up one that waits for 6 s. On a slow kernel each takes half a second.
connecting = threading.Lock()


def exchanged(address, length, receive_buffer=None):
    """Whether so many bytes come back as they were. SMC registers the receive buffer (bytes) in one piece."""
    data = os.urandom(length)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC) as sock:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_buffer)
        with connecting:
            sock.connect((address, PORT))
        sender = threading.Thread(target=sock.sendall, args=(data,), daemon=True)
        sender.start()
        back = bytearray()
        while len(back) < length:
            part = sock.recv(70_001)
            if not part:
                break
            back += part
        sender.join()
    return bytes(back) == data


def rows(address):
    yield "a byte", exchanged(address, 1)
    yield "a megabyte and a little", exchanged(address, 1_000_007)
    yield "20 MB", exchanged(address, 20_000_000)
    yield "20 MB, a receive buffer of 4 MiB", exchanged(address, 20_000_000, 4 << 20)
    results = []
    threads = [threading.Thread(target=lambda: results.append(exchanged(address, 300_001))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield "16 connections at once", results == [True] * 16
    yield "100 connections, one after the other", all(exchanged(address, 10_000) for _ in range(100))


def exchange(address):
    print("KTAP version 1\n1..6", flush=True)
    failed = False
    for number, (name, is_right) in enumerate(rows(address), 1):
        print(f"{'' if is_right else 'not '}ok {number} {name}", flush=True)
        failed |= not is_right
    return failed


if __name__ == "__main__":
    commands = {"eid": set_eid, "serve": serve, "exchange": exchange, "fallbacks": fallbacks}
    sys.exit(commands[sys.argv[1]](*sys.argv[2:]))
