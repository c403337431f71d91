#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# iSER, the kernel's target and open-iscsi: data that is written and read back, and file systems. On one device, or with
# --net wire on two machines.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/consumers.sh
. "$here/lib/consumers.sh"

consumer=iser
# shellcheck source-path=SCRIPTDIR source=lib/scsi_rows.sh
. "$here/lib/scsi_rows.sh"
