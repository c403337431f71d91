# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Files of a network file system: the directory $export, which is mounted at $mounted. Needs disk.sh before it.

# shellcheck disable=SC2034,SC2154 # for who sources this; of disk.sh
export=$state/export mounted=$state/mounted

detach()
{
	umount "$mounted"
}

is_mounted()
{
	mountpoint -q "$mounted" || { echo "nothing is mounted"; return 1; }
}

# large_file [cached]: there and back, by the page cache, and past it unless the file system has none.
large_file()
{
	local written read
	is_mounted || return 1
	head -c 48M /dev/urandom >"$state/data" || return 1
	written=$(sha256sum <"$state/data")
	cp "$state/data" "$mounted/large" && drop_caches || return 1
	read=$(sha256sum <"$mounted/large")
	[ "$read" = "$written" ] || { echo "read: $read written: $written"; return 1; }
	rm "$mounted/large"
	[ $# -eq 0 ] || { rm "$state/data"; return; }
	dd if="$state/data" of="$mounted/direct" bs=1M oflag=direct status=none || return 1
	read=$(dd if="$mounted/direct" bs=300k iflag=direct status=none | sha256sum)
	[ "$read" = "$written" ] || { echo "past the cache: read: $read written: $written"; return 1; }
	rm "$state/data" "$mounted/direct"
}

# small_files COUNT: of 0 to 9000 bytes.
small_files()
{
	local written read
	is_mounted || return 1
	mkdir -p "$state/small" "$mounted/small" || return 1
	python3 - "$state/small" "$1" <<-'END' || return 1
		import os, sys
		for i in range(int(sys.argv[2])):
		    with open(f"{sys.argv[1]}/{i}", "wb") as f:
		        f.write(os.urandom(i * 7 % 9001))
	END
	written=$(tree_sum "$state/small")
	cp -r "$state/small/." "$mounted/small" && drop_caches || return 1
	read=$(tree_sum "$mounted/small")
	rm -r "$state/small" "$mounted/small"
	[ "$read" = "$written" ] || { echo "read: $read written: $written"; return 1; }
}

# random_blocks SECONDS
random_blocks()
{
	is_mounted && fio_verify "$mounted/blocks" 512 "$1" && rm "$mounted/blocks"
}

# In the place of that of disks.
traffic()
{
	random_blocks "$1"
}
