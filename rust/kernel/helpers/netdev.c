// SPDX-License-Identifier: GPL-2.0

#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <net/if_inet6.h>
#include <net/l3mdev.h>

__rust_helper void rust_helper_netdev_hold(struct net_device *dev, netdevice_tracker *tracker,
					   gfp_t gfp)
{
	netdev_hold(dev, tracker, gfp);
}

__rust_helper void rust_helper_netdev_put(struct net_device *dev, netdevice_tracker *tracker)
{
	netdev_put(dev, tracker);
}

__rust_helper const char *rust_helper_netdev_raw_name(const struct net_device *dev)
{
	return dev->name;
}

__rust_helper const unsigned char *rust_helper_netdev_dev_addr(const struct net_device *dev)
{
	return dev->dev_addr;
}

__rust_helper unsigned int rust_helper_netdev_addr_len(const struct net_device *dev)
{
	return dev->addr_len;
}

__rust_helper unsigned int rust_helper_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

__rust_helper unsigned short rust_helper_netdev_hard_header_len(const struct net_device *dev)
{
	return READ_ONCE(dev->hard_header_len);
}

__rust_helper unsigned short rust_helper_netdev_type(const struct net_device *dev)
{
	return READ_ONCE(dev->type);
}

__rust_helper int rust_helper_netdev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

__rust_helper bool rust_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

__rust_helper bool rust_helper_netdev_is_up(const struct net_device *dev)
{
	return READ_ONCE(dev->flags) & IFF_UP;
}

__rust_helper u32 rust_helper_l3mdev_master_ifindex(struct net_device *dev)
{
	return l3mdev_master_ifindex(dev);
}

__rust_helper bool rust_helper_netif_is_l3_master(const struct net_device *dev)
{
	return netif_is_l3_master(dev);
}

__rust_helper bool rust_helper_netif_carrier_ok(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

__rust_helper bool rust_helper_netdev_is_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

__rust_helper bool rust_helper_netdev_is_dismantled(const struct net_device *dev)
{
	return dev->dismantle;
}

__rust_helper struct net *rust_helper_dev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

__rust_helper struct net_device *rust_helper_netdev_notifier_info_to_dev(
	const struct netdev_notifier_info *info)
{
	return netdev_notifier_info_to_dev(info);
}

/* Of what register_inetaddr_notifier() tells. */
__rust_helper struct net_device *rust_helper_inetaddr_to_dev(const void *info)
{
	const struct in_ifaddr *address = info;

	return address->ifa_dev->dev;
}

/* Of what register_inet6addr_notifier() tells. */
__rust_helper struct net_device *rust_helper_inet6addr_to_dev(const void *info)
{
	const struct inet6_ifaddr *address = info;

	return address->idev->dev;
}

__rust_helper int rust_helper_dev_queue_xmit(struct sk_buff *skb)
{
	return dev_queue_xmit(skb);
}

__rust_helper void rust_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

__rust_helper void rust_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}
