// SPDX-License-Identifier: GPL-2.0
/* See watcher.h. */

#include <string.h>

#include "endpoint.h"
#include "watcher.h"

static uint64_t value_of(const struct watcher *watcher)
{
	return watcher->bytes == 8 ? *(const volatile uint64_t *)watcher->word :
				     *(const volatile uint32_t *)watcher->word;
}

static void *watch(void *argument)
{
	struct watcher *watcher = argument;
	uint64_t value, last = value_of(watcher);

	while (!watcher->ends) {
		value = value_of(watcher);
		if (value == last)
			continue;
		watcher->changes++;
		last = value;
		if (watcher->is_whole(value))
			continue;
		watcher->torn++;
		watcher->torn_value = value;
	}
	return NULL;
}

void watcher_start(struct watcher *watcher, const volatile void *word, unsigned int bytes,
		   bool (*is_whole)(uint64_t value))
{
	memset(watcher, 0, sizeof(*watcher));
	watcher->word = word;
	watcher->bytes = bytes;
	watcher->is_whole = is_whole;
	thread_start(&watcher->thread, watch, watcher);
}

void watcher_end(struct watcher *watcher)
{
	watcher->ends = true;
	pthread_join(watcher->thread, NULL);
}
