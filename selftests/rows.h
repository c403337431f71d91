/* SPDX-License-Identifier: GPL-2.0 */
/* Which rows of a test are asked for. */
#ifndef ROWS_H
#define ROWS_H

#include <stdbool.h>

/* From here on only rows whose names match that extended regular expression; all before. */
void rows_want(const char *pattern);
bool row_is_wanted(const char *name);

#endif
