// SPDX-License-Identifier: GPL-2.0
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "rows.h"

static bool is_chosen;
static regex_t chosen;

void rows_want(const char *pattern)
{
	if (regcomp(&chosen, pattern, REG_EXTENDED | REG_NOSUB))
		die("not a regular expression: %s", pattern);
	is_chosen = true;
}

bool row_is_wanted(const char *name)
{
	if (!is_chosen) {
		const char *pattern = getenv("FERROCE_ROWS");

		rows_want(pattern ? pattern : ".");
	}
	return !regexec(&chosen, name, 0, NULL, 0);
}

unsigned int rows_wanted(const void *rows, size_t size, size_t count)
{
	unsigned int wanted = 0;
	size_t i;

	for (i = 0; i < count; i++)
		wanted += row_is_wanted(*(const char *const *)((const char *)rows + i * size));
	return wanted;
}

void rows_count(int argc, char **argv, unsigned int count)
{
	if (argc != 2 || strcmp(argv[1], "count"))
		return;
	printf("%u\n", count);
	exit(0);
}
