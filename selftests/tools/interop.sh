#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: two machines: ferroce and rxe
# Net: wire-rxe
#
# Two machines with different drivers on one wire, `scripts/vm --nodes 2 --driver
# ferroce,rxe`: this one is 10.1.0.1, and `node2 COMMAND` runs on the other, 10.1.0.2.
set -u
. "$(dirname "$0")/../lib/test.sh"

device1=${FERROCE_DEV0:-$([ "${FERROCE_DRIVER:-ferroce}" = rxe ] && echo rxe0 || echo fer0)}
device2=${FERROCE_PEER:-rxe0}
address1=10.1.0.1
address2=10.1.0.2
address1v6=fd01::1
address2v6=fd01::2

# perftest's timeout of 67 ms is less than two checked machines need for the packets of one window.
patience=()
[ "${FERROCE_KERNEL:-stock}" != debug ] || patience=(-u 18)

# index NODE-COMMAND DEVICE PATTERN: the RoCE v2 GID that ends so.
index()
{
	local run=$1 device=$2 pattern=$3
	# shellcheck disable=SC2016
	$run sh -c 'cd /sys/class/infiniband/$0/ports/1/gids && for i in 0 1 2 3 4 5 6 7; do
		grep -q "$1" $i && grep -q v2 ../gid_attrs/types/$i && echo $i && break; done' "$device" "$pattern"
}

# across DIRECTION SECONDS PORT SERVER... -- CLIENT...
# The server on this machine and the client on the other (here), or the reverse (there), once the port is listened on.
across()
{
	local direction=$1 seconds=$2 port=$3 server=() to_server="env" to_client=node2 pid
	local server_status client_status
	shift 3
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	[ "$direction" = here ] || { to_server=node2; to_client="env"; }
	"$to_server" timeout -k 2 "$seconds" "${server[@]}" >"$ktap_dir/server" 2>"$ktap_dir/server.errors" &
	pid=$!
	await_listener "$to_server" "$port" "$pid"
	"$to_client" timeout -k 2 "$seconds" "$@" >"$ktap_dir/client" 2>"$ktap_dir/client.errors"
	client_status=$?
	[ "$client_status" -eq 0 ] || "$to_server" pkill -x "${server[0]}"
	wait "$pid"
	server_status=$?
	sed 's/^/server: /' "$ktap_dir/server" "$ktap_dir/server.errors"
	sed 's/^/client: /' "$ktap_dir/client" "$ktap_dir/client.errors"
	echo "server: status $server_status, client: status $client_status"
	[ "$server_status" -eq 0 ] && [ "$client_status" -eq 0 ]
}

rping_across()
{
	local direction=$1 address=$2 lines
	across "$direction" 60 7174 rping -s -a "$address" -C 100 -v -V -S 5000 -- \
		rping -c -a "$address" -C 100 -v -V -S 5000 >"$ktap_dir/across"
	local status=$?
	grep -v 'ping data: ' "$ktap_dir/across"
	[ "$status" -eq 0 ] || return 1
	lines=$(grep -c 'ping data: ' "$ktap_dir/client")
	[ "$lines" -eq 100 ] || fail "the client shows $lines messages of 100"
}

# perftest_across DIRECTION PROGRAM ARG...
perftest_across()
{
	local direction=$1 program=$2 server client address found
	shift 2
	if [ "$direction" = here ]; then
		server=("$device1" -x "$gid1") client=("$device2" -x "$gid2") address=$address1
	else
		server=("$device2" -x "$gid2") client=("$device1" -x "$gid1") address=$address2
	fi
	across "$direction" 90 18515 "$program" -F -d "${server[@]}" "${patience[@]}" "$@" -- \
		"$program" -F -d "${client[@]}" "${patience[@]}" "$@" "$address" || return 1
	found=$(grep -cE '^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+' "$ktap_dir/client")
	[ "$found" -ge 1 ] || fail "no row of figures"
}

pingpong_across()
{
	if [ "$1" = here ]; then
		across here 60 18515 "$2" -d "$device1" -g "$gid1" -c -- "$2" -d "$device2" -g "$gid2" -c "$address1"
	else
		across there 60 18515 "$2" -d "$device2" -g "$gid2" -c -- "$2" -d "$device1" -g "$gid1" -c "$address2"
	fi || return 1
	! grep -qi 'invalid data' "$ktap_dir/client" "$ktap_dir/server" || fail "wrong data"
	grep -q 'iters in' "$ktap_dir/client" || fail "no result"
}

peer_log()
{
	local log
	log=$(node2 dmesg --notime) || fail "the peer does not answer"
	kernel_log_scan <<<"$log"
}

ktap_start 29
gid1=$(index env "$device1" ffff:0a01)
gid2=$(index node2 "$device2" ffff:0a01)
for direction in here there; do
	if [ "$direction" = here ]; then
		address=$address1 address6=$address1v6
	else
		address=$address2 address6=$address2v6
	fi
	row "server $direction: rping, IPv4" rping_across "$direction" "$address"
	row "server $direction: rping, IPv6" rping_across "$direction" "$address6"
	row "server $direction: ibv_rc_pingpong -c" pingpong_across "$direction" ibv_rc_pingpong
	row "server $direction: ibv_ud_pingpong -c" pingpong_across "$direction" ibv_ud_pingpong
	for program in ib_send_bw ib_read_bw ib_write_bw; do
		events=-e
		[ "$program" != ib_write_bw ] || events=
		for size in 2 65536 1048576; do
			# shellcheck disable=SC2086
			row "server $direction: $program${events:+ $events} -s $size" perftest_across "$direction" \
				"$program" $events -s "$size" -n 50
		done
	done
	row "server $direction: ib_atomic_bw -e" perftest_across "$direction" ib_atomic_bw -e -n 100
done
row "the peer's kernel log" peer_log
ktap_finish
