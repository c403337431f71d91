// SPDX-License-Identifier: GPL-2.0 OR MIT

//! XRCETH: XRC extended transport header (annex A14).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::U24;

/// Which shared receive queue a request is for. It stands behind the BTH, before all others.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XrcEth {
    /// Reserved.
    pub reserved: u8,
    /// Number of the XRC SRQ.
    pub srqn: U24,
}

const _: () = assert!(size_of::<XrcEth>() == 4);
