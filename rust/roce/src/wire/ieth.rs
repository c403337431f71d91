// SPDX-License-Identifier: GPL-2.0 OR MIT

//! IETH: invalidate extended transport header (IBTA 9.3.7).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Which key a SEND with Invalidate invalidates.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ieth {
    /// R_Key.
    pub rkey: U32,
}

const _: () = assert!(size_of::<Ieth>() == 4);
