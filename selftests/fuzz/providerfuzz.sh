#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: a provider whose kernel lies
# Runs: never
# Needs: --provider ferroce
set -u
. "$(dirname "$0")/../lib/test.sh"

rows=$(rows_of "$here/providerfuzz")
ktap_start $((rows + 1))
devices_wait
objects_note "$ktap_dir/before"
absorb "$rows" "$here/providerfuzz" "$dev1"
row "providerfuzz: nothing is left" objects_as_before "$ktap_dir/before" $((10 * slowness))
ktap_finish
