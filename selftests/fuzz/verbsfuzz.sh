#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: verbs by many processes that are killed
set -u
. "$(dirname "$0")/../lib/test.sh"

# Queue pair 1 of a device keeps the last address handle that it has sent with: from here on both have one. Nobody
# listens.
first_messages()
{
	in2 timeout $((30 * slowness)) rping -c -a "$address1" -C 1 >"$ktap_dir/rping" 2>&1
}

rows=$(rows_of "$here/verbsfuzz")
ktap_start $((rows + 1))
devices_wait
modprobe rdma_ucm
# The list of processes would fill the kernel's log.
sysctl -qw vm.oom_dump_tasks=0
first_messages
objects_note "$ktap_dir/before"
absorb "$rows" "$here/verbsfuzz" "$dev1" "$dev2" n1 n2
# A message of rdma_cm that nobody answers has an address handle for as long as it is repeated: 16 times 4.3 s.
row "verbs: nothing is left" objects_as_before "$ktap_dir/before" $((120 * slowness))
ktap_finish
