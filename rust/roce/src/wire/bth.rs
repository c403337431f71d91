// SPDX-License-Identifier: GPL-2.0 OR MIT

//! BTH: base transport header (IBTA 9.2).

use zerocopy::byteorder::big_endian::U16;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::U24;

/// Solicited event, in [`Bth::flags`].
pub const SOLICITED: u8 = 0x80;

/// Migration state, in [`Bth::flags`]: set when the path is the migrated one.
pub const MIGRATED: u8 = 0x40;

/// Shift of the 2-bit pad count in [`Bth::flags`].
pub const PAD_SHIFT: u32 = 4;

/// The pad count in [`Bth::flags`].
pub const PAD_MASK: u8 = 0x30;

/// The transport header version in [`Bth::flags`].
pub const VERSION_MASK: u8 = 0x0f;

/// The only transport header version.
pub const VERSION: u8 = 0;

/// Forward explicit congestion notification, in [`Bth::ecn`].
pub const FECN: u8 = 0x80;

/// Backward explicit congestion notification, in [`Bth::ecn`].
pub const BECN: u8 = 0x40;

/// Acknowledge request, in [`Bth::ack`].
pub const ACK_REQUEST: u8 = 0x80;

/// The base transport header: the first 12 bytes of every UDP payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bth {
    /// The kind of packet; see [`crate::opcode::Opcode`].
    pub opcode: u8,
    /// [`SOLICITED`], [`MIGRATED`], pad count (0 to 3 bytes), version.
    pub flags: u8,
    /// Partition key.
    pub pkey: U16,
    /// [`FECN`], [`BECN`], six reserved bits. The whole byte is masked in the ICRC.
    pub ecn: u8,
    /// Number of the QP that the packet is for.
    pub dest_qpn: U24,
    /// [`ACK_REQUEST`], seven reserved bits.
    pub ack: u8,
    /// Packet sequence number.
    pub psn: U24,
}

const _: () = assert!(size_of::<Bth>() == 12);
