// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Mapping of the rings. */

#include <errno.h>
#include <sys/mman.h>

#include "ring.h"

int ring_map(struct ring *ring, struct ibv_context *context, const struct mminfo *info, size_t element)
{
	struct rxe_queue_buf *head;
	uint32_t mask, shift;

	if (info->size < sizeof(*head))
		return EINVAL;
	head = mmap(NULL, info->size, PROT_READ | PROT_WRITE, MAP_SHARED, context->cmd_fd, info->offset);
	if (head == MAP_FAILED)
		return errno;
	mask = head->index_mask;
	shift = head->log2_elem_size;
	/* Another layout than ours would be one of another kernel. */
	if (mask & (mask + 1) || shift >= 32 || (size_t)1 << shift < element ||
	    ((size_t)mask + 1) << shift > info->size - sizeof(*head)) {
		munmap(head, info->size);
		return EINVAL;
	}
	*ring = (struct ring){ .head = head, .size = info->size, .mask = mask, .shift = shift };
	return 0;
}

int ring_replace(struct ring *ring, struct ibv_context *context, const struct mminfo *info, size_t element)
{
	/* Full and empty. Nobody writes to it. */
	static struct rxe_queue_buf none;
	struct ring new;
	int error = ring_map(&new, context, info, element);

	/* The process may have no more mappings than it has. The kernel is done with the old ring. */
	if (error) {
		ring_unmap(ring);
		error = ring_map(&new, context, info, element);
	}
	if (error)
		new = (struct ring){ .head = &none };
	else
		ring_unmap(ring);
	*ring = new;
	return error;
}

void ring_unmap(struct ring *ring)
{
	if (ring->size)
		munmap(ring->head, ring->size);
	ring->size = 0;
	ring->head = NULL;
}
