# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # variables for those who source this
#
# What each selftest sources: rows, namespaces and devices, the module. $here has the programs, lib/ and kernel/.

here=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
. "$(dirname "${BASH_SOURCE[0]}")/ktap.sh"
. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
. "$(dirname "${BASH_SOURCE[0]}")/module.sh"
