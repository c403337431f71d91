# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# RNBD, a block device over RTRS: the kernel's server and client. Debian builds neither; the debug kernel has both. See
# lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"

control=/sys/class/rnbd-client/ctl

# serve ADDRESS MiB: at all addresses.
serve()
{
	truncate -s "$2M" "$state/backing" && modprobe loop && losetup /dev/loop0 "$state/backing" &&
		modprobe rtrs-server sess_queue_depth=128 && modprobe rnbd-server
}

unserve()
{
	modprobe -r rnbd-server rtrs-server && losetup -d /dev/loop0 && rm "$state/backing"
}

rnbd_disk()
{
	echo /dev/rnbd0
}

# attach ADDRESS
attach()
{
	modprobe rnbd-client &&
		echo "sessname=ferroce path=ip:$1 device_path=/dev/loop0" >"$control/map_device" &&
		wait_for_disk rnbd_disk
}

detach()
{
	echo normal >/sys/block/rnbd0/rnbd/unmap_device && modprobe -r rnbd-client rtrs-client
}
