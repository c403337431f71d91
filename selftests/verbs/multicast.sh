#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: multicast groups: who gets what, and what is left
#
# Multicast: what the program multicast does between the devices, and what is left of
# its groups at the netdevs; and the ends of devices and processes that are in groups.
set -u
. "$(dirname "$0")/../lib/test.sh"

# groups NAMESPACE NETDEV: what it is a member of, in IPv4, IPv6 and its filter
groups()
{
	ip -n "$1" maddr show dev "$2" | sort
}

# The groups of the hold below are gone: 239.77.0.1, ff15::77:1 and their hardware addresses.
groups_left()
{
	local tries
	for tries in $(seq $((50 * slowness))); do
		groups "$1" "$2" | grep -qE '239\.77\.|ff15::77:|01:00:5e:4d|33:33:00:77' || return 0
		sleep 0.1
	done
	echo "after $tries tries $2 is still in its groups:"
	groups "$1" "$2"
	return 1
}

same_groups()
{
	local now1 now2
	now1=$(groups n1 "$netdev1") now2=$(groups n2 "$netdev2")
	[ "$now1" = "$before1" ] || fail "n1: before: $before1, now: $now1"
	[ "$now2" = "$before2" ] || fail "n2: before: $before2, now: $now2"
}

# holder_start DEVICE FAMILY
holder_start()
{
	# What the last one said goes now, not when the background job comes to run.
	: >"$ktap_dir/holder"
	"$here/multicast" "-$2" -h "$1" >"$ktap_dir/holder" 2>&1 &
	holder=$!
	await $((100 * slowness)) grep -q '^ready' "$ktap_dir/holder" && return 0
	cat "$ktap_dir/holder"
	fail "the holder is not ready"
}

# What it was attached to is undone when this returns.
holder_kill()
{
	kill -9 "$holder" || fail "the holder is gone"
	wait "$holder" 2>/dev/null
	holder=
}

is_in()
{
	groups "$1" "$2" | grep -q "$3"
}

joined()
{
	is_in "$1" "$2" "$3" || fail "$2 is not in $3: $(groups "$1" "$2")"
}

killed()
{
	holder_start "$dev1" 4
	joined n1 "$netdev1" 239.77.0.1
	joined n1 "$netdev1" 01:00:5e:4d:00:01
	holder_kill
	groups_left n1 "$netdev1" || return 1
	holder_start "$dev1" 6
	joined n1 "$netdev1" ff15::77:1
	joined n1 "$netdev1" 33:33:00:77:00:01
	holder_kill
	groups_left n1 "$netdev1"
}

# A device of one's own to be taken away: it may not be missed by others.
spare_up()
{
	ip -n n1 link add dummy7 type dummy || return 1
	namespace_up n1 dummy7 1500 10.7.0.1 fd07::1 || return 1
	in1 rdma link add spare7 type "$link_type" netdev dummy7 || return 1
	gid_index_wait spare7 10.7.0.1 >/dev/null && gid_index_wait spare7 fd07::1 >/dev/null
}

spare_gone()
{
	await $((100 * slowness)) [ ! -e /sys/class/infiniband/spare7 ] || fail "the device is still there"
}

netdev_removed()
{
	local family
	for family in 4 6; do
		spare_up || return 1
		holder_start spare7 "$family"
		timeout $((10 * slowness)) ip -n n1 link del dummy7 || fail "ip link del: status $?"
		spare_gone
		holder_kill
	done
}

device_removed()
{
	local family
	for family in 4 6; do
		spare_up || return 1
		holder_start spare7 "$family"
		timeout $((10 * slowness)) rdma link delete spare7 || fail "rdma link delete: status $?"
		spare_gone
		groups_left n1 dummy7 || return 1
		timeout $((10 * slowness)) ip -n n1 link del dummy7 || fail "ip link del: status $?"
		holder_kill
	done
}

holder='' other=''

# Removes what a failed row leaves.
spare_down()
{
	local process
	for process in $holder $other; do
		{ kill -9 "$process"; wait "$process"; } 2>/dev/null
	done
	ip -n n1 link del dummy7 2>/dev/null
}

# forget FAMILY: IP is taken off the netdev, which has too small an MTU, and with it the membership. Then IP comes again.
forget()
{
	local group=239.77.0.1 mtu=60
	[ "$1" = 4 ] || group=ff15::77:1 mtu=1200
	spare_up || return 1
	holder_start spare7 "$1"
	ip -n n1 link set dummy7 mtu "$mtu" || return 1
	! is_in n1 dummy7 "$group" || fail "$group is still there with an MTU of $mtu"
	ip -n n1 link set dummy7 mtu 1500 || return 1
	await $((100 * slowness)) is_in n1 dummy7 "$group" || fail "$group does not come again"
}

ip_comes_again()
{
	local family
	trap spare_down EXIT
	for family in 4 6; do
		forget "$family" || return 1
		holder_kill
		groups_left n1 dummy7 || return 1
		ip -n n1 link del dummy7
		spare_gone
	done
}

# A device that has left a group, joined it again and left it leaves another member in it.
another_member()
{
	trap spare_down EXIT
	forget 4 || return 1
	ip -n n1 address add 10.7.0.2/24 dev dummy7
	ip netns exec n1 python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
             socket.inet_aton("239.77.0.1") + socket.inet_aton("10.7.0.2"))
time.sleep(60)' &
	other=$!
	await $((100 * slowness)) is_in n1 dummy7 '239\.77\.0\.1 users 2' || fail "nobody else is in the group"
	holder_kill
	is_in n1 dummy7 '239\.77\.0\.1$' || fail "another's membership was ended: $(groups n1 dummy7)"
}

v4=$(rows_of "$here/multicast" -4) v6=$(rows_of "$here/multicast" -6)
ktap_start $((v4 + v6 + 7))
devices_wait
before1=$(groups n1 "$netdev1") before2=$(groups n2 "$netdev2")
absorb "$v4" "$here/multicast" -4 "$dev1" "$dev2"
absorb "$v6" "$here/multicast" -6 "$dev1" "$dev2"
row "no group is left" same_groups
row "a process that is killed leaves" killed
row "a netdev goes" netdev_removed
row "a device goes" device_removed
row "IP is taken off the netdev and comes again, and the groups with it" ip_comes_again
row "another member of such a group stays" another_member
row "no group is left in the end" same_groups
ktap_finish
