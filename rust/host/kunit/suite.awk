# SPDX-License-Identifier: GPL-2.0
#
# Makes a KUnit suite of a file of tests, line by line: `awk -v suite=NAME -v folder=DIRECTORY -f suite.awk FILE`,
# DIRECTORY being where the modules are that the file has. rustc drops what is #[test] unless it makes a program
# of its own, so that is taken off; and KUnit needs the list.

function refuse(words) {
	print FILENAME ":" FNR ": " words >"/dev/stderr"
	refused = 1
	exit 1
}

wanted && !/^ *fn [a-z0-9_]+\(/ { refuse("no function follows #[test] at once") }

wanted {
	wanted = 0
	name = $0
	sub(/^ *fn /, "", name)
	sub(/\(.*/, "", name)
	cases = cases " " name
}

/#\[test\]/ {
	if (!/^ *#\[test\]$/)
		refuse("#[test] shares its line")
	wanted = 1
	print ""
	next
}

/^mod [a-z0-9_]+;$/ {
	name = substr($2, 1, length($2) - 1)
	printf "#[path = \"%s/%s/mod.rs\"] mod %s;\n", folder, name, name
	next
}

{ print }

END {
	if (refused)
		exit 1
	if (wanted)
		refuse("nothing follows #[test]")
	printf "kunit_harness::suite!(%s:%s);\n", suite, cases
}
