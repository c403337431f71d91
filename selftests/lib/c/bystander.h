/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A process of its own that moves messages between two devices, checks every byte, and
 * must not notice what others do to those devices meanwhile.
 */
#ifndef BYSTANDER_H
#define BYSTANDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What the bystander tells, in memory that is shared with it. */
struct bystander_news {
	volatile uint32_t qp_nums[2];
	volatile uint32_t rounds;
	volatile uint32_t longest_ms;
	volatile bool ready;
	volatile bool stop;
};

struct bystander {
	struct bystander_news *news;
	pid_t pid;
};

/* Returns once it moves messages. */
void bystander_start(struct bystander *bystander, const char *device, const char *other,
		     uint64_t seed);
/* Whether it has moved enough messages. Processes that are forked after its start may ask. */
bool bystander_has_moved(const struct bystander *bystander);
/* Ends it; true if nothing was wrong, and if it came forward all the time. */
bool bystander_stop(struct bystander *bystander);
/* The same once it has moved enough messages. */
bool bystander_finish(struct bystander *bystander);

#endif
