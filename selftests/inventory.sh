#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# What iproute2's rdma shows of the devices, against what is really there.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

objects=$(mktemp)
holder=

hold_start()
{
	local tries
	"$here/hold" "$dev1" >"$objects" 2>&1 &
	holder=$!
	# Its end is none of the shell's business.
	disown "$holder"
	# shellcheck disable=SC2154 # of namespaces.sh
	for tries in $(seq $((100 * slowness))); do
		grep -q '^ready' "$objects" && return 0
		sleep 0.1
	done
	echo "# nothing is held after $tries tries"
	sed 's/^/# /' "$objects"
}

devices()
{
	local out device
	out=$(rdma dev show)
	echo "$out"
	for device in "$dev1" "$dev2"; do
		grep -qE "$device: .*node_type ca .*node_guid [0-9a-f:]{19}" <<<"$out" || fail "$device is not shown"
		! grep -E "$device: .*node_guid 0000:0000:0000:0000" <<<"$out" || fail "$device has no GUID"
	done
	[ "$(grep -oE 'node_guid [^ ]*' <<<"$out" | sort | uniq -d)" = "" ] || fail "two have the same GUID"
}

links()
{
	in1 rdma link show "$dev1/1" | tee /dev/stderr |
		grep -q "state ACTIVE physical_state LINK_UP netdev $netdev1" || fail "$dev1 is not shown as it is"
	in2 rdma link show "$dev2/1" | tee /dev/stderr |
		grep -q "state ACTIVE physical_state LINK_UP netdev $netdev2" || fail "$dev2 is not shown as it is"
}

# state_wait STATE
state_wait()
{
	local tries
	for tries in $(seq $((50 * slowness))); do
		rdma link show "$dev1/1" | grep -q "state $1 " && return 0
		sleep 0.1
	done
	rdma link show "$dev1/1"
	fail "not $1 after $tries tries"
}

# The port goes with its netdev, and comes back with it; its GIDs, too.
link_state()
{
	in1 ip link set "$netdev1" down
	(state_wait DOWN)
	local status=$?
	in1 ip link set "$netdev1" up
	in1 ip address replace "$address1v6/64" dev "$netdev1" nodad
	[ "$status" -eq 0 ] || fail "the netdev goes down and the port does not"
	state_wait ACTIVE
	gid_index_wait "$dev1" "$address1" && gid_index_wait "$dev1" "$address1v6"
}

# Each "qp" line of hold, in what rdma shows of the device's queue pairs.
queue_pairs()
{
	local out kind lqpn rest number peer type state
	out=$(rdma res show qp link "$dev1")
	echo "$out"
	while read -r kind lqpn rest; do
		[ "$kind" = qp ] || continue
		number=${lqpn#lqpn=}
		peer=$(sed -n 's/.*rqpn=\([0-9]*\).*/\1/p' <<<"$rest")
		type=$(sed -n 's/.*type=\([A-Z]*\).*/\1/p' <<<"$rest")
		state=$(sed -n 's/.*state=\([A-Z]*\).*/\1/p' <<<"$rest")
		grep -w "lqpn $number" <<<"$out" | grep -w "type $type" | grep -w "state $state" |
			grep -w "pid $holder" | grep -qw "comm hold" || fail "queue pair $number is not shown as it is"
		[ -z "$peer" ] || grep -w "lqpn $number" <<<"$out" | grep -qw "rqpn $peer" ||
			fail "queue pair $number: its peer is not $peer"
	done <"$objects"
	[ "$(grep -cw "pid $holder" <<<"$out")" -eq "$(grep -c '^qp ' "$objects")" ] || fail "a wrong number"
	grep -wq 'lqpn 1' <<<"$out" || fail "the GSI queue pair is not shown"
}

memory_regions()
{
	local out kind lkey rkey length
	out=$(rdma -d res show mr dev "$dev1")
	echo "$out"
	while read -r kind lkey rkey length; do
		[ "$kind" = mr ] || continue
		grep -w "pid $holder" <<<"$out" | grep -w "mrlen ${length#mrlen=}" |
			grep -w "lkey ${lkey#lkey=}" | grep -qw "rkey ${rkey#rkey=}" ||
			fail "the region with $lkey is not shown as it is"
	done <"$objects"
	[ "$(grep -cw "pid $holder" <<<"$out")" -eq "$(grep -c '^mr ' "$objects")" ] || fail "a wrong number"
}

# The rest of what a process has: one protection domain, one queue, one context.
owned()
{
	local out
	out=$(rdma res show "$1" dev "$dev1")
	echo "$out"
	[ "$(grep -cw "pid $holder" <<<"$out")" -eq 1 ] || fail "not just one"
}

completion_queue()
{
	local out cqe
	owned cq
	cqe=$(sed -n 's/^cq cqe=//p' "$objects")
	out=$(rdma res show cq dev "$dev1" | grep -w "pid $holder")
	grep -qw "cqe $cqe" <<<"$out" || fail "its size is not $cqe"
	# Five queue pairs, each with it on either side.
	grep -qw "users 10" <<<"$out" || fail "it has not 10 users"
}

summary()
{
	local out qps mrs
	out=$(rdma res show "$dev1")
	echo "$out"
	qps=$(rdma res show qp link "$dev1" | grep -c .)
	mrs=$(rdma res show mr dev "$dev1" | grep -c .)
	grep -qw "qp $qps" <<<"$out" || fail "not $qps queue pairs"
	grep -qw "mr $mrs" <<<"$out" || fail "not $mrs regions"
}

statistic()
{
	rdma statistic show link "$1/1" | tr ' ' '\n' | grep -A 1 -x "$2" | tail -n 1
}

# A transfer of known size moves the counters of both devices by its packets.
statistics()
{
	local sent received count packets=$((100 * 65536 / 4096))
	rdma statistic show
	sent=$(statistic "$dev2" sent_pkts) received=$(statistic "$dev1" rcvd_pkts)
	[ -n "$sent" ] || fail "no sent_pkts"
	[ -n "$received" ] || fail "no rcvd_pkts"
	pair 60 18515 ib_send_bw -F -e -d "$dev1" -x "$gid1" -s 65536 -n 100 -- \
		ib_send_bw -F -e -d "$dev2" -x "$gid2" -s 65536 -n 100 "$address1" || fail "ib_send_bw failed"
	sent=$(($(statistic "$dev2" sent_pkts) - sent)) received=$(($(statistic "$dev1" rcvd_pkts) - received))
	echo "$packets packets of data: sent $sent, received $received"
	for count in "$sent" "$received"; do
		[ "$count" -ge "$packets" ] || fail "fewer than there were"
		[ "$count" -le $((packets * 2)) ] || fail "far more than there were"
	done
}

# When the process has ended, so have its objects.
ended()
{
	local tries out
	kill -9 "$holder"
	for tries in $(seq $((50 * slowness))); do
		out=$(rdma res show qp link "$dev1"; rdma res show mr dev "$dev1"; rdma res show ctx dev "$dev1")
		grep -qw "pid $holder" <<<"$out" || return 0
		sleep 0.1
	done
	echo "$out"
	fail "they are still shown after $tries tries"
}

ktap_start 11
netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
hold_start
row "rdma dev" devices
row "rdma link" links
row "rdma res show qp" queue_pairs
row "rdma res show mr" memory_regions
row "rdma res show cq" completion_queue
row "rdma res show pd" owned pd
row "rdma res show ctx" owned ctx
row "rdma res show" summary
row "the end of a process" ended
row "rdma statistic show" statistics
row "the netdev goes down and up" link_state
rm -f "$objects"
ktap_finish
