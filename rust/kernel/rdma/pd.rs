// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    object::Object,
    ucontext, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The core of a protection domain.
pub trait ProtectionDomain: Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: 'static;
    /// The core of a process's context.
    type Context: 'static;

    /// Makes a protection domain, of a process's context or of the kernel. Context: process, may sleep.
    fn alloc(device: &Arc<Self::Device>, context: Option<&Arc<Self::Context>>)
        -> Result<Arc<Self>>;

    /// Destroys it: no process can name it any more. Context: process, may sleep.
    fn dealloc(self: &Arc<Self>);
}

pub(crate) type Obj<T> = Object<bindings::ib_pd, Arc<T>>;

/// `alloc_pd`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<P: ProtectionDomain>(
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a new object that belongs to a device of this driver, and for user calls valid driver
        // data.
        let (device, context) = unsafe {
            (
                crate::device::core::<P::Device>((*pd).device),
                ucontext::of_udata::<P::Context>(udata),
            )
        };
        let core = P::alloc(device, context)?;
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe { Obj::<P>::init(pd, core) };
        Ok(0)
    })
}

/// `dealloc_pd`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<P: ProtectionDomain>(
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let core = unsafe { Obj::<P>::take(pd) };
    core.dealloc();
    0
}
