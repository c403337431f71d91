#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# What runs out, and when: the rows are those of the program exhaustion.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

rows=$("$here/exhaustion" count)
ktap_start "${rows:-1}"
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
route="10.0.0.0/24 dev $(netdev_of n1 "$dev1")"
absorb "${rows:-1}" "$here/exhaustion" -c "ip -n n1 route del $route" \
	-m "ip -n n1 route add $route proto kernel scope link src $address1" "$dev1" "$dev2"
ktap_finish
