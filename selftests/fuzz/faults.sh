#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: allocations and user copies that fail
# Runs: debug
# Needs: --kernel debug
set -u
. "$(dirname "$0")/../lib/test.sh"

every=()
[ "${FERROCE_FULL:-0}" != 1 ] || every=(-e)
rows=$(rows_of "$here/faults")
ktap_start "$rows"
devices_wait
ip link add fault0 type dummy
ip address add 10.3.0.1/24 dev fault0
ip link set fault0 up
absorb "$rows" "$here/faults" "${every[@]}" "$dev1" "$dev2" fault0
ip link del fault0
ktap_finish
