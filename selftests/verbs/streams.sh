#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: streams and small messages that another CPU takes in; CPUs that go and come
set -u
. "$(dirname "$0")/../lib/test.sh"

rows=$(rows_of "$here/streams")
ktap_start "$rows"
devices_wait
share=/sys/kernel/debug/sched/fair_server/cpu1/runtime
[ ! -w $share ] || shared=$(cat $share)
absorb "$rows" "$here/streams" "$dev1" "$dev2"
# If it ended in the middle of a row.
for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
	[ ! -w "$cpu" ] || [ "$(cat "$cpu")" = 1 ] || echo 1 >"$cpu"
done
[ ! -w $share ] || [ "$(cat $share)" = "$shared" ] || echo "$shared" >$share
ktap_finish
