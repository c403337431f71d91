# SPDX-License-Identifier: GPL-2.0
"""Prints instructions per message by function, from the counts of scripts/profile.d/count.c."""

import argparse
import bisect
import collections
import pathlib
import re

KERNEL = 1 << 63


def readable(name):
    """The path in a Rust symbol: `_RNvMs0_NtNtCs12_6driver2qp4sendNtB5_8SendSide8transmit` -> driver::qp::send::..."""
    if not name.startswith("_R"):
        return name
    parts, at = [], 2
    while at < len(name):
        # What follows `Cs` up to `_` is a crate's hash, and back references are of no interest here.
        skip = re.match(r"Cs[0-9A-Za-z]*_|B[0-9A-Za-z]*_|s[0-9A-Za-z]*_", name[at:])
        if skip:
            at += skip.end()
            continue
        length = re.match(r"u?([1-9][0-9]*)_?", name[at:])
        if length and at + length.end() + int(length[1]) <= len(name):
            start = at + length.end()
            at = start + int(length[1])
            parts.append(name[start:at])
        else:
            at += 1
    return "::".join(parts[:8])


class Symbols:
    """What `/proc/kallsyms` of the guest says."""

    def __init__(self, path):
        found = {}
        for line in path.read_text().splitlines():
            words = line.split()
            address = int(words[0], 16)
            if words[1] in "tTwW" and address >= KERNEL and not words[2].startswith("__pfx_"):
                module = words[3].strip("[]") if len(words) > 3 else "vmlinux"
                found.setdefault(address, (readable(words[2]), module))
        self._addresses = sorted(found)
        self._names = [found[address] for address in self._addresses]

    def find(self, address):
        if address < KERNEL:
            return "(programs)", "programs"
        index = bisect.bisect_right(self._addresses, address) - 1
        return self._names[index] if index >= 0 else ("?", "?")


def counts(path):
    """Instructions by block."""
    blocks = {}
    for line in path.read_text().splitlines():
        address, instructions, executed = line.split()
        blocks[int(address, 16), int(instructions)] = int(executed)
    return blocks


def per_message(folder, messages):
    """Instructions per message by (function, module), and calls of each function."""
    symbols = Symbols(folder / "symbols")
    first, second, third = (counts(folder / f"counts.{n}") for n in (1, 2, 3))
    functions = collections.Counter()
    for block, executed in third.items():
        before = second.get(block, 0)
        extra = (executed - before) - (before - first.get(block, 0))
        functions[symbols.find(block[0])] += extra * block[1] / messages
    return functions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int)
    parser.add_argument("--top", type=int)
    parser.add_argument("results", nargs="+")
    options = parser.parse_args()
    drivers, tables = [], []
    for result in options.results:
        driver, _, folder = result.partition("=")
        drivers.append(driver)
        tables.append(per_message(pathlib.Path(folder), options.messages))
    heads = "".join(f"{driver:>10}" for driver in drivers)

    def show(names, label):
        print(heads + "  " + label)
        for name, values in names:
            print("".join(f"{value:10.0f}" for value in values) + "  " + name)

    show([("all", [sum(table.values()) for table in tables])], "instructions per message")
    modules = [collections.Counter() for _ in tables]
    for table, module in zip(tables, modules):
        for (_, where), n in table.items():
            module[where] += n
    names = set().union(*modules)
    rows = [(name, [module[name] for module in modules]) for name in names]
    print()
    show(sorted((row for row in rows if max(row[1]) >= 1), key=lambda row: -max(row[1])), "by module")
    names = set().union(*tables)
    rows = [(f"{name} [{where}]", [table[name, where] for table in tables]) for name, where in names]
    print()
    show(sorted(rows, key=lambda row: -max(row[1]))[: options.top], "by function")


main()
