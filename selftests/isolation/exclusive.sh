#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the exclusive mode of the RDMA core: devices and netdevs that go to pods and back
# Net: none
#
# The exclusive mode of the RDMA core: a device is seen in one network namespace only. Device and netdev go to a pod in
# either order, as CNI plugins have it, and come back. In a machine without other namespaces: with them the core does
# not change its mode.
set -u
. "$(dirname "$0")/../lib/test.sh"

n=$((100 / slowness))
cm_port=7174

# The device $dev1 is in the first namespace, its peer $dev2 in `other`.
up()
{
	modprobe "$module" && rdma system set netns exclusive || return 1
	ip netns attach first 1 && ip netns add pod && ip netns add other || return 1
	ip link add v1 type veth peer name v2 netns other || return 1
	namespace_up first v1 1500 10.6.0.1 fd06::1 && namespace_up other v2 1500 10.6.0.2 fd06::2 &&
		ip netns exec pod ip link set lo up || return 1
	rdma link add "$dev1" type "$link_type" netdev v1 &&
		ip netns exec other rdma link add "$dev2" type "$link_type" netdev v2 || return 1
	seen_in first "$dev1" && seen_in other "$dev2"
}

# seen_in NAMESPACE DEVICE: there, by rdma and by libibverbs, and nowhere else.
seen_in()
{
	local namespace
	for namespace in first pod other; do
		if [ "$namespace" = "$1" ]; then
			ip netns exec "$namespace" rdma dev show "$2" || fail "rdma does not show $2 in $namespace"
			ip netns exec "$namespace" ibv_devinfo -d "$2" >/dev/null || fail "$2 cannot be opened in $namespace"
		else
			! ip netns exec "$namespace" rdma dev show "$2" 2>/dev/null || fail "rdma shows $2 in $namespace"
			! ip netns exec "$namespace" ibv_devinfo -d "$2" 2>/dev/null || fail "$2 can be opened in $namespace"
		fi
	done
}

# has_gid NAMESPACE DEVICE ADDRESS: sysfs shows the device's own namespace only.
has_gid()
{
	local tries
	for tries in $(seq $((50 * slowness))); do
		ip netns exec "$1" rdma -j link show "$2/1" | grep -q ACTIVE &&
			ip netns exec "$1" ibv_devinfo -v -d "$2" | grep -q "::ffff:$3" && return 0
		sleep 0.1
	done
	ip netns exec "$1" ibv_devinfo -v -d "$2"
	fail "no GID for $3 after $tries tries"
}

# connection NAMESPACE [ADDRESS PEER]: rping from there to `other`, and back.
connection()
{
	local at=$1 address=${2:-10.6.0.1} peer=${3:-10.6.0.2}
	has_gid "$at" "$dev1" "$address"
	server_at=$at client_at=other pair 60 "$cm_port" rping -s -a "$address" -p "$cm_port" -v -V -C "$n" -- \
		rping -c -a "$address" -p "$cm_port" -v -V -C "$n" &&
		server_at=other client_at=$at pair 60 "$cm_port" rping -s -a "$peer" -p "$cm_port" -v -V -C "$n" -- \
			rping -c -a "$peer" -p "$cm_port" -v -V -C "$n"
}

move_netdev()
{
	ip -n "$1" link set v1 netns "$2" && namespace_up "$2" v1 1500 10.6.0.1 fd06::1
}

move_device()
{
	ip netns exec "$1" rdma dev set "$dev1" netns "$2" && seen_in "$2" "$dev1"
}

netdev_first()
{
	move_netdev "$1" "$2" && seen_in "$1" "$dev1" && move_device "$1" "$2"
}

device_first()
{
	move_device "$1" "$2" && move_netdev "$1" "$2" && seen_in "$2" "$dev1"
}

# Adds a macvlan above the device's netdev to the pod.
above_up()
{
	ip -n first link add above link v1 type macvlan mode bridge && ip -n first link set above netns pod &&
		namespace_up pod above 1500 10.6.0.5 fd06::5 && has_gid "$1" "$dev1" 10.6.0.5
}

# UDP port 4791 of the pod is free: a program can have it, and answers until its time is over. If it has said nothing
# by then, it had no time to start, and is tried again.
port_is_free()
{
	local status
	for _ in 1 2 3; do
		ip netns exec pod timeout $((5 * slowness)) python3 "$here/lib/udp_echo.py" answer :: 4791 \
			>"$ktap_dir/answer" 2>&1
		status=$?
		[ ! -s "$ktap_dir/answer" ] || break
	done
	[ "$status" -eq 124 ] && grep -qx ready "$ktap_dir/answer"
}

# The pod cannot use the device; so it keeps its port.
port_kept()
{
	local status
	above_up first || return 1
	port_is_free
	status=$?
	ip -n pod link delete above
	cat "$ktap_dir/answer"
	[ "$status" -eq 0 ] || fail "a program cannot have it"
}

# The device goes to the pod, whose macvlan then has its packets there, and leaves it again.
port_given_back()
{
	move_device first pod && above_up pod || return 1
	connection pod 10.6.0.5 || fail "rping over the macvlan"
	! port_is_free || fail "the port is free in use"
	# A probe that fails for another reason says nothing about the port.
	grep 'Address already in use' "$ktap_dir/answer" || fail "the probe: $(cat "$ktap_dir/answer")"
	move_device pod first || return 1
	await $((25 * slowness)) port_is_free || fail "the port is not free"
	ip -n pod link delete above
}

# The VLAN and its address are in the pod before the device.
vlan_first()
{
	move_netdev first pod || return 1
	vlan pod v1 10.7.0.1 && vlan other v2 10.7.0.2 && has_gid first "$dev1" 10.7.0.1 || return 1
	move_device first pod || return 1
	connection pod 10.7.0.1 10.7.0.2 || fail "rping over the VLAN"
	ip -n pod link delete v1.7 && ip -n other link delete v2.7 && netdev_first pod first
}

vlan()
{
	ip -n "$1" link add link "$2" name "$2.7" type vlan id 7 && namespace_up "$1" "$2.7" 1500 "$3" "fd07::${3##*.}"
}

# Nothing but its completion queue tells a process that polls.
poller_told()
{
	local server client status before
	before=$(received_bytes)
	ip netns exec first ib_send_bw -d "$dev1" -F -R -p "$cm_port" -n 5000000 >"$ktap_dir/server" 2>&1 &
	server=$!
	await_listener "ip netns exec first" "$cm_port" "$server"
	ip netns exec other ib_send_bw -d "$dev2" -F -R -p "$cm_port" -n 5000000 10.6.0.1 >"$ktap_dir/client" 2>&1 &
	client=$!
	await $((100 * slowness)) traffic_flows "$before" || fail "no traffic"
	move_device first pod || return 1
	await $((200 * slowness)) has_ended "$server" || echo "the process does not end"
	cat "$ktap_dir/server"
	kill "$server" "$client" 2>/dev/null
	wait "$server"
	status=$?
	# 143: it was killed just now.
	case $status in
	0 | 143) fail "the process ends with $status" ;;
	esac
}

# A process is in a group when its device goes. The netdev leaves the group. When the device is back, another process enters
# the group and gets its packets.
group_returns()
{
	local group=239.77.3.1 receiver status
	ip netns exec first mckey -m "$group" -b 10.6.0.1 >"$ktap_dir/server" 2>&1 &
	receiver=$!
	await $((100 * slowness)) in_group first v1 "$group" || fail "not in the group"
	move_device first pod || return 1
	kill "$receiver" 2>/dev/null
	wait "$receiver"
	await $((100 * slowness)) not in_group first v1 "$group" || fail "still in the group"
	move_device pod first && has_gid first "$dev1" 10.6.0.1 || return 1
	ip netns exec first timeout $((20 * slowness)) mckey -m "$group" -b 10.6.0.1 >"$ktap_dir/server" 2>&1 &
	receiver=$!
	await $((100 * slowness)) in_group first v1 "$group" 2 || fail "not in the group again"
	ip netns exec other timeout $((20 * slowness)) mckey -m "$group" -b 10.6.0.2 -s
	wait "$receiver"
	status=$?
	cat "$ktap_dir/server"
	[ "$status" -eq 0 ] || fail "the receiver ends with $status"
}

not()
{
	! "$@"
}

received_bytes()
{
	ip netns exec first cat /sys/class/net/v1/statistics/rx_bytes
}

# traffic_flows BYTES: two megabytes more have come since there were so many.
traffic_flows()
{
	[ "$(received_bytes)" -gt $(($1 + (2 << 20))) ]
}

# The pod goes with traffic under way: the netdev goes with it, as a veth does, and the device with the netdev.
pod_ends()
{
	local server client deadline
	ip netns exec pod rping -s -a 10.6.0.1 -p "$cm_port" >"$ktap_dir/server" 2>&1 &
	server=$!
	await_listener "ip netns exec pod" "$cm_port" "$server"
	ip netns exec other rping -c -a 10.6.0.1 -p "$cm_port" -v >"$ktap_dir/client" 2>&1 &
	client=$!
	await $((50 * slowness)) grep -q 'ping data' "$ktap_dir/client" || fail "no traffic"
	kill -9 "$server"
	ip netns delete pod
	# The other end of a veth goes with it, and the other device.
	await $((100 * slowness)) not ip -n other link show v2 || fail "the netdev is still there"
	await $((100 * slowness)) not ip netns exec other rdma dev show "$dev2" || fail "the device is still there"
	deadline=$((SECONDS + 60 * slowness))
	while kill -0 "$client" 2>/dev/null; do
		[ "$SECONDS" -lt "$deadline" ] || fail "the client does not end"
		sleep 0.2
	done
	ip netns add pod
}

down()
{
	ip netns delete pod
	ip netns delete other
	ip netns delete first
	await $((100 * slowness)) rdma system set netns shared || return 1
	# In the exclusive mode nobody sees the devices of other namespaces: now they would be seen.
	await $((100 * slowness)) sh -c "! rdma dev show | grep -E '$dev1|$dev2'" || fail "devices are still there: $(rdma dev show)"
}

ktap_start 16
row "two namespaces, a device each" up
row "in its first namespace: rping" connection first
row "a pod above its netdev keeps UDP port 4791" port_kept
row "netdev first, then device, to a pod" netdev_first first pod
row "netdev first: rping" connection pod
row "netdev first, then device, back" netdev_first pod first
row "back: rping" connection first
row "a process that only polls hears of the end of its device" poller_told
row "its device comes back" move_device pod first
row "a multicast group: left as the device goes, and entered again" group_returns
row "a pod has the device and a netdev above its own: rping; UDP port 4791 is free afterwards" port_given_back
row "netdev, VLAN and address, then device, to a pod: rping" vlan_first
row "device first, then netdev, to a pod" device_first first pod
row "device first: rping" connection pod
row "a pod ends with traffic under way" pod_ends
row "the shared mode again, and no device of namespaces that have ended" down
ktap_finish
