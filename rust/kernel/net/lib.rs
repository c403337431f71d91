// SPDX-License-Identifier: GPL-2.0

//! The network stack as a UDP-encapsulated protocol sees it, written as if it were to become part of
//! `kernel::net`.
//!
//! Each item says in which contexts it may be used. "Any context" includes hard interrupts and interrupts
//! off; "process" means that the call may sleep; "softirq" includes process context with bottom halves
//! disabled.

// Functions that nobody calls are left out.
#![allow(clippy::len_without_is_empty)]

pub mod address;
pub mod burst;
mod error;
pub mod frame;
pub mod header;
mod hook;
pub mod list;
pub mod listener;
pub mod multicast;
pub mod namespace;
pub mod netdev;
pub mod notifier;
pub mod page_pool;
pub mod path;
pub mod receive;
mod rtnl;
pub mod segment;
mod skb;
pub mod transmit;

pub use address::Address;
pub use burst::RxBurst;
pub use frame::{
    TxFrame, //
    TxNetdev,
};
pub use header::{
    Query,
    CE, //
};
pub use list::RxList;
pub use listener::{
    Listener,
    Receive,
    Sender, //
};
pub use multicast::Membership;
pub use namespace::{
    HeldNet,
    Namespaces,
    Net,
    NetCookie,
    NetId, //
};
pub use netdev::{
    DevName,
    NetDev,
    NetDevice, //
};
pub use notifier::{
    NetdevEvent,
    NetdevHandler,
    NetdevNotifier, //
};
pub use page_pool::PagePools;
pub use path::Path;
pub use receive::RxSkb;
pub use rtnl::wait_for_rtnl;
pub use segment::{
    Segment,
    Segments, //
};
pub use sync::crc32_le;
pub use transmit::{
    Transmit,
    TxSkb, //
};

/// Whether one more message may be logged of what users of the network can repeat as they like. Any context.
pub fn may_log() -> bool {
    // SAFETY: It may be called in any context.
    unsafe { rdma_bindings::net_ratelimit() != 0 }
}
