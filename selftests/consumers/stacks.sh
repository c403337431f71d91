#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: MPI, UCX, libfabric, and programs over them
# Runs: never
# Needs: --suite consumers
#
# The libraries that people program with, and programs that know no RDMA, between two namespaces as two hosts: UCX,
# libfabric, MPI over both, qperf, fio, rsocket below unmodified programs. Needs the devices of `scripts/vm --net veth`
# and the programs of scripts/packages-consumers.
set -u
. "$(dirname "$0")/../lib/test.sh"

# shellcheck disable=SC2154 # of namespaces.sh
n=$((200 / slowness))

# How long MPI may take, in seconds. With another driver much fails that only time ends: UCX gives up sooner there.
mpi_seconds=$((300 * slowness))
give_up=()
# shellcheck disable=SC2154 # of namespaces.sh
if [ "$link_type" != ferroce ]; then
	mpi_seconds=60
	export UCX_UD_TIMEOUT=5s
	give_up=(-x UCX_UD_TIMEOUT)
fi

# --- UCX --------------------------------------------------------------------------------------------

# ucx TRANSPORT ARG...: ucx_perftest at both ends. What goes wrong it says in a line with ERROR, too.
ucx()
{
	local tls=$1 port=13337
	shift
	# Connections of rc_verbs begin over UD.
	[ "$tls" != rc_verbs ] || tls=rc_verbs,ud_verbs:aux
	pair 120 "$port" \
		env UCX_TLS="$tls" UCX_NET_DEVICES="$dev1:1" UCX_WARN_UNUSED_ENV_VARS=n \
		ucx_perftest -P 0 -p "$port" "$@" -- \
		env UCX_TLS="$tls" UCX_NET_DEVICES="$dev2:1" UCX_WARN_UNUSED_ENV_VARS=n \
		ucx_perftest -P 0 -p "$port" "$@" "$address1" || return 1
	ucx_result
}

# UCX 1.18 asks for a flush at the peer, which its rc_verbs has on no device, says so, and does without.
ucx_result()
{
	! grep -E ' (ERROR|FATAL) ' "$ktap_dir/client" "$ktap_dir/server" |
		grep -vE 'flush\(remote\) is not supported|during flush: Unsupported operation' || fail "UCX says that"
	grep -q '^Final:' "$ktap_dir/client" || fail "no result"
}

# uct TRANSPORT ARG...
uct()
{
	local transport=$1 port=13337
	shift
	pair 120 "$port" \
		ucx_perftest -P 0 -p "$port" -x "$transport" -d "$dev1:1" "$@" -- \
		ucx_perftest -P 0 -p "$port" -x "$transport" -d "$dev2:1" "$@" "$address1" || return 1
	ucx_result
}

# Name of the row | function and its words.
ucx_rows()
{
	local tls test size protocol
	for tls in rc_verbs ud_verbs; do
		for test in tag_lat tag_bw ucp_am_lat stream_bw; do
			for size in 8 8000 65536 1048576; do
				echo "UCX $tls: $test, $size bytes | ucx $tls -t $test -s $size -n $n -w 10"
			done
		done
		for protocol in get_zcopy put_zcopy am; do
			echo "UCX $tls: rendezvous by $protocol | rendezvous $tls $protocol"
		done
		for test in ucp_put_lat ucp_put_bw ucp_get; do
			for size in 8 65536 1048576; do
				echo "UCX $tls: $test, $size bytes | ucx $tls -t $test -s $size -n $n -w 10"
			done
		done
		for test in ucp_add ucp_fadd ucp_swap ucp_cswap; do
			echo "UCX $tls: $test | ucx $tls -t $test -s 8 -n $n -w 10"
		done
		echo "UCX $tls: sleeping | ucx $tls -t tag_lat -s 8 -n $n -w 10 -E sleep"
	done
	for test in am_lat put_lat; do
		for layout in short bcopy zcopy; do
			echo "UCT rc_verbs: $test, $layout | uct rc_verbs -t $test -D $layout -s 60 -n $n -w 10"
		done
	done
	echo "UCT rc_verbs: get, bcopy | uct rc_verbs -t get -D bcopy -s 1000 -n $n -w 10"
	echo "UCT rc_verbs: get, zcopy | uct rc_verbs -t get -D zcopy -s 100000 -n $n -w 10"
	echo "UCT rc_verbs: put_bw, zcopy | uct rc_verbs -t put_bw -D zcopy -s 100000 -n $n -w 10"
	for test in add_mr fadd cswap; do
		echo "UCT rc_verbs: $test | uct rc_verbs -t $test -s 8 -n $n -w 10"
	done
	for layout in short bcopy zcopy; do
		echo "UCT ud_verbs: am_lat, $layout | uct ud_verbs -t am_lat -D $layout -s 60 -n $n -w 10"
		echo "UCT ud_verbs: am_bw, $layout | uct ud_verbs -t am_bw -D $layout -s 60 -n $n -w 10"
	done
}

rendezvous()
{
	UCX_RNDV_SCHEME=$2 UCX_RNDV_THRESH=1024 ucx "$1" -t tag_bw -s 300000 -n "$n" -w 10
}

# --- libfabric --------------------------------------------------------------------------------------

# fabric PROVIDER ENDPOINT SIZE: with the data checked.
fabric()
{
	local port=47592 times=$n domain=
	# The name of a domain says which endpoints it has.
	[ "$2" != dgram ] || domain=-dgram
	[ "$3" -lt 1000000 ] || times=$((n / 10))
	pair 120 "$port" \
		fi_pingpong -p "$1" -e "$2" -d "$dev1$domain" -I "$times" -S "$3" -c -B "$port" -- \
		fi_pingpong -p "$1" -e "$2" -d "$dev2$domain" -I "$times" -S "$3" -c -P "$port" "$address1" || return 1
	grep -qE "^[0-9]+[km]? +$times " "$ktap_dir/client" || fail "no result"
}

fabric_rows()
{
	local size
	for size in 64 4096; do
		echo "libfabric: verbs, datagrams, $size bytes | fabric verbs dgram $size"
	done
	for size in 64 4096 65536 1048576; do
		echo "libfabric: verbs, connected, $size bytes | fabric verbs msg $size"
		echo "libfabric: verbs;ofi_rxm, reliable datagrams, $size bytes | fabric verbs;ofi_rxm rdm $size"
	done
}

# --- MPI --------------------------------------------------------------------------------------------

FERROCE_MPI_DEVICE1=$dev1 FERROCE_MPI_DEVICE2=$dev2
FERROCE_MPI_NETDEV1=$(netdev_of n1 "$dev1") FERROCE_MPI_NETDEV2=$(netdev_of n2 "$dev2")
export FERROCE_MPI_DEVICE1 FERROCE_MPI_DEVICE2 FERROCE_MPI_NETDEV1 FERROCE_MPI_NETDEV2
# UCX must not take shared memory or TCP instead.
export UCX_WARN_UNUSED_ENV_VARS=n OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi_parts=8
mpi_program=("$here/mpi_openmpi")
# MPICH looks its hosts up.
for host in n1 n2; do
	mkdir -p "/etc/netns/$host"
	printf '127.0.0.1\tlocalhost\n%s\tn1\n%s\tn2\n' "$address1" "$address2" >"/etc/netns/$host/hosts"
done

on_n1()
{
	ip netns exec n1 unshare --uts sh -c 'hostname n1; exec "$@"' sh timeout -k 5 "$mpi_seconds" "$@"
}

# UCX says nothing but what is fatal, or fills the log with what ucx_result() leaves out.
# openmpi RANKS HOSTS VARIABLE=VALUE... -- ARG...: HOSTS is as mpirun has it.
openmpi()
{
	local ranks=$1 hosts=$2 variables=()
	shift 2
	while [ "$1" != -- ]; do
		variables+=(-x "$1")
		shift
	done
	shift
	on_n1 mpirun.openmpi --prtemca plm_ssh_agent "$here/lib/mpi_agent.sh" --map-by :OVERSUBSCRIBE --bind-to none \
		--host "$hosts" -np "$ranks" -x FERROCE_MPI_DEVICE1 -x FERROCE_MPI_DEVICE2 -x FERROCE_MPI_NETDEV1 \
		-x FERROCE_MPI_NETDEV2 -x UCX_LOG_LEVEL=fatal -x UCX_WARN_UNUSED_ENV_VARS "${give_up[@]}" "${variables[@]}" "$@" \
		"$here/lib/mpi_rank.sh" "${mpi_program[@]}"
}

# Below Open MPI, libfabric's cache of registrations is not told when the heap shrinks and grows again; data then goes to
# pages that the process has no more, on any device. So without that cache.
openmpi_libfabric()
{
	mpi_program+=("Open MPI has no windows over libfabric")
	openmpi 2 n1:1,n2:1 FI_MR_CACHE_MAX_COUNT=0 -- --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'
}

# mpich RANKS HOSTS TRANSPORTS
mpich()
{
	UCX_LOG_LEVEL=fatal UCX_TLS=$3 on_n1 mpiexec.hydra -launcher ssh -launcher-exec "$here/lib/mpi_agent.sh" -hosts "$2" -np "$1" \
		"$here/lib/mpi_rank.sh" "$here/mpi_mpich"
}

# Name of the rows | command.
mpi_runs()
{
	local tls=UCX_TLS=rc_verbs,ud_verbs:aux,self
	echo "Open MPI, UCX rc, 2 hosts | openmpi 2 n1:1,n2:1 $tls -- --mca pml ucx --mca osc ucx"
	echo "Open MPI, UCX ud, 2 hosts | openmpi 2 n1:1,n2:1 UCX_TLS=ud_verbs,self -- --mca pml ucx --mca osc ucx"
	echo "Open MPI, libfabric, 2 hosts | openmpi_libfabric"
	echo "Open MPI, UCX rc, 4 ranks of one device | openmpi 4 n1:4 $tls -- --mca pml ucx --mca osc ucx"
	echo "Open MPI, UCX rc, 8 ranks on 2 hosts | openmpi 8 n1:4,n2:4 $tls -- --mca pml ucx --mca osc ucx --mca mpi_yield_when_idle 1"
	echo "MPICH, UCX rc, 2 hosts | mpich 2 n1:1,n2:1 rc_verbs,ud_verbs:aux,self"
	echo "MPICH, UCX ud, 2 hosts | mpich 2 n1:1,n2:1 ud_verbs,self"
	echo "MPICH, UCX rc, 4 ranks on 2 hosts | mpich 4 n1:2,n2:2 rc_verbs,ud_verbs:aux,self"
}

named()
{
	local name=$1
	shift
	"$@" | sed -u -E "s/^((not )?ok [0-9]+ )/\1$name: /"
	return "${PIPESTATUS[0]}"
}

# --- mpi4py -----------------------------------------------------------------------------------------

# Python over Open MPI over UCX: its own benchmark that checks what goes round.
mpi4py()
{
	local mpi_program=(python3 -m mpi4py.bench "$1")
	openmpi 2 n1:1,n2:1 UCX_TLS=rc_verbs,ud_verbs:aux,self -- --mca pml ucx --mca osc ucx
}

# --- Programs ---------------------------------------------------------------------------------------

# qperf_test TEST: over rdma_cm, by its figures.
qperf_test()
{
	local port=19765
	pair 60 "$port" qperf -- sh -c "qperf -cm 1 -t 2 $address1 $1 && qperf $address1 quit" || return 1
	grep -qE '^ +(bw|send_bw|latency|msg_rate) += +[0-9.]+' "$ktap_dir/client" || fail "no figures"
}

# fio_engine: fio at both ends. Not with --verb=send: its receiver stops to post, on any device.
fio_engine()
{
	local port=4711 common=(--ioengine=rdma --port=4711 --size=32m --bs=64k --iodepth=8 --name=stack)
	pair 60 "$port" \
		fio "${common[@]}" --rw=read -- \
		fio "${common[@]}" --rw=write --hostname="$address1" --verb=write
}

preload=$(echo /usr/lib/*/rsocket/librspreload.so)

# Unmodified programs over TCP sockets, which go over RDMA. Not all can: librspreload.so has no accept4() and no epoll, on
# any device, so servers such as Valkey, iperf3, socat and OpenBSD's nc do not work.
rsocket_iperf()
{
	pair 60 5001 env LD_PRELOAD="$preload" timeout 20 iperf -s -B "$address1" -P "$1" -- \
		env LD_PRELOAD="$preload" iperf -c "$address1" -P "$1" -n 8M || return 1
	grep -qE ' [0-9.]+ [MG]bits/sec' "$ktap_dir/client" || fail "no figures"
}

# A file there, compared.
rsocket_nc()
{
	head -c 5000000 /dev/urandom >"$ktap_dir/file"
	pair 60 7000 env LD_PRELOAD="$preload" sh -c "nc.traditional -l -s $address1 -p 7000 | sha256sum" -- \
		env LD_PRELOAD="$preload" sh -c "nc.traditional -q 1 $address1 7000 <$ktap_dir/file" || return 1
	[ "$(cut -d ' ' -f 1 "$ktap_dir/server")" = "$(sha256sum <"$ktap_dir/file" | cut -d ' ' -f 1)" ] ||
		fail "another file has come"
}

sent_packets()
{
	counter_of "$dev2" sent_pkts
}

# over_rdma COMMAND...: what is sent is in the counters of the device, and not in those of TCP.
over_rdma()
{
	local before
	before=$(sent_packets)
	"$@" || return 1
	sleep 0.1
	[ "$(sent_packets)" -gt $((before + 1000)) ] || fail "nothing has gone over RDMA"
}

# machine NAMESPACE NAME ARG...: one of QEMU without an operating system.
machine()
{
	local namespace=$1 name=$2
	shift 2
	rm -f "$ktap_dir/$name.qmp"
	ip netns exec "$namespace" timeout -k 2 $((120 * slowness)) qemu-system-x86_64 -accel tcg -M pc -m 64 -nodefaults \
		-display none -qmp "unix:$ktap_dir/$name.qmp,server=on,wait=off" "$@" >"$ktap_dir/$name.log" 2>&1 &
	await $((300 * slowness)) qmp "$name" query-status 2>/dev/null || { cat "$ktap_dir/$name.log"; fail "$name does not start"; }
}

# qmp NAME COMMAND [ARGUMENTS]
qmp()
{
	local socket=$ktap_dir/$1.qmp
	shift
	"$here/lib/qmp.py" "$socket" "$@"
}

has_migrated()
{
	qmp source query-migrate >"$ktap_dir/migration" && grep -qE '"status": "(completed|failed)"' "$ktap_dir/migration"
}

destination_runs()
{
	qmp destination query-status | grep '"running": true'
}

# qemu_migration PINNED: from n2 to n1. Memory with random bytes is the same there, and the machine runs there. With
# PINNED true all memory is pinned before; otherwise registered as it is sent, and not at all where it is zero.
qemu_migration()
{
	local name pin="{\"capabilities\": [{\"capability\": \"rdma-pin-all\", \"state\": $1}]}"
	local range="{\"val\": 16777216, \"size\": 8388608, \"filename\": \"$ktap_dir/there\"}"
	trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
	rm -f "$ktap_dir/there"
	head -c 8M /dev/urandom >"$ktap_dir/memory"
	# Once the destination answers its monitor, it listens.
	machine n1 destination -incoming "rdma:$address1:4444"
	machine n2 source -device "loader,file=$ktap_dir/memory,addr=0x1000000,force-raw=on"
	for name in destination source; do
		qmp "$name" migrate-set-capabilities "$pin" || fail "$name"
	done
	qmp source migrate "{\"uri\": \"rdma:$address1:4444\"}" || fail "no migration"
	await $((600 * slowness)) has_migrated
	cat "$ktap_dir/migration"
	grep -q '"status": "completed"' "$ktap_dir/migration" || { cat "$ktap_dir"/*.log; fail "it fails"; }
	await $((100 * slowness)) destination_runs || fail "it does not run there"
	qmp destination pmemsave "$range" || fail "no memory"
	cmp "$ktap_dir/memory" "$ktap_dir/there" || fail "other memory"
	for name in destination source; do
		qmp "$name" quit
	done
	wait
}

# ceph_configuration DEVICE GID_INDEX
ceph_configuration()
{
	cat <<-END
		[global]
		ms_type = async+rdma
		ms_async_rdma_device_name = $1
		ms_async_rdma_local_gid = $(cat "/sys/class/infiniband/$1/ports/1/gids/$2")
		ms_async_rdma_receive_queue_len = 512
		ms_async_rdma_send_buffers = 256
		ms_async_rdma_receive_buffers = 1024
		auth_cluster_required = none
		auth_service_required = none
		auth_client_required = none
	END
}

# Ceph's messenger, with a checksum of each message: 8 under way, 200 in all, of 64 KiB.
ceph_messenger()
{
	local port=10001
	ceph_configuration "$dev1" "$(gid_index "$dev1" "$address1")" >"$ktap_dir/server.conf" &&
		ceph_configuration "$dev2" "$(gid_index "$dev2" "$address2")" >"$ktap_dir/client.conf" || return 1
	endless=1 pair 120 "$port" env CEPH_CONF="$ktap_dir/server.conf" ceph_perf_msgr_server "$address1:$port" 1 0 -- \
		timeout -k 2 $((60 * slowness)) env CEPH_CONF="$ktap_dir/client.conf" \
		ceph_perf_msgr_client "$address1:$port" 1 8 200 0 65536 || return 1
	grep -q 'Total op 200 run time' "$ktap_dir/client" "$ktap_dir/client.errors"
}

program_rows()
{
	local test
	# Its tests of UC and UD name the peer by a LID, which RoCE does not have, also with -cm.
	for test in rc_bw rc_lat rc_rdma_read_bw rc_rdma_write_bw rc_rdma_read_lat rc_rdma_write_lat rc_compare_swap_mr \
		rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add; do
		echo "qperf: $test | qperf_test $test"
	done
	echo "fio, ioengine=rdma | fio_engine"
	echo "QEMU: live migration | over_rdma qemu_migration false"
	echo "QEMU: live migration, memory pinned | over_rdma qemu_migration true"
	echo "Ceph: messenger | over_rdma ceph_messenger"
	echo "rsocket: iperf | over_rdma rsocket_iperf 1"
	echo "rsocket: iperf, two connections | over_rdma rsocket_iperf 2"
	echo "rsocket: nc | over_rdma rsocket_nc"
	for test in helloworld ringtest; do
		echo "mpi4py: $test | mpi4py $test"
	done
}

wanted=${FERROCE_ROWS:-.}
rows=$({ ucx_rows; fabric_rows; program_rows; } | grep -E -- "$wanted")
runs=$(mpi_runs | grep -E -- "$wanted")
ktap_start $(($(grep -c . <<<"$rows") + mpi_parts * $(grep -c . <<<"$runs")))
while IFS='|' read -r name words; do
	[ -n "$name" ] || continue
	read -ra command <<<"$words"
	row "${name% }" "${command[@]}"
done <<<"$rows"
while IFS='|' read -r name words; do
	[ -n "$name" ] || continue
	read -ra command <<<"$words"
	absorb "$mpi_parts" named "${name% }" "${command[@]}"
done <<<"$runs"
rm -r /etc/netns/n1 /etc/netns/n2
ktap_finish
