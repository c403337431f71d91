#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: queue pairs of one device: bytes, chains of answers, floods
#
# The programs have one device as both. In a namespace of its own, with netdevs that lead nowhere.
set -u
. "$(dirname "$0")/../lib/test.sh"

own=${link_type}loop1
other=${link_type}loop2

devices_up()
{
	ip netns add l1 &&
		ip -n l1 link add loop1 type dummy && ip -n l1 link add loop2 type dummy &&
		namespace_up l1 loop1 4200 10.8.0.1 fd08::1 &&
		ip -n l1 address add 10.8.0.2/24 dev loop1 &&
		namespace_up l1 loop2 4200 10.9.0.1 fd09::1 &&
		ip netns exec l1 rdma link add "$own" type "$link_type" netdev loop1 &&
		ip netns exec l1 rdma link add "$other" type "$link_type" netdev loop2 &&
		gid_index_wait "$own" 10.8.0.1 >/dev/null && gid_index_wait "$own" fd08::1 >/dev/null &&
		gid_index_wait "$own" 10.8.0.2 >/dev/null && gid_index_wait "$other" 10.9.0.1 >/dev/null
}

rows=$(rows_of "$here/loopback")
atomics=$(rows_of "$here/atomics" -c) datagrams=$(rows_of "$here/datagrams")
ktap_start $((rows + 2 * (atomics + datagrams)))
devices_up
absorb "$rows" "$here/loopback" l1 "$own" loop1 10.8.0.1 fd08::1 10.8.0.2 "$other" 10.9.0.1
for family in 4 6; do
	absorb "$atomics" "$here/atomics" -c "-$family" "$own" "$own"
	absorb "$datagrams" "$here/datagrams" "-$family" "$own" "$own"
done
ip netns del l1
ktap_finish
