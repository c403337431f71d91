#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: every byte of messages of all kinds and lengths
# Suites: all
set -u
. "$(dirname "$0")/../lib/test.sh"

quick=(-6 -q -m 1024)
all=$(rows_of "$here/move") some=$(rows_of "$here/move" "${quick[@]}")
atomics=$(rows_of "$here/atomics" -c) datagrams=$(rows_of "$here/datagrams")
ktap_start $((all + some + 2 * (atomics + datagrams)))
devices_wait
absorb "$all" "$here/move" "$dev1" "$dev2"
absorb "$some" "$here/move" "${quick[@]}" "$dev1" "$dev2"
for family in 4 6; do
	absorb "$atomics" "$here/atomics" -c "-$family" "$dev1" "$dev2"
	absorb "$datagrams" "$here/datagrams" "-$family" "$dev1" "$dev2"
done
ktap_finish
