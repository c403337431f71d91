#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: routes: VRFs, MTUs, priorities
set -u
. "$(dirname "$0")/../lib/test.sh"

# The addresses of the netdev have a routing table of their own, as in a VRF; the main one has nothing to say of them.
in_vrf()
{
	local family
	modprobe vrf || skip "the kernel has no VRF"
	ip -n n1 link add red type vrf table 77 || return 1
	# An address of IPv6 goes when its netdev changes the table.
	ip -n n1 link set red up && ip -n n1 link set "$netdev1" master red &&
		{ ip -n n1 address add "$address1v6/64" dev "$netdev1" nodad 2>/dev/null; gids_wait; } || return 1
	ip -n n1 route show table main | grep -q "dev $netdev1" && fail "the main table still has routes"
	for family in 4 6; do
		env -u FERROCE_ROWS "$here/atomics" "-$family" "$dev1" "$dev2" >"$ktap_dir/vrf" 2>&1 || {
			tail -n 20 "$ktap_dir/vrf"
			fail "IPv$family"
		}
	done
}

out_of_vrf()
{
	ip -n n1 link delete red 2>/dev/null
	ip -n n1 address add "$address1v6/64" dev "$netdev1" nodad 2>/dev/null
	gids_wait
}

# Neighbours are asked from the new link-local address, once that is no longer tentative.
gids_wait()
{
	gid_index_wait "$dev1" "$address1" >/dev/null && gid_index_wait "$dev1" "$address1v6" >/dev/null &&
		await $((100 * slowness)) is_settled
}

is_settled()
{
	ip -n n1 -6 -o address show dev "$netdev1" scope link | grep -q . &&
		! ip -n n1 -6 -o address show dev "$netdev1" tentative | grep .
}

# pingpong MTU
pingpong()
{
	pair 30 18515 ibv_rc_pingpong -d "$dev1" -g "$gid1" -m "$1" -n 20 -- \
		ibv_rc_pingpong -d "$dev2" -g "$gid2" -m "$1" -n 20 "$address1"
}

# Full packets never leave: the log says why. The device's port cannot know: its netdev has room for them.
short_route()
{
	ip -n n1 route change 10.0.0.0/24 dev "$netdev1" src "$address1" mtu 1500 || return 1
	pingpong 1024 || fail "a path MTU of 1024 does not work"
	! told || fail "the log complains of 1024"
	! pingpong 2048 >/dev/null || fail "a path MTU of 2048 works"
	told || fail "the log says nothing"
}

told()
{
	kernel_log_since | grep 'ferroce: QP [0-9]*: the path MTU is longer than the route to the peer takes'
}

long_route()
{
	ip -n n1 route change 10.0.0.0/24 dev "$netdev1" src "$address1" && pingpong 2048
}

# packets_with NAMESPACE PRIORITY: how many packets left it with priority 0 or 3, since it was asked before.
packets_with()
{
	counted "$1" inet levels "p$2"
}

# sends_with LEVEL OTHER: the messages of n2 and the acknowledgements of n1 have priority LEVEL, and none has OTHER.
sends_with()
{
	local side packets others
	pair 60 18515 ib_send_bw -F -d "$dev1" -x "$gid1" -S "$1" -n 100 -- \
		ib_send_bw -F -d "$dev2" -x "$gid2" -S "$1" -n 100 "$address1" || return 1
	for side in n1 n2; do
		packets=$(packets_with "$side" "$1") && others=$(packets_with "$side" "$2") || return 1
		echo "$side: $packets packets with priority $1, $others with $2"
		[ "$packets" -gt 0 ] && [ "$others" -eq 0 ] || return 1
	done
}

# ibv_create_ah_from_wc(), by which udaddy replies, takes the packet's type in a completion for the service level.
# The ten datagrams of each side may leave in one packet of GSO, behind that of the connection.
replies_with_level_0()
{
	local side packets all
	for side in n1 n2; do
		counted "$side" inet levels sent >/dev/null || return 1
	done
	pair 60 7174 udaddy -- udaddy -s "$address1" || return 1
	for side in n1 n2; do
		packets=$(packets_with "$side" 0) && all=$(counted "$side" inet levels sent) || return 1
		echo "$side: of $all packets of udaddy, $packets with priority 0"
		[ "$all" -gt 1 ] && [ "$packets" -eq "$all" ] || return 1
	done
}

# The service level is what queueing disciplines and VLANs go by.
service_level()
{
	local side
	for side in n1 n2; do
		ip netns exec "$side" nft -f - <<-'RULES' || return 1
			table inet levels {
				counter p0 { }
				counter p3 { }
				counter sent { }
				chain departures {
					type filter hook output priority 0
					udp dport 4791 meta priority 0 counter name p0
					udp dport 4791 meta priority 0:3 counter name p3
					udp dport 4791 counter name sent
				}
			}
		RULES
	done
	sends_with 3 0 && sends_with 0 3 && replies_with_level_0
}

# vlan_up NAMESPACE NETDEV ADDRESS: a VLAN that maps the priorities 3 and 5.
vlan_up()
{
	ip -n "$1" link add link "$2" name vlan9 type vlan id 9 egress-qos-map 3:5 5:1 &&
		ip -n "$1" address add "$3/24" dev vlan9 && ip -n "$1" link set vlan9 up
}

vlans_end()
{
	ip -n n1 link del vlan9 2>/dev/null
	ip -n n2 link del vlan9 2>/dev/null
	in1 nft delete table netdev tags 2>/dev/null
	gids_wait
}

# tagged PRIORITY: how many packets arrived with that in the VLAN's tag, since it was asked before.
tagged()
{
	counted n1 netdev tags "p$1"
}

# rdma_cm has the service level from the VLAN's map. So the map must not be applied to it once more.
vlan_level()
{
	local right wrong sgid1 sgid2
	vlan_up n1 "$netdev1" 10.9.9.1 && vlan_up n2 "$netdev2" 10.9.9.2 || return 1
	sgid1=$(gid_index_wait "$dev1" 10.9.9.1) && sgid2=$(gid_index_wait "$dev2" 10.9.9.2) || return 1
	in1 nft -f - <<-RULES || return 1
		table netdev tags {
			counter p1 { }
			counter p5 { }
			chain arrivals {
				type filter hook ingress device $netdev1 priority 0
				vlan id 9 vlan pcp 1 counter name p1
				vlan id 9 vlan pcp 5 counter name p5
			}
		}
	RULES
	pair 60 18515 ib_send_bw -F -d "$dev1" -x "$sgid1" -S 5 -n 100 -- \
		ib_send_bw -F -d "$dev2" -x "$sgid2" -S 5 -n 100 10.9.9.1 || return 1
	right=$(tagged 5) && wrong=$(tagged 1) || return 1
	echo "$right packets with priority 5 in the tag, $wrong with 1"
	[ "$right" -gt 0 ] && [ "$wrong" -eq 0 ]
}

# Of the priorities, mqprio maps 3 to traffic class 1. It wants a netdev with a queue for each class.
traffic_class()
{
	modprobe sch_mqprio || skip "the kernel has no mqprio"
	local right all
	in2 ethtool -L "$netdev2" tx 2 &&
		in2 tc qdisc add dev "$netdev2" root mqprio num_tc 2 map 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0 ||
		return 1
	in2 nft reset counters table inet levels >/dev/null
	pair 60 18515 ib_send_bw -F -d "$dev1" -x "$gid1" -n 100 -- \
		ib_send_bw -F -d "$dev2" -x "$gid2" -S 1 -n 100 "$address1" || return 1
	right=$(packets_with n2 3) && all=$(counted n2 inet levels sent) || return 1
	echo "of $all packets, $right with priority 3"
	[ "$all" -gt 100 ] && [ "$right" -eq "$all" ]
}

# A process that moves from CPU to CPU, softirqs and workers send for one QP. The netdev has a queue for each CPU.
one_queue()
{
	local queue counts
	[ "$(nproc)" -ge 2 ] || skip "there is one CPU"
	in2 ethtool -L "$netdev2" tx 2 && in2 tc qdisc add dev "$netdev2" root handle 1: mq || return 1
	for queue in 0 1; do
		in2 tc qdisc add dev "$netdev2" parent "1:$((queue + 1))" pfifo limit 10000 &&
			in2 sh -c "echo $((1 << queue)) >/sys/class/net/$netdev2/queues/tx-$queue/xps_cpus" || return 1
	done
	pair 60 18515 ib_write_bw -F -d "$dev1" -x "$gid1" -s 1024 -n 20000 -- \
		sh -c 'p=$$
			while taskset -cp 0 $p && sleep 0.02 && taskset -cp 1 $p && sleep 0.02; do :; done >/dev/null 2>&1 &
			exec "$@"' sh ib_write_bw -F -d "$dev2" -x "$gid2" -s 1024 -n 20000 "$address1" || return 1
	mapfile -t counts < <(in2 tc -s -j qdisc show dev "$netdev2" |
		python3 -c 'import json, sys
for queue in json.load(sys.stdin):
    if queue["kind"] == "pfifo":
        print(queue["packets"])' | sort -n)
	echo "packets of the two queues: ${counts[*]}"
	# perftest's own connection, and what else the netdev sends.
	[ "${#counts[@]}" -eq 2 ] && [ "${counts[0]}" -lt 100 ] && [ "${counts[1]}" -gt 300 ]
}

# After a row with two transmit queues.
queues_end()
{
	in2 tc qdisc del dev "$netdev2" root 2>/dev/null
	in2 ethtool -L "$netdev2" tx 1
}

mtus=$(rows_of "$here/datagrams" -m 1)
ktap_start $((7 + mtus))
devices_wait
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
row "a route that is too short for the path MTU: the log says so" short_route
row "the route is longer again" long_route
absorb "$mtus" "$here/datagrams" -m "$(in1 cat "/sys/class/net/$netdev1/mtu")" "$dev1" "$dev2"
row "the service level is the packets' priority" service_level
row "a VLAN's tag has the service level for priority" vlan_level
vlans_end
row "mqprio's traffic class is the service level" traffic_class
queues_end
row "all packets of a queue pair leave by one transmit queue" one_queue
queues_end
in1 nft delete table inet levels 2>/dev/null
in2 nft delete table inet levels 2>/dev/null
row "a device on a netdev in a VRF" in_vrf
out_of_vrf
ktap_finish
