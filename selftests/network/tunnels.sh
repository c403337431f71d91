#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: tunnels between two devices: super-packets that are cut up on their way
#
# Tunnels between two devices, with a router between them: super-packets leave the sender whole, get more headers, and
# are cut up where they leave the router. A tunnel begins at the sender or at the router, and ends at the receiver.
#
#	t1: sender, t1v ---- trv1, tr: router, trv2 ---- t2v, t2: receiver
#	    10.6.1.1           10.6.1.254   10.6.2.254        10.6.2.2
#
# Tunnels have ends of their own, on lo: 10.6.3.1, 10.6.3.254, 10.6.3.2. In IPv6 all is the same behind fd6.
set -u
. "$(dirname "$0")/../lib/test.sh"

wanted=${FERROCE_ROWS:-.}
own1=${link_type}tun1
own2=${link_type}tun2
# Marks the routes that a tunnel has added.
proto=177

t1()
{
	ip netns exec t1 "$@"
}

t2()
{
	ip netns exec t2 "$@"
}

topology_up()
{
	local namespace
	for namespace in t1 tr t2; do
		ip netns add "$namespace" && ip -n "$namespace" link set lo up &&
			ip netns exec "$namespace" sysctl -qw net.ipv4.conf.all.rp_filter=0 \
				net.ipv4.conf.default.rp_filter=0 net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 ||
			return 1
	done
	ip link add t1v netns t1 mtu 9000 type veth peer name trv1 netns tr mtu 9000 &&
		ip link add t2v netns t2 mtu 9000 type veth peer name trv2 netns tr mtu 9000 &&
		namespace_up t1 t1v 9000 10.6.1.1 fd61::1 && namespace_up tr trv1 9000 10.6.1.254 fd61::fe &&
		namespace_up t2 t2v 9000 10.6.2.2 fd62::2 && namespace_up tr trv2 9000 10.6.2.254 fd62::fe &&
		ip -n t1 address add 10.6.3.1/32 dev lo && ip -n t1 address add fd63::1/128 dev lo &&
		ip -n tr address add 10.6.3.254/32 dev lo && ip -n tr address add fd63::fe/128 dev lo &&
		ip -n t2 address add 10.6.3.2/32 dev lo && ip -n t2 address add fd63::2/128 dev lo &&
		ip -n t1 route add default via 10.6.1.254 && ip -n t1 route add default via fd61::fe &&
		ip -n t2 route add default via 10.6.2.254 && ip -n t2 route add default via fd62::fe &&
		ip -n tr route add 10.6.3.1/32 via 10.6.1.1 && ip -n tr route add fd63::1/128 via fd61::1 &&
		ip -n tr route add 10.6.3.2/32 via 10.6.2.2 && ip -n tr route add fd63::2/128 via fd62::2 &&
		ip -n tr route add fc00::/16 via fd62::2 &&
		t1 rdma link add "$own1" type "$link_type" netdev t1v &&
		t2 rdma link add "$own2" type "$link_type" netdev t2v &&
		gid_index_wait "$own1" 10.6.1.1 >/dev/null && gid_index_wait "$own2" 10.6.2.2 >/dev/null &&
		gid_index_wait "$own1" fd61::1 >/dev/null && gid_index_wait "$own2" fd62::2 >/dev/null &&
		t2 nft -f - <<-'RULES'
			table inet tunnels {
				chain arrivals {
					type filter hook prerouting priority -300
					iifname "t2v" udp dport 4791 meta ipsec missing counter name bare
				}
				counter bare { }
			}
		RULES
}

topology_down()
{
	ip -n t1 link del t1v
	ip -n t2 link del t2v
	ip netns del t1
	ip netns del tr
	ip netns del t2
}

# What a tunnel has left.
tunnel_down()
{
	local namespace
	for namespace in t1 tr t2; do
		ip -n "$namespace" link del tunnel 2>/dev/null
		ip -n "$namespace" -4 route flush proto "$proto"
		ip -n "$namespace" -6 route flush proto "$proto"
		ip -n "$namespace" xfrm state flush
		ip -n "$namespace" xfrm policy flush
		if [ -d /proc/sys/net/mpls ]; then
			ip -n "$namespace" -f mpls route flush proto "$proto" 2>/dev/null
		fi
	done
	true
}

# The tunnels: KIND_up NAMESPACE, where it begins: t1 or tr.

# outer NAMESPACE [6]: its address for the ends of tunnels.
outer()
{
	case $1${2:-} in
	t1) echo 10.6.3.1 ;;
	tr) echo 10.6.3.254 ;;
	t2) echo 10.6.3.2 ;;
	t16) echo fd63::1 ;;
	tr6) echo fd63::fe ;;
	t26) echo fd63::2 ;;
	esac
}

# way_from NAMESPACE: the next hop on the way to the receiver, and the netdev.
way_from()
{
	case $1 in
	t1) echo via 10.6.1.254 dev t1v ;;
	tr) echo via 10.6.2.2 dev trv2 ;;
	esac
}

way6_from()
{
	case $1 in
	t1) echo via fd61::fe dev t1v ;;
	tr) echo via fd62::2 dev trv2 ;;
	esac
}

# by_netdev NAMESPACE: what goes to the other device goes by the netdev `tunnel`, both ways.
by_netdev()
{
	ip -n "$1" address add 10.6.4.1/24 dev tunnel && ip -n "$1" link set tunnel mtu 8500 up &&
		ip -n t2 address add 10.6.4.2/24 dev tunnel && ip -n t2 link set tunnel mtu 8500 up &&
		ip -n "$1" route add 10.6.2.2/32 via 10.6.4.2 dev tunnel proto "$proto" &&
		ip -n t2 route add 10.6.1.1/32 via 10.6.4.1 dev tunnel proto "$proto"
}

# netdevs NAMESPACE [6] -- ARGUMENT...: a netdev of that type at either end.
netdevs()
{
	local from=$1 version=
	shift
	[ "$1" != 6 ] || { version=6; shift; }
	shift
	ip -n "$from" link add tunnel type "$@" local "$(outer "$from" "$version")" remote "$(outer t2 "$version")" &&
		ip -n t2 link add tunnel type "$@" local "$(outer t2 "$version")" remote "$(outer "$from" "$version")" &&
		by_netdev "$from"
}

gre_up()
{
	netdevs "$1" -- gre ttl 64
}

ipip_up()
{
	netdevs "$1" -- ipip ttl 64
}

ip6tnl_up()
{
	netdevs "$1" 6 -- ip6tnl mode any
}

vxlan_up()
{
	netdevs "$1" -- vxlan id 7 dstport 4789 noudpcsum
}

# 208 bytes of options in each packet.
geneve_up()
{
	local namespace peer value
	value=$(printf 'a5%.0s' $(seq 100))
	for namespace in "$1" t2; do
		peer=t2
		[ "$namespace" != t2 ] || peer=$1
		ip -n "$namespace" link add tunnel type geneve external dstport 6081 &&
			ip netns exec "$namespace" tc qdisc add dev tunnel clsact &&
			ip netns exec "$namespace" tc filter add dev tunnel egress matchall action tunnel_key set \
				src_ip "$(outer "$namespace")" dst_ip "$(outer "$peer")" id 7 dst_port 6081 ttl 64 \
				geneve_opts "0102:80:$value,0102:81:$value" || return 1
	done
	by_netdev "$1"
}

wireguard_up()
{
	local namespace key peer
	for namespace in "$1" t2; do
		(umask 077 && wg genkey >"$ktap_dir/$namespace.key") || return 1
		ip -n "$namespace" link add tunnel type wireguard || return 1
		wg pubkey <"$ktap_dir/$namespace.key" >"$ktap_dir/$namespace.public" || return 1
	done
	for namespace in "$1" t2; do
		peer=t2
		[ "$namespace" != t2 ] || peer=$1
		key=$(cat "$ktap_dir/$peer.public")
		ip netns exec "$namespace" wg set tunnel listen-port 51820 private-key "$ktap_dir/$namespace.key" \
			peer "$key" allowed-ips 0.0.0.0/0 endpoint "$(outer "$peer"):51820" || return 1
	done
	# The receiver answers the address that packets come from, and what is for 10.6.1.1 goes by the tunnel.
	[ "$1" != t1 ] || ip -n t1 route add 10.6.3.2/32 via 10.6.1.254 src 10.6.3.1 proto "$proto" || return 1
	by_netdev "$1"
}

# One label, which the receiver takes off; from the sender, the router puts another one in its place. The way back
# has none.
mpls_up()
{
	local namespace label=100
	modprobe -a mpls_router mpls_iptunnel || skip "no MPLS in this kernel"
	for namespace in tr t2; do
		ip netns exec "$namespace" sysctl -qw net.mpls.platform_labels=1000 || return 1
	done
	ip netns exec tr sysctl -qw net.mpls.conf.trv1.input=1 && t2 sysctl -qw net.mpls.conf.t2v.input=1 &&
		t2 sysctl -qw net.mpls.conf.lo.input=1 &&
		ip -n tr -f mpls route add 100 as 200 via inet 10.6.2.2 dev trv2 proto "$proto" &&
		ip -n t2 -f mpls route add 200 dev lo proto "$proto" || return 1
	[ "$1" = t1 ] || label=200
	# shellcheck disable=SC2046
	ip -n "$1" route add 10.6.2.2/32 encap mpls "$label" $(way_from "$1") proto "$proto"
}

# esp SOURCE DESTINATION SPI NAMESPACE... -- MODE [ARGUMENT...]
esp()
{
	local source=$1 destination=$2 spi=$3 namespaces=() namespace
	shift 3
	while [ "$1" != -- ]; do
		namespaces+=("$1")
		shift
	done
	shift
	for namespace in "${namespaces[@]}"; do
		ip -n "$namespace" xfrm state add src "$source" dst "$destination" proto esp spi "$spi" mode "$@" \
			aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128 || return 1
	done
}

# Transport mode from the sender on, tunnel mode from the router on.
esp_up()
{
	local there back mode=transport source=10.6.1.1 destination=10.6.2.2 incoming=in
	if [ "$1" = tr ]; then
		mode=tunnel source=$(outer tr) destination=$(outer t2) incoming=fwd
	fi
	there="src $source dst $destination" back="src $destination dst $source"
	esp "$source" "$destination" 0x101 "$1" t2 -- "$mode" &&
		esp "$destination" "$source" 0x102 "$1" t2 -- "$mode" || return 1
	# shellcheck disable=SC2086
	ip -n "$1" xfrm policy add src 10.6.1.1/32 dst 10.6.2.2/32 dir out tmpl $there proto esp mode $mode &&
		ip -n "$1" xfrm policy add src 10.6.2.2/32 dst 10.6.1.1/32 dir $incoming tmpl $back proto esp mode $mode &&
		ip -n t2 xfrm policy add src 10.6.2.2/32 dst 10.6.1.1/32 dir out tmpl $back proto esp mode $mode &&
		ip -n t2 xfrm policy add src 10.6.1.1/32 dst 10.6.2.2/32 dir in tmpl $there proto esp mode $mode
}

# srv6_up NAMESPACE COUNT: the receiver is all of the segments. The way back has none.
srv6_up()
{
	local segments segment
	segments=$(seq -s , -f 'fc00::%g' "$2")
	for segment in $(seq 1 $(($2 - 1))); do
		ip -n t2 route add "fc00::$segment/128" encap seg6local action End dev t2v proto "$proto" || return 1
	done
	ip -n t2 route add "fc00::$2/128" encap seg6local action End.DT6 table 255 dev t2v proto "$proto" || return 1
	# shellcheck disable=SC2046
	ip -n "$1" route add fd62::2/128 encap seg6 mode encap segs "$segments" $(way6_from "$1") proto "$proto"
}

sent_packets()
{
	t1 cat /sys/class/net/t1v/statistics/tx_packets
}

sent_datagrams()
{
	counter_of "$own1" sent_pkts
}

# cut_up on|off: whether what leaves the router towards the receiver is datagrams only, as on a wire.
cut_up()
{
	local features=on
	[ "$1" = off ] || features=off
	ip netns exec tr ethtool -K trv2 tx-gso-list "$features" || fail "ethtool refuses tx-gso-list $features"
}

# messages FAMILY MTU
messages()
{
	env -u FERROCE_ROWS "$here/tunnels" "-$1" -m "$2" "$own1" "$own2" || fail "MTU $2"
}

# by KIND[_NUMBER] FAMILY NAMESPACE: the tunnel begins there.
by()
{
	local kind=$1 family=$2 from=$3 bare packets datagrams
	tunnel_down
	"${kind%_*}_up" "$from" "${kind#*_}" || fail "the tunnel cannot be made"
	t2 nft reset counters table inet tunnels >/dev/null
	packets=$(sent_packets) datagrams=$(sent_datagrams)
	cut_up on
	messages "$family" 1024
	messages "$family" 4096
	cut_up off
	messages "$family" 4096
	sleep 0.02
	packets=$(($(sent_packets) - packets)) datagrams=$(($(sent_datagrams) - datagrams))
	bare=$(t2 nft list counter inet tunnels bare | sed -n 's/.*packets \([0-9]*\) .*/\1/p')
	echo "$datagrams datagrams in $packets packets; $bare have arrived without a tunnel"
	[ "$bare" = 0 ] || fail "not all takes the tunnel"
	# Some tunnels of the sender's own take no super-packets.
	[ "$from" = t1 ] || [ $((2 * packets)) -lt "$datagrams" ] || fail "these are no super-packets"
	note "$kind from $from: $datagrams datagrams in $packets packets"
}

rows=(
	'gre 4 GRE'
	'ipip 4 IPv4 in IPv4'
	'ip6tnl 4 IPv4 in IPv6'
	'vxlan 4 VXLAN'
	'geneve 4 Geneve with 208 bytes of options'
	'mpls 4 MPLS'
	'esp 4 IPsec'
	'wireguard 4 WireGuard'
	'srv6_5 6 SRv6 with five segments'
	'srv6_6 6 SRv6 with six segments'
)
chosen=()
for row in "${rows[@]}"; do
	for from in t1 tr; do
		place='from the sender on'
		[ "$from" = t1 ] || place='from the router on'
		name="${row#* * }, $place"
		[[ ! $name =~ $wanted ]] || chosen+=("$from $row, $place")
	done
done

ktap_start ${#chosen[@]}
# Else the modules of some tunnels put netdevs into all namespaces, also those of other tests.
fallback=$(sysctl -n net.core.fb_tunnels_only_for_init_net)
sysctl -qw net.core.fb_tunnels_only_for_init_net=1
topology_up || echo "# the namespaces cannot be made"
for row in "${chosen[@]}"; do
	read -r from kind family name <<<"$row"
	row "$name" by "$kind" "$family" "$from"
done
tunnel_down
topology_down
sysctl -qw "net.core.fb_tunnels_only_for_init_net=$fallback"
ktap_finish
