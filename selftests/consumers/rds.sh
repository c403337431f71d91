#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: RDS: messages and RDMA
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# RDS over verbs: messages and RDMA, each byte compared. On one device, or with --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=rds

ktap_start $((placement_count * 5))
for placement in $placements; do
	row "$(placed): an answering program" at_target serve "$(target_address)"
	absorb 3 at_host exchange "$(host_address)" "$(target_address)"
	row "$(placed): the program ends" at_target unserve
done
ktap_finish
