#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: nonsense in the shared rings
set -u
. "$(dirname "$0")/../lib/test.sh"

rows=$(rows_of "$here/ringfuzz")
ktap_start $((rows + 1))
devices_wait
objects_note "$ktap_dir/before"
absorb "$rows" "$here/ringfuzz" "$dev1" "$dev2"
row "rings: nothing is left" objects_as_before "$ktap_dir/before" $((10 * slowness))
ktap_finish
