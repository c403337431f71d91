#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: random actions upon devices, netdevs, namespaces, the module under all traffic
# Net: none
#
# A storm: random actions upon devices, netdevs, namespaces and the module, one after the other, while traffic of all
# kinds runs. `--seed` says which; afterwards everything has to work, to unload, and to leave nothing behind. Needs a VM
# without devices: it makes its own. soak.sh runs it with STORM_IS_SOAK.
set -u
. "$(dirname "$0")/../lib/test.sh"
. "$(dirname "$0")/../lib/nvme.sh"

nvme_parameters=/sys/module/nvme_core/parameters

nvme_undo()
{
	local directory=$1 name
	nvme_disconnect
	nvme_target_undo storm
	for name in admin_timeout io_timeout; do
		[ ! -e "$directory/$name" ] || cat "$directory/$name" >"$nvme_parameters/$name"
	done
	modprobe -r nvme-rdma nvmet-rdma
}

# What storm.py asks for: the target of its NVMe traffic, with its files in a directory, and its end.
case ${1:-} in
target)
	nvme_modules || exit
	truncate -s 16M "$2/disk"
	nvme_target_make storm 10.5.0.1 "$2/disk" || exit
	# To end a connection takes as long as a request whose answer is lost: by default a minute.
	for name in admin_timeout io_timeout; do
		cat "$nvme_parameters/$name" >"$2/$name"
		echo $((3 * slowness)) >"$nvme_parameters/$name" || exit
	done
	exit
	;;
disconnect)
	nvme_disconnect
	exit
	;;
undo)
	nvme_undo "$2"
	exit
	;;
esac

seed=${FERROCE_SEED:-$(date +%s)}
seconds=${FERROCE_SECONDS:-60}
processes=/sys/fs/cgroup/storm

# storm.py and all its traffic are in a control group: so all of them can be ended.
storm()
(
	echo 0 >"$processes/cgroup.procs" &&
		exec python3 "$here/lib/storm.py" ${STORM_IS_SOAK:+-s} "$seed" "$seconds" "$slowness" "$here" "$ktap_dir/storm"
)

processes_end()
{
	[ -d "$processes" ] || return 0
	echo 1 >"$processes/cgroup.kill" && await $((150 * slowness)) rmdir "$processes" 2>/dev/null
}

devices_gone()
{
	local device
	for device in /sys/class/infiniband/*; do
		[ ! -e "$device" ] || rdma link del "${device##*/}"
	done
	! ls /sys/class/infiniband/* >/dev/null 2>&1
}

# Undoes what storm.py has not undone: it may have been killed.
settings_restore()
{
	local cpu
	processes_end
	for cpu in /sys/devices/system/cpu/cpu*/online; do
		echo 1 >"$cpu"
	done
	echo "$huge_pages" >/proc/sys/vm/nr_hugepages
	[ ! -d "$nvme_targets/subsystems/storm" ] || nvme_undo "$ktap_dir/storm"
	ip -all netns delete
	await $((150 * slowness)) devices_gone
	ip link del disk0
	await $((150 * slowness)) rdma system set netns shared
} >/dev/null 2>&1

settings()
{
	local name
	echo "huge pages: $(cat /proc/sys/vm/nr_hugepages)"
	echo "CPUs: $(cat /sys/devices/system/cpu/online)"
	echo "RDMA: $(rdma system show netns)"
	echo "namespaces: $(ip netns list)"
	echo "devices: $(ls /sys/class/infiniband)"
	echo "netdevs: $(ls -d /sys/class/net/disk0 2>/dev/null)"
	for name in admin_timeout io_timeout; do
		echo "NVMe, $name: $(cat "$nvme_parameters/$name" 2>/dev/null)"
	done
	echo "NVMe: $(ls "$nvme_targets/subsystems" 2>/dev/null)"
	echo "processes: $(cat "$processes/cgroup.procs" 2>/dev/null)"
}

settings_are_as_before()
{
	settings | diff "$ktap_dir/settings" -
}

nothing_left()
{
	objects_gone $((10 * slowness))
}

unloads()
{
	kernel_log_mark
	rmmod "$module" && unload_said_nothing_left && kernel_log_check
}

loads_again()
{
	module_load && links_up
}

ktap_start 10
trap 'settings_restore; rm -rf "$ktap_dir"' EXIT
module_load
# To load these is no part of an action: it takes ten seconds on a busy machine. NVMe's has settings.
modprobe -qa veth dummy sch_netem nf_tables nft_ct nft_numgen nvme_core
huge_pages=$(cat /proc/sys/vm/nr_hugepages)
mkdir "$ktap_dir/storm"
settings >"$ktap_dir/settings"
[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup
mkdir "$processes"
absorb 6 storm
settings_restore
row "the settings of the machine are as before" settings_are_as_before
row "nothing is left" nothing_left
row "the module unloads" unloads
row "it loads, and makes devices again" loads_again
ktap_finish
