#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# nvme_traffic.sh NAME ADDRESS DIRECTORY [ROUNDS]: a host of the target NAME, which writes and reads again, until it has
# done so ROUNDS times, or for ever. It connects when it is not connected, and does so again when its device was lost.
#
# Prints "moved" for each round, and "wrong" if other bytes come back than were written; ends with 1 then.
export here
here=$(dirname "$(readlink -f "$0")")
. "$here/nvme.sh"
directory=$3 left=${4:-0}

# While nvme-rdma makes the first connection of a controller, it ignores the removal of its device and waits for an
# answer. A signal ends that wait. nvme-rdma then destroys the rdma_cm id before the queue pair. If the device, of any
# driver, is removed in between, ib_core warns, and a completion queue is left. So storm.py takes this lock first.
connect()
{
	flock "$directory/connecting" timeout $((6 * ${FERROCE_SLOWNESS:-1})) \
		bash -c '. "$here/nvme.sh"; nvme_connect "$@"' connect "$@"
}

while :; do
	if ! disk=$(nvme_disk); then
		# It must not hold requests for long when its device has gone.
		connect "$1" "$2" ,reconnect_delay=1,ctrl_loss_tmo=6,fast_io_fail_tmo=2 2>/dev/null
		sleep 0.5
		continue
	fi
	head -c 65536 /dev/urandom >"$directory/written"
	at=$((RANDOM % 32))
	if dd if="$directory/written" of="$disk" bs=32k seek=$((2 * at)) oflag=direct conv=nocreat status=none &&
		dd if="$disk" of="$directory/read" bs=16k skip=$((4 * at)) count=4 iflag=direct status=none &&
		# A disk that has gone since it was opened reads as if it ended.
		[ "$(stat -c %s "$directory/read")" -eq 65536 ]; then
		if ! cmp "$directory/written" "$directory/read"; then
			echo "wrong: the disk gives other bytes than it was given"
			exit 1
		fi
		echo moved
		left=$((left - 1))
		[ "$left" -ne 0 ] || exit 0
	fi 2>/dev/null
	sleep 0.5
done
