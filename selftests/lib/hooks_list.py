#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Lists the netfilter hooks of packets for this host, of IPv4 and IPv6, again and again until it is told to end.

Far more often than `nft list hooks` can, which is a new process each time. At the end it says how many lists it got;
its status is 1 if a hook of the module was in none of them.
"""

import signal
import socket
import struct
import sys

# linux/netfilter/nfnetlink_hook.h, linux/netfilter/nfnetlink.h
NETLINK_NETFILTER = 12
NFNL_SUBSYS_HOOK = 12
NFNL_MSG_HOOK_GET = 0
NFNLA_HOOK_HOOKNUM = 1
NF_INET_LOCAL_IN = 1
# linux/netlink.h
NLM_F_REQUEST = 0x1
NLM_F_DUMP = 0x300
NLMSG_ERROR = 2
NLMSG_DONE = 3
HEADER = struct.Struct("=IHHII")

MODULE = b"ferroce\0"


def request(family):
    hook = struct.pack("=HH", 8, NFNLA_HOOK_HOOKNUM) + struct.pack(">I", NF_INET_LOCAL_IN)
    body = struct.pack("=BBH", family, 0, 0) + hook
    kind = NFNL_SUBSYS_HOOK << 8 | NFNL_MSG_HOOK_GET
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 0, 0) + body


def listed(netlink, family):
    """All that one list has. A list that changes meanwhile may end with an error."""
    netlink.send(request(family))
    parts = []
    while True:
        data = netlink.recv(1 << 16)
        parts.append(data)
        at = 0
        while at + HEADER.size <= len(data):
            length, kind, *_ = HEADER.unpack_from(data, at)
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                return b"".join(parts)
            at += max((length + 3) & ~3, HEADER.size)


def main():
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    lists = found = 0
    while not ended:
        for family in (socket.AF_INET, socket.AF_INET6):
            found += MODULE in listed(netlink, family)
            lists += 1
    print(f"{lists} lists, {found} with a hook of the module")
    sys.exit(0 if found else 1)


main()
