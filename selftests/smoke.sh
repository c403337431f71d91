#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The shortest look at whether anything works at all.
set -u
here=$(dirname "$(readlink -f "$0")")
FERROCE_ROWS='^(ibv_devinfo -v|ibv_rc_pingpong|ibv_ud_pingpong|rping, IPv[46]|ib_send_bw -s 2) \|' exec "$here/tools.sh"
