#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the bpftrace commands of the documentation
# Runs: never
# Needs: --suite consumers
#
# Each command of Documentation/tracing.rst that begins with bpftrace runs while there is traffic: messages from and to
# on-demand memory, with losses, and garbage. The command must count something. Needs BPF, which the debug kernel lacks.
# shellcheck disable=SC2154 # ktap_dir is of ktap.sh, addresses and devices are of namespaces.sh
set -u
. "$(dirname "$0")/../lib/test.sh"

mapfile -t commands < <(sed -n 's/^    \(bpftrace .*\)/\1/p' "${here%/build/*}/Documentation/tracing.rst")
port=18515
attached='^Attach(ing|ed) [0-9]+ probe'

traffic()
{
	local common=(ibv_rc_pingpong -n 100 -s 65536 -m 1024 -o)
	pair 60 "$port" "${common[@]}" -d "$dev1" -g "$gid1" -- "${common[@]}" -d "$dev2" -g "$gid2" "$address1" || return 1
	in2 bash -c "printf xxxxxxxxxxxxxxxxxxxx >/dev/udp/$address1/4791"
	sleep 0.2
}

# begins PROCESS: its probes are attached, or it has ended.
begins()
{
	grep -qE "$attached" "$ktap_dir/found" || ! kill -0 "$1" 2>/dev/null
}

# run COMMAND: as somebody types it, with Ctrl-C once the traffic is over.
run()
{
	local process status
	: >"$ktap_dir/found"
	env --default-signal=INT bash -c "exec $1" >"$ktap_dir/found" 2>&1 &
	process=$!
	await 600 begins "$process"
	grep -qE "$attached" "$ktap_dir/found" || { cat "$ktap_dir/found"; fail "it does not attach"; }
	sleep 2
	traffic
	status=$?
	kill -INT "$process"
	wait "$process"
	cat "$ktap_dir/found"
	[ "$status" -eq 0 ] || fail "traffic: status $status"
	# One that takes times has their beginnings in another map, which may be left.
	case $1 in
	*@us*) grep -q '^@us' "$ktap_dir/found" ;;
	*) grep -q '^@' "$ktap_dir/found" ;;
	esac || fail "it has counted nothing"
}

ktap_start $((${#commands[@]} + 1))
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
netdev2=$(netdev_of n2 "$dev2")
in2 tc qdisc add dev "$netdev2" root netem loss 2%
row "there are commands" [ "${#commands[@]}" -ge 8 ]
for command in "${commands[@]}"; do
	row "${command#*tracepoint:ferroce:}" run "$command"
done
in2 tc qdisc delete dev "$netdev2" root
ktap_finish
