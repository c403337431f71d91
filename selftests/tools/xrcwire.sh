#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: XRC between two machines
# Net: wire
# Runs: never
# Needs: --provider ferroce
#
# Programs over XRC between two machines with ferroce, also over a network that loses packets.
set -u
. "$(dirname "$0")/../lib/test.sh"
. "$(dirname "$0")/../lib/two_machines.sh"

device1=fer0 device2=fer0

xsrq_across()
{
	local direction=$1 server=("$device1" -g "$gid1") client=("$device2" -g "$gid2") address=$address1
	shift
	if [ "$direction" = there ]; then
		server=("$device2" -g "$gid2") client=("$device1" -g "$gid1") address=$address2
	fi
	across "$direction" 60 18515 ibv_xsrq_pingpong -d "${server[@]}" "$@" -- \
		ibv_xsrq_pingpong -d "${client[@]}" "$@" "$address" || return 1
	grep -qx success "$ktap_dir/server" || fail "server: no success"
	grep -qx success "$ktap_dir/client" || fail "client: no success"
}

# lossy COMMAND...: every hundredth packet is lost, both ways.
lossy()
{
	local status
	tc qdisc add dev wire root netem loss 1% && node2 tc qdisc add dev wire root netem loss 1% || return 1
	"$@"
	status=$?
	tc qdisc delete dev wire root && node2 tc qdisc delete dev wire root || return 1
	return "$status"
}

ktap_start 15
gids_find
for direction in here there; do
	row "server $direction: ibv_xsrq_pingpong" xsrq_across "$direction" -n 500
	row "server $direction: ibv_xsrq_pingpong -s 100000, 1 % loss" lossy xsrq_across "$direction" -n 50 -s 100000
	for program in ib_send_bw ib_write_bw ib_read_bw; do
		row "server $direction: $program -c XRC -s 65536" perftest_across "$direction" \
			"$program" -c XRC -s 65536 -n 50
	done
	row "server $direction: ib_send_bw -c XRC -q 4 -s 2" perftest_across "$direction" ib_send_bw -c XRC -q 4 -s 2 -n 200
	row "server $direction: ib_atomic_bw -c XRC" perftest_across "$direction" ib_atomic_bw -c XRC -n 100
done
row "1 % loss: ib_write_bw -c XRC" lossy perftest_across here ib_write_bw -c XRC -s 65536 -n 50
ktap_finish
