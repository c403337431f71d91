// SPDX-License-Identifier: GPL-2.0 OR MIT

//! AtomicETH: atomic extended transport header (IBTA 9.3.4).

use zerocopy::byteorder::big_endian::{
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address; a multiple of 8, or the request is invalid.
    pub va: U64,
    /// R_Key.
    pub rkey: U32,
    /// What is swapped in, or added.
    pub swap_add: U64,
    /// What is compared with; ignored by FetchAdd.
    pub compare: U64,
}

const _: () = assert!(size_of::<AtomicEth>() == 28);
