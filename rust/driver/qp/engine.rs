// SPDX-License-Identifier: GPL-2.0

//! The engine of a side of a QP. It handles an event and builds a batch under the side's lock, and sends the batch
//! without the lock.
//!
//! One thread or softirq at a time transmits for a side, its owner. The others leave their work to it, so nothing
//! overtakes.

use super::{
    deadlines::Deadline,
    paging::{
        self,
        Paging,
        Waiting, //
    },
    receive::ReceiveSide,
    send::SendSide,
    side::{
        Round,
        Side, //
    },
    Qp, //
};
use crate::{
    device::{
        counters::Counter,
        network::QUEUE_LIMIT, //
    },
    memory::buffer::Payload,
    packet::{
        arrival::Run,
        datagram::Batch,
        path::Path, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use roce::{
    opcode::Opcode,
    packet::Packet,
    psn::Psn,
    qp::Type,
    time::{
        Duration,
        Instant, //
    },
};
use sync::BhGuard;

/// How long a QP waits for full queues to drain, in nanoseconds: some ten full-sized packets.
const PACE_NS: u64 = 100_000;
/// After so long, in nanoseconds, it sends a batch all the same. The queues are all of the namespace's: it may
/// be others' packets that do not leave, for a neighbour that does not answer or by a slower netdev.
const PATIENCE_NS: u64 = 1_000_000;
/// How long a QP of an unreliable service waits for another CPU of this machine, in nanoseconds: a hypervisor may have
/// stopped that CPU. If the QP went on without it, packets would be lost, or arrive out of order. A real-time program
/// may occupy the CPU for longer.
pub(super) const STALL_NS: u64 = 20_000_000;

/// The least time between marks that a side answers by a CNP. A peer that gets CNPs faster may slow down for each, and
/// network cards wait for about as long.
const CNP_INTERVAL: Duration = Duration::from_ns(50_000);

/// Batches that a softirq, or a lane's worker, sends: a datagram to a group of this device is delivered to 64 QPs meanwhile.
pub(super) const BATCHES_IN_SOFTIRQ: u32 = 2;

/// Changes a side once, under its lock. A trait instead of a `dyn FnMut`: see [`Visit`](rdma::memory::Visit).
trait Happen<S> {
    /// Changes the side.
    fn happen(&mut self, side: &mut S, round: &mut Round);
}

impl<S, F: FnOnce(&mut S, &mut Round)> Happen<S> for Option<F> {
    fn happen(&mut self, side: &mut S, round: &mut Round) {
        if let Some(event) = self.take() {
            event(side, round);
        }
    }
}

/// The state that both sides have under their locks.
pub(super) struct Engine {
    /// Something happened that the owner has not looked at.
    pub(super) again: bool,
    /// [`None`] while a thread or softirq, the owner, builds batches and sends them, until there is nothing left.
    batch: Option<KBox<Batch>>,
    /// How long the side has been waiting for full queues.
    paced_since: Option<Instant>,
    /// A packet was marked on its way: the peer is to get a CNP.
    owes_cnp: bool,
    /// When that was last set.
    marked: Option<Instant>,
    /// Pages that received packets wait for.
    pub(super) incoming: Paging,
    /// Pages that packets to be sent wait for.
    pub(super) outgoing: Paging,
    /// Received packets that wait for pages.
    pub(super) waiting: Waiting,
}

impl Engine {
    /// An engine at rest, which sends with this batch.
    pub(super) fn new(batch: KBox<Batch>) -> Self {
        Self {
            again: false,
            batch: Some(batch),
            paced_since: None,
            owes_cnp: false,
            marked: None,
            incoming: Paging::default(),
            outgoing: Paging::default(),
            waiting: Waiting::default(),
        }
    }

    /// Forgets packets and accesses that wait for pages, and what the peer was to be told.
    pub(super) fn wait_no_more(&mut self, qp: &Qp) {
        self.owes_cnp = false;
        self.incoming = Paging::default();
        self.outgoing = Paging::default();
        self.waiting.clear(qp);
    }

    /// Whether a thread or softirq transmits for the side. It looks at what happened if `again` is set.
    #[inline]
    pub(super) fn has_owner(&self) -> bool {
        self.batch.is_none()
    }

    /// A packet was marked on its way.
    #[cold]
    #[inline(never)]
    fn mark(&mut self, now: Instant) {
        if self
            .marked
            .is_none_or(|last| now.since(last) >= CNP_INTERVAL)
        {
            self.owes_cnp = true;
            self.marked = Some(now);
        }
    }

    /// Builds the CNP that is owed (annex A17.9.3), but not within the device: there is no network, and nothing but a CNP goes
    /// from a send side to a send side (`demux::receive_own`). Context: bottom halves off.
    #[cold]
    #[inline(never)]
    fn build_cnp(&mut self, qp: &Qp, batch: &mut Batch) {
        self.owes_cnp = false;
        let Some(way) = qp.tx_path().filter(|way| !way.path.is_loopback()) else {
            return;
        };
        let mut packet = Packet::new(Opcode::Cnp, qp.remote_number(), Psn::new(0));
        packet.becn = true;
        packet.migrated = false;
        let built = batch.build(
            &way.path,
            &packet,
            &qp.device().registry.pages,
            Payload::None,
        );
        if built.is_ok() {
            qp.count(Counter::SentCongestionNotifications);
        }
    }

    /// Whether to wait for this machine's queues: so much is in those that `path` leads to that more would only be
    /// dropped there. Then the QP goes on when they may have drained. Queues that others empty may stay full: it waits
    /// for them no longer than [`PATIENCE_NS`], or [`STALL_NS`] if a lane fills up.
    #[inline]
    pub(super) fn waits_for_queues(&mut self, qp: &Arc<Qp>, path: Option<&Arc<Path>>) -> bool {
        let device = qp.device();
        let is_loopback = path.is_some_and(|path| path.is_loopback());
        // Nothing else bounds what waits for another CPU of this machine: unreliable services have no window.
        let is_steered_full =
            qp.is_unreliable() && !is_loopback && device.registry.steered.is_congested();
        let are_full = is_steered_full
            || match path {
                Some(path) => !is_loopback && path.route.queued_bytes() > QUEUE_LIMIT,
                None => qp.ty == Type::RawPacket && device.is_congested(),
            };
        if !are_full {
            self.paced_since = None;
            return false;
        }
        let patience = match is_steered_full && device.registry.steered.has_full_lane() {
            true => STALL_NS,
            false => PATIENCE_NS,
        };
        let now = super::now();
        let since = *self.paced_since.get_or_insert(now);
        if now.as_ns().saturating_sub(since.as_ns()) < patience {
            wait_for_queues(qp);
            return true;
        }
        self.paced_since = Some(now);
        false
    }
}

/// The machine's queues are full, or there is no memory for packets: the QP tries again after [`PACE_NS`]. A second call
/// does not move that time.
#[cold]
#[inline(never)]
pub(super) fn wait_for_queues(qp: &Arc<Qp>) {
    let time = sync::monotonic_ns().saturating_add(PACE_NS);
    qp.deadlines.set_first(qp, Deadline::Pace, time);
}

impl Qp {
    /// Has `event` happen under the lock of a side, then builds batches under the lock and sends them without
    /// it, unless somebody else is at it: then that one sees what `event` changed.
    /// Context: process or softirq, no lock held.
    pub(super) fn drive<S: Side>(self: &Arc<Self>, event: impl FnOnce(&mut S, &mut Round)) {
        // A softirq, or a thread that has to end before its packets arrive.
        let has_bh_off = sync::owns_softirq();
        self.drive_by::<S>(has_bh_off, &mut Some(event));
    }

    /// As [`Self::drive`], once for all events. If `leaves_much`, much is left to a thread.
    #[inline(never)]
    fn drive_by<S: Side>(self: &Arc<Self>, leaves_much: bool, event: &mut dyn Happen<S>) {
        let most = match leaves_much {
            true => BATCHES_IN_SOFTIRQ,
            false => S::BATCHES_PER_CALL,
        };
        // The batch, while this thread is the owner.
        let mut own: Option<KBox<Batch>> = None;
        for index in 0..most {
            // With bottom halves off a batch is answered as a burst, after its last packet.
            let bh = BhGuard::new();
            let mut round = Round::default();
            {
                let side = &mut *S::lock(self);
                if index == 0 {
                    event.happen(side, &mut round);
                }
                if own.is_none() && side.engine().has_owner() {
                    side.engine().again = true;
                } else {
                    let was_held = S::has_held(self);
                    side.engine().again = side.fetch(self);
                    // Nobody repeats UC packets that arrive out of order. So a worker sends all that has waited: its packets
                    // arrive before another thread may send for the QP.
                    let is_much = match side.engine().paced_since {
                        Some(_) => self.is_unreliable(),
                        None => side.is_long() || was_held && self.is_unreliable(),
                    };
                    let is_left = leaves_much && own.is_none() && is_much;
                    if !(is_left && S::build_in_bulk(self)) {
                        own = own.or_else(|| side.engine().batch.take());
                    }
                }
                let is_sent = match &mut own {
                    Some(batch) => {
                        if side.engine().owes_cnp {
                            side.engine().build_cnp(self, batch);
                        }
                        side.build(self, &mut round, batch);
                        batch.is_empty()
                    }
                    None => !side.engine().has_owner(),
                };
                side.settle(self, &mut round, is_sent);
                if is_sent && own.is_some() && !side.engine().again {
                    side.engine().batch = own.take();
                }
            }
            if let Some(batch) = &mut own {
                batch.send(self.device(), self.number);
            }
            round.finish::<S>(self);
            drop(bh);
            if own.is_none() {
                return;
            }
        }
        // The rest is for a thread, so that no caller works for others without end.
        S::lock(self).engine().batch = own;
        if !S::build_in_bulk(self) {
            self.kick();
        }
    }

    /// Sends what is to be sent. Context: process or softirq, no lock held.
    pub(crate) fn run_send(self: &Arc<Self>) {
        self.drive::<SendSide>(|_, _| ());
    }

    /// Goes on with responses that are not finished. Context: process or softirq, no lock held.
    pub(crate) fn run_receive(self: &Arc<Self>) {
        self.drive::<ReceiveSide>(|_, _| ());
    }

    /// Has `event` happen under the lock of a side, and sends nothing. Returns whether the caller has to have it sent.
    /// Context: process or softirq, no lock held.
    fn note<S: Side>(self: &Arc<Self>, event: impl FnOnce(&mut S, &mut Round)) -> bool {
        let mut round = Round::default();
        let has_owner = {
            let mut side = S::lock(self);
            event(&mut side, &mut round);
            let engine = side.engine();
            let has_owner = engine.has_owner();
            engine.again |= has_owner;
            side.settle(self, &mut round, !has_owner);
            has_owner
        };
        round.finish::<S>(self);
        !has_owner
    }

    /// Sends for one side, after it has taken packets in: the receive side after requests, the send side after responses.
    /// Context: process or softirq, no lock held.
    pub(crate) fn send_after(self: &Arc<Self>, requests: bool) {
        if requests {
            self.drive_by::<ReceiveSide>(true, &mut None::<fn(&mut ReceiveSide, &mut Round)>);
        } else {
            self.drive_by::<SendSide>(true, &mut None::<fn(&mut SendSide, &mut Round)>);
        }
    }

    /// Takes in packets that came together. If not `sends`, it sends nothing. Returns whether the caller has to call
    /// [`Self::send_after`] for it. Context: bottom halves off, no lock held.
    pub(crate) fn take_in_run(self: &Arc<Self>, run: Run<'_, '_>, sends: bool) -> bool {
        match run.packet.opcode.is_request() {
            true => self.take_in_each::<ReceiveSide>(run, sends),
            false => self.take_in_each::<SendSide>(run, sends),
        }
    }

    fn take_in_each<S: Side>(self: &Arc<Self>, run: Run<'_, '_>, sends: bool) -> bool {
        let each = |side: &mut S, round: &mut Round| {
            run.for_each(&mut |packet, skb| {
                // A CNP that is marked causes no other one. A UD QP cannot slow down for one of its peers.
                if packet.fecn && packet.opcode != Opcode::Cnp && !self.is_datagram() {
                    side.engine().mark(round.now());
                }
                paging::take_in(side, self, packet, skb, round);
            });
        };
        if !sends {
            return self.note(each);
        }
        self.drive(each);
        false
    }
}
