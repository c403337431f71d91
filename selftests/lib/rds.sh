# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154 # lib is set by role.sh
#
# RDS over RDMA: a program at each end. See lib/consumers.sh.

# serve ADDRESS: echoes in the background.
serve()
{
	modprobe -a rds rds_rdma || return 1
	setsid "$lib/../rds" "$1" >/run/rds.log 2>&1 </dev/null &
	echo $! >/run/rds.pid
	await_listening /run/rds.log
}

unserve()
{
	cat /run/rds.log
	kill "$(cat /run/rds.pid)"
}

# attach PEER OWN: for traffic.
attach()
{
	modprobe -a rds rds_rdma && echo "$2 $1" >/run/rds.addresses
}

detach()
{
	rm /run/rds.addresses
}

# traffic SECONDS: verified.
traffic()
{
	local addresses
	read -ra addresses </run/rds.addresses
	"$lib/../rds" "${addresses[@]}" "$1"
}

# exchange FROM TO ARG...
exchange()
{
	modprobe -a rds rds_rdma && "$lib/../rds" "$@"
}
