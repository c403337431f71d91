#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: SMB over RDMA
# Net: loop
# Runs: never
# Needs: --suite consumers --kernel debug
#
# SMB over RDMA, the kernel's server and client: large and small files. On one device, or with --net wire on two machines.
# The server is not stopped: smb_direct_listener_destroy() in 7.2 stops a thread that may have ended, whatever the device.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=smbdirect

ktap_start $((placement_count * 6))
for placement in $placements; do
	row "$(placed): exported" at_target serve "$(target_address)" 160
	row "$(placed): mounted" at_host attach "$(target_address)"
	row "$(placed): a large file" at_host large_file
	row "$(placed): 500 small files" at_host small_files 500
	row "$(placed): fio, CRCs, 32 at a time" at_host random_blocks 10
	row "$(placed): unmounted" at_host detach
done
ktap_finish
