#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: RNBD over RTRS
# Net: loop
# Runs: never
# Needs: --suite consumers --kernel debug
#
# RNBD over RTRS, the kernel's server and client. On one device, or with --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=rnbd

ktap_start $((placement_count * 6))
for placement in $placements; do
	row "$(placed): exported" at_target serve "$(target_address)" 128
	row "$(placed): connected" at_host attach "$(target_address)"
	row "$(placed): written and read" at_host disk_compare 64
	row "$(placed): fio, CRCs, 32 at a time" at_host disk_fio 10
	row "$(placed): ext4" at_host disk_filesystem ext4
	row "$(placed): disconnected" disconnected
done
ktap_finish
