#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Regions that are registered again: the rows are those of the program regions.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"

rows=$("$here/regions" count)
ktap_start "${rows:-1}"
gid_index_wait "$dev1" "$address1" >/dev/null
gid_index_wait "$dev2" "$address2" >/dev/null
absorb "${rows:-1}" "$here/regions" "$dev1" "$dev2"
ktap_finish
