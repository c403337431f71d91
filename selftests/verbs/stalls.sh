#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: UC while one CPU after the other stands still, as when a hypervisor stops a virtual CPU
# Module: stalls
set -u
. "$(dirname "$0")/../lib/test.sh"

counter()
{
	cat "/sys/class/infiniband/$dev1/ports/1/hw_counters/$1"
}

# Packets that wait for a CPU lie in its lane. The sender waits meanwhile, so the lane does not overflow. Single packets
# may arrive out of order, and then perftest waits in vain for their message: so its status is of no interest.
stream()
{
	local run index1 index2 steered dropped
	[ "$(nproc)" -gt 1 ] || skip "one CPU has no lanes"
	index1=$(gid_index_wait "$dev1" "$address1") || fail "no GID of $address1"
	index2=$(gid_index_wait "$dev2" "$address2") || fail "no GID of $address2"
	steered=$(counter steered_pkts) || fail "no counter of steered packets"
	dropped=$(counter steering_dropped) || fail "no counter of dropped packets"
	insmod "$here/kernel/stalls.ko" stall_ms=100 pause_ms=50 || fail "stalls is not loaded"
	for run in 1 2 3 4; do
		pair 15 $((7480 + run)) ib_send_bw -F -d "$dev1" -x "$index1" -c UC -e -s 1048576 -n 200 -p $((7480 + run)) -- \
			ib_send_bw -F -d "$dev2" -x "$index2" -c UC -e -s 1048576 -n 200 -p $((7480 + run)) "$address1"
	done
	rmmod stalls
	steered=$(($(counter steered_pkts) - steered)) dropped=$(($(counter steering_dropped) - dropped))
	echo "$steered packets steered, $dropped dropped"
	[ "$steered" -gt 20000 ] || fail "too few packets steered"
	[ "$dropped" -eq 0 ] || fail "packets dropped"
}

ktap_start 1
devices_wait
row "packets that wait for a CPU are not lost" stream
rmmod stalls 2>/dev/null
ktap_finish
