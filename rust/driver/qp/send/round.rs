// SPDX-License-Identifier: GPL-2.0

//! A round of the send side: from events to datagrams and completions.

use super::{
    super::{
        bulk::{
            self,
            BULK_SEND, //
        },
        deadlines::Deadline,
        engine::{
            wait_for_queues,
            Engine, //
        },
        paging::WaitsForPages,
        paths::TxPath,
        side::{
            Round,
            Side, //
        },
        Qp, //
    },
    SendSide, //
};
use crate::{
    memory::{
        access::{
            Access,
            Fault, //
        },
        buffer::{
            total_len,
            Cursor,
            Payload,
            Place, //
        },
        key,
        mr,
        mw, //
    },
    packet::{
        ah::Ah,
        datagram::{
            Batch,
            BuildError, //
        },
        frame::{
            FrameError,
            Frames, //
        },
        path::Path, //
    },
    queue::{
        cq::Cq,
        wqe::Local, //
    }, //
};
use core::sync::atomic::Ordering;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use rdma::{
    ah::AddressHandle,
    qp::{
        Event,
        State, //
    },
};
use roce::{
    outcome::Outcome,
    packet::Packet,
    requester::{
        Burst,
        Received,
        SendAction, //
    }, //
};
use sync::SpinLockBhGuard;

/// The most actions under one hold of the lock.
const ACTIONS_PER_BATCH: u32 = 128;

impl Side for SendSide {
    const BATCHES_PER_CALL: u32 = 16;

    #[inline]
    fn lock(qp: &Qp) -> SpinLockBhGuard<'_, Self> {
        qp.send.lock()
    }

    fn cq(qp: &Qp) -> &Arc<Cq> {
        &qp.send.cq
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn take_in(
        &mut self,
        qp: &Arc<Qp>,
        packet: &Packet,
        skb: &RxSkb,
        round: &mut Round,
    ) -> Result<(), WaitsForPages> {
        self.requester
            .set_alternate(qp.is_armed.load(Ordering::Relaxed));
        let now = round.now();
        let taken = match self.requester.receive(now, packet) {
            Received::Nothing => Ok(()),
            Received::Dropped(reason) => {
                qp.count_drop(reason);
                Ok(())
            }
            Received::Place(placement) => self.place(qp, now, placement, packet, skb),
        };
        qp.follow_migration(self);
        taken
    }

    fn resume(&mut self) {
        self.requester.resume();
    }

    fn lost(&mut self) {
        self.requester.response_lost();
    }

    fn fetch(&mut self, qp: &Qp) -> bool {
        if qp.takes_sends() {
            qp.release_held();
        }
        self.fetch_posted(qp)
    }

    fn has_held(qp: &Qp) -> bool {
        qp.has_held()
    }

    fn is_long(&self) -> bool {
        !self.is_late
            && self
                .requester
                .has_unsent(bulk::bulk_bytes(self.requester.config().mtu))
    }

    fn build_in_bulk(qp: &Arc<Qp>) -> bool {
        qp.build_in_bulk::<BULK_SEND>(&qp.send.worker, Deadline::Send)
    }

    /// Carries out what the requester asks for, until the batch is full.
    fn build(&mut self, qp: &Arc<Qp>, round: &mut Round, batch: &mut Batch) {
        self.is_late = false;
        if self.requester.is_empty() {
            return;
        }
        let now = round.now();
        // Of a connected QP, the same for all that leaves together.
        let datagram_path = self.datagram_path.as_ref().map(|(_, path)| path);
        let connected = match datagram_path {
            Some(_) => None,
            None => qp.tx_path(),
        };
        let path = datagram_path.or(connected.as_ref().map(|tx_path| &tx_path.path));
        if self.engine.waits_for_queues(qp, path) {
            return;
        }
        let mut place = Place::default();
        for _ in 0..ACTIONS_PER_BATCH {
            let room = batch.room();
            if batch.is_full() {
                return;
            }
            let Some(action) = self.requester.poll_action() else {
                return;
            };
            let outcome = match &action {
                SendAction::Transmit(burst) => self
                    .transmit(qp, burst, connected.as_ref(), &mut place, batch)
                    .unwrap_or_else(|fault| self.engine.outgoing.outcome(qp, Err(fault))),
                SendAction::Local { sequence } => {
                    let Some(frames) = &mut batch.frames else {
                        let outcome = self.perform(qp, *sequence);
                        self.requester.commit(now, action, outcome);
                        continue;
                    };
                    self.build_frame(qp, *sequence, frames)
                }
            };
            self.requester.commit(now, action, outcome);
            if matches!(outcome, Outcome::Done) && batch.room() == room {
                // No route, no memory, or a datagram that is too long for the port: without a pause all that is queued
                // would be lost in one long go, of services that no window stops.
                wait_for_queues(qp);
                return;
            }
        }
        self.engine.again = true;
    }

    /// Completes requests that have ended, and arms the timer. A request that failed or is flushed does not complete before
    /// the packets of the batch have left: none leaves after its completion. The QP fails no sooner, so that the failed
    /// request completes before the receives that are flushed for it. rdma-core's own suite relies on that.
    fn settle(&mut self, qp: &Arc<Qp>, round: &mut Round, is_sent: bool) {
        self.placing = None;
        if is_sent && self.requester.take_error().is_some() {
            round.failed = true;
            // It leaves SQD for good, and has not drained.
            self.tell_drained = false;
            self.fail_sends(qp);
        }
        let may_complete = is_sent || !(self.requester.has_error() || qp.state() == State::Error);
        round.notify |= may_complete && self.complete(qp);
        if self.tell_drained && self.is_drained() {
            self.tell_drained = false;
            round.event = Some(Event::SendQueueDrained);
        }
        self.arm(qp);
    }
}

impl SendSide {
    /// Builds the datagrams of `burst`, all or none.
    fn transmit(
        &mut self,
        qp: &Qp,
        burst: &Burst,
        connected: Option<&TxPath>,
        place: &mut Place,
        batch: &mut Batch,
    ) -> Result<Outcome, Fault> {
        let Some(head) = self.wqes.head(burst.sequence) else {
            return Ok(Outcome::Operational);
        };
        if head.refused {
            return Ok(Outcome::Operational);
        }
        let datagram;
        let tx_path = match &head.ah {
            // The port's MTU may have become smaller since the request was posted: no packet, and no error
            // (IBTA C10-93.1.1).
            Some(_) if burst.length > qp.device().mtu().bytes() => None,
            Some(ah) => {
                datagram = datagram_tx_path(&mut self.datagram_path, qp, ah);
                datagram.as_ref()
            }
            None => connected,
        };
        let Some(TxPath { path, migrated }) = tx_path else {
            // To the protocol, this is a loss in the network.
            qp.count_unsent(burst.packets);
            return Ok(Outcome::Done);
        };

        let inline = self.wqes.inline(burst.sequence);
        let buffers = self.wqes.buffers(burst.sequence);
        place.rewind();
        let mut cursor = Cursor::new(&qp.pd, buffers, Access::NONE, place);
        let before = batch.len();
        if burst.is_repeated() {
            batch.scatter();
            trace::retransmit(qp.number, burst.packets);
        }
        for index in 0..burst.packets {
            // A packet is much to move around for each one that leaves.
            let mut next = self.requester.packet(burst, index);
            let Some((packet, offset)) = &mut next else {
                break;
            };
            packet.migrated = *migrated;
            let payload = match inline {
                Some(data) => Payload::Inline(data, *offset),
                None => Payload::List(&mut cursor, u64::from(*offset)),
            };
            match batch.build(path, packet, &qp.device().registry.pages, payload) {
                Ok(()) => {}
                Err(BuildError::NoMemory) => qp.count_unsent(1),
                Err(BuildError::Payload(fault)) => {
                    batch.truncate(before);
                    return Err(fault);
                }
            }
        }
        if batch.len() > before && path.has_own_group(qp.device()) {
            batch.add_to_own_group();
        }
        Ok(Outcome::Done)
    }

    /// Carries out a request that stays on this side.
    fn perform(&self, qp: &Qp, sequence: u32) -> Outcome {
        let Some(head) = self.wqes.head(sequence).filter(|head| !head.refused) else {
            return Outcome::Operational;
        };
        let result = match &head.local {
            Some(Local::Invalidate(key)) => key::invalidate(&qp.pd, qp.number, *key, false),
            Some(Local::Bind(bind)) => mw::bind(&qp.pd, qp.number, bind),
            Some(Local::Register { mr, key, access }) => {
                mr::fast_register(&qp.pd, mr, *key, *access)
            }
            Some(Local::Frame) | None => return Outcome::Operational,
        };
        match result {
            Ok(()) => Outcome::Done,
            // That is the status of all operations that manage memory (IBTA 11.6.2).
            Err(_) => Outcome::MemoryWindowBind,
        }
    }

    /// Puts the frame of a raw packet QP's request behind `frames`.
    fn build_frame(&mut self, qp: &Arc<Qp>, sequence: u32, frames: &mut Frames) -> Outcome {
        if self.wqes.head(sequence).is_none_or(|head| head.refused) {
            return Outcome::Operational;
        }
        let buffers = self.wqes.buffers(sequence);
        let inline = self.wqes.inline(sequence);
        let len = match inline {
            Some(data) => data.len(),
            None => usize::try_from(total_len(buffers)).unwrap_or(usize::MAX),
        };
        let mut place = Place::default();
        let mut cursor = Cursor::new(&qp.pd, buffers, Access::NONE, &mut place);
        let payload = match inline {
            Some(data) => Payload::Inline(data, 0),
            None => Payload::List(&mut cursor, 0),
        };
        match frames.push(qp.device(), len, payload) {
            Ok(()) => Outcome::Done,
            Err(FrameError::Lost) => {
                qp.count_unsent(1);
                Outcome::Done
            }
            Err(FrameError::Length) => Outcome::Length,
            Err(FrameError::Payload(fault)) => self.engine.outgoing.outcome(qp, Err(fault)),
        }
    }

    /// A send request has failed: its completion, which is about to be posted, finds the QP in its new
    /// state. Of an unreliable service that is SQE: the rest of the queue is flushed, and receives go on
    /// (IBTA 10.3.1).
    fn fail_sends(&mut self, qp: &Qp) {
        let next = if qp.ty.is_reliable() {
            State::Error
        } else {
            State::Sqe
        };
        for state in [State::Rts, State::Sqd] {
            if qp.change_state(state, next) {
                break;
            }
        }
        if next == State::Sqe {
            self.flush(qp);
        }
    }

    fn arm(&mut self, qp: &Arc<Qp>) {
        self.report(qp);
        let Some(deadline) = self.requester.poll_timeout() else {
            return;
        };
        // A deadline that moved away is left to an early expiry, which arms again: acknowledgements
        // move it with each message.
        if self.armed.is_none_or(|armed| deadline < armed) {
            self.armed = Some(deadline);
            qp.deadlines.set(qp, Deadline::Protocol, deadline.as_ns());
        }
    }
}

/// The way of datagrams to `ah`.
fn datagram_tx_path(
    cached: &mut Option<(u64, Arc<Path>)>,
    qp: &Qp,
    ah: &Arc<Ah>,
) -> Option<TxPath> {
    let path = match cached {
        Some((serial, path)) if *serial == ah.serial && path.is_valid(qp.device()) => path.clone(),
        _ => {
            let path = Path::resolve(qp.device(), ah.address(), qp.number, 0, false).ok()?;
            *cached = Some((ah.serial, path.clone()));
            path
        }
    };
    // The packets of a QP that never migrates have the bit set (IBTA 17.2.8).
    Some(TxPath {
        path,
        migrated: true,
    })
}
