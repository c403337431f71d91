#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What a message costs, or a connection, inside the virtual machine of `scripts/vm --icount`.

    cost.py --driver ferroce|rxe [--cases REGEX] [--runs N] [--sites FILE]

There is one CPU, and an instruction takes one nanosecond of the machine's time: what perftest takes for
nanoseconds are instructions of both ends, the network between them and the programs. Writes a JSON object per
line, as measure.py does.

Counters come from runs of their own, because tracing costs instructions too. What is counted is the
difference between a run of few messages and one of MORE more: what connecting takes is in both.
"""

import argparse
import os
import pathlib
import re
import time

import measure
import places
from cases import Case, Connections, KIB

TRACING = pathlib.Path("/sys/kernel/tracing")
COPIES = "/mnt/src/build/selftests-kernel/copies.ko"
COUNTED = pathlib.Path("/sys/module/copies/parameters")
FEW, MORE = 200, 800
SECONDS = 600
# Below so many bytes, a message is a small one.
SMALL = 1 * KIB
# Messages of a run, of all queue pairs. Small ones are so many that the start and the end count for little. At the end, the
# last batch of a burst waits for half a millisecond.
MESSAGES, SMALL_MESSAGES = 2000, 20000
# Of connections, in a run: work of the kernel's own comes between them in most.
TURNS = 5

# In both programs, events: who polls on one CPU waits for the scheduler.
CASES = (
    Case("veth", "rate", "RC", "send", 64 * KIB, events=True),
    Case("veth", "rate", "RC", "send", 64 * KIB, events=True, mtu=1024),
    Case("veth", "rate", "RC", "send", 64 * KIB, events=True, qps=16),
    Case("veth", "rate", "RC", "send", 4 * KIB, events=True),
    Case("veth", "rate", "RC", "send", 2, events=True),
    Case("veth", "rate", "RC", "send", 2, events=True, qps=16),
    Case("veth", "rate", "RC", "read", 64 * KIB, events=True),
    Case("veth", "latency", "RC", "send", 2, events=True),
    Case("veth", "latency", "RC", "read", 2, events=True),
    Case("veth", "latency", "RC", "add", 8, events=True),
    Connections(),
)


def connect(place, case):
    """Instructions of a connection, all its steps of both ends included."""
    words = ["cmtime", "-c", str(case.at_once)]
    listener = measure.piped(place.server, words)
    try:
        time.sleep(1)
        out = measure.finish(measure.piped(place.client, words + ["-s", place.server.address]), SECONDS)
        measure.finish(listener, 30)
    finally:
        measure.stop(listener)
    # With queue pairs; a part without them follows.
    total = re.search(r"^ *full connect +\d+ +(\d+)", out, re.MULTILINE)
    if not total:
        raise measure.Failed("no figures: " + measure.last_line(out))
    return int(total[1]) * 1e3 / case.at_once


def call(place, case, count):
    """What perftest's client says of so many messages."""
    words = case.program()
    words[words.index("-n") + 1] = str(count)
    return measure.perftest(place, words, SECONDS)


def instructions(case, text):
    """Of one message, in one direction: at the peak of a run of many, or the median of one at a time.

    The peak is of the fastest stretch between two completions: what disturbs now and then is not in it. It has two
    decimals of a MiB/s, which says too little of small messages: of these, the mean of the run counts.
    Where an answer is waited for, it is that of the request and of the answer.
    """
    if case.kind == "latency":
        return measure.figures_of(case, text)["p50"] * 1e9
    rows = re.findall(r"^\s*(\d+)\s+\d+\s+([\d.]+)\s+[\d.]+\s+([\d.]+)\s*$", text, re.MULTILINE)
    if len(rows) != 1 or 0 in (float(rows[0][1]), float(rows[0][2])):
        raise measure.Failed("no figures: " + measure.last_line(text))
    size, peak, millions = int(rows[0][0]), float(rows[0][1]), float(rows[0][2])
    if size < SMALL:
        return 1e3 / millions
    return size / (peak * 1048576) * 1e9


def trace(path, words):
    """Adds a line to a file of tracefs, which knows no offset."""
    handle = os.open(TRACING / path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, words.encode("ascii") + b"\n")
    finally:
        os.close(handle)


class Counters:
    """Kernel events, counted and summed by the histograms of tracefs and by a module of ours."""

    # Name of the counter: the events of tracefs, and the field to sum, if any.
    EVENTS = {
        "allocations": (("kmem/kmalloc", "kmem/kmem_cache_alloc"), None),
        "pages allocated": (("kmem/mm_page_alloc",), None),
        "context switches": (("sched/sched_switch",), None),
        "CRC": (("bench/crc",), "len"),
        "copies": (("bench/bits",), "len"),
    }

    def __init__(self, sites):
        trace("kprobe_events", "p:bench/crc crc32_le len=%dx:u64")
        trace("kprobe_events", "p:bench/bits skb_copy_bits len=%cx:u32")
        self.trigger("")
        places.run("insmod", COPIES, "sites=" + ",".join(f"{site:#x}" for site in sites))

    def trigger(self, sign):
        """Begins to count, or with a "!" ends."""
        for events, field in self.EVENTS.values():
            for event in events:
                values = f":vals={field}" if field else ""
                trace(f"events/{event}/trigger", f"{sign}hist:keys=common_cpu{values}")

    def read(self):
        """All so far."""
        counts = {}
        for name, (events, field) in self.EVENTS.items():
            text = "".join((TRACING / "events" / event / "hist").read_text() for event in events)
            counts[name] = sum(int(hits) for hits in re.findall(r"hitcount: +(\d+)", text))
            if field:
                counts[f"{name} bytes"] = sum(int(value) for value in re.findall(rf" {field}: +(\d+)", text))
        counts["copies"] += int((COUNTED / "calls").read_text())
        counts["copies bytes"] += int((COUNTED / "bytes").read_text())
        return counts

    def remove(self):
        """For the module to be unloaded."""
        places.run("rmmod", "copies")
        self.trigger("!")
        (TRACING / "kprobe_events").write_text("")


def sites_of(path, module):
    """Where the module calls memcpy(), which itself cannot be probed.

    FILE has offsets into its .text, each one byte behind the beginning of a call.
    """
    base = int(pathlib.Path(f"/sys/module/{module}/sections/.text").read_text(), 16)
    return [base + int(line, 16) - 1 for line in path.read_text().split()]


def count(place, case, counters):
    """Of each counter, how many for one message."""
    readings = [counters.read()]
    for messages in (FEW, FEW + MORE):
        call(place, case, messages // case.qps)
        readings.append(counters.read())
    first, second, third = readings
    # A round of a latency program is a message each way, unless it waits for an answer.
    messages = MORE * (1 if case.kind == "rate" or case.there_and_back else 2)
    return {name: (third[name] - 2 * second[name] + first[name]) / messages for name in first}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", choices=places.MODULES, required=True)
    parser.add_argument("--cases", type=re.compile, default=re.compile(""))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sites", type=pathlib.Path)
    options = parser.parse_args()
    place = places.veth()
    place.load(options.driver)
    wanted = [case for case in CASES if options.cases.search(case.name)]

    def attempt(what, take):
        """A case that fails does not keep the others from being measured."""
        measure.progress(f"{options.driver}, {what}")
        try:
            take()
        except measure.Failed as failed:
            measure.emit("failure", driver=options.driver, what=what, reason=str(failed))
            measure.progress(f"{options.driver}, {what}: {failed}")

    def take_instructions(case, run):
        if case.kind == "connection":
            value = min(connect(place, case) for _ in range(TURNS))
        else:
            messages = MESSAGES if case.size <= 4 * KIB else MESSAGES // 2
            if case.kind == "rate" and case.size < SMALL:
                messages = SMALL_MESSAGES
            value = instructions(case, call(place, case, messages // case.qps))
        measure.emit("instructions", driver=options.driver, case=case.name, run=run, value=value)

    def take_counters(case, counters):
        measure.emit("counters", driver=options.driver, case=case.name, **count(place, case, counters))

    for case in wanted:
        for run in range(options.runs):
            attempt(f"{case.name}, run {run + 1} of {options.runs}", lambda: take_instructions(case, run))
    if options.sites:
        counters = Counters(sites_of(options.sites, places.MODULES[options.driver]))
        for case in (case for case in wanted if case.kind != "connection"):
            attempt(f"{case.name}, counters", lambda: take_counters(case, counters))
        counters.remove()
    measure.emit("end")


if __name__ == "__main__":
    main()
