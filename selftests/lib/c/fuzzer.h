/* SPDX-License-Identifier: GPL-2.0 */
/* What all fuzzers have: a time, and an end. */
#ifndef FUZZER_H
#define FUZZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fuzzer {
	/* FERROCE_SECONDS, or half a minute. */
	unsigned int seconds;
	/* FERROCE_COVERAGE, the file that the addresses that kcov notes are added to, or NULL. */
	const char *coverage;
};

extern struct fuzzer fuzzer;

/* What a slow machine gets beyond its seconds, until it has done enough. */
#define FUZZER_MORE_TIME_MS 600000

void fuzzer_begin(void);
/* Writes what kcov has noted, if that is wanted. */
void fuzzer_end(void);
/* Whether there is something left to do in a run that is to end at that time of now_ms(). */
bool fuzzer_goes_on(uint64_t end, bool enough);
/* Memory of zeros for this process and its children. */
void *fuzzer_shared(size_t size);
/* Forks the process that does what may kill it; it also dies with its parent. Returns 0 in it. */
pid_t fuzzer_fork(void);
/* Whether that process ended by itself and with 0, at most so many milliseconds after the fuzzer's time. */
bool fuzzer_wait(pid_t pid, uint64_t last_ms);

#endif
