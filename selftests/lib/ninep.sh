# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154 # lib is set by role.sh
#
# 9P over RDMA: the kernel's client, and diod behind ninep. See lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"
. "$(dirname "${BASH_SOURCE[0]}")/files.sh"

# serve ADDRESS MiB
serve()
{
	mkdir -p "$export" && mount -t tmpfs -o "size=$2M" ferroce-export "$export" || return 1
	setsid "$lib/../ninep" "$1" 5640 diod -f -n -N -r 3 -w 3 -L "$state/diod.log" -e "$export" \
		>"$state/ninep.log" 2>&1 </dev/null &
	echo $! >"$state/ninep.pid"
	await_listening "$state/ninep.log"
}

unserve()
{
	cat "$state/ninep.log" "$state/diod.log"
	kill "$(cat "$state/ninep.pid")"
	umount "$export"
}

# attach ADDRESS
attach()
{
	modprobe -a 9p 9pnet_rdma
	mkdir -p "$mounted"
	mount -t 9p -o "trans=rdma,port=5640,version=9p2000.L,aname=$export,uname=root,access=any,cache=none" "$1" "$mounted"
}
