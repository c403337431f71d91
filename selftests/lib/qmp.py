#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
#
# qmp.py SOCKET COMMAND [ARGUMENTS]: has a machine of QEMU execute a command with arguments in JSON, and prints what it
# returns in JSON.
import json
import socket
import sys

path, command = sys.argv[1:3]
arguments = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
with socket.socket(socket.AF_UNIX) as monitor:
    monitor.connect(path)
    lines = monitor.makefile("rw")
    lines.readline()
    for name, values in (("qmp_capabilities", {}), (command, arguments)):
        lines.write(json.dumps({"execute": name, "arguments": values}) + "\n")
        lines.flush()
        answer = {}
        while not answer.keys() & {"return", "error"}:
            answer = json.loads(lines.readline())
        if "error" in answer:
            sys.exit(f"{name}: {answer['error']['desc']}")
print(json.dumps(answer["return"]))
