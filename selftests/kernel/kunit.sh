#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the tests of rust/roce in the kernel
# Net: none
# Runs: debug
# Needs: --kernel debug
#
# The tests of the protocol, rust/roce/tests, in the kernel: the rows are KUnit's cases. There must be one for
# each #[test] of the source. Only the debug kernel has KUnit.
set -u
. "$(dirname "$0")/../lib/test.sh"

tree=${FERROCE_TREE:-/mnt/src}
results=/sys/kernel/debug/kunit
oops=/proc/sys/kernel/panic_on_oops

no_kunit()
{
	skip "this kernel has no KUnit: selftests/run --kernel debug kunit"
}

# KUnit runs the suites of a module as it is loaded.
load()
{
	local module=$tree/build/debug/roce_kunit.ko
	[ -e "$module" ] || fail "there is no ${module#"$tree"/}: run scripts/module --kernel debug"
	insmod "$module"
}

# cases SUITE: its cases as KTAP of their own, without the suite around them.
cases()
{
	awk -v suite="$1" '
		/^ *(KTAP version|# Subtest:|# speed:|1\.\.)/ { next }
		/^(not )?ok [0-9]+ / || index($0, "# " suite ":") == 1 || /^# Totals:/ { next }
		{ sub(/^    /, "") }
		/^(not )?ok [0-9]+ / { sub(/ok [0-9]+ /, "&" suite ".") }
		NF { print }' "$results/$1/results"
}

if [ ! -d "$results" ]; then
	ktap_start 1
	row "suites of roce" no_kunit
	ktap_finish
fi

suites=()
declare -A expected=()
total=0
for file in "$tree"/rust/roce/tests/*.rs; do
	suite=roce_$(basename "$file" .rs)
	suites+=("$suite")
	expected[$suite]=$(grep -c '#\[test\]' "$file")
	total=$((total + expected[$suite]))
done
ktap_start $((total + 2))
# A panic is a BUG in the thread of its case; KUnit goes on with the next.
panic_on_oops=$(cat "$oops")
echo 0 >"$oops"
row "loading roce_kunit" load
echo "$panic_on_oops" >"$oops"
for suite in "${suites[@]}"; do
	absorb "${expected[$suite]}" cases "$suite"
done
row "unloading roce_kunit" rmmod roce_kunit
ktap_finish
