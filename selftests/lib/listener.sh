# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Servers that take a while to start, wherever RUN runs a command: in1, node2, env.

# listening RUN PORT: something listens on TCP there, or on that rdma_cm port.
listening()
{
	$1 ss -Hltn "sport = :$2" | grep -q . && return 0
	$1 rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN.*src-addr [^ ]*:$2\b"
}

# await_listener RUN PORT PID: the port is listened on, unless the process has ended, which shows in what it did.
await_listener()
{
	local tries
	for tries in $(seq $((100 * ${slowness:-1}))); do
		listening "$1" "$2" && return
		kill -0 "$3" 2>/dev/null || return
		sleep 0.1
	done
	echo "the server does not listen on port $2, asked $tries times"
}
