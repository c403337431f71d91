# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The module under test: loading, unloading, and what it says it still has.
# Needs namespaces.sh.
# shellcheck disable=SC2154

live_objects=/sys/kernel/debug/ferroce/live_objects

module_loaded()
{
	grep -q "^$module " /proc/modules
}

module_load()
{
	module_loaded && return 0
	if [ "$driver" = ferroce ] && [ -n "${FERROCE_KO:-}" ]; then
		modprobe -a ib_core ib_uverbs rdma_ucm udp_tunnel ip6_udp_tunnel 2>/dev/null
		insmod "$FERROCE_KO"
	else
		modprobe "$module"
	fi
}

# The types of which something is left, as "type count" words; nothing if all is gone.
objects_left()
{
	[ "$driver" = ferroce ] || return 0
	if [ ! -r "$live_objects" ]; then
		echo "$live_objects is not there"
		return 1
	fi
	awk 'NF { seen++ } NF && $NF != 0 { printf "%s ", $0 } END { if (!seen) print "no counters" }' \
		"$live_objects"
}

# Waits until nothing is left: objects may end a grace period after their owner.
objects_gone()
{
	local seconds=$1 left tries
	for ((tries = 0; tries <= seconds * 10; tries++)); do
		left=$(objects_left)
		[ -z "$left" ] && return 0
		sleep 0.1
	done
	echo "left after $seconds s: $left"
	return 1
}

objects_list()
{
	grep -v ' 0$' "$live_objects"
}

# objects_note FILE: what there is now, for objects_as_before: devices have objects of their own. What a process had that
# has ended goes a grace period after it; this waits until no process has any. If it fails, FILE is missing, and
# objects_as_before fails.
objects_note()
{
	local tries
	[ "$driver" = ferroce ] || return 0
	[ -r "$live_objects" ] || { echo "# $live_objects cannot be read"; return 1; }
	for ((tries = 0; tries <= 100 * slowness; tries++)); do
		objects_list | grep -qE '^(context|mr) ' || break
		sleep 0.1
	done
	objects_list >"$1"
}

# objects_as_before FILE SECONDS: waits until there is what there was.
objects_as_before()
{
	local tries
	[ "$driver" = ferroce ] || return 0
	for ((tries = 0; tries <= $2 * 10; tries++)); do
		objects_list >"$1.now"
		cmp -s "$1" "$1.now" && return 0
		sleep 0.1
	done
	echo "after $2 s:"
	diff "$1" "$1.now"
}

# What the module says as it goes: to be called after rmmod, within the caller's mark.
unload_said_nothing_left()
{
	local line
	[ "$driver" = ferroce ] || return 0
	line=$(kernel_log_since | grep 'ferroce: unloaded, live objects:' | tail -n 1)
	[ -n "$line" ] || { echo "the module does not say what it left behind"; return 1; }
	[[ "$line" =~ live\ objects:\ 0$ ]] || { echo "$line"; return 1; }
}

uptime_ms()
{
	awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime
}
