// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    driver::Driver,
    object::Object,
    ucontext, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

pub(crate) type Obj<T> = Object<bindings::ib_pd, Arc<T>>;

/// `alloc_pd`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<D: Driver>(
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a new object that belongs to a device of this driver, and for a
        // process to one of its contexts.
        let (device, context) = unsafe {
            (
                crate::device::core::<D::Device>((*pd).device),
                ucontext::of_uobject::<D::Context>((*pd).uobject),
            )
        };
        let core = D::alloc_pd(device, context.filter(|_| !udata.is_null()))?;
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe { Obj::<D::Pd>::init(pd, core) };
        Ok(0)
    })
}

/// `dealloc_pd`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<D: Driver>(
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let core = unsafe { Obj::<D::Pd>::take(pd) };
    D::dealloc_pd(&core);
    0
}
