// SPDX-License-Identifier: GPL-2.0

//! The part of a request and of its response that belongs to the driver.

use core::marker::PhantomData;
use kernel::{
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};
use rdma_bindings as bindings;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// Driver data of one verbs call (`struct ib_udata`).
///
/// Exists only while the call runs, in the context of the process that made it.
pub struct Udata<'a> {
    input: UserPtr,
    input_len: usize,
    output: UserPtr,
    output_len: usize,
    _call: PhantomData<&'a mut bindings::ib_udata>,
}

impl Udata<'_> {
    /// Wraps what `ib_core` passed; [`None`] for a kernel user.
    ///
    /// # Safety
    ///
    /// `ptr` must be null, or valid for reads for as long as the result is used.
    pub(crate) unsafe fn from_raw(ptr: *const bindings::ib_udata) -> Option<Self> {
        if ptr.is_null() {
            return None;
        }
        // SAFETY: The caller promises that a pointer that is not null is valid for reads.
        let raw = unsafe { &*ptr };
        Some(Self {
            input: UserPtr::from_ptr(raw.inbuf.cast_mut()),
            input_len: raw.inlen,
            output: UserPtr::from_ptr(raw.outbuf),
            output_len: raw.outlen,
            _call: PhantomData,
        })
    }

    /// Reads the request. Bytes behind a `T` are ignored, as librxe's requests never grow.
    ///
    /// Errors: `EINVAL` if it is shorter than a `T`, `EFAULT`. Context: process, may fault, no spinlock held.
    pub fn copy_in<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        if self.input_len < size_of::<T>() {
            return Err(EINVAL);
        }
        let mut value = T::new_zeroed();
        UserSlice::new(self.input, size_of::<T>())
            .reader()
            .read_slice(value.as_mut_bytes())?;
        Ok(value)
    }

    /// Whether the response has room for a `T`.
    pub fn has_room_for<T>(&self) -> bool {
        self.output_len >= size_of::<T>()
    }

    /// Writes the response. Errors and context: as for [`Self::copy_in`].
    pub fn copy_out<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result {
        if !self.has_room_for::<T>() {
            return Err(EINVAL);
        }
        UserSlice::new(self.output, size_of::<T>())
            .writer()
            .write_slice(value.as_bytes())
    }
}
