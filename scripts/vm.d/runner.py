# SPDX-License-Identifier: GPL-2.0
"""Boots the machines of one run of scripts/vm, inside the Debian root, and minds them.

Mounted at /mnt: run (this run's own directory), src, image, and if given share, out, ferroce.ko.
"""

import argparse
import collections
import io
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time

import tsc
from archive import Archive

RUN = pathlib.Path("/mnt/run")
IMAGE = pathlib.Path("/mnt/image")
MODULE = pathlib.Path("/mnt/ferroce.ko")
GUEST = pathlib.Path("/mnt/src/scripts/vm.d")

# What QEMU emulates for each architecture: the machine and the CPU.
MACHINES = {
    # `rep` string instructions are emulated byte by byte: the guest's kernel must not choose them.
    "x86_64": ("-M", "pc", "-cpu", "max,-erms,-fsrm,-fsrs,-fzrm,-fsrc"),
    # The architecture's own algorithm of pointer authentication takes most of the time in emulation.
    "aarch64": ("-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"),
}
# With pages of 16 KiB, huge pages would have 32 MiB: rdma-core's suite knows those of 2 MiB.
KERNEL_ARGUMENTS = (
    "console=hvc0 loglevel=8 panic=-1 oops=panic mitigations=off nokaslr "
    "audit=0 apparmor=0 watchdog_thresh=30 rcupdate.rcu_expedited=1 default_hugepagesz=2M"
)
# Every report, not only the first of a kind. Slab caches that are checked have no sheaves: those are arrays with
# stale pointers to objects in use, and what they point to is no leak to kmemleak.
MORE_KERNEL_ARGUMENTS = {
    "stock": "",
    "debug": " kasan_multi_shot kasan.fault=report kmemleak=on slab_debug=F",
}
BOOT_SECONDS = {"stock": 120, "debug": 400}
GONE = 125
TIMED_OUT = 124


class Failure(Exception):
    """Ends the run: one line for the user, and the exit status."""

    def __init__(self, message, status=GONE):
        super().__init__(message)
        self.status = status


def complain(message):
    print(f"vm: {message}", file=sys.stderr, flush=True)


def module_files(arch):
    """What a guest needs to load ferroce.ko: the module, and depmod's tables with it in them."""
    version = (IMAGE / "version").read_text().strip()
    updates = IMAGE / "modules/lib/modules" / version / "updates"
    stripped = RUN / "updates/ferroce.ko"
    stripped.parent.mkdir()
    strip = (f"{arch}-linux-gnu-strip", "--strip-debug", "-o", stripped, MODULE)
    if subprocess.run(strip, capture_output=True).returncode:
        raise Failure("ferroce.ko is no kernel module")
    magic = subprocess.run(
        ("modinfo", "-F", "vermagic", stripped), capture_output=True, text=True
    ).stdout.split()
    if magic[:1] != [version]:
        built = " ".join(magic[:1])
        remedy = "run scripts/module --kernel NAME"
        raise Failure(f"ferroce.ko is built for kernel {built}, the image has {version}: {remedy}")
    subprocess.run(("mount", "--bind", stripped.parent, updates), check=True)
    tables = RUN / "depmod"
    base = IMAGE / "modules"
    depmod = ("depmod", "-b", base, "-o", tables, version)
    result = subprocess.run(depmod, capture_output=True, text=True)
    if result.returncode:
        raise Failure(f"depmod: {result.stderr.strip()}")
    files = {"vm/ferroce.ko": stripped.read_bytes()}
    for table in (tables / "lib/modules" / version).iterdir():
        files[f"vm/depmod/{table.name}"] = table.read_bytes()
    return files


class Node:
    """One virtual machine."""

    def __init__(self, number, options, module):
        self.number = number
        self.log = RUN / f"log.{number}"
        self.options = options
        self._sockets = {}
        self._settings = (RUN / f"settings.{number}").read_text()
        self._write_initramfs(module)
        self.process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL)

    def _write_initramfs(self, module):
        stream = io.BytesIO()
        merged = os.fstat(1)[:3] == os.fstat(2)[:3]
        settings = self._settings + f"merged={1 if merged else ''}\n"
        with Archive(stream) as archive:
            archive.file("init", (GUEST / "init").read_bytes(), 0o755)
            archive.file("vm/guest", (GUEST / "guest").read_bytes(), 0o755)
            archive.file("vm/network", (GUEST / "network").read_bytes())
            archive.file("vm/relay.py", (GUEST / "relay.py").read_bytes())
            archive.file("vm/settings", settings.encode())
            archive.file("vm/command", (RUN / "command").read_bytes())
            archive.folder("vm/bin")
            if "nodes=2" in self._settings:
                other = 3 - self.number
                relay = f'#!/bin/sh\nexec python3 -SsE /run/vm/relay.py run 10.255.0.{other} "$@"\n'
                archive.file(f"vm/bin/node{other}", relay.encode(), 0o755)
            if "driver=ferroce" in self._settings:
                for name, data in module.items():
                    archive.file(name, data)
        base = (IMAGE / "initramfs.cpio").read_bytes()
        (RUN / f"initramfs.{self.number}").write_bytes(base + stream.getvalue())

    def _port(self, name):
        path = RUN / f"{name}.{self.number}"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        self._sockets[name] = listener
        return (
            "-chardev", f"socket,id={name},path={path}",
            "-device", f"virtserialport,chardev={name},name={name}",
        )  # fmt: skip

    def _folder(self, name, path, mode):
        return (
            "-fsdev", f"local,id={name},path={path},security_model=none,multidevs=remap{mode}",
            "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}",
        )  # fmt: skip

    def _link(self, name, network):
        own, peer = (RUN / f"{name}-{n}" for n in (self.number, 3 - self.number))
        return (
            "-netdev", f"dgram,id={name},local.type=unix,local.path={own},"
            f"remote.type=unix,remote.path={peer}",
            "-device", f"virtio-net-pci,netdev={name},mac=52:54:00:00:{network:02}:{self.number:02},"
            "romfile=",
        )  # fmt: skip

    def _command(self):
        options = self.options
        command = [f"qemu-system-{options.arch}", *MACHINES[options.arch], "-nodefaults", "-no-user-config"]
        command += ["-nographic", "-display", "none", "-monitor", "none", "-no-reboot"]
        if options.icount:
            command += ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]
        else:
            command += ["-accel", "tcg,thread=multi"]
        if options.plugin:
            command += ["-plugin", options.plugin]
        command += ["-smp", str(options.cpus), "-m", str(options.mem)]
        command += ["-kernel", str(IMAGE / "vmlinuz"), "-append"]
        command += [KERNEL_ARGUMENTS + MORE_KERNEL_ARGUMENTS[options.kernel] + self._clock()]
        command += ["-initrd", str(RUN / f"initramfs.{self.number}")]
        command += ["-device", "virtio-serial-pci,max_ports=8"]
        command += ["-chardev", f"file,id=log,path={self.log}", "-device", "virtconsole,chardev=log"]
        for port in ("control", "out", "err"):
            command += self._port(port)
        disk = f"file={IMAGE / 'root.img'},format=raw,if=none,id=root,snapshot=on,cache=unsafe"
        command += ["-drive", disk]
        command += ["-device", "virtio-blk-pci,drive=root"]
        command += self._folder("src", "/mnt/src", ",readonly=on")
        if "share=1" in self._settings:
            command += self._folder("share", "/mnt/share", ",readonly=on")
        if "out=1" in self._settings:
            command += self._folder("out", "/mnt/out", "")
        if "net=wire" in self._settings:
            command += self._link("wire", 1) + self._link("relay", 2)
        return command

    def _clock(self):
        if self.options.arch != "x86_64":
            return ""
        # The guest would measure its time-stamp counter against another clock while it boots. On a busy machine that
        # measurement can be wrong by an order of magnitude, and so is the guest's time from then on. With icount the
        # counter is no clock of this machine's, and the measurement is exact.
        frequency = None if self.options.icount else tsc.frequency()
        return " tsc=reliable no_timer_check" + (f" tsc_early_khz={frequency}" if frequency else "")

    def connections(self):
        """The guest's ports. QEMU connects to all of them before it starts the guest."""
        for name, listener in self._sockets.items():
            listener.settimeout(0.1)
            while True:
                try:
                    yield name, listener.accept()[0]
                    break
                except TimeoutError:
                    if self.process.poll() is not None:
                        raise Failure(f"QEMU did not start (exit status {self.process.returncode})") from None
            listener.close()

    def log_text(self):
        try:
            return self.log.read_text(errors="replace").replace("\r", "")
        except FileNotFoundError:
            return ""


class Run:
    """All nodes of one run: copies output, waits for reports, keeps to the time limits."""

    def __init__(self, options, module):
        self.options = options
        self.begin = time.monotonic()
        # A plugin is called for every block that the guest executes.
        self.boot_seconds = BOOT_SECONDS[options.kernel] * (4 if options.plugin else 1)
        self.deadline = self.begin + self.boot_seconds
        self.status = None
        self.waiting = set(range(1, options.nodes + 1))
        self.selector = selectors.DefaultSelector()
        self.nodes = []
        # The second node first: when the first one's command starts, it must be there.
        for number in range(options.nodes, 0, -1):
            self.nodes.append(Node(number, options, module))
        for node in self.nodes:
            for name, connection in node.connections():
                self.selector.register(connection, selectors.EVENT_READ, (node, name, bytearray()))

    def follow(self):
        """Returns the command's exit status once node 1 is off and all of its output is copied."""
        first = self.nodes[-1]
        while any(key.data[0] is first for key in self.selector.get_map().values()):
            left = self.deadline - time.monotonic()
            if left <= 0:
                if self.status is not None:
                    raise Failure("the guest hung when it was switched off", TIMED_OUT)
                if self.waiting:
                    raise Failure(f"the guest did not start within {self.boot_seconds} s", TIMED_OUT)
                raise Failure(f"timeout: COMMAND ran for {self.options.timeout} s", TIMED_OUT)
            for key, _ in self.selector.select(left):
                self._receive(key)
        if self.status is None:
            raise Failure("the guest died" + self._cause(first))
        return self.status

    def _receive(self, key):
        node, name, pending = key.data
        try:
            data = key.fileobj.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.selector.unregister(key.fileobj)
            key.fileobj.close()
            if node.number != 1 and name == "control" and self.status is None:
                raise Failure("the second guest died" + self._cause(node))
        elif name == "control":
            pending += data
            while b"\n" in pending:
                line, _, rest = pending.partition(b"\n")
                pending[:] = rest
                self._report(node, line.decode())
        else:
            self._copy(1 if name == "out" else 2, data)

    def _copy(self, target, data):
        while data:
            data = data[os.write(target, data) :]

    def _report(self, node, line):
        word, _, rest = line.partition(" ")
        if word == "failed":
            raise Failure(rest if node.number == 1 else f"node {node.number}: {rest}")
        if word == "exit":
            self.status = int(rest)
            self.deadline = time.monotonic() + 30
        elif word == "started":
            self.waiting.discard(node.number)
            if self.options.verbose:
                complain(f"node {node.number} ready after {time.monotonic() - self.begin:.1f} s")
            if not self.waiting:
                self.deadline = time.monotonic() + self.options.timeout

    def _cause(self, node):
        for line in node.log_text().splitlines():
            if "Kernel panic" in line or "BUG:" in line or "Oops:" in line:
                return ": " + line.partition("] ")[2]
        try:
            # Its connections are closed a moment before it has ended.
            status = node.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return ""
        return ": QEMU was killed, as the kernel does when memory is short" if status == -signal.SIGKILL else ""

    def show_log(self, whole_tail):
        """The log's end, or after a failed command only what looks like a kernel's complaint."""
        for node in reversed(self.nodes):
            lines = node.log_text().splitlines()
            if whole_tail:
                lines = collections.deque(lines, 40)
            else:
                marks = ("WARNING:", "BUG:", "Oops", "KASAN", "UBSAN", "ODEBUG", "INFO: task")
                marks += ("possible circular", "inconsistent lock state", "unreferenced object")
                lines = [line for line in lines if any(mark in line for mark in marks)][:10]
            for line in lines:
                print(f"  node{node.number} | {line}", file=sys.stderr)

    def died_early(self):
        """Whether a kernel has panicked before its first program: QEMU's emulation of code that is patched while another
        CPU runs it fails once in a while ("Oops: int3"). Nothing of ours has run on that machine."""
        logs = (node.log_text() for node in self.nodes)
        return any("Kernel panic" in log and "Run /init" not in log for log in logs)

    def end(self):
        for node in self.nodes:
            node.process.kill()
            node.process.wait()


def main():
    parser = argparse.ArgumentParser()
    for name in ("nodes", "cpus", "mem", "timeout", "icount", "verbose"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--log")
    parser.add_argument("--plugin")
    parser.add_argument("--kernel")
    parser.add_argument("--arch")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for stream in (1, 2):
        os.set_blocking(stream, True)
    run = None
    try:
        module = module_files(options.arch) if MODULE.exists() else {}
        run = Run(options, module)
        try:
            status = run.follow()
        except Failure as failure:
            if not run.died_early():
                raise
            run.show_log(whole_tail=True)
            complain(f"{failure}; before its first program, so it boots once more")
            run.end()
            run = Run(options, module)
            status = run.follow()
        if status:
            run.show_log(whole_tail=False)
        return status
    except Failure as failure:
        if run is not None:
            run.show_log(whole_tail=True)
        complain(f"{failure} (kernel log: {options.log})")
        return failure.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    finally:
        if run is not None:
            run.end()


sys.exit(main())
