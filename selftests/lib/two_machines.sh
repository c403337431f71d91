# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Programs on two machines, `scripts/vm --nodes 2`: this one is 10.1.0.1, and `node2 COMMAND` runs on the other,
# 10.1.0.2. The selftest sets device1 and device2, then calls gids_find.
# shellcheck disable=SC2154 # device1 and device2; slowness is of namespaces.sh

address1=10.1.0.1
address2=10.1.0.2

# index NODE-COMMAND DEVICE PATTERN: the RoCE v2 GID that ends so.
index()
{
	local run=$1 device=$2 pattern=$3
	# shellcheck disable=SC2016
	$run sh -c 'cd /sys/class/infiniband/$0/ports/1/gids && for i in 0 1 2 3 4 5 6 7; do
		grep -q "$1" $i && grep -q v2 ../gid_attrs/types/$i && echo $i && break; done' "$device" "$pattern"
}

# across DIRECTION SECONDS PORT SERVER... -- CLIENT...: they may take $slowness times as long.
# The server on this machine and the client on the other (here), or the reverse (there), once the port is listened on.
across()
{
	local direction=$1 seconds=$(($2 * slowness)) port=$3 server=() to_server="env" to_client=node2 pid
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
	# Nobody is left to end it. A program on the other machine ends with the one that asked for it.
	[ "$client_status" -eq 0 ] || kill "$pid" 2>/dev/null
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
# perftest's timeout of 67 ms is less than two checked machines need for the packets of one window. Eight times that is
# less than a machine may stand still whose host gives it no time.
perftest_across()
{
	local direction=$1 program=$2 server client address found
	shift 2
	if [ "$direction" = here ]; then
		server=("$device1" -x "$gid1") client=("$device2" -x "$gid2") address=$address1
	else
		server=("$device2" -x "$gid2") client=("$device1" -x "$gid1") address=$address2
	fi
	across "$direction" 90 18515 "$program" -F -d "${server[@]}" -u 18 "$@" -- \
		"$program" -F -d "${client[@]}" -u 18 "$@" "$address" || return 1
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

# perftest compares nothing.
data_across()
{
	# shellcheck disable=SC2154 # of test.sh
	across "$1" 60 7174 "$here/interop_data" -s -a "$2" -- "$here/interop_data" -a "$2" || return 1
	grep -qx 'all is as expected' "$ktap_dir/client" && grep -qx 'all is as expected' "$ktap_dir/server"
}

gids_find()
{
	gid1=$(index env "$device1" ffff:0a01)
	gid2=$(index node2 "$device2" ffff:0a01)
}
