#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: netdevs with the same address, and netdevs that are not Ethernet
#
# A VLAN has the MAC of the netdev below, so its link-local address as a rule, too. VRFs may have the same addresses. By
# what a request came, rdma_cm has to find the address that it was for, and the device. The RDMA core follows the
# addresses of Ethernet netdevs only, and not those of WireGuard. The first GID stands for an address that a netdev need
# not have. Needs the devices of `scripts/vm --net veth`.
set -u
. "$(dirname "$0")/../lib/test.sh"

cm_port=7174
n=$((50 / slowness))
# shellcheck disable=SC2154 # of namespaces.sh
netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")

# rping_to ADDRESS SERVER_ADDRESS
rping_to()
{
	pair 30 "$cm_port" rping -s -a "$2" -p "$cm_port" -v -V -C "$n" -- \
		rping -c -a "$1" -p "$cm_port" -v -V -C "$n"
}

has_link_locals()
{
	local namespace
	for namespace in n1 n2; do
		[ -n "$(link_local "$namespace" vlan5)" ] &&
			! ip -n "$namespace" -6 -o address show dev vlan5 tentative | grep . || return 1
	done
}

vlan_up()
{
	ip -n n1 link add link "$netdev1" name vlan5 type vlan id 5 &&
		ip -n n2 link add link "$netdev2" name vlan5 type vlan id 5 &&
		ip -n n1 link set vlan5 up && ip -n n2 link set vlan5 up &&
		await $((100 * slowness)) has_link_locals
}

vlan_down()
{
	ip -n n1 link delete vlan5
	ip -n n2 link delete vlan5
}

# Both netdevs have it. That of n2 has to know which is meant.
link_local_over_vlan()
{
	local address
	vlan_up || fail "no VLAN"
	address=$(link_local n1 vlan5)
	[ "$address" = "$(link_local n1 "$netdev1")" ] || fail "the VLAN's is another address"
	rping_to "$address%vlan5" "$address%vlan5" || fail "over the VLAN"
	rping_to "$address%$netdev2" "$address%$netdev1" || fail "beside it"
	address=$(link_local n2 vlan5)
	server_at=n2 client_at=n1 rping_to "$address%vlan5" "$address%vlan5" || fail "the other way"
	server_at=n2 client_at=n1 rping_to "$address%vlan5" :: || fail "to a server that takes requests for any address"
}

# vlan_gids: the GIDs of the link-local addresses, own and the peer's, of the netdevs and of their VLANs.
vlan_gids()
{
	local scope1 scope2
	scope1=$(link_local n1 vlan5) && scope2=$(link_local n2 vlan5) || return 1
	own=$(gid_index "$dev1" "$scope1" "$netdev1") && own_vlan=$(gid_index "$dev1" "$scope1" vlan5) &&
		peer=$(gid_index "$dev2" "$scope2" "$netdev2") && peer_vlan=$(gid_index "$dev2" "$scope2" vlan5)
}

vlan_again()
{
	acknowledged before
	vlan_down
	vlan_up || fail "no VLAN"
	acknowledged "over the new VLAN"
}

# The paths were on netdevs with other numbers. Without the VLAN, packets are lost: they are sent again after 4 s.
connection_over_vlan()
{
	local own own_vlan peer peer_vlan
	vlan_gids || return 1
	under_traffic vlan_again "$address1" "$dev1" "$own_vlan" "$dev2" "$peer_vlan" -u 20
}

into_vrf()
{
	acknowledged before
	ip -n n1 link set "$netdev1" master red || fail "no VRF"
	acknowledged "in the VRF"
	ip -n n1 link set "$netdev1" nomaster || fail "it stays in the VRF"
	acknowledged "behind the VRF"
}

connection_into_vrf()
{
	local gid1 gid2
	modprobe vrf || skip "the kernel has no VRF"
	gid1=$(gid_index "$dev1" "$address1") && gid2=$(gid_index "$dev2" "$address2") &&
		ip -n n1 link add red type vrf table 77 && ip -n n1 link set red up || return 1
	under_traffic into_vrf "$address1" "$dev1" "$gid1" "$dev2" "$gid2" -u 20
}

into_vrf_down()
{
	ip -n n1 link delete red
	# Addresses of IPv6 have gone with the change of the table.
	ip -n n1 address add "$address1v6/64" dev "$netdev1" nodad 2>/dev/null
	devices_wait
}

# A host on the netdev below has the address of a peer on the VLAN, and the other way round.
impostor_beside_vlan()
{
	local own own_vlan peer peer_vlan
	vlan_gids || return 1
	"$here/impostor" "$dev1" "$own_vlan" "$dev2" "$peer_vlan" "$dev2" "$peer" || fail "beside the VLAN"
	"$here/impostor" "$dev1" "$own" "$dev2" "$peer" "$dev2" "$peer_vlan" || fail "on the VLAN"
}

impostor_in_stream()
{
	local own own_vlan peer peer_vlan
	[ "$driver" = ferroce ] || skip "only ferroce has lanes"
	vlan_gids || return 1
	"$here/impostor" -s "$dev1" "$own" "$dev2" "$peer" "$dev2" "$peer_vlan"
	case $? in
	0) ;;
	4) skip "there is one CPU" ;;
	*) fail "an impostor on the VLAN" ;;
	esac
}

# A device that comes is told of the addresses of such a netdev by the RDMA core, and of their end by nobody: they are not
# for it, or the netdev would stay.
tunnel_above()
{
	local status=0
	[ "$driver" = ferroce ] || skip "the RDMA core keeps the GIDs of other drivers"
	modprobe vxlan || skip "the kernel has no VXLAN"
	ip -n n1 link add gpe type vxlan external gpe dstport 4790 dev "$netdev1" &&
		ip -n n1 address add 10.8.4.1/24 dev gpe && ip -n n1 link set gpe up || return 1
	in1 rdma link delete "$dev1" && in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1" || return 1
	gid_index_wait "$dev1" "$address1" && gid_index_wait "$dev1" "$address1v6" || status=1
	if gid_index "$dev1" 10.8.4.1; then
		echo "the tunnel's address is a GID"
		status=1
		# It keeps the netdev.
		in1 rdma link delete "$dev1"
	fi
	ip -n n1 link delete gpe
	in1 rdma link show "$dev1/1" || in1 rdma link add "$dev1" type "$link_type" netdev "$netdev1"
	return "$status"
}

# n1 has 10.8.0.1 twice: in the VRF red for n2, and in blue for n3. The device of blue is the younger one.
vrfs_up()
{
	modprobe vrf || skip "the kernel has no VRF"
	ip netns add n3 && ip link add blue1 netns n1 type veth peer name blue3 netns n3 &&
		ip -n n1 link add red type vrf table 77 && ip -n n1 link add blue type vrf table 78 || return 1
	ip -n n1 link set red up && ip -n n1 link set blue up &&
		ip -n n1 link set "$netdev1" master red && ip -n n1 link set blue1 master blue &&
		ip -n n1 link set blue1 up && ip -n n3 link set blue3 up || return 1
	in1 rdma link add blue1 type "$link_type" netdev blue1 &&
		ip netns exec n3 rdma link add blue3 type "$link_type" netdev blue3 || return 1
	ip -n n1 address add 10.8.0.1/24 dev "$netdev1" && ip -n n2 address add 10.8.0.2/24 dev "$netdev2" &&
		ip -n n1 address add 10.8.0.1/24 dev blue1 && ip -n n3 address add 10.8.0.2/24 dev blue3 || return 1
	gid_index_wait "$dev1" 10.8.0.1 && gid_index_wait blue1 10.8.0.1 &&
		gid_index_wait "$dev2" 10.8.0.2 && gid_index_wait blue3 10.8.0.2
}

vrfs_down()
{
	rdma link delete blue1
	rdma link delete blue3
	ip -n n1 link delete blue1
	ip -n n1 link delete red
	ip -n n1 link delete blue
	ip netns delete n3
	ip -n n1 address delete 10.8.0.1/24 dev "$netdev1"
	ip -n n2 address delete 10.8.0.2/24 dev "$netdev2"
	# Addresses of IPv6 have gone with the change of the table.
	ip -n n1 address add "$address1v6/64" dev "$netdev1" nodad 2>/dev/null
	devices_wait
}

# Answers of the other device would leave by the other VRF.
same_address()
{
	vrfs_up || fail "no VRFs"
	rping_to 10.8.0.1 0.0.0.0 || fail "from n2"
	client_at=n3 rping_to 10.8.0.1 0.0.0.0 || fail "from n3"
}

# n3 has the address of a peer in n2, and the other way round.
impostor_in_vrf()
{
	local red2 blue3
	modprobe vrf || skip "the kernel has no VRF"
	red2=$(gid_index "$dev2" 10.8.0.2) && blue3=$(gid_index blue3 10.8.0.2) || return 1
	"$here/impostor" "$dev1" "$(gid_index "$dev1" 10.8.0.1)" "$dev2" "$red2" blue3 "$blue3" || fail "from n3"
	"$here/impostor" blue1 "$(gid_index blue1 10.8.0.1)" blue3 "$blue3" "$dev2" "$red2" || fail "from n2"
}

# n1 and the pod p1 above its netdev have 10.8.6.1, and the device serves both. n2 and the pod's neighbour p2 have
# 10.8.6.2. The pod answers no ARP on the netdev's link: there n2 finds n1.
pod_up()
{
	ip netns add p1 && ip netns add p2 &&
		ip -n n1 address add 10.8.6.1/24 dev "$netdev1" && ip -n n2 address add 10.8.6.2/24 dev "$netdev2" &&
		ip -n n1 link add pod1 link "$netdev1" type macvlan mode bridge && ip -n n1 link set pod1 netns p1 &&
		ip -n p1 link add side1 type veth peer name side2 netns p2 || return 1
	ip -n p1 link set pod1 arp off && ip -n p1 address add 10.8.6.1/32 dev pod1 &&
		ip -n p2 address add 10.8.6.2/24 dev side2 && ip -n p1 link set pod1 up &&
		ip -n p1 link set side1 up && ip -n p2 link set side2 up &&
		ip -n p1 route add 10.8.6.2 dev side1 || return 1
	ip netns exec p2 rdma link add imp2 type "$link_type" netdev side2
}

# The links first: those of a namespace that is deleted go later.
pod_down()
{
	rdma link delete imp2
	ip -n p1 link delete side1
	ip -n p1 link delete pod1
	ip netns delete p1
	ip netns delete p2
	ip -n n1 address delete 10.8.6.1/24 dev "$netdev1"
	ip -n n2 address delete 10.8.6.2/24 dev "$netdev2"
}

# p2 reaches the device by the pod, and has the number of the host's queue pair and the address of its peer.
impostor_in_pod()
{
	local own peer imp
	pod_up || fail "no pod"
	await $((50 * slowness)) gid_index "$dev1" 10.8.6.1 pod1 || fail "the pod's address is none of the device's"
	own=$(await $((50 * slowness)) gid_index "$dev1" 10.8.6.1 "$netdev1") &&
		peer=$(gid_index_wait "$dev2" 10.8.6.2) && imp=$(gid_index_wait imp2 10.8.6.2) || return 1
	"$here/impostor" "$dev1" "$own" "$dev2" "$peer" imp2 "$imp" || fail "from p2"
}

# A namespace with nothing but lo and a netdev with a device, whose only address is one of IPv4.
alone_up()
{
	ip netns add n3 && ip -n n3 link set lo up &&
		ip -n n3 link add dummy3 address 02:00:00:00:08:05 type dummy &&
		ip -n n3 link set dummy3 addrgenmode none && ip -n n3 address add 10.8.5.1/24 dev dummy3 &&
		ip -n n3 link set dummy3 up &&
		ip netns exec n3 rdma link add dummy3 type "$link_type" netdev dummy3 &&
		gid_index_wait dummy3 10.8.5.1 >/dev/null
}

alone_down()
{
	rdma link delete lo3
	rdma link delete dummy3
	ip netns delete n3
}

# pingpong_within DEVICE GID-INDEX ADDRESS: from a device in n3 to itself. The two processes meet at ADDRESS.
pingpong_within()
{
	server_at=n3 client_at=n3 pair 60 18515 ibv_rc_pingpong -d "$1" -g "$2" -n "$n" -- \
		ibv_rc_pingpong -d "$1" -g "$2" -n "$n" "$3"
}

# first_gid_refused WHEN
first_gid_refused()
{
	! pingpong_within dummy3 0 10.8.5.1 || fail "it works $1"
	grep -q "Failed to modify QP to RTR" "$ktap_dir/server.errors" || fail "another error $1"
}

# setting NAME VALUE: of IPv6, for the netdev
setting()
{
	ip netns exec n3 sysctl -qw "net.ipv6.conf.dummy3.$1=$2"
}

has_link_local()
{
	[ -n "$(link_local n3 dummy3)" ]
}

has_first_address()
{
	ip -n n3 -6 -o address show dev dummy3 to "$1" -tentative | grep .
}

# The RDMA core makes it of the MAC address, whatever addresses there are. With none of IPv6, the core finds no route;
# with another one on the link, the core finds one, and the driver sees that the source is not its own.
first_gid()
{
	local first=fe80::ff:fe00:805 ipv4
	alone_up || fail "no device"
	[ "$(gid_index dummy3 "$first")" = 0 ] || fail "the first GID is another one"
	ipv4=$(gid_index dummy3 10.8.5.1) || return 1
	first_gid_refused "without an address of IPv6"
	setting addr_gen_mode 3 || return 1
	await $((50 * slowness)) has_link_local || fail "no link-local address"
	! has_first_address "$first" || fail "it is the first GID's"
	first_gid_refused "with another link-local address"
	setting disable_ipv6 1 || return 1
	first_gid_refused "without IPv6"
	pingpong_within dummy3 "$ipv4" 10.8.5.1 || fail "by the address of IPv4"
	setting disable_ipv6 0 && setting addr_gen_mode 0 || return 1
	await $((50 * slowness)) has_first_address "$first" || fail "no link-local address of the MAC"
	pingpong_within dummy3 0 10.8.5.1 || fail "by the first GID, whose address is there"
}

loopback_netdev()
{
	local index
	ip netns exec n3 rdma link add lo3 type "$link_type" netdev lo || fail "no device"
	index=$(gid_index_wait lo3 127.0.0.1) || return 1
	pingpong_within lo3 "$index" 127.0.0.1
}

# For such an address, rdma_cm takes the first device that there is, and then finds no route.
loopback_connection()
{
	local server status
	ip netns exec n3 timeout -k 2 $((60 * slowness)) \
		rping -s -a 127.0.0.1 -p "$cm_port" >"$ktap_dir/server" 2>&1 &
	server=$!
	await_listener "ip netns exec n3" "$cm_port" "$server"
	ip netns exec n3 timeout -k 2 $((20 * slowness)) \
		rping -c -a 127.0.0.1 -p "$cm_port" -C 1 >"$ktap_dir/client" 2>&1
	status=$?
	kill "$server"
	wait "$server"
	cat "$ktap_dir/server" "$ktap_dir/client"
	case $status in
	0 | 124 | 137) fail "the client ends with status $status" ;;
	esac
	grep -q "rdma_resolve_route: No such device" "$ktap_dir/client" || fail "another error"
}

loopback_goes()
{
	ip netns exec n3 rdma link delete lo3 || return 1
	[ ! -e /sys/class/infiniband/lo3 ] || fail "the device stays"
	ip netns exec n3 rdma link add lo3 type "$link_type" netdev lo || fail "no device again"
	ip netns delete n3
	await $((100 * slowness)) test ! -e /sys/class/infiniband/lo3 || fail "it stays without its namespace"
	await $((100 * slowness)) test ! -e /sys/class/infiniband/dummy3 || fail "the other device stays"
}

# wg1 in n1 and wg2 in n2, with a device each, which are there before the addresses.
wireguard_up()
{
	local side
	for side in 1 2; do
		(umask 077 && wg genkey >"$ktap_dir/key$side") && wg pubkey <"$ktap_dir/key$side" >"$ktap_dir/public$side" &&
			ip -n "n$side" link add "wg$side" type wireguard &&
			ip netns exec "n$side" rdma link add "wg$side" type "$link_type" netdev "wg$side" || return 1
	done
	in1 wg set wg1 listen-port 51820 private-key "$ktap_dir/key1" \
		peer "$(cat "$ktap_dir/public2")" allowed-ips 0.0.0.0/0,::/0 endpoint "$address2:51820" &&
		in2 wg set wg2 listen-port 51820 private-key "$ktap_dir/key2" \
			peer "$(cat "$ktap_dir/public1")" allowed-ips 0.0.0.0/0,::/0 endpoint "$address1:51820" || return 1
	for side in 1 2; do
		ip -n "n$side" address add "10.8.1.$side/24" dev "wg$side" && ip -n "n$side" address add "fd08::$side/64" dev "wg$side" &&
			ip -n "n$side" link set "wg$side" up && gid_index_wait "wg$side" "10.8.1.$side" &&
			gid_index_wait "wg$side" "fd08::$side" || return 1
	done
}

wireguard()
{
	wireguard_up || fail "no devices"
	rping_to 10.8.1.1 10.8.1.1 || fail "IPv4"
	rping_to fd08::1 fd08::1 || fail "IPv6"
	pingpong || fail "ibv_rc_pingpong"
}

pingpong()
{
	pair 60 18515 ibv_rc_pingpong -d wg1 -g "$(gid_index wg1 10.8.1.1)" -n "$n" -- \
		ibv_rc_pingpong -d wg2 -g "$(gid_index wg2 10.8.1.2)" -n "$n" 10.8.1.1
}

gid_is_gone()
{
	! gid_index "$1" "$2" 2>/dev/null
}

# addresses_change: one after the other comes and goes, while there is traffic before, between, and after.
addresses_change()
{
	local address packets
	packets=$(packets_of wg1)
	await $((100 * slowness)) has_traffic wg1 "$packets" 20 || fail "there is no traffic"
	for address in 10.8.2.1/24 fd09::1/64; do
		ip -n n1 address add "$address" dev wg1 || return 1
		gid_index_wait wg1 "${address%/*}" >/dev/null || fail "no GID of $address"
		ip -n n1 address delete "$address" dev wg1 || return 1
		await $((50 * slowness)) gid_is_gone wg1 "${address%/*}" || fail "the GID of $address stays"
		packets=$(packets_of wg1)
		await $((50 * slowness)) has_traffic wg1 "$packets" 20 || fail "the traffic ends with $address"
	done
}

# Connections between other addresses go on. Their GIDs go, too, but come back before the 17 s of -u 19 are over.
wireguard_addresses()
{
	local gid1 gid2
	gid1=$(gid_index wg1 10.8.1.1) && gid2=$(gid_index wg2 10.8.1.2) || return 1
	under_traffic addresses_change 10.8.1.1 wg1 "$gid1" wg2 "$gid2" -u 19
}

wireguard_moves()
{
	ip -n n1 link set wg1 netns n2 && ip -n n2 address add 10.8.3.1/24 dev wg1 && ip -n n2 link set wg1 up || return 1
	gid_index_wait wg1 10.8.3.1 || fail "no GID there"
	gid_is_gone wg1 10.8.1.1 || fail "a GID of before is there"
}

# A process has objects, and is in a verb that does not end.
wireguard_goes()
{
	local hold failed=0
	[ -e /proc/sys/vm/unprivileged_userfaultfd ] || skip "this kernel has no userfaultfd"
	ip netns exec n2 "$here/hold" -s wg1 >"$ktap_dir/hold" 2>&1 &
	hold=$!
	await $((100 * slowness)) grep -qx ready "$ktap_dir/hold" || { cat "$ktap_dir/hold"; echo "nobody is stuck"; failed=1; }
	{ ip -n n2 link delete wg1 && touch "$ktap_dir/deleted"; } &
	await $((100 * slowness)) test -e "$ktap_dir/deleted" || { echo "the netdev does not go"; failed=1; }
	kill -9 "$hold"
	wait
	await $((100 * slowness)) test ! -e /sys/class/infiniband/wg1 || { echo "the device stays"; failed=1; }
	return "$failed"
}

wireguard_down()
{
	local side
	for side in 1 2; do
		[ ! -e "/sys/class/infiniband/wg$side" ] || rdma link delete "wg$side"
	done
	ip -n n2 link delete wg2
}

ktap_start 17
row "a VLAN with the link-local address of its netdev: rping" link_local_over_vlan
row "the VLAN's peer has an impostor on the netdev below, and that netdev's on the VLAN" impostor_beside_vlan
row "an impostor in the peer's stream" impostor_in_stream
row "the VLAN is made again under traffic between its link-local addresses" connection_over_vlan
vlan_down
row "the netdev goes into a VRF under traffic, and leaves it" connection_into_vrf
into_vrf_down
row "a netdev that is not Ethernet, above the device's: no GID, and it goes" tunnel_above
row "two VRFs with the same address: rping" same_address
row "a peer in a VRF has an impostor in another one" impostor_in_vrf
vrfs_down 2>/dev/null
row "a peer has an impostor in a pod's namespace" impostor_in_pod
pod_down 2>/dev/null
row "the first GID, without its address: refused; by the address of IPv4: ibv_rc_pingpong" first_gid
row "a device on lo: ibv_rc_pingpong" loopback_netdev
row "rdma_cm refuses lo's address" loopback_connection
row "a device on lo is deleted, or goes with its namespace" loopback_goes
alone_down 2>/dev/null
row "a device on WireGuard: rping, ibv_rc_pingpong" wireguard
row "its addresses come and go under traffic" wireguard_addresses
row "its netdev moves to another namespace" wireguard_moves
row "its netdev goes, whoever uses it" wireguard_goes
wireguard_down
ktap_finish
