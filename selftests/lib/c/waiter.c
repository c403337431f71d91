// SPDX-License-Identifier: GPL-2.0
/* See waiter.h. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "endpoint.h"
#include "waiter.h"

static void *run(void *argument)
{
	struct waiter *waiter = argument;

	waiter->number = gettid();
	waiter->call(waiter->argument);
	waiter->has_returned = true;
	return NULL;
}

void waiter_start(struct waiter *waiter, void (*call)(void *argument), void *argument)
{
	memset(waiter, 0, sizeof(*waiter));
	waiter->call = call;
	waiter->argument = argument;
	thread_start(&waiter->thread, run, waiter);
}

/* Whether it has come to sleep in libc, for somebody of this process to wake it. */
static bool is_asleep(const struct waiter *waiter)
{
	char path[64], line[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", waiter->number);
	file = waiter->number ? fopen(path, "r") : NULL;
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = 0;
	fclose(file);
	return strtol(line, NULL, 10) == SYS_futex && line[0] != 'r';
}

bool waiter_waits(struct waiter *waiter, unsigned int ms)
{
	uint64_t end = now_ms() + patience_ms(ms);

	while (!waiter->has_returned && now_ms() < end) {
		if (is_asleep(waiter))
			return true;
		usleep(1000);
	}
	return false;
}

void waiter_end(struct waiter *waiter)
{
	pthread_join(waiter->thread, NULL);
}
