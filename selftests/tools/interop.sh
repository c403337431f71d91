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
. "$(dirname "$0")/../lib/two_machines.sh"

device1=${FERROCE_DEV0:-$([ "${FERROCE_DRIVER:-ferroce}" = rxe ] && echo rxe0 || echo fer0)}
device2=${FERROCE_PEER:-rxe0}
address1v6=fd01::1
address2v6=fd01::2

ktap_start 36
gids_find
for direction in here there; do
	if [ "$direction" = here ]; then
		address=$address1 address6=$address1v6
	else
		address=$address2 address6=$address2v6
	fi
	row "server $direction: rping, IPv4" rping_across "$direction" "$address"
	row "server $direction: rping, IPv6" rping_across "$direction" "$address6"
	row "server $direction: ibv_rc_pingpong -c" pingpong_across "$direction" ibv_rc_pingpong
	row "server $direction: ibv_uc_pingpong -c" pingpong_across "$direction" ibv_uc_pingpong
	row "server $direction: ibv_ud_pingpong -c" pingpong_across "$direction" ibv_ud_pingpong
	row "server $direction: ibv_srq_pingpong -c" pingpong_across "$direction" ibv_srq_pingpong
	for program in ib_send_bw ib_read_bw ib_write_bw; do
		events=-e
		[ "$program" != ib_write_bw ] || events=
		for size in 2 65536 1048576; do
			# shellcheck disable=SC2086
			row "server $direction: $program${events:+ $events} -s $size" perftest_across "$direction" \
				"$program" $events -s "$size" -n 50
		done
	done
	row "server $direction: ib_write_bw --write_with_imm -s 65536" perftest_across "$direction" \
		ib_write_bw --write_with_imm -s 65536 -n 50
	row "server $direction: bytes, immediate data, and what atomics answer" data_across "$direction" "$address"
	row "server $direction: ib_atomic_bw -e" perftest_across "$direction" ib_atomic_bw -e -n 100
done
ktap_finish
