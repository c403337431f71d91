#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# A soak: traffic of all kinds for as long as --seconds says, with bad networks, flaps and kills; then memory and objects
# have to be what they were. A storm without its rarer actions.
STORM_IS_SOAK=1 exec "$(dirname "$(readlink -f "$0")")/storm.sh"
