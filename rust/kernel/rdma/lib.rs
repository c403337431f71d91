// SPDX-License-Identifier: GPL-2.0

//! RDMA device drivers.
//!
//! Safe abstractions over the kernel's InfiniBand core (`ib_core`), written as if they were to
//! become `kernel::rdma`. A driver implements [`Driver`], whose associated types are the *cores* of
//! its objects: plain values, held by [`Arc`](kernel::sync::Arc). Each implements the trait of its
//! object, [`cq::CompletionQueue`] and so on, which stands beside the operations that `ib_core` calls.
//!
//! The C objects (`struct ib_qp` and so on) are allocated and freed by `ib_core`; each of them only refers
//! to its core. So a core can outlive its C object, which `ib_core` frees as soon as the destroy operation
//! returns, and lookup tables may refer to cores for as long as RCU demands it.
//!
//! Whatever a driver keeps in order to call back into `ib_core` (completion and event handlers) is
//! a handle that turns into nothing when the C object is destroyed: see [`cq::Events`],
//! [`qp::Handle`] and [`srq::Events`].
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h),
//! [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

// Functions that nobody calls are left out.
#![allow(clippy::len_without_is_empty, clippy::new_without_default)]

pub mod access;
mod address_space;
pub mod ah;
pub mod client;
pub mod counter;
pub mod cq;
pub mod details;
pub mod device;
mod dma_buf;
pub mod driver;
pub mod error;
mod events;
mod extents;
pub mod gid;
pub mod global;
pub mod link;
pub mod mad;
pub mod memory;
pub mod mr;
pub mod mw;
mod object;
pub mod on_demand;
mod ops;
mod page_list;
pub mod pd;
pub mod port;
pub mod qp;
pub mod ring;
pub mod srq;
pub mod stats;
pub mod ucontext;
pub mod udata;
pub mod umem;
pub mod wc;
pub mod wr;
pub mod xrcd;

pub use driver::Driver;
