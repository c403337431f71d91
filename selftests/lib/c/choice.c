// SPDX-License-Identifier: GPL-2.0
/* See choice.h. */

#include "choice.h"


void choice_seed(struct choice *choice, uint64_t seed, uint64_t number)
{
	/* The finalizer of splitmix64: neighbours have nothing in common. */
	uint64_t state = seed + (number + 1) * 0x9e3779b97f4a7c15ULL;

	state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9ULL;
	state = (state ^ state >> 27) * 0x94d049bb133111ebULL;
	state ^= state >> 31;
	choice->state = state ? state : 1;
}

uint64_t any(struct choice *choice)
{
	choice->state ^= choice->state >> 12;
	choice->state ^= choice->state << 25;
	choice->state ^= choice->state >> 27;
	return choice->state * 0x2545f4914f6cdd1dULL;
}

uint32_t below(struct choice *choice, uint32_t limit)
{
	return (any(choice) >> 32) % limit;
}

bool one_in(struct choice *choice, uint32_t limit)
{
	return !below(choice, limit);
}

unsigned int weighted(struct choice *choice, const unsigned int *weights, size_t stride, unsigned int number)
{
	const unsigned char *first = (const unsigned char *)weights;
	unsigned int sum = 0, at, i;

#define WEIGHT(i) (*(const unsigned int *)(first + (i) * stride))
	for (i = 0; i < number; i++)
		sum += WEIGHT(i);
	at = below(choice, sum);
	for (i = 0; at >= WEIGHT(i); i++)
		at -= WEIGHT(i);
	return i;
}

uint64_t odd_value(struct choice *choice, uint32_t mask)
{
	static const uint64_t values[] = {
		0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 127, 128, 129, 255, 256,
		257, 1024, 4095, 4096, 4097, 65535, 65536, 0x7fffffff, 0x80000000, 0x80000001,
		0xfffffffe, 0xffffffff, 0x100000000, 1ULL << 47, 0x7fffffffffffffff, 1ULL << 63,
		/* Where the kernel has its own. */
		0xffff888000000000, 0xffffffff81000000, 0xfffffffffffff000, ~0ULL,
	};

	switch (below(choice, 4)) {
	case 0:
		return any(choice);
	case 1:
		return (uint64_t)mask + below(choice, 5) - 2;
	default:
		return values[below(choice, ARRAY_SIZE(values))];
	}
}
