// SPDX-License-Identifier: GPL-2.0

//! A QP's events, and its name in completions.

use crate::events::{
    Link,
    Source, //
};
use kernel::sync::Arc;
use rdma_bindings as bindings;

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

impl Source for bindings::ib_qp {
    /// A bit is an event.
    fn kinds(pending: u32) -> impl Iterator<Item = bindings::ib_event_type> {
        (0..u32::BITS).filter(move |kind| pending.wrapping_shr(*kind) & 1 != 0)
    }

    unsafe fn tell(qp: *mut Self, event: &mut bindings::ib_event) {
        // SAFETY: The caller promises that the object is valid, and the context that handlers may expect.
        unsafe {
            event.device = (*qp).device;
            if let Some(handler) = (*qp).event_handler {
                handler(event, (*qp).qp_context);
            }
        }
    }
}

/// Names a QP in completions, and raises its asynchronous events. Turns into nothing once the QP is destroyed, so that a
/// completion that is polled late cannot lead its consumer to a QP that is gone.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Link<bindings::ib_qp>>);

impl Handle {
    /// Raises an event, once for all calls with the same event before it is delivered. Context:
    /// any; the consumer's handler runs later, in process context.
    pub fn raise(&self, event: Event) {
        let bit = 1u32.wrapping_shl(event as u32);
        self.0.raise(|pending| pending | bit);
    }

    pub(crate) fn raw(&self) -> Option<*mut bindings::ib_qp> {
        self.0.object()
    }

    /// Whether both name the same QP.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
