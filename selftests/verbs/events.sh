#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: asynchronous events and statuses, each once; SQD, SQE, attributes
# Suites: all
set -u
. "$(dirname "$0")/../lib/test.sh"

cm_port=7174

# A device of one's own: others would miss it.
watch_start()
{
	ip -n n1 link add dummy8 type dummy && watch_device
}

# A device on dummy8.
spare_up()
{
	namespace_up n1 dummy8 1500 10.8.0.1 fd08::1 || return 1
	in1 rdma link add spare8 type "$link_type" netdev dummy8 || return 1
	gid_index_wait spare8 10.8.0.1 >/dev/null && gid_index_wait spare8 fd08::1 >/dev/null
}

# The same, and who watches it.
watch_device()
{
	spare_up || return 1
	# What the last one said goes now, not when the background job comes to run.
	: >"$ktap_dir/watch"
	"$here/events" -w spare8 >"$ktap_dir/watch" 2>&1 &
	watcher=$!
	await $((100 * slowness)) grep -q '^ready' "$ktap_dir/watch" && return 0
	cat "$ktap_dir/watch"
	fail "nobody watches"
}

# told COUNT EVENT: it is there so often, and does not come again.
told()
{
	local tries count
	for tries in $(seq $((100 * slowness))); do
		count=$(grep -cxF "event $2" "$ktap_dir/watch")
		[ "$count" -lt "$1" ] || break
		sleep 0.1
	done
	sleep "$slowness"
	count=$(grep -cxF "event $2" "$ktap_dir/watch")
	[ "$count" -eq "$1" ] && return 0
	cat "$ktap_dir/watch"
	fail "$2: $count times, not $1, after $tries tries"
}

watcher=

# What the row before has left, if it failed.
watch_end()
{
	[ -z "$watcher" ] || { kill "$watcher"; wait "$watcher"; } 2>/dev/null
	rdma link del spare8 2>/dev/null
	ip -n n1 link del dummy8 2>/dev/null
	ip -n n1 link del dummy9 2>/dev/null
}

port()
{
	trap watch_end EXIT
	watch_start || return 1
	# Something has changed, but not the port's state.
	ip -n n1 link set dummy8 alias changed || return 1
	told 0 "port active of port 1"
	ip -n n1 link set dummy8 down || return 1
	told 1 "port error of port 1"
	told 0 "port active of port 1"
	ip -n n1 link set dummy8 up || return 1
	told 1 "port active of port 1"
	told 1 "port error of port 1"
}

# The netdev stays up all the time, and its peer goes down. The kernel announces a lost carrier up to two seconds later.
carrier()
{
	trap watch_end EXIT
	ip -n n1 link add dummy8 type veth peer name dummy9 && ip -n n1 link set dummy9 up && watch_device || return 1
	ip -n n1 link set dummy9 down || return 1
	told 1 "port error of port 1"
	told 0 "port active of port 1"
	ip -n n1 link show dummy8 | grep '[<,]UP[,>]' || fail "the netdev itself is down"
	ip -n n1 link set dummy9 up || return 1
	told 1 "port active of port 1"
	told 1 "port error of port 1"
}

# Of a bond, the RDMA core tells nothing.
bond()
{
	modprobe bonding max_bonds=0 || skip "this kernel has no bonding"
	trap watch_end EXIT
	ip -n n1 link add dummy8 type bond && ip -n n1 link add dummy9 master dummy8 type dummy &&
		ip -n n1 link set dummy9 up && watch_device || return 1
	ip -n n1 -batch - <<-BATCH || return 1
		link set dummy8 down
		link set dummy8 up
	BATCH
	told 1 "port error of port 1"
	told 1 "port active of port 1"
}

gid()
{
	trap watch_end EXIT
	watch_start || return 1
	told 0 "GID table change of port 1"
	ip -n n1 address add 10.8.1.1/24 dev dummy8 || return 1
	told 1 "GID table change of port 1"
	ip -n n1 address del 10.8.1.1/24 dev dummy8 || return 1
	told 2 "GID table change of port 1"
}

# removed COMMAND...: the queue pair is lost, and the device, each once at the most. uverbs takes back the event of a queue
# pair that it destroys with the device, if the process has not read it by then: on a busy machine it may not have, so
# there are several tries.
removed()
{
	local try
	trap watch_end EXIT
	for try in 1 2 3 4 5; do
		watch_start || return 1
		"$@" || return 1
		wait "$watcher" || fail "the watcher ends with $?"
		told 1 "local catastrophic error"
		! grep -qxF "event local work queue catastrophic error of the queue pair" "$ktap_dir/watch" || break
		echo "try $try: the queue pair has gone before its event was read"
		watch_end
	done
	told 1 "local work queue catastrophic error of the queue pair"
}

# No event tells of them, and nobody looks at a queue pair that goes.
receives_flushed()
{
	trap watch_end EXIT
	ip -n n1 link add dummy8 type dummy && spare_up || return 1
	"$here/late" -r spare8 "rdma link del spare8" || fail "receives are lost"
}

# The client's netdev takes larger packets than the server's.
mtus_differ()
{
	local netdev mtu status=0
	[ "$driver" = ferroce ] || skip "the words of another driver"
	netdev=$(netdev_of n1 "$dev1")
	mtu=$(in1 cat "/sys/class/net/$netdev/mtu")
	kernel_log_mark
	ip -n n1 link set "$netdev" mtu 1500 || return 1
	! pair 30 "$cm_port" rping -s -a "$address1" -p "$cm_port" -C 1 -- rping -c -a "$address1" -p "$cm_port" -C 1 || status=1
	ip -n n1 link set "$netdev" mtu "$mtu" || return 1
	[ "$status" -eq 0 ] || fail "it is accepted"
	grep -q 'rdma_accept: Invalid argument' "$ktap_dir/server.errors" || fail "rdma_accept() does not say so"
	kernel_log_since | grep 'refused: the path MTU is above' || fail "the kernel log does not say so"
}

rows=$(rows_of "$here/events")
others=8
# They take long: not if only rows of the program are asked for.
[ -z "${FERROCE_ROWS:-}" ] || grep "^.row \"" "$0" | grep -qE "$FERROCE_ROWS" || others=0
ktap_start $((rows + others))
devices_wait
# Its rows play the peer, packet by packet.
packets_of_many off
[ "$rows" -eq 0 ] || absorb "$rows" "$here/events" "$dev1" "$dev2"
packets_of_many on
if [ "$others" -gt 0 ]; then
	row "event: PORT_ERR, PORT_ACTIVE" port
	row "event: PORT_ERR, PORT_ACTIVE: the carrier goes and comes" carrier
	row "event: PORT_ERR, PORT_ACTIVE: a bond is down for a moment" bond
	row "event: GID_CHANGE" gid
	row "rdma_accept() of a path MTU above the port's, and the log" mtus_differ
	row "event: QP_FATAL, DEVICE_FATAL: the device is removed" removed rdma link del spare8
	row "event: QP_FATAL, DEVICE_FATAL: the netdev is removed" removed ip -n n1 link del dummy8
	row "receives of a queue pair in error are flushed when its device is removed" receives_flushed
fi
ktap_finish
