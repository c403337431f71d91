#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: devices and modules removed under load
# Net: none
#
# Takes devices away in the middle of traffic, and from processes that merely hold
# them: everything must return soon, nothing may be left, and the module must load
# again. Needs a VM without devices: it makes its own.
set -u
. "$(dirname "$0")/../lib/test.sh"

# The limit for each step, in milliseconds of the guest's time.
# shellcheck disable=SC2154 # of namespaces.sh
limit=$((5000 * slowness))
hold=$here/hold

# within WHAT COMMAND...: it must succeed within the limit. A step that hangs is
# helped by the end of all users, as the next round needs it.
within()
{
	local what=$1 start pid took
	shift
	start=$(uptime_ms)
	"$@" &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		if [ $(($(uptime_ms) - start)) -gt "$limit" ]; then
			echo "$what does not return within $limit ms"
			users_kill
			wait "$pid"
			echo "after the end of all users it returned with $?, $(($(uptime_ms) - start)) ms"
			return 1
		fi
		sleep 0.05
	done
	wait "$pid"
	local status=$?
	took=$(($(uptime_ms) - start))
	echo "$what: status $status, $took ms"
	[ "$status" -eq 0 ]
}

gone()
{
	local pid
	for pid in "$@"; do
		[ ! -e "/proc/$pid" ] || grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null || return 1
	done
}

wait_gone()
{
	until gone "$@"; do sleep 0.05; done
}

users_kill()
{
	kill -9 "${users[@]}" 2>/dev/null
}

devices_gone()
{
	local device
	for device in "$@"; do
		while [ -e "/sys/class/infiniband/$device" ]; do sleep 0.05; done
	done
}

received_bytes()
{
	in1 cat /sys/class/net/veth1/statistics/rx_bytes
}

# Users of the devices, each with its process number in users[].
users=()
server_pid=
client_pid=
holder=
stayer=
stuck=
peer=

# bandwidth_start [OPTION...]: of ib_send_bw.
bandwidth_start()
{
	local before tries
	local options=(-F -q 8 -s 65536 -n 5000000 "$@")
	ip netns exec n1 ib_send_bw -d "$dev1" -x "$gid1" "${options[@]}" >"$ktap_dir/server" 2>&1 &
	server_pid=$!
	await_listener in1 18515 "$server_pid"
	ip netns exec n2 ib_send_bw -d "$dev2" -x "$gid2" "${options[@]}" "$address1" >"$ktap_dir/client" 2>&1 &
	client_pid=$!
	users=("$server_pid" "$client_pid")
	before=$(received_bytes)
	for tries in $(seq $((100 * slowness))); do
		[ $(($(received_bytes) - before)) -gt 2000000 ] && return 0
		gone "$server_pid" && break
		gone "$client_pid" && break
		sleep 0.1
	done
	echo "no traffic flows after $tries tries"
	tail -n 5 "$ktap_dir/server" "$ktap_dir/client"
	return 1
}

traffic_start()
{
	bandwidth_start -e -b
}

# Of the clients of a device the last one to register is the first one to leave. ib_uverbs then destroys the queue pairs of
# processes before the module's own client hears of it.
uverbs_last()
{
	modprobe -r rdma_ucm ib_uverbs && modprobe -a ib_uverbs rdma_ucm
}

# Nothing but its completion queue tells the server that polls: it calls no verb.
polling_start()
{
	bandwidth_start
}

# ready FILE...: who writes to it says so.
ready()
{
	local file
	for file in "$@"; do
		grep -q '^ready' "$ktap_dir/$file" || return 1
	done
}

hold_start()
{
	# What the last one said goes now, not when the background job comes to run.
	truncate -s 0 "$ktap_dir/holder" "$ktap_dir/stayer"
	"$hold" "$dev1" >"$ktap_dir/holder" 2>&1 &
	holder=$!
	"$hold" -i "$dev1" >"$ktap_dir/stayer" 2>&1 &
	stayer=$!
	users=("$holder" "$stayer")
	await $((100 * slowness)) ready holder stayer && return 0
	echo "nothing is held"
	cat "$ktap_dir/holder" "$ktap_dir/stayer"
	return 1
}

# A process inside of a verb that does not come to an end.
stuck_start()
{
	# What the last one said goes now, not when the background job comes to run.
	: >"$ktap_dir/stuck"
	"$hold" -s "$dev1" >"$ktap_dir/stuck" 2>&1 &
	stuck=$!
	users=("$stuck")
	await $((100 * slowness)) ready stuck && return 0
	echo "nobody is stuck"
	cat "$ktap_dir/stuck"
	return 1
}

# A connection of the CM, from whose passive side the device is taken.
connection_start()
{
	: >"$ktap_dir/connection"
	"$here/connection" n1 "$address1" n2 >"$ktap_dir/connection" 2>&1 &
	peer=$!
	users=("$peer")
	await $((100 * slowness)) ready connection && return 0
	echo "not connected"
	cat "$ktap_dir/connection"
	return 1
}

# The peer's CM says goodbye while its device goes.
peer_told()
{
	within "the peer's end" wait_gone "$peer" || return 1
	cat "$ktap_dir/connection"
	wait "$peer"
}

# The process that listens for the end of its device hears of it and ends by itself.
holder_told()
{
	local status
	within "the holder's end" wait_gone "$holder" || return 1
	wait "$holder"
	status=$?
	tail -n 3 "$ktap_dir/holder"
	[ "$status" -eq 3 ] || { echo "the holder ends with $status"; return 1; }
	grep -q '^fatal' "$ktap_dir/holder" || { echo "no DEVICE_FATAL"; return 1; }
	gone "$stayer" && { echo "the process that ignores it is gone, too"; return 1; }
	return 0
}

namespace_delete()
{
	local pids
	read -ra pids <<<"$(ip netns pids n1 | tr '\n' ' ')"
	within "ip netns del" ip netns del n1 || return 1
	# A namespace lives as long as a process in it.
	if [ "${#pids[@]}" -gt 0 ]; then
		kill -9 "${pids[@]}"
		within "the end of its processes" wait_gone "${pids[@]}" || return 1
	fi
	within "the end of its devices" devices_gone "$dev1" "$dev2"
}

# As long as somebody is inside of a verb, ib_core does not let the device go. It lets go of the namespace,
# whose end has no other sign than that the kernel's one worker for it has done with it. (The next one may not
# come to an end: there ib_core waits for the device, too.)
namespace_end()
{
	ip netns del n1 || return 1
	while ip -n n2 link show veth2 >/dev/null 2>&1; do sleep 0.05; done
	while grep -qs cleanup_net /proc/[0-9]*/stack; do sleep 0.05; done
	! gone "$stuck"
}

# A device that goes and comes, each time from under what two processes hold: what is freed late must not be freed
# too late.
link_again()
{
	local tries
	for tries in $(seq 10); do
		act link-del || return 1
		users_kill
		within "the end of its users" wait_gone "${users[@]}" &&
			in1 rdma link add "$dev1" type "$link_type" netdev veth1 &&
			gid_index_wait "$dev1" "$address1" >/dev/null && hold_start || return 1
	done
}

# act CASE: what is done to the devices or their users.
act()
{
	case $1 in
	link-del) within "rdma link del" rdma link del "$dev1" && within "its end" devices_gone "$dev1" ;;
	link-again) link_again ;;
	netdev-del) within "ip link del" ip -n n1 link del veth1 && within "their end" devices_gone "$dev1" "$dev2" ;;
	netdev-uverbs-last)
		act netdev-del && within "the end of the traffic" wait_gone "$server_pid" "$client_pid"
		;;
	rmmod) within "rmmod" rmmod "$module" && within "their end" devices_gone "$dev1" "$dev2" ;;
	rmmod-rxe)
		within "rmmod rdma_rxe" rmmod rdma_rxe && within "their end" devices_gone "$dev1" "$dev2" &&
			within "the end of the traffic" wait_gone "$server_pid" "$client_pid"
		;;
	namespace-del) namespace_delete ;;
	namespace-end)
		within "the end of the namespace" namespace_end &&
			kill -9 "$stuck" && within "the end of the process" wait_gone "$stuck" &&
			within "their end" devices_gone "$dev1" "$dev2"
		;;
	kill-server) kill -9 "$server_pid" && within "the server's end" wait_gone "$server_pid" ;;
	kill-client) kill -9 "$client_pid" && within "the client's end" wait_gone "$client_pid" ;;
	kill-holders) kill -9 "$holder" "$stayer" && within "their end" wait_gone "$holder" "$stayer" ;;
	esac
}

# Everything that a round made, whatever became of it.
clear_away()
{
	local device failed=0
	users_kill
	within "the end of all users" wait_gone "${users[@]}" || failed=1
	for device in "$dev1" "$dev2"; do
		[ ! -e "/sys/class/infiniband/$device" ] ||
			within "rdma link del $device" rdma link del "$device" || failed=1
	done
	for device in n1 n2; do
		[ ! -e "/run/netns/$device" ] || within "ip netns del $device" ip netns del "$device" || failed=1
	done
	if module_loaded; then
		objects_gone $((5 * slowness)) || failed=1
		within "the last rmmod" rmmod "$module" || failed=1
	fi
	unload_said_nothing_left || failed=1
	[ -z "$(rdma link show)" ] || { rdma link show; failed=1; }
	return "$failed"
}

# round CASE USERS
round()
{
	local case=$1 load=$2 failed=0
	[ "$load" != stuck ] || [ -e /proc/sys/vm/unprivileged_userfaultfd ] ||
		skip "this kernel has no userfaultfd"
	[ "$case" != rmmod-rxe ] || modprobe rdma_rxe 2>/dev/null || skip "this kernel has no rxe"
	kernel_log_mark
	within "loading" module_load || return 1
	# Four module operations, which take seconds each on a busy machine: they only prepare.
	[ "$case" != netdev-uverbs-last ] || limit=$((12 * limit)) within "loading ib_uverbs again" uverbs_last || return 1
	links_up || failed=1
	gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
	[ "$failed" -ne 0 ] || "${load}_start" || failed=1
	if [ "$failed" -eq 0 ]; then
		act "$case" || failed=1
		case $load-$case in
		hold-kill-* | hold-link-again) ;;
		hold-*) holder_told || failed=1 ;;
		connection-*) peer_told || failed=1 ;;
		esac
	fi
	clear_away || failed=1
	kernel_log_check || failed=1
	return "$failed"
}

cases=(
	"link-del traffic" "link-del hold" "link-again hold" "link-del connection"
	"netdev-del traffic" "netdev-del hold" "netdev-uverbs-last polling"
	"rmmod traffic" "rmmod hold" "rmmod-rxe polling"
	"namespace-del traffic" "namespace-del hold" "namespace-end stuck"
	"kill-server traffic" "kill-client traffic" "kill-holders hold"
)
rounds=${FERROCE_ROUNDS:-2}

wanted=${FERROCE_ROWS:-.}
mapfile -t names < <(for number in $(seq "$rounds"); do
	for case in "${cases[@]}"; do
		echo "round $number: ${case/ / under }"
	done
done | grep -E -e "$wanted")
again='the module loads again'
with=$(grep -cE -e "$wanted" <<<"$again")

ktap_start $((${#names[@]} + with))
! module_loaded || rmmod "$module"
for name in "${names[@]}"; do
	read -r _ _ case _ load <<<"$name"
	row "$name" round "$case" "$load"
done
# Later tests of the machine expect it.
if [ "$with" -eq 1 ]; then row "$again" within "loading" module_load; else module_load; fi
ktap_finish
