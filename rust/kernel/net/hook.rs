// SPDX-License-Identifier: GPL-2.0

//! Functions that look at each packet for this machine before its protocol does (netfilter).
//!
//! C header: [`include/linux/netfilter.h`](srctree/include/linux/netfilter.h)

use crate::namespace::Net;
use core::ptr::NonNull;
use kernel::{
    bindings as kernel_bindings,
    error::to_result,
    ffi::c_void,
    prelude::*, //
};
use rdma_bindings as bindings;

/// A hook function. Netfilter calls it with its private pointer, under RCU: in softirq or, for a packet of an NFQUEUE, in
/// process context.
pub(crate) type Function = unsafe extern "C" fn(
    *mut c_void,
    *mut kernel_bindings::sk_buff,
    *const bindings::nf_hook_state,
) -> c_uint;

/// A netfilter hook at `LOCAL_IN`, of one family, with the last priority: it comes after the rules of the namespace's
/// user. Of several hooks with that priority, the newest is called first.
///
/// Dropping it (process; RTNL may be held) ends that; calls that have begun may last for a grace period, as may the
/// reading of `operations` by those who list hooks.
///
/// # Invariants
///
/// `operations` is registered in `net`. It came from a [`KBox`], and is ours to free, a grace period after it is
/// registered no more.
pub(crate) struct Hook {
    operations: NonNull<bindings::nf_hook_ops>,
    net: Net,
}

// SAFETY: It may be unregistered on any thread.
unsafe impl Send for Hook {}
// SAFETY: A shared reference is good for nothing.
unsafe impl Sync for Hook {}

impl Hook {
    /// Registers `function` for IPv4 or IPv6. Process; RTNL may be held.
    ///
    /// # Safety
    ///
    /// `function` may be called as [`Function`] says, with `private`, until a grace period after the result was
    /// dropped.
    pub(crate) unsafe fn register(
        net: &Net,
        is_v4: bool,
        function: Function,
        private: *const c_void,
    ) -> Result<Self> {
        let operations = bindings::nf_hook_ops {
            hook: Some(function),
            priv_: private.cast_mut(),
            pf: if is_v4 {
                bindings::NFPROTO_IPV4
            } else {
                bindings::NFPROTO_IPV6
            },
            hooknum: bindings::NF_INET_LOCAL_IN,
            // `NF_IP_PRI_LAST`.
            priority: c_int::MAX,
            ..pin_init::zeroed()
        };
        let operations = KBox::into_raw(KBox::new(operations, GFP_KERNEL)?);
        // SAFETY: `net` is a namespace that has not ended. `operations` stay where they are until they are
        // unregistered, and a grace period longer; the rest the caller promises.
        to_result(unsafe { bindings::nf_register_net_hook(net.as_ptr(), operations) })
            .inspect_err(|_| {
                // SAFETY: It came from `into_raw` just now. As it was not registered, nobody has seen it.
                drop(unsafe { KBox::from_raw(operations) });
            })?;
        // INVARIANT: Just registered, and from a `KBox`.
        Ok(Self {
            // SAFETY: A box is not null.
            operations: unsafe { NonNull::new_unchecked(operations) },
            net: net.clone(),
        })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is registered, and then, as it is registered no more, ours to free after a
        // grace period. It may sleep here.
        unsafe {
            bindings::nf_unregister_net_hook(self.net.as_ptr(), self.operations.as_ptr());
            bindings::kfree_rcu_mightsleep(self.operations.as_ptr().cast::<c_void>());
        }
    }
}
