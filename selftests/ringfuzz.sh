#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Nonsense in the rings that processes share with the module: the rows are those of the
# program ringfuzz; then nothing may be left.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"
# shellcheck source-path=SCRIPTDIR source=lib/module.sh
. "$here/lib/module.sh"

seed=${FERROCE_SEED:-$(date +%s)}
seconds=${FERROCE_SECONDS:-30}

# What two devices have by themselves: each a GSI queue pair with its queue and domain.
settled()
{
	local tries
	for tries in $(seq 100); do
		grep -v ' 0$' "$live_objects" >"$ktap_dir/now"
		cmp -s "$ktap_dir/before" "$ktap_dir/now" && return 0
		sleep 0.1
	done
	echo "after $tries tries:"
	diff "$ktap_dir/before" "$ktap_dir/now"
}

ktap_start 4
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
grep -v ' 0$' "$live_objects" >"$ktap_dir/before"
coverage=()
[ -z "${FERROCE_COVERAGE:-}" ] || coverage=(-c "$FERROCE_COVERAGE")
absorb 3 "$here/ringfuzz" -s "$seed" -t "$seconds" "${coverage[@]}" "$dev1" "$dev2"
row "rings: nothing is left" settled
ktap_finish
