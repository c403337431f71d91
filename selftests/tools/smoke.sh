#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: devices, pingpong, rping: a minute at most
# Runs: never
set -u
FERROCE_ROWS='^(ibv_devinfo -v|ibv_rc_pingpong|ibv_ud_pingpong|rping, IPv[46]|ib_send_bw -s 2) \|' exec "$(dirname "$0")/tools.sh"
