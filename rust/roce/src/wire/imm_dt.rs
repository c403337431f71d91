// SPDX-License-Identifier: GPL-2.0 OR MIT

//! ImmDt: immediate data (IBTA 9.3.6).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Immediate data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ImmDt {
    /// Four bytes for the receiver's completion.
    pub data: U32,
}

const _: () = assert!(size_of::<ImmDt>() == 4);
