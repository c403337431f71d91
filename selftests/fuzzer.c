// SPDX-License-Identifier: GPL-2.0
/* See fuzzer.h. */

#include <stdlib.h>
#include <time.h>

#include "coverage.h"
#include "endpoint.h"
#include "fuzzer.h"

#define SECONDS 30

void fuzzer_prepare(struct fuzzer *fuzzer)
{
	fuzzer->seed = time(NULL);
	fuzzer->seconds = SECONDS;
	fuzzer->coverage = NULL;
}

bool fuzzer_option(struct fuzzer *fuzzer, int option, const char *argument)
{
	switch (option) {
	case 's':
		fuzzer->seed = strtoull(argument, NULL, 0);
		return true;
	case 't':
		fuzzer->seconds = atoi(argument);
		return true;
	case 'c':
		fuzzer->coverage = argument;
		coverage_want();
		return true;
	default:
		return false;
	}
}

bool fuzzer_goes_on(uint64_t end, bool enough)
{
	uint64_t now = now_ms();

	return now < end || (!enough && now < end + FUZZER_MORE_TIME_MS);
}
