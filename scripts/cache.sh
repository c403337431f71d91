# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Where the cache is and how its artifacts are named. Sourced by the scripts beside it.
#
# An artifact is a directory in the cache named KIND-KEY, KEY being a hash of all that it was made
# from. It appears by a rename once it is complete: an artifact that is there can be used.

set -euo pipefail

# A plain `su` leaves the user's PATH, in which chroot, losetup and the programs of dpkg are missing.
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# A command that exits with 130 after ^C, as scripts/in-root and selftests/run do, has handled it as far as bash knows: a
# script without a trap goes on.
trap 'exit 130' INT

# A head that begins with the name of the script says how it is used; other scripts have a usage of their own.
if [[ ${1:-} =~ ^(-h|--help)$ ]] && sed -n "/^# ${0##*/}\>/,/^\$/s/^# \{0,1\}//p" "$0" | grep ''; then
	exit
fi

# The kernels that the module is built for, each with the compilers that it was built with: a root of its
# own. `stock` is the usual one; its series is the environment's, if that names one.
# shellcheck disable=SC2034 # the scripts that read this one use it
other_kernels=(rt 7.3 forky arm64 arm64-16k cloud)
# Whose userspace the module is tried with, too, under the stock kernel.
# shellcheck disable=SC2034
other_suites=(bookworm forky)

# choose_kernel NAME: from now on, here and in what is started from here, all artifacts are those of that
# kernel: the newest one of a series, an architecture and a flavour in a Debian suite. The suite of the root may be
# another.
choose_kernel() {
	local before=${FERROCE_PLATFORM:-stock}
	[[ $before == stock ]] || unset FERROCE_KERNEL_SERIES
	FERROCE_SUITE=trixie FERROCE_KERNEL_SUITE=trixie-backports FERROCE_ARCH=amd64 FERROCE_FLAVOUR=amd64
	case $1 in
	stock) FERROCE_KERNEL_SERIES=${FERROCE_KERNEL_SERIES:-7.2} ;;
	cloud | rt) FERROCE_KERNEL_SERIES=7.2 FERROCE_FLAVOUR=$1-amd64 ;;
	7.3) FERROCE_KERNEL_SERIES=7.3 ;;
	forky) FERROCE_KERNEL_SERIES=7.2 FERROCE_SUITE=forky FERROCE_KERNEL_SUITE=forky ;;
	arm64 | arm64-16k) FERROCE_KERNEL_SERIES=7.2 FERROCE_ARCH=arm64 FERROCE_FLAVOUR=$1 ;;
	*) fail "no kernel is called '$1': there are stock ${other_kernels[*]}" ;;
	esac
	# scripts/setup makes these by default. scripts/vm cannot boot the cloud kernel: it shares the source tree by 9P,
	# which that kernel does not have.
	# shellcheck disable=SC2034
	usual_kinds=(kernel vm-stock)
	[[ $1 != cloud ]] || unset 'usual_kinds[1]'
	FERROCE_PLATFORM=$1
	export FERROCE_PLATFORM FERROCE_SUITE FERROCE_KERNEL_SUITE FERROCE_KERNEL_SERIES FERROCE_ARCH FERROCE_FLAVOUR
	known_keys=()
	# Where commands in the root find the kernel's source.
	# shellcheck disable=SC2034
	kernel_source=/usr/src/linux-source-$FERROCE_KERNEL_SERIES
}

# Below which directory of the tree a kernel's modules, logs and programs are.
build_of() {
	case $1 in
	stock) echo build ;;
	*) echo "build/$1" ;;
	esac
}

tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
scripts=$tree/scripts
cache=${FERROCE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ferroce}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P)
export FERROCE_TREE=$tree FERROCE_CACHE=$cache
# Other users read the files that the scripts make: in the root, and in VMs.
umask 022

fail() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# take_lock FILE: waits for the run that has it, and says so. This script has it then until it ends, or closes $lock.
take_lock() {
	exec {lock}>"$1"
	if ! flock --nonblock "$lock"; then
		echo "${0##*/}: waiting for another run in this tree" >&2
		flock "$lock"
	fi
}

# make splits paths at spaces, and overlays at colons.
[[ $tree$cache != *[[:space:]:]* ]] || fail "the paths $tree and $cache must be without spaces and colons"

# Prints where cargo builds what is in this tree. A compiler of another version would make everything anew in the same
# place.
cargo_target() {
	local name
	name=$(sha256sum <<<"$tree" | cut -c1-12)
	[[ $FERROCE_PLATFORM == stock ]] || name+=-$FERROCE_PLATFORM
	echo "$cache/target/$name"
}

# Prints all files of the tree that are source, in a repository or not.
tree_files() (
	cd "$tree"
	# It may lie below the repository of something else.
	top=$(git -c safe.directory="$tree" rev-parse --show-toplevel 2>/dev/null) || top=
	if [[ $top == "$(pwd -P)" ]]; then
		git -c safe.directory="$tree" ls-files --cached --others --exclude-standard
	else
		find . -path ./build -prune -o -path ./.git -prune -o -type f -printf '%P\n'
	fi |
		while read -r file; do [[ ! -f $file ]] || echo "$file"; done
)

# Every kind of artifact with the files and the artifacts it is made from.
made_from() {
	local image=(vm-image vm.d/archive.py vm.d/initramfs.py vm.d/unsign.py)
	local foreign=()
	[[ $FERROCE_ARCH == amd64 ]] || foreign=("packages-$FERROCE_ARCH")
	case $1 in
	root) echo stage/root stage/archive.sh stage/install-kernel packages packages-guest "${foreign[@]}" ;;
	root-guest) echo root stage/root-guest stage/archive.sh packages-guest packages-suite ;;
	kernel) echo root stage/kernel complete-headers ;;
	vm-stock) echo root ${foreign:+root-guest} stage/vm-stock "${image[@]}" ;;
	debug-kernel) echo root kernel stage/debug-kernel debug-kernel.config ;;
	vm-debug) echo root debug-kernel stage/vm-debug "${image[@]}" ;;
	root-packages) echo root stage/root-packages stage/archive.sh ;;
	root-docs) echo root stage/root-docs stage/archive.sh ;;
	vm-packages) echo root stage/vm-packages stage/archive.sh ;;
	root-consumers) echo root stage/root-suite stage/archive.sh packages-suite packages-consumers ;;
	root-*) echo root stage/root-suite stage/archive.sh packages-suite ;;
	vm-consumers-debug) echo root root-consumers debug-kernel stage/vm-consumers-debug "${image[@]}" ;;
	vm-*) echo root "root-${1#vm-}" stage/vm-suite "${image[@]}" ;;
	*) fail "no artifact is called $1" ;;
	esac
}

# Prints the script that makes an artifact and, if that makes those of several suites, which.
stage_of() {
	case $1 in
	*-stock | *-debug | *-packages | *-guest | *-docs) echo "$1" ;;
	root-* | vm-*) echo "${1%%-*}-suite ${1#*-}" ;;
	*) echo "$1" ;;
	esac
}

# Prints an artifact, after those that it is made from, in the order in which they are made.
chain_to() {
	local part
	for part in $(made_from "$1"); do
		[[ -f $scripts/$part ]] || chain_to "$part"
	done
	echo "$1"
}

declare -A known_keys=()

# Sets known_keys[KIND]; no subshell, so that what it found is kept.
find_key() {
	local kind=$1 part material
	[[ -z ${known_keys[$kind]:-} ]] || return 0
	material="$kind $FERROCE_SUITE $FERROCE_KERNEL_SERIES $FERROCE_FLAVOUR"$'\n'
	for part in $(made_from "$kind"); do
		if [[ -f $scripts/$part ]]; then
			material+="$(sha256sum <"$scripts/$part")"$'\n'
		else
			find_key "$part"
			material+="$part ${known_keys[$part]}"$'\n'
		fi
	done
	# `scripts/setup --refresh` changes this, so that everything is made anew from today's archive. Until all is made,
	# only it and its stages know.
	[[ $kind != root ]] || material+=${FERROCE_GENERATION-$(cat "$cache/generation" 2>/dev/null || true)}
	known_keys[$kind]=$(sha256sum <<<"$material" | cut -c1-12)
}

# Prints the directory of an artifact, there or not.
artifact() {
	find_key "$1"
	echo "$cache/$1-${known_keys[$1]}"
}

# Prints the directory of an artifact that must be there.
ready_artifact() {
	local directory
	directory=$(artifact "$1")
	[[ -d $directory ]] ||
		fail "the $1 of the kernel $FERROCE_PLATFORM is missing from the cache: run scripts/setup --kernel $FERROCE_PLATFORM --only $1 first"
	# scripts/setup deletes what has not been used for long.
	touch "$directory" 2>/dev/null || true
	echo "$directory"
}

# Where the debug kernel is built, and where its modules' builds find what they need of it.
# shellcheck disable=SC2034
debug_kernel=/usr/src/linux-ferroce-debug

# Prints where commands in the root find the kernel's headers, with Rust artifacts.
kernel_headers() {
	echo "/usr/src/linux-headers-$(cat "$(ready_artifact root)/etc/ferroce-kernel")"
}

# counts_of STATUS LOG: how many rows passed, failed and were skipped in a run of selftests/run that exited with STATUS,
# as its last line says. If it does not say so, or no row failed in spite of the status, one failed.
counts_of() {
	local last
	last=$(tail -n 1 "$2")
	if [[ ! $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
		echo "FAILED: selftests/run exited with $1 and did not say how many tests passed" >&2
		echo '0 1 0'
	elif [[ $1 != 0 && ${BASH_REMATCH[2]} == 0 ]]; then
		echo "FAILED: selftests/run exited with $1" >&2
		echo "${BASH_REMATCH[1]} 1 ${BASH_REMATCH[3]}"
	else
		echo "${BASH_REMATCH[*]:1}"
	fi
}

choose_kernel "${FERROCE_PLATFORM:-stock}"
