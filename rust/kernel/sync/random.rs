// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use kernel::{
    bindings,
    ffi::c_void, //
};

/// Returns a random number, fit for what a peer must not guess. Any context.
#[inline]
pub fn random_u32() -> u32 {
    // SAFETY: No requirements.
    unsafe { bindings::get_random_u32() }
}

/// Fills `out` with random bytes, fit for what a peer must not guess. Any context.
pub fn random_bytes(out: &mut [u8]) {
    // SAFETY: `out` is valid for writes of its length.
    unsafe { bindings::get_random_bytes(out.as_mut_ptr().cast::<c_void>(), out.len()) };
}
