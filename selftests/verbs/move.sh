#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: every byte of messages of all kinds and lengths
# Suites: all
#
# Patterns moved between the two devices, every byte and every completion checked:
# the rows are those of move, atomics and datagrams.
set -u
. "$(dirname "$0")/../lib/test.sh"

seed=${FERROCE_SEED:-$(date +%s)}

ktap_start $((80 + 16 + 2 * (7 + 5)))
for device in "$dev1 $address1" "$dev1 $address1v6" "$dev2 $address2" "$dev2 $address2v6"; do
	# shellcheck disable=SC2086
	gid_index_wait $device >/dev/null
done
absorb 80 "$here/move" -4 -s "$seed" "$dev1" "$dev2"
absorb 16 "$here/move" -6 -q -m 1024 -s "$seed" "$dev1" "$dev2"
for family in 4 6; do
	absorb 7 "$here/atomics" -c "-$family" -s "$seed" "$dev1" "$dev2"
	absorb 5 "$here/datagrams" "-$family" -s "$seed" "$dev1" "$dev2"
done
ktap_finish
