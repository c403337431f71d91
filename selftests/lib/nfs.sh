# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NFS over RDMA: the kernel's server and client. See lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"
. "$(dirname "${BASH_SOURCE[0]}")/files.sh"

# serve ADDRESS MiB
serve()
{
	mkdir -p "$export" && mount -t tmpfs -o "size=$2M" ferroce-export "$export" || return 1
	modprobe -a nfsd rpcrdma || return 1
	mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
	mkdir -p /run/rpcbind /var/lib/nfs/{v4recovery,sm,sm.bak,rpc_pipefs}
	touch /var/lib/nfs/{etab,rmtab}
	pidof rpcbind >/dev/null || rpcbind -w || return 1
	# A client that is new waits for the clients of before, who are none.
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	exportfs -o rw,no_root_squash,insecure,fsid=1,no_subtree_check "*:$export" &&
		rpc.mountd && rpc.nfsd 4 && echo rdma 20049 >/proc/fs/nfsd/portlist
}

unserve()
{
	rpc.nfsd 0
	exportfs -ua
	pkill rpc.mountd
	pkill rpcbind
	umount "$export"
}

# attach ADDRESS VERSION
attach()
{
	modprobe -a nfs rpcrdma
	mkdir -p "$mounted"
	mount -t nfs -o "rdma,port=20049,nolock,sec=sys,vers=$2" "$1:$export" "$mounted"
}

# adaptive on|off: whether the kernel moderates completion queues that are made from now on.
adaptive()
{
	local device
	for device in /sys/class/infiniband/*; do
		rdma dev set "${device##*/}" adaptive-moderation "$1" || return 1
	done
}

# The core has called modify_cq for a queue. Even if nothing is moderated in the end, its period is not zero then.
is_adapted()
{
	local queues
	queues=$(rdma -dd resource show cq) || return 1
	grep -qE 'moderation-period [1-9]' <<<"$queues" || { echo "$queues"; return 1; }
}

# rate read|write [BLOCKS]: KiB/s. The file is written first.
rate()
{
	fio_rate "$mounted/rate" "$@"
}
