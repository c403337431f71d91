// SPDX-License-Identifier: GPL-2.0
/* See growth.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "growth.h"

#define WAIT_MS 5000

static bool is_ferroce(void)
{
	const char *driver = getenv("FERROCE_DRIVER");

	return !driver || !strcmp(driver, "ferroce");
}

static unsigned long long grown(const struct growth *growth)
{
	return device_counter_now(growth->device, growth->counter) - growth->before;
}

void growths_begin(struct growth *growths, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count && is_ferroce(); i++)
		growths[i].before = device_counter_now(growths[i].device, growths[i].counter);
}

bool growths_are(const struct growth *growths, unsigned int count)
{
	uint64_t end = now_ms() + patience_ms(WAIT_MS);
	unsigned long long by;
	unsigned int i;
	bool ok = true;

	for (i = 0; i < count && is_ferroce(); i++) {
		do {
			by = grown(&growths[i]);
		} while (by < growths[i].by && now_ms() < end);
		if (by == growths[i].by)
			continue;
		printf("# %s of %s grows by %llu, not by %llu\n", growths[i].counter, growths[i].device->name, by,
		       growths[i].by);
		ok = false;
	}
	return ok;
}
