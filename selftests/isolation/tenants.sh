#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: what others see of memory that a completion has given back
set -u
. "$(dirname "$0")/../lib/test.sh"
. "$(dirname "$0")/../lib/nvme.sh"

rows=$(rows_of "$here/tenants") disk_rows=$(rows_of "$here/tenants" -d disk)
disk_address=10.6.0.1 host_address=10.7.0.2

# wire_rules FROM TO NETDEV TABLE: the second rule is for rdma_cm, which looks up the reverse route.
wire_rules()
{
	ip rule add pref "$4" iif lo from "$1" to "$2" lookup "$4" &&
		ip rule add pref "$4" oif "$3" from "$1" to "$2" lookup "$4"
}

# The kernel's NVMe target and host use the initial network namespace only, called first here. Policy routing sends
# packets between their two addresses over a pair of veths instead of loopback.
disk_make()
{
	local name
	nvme_modules && ip netns attach first 1 &&
		ip link add target type veth peer name host &&
		namespace_up first target 4200 "$disk_address" fd06::1 &&
		namespace_up first host 4200 "$host_address" fd07::2 || return 1
	for name in target host; do
		sysctl -qw "net.ipv4.conf.$name.accept_local=1" "net.ipv4.conf.$name.rp_filter=0" || return 1
	done
	ip rule add pref 200 lookup local && ip rule del pref 0 &&
		wire_rules "$host_address" "$disk_address" host 100 &&
		wire_rules "$disk_address" "$host_address" target 101 &&
		ip route add "$disk_address" dev host table 100 &&
		ip route add "$host_address" dev target table 101 &&
		rdma link add nvme_target type "$link_type" netdev target &&
		rdma link add nvme_host type "$link_type" netdev host &&
		gid_index_wait nvme_target "$disk_address" && gid_index_wait nvme_host "$host_address" &&
		ping -qc 1 -I "$host_address" "$disk_address" &&
		truncate -s 1M "$disk_file" && nvme_target_make tenants "$disk_address" "$disk_file" &&
		nvme_connect tenants "$disk_address" \
			",host_traddr=$host_address,fast_io_fail_tmo=$((5 * slowness)),ctrl_loss_tmo=$((30 * slowness))" &&
		await $((600 * slowness)) nvme_disk
}

# All of it, whatever fails.
disk_undo()
{
	local failed=0 name
	# Of a row that has died.
	nft delete table ip tenants 2>/dev/null
	nvme_disconnect
	nvme_target_undo tenants || failed=1
	! nvme_disk || failed=1
	await $((100 * slowness)) modprobe -r nvme-rdma nvmet-rdma || failed=1
	rdma link del nvme_host || failed=1
	rdma link del nvme_target || failed=1
	ip rule add pref 0 lookup local || failed=1
	for name in 100 100 101 101 200; do
		ip rule del pref "$name" || failed=1
	done
	ip link del target || failed=1
	ip netns del first || failed=1
	return "$failed"
}

ktap_start $((rows + disk_rows + 2 * (disk_rows > 0)))
disk_file=$ktap_dir/disk
modprobe -a tun ifb sch_netem act_mirred nfnetlink_queue nfnetlink_log
devices_wait
in2 ping -qc 1 "$address1" >/dev/null
absorb "$rows" "$here/tenants" "$dev1" n1 "$netdev1" "$dev2" n2 "$netdev2" -
if [ "$disk_rows" -gt 0 ]; then
	row "the NVMe disk is there" disk_make
	absorb "$disk_rows" "$here/tenants" -d "$(nvme_disk)" \
		nvme_target first target nvme_host first host "$disk_file"
	row "the NVMe disk goes away" disk_undo
fi
ktap_finish
