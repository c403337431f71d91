#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: memory that is paged on demand
#
# Memory that is paged on demand: the rows are those of the program paging.
set -u
. "$(dirname "$0")/../lib/test.sh"

rows=$("$here/paging" -r "${FERROCE_ROWS:-.}" -n)
ktap_start "${rows:-1}"
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
absorb "${rows:-1}" "$here/paging" -r "${FERROCE_ROWS:-.}" \
	-N n1 -i "$(netdev_of n1 "$dev1")" "$dev1" "$dev2"
ktap_finish
