/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A test, and the main() of all tests:
 *
 *	NAME [-4|-6] [OPTION...] [OPERAND...]
 *	NAME [OPTION...] count|rows
 *
 * runs the rows, or prints how many there are, or their names. FERROCE_ROWS, an extended regular expression, chooses
 * rows by name; FERROCE_SEED is the seed of random numbers, which the test prints.
 */
#ifndef TEST_H
#define TEST_H

#include "endpoint.h"
#include "kselftest.h"

struct row {
	const char *name;
	/* One of the two says whether it passes, and before that prints lines that begin with "# " if it does not. */
	bool (*run)(void);
	bool (*run_with)(int argument);
	int argument;
	/* Whatever else the test has to know of it. */
	long needs;
};

/* Of all this only the rows have to be there. */
struct test {
	const struct row *rows;
	unsigned int row_count;
	/* Words for the operands; without them, two devices, which are fer1 and fer2 if they are not named. */
	const char *operands;
	/* Whether devices[] are open from before begin() until after end(): those that the first two operands name. */
	bool with_devices;
	/* As getopt() has them. The function returns false if the argument makes no sense. */
	const char *options;
	bool (*option)(int option, const char *argument);
	/* Adds rows with row_add(), where they depend on options or are combinations. */
	void (*add)(void);
	/* Before the first row, and behind the last one. */
	void (*begin)(char **operands);
	void (*end)(void);
	/* Runs a row, in the place of row_run(). */
	bool (*run_row)(const struct row *row);
	/* For rows that cannot run one by one: their number, and what tells each with row_result(). */
	unsigned int told;
	void (*tell)(void);
};

/* Each test defines it. */
extern const struct test test;

#define ROWS(table) .rows = (table), .row_count = ARRAY_SIZE(table)

extern struct device devices[2];
/* 4 or 6, as -4 or -6 says. */
extern int family;
extern uint64_t seed;

void row_add(struct row row);
/* Whether the provider has more than stock librxe: libferroce, or librxe with our patches (selftests/run --provider). */
bool has_own_provider(void);
bool row_run(const struct row *row);
/* A name that is put together. */
const char *row_name(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether rows are chosen at all, and whether one of that name is. */
bool rows_are_chosen(void);
bool row_is_wanted(const char *name);

/* The row that runs is skipped, unless it fails. Returns true. */
bool row_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The verdict on a row of those that are told; reason is NULL if it is not skipped. */
void row_result(bool ok, const char *name, const char *reason);

/* The netdev of the first or second device, in its namespace n1 or n2: FERROCE_NETDEV1, FERROCE_NETDEV2. */
const char *netdev_of(int number);

int test_main(int argc, char **argv);

#endif
