#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: raw packet queue pairs: whole Ethernet frames
#
# The program frames takes the netdev away in the end, so it gets namespaces and a device of its own.
set -u
. "$(dirname "$0")/../lib/test.sh"

own=${link_type}frames
ends_up()
{
	modprobe tun
	ip netns add f1 && ip netns add f2 &&
		ip link add frames1 netns f1 type veth peer name frames2 netns f2 &&
		namespace_up f1 frames1 1500 10.7.0.1 fd07::1 &&
		namespace_up f2 frames2 9100 10.7.0.2 fd07::2 &&
		ip netns exec f1 rdma link add "$own" type "$link_type" netdev frames1 &&
		gid_index_wait "$own" 10.7.0.1 >/dev/null
}

rows=$(rows_of "$here/frames")
ktap_start "$rows"
ends_up
absorb "$rows" "$here/frames" "$own" f1 frames1 f2 frames2
ip netns del f1
ip netns del f2
ktap_finish
