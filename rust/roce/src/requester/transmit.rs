// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The choice of the next action (IBTA 9.7.2, 9.7.3, 9.8.1).

use core::ops::DerefMut;

use crate::{
    outcome::Outcome,
    packet::ATOMIC_WRITE_LEN,
    qp::Type,
    status::Status,
    time::Instant, //
};

use super::{
    burst::Burst,
    Full,
    Phase,
    Requester,
    SendOperation,
    SendSlot,
    SendWr,
    MAX_BURST_LEN,
    MAX_BURST_PACKETS,
    MAX_MESSAGE_LEN,
    MAX_OUTSTANDING, //
};

/// Work requests that are looked at ahead of time.
const LOOK_AHEAD: u32 = 16;

/// A local operation waits until fewer work requests than this are before it and not complete. All that have been executed
/// complete together, and are passed over each time that the requester goes back.
const MAX_LOCAL_AHEAD: u32 = 1024;

/// A message is continued only with so many packets at a time (or all that are left of it): an
/// acknowledgement that makes room for one packet should not make us send a burst of one.
pub(super) const MIN_BURST_PACKETS: u64 = 16;

/// An action of the driver for the requester.
#[derive(Debug, PartialEq, Eq)]
pub enum SendAction {
    /// Send these packets. After `Outcome::Again`, only retransmissions of earlier packets are handed out
    /// until [`resume`](Requester::resume), or until these are acknowledged; then the same packets, or
    /// what is due by then, come again.
    Transmit(Burst),
    /// Execute a local operation. With `Outcome::Again` as above.
    Local {
        /// The work request.
        sequence: u32,
    },
}

impl SendAction {
    /// The work request.
    #[inline]
    pub fn sequence(&self) -> u32 {
        match self {
            Self::Transmit(burst) => burst.sequence,
            Self::Local { sequence } => *sequence,
        }
    }
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Queues a work request, and returns its sequence number: they count up by one and wrap
    /// around at 2^32. In the error state it is flushed.
    #[inline]
    pub fn post(&mut self, wr: SendWr) -> Result<u32, Full> {
        if self.len() >= self.capacity {
            return Err(Full);
        }
        let sequence = self.head;
        let slot = self.slot_mut(sequence).ok_or(Full)?;
        *slot = SendSlot {
            wr,
            ..SendSlot::default()
        };
        self.head = sequence.wrapping_add(1);
        Ok(sequence)
    }

    /// The next action; `None` if there is nothing to do now. Nothing advances before
    /// [`commit`](Self::commit).
    pub fn poll_action(&mut self) -> Option<SendAction> {
        if self.rnr_deadline.is_some() {
            return None;
        }
        if !matches!(self.phase, Phase::Running | Phase::Paused) {
            return None;
        }

        // An executed local operation is skipped: only requests behind it are sent again.
        while self.cursor != self.started {
            match self.slot(self.cursor) {
                Some(slot) if slot.executed => self.cursor = self.cursor.wrapping_add(1),
                _ => break,
            }
        }

        let sequence = self.cursor;
        if sequence == self.head || self.stop.is_some_and(|(stop, _)| stop == sequence) {
            return None;
        }
        let end = self
            .probe_end
            .unwrap_or(u64::MAX)
            .min(self.parked_at.unwrap_or(u64::MAX));
        let open = end.saturating_sub(self.sent);
        if open == 0 {
            return None;
        }
        if sequence == self.started {
            let wr = &self.slot(sequence)?.wr;
            if !self.may_begin(sequence, wr) {
                return None;
            }
            let (psns, refusal) = (self.psns_of(wr), self.refusal(wr));
            let first = self.sent;
            let slot = self.slot_mut(sequence)?;
            slot.first = first;
            slot.psns = psns;
            self.started = sequence.wrapping_add(1);
            if let Some(status) = refusal {
                self.refuse(sequence, status);
                return None;
            }
        }
        let slot = self.slot(sequence)?;
        let (operation, wr_length) = (slot.wr.operation, slot.wr.length);
        let (wr_first, wr_end) = (slot.first, slot.end());
        let first = self.sent;
        let left = wr_end.wrapping_sub(first);
        let shift = self.config.mtu.shift();
        let done = u32::try_from(first.wrapping_sub(wr_first)).ok()?;
        let offset = done.wrapping_shl(shift);
        let (psns, packets, length) = match operation {
            SendOperation::Local => return Some(SendAction::Local { sequence }),
            SendOperation::Read => {
                if first >= self.max_sent {
                    let window = self.responses.packets();
                    self.parts.choose(self.una, first, window);
                }
                let psns = self.parts.left(wr_first, wr_end, first);
                if !self.has_read_room() || !self.has_room(psns) || !self.has_response_room(psns) {
                    return None;
                }
                (psns, 1, 0)
            }
            SendOperation::CompareSwap
            | SendOperation::FetchAdd
            | SendOperation::Flush
            | SendOperation::AtomicWrite => {
                if !self.has_read_room() || !self.has_room(1) || self.window() == 0 {
                    return None;
                }
                let length = match operation {
                    SendOperation::AtomicWrite => ATOMIC_WRITE_LEN,
                    _ => 0,
                };
                (1, 1, length)
            }
            SendOperation::Send | SendOperation::Write => {
                // A SEND that has begun to arrive has its receive WQE. A WRITE needs none, or one for its last packet.
                let window = if wr_first < self.una {
                    self.room_of(self.requests.packets_when_ready())
                } else {
                    self.window()
                };
                if window < left.min(MIN_BURST_PACKETS) && self.in_flight() {
                    return None;
                }
                let packets = u32::try_from(left.min(window).min(open))
                    .unwrap_or(u32::MAX)
                    .min(MAX_BURST_LEN.wrapping_shr(shift))
                    .min(MAX_BURST_PACKETS);
                if packets == 0 || !self.has_room(packets) {
                    return None;
                }
                let length = wr_length
                    .saturating_sub(offset)
                    .min(packets.wrapping_shl(shift));
                (packets, packets, length)
            }
        };
        let end = first.wrapping_add(u64::from(psns));
        Some(SendAction::Transmit(Burst {
            sequence,
            offset,
            length,
            packets,
            first,
            end,
            again: first < self.max_sent,
            asks: !is_message(operation) || end < wr_end || !self.follows(sequence, psns),
        }))
    }

    /// Whether there is room for more packets, and there are messages that may be sent now and are as long as `bytes`
    /// together, out of the next few that are posted; of one that has begun, all of it counts.
    pub fn has_unsent(&self, bytes: u32) -> bool {
        let is_running = matches!(self.phase, Phase::Running | Phase::Paused);
        if !is_running
            || self.is_parked()
            || self.rnr_deadline.is_some()
            || self.window() < MIN_BURST_PACKETS
        {
            return false;
        }
        let mut sum = 0u32;
        let mut has_begun = true;
        let mut sequence = self.cursor;
        for _ in 0..LOOK_AHEAD {
            has_begun &= sequence != self.started;
            if sequence == self.head || sum >= bytes {
                break;
            }
            let Some(slot) = self.slot(sequence) else {
                break;
            };
            if !has_begun && !self.may_begin(sequence, &slot.wr) {
                break;
            }
            if is_message(slot.wr.operation) {
                sum = sum.saturating_add(slot.wr.length);
            }
            sequence = sequence.wrapping_add(1);
        }
        sum >= bytes
    }

    /// Whether the work request `sequence`, which has not begun, does not have to wait for others.
    fn may_begin(&self, sequence: u32, wr: &SendWr) -> bool {
        match wr.operation {
            _ if !matches!(self.phase, Phase::Running) => false,
            SendOperation::Local => {
                let ahead = sequence.wrapping_sub(self.oldest);
                ahead == 0 || (!wr.fence && ahead < MAX_LOCAL_AHEAD)
            }
            _ => !wr.fence || self.reads == 0,
        }
    }

    /// Number of PSNs that a work request takes.
    #[inline]
    fn psns_of(&self, wr: &SendWr) -> u32 {
        match wr.operation {
            SendOperation::Local => 0,
            SendOperation::CompareSwap
            | SendOperation::FetchAdd
            | SendOperation::Flush
            | SendOperation::AtomicWrite => 1,
            SendOperation::Send | SendOperation::Write | SendOperation::Read => {
                self.config.mtu.packets(wr.length)
            }
        }
    }

    /// Why a work request cannot be executed at all.
    fn refusal(&self, wr: &SendWr) -> Option<Status> {
        let service = self.config.service;
        let is_rc = matches!(service, Type::Rc);
        let has_reads =
            || (is_rc || matches!(service, Type::XrcInitiator)) && self.config.max_rd_atomic > 0;
        let is_supported = match wr.operation {
            SendOperation::Local => return None,
            // UC and UD have no SEND with invalidate.
            SendOperation::Send => wr.invalidate_rkey.is_none() || service.is_reliable(),
            SendOperation::Write => service.is_connected(),
            SendOperation::Read | SendOperation::CompareSwap | SendOperation::FetchAdd => {
                has_reads()
            }
            // XRC has neither of them.
            SendOperation::AtomicWrite => has_reads() && is_rc,
            SendOperation::Flush => has_reads() && is_rc && wr.flush.is_valid(),
        };
        let max = match (wr.operation, self.config.service) {
            // No payload goes by this length.
            (
                SendOperation::CompareSwap
                | SendOperation::FetchAdd
                | SendOperation::Flush
                | SendOperation::AtomicWrite,
                _,
            ) => u32::MAX,
            (_, Type::Rc | Type::Uc | Type::XrcInitiator) => MAX_MESSAGE_LEN,
            (_, Type::Ud | Type::Gsi) => self.config.mtu.bytes(),
            // These have local operations only.
            (_, Type::RawPacket | Type::XrcTarget) => return Some(Status::LocalQpOperation),
        };
        if !is_supported {
            Some(Status::LocalQpOperation)
        } else if wr.length > max {
            Some(Status::LocalLength)
        } else {
            None
        }
    }

    /// The work request `sequence` fails once everything before it is complete.
    fn refuse(&mut self, sequence: u32, status: Status) {
        if let Some((later, _)) = self.stop.replace((sequence, status)) {
            // If none of the later request was sent, it begins anew when its turn comes again.
            if self
                .slot(later)
                .is_some_and(|slot| slot.first >= self.max_sent)
            {
                self.started = later;
            }
        }
        self.settle();
    }

    /// Whether one more READ or ATOMIC may be outstanding.
    #[inline]
    fn has_read_room(&self) -> bool {
        self.reads < u32::from(self.config.max_rd_atomic)
    }

    /// Whether `psns` more READ responses may be outstanding.
    #[inline]
    fn has_response_room(&self, psns: u32) -> bool {
        let outstanding = self.read_psns.saturating_add(u64::from(psns));
        self.read_psns == 0 || outstanding <= u64::from(self.responses.packets())
    }

    /// Whether `psns` more PSNs may be outstanding.
    #[inline]
    fn has_room(&self, psns: u32) -> bool {
        let outstanding = self.sent.wrapping_sub(self.una);
        outstanding.saturating_add(u64::from(psns)) < MAX_OUTSTANDING
    }

    /// How many more request packets may be outstanding.
    #[inline]
    fn window(&self) -> u64 {
        self.room_of(self.requests.packets())
    }

    /// The same, if so many may be outstanding in all.
    fn room_of(&self, window: u32) -> u64 {
        if !self.config.service.is_reliable() {
            return u64::MAX;
        }
        let outstanding = self
            .sent
            .wrapping_sub(self.una)
            .saturating_sub(self.read_psns);
        u64::from(window).saturating_sub(outstanding)
    }

    /// Whether the work request behind `sequence`, a message, is sent at once when all of that is sent,
    /// which takes `psns` more: then the acknowledgement of the next acknowledges both, and nobody need ask for that
    /// of the first (IBTA 9.7.5.1.2).
    ///
    /// If it does not come to that in the end, a probe asks: at once ([`ask_soon`](Self::ask_soon)), or
    /// when it would ask for a lost acknowledgement.
    fn follows(&self, sequence: u32, psns: u32) -> bool {
        let next = sequence.wrapping_add(1);
        if next == self.head
            || !matches!(self.phase, Phase::Running)
            // Without a timer nobody would ask.
            || self.config.timeout.is_none()
            || self.stop.is_some()
            || self.probe_end.is_some()
            || self.is_parked()
        {
            return false;
        }
        let Some(wr) = self.slot(next).map(|slot| &slot.wr) else {
            return false;
        };
        let wanted = self.psns_of(wr);
        let least = u64::from(wanted).min(MIN_BURST_PACKETS);
        is_message(wr.operation)
            && !(wr.fence && self.reads > 0)
            && self.refusal(wr).is_none()
            && self.window() >= least.saturating_add(u64::from(psns))
            && self.has_room(psns.saturating_add(wanted))
    }

    /// If the last burst sent asked for no acknowledgement, a probe asks at once: the burst that would have
    /// asked does not follow.
    pub(super) fn ask_soon(&mut self, now: Instant) {
        if core::mem::take(&mut self.unasked) && self.deadline.is_some() {
            self.deadline = Some(now);
        }
    }

    /// Takes the outcome of an action.
    ///
    /// [`Outcome::Done`] for packets means that they are with the network, or lost on the way
    /// there: for reliable services that is a loss like any other, for UC and UD a success. An outcome other than
    /// `Done` and `Again` fails the work request, once everything before it is complete.
    pub fn commit(&mut self, now: Instant, action: SendAction, outcome: Outcome) {
        if !matches!(outcome, Outcome::Done) {
            return self.not_done(now, action.sequence(), outcome);
        }
        let burst = match &action {
            SendAction::Transmit(burst) => burst,
            SendAction::Local { sequence } => return self.executed(*sequence),
        };

        // Packets are on their way.
        let Some(slot) = self.slot_mut(burst.sequence) else {
            return;
        };
        let operation = slot.wr.operation;
        let ends = burst.end == slot.end();
        if ends {
            slot.asked = burst.asks;
        }
        let repeated = self
            .max_sent
            .saturating_sub(burst.first)
            .min(u64::from(burst.packets));
        self.counters.retransmitted_packets =
            self.counters.retransmitted_packets.wrapping_add(repeated);
        self.max_sent = self.max_sent.max(burst.end);
        self.sent = burst.end;
        if operation.is_read_or_atomic() {
            self.reads = self.reads.wrapping_add(1);
        }
        let is_read = matches!(operation, SendOperation::Read);
        if is_read {
            let psns = burst.end.wrapping_sub(burst.first);
            self.read_psns = self.read_psns.wrapping_add(psns);
        }
        if repeated == 0 {
            // The first response to a READ is the one that comes soon.
            let position = match is_read {
                true => burst.first,
                false => burst.end.saturating_sub(1),
            };
            self.round_trip.sent(now, position);
        }
        if ends {
            self.cursor = burst.sequence.wrapping_add(1);
        }
        self.unasked = !burst.asks;
        if !self.config.service.is_reliable() {
            self.una = self.sent;
            self.settle();
        } else if self.deadline.is_none() {
            // A probe does not begin the timeout anew.
            if self.probe_end.is_some() && self.resume.is_none() {
                self.await_answer(now);
            } else {
                self.start_timer(now);
            }
        }
    }

    /// The driver cannot carry out the next action, of the work request `sequence`, or not now.
    fn not_done(&mut self, now: Instant, sequence: u32, outcome: Outcome) {
        self.ask_soon(now);
        let status = match outcome {
            Outcome::Done => return,
            Outcome::Again => {
                self.parked_at = Some(self.sent);
                return;
            }
            Outcome::Protection => Status::LocalProtection,
            Outcome::Operational | Outcome::InvalidRequest => Status::LocalQpOperation,
            Outcome::Length => Status::LocalLength,
            Outcome::MemoryWindowBind => Status::MemoryWindowBind,
        };
        self.refuse(sequence, status);
    }

    /// A local operation is done.
    fn executed(&mut self, sequence: u32) {
        if let Some(slot) = self.slot_mut(sequence) {
            slot.executed = true;
        }
        self.cursor = sequence.wrapping_add(1);
        self.settle();
    }
}

/// Whether it is a SEND or WRITE.
#[inline]
const fn is_message(operation: SendOperation) -> bool {
    matches!(operation, SendOperation::Send | SendOperation::Write)
}
