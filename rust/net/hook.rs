// SPDX-License-Identifier: GPL-2.0

//! Functions that look at each packet for this machine before its protocol does (netfilter).
//!
//! C header: [`include/linux/netfilter.h`](srctree/include/linux/netfilter.h)

use crate::namespace::Net;
use core::cell::UnsafeCell;
use kernel::{
    bindings as kernel_bindings,
    error::to_result,
    ffi::c_void,
    prelude::*, //
};
use rdma_bindings as bindings;

/// What looks at packets: it is called in softirq context, under RCU, with its private pointer.
pub(crate) type Function = unsafe extern "C" fn(
    *mut c_void,
    *mut kernel_bindings::sk_buff,
    *const bindings::nf_hook_state,
) -> c_uint;

/// A function that is asked last of all, after the rules of the namespace's user, about the packets of one
/// family that are for this machine.
///
/// Dropping it (process; RTNL may be held) ends that; calls that have begun may last for a grace period.
///
/// # Invariants
///
/// `operations` is registered in `net`.
pub(crate) struct Hook {
    operations: KBox<UnsafeCell<bindings::nf_hook_ops>>,
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
        let operations = KBox::new(UnsafeCell::new(operations), GFP_KERNEL)?;
        // SAFETY: `net` is a namespace that has not ended. `operations` stay where they are until they are
        // unregistered; the rest the caller promises.
        to_result(unsafe { bindings::nf_register_net_hook(net.as_ptr(), operations.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self {
            operations,
            net: net.clone(),
        })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nf_unregister_net_hook(self.net.as_ptr(), self.operations.get()) };
    }
}
