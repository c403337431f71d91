// SPDX-License-Identifier: GPL-2.0 OR MIT

//! RETH: RDMA extended transport header (IBTA 9.3.3).

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

/// Where an RDMA operation takes place.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Reth {
    /// Virtual address.
    pub va: U64,
    /// R_Key.
    pub rkey: U32,
    /// Length of the whole operation in bytes, up to 2^31.
    pub length: U32,
}

const _: () = assert!(size_of::<Reth>() == 16);
