#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: how fast NVMe and NFS are, beside rdma_rxe
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# How fast storage is over ferroce and over rdma_rxe: in turns, on the same machines. Each rate is the best of several
# rounds, in KiB/s.
# shellcheck disable=SC2154 # ktap_dir is of ktap.sh
set -u
. "$(dirname "$0")/../lib/consumers.sh"

rounds=3
if [ "${FERROCE_NET:-}" = wire ]; then
	placement=there device=fer0 netdev=wire
else
	device=fer0 netdev=loop0
fi

everywhere()
{
	"$@" || return 1
	[ "$placement" = alone ] || node2 "$@"
}

# A device of that driver in the place of the one that is there.
driven_by()
{
	everywhere rdma link delete "$device" &&
		everywhere modprobe "$(if [ "$1" = rxe ]; then echo rdma_rxe; else echo ferroce; fi)" &&
		everywhere rdma link add "$device" type "$1" netdev "$netdev" &&
		everywhere sh -c "for i in \$(seq $((100 * slowness))); do grep -qs 0a0 /sys/class/infiniband/$device/ports/1/gids/* && exit 0
			sleep 0.1; done; exit 1"
}

connected()
{
	case $consumer in
	nvmeof) at_target serve "$(target_address)" 160 4096 && at_host attach "$(target_address)" ,nr_io_queues=2 ;;
	nfs) at_target serve "$(target_address)" 160 && at_host attach "$(target_address)" 4.2 ;;
	esac
}

# measured: writes and reads over each driver, round after round.
measured()
{
	local round driver way rate
	: >"$ktap_dir/rates"
	for round in $(seq "$rounds"); do
		for driver in ferroce rxe; do
			driven_by "$driver" && connected || return 1
			for way in write read; do
				rate=$(at_host rate "$way")
				echo "round $round, $driver, $way: $rate KiB/s"
				[ "${rate:-0}" -gt 0 ] || return 1
				echo "$driver $way $rate" >>"$ktap_dir/rates"
			done
			disconnected || return 1
		done
	done
}

# best DRIVER WAY
best()
{
	sed -n "s/^$1 $2 //p" "$ktap_dir/rates" | sort -n | tail -n 1
}

# at_least PERCENT WAY: of what rdma_rxe has.
at_least()
{
	local ours theirs
	ours=$(best ferroce "$2") theirs=$(best rxe "$2")
	[ -n "$ours" ] || fail "ferroce was not measured"
	[ -n "$theirs" ] || fail "rdma_rxe was not measured"
	note "$consumer, $2: ferroce $ours KiB/s, rdma_rxe $theirs KiB/s: $((100 * ours / theirs)) %"
	[ $((ours * 100)) -ge $((theirs * $1)) ]
}

consumers='nvmeof nfs'
ktap_start $((2 * 3))
for consumer in $consumers; do
	row "$consumer: writes and reads over each driver" measured
	for way in write read; do
		row "$consumer, $way: no slower than over rdma_rxe" at_least 90 "$way"
	done
done
# Later tests of the machine expect it.
driven_by ferroce
ktap_finish
