#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: packets that nobody should send
#
# From the second namespace to the first one's device. Where coverage is asked for, once more by way of a tap, which is
# the only one that kcov sees.
set -u
. "$(dirname "$0")/../lib/test.sh"

coverage=${FERROCE_COVERAGE:-}
rows=$(rows_of "$here/packetfuzz")

mac_of()
{
	ip -n "$1" -j link show "$2" | sed -n 's/.*"address":"\([^"]*\)".*/\1/p'
}

# A device of its own on a tap. The addresses of the imagined peer are known: nobody is
# there to ask.
tap_up()
{
	modprobe tun
	ip tuntap add mode tap name fuzz0 &&
		ip address add 10.4.0.1/24 dev fuzz0 &&
		ip address add fd04::1/64 dev fuzz0 nodad &&
		ip link set fuzz0 mtu 4200 up &&
		ip neigh add 10.4.0.2 lladdr 02:00:00:00:00:02 nud permanent dev fuzz0 &&
		ip neigh add fd04::2 lladdr 02:00:00:00:00:02 nud permanent dev fuzz0 &&
		rdma link add fuzz0 type "$link_type" netdev fuzz0 &&
		gid_index_wait fuzz0 10.4.0.1 >/dev/null &&
		gid_index_wait fuzz0 fd04::1 >/dev/null
}

tap_down()
{
	rdma link del fuzz0 && ip link del fuzz0
}

if [ -z "$coverage" ]; then
	ktap_start $((rows + 1))
else
	ktap_start $((2 * rows + 3))
fi
devices_wait
# Fragments that wait in vain for others are not to be taken for a leak.
in1 sysctl -qw net.ipv4.ipfrag_time=2 net.ipv6.ip6frag_time=2
objects_note "$ktap_dir/before"
absorb "$rows" env -u FERROCE_COVERAGE "$here/packetfuzz" -n n2 -i "$netdev2" -m "$(mac_of n1 "$netdev1")" \
	"$dev1" "$dev2"
if [ -n "$coverage" ]; then
	row "packets: a device on a tap" tap_up
	absorb "$rows" "$here/packetfuzz" -T -i fuzz0 -m "$(cat /sys/class/net/fuzz0/address)" -d fuzz0 "$dev1" "$dev2"
	row "packets: no device on a tap" tap_down
fi
row "packets: nothing is left" objects_as_before "$ktap_dir/before" $((10 * slowness))
ktap_finish
