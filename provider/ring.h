/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Rings: memory that the process and the kernel share (Documentation/user-abi.rst). One of them produces elements, the
 * other consumes them. Each index has one writer, and is stored modulo the number of slots. One slot stays empty.
 *
 * Who produces fills a slot and then stores the index with release semantics; who consumes loads it with acquire
 * semantics, so that it sees the slot as it was filled. The same holds for slots that are given back.
 */
#ifndef RING_H
#define RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_user_rxe.h>

struct ring {
	struct rxe_queue_buf *head;
	size_t size;
	/* Copies: the header is memory that a stray pointer can reach. */
	uint32_t mask, shift;
};

/*
 * Maps the ring that the kernel made for an object. Its elements have at least as many bytes as the caller needs. Zero,
 * or an error.
 */
int ring_map(struct ring *ring, struct ibv_context *context, const struct mminfo *info, size_t element);
/*
 * Maps the ring that takes the place of this one, which the kernel no longer uses. If that fails, as it may for want of
 * memory, nothing can be taken from the ring and nothing posted to it.
 */
int ring_replace(struct ring *ring, struct ibv_context *context, const struct mminfo *info, size_t element);
/* Of no ring, too. */
void ring_unmap(struct ring *ring);

static inline void *ring_slot(const struct ring *ring, uint32_t index)
{
	return ring->head->data + ((size_t)(index & ring->mask) << ring->shift);
}

/* --- Where the process produces --------------------------------------------------------------- */

static inline uint32_t ring_producer(const struct ring *ring)
{
	return __atomic_load_n(&ring->head->producer_index, __ATOMIC_RELAXED);
}

/* Whether there is no slot for an element at the index, which the process has not published yet. */
static inline bool ring_is_full(const struct ring *ring, uint32_t producer)
{
	uint32_t consumer = __atomic_load_n(&ring->head->consumer_index, __ATOMIC_ACQUIRE);

	return ((producer + 1 - consumer) & ring->mask) == 0;
}

/* All elements before the index are the kernel's from now on. */
static inline void ring_publish(const struct ring *ring, uint32_t producer)
{
	__atomic_store_n(&ring->head->producer_index, producer & ring->mask, __ATOMIC_RELEASE);
}

/* --- Where the process consumes --------------------------------------------------------------- */

static inline uint32_t ring_consumer(const struct ring *ring)
{
	return __atomic_load_n(&ring->head->consumer_index, __ATOMIC_RELAXED);
}

/* Whether there is no element at the index. */
static inline bool ring_is_empty(const struct ring *ring, uint32_t consumer)
{
	uint32_t producer = __atomic_load_n(&ring->head->producer_index, __ATOMIC_ACQUIRE);

	return ((producer - consumer) & ring->mask) == 0;
}

/* The slots before the index are the kernel's again. */
static inline void ring_give_back(const struct ring *ring, uint32_t consumer)
{
	__atomic_store_n(&ring->head->consumer_index, consumer & ring->mask, __ATOMIC_RELEASE);
}

#endif
