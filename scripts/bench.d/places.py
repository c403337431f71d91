# SPDX-License-Identifier: GPL-2.0
"""Where messages go: between two namespaces, within one device, between two machines.

All of this runs as root in the virtual machine. A place has two ends; the server runs at the first.
"""

import ctypes
import os
import pathlib
import subprocess
import time

MODULES = {"ferroce": "ferroce", "rxe": "rdma_rxe"}
# What modprobe would load below a build that it does not know.
BELOW = ["udp_tunnel", "ip6_udp_tunnel"]
PREFIXES = {"ferroce": "fer", "rxe": "rxe"}
MTU = 4200
CLONE_NEWNET = 0x40000000
# What a process leaves behind may hold a module for a moment.
UNLOAD = """
for tries in 1 2 3 4 5 6 7 8 9 10; do
	grep -q '^{module} ' /proc/modules || exit 0
	rmmod {module} && exit 0
	sleep 0.5
done
exit 1
"""


def run(*words):
    """Runs a command that must succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout.strip()}")
    return done.stdout


def gid_index(device, address):
    """The index of the RoCE v2 GID of an IPv4 address, once the device has it."""
    port = pathlib.Path("/sys/class/infiniband") / device / "ports/1"
    digits = "0" * 20 + "ffff" + "".join(f"{int(part):02x}" for part in address.split("."))
    wanted = ":".join(digits[i : i + 4] for i in range(0, 32, 4))
    for _ in range(100):
        for index in range(16):
            try:
                if (port / f"gids/{index}").read_text().strip() == wanted:
                    if "v2" in (port / f"gid_attrs/types/{index}").read_text():
                        return index
            except OSError:
                continue
        time.sleep(0.05)
    raise RuntimeError(f"{device} has no GID for {address}")


class End:
    """One end: a network namespace of this machine (None: its first), or the other machine."""

    def __init__(self, address, netdev, suffix, namespace=None, remote=False):
        self.address = address
        self.netdev = netdev
        self.suffix = suffix
        self.namespace = namespace
        self.remote = remote
        self.device = None
        self.gid = None

    def run(self, *words):
        """Runs a command there that must succeed."""
        return run(*self.command(words))

    def command(self, words):
        """The words that run a command there, from this machine."""
        if self.remote:
            return ["node2", *words]
        if self.namespace:
            return ["ip", "netns", "exec", self.namespace, *words]
        return list(words)

    def start(self, words, **options):
        """Starts a program there; not by `ip`, so that the process is the program itself."""
        if self.remote:
            words = ["node2", *words]
        elif self.namespace:
            handle = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY | os.O_CLOEXEC)
            enter = ctypes.CDLL(None).setns

            def preexec():
                if enter(handle, CLONE_NEWNET):
                    os._exit(126)

            try:
                return subprocess.Popen(words, preexec_fn=preexec, **options)
            finally:
                os.close(handle)
        return subprocess.Popen(words, **options)

    def listens(self, process, port):
        """Whether something listens on a TCP port in the namespace of a local process."""
        wanted = f":{port:04X} "
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{process.pid}/net/{table}", encoding="ascii") as lines:
                for line in lines:
                    words = line.split()
                    if words[3] == "0A" and wanted in line[: line.index(words[2])]:
                        return True
        return False

    def attach(self, driver):
        """Makes the device of a driver that is loaded."""
        self.device = f"{PREFIXES[driver]}{self.suffix}"
        self.run("rdma", "link", "add", self.device, "type", driver, "netdev", self.netdev)
        if self.remote:
            port = f"/sys/class/infiniband/{self.device}/ports/1"
            script = f"for tries in 1 2 3 4 5; do grep -l ffff:0a {port}/gids/* 2>/dev/null; sleep 0.2; done"
            for line in self.run("sh", "-c", script).split():
                index = line.rsplit("/", 1)[1]
                if "v2" in self.run("cat", f"{port}/gid_attrs/types/{index}"):
                    self.gid = int(index)
                    return
            raise RuntimeError(f"{self.device} has no GID for {self.address}")
        self.gid = gid_index(self.device, self.address)


class Place:
    """Two ends, which may be the same."""

    def __init__(self, name, server, client):
        self.name = name
        self.server = server
        self.client = client
        self.loaded = None

    def ends(self):
        """The two, or the one."""
        return [self.server] if self.client is self.server else [self.server, self.client]

    def _machines(self):
        return [self.server, self.client] if self.client.remote else [self.server]

    def load(self, driver, build=None):
        """Unloads what is loaded, loads a driver, or a build of it from a file, and makes its devices."""
        for machine in self._machines():
            prefix = ["node2"] if machine.remote else []
            for module in MODULES.values():
                run(*prefix, "sh", "-c", UNLOAD.format(module=module))
            run(*prefix, "modprobe", "-a", "ib_uverbs", "rdma_ucm", *(BELOW if build else [MODULES[driver]]))
            if build:
                run(*prefix, "insmod", build)
        for end in self.ends():
            end.attach(driver)
        self.loaded = driver


def veth():
    """Two namespaces joined by a veth pair."""
    for end in (1, 2):
        run("ip", "netns", "add", f"n{end}")
    run("ip", "link", "add", "v1", "netns", "n1", "mtu", str(MTU),
        "type", "veth", "peer", "name", "v2", "netns", "n2", "mtu", str(MTU))  # fmt: skip
    for end in (1, 2):
        run("ip", "-n", f"n{end}", "link", "set", "lo", "up")
        run("ip", "-n", f"n{end}", "address", "add", f"10.0.0.{end}/24", "dev", f"v{end}")
        run("ip", "-n", f"n{end}", "link", "set", f"v{end}", "up")
    return Place("veth", End("10.0.0.1", "v1", 1, "n1"), End("10.0.0.2", "v2", 2, "n2"))


def device():
    """One device on a netdev that leads nowhere, for both ends."""
    run("ip", "link", "add", "loop0", "mtu", str(MTU), "type", "dummy")
    run("ip", "address", "add", "10.9.0.1/24", "dev", "loop0")
    run("ip", "link", "set", "loop0", "up")
    end = End("10.9.0.1", "loop0", 0)
    return Place("device", end, end)


def wire():
    """Two machines, as `scripts/vm --net wire` sets them up."""
    return Place("wire", End("10.1.0.1", "wire", 0), End("10.1.0.2", "wire", 0, remote=True))


PLACES = {"veth": veth, "device": device, "wire": wire}
