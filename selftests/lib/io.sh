# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154,SC2034 # consumer is set by the test, which reads io_status
#
# A consumer with I/O under way, while something happens to the network or to a device. The target is on the other
# machine.

. "$(dirname "${BASH_SOURCE[0]}")/consumers.sh"

placement=there
device=fer0 netdev=wire

# connected [SECONDS]: the consumer gives up after so long.
connected()
{
	local answer
	case $consumer in
	nvmeof) set -- ",reconnect_delay=1,ctrl_loss_tmo=${1:-600}" ;;
	nfs) set -- "4.2${1:+,soft,timeo=30,retrans=2}" ;;
	rds) set -- "$(host_address)" ;;
	*) set -- ;;
	esac
	case $consumer in
	nvmeof) at_target serve "$(target_address)" 128 4096 ;;
	*) answer=$(at_target serve "$(target_address)" 160 "$(host_address)") ;;
	esac || return 1
	[ "$consumer" != srp ] || set -- "$answer"
	at_host attach "$(target_address)" "$@"
}

# io_begin SECONDS: in the background, and under way when this returns.
io_begin()
{
	local before
	before=$(packets_sent)
	at_host traffic "$1" >"$ktap_dir/io" 2>&1 &
	io=$!
	await $((300 * slowness)) is_moving "$before" || fail "no I/O: $(cat "$ktap_dir/io")"
	kill -0 "$io" || fail "it has ended: $(cat "$ktap_dir/io")"
}

# Of the devices of this machine, on which either the host or the target is.
packets_sent()
{
	cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts | awk '{ sum += $1 } END { print sum + 0 }'
}

is_moving()
{
	[ "$(packets_sent)" -gt $(($1 + 1000)) ]
}

# io_end SECONDS: the I/O ends by itself within so long; $io_status is its status. Fails if fio read other bytes than it wrote.
io_end()
{
	local deadline=$((SECONDS + $1 * slowness))
	while kill -0 "$io" 2>/dev/null; do
		[ "$SECONDS" -lt "$deadline" ] || fail "the I/O hangs"
		sleep 0.2
	done
	wait "$io"
	io_status=$?
	tail -n 5 "$ktap_dir/io"
	if grep -E 'verify:|verify failed' "$ktap_dir/io"; then fail "other bytes came back"; fi
}
