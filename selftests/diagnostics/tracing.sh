#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the tracepoints
#
# The tracepoints of the module, as ftrace shows them: each occurs, as often as it should, and says the right things.
# shellcheck disable=SC2154 # ktap_dir is of ktap.sh, addresses and devices are of namespaces.sh
set -u
. "$(dirname "$0")/../lib/test.sh"

tracefs=/sys/kernel/tracing
events='ferroce_completion ferroce_drop ferroce_packet_in ferroce_packet_out ferroce_page_ready ferroce_page_wait
ferroce_post_send ferroce_qp_state ferroce_retransmit'
# Of ibv_rc_pingpong, and of ib_send_bw.
port=18515

listed()
{
	local found
	found=$(cd "$tracefs/events/ferroce" && printf '%s\n' */ | tr -d / | xargs)
	[ "$found" = "$(xargs <<<"$events")" ] || fail "there are: $found"
}

# traced COMMAND...: what all tracepoints say meanwhile is in $ktap_dir/trace.
traced()
{
	local status
	{ echo 8192 >"$tracefs/buffer_size_kb" && echo >"$tracefs/trace" && echo 1 >"$tracefs/events/ferroce/enable"; } ||
		fail "ftrace refuses"
	"$@"
	status=$?
	echo 0 >"$tracefs/events/ferroce/enable"
	grep ' ferroce_' "$tracefs/trace" >"$ktap_dir/trace"
	[ "$status" -eq 0 ] || fail "status $status"
}

# traced_undisturbed COMMAND...: as traced(), and no packet is asked for again, as it is when the host gives a CPU of the machine no
# time for some milliseconds: then once more.
traced_undisturbed()
{
	local before _
	for _ in 1 2 3 4 5; do
		before=$(all_retransmitted)
		traced "$@" || return 1
		[ "$(all_retransmitted)" -ne "$before" ] || return 0
		echo "a packet was asked for again"
	done
	fail "packets are asked for again each time"
}

# count REGEX: lines of the trace that match.
count()
{
	grep -cE -- "$1" "$ktap_dir/trace"
}

# times N REGEX
times()
{
	local found
	found=$(count "$2")
	[ "$found" -eq "$1" ] || { head -n 40 "$ktap_dir/trace"; fail "$2: $found times, not $1"; }
}

# pingpong ITERATIONS SIZE ARG...: over RC, with a path MTU of 1024 bytes.
pingpong()
{
	local common=(ibv_rc_pingpong -n "$1" -s "$2" -m 1024)
	shift 2
	pair 60 "$port" "${common[@]}" -d "$dev1" -g "$gid1" "$@" -- "${common[@]}" -d "$dev2" -g "$gid2" "$@" "$address1"
}

# Ten messages each way: a send and a receive for each, at both ends.
requests()
{
	traced_undisturbed pingpong 10 64
	times 20 ' ferroce_post_send: qpn=[0-9]+$'
	times 40 ' ferroce_completion: .* status=SUCCESS \(0\)'
	times 0 ' ferroce_completion: .* status=[^S]'
	times 0 ' ferroce_(drop|retransmit|page_)'
}

# A message of eight packets each way, and what acknowledges it.
packets()
{
	local way first psns
	traced_undisturbed pingpong 1 8192
	for way in out in; do
		times 2 " ferroce_packet_$way: .* opcode=RC_SEND_FIRST .* len=1024 aeth=- syndrome=-1"
		times 12 " ferroce_packet_$way: .* opcode=RC_SEND_MIDDLE .* len=1024 aeth=-"
		times 2 " ferroce_packet_$way: .* opcode=RC_SEND_LAST .* len=1024 aeth=-"
		[ "$(count " ferroce_packet_$way: .* opcode=RC_ACKNOWLEDGE .* len=0 aeth=ACK")" -ge 2 ] || fail "no ACK $way"
	done
	# The PSNs of one of the messages.
	first=$(sed -nE 's/.* ferroce_packet_out: dest_qpn=([0-9]+) opcode=RC_SEND_FIRST .*/\1/p' "$ktap_dir/trace" | head -n 1)
	psns=$(sed -nE "s/.* ferroce_packet_out: dest_qpn=$first opcode=RC_SEND_.* psn=([0-9]+) .*/\1/p" "$ktap_dir/trace")
	awk 'NR > 1 && $1 != (before + 1) % 2 ^ 24 { is_wrong = 1 } { before = $1 } END { exit is_wrong || NR != 8 }' <<<"$psns" ||
		fail "PSNs: $(xargs <<<"$psns")"
}

# One request of an XRC initiator, and its acknowledgement.
xrc_packets()
{
	traced env FERROCE_ROWS='^SEND with immediate data$' "$here/xrc" "$dev1" "$dev2" || return 1
	[ "$(count ' ferroce_packet_out: .* opcode=XRC_SEND_LAST_IMM ')" -ge 1 ] || fail "no request"
	[ "$(count ' ferroce_packet_in: .* opcode=XRC_ACKNOWLEDGE .* aeth=ACK')" -ge 1 ] || fail "no ACK"
}

states()
{
	local qpn
	traced pingpong 1 64
	qpn=$(sed -nE 's/^ *local address:.* QPN (0x[0-9a-f]+),.*/\1/p' "$ktap_dir/server")
	[ -n "$qpn" ] || fail "no number"
	for change in 'RESET -> INIT' 'INIT -> RTR' 'RTR -> RTS' 'RTS -> RESET'; do
		times 1 " ferroce_qp_state: qpn=$((qpn)) $change$"
	done
}

# Twenty bytes that are no BTH; then some time for what must not follow the drop.
garbage()
{
	in2 bash -c "printf xxxxxxxxxxxxxxxxxxxx >/dev/udp/$address1/4791"
	await $((50 * slowness)) grep -q ' ferroce_drop: ' "$tracefs/trace" || echo "no drop in time"
	sleep 0.2
}

drops()
{
	traced garbage
	times 1 ' ferroce_drop: qpn=0 reason=malformed_pkts$'
	times 0 ' ferroce_packet_in:'
}

all_retransmitted()
{
	echo $(($(counter_of "$dev1" retransmitted_pkts) + $(counter_of "$dev2" retransmitted_pkts)))
}

# Its ends wait for each other when all is done, so that neither is left to repeat what the other has. So many messages,
# as a GSO packet has fifteen, and one in twenty of these is lost.
lossy()
{
	local status common=(ib_send_bw -F -s 4096 -n 2000)
	in2 tc qdisc add dev "$netdev2" root netem loss 5% || fail "tc refuses netem"
	pair 60 "$port" "${common[@]}" -d "$dev1" -x "$gid1" -- "${common[@]}" -d "$dev2" -x "$gid2" "$address1"
	status=$?
	in2 tc qdisc delete dev "$netdev2" root
	return "$status"
}

# As many as the counters tell.
retransmits()
{
	local before now told
	before=$(all_retransmitted)
	traced lossy
	now=$(($(all_retransmitted) - before))
	told=$(sed -nE 's/.* ferroce_retransmit: qpn=[0-9]+ packets=([0-9]+)$/\1/p' "$ktap_dir/trace" | awk '{ n += $1 } END { print n + 0 }')
	echo "traced $told, counted $now"
	[ "$told" -gt 0 ] || fail "no packet was traced that is sent again"
	[ "$told" -eq "$now" ] || fail "$told packets sent again were traced, and $now counted"
}

pages()
{
	traced pingpong 2 65536 -o
	[ "$(count ' ferroce_page_wait: qpn=[0-9]+$')" -gt 0 ] || fail "no page was waited for"
	times "$(count ' ferroce_page_wait:')" ' ferroce_page_ready: qpn=[0-9]+$'
}

ktap_start 8
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
netdev2=$(netdev_of n2 "$dev2")
row "each tracepoint is there" listed
row "post_send, completion: each request" requests
row "packet_out, packet_in: each packet" packets
row "packet_out, packet_in: XRC" xrc_packets
row "qp_state: each change" states
row "drop: with its reason" drops
row "retransmit: as many as are counted" retransmits
row "page_wait, page_ready: memory that is paged on demand" pages
ktap_finish
