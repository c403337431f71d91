// SPDX-License-Identifier: GPL-2.0

//! What a driver implements.

use crate::{
    ah, cq,
    details::Details,
    device, gid, mr, mw, pd, port, qp, srq, stats, ucontext,
    udata::Udata,
    wr::{
        RecvWrs,
        SendWrs, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
};

/// An RDMA device driver.
///
/// The associated types are the cores of the objects behind the verbs. Unless said otherwise, a
/// method is called in process context and may sleep. "Any context" means with interrupts off too.
///
/// A destroy method is called once, when no other operation on the object is in progress. When it
/// returns, nobody may be about to use what the object's consumer lent (memory, address handles,
/// entries of the GID table); the core itself may live on.
pub trait Driver: Sized + Send + Sync + 'static {
    /// A device.
    type Device: device::Device + port::Port;
    /// A process's context.
    type Context: ucontext::UserContext<Device = Self::Device>;
    /// What the driver keeps of an address in the GID table.
    type Address: gid::TableAddress<Device = Self::Device>;
    /// A protection domain.
    type Pd: pd::ProtectionDomain<Device = Self::Device, Context = Self::Context> + mr::Advise;
    /// An address handle.
    type Ah: ah::AddressHandle<Pd = Self::Pd>;
    /// A completion queue.
    type Cq: cq::CompletionQueue<Device = Self::Device, Context = Self::Context>;
    /// A queue pair.
    type Qp: Send + Sync;
    /// A shared receive queue.
    type Srq: srq::SharedReceiveQueue<Device = Self::Device, Context = Self::Context, Pd = Self::Pd>;
    /// A memory region.
    type Mr: mr::MemoryRegion<Pd = Self::Pd>;
    /// A memory window.
    type Mw: mw::MemoryWindow<Pd = Self::Pd>;
    /// A counter of QPs.
    type Counter: Send + Sync;

    /// The number that userspace providers match (`enum rdma_driver_id`).
    const ID: u32;
    /// Version of the user ABI.
    const ABI_VERSION: u32;
    /// The port's counters.
    const COUNTERS: &'static [stats::Descriptor];
    /// Pages of the largest fast-registration region.
    const MAX_FAST_PAGES: u32;

    /// Whether the counter with that index in [`Self::COUNTERS`] can be read for single QPs.
    fn is_counter_of_qp(index: usize) -> bool;

    /// Makes a counter for QPs. Context of these four: process.
    fn new_counter() -> Result<Arc<Self::Counter>>;

    /// Binds `qp` to a counter: what it counts is the counter's, and not the device's. Errors: `EBUSY` if it is bound.
    fn bind_counter(qp: &Self::Qp, counter: &Arc<Self::Counter>) -> Result;

    /// Undoes [`Self::bind_counter`]. What was counted stays.
    fn unbind_counter(qp: &Self::Qp);

    /// Fills in the value of each of [`Self::COUNTERS`].
    fn read_counter(counter: &Self::Counter, values: &[Atomic<u64>]);

    /// What `rdma -dd resource show` shows of a QP, a CQ, a region, a shared receive queue, beyond what `ib_core` knows.
    /// Context of these four: process.
    fn describe_qp(qp: &Self::Qp, details: &mut Details<'_>) -> Result;

    /// Makes a QP.
    fn create_qp(
        pd: &Arc<Self::Pd>,
        init: &mut qp::Init<Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self::Qp>>;

    /// Its number.
    fn qp_number(qp: &Self::Qp) -> u32;

    /// Changes attributes.
    fn modify_qp(qp: &Arc<Self::Qp>, attr: &qp::Attr, mask: qp::AttrMask) -> Result;

    /// Fills in all attributes. Returns the sizes of the queues.
    fn query_qp(qp: &Arc<Self::Qp>, attr: &mut qp::Attr) -> Result<qp::Cap>;

    /// Destroys it.
    fn destroy_qp(qp: &Arc<Self::Qp>);

    /// A process has put send requests into its ring. Process context.
    fn doorbell(qp: &Arc<Self::Qp>) -> Result;

    /// A kernel consumer posts send requests. Any context.
    fn post_send(qp: &Arc<Self::Qp>, wrs: &mut SendWrs<'_, Self::Ah, Self::Mr>) -> Result;

    /// A kernel consumer posts receive requests. Any context.
    fn post_recv(qp: &Arc<Self::Qp>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Attaches a QP to a multicast group. Several times: as many detachments undo it.
    fn attach_multicast(qp: &Arc<Self::Qp>, group: &gid::Gid) -> Result;

    /// Undoes one attachment. Does not fail where there is one: `ib_core` would keep the QP for ever.
    fn detach_multicast(qp: &Arc<Self::Qp>, group: &gid::Gid) -> Result;
}
