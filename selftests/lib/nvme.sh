# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NVMe over RDMA: a target over configfs, and a host.

nvme_targets=/sys/kernel/config/nvmet

# nvme_modules [ARGUMENT...]: loads what it takes; the arguments are those of nvmet-rdma.
nvme_modules()
{
	modprobe nvmet-rdma "$@" && modprobe nvme-rdma || return 1
	[ -d "$nvme_targets" ] || mount -t configfs none /sys/kernel/config
}

# nvme_target_make NAME ADDRESS FILE [INLINE]: exports FILE, and listens on port 4420 of ADDRESS. Writes of more than
# INLINE bytes (4096) are read by the target.
nvme_target_make()
{
	local subsystem=$nvme_targets/subsystems/$1 port=$nvme_targets/ports/4420
	mkdir "$subsystem" "$subsystem/namespaces/1" "$port" || return 1
	echo 1 >"$subsystem/attr_allow_any_host" &&
		echo -n "$3" >"$subsystem/namespaces/1/device_path" &&
		echo 1 >"$subsystem/namespaces/1/enable" &&
		echo rdma >"$port/addr_trtype" &&
		echo ipv4 >"$port/addr_adrfam" &&
		echo "$2" >"$port/addr_traddr" &&
		echo 4420 >"$port/addr_trsvcid" &&
		echo "${4:-4096}" >"$port/param_inline_data_size" &&
		ln -s "$subsystem" "$port/subsystems/$1"
}

# nvme_target_undo NAME: whatever there is of it.
nvme_target_undo()
{
	rm -f "$nvme_targets/ports/4420/subsystems/$1"
	rmdir "$nvme_targets/ports/4420" "$nvme_targets/subsystems/$1"/namespaces/1 "$nvme_targets/subsystems/$1"
}

# nvme_connect NAME ADDRESS [OPTION]: OPTION is a list of further ones, with a comma before each.
nvme_connect()
{
	echo "transport=rdma,traddr=$2,trsvcid=4420,nqn=$1,nr_io_queues=2${3:-}" >/dev/nvme-fabrics
}

nvme_disconnect()
{
	local controller
	for controller in /sys/class/nvme/nvme*; do
		[ ! -e "$controller/delete_controller" ] || echo 1 >"$controller/delete_controller"
	done
}

# Prints the disk of the only host, if it is there.
nvme_disk()
{
	ls /dev/nvme*n1 2>/dev/null
}
