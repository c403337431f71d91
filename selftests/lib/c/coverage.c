// SPDX-License-Identifier: GPL-2.0
/* See coverage.h. */

#include <errno.h>
#include <fcntl.h>
#include <linux/kcov.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "coverage.h"
#include "endpoint.h"

#define KCOV "/sys/kernel/debug/kcov"
/* Words of kcov's memory: the first one says how many of the others are filled. */
#define WORDS (1 << 18)
/* Of the set, a power of two; far more than the module has places. */
#define PLACES (1 << 18)

static bool wanted;
static __thread uint64_t *noted;
/* Shared with children, which may be killed at any moment: so there is no lock. */
static uint64_t *places;

void coverage_want(void)
{
	wanted = true;
	places = mmap(NULL, PLACES * sizeof(*places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (places == MAP_FAILED)
		die("no memory for places: %s", strerror(errno));
}

void coverage_start(void)
{
	int file;

	if (!wanted)
		return;
	file = open(KCOV, O_RDWR);
	if (file < 0)
		die("%s: %s", KCOV, strerror(errno));
	if (ioctl(file, KCOV_INIT_TRACE, WORDS))
		die("KCOV_INIT_TRACE: %s", strerror(errno));
	noted = mmap(NULL, WORDS * sizeof(*noted), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (noted == MAP_FAILED)
		die("%s: mmap: %s", KCOV, strerror(errno));
	if (ioctl(file, KCOV_ENABLE, KCOV_TRACE_PC))
		die("KCOV_ENABLE: %s", strerror(errno));
}

static void place_add(uint64_t place)
{
	size_t at = (place * 0x9e3779b97f4a7c15ULL) >> 46, tries;

	for (tries = 0; tries < PLACES / 2; tries++) {
		uint64_t before = 0;

		if (__atomic_compare_exchange_n(&places[at], &before, place, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED) || before == place)
			return;
		at = (at + 1) % PLACES;
	}
}

void coverage_collect(void)
{
	uint64_t count, i;

	if (!noted)
		return;
	count = __atomic_load_n(&noted[0], __ATOMIC_RELAXED);
	for (i = 0; i < count && i + 1 < WORDS; i++)
		place_add(noted[i + 1]);
	__atomic_store_n(&noted[0], 0, __ATOMIC_RELAXED);
}

void coverage_write(const char *path)
{
	unsigned int count = 0;
	FILE *to;
	size_t i;

	if (!wanted)
		return;
	to = fopen(path, "a");
	if (!to)
		die("%s: %s", path, strerror(errno));
	for (i = 0; i < PLACES; i++) {
		if (!places[i])
			continue;
		fprintf(to, "%#llx\n", (unsigned long long)places[i]);
		count++;
	}
	if (fclose(to))
		die("%s: %s", path, strerror(errno));
	printf("# coverage: %u places of the module\n", count);
}
