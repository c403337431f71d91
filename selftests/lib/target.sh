# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernel's SCSI target over configfs, with a disk in memory: what iSER and SRP export.

core=/sys/kernel/config/target/core

# target_disk_make MiB
target_disk_make()
{
	modprobe target_core_mod || return 1
	[ -d /sys/kernel/config/target ] || mount -t configfs none /sys/kernel/config
	mkdir -p "$core/rd_mcp_0/disk" &&
		echo "rd_pages=$(($1 * 256))" >"$core/rd_mcp_0/disk/control" &&
		echo 1 >"$core/rd_mcp_0/disk/enable"
}

target_disk_undo()
{
	rmdir "$core/rd_mcp_0/disk" "$core/rd_mcp_0"
}

# The disk that a host has of it.
target_disk()
{
	local device
	for device in /sys/block/sd*; do
		if grep -q RAMDISK "$device/device/model" 2>/dev/null; then
			echo "/dev/${device##*/}"
			return 0
		fi
	done
	return 1
}
