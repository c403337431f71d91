#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the suite of rdma-core's pyverbs on a device and prints a KTAP row for each test.

pyverbs_suite.py [--count] [--rows REGEX] DIRECTORY DEVICE

DIRECTORY is where the suite's package `tests` is. The parts for other vendors' devices
are left out. --count prints only how many rows there would be.
"""

import argparse
import gc
import importlib
import os
import re
import signal
import sys
import traceback
import types
import unittest

OTHERS = ("mlx5", "efa", "cuda", "irdma")
SECONDS = 90


class TooLong(Exception):
    """A test that does not end."""


class Ktap(unittest.TestResult):
    """One row for each test; what went wrong as diagnostics before it."""

    def __init__(self):
        super().__init__()
        self.rows = 0
        self.failed = 0

    def row(self, test, ok, after=""):
        self.rows += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.rows} {name(test)}{after}", flush=True)

    def wrong(self, test, error):
        for line in "".join(traceback.format_exception(*error)).splitlines()[-12:]:
            print("#", line)
        self.row(test, False)

    def startTest(self, test):
        super().startTest(test)
        signal.alarm(SECONDS)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        self.row(test, True)

    def addSkip(self, test, reason):
        self.row(test, True, f" # SKIP {' '.join(reason.split()) or 'no reason given'}")

    def addError(self, test, err):
        self.wrong(test, err)

    def addFailure(self, test, err):
        self.wrong(test, err)


def name(test):
    return test.id().removeprefix("tests.").removeprefix("test_")


def load(directory, device, pattern):
    """All tests of the suite that concern us and match the pattern."""
    folder = os.path.join(directory, "tests")
    sys.path[:0] = [directory, folder]
    # The package's own __init__ would import the parts left out, too.
    package = types.ModuleType("tests")
    package.__path__ = [folder]
    sys.modules["tests"] = package
    sys.argv[1:] = ["--dev", device]
    importlib.import_module("args_parser").parser.parse_args()
    loader = unittest.TestLoader()
    suite = unittest.TestSuite()
    for file in sorted(os.listdir(folder)):
        if not re.fullmatch(r"test_\w+\.py", file) or any(other in file for other in OTHERS):
            continue
        module = importlib.import_module("tests." + file.removesuffix(".py"))
        for cases in loader.loadTestsFromModule(module):
            suite.addTests(case for case in cases if re.search(pattern, name(case)))
    return suite


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--rows", default=".")
    parser.add_argument("directory")
    parser.add_argument("device")
    options = parser.parse_args()
    # A cycle collected at the wrong time closes a completion queue after its context,
    # and libibverbs crashes.
    gc.disable()
    suite = load(options.directory, options.device, options.rows)
    if options.count:
        print(suite.countTestCases())
        return 0

    def too_long(*_):
        raise TooLong(f"not done after {SECONDS} s")

    signal.signal(signal.SIGALRM, too_long)
    print(f"1..{suite.countTestCases()}", flush=True)
    result = Ktap()
    suite.run(result)
    sys.stdout.flush()
    # Not through the interpreter's own end, which would collect the cycles.
    os._exit(1 if result.failed else 0)


if __name__ == "__main__":
    sys.exit(main())
