#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# What others see of a sender's packets once it has its memory back: the rows are those of the program tenants.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

# shellcheck source-path=SCRIPTDIR source=lib/nvme.sh
. "$here/lib/nvme.sh"

wanted=${FERROCE_ROWS:-.}
rows=$("$here/tenants" -r "$wanted" -n)
disk_rows=$("$here/tenants" -d disk -r "$wanted" -n)
seed=${FERROCE_SEED:-$(date +%s)}
disk_address=10.6.0.1 host_address=10.7.0.2
disk_file=/tmp/tenants.disk

# A disk over NVMe. Its target and its host are in the first network namespace, as the kernel knows no other for them;
# rules make packets from the one address to the other leave the machine's own routes.
# wire_rules FROM TO NETDEV TABLE: the second rule is for the connection manager, which asks for the way back.
wire_rules()
{
	ip rule add pref "$4" iif lo from "$1" to "$2" lookup "$4" &&
		ip rule add pref "$4" oif "$3" from "$1" to "$2" lookup "$4"
}

disk_make()
{
	local name
	nvme_modules && ip netns attach first 1 &&
		ip link add tenants-target type veth peer name tenants-host &&
		namespace_up first tenants-target 4200 "$disk_address" fd06::1 &&
		namespace_up first tenants-host 4200 "$host_address" fd07::2 || return 1
	for name in tenants-target tenants-host; do
		sysctl -qw "net.ipv4.conf.$name.accept_local=1" "net.ipv4.conf.$name.rp_filter=0" || return 1
	done
	ip rule add pref 200 lookup local && ip rule del pref 0 &&
		wire_rules "$host_address" "$disk_address" tenants-host 100 &&
		wire_rules "$disk_address" "$host_address" tenants-target 101 &&
		ip route add "$disk_address" dev tenants-host table 100 &&
		ip route add "$host_address" dev tenants-target table 101 &&
		rdma link add tenants1 type "$link_type" netdev tenants-target &&
		rdma link add tenants2 type "$link_type" netdev tenants-host &&
		gid_index_wait tenants1 "$disk_address" && gid_index_wait tenants2 "$host_address" &&
		ping -qc 1 -I "$host_address" "$disk_address" &&
		truncate -s 1M "$disk_file" && nvme_target_make tenants "$disk_address" "$disk_file" &&
		nvme_connect tenants "$disk_address" ",host_traddr=$host_address" &&
		await $((100 * slowness)) nvme_disk
}

disk_undo()
{
	local name
	nvme_disconnect
	nvme_target_undo tenants
	modprobe -r nvme-rdma nvmet-rdma
	rdma link del tenants2
	rdma link del tenants1
	ip rule add pref 0 lookup local
	for name in 100 100 101 101 200; do
		ip rule del pref "$name"
	done
	ip link del tenants-target && ip netns del first
}

ktap_start $((rows + disk_rows + 2 * (disk_rows > 0)))
modprobe -a tun ifb sch_netem act_mirred nfnetlink_queue nfnetlink_log
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
in2 ping -qc 1 "$address1" >/dev/null
[ "$rows" -eq 0 ] || absorb "$rows" "$here/tenants" -r "$wanted" -s "$seed" \
	"$dev1" n1 "$(netdev_of n1 "$dev1")" "$dev2" n2 "$(netdev_of n2 "$dev2")"
if [ "$disk_rows" -gt 0 ]; then
	row "the NVMe disk is there" disk_make
	absorb "$disk_rows" "$here/tenants" -d "$(nvme_disk)" -r "$wanted" -s "$seed" \
		tenants1 first tenants-target tenants2 first tenants-host "$disk_file"
	row "the NVMe disk goes away" disk_undo
fi
ktap_finish
