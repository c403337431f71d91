// SPDX-License-Identifier: GPL-2.0

#include <net/net_namespace.h>
#include <net/netns/generic.h>

__rust_helper struct net *rust_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

__rust_helper void rust_helper_put_net(struct net *net)
{
	put_net(net);
}

__rust_helper void *rust_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

__rust_helper u64 rust_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}
