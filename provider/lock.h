/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The lock of a ring's process side. */
#ifndef LOCK_H
#define LOCK_H

#include <pthread.h>
#include <stdbool.h>

struct lock {
	pthread_spinlock_t spin;
	/* The program promised that one thread at a time uses what it guards. */
	bool has_one_user;
};

static inline void lock_init(struct lock *lock, bool has_one_user)
{
	pthread_spin_init(&lock->spin, PTHREAD_PROCESS_PRIVATE);
	lock->has_one_user = has_one_user;
}

static inline void lock_destroy(struct lock *lock)
{
	pthread_spin_destroy(&lock->spin);
}

static inline void lock_take(struct lock *lock)
{
	if (!lock->has_one_user)
		pthread_spin_lock(&lock->spin);
}

static inline void lock_release(struct lock *lock)
{
	if (!lock->has_one_user)
		pthread_spin_unlock(&lock->spin);
}

#endif
