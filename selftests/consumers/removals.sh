#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: storage when device, module or netdev go
# Net: wire
# Runs: never
# Needs: --suite consumers
#
# Storage between two machines, when a device, the module or the netdev goes in the middle of I/O. The consumers hear of
# it, and the command that removes it returns soon. I/O over NFS and RDS waits, and goes on when the device is
# back; that of the others ends. 9P has no rows: its client leaks requests when its connection goes, on rdma_rxe as
# well, and keeps the device until it is unmounted. Needs kretprobes, which the debug kernel lacks.
# shellcheck disable=SC2154 # io_status is of io.sh
set -u
. "$(dirname "$0")/../lib/io.sh"

# How long a removal may take, in seconds.
limit=$((15 * slowness))

# removal_is_quick NAME COMMAND...
removal_is_quick()
{
	local name=$1 began=${EPOCHREALTIME/./} took status
	shift
	"$@"
	status=$?
	took=$(((${EPOCHREALTIME/./} - began) / 1000))
	echo "$name: $took ms, status $status"
	echo "$took ms: $name" >>"$ktap_dir/removals"
	[ "$status" -eq 0 ] && [ "$took" -le $((limit * 1000)) ]
}

# remove device|module|netdev on_host|on_target
remove()
{
	case $1 in
	device) "$2" rdma link delete "$device" ;;
	module) "$2" rmmod ferroce ;;
	netdev) "$2" "$here/lib/netdev.sh" unplug "$netdev" ;;
	esac
}

# The reverse of remove.
bring_back()
{
	local node=1
	[ "$2" = on_host ] || node=2
	# A client of the CM may keep the device until the CM gives up: its address has gone with the netdev.
	"$2" sh -c "for i in \$(seq $((1000 * slowness))); do [ -e /sys/class/infiniband/$device ] || exit 0; sleep 0.1; done; exit 1" ||
		fail "the device stays"
	case $1 in
	module) "$2" modprobe ferroce || return 1 ;;
	netdev) "$2" "$here/lib/netdev.sh" plug "$netdev" "10.1.0.$node/24" || return 1 ;;
	esac
	"$2" rdma link add "$device" type ferroce netdev "$netdev" || return 1
	"$2" sh -c "for i in \$(seq $((100 * slowness))); do grep -qs '0a01' /sys/class/infiniband/$device/ports/1/gids/* && exit 0
		sleep 0.1; done; exit 1" || fail "no address"
}

# connected_again device|module|netdev on_host|on_target: after a detach.
connected_again()
{
	at_target unserve
	bring_back "$@" && connected
}

# watch_routes: remembers if rdma_resolve_route() fails with EINVAL from now on.
tracing=/sys/kernel/tracing
route_event=$tracing/events/kprobes/resolved_route
watch_routes()
{
	# shellcheck disable=SC2016 # $retval is the kernel's
	[ -e "$route_event" ] || echo 'r:resolved_route rdma_resolve_route status=$retval:s32' >"$tracing/kprobe_events" || return 1
	echo 'status == -22' >"$route_event/filter" && echo 1 >"$route_event/enable" && echo >"$tracing/trace"
}

# Whether it has, and fio says nothing else. Then the status of remove_and_return() is $raced.
raced=5
a_route_failed()
{
	grep -q resolved_route: "$tracing/trace" && grep -q 'error=Invalid argument' "$ktap_dir/io" &&
		! grep 'error=' "$ktap_dir/io" | grep -qv 'error=Invalid argument' && ! grep -q 'verify:' "$ktap_dir/io"
}

# unwatch_routes: removes the probe of watch_routes, if there is one.
unwatch_routes()
{
	[ -e "$route_event" ] || return 0
	echo 0 >"$route_event/enable"
	echo '-:resolved_route' >>"$tracing/kprobe_events"
}

# removed device|module|netdev on_host|on_target
removed()
{
	if [ "$consumer-$2" != nfs-on_host ]; then
		remove_and_return "$@"
		return
	fi
	# xprtrdma connects again at once. If the device goes between its calls of the CM, it hands the error to the writer:
	# Documentation/upstream.rst.
	local attempt status
	for attempt in 1 2 3 4 5; do
		watch_routes || fail "rdma_resolve_route() cannot be watched"
		(remove_and_return "$@")
		status=$?
		[ "$status" -eq "$raced" ] || return "$status"
		note "attempt $attempt: the I/O failed with EINVAL of rdma_resolve_route()"
	done
	fail "it failed each time"
}

remove_and_return()
{
	local is_quick=1
	[ "$consumer, $1, $2" != 'srp, netdev, on_host' ] || skip "ib_srp crashes, on rdma_rxe as well: srp_remove_work()"
	io_begin 20
	removal_is_quick "$consumer, $1, $2" remove "$@" || is_quick=0
	case $consumer-$2 in
	nfs-* | rds-*)
		bring_back "$@" || return 1
		io_end 120
		if [ "$io_status" -ne 0 ]; then
			if [ "$consumer-$2-$is_quick" = nfs-on_host-1 ] && a_route_failed; then exit "$raced"; fi
			fail "the I/O ended with status $io_status"
		fi
		;;
	srp-* | *-on_host)
		# ib_srp crashes if it is detached before it has given up on the I/O: srp_remove_work() looks for the
		# commands of a SCSI host that is removed.
		io_end 120
		at_host detach
		connected_again "$@" || return 1
		;;
	*)
		# The host tries again and again.
		at_host detach
		io_end 120
		connected_again "$@" || return 1
		;;
	esac
	[ "$is_quick" -eq 1 ] || fail "the removal takes too long, or fails"
}

all='nvmeof nfs rds iser srp'
wanted=${FERROCE_ROWS:-.}
grep -qE "$wanted" <<<"${all// /$'\n'}" || wanted=.
consumers=$(grep -E "$wanted" <<<"${all// /$'\n'}")
ktap_start $(($(wc -w <<<"$consumers") * 8))
for consumer in $consumers; do
	row "$consumer: connected" connected
	for what in device module netdev; do
		row "$consumer: $what removed at the host" removed "$what" on_host
		row "$consumer: $what removed at the target" removed "$what" on_target
	done
	row "$consumer: disconnected" disconnected
done
while read -r removal; do
	note "$removal"
done < <(sort -rn "$ktap_dir/removals")
unwatch_routes
ktap_finish
