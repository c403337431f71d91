/* SPDX-License-Identifier: GPL-2.0 */
/* Which rows of a test are asked for. */
#ifndef ROWS_H
#define ROWS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * From here on only rows whose names match that extended regular expression. Without it those that match
 * FERROCE_ROWS, an environment variable; all if there is none.
 */
void rows_want(const char *pattern);
bool row_is_wanted(const char *name);

/* How many rows of a table, each of which begins with its name, are wanted. */
#define ROWS_WANTED(rows) rows_wanted(rows, sizeof((rows)[0]), sizeof(rows) / sizeof((rows)[0]))
unsigned int rows_wanted(const void *rows, size_t size, size_t count);

/* With the one argument "count" a program prints how many rows it would have, and ends: here. */
void rows_count(int argc, char **argv, unsigned int count);

#endif
