# SPDX-License-Identifier: GPL-2.0
"""Who has given each RDMA device its name, by netlink: a line "DEVICE user" or "DEVICE unknown"."""

import socket
import struct

# linux/netlink.h and rdma/rdma_netlink.h; the socket's protocol is 20, NETLINK_RDMA.
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET = 5, 1
RDMA_NLDEV_ATTR_DEV_NAME, RDMA_NLDEV_ATTR_NAME_ASSIGN_TYPE = 2, 101
WORDS = {0: "unknown", 1: "user"}

HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")


def pieces(data: bytes, header: struct.Struct):
    """Netlink messages or attributes: (the fields of the header, what is behind it)."""
    while len(data) >= header.size:
        fields = header.unpack_from(data)
        yield fields, data[header.size : fields[0]]
        data = data[(fields[0] + 3) & ~3 :]


with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20) as netlink:
    kind = RDMA_NL_NLDEV << 10 | RDMA_NLDEV_CMD_GET
    netlink.send(HEADER.pack(HEADER.size, kind, NLM_F_REQUEST | NLM_F_DUMP, 0, 0))
    done = False
    while not done:
        for (_, kind, *_), payload in pieces(netlink.recv(1 << 16), HEADER):
            if kind == NLMSG_ERROR:
                raise SystemExit(f"error {struct.unpack_from('=i', payload)[0]}")
            done = done or kind == NLMSG_DONE
            if kind != NLMSG_DONE:
                found = {number: value for (_, number), value in pieces(payload, ATTRIBUTE)}
                name = found[RDMA_NLDEV_ATTR_DEV_NAME].rstrip(b"\0").decode()
                assigned = found.get(RDMA_NLDEV_ATTR_NAME_ASSIGN_TYPE, b"\0")[0]
                print(name, WORDS.get(assigned, assigned))
