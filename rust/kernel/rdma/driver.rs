// SPDX-License-Identifier: GPL-2.0

//! The interface that a driver implements.

use crate::{
    ah,
    counter,
    cq,
    device,
    gid,
    mr,
    mw,
    pd,
    port,
    qp,
    srq,
    stats,
    ucontext,
    xrcd, //
};

/// An RDMA device driver.
///
/// The associated types are the cores of the objects behind the verbs. Each has a trait of its own, which
/// names the cores of the other objects that it needs; here it is said that they are those of the same
/// driver.
///
/// A method of these traits that destroys an object is called once, when no other operation on the object
/// is in progress. When it returns, nobody may be about to use what the object's consumer lent (memory,
/// address handles, entries of the GID table); the core itself may live on.
pub trait Driver: Sized + Send + Sync + 'static {
    /// A device.
    type Device: device::Device + port::Port;
    /// A process's context.
    type Context: ucontext::UserContext<Device = Self::Device>;
    /// The core of an address in the GID table.
    type Address: gid::TableAddress<Device = Self::Device>;
    /// A protection domain.
    type Pd: pd::ProtectionDomain<Device = Self::Device, Context = Self::Context> + mr::Advise;
    /// An address handle.
    type Ah: ah::AddressHandle<Pd = Self::Pd>;
    /// A completion queue.
    type Cq: cq::CompletionQueue<Device = Self::Device, Context = Self::Context>;
    /// A queue pair.
    type Qp: qp::QueuePair<
        Device = Self::Device,
        Context = Self::Context,
        Pd = Self::Pd,
        Ah = Self::Ah,
        Cq = Self::Cq,
        Srq = Self::Srq,
        Xrcd = Self::Xrcd,
        Mr = Self::Mr,
        Counter = Self::Counter,
    >;
    /// A shared receive queue.
    type Srq: srq::SharedReceiveQueue<
        Device = Self::Device,
        Context = Self::Context,
        Pd = Self::Pd,
        Cq = Self::Cq,
        Xrcd = Self::Xrcd,
    >;
    /// An XRC domain.
    type Xrcd: xrcd::XrcDomain<
        Device = Self::Device,
        Context = Self::Context,
        Pd = Self::Pd,
        Cq = Self::Cq,
    >;
    /// A memory region.
    type Mr: mr::MemoryRegion<Pd = Self::Pd>;
    /// A memory window.
    type Mw: mw::MemoryWindow<Pd = Self::Pd>;
    /// A counter of QPs.
    type Counter: counter::Counter;

    /// The number that userspace providers match (`enum rdma_driver_id`).
    const ID: u32;
    /// Version of the user ABI.
    const ABI_VERSION: u32;
    /// The port's counters.
    const COUNTERS: &'static [stats::Descriptor];
    /// Pages of the largest fast-registration region.
    const MAX_FAST_PAGES: u32;
}
