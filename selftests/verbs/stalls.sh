#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: UC while one CPU after the other stands still, as when a hypervisor stops a virtual CPU
# Module: stalls
set -u
. "$(dirname "$0")/../lib/test.sh"

# Packets that wait for a CPU lie in its lane. The sender waits meanwhile, so the lane does not overflow. Single packets
# may arrive out of order, and then perftest waits in vain for their message: so its status is of no interest.
stream()
{
	local program=(ib_send_bw -F -c UC -e -s 1048576 -n 200) port index1 index2 steered dropped
	[ "$(nproc)" -gt 1 ] || skip "one CPU has no lanes"
	index1=$(gid_index_wait "$dev1" "$address1") || fail "no GID of $address1"
	index2=$(gid_index_wait "$dev2" "$address2") || fail "no GID of $address2"
	steered=$(counter_of "$dev1" steered_pkts) || fail "no counter of steered packets"
	dropped=$(counter_of "$dev1" steering_dropped) || fail "no counter of dropped packets"
	insmod "$here/kernel/stalls.ko" stall_ms=100 pause_ms=50 || fail "stalls is not loaded"
	for port in 7481 7482 7483 7484; do
		pair 15 "$port" "${program[@]}" -d "$dev1" -x "$index1" -p "$port" -- \
			"${program[@]}" -d "$dev2" -x "$index2" -p "$port" "$address1"
	done
	steered=$(($(counter_of "$dev1" steered_pkts) - steered))
	dropped=$(($(counter_of "$dev1" steering_dropped) - dropped))
	echo "$steered packets steered, $dropped dropped"
	[ "$steered" -gt 20000 ] || fail "too few packets steered"
	[ "$dropped" -eq 0 ] || fail "packets dropped"
}

ktap_start 1
devices_wait
row "packets that wait for a CPU are not lost" stream
rmmod stalls 2>/dev/null
ktap_finish
