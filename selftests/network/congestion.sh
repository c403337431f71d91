#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: ECN marks and congestion notification packets
#
# Queues on the way mark packets instead of dropping them, if the traffic class says that they may (ECT). A device that gets
# a marked packet sends a CNP. A requester that gets a CNP, or a marked READ response, has less outstanding.
# shellcheck disable=SC2154 # dev1 and others are of namespaces.sh
set -u
. "$(dirname "$0")/../lib/test.sh"

netdev1=$(netdev_of n1 "$dev1")
netdev2=$(netdev_of n2 "$dev2")
# Of perftest.
port=18515
cm_port=7174
# A traffic class: ECT(0).
ect=2

# ecn NAMESPACE VALUE: what its packets of IPv4 to UDP port 4791 say, as if a queue had marked them. The kernel's nftables
# do not write to the traffic class of IPv6.
ecn()
{
	ip netns exec "$1" nft -f - <<-RULES
		table inet marks {
			chain departures {
				type filter hook output priority 0
				udp dport 4791 ip ecn set $2
			}
		}
	RULES
}

# ecn_end NAMESPACE
ecn_end()
{
	ip netns exec "$1" nft delete table inet marks
}

# perftest PROGRAM FAMILY ARG...: from n2 to n1. Marked packets make it slow.
perftest()
{
	local program=$1 family=$2
	shift 2
	pair 60 "$port" "$program" -F -u 18 -d "$dev1" -x "${gids1[$family]}" "$@" -- \
		"$program" -F -u 18 -d "$dev2" -x "${gids2[$family]}" "$@" "$address1"
}

# told DEVICE PEER COMMAND...: how many CNPs DEVICE has sent meanwhile. PEER has got them all, and has sent none itself.
told()
{
	local device=$1 peer=$2 sent got other
	shift 2
	sent=$(counter_of "$device" sent_cnp) got=$(counter_of "$peer" rcvd_cnp) other=$(counter_of "$peer" sent_cnp)
	"$@" >"$ktap_dir/told" 2>&1 || { cat "$ktap_dir/told" >&2; return 1; }
	sent=$(($(counter_of "$device" sent_cnp) - sent)) got=$(($(counter_of "$peer" rcvd_cnp) - got))
	other=$(($(counter_of "$peer" sent_cnp) - other))
	if [ "$got" -ne "$sent" ] || [ "$other" -ne 0 ]; then
		echo "$device has sent $sent, $peer got $got and sent $other" >&2
		return 1
	fi
	echo "$sent"
}

# slow_link NAMESPACE NETDEV: with a queue that marks what has waited for 5 ms, or drops it after a while if it may not be
# marked.
slow_link()
{
	{ modprobe sch_tbf && modprobe sch_fq_codel; } || skip "the kernel has no such queue"
	ip netns exec "$1" tc qdisc add dev "$2" root handle 1: tbf rate 50mbit burst 100k limit 4m || return 1
	ip netns exec "$1" tc qdisc add dev "$2" parent 1: fq_codel target 5ms interval 20ms ecn && return 0
	slow_link_end "$@"
	return 1
}

# slow_link_end NAMESPACE NETDEV
slow_link_end()
{
	ip netns exec "$1" tc qdisc del dev "$2" root
}

# marked DEVICE PEER PROGRAM FAMILY MARK MARK_END: DEVICE sends CNPs if MARK has marked packets of PEER, and none before.
marked()
{
	local device=$1 peer=$2 program=$3 family=$4 sent
	sent=$(told "$device" "$peer" perftest "$program" "$family" -s 65536 -n 20) || return 1
	[ "$sent" -eq 0 ] || fail "$sent CNPs without a mark"
	$5 || return 1
	sent=$(told "$device" "$peer" perftest "$program" "$family" --tclass "$ect" -s 65536 -n 200)
	$6
	echo "$sent CNPs"
	[ "$sent" -gt 0 ]
}

# The first bytes of a CNP are given, whatever else the queue pair's packets say (MigReq): a switch may look for them.
headers()
{
	local sent right status
	in1 nft -f - <<-'RULES' || return 1
		table inet headers {
			counter right { }
			chain departures {
				type filter hook output priority 0
				udp dport 4791 @th,64,32 0x8100ffff counter name right
			}
		}
	RULES
	ecn n2 ce && sent=$(told "$dev1" "$dev2" perftest ib_send_bw 4 -s 65536 -n 200)
	status=$?
	ecn_end n2
	right=$(counted n1 inet headers right)
	in1 nft delete table inet headers
	[ "$status" -eq 0 ] || return 1
	echo "$right of $sent CNPs"
	[ "$sent" -gt 0 ] && [ "$right" -eq "$sent" ]
}

# sent_since COUNTER BEFORE: of both devices together.
sent_since()
{
	echo $(($(counter_of "$dev1" "$1") + $(counter_of "$dev2" "$1") - $2))
}

# Otherwise two queue pairs would send each other CNPs without end. A queue pair sends at most one for each burst.
marked_notifications()
{
	local packets sent status
	packets=$(sent_since sent_pkts 0) sent=$(sent_since sent_cnp 0)
	ecn n1 ce && ecn n2 ce || return 1
	perftest ib_send_bw 4 -s 65536 -n 200
	status=$?
	ecn_end n1
	ecn_end n2
	packets=$(sent_since sent_pkts "$packets") sent=$(sent_since sent_cnp "$sent")
	note "of $packets packets, $sent were CNPs"
	[ "$status" -eq 0 ] && [ "$sent" -gt 0 ] && [ $((4 * sent)) -lt "$packets" ]
}

# UC has no window, but the peer may be another device. A CNP for its QP is no packet for an unknown one.
marked_unreliable()
{
	local sent unknown status
	unknown=$(counter_of "$dev2" unknown_qp)
	ecn n2 ce || return 1
	sent=$(told "$dev1" "$dev2" perftest ib_send_bw 4 -c UC -s 4096 -n 1000) && [ "$sent" -gt 0 ] &&
		[ "$(told "$dev1" "$dev2" perftest ib_send_bw 4 -c UD -s 1024 -n 1000)" = 0 ]
	status=$?
	ecn_end n2
	[ "$(counter_of "$dev2" unknown_qp)" -eq "$unknown" ] || fail "CNPs count as unknown"
	return "$status"
}

# counters_begin: of packets of n2 that may be marked, and that may not.
counters_begin()
{
	in2 nft -f - <<-'RULES'
		table inet ends {
			counter able { }
			counter unable { }
			chain departures {
				type filter hook output priority 0
				udp dport 4791 ip ecn ect0 counter name able
				udp dport 4791 ip6 ecn ect0 counter name able
				udp dport 4791 ip ecn not-ect counter name unable
				udp dport 4791 ip6 ecn not-ect counter name unable
			}
		}
	RULES
}

counters_end()
{
	in2 nft delete table inet ends
}

# sends_with FAMILY SERVICE CLASS RIGHT WRONG: the packets of n2 count as RIGHT, and none as WRONG.
sends_with()
{
	local right wrong
	counted n2 inet ends able >/dev/null && counted n2 inet ends unable >/dev/null &&
		perftest ib_send_bw "$1" -c "$2" --tclass "$3" -s 1024 -n 500 || return 1
	right=$(counted n2 inet ends "$4") && wrong=$(counted n2 inet ends "$5") || return 1
	echo "IPv$1, $2, traffic class $3: $right packets are $4 to be marked, $wrong $5"
	[ "$right" -gt 0 ] && [ "$wrong" -eq 0 ]
}

# RC slows down where a packet is marked, so its consumer may ask for it. The others do not. No packet leaves with a mark.
capability()
{
	local family status=0
	counters_begin || return 1
	for family in 4 6; do
		sends_with "$family" RC "$ect" able unable && sends_with "$family" RC 0 unable able &&
			sends_with "$family" RC 3 unable able && sends_with "$family" UC "$ect" unable able &&
			sends_with "$family" UD "$ect" unable able || status=1
	done
	counters_end
	return "$status"
}

# How an administrator has programs ask that connect by rdma_cm. Its own messages are datagrams.
default_type_of_service()
{
	local device able unable status directory=/sys/kernel/config/rdma_cm
	{ modprobe rdma_cm && { mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; }; } ||
		return 1
	for device in "$dev1" "$dev2"; do
		mkdir "$directory/$device" && echo "$ect" >"$directory/$device/ports/1/default_roce_tos" || return 1
	done
	counters_begin && pair 60 "$cm_port" rping -s -a "$address1" -p "$cm_port" -C 100 -- \
		rping -c -a "$address1" -p "$cm_port" -C 100
	status=$?
	able=$(counted n2 inet ends able) unable=$(counted n2 inet ends unable)
	counters_end
	rmdir "$directory/$dev1" "$directory/$dev2"
	echo "$able packets are able to be marked, $unable unable"
	[ "$status" -eq 0 ] && [ "$able" -ge 100 ] && [ "$unable" -gt 0 ] && [ "$unable" -lt 10 ]
}

# dropped NAMESPACE NETDEV: by its queue.
dropped()
{
	ip netns exec "$1" tc -s -j qdisc show dev "$2" |
		python3 -c 'import json, sys; print(next(q["drops"] for q in json.load(sys.stdin) if q["kind"] == "fq_codel"))'
}

# queue NAMESPACE NETDEV PROGRAM
queue()
{
	local namespace=$1 netdev=$2 program=$3 status=0 marked unmarked
	slow_link "$namespace" "$netdev" || return 1
	perftest "$program" 4 --tclass "$ect" -s 65536 -n 200 && marked=$(dropped "$namespace" "$netdev") || status=1
	perftest "$program" 4 -s 65536 -n 200 && unmarked=$(dropped "$namespace" "$netdev") || status=1
	slow_link_end "$namespace" "$netdev"
	[ "$status" -eq 0 ] || return 1
	echo "$marked packets are dropped that may be marked, and $((unmarked - marked)) that may not"
	[ "$marked" -eq 0 ] && [ "$unmarked" -gt 0 ]
}

# Of two hooks of one priority the newer one is asked first. The device is made anew, so its hook is asked before conntrack
# has confirmed the connection, and leaves the first packet of n1 to the socket. A receiver of UC sends nothing but CNPs.
notifications_by_socket()
{
	local sockets sent
	trap 'in2 nft delete table inet tracks' EXIT
	in2 nft 'table inet tracks { chain arrivals { type filter hook input priority 0; ct state new counter; }; }' &&
		in2 rdma link delete "$dev2" && in2 rdma link add "$dev2" type "$link_type" netdev "$netdev2" &&
		gids2[4]=$(gid_index_wait "$dev2" "$address2") && sockets=$(datagrams_of_sockets n2) &&
		marked_unreliable && sent=$(counter_of "$dev2" rcvd_cnp) || return 1
	sockets=$(($(datagrams_of_sockets n2) - sockets))
	note "of $sent CNPs, $sockets came by the socket"
	[ "$sockets" -gt 0 ] && [ "$sockets" -le "$sent" ]
}

ktap_start 11
devices_wait
declare -A gids1 gids2
gids1=([4]=$(gid_index_wait "$dev1" "$address1") [6]=$(gid_index_wait "$dev1" "$address1v6"))
gids2=([4]=$(gid_index_wait "$dev2" "$address2") [6]=$(gid_index_wait "$dev2" "$address2v6"))
row "packets of RC may be marked if the consumer asks for it, no others" capability
row "rdma_cm: the default type of service asks for it" default_type_of_service
row "a CNP for marked packets, IPv4" marked "$dev1" "$dev2" ib_send_bw 4 "ecn n2 ce" "ecn_end n2"
row "a CNP for marked packets, IPv6" marked "$dev1" "$dev2" ib_send_bw 6 "slow_link n2 $netdev2" "slow_link_end n2 $netdev2"
row "the first bytes of a CNP" headers
row "a CNP for marked READ responses" marked "$dev2" "$dev1" ib_read_bw 4 "ecn n1 ce" "ecn_end n1"
row "no CNP for a marked CNP" marked_notifications
row "UC: a CNP for marked packets, which is for no unknown QP; UD: none" marked_unreliable
row "sends through a queue that marks packets: none is dropped" queue n2 "$netdev2" ib_send_bw
row "READs through a queue that marks packets: none is dropped" queue n1 "$netdev1" ib_read_bw
# The last: the device is a new one then.
row "UC: CNPs that come by the socket" notifications_by_socket
ktap_finish
