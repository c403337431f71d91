#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: 9P over RDMA
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# 9P over RDMA, the kernel's client and diod: large and small files. On one device, or with --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=ninep

ktap_start $((placement_count * 7))
for placement in $placements; do
	row "$(placed): exported" at_target serve "$(target_address)" 160
	row "$(placed): mounted" at_host attach "$(target_address)"
	row "$(placed): a large file" at_host large_file cached
	row "$(placed): 300 small files" at_host small_files 300
	row "$(placed): fio, CRCs, 32 at a time" at_host random_blocks 10
	row "$(placed): unmounted" at_host detach
	row "$(placed): exported no more" at_target unserve
done
ktap_finish
