#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: iSCSI over RDMA
# Net: loop
# Runs: never
# Needs: --suite consumers
#
# iSER, the kernel's target and open-iscsi: data that is written and read back, and file systems. On one device, or with
# --net wire on two machines.
set -u
. "$(dirname "$0")/../lib/consumers.sh"

consumer=iser
. "$(dirname "$0")/../lib/scsi_rows.sh"
