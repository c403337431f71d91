# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Block devices of the kernel's consumers, on the machine that they appear on.

# The consumer's own directory, for what one function leaves for the next.
state=/run/ferroce-consumer
mkdir -p "$state"

# wait_for_disk COMMAND...: until the command prints the name of a disk, which the other functions use from then on.
wait_for_disk()
{
	local tries disk
	rm -f "$state/disk"
	# shellcheck disable=SC2154 # of role.sh
	for tries in $(seq $((300 * slowness))); do
		disk=$("$@") && [ -b "$disk" ] && echo "$disk" >"$state/disk" && return 0
		sleep 0.1
	done
	echo "no disk after $tries tries" >&2
	return 1
}

# The disk's name, if it is there.
the_disk()
{
	local disk
	disk=$(cat "$state/disk") && [ -b "$disk" ] && echo "$disk"
}

drop_caches()
{
	sync && echo 3 >/proc/sys/vm/drop_caches
}

# disk_compare MiB: random data there and back, past the page cache's memory of it.
disk_compare()
{
	local disk size=$1 written read
	disk=$(the_disk) || return 1
	head -c "${size}M" /dev/urandom >"$state/data" || return 1
	written=$(sha256sum <"$state/data")
	dd if="$state/data" of="$disk" bs=1M conv=fsync status=none || return 1
	drop_caches || return 1
	read=$(dd if="$disk" bs=1M count="$size" status=none | sha256sum)
	rm "$state/data"
	[ "$read" = "$written" ] || { echo "read: $read written: $written"; return 1; }
}

# disk_fio SECONDS [OPTION...]: random blocks of many lengths, 32 at a time, each with its checksum.
disk_fio()
{
	local disk
	disk=$(the_disk) || return 1
	fio_verify "$disk" "$(blockdev --getss "$disk")" "$@"
}

# traffic SECONDS: verified.
traffic()
{
	disk_fio "$1"
}

# fio_verify FILE LEAST SECONDS [OPTION...]: blocks of at least so many bytes.
fio_verify()
{
	local file=$1 least=$2 seconds=$3
	shift 3
	fio --name=verify --filename="$file" --rw=randrw --bsrange="$least-256k" --direct=1 --ioengine=libaio --iodepth=32 \
		--verify=crc32c --verify_fatal=1 --verify_backlog=256 --size=64M --time_based --runtime="$seconds" \
		--randrepeat=0 --verify_state_save=0 --output-format=terse "$@"
}

# fio_rate FILE read|write [BLOCKS]: KiB/s, in blocks of 128 KiB, 16 at a time; so many, or for 4 seconds.
fio_rate()
{
	local until=(--time_based --runtime=4)
	[ -z "${3:-}" ] || until=(--io_size="$(($3 * 128))k")
	fio --name=rate --filename="$1" --rw="$2" --bs=128k --direct=1 --ioengine=libaio --iodepth=16 --size=96M "${until[@]}" \
		--output-format=terse --terse-version=3 | awk -F ';' 'NF > 48 { print $7 + $48 }'
}

# disk_filesystem KIND: made, filled, checked, and compared after it was mounted again.
disk_filesystem()
{
	local disk kind=$1 mounted=$state/mnt before after
	disk=$(the_disk) || return 1
	mkdir -p "$mounted"
	case $kind in
	ext4) mkfs.ext4 -q -F "$disk" ;;
	xfs) mkfs.xfs -q -f "$disk" ;;
	esac && mount "$disk" "$mounted" || return 1
	cp -r /usr/share/zoneinfo "$mounted/files" && head -c 20M /dev/urandom >"$mounted/large" &&
		before=$(tree_sum "$mounted") && umount "$mounted" && drop_caches || return 1
	case $kind in
	ext4) fsck.ext4 -f -n "$disk" ;;
	xfs) xfs_repair -n "$disk" ;;
	esac || return 1
	mount -o ro "$disk" "$mounted" || return 1
	after=$(tree_sum "$mounted")
	umount "$mounted" || return 1
	[ "$before" = "$after" ] || { echo "before: $before after: $after"; return 1; }
}

# One checksum of all files' names and contents.
tree_sum()
{
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
}
