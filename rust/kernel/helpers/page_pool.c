// SPDX-License-Identifier: GPL-2.0

#include <linux/skbuff.h>
#include <net/page_pool/helpers.h>

/* Its address tells our pools from others. */
static char pool_mark;

/* Of blocks of `1 << order` pages, which are mapped for no device. */
__rust_helper struct page_pool *rust_helper_page_pool_create(unsigned int pool_size,
							     unsigned int order)
{
	struct page_pool_params params = {
		.order = order,
		.pool_size = pool_size,
		.nid = NUMA_NO_NODE,
		/* Without a callback nobody else reads it. */
		.init_arg = &pool_mark,
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

/* Makes `len` bytes at `va`, in the block of a pool that the head of the packet is of, its first fragment. */
__rust_helper void rust_helper_skb_set_pool_fragment(struct sk_buff *skb, void *va, unsigned int len,
						     unsigned int truesize)
{
	struct page *page = virt_to_head_page(va);

	page_pool_ref_page(page);
	skb_add_rx_frag(skb, 0, page, va - page_address(page), len, truesize);
}

/*
 * Whether the only fragment of a packet is in a block of one of our pools, with the bytes at `a` and then those at `b` in
 * front of it. Packets with pp_recycle return their blocks to the pools, so a block of theirs does not leave its pool.
 */
__rust_helper bool rust_helper_skb_pool_fragment_follows(const struct sk_buff *skb,
							 const void *a, size_t a_len,
							 const void *b, size_t b_len)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	const skb_frag_t *fragment = &info->frags[0];
	const void *start, *block;
	struct page *page;

	if (!skb->pp_recycle || info->nr_frags != 1 || info->frag_list)
		return false;
	page = skb_frag_page(fragment);
	if (!page)
		return false;
	page = compound_head(page);
	if (!page_pool_page_is_pp(page) || pp_page_to_nmdesc(page)->pp->slow.init_arg != &pool_mark)
		return false;
	block = page_address(page);
	start = skb_frag_address(fragment);
	if (start - block < a_len + b_len)
		return false;
	start -= a_len + b_len;
	return !memcmp(start, a, a_len) && !memcmp(start + a_len, b, b_len);
}

/* The head of the packet is of a pool. */
__rust_helper void rust_helper_skb_mark_for_recycle(struct sk_buff *skb)
{
	skb_mark_for_recycle(skb);
}
