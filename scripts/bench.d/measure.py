#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measures cases with both drivers in turn, inside the virtual machine.

    measure.py --grid quick|full --places PLACE[,PLACE] [--cases REGEX] [--rounds N] [--seconds N]

Writes a JSON object per line to standard output: what was measured, in the order in which it was, and
what a figure means is said where it is made. Standard error says how far it is.

The cases of a place are measured in blocks of a few. A round of a block is: yardsticks, all cases with
one driver, yardsticks, all cases with the other, yardsticks. If two takings of a yardstick within a round
differ by more than UNEVEN, something else kept the machine busy: the round is repeated.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import cases as grid
import places

PERFTEST_PORT = 18515
YARDSTICK_PORT = 7000
CASE_SECONDS = 30
YARDSTICK_SECONDS = 60
BLOCK = 12
UNEVEN = 0.15
PACKETS = "/mnt/src/build/bench/packets"
YARDSTICKS = "/mnt/src/build/selftests-kernel/yardsticks.ko"
PARAMETERS = pathlib.Path("/sys/module/yardsticks/parameters")


def emit(kind, **values):
    """One line of the output."""
    print(json.dumps({"type": kind, **values}), flush=True)


def progress(words):
    """For whoever waits."""
    print(f"bench: {words}", file=sys.stderr, flush=True)


class Failed(Exception):
    """A program gave no figures: why."""


def finish(process, seconds):
    """What a process says, within so many seconds."""
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        raise Failed(f"not done after {seconds} s: {last_line(out)}") from None
    if process.returncode:
        raise Failed(f"status {process.returncode}: {last_line(out)}")
    return out


def last_line(text):
    """The last line that says something."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip(" \t-")]
    return lines[-1][:160] if lines else "no output"


def piped(end, words):
    """Starts a program whose output is wanted."""
    return end.start(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_listener(end, process, port):
    """Until the server listens; if it does not, the client will say so."""
    for _ in range(400):
        if process.poll() is not None or end.listens(process, port):
            return
        time.sleep(0.01)


def stop(process):
    """Ends a server whose client failed, or that is left."""
    if process.poll() is None:
        process.kill()
        process.wait()


# --- yardsticks ---


def packets_per_second(place, size, milliseconds):
    """Bare UDP packets that arrive, one system call each."""
    receiver = piped(place.server, [PACKETS, "receive", place.server.address, str(YARDSTICK_PORT)])
    try:
        receiver.stdout.readline()
        words = [PACKETS, "send", place.server.address, str(YARDSTICK_PORT), str(size), str(milliseconds)]
        finish(piped(place.client, words), YARDSTICK_SECONDS)
        return statistics.median(int(line) for line in finish(receiver, YARDSTICK_SECONDS).split())
    finally:
        stop(receiver)


def round_trip(place, how, count):
    """Nanoseconds for 16 bytes by UDP there and back, median and 99 %; both ends poll, or both block."""
    server = piped(place.server, [PACKETS, "echo", place.server.address, str(YARDSTICK_PORT), how])
    try:
        server.stdout.readline()
        words = [PACKETS, "ask", place.server.address, str(YARDSTICK_PORT), "16", str(count), how]
        median, p99 = finish(piped(place.client, words), YARDSTICK_SECONDS).split()
        return int(median), int(p99)
    finally:
        stop(server)


def tcp(place):
    """Bytes per second of one TCP connection, the median of tenths of a second."""
    server = piped(place.server, ["iperf3", "-s", "-1", "-p", "5201"])
    try:
        wait_for_listener(place.server, server, 5201)
        words = ["iperf3", "-c", place.server.address, "-p", "5201", "-t", "1", "-i", "0.1", "-J"]
        report = json.loads(finish(piped(place.client, words), YARDSTICK_SECONDS))
        rate = statistics.median(slice["sum"]["bits_per_second"] / 8 for slice in report["intervals"])
        if not rate:
            raise Failed("TCP stood still most of the time")
        return rate
    finally:
        stop(server)


def patiently(take, *arguments):
    """A machine that has much else to do may lose a packet that matters, or start a program too late."""
    for _ in range(4):
        try:
            return take(*arguments)
        except Failed as failed:
            progress(f"{take.__name__}: {failed}, tried again")
            reason = failed
    raise reason


def take_yardsticks(place):
    """What the machine can do just now: a value for each yardstick."""
    polling = patiently(round_trip, place, "poll", 2000)
    blocking = patiently(round_trip, place, "block", 1000)
    return {
        "memcpy": int((PARAMETERS / "memcpy").read_text()),
        "crc32_le": int((PARAMETERS / "crc32_le").read_text()),
        "tcp": patiently(tcp, place),
        "udp_16": patiently(packets_per_second, place, 16, 400),
        "udp_4096": patiently(packets_per_second, place, 4096, 400),
        "udp_round_trip_polling": polling[0],
        "udp_round_trip_polling_p99": polling[1],
        "udp_round_trip_blocking": blocking[0],
        "udp_round_trip_blocking_p99": blocking[1],
    }


# What must not differ: rates. How long a wake-up takes does, on a machine of two CPUs.
STEADY = ("memcpy", "crc32_le", "tcp", "udp_16", "udp_4096")


def unevenness(takings):
    """By how much each yardstick differs between takings, as a share of the smallest."""
    return {
        name: max(taken[name] for taken in takings) / min(taken[name] for taken in takings) - 1 for name in STEADY
    }


# --- cases ---


def figures_of(case, text):
    """The figures in the output of perftest's client."""
    if case.kind == "rate":
        # Bytes, iterations, peak and average in MiB/s, millions of messages per second.
        rows = re.findall(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", text, re.MULTILINE)
        if len(rows) != 1 or float(rows[0][4]) == 0:
            raise Failed("no figures: " + last_line(text))
        size, _, _, mebibytes, millions = rows[0]
        # Both have a fixed number of digits behind the point: what has more digits in all says more.
        rate = float(millions) * 1e6
        if float(mebibytes) * 100 > rate:
            rate = float(mebibytes) * 1048576 / int(size)
        return {"messages_per_second": rate, "bytes_per_second": rate * int(size)}
    # Bytes, iterations, least, most, typical (the median), average, deviation, 99 %, 99.9 %: microseconds.
    rows = re.findall(r"^\s*\d+\s+\d+" + r"\s+([\d.]+)" * 7 + r"\s*$", text, re.MULTILINE)
    if len(rows) != 1:
        raise Failed("no figures: " + last_line(text))
    names = ("least", "most", "p50", "average", "deviation", "p99", "p999")
    figures = {name: float(value) * 1e-6 for name, value in zip(names, rows[0])}
    every = [float(value) for value in re.findall(r"^\d+, ([\d.e+]+)$", text, re.MULTILINE)]
    if every:
        every.sort()
        figures["hundredths"] = [every[len(every) * i // 100] * 1e-6 for i in range(100)]
    return figures


def perftest(place, words, seconds):
    """What perftest's client says, within so many seconds."""
    server, client = place.server, place.client
    listener = piped(server, words + ["-d", server.device, "-x", str(server.gid)])
    try:
        wait_for_listener(server, listener, PERFTEST_PORT)
        peer = piped(client, words + ["-d", client.device, "-x", str(client.gid), server.address])
        out = finish(peer, seconds)
    except Failed as failed:
        stop(listener)
        raise Failed(f"{failed}; server: {last_line(listener.stdout.read())}") from None
    finish(listener, CASE_SECONDS)
    return out


def measure(place, case):
    """The figures of one call of perftest."""
    return figures_of(case, perftest(place, case.program(), CASE_SECONDS))


class Bench:
    """Rounds of blocks of cases."""

    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.seconds
        self.longest_round = 0.0
        self.given_up = {}

    def leg(self, place, block, driver, where):
        """All cases of a block with one driver."""
        place.load(driver)
        for case in block:
            key = (case.name, driver)
            if self.given_up.get(key, 0) >= 2:
                continue
            try:
                emit("figure", case=case.name, driver=driver, **where, **measure(place, case))
            except Failed as failed:
                self.given_up[key] = self.given_up.get(key, 0) + 1
                emit("failure", case=case.name, driver=driver, **where, reason=str(failed))
                progress(f"{case.name}, {driver}: {failed}")

    def round(self, place, block, where, first):
        """One round: the takings of the yardsticks."""
        began = time.monotonic()
        takings = [first or self.yardsticks(place, where)]
        for driver in ("ferroce", "rxe"):
            self.leg(place, block, driver, where)
            takings.append(self.yardsticks(place, where))
        self.longest_round = max(self.longest_round, time.monotonic() - began)
        return takings

    def yardsticks(self, place, where):
        values = take_yardsticks(place)
        emit("yardsticks", **where, **values)
        return values

    def block(self, place, number, block):
        """All rounds of a block. Each begins with the yardsticks that ended the one before."""
        last = None
        repeats = self.options.repeats
        for index in range(self.options.rounds):
            attempt = 0
            while True:
                where = {"place": place.name, "block": number, "round": index, "attempt": attempt}
                takings = self.round(place, block, where, last)
                last = takings[-1]
                worst, by = max(unevenness(takings).items(), key=lambda item: item[1])
                steady = by <= UNEVEN
                still = self.options.rounds - index - 1
                # The rounds that must follow need their time.
                time_left = time.monotonic() + (still + 1) * self.longest_round < self.deadline
                again = not steady and repeats > 0 and time_left
                emit("round", **where, steady=steady, kept=not again, worst=worst, by=by)
                verdict = f"yardsticks within {by:.0%}"
                if not steady:
                    verdict = f"{worst} differs by {by:.0%}" + (", repeated" if again else ", kept all the same")
                progress(f"block {number}, round {index + 1} of {self.options.rounds}: {verdict}")
                if not again:
                    break
                repeats -= 1
                attempt += 1

    def run(self):
        """Everything."""
        number = 0
        for name in self.options.places.split(","):
            wanted = [case for case in self.options.chosen if case.place == name]
            if not wanted:
                continue
            place = places.PLACES[name]()
            for begin in range(0, len(wanted), BLOCK):
                self.block(place, number, wanted[begin : begin + BLOCK])
                number += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--grid", choices=("quick", "full"), required=True)
    parser.add_argument("--places", required=True)
    parser.add_argument("--cases", type=re.compile, default=re.compile(""))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="of rounds, in each block")
    parser.add_argument("--seconds", type=int, default=24 * 3600, help="no round is repeated if it would end later")
    options = parser.parse_args()
    options.chosen = grid.chosen(options.grid, options.cases)
    places.run("insmod", YARDSTICKS)
    emit("machine", kernel=pathlib.Path("/proc/sys/kernel/osrelease").read_text().strip(),
         cpus=len(re.findall(r"^processor", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)))  # fmt: skip
    try:
        Bench(options).run()
    except Failed as failed:
        sys.exit(f"bench: the machine is too busy for its yardsticks: {failed}")
    complaints = re.findall(r".*(?:WARNING:|BUG:|Oops|Call Trace).*", places.run("dmesg"))
    for line in complaints[:5]:
        progress(f"kernel log: {line}")
    emit("end", complaints=len(complaints))


if __name__ == "__main__":
    main()
