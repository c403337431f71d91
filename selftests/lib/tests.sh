# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What tests there are. Each says in the comment at its head what it is and what it needs:
#
#	Test: WORDS             this file is a test, named like the file; what it does
#	Net: NET                what is set up for it: veth (if there is no such line), none, loop, wire or wire-rxe
#	Runs: WHEN              without being asked for: always (if there is no such line), with the stock or the debug
#	                        kernel, or never
#	Suites: all             and with the userspace of each Debian suite
#	Module: NAME            a module of kernel/ that it loads
#	Needs: OPTION...        what selftests/run has to be called with

# In the order in which they run.
test_nets='veth none loop wire wire-rxe'
test_folders='tools verbs memory network isolation diagnostics fuzz planted kernel lifetime consumers'

# tests_list DIRECTORY: a line "NAME NET WHEN SUITES MODULE FILE WORDS" for each test below it, in the order in which
# they run: by set-up, then by folder, then by name.
tests_list()
{
	(cd "$1" && for folder in $test_folders; do
		printf '%s\n' "$folder"/*.sh "$folder"/*.c | grep -vF '*' | LC_ALL=C sort
	done | xargs awk -v nets="$test_nets" '
		function finish(	name) {
			name = file
			gsub(/.*\/|\..*/, "", name)
			if (of["Test"] != "")
				print index(nets, of["Net"]), name, of["Net"], of["Runs"], of["Suites"], of["Module"], file,
					of["Test"] (of["Needs"] == "" ? "" : "; needs " of["Needs"])
		}
		FNR == 1 {
			finish()
			file = FILENAME
			of["Test"] = of["Needs"] = ""
			of["Net"] = "veth"
			of["Runs"] = "always"
			of["Suites"] = of["Module"] = "-"
		}
		FNR < 40 && match($0, /^(#| \*) (Test|Net|Runs|Suites|Module|Needs): /) {
			split($0, words, /[ :]+/)
			of[words[words[1] == "" ? 3 : 2]] = substr($0, RLENGTH + 1)
		}
		END { finish() }' | sort -s -n -k 1,1 | cut -d ' ' -f 2-)
}
