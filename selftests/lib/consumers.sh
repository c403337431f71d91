# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # variables for those who source this
#
# Kernel consumers of verbs: a target and a host, either both on this machine and its only device, or one of them on the
# other machine of `scripts/vm --net wire`. What each side does is in lib/$consumer.sh, as functions that lib/role.sh
# calls on that machine.

. "$(dirname "${BASH_SOURCE[0]}")/test.sh"

# Where the target may be: on this machine, or with another machine there, on either of the two. The host is always on
# the other one.
if [ "${FERROCE_NET:-}" = wire ]; then
	placements='there here'
	placement_count=2
else
	placements=alone
	placement_count=1
fi
placement=alone

# The machine that the target is on, and the host's; their addresses.
on_target()
{
	if [ "$placement" = there ]; then node2 "$@"; else "$@"; fi
}

on_host()
{
	if [ "$placement" = here ]; then node2 "$@"; else "$@"; fi
}

target_address()
{
	case $placement in
	alone) echo 10.9.0.1 ;;
	here) echo 10.1.0.1 ;;
	there) echo 10.1.0.2 ;;
	esac
}

host_address()
{
	case $placement in
	alone) echo 10.9.0.1 ;;
	here) echo 10.1.0.2 ;;
	there) echo 10.1.0.1 ;;
	esac
}

# at_target FUNCTION ARG..., at_host FUNCTION ARG...: functions of lib/$consumer.sh.
at_target()
{
	# shellcheck disable=SC2154 # set by the test
	on_target env FERROCE_SLOWNESS="$slowness" "$here/lib/role.sh" "$consumer" "$@"
}

at_host()
{
	on_host env FERROCE_SLOWNESS="$slowness" "$here/lib/role.sh" "$consumer" "$@"
}

# In the name of a row.
placed()
{
	case $placement in
	alone) echo 'one device' ;;
	*) echo "target $placement" ;;
	esac
}

disconnected()
{
	at_host detach && at_target unserve
}
