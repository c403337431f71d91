#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# program.sh NAME: a test that is a program and nothing else, between the two devices of `scripts/vm --net veth`.
set -u
. "$(dirname "$0")/test.sh"

rows=$(rows_of "$here/$1")
ktap_start "$rows"
devices_wait
absorb "$rows" "$here/$1" "$dev1" "$dev2"
ktap_finish
