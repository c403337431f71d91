// SPDX-License-Identifier: GPL-2.0

//! The two sides of a QP, as the engine sees them.

use super::{
    engine::Engine,
    paging::WaitsForPages,
    Qp, //
};
use crate::{
    packet::datagram::Batch,
    queue::cq::Cq, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use rdma::qp::Event;
use roce::{
    packet::Packet,
    responder::Arrival,
    time::Instant, //
};
use sync::SpinLockBhGuard;

/// The send side or the receive side of a QP: what is under its lock.
pub(super) trait Side: Sized + Unpin {
    /// Batches that one caller sends before it leaves the rest to a thread, in process context.
    const BATCHES_PER_CALL: u32;

    /// Takes the lock of this side of `qp`.
    fn lock(qp: &Qp) -> SpinLockBhGuard<'_, Self>;

    /// Where what this side of `qp` has done completes.
    fn cq(qp: &Qp) -> &Arc<Cq>;

    /// The state that both sides have.
    fn engine(&mut self) -> &mut Engine;

    /// Looks at a packet that finds others waiting: whether it waits, too.
    fn arrive(&mut self, _packet: &Packet) -> Arrival {
        Arrival::Keep
    }

    /// Takes in a packet. `Err` if that has to wait for pages.
    fn take_in(
        &mut self,
        qp: &Arc<Qp>,
        packet: &Packet,
        skb: &RxSkb,
        round: &mut Round,
    ) -> Result<(), WaitsForPages>;

    /// Tells the protocol to try the access again that waited for pages.
    fn resume(&mut self);

    /// Tells the protocol that the packet is lost that had to wait for pages.
    fn lost(&mut self) {}

    /// Fetches what was posted, if this side sends that. Returns whether there may be more.
    fn fetch(&mut self, _qp: &Qp) -> bool {
        false
    }

    /// Whether requests are held, if this side sends them.
    fn has_held(_qp: &Qp) -> bool {
        false
    }

    /// Whether a softirq leaves building to a thread, because there is so much.
    fn is_long(&self) -> bool;

    /// Queues the worker that builds. Returns whether it will: if not, it was queued long ago, and has not begun.
    /// Context: process or softirq.
    fn build_in_bulk(qp: &Arc<Qp>) -> bool;

    /// Builds until the batch is full.
    fn build(&mut self, qp: &Arc<Qp>, round: &mut Round, batch: &mut Batch);

    /// Ends a round, under the lock, also one that built nothing. `is_sent`: no packets are on their way out of a batch.
    fn settle(&mut self, qp: &Arc<Qp>, round: &mut Round, is_sent: bool);
}

/// One hold of a side's lock, and what it leaves to be done once the lock is released.
#[derive(Default)]
pub(super) struct Round {
    now: Option<Instant>,
    /// The CQ wants to be notified.
    pub(super) notify: bool,
    /// The QP has failed, under the lock.
    pub(super) failed: bool,
    /// The asynchronous event to raise, after all else.
    pub(super) event: Option<Event>,
}

impl Round {
    /// The time, for all that happens in the round.
    pub(super) fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(super::now)
    }

    /// Does what the round has left. Context: process or softirq, no lock held.
    #[inline]
    pub(super) fn finish<S: Side>(self, qp: &Arc<Qp>) {
        if self.notify {
            Cq::notify(S::cq(qp));
        }
        if self.failed {
            qp.flush(self.event);
        } else if let Some(event) = self.event {
            qp.verbs.handle.raise(event);
        }
    }
}
