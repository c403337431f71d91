# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What is judged of a machine besides the rows of tests: its kernel log, what it leaks, and whether the module goes.
# `on_each_machine FUNCTION` calls it on the second machine of `scripts/vm --net wire`, too.

lib=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$lib/kernel_log.sh"
. "$lib/namespaces.sh"
. "$lib/module.sh"

on_each_machine()
{
	local failed=0
	"$1" || failed=1
	on_second_machine "$1" || failed=1
	return "$failed"
}

boot_log_check()
{
	local log
	kernel_log_look
	log=$(dmesg --notime) || return 1
	grep -q '^Linux version ' <<<"$log" || { echo "the beginning of the kernel log is not there"; return 1; }
	kernel_log_scan <<<"$log"
}

# Since the last look at the log.
log_check()
{
	kernel_log_resume
	kernel_log_and_leaks_check
}

# All devices, then the module, in an orderly way. Objects that are left do not end it: kmemleak says which.
# shellcheck disable=SC2154 # slowness and module are of namespaces.sh
unload()
{
	local device failed=0
	kernel_log_resume
	for device in /sys/class/infiniband/*; do
		[ -e "$device" ] || continue
		timeout $((20 * slowness)) rdma link del "${device##*/}" || return 1
	done
	if module_loaded; then
		objects_gone $((5 * slowness)) || failed=1
		timeout $((20 * slowness)) rmmod "$module" || return 1
		unload_said_nothing_left || failed=1
	fi
	kernel_log_and_leaks_check || failed=1
	return "$failed"
}
