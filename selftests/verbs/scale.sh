#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: 10,000 queue pairs, 100,000 regions, 1.5 GiB
# Runs: never
# Needs: --mem 4096
#
# As much of everything as a large program has: the rows are those of the program scale, a row of paging with more
# queue pairs than the kernel has workers, and connections through rdma_cm beside rxe's. For a machine with
# 4 GiB: selftests/run --mem 4096 scale. With --rows connections: that row alone, with any memory.
set -u
. "$(dirname "$0")/../lib/test.sh"

stuck='^many queue pairs behind a page that never comes, and another process$'
rate='30 connections at once through rdma_cm, and their rate beside that over rxe'
# Few at once, as a moment in which nothing else wants the machine's CPUs has to be long enough for all of them.
connections=30
times=4
turns=3

# devices TYPE NAME1 NAME2: in the place of those that are there.
devices()
{
	local device
	for device in $(rdma link show | sed -n 's/^link \([^ /]*\)\/.*/\1/p'); do
		rdma link del "$device" || fail "rdma refuses to delete $device"
	done
	in1 rdma link add "$2" type "$1" netdev "$netdev1" || fail "rdma refuses $2"
	in2 rdma link add "$3" type "$1" netdev "$netdev2" || fail "rdma refuses $3"
	gid_index_wait "$2" "$address1" >/dev/null || fail "$2 has no GID"
	gid_index_wait "$3" "$address2" >/dev/null || fail "$3 has no GID"
}

# Prints how long a connection takes with all its steps, in microseconds, as cmtime measures it.
connection_us()
{
	pair 120 7471 cmtime -c "$connections" -- cmtime -c "$connections" -s "$address1" >&2 || return 1
	awk '/^ *full connect/ { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9.]+$/) { us = int($i); exit } }
		END { if (us) print us; exit !us }' "$ktap_dir/client"
}

# least A B: the smaller number, of which A may be none.
least()
{
	if [ -z "$1" ] || [ "$2" -lt "$1" ]; then echo "$2"; else echo "$1"; fi
}

own_devices()
{
	devices "$link_type" "$dev1" "$dev2"
}

# best TYPE NAME1 NAME2 US: the shortest time that a connection takes over such devices, in microseconds, if that is
# less than US.
best()
{
	local time us least=$4
	devices "$1" "$2" "$3" >&2
	for time in $(seq "$times"); do
		us=$(connection_us) || { echo "cmtime failed over $1, time $time" >&2; return 1; }
		least=$(least "$least" "$us")
	done
	echo "$least"
}

# In turn, and the best of each, as what else the machine does only ever makes one slower. Two CPUs that are emulated
# are still too unsteady for a bound: that is one of instructions, in scripts/bench.d/budget.
connections()
{
	local turn own='' other=''
	modprobe rdma_rxe 2>/dev/null || skip "this kernel has no rxe"
	trap own_devices EXIT
	for turn in $(seq "$turns"); do
		own=$(best "$link_type" "$dev1" "$dev2" "$own") || fail "turn $turn"
		other=$(best rxe rxe1 rxe2 "$other") || fail "turn $turn"
	done
	note "the best of $turns turns: $((1000000 / own)) connections in a second ($own us each), over rxe $((1000000 / other)) ($other us each)"
}

many_stuck()
{
	FERROCE_ROWS=$stuck "$here/paging" -q 1025 "$@"
}

rows=$(rows_of "$here/scale") with=$(rows_of many_stuck)
[ -z "${FERROCE_ROWS:-}" ] || with=0
rates=$(grep -cE -e "${FERROCE_ROWS:-.}" <<<"$rate")
ktap_start $((rows + with + rates))
devices_wait
absorb "$rows" "$here/scale" "$dev1" "$dev2"
absorb "$with" many_stuck "$dev1" "$dev2"
[ "$rates" -eq 0 ] || row "$rate" connections
ktap_finish
