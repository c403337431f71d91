#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: loss, duplication, reordering, corruption
#
# Networks that lose, repeat, reorder and spoil packets, in both directions: every byte
# and every completion must be right all the same, and the counters tell of it.
set -u
. "$(dirname "$0")/../lib/test.sh"


# impair ARGUMENT...: of netem, for what either netdev sends; none is a good network. A bad one has permanent neighbours:
# ARP has no checksum, so a corrupted answer would lead packets nowhere for a second or more; and the core waits for an
# answer for one second only, in which a lost request is not repeated.
impair()
{
	local side netdev peer address mac
	for side in 1 2; do
		if [ "$side" = 1 ]; then
			netdev=$netdev1 peer=$netdev2 address=$address2
		else
			netdev=$netdev2 peer=$netdev1 address=$address1
		fi
		if [ $# -gt 0 ]; then
			mac=$(ip netns exec "n$((3 - side))" cat "/sys/class/net/$peer/address")
			ip -n "n$side" neigh replace "$address" lladdr "$mac" dev "$netdev" nud permanent ||
				fail "ip refuses the neighbour $address"
		else
			ip -n "n$side" neigh del "$address" dev "$netdev" 2>/dev/null
		fi
		ip netns exec "n$side" tc qdisc del dev "$netdev" root 2>/dev/null
		[ $# -eq 0 ] || ip netns exec "n$side" tc qdisc add dev "$netdev" root netem limit 10000 "$@" ||
			fail "tc refuses netem $*"
	done
}

# The sum of a counter of both devices.
counter()
{
	local device sum=0 value
	for device in "$dev1" "$dev2"; do
		value=$(counter_of "$device" "$1") || fail "no counter $1"
		sum=$((sum + value))
	done
	echo "$sum"
}

# moves COUNTER NETEM...: COUNTER must rise with it.
moves()
{
	local counter=$1
	shift
	moves_with "$counter" impair "$@"
}

# moves_with COUNTER COMMAND ARGUMENT...: COUNTER must rise with that, which COMMAND without an argument undoes.
moves_with()
{
	local counter=$1 command=$2 before sent after program status=0
	shift 2
	before=$(counter "$counter") sent=$(counter sent_pkts)
	"$command" "$@"
	for program in "move -q -m 1024" "atomics -l" "placement -l"; do
		# shellcheck disable=SC2086
		env -u FERROCE_ROWS "$here"/$program "$dev1" "$dev2" || status=1
	done
	FERROCE_ROWS='^(SEND of|RDMA READ|fetch and add|messages to)' "$here"/xrc -l "$dev1" "$dev2" || status=1
	"$command"
	after=$(counter "$counter") sent=$(($(counter sent_pkts) - sent))
	echo "$counter: $before, $after; $sent packets sent"
	[ "$status" -eq 0 ] || fail "with $command $*"
	[ "$after" -gt "$before" ] || fail "$command $* had no effect on $counter"
	note "$command $*: $counter + $((after - before)), $sent packets sent"
}

# rewrite OFFSET: nftables changes the byte so far behind the start of the UDP header in one of 20 long packets that come
# in. Without OFFSET, it ends: then $rewritten is how many they were.
rewrite()
{
	local side packets
	rewritten=0
	for side in 1 2; do
		if [ $# -eq 0 ]; then
			packets=$(counted "n$side" inet rewrites rewritten) || fail "nft has no counter"
			rewritten=$((rewritten + packets))
			ip netns exec "n$side" nft delete table inet rewrites
			continue
		fi
		ip netns exec "n$side" nft -f - <<-RULES || fail "nft refuses to change byte $1"
			table inet rewrites {
				counter rewritten { }
				chain arrivals {
					type filter hook prerouting priority 0
					udp dport 4791 udp length > 700 numgen inc mod 20 0 @th,$((8 * $1)),8 set 0xa5 counter name rewritten
				}
			}
		RULES
	done
}

rewrite_end()
{
	in1 nft delete table inet rewrites 2>/dev/null
	in2 nft delete table inet rewrites 2>/dev/null
}

# notices OFFSET: the ICRC of a packet is wrong if its byte at OFFSET was changed. Few had the new value before.
notices()
{
	local before wrong
	before=$(counter icrc_err)
	trap rewrite_end EXIT
	moves_with icrc_err rewrite "$1"
	wrong=$(($(counter icrc_err) - before))
	note "$rewritten packets rewritten"
	[ "$rewritten" -gt 0 ] || fail "none was rewritten"
	[ $((4 * wrong)) -ge $((3 * rewritten)) ] || fail "$wrong of $rewritten packets that were rewritten have a wrong ICRC"
}

# Connections are made and ended by datagrams that rdma_cm repeats; but the last of a client that ends it does not: if
# that is lost, the server is told of nothing.

# rping_ms COUNT told|waits: the client's time. The server has to end well; or, if it waits, it may do that for ever.
rping_ms()
{
	local seconds=$((120 * slowness)) pid start end status
	ip netns exec n1 timeout -k 2 "$seconds" rping -s -a "$address1" -p 7174 -C "$1" >"$ktap_dir/pair" 2>&1 &
	pid=$!
	await_listener in1 7174 "$pid" >>"$ktap_dir/pair"
	start=$(date +%s%3N)
	in2 timeout -k 2 "$seconds" rping -c -a "$address1" -p 7174 -C "$1" >>"$ktap_dir/pair" 2>&1
	status=$?
	end=$(date +%s%3N)
	await $((50 * slowness)) has_ended "$pid"
	if [ "$2" = told ] || ! kill "$pid" 2>/dev/null; then
		wait "$pid" || { echo "the server ends with $?" >>"$ktap_dir/pair"; status=1; }
	fi
	[ "$status" -eq 0 ] || { cat "$ktap_dir/pair"; return 1; }
	echo $((end - start))
}

# Both with a queue of netem and with neighbours that are known. A datagram of rdma_cm that is lost takes seconds: then
# twice more.
rping_ratio()
{
	local clean lossy before lost
	for _ in 1 2 3; do
		impair delay 0ms
		clean=$(rping_ms 1000 told) || { impair; fail "rping failed without loss: $clean"; }
		before=$(counter retransmitted_pkts)
		impair loss 1%
		lossy=$(rping_ms 1000 waits) || { impair; fail "rping failed at 1 % loss: $lossy"; }
		impair
		lost=$(($(counter retransmitted_pkts) - before))
		note "rping -C 1000: $clean ms without loss, $lossy ms at 1 %, $lost packets sent again"
		[ "$lost" -gt 0 ] || fail "nothing was lost"
		[ "$lossy" -gt $((3 * clean)) ] || return 0
	done
	fail "$lossy ms is more than 3 x $clean ms, three times"
}

# How many packets were to leave, those too that a full queue has dropped.
packets_given()
{
	echo $(($(counter sent_pkts) + $(counter send_err)))
}

# slow_link RATE LIMIT QPS SIZE COUNT MOST PROGRAM...: a link that is slower than the machine, with a queue of LIMIT packets.
# The queue pairs must not fill it again and again with what is in it already, neither with what they send nor with what they
# ask for: no more than MOST percent of what is needed leaves.
slow_link()
{
	local rate=$1 limit=$2 qps=$3 size=$4 count=$5 most=$6 program before sent needed options
	shift 6
	needed=$((qps * count * size / 4096))
	options=(-F -s "$size" -n "$count" -q "$qps")
	# perftest's timeout of 67 ms is less than a checked machine needs for so many packets.
	[ "$slowness" -eq 1 ] || options+=(-u 18)
	trap impair EXIT
	impair rate "$rate" limit "$limit"
	for program; do
		before=$(packets_given)
		pair 60 18515 "$program" "${options[@]}" -d "$dev1" -x "$gid1" -- \
			"$program" "${options[@]}" -d "$dev2" -x "$gid2" "$address1" || fail "$program fails"
		sent=$(($(packets_given) - before))
		note "$program: $sent packets sent, for $needed packets of data"
		[ $((100 * sent)) -le $((most * needed)) ] || fail "too many"
	done
}

# features FEATURE...: of both netdevs, as for ethtool -K.
features()
{
	if ! in1 ethtool -K "$netdev1" "$@" || ! in2 ethtool -K "$netdev2" "$@"; then
		fail "ethtool refuses $*"
	fi
}

# Packets that the netdevs have sent: a super-packet is one.
netdev_packets()
{
	local packets
	packets=$(in1 cat "/sys/class/net/$netdev1/statistics/tx_packets") &&
		echo $((packets + $(in2 cat "/sys/class/net/$netdev2/statistics/tx_packets")))
}

# pingpong COUNT: so many messages of 64 KiB each way, which both ends check.
pingpong()
{
	local program=(ibv_rc_pingpong -m 4096 -s 65536 -n "$1" -c)
	pair 60 18515 "${program[@]}" -d "$dev1" -g "$gid1" -- "${program[@]}" -d "$dev2" -g "$gid2" "$address1"
}

# long_messages COUNT [FEATURE]: with this feature off, all that `move` sends arrives, and then a hundred messages of 64 KiB
# each way. Leaves in $sent how many datagrams these were, and in $risen by how much COUNT has risen.
long_messages()
{
	local count=$1 status=0
	shift
	[ $# -eq 0 ] || features "$1" off
	env -u FERROCE_ROWS "$here/move" -q -m 1024 "$dev1" "$dev2" || status=1
	risen=$("$count") sent=$(counter sent_pkts)
	pingpong 100 || status=1
	risen=$(($("$count") - risen)) sent=$(($(counter sent_pkts) - sent))
	[ $# -eq 0 ] || features "$1" on
	note "${*:-as they are}: $sent datagrams, $count: $risen"
	[ "$status" -eq 0 ] || fail "not all has arrived"
}

# batches together|apart [FEATURE]: with this feature off, the netdevs' packets are less than half as many as the
# datagrams of long messages, or more.
batches()
{
	local how=$1 sent risen
	shift
	long_messages netdev_packets "$@"
	if [ "$how" = together ]; then
		[ $((2 * risen)) -lt "$sent" ] || fail "that is half of them, or more"
	else
		[ $((2 * risen)) -ge "$sent" ] || fail "that is less than half of them"
	fi
}

tracing=/sys/kernel/tracing

# crc_calls: how often the kernel computes a CRC, so far. The probe counts them from crc_begin to crc_end.
crc_calls()
{
	awk '$1 == "crc" { print $2 }' "$tracing/kprobe_profile"
}

crc_begin()
{
	[ -e "$tracing/kprobe_events" ] || skip "the kernel has no kprobe events"
	trap crc_end EXIT
	echo 'p:crc crc32_le' >>"$tracing/kprobe_events" || fail "the kernel refuses a probe of crc32_le()"
	echo 1 >"$tracing/events/kprobes/crc/enable" || fail "the probe cannot be enabled"
}

crc_end()
{
	echo 0 >"$tracing/events/kprobes/crc/enable"
	echo '-:crc' >>"$tracing/kprobe_events"
}

# crcs once|twice [FEATURE]: FEATURE is turned off first, for connections that are made after that. The sender computes the
# ICRC of each datagram, in one call. With "twice" the receiver does so, too, in two more.
crcs()
{
	local how=$1 sent risen
	shift
	[ "$driver" = ferroce ] || skip "other drivers compute it twice"
	crc_begin
	long_messages crc_calls "$@"
	[ "$sent" -gt 3000 ] || fail "that is not all"
	if [ "$how" = once ]; then
		[ $((2 * risen)) -lt $((3 * sent)) ] || fail "that is more than once"
	else
		[ $((2 * risen)) -gt $((5 * sent)) ] || fail "that is less than twice"
	fi
}

# change_features: netdevs stop taking packets of many and pages, and take them again, as long as $ktap_dir/flows is there.
change_features()
{
	local change
	while [ -e "$ktap_dir/flows" ]; do
		for change in "tx-gso-list off" "sg off" "sg on" "tx-gso-list on"; do
			# shellcheck disable=SC2086
			features $change >&2
			echo "$change"
		done
	done
}

# Connections look at some features when they look up their path, and at some for each packet.
features_change()
{
	local before wrong changes pid status=0
	before=$(counter icrc_err)
	touch "$ktap_dir/flows"
	change_features >"$ktap_dir/changes" &
	pid=$!
	env -u FERROCE_ROWS "$here/move" -q -m 1024 "$dev1" "$dev2" || status=1
	pingpong 1000 || status=1
	rm "$ktap_dir/flows"
	wait "$pid" || fail "the features do not change"
	changes=$(wc -l <"$ktap_dir/changes") wrong=$(($(counter icrc_err) - before))
	note "$changes changes of features"
	[ "$status" -eq 0 ] || fail "not all has arrived"
	[ "$wrong" -eq 0 ] || fail "$wrong packets had a wrong ICRC"
	[ "$changes" -ge 8 ] || fail "that is too few"
}

# Bytes of memory that the packets take which the device's socket of IPv4 has sent, and which have not left the machine.
charged()
{
	in2 ss -Hnuam 'sport = :4791 and src 0.0.0.0' | sed -n 's/.*skmem:([^)]*,t\([0-9]*\),.*/\1/p' | head -n 1
}

standstill_end()
{
	in2 tc qdisc del dev "$netdev2" root
	ip -n n2 neigh del "$address1" dev "$netdev2"
}

# A queue without a bound, that keeps what it gets. With 4 KiB each, the datagrams take some 160 MiB and more.
standstill()
{
	local most=$((64 + 4)) least=60 count=8192 before sent dropped bytes
	# tbf may be a module, or not be there.
	modprobe sch_tbf 2>/dev/null
	ip -n n2 neigh replace "$address1" lladdr "$(in1 cat "/sys/class/net/$netdev1/address")" dev "$netdev2" nud permanent ||
		fail "ip refuses the neighbour $address1"
	in2 tc qdisc add dev "$netdev2" root tbf rate 8kbit burst 100kb limit 2000000000 || fail "tc refuses tbf"
	trap standstill_end EXIT
	before=$(counter send_err) sent=$(counter sent_pkts)
	"$here/flood" "$dev2" "$dev1" "$count" || fail "the flood"
	bytes=$(charged)
	dropped=$(($(counter send_err) - before)) sent=$(($(counter sent_pkts) - sent))
	note "$bytes bytes are charged to the socket, $sent datagrams were sent, $dropped were dropped"
	[ "${bytes:-0}" -ge $((least << 20)) ] || fail "less than $least MiB: the queue has not kept them"
	[ "$bytes" -le $((most << 20)) ] || fail "more than $most MiB"
	[ "$dropped" -gt 0 ] || fail "nothing was dropped"
	# Of each of the flood's queue pairs.
	[ $((sent + dropped)) -eq $((4 * count)) ] || fail "of $((4 * count)) datagrams some count twice, or not at all"
}

modprobe sch_netem 2>/dev/null
ktap_start 20
netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
row "many datagrams leave as one packet" batches together
row "one by one, where netdevs do not take packets of many" batches apart tx-gso-list
row "copied, where netdevs do not take pages" batches apart sg
row "the ICRC of long messages is computed once" crcs once
row "twice, where the receiver may be another host" crcs twice tx-gso-list
row "netdevs' features change while messages flow" features_change
row "a good network" moves sent_pkts delay 0ms
row "loss of 1 %" moves retransmitted_pkts loss 1%
row "duplication of 2 %" moves duplicate_request duplicate 2%
row "a quarter is 1 ms late" moves out_of_seq_request delay 1ms reorder 75%
row "corruption of 1 %" moves icrc_err corrupt 1%
# The firewall changes a copy of the bytes. The sender's memory stays as it was, and the packet still refers to it: a
# receiver must not take that for the packet.
row "a firewall changes sequence numbers" notices 19
row "a firewall changes payload" notices 200
row "all of them together" moves retransmitted_pkts delay 1ms reorder 75% loss 1% duplicate 2% corrupt 1%
row "loss of 10 %" moves retransmitted_pkts loss 10%
row "400 Mbit/s, 16 queue pairs" slow_link 400mbit 1000 16 65536 50 400 ib_read_bw ib_write_bw ib_send_bw
row "400 Mbit/s and a long queue, 16 queue pairs with long READs" slow_link 400mbit 20000 16 1048576 5 400 ib_read_bw
# The queue of a window is longer than the ACK timeout. One QP sends what is needed, and little more.
row "acknowledgements take longer than the timeout" slow_link 10mbit 1000 1 65536 20 150 ib_send_bw ib_write_bw
row "rping at 1 % loss takes at most three times as long" rping_ratio
row "a queue that hardly lets anything go: 64 MiB at the most" standstill
ktap_finish
