#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# role.sh CONSUMER FUNCTION ARG...: calls a function of lib/CONSUMER.sh, on whatever machine this runs. The other machine
# does not have the environment of the test: FERROCE_SLOWNESS has to be given.
set -u
lib=$(dirname "$(readlink -f "$0")")
slowness=${FERROCE_SLOWNESS:-1}

# await_listening LOG: until a server says there that it listens.
await_listening()
{
	local tries
	for tries in $(seq $((100 * slowness))); do
		grep -q listening "$1" && return 0
		sleep 0.1
	done
	echo "after $tries tries: $(cat "$1")"
	return 1
}

# shellcheck source=/dev/null
. "$lib/$1.sh"
shift
"$@"
