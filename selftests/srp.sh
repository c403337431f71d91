#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# SRP over rdma_cm, the kernel's target and host: data that is written and read back, and file systems. On one device, or
# with --net wire on two machines.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/consumers.sh
. "$here/lib/consumers.sh"

consumer=srp
# shellcheck source-path=SCRIPTDIR source=lib/scsi_rows.sh
. "$here/lib/scsi_rows.sh"
