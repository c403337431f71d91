#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: storage over a bad network
# Net: wire
# Runs: never
# Needs: --suite consumers
#
# Storage between two machines over a network that loses and reorders, and when link or target go in the middle of I/O.
# shellcheck disable=SC2154 # io_status is of io.sh
set -u
. "$(dirname "$0")/../lib/io.sh"

# bad_network ARG...: netem, both ways.
bad_network()
{
	tc qdisc add dev "$netdev" root netem "$@" && node2 tc qdisc add dev "$netdev" root netem "$@" || return 1
	at_host traffic 15
	local status=$?
	tc qdisc delete dev "$netdev" root && node2 tc qdisc delete dev "$netdev" root || return 1
	return "$status"
}

link_away()
{
	io_begin 30
	ip link set "$netdev" down || return 1
	sleep 5
	ip link set "$netdev" up || return 1
	io_end 120
	[ "$io_status" -eq 0 ] || fail "the I/O ended with status $io_status"
}

# The consumers give up: the I/O gets errors, and does not hang.
target_gone()
{
	connected 5 || return 1
	io_begin 60
	node2 ip link set "$netdev" down
	io_end 120
	node2 ip link set "$netdev" up
	at_host detach
	at_target unserve
	[ "$io_status" -ne 0 ] || fail "the I/O has not noticed"
}

ktap_start $((2 * 6))
for consumer in nvmeof nfs; do
	row "$consumer: connected" connected
	row "$consumer: 1 % loss" bad_network loss 1%
	row "$consumer: reordering" bad_network delay 2ms reorder 75% 50%
	row "$consumer: the link is away for 5 s" link_away
	row "$consumer: disconnected" disconnected
	row "$consumer: the target is gone for good" target_gone
done
ktap_finish
