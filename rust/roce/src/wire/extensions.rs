// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The extension headers of requests and datagrams, in the order in which they follow the BTH.
//!
//! The FETH (FLUSH extended transport header: IBTA 1.7, memory placement extensions, annex A19), which stands before the
//! RETH, is one number: 26 reserved bits, selectivity level, placement type.

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

use super::U24;

/// XRCETH: XRC extended transport header (annex A14). Which shared receive queue a request is for.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XrcEth {
    /// Reserved.
    pub reserved: u8,
    /// Number of the XRC SRQ.
    pub srqn: U24,
}

const _: () = assert!(size_of::<XrcEth>() == 4);

/// DETH: datagram extended transport header (IBTA 9.3.2). The Q_Key and the sender of a datagram.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Deth {
    /// Queue key; the receiver drops a datagram whose key is not its own.
    pub qkey: U32,
    /// Reserved.
    pub reserved: u8,
    /// Number of the QP that sent the datagram.
    pub src_qpn: U24,
}

const _: () = assert!(size_of::<Deth>() == 8);

/// Placement type: what was written before becomes visible to all.
pub const PLACEMENT_GLOBAL: u8 = 1;

/// Placement type: what was written before becomes persistent.
pub const PLACEMENT_PERSISTENT: u8 = 2;

/// Shift of the 2-bit selectivity level in a FETH.
pub const SELECTIVITY_SHIFT: u32 = 4;

/// Selectivity level: the whole memory region is flushed; address and length are ignored. At level 0 the range that the
/// RETH names is.
pub const SELECTIVITY_REGION: u8 = 1;

/// RETH: RDMA extended transport header (IBTA 9.3.3). Where an RDMA operation takes place.
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

/// AtomicETH: atomic extended transport header (IBTA 9.3.4). An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address; a multiple of 8, or the request is invalid.
    pub va: U64,
    /// R_Key.
    pub rkey: U32,
    /// The value to swap in, or to add.
    pub swap_add: U64,
    /// The value to compare with; FetchAdd ignores it.
    pub compare: U64,
}

const _: () = assert!(size_of::<AtomicEth>() == 28);
