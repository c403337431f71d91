# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Two network namespaces, n1 and n2, with an RDMA device each, as
# `scripts/vm --net veth` makes them, and pairs of programs run in them.

. "$(dirname "${BASH_SOURCE[0]}")/listener.sh"

# The driver under test: ferroce, or rxe for comparison.
driver=${FERROCE_DRIVER:-ferroce}
case $driver in
ferroce)
	link_type=ferroce
	module=ferroce
	dev1=${FERROCE_DEV1:-fer1}
	dev2=${FERROCE_DEV2:-fer2}
	;;
rxe)
	link_type=rxe
	module=rdma_rxe
	dev1=${FERROCE_DEV1:-rxe1}
	dev2=${FERROCE_DEV2:-rxe2}
	;;
*)
	echo "unknown driver $driver" >&2
	exit 1
	;;
esac
export link_type module

# How many times longer all may take: a kernel that checks everything is slow.
slowness=1
[ "${FERROCE_KERNEL:-stock}" = stock ] || slowness=4
# For programs: patience_ms() and quiet_ms() in endpoint.h.
export FERROCE_SLOWNESS=$slowness

address1=10.0.0.1
address2=10.0.0.2
address1v6=fd00::1
address2v6=fd00::2
export address1 address2 address1v6 address2v6

# Not for what runs in the background: $! would be a shell's, which kill would end
# instead of the program.
in1()
{
	ip netns exec n1 "$@"
}

in2()
{
	ip netns exec n2 "$@"
}

# gid_index DEVICE ADDRESS [NETDEV]: the index of the RoCE v2 GID of an address; if several netdevs have it, of that one's.
gid_index()
{
	local gids=/sys/class/infiniband/$1/ports/1 wanted index gid type netdev
	# Not str(): its form of mapped addresses differs between Python's versions.
	wanted=$(python3 -c '
import ipaddress, sys
a = ipaddress.ip_address(sys.argv[1])
digits = a.packed.hex() if a.version == 6 else "ffff".rjust(24, "0") + a.packed.hex()
print(":".join(digits[i : i + 4] for i in range(0, 32, 4)))' "$2")
	# No programs here: where others poll all CPUs, a slow kernel takes seconds to start some.
	for index in {0..15}; do
		if read -r gid <"$gids/gids/$index" && [ "$gid" = "$wanted" ] &&
			read -r type <"$gids/gid_attrs/types/$index" && [[ $type = *v2* ]] &&
			read -r netdev <"$gids/gid_attrs/ndevs/$index" && [ "${3:-$netdev}" = "$netdev" ]; then
			echo "$index"
			return 0
		fi
	done 2>/dev/null
	echo "no GID for $2 on $1" >&2
	return 1
}

# The GIDs follow the addresses, which for IPv6 take a moment.
gid_index_wait()
{
	local tries
	for tries in $(seq $((50 * slowness))); do
		gid_index "$1" "$2" 2>/dev/null && return 0
		sleep 0.1
	done
	echo "after $tries tries:" >&2
	gid_index "$1" "$2"
}

# Waits for the GIDs of both devices, of both families, and says which netdevs they have, to programs too. It fails if a
# GID does not come.
devices_wait()
{
	local status=0
	gid_index_wait "$dev1" "$address1" >/dev/null && gid_index_wait "$dev2" "$address2" >/dev/null &&
		gid_index_wait "$dev1" "$address1v6" >/dev/null && gid_index_wait "$dev2" "$address2v6" >/dev/null || status=1
	netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
	export FERROCE_NETDEV1=$netdev1 FERROCE_NETDEV2=$netdev2
	return "$status"
}

# links_up [MTU]: the two namespaces, their addresses and their devices.
links_up()
{
	local mtu=${1:-4200}
	ip netns add n1 && ip netns add n2 || return 1
	ip link add veth1 netns n1 type veth peer name veth2 netns n2 || return 1
	namespace_up n1 veth1 "$mtu" "$address1" "$address1v6" || return 1
	namespace_up n2 veth2 "$mtu" "$address2" "$address2v6" || return 1
	in1 rdma link add "$dev1" type "$link_type" netdev veth1 || return 1
	in2 rdma link add "$dev2" type "$link_type" netdev veth2 || return 1
	devices_wait
}

# The kernel repeats the FIN of a killed program's TCP socket for a minute by default, if nobody acknowledges it. The
# socket holds its namespace meanwhile, also a deleted one. With one repetition it does so for less than a second.
namespace_up()
{
	ip netns exec "$1" sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries' &&
		ip -n "$1" link set lo up &&
		ip -n "$1" address add "$4/24" dev "$2" &&
		ip -n "$1" address add "$5/64" dev "$2" nodad &&
		ip -n "$1" link set "$2" mtu "$3" up
}

# netdev_of NAMESPACE DEVICE: the netdev below a device, as seen from its namespace.
netdev_of()
{
	ip netns exec "$1" rdma link show "$2/1" | sed -n 's/.* netdev \([^ ]*\).*/\1/p'
}

# in_group NAMESPACE NETDEV ADDRESS [USERS]: whether a netdev is in a group of IPv4, for two or more users if so many are
# asked for.
in_group()
{
	local users='( users [0-9]+)?'
	[ $# -lt 4 ] || users=" users $4"
	ip -n "$1" maddr show dev "$2" | grep -qE "inet +${3//./\\.}$users$"
}

# link_local NAMESPACE NETDEV: its address of that scope
link_local()
{
	ip -n "$1" -6 -o address show dev "$2" scope link | awk '{ sub("/.*", "", $4); print $4; exit }'
}

# counted NAMESPACE FAMILY TABLE COUNTER: the packets that nftables has counted since it was asked before
counted()
{
	ip netns exec "$1" nft -j reset counter "$2" "$3" "$4" |
		python3 -c 'import json, sys; print(next(e["counter"]["packets"] for e in json.load(sys.stdin)["nftables"] if "counter" in e))'
}

# counter_of DEVICE COUNTER
counter_of()
{
	cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"
}

# packets_of DEVICE: how many it has received
packets_of()
{
	counter_of "$1" rcvd_pkts
}

# has_traffic DEVICE BEFORE MORE: it has received more than so many since.
has_traffic()
{
	[ "$(packets_of "$1")" -gt $(($2 + $3)) ]
}

# acknowledged WHEN: the device of n2 gets acknowledgements.
acknowledged()
{
	local packets
	packets=$(packets_of "$dev2")
	await $((150 * slowness)) has_traffic "$dev2" "$packets" 20 || fail "there is no traffic $1"
}

# under_traffic FUNCTION ADDRESS DEVICE GID-INDEX DEVICE GID-INDEX OPTION...: the first device, used in n1, receives from the
# second one, in n2, while FUNCTION runs. The processes meet at ADDRESS, and must both be there at the end.
under_traffic()
{
	local change=$1 address=$2 end1=(-d "$3" -x "$4") end2=(-d "$5" -x "$6") status server client process
	local traffic=(ib_send_bw -F --run_infinitely -s 1024 -t 4 "${@:7}")
	# shellcheck disable=SC2154 # of ktap.sh
	ip netns exec n1 "${traffic[@]}" "${end1[@]}" >"$ktap_dir/server" 2>&1 &
	server=$!
	await_listener "ip netns exec n1" 18515 "$server"
	ip netns exec n2 "${traffic[@]}" "${end2[@]}" "$address" >"$ktap_dir/client" 2>&1 &
	client=$!
	("$change")
	status=$?
	for process in "$client" "$server"; do
		kill "$process" || { echo "a process has gone before"; status=1; }
	done
	wait "$client" "$server"
	[ "$status" -eq 0 ] || cat "$ktap_dir/server" "$ktap_dir/client"
	return "$status"
}

# has_ended PROCESS
has_ended()
{
	! kill -0 "$1" 2>/dev/null
}

# await TRIES COMMAND...: tries it a tenth of a second apart until it succeeds; its status, if it never does.
await()
{
	local tries=$1 status=1
	shift
	while [ "$tries" -gt 0 ]; do
		"$@" && return 0
		status=$?
		sleep 0.1
		tries=$((tries - 1))
	done
	return "$status"
}

# datagrams_of_sockets NAMESPACE: how many datagrams its UDP sockets have received over IPv4
datagrams_of_sockets()
{
	ip netns exec "$1" nstat -asz UdpInDatagrams | awk '$1 == "UdpInDatagrams" { print $2 }'
}

# packets_of_many on|off: whether datagrams that leave together arrive as one packet on the other side. On a wire
# they never do.
packets_of_many()
{
	in1 ethtool -K "$(netdev_of n1 "$dev1")" tx-gso-list "$1" &&
		in2 ethtool -K "$(netdev_of n2 "$dev2")" tx-gso-list "$1"
}

# pair SECONDS PORT SERVER... -- CLIENT...
# The server in n1, the client in n2 once the port is listened on; in the namespaces $server_at and $client_at if
# these are set. Both must exit with 0; but if $endless is set, the server goes on until it is ended, with any status.
# Their output is in $ktap_dir/server and $ktap_dir/client, apart from what they say on standard error, which would cut
# lines in two. All of it is printed, too: the row shows it if it fails.
pair()
{
	local seconds=$(($1 * slowness)) port=$2 server=() pid server_status client_status
	shift 2
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	# shellcheck disable=SC2154 # of ktap.sh
	ip netns exec "${server_at:-n1}" timeout -k 2 "$seconds" "${server[@]}" \
		>"$ktap_dir/server" 2>"$ktap_dir/server.errors" &
	pid=$!
	await_listener "ip netns exec ${server_at:-n1}" "$port" "$pid"
	ip netns exec "${client_at:-n2}" timeout -k 2 "$seconds" "$@" >"$ktap_dir/client" 2>"$ktap_dir/client.errors"
	client_status=$?
	if [ "$client_status" -ne 0 ] || [ -n "${endless:-}" ]; then
		# Nobody is left to end it.
		sleep 1
		kill "$pid" 2>/dev/null
	fi
	wait "$pid"
	server_status=$?
	sed 's/^/server: /' "$ktap_dir/server" "$ktap_dir/server.errors"
	sed 's/^/client: /' "$ktap_dir/client" "$ktap_dir/client.errors"
	echo "server ${server[*]}: status $server_status"
	echo "client $*: status $client_status"
	{ [ "$server_status" -eq 0 ] || [ -n "${endless:-}" ]; } && [ "$client_status" -eq 0 ]
}
