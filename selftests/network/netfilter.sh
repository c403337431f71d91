#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: hooks: which datagrams they take, and who lists them
#
# The module's hooks in netfilter: which datagrams they take, which they leave alone, and who reads them while
# they come and go.
set -u
. "$(dirname "$0")/../lib/test.sh"

port=4791
netdev1=$(netdev_of n1 "$dev1")
netdev2=$(netdev_of n2 "$dev2")
echo="$here/lib/udp_echo.py"
# Of the container that has an ipvlan above the netdev of the device in n1.
child=10.0.0.3
child_v6=fd00::3
# Of a netdev in n1 that has no device.
other=10.5.0.1
# How often a device comes and goes while hooks are listed.
rounds=20
[ -z "${FERROCE_FULL:-}" ] || rounds=200

only_ferroce()
{
	[ "$driver" = ferroce ] || skip "only ferroce has hooks"
}

device_comes()
{
	in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1" || fail "the device does not come"
	gid_index_wait "$dev1" "$address1" >/dev/null && gid_index_wait "$dev1" "$address1v6" >/dev/null
}

device_anew()
{
	in1 rdma link delete "$dev1" || fail "the device does not go"
	device_comes
}

# Its namespace gets what came by the netdev of n1 from the netfilter hook of the ipvlan, in n1. Before it has addresses, its
# link-local one too, a program there has the port.
make_child()
{
	local mac
	modprobe ipvlan || skip "the kernel has no ipvlan"
	set -e
	ip netns add n3
	answer
	ip -n n1 link add link "$netdev1" name child type ipvlan mode l3s
	ip -n n1 link set child netns n3
	ip -n n3 link set lo up
	ip -n n3 link set child up
	ip -n n3 address add "$child/24" dev child
	ip -n n3 address add "$child_v6/64" dev child nodad
	# In this mode nobody answers who looks for its addresses.
	mac=$(in1 cat "/sys/class/net/$netdev1/address")
	ip -n n2 neighbour replace "$child" lladdr "$mac" nud permanent dev "$netdev2"
	ip -n n2 neighbour replace "$child_v6" lladdr "$mac" nud permanent dev "$netdev2"
}

# A program has the port of all addresses, until it is killed.
answer()
{
	ip netns exec n3 python3 "$echo" answer :: "$port" >"$ktap_dir/answer" 2>&1 4>&- &
	echo $! >"$ktap_dir/server"
	await $((100 * slowness)) grep -qE '^ready|Address already in use' "$ktap_dir/answer" || true
	grep -q '^ready' "$ktap_dir/answer" || fail "$(cat "$ktap_dir/answer")"
}

# answered ADDRESS: the program gets what is sent to it.
answered()
{
	[ -e /var/run/netns/n3 ] || skip "there is no ipvlan in another namespace"
	in2 python3 "$echo" ask "$1" "$port" $((20 * slowness)) && return
	in1 rdma statistic show link "$dev1/1"
	return 1
}

# The RDMA core reports each GID that a driver refuses, without a limit: so none is refused.
no_flood_of_reports()
{
	only_ferroce
	[ -e /var/run/netns/n3 ] || skip "there is no ipvlan in another namespace"
	echo "selftests: 20 addresses" >/dev/kmsg
	for _ in $(seq 20); do
		ip -n n3 address delete "$child/24" dev child && ip -n n3 address add "$child/24" dev child || return 1
	done
	gid_index_wait "$dev1" "$child" || return 1
	dmesg | sed '1,/selftests: 20 addresses/d' | grep 'GID add failed' && fail "reports of the RDMA core"
	return 0
}

# Where no program has the port, the device of the addresses has it.
port_of_device()
{
	[ -e /var/run/netns/n3 ] || skip "there is no ipvlan in another namespace"
	kill "$(cat "$ktap_dir/server")"
	device_anew || return 1
	gid_index_wait "$dev1" "$child" || return 1
	! (answer) || fail "a program can have the port"
	grep 'Address already in use' "$ktap_dir/answer"
}

answers()
{
	(answer)
}

# Work closes the device's sockets when the last address has gone, the link-local one too.
port_given_back()
{
	only_ferroce
	[ -e /var/run/netns/n3 ] || skip "there is no ipvlan in another namespace"
	ip -n n3 address flush dev child || return 1
	await $((50 * slowness)) answers || fail "no program can have the port"
	kill "$(cat "$ktap_dir/server")"
}

# fill_netfilter NAMESPACE: netfilter takes 1024 hooks for a family and a place.
fill_netfilter()
{
	{
		echo "table inet full {"
		printf '\tchain c%s {\n\t\ttype filter hook input priority 0\n\t}\n' $(seq 1024)
		echo "}"
	} | ip netns exec "$1" nft -f -
}

# refused_for_hooks MARK: the log says so after MARK.
refused_for_hooks()
{
	dmesg | sed "1,/$1/d" | grep 'netfilter has 1024 hooks'
}

device_without_hooks()
{
	local status=0
	only_ferroce
	in1 rdma link delete "$dev1" || fail "the device does not go"
	echo "selftests: hooks, device" >/dev/kmsg
	fill_netfilter n1 || status=1
	! in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1" 2>"$ktap_dir/refusal" || status=2
	cat "$ktap_dir/refusal"
	# E2BIG
	grep -q 'Argument list too long' "$ktap_dir/refusal" || status=5
	in1 ss -Huln "sport = $port" | grep . && status=3
	in1 nft delete table inet full
	device_comes || status=4
	[ "$status" -eq 0 ] || fail "status $status"
	refused_for_hooks "hooks, device" || fail "no word of it"
}

# Work gives the port back.
address_without_hooks()
{
	local status=0
	only_ferroce
	[ -e /var/run/netns/n3 ] || skip "there is no ipvlan in another namespace"
	echo "selftests: hooks, address" >/dev/kmsg
	fill_netfilter n3 || fail "no chains"
	ip -n n3 address add "$child/24" dev child || return 1
	await $((50 * slowness)) refused_for_hooks "hooks, address" || status=1
	await $((50 * slowness)) answers || status=2
	kill "$(cat "$ktap_dir/server")"
	ip netns exec n3 nft delete table inet full
	[ "$status" -eq 0 ] || fail "status $status"
	ip -n n3 address flush dev child || return 1
	ip -n n3 address add "$child/24" dev child || return 1
	gid_index_wait "$dev1" "$child" || return 1
	! (answer) || fail "the address is of no use later on"
}

remove_child()
{
	ip -n n2 neighbour delete "$child" dev "$netdev2"
	ip -n n2 neighbour delete "$child_v6" dev "$netdev2"
	# Its hook is in n1, and goes with it; a namespace goes later than the command ends.
	ip -n n3 link delete child || skip "there is no ipvlan in another namespace"
	ip netns delete n3
}

# Messages, rdma_cm's too, with the number of datagrams that went by the device's socket.
taken_by_hook()
{
	local before after
	only_ferroce
	before=$(datagrams_of_sockets n1)
	pair 30 7174 rping -s -a "$address1" -p 7174 -C 100 -- rping -c -a "$address1" -p 7174 -C 100 ||
		fail "rping failed"
	after=$(datagrams_of_sockets n1)
	[ "${after:-none}" = "$before" ] || fail "from $before to $after datagrams came by a socket"
}

more_datagrams_than()
{
	[ "$(datagrams_of_sockets n1)" -ge "$1" ]
}

# Nobody but the device's own socket can have the port, which drops them.
left_to_the_stack()
{
	local before status
	only_ferroce
	ip -n n1 link add other type dummy
	ip -n n1 address add "$other/24" dev other
	ip -n n1 link set other up
	ip -n n2 route replace "$other" via "$address1" || fail "there is no such address"
	before=$(datagrams_of_sockets n1)
	in2 python3 "$echo" send "$other" "$port" 20
	await $((50 * slowness)) more_datagrams_than $((before + 20))
	status=$?
	ip -n n2 route delete "$other"
	ip -n n1 link delete other
	[ "$status" -eq 0 ] || fail "of 20 datagrams $(($(datagrams_of_sockets n1) - before)) came by the socket"
}

malformed()
{
	counter_of "$dev1" malformed_pkts
}

has_malformed()
{
	[ "$(malformed)" -ge "$1" ]
}

# They come by the socket, and are dropped. The counter of malformed packets says so.
with_options()
{
	local before
	only_ferroce
	before=$(malformed)
	in2 python3 - "$address1" "$address1v6" "$port" <<-'END' || fail "they are not sent"
		import socket, sys
		v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		v4.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1, 1, 1, 1]))
		v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
		v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0]))
		for number in range(10):
		    v4.sendto(bytes(32), (sys.argv[1], int(sys.argv[3])))
		    v6.sendto(bytes(32), (sys.argv[2], int(sys.argv[3])))
	END
	await $((50 * slowness)) has_malformed $((before + 20))
	[ "$(malformed)" -eq $((before + 20)) ] || fail "of 20 datagrams $(($(malformed) - before)) were counted"
}

# A rule that keeps users from posing as a QP: the packets of QPs have no user.
rule_for_users()
{
	local status=0 count
	in1 nft -f - <<-END || fail "no rule"
		table inet users {
			chain output {
				type filter hook output priority 0
				udp dport $port meta skuid != 0 counter drop
			}
		}
	END
	# The rule's verdict is an error for who sends.
	! ip netns exec n1 setpriv --reuid 65534 --clear-groups python3 - send "$address2" "$port" 1 <"$echo" 2>&1 || status=1
	pair 30 7174 rping -s -a "$address1" -p 7174 -C 100 -- rping -c -a "$address1" -p 7174 -C 100 || status=1
	count=$(in1 nft list table inet users | sed -n 's/.*counter packets \([0-9]*\).*/\1/p')
	in1 nft delete table inet users
	[ "$status/$count" = 0/1 ] || fail "status $status, $count packets dropped"
}

# Packets of QPs do not belong to the task that has made the device.
maker_in_cgroup()
{
	local status=0 count cgroup=/sys/fs/cgroup/maker
	only_ferroce
	modprobe nft_socket || skip "this kernel has no nft_socket"
	[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup
	mkdir "$cgroup" && in1 rdma link delete "$dev1" || return 1
	(echo "$BASHPID" >"$cgroup/cgroup.procs" && in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1") || status=1
	# With the mounts of this namespace: that of cgroups is not in the other.
	nsenter --net=/var/run/netns/n1 nft -f - <<-END || status=2
		table inet maker {
			chain output {
				type filter hook output priority 0
				socket cgroupv2 level 1 "maker" counter drop
			}
		}
	END
	# The filter works.
	! (echo "$BASHPID" >"$cgroup/cgroup.procs" && ip netns exec n1 python3 - send "$address2" "$port" 1 <"$echo" 2>&1) ||
		status=3
	gid_index_wait "$dev1" "$address1" &&
		pair 30 7174 rping -s -a "$address1" -p 7174 -C 100 -- rping -c -a "$address1" -p 7174 -C 100 || status=4
	count=$(in1 nft list table inet maker | sed -n 's/.*counter packets \([0-9]*\).*/\1/p')
	in1 nft delete table inet maker
	await $((50 * slowness)) rmdir "$cgroup" 2>/dev/null || status=5
	[ "$status/$count" = 0/1 ] || fail "status $status, $count packets dropped"
}

hooks_listed()
{
	in1 nft list hooks 2>&1
}

# One for each family.
hooks_shown()
{
	local number
	only_ferroce
	[ -n "$(hooks_listed)" ] || skip "this kernel does not list hooks"
	number=$(hooks_listed | grep -c '\[ferroce\]')
	[ "$number" -eq 2 ] || fail "$(hooks_listed)"
	in1 rdma link delete "$dev1"
	number=$(hooks_listed | grep -c '\[ferroce\]')
	in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1"
	[ "$number" -eq 0 ] || fail "$number without a device"
}

# What one who lists reads must stay as long as he does. Only KASAN sees if it does not.
hooks_read_and_gone()
{
	local readers=() reader failed=0
	only_ferroce
	[ -n "$(hooks_listed)" ] || skip "this kernel does not list hooks"
	for _ in 1 2; do
		ip netns exec n1 python3 "$here/lib/hooks_list.py" &
		readers+=($!)
	done
	for _ in $(seq "$rounds"); do
		if ! in1 rdma link delete "$dev1" || ! in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1"; then
			failed=1
			break
		fi
	done
	for reader in "${readers[@]}"; do
		kill "$reader" || { echo "who lists hooks has ended"; failed=1; }
		wait "$reader" || { echo "who lists hooks: status $?"; failed=1; }
	done
	return "$failed"
}

ktap_start 19
row "datagrams for the device come by its hook" taken_by_hook
row "datagrams for an address without a device are left to the stack" left_to_the_stack
row "datagrams with IPv4 options or IPv6 extension headers are counted" with_options
row "an ipvlan (L3S) above the device's netdev, and a program in another namespace" make_child
row "it keeps its UDP port 4791, IPv4" answered "$child"
row "it keeps its UDP port 4791, IPv6" answered "$child_v6"
row "a device that is newer than it" device_anew
row "it keeps its UDP port 4791 beside that, IPv4" answered "$child"
row "it keeps its UDP port 4791 beside that, IPv6" answered "$child_v6"
row "its addresses come and go without a word of the RDMA core" no_flood_of_reports
row "without a program the port is the device's" port_of_device
row "without addresses the port is free" port_given_back
row "an address where netfilter takes no more hooks is of no use, and its port is free" address_without_hooks
row "it goes" remove_child
row "no device where netfilter takes no more hooks, and the log says why" device_without_hooks
row "a rule keeps users from sending RoCE packets, and QPs send" rule_for_users
row "a filter of the cgroup that a device was made in does not get its packets" maker_in_cgroup
row "netfilter lists the hooks, as long as they are there" hooks_shown
row "hooks that are listed while they come and go" hooks_read_and_gone
device_anew >/dev/null
ktap_finish
