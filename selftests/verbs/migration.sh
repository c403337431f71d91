#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: path migration: states, both ends, dead paths, refusals
# Module: alternate_paths
#
# The stock kernel's core refuses alternate paths on RoCE, which a row shows; for the others a module of ours has it
# let them through.
set -u
. "$(dirname "$0")/../lib/test.sh"

second1=10.0.1.1
second2=10.0.1.2

# Shell commands for the program: the packets between the first addresses go to a station that nobody is.
cut_one_way="ip -n n1 neigh replace $address2 lladdr 02:00:00:00:00:99 nud permanent dev netdev1"
cut="$cut_one_way &&
	ip -n n2 neigh replace $address1 lladdr 02:00:00:00:00:99 nud permanent dev netdev2"
mend="ip -n n1 neigh del $address2 dev netdev1; ip -n n2 neigh del $address1 dev netdev2"

lift="insmod $here/kernel/alternate_paths.ko devices=$dev1,$dev2"

second_addresses()
{
	ip -n n1 address add "$second1/24" dev "$netdev1" &&
		ip -n n2 address add "$second2/24" dev "$netdev2" &&
		index1=$(gid_index_wait "$dev1" "$second1") &&
		index2=$(gid_index_wait "$dev2" "$second2")
}

# Chapter 8.1 of the "RDMA Aware Networks Programming" manual, between two programs. rdma_cm does not connect over
# devices that the module has changed, so it comes in between.
example()
{
	local status
	pair 60 7476 "$here/example_migration" "$address1" "$index1" "$second2" -- \
		"$here/example_migration" -x "$lift" -c "$address1" "$index2" "$second1"
	status=$?
	rmmod alternate_paths || fail "the module is not there"
	return "$status"
}

rows=$(rows_of "$here/migration") refused=$(rows_of "$here/migration" -r)
ktap_start $((rows + refused + 4))
devices_wait
cut_one_way=${cut_one_way//netdev1/$netdev1}
cut=${cut//netdev1/$netdev1} cut=${cut//netdev2/$netdev2}
mend=${mend//netdev1/$netdev1} mend=${mend//netdev2/$netdev2}
index1='' index2=''
second_addresses
verdict $? "second addresses"
absorb "$refused" "$here/migration" -r "$dev1" "$dev2" "$index1" "$index2"
row "the manual's example" example
# shellcheck disable=SC2086
row "module that lets alternate paths through" $lift
absorb "$rows" "$here/migration" -c "$cut" -o "$cut_one_way" -m "$mend" "$dev1" "$dev2" "$index1" "$index2"
row "unloading it" rmmod alternate_paths
# Where the program ended early.
bash -c "$mend" 2>/dev/null
ip -n n1 address del "$second1/24" dev "$netdev1"
ip -n n2 address del "$second2/24" dev "$netdev2"
ktap_finish
