// SPDX-License-Identifier: GPL-2.0 OR MIT

//! AtomicAckETH: atomic acknowledge extended transport header (IBTA 9.3.5.3).

use zerocopy::byteorder::big_endian::U64;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// The result of an atomic operation.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicAckEth {
    /// What stood at the address before the operation.
    pub original: U64,
}

const _: () = assert!(size_of::<AtomicAckEth>() == 8);
