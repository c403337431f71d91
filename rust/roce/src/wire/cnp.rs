// SPDX-License-Identifier: GPL-2.0 OR MIT

//! CNP: what follows the BTH of a congestion notification packet (annex A17.9.3).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Sixteen reserved bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cnp {
    /// Zero when sent, ignored when received.
    pub reserved: [u8; 16],
}

const _: () = assert!(size_of::<Cnp>() == 16);
