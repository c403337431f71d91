#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: storage when network, target, device or module go
# Net: wire
# Runs: never
# Needs: --suite consumers
#
# Storage between two machines over a bad network, and when link, target, device or module go in the middle of I/O. The
# target is on the other machine.
# shellcheck disable=SC2154 # ktap_dir is of ktap.sh
set -u
. "$(dirname "$0")/../lib/consumers.sh"

placement=there
device=fer0 netdev=wire
# How long a removal of a device or of the module may take, in seconds.
limit=$((15 * slowness))

# What lib/$consumer.sh has the host connect with.
connected()
{
	local answer
	case $consumer in
	nvmeof) set -- ",reconnect_delay=1,ctrl_loss_tmo=${1:-600}" ;;
	nfs) set -- "4.2${1:+,soft,timeo=30,retrans=2}" ;;
	*) set -- ;;
	esac
	case $consumer in
	nvmeof) at_target serve "$(target_address)" 128 4096 ;;
	*) answer=$(at_target serve "$(target_address)" 160 "$(host_address)") ;;
	esac || return 1
	[ "$consumer" != srp ] || set -- "$answer"
	at_host attach "$(target_address)" "$@"
}

disconnected()
{
	at_host detach && at_target unserve
}

# traffic_begin SECONDS: in the background, and under way when this returns.
traffic_begin()
{
	at_host traffic "$1" >"$ktap_dir/traffic" 2>&1 &
	traffic=$!
	sleep 3
	kill -0 "$traffic" || fail "no traffic: $(cat "$ktap_dir/traffic")"
}

# traffic_end SECONDS: it ends by itself, with its own status.
traffic_end()
{
	local deadline=$((SECONDS + $1 * slowness))
	while kill -0 "$traffic" 2>/dev/null; do
		[ "$SECONDS" -lt "$deadline" ] || fail "the I/O hangs"
		sleep 0.2
	done
	wait "$traffic"
	traffic_status=$?
	tail -n 5 "$ktap_dir/traffic"
}

# bad_network ARG...: netem, both ways.
bad_network()
{
	tc qdisc add dev "$netdev" root netem "$@" && node2 tc qdisc add dev "$netdev" root netem "$@" || return 1
	at_host traffic 15
	local status=$?
	tc qdisc delete dev "$netdev" root && node2 tc qdisc delete dev "$netdev" root || return 1
	return "$status"
}

link_away()
{
	traffic_begin 30
	ip link set "$netdev" down || return 1
	sleep 5
	ip link set "$netdev" up || return 1
	traffic_end 120
	[ "$traffic_status" -eq 0 ] || fail "the I/O ended with status $traffic_status"
}

# The consumers give up: the I/O gets errors, and does not hang.
target_gone()
{
	connected 5 || return 1
	traffic_begin 60
	node2 ip link set "$netdev" down
	traffic_end 120
	node2 ip link set "$netdev" up
	at_host detach
	at_target unserve
	[ "$traffic_status" -ne 0 ] || fail "the I/O has not noticed"
}

# removal_is_quick NAME COMMAND...
removal_is_quick()
{
	local name=$1 began=${EPOCHREALTIME/./} took status
	shift
	"$@"
	status=$?
	took=$(((${EPOCHREALTIME/./} - began) / 1000))
	echo "$name: $took ms, status $status"
	echo "$took $name" >>"$ktap_dir/removals"
	[ "$status" -eq 0 ] && [ "$took" -le $((limit * 1000)) ]
}

# removed on_host|on_target device|module: in the middle of I/O. The consumers hear of it; then all can be set up again.
removed()
{
	local where=$1 what=$2 ok=0
	traffic_begin 20
	case $what in
	device) removal_is_quick "$consumer, $where, rdma link delete" "$where" rdma link delete "$device" || ok=1 ;;
	module) removal_is_quick "$consumer, $where, rmmod" "$where" rmmod ferroce || ok=1 ;;
	esac
	# The host tries again and again, if it is the target that has gone.
	[ "$where" != on_target ] || at_host detach
	traffic_end 120
	[ "$where" != on_host ] || at_host detach
	at_target unserve
	[ "$what" = device ] || "$where" modprobe ferroce || return 1
	"$where" rdma link add "$device" type ferroce netdev "$netdev" || return 1
	"$where" sh -c "for i in \$(seq 100); do grep -qs '0a01' /sys/class/infiniband/$device/ports/1/gids/* && exit 0
		sleep 0.1; done; exit 1" || fail "no address"
	[ "$ok" -eq 0 ] || fail "the removal takes too long, or fails"
	connected
}

consumers='nvmeof nfs iser srp ninep'
ktap_start $((2 * 6 + 5 * 6))
for consumer in nvmeof nfs; do
	row "$consumer: connected" connected
	row "$consumer: 1 % loss" bad_network loss 1%
	row "$consumer: reordering" bad_network delay 2ms reorder 75% 50%
	row "$consumer: the link is away for 5 s" link_away
	row "$consumer: disconnected" disconnected
	row "$consumer: the target is gone for good" target_gone
done
for consumer in $consumers; do
	row "$consumer: connected" connected
	row "$consumer: device deleted at the host" removed on_host device
	row "$consumer: device deleted at the target" removed on_target device
	row "$consumer: module removed at the host" removed on_host module
	row "$consumer: module removed at the target" removed on_target module
	row "$consumer: disconnected" disconnected
done
note "longest removal: $(sort -n "$ktap_dir/removals" | tail -n 1) (ms)"
ktap_finish
