// SPDX-License-Identifier: GPL-2.0 OR MIT

//! 24-bit numbers: PSN, MSN, QP and SRQ numbers.

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// A 24-bit big-endian number.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// The lower 24 bits of `value`. The upper 8 are ignored.
    #[inline]
    pub const fn new(value: u32) -> Self {
        let [_, high, middle, low] = value.to_be_bytes();
        Self([high, middle, low])
    }

    /// The number, in `0..2^24`.
    #[inline]
    pub const fn get(self) -> u32 {
        let [high, middle, low] = self.0;
        u32::from_be_bytes([0, high, middle, low])
    }
}
