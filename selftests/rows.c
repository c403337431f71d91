// SPDX-License-Identifier: GPL-2.0
#include <regex.h>

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
	return !is_chosen || !regexec(&chosen, name, 0, NULL, 0);
}
