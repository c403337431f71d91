#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: allocations and user copies that fail
# Runs: debug
# Needs: --kernel debug
#
# Verbs, transfers and the life of a device with allocations and user copies that fail:
# the rows are those of the program faults. Only the debug kernel can do that.
set -u
. "$(dirname "$0")/../lib/test.sh"

ktap_start 110
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
ip link add fault0 type dummy
ip address add 10.3.0.1/24 dev fault0
ip link set fault0 up
every=()
[ "${FERROCE_FULL:-0}" != 1 ] || every=(-e)
absorb 110 "$here/faults" "${every[@]}" "$dev1" "$dev2" fault0
ip link del fault0
ktap_finish
