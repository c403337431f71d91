// SPDX-License-Identifier: GPL-2.0

//! The CRC of the invariant checksum.
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h)

use kernel::ffi::c_void;
use rdma_bindings as bindings;

/// Feeds `data` to the little-endian CRC-32 of Ethernet, without inversion at either end. Any context;
/// fastest where the SIMD unit may be used, which is everywhere but in hard interrupts.
#[inline]
pub fn crc32_le(state: u32, data: &[u8]) -> u32 {
    // SAFETY: `data` is valid for reads of its length.
    unsafe { bindings::crc32_le(state, data.as_ptr().cast::<c_void>(), data.len()) }
}
