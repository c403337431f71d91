// SPDX-License-Identifier: GPL-2.0

//! Memory that a consumer registers, and how keys become bytes.

pub(crate) mod access;
pub(crate) mod buffer;
pub(crate) mod context;
pub(crate) mod key;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod paging_turns;
pub(crate) mod pd;
pub(crate) mod prefetch;
