#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the suite of rdma-core: what is skipped is listed
# Net: loop
# Suites: all
#
# rdma-core's own suite for its Python binding, on the one device of
# `scripts/vm --net loop`. What of it is skipped, and why, is in pyverbs_skips: nothing
# else may be.
set -u
. "$(dirname "$0")/../lib/test.sh"

case ${FERROCE_DRIVER:-ferroce} in
ferroce)
	device=${FERROCE_DEV0:-fer0}
	skips=(--skips "$here/pyverbs_skips" --provider "${FERROCE_PROVIDER:-librxe}")
	;;
*)
	device=${FERROCE_DEV0:-${FERROCE_DRIVER}0}
	skips=()
	;;
esac
suite=${FERROCE_PYVERBS:-/usr/local/share/pyverbs}
run=(python3 "$here/lib/pyverbs_suite.py" --rows "${FERROCE_ROWS:-.}" "${skips[@]}" "$suite" "$device")

# Without them its tests of huge pages and of pinned memory are skipped.
huge=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
echo 32 >"$huge" && [ "$(cat "$huge")" -ge 16 ] || echo "# no huge pages: $(cat "$huge")"
ulimit -l unlimited

rows=$("${run[@]:0:2}" --count "${run[@]:2}")
ktap_start "${rows:-1}"
absorb "${rows:-1}" "${run[@]}"
echo 0 >"$huge"
ktap_finish
