#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: what rdma shows of devices and objects
set -u
. "$(dirname "$0")/../lib/test.sh"

objects=$(mktemp)
holder=

hold_start()
{
	local tries
	"$here/hold" "$dev1" >"$objects" 2>&1 &
	holder=$!
	# Its end is none of the shell's business.
	disown "$holder"
	# shellcheck disable=SC2154 # of namespaces.sh
	for tries in $(seq $((100 * slowness))); do
		grep -q '^ready' "$objects" && return 0
		sleep 0.1
	done
	echo "# nothing is held after $tries tries"
	sed 's/^/# /' "$objects"
}

devices()
{
	local out device
	out=$(rdma dev show)
	echo "$out"
	for device in "$dev1" "$dev2"; do
		grep -qE "$device: .*node_type ca .*node_guid [0-9a-f:]{19}" <<<"$out" || fail "$device is not shown"
		! grep -E "$device: .*node_guid 0000:0000:0000:0000" <<<"$out" || fail "$device has no GUID"
	done
	[ "$(grep -oE 'node_guid [^ ]*' <<<"$out" | sort | uniq -d)" = "" ] || fail "two have the same GUID"
}

# Two netdevs can have the same MAC address. Storage consumers tell devices apart by the GUID.
same_mac()
{
	local first second
	in1 ip link add twin type dummy && in1 ip link set twin address "$(in1 cat "/sys/class/net/$netdev1/address")" &&
		in1 ip link set twin up && in1 rdma link add twin0 type "$link_type" netdev twin
	first=$(cat "/sys/class/infiniband/$dev1/node_guid") second=$(cat /sys/class/infiniband/twin0/node_guid)
	in1 rdma link delete twin0
	in1 ip link delete twin
	echo "$first, $second"
	[ -n "$second" ] && [ "$first" != "$second" ]
}

# The EUI-64 of the MAC address: RFC 4291, appendix A.
guid()
{
	local mac wanted is
	IFS=: read -ra mac < <(in1 cat "/sys/class/net/$netdev1/address")
	printf -v wanted '%02x%s:%sff:fe%s:%s%s' $((0x${mac[0]} ^ 2)) "${mac[@]:1}"
	is=$(cat "/sys/class/infiniband/$dev1/node_guid")
	echo "$is, MAC address ${mac[*]}"
	[ "$is" = "$wanted" ] || fail "not $wanted"
}

# As Documentation/status.rst has them.
limits()
{
	local out line largest
	[ "$link_type" = ferroce ] || skip "the limits of another driver"
	printf -v largest '0x%x' $((((1 << 28) - 1) * $(getconf PAGESIZE)))
	out=$(ibv_devinfo -v -d "$dev1") || return 1
	while read -r line; do
		grep -qE "^\s*${line%% *}:\s+${line##* }\b" <<<"$out" || {
			grep -E "^\s*${line%% *}:" <<<"$out"
			fail "not ${line##* }"
		}
	done <<-END
		max_qp_wr 32768
		max_srq_wr 32768
		max_sge 32
		max_srq_sge 32
		max_cqe 4194303
		max_qp_rd_atom 16
		max_mcast_grp 1024
		max_total_mcast_qp_attach 16384
		max_mcast_qp_attach 64
		max_mr_size $largest
		max_pkeys 1
	END
	# libibverbs does not tell how many GIDs there are.
	[ "$(find "/sys/class/infiniband/$dev1/ports/1/gids" -type f | wc -l)" -eq 256 ] || fail "not 256 GIDs"
}

# Names that users have given are none that udev changes. iproute2 does not show it.
names_assigned()
{
	local out device
	out=$(python3 "$here/lib/name_assign_type.py")
	echo "$out"
	for device in "$dev1" "$dev2"; do
		grep -qx "$device user" <<<"$out" || fail "$device: its name is not said to be a user's"
	done
}

# shellcheck disable=SC2154 # of namespaces.sh
module_version()
{
	local version
	version=$(modinfo -F version "$module")
	[ -n "$version" ] || fail "modinfo shows none"
	grep -qx "$version" "/sys/module/$module/version" || fail "$version is not that of the loaded module"
}

links()
{
	in1 rdma link show "$dev1/1" | tee /dev/stderr |
		grep -q "state ACTIVE physical_state LINK_UP netdev $netdev1" || fail "$dev1 is not shown as it is"
	in2 rdma link show "$dev2/1" | tee /dev/stderr |
		grep -q "state ACTIVE physical_state LINK_UP netdev $netdev2" || fail "$dev2 is not shown as it is"
}

# state_wait STATE
state_wait()
{
	local tries
	for tries in $(seq $((50 * slowness))); do
		rdma link show "$dev1/1" | grep -q "state $1 " && return 0
		sleep 0.1
	done
	rdma link show "$dev1/1"
	fail "not $1 after $tries tries"
}

# The port goes with its netdev, and comes back with it; its GIDs, too.
link_state()
{
	in1 ip link set "$netdev1" down
	(state_wait DOWN)
	local status=$?
	in1 ip link set "$netdev1" up
	in1 ip address replace "$address1v6/64" dev "$netdev1" nodad
	[ "$status" -eq 0 ] || fail "the netdev goes down and the port does not"
	state_wait ACTIVE
	gid_index_wait "$dev1" "$address1" && gid_index_wait "$dev1" "$address1v6"
}

# The netdev is set down, and later loses its carrier: link_downed counts each.
link_losses()
{
	local before
	before=$(counter "$dev1" link_downed) || return 1
	link_state || return 1
	lost_links $((before + 1)) || fail "down: $(counter "$dev1" link_downed) of $before"
	in2 ip link set "$netdev2" down
	# The kernel announces a lost carrier up to two seconds later, and not at all if the carrier is back by then.
	await $((100 * slowness)) lost_links $((before + 2))
	local status=$?
	in2 ip link set "$netdev2" up
	in2 ip address replace "$address2v6/64" dev "$netdev2" nodad
	[ "$status" -eq 0 ] || fail "carrier: $(counter "$dev1" link_downed) of $before"
	state_wait ACTIVE
	gid_index_wait "$dev2" "$address2v6" || return 1
	lost_links $((before + 2)) || fail "the carrier comes: $(counter "$dev1" link_downed) of $before"
}

lost_links()
{
	[ "$(counter "$dev1" link_downed)" -eq "$1" ]
}

# Each "qp" line of hold, in what rdma shows of the device's queue pairs.
queue_pairs()
{
	local out kind lqpn rest number peer type state
	out=$(rdma res show qp link "$dev1")
	echo "$out"
	grep -q '^qp ' "$objects" || fail "the holder has no queue pair"
	while read -r kind lqpn rest; do
		[ "$kind" = qp ] || continue
		number=${lqpn#lqpn=}
		peer=$(sed -n 's/.*rqpn=\([0-9]*\).*/\1/p' <<<"$rest")
		type=$(sed -n 's/.*type=\([A-Z]*\).*/\1/p' <<<"$rest")
		state=$(sed -n 's/.*state=\([A-Z]*\).*/\1/p' <<<"$rest")
		grep -w "lqpn $number" <<<"$out" | grep -w "type $type" | grep -w "state $state" |
			grep -w "pid $holder" | grep -qw "comm hold" || fail "queue pair $number is not shown as it is"
		[ -z "$peer" ] || grep -w "lqpn $number" <<<"$out" | grep -qw "rqpn $peer" ||
			fail "queue pair $number: its peer is not $peer"
	done <"$objects"
	[ "$(grep -cw "pid $holder" <<<"$out")" -eq "$(grep -c '^qp ' "$objects")" ] || fail "a wrong number"
	grep -wq 'lqpn 1' <<<"$out" || fail "the GSI queue pair is not shown"
}

memory_regions()
{
	local out kind lkey rkey length
	out=$(rdma -dd res show mr dev "$dev1")
	echo "$out"
	grep -q '^mr ' "$objects" || fail "the holder has no region"
	while read -r kind lkey rkey length; do
		[ "$kind" = mr ] || continue
		grep -w "pid $holder" <<<"$out" | grep -w "mrlen ${length#mrlen=}" |
			grep -w "lkey ${lkey#lkey=}" | grep -qw "rkey ${rkey#rkey=}" ||
			fail "the region with $lkey is not shown as it is"
	done <"$objects"
	[ "$(grep -cw "pid $holder" <<<"$out")" -eq "$(grep -c '^mr ' "$objects")" ] || fail "a wrong number"
}

# The rest of what a process has: one protection domain, one queue, one context.
owned()
{
	local out
	out=$(rdma res show "$1" dev "$dev1")
	echo "$out"
	[ "$(grep -cw "pid $holder" <<<"$out")" -eq 1 ] || fail "not just one"
}

completion_queue()
{
	local out cqe
	owned cq
	cqe=$(sed -n 's/^cq cqe=//p' "$objects")
	out=$(rdma res show cq dev "$dev1" | grep -w "pid $holder")
	grep -qw "cqe $cqe" <<<"$out" || fail "its size is not $cqe"
	# Five queue pairs, each with it on either side.
	grep -qw "users 10" <<<"$out" || fail "it has not 10 users"
}

# described KIND WORDS...: what the driver says of each such object of the process.
described()
{
	local kind=$1 out words status=0
	shift
	[ "$link_type" = ferroce ] || skip "only ferroce describes objects"
	case $kind in
	qp) out=$(rdma -dd res show qp link "$dev1") ;;
	*) out=$(rdma -dd res show "$kind" dev "$dev1") ;;
	esac
	# A line for each object.
	out=$(sed ':next; N; $!b next; s/\n  */ /g' <<<"$out")
	echo "$out"
	out=$(grep -w "pid $holder" <<<"$out")
	[ -n "$out" ] || fail "none is shown"
	for words in "$@"; do
		! grep -vqE "drv_$words( |$)" <<<"$out" || { echo "not in all: drv_$words"; status=1; }
	done
	return "$status"
}

summary()
{
	local out qps mrs
	out=$(rdma res show "$dev1")
	echo "$out"
	qps=$(rdma res show qp link "$dev1" | grep -c .)
	mrs=$(rdma res show mr dev "$dev1" | grep -c .)
	grep -qw "qp $qps" <<<"$out" || fail "not $qps queue pairs"
	grep -qw "mr $mrs" <<<"$out" || fail "not $mrs regions"
}

statistic()
{
	rdma statistic show link "$1/1" | tr ' ' '\n' | grep -A 1 -x "$2" | tail -n 1
}

# 100 messages of 64 KiB.
transfer()
{
	pair 60 18515 ib_send_bw -F -e -d "$dev1" -x "$gid1" -s 65536 -n 100 -- \
		ib_send_bw -F -e -d "$dev2" -x "$gid2" -s 65536 -n 100 "$address1" || fail "ib_send_bw failed"
}

# A transfer of known size moves the counters of both devices by its packets.
statistics()
{
	local sent received count packets=$((100 * 65536 / 4096))
	rdma statistic show
	sent=$(statistic "$dev2" sent_pkts) received=$(statistic "$dev1" rcvd_pkts)
	[ -n "$sent" ] || fail "no sent_pkts"
	[ -n "$received" ] || fail "no rcvd_pkts"
	transfer
	sent=$(($(statistic "$dev2" sent_pkts) - sent)) received=$(($(statistic "$dev1" rcvd_pkts) - received))
	echo "$packets packets of data: sent $sent, received $received"
	for count in "$sent" "$received"; do
		[ "$count" -ge "$packets" ] || fail "fewer than there were"
		[ "$count" -le $((packets * 2)) ] || fail "far more than there were"
	done
}

# sends_of N: runs so many messages, and prints how many SENDs the device has counted meanwhile.
sends_of()
{
	local before
	before=$(statistic "$dev2" rdma_sends)
	pair 60 18515 ib_send_bw -F -e -d "$dev1" -x "$gid1" -s 4096 -n "$1" -- \
		ib_send_bw -F -e -d "$dev2" -x "$gid2" -s 4096 -n "$1" "$address1" >&2 || return 1
	sleep 0.1
	echo $(($(statistic "$dev2" rdma_sends) - before))
}

# What is counted for a queue pair is the device's, too, but once, while there is a counter and when it is gone.
counters_by_type()
{
	local without with before first now second client server is_counted=0 is_read=0
	[ "$link_type" = ferroce ] || skip "only ferroce counts for queue pairs"
	without=$(sends_of 300) || fail "ib_send_bw failed"
	rdma statistic qp set link "$dev2/1" auto type on || fail "rdma refuses"
	with=$(sends_of 300)
	before=$(statistic "$dev2" rdma_sends)
	ip netns exec n1 ib_send_bw -F -d "$dev1" -x "$gid1" -s 4096 -D $((20 * slowness)) >/dev/null 2>&1 &
	server=$!
	await_listener in1 18515 "$server"
	ip netns exec n2 ib_send_bw -F -d "$dev2" -x "$gid2" -s 4096 -D $((20 * slowness)) "$address1" >/dev/null 2>&1 &
	client=$!
	if await $((50 * slowness)) counted_by_type; then
		is_counted=1
		await $((100 * slowness)) counts_read && is_read=1
	fi
	rdma statistic qp show link "$dev2/1"
	kill -9 "$client" "$server"
	wait "$client" "$server"
	rdma statistic qp set link "$dev2/1" auto off || fail "rdma does not turn it off"
	[ "$is_counted" -eq 1 ] || fail "no queue pair of the type RC is counted"
	echo "of the queue pair: $first, then of the device: $now, then of the queue pair: $second"
	[ "$is_read" -eq 1 ] || fail "the machine is too slow to read them"
	if [ "$now" -lt "$first" ] || [ "$now" -gt "$second" ]; then
		fail "they do not fit"
	fi
	[ "$with" = "$without" ] || fail "300 messages: $with with a counter, $without without"
}

# Reads the counter of the queue pair, the device's, and the former again. Messages go on in between: whether they were
# fewer than before. If so, what is counted twice is more than the last number.
counts_read()
{
	first=$(sends_by_type)
	now=$(($(statistic "$dev2" rdma_sends) - before))
	second=$(sends_by_type)
	[ "${first:-0}" -gt 0 ] && [ "${second:-0}" -ge "$first" ] && [ "$second" -lt $((first * 2)) ]
}

sends_by_type()
{
	rdma statistic qp show link "$dev2/1" | sed -n 's/.*rdma_sends \([0-9]*\).*/\1/p'
}

counted_by_type()
{
	rdma statistic qp show link "$dev2/1" | tr '\n' ' ' | grep -qE 'qp-type RC.*rdma_sends [1-9]'
}

counter_by_number()
{
	local number out
	[ "$link_type" = ferroce ] || skip "only ferroce counts for queue pairs"
	number=$(sed -n 's/^qp lqpn=\([0-9]*\) .*type=RC.*/\1/p' "$objects" | head -n 1)
	rdma statistic qp bind link "$dev1/1" lqpn "$number" || fail "rdma does not bind it"
	out=$(rdma statistic qp show link "$dev1/1")
	echo "$out"
	! grep -q sent_pkts <<<"$out" || fail "the packets are not counted for each queue pair"
	grep -q "LQPN: <$number>" <<<"$out" || fail "it is not shown"
	! rdma statistic qp bind link "$dev1/1" lqpn "$number" || fail "it is bound twice"
	number="cntn $(sed -n 's/.*cntn \([0-9]*\).*/\1/p' <<<"$out") lqpn $number"
	# shellcheck disable=SC2086 # words
	rdma statistic qp unbind link "$dev1/1" $number || fail "rdma does not unbind it"
	[ -z "$(rdma statistic qp show link "$dev1/1")" ] || fail "it is still shown: $(rdma statistic qp show link "$dev1/1")"
}

# bound_to QPN: the number of the counter that the queue pair is bound to, alone.
bound_to()
{
	rdma statistic qp show link "$dev1/1" | tr '\n' ' ' | sed 's/link /\n&/g' |
		sed -nE "s/.* cntn ([0-9]+) .*LQPN: <$1> *$/\1/p"
}

# Two counters of one device have two numbers, and each its own queue pair.
counters_by_number()
{
	local qps qp first second
	[ "$link_type" = ferroce ] || skip "only ferroce counts for queue pairs"
	mapfile -t qps < <(sed -n 's/^qp lqpn=\([0-9]*\) .*type=RC.*/\1/p' "$objects" | head -n 2)
	for qp in "${qps[@]}"; do
		rdma statistic qp bind link "$dev1/1" lqpn "$qp" || fail "rdma does not bind $qp"
	done
	rdma statistic qp show link "$dev1/1"
	first=$(bound_to "${qps[0]}") second=$(bound_to "${qps[1]}")
	[ -n "$first" ] || fail "${qps[0]} is with no counter of its own"
	[ -n "$second" ] || fail "${qps[1]} is with no counter of its own"
	[ "$first" != "$second" ] || fail "both counters have the number $first"
	! rdma statistic qp unbind link "$dev1/1" cntn "$first" lqpn "${qps[1]}" || fail "it is unbound from another's counter"
	rdma statistic qp unbind link "$dev1/1" cntn "$first" lqpn "${qps[0]}" || fail "rdma does not unbind the first"
	[ -z "$(bound_to "${qps[0]}")" ] || fail "the first is still bound"
	[ "$(bound_to "${qps[1]}")" = "$second" ] || fail "the second is not bound any more"
	rdma statistic qp unbind link "$dev1/1" cntn "$second" lqpn "${qps[1]}" || fail "rdma does not unbind the second"
}

# counter DEVICE NAME: what sysfs shows for the port.
counter()
{
	cat "/sys/class/infiniband/$1/ports/1/counters/$2"
}

# The counters that node_exporter and perfquery know: data is counted in units of four bytes.
port_counters()
{
	local name before=() now=() least moved errors i=0
	local names=("$dev2 port_xmit_packets" "$dev1 port_rcv_packets" "$dev2 port_xmit_data" "$dev1 port_rcv_data")
	local packets=$((100 * 65536 / 4096)) data=$((100 * 65536 / 4))
	# shellcheck disable=SC2086 # two words
	for name in "${names[@]}"; do before+=("$(counter $name)") || return 1; done
	errors=$(counter "$dev1" port_rcv_errors) || return 1
	transfer
	# shellcheck disable=SC2086 # two words
	for name in "${names[@]}"; do now+=("$(counter $name)"); done
	for least in "$packets" "$packets" "$data" "$data"; do
		moved=$((now[i] - before[i]))
		echo "${names[i]}: $moved"
		[ "$moved" -ge "$least" ] || fail "${names[i]}: fewer than $least"
		[ "$moved" -le $((least * 2)) ] || fail "${names[i]}: far more than $least"
		i=$((i + 1))
	done
	[ "$(counter "$dev1" port_rcv_errors)" -eq "$errors" ] || fail "errors where there were none"
}

# Two counters, and that of the port, which sums them up and ends at 65535.
errors_shown()
{
	local malformed wrong sum
	malformed=$(counter_of "$dev1" malformed_pkts) && wrong=$(counter_of "$dev1" icrc_err) || return 1
	sum=$((malformed + wrong))
	echo "$malformed packets are malformed, $wrong have a wrong ICRC; $(counter "$dev1" port_rcv_errors) errors"
	[ "$malformed" -eq $((malformed_before + 3)) ] && [ "$wrong" -eq $((wrong_before + 3)) ] &&
		[ "$(counter "$dev1" port_rcv_errors)" -eq $((sum < 65535 ? sum : 65535)) ]
}

# Packets that are no RoCE packets, and an ACK to nobody with a wrong ICRC.
port_errors()
{
	local malformed_before wrong_before
	[ "$link_type" = ferroce ] || skip "the counters of another driver"
	malformed_before=$(counter_of "$dev1" malformed_pkts) && wrong_before=$(counter_of "$dev1" icrc_err) || return 1
	# shellcheck disable=SC2154 # of namespaces.sh
	in2 python3 - "$address1" <<-'END' || return 1
		import socket, sys
		s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		for _ in range(3):
		    s.sendto(b"x" * 20, (sys.argv[1], 4791))
		    s.sendto(bytes.fromhex("11 00 ffff 00fffff0 00000000 1f000000 00000000"), (sys.argv[1], 4791))
	END
	await $((50 * slowness)) errors_shown >/dev/null
	errors_shown
}

# As rdma-ndd writes it.
description()
{
	local file=/sys/class/infiniband/$dev1/node_desc before
	before=$(cat "$file")
	[ -n "$before" ] || fail "there is none"
	echo "host $dev1" >"$file" || fail "it cannot be written"
	grep -qx "host $dev1" "$file" || fail "it is $(cat "$file")"
	head -c 100 /dev/zero | tr '\0' x >"$file"
	[ "$(tr -d '\n' <"$file" | wc -c)" -eq 64 ] || fail "not cut to 64 bytes: $(cat "$file")"
	echo "$before" >"$file"
}

# Connection identifiers of rdma_cm: a listener, and both ends of a connection.
connection_ids()
{
	local server client out status=0
	ip netns exec n1 rping -s -a "$address1" -p 7174 >"$ktap_dir/server" 2>&1 &
	server=$!
	await_listener in1 7174 "$server"
	out=$(rdma res show cm_id link "$dev1/1")
	echo "$out"
	grep -qE "state LISTEN .*pid $server .*src-addr $address1:7174" <<<"$out" ||
		{ echo "the listener is not shown"; status=1; }
	ip netns exec n2 rping -c -a "$address1" -p 7174 >"$ktap_dir/client" 2>&1 &
	client=$!
	await $((50 * slowness)) connected "$dev2" ||
		{ rdma res show cm_id; echo "no connection is shown"; status=1; }
	rdma res show cm_id link "$dev1/1" | grep -qE "state CONNECT .*src-addr $address1:7174 dst-addr $address2:" ||
		{ rdma res show cm_id; echo "the server's end is not shown"; status=1; }
	kill "$server" "$client"
	wait "$server" "$client"
	! connected "$dev2" || { echo "a connection is still shown"; status=1; }
	return "$status"
}

connected()
{
	rdma res show cm_id link "$1/1" | grep -qE "state CONNECT .*src-addr $address2:[0-9]+ dst-addr $address1:7174"
}

# monitored WORDS: a line of rdma monitor.
monitored()
{
	grep -qE "$1" "$ktap_dir/monitor"
}

# Some netlink socket listens to the events of RDMA devices: 20 is NETLINK_RDMA.
is_monitored()
{
	[ -n "$(awk '$2 == 20 && $4 !~ /^0+$/' /proc/net/netlink)" ]
}

# A device comes, is renamed, so is its netdev, and it goes. As long as namespaces share devices, all events are for the
# first one, and only netdevs of that are named.
monitor()
{
	local pid what status=0
	stdbuf -oL rdma monitor >"$ktap_dir/monitor" 2>&1 &
	pid=$!
	await $((50 * slowness)) is_monitored || { echo "rdma monitor does not listen"; status=1; }
	ip link add quiet type dummy && ip link set quiet up &&
		rdma link add watched type "$link_type" netdev quiet && rdma dev set watched name renamed &&
		ip link set quiet name louder && rdma link delete renamed || status=1
	await $((50 * slowness)) monitored '\[UNREGISTER\]'
	kill "$pid"
	wait "$pid"
	ip link delete louder
	cat "$ktap_dir/monitor"
	for what in '\[REGISTER\].* watched' '\[NETDEV_ATTACH\].* watched port 1 netdev [0-9]+ quiet' \
		'\[RENAME\].* renamed' '\[UNREGISTER\].* renamed'; do
		monitored "$what" || { echo "no $what"; status=1; }
	done
	return "$status"
}

# In what the row before has seen.
netdev_renamed()
{
	[ "$link_type" != ferroce ] || skip "the RDMA core finds devices for it by ib_device_set_netdev(), which hands ours to rdma_rxe"
	cat "$ktap_dir/monitor"
	monitored '\[NETDEV_RENAME\].* louder' || fail "no NETDEV_RENAME"
}

# When the process has ended, so have its objects.
ended()
{
	local tries out
	kill -9 "$holder"
	for tries in $(seq $((50 * slowness))); do
		out=$(rdma res show qp link "$dev1"; rdma res show mr dev "$dev1"; rdma res show ctx dev "$dev1")
		grep -qw "pid $holder" <<<"$out" || return 0
		sleep 0.1
	done
	echo "$out"
	fail "they are still shown after $tries tries"
}

ktap_start 28
netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
hold_start
row "modinfo: a version" module_version
row "rdma dev" devices
row "two netdevs with one MAC address: two GUIDs" same_mac
row "the GUID is the MAC address's" guid
row "limits" limits
row "the name is the user's" names_assigned
row "rdma link" links
row "rdma res show qp" queue_pairs
row "rdma res show mr" memory_regions
row "rdma res show cq" completion_queue
row "rdma res show pd" owned pd
row "rdma res show ctx" owned ctx
row "rdma res show -dd qp" described qp "max_sends 127" "sends 0" "max_recvs 127"
row "rdma res show -dd cq" described cq "vector 0" "armed no" "moderation-count 0" "moderation-period 0"
row "rdma res show -dd mr" described mr "memory pinned" "access 0x[0-9a-f]+" "windows 0"
row "rdma res show" summary
row "rdma statistic qp bind" counter_by_number
row "rdma statistic qp bind: two counters" counters_by_number
row "the end of a process" ended
row "rdma statistic show" statistics
row "rdma statistic qp set auto" counters_by_type
row "ports/1/counters" port_counters
row "ports/1/counters: errors" port_errors
row "node_desc" description
row "rdma res show cm_id" connection_ids
row "rdma monitor" monitor
row "rdma monitor: the netdev's new name" netdev_renamed
row "the netdev goes down and up" link_losses
rm -f "$objects"
ktap_finish
