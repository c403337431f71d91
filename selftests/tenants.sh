#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# What others see of a sender's packets once it has its memory back: the rows are those of the program tenants.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

rows=$("$here/tenants" -r "${FERROCE_ROWS:-.}" -n)
ktap_start "${rows:-1}"
modprobe -a tun ifb sch_netem act_mirred nfnetlink_queue nfnetlink_log
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
in2 ping -qc 1 "$address1" >/dev/null
absorb "${rows:-1}" "$here/tenants" -r "${FERROCE_ROWS:-.}" -s "${FERROCE_SEED:-$(date +%s)}" \
	"$dev1" n1 "$(netdev_of n1 "$dev1")" "$dev2" n2 "$(netdev_of n2 "$dev2")"
ktap_finish
