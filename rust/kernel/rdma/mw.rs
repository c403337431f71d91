// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use crate::{
    object::Object,
    pd, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The types of memory windows (IBTA 10.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Of a protection domain; a bind gives it another key.
    One,
    /// Of the QP that bound it; its consumer chooses the key, and invalidates it.
    Two,
}

/// The core of a memory window.
pub trait MemoryWindow: Sized + Send + Sync + 'static {
    /// The core of a protection domain.
    type Pd: 'static;

    /// Makes a window, for a process; not bound. Context: process, may sleep.
    fn alloc(pd: &Arc<Self::Pd>, ty: Type) -> Result<Arc<Self>>;

    /// Its first key. Context: process.
    fn key(&self) -> u32;

    /// Destroys it, bound or not: when this returns nobody copies through it. Context: process, may sleep.
    fn dealloc(self: &Arc<Self>);
}

pub(crate) type Obj<T> = Object<bindings::ib_mw, Arc<T>>;

/// `alloc_mw`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<W: MemoryWindow>(
    mw: *mut bindings::ib_mw,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a new object, with its type and a protection domain of a device of
        // this driver.
        let (pd, ty) = unsafe { (pd::Obj::<W::Pd>::get((*mw).pd), (*mw).type_) };
        let ty = match ty {
            bindings::ib_mw_type_IB_MW_TYPE_1 => Type::One,
            bindings::ib_mw_type_IB_MW_TYPE_2 => Type::Two,
            _ => return Err(EINVAL),
        };
        let core = W::alloc(pd, ty)?;
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe {
            (*mw).rkey = core.key();
            Obj::<W>::init(mw, core);
        }
        Ok(0)
    })
}

/// `dealloc_mw`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<W: MemoryWindow>(mw: *mut bindings::ib_mw) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let core = unsafe { Obj::<W>::take(mw) };
    core.dealloc();
    0
}
