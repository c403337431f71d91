// SPDX-License-Identifier: GPL-2.0

//! The lock of all network configuration.
//!
//! C header: [`include/linux/rtnetlink.h`](srctree/include/linux/rtnetlink.h)

use kernel::{
    time::{
        delay::fsleep,
        Delta, //
    },
    types::NotThreadSafe, //
};
use rdma_bindings as bindings;

/// RTNL, while there is one. The thread that took it releases it.
pub(crate) struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// Takes RTNL. Process, not under RTNL.
    pub(crate) fn lock() -> Self {
        // SAFETY: By the context the lock may be taken.
        unsafe { bindings::rtnl_lock() };
        Self(NotThreadSafe)
    }

    /// Takes RTNL, unless it is held by another thread and `is_needed` says no. Process, may sleep, not under RTNL.
    pub(crate) fn lock_while(is_needed: &dyn Fn() -> bool) -> Option<Self> {
        // SAFETY: By the context the lock may be taken.
        while unsafe { bindings::rtnl_trylock() } == 0 {
            if !is_needed() {
                return None;
            }
            fsleep(Delta::from_millis(1));
        }
        Some(Self(NotThreadSafe))
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: `lock` or `lock_while` took it.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// Waits until the holder of RTNL has released it. Process, not under RTNL.
pub fn wait_for_rtnl() {
    drop(Rtnl::lock());
}
