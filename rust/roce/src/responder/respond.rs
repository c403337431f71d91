// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Responses, in the order of their PSNs (IBTA 9.7.5.1, 9.7.7).

use core::ops::DerefMut;

use crate::{
    opcode::Opcode,
    outcome::Outcome,
    packet::{
        Aeth,
        NakCode,
        Packet,
        Syndrome, //
    },
    psn::Psn,
    requester::MAX_BURST_LEN,
    wire::{
        aeth::CREDITS_INVALID,
        U24, //
    },
};

use super::{
    resource::Kind,
    Negative,
    Phase,
    Resource,
    Responder,
    ResponderEvent, //
};

/// The syndrome of every positive answer: we do not count credits (IBTA 9.7.7.2).
const ACK: Syndrome = Syndrome::Ack {
    credits: CREDITS_INVALID,
};

/// The response to send next.
#[derive(Debug, PartialEq)]
pub enum Response {
    /// A packet without payload: ACK, NAK, RNR NAK, ATOMIC acknowledgement, the response to FLUSH and
    /// ATOMIC WRITE. It counts as sent.
    Packet(Packet),
    /// READ responses. To be returned with [`commit_read`](Responder::commit_read); if they are dropped, they come again.
    Read(ReadBurst),
}

/// Consecutive READ responses.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadBurst {
    /// R_Key, to be checked for this burst.
    pub rkey: u32,
    /// For XRC: the number of the SRQ that the READ is for.
    pub xrc_srqn: Option<U24>,
    /// Beginning of the data.
    pub va: u64,
    /// Length of the data in bytes, at most 64 KiB; zero for a READ of no bytes, whose key is not
    /// checked.
    pub length: u32,
    /// Number of packets, at least 1.
    pub packets: u32,
    /// The peer has asked for it again.
    pub is_repeated: bool,
    /// Index of the resource.
    resource: usize,
}

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// The next response; READ responses in bursts of at most `budget` packets (but at least one).
    /// `None` if there is nothing to send, or READ responses are parked.
    ///
    /// Acknowledgements coalesce: only the newest one is sent. So this is best called once for many
    /// requests.
    pub fn poll_response(&mut self, budget: u32) -> Option<Response> {
        if self.parked {
            return None;
        }
        let oldest = self.oldest_run();
        if oldest.is_none() {
            if let Some(negative) = self.negative.take() {
                self.acknowledge = false;
                self.count(negative.syndrome);
                let Negative { psn, syndrome, .. } = negative;
                return Some(self.answer(Opcode::RcAcknowledge, psn, syndrome, self.msn, None));
            }
        }
        // Everything that has been executed: what is older than that READ or ATOMIC must not wait for it.
        let is_older =
            |(psn, _): &(Psn, u32)| oldest.is_none_or(|(_, read)| psn.is_before(read.first));
        if let Some((psn, msn)) = self.executed.filter(|_| self.acknowledge).filter(is_older) {
            self.acknowledge = false;
            self.ack_pending = false;
            return Some(self.answer(Opcode::RcAcknowledge, psn, ACK, msn, None));
        }
        let (index, resource) = oldest?;
        match resource.kind {
            Kind::Read {
                va, rkey, xrc_srqn, ..
            } => {
                let run = resource.run?;
                let shift = self.config.mtu.shift();
                let packets = run
                    .end
                    .saturating_sub(run.next)
                    .min(budget)
                    .min(MAX_BURST_LEN.wrapping_shr(shift))
                    .max(1);
                let offset = run.next.wrapping_shl(shift);
                let length = run
                    .end_offset
                    .saturating_sub(offset)
                    .min(packets.wrapping_shl(shift));
                Some(Response::Read(ReadBurst {
                    rkey,
                    xrc_srqn,
                    va: va.wrapping_add(u64::from(offset)),
                    length,
                    packets,
                    is_repeated: run.again,
                    resource: index,
                }))
            }
            Kind::Atomic { original } => {
                self.finish_run(index);
                let Resource { first, msn, .. } = resource;
                let opcode = Opcode::RcAtomicAcknowledge;
                Some(self.answer(opcode, first, ACK, msn, Some(original)))
            }
            // A READ response without data (IBTA 1.7, annex A19).
            Kind::Flush | Kind::AtomicWrite => {
                self.finish_run(index);
                let Resource { first, msn, .. } = resource;
                Some(self.answer(Opcode::RcReadResponseOnly, first, ACK, msn, None))
            }
            Kind::Free => None,
        }
    }

    /// The `index`-th packet of a burst, and where its part of the data begins, in bytes from the burst's `va`. `None`
    /// behind the last packet.
    pub fn read_packet(&self, burst: &ReadBurst, index: u32) -> Option<(Packet, u32)> {
        if index >= burst.packets {
            return None;
        }
        let resource = self.resources.get(burst.resource)?;
        let run = resource.run?;
        let number = run.next.wrapping_add(index);
        let offset = index.wrapping_shl(self.config.mtu.shift());
        let starts = number == run.begin;
        let ends = number.wrapping_add(1) == run.end;
        let opcode = match (starts, ends) {
            (true, true) => Opcode::RcReadResponseOnly,
            (true, false) => Opcode::RcReadResponseFirst,
            (false, false) => Opcode::RcReadResponseMiddle,
            (false, true) => Opcode::RcReadResponseLast,
        };
        let psn = resource.first.add(number);
        let mut packet = self.new_packet(opcode, psn);
        packet.payload_len = burst
            .length
            .saturating_sub(offset)
            .min(self.config.mtu.bytes());
        if opcode.has_aeth() {
            packet.aeth = Some(Aeth {
                syndrome: ACK,
                msn: resource.msn,
            });
        }
        Some((packet, offset))
    }

    /// Takes the outcome of READ responses. With [`Outcome::Again`] no response leaves before
    /// [`resume`](Self::resume); then the same burst, or what is due by then, comes again.
    pub fn commit_read(&mut self, burst: ReadBurst, outcome: Outcome) {
        let ReadBurst {
            resource: index,
            packets,
            ..
        } = burst;
        match outcome {
            Outcome::Done => {
                let run = self
                    .resources
                    .get_mut(index)
                    .and_then(|resource| resource.run.as_mut());
                if let Some(run) = run {
                    run.next = run.next.saturating_add(packets);
                    if run.next >= run.end {
                        self.finish_run(index);
                    }
                }
            }
            Outcome::Again => self.parked = true,
            Outcome::Protection => self.read_failed(index, NakCode::RemoteAccess),
            Outcome::InvalidRequest => self.read_failed(index, NakCode::InvalidRequest),
            Outcome::Operational | Outcome::Length | Outcome::MemoryWindowBind => {
                self.read_failed(index, NakCode::RemoteOperational)
            }
        }
    }

    /// Un-parks after [`Outcome::Again`] for READ responses.
    #[inline]
    pub fn resume(&mut self) {
        self.parked = false;
    }

    /// Whether [`resume`](Self::resume) is waited for.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// Whether READ responses can be sent, and are still to be, with at least so many bytes together.
    pub fn has_unsent(&self, bytes: u32) -> bool {
        if self.parked {
            return false;
        }
        let shift = self.config.mtu.shift();
        let mut sum = 0u32;
        // As a rule there is one, the newest.
        let runs = self
            .by_age()
            .rev()
            .filter_map(|(_, resource)| Some((resource.kind, resource.run?)));
        for (kind, run) in runs.take(self.runs as usize) {
            if let Kind::Read { .. } = kind {
                let sent = run.next.wrapping_shl(shift);
                sum = sum.saturating_add(run.end_offset.saturating_sub(sent));
            }
            if sum >= bytes {
                return true;
            }
        }
        false
    }

    /// The oldest resource that is to be answered, and its index.
    fn oldest_run(&self) -> Option<(usize, Resource)> {
        let is_due = |(_, resource): &(usize, &Resource)| resource.run.is_some();
        let oldest = match self.runs {
            0 => None,
            // The only one, and as a rule the newest resource.
            1 => self.by_age().rfind(is_due),
            _ => self.by_age().find(is_due),
        };
        oldest.map(|(index, resource)| (index, *resource))
    }

    /// All responses of a run are sent. The peer may have asked for a piece of the READ only.
    fn finish_run(&mut self, index: usize) {
        if let Some(resource) = self.resources.get_mut(index) {
            if let Some(run) = resource.run.take() {
                self.runs = self.runs.saturating_sub(1);
                resource.answered |= run.end >= resource.psns;
            }
        }
    }

    /// The data of a READ cannot be read any more.
    ///
    /// A READ that has been answered before fails without a word: its peer may well have its data,
    /// and have said so to the consumer that took the memory away.
    fn read_failed(&mut self, index: usize, code: NakCode) {
        let Some(resource) = self.resources.get(index) else {
            return;
        };
        if resource.answered {
            self.finish_run(index);
            return;
        }
        let next = resource.run.map_or(0, |run| run.next);
        let psn = resource.first.add(next);
        let receive_error = matches!(self.phase, Phase::Failing(ResponderEvent::ReceiveError));
        self.resources.fill(Resource::default());
        self.ring = 0;
        self.runs = 0;
        self.acknowledge = false;
        // Messages behind the READ may have been executed: that the MSN counts them is right.
        self.negative = Some(Negative {
            psn,
            syndrome: Syndrome::Nak(code),
            dropped_end: None,
        });
        if !receive_error {
            self.phase = Phase::Failing(ResponderEvent::of_nak(code));
        }
    }

    /// An answer without payload.
    fn answer(
        &self,
        opcode: Opcode,
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
        atomic_ack: Option<u64>,
    ) -> Response {
        let mut packet = self.new_packet(opcode, psn);
        packet.aeth = Some(Aeth { syndrome, msn });
        packet.atomic_ack = atomic_ack;
        Response::Packet(packet)
    }

    /// A response with what is the same in all of them. `opcode` is that of RC.
    fn new_packet(&self, opcode: Opcode, psn: Psn) -> Packet {
        let opcode = opcode.of_service(self.config.service).unwrap_or(opcode);
        let mut packet = Packet::new(opcode, self.config.dest_qpn, psn);
        packet.pkey = self.config.pkey;
        packet
    }

    /// Counts a NAK.
    fn count(&mut self, syndrome: Syndrome) {
        let counter = match syndrome {
            Syndrome::Rnr { .. } => &mut self.counters.rnr_naks,
            Syndrome::Nak(NakCode::SequenceError) => &mut self.counters.sequence_naks,
            _ => &mut self.counters.error_naks,
        };
        *counter = counter.wrapping_add(1);
    }
}
