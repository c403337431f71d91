# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the stages that make a root file system share: which archive they take it from, and what they leave out.
# Sourced after cache.sh. Sets $work, a directory that goes with the stage, with apt.conf in it.

# shellcheck disable=SC2154 # cache.sh sets it
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# What the machine's apt needs to reach its mirror: proxies, certificates, tolerance of old indexes.
apt-config dump | grep -E '^Acquire::(https?|ftp)::|^Acquire::(Check-Valid-Until|Check-Date|Retries|Max-FutureTime)' \
	>"$work/apt.conf" || true
cat >>"$work/apt.conf" <<'EOF'
Acquire::Languages "none";
APT::Install-Recommends "false";
EOF

has_suite() {
	/usr/lib/apt/apt-helper download-file "$1/dists/$2/InRelease" "$work/InRelease" >/dev/null 2>&1
}

# Prints the packages of the lists, with commas.
packages_of() {
	sed -s 's/#.*//' "$@" | xargs | tr ' ' ,
}

# Of mmdebstrap, for all roots.
# shellcheck disable=SC2034 # the stages use it
root_options=(--mode=root --format=directory --keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	--aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*'
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/rdma-core/tests/*'
	--dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-include=/usr/share/doc/*/copyright')
