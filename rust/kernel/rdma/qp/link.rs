// SPDX-License-Identifier: GPL-2.0

//! The way from a QP's core back to its C object, for its events and for its name in completions.

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use rdma_bindings as bindings;
use sync::Gate;

use super::exclusion::Exclusion;

/// Asynchronous events of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// The device cannot go on with the QP.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// The peer sent what makes no sense.
    RequestError = bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// The peer asked for what it has no right to.
    AccessError = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The first packet came to a QP that is not yet ready to send.
    CommEstablished = bindings::ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue has drained.
    SendQueueDrained = bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
    /// A QP in error will take no more requests from its shared receive queue.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
    /// The path has migrated.
    PathMigrated = bindings::ib_event_type_IB_EVENT_PATH_MIG,
    /// The path could not be migrated.
    PathMigrationError = bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR,
}

/// The way back to the C object; closed when that is destroyed.
#[pin_data]
pub(super) struct Link {
    /// The address of the `ib_qp`; 0 once it is destroyed.
    qp: Atomic<usize>,
    /// Events to be raised, a bit each.
    pending: Atomic<u32>,
    /// Calls that wait to be the only one on the C object.
    #[pin]
    pub(super) exclusion: Exclusion,
    #[pin]
    gate: Gate,
    #[pin]
    work: Work<Link>,
    queue: Arc<sync::WorkQueue>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
}

impl WorkItem for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        let Some(_pass) = link.gate.enter() else {
            return;
        };
        let qp = core::ptr::with_exposed_provenance_mut::<bindings::ib_qp>(link.qp.load(Acquire));
        if qp.is_null() {
            return;
        }
        let mut pending = link.pending.xchg(0, Full);
        while pending != 0 {
            let kind = pending.trailing_zeros();
            pending &= pending.wrapping_sub(1);
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.event = kind;
            event.element.bindgen_union_field = qp as u64;
            // SAFETY: The gate is open, so the object lives until the pass is dropped; handlers
            // are called from process context without locks, as they may expect.
            unsafe {
                event.device = (*qp).device;
                if let Some(handler) = (*qp).event_handler {
                    handler(&raw mut event, (*qp).qp_context);
                }
            }
        }
    }
}

impl Link {
    /// Refers to `qp`.
    ///
    /// # Safety
    ///
    /// `qp` must stay valid until [`Link::cut`] has returned.
    pub(super) unsafe fn new(
        qp: *mut bindings::ib_qp,
        queue: Arc<sync::WorkQueue>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qp: Atomic::new(qp.expose_provenance()),
                pending: Atomic::new(0),
                exclusion <- Exclusion::new(),
                gate <- Gate::new(),
                work <- new_work!("rdma::qp::Link"),
                queue,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Forgets the C object, and waits for those who use it. Process context.
    pub(super) fn cut(&self) {
        self.qp.store(0, Release);
        self.gate.close_and_wait();
    }
}

/// Names a QP in completions, and raises its asynchronous events. Turns into nothing once the QP is destroyed, so that a
/// completion that is polled late cannot lead its consumer to a QP that is gone.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Link>);

impl Handle {
    /// Raises an event, once for all calls with the same event before it is delivered. Context:
    /// any; the consumer's handler runs later, in process context.
    pub fn raise(&self, event: Event) {
        let bit = 1u32.wrapping_shl(event as u32);
        let mut seen = self.0.pending.load(Relaxed);
        loop {
            match self.0.pending.cmpxchg(seen, seen | bit, Full) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // A work item that is already queued will see the bit.
        let _ = self.0.queue.enqueue(self.0.clone());
    }

    pub(crate) fn raw(&self) -> Option<*mut bindings::ib_qp> {
        match self.0.qp.load(Acquire) {
            0 => None,
            address => Some(core::ptr::with_exposed_provenance_mut(address)),
        }
    }

    /// Whether both name the same QP.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
