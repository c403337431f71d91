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
	/usr/lib/apt/apt-helper download-file "$1/dists/$2/InRelease" "$work/InRelease" </dev/null >"$work/why-not-$2" 2>&1
}

# Prints in parentheses why the archive does not have a suite, if apt said so.
why_not() {
	sed -nE '/^E: /{s/^E: (Failed to fetch [^ ]+ +)?(.*)/ (\2)/p;q}' "$work/why-not-$1"
}

# Says so if the sources have no security updates of a suite. scripts/setup shows such lines.
say_insecure() {
	grep -q " $1-security " "$work/sources.list" ||
		echo "setup: $1 is without security updates: no archive in the machine's apt configuration serves $1-security"
}

# Prints the sources of the root. If FERROCE_MIRROR names another mirror by now, they are from there, without the suites
# that it does not have.
root_sources() {
	local root uri name parts
	root=$(ready_artifact root)
	find "$root/etc/apt" -name '*.list' -exec cat {} + |
		while read -r _ uri name parts; do
			if [[ -n ${FERROCE_MIRROR:-} && $uri != "$FERROCE_MIRROR" && $name != *-security ]]; then
				uri=$FERROCE_MIRROR
				has_suite "$uri" "$name" || continue
			fi
			echo "deb $uri $name $parts"
		done
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
