// SPDX-License-Identifier: GPL-2.0 OR MIT

//! DETH: datagram extended transport header (IBTA 9.3.2).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::U24;

/// What a datagram needs besides the BTH.
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
