#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the suite of rdma-core's pyverbs on a device and prints a KTAP row for each test.

pyverbs_suite.py [--count] [--rows REGEX] [--skips FILE] [--provider NAME] DIRECTORY DEVICE

DIRECTORY is where the suite's package `tests` is. The parts for other vendors' devices
are left out. --count prints only how many rows there would be.

--skips names the list of the tests that may be skipped, "NAME: REASON" in each line, below a line
"[VERSION... [PROVIDER]]": the versions of rdma-core that it holds for, and the provider, if it is not for all. Then a
skip that is not on the list for the installed version and the provider fails, and so does a test that is on it and
passes. One row more says whether the list itself is in order.
"""

import argparse
import errno
import gc
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import traceback
import types
import unittest

OTHERS = ("mlx5", "efa", "cuda", "irdma")
SECONDS = 90 if os.environ.get("FERROCE_KERNEL", "stock") == "stock" else 360
REASONS = (
    "the stock provider has no such op",
    "the stock provider has no Ethernet data path",
    "the device has no such capability",
    "needs a device that a VM has not",
)
PROVIDERS = ("librxe", "ferroce", "patched-librxe")
# The reason of a test that ends with EOPNOTSUPP where others are skipped.
UNEXPECTED = "the stock provider has no such op, which the suite does not expect"
# What a reason ends with whose test may fail, too.
NOT_YET = "is not done yet: remove when it is"


class TooLong(Exception):
    """A test that does not end."""


class Ktap(unittest.TestResult):
    """One row for each test; what went wrong as diagnostics before it."""

    def __init__(self, skips):
        super().__init__()
        self.rows = 0
        self.failed = 0
        # By name; None if any may be skipped.
        self.skips = skips

    def row(self, what, ok, after=""):
        self.rows += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.rows} {what}{after}", flush=True)

    def expected(self, test):
        """Why it is expected to be skipped."""
        return (self.skips or {}).get(name(test))

    def wrong(self, test, error):
        for line in "".join(traceback.format_exception(*error)).splitlines()[-12:]:
            print("#", line)
        reason = self.expected(test)
        unsupported = getattr(error[1], "error_code", None) == errno.EOPNOTSUPP
        if reason and (reason.endswith(NOT_YET) or reason == UNEXPECTED and unsupported):
            self.row(name(test), True, f" # SKIP {reason}")
        else:
            self.row(name(test), False)

    def startTest(self, test):
        super().startTest(test)
        signal.alarm(SECONDS)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        reason = self.expected(test)
        if reason:
            print(f"# it passes, and is on the list of skips: {reason}")
        self.row(name(test), not reason)

    def addSkip(self, test, reason):
        reason = " ".join(reason.split()) or "no reason given"
        expected = self.expected(test)
        if expected:
            self.row(name(test), True, f" # SKIP {expected} ({reason})")
        elif self.skips is None:
            self.row(name(test), True, f" # SKIP {reason}")
        else:
            print(f"# it is not on the list of skips, and was skipped: {reason}")
            self.row(name(test), False)

    def addError(self, test, err):
        self.wrong(test, err)

    def addFailure(self, test, err):
        self.wrong(test, err)


def name(test):
    return test.id().removeprefix("tests.").removeprefix("test_")


def installed():
    """The version of rdma-core that is loaded: the last number but one of libibverbs.so.1.14.56.1."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = re.search(r"/libibverbs\.so\.[0-9.]+\.([0-9]+)\.[0-9]+$", maps.read(), re.MULTILINE)
    if not found:
        raise RuntimeError("no libibverbs is loaded, or its file's name tells no version")
    return found[1]


def read_skips(file, version, provider):
    """The list of skips for a version of rdma-core and a provider, and what is wrong with it."""
    skips, wrong = {}, []
    known, versions, providers = set(), (), ()
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("["):
                words = line.strip("[]").split()
                versions = [word for word in words if word.isdigit()]
                providers = [word for word in words if not word.isdigit()] or PROVIDERS
                known.update(versions)
                wrong += [f"no such provider: {word}" for word in providers if word not in PROVIDERS]
                continue
            test, _, reason = line.partition(": ")
            if reason not in (*REASONS, UNEXPECTED) and not reason.endswith(NOT_YET):
                wrong.append(f"{test}: no such reason: {reason}")
            if version not in versions or provider not in providers:
                continue
            if test in skips:
                wrong.append(f"{test} is there twice")
            skips[test] = reason
    if version not in known:
        wrong.append(f"it says nothing about rdma-core {version}")
    return skips, wrong


def find_netdevs():
    """The suite of rdma-core 44 looks for a netdev below a device's parent only, where a software device
    has none, and skips what needs its address. Later ones ask `rdma link`, as it does after this."""
    case = importlib.import_module("tests.base").RDMATestCase
    if "port" in inspect.signature(case.get_net_name).parameters:
        return

    def get_ip_mac(self, device, port, gid_index):
        links = json.loads(subprocess.check_output(("rdma", "-j", "link", "show")))
        names = [link["netdev"] for link in links if (link["ifname"], link["port"]) == (device, port)]
        self.args.append([device, port, gid_index, *self.get_ip_mac_address(names[0])])

    case._get_ip_mac = get_ip_mac


def load(directory, device):
    """All tests of the suite that concern us."""
    folder = os.path.join(directory, "tests")
    sys.path[:0] = [directory, folder]
    # The package's own __init__ would import the parts left out, too.
    package = types.ModuleType("tests")
    package.__path__ = [folder]
    sys.modules["tests"] = package
    sys.argv[1:] = ["--dev", device]
    importlib.import_module("args_parser").parser.parse_args()
    find_netdevs()
    loader = unittest.TestLoader()
    tests = []
    for file in sorted(os.listdir(folder)):
        if not re.fullmatch(r"test_\w+\.py", file) or any(other in file for other in OTHERS):
            continue
        module = importlib.import_module("tests." + file.removesuffix(".py"))
        for cases in loader.loadTestsFromModule(module):
            tests.extend(cases)
    return tests


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--rows", default=".")
    parser.add_argument("--skips")
    parser.add_argument("--provider", choices=PROVIDERS, default=PROVIDERS[0])
    parser.add_argument("directory")
    parser.add_argument("device")
    options = parser.parse_args()
    # A cycle collected at the wrong time closes a completion queue after its context,
    # and libibverbs crashes.
    gc.disable()
    tests = load(options.directory, options.device)
    suite = unittest.TestSuite(test for test in tests if re.search(options.rows, name(test)))
    rows = suite.countTestCases() + (options.skips is not None)
    if options.count:
        print(rows)
        return 0
    version = installed()
    skips, wrong = read_skips(options.skips, version, options.provider) if options.skips else (None, [])
    known = {name(test) for test in tests}
    wrong += [f"{test}: the suite of rdma-core {version} has no such test" for test in skips or () if test not in known]

    def too_long(*_):
        raise TooLong(f"not done after {SECONDS} s")

    signal.signal(signal.SIGALRM, too_long)
    print(f"1..{rows}\n# rdma-core {version}", flush=True)
    result = Ktap(skips)
    suite.run(result)
    if skips is not None:
        for line in wrong:
            print("#", line)
        result.row("the list of skips", not wrong)
    sys.stdout.flush()
    # Not through the interpreter's own end, which would collect the cycles.
    os._exit(1 if result.failed else 0)


if __name__ == "__main__":
    sys.exit(main())
