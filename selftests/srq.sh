#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Shared receive queues: the rows are those of the program srq, and one of a kernel consumer's.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

nvmet=/sys/kernel/config/nvmet

# What the row nvme made, whether it came to its end or not.
nvme_undo()
{
	local controller
	for controller in /sys/class/nvme/nvme*; do
		[ ! -e "$controller/delete_controller" ] || echo 1 >"$controller/delete_controller"
	done
	rm -f "$nvmet/ports/4420/subsystems/srq"
	rmdir "$nvmet/ports/4420" "$nvmet"/subsystems/srq/namespaces/1 "$nvmet/subsystems/srq"
	modprobe -r nvme-rdma nvmet-rdma
	rdma link del srq0
	ip link del srq0
}

# An NVMe target whose queue pairs share their receives, and a host, on one device.
nvme()
{
	local tries disk=
	if ! modprobe nvmet-rdma use_srq=1 srq_size=256 || ! modprobe nvme-rdma; then
		skip "this kernel has no NVMe over RDMA"
	fi
	[ -d "$nvmet" ] || mount -t configfs none /sys/kernel/config
	trap nvme_undo EXIT
	ip link add srq0 type dummy
	ip address add 10.5.0.1/24 dev srq0
	ip link set srq0 up
	rdma link add srq0 type "$link_type" netdev srq0 || fail "no device"
	mkdir "$nvmet/subsystems/srq" "$nvmet/subsystems/srq/namespaces/1" "$nvmet/ports/4420" ||
		fail "no target"
	truncate -s 16M "$ktap_dir/disk"
	echo 1 >"$nvmet/subsystems/srq/attr_allow_any_host"
	echo -n "$ktap_dir/disk" >"$nvmet/subsystems/srq/namespaces/1/device_path"
	echo 1 >"$nvmet/subsystems/srq/namespaces/1/enable"
	echo rdma >"$nvmet/ports/4420/addr_trtype"
	echo ipv4 >"$nvmet/ports/4420/addr_adrfam"
	echo 10.5.0.1 >"$nvmet/ports/4420/addr_traddr"
	echo 4420 >"$nvmet/ports/4420/addr_trsvcid"
	gid_index_wait srq0 10.5.0.1 >/dev/null
	ln -s "$nvmet/subsystems/srq" "$nvmet/ports/4420/subsystems/srq" || fail "the target does not listen"
	echo transport=rdma,traddr=10.5.0.1,trsvcid=4420,nqn=srq,nr_io_queues=2 >/dev/nvme-fabrics ||
		fail "the host does not connect"
	# shellcheck disable=SC2154 # of namespaces.sh
	for tries in $(seq $((100 * slowness))); do
		disk=$(ls /dev/nvme*n1 2>/dev/null) && break
		sleep 0.1
	done
	[ -n "$disk" ] || fail "no disk after $tries tries"
	rdma resource show srq | grep nvmet || fail "the target has no shared receive queue"
	dd if=/dev/urandom of="$ktap_dir/data" bs=1M count=1 status=none
	dd if="$ktap_dir/data" of="$disk" bs=64k oflag=direct status=none || fail "write"
	dd if="$disk" bs=16k count=64 iflag=direct status=none | cmp - "$ktap_dir/data" ||
		fail "other data come back"
}

rows=$("$here/srq" count)
others=1
[ -z "${FERROCE_ROWS:-}" ] || others=0
ktap_start $((${rows:-1} + others))
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
absorb "${rows:-1}" "$here/srq" "$dev1" "$dev2"
[ "$others" = 0 ] || row "receives of a kernel consumer" nvme
ktap_finish
