/* SPDX-License-Identifier: GPL-2.0 */
/* Choices of a fuzzer, which its seed decides. */
#ifndef CHOICE_H
#define CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kselftest.h"

/* A sequence of choices of its own: each thread has one. */
struct choice {
	uint64_t state;
};

/* The sequence that a number below the seed stands for. */
void choice_seed(struct choice *choice, uint64_t seed, uint64_t number);
uint64_t any(struct choice *choice);
uint32_t below(struct choice *choice, uint32_t limit);
bool one_in(struct choice *choice, uint32_t limit);
/* One of so many, each as often as its weight: the first one's address, and how far they are apart. */
unsigned int weighted(struct choice *choice, const unsigned int *weights, size_t stride, unsigned int number);
/* Values at which something changes its meaning, sizes and signs above all; around the mask, too. */
uint64_t odd_value(struct choice *choice, uint32_t mask);

#endif
