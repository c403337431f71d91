// SPDX-License-Identifier: GPL-2.0

#include <linux/skbuff.h>
#include <net/page_pool/helpers.h>

/* Of single pages, which are mapped for no device. */
__rust_helper struct page_pool *rust_helper_page_pool_create(unsigned int pool_size)
{
	struct page_pool_params params = {
		.pool_size = pool_size,
		.nid = NUMA_NO_NODE,
	};

	return page_pool_create(&params);
}

/* At least `*size` bytes, at most a page; `*size` becomes how many they are. */
__rust_helper void *rust_helper_page_pool_alloc_va(struct page_pool *pool, unsigned int *size,
						   gfp_t gfp)
{
	return page_pool_alloc_va(pool, size, gfp);
}

__rust_helper void rust_helper_page_pool_free_va(struct page_pool *pool, void *va)
{
	page_pool_free_va(pool, va, false);
}

/* The packet's, with the reference that the caller has. */
__rust_helper void rust_helper_skb_add_pool_page(struct sk_buff *skb, void *va, int len,
						 unsigned int truesize)
{
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, virt_to_page(va), offset_in_page(va), len,
			truesize);
}

/* The page of `va`, of a pool, gets another reference. */
__rust_helper void rust_helper_page_pool_ref_va(void *va)
{
	page_pool_ref_page(virt_to_page(va));
}

/* The head of the packet is of a pool, and so are all its fragments. */
__rust_helper void rust_helper_skb_mark_for_recycle(struct sk_buff *skb)
{
	skb_mark_for_recycle(skb);
}
