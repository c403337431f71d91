#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compares builds of the module in turn, inside the virtual machine of `scripts/bench-modules`.

    modules.py --net NET --modules DIRECTORY --names NAME[,NAME...] [--cases REGEX] [--rounds N] [--list]

NET is that of the virtual machine: with wire, the cases are those between two machines. NAME is that of a module in the
directory, without .ko; NAME+rps has packets spread over both CPUs by the administrator (rps_cpus); rxe is rdma_rxe.
Prints the medians of all rounds, and of the rounds' ratios to the first, with the least and the most.
"""

import argparse
import dataclasses
import re
import statistics
import sys

import measure
import places
from cases import Case, KIB, MIB


@dataclasses.dataclass(frozen=True)
class With(Case):
    """With further options of perftest's, and so many times as long."""

    options: tuple = ()
    times: int = 1

    @property
    def name(self):
        return " ".join([super().name, *self.options])

    def iterations(self):
        return super().iterations() * self.times

    def program(self):
        return super().program() + list(self.options)


def cases():
    """What a change of the data path may show in."""

    def rate(operation, size, place="veth", **rest):
        return Case(place, "rate", "RC", operation, size, thorough=True, **rest)

    def further(operation, size, *options, place="veth", transport="RC", times=4, **rest):
        return With(place, "rate", transport, operation, size, thorough=True, options=options, times=times, **rest)

    # Bursts: as many requests as the queue takes at once; then the program waits for all of them.
    for length in ("16", "40", "100"):
        for events in (False, True):
            yield further("send", 2, "-t", length, "-Q", length, events=events, times=1)
    for operation in ("send", "read"):
        for events in (False, True):
            yield further(operation, 2, "-b", events=events, qps=16)
            yield further(operation, 2, events=events, qps=64, times=8)
    for size, depth in ((2, 1), (2, 8), (64 * KIB, 1), (64 * KIB, 4)):
        yield further("send", size, "--rx-depth", str(depth), times=1)
    for transport in ("UC", "UD"):
        yield further("send", 2, "-b", transport=transport)
        yield further("send", 2, transport=transport, qps=8)
    yield further("send", 2, "--use-srq", qps=8)
    yield further("write", 2, "-b", qps=16)
    yield further("send", 64 * KIB, "-b", events=True, qps=16)
    yield further("send", 8 * KIB, times=1)
    yield further("read", 64 * KIB, "-o", "2", times=1)
    yield further("read", 1 * MIB, "-o", "1")
    yield further("read", 1 * MIB)
    yield further("read", 1 * MIB, qps=16)
    yield further("read", 1 * MIB, mtu=1024)
    yield rate("send", 2)
    yield rate("send", 2, qps=16)
    yield rate("send", 2, events=True)
    yield rate("send", 2, qps=16, events=True)
    yield rate("send", 64 * KIB, qps=16)
    yield rate("send", 4 * KIB)
    yield rate("send", 64 * KIB)
    yield rate("send", 64 * KIB, mtu=1024)
    yield rate("send", 1 * MIB, events=True)
    for operation in ("write", "read"):
        for qps in (1, 4, 16):
            yield rate(operation, 64 * KIB, qps=qps)
    yield rate("read", 2)
    yield rate("read", 2, qps=16)
    for operation, size in (("send", 2), ("add", 8)):
        for events in (False, True):
            yield Case("veth", "latency", "RC", operation, size, events=events)
    yield rate("send", 2, place="device")
    yield rate("send", 64 * KIB, place="device")
    yield rate("read", 64 * KIB, place="device")
    for operation in ("send", "write", "read"):
        for size in (2, 64 * KIB):
            yield rate(operation, size, place="wire")
    yield further("read", 2, "-o", "16", place="wire", times=1)
    yield Case("wire", "latency", "RC", "send", 2)


def load(place, directory, name):
    """Loads a build, makes its devices, and says how packets are spread."""
    build, _, spread = name.partition("+")
    if build == "rxe":
        place.load("rxe")
    else:
        place.load("ferroce", f"{directory}/{build}.ko")
    cpus = "3" if spread == "rps" else "0"
    for end in (end for end in place.ends() if end.namespace):
        end.run("sh", "-c", f"echo {cpus} >/sys/class/net/{end.netdev}/queues/rx-0/rps_cpus")


def figure(case, figures):
    """Microseconds, MB/s, or thousands of messages per second."""
    if case.kind == "latency":
        return figures["p50"] * 1e6
    if case.size >= KIB:
        return figures["bytes_per_second"] / 1e6
    return figures["messages_per_second"] / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=["none", "wire"], default="none")
    parser.add_argument("--modules", default="")
    parser.add_argument("--names", default="")
    parser.add_argument("--cases", type=re.compile, default=re.compile(""))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    here = [case for case in cases() if (case.place == "wire") == (options.net == "wire")]
    wanted = [case for case in here if options.cases.search(case.name)]
    if options.list:
        print("\n".join(case.name for case in wanted))
        return
    if not wanted:
        sys.exit("bench: no case matches")
    names = options.names.split(",")
    where = {name: places.PLACES[name]() for name in {case.place for case in wanted}}
    values = {(case, name): [] for case in wanted for name in names}
    for turn in range(options.rounds):
        # Whoever comes first has a machine that is as warm as that of the last one.
        for name in names if turn % 2 == 0 else reversed(names):
            for place_name, place in where.items():
                load(place, options.modules, name)
                for case in (case for case in wanted if case.place == place_name):
                    try:
                        values[case, name].append(figure(case, measure.measure(place, case)))
                    except measure.Failed as failed:
                        sys.exit(f"bench: {case.name}, {name}: {failed}")
        measure.progress(f"round {turn + 1} of {options.rounds}")
    print(f"{'':44}" + "".join(f"{name:>26}" for name in names))
    for case in wanted:
        first = values[case, names[0]]
        cells = []
        for name in names:
            ratios = [value / base for value, base in zip(values[case, name], first)]
            middle = statistics.median(values[case, name])
            cells.append(f"{middle:9.1f} {statistics.median(ratios):4.2f} ({min(ratios):4.2f}-{max(ratios):4.2f})")
        print(f"{case.name:44}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
