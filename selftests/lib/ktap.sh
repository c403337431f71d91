# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# KTAP rows for the shell tests.
#
#   ktap_start COUNT             says how many rows follow, before the first one:
#                                a row that goes missing then shows
#   row NAME COMMAND [ARG...]    runs COMMAND (a shell function, in a subshell) as
#                                one row; its output is shown when it fails
#   rows_of COMMAND...           prints how many rows a program has: its plan
#   absorb COUNT COMMAND...      takes over the COUNT rows of a program's own KTAP
#   fail WORDS, skip WORDS       end the row from inside
#   ktap_finish                  the kernel log as a last row, and the exit status
#
# The row of the kernel log is counted by ktap_start itself.

. "$(dirname "${BASH_SOURCE[0]}")/kernel_log.sh"

ktap_planned=0
ktap_number=0
ktap_failed=0
ktap_skipped=0
# Scratch space of the test; rows leave their output here.
ktap_dir=

ktap_start()
{
	ktap_dir=$(mktemp -d) || exit 1
	trap 'rm -rf "$ktap_dir"' EXIT
	ktap_planned=$(($1 + 1))
	printf 'KTAP version 1\n1..%d\n' "$ktap_planned"
	kernel_log_resume
}

fail()
{
	printf '%s\n' "$*"
	exit 1
}

skip()
{
	printf '%s\n' "$*" >"$ktap_dir/reason"
	exit 4
}

# verdict STATUS NAME [REASON]: prints one row; status 0 passes, 4 is a skip.
verdict()
{
	ktap_number=$((ktap_number + 1))
	case $1 in
	0)
		printf 'ok %d %s\n' "$ktap_number" "$2"
		;;
	4)
		ktap_skipped=$((ktap_skipped + 1))
		printf 'ok %d %s # SKIP %s\n' "$ktap_number" "$2" "${3:-}"
		;;
	*)
		ktap_failed=$((ktap_failed + 1))
		printf 'not ok %d %s\n' "$ktap_number" "$2"
		;;
	esac
}

row()
{
	local name=$1 status reason='' began=$SECONDS
	shift
	rm -f "$ktap_dir/reason"
	("$@") >"$ktap_dir/row" 2>&1 </dev/null
	status=$?
	[ -s "$ktap_dir/reason" ] && reason=$(head -n 1 "$ktap_dir/reason")
	[ $((SECONDS - began)) -lt 20 ] || echo "# $((SECONDS - began)) s"
	if [ "$status" -eq 4 ] && [ -z "$reason" ]; then
		echo "# skipped without a reason"
		status=1
	fi
	if [ "$status" -eq 0 ] && [ -n "$reason" ]; then
		echo "# a skip in a subshell did not end the row: $reason"
		status=1
	fi
	if [ "$status" -ne 0 ] && [ "$status" -ne 4 ]; then
		tail -n "${KTAP_LINES:-60}" "$ktap_dir/row" | sed 's/^/# /'
		echo "# status $status"
	fi
	verdict "$status" "$name" "$reason"
}

# Shows a line of a row that passed, too.
note()
{
	printf '# %s\n' "$*" >&4
}
exec 4>&1

# A program that does not say it has one row, which then fails.
rows_of()
{
	local rows
	rows=$("$@" count)
	echo "${rows:-1}"
}

absorb()
{
	# None of its rows is chosen.
	[ "$1" -ne 0 ] || return 0
	local expected=$1 line text seen=0 status=unknown
	shift
	while IFS= read -r line; do
		case $line in
		'# exit status '*)
			status=${line##* }
			;;
		'ok '* | 'not ok '*)
			seen=$((seen + 1))
			text=$(sed -E 's/^(not )?ok +[0-9]+ *(- )?//' <<<"$line")
			case $line in
			'ok '*'# SKIP'*)
				verdict 4 "${text%%# SKIP*}" "${text##*# SKIP }"
				;;
			'ok '*)
				verdict 0 "$text"
				;;
			*)
				verdict 1 "$text"
				;;
			esac
			;;
		'TAP version'* | 'KTAP version'* | 1..[0-9]*) ;;
		'# '*)
			printf '%s\n' "$line"
			;;
		*)
			printf '# %s\n' "$line"
			;;
		esac
	done < <("$@" 2>&1 </dev/null; echo "# exit status $?")
	while [ "$seen" -lt "$expected" ]; do
		seen=$((seen + 1))
		verdict 1 "$(basename "$1") ended before its row $seen (status $status)"
	done
	if [ "$seen" -gt "$expected" ]; then
		echo "# $(basename "$1") has $seen rows, $expected were expected"
		ktap_failed=$((ktap_failed + 1))
	fi
	# 1 is a failed row, which stands above; 4 is "all skipped". A crash has none.
	case $status in
	0 | 1 | 4) ;;
	*)
		echo "# $(basename "$1") ended with status $status"
		ktap_failed=$((ktap_failed + 1))
		;;
	esac
}

kernel_log_of_all()
{
	local failed=0
	kernel_log_and_leaks_check || failed=1
	on_second_machine log_check || failed=1
	return "$failed"
}

ktap_finish()
{
	row "kernel log" kernel_log_of_all
	if [ "$ktap_number" -ne "$ktap_planned" ]; then
		echo "# $ktap_number rows of $ktap_planned"
		exit 1
	fi
	[ "$ktap_failed" -eq 0 ] || exit 1
	[ "$ktap_skipped" -lt $((ktap_planned - 1)) ] || exit 4
	exit 0
}
