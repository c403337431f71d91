# SPDX-License-Identifier: GPL-2.0
"""Random actions upon two devices, their netdevs, their namespaces and the module, while traffic of all kinds runs.

    storm.py SEED SECONDS SLOWNESS DIRECTORY SCRATCH    a storm: all actions, and each of them at least once
    storm.py -s SEED SECONDS SLOWNESS DIRECTORY SCRATCH only what long-lived machines meet, and what it costs in memory

DIRECTORY has the programs of the selftests; files go to SCRATCH. Prints KTAP rows; storm.sh and soak.sh have taken
their numbers. storm.sh also puts back the machine's settings, however this program ends.

An end is a namespace, a netdev and a device with the same number. Whatever has been renamed or moved keeps its number
as the last character of its name, so Kernel.look() finds out from the kernel where everything is. Nothing else knows.
"""

import collections
import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ACTION_SECONDS = 15
# An action that takes so many times as long is given up.
STUCK = 8
# How long the next action waits for traffic, once all is in its place.
MOVE_SECONDS = 10
# How often a kind of action that was always refused is tried again, from a healed state.
MORE_TRIES = 10
# What `true` takes to start and end on a machine with which each action has ACTION_SECONDS. Medians measured in emulated
# machines with 2 CPUs, on a host with a load of 8: 0.02 s without, 0.09 s with the traffic and actions of a storm, where
# the longest of 100 actions took 10 s.
START_SECONDS = 0.05
DRIVER = os.environ.get("FERROCE_DRIVER", "ferroce")
MODULE = {"ferroce": "ferroce", "rxe": "rdma_rxe"}[DRIVER]
PREFIX = {"ferroce": "fer", "rxe": "rxe"}[DRIVER]
AWAY = "n3"
MTU = 4200
# Of lib/nvme.sh.
TARGET = "/sys/kernel/config/nvmet/subsystems/storm"
TARGET_PORT = "/sys/kernel/config/nvmet/ports/4420/subsystems"
HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
# KiB that a storm leaves free, and that a lack of memory does.
FREE = 550 << 10
SPARE = 80 << 10
# xrc is ours alone.
KINDS = ("rc", "uc", "ud", "odp", "srq", "raw") + (("xrc",) if DRIVER == "ferroce" else ())
# By how many KiB the kernel may have grown, and what it has to give have shrunk, in a soak: see memory_row().
MOST_GROWTH = {"SUnreclaim": 8 << 10, "Percpu": 1 << 10, "KernelStack": 1 << 10}
MOST_LOSS = {"MemAvailable": 48 << 10}


class Refused(Exception):
    """A command has failed."""


class Stuck(Exception):
    """A command, or a wait, has not ended in time."""


class Clock:
    """How long the action under way may still take."""

    def __init__(self, slowness):
        self.usual = self.limit = ACTION_SECONDS * slowness
        self.begin = time.monotonic()
        # How long programs took to start and end, in seconds.
        self.starts = []

    def start(self):
        """What is stuck takes longer than what is only slow."""
        self.begin = time.monotonic()
        self.limit = self.usual * STUCK

    def factor(self):
        """How many times longer than START_SECONDS a program takes now; at least 1."""
        took = []
        for _ in range(3):
            begin = time.monotonic()
            try:
                subprocess.run(["true"], check=True)
            except OSError:
                continue
            took.append(time.monotonic() - begin)
        self.starts += took
        return max(1, sum(took) / max(1, len(took)) / START_SECONDS)

    def starts_words(self):
        starts = sorted(self.starts)
        some = ", ".join(f"{starts[len(starts) * part // 100]:.3f}" for part in (0, 10, 50, 90, 99))
        return f"a program started and ended within {some} s (the fastest, 10, 50, 90, 99 of 100)"

    def took(self):
        return time.monotonic() - self.begin

    def left(self):
        return self.limit - self.took()


def stacks(process):
    """Where a process and its children are in the kernel."""
    found = []
    for pid in [process, *children(process)]:
        try:
            with open(f"/proc/{pid}/comm") as name, open(f"/proc/{pid}/stack") as stack:
                found.append(f"{name.read().strip()}: " + " < ".join(line.split()[-1] for line in stack))
        except OSError:
            pass
    return "; ".join(found)


def children(process):
    found = []
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:
            for pid in file.read().split():
                found += [int(pid), *children(int(pid))]
    except OSError:
        pass
    return found


def lock(file):
    """Does not wait: Refused if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Refused(f"{file.name}: {error}") from None


def netdevs_in(namespace):
    """The names of all netdevs there."""
    found = []

    def ask():
        with open(f"/run/netns/{namespace}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
                raise OSError(ctypes.get_errno(), namespace)
        found.extend(name for _, name in socket.if_nameindex())

    # Only a thread of its own goes there.
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found


class Kernel:
    """Runs commands, and finds out where everything is."""

    def __init__(self, clock):
        self.clock = clock
        self.longest = (0, "nothing")
        # By the number of their end: (namespace, name).
        self.links = {}
        self.devices = {}
        self.namespaces = set()
        self.is_exclusive = False

    def run(self, *words, text=None, may_fail=False):
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            # No memory to fork, as a rule.
            raise Refused(f"{' '.join(words)}: {error}") from None
        begin = time.monotonic()
        try:
            output, errors = process.communicate(text, timeout=max(self.clock.left(), 0.5))
        except subprocess.TimeoutExpired:
            where = stacks(process.pid)
            process.kill()
            raise Stuck(f"{' '.join(words)} does not end: {where}") from None
        self.longest = max(self.longest, (time.monotonic() - begin, " ".join(words)))
        if process.returncode and not may_fail:
            raise Refused(f"{' '.join(words)}: {(errors or output).strip()[:200]}")
        return output

    def until(self, what, attempt):
        """Tries it until it is not refused, and returns what it returns."""
        while True:
            try:
                return attempt()
            except Refused as refusal:
                if self.clock.left() < 0:
                    raise Stuck(f"{what}: {refusal}") from None
            time.sleep(0.1)

    def ip(self, namespace, *words, **how):
        return self.run("ip", *(("-n", namespace) if namespace else ()), *words, **how)

    def within(self, namespace, *words, **how):
        # `ip netns exec` mounts and unmounts, which takes grace periods.
        return self.run(*(("nsenter", f"--net=/run/netns/{namespace}") if namespace else ()), *words, **how)

    def write(self, path, text):
        try:
            with open(path, "w") as file:
                file.write(text)
        except OSError as error:
            raise Refused(f"{path}: {error}") from None

    def is_loaded(self):
        return os.path.exists(f"/sys/module/{MODULE}")

    def look(self):
        try:
            self.namespaces = set(os.listdir("/run/netns"))
        except FileNotFoundError:
            self.namespaces = set()
        with open("/sys/module/ib_core/parameters/netns_mode") as file:
            self.is_exclusive = file.read().strip() == "N"
        netdevs, devices = {}, {}
        for namespace in sorted(self.namespaces):
            for name in netdevs_in(namespace):
                if re.fullmatch(r"[vw][12]", name):
                    netdevs[int(name[-1])] = (namespace, name)
            if self.is_exclusive:
                found = json.loads(self.within(namespace, "rdma", "-j", "dev", "show", may_fail=True) or "[]")
                devices.update(self.numbered((device["ifname"] for device in found), namespace))
        if not self.is_exclusive:
            # Those of a namespace that is on its way out are seen, too.
            for number, (_, name) in self.numbered(os.listdir("/sys/class/infiniband"), None).items():
                if number in netdevs:
                    devices[number] = (netdevs[number][0], name)
        self.links, self.devices = netdevs, devices

    def numbered(self, names, place):
        return {int(name[-1]): (place, name) for name in names if re.fullmatch(f"({PREFIX}|other)[12]", name)}


class Program:
    """One program of the traffic, started again whenever it has ended."""

    def __init__(self, name, words, judge):
        self.name = name
        # A function: what it needs may be elsewhere now.
        self.words = words
        self.judge = judge
        self.process = None
        self.output = None
        self.not_before = 0
        self.is_wanted = True
        self.starts = 0
        self.has_moved = False
        self.moved = 0
        self.ends = collections.Counter()

    def start(self):
        words = self.words()
        if not words:
            return
        self.output = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            ["nice", "-n", "25", *words],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.starts += 1

    def kill(self):
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def moves(self):
        """Whether something has arrived since it was started, or it is not to run."""
        return not self.is_wanted or (self.process is not None and b"move" in os.pread(self.output.fileno(), 4096, 0))

    def reap(self):
        """What was wrong, if it has ended; otherwise nothing."""
        if self.process is None or self.process.poll() is None:
            return []
        self.kill()
        self.output.seek(0)
        lines = self.output.read().splitlines()
        self.output.close()
        status, self.process = self.process.returncode, None
        self.ends[status] += 1
        self.not_before = time.monotonic() + 0.7
        for line in lines:
            words = line.split()
            if words and words[0] == "moved":
                self.moved += int(words[1]) if len(words) > 1 else 1
            # It may have been killed before it could count.
            self.has_moved |= self.moved > 0 or words == ["moves"]
        return self.judge(status, lines)


# How lifetime/traffic.c ends when nothing is wrong: over, unable to start, the connection lost, too few messages; and
# how it ends when it is killed.
UNABLE = 2
GOOD_ENDS = (0, UNABLE, 3, 4, -signal.SIGKILL)


def judge_traffic(status, lines):
    # die() ends it with 2 at any time: what has moved something was able to start.
    if status not in GOOD_ENDS or (status == UNABLE and "moves" in lines):
        return [f"status {status}"] + lines[-6:]
    return []


# How the shells around the other programs end: when these have had their turn, without memory for a process (dash and
# bash), and killed.
SHELL_ENDS = (0, 2, 254, -signal.SIGKILL)


def judge_shell(status, lines):
    if status not in SHELL_ENDS:
        return [f"status {status}"] + lines[-6:]
    return [line for line in lines if "wrong" in line or "mismatch" in line]


class Traffic:
    """All programs; a thread of its own starts them again."""

    def __init__(self, kernel, directory, seed, slowness, pause, scratch):
        self.kernel = kernel
        self.directory = directory
        self.seeds = random.Random(seed ^ 0x5EED)
        self.slowness = slowness
        self.pause = pause
        self.wrong = []
        self.lock = threading.Lock()
        self.is_wanted = False
        self.is_over = False
        self.programs = [Program(kind, self.words_of(kind), judge_traffic) for kind in KINDS]
        self.programs.append(Program("rdma_cm", self.words_cm, judge_shell))
        self.nvme = Program(
            "nvme", lambda: [f"{directory}/lib/nvme_traffic.sh", "storm", "10.5.0.1", scratch], judge_shell
        )
        self.programs.append(self.nvme)
        self.thread = threading.Thread(target=self.tend, daemon=True)
        self.thread.start()

    def words_of(self, kind):
        def words():
            places = dict(self.kernel.devices)
            if len(places) < 2:
                return None
            family = self.seeds.choice([(), ("-6",)])
            return [
                f"{self.directory}/traffic", *family,
                "-t", str(20 * self.slowness), "-p", str(self.pause), "-s", str(self.seeds.randrange(1, 1 << 32)),
                kind, *places[1], *places[2],
            ]  # fmt: skip

        return words

    def words_cm(self):
        if len(self.kernel.devices) < 2 or not {"n1", "n2"} <= self.kernel.namespaces:
            return None
        address = self.seeds.choice(["10.0.0.1", "fd00::1"])
        rping = f"timeout {20 * self.slowness} rping -a {address} -C 5 -S 3000 -V"
        server, client = (f"nsenter --net=/run/netns/{namespace} {rping}" for namespace in ("n1", "n2"))
        # A server takes several connections: those that an action ends are tried again.
        return ["sh", "-c", f"""
            {server} -s -P & sleep 0.5
            while kill -0 $! 2>&-; do {client} -c && echo moved 5 && break; sleep 1; done
            kill $! 2>&-; wait"""]

    def tend(self):
        while not self.is_over:
            with self.lock:
                for program in self.programs:
                    found = program.reap()
                    if found:
                        self.wrong.append([program.name, *found])
                    is_due = program.process is None and time.monotonic() > program.not_before
                    if self.is_wanted and program.is_wanted and is_due:
                        program.not_before = time.monotonic() + 0.7
                        try:
                            program.start()
                        except OSError:
                            # There is no memory for a process: later.
                            pass
            time.sleep(0.1)

    def start(self):
        self.is_wanted = True

    def stop(self):
        """All of them end, within the time of the action under way."""
        self.is_wanted = False
        self.end(self.programs)

    def end(self, programs):
        with self.lock:
            for program in programs:
                program.kill()
        while any(program.process for program in programs):
            if self.kernel.clock.left() < 0:
                left = [program for program in programs if program.process]
                raise Stuck("killed, but alive: " + "; ".join(f"{p.name}: {stacks(p.process.pid)}" for p in left))
            time.sleep(0.05)

    def await_moves(self, seconds):
        """What has just been started is not traffic yet."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self.lock:
                if all(program.moves() for program in self.programs if program.name in KINDS):
                    return
            time.sleep(0.1)

    def kill_some(self, chance):
        """One process, or all processes, of a program."""
        with self.lock:
            running = [program for program in self.programs if program.process]
            if not running:
                raise Refused("no traffic")
            program = chance.choice(running)
            victims = children(program.process.pid)
            if victims and chance.random() < 0.5:
                try:
                    os.kill(chance.choice(victims), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            else:
                program.kill()


class Storm:
    def __init__(self, seed, seconds, slowness, directory, scratch, is_soak):
        self.seed = seed
        self.turns = random.Random(seed)
        # Of one action. It must not depend on what earlier ones met.
        self.chance = random.Random(seed)
        self.seconds = seconds
        self.slowness = slowness
        self.clock = Clock(slowness)
        self.kernel = Kernel(self.clock)
        self.scratch = scratch
        self.directory = directory
        self.traffic = Traffic(self.kernel, directory, seed, slowness, 30000 if is_soak else 300000, self.scratch)
        # Huge pages that are kept throughout.
        self.ballast = 0
        self.succeeded = collections.Counter()
        self.refused = {}
        self.longest = (0, "nothing")
        self.late = []
        self.steps = collections.deque(maxlen=40)
        self.actions = {
            "link": self.link,
            "mtu": self.mtu,
            "mac": self.mac,
            "addresses, IPv4": lambda: self.addresses(4),
            "addresses, IPv6": lambda: self.addresses(6),
            "netdev renamed": self.rename,
            "netdev away and back": self.netdev_away,
            "namespace deleted": self.namespace_delete,
            "rdma link": self.rdma_link,
            "rdma link of NVMe": self.rdma_link_of_disk,
            "device renamed": self.device_rename,
            "device to another namespace": self.device_away,
            "netns mode": self.mode,
            "module": self.module,
            "kill": lambda: self.traffic.kill_some(self.chance),
            "netem": self.netem,
            "nft": self.nft,
            "cpu": self.cpu,
            "dumps": self.dumps,
            "memory": self.memory,
        }
        if is_soak:
            self.actions = {name: self.actions[name] for name in ("link", "kill", "netem", "nft", "dumps")}

    # What actions are made of.

    def pause(self, most=1.0):
        time.sleep(self.chance.uniform(0.05, most))

    def end_of(self, number=None):
        """A number, and where its netdev is."""
        number = number or self.chance.choice([1, 2])
        if number not in self.kernel.links:
            self.heal()
        if number not in self.kernel.links:
            raise Refused(f"there is no netdev {number}")
        return (number, *self.kernel.links[number])

    def device_of(self):
        number = self.chance.choice([1, 2])
        if number not in self.kernel.devices:
            self.heal()
        if number not in self.kernel.devices:
            raise Refused(f"there is no device {number}")
        return (number, *self.kernel.devices[number])

    def processes_of(self, namespace):
        return [int(pid) for pid in self.kernel.run("ip", "netns", "pids", namespace).split()]

    def namespace_drop(self, namespace):
        """It lives as long as a process in it."""
        processes = self.processes_of(namespace)
        self.kernel.run("ip", "netns", "del", namespace)
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # The actions.

    def link(self):
        _, namespace, name = self.end_of()
        self.kernel.ip(namespace, "link", "set", name, "down")
        self.pause(1.5)
        self.kernel.ip(namespace, "link", "set", name, "up")

    def mtu(self):
        for number in self.chance.choice([(1,), (2,), (1, 2)]):
            _, namespace, name = self.end_of(number)
            self.kernel.ip(namespace, "link", "set", name, "mtu", str(self.chance.randint(600, 9000)))

    def mac(self):
        number, namespace, name = self.end_of()
        address = f"02:00:00:{self.chance.randrange(256):02x}:{self.chance.randrange(256):02x}:{number:02x}"
        self.kernel.ip(namespace, "link", "set", name, "address", address)

    def addresses(self, family):
        number, namespace, name = self.end_of()
        # A second address of the same prefix would be a secondary one, which goes together with the first.
        own, other = {
            4: (f"10.0.0.{number}/24", f"10.0.0.{10 + number}/25"),
            6: (f"fd00::{number}/64", f"fd00::{10 + number:x}/64"),
        }[family]
        nodad = ("nodad",) if family == 6 else ()
        self.kernel.ip(namespace, "address", "replace", other, "dev", name, *nodad)
        self.kernel.ip(namespace, "address", "del", own, "dev", name, may_fail=True)
        self.pause()
        self.kernel.ip(namespace, "address", "replace", own, "dev", name, *nodad)
        self.kernel.ip(namespace, "address", "del", other, "dev", name)

    def rename(self):
        number, namespace, name = self.end_of()
        other = f"w{number}" if name[0] == "v" else f"v{number}"
        self.kernel.ip(namespace, "link", "set", name, "down")
        self.kernel.ip(namespace, "link", "set", name, "name", other)
        self.kernel.ip(namespace, "link", "set", other, "up")

    def netdev_away(self):
        number, namespace, name = self.end_of()
        if AWAY not in self.kernel.namespaces:
            self.kernel.run("ip", "netns", "add", AWAY)
        self.kernel.ip(namespace, "link", "set", name, "netns", AWAY)
        self.pause()
        self.kernel.ip(AWAY, "link", "set", name, "netns", f"n{number}")

    def namespace_delete(self):
        self.end_of()
        self.namespace_drop(self.chance.choice(["n1", "n2"]))

    def rdma_link(self):
        _, place, device = self.device_of()
        self.kernel.within(place, "rdma", "link", "del", device)
        self.pause()
        self.kernel.look()
        self.devices_add()

    def rdma_link_of_disk(self):
        self.disk_device_heal()
        with self.no_first_connection():
            self.kernel.run("rdma", "link", "del", "disk0")
            self.pause()
            self.disk_device_heal()

    def device_rename(self):
        number, place, device = self.device_of()
        other = f"other{number}" if device.startswith(PREFIX) else f"{PREFIX}{number}"
        self.kernel.within(place, "rdma", "dev", "set", device, "name", other)

    def device_away(self):
        if not self.kernel.is_exclusive:
            self.act("netns mode")
            self.clock.start()
        _, place, device = self.device_of()
        other = "n2" if place == "n1" else "n1"
        self.kernel.within(place, "rdma", "dev", "set", device, "netns", other)
        self.kernel.look()
        self.pause()
        self.kernel.within(other, "rdma", "dev", "set", device, "netns", place)

    def mode(self):
        """The core refuses it while there is any other namespace than the first."""
        self.traffic.stop()
        self.kernel.look()
        for namespace in self.kernel.namespaces:
            self.namespace_drop(namespace)
        mode = "shared" if self.kernel.is_exclusive else "exclusive"
        self.kernel.until("netns mode", lambda: self.kernel.run("rdma", "system", "set", "netns", mode))
        took = self.clock.took()
        self.clock.start()
        self.heal()
        self.traffic.start()
        # To make everything anew is no part of it.
        self.clock.start()
        self.clock.begin -= took

    def module(self):
        with self.no_first_connection():
            self.kernel.run("rmmod", MODULE)
            self.pause()
            self.kernel.run("modprobe", MODULE)

    @contextlib.contextmanager
    def no_first_connection(self):
        """Keeps nvme-rdma from making one: nvme_traffic.sh says why. The wait for the lock is no part of the action."""
        with open(f"{self.scratch}/connecting", "w") as file:
            self.kernel.until("NVMe connection", lambda: lock(file))
            self.clock.start()
            yield

    def netem(self):
        what = self.chance.choice([
            "loss 1%", "loss 10%", "duplicate 5%", "delay 2ms 1ms reorder 75%", "corrupt 1%", "delay 20ms",
            "rate 20mbit",
        ])  # fmt: skip
        # A frame has no checksum that would show it. heal() allows them again.
        if "corrupt" in what:
            self.raw_allowed(False)
        for number in self.chance.choice([(1,), (2,), (1, 2)]):
            _, namespace, name = self.end_of(number)
            self.kernel.within(
                namespace, "tc", "qdisc", "replace", "dev", name, "root", "netem", "limit", "5000", *what.split()
            )

    def raw_allowed(self, is_allowed):
        raw = next(program for program in self.traffic.programs if program.name == "raw")
        if raw.is_wanted and not is_allowed:
            raw.is_wanted = False
            self.traffic.end([raw])
        raw.is_wanted = is_allowed

    def nft(self):
        _, namespace, _ = self.end_of()
        one = self.chance.choice(["input", "output", "prerouting"])
        self.kernel.within(namespace, "nft", "-f", "-", text=f"""
            flush ruleset
            table inet storm {{
                chain {one} {{
                    type filter hook {one} priority 0;
                    udp dport 4791 numgen random mod 20 == 0 counter drop
                    udp dport 4791 ct state new counter
                }}
            }}""")
        self.kernel.within(namespace, "nft", "list", "hooks")
        self.pause()
        self.kernel.within(namespace, "nft", "delete", "table", "inet", "storm")

    def cpu(self):
        path = "/sys/devices/system/cpu/cpu1/online"
        self.kernel.write(path, "0")
        self.pause()
        self.kernel.write(path, "1")

    def dumps(self):
        _, place, device = self.device_of()
        shown = ["resource show", *(f"resource show {kind}" for kind in ("qp", "mr", "cm_id", "cq", "srq", "pd", "ctx"))]
        shown += ["statistic show", "-d dev show", "link show", f"resource show qp link {device}/1"]
        for words in self.chance.sample(shown, 4):
            self.kernel.within(place, "rdma", *words.split())

    def memory(self):
        """More than what is free is taken, as huge pages, and given back."""
        figures = meminfo()
        # Left are min_free_kbytes, which is large where pages are, and the area for contiguous allocations, which the
        # kernel's own objects cannot have: with less free it kills processes.
        with open("/proc/sys/vm/min_free_kbytes") as file:
            spare = max(SPARE, int(file.read()) * 3 // 2) + figures.get("CmaFree", 0)
        wanted = figures["MemFree"] + figures["Inactive(file)"] // 4 - spare
        self.kernel.write(HUGE_PAGES, str(self.ballast + max(wanted, 0) // figures["Hugepagesize"]))
        self.pause()
        self.kernel.write(HUGE_PAGES, str(self.ballast))

    def ballast_take(self):
        """A machine with little memory is soon short of it: to take much, the kernel would clear it, for long."""
        figures = meminfo()
        wanted = max(figures["MemFree"] - FREE, 0) // figures["Hugepagesize"]
        while self.ballast < wanted:
            self.clock.start()
            self.kernel.write(HUGE_PAGES, str(min(self.ballast + 32, wanted)))
            self.ballast = min(self.ballast + 32, wanted)

    # Everything in its place again.

    def heal(self):
        kernel = self.kernel
        kernel.write("/sys/devices/system/cpu/cpu1/online", "1")
        if not kernel.is_loaded():
            kernel.run("modprobe", MODULE)
        kernel.look()
        for namespace in ("n1", "n2"):
            if namespace not in kernel.namespaces:
                kernel.run("ip", "netns", "add", namespace)
                kernel.ip(namespace, "link", "set", "lo", "up")
        if len(kernel.links) < 2:
            for namespace, name in kernel.links.values():
                kernel.ip(namespace, "link", "del", name, may_fail=True)
            kernel.run(*"ip link add v1 netns n1 type veth peer name v2 netns n2".split())
            kernel.look()
        for number, (namespace, name) in kernel.links.items():
            if namespace != f"n{number}":
                kernel.ip(namespace, "link", "set", name, "netns", f"n{number}")
            self.netdev_heal(number, name)
        self.raw_allowed(True)
        kernel.look()
        for number, (place, device) in kernel.devices.items():
            if place != f"n{number}":
                kernel.within(place, "rdma", "dev", "set", device, "netns", f"n{number}")
            if device != f"{PREFIX}{number}":
                kernel.within(f"n{number}", "rdma", "dev", "set", device, "name", f"{PREFIX}{number}")
        kernel.look()
        self.devices_add()
        self.disk_device_heal()

    def netdev_heal(self, number, name):
        kernel, namespace = self.kernel, f"n{number}"
        if name != f"v{number}":
            kernel.ip(namespace, "link", "set", name, "down")
            kernel.ip(namespace, "link", "set", name, "name", f"v{number}")
        kernel.within(namespace, "sh", "-c", f"tc qdisc del dev v{number} root 2>&-; exec ip -batch -", text=f"""
link set v{number} mtu {MTU} up
address replace 10.0.0.{number}/24 dev v{number}
address replace fd00::{number}/64 dev v{number} nodad
neigh flush dev v{number}
""")

    def devices_add(self):
        """A device that is on its way out still has its name."""
        for number, (namespace, name) in self.kernel.links.items():
            if number not in self.kernel.devices:
                words = ("rdma", "link", "add", f"{PREFIX}{number}", "type", DRIVER, "netdev", name)
                self.kernel.until("rdma link add", lambda place=namespace, add=words: self.kernel.within(place, *add))
        self.kernel.look()

    def disk_device_heal(self):
        """The device of NVMe is in the first namespace, on a netdev of its own."""
        if not os.path.exists("/sys/class/net/disk0"):
            self.kernel.ip(None, "-batch", "-", text="""
link add disk0 type dummy
address add 10.5.0.1/24 dev disk0
link set disk0 up
""")
        if not os.path.exists("/sys/class/infiniband/disk0"):
            self.kernel.until("rdma link add", lambda: self.kernel.run(
                "rdma", "link", "add", "disk0", "type", DRIVER, "netdev", "disk0"))  # fmt: skip
            self.kernel.until("NVMe target", self.target_listen)

    def target_listen(self):
        """The target asks for its device again every five seconds, and not for ever: it is told."""
        if not os.path.isdir(TARGET):
            return
        link = f"{TARGET_PORT}/{os.path.basename(TARGET)}"
        try:
            if os.path.lexists(link):
                os.remove(link)
            os.symlink(TARGET, link)
        except OSError as error:
            raise Refused(f"NVMe target: {error}") from None

    # How it goes.

    def tell(self, words):
        """The kernel's log shows what it was that came before a report."""
        with open("/dev/kmsg", "w") as log:
            log.write(f"storm: {words}\n")

    def act(self, name, action=None):
        self.tell(f"{name} begins")
        factor = self.clock.factor()
        self.clock.start()
        try:
            (action or self.actions[name])()
            outcome = "done"
            self.succeeded[name] += 1
        except Refused as refusal:
            outcome = str(refusal)
            self.refused[name] = outcome
        took = self.clock.took()
        self.steps.append(f"{name}: {took:.1f} s: {outcome}")
        self.tell(f"{name} took {took:.1f} s: {'done' if outcome == 'done' else 'refused: ' + outcome}")
        # To heal is to undo several.
        if name == "heal":
            return
        self.longest = max(self.longest, (took, name))
        factor = max(factor, self.clock.factor())
        if took > self.clock.usual * factor:
            self.late.append(f"{name} took {took:.1f} s, while the machine was {factor:.1f} times slower than usual")

    def actions_in_turn(self):
        """Each as often as the others, in a random order."""
        while True:
            deck = list(self.actions)
            self.turns.shuffle(deck)
            yield from deck

    def missing(self):
        return [name for name in self.actions if not self.succeeded[name]]

    def is_short(self):
        """Too short for each kind of action."""
        return self.seconds < 60

    def run(self, seconds):
        """The first of each kind mostly meets traffic. Later ones mostly meet what several others have changed."""
        begin = time.monotonic()
        turns = self.actions_in_turn()
        self.traffic.start()
        for step in itertools.count():
            is_over = time.monotonic() - begin >= seconds
            if is_over and (step >= len(self.actions) or self.is_short()):
                break
            self.step(step, next(turns), self.turns.random() < (0.7 if step < len(self.actions) else 0.25))
        if not self.is_short():
            for step in range(MORE_TRIES * len(self.missing())):
                if self.missing():
                    self.step(f"again {step}", self.missing()[0], True)

    def step(self, step, name, is_healed):
        self.chance = random.Random(f"{self.seed} {step}")
        self.act(name)
        self.clock.start()
        self.kernel.look()
        self.pause()
        if is_healed:
            self.act("heal", self.heal)
            self.traffic.await_moves(MOVE_SECONDS * self.slowness)
            self.pause()

    def calm(self):
        """As it was in the beginning, without traffic."""
        self.clock.start()
        self.traffic.stop()
        self.act("heal", lambda: self.kernel.until("heal", self.heal))
        for namespace in ("n1", "n2"):
            self.kernel.within(namespace, "nft", "flush", "ruleset")
        if self.kernel.is_exclusive:
            self.act("netns mode")
            self.clock.start()
            self.traffic.stop()


class Rows:
    def __init__(self):
        self.number = 0

    def row(self, is_ok, name, *words):
        self.number += 1
        for word in words:
            print("#", word)
        print(f"{'ok' if is_ok else 'not ok'} {self.number} {name}", flush=True)


def moves(storm, words):
    """Why it does not move anything; nothing if it does. Addresses, neighbours and the NVMe target take their time."""
    storm.clock.start()
    while True:
        try:
            output = storm.kernel.run(*words)
            if "moved" in output:
                return []
            failure = "nothing has moved"
        except (Refused, Stuck) as error:
            failure = str(error)
        if "wrong" in failure or storm.clock.left() < 3:
            return [f"{' '.join(words)}: {failure}"]
        time.sleep(0.3)


def works_afterwards(storm):
    """What does not work of each kind of traffic, when it alone runs."""
    ends = [*storm.kernel.devices[1], *storm.kernel.devices[2]]
    traffic = [f"{storm.directory}/traffic", "-t", str(2 * storm.slowness), "-m", "4"]
    all_words = [[*traffic, *family, kind, *ends] for kind in KINDS for family in ((), ("-6",))]
    all_words.append(["sh", "-c", storm.traffic.words_cm()[2]])
    all_words.append([f"{storm.directory}/lib/nvme_traffic.sh", "storm", "10.5.0.1", storm.scratch, "3"])
    return [why for words in all_words for why in moves(storm, words)]


def meminfo():
    with open("/proc/meminfo") as file:
        return {line.split(":")[0]: int(line.split()[1]) for line in file}


def memory_figures():
    """In KiB, and what the module has, when all that can be given back has been given back."""
    for path, text in (("drop_caches", "3"), ("compact_memory", "1"), ("drop_caches", "3")):
        with open(f"/proc/sys/vm/{path}", "w") as file:
            file.write(text)
    time.sleep(1)
    all_figures = meminfo()
    return {name: all_figures[name] for name in ("MemAvailable", "Slab", "SUnreclaim", "Percpu", "KernelStack")}


def live_objects():
    try:
        with open("/sys/kernel/debug/ferroce/live_objects") as file:
            return [line.strip() for line in file if not line.strip().endswith(" 0")]
    except OSError:
        return []


def processes_gone():
    """Those of programs that were killed may outlive them. storm.sh has put all into one control group."""
    with open("/proc/self/cgroup") as file:
        group = file.read().split("0::")[1].strip()
    with open(f"/sys/fs/cgroup{group}/cgroup.procs") as file:
        left = set(file.read().split()) - {str(os.getpid())}
    if left:
        raise Refused(f"processes are left: {' '.join(left)}")


def contexts_gone():
    if any(line.startswith("context ") for line in live_objects()):
        raise Refused("contexts of users are left")


def objects_as(before):
    if live_objects() != before:
        raise Refused("other objects")


def settled_figures(storm, before):
    """Memory and objects, once processes and what was theirs have gone; and objects are as before, if they ever are."""
    kernel = storm.kernel
    storm.clock.start()
    kernel.until("processes", processes_gone)
    kernel.until("contexts", contexts_gone)
    figures = memory_figures()
    if before:
        storm.clock.start()
        try:
            kernel.until("objects", lambda: objects_as(before[1]))
        except Stuck:
            pass
    return figures, live_objects()


def traffic_words(storm):
    return [
        f"{program.name}: {program.starts} starts, {program.moved} messages, ends {dict(program.ends)}"
        for program in storm.traffic.programs
    ]


def devices_drop(kernel):
    """Those of a namespace that goes come to the first one, or go with their netdevs."""
    for device in os.listdir("/sys/class/infiniband"):
        kernel.run("rdma", "link", "del", device, may_fail=True)
    left = os.listdir("/sys/class/infiniband")
    if left:
        raise Refused(f"devices are left: {' '.join(left)}")


def tear_down(storm):
    storm.clock.start()
    storm.traffic.stop()
    storm.traffic.is_over = True
    storm.kernel.write(HUGE_PAGES, "0")
    storm.kernel.run(f"{storm.directory}/lifetime/storm.sh", "undo", storm.scratch, may_fail=True)
    storm.kernel.look()
    for namespace in storm.kernel.namespaces:
        storm.namespace_drop(namespace)
    storm.kernel.until("devices", lambda: devices_drop(storm.kernel))
    storm.kernel.ip(None, "link", "del", "disk0", may_fail=True)
    if storm.kernel.is_exclusive:
        storm.kernel.until("netns mode", lambda: storm.kernel.run("rdma", "system", "set", "netns", "shared"))


def memory_row(storm, rows, before, after):
    """Flat: what a run of five minutes varies by, and some more. A packet that is lost for good in a thousand would
    show in an hour."""
    words = [f"{name}: {before[0][name]} KiB, then {after[0][name]} KiB" for name in before[0]]
    words += [f"objects: {before[1]}", f"then {after[1]}"]
    grown = [name for name, most in MOST_GROWTH.items() if after[0][name] - before[0][name] > most]
    lost = [name for name, most in MOST_LOSS.items() if before[0][name] - after[0][name] > most]
    is_same = before[1] == after[1]
    bounds = ", ".join(f"{name} {most} KiB" for name, most in (MOST_GROWTH | MOST_LOSS).items())
    rows.row(not grown and not lost and is_same, "memory and objects are as before", *words, f"bounds: {bounds}")


def soak(storm):
    """Runs a tenth of the time first: caches fill, and pools. Returns what there was then, and in the end."""
    figures = []
    warm = max(20 * storm.slowness, storm.seconds // 10)
    for seconds in (warm, storm.seconds):
        storm.run(seconds)
        storm.calm()
        storm.kernel.run(f"{storm.directory}/lifetime/storm.sh", "disconnect")
        figures.append(settled_figures(storm, figures[0] if figures else None))
    return figures


def all_rows(storm, rows, seed, is_soak):
    stuck = figures = None
    begin = time.monotonic()
    try:
        storm.act("heal", lambda: storm.kernel.until("heal", storm.heal))
        storm.clock.start()
        storm.kernel.run(f"{storm.directory}/lifetime/storm.sh", "target", storm.scratch)
        if is_soak:
            figures = soak(storm)
        else:
            storm.ballast_take()
            storm.run(storm.seconds)
            storm.calm()
    except Stuck as failure:
        stuck = str(failure)
    except Exception:  # pylint: disable=broad-exception-caught # it is shown, and fails the row
        stuck = traceback.format_exc().replace("\n", "; ")
    storm.traffic.is_wanted = False
    took = time.monotonic() - begin
    tried = sum(count for name, count in storm.succeeded.items() if name != "heal")
    words = [f"seed {seed}: {tried} actions in {took:.0f} s; the longest took {storm.longest[0]:.1f} s: {storm.longest[1]}"]
    words += [f"the longest command took {storm.kernel.longest[0]:.1f} s: {storm.kernel.longest[1]}"]
    words += [f"{name}: {count}" for name, count in sorted(storm.succeeded.items())]
    words += [f"refused: {name}: {why}" for name, why in sorted(storm.refused.items())]
    if stuck:
        words += [*storm.steps, f"stuck: {stuck}"]
    clock = storm.clock
    words += [*storm.late, clock.starts_words()]
    rows.row(not stuck and not storm.late, f"each action ends within {clock.usual} s", *words)
    missing = storm.missing()
    rows.row(storm.is_short() or not missing, "each kind of action has succeeded", *(f"never: {name}" for name in missing))
    rows.row(not storm.traffic.wrong, "what arrived was right", *(" | ".join(wrong) for wrong in storm.traffic.wrong))
    still = [program.name for program in storm.traffic.programs if not program.has_moved]
    rows.row(storm.is_short() or not still, "each kind of traffic has moved something", *traffic_words(storm))
    if figures:
        memory_row(storm, rows, *figures)
    else:
        try:
            broken = works_afterwards(storm) if not stuck else ["not tried"]
        except (KeyError, Refused, Stuck) as failure:
            broken = [f"it is not as before: {failure!r}"]
        rows.row(not broken, "each kind of traffic works afterwards", *broken)
    try:
        tear_down(storm)
        rows.row(True, "devices and namespaces go")
    except (OSError, Refused, Stuck) as failure:
        rows.row(False, "devices and namespaces go", str(failure))


def main():
    words = sys.argv[1:]
    is_soak = words[0] == "-s"
    seed, seconds, slowness = (int(word) for word in words[is_soak:][:3])
    directory, scratch = words[-2:]
    # What is done to the traffic comes before the traffic.
    os.nice(-15)
    all_rows(Storm(seed, seconds, slowness, directory, scratch, is_soak), Rows(), seed, is_soak)


main()
