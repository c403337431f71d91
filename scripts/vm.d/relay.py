# SPDX-License-Identifier: GPL-2.0
"""Runs commands of one guest on another, over a network of its own beside the wire.

`relay.py serve` answers; `relay.py run ADDRESS COMMAND...` asks, and returns the command's status.
The request is one JSON line; the answer is frames of kind, length and bytes: "o" output, "e" errors,
"s" the exit status. When the asking side goes away, the command and its children are killed.
"""

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys

PORT = 4790
FRAME = struct.Struct("!cI")


def send(connection, kind, data):
    connection.sendall(FRAME.pack(kind, len(data)) + data)


def answer(connection):
    reader = connection.makefile("rb")
    command = json.loads(reader.readline())
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/mnt/src",
            start_new_session=True,
        )
    except OSError as error:
        send(connection, b"e", f"{command[0]}: {error.strerror}\n".encode())
        send(connection, b"s", b"127")
        return
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, b"o")
        selector.register(process.stderr, selectors.EVENT_READ, b"e")
        selector.register(connection, selectors.EVENT_READ, None)
        while len(selector.get_map()) > 1:
            # A child left in the background may hold the pipes; the command itself may be done.
            for key, _ in selector.select(timeout=0.2):
                if key.data is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    return
                data = os.read(key.fd, 65536)
                if data:
                    send(connection, key.data, data)
                else:
                    selector.unregister(key.fileobj)
            if process.poll() is not None and not selector.select(timeout=0):
                break
    status = process.wait()
    send(connection, b"s", str(status if status >= 0 else 128 - status).encode())


def serve():
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.create_server(("", PORT), reuse_port=True) as listener:
        while True:
            connection, _ = listener.accept()
            child = os.fork()
            if child == 0:
                listener.close()
                try:
                    answer(connection)
                except (ConnectionError, ProcessLookupError):
                    pass
                os._exit(0)
            connection.close()
            reap()


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(address, command):
    with socket.create_connection((address, PORT), timeout=10) as connection:
        connection.settimeout(None)
        connection.sendall(json.dumps(command).encode() + b"\n")
        reader = connection.makefile("rb")
        while header := reader.read(FRAME.size):
            kind, length = FRAME.unpack(header)
            data = reader.read(length)
            if kind == b"s":
                return int(data)
            stream = sys.stdout if kind == b"o" else sys.stderr
            stream.buffer.write(data)
            stream.flush()
    print("the other node went away", file=sys.stderr)
    return 125


if sys.argv[1] == "serve":
    serve()
else:
    sys.exit(run(sys.argv[2], sys.argv[3:]))
