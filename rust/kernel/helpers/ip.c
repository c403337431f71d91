// SPDX-License-Identifier: GPL-2.0

#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/dst.h>
#include <net/inet_dscp.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>

__rust_helper bool rust_helper_ipv6_mod_enabled(void)
{
	return ipv6_mod_enabled();
}

__rust_helper struct dst_entry *rust_helper_dst_check(struct dst_entry *dst, u32 cookie)
{
	return dst_check(dst, cookie);
}

__rust_helper u32 rust_helper_dst_mtu(const struct dst_entry *dst)
{
	return dst_mtu(dst);
}

/*
 * Whether super-packets of the kind that skb_gso_set_udp_fraglist() makes leave by the route's netdev as they are: no
 * lightweight tunnel and no transformation of IPsec is before it, and it takes fragment lists.
 */
__rust_helper bool rust_helper_dst_takes_udp_fraglists(const struct dst_entry *dst)
{
	const netdev_features_t needed = NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HW_CSUM | NETIF_F_GSO_UDP_L4 |
					 NETIF_F_GSO_FRAGLIST;

	return !dst->lwtstate && !dst_xfrm(dst) && !(needed & ~dst_dev_rcu(dst)->features);
}

/*
 * The service level of packets of a priority, under RCU. If the route's netdev is a VLAN, or has mqprio, its map says;
 * else the level is the priority.
 */
__rust_helper u32 rust_helper_dst_service_level(const struct dst_entry *dst, u32 priority)
{
	struct net_device *dev = dst_dev_rcu(dst);
	struct net_device *real_dev = is_vlan_dev(dev) ? vlan_dev_real_dev(dev) : dev;

	if (real_dev->num_tc)
		return netdev_get_prio_tc_map(real_dev, priority);
	if (is_vlan_dev(dev))
		return vlan_dev_get_egress_qos_mask(dev, priority) >> VLAN_PRIO_SHIFT;
	return priority;
}

__rust_helper bool rust_helper_dst_is_local(const struct dst_entry *dst)
{
	if (dst->ops->family == AF_INET)
		return dst_rtable(dst)->rt_type == RTN_LOCAL;
	return dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL;
}

__rust_helper bool rust_helper_dst_is_broadcast(const struct dst_entry *dst)
{
	return dst_rtable(dst)->rt_flags & RTCF_BROADCAST;
}

__rust_helper u32 rust_helper_rt6_get_cookie(struct dst_entry *dst)
{
	return rt6_get_cookie(dst_rt6_info(dst));
}

__rust_helper dscp_t rust_helper_inet_dsfield_to_dscp(u8 dsfield)
{
	return inet_dsfield_to_dscp(dsfield);
}

/* A route is a dst_entry first of all, and an error pointer stays one. */
__rust_helper struct dst_entry *rust_helper_ip_route_output_flow(struct net *net,
								 struct flowi4 *fl4,
								 const struct sock *sk)
{
	return (struct dst_entry *)ip_route_output_flow(net, fl4, sk);
}

__rust_helper struct in_device *rust_helper_in_dev_get_rtnl(const struct net_device *dev)
{
	return __in_dev_get_rtnl(dev);
}

__rust_helper struct in_device *rust_helper_in_dev_get_rcu(const struct net_device *dev)
{
	return __in_dev_get_rcu(dev);
}

/* Under RTNL or RCU. */
__rust_helper struct inet6_dev *rust_helper_in6_dev_get(const struct net_device *dev)
{
	return __in6_dev_get(dev);
}

__rust_helper void rust_helper_in_dev_hold(struct in_device *in_dev)
{
	in_dev_hold(in_dev);
}

__rust_helper void rust_helper_in_dev_put(struct in_device *in_dev)
{
	in_dev_put(in_dev);
}

__rust_helper void rust_helper_in6_dev_hold(struct inet6_dev *idev)
{
	in6_dev_hold(idev);
}

__rust_helper void rust_helper_in6_dev_put(struct inet6_dev *idev)
{
	in6_dev_put(idev);
}

__rust_helper struct ip_mc_list *rust_helper_in_dev_mc_list_rtnl(const struct in_device *in_dev)
{
	return rtnl_dereference(in_dev->mc_list);
}

__rust_helper struct ip_mc_list *rust_helper_ip_mc_next_rtnl(const struct ip_mc_list *im)
{
	return rtnl_dereference(im->next_rcu);
}

__rust_helper __be32 rust_helper_ip_mc_group(const struct ip_mc_list *im)
{
	return im->multiaddr;
}

__rust_helper void rust_helper_ip_mc_dec_group(struct in_device *in_dev, __be32 addr)
{
	ip_mc_dec_group(in_dev, addr);
}
