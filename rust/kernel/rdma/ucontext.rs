// SPDX-License-Identifier: GPL-2.0

//! Contexts of the processes that have a device open.

use crate::{
    object::Object,
    udata::Udata, //
};
use kernel::{
    error::from_result,
    mm::virt::VmaNew,
    page::PAGE_SHIFT,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// A feature: XRC domains, and what belongs to them.
pub const XRC: u64 = bindings::ferroce_feature_FERROCE_FEATURE_XRC as u64;

/// The core of the context of a process that has the device open.
pub trait UserContext: Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: 'static;

    /// Tells libraries what the driver has beyond `rdma_rxe`'s ABI: `features` of `struct ferroce_alloc_ucontext_resp`.
    /// A library that leaves no room for it in the response does not get it.
    const FEATURES: u64;

    /// A process opens the device. Context: process, may sleep.
    fn alloc(device: &Arc<Self::Device>) -> Result<Arc<Self>>;

    /// It maps memory that the driver told it the byte `offset` of.
    ///
    /// Errors: `EINVAL` if there is none there, or if it is smaller than `vma`. Context: process, under
    /// the mmap lock.
    fn mmap(self: &Arc<Self>, offset: u64, vma: &VmaNew) -> Result;
}

pub(crate) type Obj<T> = Object<bindings::ib_ucontext, Arc<T>>;

/// The context that a verbs call was made in; [`None`] for a kernel consumer's call.
///
/// # Safety
///
/// `udata` must be null, or the driver data of a call to a device whose driver has contexts of the type
/// `T`, and the call must last for `'a`.
pub(crate) unsafe fn of_udata<'a, T>(udata: *const bindings::ib_udata) -> Option<&'a Arc<T>> {
    if udata.is_null() {
        return None;
    }
    // SAFETY: The driver data of a call are a field of its `uverbs_attr_bundle`, as
    // `rdma_udata_to_uverbs_attr_bundle()` has it; a call has a context, whose object `ib_core`
    // created. Both union fields have the same layout.
    unsafe {
        let bundle = udata
            .byte_sub(core::mem::offset_of!(
                bindings::uverbs_attr_bundle__bindgen_ty_1__bindgen_ty_1,
                driver_udata
            ))
            .cast::<bindings::uverbs_attr_bundle__bindgen_ty_1__bindgen_ty_1>();
        let context = (*bundle).context;
        (!context.is_null()).then(|| Obj::<T>::get(context))
    }
}

/// `alloc_ucontext`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<T: UserContext>(
    context: *mut bindings::ib_ucontext,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a new object that belongs to a device of this driver.
        let device = unsafe { crate::device::core::<T::Device>((*context).device) };
        // SAFETY: `ib_core` passes the driver's part of the call, which lasts longer than this one.
        let udata = unsafe { Udata::from_raw(udata) };
        if let Some(mut udata) = udata.filter(Udata::has_room_for::<u64>) {
            udata.copy_out(&T::FEATURES)?;
        }
        let core = T::alloc(device)?;
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe { Obj::<T>::init(context, core) };
        Ok(0)
    })
}

/// `dealloc_ucontext`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<T: UserContext>(context: *mut bindings::ib_ucontext) {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    drop(unsafe { Obj::<T>::take(context) });
}

/// `query_ucontext`: a process asks about a context whose file it was given (`ibv_import_device(3)`).
///
/// `ib_core` answers, once it knows that the driver lets contexts be shared so: a driver has nothing to add.
///
/// # Safety
///
/// None.
pub(crate) unsafe extern "C" fn query(
    _context: *mut bindings::ib_ucontext,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    0
}

/// `mmap`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn mmap<T: UserContext>(
    context: *mut bindings::ib_ucontext,
    vma: *mut kernel::bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created, and an area that is being set up.
        let (core, vma, page_offset) = unsafe {
            (
                Obj::<T>::get(context),
                VmaNew::from_raw(vma),
                (*vma).vm_pgoff,
            )
        };
        let offset = (page_offset as u64)
            .checked_mul(1 << PAGE_SHIFT)
            .ok_or(EINVAL)?;
        core.mmap(offset, vma)?;
        Ok(0)
    })
}

/// `disassociate_ucontext`: the device goes away under an open context.
///
/// There is nothing to do: mapped queue memory consists of ordinary pages that live as long as
/// their mappings, and `ib_core` destroys all objects of the context itself.
///
/// # Safety
///
/// None.
pub(crate) unsafe extern "C" fn disassociate(_context: *mut bindings::ib_ucontext) {}

const _: () = assert!(size_of::<bindings::ferroce_alloc_ucontext_resp>() == size_of::<u64>());
