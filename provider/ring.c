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

void ring_unmap(struct ring *ring)
{
	if (ring->head)
		munmap(ring->head, ring->size);
	ring->head = NULL;
}
