#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: stock programs: libibverbs examples, librdmacm examples, perftest
# Suites: all
#
# Stock programs between two namespaces: libibverbs' examples, librdmacm's
# examples and perftest, each a row. Needs the devices of `scripts/vm --net veth`.
#
# FERROCE_FULL=1 runs them with more iterations; the debug kernel with a fifth, at least 5, or it takes
# hours.
set -u
. "$(dirname "$0")/../lib/test.sh"

full=${FERROCE_FULL:-0}
cm_port=7174
perftest_port=18515
# Of a perftest run, in seconds.
limit=120
[ "$full" != 1 ] || limit=600
pingpong_port=18515

# count ONE [FULL]: an iteration count
count()
{
	local number=$1
	[ "$full" != 1 ] || number=${2:-$1}
	# shellcheck disable=SC2154 # of namespaces.sh
	[ "$slowness" -eq 1 ] || number=$((number < 25 ? 5 : number / 5))
	echo "$number"
}

devinfo()
{
	local device out
	for device in "$dev1" "$dev2"; do
		out=$(ibv_devinfo -v -d "$device") || fail "ibv_devinfo: status $?"
		echo "$out"
		grep -q 'state:.*PORT_ACTIVE' <<<"$out" || fail "$device: the port is not active"
		grep -q 'link_layer:.*Ethernet' <<<"$out" || fail "$device: not Ethernet"
		grep -qE 'GID\[.*RoCE v2' <<<"$out" || fail "$device: no RoCE v2 GID"
	done
}

# pingpong PROGRAM ITERATIONS ARG...: 'bytes in' and 'iters in' end each side's output.
pingpong()
{
	local program=$1 iterations=$2 side
	shift 2
	pair 60 "$pingpong_port" \
		"$program" -d "$dev1" -g "$gid1" -n "$iterations" "$@" -- \
		"$program" -d "$dev2" -g "$gid2" -n "$iterations" "$@" "$address1" || return 1
	for side in server client; do
		grep -q "^$iterations iters in" "$ktap_dir/$side" || fail "$side: no result"
		# -c reports what it finds and exits with 0 all the same.
		! grep -qi 'invalid data' "$ktap_dir/$side" || fail "$side: wrong data"
	done
}

# rping_run ADDRESS COUNT ARG...: with -v each side prints a line for each message.
rping_run()
{
	local address=$1 iterations=$2 lines
	shift 2
	pair 60 "$cm_port" \
		rping -s -a "$address" -p "$cm_port" -v -V -C "$iterations" "$@" -- \
		rping -c -a "$address" -p "$cm_port" -v -V -C "$iterations" "$@" >"$ktap_dir/pair"
	local status=$?
	grep -vE '(ping data: )' "$ktap_dir/pair"
	[ "$status" -eq 0 ] || return 1
	lines=$(grep -c 'ping data: ' "$ktap_dir/client")
	[ "$lines" -eq "$iterations" ] || fail "the client shows $lines messages of $iterations"
	lines=$(grep -c 'server ping data: ' "$ktap_dir/server")
	[ "$lines" -eq "$iterations" ] || fail "the server shows $lines messages of $iterations"
}

# A persistent server serves three clients at once, then gets SIGTERM.
rping_persistent()
{
	local server clients=() client lines status failed=0
	ip netns exec n1 rping -s -P -a "$address1" -p "$cm_port" -v -V >"$ktap_dir/server" 2>/dev/null &
	server=$!
	await $((100 * slowness)) listening in1 "$cm_port" || failed=1
	for client in 1 2 3; do
		ip netns exec n2 timeout -k 2 $((60 * slowness)) rping -c -a "$address1" -p "$cm_port" -v -V -C 100 \
			>"$ktap_dir/client$client" 2>"$ktap_dir/client$client.errors" &
		clients+=($!)
	done
	for client in 1 2 3; do
		wait "${clients[client - 1]}"
		status=$?
		lines=$(grep -c 'ping data: ' "$ktap_dir/client$client")
		echo "client $client: status $status, $lines lines"
		cat "$ktap_dir/client$client.errors"
		[ "$status" -eq 0 ] && [ "$lines" -eq 100 ] || failed=1
	done
	kill -0 "$server" || { echo "the server is gone"; failed=1; }
	kill -TERM "$server"
	if ! await $((50 * slowness)) has_ended "$server"; then
		echo "SIGTERM does not end the server"
		kill -9 "$server"
		failed=1
	fi
	wait "$server"
	grep -v 'ping data: ' "$ktap_dir/server"
	lines=$(grep -c 'server ping data: ' "$ktap_dir/server")
	echo "server: $lines lines"
	[ "$lines" -eq 300 ] || failed=1
	return "$failed"
}

# cm_pair PORT PROGRAM ARG...: librdmacm's examples which need only -s, and the port each is known by.
cm_pair()
{
	local port=$1
	shift
	pair 60 "$port" "$@" -- "$@" -s "$address1"
}

# That of rdma-core 65 is told where the sides meet, and is a client unless told otherwise; the server of
# that of 44, which has no threads, does not end.
cmtime_pair()
{
	local port=7471 usage
	usage=$(cmtime -h 2>&1)
	case $usage in
	*'-C controller_address'*)
		pair 60 "$port" cmtime -L -b "$address1" -C "$address1" -p "$port" "$@" -- \
			cmtime -b "$address2" -C "$address1" -p "$port" "$@"
		;;
	*num_threads*) cm_pair "$port" cmtime "$@" ;;
	*) endless=1 cm_pair "$port" cmtime "$@" ;;
	esac
}

rdma_pair()
{
	pair 60 7471 rdma_server -- rdma_client -s "$address1" || return 1
	grep -q 'rdma_client: end 0' "$ktap_dir/client" || fail "the client does not end with 0"
	grep -q 'rdma_server: end 0' "$ktap_dir/server" || fail "the server does not end with 0"
}

# Their connection is RC or XRC as asked for.
xrc_pair()
{
	pair 60 7471 rdma_xserver "$@" -- rdma_xclient -s "$address1" "$@" || return 1
	grep -q 'end 0' "$ktap_dir/client" || fail "the client does not end with 0"
}

# Each side is both ends of a connection to the other.
xsrq_pair()
{
	pair 60 "$pingpong_port" \
		ibv_xsrq_pingpong -d "$dev1" -g "$gid1" "$@" -- \
		ibv_xsrq_pingpong -d "$dev2" -g "$gid2" "$@" "$address1" || return 1
	grep -qx success "$ktap_dir/server" || fail "server: no success"
	grep -qx success "$ktap_dir/client" || fail "client: no success"
}

# rsockets' datagrams are for address handles without a GRH, which the core refuses where there are no LIDs.
udpong_refused()
{
	local server status
	ip netns exec n1 timeout $((60 * slowness)) udpong >"$ktap_dir/server" 2>&1 &
	server=$!
	await $((100 * slowness)) sh -c "ip netns exec n1 ss -Hlun 'sport = :7174' | grep -q ." || fail "udpong does not listen"
	in2 timeout $((60 * slowness)) strace -f -e trace=ioctl -o "$ktap_dir/trace" udpong -s "$address1"
	status=$?
	kill "$server"
	wait "$server"
	tail -n 20 "$ktap_dir/trace"
	[ "$status" -eq 255 ] || fail "status $status"
	grep -c 'RDMA_VERBS_IOCTL.*= -1 EINVAL' "$ktap_dir/trace" | grep -qx 1 || fail 'refused by something else'
}

# rstream_pair PROGRAM ARG...: each size has a line with its bandwidth.
rstream_pair()
{
	local program=$1
	shift
	pair 120 7471 "$program" "$@" -- "$program" -s "$address1" "$@" || return 1
	grep -qE '^[a-z0-9_]+ +[0-9.]+[kmg]? .*[0-9.]+$' "$ktap_dir/client" || fail "no figures"
}

rcopy_pair()
{
	head -c 3000001 /dev/urandom >"$ktap_dir/source"
	rm -f "$ktap_dir/copy"
	endless=1 pair 60 7427 rcopy -- rcopy "$ktap_dir/source" "$address1:$ktap_dir/copy" || return 1
	cmp "$ktap_dir/source" "$ktap_dir/copy"
}

# overflows: how often a CQ of a device had no room
overflows()
{
	local device sum=0
	for device in "$dev1" "$dev2"; do
		sum=$((sum + $(counter_of "$device" cq_overflow 2>/dev/null || echo 0)))
	done
	echo "$sum"
}

# mistakes_events PROGRAM: before version 6.15 of 2023, perftest gets the events of both CQs from one channel. A message may
# come before the ACK of the send before it. ib_send_lat takes the message's event for that of the send, and does not look
# for the send's completion again. The completion of its next send finds no room in the CQ, which has one entry.
mistakes_events()
{
	[ "$1" = ib_send_lat ] && dpkg --compare-versions "$("$1" --version | sed 's,.* ,,')" lt 6.15
}

# perftest ROWS PROGRAM ARG...: that many rows of figures must stand in the client's output. Skipped if the
# program says that it has not a long option.
perftest()
{
	local rows=$1 program=$2 found=0 option attempt before
	shift 2
	for option; do
		if [[ $option == --* ]] && ! "$program" --help | grep -qw -e "$option"; then
			skip "$program $("$program" --version | sed 's,.* ,,') has no $option"
		fi
	done
	for attempt in 1 2 3; do
		before=$(overflows)
		if ! pair "$limit" "$perftest_port" \
			"$program" -F -d "$dev1" -x "$gid1" "$@" -- \
			"$program" -F -d "$dev2" -x "$gid2" "$@" "$address1"; then
			[ "$(overflows)" -gt "$before" ] && mistakes_events "$program" || return 1
			note "$program $*: attempt $attempt: it took one event for another"
			continue
		fi
		found=$(grep -cE '^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+' "$ktap_dir/client")
		[ "$found" -ne "$rows" ] || return 0
		# It measures the CPU's clock for each size; where the machine is too busy for that, it says so, and has "inf"
		# instead of figures.
		grep -q '^Correlation coefficient r^2: ' "$ktap_dir/client.errors" || break
		note "$program $*: attempt $attempt: it could not measure the CPU's clock"
	done
	fail "$found rows of figures, $rows expected"
}

# A receiver in n1, a sender in n2. Both rdma_cm and the device join the group.
mckey_pair()
{
	local mapped=239.77.1.1 receiver netdev status failed=0
	netdev=$(netdev_of n1 "$dev1")
	ip netns exec n1 timeout -k 2 $((60 * slowness)) mckey -m "$mapped" -b "$address1" "$@" \
		>"$ktap_dir/server" 2>&1 &
	receiver=$!
	await $((100 * slowness)) in_group n1 "$netdev" "$mapped" 2 || ip -n n1 maddr show dev "$netdev"
	in2 timeout -k 2 $((60 * slowness)) mckey -m "$mapped" -b "$address2" -s "$@" >"$ktap_dir/client" 2>&1
	status=$?
	sed 's/^/sender: /' "$ktap_dir/client"
	[ "$status" -eq 0 ] || { echo "sender: status $status"; failed=1; kill "$receiver"; }
	wait "$receiver"
	status=$?
	sed 's/^/receiver: /' "$ktap_dir/server"
	[ "$status" -eq 0 ] || { echo "receiver: status $status"; failed=1; }
	grep -q 'data transfers complete' "$ktap_dir/server" || failed=1
	! ip -n n1 maddr show dev "$netdev" | grep -qF "$mapped" || { echo "$netdev is still in it"; failed=1; }
	return "$failed"
}

# An MGID as such: rdma_cm takes that for an IPv6 group, and has none for RoCE v2.
mckey_unmapped()
{
	in1 timeout $((30 * slowness)) mckey -M ::ffff:239.77.1.1 -b "$address1" && fail "it is not refused"
	in1 timeout $((30 * slowness)) mckey -M ::ffff:239.77.1.1 -b "$address1" 2>&1 |
		grep -q 'failure joining: Unknown error 524' || fail "refused by something else"
}

# multicast_bw GID1 GID2 MGID ARG...: each side's queue pair is in the group.
multicast_bw()
{
	local gid1=$1 gid2=$2 group=$3
	shift 3
	perftest 1 ib_send_bw -c UD -g -M "$group" "$@"
}

# A VLAN's address is a GID of the device below; rdma_cm finds it by the VLAN that a request came over.
rping_vlan()
{
	local netdev1 netdev2 status
	netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
	if ! { in1 ip link add link "$netdev1" name vlan5 type vlan id 5 &&
		in2 ip link add link "$netdev2" name vlan5 type vlan id 5 &&
		in1 ip address add 10.0.5.1/24 dev vlan5 && in2 ip address add 10.0.5.2/24 dev vlan5 &&
		in1 ip link set vlan5 up && in2 ip link set vlan5 up; }; then
		fail "no VLAN"
	fi
	gid_index_wait "$dev1" 10.0.5.1 || fail "10.0.5.1 is no GID"
	gid_index_wait "$dev2" 10.0.5.2 || fail "10.0.5.2 is no GID"
	rping_run 10.0.5.1 100 && client_at=n1 rping_run 10.0.5.1 100
	status=$?
	in1 ip link delete vlan5
	in2 ip link delete vlan5
	return "$status"
}

# Another netdev has a route to addresses of that scope, too, and a better one.
pingpong_link_local()
{
	local netdev1 netdev2 gid1 gid2 status
	netdev1=$(netdev_of n1 "$dev1") netdev2=$(netdev_of n2 "$dev2")
	if ! { in1 ip link add other5 type dummy && in2 ip link add other5 type dummy &&
		in1 ip link set other5 up && in2 ip link set other5 up &&
		in1 ip -6 route add fe80::/64 dev other5 metric 1 &&
		in2 ip -6 route add fe80::/64 dev other5 metric 1; }; then
		fail "no other netdev"
	fi
	gid1=$(gid_index_wait "$dev1" "$(link_local n1 "$netdev1")") || fail "$dev1: no GID of link scope"
	gid2=$(gid_index_wait "$dev2" "$(link_local n2 "$netdev2")") || fail "$dev2: no GID of link scope"
	pingpong ibv_rc_pingpong 20
	status=$?
	in1 ip link delete other5
	in2 ip link delete other5
	return "$status"
}

# One row to a line: name | function and arguments
table()
{
	local mtu program op events sizes=23 n q
	# The server of ibv_srq_pingpong leaves while messages to it are under way; the client must have polled what it needs
	# before these give up, half a second later. It posts to each of its queue pairs, 16 if not told, before it polls
	# again, which takes a tenth of a second per large message where all is checked.
	cat <<-END
		ibv_devinfo -v | devinfo
		ibv_rc_pingpong | pingpong ibv_rc_pingpong $(count 1000)
		ibv_rc_pingpong -e | pingpong ibv_rc_pingpong $(count 1000) -e
		ibv_rc_pingpong -N | pingpong ibv_rc_pingpong $(count 1000) -N
		ibv_rc_pingpong -o | pingpong ibv_rc_pingpong $(count 1000) -o
		ibv_rc_pingpong -s 1000000 | pingpong ibv_rc_pingpong $(count 50) -s 1000000
		ibv_rc_pingpong -c | pingpong ibv_rc_pingpong $(count 500) -c
	END
	for mtu in 256 512 1024 2048 4096; do
		echo "ibv_rc_pingpong -m $mtu | pingpong ibv_rc_pingpong $(count 500) -m $mtu"
	done
	cat <<-END
		ibv_uc_pingpong | pingpong ibv_uc_pingpong $(count 500)
		ibv_uc_pingpong -e | pingpong ibv_uc_pingpong $(count 500) -e
		ibv_ud_pingpong | pingpong ibv_ud_pingpong $(count 500)
		ibv_ud_pingpong -e | pingpong ibv_ud_pingpong $(count 500) -e
		ibv_srq_pingpong | pingpong ibv_srq_pingpong $(count 1000)
		ibv_srq_pingpong -e | pingpong ibv_srq_pingpong $(count 1000) -e
		ibv_srq_pingpong -s 100000 | pingpong ibv_srq_pingpong $(count 100) -s 100000 -q 4
		rping, IPv4 | rping_run $address1 $(count 1000)
		rping, IPv6 | rping_run $address1v6 $(count 1000)
		rping -S 65535, IPv4 | rping_run $address1 $(count 100 1000) -S 65535
		rping -S 65535, IPv6 | rping_run $address1v6 $(count 100 1000) -S 65535
		rping -P, three clients, SIGTERM | rping_persistent
		rping over a VLAN | rping_vlan
		ibv_rc_pingpong, addresses of link scope | pingpong_link_local
		ucmatose | cm_pair 7471 ucmatose
		udaddy | cm_pair 7174 udaddy
		udpong, which knows peers by LID only | udpong_refused
		rdma_server, rdma_client | rdma_pair
		rdma_xserver, rdma_xclient -c r | xrc_pair -c r
		rstream -S all | rstream_pair rstream -S all -I $(count 20)
		rstream -T b | rstream_pair rstream -T b -S 65536 -I $(count 50) -C 10
		rstream -T v | rstream_pair rstream -T v -S 65536 -I $(count 50) -C 10
		rstream -T f | rstream_pair rstream -T f -S 65536 -I $(count 50) -C 10
		riostream -S all | rstream_pair riostream -S all -I $(count 20)
		riostream -T v | rstream_pair riostream -T v -S 65536 -I $(count 50) -C 10
		rcopy | rcopy_pair
		cmtime | cmtime_pair -c $(count 50)
		mckey | mckey_pair
		mckey -M, which rdma_cm refuses | mckey_unmapped
		ib_send_bw -c UD -g, IPv4 | multicast_bw $gid1 $gid2 $mgid4 -s 1024 -n $(count 200)
		ib_send_bw -c UD -g, IPv6 | multicast_bw $gid1v6 $gid2v6 $mgid6 -s 1024 -n $(count 200)
	END
	# All sizes from 2 B to 8 MiB in one run, with and without rdma_cm. Twenty of each: enough
	# of the long ones to have more under way than a receiver's backlog holds.
	n=$(count 20)
	for program in ib_send_bw ib_send_lat ib_read_bw ib_read_lat ib_write_bw ib_write_lat; do
		events=-e
		case $program in
		ib_write_*) events= ;;
		esac
		echo "$program${events:+ $events} -a | perftest $sizes $program -a -n $n $events"
		echo "$program${events:+ $events} -a -R | perftest $sizes $program -a -n $n -R $events"
	done
	for program in ib_atomic_bw ib_atomic_lat; do
		for op in FETCH_AND_ADD CMP_AND_SWAP; do
			n=$(count 500 5000)
			echo "$program -e $op | perftest 1 $program -e -A $op -n $n"
			echo "$program -e -R $op | perftest 1 $program -e -R -A $op -n $n"
		done
	done
	# More of them in small sizes, polling too.
	n=$(count 1000 10000)
	for program in ib_send_bw ib_send_lat ib_read_bw ib_read_lat; do
		echo "$program -s 2 | perftest 1 $program -s 2 -n $n"
		echo "$program -e -s 4096 | perftest 1 $program -e -s 4096 -n $n"
	done
	for program in ib_write_bw ib_write_lat; do
		echo "$program -s 2 | perftest 1 $program -s 2 -n $n"
		echo "$program -s 4096 | perftest 1 $program -s 4096 -n $n"
	done
	for q in "ib_send_bw -e" ib_write_bw "ib_read_bw -e"; do
		echo "$q -q 16 -s 2 | perftest 1 $q -q 16 -s 2 -n $(count 200 2000)"
		echo "$q -q 16 -s 65536 | perftest 1 $q -q 16 -s 65536 -n $(count 20 200)"
		echo "$q -q 16 -R -s 65536 | perftest 1 $q -q 16 -R -s 65536 -n $(count 20 200)"
		# Far more than fits in any queue on the way.
		echo "$q -s 8388608 -n $(count 20) | perftest 1 $q -s 8388608 -n $(count 20)"
	done
	echo "ib_atomic_bw -e -q 16 | perftest 1 ib_atomic_bw -e -q 16 -n $(count 100 1000)"
	for program in ib_send_bw ib_send_lat; do
		echo "$program -c UD | perftest 1 $program -c UD -s 1024 -n $n"
		echo "$program -c UD -e | perftest 1 $program -c UD -e -s 1024 -n $n"
		echo "$program -c UC -e -s 4096 | perftest 1 $program -c UC -e -s 4096 -n $(count 200)"
		echo "$program -c UC -e -m 256 -s 65536 | perftest 1 $program -c UC -e -m 256 -s 65536 -n $(count 50)"
		echo "$program -c UD -R -e | perftest 1 $program -c UD -R -e -s 1024 -n $n"
	done
	# Inline data, lists of requests, both directions, the older calls.
	n=$(count 500 5000)
	for program in "ib_send_bw -e" "ib_send_lat -e" ib_write_bw ib_write_lat; do
		echo "$program -I 64 | perftest 1 $program -I 64 -s 64 -n $n"
		echo "$program --use_old_post_send | perftest 1 $program --use_old_post_send -s 4096 -n $n"
	done
	for program in "ib_read_bw -e" "ib_read_lat -e" "ib_atomic_bw -e" "ib_atomic_lat -e"; do
		echo "$program --use_old_post_send | perftest 1 $program --use_old_post_send -n $n"
	done
	for program in ib_send_bw ib_write_bw ib_read_bw; do
		echo "$program -l 16 | perftest 1 $program -l 16 -s 4096 -n $((n / 16 * 16))"
		echo "$program -b | perftest 1 $program -b -s 65536 -n $(count 50)"
		echo "$program --odp | perftest 1 $program --odp -s 65536 -n $(count 50)"
	done
	echo "ib_write_bw --write_with_imm | perftest 1 ib_write_bw --write_with_imm -s 4096 -n $n"
	echo "ib_write_bw --write_with_imm -c UC | perftest 1 ib_write_bw --write_with_imm -c UC -s 4096 -n $n"
	# A shared receive queue, of one and of several queue pairs.
	n=$(count 200 2000)
	echo "ib_send_bw --use-srq | perftest 1 ib_send_bw --use-srq -s 65536 -n $n"
	echo "ib_send_bw --use-srq -e -q 8 | perftest 1 ib_send_bw --use-srq -e -q 8 -s 4096 -n $n"
	echo "ib_send_bw --use-srq -R | perftest 1 ib_send_bw --use-srq -R -s 4096 -n $n"
	echo "ib_send_lat --use-srq | perftest 1 ib_send_lat --use-srq -s 4096 -n $n"
	echo "ib_send_bw --use-srq -c UD | perftest 1 ib_send_bw --use-srq -c UD -s 1024 -n $n"
	echo "ib_send_bw --use-srq -c UC | perftest 1 ib_send_bw --use-srq -c UC -s 4096 -n $n"
	for program in ib_write_bw ib_write_lat; do
		echo "$program -c UC -s 4096 | perftest 1 $program -c UC -s 4096 -n $(count 200)"
	done
	[ "${FERROCE_PROVIDER:-librxe}" = librxe ] || table_xrc
}

# What stock librxe has not (Documentation/provider.rst).
table_xrc()
{
	local program n
	cat <<-END
		ibv_xsrq_pingpong | xsrq_pair -n $(count 500)
		ibv_xsrq_pingpong -e | xsrq_pair -n $(count 500) -e
		ibv_xsrq_pingpong -s 100000 | xsrq_pair -n $(count 50) -s 100000
		rdma_xserver, rdma_xclient -c x | xrc_pair -c x
	END
	n=$(count 20)
	for program in ib_send_bw ib_send_lat ib_read_bw ib_read_lat ib_write_bw ib_write_lat; do
		echo "$program -c XRC -a | perftest 23 $program -c XRC -a -n $n"
	done
	n=$(count 500 5000)
	for program in ib_atomic_bw ib_atomic_lat; do
		echo "$program -c XRC -A FETCH_AND_ADD | perftest 1 $program -c XRC -A FETCH_AND_ADD -n $n"
		echo "$program -c XRC -A CMP_AND_SWAP | perftest 1 $program -c XRC -A CMP_AND_SWAP -n $n"
	done
	for program in ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw; do
		echo "$program -c XRC --use_old_post_send | perftest 1 $program -c XRC --use_old_post_send -n $n"
		echo "$program -c XRC -q 8 | perftest 1 $program -c XRC -q 8 -n $(count 100 1000)"
	done
	for program in ib_send_bw ib_send_lat; do
		echo "$program -c XRC -e | perftest 1 $program -c XRC -e -s 4096 -n $n"
		echo "$program -c XRC -I 64 | perftest 1 $program -c XRC -I 64 -s 64 -n $n"
	done
	echo "ib_send_bw -c XRC -b | perftest 1 ib_send_bw -c XRC -b -s 65536 -n $(count 50)"
}

# shellcheck disable=SC2034 # used by the rows
gid1=$(gid_index_wait "$dev1" "$address1") gid2=$(gid_index_wait "$dev2" "$address2")
gid1v6=$(gid_index_wait "$dev1" "$address1v6") gid2v6=$(gid_index_wait "$dev2" "$address2v6")
# As perftest wants them: ::ffff:239.77.1.2 and ff15::77:102, whose scope leaves the machine.
mgid4=0:0:0:0:0:0:0:0:0:0:255:255:239:77:1:2 mgid6=255:21:0:0:0:0:0:0:0:0:0:0:0:119:1:2
# A subset by an extended regular expression on the names, to look at one thing.
mapfile -t rows < <(table | grep -E -e "${FERROCE_ROWS:-.}")
ktap_start "${#rows[@]}"
for line in "${rows[@]}"; do
	read -ra command <<<"${line#*|}"
	name=${line%%|*}
	row "${name% }" "${command[@]}"
done
ktap_finish
