#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: SRP over rdma_cm
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# SRP over rdma_cm, the kernel's target and host: data that is written and read back, and file systems. On one device, or
# with --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=srp
. "$(dirname "$0")/../lib/scsi_rows.sh"
