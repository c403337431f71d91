# SPDX-License-Identifier: GPL-2.0
"""What is measured: the cases, as perftest's programs and their options."""

import dataclasses

KIB = 1024
MIB = 1024 * KIB
SIZES = (2, 64, 1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 8 * MIB)


def size_name(size):
    """A size as people write it."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of perftest between two ends.

    place: veth (two namespaces), device (both ends on one device) or wire (two machines).
    kind: rate or latency. transport: RC, UC or UD. operation: send, write, read, add or swap.
    """

    place: str
    kind: str
    transport: str
    operation: str
    size: int
    events: bool = False
    list_length: int = 1
    qps: int = 1
    mtu: int = 4096
    thorough: bool = False

    @property
    def name(self):
        """Unique, and readable."""
        words = [self.place, self.kind, self.transport, self.operation, size_name(self.size)]
        words.append("events" if self.events else "polling")
        if self.list_length > 1:
            words.append(f"lists of {self.list_length}")
        if self.qps > 1:
            words.append(f"{self.qps} QPs")
        if self.mtu != 4096:
            words.append(f"MTU {self.mtu}")
        return " ".join(words)

    @property
    def packets(self):
        """Of a message, in the direction that has the data."""
        return -(-max(self.size, 1) // self.mtu)

    @property
    def there_and_back(self):
        """Whether a message is over only when an answer has come: a latency is not halved."""
        return self.operation in ("read", "add", "swap")

    def iterations(self):
        """Of each queue pair: enough for a fraction of a second."""
        if self.kind == "latency":
            count = 2000 if self.thorough else 500
            if self.size > 4 * KIB:
                count = max(20, min(200, 16 * MIB // self.size))
            return count
        total = max(6, min(10000 if self.thorough else 5000, 32 * MIB // self.size))
        count = max(total // self.qps, 6)
        if count > self.list_length > 1:
            count -= count % self.list_length
        return count

    def program(self):
        """perftest's program and all of its options save device, GID and peer."""
        suffix = "bw" if self.kind == "rate" else "lat"
        family = "atomic" if self.operation in ("add", "swap") else self.operation
        words = [f"ib_{family}_{suffix}", "-F", "-n", str(self.iterations()), "-m", str(self.mtu)]
        if family == "atomic":
            words += ["-A", "FETCH_AND_ADD" if self.operation == "add" else "CMP_AND_SWAP"]
        else:
            words += ["-s", str(self.size)]
        if self.transport != "RC":
            words += ["-c", self.transport]
        if self.events:
            words.append("-e")
        if self.list_length > 1:
            words += ["-l", str(self.list_length)]
        if self.qps > 1:
            words += ["-q", str(self.qps)]
        if self.kind == "latency" and self.thorough:
            words.append("-H")
        return words


@dataclasses.dataclass(frozen=True)
class Connections:
    """Connections through rdma_cm, begun at once: cmtime."""

    at_once: int = 30
    name = "veth connection rdma_cm"
    kind = "connection"
    # REQ, REP, RTU
    packets = 3


def quick():
    """The cases that matter most, in little time."""

    def rate(operation, size, **rest):
        return Case("veth", "rate", "RC", operation, size, **rest)

    def latency(operation, size=2, **rest):
        return Case("veth", "latency", "RC", operation, size, **rest)

    yield rate("send", 2)
    yield rate("send", 2, qps=16)
    yield rate("send", 2, list_length=16)
    yield rate("send", 64 * KIB)
    yield rate("send", 64 * KIB, mtu=1024)
    yield rate("write", 64 * KIB)
    yield rate("read", 64 * KIB)
    yield rate("send", 1 * MIB, events=True)
    yield latency("send")
    yield latency("write")
    yield latency("send", events=True)
    yield latency("add", 8)


def over_sizes(place, sizes):
    """Rate over size, for each transport and operation."""
    for size in sizes:
        for operation in ("send", "write", "read"):
            yield Case(place, "rate", "RC", operation, size, thorough=True)
        for operation in ("send", "write"):
            yield Case(place, "rate", "UC", operation, size, thorough=True)
        if size <= 4 * KIB:
            yield Case(place, "rate", "UD", "send", size, thorough=True)


def latencies(place, sizes):
    """Latency over size, polling and with events, which perftest has not for writes."""
    for size in sizes:
        for operation in ("send", "write", "read"):
            yield Case(place, "latency", "RC", operation, size, thorough=True)
        for operation in ("send", "read"):
            yield Case(place, "latency", "RC", operation, size, events=True, thorough=True)
    for operation in ("send", "write"):
        yield Case(place, "latency", "UC", operation, 2, thorough=True)
    yield Case(place, "latency", "UD", "send", 2, thorough=True)
    for operation in ("add", "swap"):
        for events in (False, True):
            yield Case(place, "latency", "RC", operation, 8, events=events, thorough=True)


def variations(place):
    """One thing at a time that differs from the rest."""
    for operation in ("send", "read"):
        for size in (2, 4 * KIB, 64 * KIB, 1 * MIB):
            yield Case(place, "rate", "RC", operation, size, events=True, thorough=True)
    for operation in ("add", "swap"):
        for events in (False, True):
            yield Case(place, "rate", "RC", operation, 8, events=events, thorough=True)
    for operation in ("send", "write", "read"):
        for size in (2, 4 * KIB):
            yield Case(place, "rate", "RC", operation, size, list_length=16, thorough=True)
        for size in (2, 64 * KIB):
            for qps in (4, 16, 64):
                yield Case(place, "rate", "RC", operation, size, qps=qps, thorough=True)
        for size in (4 * KIB, 64 * KIB, 1 * MIB):
            yield Case(place, "rate", "RC", operation, size, mtu=1024, thorough=True)


def full():
    """The whole grid: all of it between namespaces, less elsewhere."""
    yield from over_sizes("veth", SIZES)
    yield from latencies("veth", (2, 4 * KIB, 64 * KIB, 1 * MIB))
    yield from variations("veth")
    for place in ("device", "wire"):
        yield from over_sizes(place, (2, 4 * KIB, 64 * KIB, 1 * MIB))
        yield from latencies(place, (2, 64 * KIB))
        for operation in ("send", "write", "read"):
            yield Case(place, "rate", "RC", operation, 64 * KIB, qps=16, thorough=True)
            yield Case(place, "rate", "RC", operation, 64 * KIB, mtu=1024, thorough=True)
        yield Case(place, "rate", "RC", "add", 8, thorough=True)


def chosen(grid, pattern):
    """The cases of a grid, "quick" or "full", whose names match the compiled pattern."""
    return [case for case in {"quick": quick, "full": full}[grid]() if pattern.search(case.name)]
