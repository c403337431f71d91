/* SPDX-License-Identifier: GPL-2.0 */
/* A thread that looks at a word all the time, while a device writes to it. */
#ifndef WATCHER_H
#define WATCHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* So many changes of the word have to be seen. A thread that did not run sees none, and no half of one either. */
#define CHANGES 100

struct watcher {
	const volatile void *word;
	/* 4 or 8. */
	unsigned int bytes;
	/* Whether somebody writes that value; another one is of two writes. */
	bool (*is_whole)(uint64_t value);
	pthread_t thread;
	atomic_bool ends;
	/* How often the word was another than before, so far. */
	atomic_uint changes;
	/* Values that nobody writes, once the thread has ended: how many, and the last one. */
	unsigned int torn;
	uint64_t torn_value;
};

void watcher_start(struct watcher *watcher, const volatile void *word, unsigned int bytes,
		   bool (*is_whole)(uint64_t value));
void watcher_end(struct watcher *watcher);

#endif
