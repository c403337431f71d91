// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests that make sense are executed, step by step.

use core::ops::DerefMut;

use crate::{
    dropped::DropReason,
    opcode::Operation,
    outcome::Outcome,
    packet::{
        NakCode,
        Packet,
        Reth,
        Syndrome, //
    },
    psn::Psn,
    qp::Type,
    status::Status, //
};

use super::{
    resource::{
        Kind,
        Run, //
    },
    step::Doing,
    Action,
    AtomicOperation,
    Message,
    Negative,
    Phase,
    Receive,
    ReceiveCompletion,
    ReceiveOperation,
    Resource,
    Responder,
    ResponderEvent,
    Stage,
    Step,
    GRH_LEN,
    MSN_MASK, //
};

/// Once READs span so many PSNs, the last SEND or WRITE is not acknowledged any more: their responses did that. With 2^23 PSNs
/// in between, its own would look like one that is still to come.
const EXECUTED_MOST: u32 = 7 << 20;

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// Takes the outcome of a step. `packet` is the one that the step was for, here and below.
    pub fn commit(&mut self, stage: Stage, packet: &Packet, outcome: Outcome) -> Step {
        let Stage(doing) = stage;
        match (doing, outcome) {
            // They have an answer of their own; without it, nothing has happened.
            (Doing::Take, _) | (_, Outcome::Again) => self.park(packet),
            (_, Outcome::Done) => self.finish(packet, doing),
            (_, Outcome::InvalidRequest) => self.invalid(packet),
            (Doing::Access, Outcome::Protection) => self.access_failed(packet, true),
            (Doing::Access, _) => self.access_failed(packet, false),
            (Doing::Invalidate, _) => {
                self.fail(packet, NakCode::RemoteAccess, Status::RemoteInvalidRequest)
            }
        }
    }

    /// Answers [`Action::TakeReceive`].
    pub fn commit_receive(&mut self, _: Stage, packet: &Packet, receive: Receive) -> Step {
        match receive {
            Receive::Taken { capacity } => {
                self.receive = Some(capacity);
                self.execute(packet)
            }
            Receive::Malformed => {
                self.receive = Some(0);
                self.fail(packet, NakCode::RemoteOperational, Status::LocalQpOperation)
            }
            Receive::Invalid => self.invalid(packet),
            Receive::Empty if self.config.service.is_reliable() => {
                // Later packets are dropped without a word until this one comes again (IBTA
                // 9.7.5.2.8): also those that have waited behind it for memory, and are to come again.
                self.gap_answered = true;
                self.waiting_end = None;
                self.nak(Syndrome::Rnr {
                    timer: self.config.min_rnr_timer,
                });
                Step::Dropped(DropReason::NotReady)
            }
            Receive::Empty => {
                self.give_up(packet, DropReason::NoReceive, Status::RemoteInvalidRequest)
            }
        }
    }

    /// Answers [`Action::Atomic`] that is done: `original` stood at the address before. Any other outcome is for
    /// [`Self::commit`].
    #[inline(never)]
    pub fn commit_atomic(&mut self, _: Stage, packet: &Packet, original: u64) -> Step {
        self.remember(packet, Kind::Atomic { original }, 1)
    }

    /// Executes the packet that is expected next: finds a receive for it, if it takes one, then hands out the access to memory.
    pub(super) fn execute(&mut self, packet: &Packet) -> Step {
        let length = packet.payload_len;
        let operation = packet.opcode.operation();
        let wants_receive = matches!(operation, Operation::Send) || packet.opcode.has_immediate();
        // There is one already in the middle of a SEND, and after `Again`.
        if wants_receive && self.receive.is_none() {
            return Step::Do(Action::TakeReceive, Stage(Doing::Take));
        }
        let action = match operation {
            Operation::Send => {
                let offset = self.send_offset();
                let capacity = self.receive.unwrap_or(0);
                if offset.saturating_add(length) > capacity {
                    return self.too_long(packet);
                }
                // In front of an empty datagram there still is a GRH.
                let is_datagram = matches!(self.config.service, Type::Ud | Type::Gsi);
                if length == 0 && !is_datagram {
                    return self.finish(packet, Doing::Access);
                }
                Action::PlaceReceive { offset, length }
            }
            Operation::Write => {
                // No key is looked at for no bytes (IBTA 9.7.4.1.5, C9-88).
                if length == 0 {
                    return self.finish(packet, Doing::Access);
                }
                let (va, rkey, check_length) = match (self.message, packet.reth) {
                    (Message::Write { va, rkey, .. }, _) => (va, rkey, length),
                    (_, Some(reth)) => (reth.va, reth.rkey, reth.length),
                    _ => return Step::Dropped(DropReason::Opcode),
                };
                Action::PlaceRemote {
                    rkey,
                    va,
                    length,
                    check_length,
                }
            }
            // They have an answer of their own.
            Operation::ReadRequest => match packet.reth {
                Some(reth) if reth.length > 0 => Action::CheckRead {
                    rkey: reth.rkey,
                    va: reth.va,
                    length: reth.length,
                },
                _ => return self.finish(packet, Doing::Access),
            },
            Operation::CompareSwap | Operation::FetchAdd => match packet.atomic {
                Some(atomic) => Action::Atomic {
                    rkey: atomic.rkey,
                    va: atomic.va,
                    operation: match operation {
                        Operation::CompareSwap => AtomicOperation::CompareSwap {
                            compare: atomic.compare,
                            swap: atomic.swap_add,
                        },
                        _ => AtomicOperation::FetchAdd {
                            add: atomic.swap_add,
                        },
                    },
                },
                None => return Step::Dropped(DropReason::Opcode),
            },
            Operation::AtomicWrite => match packet.reth {
                Some(reth) => Action::AtomicWrite {
                    rkey: reth.rkey,
                    va: reth.va,
                },
                None => return Step::Dropped(DropReason::Opcode),
            },
            Operation::Flush => match (packet.flush, packet.reth) {
                (Some(flush), Some(reth)) => Action::Flush {
                    rkey: reth.rkey,
                    flush,
                    va: reth.va,
                    length: reth.length,
                },
                _ => return Step::Dropped(DropReason::Opcode),
            },
            _ => return Step::Dropped(DropReason::Opcode),
        };
        Step::Do(action, Stage(Doing::Access))
    }

    /// A stage is done. Hands out the invalidation, if there is one to come; otherwise the packet has been executed.
    fn finish(&mut self, packet: &Packet, done: Doing) -> Step {
        if let (Doing::Access, Some(rkey)) = (done, packet.invalidate_rkey) {
            return Step::Do(Action::Invalidate { rkey }, Stage(Doing::Invalidate));
        }
        let length = packet.payload_len;
        let ends = packet.opcode.ends_message();
        let (message, total, completes) = match (packet.opcode.operation(), packet.reth) {
            (Operation::ReadRequest, Some(Reth { va, rkey, length })) => {
                let kind = Kind::Read {
                    va,
                    rkey,
                    length,
                    xrc_srqn: packet.xrc_srqn,
                };
                return self.remember(packet, kind, self.config.mtu.packets(length));
            }
            // It was checked: there is a RETH. An atomic that is done is for `commit_atomic`.
            (Operation::ReadRequest, None) | (Operation::CompareSwap | Operation::FetchAdd, _) => {
                return Step::Done
            }
            (Operation::Flush, _) => return self.remember(packet, Kind::Flush, 1),
            (Operation::AtomicWrite, _) => return self.remember(packet, Kind::AtomicWrite, 1),
            (Operation::Send, _) => {
                let done = self.send_offset().saturating_add(length);
                (Message::Send { done }, done, ends)
            }
            (_, reth) => {
                let (va, rkey, left, total) = match (self.message, reth) {
                    (
                        Message::Write {
                            va,
                            rkey,
                            left,
                            length,
                        },
                        _,
                    ) => (va, rkey, left, length),
                    (_, Some(reth)) => (reth.va, reth.rkey, reth.length, reth.length),
                    _ => (0, 0, 0, 0),
                };
                let message = Message::Write {
                    va: va.wrapping_add(u64::from(length)),
                    rkey,
                    left: left.saturating_sub(length),
                    length: total,
                };
                (message, total, packet.opcode.has_immediate())
            }
        };
        self.message = if ends { Message::None } else { message };
        self.established = true;
        self.expected = packet.psn.next();
        if ends {
            self.msn = self.msn.wrapping_add(1) & MSN_MASK;
        }
        if self.config.service.is_reliable() {
            // A NAK also was an acknowledgement.
            let settled = self.settle_negative();
            self.acknowledge |= packet.ack_request || settled;
            self.executed = Some((packet.psn, self.msn));
            self.ack_pending = true;
            self.waits_no_more();
        }
        if completes {
            self.complete(packet, Status::Success, total)
        } else {
            Step::Done
        }
    }

    /// Remembers a READ or ATOMIC in the place of the oldest one, lets it be answered, and goes on behind it. Its response
    /// is the acknowledgement.
    fn remember(&mut self, packet: &Packet, kind: Kind, psns: u32) -> Step {
        let end_offset = match kind {
            Kind::Read { length, .. } => length,
            _ => 0,
        };
        // Within the valid region of PSNs there is no second one.
        let msn = self.msn.wrapping_add(1) & MSN_MASK;
        let index = self.ring;
        if let Some(resource) = self.resources.get_mut(index) {
            if resource.run.is_none() {
                self.runs = self.runs.saturating_add(1);
            }
            *resource = Resource {
                kind,
                first: packet.psn,
                psns,
                msn,
                run: Some(Run {
                    begin: 0,
                    next: 0,
                    end: psns,
                    end_offset,
                    again: false,
                }),
                answered: false,
            };
            let next = index.wrapping_add(1);
            self.ring = if next < self.resources.len() { next } else { 0 };
        }
        self.msn = msn;
        self.expected = self.expected.add(psns);
        if self.settle_negative() {
            self.acknowledge = self.executed.is_some();
        }
        let expected = self.expected;
        let is_old = |(psn, _): &mut (Psn, u32)| expected.steps_from(*psn) >= EXECUTED_MOST;
        if self.executed.take_if(is_old).is_some() {
            self.acknowledge = false;
            self.ack_pending = false;
        }
        self.waits_no_more();
        Step::Done
    }

    /// Takes a NAK back that has not left, as the packet that it asks for has been executed. Returns whether there was one.
    /// If packets behind that one were dropped, and have not come again, the NAK stays, and asks for them.
    fn settle_negative(&mut self) -> bool {
        self.gap_answered = false;
        let Some(negative) = self.negative.take() else {
            return false;
        };
        let expected = self.expected;
        let dropped_end = negative.dropped_end.filter(|end| expected.is_before(*end));
        if dropped_end.is_none() {
            return true;
        }
        self.gap_answered = true;
        self.negative = Some(Negative {
            psn: expected,
            syndrome: Syndrome::Nak(NakCode::SequenceError),
            dropped_end,
        });
        false
    }

    /// Where the payload of the next SEND packet goes.
    fn send_offset(&self) -> u32 {
        match (self.config.service, self.message) {
            (Type::Ud | Type::Gsi, _) => GRH_LEN,
            (_, Message::Send { done }) => done,
            _ => 0,
        }
    }

    /// The current receive is complete.
    #[inline]
    fn complete(&mut self, packet: &Packet, status: Status, length: u32) -> Step {
        self.receive = None;
        let ok = matches!(status, Status::Success);
        Step::Complete(ReceiveCompletion {
            status,
            operation: match packet.opcode.operation() {
                Operation::Send => ReceiveOperation::Send,
                _ => ReceiveOperation::Write,
            },
            length,
            immediate: packet.immediate.filter(|_| ok),
            invalidated_rkey: packet.invalidate_rkey.filter(|_| ok),
            solicited: packet.solicited || !ok,
        })
    }

    /// The request is invalid.
    pub(super) fn invalid(&mut self, packet: &Packet) -> Step {
        self.fail(
            packet,
            NakCode::InvalidRequest,
            Status::RemoteInvalidRequest,
        )
    }

    /// The message is longer than the receive (IBTA 9.7.4.1.6; 9.8.2.2.5, 9.8.3.2.3: UC and UD drop
    /// it). A peer must not be able to put a datagram QP into the error state, least of all QP 1.
    fn too_long(&mut self, packet: &Packet) -> Step {
        if self.config.service.is_reliable() {
            self.fail(packet, NakCode::InvalidRequest, Status::LocalLength)
        } else {
            self.give_up(packet, DropReason::TooLong, Status::LocalLength)
        }
    }

    /// UC and UD: drops the rest of the message. Its receive is kept for the next one; but one of an SRQ, which other QPs
    /// could have had, completes with `status` (IBTA 9.9.3, class E). The QP goes on.
    pub(super) fn give_up(&mut self, packet: &Packet, reason: DropReason, status: Status) -> Step {
        self.message = Message::None;
        self.expected = packet.psn.next();
        if self.config.has_srq && self.receive.is_some() {
            self.complete(packet, status, 0)
        } else {
            Step::Dropped(reason)
        }
    }

    /// Memory could not be accessed: for want of permission, or because the device failed.
    fn access_failed(&mut self, packet: &Packet, protection: bool) -> Step {
        let is_send = matches!(packet.opcode.operation(), Operation::Send);
        match (is_send, protection) {
            (true, true) => self.fail(packet, NakCode::RemoteOperational, Status::LocalProtection),
            (false, _) if matches!(self.config.service, Type::Uc) => {
                // IBTA 9.8.2.2.4: dropped without a word.
                self.give_up(packet, DropReason::Invalid, Status::LocalAccess)
            }
            (false, true) => self.fail(packet, NakCode::RemoteAccess, Status::LocalAccess),
            (_, false) => self.fail(packet, NakCode::RemoteOperational, Status::LocalQpOperation),
        }
    }

    /// Sends a NAK and ends the work of the queue. Completes the current receive if the packet, or the
    /// SEND in progress, uses it (IBTA 9.9.3).
    fn fail(&mut self, packet: &Packet, code: NakCode, status: Status) -> Step {
        let completes = self.receive.is_some()
            && (matches!(self.message, Message::Send { .. })
                || matches!(packet.opcode.operation(), Operation::Send)
                || packet.opcode.has_immediate());
        if self.config.service.is_reliable() {
            self.refuse(code);
        } else {
            self.phase = Phase::Failing(ResponderEvent::Fatal);
        }
        if completes {
            // The completion tells it all.
            self.phase = Phase::Failing(ResponderEvent::ReceiveError);
            self.complete(packet, status, 0)
        } else {
            Step::Done
        }
    }
}
