// SPDX-License-Identifier: GPL-2.0

#include <linux/skbuff.h>
#include <net/page_pool/helpers.h>

/* Of blocks of `1 << order` pages, which are mapped for no device. */
__rust_helper struct page_pool *rust_helper_page_pool_create(unsigned int pool_size,
							     unsigned int order)
{
	struct page_pool_params params = {
		.order = order,
		.pool_size = pool_size,
		.nid = NUMA_NO_NODE,
	};

	return page_pool_create(&params);
}

/*
 * At least `*size` bytes, at most a block; `*size` becomes how many they are. Blocks of several pages are not worth the
 * reserves.
 */
__rust_helper void *rust_helper_page_pool_alloc_va(struct page_pool *pool, unsigned int *size,
						   gfp_t gfp)
{
	if (pool->p.order)
		gfp |= __GFP_NORETRY | __GFP_NOMEMALLOC;
	return page_pool_alloc_va(pool, size, gfp);
}

__rust_helper void rust_helper_page_pool_free_va(struct page_pool *pool, void *va)
{
	page_pool_free_va(pool, va, false);
}

/* Whether the packet's memory is of page pools, and goes back there. */
__rust_helper bool rust_helper_skb_is_pooled(const struct sk_buff *skb)
{
	return skb->pp_recycle;
}

/* The head of the packet is of a pool. */
__rust_helper void rust_helper_skb_mark_for_recycle(struct sk_buff *skb)
{
	skb_mark_for_recycle(skb);
}
