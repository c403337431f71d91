// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use kernel::bindings;

/// Returns a random number, fit for what a peer must not guess. Any context.
#[inline]
pub fn random_u32() -> u32 {
    // SAFETY: No requirements.
    unsafe { bindings::get_random_u32() }
}
