# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernel's log since a mark. Any complaint in it fails the test, whoever
# caused it: a mark that has gone from the log fails it too.

kernel_log_name=
kernel_log_lib=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

# on_second_machine FUNCTION: one of lib/machine.sh, where there is a second machine (`scripts/vm --net wire`).
on_second_machine()
{
	[ "${FERROCE_NET:-}" = wire ] || return 0
	# It does not have this environment.
	node2 env FERROCE_KERNEL="${FERROCE_KERNEL:-stock}" "$kernel_log_lib/role.sh" machine "$1" && return
	echo "this was the second machine"
	return 1
}

# What no test may leave behind, as extended regular expressions.
kernel_log_complaints=(
	'cut here'
	'WARNING:'
	'BUG:'
	'kernel BUG at'
	'Oops'
	'Kernel panic'
	'panicked at'
	'general protection fault'
	'unable to handle'
	'Bad page'
	'Call [Tt]race'
	'KASAN'
	'KCSAN'
	'KFENCE'
	'UBSAN'
	'ODEBUG'
	'refcount_t'
	'unregister_netdevice: waiting'
	'ref_tracker: .*(has [0-9]+/[0-9]+ users|already released)|ref_tracker: couldn.t get stats'
	# A listener (state 1) is not waited for: a request that arrives may hold it.
	'cm_destroy_id_wait_timeout: .* state ([02-9]|1[0-9]) '
	'stalled pool shutdown'
	'page_pool.*violation'
	'possible (circular|recursive) locking'
	'inconsistent lock state'
	'possible irq lock inversion'
	'bad unlock balance'
	'suspicious RCU usage'
	'held lock freed'
	'DEBUG_LOCKS_WARN'
	'sleeping function called'
	'scheduling while atomic'
	'list_(add|del) corruption'
	'blocked for more than'
	'blocked on a'
	'(rcu|rcu_sched|rcu_preempt).*(stall|self-detected)'
	'(soft|hard) ?lockup'
	'LOCKUP'
	'kmemleak: .*(suspected|disabled|[Uu]nknown object|Cannot)'
	'BUG [^ ]+ \('
	'[Oo]bjects remaining'
	'leaked [0-9]+ '
	'segfault at'
	'trap invalid opcode'
	'Stack depot reached limit'
	'live objects: *[^0 ]'
)

# Leaks of the core that fault injection provokes and no driver can prevent, by a regular expression on the
# functions of the allocation's backtrace, innermost first. radix_tree_insert() that runs out of memory leaves the
# inner nodes that it has made; there is no entry in them by which uverbs_destroy_api() would find them.
kernel_leaks_of_the_core='radix_tree_node_alloc radix_tree_insert (uapi_merge_def )+uverbs_alloc_api'
# How many the last check has found.
kernel_leaks_known=0

# A mark of its own for each caller.
kernel_log_mark()
{
	kernel_log_name=selftest-$$-$RANDOM$RANDOM
	printf 'selftests: mark %s\n' "$kernel_log_name" >/dev/kmsg
}

# Like kernel_log_mark, but what was logged since somebody last looked is not left out: between two tests, too. If the
# log has no look in it and has lost its beginning, the next check fails: something may have been pushed out.
kernel_log_resume()
{
	kernel_log_name=$(dmesg --notime 2>/dev/null | sed -n 's/.*selftests: mark \(look-[^ ]*\)$/\1/p' | tail -n 1)
	[ -z "$kernel_log_name" ] || return 0
	if dmesg --notime 2>/dev/null | grep -q '^Linux version '; then
		kernel_log_mark
	else
		kernel_log_name=look-lost
	fi
}

# To be called before the log is read: who resumes will read what comes behind.
kernel_log_look()
{
	printf 'selftests: mark look-%s\n' "$$-$RANDOM$RANDOM" >/dev/kmsg
}

# The log since the mark, without time stamps; 1 if the mark is not there.
kernel_log_since()
{
	local mark="selftests: mark $kernel_log_name"
	dmesg --notime 2>/dev/null | awk -v mark="$mark" '
		seen { print }
		index($0, mark) { seen = 1 }
		END { exit !seen }'
}

kernel_log_pattern()
{
	local IFS='|'
	printf '%s' "${kernel_log_complaints[*]}"
}

# Prints complaints found on standard input with what surrounds them; fails if any.
kernel_log_scan()
{
	! grep -E -B 2 -A 24 -e "$(kernel_log_pattern)"
}

# What kmemleak, where the kernel has it, finds unreferenced. It takes seconds: not for every row.
kernel_leaks_check()
{
	local leaks=${FERROCE_KMEMLEAK-/sys/kernel/debug/kmemleak} found
	[ -w "$leaks" ] || return 0
	# It reports what it has seen unreferenced twice, unchanged, and five seconds after it was made.
	# What cannot be scanned because kmemleak gave up has not passed.
	if ! { echo scan && sleep 5 && echo scan; } >"$leaks"; then
		echo "kmemleak does not scan"
		return 1
	fi
	found=$(kernel_leaks_judge <"$leaks")
	kernel_leaks_known=${found##*known: }
	# Reading says that there are some, or nothing.
	[ "$found" = 'known: 0' ] || echo clear >"$leaks"
	[ "$found" != "known: $kernel_leaks_known" ] || return 0
	echo "kmemleak:"
	head -n 400 <<<"$found"
	return 1
}

# Prints kmemleak's objects on standard input without those that are known, and how many those are.
kernel_leaks_judge()
{
	awk -v known="$kernel_leaks_of_the_core" '
		function judge() {
			if (object != "" && backtrace ~ known)
				count++
			else
				printf "%s", object
		}
		/^unreferenced object/ { judge(); object = backtrace = ""; is_trace = 0 }
		{ object = object $0 "\n" }
		is_trace { sub(/^ +(\[<[^>]*>\] )?/, ""); sub(/\+0x.*/, ""); backtrace = backtrace $0 " " }
		/^ *backtrace/ { is_trace = 1 }
		END { judge(); print "known: " count + 0 }'
}

# The log without what kmemleak says of the known ones, if it speaks of no others.
kernel_log_without_known_leaks()
{
	awk -v known="$kernel_leaks_known" '
		{ lines[NR] = $0 }
		match($0, /kmemleak: [0-9]+ new suspected/) { split($0, words, "kmemleak: "); told += words[2] + 0; is[NR] = 1 }
		END {
			for (i = 1; i <= NR; i++)
				if (!is[i] || told > known)
					print lines[i]
		}'
}

# The log without the "Call Trace" of each report that a process was killed for its memory cgroup's limit, which
# tests may provoke. All else in such a report, and between its lines, still counts; so does one of the machine as a
# whole, which has the same first line and another last one.
kernel_log_without_cgroup_oom()
{
	awk '
		{ lines[NR] = $0 }
		/ invoked oom-killer: / { trace = 0; open = 1 }
		open && !trace && /^ *Call [Tt]race:/ { trace = NR }
		/oom-kill:constraint=CONSTRAINT_MEMCG,/ && open { forgiven[trace] = 1; open = 0 }
		END {
			for (i = 1; i <= NR; i++)
				if (!(i in forgiven))
					print lines[i]
		}'
}

# Lockdep checks nothing more once it has reported something, or its tables are full.
lockdep_check()
{
	[ -r /proc/lockdep_stats ] || return 0
	grep -q '^ *debug_locks: *1$' /proc/lockdep_stats && return 0
	echo "lockdep has switched itself off"
	return 1
}

# The check itself: what was logged since the mark.
kernel_log_check()
{
	local log
	kernel_log_look
	if ! log=$(kernel_log_since); then
		echo "the mark has gone from the kernel log: what happened since cannot be judged"
		return 1
	fi
	kernel_log_without_known_leaks <<<"$log" | kernel_log_without_cgroup_oom | kernel_log_scan
}

# All of it: the log's complaints name the code, and kmemleak's say what is left.
kernel_log_and_leaks_check()
{
	local failed=0
	kernel_leaks_check || failed=1
	kernel_log_check || failed=1
	lockdep_check || failed=1
	return "$failed"
}
