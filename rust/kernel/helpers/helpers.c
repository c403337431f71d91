// SPDX-License-Identifier: GPL-2.0
/*
 * Rust can call neither static inline functions nor macros: most functions here wrap one of them. The
 * others use several at once, or a field of a type that bindgen cannot see into. Those that the kernel
 * crate has already are not repeated.
 *
 * Sorted alphabetically.
 */

#include <linux/compiler_types.h>

/* As in the kernel: the place to say more about all helpers at once. */
#define __rust_helper

#include "cpu.c"
#include "ib.c"
#include "ip.c"
#include "mm.c"
#include "netdev.c"
#include "netlink.c"
#include "netns.c"
#include "page_pool.c"
#include "percpu.c"
#include "rcu.c"
#include "signal.c"
#include "skb.c"
#include "sock.c"
#include "softirq.c"
#include "spinlock.c"
#include "version.c"
#include "workqueue.c"
#include "xarray.c"
