#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: NFS over RDMA, versions 3 and 4.2
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# NFS over RDMA, the kernel's server and client, versions 3 and 4.2: large and small files, by the page cache and past
# it. On one device, or with --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=nfs
# Between two emulated machines a file takes some 80 ms if the host is busy, and a test has 900 s.
files=5000
[ "${FERROCE_NET:-}" != wire ] || files=1000

mounted_adaptively()
{
	at_target adaptive on && at_host adaptive on && at_host attach "$(target_address)" 4.2
}

unmounted_adaptively()
{
	local status=0
	at_host detach || status=$?
	at_target adaptive off || status=$?
	at_host adaptive off || status=$?
	return "$status"
}

rows=$((placement_count * (2 + 2 * 5 + 3)))
# The core sets no moderation at less than a completion a millisecond (rdma_dim_stats_compare()), and two emulated machines
# have hardly more.
[ "${FERROCE_NET:-}" = wire ] || rows=$((rows + 1))
ktap_start "$rows"
for placement in $placements; do
	row "$(placed): exported" at_target serve "$(target_address)" 160
	for version in 3 4.2; do
		row "$(placed), version $version: mounted" at_host attach "$(target_address)" "$version"
		row "$(placed), version $version: a large file" at_host large_file
		row "$(placed), version $version: $files small files" at_host small_files "$files"
		row "$(placed), version $version: fio, CRCs, 32 at a time" at_host random_blocks 10
		row "$(placed), version $version: unmounted" at_host detach
	done
	row "$(placed), adaptive moderation: mounted" mounted_adaptively
	row "$(placed), adaptive moderation: fio, CRCs, 32 at a time" at_host random_blocks 10
	if [ "$placement" = alone ]; then
		row "$(placed), adaptive moderation: the core has set one" at_host is_adapted
	fi
	row "$(placed), adaptive moderation: unmounted" unmounted_adaptively
	row "$(placed): exported no more" at_target unserve
done
ktap_finish
