// SPDX-License-Identifier: GPL-2.0

//! Objects that `ib_core` allocates, with room for the driver's part behind the C struct.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::types::Opaque;

/// A C object followed by what this crate keeps for it.
///
/// `ib_core` allocates `size_of::<Object<C, P>>()` zeroed bytes (the `size_ib_*` fields of
/// `struct ib_device_ops`), fills in the C struct and calls the create operation, which calls
/// [`Object::init`]. Every later operation on the object finds the private part initialised, up to
/// the destroy operation, which ends with [`Object::take`].
#[repr(C)]
pub(crate) struct Object<C, P> {
    ib: Opaque<C>,
    private: UnsafeCell<MaybeUninit<P>>,
}

impl<C, P> Object<C, P> {
    /// Initialises the private part.
    ///
    /// # Safety
    ///
    /// `ptr` must be the C part of an `Object<C, P>`, to which the caller has exclusive access, and
    /// whose private part is not initialised.
    pub(crate) unsafe fn init(ptr: *mut C, private: P) {
        let this = ptr.cast::<Self>();
        // SAFETY: The caller promises that `ptr` is the first field of a `Self` (`repr(C)`) that
        // nobody else uses, so its second field can be written.
        unsafe { (&raw mut (*this).private).write(UnsafeCell::new(MaybeUninit::new(private))) };
    }

    /// Returns the private part.
    ///
    /// # Safety
    ///
    /// `ptr` must be the C part of an `Object<C, P>` whose private part is initialised and stays so
    /// for `'a`.
    pub(crate) unsafe fn get<'a>(ptr: *const C) -> &'a P {
        let this = ptr.cast::<Self>();
        // SAFETY: The caller promises that the private part is initialised for `'a`; nobody has a
        // mutable reference to it, since `init` and `take` demand exclusive access.
        unsafe { (*(*this).private.get()).assume_init_ref() }
    }

    /// Moves the private part out.
    ///
    /// # Safety
    ///
    /// As for [`Object::get`]; furthermore the caller must have exclusive access to the object, and
    /// must treat its private part as not initialised from now on.
    pub(crate) unsafe fn take(ptr: *mut C) -> P {
        let this = ptr.cast::<Self>();
        // SAFETY: The private part is initialised, nobody else uses it, and nobody will use it
        // again, all by the promise of the caller.
        unsafe { (*(*this).private.get()).assume_init_read() }
    }
}
