#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: containers that share a device: macvlan and ipvlan above its netdev
#
# Namespaces that share a device, as containers do: each has a macvlan or ipvlan above the device's netdev. Programs
# of one reach those of the other, of another host, and the reverse. Needs the devices of `scripts/vm --net veth`:
# the pods are above the netdev of n1, and n2 is the other host.
set -u
. "$(dirname "$0")/../lib/test.sh"

cm_port=7174
perftest_port=18515
n=$((200 / slowness))
# Of a program, in seconds. Much of this works over no other driver: then most programs wait for ever.
patience=60
[ "${FERROCE_DRIVER:-ferroce}" = ferroce ] || patience=12

# shellcheck disable=SC2154 # of namespaces.sh
parent=$(netdev_of n1 "$dev1")

# The address of a pod, or of a host. Pods in the mode l3 or l3s are a network of their own.
address_of()
{
	local network=10.0.0
	[[ $mode != l3* ]] || network=10.3.0
	case $1 in
	p1) echo "$network.11" ;;
	p2) echo "$network.12" ;;
	n1) echo "$address1" ;;
	n2) echo "$address2" ;;
	esac
}

# Pods have that of n1, unless $pod_device is another.
device_of()
{
	if [ "$1" = n2 ]; then echo "$dev2"; else echo "${pod_device:-$dev1}"; fi
}

# pod_up NAME KIND MODE
pod_up()
{
	local name=$1 kind=$2 mode=$3
	ip netns add "$name" &&
		ip -n n1 link add "$name" link "$parent" type "$kind" mode "$mode" &&
		ip -n n1 link set "$name" netns "$name" &&
		namespace_up "$name" "$name" 1500 "$(address_of "$name")" "fd00::1${name#p}" || return 1
	if [[ $mode = l3* ]]; then
		ip -n "$name" route add default dev "$name"
	fi
}

# pods_up KIND MODE
pods_up()
{
	local kind=$1 mode=$2 name
	for name in p1 p2; do
		pod_up "$name" "$kind" "$mode" || return 1
	done
	if [[ $mode = l3* ]]; then
		ip -n n2 route replace 10.3.0.0/24 via "$address1" || return 1
	fi
	# The pods of before had the same addresses, and other MACs.
	ip -n n1 neighbour flush all
	ip -n n2 neighbour flush all
	for name in p1 p2; do
		gid_index_wait "$dev1" "$(address_of "$name")" || return 1
	done
}

# The links first: those of a namespace that is deleted go later, and the netdev below is busy until then.
pods_down()
{
	local name
	ip -n n2 route flush 10.3.0.0/24
	for name in p1 p2; do
		[ -e "/run/netns/$name" ] || continue
		ip -n "$name" link delete "$name" && ip netns delete "$name" || return 1
	done
}

# The pod's netdevs go first, and with its veth the other end. Then the only sign is that the kernel's one worker for it has
# done with it.
pod_has_ended()
{
	! ip -n n1 link show pod1 2>/dev/null && ! grep -qs cleanup_net /proc/[0-9]*/stack
}

pod_goes()
{
	acknowledged before
	ip -n n1 link add pod1 type veth peer name pod1 netns p1 && ip -n p1 link delete p1 && ip netns delete p1 || return 1
	await $((100 * slowness)) pod_has_ended || fail "the namespace has not ended"
}

# A process of the host has a queue pair with the pod's address. The end of the pod's namespace does not wait for it.
pod_ends()
{
	local own peer
	own=$(gid_index_wait "$dev1" "$(address_of p1)") && peer=$(gid_index_wait "$dev2" "$address2") || return 1
	under_traffic pod_goes "$address1" "$dev1" "$own" "$dev2" "$peer" -u 20
}

# between SERVER CLIENT COMMAND...
between()
{
	local server_at=$1 client_at=$2
	shift 2
	"$@"
}

# connection [ADDRESS]: of the server, if it is another one than its pod's or host's.
connection()
{
	local address
	address=${1:-$(address_of "$server_at")}
	pair "$patience" "$cm_port" rping -s -a "$address" -p "$cm_port" -v -V -C "$n" -- \
		rping -c -a "$address" -p "$cm_port" -v -V -C "$n" || return 1
	[ "$(grep -c 'ping data: ' "$ktap_dir/client")" -eq "$n" ] || fail "the client does not show $n messages"
}

datagrams()
{
	pair "$patience" "$cm_port" udaddy -- udaddy -s "$(address_of "$server_at")"
}

# Within the device as on a hardware one: whatever netdevs are between two of its queue pairs.
multicast()
{
	local group=239.77.2.1 receiver netdev=$parent namespace=n1 status
	[ "$server_at" != n2 ] || { namespace=n2; netdev=$(netdev_of n2 "$dev2"); }
	ip netns exec "$server_at" timeout -k 2 $((patience * slowness)) mckey -m "$group" -b "$(address_of "$server_at")" \
		>"$ktap_dir/server" 2>&1 &
	receiver=$!
	await $((100 * slowness)) in_group "$namespace" "$netdev" "$group" || ip -n "$namespace" maddr show dev "$netdev"
	ip netns exec "$client_at" timeout -k 2 $((patience * slowness)) mckey -m "$group" -b "$(address_of "$client_at")" -s
	status=$?
	[ "$status" -eq 0 ] || kill "$receiver"
	wait "$receiver" || status=1
	cat "$ktap_dir/server"
	grep -q 'data transfers complete' "$ktap_dir/server" || status=1
	return "$status"
}

# The pod loses its address under traffic, and gets it again. The RDMA core does the same to all addresses above a bond
# that changes to another port. Both queue pairs go on.
address_returns()
{
	local status changes packets index
	index=$(gid_index_wait "$dev1" "$(address_of p1)") || fail "$index"
	{
		packets=$(packets_of "$dev2") && await $((100 * slowness)) has_traffic "$dev2" "$packets" 200 &&
			ip -n p1 address delete "$(address_of p1)/24" dev p1 && await $((50 * slowness)) gid_is_gone "$dev1" "$index" &&
			ip -n p1 address add "$(address_of p1)/24" dev p1 && packets=$(packets_of "$dev2") &&
			await $((60 * slowness)) has_traffic "$dev2" "$packets" 200
	} &
	changes=$!
	verbs ib_send_bw -b -D $((24 * slowness)) -s 4096 -u 19
	status=$?
	wait "$changes" || fail "no traffic once the address is back"
	return "$status"
}

# gid_is_gone DEVICE INDEX: looks without a program. The two of the row poll both CPUs, and without an answer they give up
# after some 17 s.
gid_is_gone()
{
	local gid
	read -r gid <"/sys/class/infiniband/$1/ports/1/gids/$2" && [[ $gid =~ ^[0:]+$ ]]
}

# They came to its netdev, not to the one below.
counts_packets()
{
	[ "$(packets_of "$1")" -gt "$n" ] || fail "$1 counts no packets"
}

# The netdev of a pod has a device, too, and so has the one below. Both have the address: verbs use the upper one, and
# rdma_cm the one that was there first.
own_device()
{
	local status pod_device=podded
	ip netns exec p1 rdma link add "$pod_device" type "$link_type" netdev p1 || fail "rdma refuses it"
	between p1 n2 verbs ib_send_bw -n "$n" -s 65536 && counts_packets "$pod_device" && between p1 n2 connection &&
		between n2 p1 connection
	status=$?
	rdma link delete "$pod_device"
	return "$status"
}

# A link between the pods by which programs can exchange what they need to connect.
link_beside()
{
	ip -n p1 link add beside1 type veth peer name beside2 netns p2 && ip -n p1 address add 10.77.0.1/24 dev beside1 &&
		ip -n p2 address add 10.77.0.2/24 dev beside2 && ip -n p1 link set beside1 up && ip -n p2 link set beside2 up
}

# neighbour POD OTHER: where OTHER is, so that nobody has to ask.
neighbour()
{
	ip -n "$1" neighbour replace "$(address_of "$2")" dev "$1" nud permanent \
		lladdr "$(ip netns exec "$2" cat "/sys/class/net/$2/address")"
}

# The purpose of the mode private: not even packets that are sent arrive.
isolated()
{
	local index1 index2 sent
	! ip netns exec p2 ping -c 3 -i 0.2 -W 1 "$(address_of p1)" || fail "p1 answers p2"
	! between p1 p2 connection || fail "p2 has a connection to p1"
	index1=$(gid_index_wait "$dev1" "$(address_of p1)") && index2=$(gid_index_wait "$dev1" "$(address_of p2)") &&
		link_beside && neighbour p1 p2 && neighbour p2 p1 || return 1
	sent=$(counter_of "$dev1" sent_pkts)
	! server_at=p1 client_at=p2 pair 60 "$perftest_port" \
		ib_write_bw -d "$dev1" -x "$index1" -p "$perftest_port" -F -m 1024 -u 14 -n 10 -- \
		ib_write_bw -d "$dev1" -x "$index2" -p "$perftest_port" -F -m 1024 -u 14 -n 10 10.77.0.1 || fail "p2 writes to p1"
	grep -hE 'transport retry counter exceeded|status 12\b' "$ktap_dir/client" "$ktap_dir/client.errors" ||
		fail "another reason than that nobody answers"
	[ "$(counter_of "$dev1" sent_pkts)" -gt "$sent" ] || fail "nothing was sent"
	ip -n p1 link delete beside1
}

# verbs PROGRAM ARG...: addresses by GID index, exchanged over TCP.
verbs()
{
	local server client
	server=$(gid_index_wait "$(device_of "$server_at")" "$(address_of "$server_at")") || fail "$server"
	client=$(gid_index_wait "$(device_of "$client_at")" "$(address_of "$client_at")") || fail "$client"
	pair $((2 * patience)) "$perftest_port" \
		"$@" -d "$(device_of "$server_at")" -x "$server" -p "$perftest_port" -F -m 1024 -- \
		"$@" -d "$(device_of "$client_at")" -x "$client" -p "$perftest_port" -F -m 1024 \
		"$(address_of "$server_at")"
}

# A device on a netdev of its own follows it, with the peer in n2.
moving_up()
{
	ip netns add p1 && ip link add moving netns n1 type veth peer name fixed netns n2 || return 1
	namespace_up n1 moving 1500 10.4.0.1 fd04::1 && namespace_up n2 fixed 1500 10.4.0.2 fd04::2 || return 1
	in1 rdma link add "${dev1}m" type "$link_type" netdev moving &&
		in2 rdma link add "${dev2}m" type "$link_type" netdev fixed &&
		gid_index_wait "${dev1}m" 10.4.0.1 && gid_index_wait "${dev2}m" 10.4.0.2
}

# moved FROM TO: where it is then, its addresses are of use.
moved()
{
	local from=$1 to=$2
	ip -n "$from" link set moving netns "$to" || return 1
	rdma link show "${dev1}m/1" || fail "the device is gone"
	namespace_up "$to" moving 1500 10.4.0.1 fd04::1 || return 1
	gid_index_wait "${dev1}m" 10.4.0.1 && gid_index_wait "${dev1}m" fd04::1 || return 1
	ip netns exec "$to" rdma link show "${dev1}m/1" | grep -q 'state ACTIVE .* netdev moving' || fail "it is not active"
}

# When the netdev goes to another namespace with its address, the client there is none of the server's namespace any more:
# its WRITEs are not answered, and it ends when its retries have.
moved_under_traffic()
{
	local server client gid1 gid2 deadline packets
	gid1=$(gid_index_wait "${dev1}m" 10.4.0.1) && gid2=$(gid_index_wait "${dev2}m" 10.4.0.2) || return 1
	packets=$(packets_of "${dev1}m")
	# The programs themselves, not subshells: they are killed below.
	ip netns exec n1 ib_write_bw -d "${dev1}m" -x "$gid1" -p "$perftest_port" -F -D 60 >"$ktap_dir/server" 2>&1 &
	server=$!
	await_listener in1 "$perftest_port" "$server"
	ip netns exec n2 ib_write_bw -d "${dev2}m" -x "$gid2" -p "$perftest_port" -F -D 60 10.4.0.1 >"$ktap_dir/client" 2>&1 &
	client=$!
	await $((100 * slowness)) has_traffic "${dev1}m" "$packets" 200 || fail "no traffic: $(cat "$ktap_dir/client")"
	moved n1 p1 || return 1
	deadline=$((SECONDS + 30 * slowness))
	while kill -0 "$client" 2>/dev/null; do
		[ "$SECONDS" -lt "$deadline" ] || fail "the client does not end"
		sleep 0.2
	done
	kill -9 "$server"
	cat "$ktap_dir/client"
	grep -qE 'transport retry counter exceeded|status 12\b' "$ktap_dir/client" || fail "the client has not noticed"
	moved p1 n1
}

# The UDP port is taken where it comes to: there it cannot be, and it goes with a sentence in the log.
moved_in_vain()
{
	local holder status
	ip netns exec p1 python3 -c 'import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 4791))
time.sleep(600)' &
	holder=$!
	await $((50 * slowness)) sh -c "ip netns exec p1 ss -Hlun 'sport = :4791' | grep -q ." || fail "the port is free"
	ip -n n1 link set moving netns p1
	await $((50 * slowness)) sh -c "! rdma link show '${dev1}m/1' 2>/dev/null | grep -q ."
	status=$?
	kill "$holder"
	[ "$status" -eq 0 ] || fail "it is still there: $(rdma link show)"
	dmesg | tail -n 50 | grep "port 4791 is taken" || fail "not a word in the log"
}

moving_down()
{
	rdma link delete "${dev2}m"
	ip -n n2 link delete fixed
	ip netns delete p1
}

kinds='macvlan bridge
macvlan private
ipvlan l2
ipvlan l3
ipvlan l3s'
routes='p1 p2
p1 n2
n2 p1'

# Rows depend on those before: a kind is run as a whole, if it is wanted.
wanted=${FERROCE_ROWS:-.}
moving='a netdev that moves'
grep -qE "$wanted" <<<"$kinds"$'\n'"$moving" || wanted=.
kinds=$(grep -E "$wanted" <<<"$kinds")
rows=0
while read -r kind mode; do
	case $kind-$mode in
	- ) ;;
	macvlan-private) rows=$((rows + 14)) ;;
	ipvlan-l3*) rows=$((rows + 14)) ;;
	*) rows=$((rows + 20)) ;;
	esac
done <<<"$kinds"
grep -qE "$wanted" <<<"$moving" || moving=
[ -z "$moving" ] || rows=$((rows + 8))
ktap_start "$rows"
while read -r kind mode; do
	[ -n "$kind" ] || continue
	row "$kind, $mode: two pods share a device" pods_up "$kind" "$mode"
	while read -r server client; do
		if [ "$mode $server $client" = 'private p1 p2' ]; then
			row "$kind, $mode: p2 does not reach p1" isolated
			row "$kind, $mode, p2 to p1: mckey" between p1 p2 multicast
			continue
		fi
		name="$kind, $mode, $client to $server"
		row "$name: rping" between "$server" "$client" connection
		row "$name: udaddy" between "$server" "$client" datagrams
		row "$name: ib_send_bw" between "$server" "$client" verbs ib_send_bw -n "$n" -s 65536
		row "$name: ib_send_bw, UD" between "$server" "$client" verbs ib_send_bw -c UD -n "$n" -s 1024
		# The modes l3 have none.
		[[ $mode = l3* ]] || row "$name: mckey" between "$server" "$client" multicast
	done <<<"$routes"
	if [[ $mode != private && $mode != l3* ]]; then
		row "$kind, $mode: an address goes and comes back under traffic" between p1 n2 address_returns
		row "$kind, $mode: a device on a pod's own netdev" own_device
		row "$kind, $mode: a pod ends while a queue pair of the host's has its address" pod_ends
	fi
	row "$kind, $mode: the pods go" pods_down
done <<<"$kinds"
if [ -n "$moving" ]; then
	row "$moving: its device" moving_up
	row "$moving: to a namespace" moved n1 p1
	row "$moving: rping there" between p1 n2 connection 10.4.0.1
	row "$moving: back" moved p1 n1
	row "$moving: rping again" between n2 n1 connection 10.4.0.2
	row "$moving: under traffic" moved_under_traffic
	row "$moving: where the UDP port is taken" moved_in_vain
	row "$moving: all go" moving_down
fi
ktap_finish
