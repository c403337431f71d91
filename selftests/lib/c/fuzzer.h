/* SPDX-License-Identifier: GPL-2.0 */
/* What all fuzzers have: options, a seed, and an end. */
#ifndef FUZZER_H
#define FUZZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kselftest.h"

struct fuzzer {
	uint64_t seed;
	unsigned int seconds;
	/* The file that the addresses that kcov notes are added to, or NULL. */
	const char *coverage;
};

/* For getopt(): -s SEED, -t SECONDS, -c FILE. */
#define FUZZER_OPTIONS "s:t:c:"
/* What a slow machine gets beyond its seconds, until it has done enough. */
#define FUZZER_MORE_TIME_MS 600000

/* Half a minute, and a seed of the time. */
void fuzzer_prepare(struct fuzzer *fuzzer);
/* Takes over one of FUZZER_OPTIONS; false if it is another option. */
bool fuzzer_option(struct fuzzer *fuzzer, int option, const char *argument);
/* Both, for a program without other options. Ends it with `needed` unless it has so many operands, from optind on. */
void fuzzer_start(struct fuzzer *fuzzer, int argc, char *const *argv, int operands, const char *needed);
/* Starts the test's output: the plan, and what is needed to repeat it. */
static inline void fuzzer_begin(const struct fuzzer *fuzzer, unsigned int rows)
{
	/* Here, as each file has counters of rows of its own. */
	ksft_print_header();
	ksft_set_plan(rows);
	ksft_print_msg("seed %#llx, %u s\n", (unsigned long long)fuzzer->seed, fuzzer->seconds);
}
/* Whether there is something left to do in a run that is to end at that time of now_ms(). */
bool fuzzer_goes_on(uint64_t end, bool enough);
/* Memory of zeros for this process and its children. */
void *fuzzer_shared(size_t size);
/* Forks the process that does what may kill it; it also dies with its parent. Returns 0 in it. */
pid_t fuzzer_fork(void);
/* Whether that process ended by itself and with 0, at most so many milliseconds after the fuzzer's time. */
bool fuzzer_wait(const struct fuzzer *fuzzer, pid_t pid, uint64_t last_ms);

#endif
