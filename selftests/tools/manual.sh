#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the RDMA Aware Networks Programming manual: each entry, and its examples
#
# The "RDMA Aware Networks Programming" manual: each entry of its chapters 3 to 5 and 6.3, which are the rows of the
# programs manual_verbs and manual_cm, and the examples of its chapters 7 and 8, but for path migration (see
# migration.sh).
set -u
. "$(dirname "$0")/../lib/test.sh"

# Has a neighbour entry in n2, and answers nothing.
nobody=10.0.0.66
# Below a device that is removed, and below one whose hardware address changes.
removed=10.7.0.1
changed=10.8.0.1
# Beside the first, and removed while its device stays.
lost=10.7.0.2

surroundings()
{
	ip -n n2 neigh replace "$nobody" lladdr 02:00:00:00:00:66 nud permanent dev "$netdev2" || fail "no neighbour"
	if ! { ip link add removed7 type dummy && ip address add "$removed/24" dev removed7 &&
		ip address add "$lost/32" dev removed7 && ip link set removed7 up &&
		rdma link add removed7 type "$link_type" netdev removed7; }; then
		fail "no device to remove"
	fi
	# A bond that takes over the address of whichever netdev is active.
	modprobe bonding max_bonds=0 || fail "this kernel has no bonding"
	ip link add bond7 type bond mode active-backup fail_over_mac active || fail "no bond"
	if ! { ip link add bond7a type dummy && ip link add bond7b type dummy &&
		ip link set bond7a master bond7 && ip link set bond7b master bond7 &&
		ip link set bond7 type bond active_slave bond7a &&
		ip address add "$changed/24" dev bond7 && ip link set bond7 up &&
		rdma link add bond7 type "$link_type" netdev bond7; }; then
		fail "no device on the bond"
	fi
	gid_index_wait removed7 "$removed" && gid_index_wait removed7 "$lost" && gid_index_wait bond7 "$changed"
}

surroundings_end()
{
	rdma link delete bond7
	rdma link delete removed7
	ip link delete bond7
	ip link delete bond7a
	ip link delete bond7b
	ip link delete removed7
	modprobe -r bonding
	ip -n n2 neigh del "$nobody" dev "$netdev2"
} 2>/dev/null

example_rc()
{
	pair 60 19875 "$here/example_rc" -d "$dev1" -g "$1" -- \
		"$here/example_rc" -d "$dev2" -g "$2" "$address1" || return 1
	grep -qx 'the client reads this from the server' "$ktap_dir/client" || fail "nothing was read"
	grep -qx 'the client writes this to the server' "$ktap_dir/server" || fail "nothing was written"
}

example_srq()
{
	pair 60 7475 "$here/example_srq" "$@" "$address1" -- "$here/example_srq" -c "$@" "$address1"
}

# Two receivers, one of them on the sender's own device.
example_multicast()
{
	local group=239.77.4.1 receivers=() receiver failed=0
	# What the last one said goes now, not when the background job comes to run.
	truncate -s 0 "$ktap_dir/first" "$ktap_dir/second"
	ip netns exec n1 timeout $((30 * slowness)) "$here/example_multicast" -b "$address1" -m "$group" \
		>"$ktap_dir/first" 2>&1 &
	receivers+=($!)
	ip netns exec n2 timeout $((30 * slowness)) "$here/example_multicast" -b "$address2" -m "$group" \
		>"$ktap_dir/second" 2>&1 &
	receivers+=($!)
	for receiver in first second; do
		await $((100 * slowness)) grep -qx ready "$ktap_dir/$receiver" || echo "the $receiver is not ready"
	done
	in2 timeout $((30 * slowness)) "$here/example_multicast" -b "$address2" -m "$group" -s || failed=1
	for receiver in "${receivers[@]}"; do
		wait "$receiver" || { echo "receiver: status $?"; failed=1; }
	done
	cat "$ktap_dir/first" "$ktap_dir/second"
	return "$failed"
}

verbs_rows=$(rows_of "$here/manual_verbs") cm_rows=$(rows_of "$here/manual_cm")
ktap_start $((verbs_rows + cm_rows + 7))
netdev2=$(netdev_of n2 "$dev2")
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
gid1v6=$(gid_index_wait "$dev1" "$address1v6") gid2v6=$(gid_index_wait "$dev2" "$address2v6")
absorb "$verbs_rows" "$here/manual_verbs" "$dev1" "$dev2"
row "devices, addresses and a neighbour for what follows" surroundings
absorb "$cm_rows" "$here/manual_cm" -b "$nobody" -i "$(netdev_of n1 "$dev1")" \
	-R "$removed" -r "rdma link delete removed7" \
	-A "$changed" -a "ip link set bond7 type bond active_slave bond7b" \
	-G "$lost" -g "ip address delete $lost/32 dev removed7" \
	n1 "$address1" n2 "$address2"
surroundings_end
row "7.1 the RC example" example_rc "$gid1" "$gid2"
row "7.1 the RC example, IPv6" example_rc "$gid1v6" "$gid2v6"
row "7.3 and 8.2 the multicast example" example_multicast
row "8.3 the SRQ example" example_srq
row "8.3 the SRQ example, 16 queue pairs" example_srq -q 16 -n 20
row "8.3 the SRQ example, one queue pair" example_srq -q 1 -n 100
ktap_finish
