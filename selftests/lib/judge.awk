# SPDX-License-Identifier: GPL-2.0
#
# What a VM says, as KTAP of KTAP, judged for selftests/run: prints "failed WHAT" and "skipped WHAT" for each row
# that did, and for each that is missing, then one line "counts PASSED FAILED SKIPPED OWN": OWN are the rows of the
# tests but for those that each has, of the kernel log.
#
# awk -v names='TEST...' -v status=STATUS -v group=NAME -v list=FILE -v rows_list=FILE -v conditions='WORD...'
#	-v is_part=0|1
#
# names are the tests that should have run, status is that of the VM. list is selftests/skips, which says what it
# looks like; none if anything may be skipped. rows_list is selftests/rows; none if the tests may have any number of
# rows. is_part is 1 if only some rows of the tests were asked for.

function name_of(line)
{
	sub(/^ *(not )?ok [0-9]+ (- )?/, "", line)
	return line
}

function fail(what)
{
	failed++
	print "failed " what
}

# A name of the list as a regular expression: * stands for anything.
function expression(name)
{
	gsub(/[][\\^$.|?+(){}]/, "\\\\&", name)
	gsub(/\*/, ".*", name)
	return "^" name "$"
}

# A line [WORD...]: whether all conditions of it hold; is_may is set if one of the words is "may".
function conditions_hold(line,	words, count, i, holds)
{
	holds = 1
	is_may = 0
	count = split(substr(line, 2, length(line) - 2), words, " ")
	for (i = 1; i <= count; i++) {
		if (words[i] == "may")
			is_may = 1
		else if (words[i] != "always" && index(" " conditions " ", " " words[i] " ") == 0)
			holds = 0
	}
	return holds
}

# Lines TEST COUNT. Of several whose conditions hold, the last one counts.
function read_rows(file,	line, holds, words, lines)
{
	while ((getline line <file) > 0) {
		if (line == "" || line ~ /^#/)
			continue
		if (line ~ /^\[.*\]$/) {
			holds = conditions_hold(line)
			continue
		}
		lines++
		if (split(line, words, " ") != 2 || words[2] !~ /^[0-9]+$/)
			fail(file ": not \"TEST COUNT\": " line)
		else if (holds)
			rows_wanted[words[1]] = words[2]
	}
	close(file)
	if (!lines)
		fail(file ": it lists no test")
}

function read_list(file,	line, holds, may, at)
{
	while ((getline line <file) > 0) {
		sub(/^[ \t]+/, "", line)
		if (line == "" || line ~ /^#/)
			continue
		if (line ~ /^\[.*\]$/) {
			holds = conditions_hold(line)
			may = is_may
			continue
		}
		at = index(line, " # ")
		if (!at || !index(line, ": ")) {
			fail(file ": not \"TEST: ROW # REASON\": " line)
			continue
		}
		if (!holds)
			continue
		entries++
		entry_row[entries] = substr(line, 1, at - 1)
		entry_pattern[entries] = expression(entry_row[entries])
		entry_reason[entries] = substr(line, at + 3)
		entry_test[entries] = substr(line, 1, index(line, ": ") - 1)
		entry_may[entries] = may
	}
	close(file)
}

# The entry of the list for a row, 0 if there is none.
function entry_of(row,	i)
{
	for (i = 1; i <= entries; i++)
		if (row ~ entry_pattern[i])
			return i
	return 0
}

function judge_skip(row, reason,	entry)
{
	skipped++
	print "skipped " row " # SKIP " reason
	if (list == "")
		return
	entry = entry_of(row)
	if (!entry || (entry_reason[entry] != "*" && index(reason, entry_reason[entry]) == 0))
		fail(row ": such a skip is not on the list: " reason)
	else
		entry_seen[entry] = 1
}

function judge_pass(row,	entry)
{
	passed++
	entry = list == "" ? 0 : entry_of(row)
	# One for many rows is not about each of them.
	if (entry && !entry_may[entry] && entry_row[entry] !~ /\*/) {
		fail(row ": it is on the list of skips, and passes")
		entry_seen[entry] = 1
	}
}

function leaf(line, where,	row, at)
{
	row = where name_of(line)
	if (name_of(line) != "kernel log" && where != group ": ")
		own++
	if (line ~ /^ *not ok/) {
		inner++
		fail(row)
	} else if ((at = index(row, "# SKIP"))) {
		# A program may put the row's name behind the directive: "# SKIP NAME: REASON".
		sub(/ +# SKIP */, " # SKIP ", row)
		at = index(row, " # SKIP ")
		judge_skip(substr(row, 1, at - 1), substr(row, at + 8))
	} else
		judge_pass(row)
}

BEGIN {
	if (list != "")
		read_list(list)
	if (rows_list != "" && !is_part)
		read_rows(rows_list)
}

/^    1\.\.[0-9]+$/ && !plan { next }
/^# Subtest: / { test = $3; inner = rows_of_test = 0 }
/^1\.\.[0-9]+$/ { plan = substr($0, 4) + 0; plans++ }
/^    (not )?ok [0-9]+ / { rows_of_test++; leaf($0, test ": ") }
/^(not )?ok [0-9]+ / {
	rows++
	if (test != "" && index(name_of($0), test) == 1) {
		done[test] = 1
		if ($0 ~ /^not ok/ && !inner)
			fail(test)
		if (test in rows_wanted && rows_of_test != rows_wanted[test])
			fail(test ": it has " rows_of_test " rows, selftests/rows says " rows_wanted[test])
	} else
		leaf($0, group ": ")
	test = ""
}

END {
	count = split(names, wanted, " ")
	for (i = 1; i <= count; i++)
		if (!done[wanted[i]]) {
			missing++
			fail(wanted[i] ": no result")
		}
	for (i = 1; i <= entries && !is_part; i++)
		if (done[entry_test[i]] && !entry_seen[i] && !entry_may[i])
			fail(entry_row[i] ": it is on the list of skips, and was not skipped")
	if (plans > 1)
		fail(group ": " plans " plans")
	else if (!plan || (rows != plan && !missing))
		fail(group ": " rows + 0 " rows of " plan + 0)
	else if (status && !failed)
		fail(group ": the machine ended with status " status)
	print "counts", passed + 0, failed + 0, skipped + 0, own + 0
}
