// SPDX-License-Identifier: GPL-2.0

//! XRC domains (IBTA annex A14). An XRC target QP reaches the XRC SRQs of its own domain only.

use crate::{
    object::Object,
    ucontext, //
};
use kernel::{
    bindings as kernel_bindings,
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The core of an XRC domain.
pub trait XrcDomain: Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: 'static;
    /// The core of a process's context.
    type Context: 'static;
    /// The core of a protection domain.
    type Pd: 'static;
    /// The core of a completion queue.
    type Cq: 'static;

    /// Makes a domain, of a process's context or of the kernel. Others may open it, and keep it when the context has
    /// gone. Context: process, may sleep.
    fn alloc(device: &Arc<Self::Device>, context: Option<&Arc<Self::Context>>)
        -> Result<Arc<Self>>;

    /// The empty protection domain that the domain lends to its target QPs, which have none. Context: any.
    fn pd(&self) -> &Arc<Self::Pd>;

    /// The empty completion queue that the domain lends to its target QPs, which have none. Context: any.
    fn cq(&self) -> &Arc<Self::Cq>;

    /// Destroys it. No queue or QP uses it any more. Context: process, may sleep.
    fn dealloc(self: &Arc<Self>);
}

pub(crate) type Obj<T> = Object<bindings::ib_xrcd, Arc<T>>;

// CAST: A small number.
const SYS_ADMIN: c_int = kernel_bindings::CAP_SYS_ADMIN as c_int;

/// `alloc_xrcd`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<X: XrcDomain>(
    xrcd: *mut bindings::ib_xrcd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // `ib_uverbs_open_qp()` leaves the mutex `mcast_lock` of an opened target uninitialised (7.2). Processes that call
        // `ibv_detach_mcast()` for it in several threads can crash the kernel. Without a domain, nobody opens a target.
        // SAFETY: There are no conditions.
        if !udata.is_null() && !unsafe { kernel_bindings::capable(SYS_ADMIN) } {
            return Err(EPERM);
        }
        // SAFETY: `ib_core` passes a new object that belongs to a device of this driver, and the valid driver data of a
        // process's call to that device.
        let (device, context) = unsafe {
            (
                crate::device::core::<X::Device>((*xrcd).device),
                ucontext::of_udata::<X::Context>(udata),
            )
        };
        let core = X::alloc(device, context)?;
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe { Obj::<X>::init(xrcd, core) };
        Ok(0)
    })
}

/// `dealloc_xrcd`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<X: XrcDomain>(
    xrcd: *mut bindings::ib_xrcd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let core = unsafe { Obj::<X>::take(xrcd) };
    core.dealloc();
    0
}
