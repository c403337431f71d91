# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NVMe over RDMA: the kernel's target and host. See lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"
. "$(dirname "${BASH_SOURCE[0]}")/nvme.sh"

name=ferroce-disk

# serve ADDRESS MiB INLINE [ARGUMENT...]: INLINE is in bytes, the arguments are those of nvmet-rdma.
serve()
{
	local address=$1 size=$2 inline=$3
	shift 3
	nvme_modules "$@" && truncate -s "${size}M" "$state/backing" &&
		nvme_target_make "$name" "$address" "$state/backing" "$inline"
}

unserve()
{
	nvme_target_undo "$name"
	rm -f "$state/backing"
	modprobe -r nvmet-rdma nvmet
}

# attach ADDRESS [OPTION]
attach()
{
	modprobe nvme-rdma && nvme_connect "$name" "$@" && wait_for_disk nvme_disk
}

detach()
{
	nvme_disconnect
	modprobe -r nvme-rdma nvme-fabrics
}

# rate read|write [BLOCKS]: KiB/s.
rate()
{
	local disk
	disk=$(the_disk) && fio_rate "$disk" "$@"
}
