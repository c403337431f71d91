// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The headers as they stand on the wire (IBTA 9.2 and 9.3): big-endian, unaligned, in the order of
//! their bytes. [`crate::packet`] has the form for everyday use, and reads headers of one field itself.

mod u24;

pub mod aeth;
pub mod bth;
pub mod extensions;

pub use self::u24::U24;
