# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# iSER: the kernel's iSCSI target, and open-iscsi. See lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"
. "$(dirname "${BASH_SOURCE[0]}")/target.sh"

iqn=iqn.2026-01.test.ferroce:disk
tpg=/sys/kernel/config/target/iscsi/$iqn/tpgt_1

# serve ADDRESS MiB
serve()
{
	local name
	target_disk_make "$2" && modprobe -a iscsi_target_mod ib_isert || return 1
	mkdir -p "${tpg%/*/*}" "$tpg/lun/lun_0" "$tpg/np/$1:3260" &&
		echo 1 >"$tpg/np/$1:3260/iser" &&
		ln -s "$core/rd_mcp_0/disk" "$tpg/lun/lun_0/disk" || return 1
	for name in authentication:0 generate_node_acls:1 cache_dynamic_acls:1 demo_mode_write_protect:0; do
		echo "${name#*:}" >"$tpg/attrib/${name%:*}" || return 1
	done
	echo 1 >"$tpg/enable"
}

unserve()
{
	local portal
	echo 0 >"$tpg/enable"
	rm "$tpg/lun/lun_0/disk"
	for portal in "$tpg"/np/*; do rmdir "$portal"; done
	rmdir "$tpg/lun/lun_0" "$tpg" "${tpg%/*}" "${tpg%/*/*}" && target_disk_undo
	modprobe -r ib_isert iscsi_target_mod
}

# attach ADDRESS
attach()
{
	modprobe -a ib_iser sd_mod || return 1
	if ! pidof iscsid >/dev/null; then
		mkdir -p /run/lock/iscsi /etc/iscsi
		[ -e /etc/iscsi/initiatorname.iscsi ] ||
			echo InitiatorName=iqn.2026-01.test.ferroce:host >/etc/iscsi/initiatorname.iscsi
		iscsid || return 1
	fi
	# I/O of a session that is lost fails after 5 s, not after two minutes.
	iscsiadm -m node -o new -T "$iqn" -p "$1:3260,1" -I iser &&
		iscsiadm -m node -T "$iqn" -o update -n node.session.timeo.replacement_timeout -v 5 &&
		iscsiadm -m node -T "$iqn" -p "$1:3260" -I iser --login &&
		wait_for_disk target_disk
}

detach()
{
	iscsiadm -m node -T "$iqn" --logout
	iscsiadm -m node -T "$iqn" -o delete
	pkill iscsid
	modprobe -r ib_iser
}
