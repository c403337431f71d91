# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154 # lib is set by role.sh
#
# SMC-R, version 2: sockets that the kernel leads over RDMA. Debian does not build it; the debug kernel has it. See
# lib/consumers.sh.

ready()
{
	modprobe smc && "$lib/smc.py" eid FERROCE
}

# serve ADDRESS: echoes in the background.
serve()
{
	ready || return 1
	setsid "$lib/smc.py" serve "$1" >/run/smc.log 2>&1 </dev/null &
	echo $! >/run/smc.pid
	await_listening /run/smc.log
}

unserve()
{
	cat /run/smc.log
	kill "$(cat /run/smc.pid)"
}

# exchange ADDRESS
exchange()
{
	ready && "$lib/smc.py" exchange "$1"
}

# only_rdma: fails if SMC led a connection over TCP.
only_rdma()
{
	"$lib/smc.py" fallbacks
}

# sends: how many requests the device has completed. If SMC takes TCP instead, it has none.
sends()
{
	cat /sys/class/infiniband/fer0/ports/1/hw_counters/rdma_sends
}
