// SPDX-License-Identifier: GPL-2.0
/* See test.h. */

#include <getopt.h>
#include <regex.h>
#include <time.h>

#include "test.h"

struct device devices[2];
int family = 4;
uint64_t seed;

static struct row *rows;
static unsigned int row_count;
static char skip_reason[256];
/* Rows that take longer say how long. */
#define LONG_MS 5000

bool rows_are_chosen(void)
{
	const char *pattern = getenv("FERROCE_ROWS");

	return pattern && *pattern;
}

bool has_own_provider(void)
{
	const char *name = getenv("FERROCE_PROVIDER");

	return name && strcmp(name, "librxe");
}

bool row_is_wanted(const char *name)
{
	static bool is_compiled;
	static regex_t chosen;

	if (!rows_are_chosen())
		return true;
	if (!is_compiled && regcomp(&chosen, getenv("FERROCE_ROWS"), REG_EXTENDED | REG_NOSUB))
		die("not a regular expression: %s", getenv("FERROCE_ROWS"));
	is_compiled = true;
	return !regexec(&chosen, name, 0, NULL, 0);
}

void row_add(struct row row)
{
	if (!row_is_wanted(row.name))
		return;
	rows = realloc(rows, (row_count + 1) * sizeof(*rows));
	if (!rows)
		die("no memory");
	rows[row_count++] = row;
}

const char *row_name(const char *format, ...)
{
	va_list arguments;
	char *name;

	va_start(arguments, format);
	if (vasprintf(&name, format, arguments) < 0)
		die("no memory");
	va_end(arguments);
	return name;
}

bool row_run(const struct row *row)
{
	return row->run ? row->run() : row->run_with(row->argument);
}

bool row_skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(skip_reason, sizeof(skip_reason), format, arguments);
	va_end(arguments);
	return true;
}

/* Here, as each file that includes kselftest.h has counters of rows of its own. */
void row_result(bool ok, const char *name, const char *reason)
{
	if (ok && reason)
		ksft_test_result_code(KSFT_SKIP, name, "%s", reason);
	else
		ksft_test_result(ok, "%s\n", name);
}

const char *netdev_of(int number)
{
	const char *name = getenv(number == 1 ? "FERROCE_NETDEV1" : "FERROCE_NETDEV2");

	if (!name)
		die("FERROCE_NETDEV%d is not set", number);
	return name;
}

static void row_judge(const struct row *row)
{
	uint64_t began = now_ms();
	bool ok;

	*skip_reason = '\0';
	ok = (test.run_row ?: row_run)(row);
	if (now_ms() - began > LONG_MS)
		ksft_print_msg("%llu ms\n", (unsigned long long)(now_ms() - began));
	row_result(ok, row->name, *skip_reason ? skip_reason : NULL);
}

static void options_read(int argc, char **argv)
{
	char options[64];
	int option;

	snprintf(options, sizeof(options), "46%s", test.options ?: "");
	while ((option = getopt(argc, argv, options)) != -1) {
		if (option == '4' || option == '6')
			family = option - '0';
		else if (option == '?' || !test.option(option, optarg))
			exit(KSFT_FAIL);
	}
}

static int operands_needed(void)
{
	const char *at = test.operands;
	int count = 1;

	if (!at)
		return 2;
	while ((at = strchr(at, ' '))) {
		count++;
		at++;
	}
	return count;
}

int test_main(int argc, char **argv)
{
	static char *names[] = { "fer1", "fer2" };
	const char *asked = getenv("FERROCE_SEED");
	unsigned int i;
	char **operands;

	options_read(argc, argv);
	for (i = 0; i < test.row_count; i++)
		row_add(test.rows[i]);
	if (test.add)
		test.add();
	operands = argv + optind;
	if (argc - optind == 1 && !strcmp(*operands, "count")) {
		printf("%u\n", row_count + test.told);
		return 0;
	}
	if (argc - optind == 1 && !strcmp(*operands, "rows")) {
		for (i = 0; i < row_count; i++)
			printf("%s\n", rows[i].name);
		return 0;
	}
	if (argc == optind && !test.operands)
		operands = names;
	else if (argc - optind != operands_needed())
		die("it needs %s", test.operands ?: "DEVICE DEVICE");
	seed = asked ? strtoull(asked, NULL, 0) : (uint64_t)time(NULL);
	ksft_print_header();
	ksft_set_plan(row_count + test.told);
	ksft_print_msg("seed %#llx\n", (unsigned long long)seed);
	random_seed(seed);
	for (i = 0; i < 2 && test.with_devices; i++)
		device_open(&devices[i], operands[i], family);
	if (test.begin)
		test.begin(operands);
	for (i = 0; i < row_count; i++)
		row_judge(&rows[i]);
	if (test.tell)
		test.tell();
	if (test.end)
		test.end();
	for (i = 0; i < 2 && test.with_devices; i++)
		device_close(&devices[i]);
	ksft_finished();
}
