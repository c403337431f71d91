#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: verbs as a user in the kernel calls them: a module of the tests
# Net: loop
# Module: consumer
#
# Verbs as a user in the kernel calls them, on the one device of `scripts/vm --net loop`: the rows are those of the
# module consumer. It is loaded all the while, also when the device is removed and comes back.
set -u
. "$(dirname "$0")/../lib/test.sh"

device=${dev1%1}0
address=10.9.0.1
netdev=loop0
files=/sys/kernel/debug/consumer
linger=/sys/module/consumer/parameters/linger

# ib_core takes force_mr as it is loaded only; the module writes where it is.
force_mr()
{
	awk '$3 == "rdma_rw_force_mr" && $1 !~ /^0+$/ { print "0x" $1; exit }' /proc/kallsyms
}

consumer_load()
{
	local index force
	index=$(gid_index_wait "$device" "$address") || return 1
	force=$(force_mr)
	insmod "$here/kernel/consumer.ko" device="$device" gid_index="$index" slowness="$slowness" \
		${force:+force_mr="$force"}
}

consumer_loaded()
{
	grep -q '^consumer ' /proc/modules
}

# The traffic has moved more messages than there were.
traffic_moves()
{
	local now
	now=$(sed -n 's/^messages //p' "$files/traffic")
	[ "${now:-0}" -gt "$1" ]
}

traffic_runs()
{
	local before
	before=$(sed -n 's/^messages //p' "$files/traffic")
	await $((100 * slowness)) traffic_moves $((${before:-0} + 20)) || { cat "$files/traffic"; fail "no messages"; }
	! grep -A 9 failed "$files/traffic" || fail "a message is wrong"
}

device_again()
{
	rdma link add "$device" type "$link_type" netdev "$netdev" || return 1
	gid_index_wait "$device" "$address" >/sys/module/consumer/parameters/gid_index
}

# removed COMMAND...: by which the device goes while the module has objects and traffic.
removed()
{
	local began
	echo start >"$files/traffic" || fail "no traffic"
	traffic_runs
	began=$SECONDS
	timeout -k 5 $((60 * slowness)) "$@" || fail "$*: status $?"
	await $((600 * slowness)) device_gone || fail "the device is still there"
	note "gone after $((SECONDS - began)) s"
	objects_gone $((10 * slowness)) || fail "the device is gone"
	[ "$(cat "$files/traffic")" = gone ] || { cat "$files/traffic"; fail "the traffic did not end as it should"; }
	! echo start >"$files/traffic" 2>/dev/null || fail "traffic without a device"
}

device_gone()
{
	[ ! -e "/sys/class/infiniband/$device" ]
}

netdev_again()
{
	ip link add "$netdev" mtu "$mtu" type dummy && ip address add "$address/24" dev "$netdev" &&
		ip address add fd09::1/64 dev "$netdev" nodad && ip link set "$netdev" up && device_again
}

# A client that takes its time has the device stay, retired: no QP of a process is of use any more.
retired()
{
	local deleted="$ktap_dir/deleted"
	trap 'echo 0 >"$linger"' EXIT
	echo $((60000 * slowness)) >"$linger"
	"$here/late" "$device" "rdma link del $device; echo \$? >'$deleted'" || fail "the QP is of use"
	! rdma link add "${device}b" type "$link_type" netdev "$netdev" 2>/dev/null || fail "a second device"
	dmesg | tail -n 50 | grep -q "no device on $netdev: its device is still being deleted" || fail "no reason: $(dmesg | tail -n 5)"
	echo 0 >"$linger"
	# Its name is free again only at the end of the command, later than it is gone from sysfs.
	await $((600 * slowness)) test -s "$deleted" || fail "the command has not ended"
	[ "$(cat "$deleted")" = 0 ] || fail "the command failed"
	device_gone || fail "the device is still there"
	device_again
}

removed_by_link()
{
	removed rdma link del "$device"
	device_again || fail "no device again"
	echo start >"$files/traffic" || fail "no traffic on the new device"
	traffic_runs
	echo stop >"$files/traffic"
}

netdev_removed()
{
	mtu=$(cat "/sys/class/net/$netdev/mtu")
	removed ip link del "$netdev"
}

# Nobody has waited for long, with RTNL held: neither for clients of the kernel nor for a process, in a multicast group.
# A kernel that checks everything takes longer than a second for the holder's objects alone.
left_in_time()
{
	[ "$slowness" -eq 1 ] || return 0
	dmesg | grep -q "selftests: before $1\$" || { echo "the mark has gone from the kernel log"; return 1; }
	! dmesg | sed -n "/selftests: before $1/,\$p" | grep "still in use while its netdev goes"
}

# If the host gives a CPU of the machine no time, clients of a device may take that second: then once more.
removed_by_netdev()
{
	removed_in_time || { echo "it took too long"; removed_in_time; } || fail "it took too long"
}

removed_in_time()
{
	local mark=$RANDOM status
	"$here/hold" "$device" >"$ktap_dir/holder" 2>&1 &
	await $((200 * slowness)) grep -q ready "$ktap_dir/holder" || { cat "$ktap_dir/holder"; fail "no holder"; }
	echo "selftests: before $mark" >/dev/kmsg
	netdev_removed
	left_in_time "$mark"
	status=$?
	wait
	netdev_again || fail "no device again"
	echo start >"$files/traffic" || fail "no traffic on the new device"
	traffic_runs
	echo stop >"$files/traffic"
	return "$status"
}

# The CM gives up as soon as it cannot send any more, and not after all of its retries.
removed_by_netdev_in_silence()
{
	local silent=/sys/module/consumer/parameters/is_peer_silent
	echo 1 >"$silent"
	netdev_removed
	echo 0 >"$silent"
	netdev_again
}

unloaded_under_traffic()
{
	local log
	kernel_log_mark
	echo start >"$files/traffic" || fail "no traffic"
	traffic_runs
	timeout -k 5 $((60 * slowness)) rmmod consumer || fail "rmmod: status $?"
	[ ! -e "$files" ] || fail "files are left"
	log=$(kernel_log_since) || fail "the mark has gone from the kernel log"
	! grep '^consumer: the ' <<<"$log" || fail "the traffic did not end as it should"
}

# Queues of the pool are the device's, and go with it.
nothing_left()
{
	consumer_loaded && rmmod consumer
	rdma link del "$device" || fail "rdma link del"
	objects_gone $((10 * slowness)) || fail "after the device"
	rdma link add "$device" type "$link_type" netdev "$netdev" || fail "no device again"
	gid_index_wait "$device" "$address"
}

if ! consumer_load; then
	ktap_start 1
	row "the module loads" fail "see above"
	ktap_finish
fi
# Rows of the script itself, in this order: what each does, and its name.
others=(
	'retired|rdma link del, while a client takes its time'
	'removed_by_link|rdma link del, with objects and traffic'
	'removed_by_netdev|the netdev goes, with objects and traffic'
	'removed_by_netdev_in_silence|the netdev goes, and the peer of a connection does not answer'
	'unloaded_under_traffic|rmmod with objects and traffic'
	'nothing_left|nothing is left'
)
wanted=${FERROCE_ROWS:-.}
mapfile -t numbers < <(grep -nE -e "$wanted" "$files/names" | cut -d : -f 1)
mapfile -t others < <(printf '%s\n' "${others[@]}" | grep -E -e "^[a-z_]*\|.*($wanted)")
ktap_start $((${#numbers[@]} + ${#others[@]}))
echo "${numbers[*]}" >"$files/chosen"
[ ${#numbers[@]} -eq 0 ] || absorb ${#numbers[@]} cat "$files/results"
for other in "${others[@]}"; do
	row "${other#*|}" "${other%%|*}"
done
# Without that row, or if it has failed.
! consumer_loaded || rmmod consumer
ktap_finish
