#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# As much of everything as a large program has: the rows are those of the program scale, a row of paging with more
# queue pairs than the kernel has workers, and connections through rdma_cm beside rxe's. For a machine with
# 4 GiB: selftests/run --mem 4096 scale
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

stuck='^many queue pairs behind a page that never comes, and another process$'
connections=300
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

# What cmtime says a connection takes, in microseconds, with all that belongs to it.
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

# In turn, and the best of each: what else the machine does only ever makes one slower.
connections()
{
	local turn us own='' other=''
	modprobe rdma_rxe 2>/dev/null || skip "this kernel has no rxe"
	trap own_devices EXIT
	for turn in $(seq "$turns"); do
		own_devices
		us=$(connection_us) || fail "cmtime failed over ferroce, turn $turn"
		own=$(least "$own" "$us")
		devices rxe rxe1 rxe2
		us=$(connection_us) || fail "cmtime failed over rxe, turn $turn"
		other=$(least "$other" "$us")
	done
	note "connections in a second, of $connections at once: $((1000000 / own)) ($own us), with rxe $((1000000 / other)) ($other us)"
	[ "$own" -le $((2 * other)) ] || fail "that is less than half as many"
}

netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
rows=$("$here/scale" -r "${FERROCE_ROWS:-.}" -n)
with=$("$here/paging" -r "$stuck" -n)
[ -z "${FERROCE_ROWS:-}" ] || with=0
ktap_start $((rows + 2 * with))
[ "$rows" -eq 0 ] || absorb "$rows" "$here/scale" -r "${FERROCE_ROWS:-.}" "$dev1" "$dev2"
if [ "$with" -gt 0 ]; then
	absorb "$with" "$here/paging" -r "$stuck" -q 1025 -N n1 -i "$netdev1" "$dev1" "$dev2"
	row "connections in a second, at least half as many as over rxe" connections
fi
ktap_finish
