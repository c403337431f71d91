/* SPDX-License-Identifier: GPL-2.0 */
/* The events that a device counts while something happens (Documentation/counters.rst). */
#ifndef GROWTH_H
#define GROWTH_H

#include <stdbool.h>

#include "endpoint.h"

/* A counter of a device, and by how much it has to grow: not more either. */
struct growth {
	const struct device *device;
	const char *counter;
	unsigned long long by;
	/* Its value at the beginning. */
	unsigned long long before;
};

void growths_begin(struct growth *growths, unsigned int count);
/*
 * Whether all of them have grown by that, as soon as what is still being counted is: says which has not. True for
 * another driver than ferroce: it has not all of these counters, and others count something else.
 */
bool growths_are(const struct growth *growths, unsigned int count);

#endif
