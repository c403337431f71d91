/* SPDX-License-Identifier: GPL-2.0 */
/* A thread that makes a call which has to wait for somebody else of this process. */
#ifndef WAITER_H
#define WAITER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct waiter {
	void (*call)(void *argument);
	void *argument;
	pthread_t thread;
	/* The thread's, for the kernel. */
	atomic_int number;
	atomic_bool has_returned;
};

void waiter_start(struct waiter *waiter, void (*call)(void *argument), void *argument);
/* Returns once the call waits: true; or once it has returned or patience_ms(ms) are over: false. */
bool waiter_waits(struct waiter *waiter, unsigned int ms);
/* Returns once the call has. */
void waiter_end(struct waiter *waiter);

#endif
