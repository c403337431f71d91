// SPDX-License-Identifier: GPL-2.0 OR MIT

//! FETH: FLUSH extended transport header (IBTA 1.7, memory placement extensions, annex A19).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// What was written before becomes visible to all.
pub const PLACEMENT_GLOBAL: u8 = 1;

/// What was written before becomes persistent.
pub const PLACEMENT_PERSISTENT: u8 = 2;

/// Shift of the 2-bit selectivity level in [`Feth::flags`].
pub const SELECTIVITY_SHIFT: u32 = 4;

/// The range that the RETH names is flushed.
pub const SELECTIVITY_RANGE: u8 = 0;

/// The whole memory region is flushed; address and length are ignored.
pub const SELECTIVITY_REGION: u8 = 1;

/// What a FLUSH does. It stands before the RETH.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Feth {
    /// 26 reserved bits, selectivity level, placement type.
    pub flags: U32,
}

const _: () = assert!(size_of::<Feth>() == 4);
