#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: shared receive queues: messages, events, sizes, refusals
# Suites: all
set -u
. "$(dirname "$0")/../lib/test.sh"
. "$(dirname "$0")/../lib/nvme.sh"

# What the row nvme made, whether it came to its end or not.
nvme_undo()
{
	nvme_disconnect
	nvme_target_undo srq
	modprobe -r nvme-rdma nvmet-rdma
	rdma link del srq0
	ip link del srq0
}

# An NVMe target whose queue pairs share their receives, and a host, on one device.
nvme()
{
	local disk
	nvme_modules use_srq=1 srq_size=256 || skip "this kernel has no NVMe over RDMA"
	trap nvme_undo EXIT
	ip link add srq0 type dummy
	ip address add 10.5.0.1/24 dev srq0
	ip link set srq0 up
	rdma link add srq0 type "$link_type" netdev srq0 || fail "no device"
	gid_index_wait srq0 10.5.0.1 >/dev/null
	truncate -s 16M "$ktap_dir/disk"
	nvme_target_make srq 10.5.0.1 "$ktap_dir/disk" || fail "no target"
	nvme_connect srq 10.5.0.1 || fail "the host does not connect"
	disk=$(await $((100 * slowness)) nvme_disk) || fail "no disk"
	rdma resource show srq | grep nvmet || fail "the target has no shared receive queue"
	dd if=/dev/urandom of="$ktap_dir/data" bs=1M count=1 status=none
	dd if="$ktap_dir/data" of="$disk" bs=64k oflag=direct status=none || fail "write"
	dd if="$disk" bs=16k count=64 iflag=direct status=none | cmp - "$ktap_dir/data" ||
		fail "other data come back"
}

rows=$(rows_of "$here/srq")
others=1
[ -z "${FERROCE_ROWS:-}" ] || others=0
ktap_start $((rows + others))
devices_wait
absorb "$rows" "$here/srq" "$dev1" "$dev2"
[ "$others" = 0 ] || row "receives of a kernel consumer" nvme
ktap_finish
