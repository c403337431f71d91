#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: NVMe over RDMA
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# NVMe over RDMA, the kernel's target and host: data that is written and read back, and file systems. On one device, or
# with --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=nvmeof
seconds=10

# connected OPTIONS INLINE [ARGUMENT...]: see serve() and attach() of lib/nvmeof.sh.
connected()
{
	local options=$1
	shift
	at_target serve "$(target_address)" 128 "$@" && at_host attach "$(target_address)" "$options"
}

ktap_start $((placement_count * (8 + 3 * 4)))
for placement in $placements; do
	row "$(placed), a queue for each CPU: connected" connected ,nr_io_queues=4 4096
	row "$(placed), a queue for each CPU: written and read" at_host disk_compare 64
	row "$(placed), a queue for each CPU: fio, CRCs, 32 at a time" at_host disk_fio "$seconds"
	row "$(placed), a queue for each CPU: ext4" at_host disk_filesystem ext4
	row "$(placed), a queue for each CPU: disconnected" disconnected
	row "$(placed), polled: connected" connected ,nr_poll_queues=2 4096
	row "$(placed), polled: fio, CRCs" at_host disk_fio "$seconds" --ioengine=io_uring --hipri --iodepth=1
	row "$(placed), polled: disconnected" disconnected
	for way in '4096 use_srq=1' 0 16384; do
		# shellcheck disable=SC2086 # words
		row "$(placed), inline $way: connected" connected '' $way
		row "$(placed), inline $way: written and read" at_host disk_compare 64
		row "$(placed), inline $way: fio, CRCs, 32 at a time" at_host disk_fio "$seconds"
		row "$(placed), inline $way: disconnected" disconnected
	done
done
ktap_finish
