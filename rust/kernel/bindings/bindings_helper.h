/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers that bindgen reads for the crate rdma_bindings, beyond those that the kernel crate binds.
 * bindgen_parameters says which of their items become Rust.
 */
#include <linux/hrtimer_types.h>

#include <linux/crc32.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <net/addrconf.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/page_pool/helpers.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/iter.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_rxe.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

#include <trace/events/ferroce.h>
#include <uapi/rdma/ferroce-abi.h>

/* Values that bindgen cannot read off a macro. */
const gfp_t RUST_CONST_HELPER_XA_FLAGS_ACCOUNT = XA_FLAGS_ACCOUNT;
const gfp_t RUST_CONST_HELPER_XA_FLAGS_ALLOC = XA_FLAGS_ALLOC;
const gfp_t RUST_CONST_HELPER_XA_FLAGS_LOCK_IRQ = XA_FLAGS_LOCK_IRQ;
const unsigned int RUST_CONST_HELPER_LL_MAX_HEADER = LL_MAX_HEADER;
const u8 RUST_CONST_HELPER_NFPROTO_IPV4 = NFPROTO_IPV4;
const u8 RUST_CONST_HELPER_NFPROTO_IPV6 = NFPROTO_IPV6;
const unsigned int RUST_CONST_HELPER_NF_INET_LOCAL_IN = NF_INET_LOCAL_IN;
const unsigned int RUST_CONST_HELPER_NF_ACCEPT = NF_ACCEPT;
const unsigned int RUST_CONST_HELPER_NF_STOLEN = NF_STOLEN;
