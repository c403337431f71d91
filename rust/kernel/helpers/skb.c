// SPDX-License-Identifier: GPL-2.0

#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/netfilter/nf_conntrack.h>
#include <net/udp.h>
#include <net/xfrm.h>

/* RxSkb::control_of() reads it without knowing the family. */
static_assert(offsetof(struct inet_skb_parm, iif) == 0);
static_assert(offsetof(struct inet6_skb_parm, iif) == 0);

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

__rust_helper bool rust_helper_skb_is_udp_fraglist(const struct sk_buff *skb)
{
	return !(~skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST));
}

__rust_helper void rust_helper_skb_gso_reset(struct sk_buff *skb)
{
	skb_gso_reset(skb);
}

/*
 * Marks a packet, which has the headers of UDP, as a super-packet. SKB_GSO_DODGY has whoever cuts it up copy it
 * (__udp_gso_segment()), into packets with as much headroom as it has itself then. Otherwise skb_segment_list() would
 * push all headers that were put in front of it meanwhile onto the members of its list, which have no room for them.
 * With CHECKSUM_PARTIAL it is not cut up where it can leave as it is.
 */
__rust_helper void rust_helper_skb_gso_set_udp_fraglist(struct sk_buff *skb, unsigned int size,
							unsigned int segs)
{
	unsigned int len = skb->len - skb_transport_offset(skb);
	struct udphdr *uh = udp_hdr(skb);

	skb_shinfo(skb)->gso_type = SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST | SKB_GSO_DODGY;
	skb_shinfo(skb)->gso_size = size;
	skb_shinfo(skb)->gso_segs = segs;
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct udphdr, check);
	if (ip_hdr(skb)->version == 4)
		uh->check = ~udp_v4_check(len, ip_hdr(skb)->saddr, ip_hdr(skb)->daddr, 0);
	else
		uh->check = ~udp_v6_check(len, &ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr, 0);
}

__rust_helper bool rust_helper_skb_cloned(const struct sk_buff *skb)
{
	return skb_cloned(skb);
}

/* Nobody else refers to the packet, and nobody waits for the end of its memory's use. */
__rust_helper bool rust_helper_skb_is_exclusive(struct sk_buff *skb)
{
	return !skb_shared(skb) && !skb_zcopy(skb);
}

__rust_helper bool rust_helper_skb_is_to_host(const struct sk_buff *skb)
{
	return skb->pkt_type == PACKET_HOST;
}

__rust_helper void rust_helper_nf_reset_ct(struct sk_buff *skb)
{
	nf_reset_ct(skb);
}

__rust_helper bool rust_helper_skb_nf_ct_is_unconfirmed(const struct sk_buff *skb)
{
	struct nf_conn *ct = (struct nf_conn *)skb_nfct(skb);

	return ct && !nf_ct_is_confirmed(ct);
}

__rust_helper bool rust_helper_xfrm_policy_check_in(struct sk_buff *skb, unsigned short family)
{
	return xfrm_policy_check(NULL, XFRM_POLICY_IN, skb, family);
}

__rust_helper bool rust_helper_skb_frags_readable(const struct sk_buff *skb)
{
	return skb_frags_readable(skb);
}

__rust_helper void *rust_helper_skb_frag_address_at(const struct sk_buff *skb, unsigned int i)
{
	return skb_frag_address_safe(&skb_shinfo(skb)->frags[i]);
}

__rust_helper void rust_helper_skb_set_dev(struct sk_buff *skb, struct net_device *dev)
{
	skb->dev = dev;
}

__rust_helper void rust_helper_skb_set_protocol(struct sk_buff *skb, __be16 protocol)
{
	skb->protocol = protocol;
}

__rust_helper void rust_helper_skb_reset_mac_header(struct sk_buff *skb)
{
	skb_reset_mac_header(skb);
}

__rust_helper void rust_helper_skb_set_network_header(struct sk_buff *skb, int offset)
{
	skb_set_network_header(skb, offset);
}

__rust_helper void rust_helper_skb_probe_transport_header(struct sk_buff *skb)
{
	skb_probe_transport_header(skb);
}

__rust_helper void rust_helper_skb_dst_set_noref(struct sk_buff *skb, struct dst_entry *dst)
{
	skb_dst_set_noref(skb, dst);
}

__rust_helper void rust_helper_skb_dst_drop(struct sk_buff *skb)
{
	skb_dst_drop(skb);
}

__rust_helper void rust_helper_skb_ext_reset(struct sk_buff *skb)
{
	skb_ext_reset(skb);
}

__rust_helper void rust_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

/* As if `cpu` sent the packet. */
__rust_helper void rust_helper_skb_set_sender_cpu(struct sk_buff *skb, unsigned int cpu)
{
#ifdef CONFIG_XPS
	skb->sender_cpu = cpu + 1;
#endif
}

__rust_helper void rust_helper_skb_set_priority(struct sk_buff *skb, u32 priority)
{
	skb->priority = priority;
}
