// SPDX-License-Identifier: GPL-2.0

//! Queues of work and of completions, and what stands in them.

pub(crate) mod cq;
mod notification;
pub(crate) mod posted_receives;
pub(crate) mod ring;
pub(crate) mod srq;
mod user_cq;
mod user_srq;
pub(crate) mod user_wqe;
pub(crate) mod wqe;
pub(crate) mod xrcd;
