#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: SMC-R, version 2
# Net: wire
# Runs: never
# Needs: --suite consumers --kernel debug
#
# SMC-R between two machines: what goes through sockets is compared, and goes over RDMA.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=smc

answers()
{
	at_host sends >"$ktap_dir/sends" && at_target serve "$(target_address)"
}

# Each connection that SMC leads over RDMA sends at least once, and each message of the cursor is a send.
over_rdma()
{
	local sends
	sends=$(($(at_host sends) - $(cat "$ktap_dir/sends")))
	echo "$sends sends"
	if [ "$sends" -le 200 ] || ! at_host only_rdma || ! at_target only_rdma; then
		fail "connections go over TCP"
	fi
}

ktap_start $((placement_count * 9))
for placement in $placements; do
	row "$(placed): a program that answers" answers
	absorb 6 at_host exchange "$(target_address)"
	row "$(placed): over RDMA" over_rdma
	row "$(placed): the program ends" at_target unserve
done
ktap_finish
