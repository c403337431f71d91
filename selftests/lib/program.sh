#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# program.sh NAME: a test that is a program and nothing else, between the two devices of `scripts/vm --net veth`.
set -u
. "$(dirname "$0")/test.sh"

rows=$("$here/$1" count)
ktap_start "${rows:-1}"
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
absorb "${rows:-1}" "$here/$1" "$dev1" "$dev2"
ktap_finish
