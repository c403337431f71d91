#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compares what cost.py measured with the budget, and prints both.

    budget.py [--accept] [--cases REGEX] [--drivers NAME,...] [--runs N] --budget FILE --json FILE FILE...

Exits with 1 if a case of ferroce takes more than TOLERANCE more instructions than the budget grants, or has no
budget, or fewer figures than runs. rxe's figures stand there to compare with. --accept writes the budget anew.
"""

import argparse
import collections
import json
import pathlib
import re
import statistics
import sys

from cost import CASES

TOLERANCE = 0.02
COUNTERS = ("allocations", "pages allocated", "context switches", "copies", "copies bytes", "CRC", "CRC bytes")
HEAD = """\
# SPDX-License-Identifier: GPL-2.0
#
# Instructions that a message or a connection may take: both ends, network and programs, by `make bench-cost`,
# which fails if ferroce takes 2 % more. `scripts/bench-cost --accept` writes this file: on purpose, and with a
# reason in the commit. Driver, instructions, case.
"""


def read_budget(path):
    """Instructions by driver and case."""
    budget = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line and not line.startswith("#"):
            driver, value, case = line.split(None, 2)
            budget[driver, case] = int(value)
    return budget


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--budget", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--cases", type=re.compile, default=re.compile(""))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--drivers", default="ferroce,rxe")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    runs, counters, failures = collections.defaultdict(list), {}, {}
    for path in options.files:
        for line in path.read_text().splitlines():
            record = json.loads(line) if line.startswith("{") else {"type": None}
            if record["type"] == "instructions":
                runs[record["driver"], record["case"]].append(record["value"])
            elif record["type"] == "failure":
                failures[record["driver"], record["what"]] = record["reason"]
            elif record["type"] == "counters":
                counters[record["driver"], record["case"]] = {name: record[name] for name in COUNTERS}
    budget = read_budget(options.budget)
    results, over = [], []
    failed = [f"{what}: {reason}" for (driver, what), reason in failures.items()
              if driver == "ferroce" and what.endswith(", counters")]  # fmt: skip
    print(f"{'driver':8} {'instructions':>12} {'spread':>7} {'a packet':>9} {'budget':>8} {'change':>7}  case")
    measured = [(driver, case) for driver in options.drivers.split(",") for case in CASES]
    for driver, case in measured:
        key = driver, case.name
        is_wanted = driver == "ferroce" and options.cases.search(case.name)
        if is_wanted and len(runs[key]) < options.runs:
            reasons = [reason for (by, what), reason in failures.items()
                       if by == driver and what.startswith(f"{case.name}, run ")]  # fmt: skip
            why = reasons[-1] if reasons else "no word of it"
            failed.append(f"{case.name}: {len(runs[key])} figures of {options.runs}: {why}")
        if not runs[key]:
            continue
        # The fastest stretch of a stream is sought over all runs, as are connections that nothing disturbs.
        of_runs = statistics.median if case.kind == "latency" else min
        value, granted = of_runs(runs[key]), budget.get(key)
        spread = max(runs[key]) / min(runs[key]) - 1
        change = f"{value / granted - 1:+.1%}" if granted else "-"
        print(f"{driver:8} {value:12.0f} {spread:7.1%} {value / case.packets:9.0f} {granted or '-':>8} {change:>7}  "
              f"{case.name}")  # fmt: skip
        results.append({"driver": driver, "case": case.name, "instructions": value, "runs": runs[key],
                        "packets": case.packets, "counters": counters.get(key)})  # fmt: skip
        if driver == "ferroce" and not options.accept:
            if granted is None:
                over.append(f"{case.name}: no budget")
            elif value > granted * (1 + TOLERANCE):
                over.append(f"{case.name}: {value:.0f} instructions, {granted} are granted")
    if counters:
        print("\nOf each message:\n" + f"{'driver':8} " + "".join(f"{name:>18}" for name in COUNTERS) + "  case")
        for driver, case in measured:
            values = counters.get((driver, case.name))
            if values:
                print(f"{driver:8} " + "".join(f"{values[name]:18.1f}" for name in COUNTERS) + f"  {case.name}")
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print()
    if not results:
        failed.append("nothing was measured")
    if options.accept and not failed:
        budget.update({(result["driver"], result["case"]): round(result["instructions"]) for result in results})
        options.budget.write_text(HEAD + "".join(
            f"{driver} {budget[driver, case.name]} {case.name}\n"
            for driver in ("ferroce", "rxe") for case in CASES if (driver, case.name) in budget))  # fmt: skip
        print(f"bench-cost: {options.budget} written")
        return 0
    for line in failed:
        print(f"failed: {line}")
    for line in over:
        print(f"over budget: {line}")
    print(f"bench-cost: {len(results)} figures, {len(over)} over budget, {len(failed)} failed")
    return 1 if over or failed else 0


if __name__ == "__main__":
    sys.exit(main())
