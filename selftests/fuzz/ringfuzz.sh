#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: nonsense in the shared rings
#
# Nonsense in the rings that processes share with the module: the rows are those of the
# program ringfuzz; then nothing may be left.
set -u
. "$(dirname "$0")/../lib/test.sh"

seed=${FERROCE_SEED:-$(date +%s)}
seconds=${FERROCE_SECONDS:-30}

settled()
{
	objects_as_before "$ktap_dir/before" 10
}

ktap_start 4
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
objects_note "$ktap_dir/before"
coverage=()
[ -z "${FERROCE_COVERAGE:-}" ] || coverage=(-c "$FERROCE_COVERAGE")
absorb 3 "$here/ringfuzz" -s "$seed" -t "$seconds" "${coverage[@]}" "$dev1" "$dev2"
row "rings: nothing is left" settled
ktap_finish
