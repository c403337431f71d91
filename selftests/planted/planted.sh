#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: the tests of the tests
# Module: warning
#
# The tests of the tests: each plants something that must make a test fail, and
# passes when it does.
set -u
. "$(dirname "$0")/../lib/test.sh"

# How often it is run, one after the other.
samples=1

# A test made of the lines given, as the suite judges it.
try()
{
	mkdir -p "$ktap_dir/planted"
	cp "$here/settings" "$here/suite" "$ktap_dir/"
	ln -sfn "$here/lib" "$ktap_dir/lib"
	printf '%s\n' '#!/usr/bin/env bash' '# Test: sample' ". '$ktap_dir/lib/ktap.sh'" "$@" >"$ktap_dir/planted/sample.sh"
	chmod +x "$ktap_dir/planted/sample.sh"
	# Of dozens of samples none leaks.
	local names=(sample)
	[ "$samples" = 1 ] || names+=(sample)
	FERROCE_KMEMLEAK='' "$ktap_dir/suite" -k "${names[@]}" >"$ktap_dir/output" 2>&1
	cat "$ktap_dir/output"
}

must_fail()
{
	try "$@"
	grep -q '^not ok [0-9]* sample' "$ktap_dir/output" || fail "it did not fail"
}

# The row itself passes: it is the kernel log that fails.
must_fail_by_log()
{
	must_fail "$@"
	grep -q '^    ok [0-9]* one' "$ktap_dir/output" || fail "the row did not pass"
	grep -q '^    not ok [0-9]* kernel log' "$ktap_dir/output" || fail "the kernel log passed"
}

must_pass()
{
	try "$@"
	grep -q '^ok [0-9]* sample' "$ktap_dir/output" || fail "it did not pass"
}

good_sample()
{
	must_pass 'ktap_start 1' 'row one true' 'ktap_finish'
}

warning()
{
	must_fail_by_log 'ktap_start 1' "row one insmod $here/kernel/warning.ko" 'ktap_finish'
	rmmod warning || fail "the module that warns was not loaded"
}

# complaint WORDS: the same line as the kernel would log it
complaint()
{
	must_fail_by_log 'ktap_start 1' "row one sh -c 'echo \"$*\" >/dev/kmsg'" 'ktap_finish'
}

# What comes behind the last look of one test: the next one sees it.
between_tests()
{
	samples=2
	# shellcheck disable=SC2016 # for the sample's shell
	try 'ktap_start 1' 'row one true' \
		'trap "rm -rf $ktap_dir; echo WARNING: CPU: 0 PID: 1 at planted, at the end >/dev/kmsg" EXIT' 'ktap_finish'
	grep -q '^ok 2 sample' "$ktap_dir/output" || fail "the first does not pass"
	grep -q '^not ok 3 sample' "$ktap_dir/output" || fail "the second does not fail"
}

# oom WORD LINE [TRACE]: what the kernel logs when a process is killed for that limit, with a line between. TRACE is the
# head of its call trace, which architectures write in two ways.
oom()
{
	local line text=''
	for line in 'planted invoked oom-killer: gfp_mask=0xcc0' "${3:-Call Trace:}" "$2" "oom-kill:constraint=$1,planted"; do
		text+="echo \"$line\" >/dev/kmsg; "
	done
	printf '%s' "row one sh -c '$text'"
}

cgroup_oom()
{
	must_pass 'ktap_start 1' "$(oom CONSTRAINT_MEMCG 'planted')" 'ktap_finish' &&
		must_pass 'ktap_start 1' "$(oom CONSTRAINT_MEMCG 'planted' 'Call trace:')" 'ktap_finish'
}

trace_in_cgroup_oom()
{
	must_fail_by_log 'ktap_start 1' "$(oom CONSTRAINT_MEMCG 'Call Trace:')" 'ktap_finish'
}

machine_oom()
{
	must_fail_by_log 'ktap_start 1' "$(oom CONSTRAINT_NONE 'planted')" 'ktap_finish'
}

lost_mark()
{
	must_fail_by_log 'ktap_start 1' 'row one dmesg --clear' 'ktap_finish'
}

# A flood before a test pushes the last look out of the log.
lost_look()
{
	must_fail_by_log 'dmesg --clear' 'ktap_start 1' 'row one true' 'ktap_finish'
}

failed_row()
{
	must_fail 'ktap_start 1' 'row one false' 'ktap_finish'
}

lost_row()
{
	must_fail 'ktap_start 2' 'row one true' 'ktap_finish'
}

early_end()
{
	must_fail 'ktap_start 2' 'row one true' 'exit 0'
}

hidden_failure()
{
	must_fail 'ktap_start 1' 'row one false' 'echo ok 2 kernel log' 'exit 0'
}

bare_skip()
{
	must_fail 'ktap_start 1' 'row one sh -c "exit 4"' 'ktap_finish'
}

subshell_skip()
{
	# shellcheck disable=SC2016 # for the sample's shell
	must_fail 'ktap_start 1' 'one() { local words; words=$(skip planted); true; }' 'row one one' 'ktap_finish'
}

# A program whose KTAP stops in the middle, and one that crashes after it.
short_program()
{
	must_fail 'ktap_start 2' 'short() { echo 1..2; echo ok 1 one; }' 'absorb 2 short' 'ktap_finish'
}

crashed_program()
{
	# shellcheck disable=SC2016 # for the sample's shell
	must_fail 'ktap_start 1' 'crash() { echo 1..1; echo ok 1 one; kill -SEGV $BASHPID; }' \
		'absorb 1 crash' 'ktap_finish'
}

silent_test()
{
	must_fail 'exit 0'
}

lines=(
	"WARNING: CPU: 0 PID: 1 at planted"
	"BUG: KASAN: slab-use-after-free in planted"
	"BUG: sleeping function called from invalid context at planted"
	"Oops: general protection fault, planted"
	"refcount_t: underflow; use-after-free."
	"ref_tracker: planted@0 has 1/2 users at"
	"cm_destroy_id_wait_timeout: cm_id=planted timed out. state 3 -> 0, refcnt=1"
	"planted[1]: segfault at 0 ip 0 sp 0 error 4"
	"unregister_netdevice: waiting for planted to become free. Usage count = 2"
	"WARNING: possible circular locking dependency detected"
	"INFO: task planted:1 blocked for more than 120 seconds."
	"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"
	"kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)"
	"ferroce: unloaded, live objects: 2"
	"rust_kernel: panicked at planted"
)

ktap_start $((18 + ${#lines[@]}))
row "a good test passes" good_sample
row "a WARN of the kernel" warning
for line in "${lines[@]}"; do
	row "a line '${line:0:40}'" complaint "$line"
done
row "a complaint between two tests" between_tests
row "a process killed for the limit of its cgroup passes" cgroup_oom
row "another trace within that report" trace_in_cgroup_oom
row "a process killed for the machine's memory" machine_oom
row "the mark gone from the log" lost_mark
row "the last look gone from the log" lost_look
row "a failed row" failed_row
row "a row too few" lost_row
row "an early end with status 0" early_end
row "a failed row behind status 0" hidden_failure
row "a skip without a reason" bare_skip
row "a skip in a subshell" subshell_skip
row "a program's row too few" short_program
row "a program's crash" crashed_program
row "no output at all" silent_test
row "nothing else is wrong" good_sample
# What was planted is in the log; what follows starts after it.
kernel_log_mark
ktap_finish
