// SPDX-License-Identifier: GPL-2.0

//! The lock of all network configuration.
//!
//! C header: [`include/linux/rtnetlink.h`](srctree/include/linux/rtnetlink.h)

use rdma_bindings as bindings;

/// RTNL, while there is one.
pub(crate) struct Rtnl(());

impl Rtnl {
    /// Takes RTNL. Process, not under RTNL.
    pub(crate) fn lock() -> Self {
        // SAFETY: By the context the lock may be taken.
        unsafe { bindings::rtnl_lock() };
        Self(())
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: `lock` took it.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// Waits until whoever holds RTNL has released it. Process, not under RTNL.
pub fn wait_for_rtnl() {
    drop(Rtnl::lock());
}
