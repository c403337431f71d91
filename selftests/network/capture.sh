#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the packets between two devices
#
# What travels between the namespaces, as the peer's netdev sees it: packets of every
# service, over IPv4 and IPv6, dissected and with its invariant CRC checked; and the
# netdev's own counters against the payload.
set -u
. "$(dirname "$0")/../lib/test.sh"

opcodes=(
	RC_SEND_FIRST RC_SEND_MIDDLE RC_SEND_LAST RC_SEND_LAST_IMM RC_SEND_ONLY RC_SEND_ONLY_IMM
	RC_WRITE_FIRST RC_WRITE_MIDDLE RC_WRITE_LAST RC_WRITE_LAST_IMM RC_WRITE_ONLY RC_WRITE_ONLY_IMM
	RC_READ_REQUEST RC_READ_RESPONSE_FIRST RC_READ_RESPONSE_MIDDLE RC_READ_RESPONSE_LAST
	RC_READ_RESPONSE_ONLY RC_ACKNOWLEDGE RC_ATOMIC_ACKNOWLEDGE RC_COMPARE_SWAP RC_FETCH_ADD
	RC_SEND_ONLY_INV RC_FLUSH RC_ATOMIC_WRITE
	UC_SEND_FIRST UC_SEND_MIDDLE UC_SEND_LAST UC_WRITE_FIRST UC_WRITE_MIDDLE UC_WRITE_LAST
	UD_SEND_ONLY UD_SEND_ONLY_IMM
	XRC_SEND_FIRST XRC_SEND_MIDDLE XRC_SEND_LAST XRC_SEND_LAST_IMM XRC_SEND_ONLY XRC_SEND_ONLY_INV
	XRC_WRITE_FIRST XRC_WRITE_MIDDLE XRC_WRITE_LAST XRC_WRITE_LAST_IMM
	XRC_READ_REQUEST XRC_READ_RESPONSE_FIRST XRC_READ_RESPONSE_MIDDLE XRC_READ_RESPONSE_LAST
	XRC_ACKNOWLEDGE XRC_ATOMIC_ACKNOWLEDGE XRC_COMPARE_SWAP XRC_FETCH_ADD
)

# traffic FAMILY ADDRESS: all opcodes, with rdma_cm's datagrams among them.
traffic()
{
	local program gids
	gids=("$(gid_index "$dev1" "$2")" "$(gid_index "$dev2" "${2/%1/2}")")
	for program in "move -q -m 512" atomics datagrams xrc placement; do
		# shellcheck disable=SC2086
		env -u FERROCE_ROWS "$here"/$program "-$1" "$dev1" "$dev2" >"$ktap_dir/traffic" 2>&1 || {
			tail -n 20 "$ktap_dir/traffic"
			fail "$program failed"
		}
	done
	FERROCE_ROWS='remote invalidate' "$here/windows" "-$1" "$dev1" "$dev2" >"$ktap_dir/traffic" 2>&1 || {
		tail -n 20 "$ktap_dir/traffic"
		fail "windows failed"
	}
	for program in ib_send_bw ib_write_bw; do
		pair 30 18515 "$program" -c UC -F -m 1024 -s 5000 -n 20 -d "$dev1" -x "${gids[0]}" -- \
			"$program" -c UC -F -m 1024 -s 5000 -n 20 -d "$dev2" -x "${gids[1]}" "$address1" || fail "$program failed"
	done
	pair 30 7174 rping -s -a "$2" -p 7174 -C 10 -- rping -c -a "$2" -p 7174 -C 10 || fail "rping failed"
}

# all_written PROCESS: tcpdump reads packets up to a second late. On SIGUSR1 it prints how many it has written: as many as
# two seconds ago.
all_written()
{
	local before=$written
	kill -USR1 "$1" && sleep 2
	written=$(tail -n 1 "$ktap_dir/tcpdump" | awk '{ print $2 + 0 }')
	[ "$written" -gt 0 ] && [ "$written" = "$before" ]
}

# Datagrams of at least 512 bytes, one at a time: a receiver on the same host need not compute their ICRC. No other is
# added to them on the way, as many would be.
long_traffic()
{
	local program size gids
	gids=("$(gid_index "$dev1" "$1")" "$(gid_index "$dev2" "${1/%1/2}")")
	for program in ib_send_lat ib_write_lat ib_read_lat "ib_send_lat -c UC" "ib_send_lat -c UD"; do
		for size in 1001 4096; do
			# shellcheck disable=SC2086
			pair 30 18515 $program -F -m 4096 -s "$size" -n 20 -d "$dev1" -x "${gids[0]}" -- \
				$program -F -m 4096 -s "$size" -n 20 -d "$dev2" -x "${gids[1]}" "$address1" || fail "$program failed"
		done
	done
}

# captured COMMAND ARG...: leaves $capture
captured()
{
	local tcpdump status written='' has_all=1
	# What the last one said goes now, not when the background job comes to run.
	: >"$ktap_dir/tcpdump"
	ip netns exec n1 tcpdump -i "$netdev1" -s 0 -B 65536 -w "$capture" -U udp port 4791 2>"$ktap_dir/tcpdump" &
	tcpdump=$!
	await $((100 * slowness)) grep -q 'listening on' "$ktap_dir/tcpdump" || fail "tcpdump does not listen"
	("$@")
	status=$?
	await $((50 * slowness)) all_written "$tcpdump" || has_all=''
	kill "$tcpdump"
	wait "$tcpdump"
	cat "$ktap_dir/tcpdump"
	[ -n "$has_all" ] || fail "tcpdump has not written all"
	grep -q '^0 packets dropped by kernel' "$ktap_dir/tcpdump" || fail "tcpdump lost packets"
	return "$status"
}

# icrc_right OPCODE...
icrc_right()
{
	local out
	out=$(python3 "$here/lib/icrc.py" "$capture" "$@")
	local status=$?
	echo "$out"
	[ "$status" -eq 0 ] || return 1
	note "$(grep '^packets' <<<"$out"), $(grep -c '^opcode' <<<"$out") opcodes"
}

# The checker itself: a turned bit in a packet must show.
icrc_notices()
{
	local turned=$ktap_dir/turned.pcap
	python3 - "$capture" "$turned" <<-'END' || fail "the capture is too short"
		import struct, sys
		data = bytearray(open(sys.argv[1], "rb").read())
		# The last byte but four of the first frame: the end of its payload or header.
		captured = struct.unpack_from("<I", data, 24 + 8)[0]
		data[24 + 16 + captured - 5] ^= 0x10
		open(sys.argv[2], "wb").write(data)
	END
	! python3 "$here/lib/icrc.py" "$turned" || fail "a turned bit is not noticed"
	python3 "$here/lib/icrc.py" "$turned" | grep -q '^bad 1$' || fail "not just one packet is wrong"
}

# malformed CAPTURE: tshark guesses what a payload is, and takes random bytes for IPv4
# or RPC that is malformed then. What counts is its judgement of the packet itself.
malformed()
{
	tshark -r "$1" -Y _ws.malformed -V 2>/dev/null |
		grep -E '^(Frame|\[Malformed Packet: )' | grep -B 1 'Malformed Packet: IB\]'
}

dissected()
{
	local out packets
	command -v tshark >/dev/null || skip "tshark is not installed"
	packets=$(python3 "$here/lib/icrc.py" "$capture" | sed -n 's/^packets //p')
	tshark -r "$capture" -T fields -e infiniband.bth.opcode -Y infiniband.bth \
		>"$ktap_dir/opcodes" 2>/dev/null || fail "tshark: status $?"
	out=$(grep -c . "$ktap_dir/opcodes")
	[ "$out" -eq "$packets" ] || fail "tshark finds $out RoCE packets of $packets"
	out=$(malformed "$capture")
	[ -z "$out" ] || fail "malformed: $(head -n 20 <<<"$out")"
}

# An acknowledgement that says it is an atomic operation is too short for one.
malformed_noticed()
{
	local short=$ktap_dir/short.pcap
	command -v tshark >/dev/null || skip "tshark is not installed"
	python3 - "$capture" "$short" "$1" <<-'END' || fail "there is no acknowledgement"
		import struct, sys
		data = bytearray(open(sys.argv[1], "rb").read())
		transport = 14 + (20 if sys.argv[3] == "4" else 40) + 8
		at = 24
		while data[at + 16 + transport] != 0x11:
		    at += 16 + struct.unpack_from("<I", data, at + 8)[0]
		data[at + 16 + transport] = 0x13
		open(sys.argv[2], "wb").write(data)
	END
	[ -n "$(malformed "$short")" ] || fail "tshark does not notice it"
}

# counters NAMESPACE NETDEV COUNTER
counter()
{
	ip -n "$1" -s -j link show "$2" |
		python3 -c 'import json, sys; s = json.load(sys.stdin)[0]["stats64"]; print(s[sys.argv[1]]["bytes"])' "$3"
}

# The payload of a run stands in the counters of both netdevs, and not twice.
payload_counted()
{
	local payload=$((200 * 65536)) sent received
	sent=$(counter n2 "$netdev2" tx)
	received=$(counter n1 "$netdev1" rx)
	pair 60 18515 ib_send_bw -F -e -d "$dev1" -x "$gid1" -s 65536 -n 200 -- \
		ib_send_bw -F -e -d "$dev2" -x "$gid2" -s 65536 -n 200 "$address1" || fail "ib_send_bw failed"
	sent=$(($(counter n2 "$netdev2" tx) - sent))
	received=$(($(counter n1 "$netdev1" rx) - received))
	echo "payload $payload, sent $sent, received $received"
	[ "$sent" -ge "$payload" ] || fail "the sender's netdev counts less than the payload"
	[ "$received" -ge "$payload" ] || fail "the receiver's netdev counts less than the payload"
	[ "$sent" -le $((payload * 3 / 2)) ] || fail "the sender's netdev counts far more than the payload"
	[ "$received" -le $((payload * 3 / 2)) ] || fail "the receiver's netdev counts far more than the payload"
}

ktap_start 15
# The packets of either side arrive at the other's.
netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
packets_of_many off
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
for family in 4 6; do
	capture=$ktap_dir/ipv$family.pcap
	if [ "$family" = 4 ]; then address=$address1; else address=$address1v6; fi
	row "IPv$family: a capture of traffic of every service" captured traffic "$family" "$address"
	row "IPv$family: invariant CRCs, lengths, opcodes" icrc_right "${opcodes[@]}"
	row "IPv$family: a turned bit would be noticed" icrc_notices
	row "IPv$family: nothing is malformed for tshark" dissected
	row "IPv$family: a malformed packet would be noticed" malformed_noticed "$family"
done
row "the netdevs count the payload" payload_counted
packets_of_many on
for family in 4 6; do
	capture=$ktap_dir/long.pcap
	if [ "$family" = 4 ]; then address=$address1; else address=$address1v6; fi
	row "IPv$family: a capture of long datagrams within the host" captured long_traffic "$address"
	row "IPv$family: their invariant CRCs" icrc_right \
		RC_SEND_ONLY RC_WRITE_ONLY RC_READ_RESPONSE_ONLY UC_SEND_ONLY UD_SEND_ONLY
done
ktap_finish
