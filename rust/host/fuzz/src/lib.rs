// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the fuzz targets do with their input, and what must hold whatever it is.
//!
//! Input is structured: what the fuzzer's bytes decide are operations, in the neighbourhood of what
//! makes sense. A finding is a panic of an assertion here, or of `roce` or `sim` themselves.

pub mod any;
pub mod conversation;
pub mod icrc;
pub mod packet;
pub mod requester;
pub mod responder;
pub mod values;
