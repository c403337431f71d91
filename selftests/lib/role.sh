#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# role.sh CONSUMER FUNCTION ARG...: calls a function of lib/CONSUMER.sh, on whatever machine this runs.
set -u
lib=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$lib/$1.sh"
shift
"$@"
