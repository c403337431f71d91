// SPDX-License-Identifier: GPL-2.0

#include <linux/skbuff.h>
#include <net/dst.h>
#include <net/sock.h>

__rust_helper struct sk_buff *rust_helper_alloc_skb(unsigned int size, gfp_t gfp)
{
	return alloc_skb(size, gfp);
}

__rust_helper void rust_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

__rust_helper void rust_helper_consume_skb(struct sk_buff *skb)
{
	consume_skb(skb);
}

__rust_helper void rust_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

__rust_helper unsigned int rust_helper_skb_headlen(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

__rust_helper bool rust_helper_skb_is_gso(const struct sk_buff *skb)
{
	return skb_is_gso(skb);
}

__rust_helper bool rust_helper_skb_frags_readable(const struct sk_buff *skb)
{
	return skb_frags_readable(skb);
}

__rust_helper unsigned int rust_helper_skb_nr_frags(const struct sk_buff *skb)
{
	return skb_shinfo(skb)->nr_frags;
}

__rust_helper struct sk_buff *rust_helper_skb_frag_list(const struct sk_buff *skb)
{
	return skb_shinfo(skb)->frag_list;
}

__rust_helper unsigned int rust_helper_skb_frag_size_at(const struct sk_buff *skb, unsigned int i)
{
	return skb_frag_size(&skb_shinfo(skb)->frags[i]);
}

__rust_helper void *rust_helper_skb_frag_address_at(const struct sk_buff *skb, unsigned int i)
{
	return skb_frag_address_safe(&skb_shinfo(skb)->frags[i]);
}

__rust_helper const unsigned char *rust_helper_skb_network_header(const struct sk_buff *skb)
{
	return skb_network_header(skb);
}

__rust_helper void rust_helper_skb_reset_network_header(struct sk_buff *skb)
{
	skb_reset_network_header(skb);
}

__rust_helper void rust_helper_skb_reset_transport_header(struct sk_buff *skb)
{
	skb_reset_transport_header(skb);
}

__rust_helper void rust_helper_skb_dst_set(struct sk_buff *skb, struct dst_entry *dst)
{
	skb_dst_set(skb, dst);
}

__rust_helper void rust_helper_skb_dst_drop(struct sk_buff *skb)
{
	skb_dst_drop(skb);
}

__rust_helper void rust_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

__rust_helper void rust_helper_skb_set_owner_w(struct sk_buff *skb, struct sock *sk)
{
	skb_set_owner_w(skb, sk);
}

__rust_helper void rust_helper_skb_queue_head_init(struct sk_buff_head *list)
{
	skb_queue_head_init(list);
}

__rust_helper void rust_helper_skb_queue_purge(struct sk_buff_head *list)
{
	skb_queue_purge(list);
}

__rust_helper unsigned int rust_helper_skb_queue_len_lockless(const struct sk_buff_head *list)
{
	return skb_queue_len_lockless(list);
}
