# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernel's log since a mark. Any complaint in it fails the test, whoever
# caused it: a mark that has gone from the log fails it too.

kernel_log_name=

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
	'Call Trace'
	'KASAN'
	'KCSAN'
	'KFENCE'
	'UBSAN'
	'ODEBUG'
	'refcount_t'
	'unregister_netdevice: waiting'
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
	'kmemleak: .*(leak|disabled)'
	'BUG [^ ]+ \('
	'[Oo]bjects remaining'
	'leaked [0-9]+ '
	'live objects: *[^0 ]'
)

# A mark of its own for each caller: kernel_log_mark [NAME]
kernel_log_mark()
{
	kernel_log_name=${1:-selftest-$$-$RANDOM$RANDOM}
	printf 'selftests: mark %s\n' "$kernel_log_name" >/dev/kmsg
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

# The check itself: what was logged since the mark, and what a leak detector has found.
kernel_log_check()
{
	local log leaks=/sys/kernel/debug/kmemleak
	if [ -w "$leaks" ]; then
		# It reports what it has seen unreferenced twice.
		echo scan >"$leaks"
		sleep 5
		echo scan >"$leaks"
		if [ -s "$leaks" ] && grep -q . "$leaks"; then
			echo "kmemleak:"
			head -n 40 "$leaks"
			echo clear >"$leaks"
			return 1
		fi
	fi
	if ! log=$(kernel_log_since); then
		echo "the mark has gone from the kernel log: what happened since cannot be judged"
		return 1
	fi
	kernel_log_scan <<<"$log"
}
