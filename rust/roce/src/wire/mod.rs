// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The headers as they stand on the wire (IBTA 9.2 and 9.3): big-endian, unaligned, in the order of
//! their bytes. [`crate::packet`] has the form for everyday use.

mod u24;

pub mod aeth;
pub mod atomic_ack_eth;
pub mod atomic_eth;
pub mod bth;
pub mod cnp;
pub mod deth;
pub mod feth;
pub mod ieth;
pub mod imm_dt;
pub mod reth;
pub mod xrceth;

pub use self::u24::U24;
