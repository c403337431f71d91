#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: rdma link add where it cannot work
# Net: none
#
# `rdma link add` refuses what cannot work: with an errno that tells the causes apart,
# a line in the kernel log that says why, and without leaving anything behind.
set -u
. "$(dirname "$0")/../lib/test.sh"

ns=refusals
# A netdev that is not there, of a wrong type, a VLAN, in use, a name in use, and a port in use.
causes=6

in_ns()
{
	ip netns exec "$ns" "$@"
}

# What must be the same before and after a refusal.
inventory()
{
	ls /sys/class/infiniband
	[ ! -r "$live_objects" ] || cat "$live_objects"
	awk -v module="$module" '$1 == module { print "users", $3 }' /proc/modules
	in_ns ss -Hulna 'sport = :4791'
}

is_inventory()
{
	[ "$(inventory)" = "$1" ]
}

# refused NETDEV ERRNO [LINES [NAME]]: adding a device there fails with that errno, by name,
# and the module says so in that many lines. The caller's name stands for the cause.
refused()
{
	local netdev=$1 wanted=$2 lines=${3:-1} name=${4:-refused0} before after out words said
	words=$(python3 -c 'import errno, os, sys; print(os.strerror(getattr(errno, sys.argv[1])))' "$wanted")
	before=$(inventory)
	kernel_log_mark
	if out=$(in_ns rdma link add "$name" type "$link_type" netdev "$netdev" 2>&1); then
		rdma link del "$name"
		fail "it is accepted"
	fi
	echo "$out"
	# shellcheck disable=SC2154 # of ktap.sh
	echo "${FUNCNAME[1]}: ${out##*: }" >>"$ktap_dir/answers"
	grep -qF "$words" <<<"$out" || fail "the error is not $wanted ($words)"
	said=$(kernel_log_since | grep '^ferroce: ')
	echo "kernel log: $said"
	if [ "$driver" = ferroce ]; then
		[ "$(grep -c . <<<"$said")" -eq "$lines" ] || fail "$lines lines of the module were expected"
	fi
	after=$(inventory)
	if [ "$before" != "$after" ]; then
		diff <(echo "$before") <(echo "$after")
		fail "something is left behind"
	fi
	kernel_log_check
}

unknown_netdev()
{
	# The core looks the name up: the module is never asked, and says nothing.
	refused nosuch0 ENODEV 0
}

wrong_type()
{
	in_ns ip link add monitor0 type nlmon || skip "the kernel has no nlmon"
	in_ns ip link set monitor0 up
	refused monitor0 "$error_type"
}

vlan_netdev()
{
	in_ns ip link add link plain0 name vlan0 type vlan id 5 || skip "the kernel has no VLANs"
	in_ns ip link set vlan0 up
	refused vlan0 "$error_vlan"
}

second_device()
{
	in_ns rdma link add first0 type "$link_type" netdev plain0 || fail "the first one is refused"
	(refused plain0 EEXIST)
	local status=$?
	rdma link del first0 || fail "the first one does not go away"
	return "$status"
}

second_name()
{
	local status
	in_ns ip link add plain1 up type dummy || return 1
	in_ns rdma link add first0 type "$link_type" netdev plain0 || fail "the first one is refused"
	(refused plain1 ENFILE 1 first0)
	status=$?
	rdma link del first0 || fail "the first one does not go away"
	in_ns ip link del plain1
	return "$status"
}

# socket_holds FAMILY: a socket of ours has UDP port 4791.
socket_holds()
{
	local pid status tries
	ip netns exec "$ns" python3 -c "
import signal, socket
s = socket.socket(socket.$1, socket.SOCK_DGRAM)
if socket.$1 == socket.AF_INET6:
    # It leaves IPv4 alone.
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
s.bind(('::' if socket.$1 == socket.AF_INET6 else '0.0.0.0', 4791))
signal.pause()" &
	pid=$!
	# shellcheck disable=SC2154 # of namespaces.sh
	for tries in $(seq $((50 * slowness))); do
		in_ns ss -Hulna 'sport = :4791' | grep -q . && break
		sleep 0.1
	done
	echo "bound after $tries tries"
	(refused plain0 EADDRINUSE)
	status=$?
	kill "$pid"
	wait "$pid"
	return "$status"
}

# After all of them, the same netdev still takes a device.
accepted()
{
	in_ns rdma link add first0 type "$link_type" netdev plain0 || fail "it is refused"
	rdma link show first0/1 | grep -q 'state ACTIVE' || fail "it is not active"
	rdma link del first0 || fail "it does not go away"
	objects_gone $((5 * slowness))
}

# Of what `rdma` has said in the rows above: a cause that was not tried is missed.
errors_differ()
{
	local answers
	answers=$(sort -u "$ktap_dir/answers")
	echo "$answers"
	[ "$(sed 's/: .*//' <<<"$answers" | sort -u | wc -l)" -eq "$causes" ] || fail "$causes causes were expected"
	[ "$(wc -l <<<"$answers")" -eq "$causes" ] || fail "a cause has two answers"
	[ -z "$(sed 's/^[^:]*: //' <<<"$answers" | sort | uniq -d)" ] || fail "two causes share an answer"
}

case $driver in
ferroce)
	error_type=EPROTONOSUPPORT
	error_vlan=EOPNOTSUPP
	;;
rxe)
	# It takes any type, too.
	error_type=EINVAL
	error_vlan=EPERM
	;;
esac

ktap_start 10
module_load
ip netns add "$ns"
in_ns ip link add plain0 type dummy
in_ns ip address add 10.8.0.1/24 dev plain0
in_ns ip link set plain0 up
# The netdev goes while its device is made, or as soon as it is there, a hundred times. A device of the round before may
# still be there, so not each round makes one.
netdev_comes_and_goes()
{
	local round made=0
	for round in $(seq 100); do
		in_ns ip link add gone0 up type dummy || return 1
		in_ns rdma link add gone0 type "$link_type" netdev gone0 >"$ktap_dir/add" 2>&1 &
		if ((round % 2)); then
			# Until before the module is asked, or until the device is there, or in between.
			sleep "$(printf 0.%03d $((round % 50)))"
		else
			wait $! && made=$((made + 1))
		fi
		in_ns ip link del gone0 || fail "round $round: the netdev stays"
		wait $!
	done
	echo "$made devices were made"
	[ "$made" -gt 0 ] || fail "no device was ever made: $(cat "$ktap_dir/add")"
}

waits_in_vain()
{
	kernel_log_since | grep -c 'is still in use while its netdev goes'
}

# Neither stays, and the netdev does not wait in vain. If the host gives a CPU of the machine no time, clients of a device may
# take the second that a netdev waits: then once more.
netdev_goes()
{
	local before first waits
	before=$(inventory)
	kernel_log_mark
	netdev_comes_and_goes || return 1
	first=$(waits_in_vain)
	[ "$first" -eq 0 ] || netdev_comes_and_goes || return 1
	await $((100 * slowness)) test ! -e /sys/class/infiniband/gone0 || fail "the device stays"
	waits=$(waits_in_vain)
	[ "$waits" -eq "$first" ] || fail "$first netdevs waited in vain, and then $((waits - first))"
	await $((100 * slowness)) is_inventory "$before" || fail "something is left behind"
	kernel_log_check
}

row "an unknown netdev" unknown_netdev
row "a netdev of a wrong type" wrong_type
row "a VLAN netdev" vlan_netdev
row "a second device on the same netdev" second_device
row "a device of that name" second_name
row "the UDP port is taken over IPv4" socket_holds AF_INET
row "the UDP port is taken over IPv6" socket_holds AF_INET6
row "each cause has an errno of its own" errors_differ
row "a netdev that goes while its device is made" netdev_goes
row "a device is accepted afterwards" accepted
ip netns del "$ns"
ktap_finish
