#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: all traffic for long, bad networks, flaps, kills; then memory is as before: make soak
# Net: none
# Runs: never
#
# A soak: traffic of all kinds for as long as --seconds says, with bad networks, flaps and kills; then memory and objects
# have to be what they were. A storm without its rarer actions.
STORM_IS_SOAK=1 exec "$(dirname "$0")/storm.sh"
