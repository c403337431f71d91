# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# SRP over rdma_cm: the kernel's target and host. See lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"
. "$(dirname "${BASH_SOURCE[0]}")/target.sh"

srpt=/sys/kernel/config/target/srpt
port=5555

only_device()
{
	ls /sys/class/infiniband
}

node_guid()
{
	cat "/sys/class/infiniband/$(only_device)/node_guid"
}

# serve ADDRESS MiB: prints the target's identifier, which the host needs.
serve()
{
	local wwn tpg acl
	target_disk_make "$2" && modprobe ib_srpt || return 1
	wwn=$(node_guid)
	# For unserve: the device may have gone by then.
	echo "$wwn" >"$state/wwn"
	mkdir "$srpt" 2>/dev/null
	# The target listens for rdma_cm on this port of every device.
	echo "$port" >"$srpt/discovery_auth/rdma_cm_port" || return 1
	tpg=$srpt/$wwn/$wwn
	# ib_srpt looks a host up by the address that its request came to.
	acl=$tpg/acls/$1
	mkdir -p "${tpg%/*}" && mkdir "$tpg" && mkdir "$tpg/lun/lun_0" &&
		ln -s "$core/rd_mcp_0/disk" "$tpg/lun/lun_0/disk" &&
		mkdir "$acl" && mkdir "$acl/lun_0" && ln -s "$tpg/lun/lun_0" "$acl/lun_0/lun" &&
		echo 1 >"$tpg/enable" &&
		tr -d : <<<"$wwn"
}

unserve()
{
	local wwn tpg acl
	wwn=$(cat "$state/wwn")
	tpg=$srpt/$wwn/$wwn
	echo 0 >"$tpg/enable"
	for acl in "$tpg"/acls/*; do
		rm "$acl/lun_0/lun" && rmdir "$acl/lun_0" "$acl"
	done
	rm "$tpg/lun/lun_0/disk"
	rmdir "$tpg/lun/lun_0" "$tpg" "${tpg%/*}" "$srpt" && target_disk_undo
	modprobe -r ib_srpt
}

# attach ADDRESS IDENTIFIER
attach()
{
	modprobe -a ib_srp sd_mod || return 1
	echo "id_ext=$2,ioc_guid=$2,dest=$1:$port" >"/sys/class/infiniband_srp/srp-$(only_device)-1/add_target" || return 1
	wait_for_disk target_disk
}

detach()
{
	local remote
	for remote in /sys/class/srp_remote_ports/*; do
		[ ! -e "$remote/delete" ] || echo 1 >"$remote/delete"
	done
	modprobe -r ib_srp
}
