// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Responses (IBTA 9.7.5.1, 9.9.2).
//!
//! READ responses may be placed in any order, as each names its place with its PSN; they count only
//! in order. So what has come before its turn is neither acknowledged nor complete, and what is
//! missing before it is asked for again as ever: on the wire nothing differs. But once the gap is
//! filled, what lies behind need not come again.

use core::ops::DerefMut;

use crate::{
    dropped::DropReason,
    opcode::{
        Opcode,
        Operation,
        Transport, //
    },
    outcome::Outcome,
    packet::{
        NakCode,
        Packet,
        Syndrome, //
    },
    pkey,
    qp::Type,
    status::Status,
    time::Instant, //
};

use super::{
    ahead::MAX_AHEAD,
    Phase,
    Requester,
    SendOperation,
    SendSlot, //
};

/// The driver's task for a response.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing: it has been processed.
    Nothing,
    /// Nothing: it had no effect, or not all of the effect that it should have had.
    Dropped(DropReason),
    /// Place its data; then [`commit_place`](Requester::commit_place).
    Place(Placement),
}

/// Where the data of a response go.
#[derive(Debug, PartialEq, Eq)]
pub struct Placement {
    /// The work request. Not always the oldest READ, nor its payload in order.
    pub sequence: u32,
    /// Where in the work request's buffers, in bytes.
    pub offset: u32,
    /// How many bytes: of a READ, the whole payload of the packet. Zero for a READ of no bytes: then
    /// there is nothing to place, but the outcome is still waited for.
    pub length: u32,
    /// Of an ATOMIC: what stood at the remote address before, in native byte order. It is placed, there is no payload.
    pub original: Option<u64>,
    /// Position of the response.
    position: u64,
}

/// How many requests are looked through for the READ that a response belongs to, if the oldest one is another. A response to
/// a later READ is out of order.
const READ_LOOK_AHEAD: u32 = 32;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Processes a response: an ACK, NAK, RNR NAK, READ response or ATOMIC acknowledgement for this
    /// QP, in the order of arrival; or a CNP.
    pub fn receive(&mut self, now: Instant, packet: &Packet) -> Received {
        let opcode = packet.opcode;
        if matches!(opcode.operation(), Operation::Cnp) {
            self.congested(true);
            return Received::Nothing;
        }
        if !matches!(self.phase, Phase::Running | Phase::Paused) {
            return Received::Dropped(DropReason::State);
        }
        let is_ours = matches!(
            (self.config.service, opcode.transport()),
            (Type::Rc, Transport::Rc) | (Type::XrcInitiator, Transport::Xrc)
        );
        if !is_ours || !opcode.is_response() {
            return Received::Dropped(DropReason::Opcode);
        }
        if !pkey::matches(self.config.pkey, packet.pkey) {
            return Received::Dropped(DropReason::Pkey);
        }
        if packet.fecn && matches!(opcode.operation(), Operation::ReadResponse) {
            self.congested(false);
        }
        self.held = false;

        let Ok(ahead) = u64::try_from(packet.psn.diff(self.psn(self.una))) else {
            return Received::Dropped(DropReason::Stale);
        };
        let position = self.una.wrapping_add(ahead);
        if position >= self.max_sent {
            return Received::Dropped(DropReason::Ghost);
        }

        match (opcode.operation(), packet.aeth.map(|aeth| aeth.syndrome)) {
            (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => self.on_ack(now, position),
            (Operation::Acknowledge, Some(Syndrome::Rnr { timer })) => {
                if let Err(reason) = self.acknowledge_before(now, position) {
                    return Received::Dropped(reason);
                }
                self.not_ready(now, timer);
                Received::Nothing
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(code))) => self.on_nak(now, position, code),
            (Operation::ReadResponse, None | Some(Syndrome::Ack { .. })) => {
                self.on_read_response(now, position, packet)
            }
            (Operation::AtomicAcknowledge, Some(Syndrome::Ack { .. })) => {
                self.on_atomic(now, position, packet.atomic_ack.unwrap_or(0))
            }
            _ => Received::Dropped(DropReason::Syndrome),
        }
    }

    /// Takes the outcome of placing a response.
    ///
    /// With [`Outcome::Again`] the packet has not been processed: the driver keeps it and those
    /// behind it, and hands it in again before any other; or it says that it
    /// [could not](Self::response_lost).
    pub fn commit_place(&mut self, now: Instant, placement: Placement, outcome: Outcome) {
        let Placement { position, .. } = placement;
        let distance = position.wrapping_sub(self.una);
        match outcome {
            Outcome::Again => {
                self.held = true;
                self.restart_timer(now);
            }
            // Its turn has not come. If it fails, it is asked for again, and fails then.
            _ if distance > 0 => {
                if matches!(outcome, Outcome::Done) {
                    self.ahead.insert(distance);
                }
                self.implied_nak(now, position);
            }
            Outcome::Done => self.placed(now),
            Outcome::Protection => self.fail(Status::LocalProtection),
            Outcome::Operational
            | Outcome::InvalidRequest
            | Outcome::Length
            | Outcome::MemoryWindowBind => self.fail(Status::LocalQpOperation),
        }
    }

    /// The driver could not keep the response that [`Outcome::Again`] was about. It is lost, as if by the network: the
    /// request is sent again, and fails if nobody answers.
    pub fn response_lost(&mut self) {
        self.held = false;
    }

    /// The response at `una` is placed, or there is nothing of it to place.
    fn placed(&mut self, now: Instant) {
        self.step(now);
        self.go_on(now);
    }

    /// The READ or ATOMIC position `una` is done with.
    fn step(&mut self, now: Instant) {
        let Some(slot) = self.slot(self.oldest) else {
            return;
        };
        let is_read = matches!(slot.wr.operation, SendOperation::Read);
        let ends_request = !is_read || self.parts.left(slot.first, slot.end(), self.una) == 1;

        if self.una < self.sent {
            if is_read {
                self.read_psns = self.read_psns.saturating_sub(1);
            }
            if ends_request {
                self.reads = self.reads.saturating_sub(1);
            }
        }
        self.una = self.una.wrapping_add(1);
        self.ahead.advance(1);
        self.catch_up(self.una);
        self.progress(now, 1);
        self.settle();
    }

    /// Goes on past what has come before its turn.
    fn go_on(&mut self, now: Instant) {
        // Each time it goes on by a position at least, of at most `MAX_AHEAD`.
        while let Some(distance) = self.ahead.first() {
            let is_running = matches!(self.phase, Phase::Running | Phase::Paused);
            // It was answered, so the SENDs and WRITEs before it were executed.
            let end = self.una.wrapping_add(distance);
            if !is_running || !self.acknowledge_messages(now, end) {
                return;
            }
            if matches!(self.phase, Phase::Failed) {
                return;
            }
            self.step(now);
        }
    }

    /// Sending goes on at `end` at the earliest: the packets before are acknowledged, or still on their way.
    #[inline]
    fn catch_up(&mut self, end: u64) {
        if self.sent >= end {
            return;
        }
        self.sent = end;
        // Of what is acknowledged nothing is needed any more, whatever the driver waits for.
        self.parked_at.take_if(|parked| *parked < self.una);
        // The work request of this position. Local operations are passed once they are executed.
        while self.cursor != self.started {
            let Some(slot) = self.slot(self.cursor) else {
                return;
            };
            let is_passed = match slot.wr.operation {
                SendOperation::Local => slot.executed,
                _ => self.sent >= slot.end(),
            };
            if !is_passed {
                return;
            }
            self.cursor = self.cursor.wrapping_add(1);
        }
    }

    /// Everything before `end` is acknowledged, except for READs and ATOMICs: they are complete only
    /// with their data. Returns whether everything is.
    #[inline]
    fn acknowledge(&mut self, now: Instant, end: u64) -> bool {
        while !self.acknowledge_messages(now, end) {
            if !self.ahead.contains(0) {
                return false;
            }
            self.go_on(now);
        }
        self.go_on(now);
        true
    }

    /// As [`acknowledge`](Self::acknowledge), but stops at what has come before its turn.
    fn acknowledge_messages(&mut self, now: Instant, end: u64) -> bool {
        let mut una = self.una;
        let mut sequence = self.oldest;
        while una < end && sequence != self.started {
            let Some(slot) = self.slot(sequence) else {
                break;
            };
            if slot.wr.operation.is_read_or_atomic() {
                break;
            }
            una = una.max(slot.end().min(end));
            sequence = sequence.wrapping_add(1);
        }
        if una != self.una {
            let fresh = una.wrapping_sub(self.una);
            self.ahead.advance(fresh);
            self.una = una;
            let end = self.settle_doubt();
            self.catch_up(end);
            // CAST: Fewer than `MAX_OUTSTANDING`, by the invariants.
            self.progress(now, fresh as u32);
            self.settle();
        }
        self.una >= end
    }

    /// Something at `position` was answered, so everything before it was executed and answered.
    /// `Err` if an answer is missing, which is an implied NAK (IBTA 9.7.5.1.1).
    #[inline]
    fn acknowledge_before(&mut self, now: Instant, position: u64) -> Result<(), DropReason> {
        if self.acknowledge(now, position) {
            self.awaits(position)
        } else {
            self.implied_nak(now, position);
            Err(DropReason::OutOfOrder)
        }
    }

    /// Everything before `position` has just been acknowledged. `Err` if nothing is to be done for it any more.
    fn awaits(&self, position: u64) -> Result<(), DropReason> {
        // It may have failed a work request behind.
        if matches!(self.phase, Phase::Failed) {
            return Err(DropReason::State);
        }
        // It may have been answered before its turn.
        if self.una > position {
            return Err(DropReason::Stale);
        }
        Ok(())
    }

    /// The response to a READ or ATOMIC is missing, and something at `position` behind it was
    /// answered.
    fn implied_nak(&mut self, now: Instant, position: u64) {
        if self.una < self.recovery_end && position < self.recovery_end {
            // All of that is on its way again: it need not be missing for the second time.
            self.sign_of_life(now);
            return;
        }
        if self.recover(now) {
            self.recovery_end = self.max_sent;
            self.counters.implied_naks = self.counters.implied_naks.wrapping_add(1);
        }
    }

    fn on_ack(&mut self, now: Instant, position: u64) -> Received {
        if self.acknowledge(now, position.wrapping_add(1)) {
            return Received::Nothing;
        }
        // An ACK with the PSN of the READ or ATOMIC itself (some responders answer duplicates of
        // what was before with it) does not say that the response is on its way no more.
        let is_behind = self
            .slot(self.oldest)
            .is_some_and(|slot| position >= slot.end());
        if is_behind {
            self.implied_nak(now, position);
        }
        Received::Dropped(DropReason::OutOfOrder)
    }

    fn on_nak(&mut self, now: Instant, position: u64, code: NakCode) -> Received {
        if let Err(reason) = self.acknowledge_before(now, position) {
            return Received::Dropped(reason);
        }
        match Status::from_nak(code) {
            None => {
                if self.recover(now) {
                    self.counters.sequence_naks = self.counters.sequence_naks.wrapping_add(1);
                }
            }
            Some(status) => self.fail(status),
        }
        Received::Nothing
    }

    fn on_read_response(&mut self, now: Instant, position: u64, packet: &Packet) -> Received {
        if !self.acknowledge(now, position) {
            return self.on_early_response(now, position, packet);
        }
        if let Err(reason) = self.awaits(position) {
            return Received::Dropped(reason);
        }
        let sequence = self.oldest;
        let expected = match self.slot(sequence) {
            Some(slot) if slot.wr.operation.is_answered_empty() => {
                return self.on_empty_response(now, packet);
            }
            Some(slot) if matches!(slot.wr.operation, SendOperation::Read) => {
                self.expected_response(sequence, slot, position, packet)
            }
            _ => return self.on_bad_response(Status::BadResponse),
        };
        match expected {
            Ok(placement) => Received::Place(placement),
            Err(status) => self.on_bad_response(status),
        }
    }

    /// The response to the FLUSH or ATOMIC WRITE at `una`: there is nothing to place.
    fn on_empty_response(&mut self, now: Instant, packet: &Packet) -> Received {
        if packet.opcode != Opcode::RcReadResponseOnly {
            return self.on_bad_response(Status::BadResponse);
        }
        if packet.payload_len != 0 {
            return self.on_bad_response(Status::LocalLength);
        }
        self.placed(now);
        Received::Nothing
    }

    /// A response to a READ of which one before is missing: that one is asked for again, but this
    /// one need not be wasted, unless it is another READ's that is asked for again: what is read by
    /// the later one must not be older than what is read by that (IBTA 10.8.3.3). A response that makes no
    /// sense is dropped here: it is looked at when its turn has come.
    fn on_early_response(&mut self, now: Instant, position: u64, packet: &Packet) -> Received {
        let distance = position.wrapping_sub(self.una);
        if distance < MAX_AHEAD && !self.ahead.contains(distance) {
            if let Some((sequence, slot)) = self.find_first_read(position) {
                if let Ok(placement) = self.expected_response(sequence, &slot, position, packet) {
                    return Received::Place(placement);
                }
            }
        }
        self.implied_nak(now, position);
        Received::Dropped(DropReason::OutOfOrder)
    }

    /// The READ that a position belongs to, and its sequence number, if no other READ is before it, and fewer than
    /// `READ_LOOK_AHEAD` requests are.
    fn find_first_read(&self, position: u64) -> Option<(u32, SendSlot)> {
        let mut sequence = self.oldest;
        for _ in 0..READ_LOOK_AHEAD {
            if sequence == self.started {
                break;
            }
            let slot = self.slot(sequence)?;
            match slot.wr.operation {
                SendOperation::Read => {
                    let is_its_own = (slot.first..slot.end()).contains(&position);
                    return is_its_own.then_some((sequence, *slot));
                }
                _ if position < slot.end() => return None,
                _ => sequence = sequence.wrapping_add(1),
            }
        }
        None
    }

    /// Where the payload of a response to the READ `sequence` goes, if it is what was asked for.
    #[inline]
    fn expected_response(
        &self,
        sequence: u32,
        slot: &SendSlot,
        position: u64,
        packet: &Packet,
    ) -> Result<Placement, Status> {
        let done = position.wrapping_sub(slot.first) as u32;
        let offset = done.wrapping_shl(self.config.mtu.shift());
        let length = slot
            .wr
            .length
            .saturating_sub(offset)
            .min(self.config.mtu.bytes());
        let ends_request = self.parts.left(slot.first, slot.end(), position) == 1;
        // First and middle are not told apart, nor last and only: what was sent in answer to the
        // request before is as good as what is sent in answer to its repetition, which begins
        // elsewhere.
        if packet.opcode.ends_message() != ends_request {
            return Err(Status::BadResponse);
        }
        if packet.payload_len != length {
            return Err(Status::LocalLength);
        }
        Ok(Placement {
            sequence,
            offset,
            length,
            original: None,
            position,
        })
    }

    fn on_atomic(&mut self, now: Instant, position: u64, value: u64) -> Received {
        if let Err(reason) = self.acknowledge_before(now, position) {
            return Received::Dropped(reason);
        }
        let sequence = self.oldest;
        let is_atomic = self.slot(sequence).is_some_and(|slot| {
            matches!(
                slot.wr.operation,
                SendOperation::CompareSwap | SendOperation::FetchAdd
            )
        });
        if !is_atomic {
            return self.on_bad_response(Status::BadResponse);
        }
        Received::Place(Placement {
            sequence,
            offset: 0,
            length: 8,
            original: Some(value),
            position,
        })
    }

    /// A response that makes no sense fails the work request that it answers.
    fn on_bad_response(&mut self, status: Status) -> Received {
        self.fail(status);
        Received::Nothing
    }
}
