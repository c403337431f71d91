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

__rust_helper void *rust_helper_page_pool_alloc_page_va(struct page_pool *pool, gfp_t gfp)
{
	struct page *page = page_pool_alloc_pages(pool, gfp);

	return page ? page_address(page) : NULL;
}

__rust_helper void rust_helper_page_pool_free_va(struct page_pool *pool, void *va)
{
	page_pool_free_va(pool, va, false);
}

/* The packet's, with the reference that the caller has. */
__rust_helper void rust_helper_skb_add_pool_page(struct sk_buff *skb, void *va, int len)
{
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, virt_to_page(va), 0, len, PAGE_SIZE);
	skb_mark_for_recycle(skb);
}
