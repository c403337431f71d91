#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: retries, time, room in queues: what runs out
# Suites: all
#
# What runs out, and when: the rows are those of the program exhaustion.
set -u
. "$(dirname "$0")/../lib/test.sh"

rows=$("$here/exhaustion" count)
ktap_start "${rows:-1}"
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
route="10.0.0.0/24 dev $(netdev_of n1 "$dev1")"
absorb "${rows:-1}" "$here/exhaustion" -c "ip -n n1 route del $route" \
	-m "ip -n n1 route add $route proto kernel scope link src $address1" "$dev1" "$dev2"
ktap_finish
