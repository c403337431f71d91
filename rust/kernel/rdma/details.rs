// SPDX-License-Identifier: GPL-2.0

//! Details of an object for `rdma -dd resource show`, beyond what `ib_core` knows.

use crate::{
    cq::{
        self,
        CompletionQueue, //
    },
    mr::{
        self,
        MemoryRegion, //
    },
    qp::{
        self,
        QueuePair, //
    },
    srq::{
        self,
        SharedReceiveQueue, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*, //
};
use rdma_bindings as bindings;

/// A netlink message that details are added to. Only `fill` makes it, for a function that it calls. Each has a name, before which the tool puts `drv_`.
///
/// Errors: `EMSGSIZE` if there is no more room; `ib_core` begins another message then.
pub struct Details<'a>(&'a mut NonNull<kernel::bindings::sk_buff>);

impl Details<'_> {
    /// Adds a number.
    pub fn number(&mut self, name: &CStr, value: u64) -> Result {
        // SAFETY: By the promise to `fill`, the message is one that `ib_core` is filling. The name ends with a zero.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64(self.0.as_ptr(), name.as_char_ptr(), value)
        })
    }

    /// Adds a number that is shown with the base 16.
    pub fn hex(&mut self, name: &CStr, value: u64) -> Result {
        // SAFETY: As above.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64_hex(self.0.as_ptr(), name.as_char_ptr(), value)
        })
    }

    /// Adds words.
    pub fn text(&mut self, name: &CStr, value: &CStr) -> Result {
        // SAFETY: As above; the words end with a zero, too.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(
                self.0.as_ptr(),
                name.as_char_ptr(),
                value.as_char_ptr(),
            )
        })
    }
}

/// Adds what `describe` says, as one attribute.
///
/// # Safety
///
/// `message` must be one that `ib_core` is filling.
unsafe fn fill(
    message: *mut kernel::bindings::sk_buff,
    describe: impl FnOnce(&mut Details<'_>) -> Result,
) -> c_int {
    const DRIVER: c_int = bindings::rdma_nldev_attr_RDMA_NLDEV_ATTR_DRIVER as c_int;
    from_result(|| {
        let mut message = NonNull::new(message).ok_or(EINVAL)?;
        // SAFETY: By the promise of the caller.
        let start = unsafe { bindings::nla_nest_start(message.as_ptr(), DRIVER) };
        if start.is_null() {
            return Err(EMSGSIZE);
        }
        let described = describe(&mut Details(&mut message));
        // SAFETY: The attribute was begun in this message, and what was added is in it.
        unsafe {
            match described {
                Ok(()) => {
                    bindings::nla_nest_end(message.as_ptr(), start);
                }
                Err(_) => bindings::nla_nest_cancel(message.as_ptr(), start),
            }
        }
        described.map(|()| 0)
    })
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $object:ident, $core:ident, $ib:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Only `ib_core` may call this, as `struct ib_device_ops` has it.
        pub(crate) unsafe extern "C" fn $name<C: $core>(
            message: *mut kernel::bindings::sk_buff,
            $object: *mut bindings::$ib,
        ) -> c_int {
            // SAFETY: `ib_core` passes a message, and an object that it has created, and destroys only after this.
            unsafe {
                fill(message, |details| {
                    $object::Obj::<C>::get($object).core.describe(details)
                })
            }
        }
    )*};
}

operations! {
    /// `fill_res_qp_entry`. Process context.
    of_qp: qp, QueuePair, ib_qp;
    /// `fill_res_cq_entry`. Process context.
    of_cq: cq, CompletionQueue, ib_cq;
    /// `fill_res_mr_entry`. Process context.
    of_mr: mr, MemoryRegion, ib_mr;
    /// `fill_res_srq_entry`. Process context.
    of_srq: srq, SharedReceiveQueue, ib_srq;
}
