#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes of what measure.py wrote a table, results.json, results.csv and plots.

    report.py --out DIRECTORY --command WORDS --source WORDS FILE...

Exits with 1 if ferroce has no figures for a case. A figure is the median of the rounds, and beside it the
least and the most. A ratio is the median of the rounds' ratios, each of two runs a moment apart; its interval
is two of those ratios such that the median of all there could be lies between them with the given confidence
(order statistics: it asks for nothing to be normal). With five rounds these are the least and the most.
"""

import argparse
import collections
import csv
import json
import math
import pathlib
import re
import statistics
import sys

import cases as grid
import limits
import plots

DRIVERS = ("ferroce", "rxe")
CONFIDENCE = 0.93
PLACES = {"veth": "between namespaces", "device": "within one device", "wire": "between two machines"}


def interval(values):
    """The least and the most that the median may be, and how surely."""
    values, count = sorted(values), len(values)
    chosen = 0
    while chosen + 1 < count / 2 and confidence(count, chosen + 1) >= CONFIDENCE:
        chosen += 1
    return values[chosen], values[count - 1 - chosen], confidence(count, chosen)


def confidence(count, left_out):
    """That the median lies between values which leave out so many at each end."""
    return 1 - 2 * sum(math.comb(count, i) for i in range(left_out + 1)) / 2**count


def summary(values):
    """The median and what it is the median of."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "values": values}


class Run:
    """All that was measured, of the rounds that count."""

    def __init__(self, records):
        self.machine = {}
        self.rounds = [record for record in records if record["type"] == "round"]
        kept = {self.key(record) for record in self.rounds if record["kept"]}
        self.figures = collections.defaultdict(dict)
        self.failures = collections.Counter()
        self.reasons = {}
        yardsticks = collections.defaultdict(lambda: collections.defaultdict(list))
        for record in records:
            if record["type"] == "machine":
                self.machine = {name: value for name, value in record.items() if name != "type"}
            # Yardsticks belong to the round before and to the one after: all of them count.
            elif record["type"] == "yardsticks":
                for name, value in record.items():
                    if name not in ("type", "place", "block", "round", "attempt"):
                        yardsticks[record["place"]][name].append(value)
            elif record["type"] == "figure" and self.key(record) in kept:
                where = record["place"], record["block"], record["round"]
                self.figures[record["case"], record["driver"]][where] = record
            elif record["type"] == "failure":
                self.failures[record["case"], record["driver"]] += 1
                self.reasons[record["case"], record["driver"]] = record["reason"]
        self.yardsticks = {
            place: {name: summary(values) for name, values in named.items()} for place, named in yardsticks.items()
        }

    @staticmethod
    def key(record):
        return record["place"], record["block"], record["round"], record["attempt"]

    def medians(self, place):
        """The yardsticks of a place."""
        return {name: value["median"] for name, value in self.yardsticks[place].items()}

    def result(self, case):
        """What is known of a case."""
        result = {"case": case.name, "kind": case.kind, "place": case.place, "transport": case.transport,
                  "operation": case.operation, "size": case.size, "events": case.events,
                  "list_length": case.list_length, "qps": case.qps, "mtu": case.mtu}  # fmt: skip
        metrics = ("messages_per_second", "bytes_per_second") if case.kind == "rate" else ("p50", "p99")
        for driver in DRIVERS:
            rounds = self.figures.get((case.name, driver), {})
            if rounds:
                result[driver] = {name: summary([record[name] for record in rounds.values()]) for name in metrics}
                every = [record["hundredths"] for record in rounds.values() if "hundredths" in record]
                if every:
                    result[driver]["hundredths"] = [statistics.median(column) for column in zip(*every)]
            if self.failures[case.name, driver]:
                result.setdefault("failures", {})[driver] = {
                    "count": self.failures[case.name, driver],
                    "last": self.reasons[case.name, driver],
                }
        result["limit"] = limits.limit(case, self.medians(case.place), self.machine["cpus"])
        result["ratios"] = self.ratios(case, metrics)
        if "ferroce" in result:
            median = result["ferroce"][metrics[0]]["median"]
            share = median / result["limit"] if case.kind == "rate" else result["limit"] / median
            result["share_of_limit"] = share
        return result

    def ratios(self, case, metrics):
        """ferroce to rxe, round by round, of each metric."""
        ours, theirs = (self.figures.get((case.name, driver), {}) for driver in DRIVERS)
        both = sorted(ours.keys() & theirs.keys())
        ratios = {}
        for name in metrics if both else ():
            values = [ours[where][name] / theirs[where][name] for where in both]
            least, most, sure = interval(values)
            ratios[name] = {"median": statistics.median(values), "from": least, "to": most, "confidence": sure}
        return ratios


def amount(value):
    """Three digits."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def shown(case, result, driver, metric, scale):
    """The median, the least and the most."""
    if driver not in result:
        return "failed" if driver in result.get("failures", {}) else "-"
    figure = result[driver][metric]
    return f"{amount(figure['median'] * scale)} ({amount(figure['least'] * scale)}-{amount(figure['most'] * scale)})"


def ratio_shown(result, metric):
    """A ratio with its interval."""
    ratio = result["ratios"].get(metric)
    return f"{ratio['median']:.2f} ({ratio['from']:.2f}-{ratio['to']:.2f})" if ratio else "-"


def rows(place, kind, unit, run, results):
    """The lines of one table."""
    for case, result in results:
        if case.place != place or case.kind != kind:
            continue
        if kind == "rate" and (case.size >= 4096) != (unit == "MB/s"):
            continue
        name = case.name.split(" ", 2)[2]
        share = f"{result['share_of_limit']:.0%}" if "share_of_limit" in result else "-"
        if kind == "latency":
            columns = [shown(case, result, driver, metric, 1e6) for metric in ("p50", "p99") for driver in DRIVERS]
            yield [name, *columns, ratio_shown(result, "p50"), amount(result["limit"] * 1e6), share]
        else:
            metric, scale = ("bytes_per_second", 1e-6) if unit == "MB/s" else ("messages_per_second", 1e-3)
            limit = result["limit"] * (case.size if unit == "MB/s" else 1) * scale
            columns = [shown(case, result, driver, metric, scale) for driver in DRIVERS]
            yield [name, *columns, ratio_shown(result, metric), amount(limit), share]


def print_table(head, lines):
    """Columns as wide as they need to be."""
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    for line in [head, *lines]:
        cells = [line[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print("  ".join(cells).rstrip())
        if line is head:
            print("-" * (sum(widths) + 2 * (len(widths) - 1)))
    print()


YARDSTICKS = (
    ("memcpy", "memcpy", "MB/s", 1e-6),
    ("crc32_le", "crc32_le", "MB/s", 1e-6),
    ("tcp", "TCP", "MB/s", 1e-6),
    ("udp_16", "UDP, 16 B", "1000/s", 1e-3),
    ("udp_4096", "UDP, 4 KiB", "1000/s", 1e-3),
    ("udp_round_trip_polling", "UDP there and back, polling", "us", 1e-3),
    ("udp_round_trip_polling_p99", "the same, p99", "us", 1e-3),
    ("udp_round_trip_blocking", "UDP there and back, blocking", "us", 1e-3),
    ("udp_round_trip_blocking_p99", "the same, p99", "us", 1e-3),
)


def print_place(place, run, results):
    """Yardsticks and tables of one place."""
    print(f"=== {PLACES[place]}\n")
    lines = []
    for key, name, unit, scale in YARDSTICKS:
        value = run.yardsticks[place][key]
        least, most = amount(value["least"] * scale), amount(value["most"] * scale)
        lines.append([name, amount(value["median"] * scale), f"{least}-{most}", unit])
    print_table(["yardstick", "median", "least-most", "unit"], lines)
    for kind, unit, head in (
        ("rate", "1000/s", ["1000 messages/s", "ferroce", "rxe", "ferroce/rxe", "limit", "of it"]),
        ("rate", "MB/s", ["MB/s", "ferroce", "rxe", "ferroce/rxe", "limit", "of it"]),
        ("latency", "us", ["us", "ferroce p50", "rxe p50", "ferroce p99", "rxe p99", "ferroce/rxe p50", "limit", "of it"]),
    ):  # fmt: skip
        lines = list(rows(place, kind, unit, run, results))
        if lines:
            print_table(head, lines)


def print_rounds(run):
    """Which rounds were repeated, and which should have been."""
    for record in run.rounds:
        if not record["steady"]:
            what = "kept all the same" if record["kept"] else "repeated"
            print(f"{record['place']}, block {record['block']}, round {record['round'] + 1}: yardstick "
                  f"{record['worst']} differs by {record['by']:.0%}: {what}")  # fmt: skip
    steady = sum(record["steady"] for record in run.rounds if record["kept"])
    kept = sum(record["kept"] for record in run.rounds)
    print(f"{kept} rounds, {len(run.rounds) - kept} more repeated; in {steady} of the {kept} the yardsticks held still\n")


def write_csv(path, results):
    """A row for each case and driver."""
    columns = ("case", "place", "kind", "transport", "operation", "size", "events", "list_length", "qps", "mtu")
    with open(path, "w", newline="", encoding="ascii") as file:
        out = csv.writer(file)
        out.writerow([*columns, "driver", "metric", "median", "least", "most", "limit", "failures"])
        for result in results:
            for driver in DRIVERS:
                failures = result.get("failures", {}).get(driver, {}).get("count", 0)
                head = [result[name] for name in columns] + [driver]
                figures = {name: value for name, value in result.get(driver, {}).items() if name != "hundredths"}
                for name, value in figures.items():
                    limit = result["limit"] * (result["size"] if name == "bytes_per_second" else 1)
                    cells = [f"{number:.6g}" for number in (value["median"], value["least"], value["most"], limit)]
                    out.writerow([*head, name, *cells, failures])
                if not figures:
                    out.writerow([*head, "", "", "", "", "", failures])


def rounded(value):
    """All numbers to six digits: more of them say nothing."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def as_json(report):
    """A case, or a round, on a line of its own."""
    parts = []
    for name, value in rounded(report).items():
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(inner) for inner in value)
            parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--grid", choices=("quick", "full"), required=True)
    parser.add_argument("--cases", type=re.compile, default=re.compile(""))
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    records = []
    for path in options.files:
        records += [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    run = Run(records)
    if not any(record["type"] == "round" for record in records):
        print("bench: 0 cases: no round was completed")
        return 1
    places = [place for place in PLACES if place in run.yardsticks]
    wanted = [case for case in grid.chosen(options.grid, options.cases) if case.place in places]
    results = [(case, run.result(case)) for case in wanted]
    about = {"command": options.command, "source": options.source, **run.machine}
    report = {**about, "yardsticks": run.yardsticks, "rounds": run.rounds, "cases": [result for _, result in results]}
    (options.out / "results.json").write_text(as_json(report))
    write_csv(options.out / "results.csv", report["cases"])
    plots.write(options.out, about, results)

    print(f"{options.command}: {options.source}, kernel {run.machine['kernel']}, {run.machine['cpus']} CPUs, emulated\n")
    for place in places:
        print_place(place, run, results)
    print_rounds(run)
    failed = [f"{result['case']}, {driver}: {reason['count']} failed, the last: {reason['last']}"
              for _, result in results for driver, reason in result.get("failures", {}).items()]  # fmt: skip
    print("".join(line + "\n" for line in failed), end="")
    complaints = sum(record["complaints"] for record in records if record["type"] == "end")
    if complaints:
        print(f"the kernel's log has {complaints} complaints")
    ended = sum(record["type"] == "end" for record in records)
    if ended < len(options.files):
        print("a machine did not come to its end")
    without = [result["case"] for _, result in results if "ferroce" not in result]
    with_share = [result for _, result in results if "share_of_limit" in result]
    if with_share:
        worst = min(with_share, key=lambda result: result["share_of_limit"])
        print(f"bench: {len(with_share)} cases, worst {worst['share_of_limit']:.0%} of the limit at {worst['case']}")
    else:
        print("bench: no case has figures")
    return 1 if without or complaints or ended < len(options.files) else 0


if __name__ == "__main__":
    sys.exit(main())
