// SPDX-License-Identifier: GPL-2.0

//! Packets: paths and headers of those that leave, checks of those that arrive.

pub(crate) mod ah;
pub(crate) mod arrival;
pub(crate) mod datagram;
pub(crate) mod frame;
pub(crate) mod path;
