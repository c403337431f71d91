// SPDX-License-Identifier: GPL-2.0
/*
 * Rust can call neither static inline functions nor macros: each function here wraps one of them, and
 * has no logic of its own. Those that the kernel crate has already are not repeated.
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
