// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests, and whether they make sense (IBTA 9.6.1, 9.7.4.1).

use core::ops::DerefMut;

use crate::{
    dropped::DropReason,
    opcode::{
        Operation,
        Position,
        Transport, //
    },
    packet::{
        NakCode,
        Packet,
        Syndrome,
        ATOMIC_WRITE_LEN, //
    },
    pkey,
    qp::Type,
    requester::MAX_MESSAGE_LEN, //
};

use super::{
    Message,
    Negative,
    Phase,
    Resource,
    Responder,
    ResponderEvent,
    Step, //
};

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// Processes a request for this QP, in the order of arrival. The driver follows the steps to
    /// their end before it hands in the next one.
    pub fn receive(&mut self, packet: &Packet) -> Step {
        if let Some(reason) = self.objection(packet) {
            return Step::Dropped(reason);
        }
        match self.config.service {
            Type::Rc | Type::XrcTarget => {}
            Type::Uc => return self.receive_unreliable(packet),
            Type::Ud | Type::Gsi => return self.receive_datagram(packet),
            Type::RawPacket | Type::XrcInitiator => return Step::Dropped(DropReason::Opcode),
        }

        // RC and XRC: requests are executed strictly in the order of their PSNs.
        let ahead = packet.psn.diff(self.expected);
        if ahead < 0 {
            return self.duplicate(packet);
        }
        if ahead > 0 {
            // Once per gap (IBTA 9.7.5.2.8, C9-113). An RNR NAK has announced what is behind it,
            // too.
            if !self.gap_answered {
                self.gap_answered = true;
                self.nak(Syndrome::Nak(NakCode::SequenceError));
            }
            if let Some(negative) = &mut self.negative {
                let end = packet.psn.next();
                if negative
                    .dropped_end
                    .is_none_or(|before| end.is_after(before))
                {
                    negative.dropped_end = Some(end);
                }
            }
            return Step::Dropped(DropReason::SequenceGap);
        }

        self.established = true;
        let is_xrc = matches!(self.config.service, Type::XrcTarget);
        if !self.is_valid(packet) || (is_xrc && !self.keeps_to_its_srq(packet)) {
            return self.invalid(packet);
        }
        self.execute(packet)
    }

    /// Why a packet is no request for this QP, whatever came before it.
    #[inline]
    pub(super) fn objection(&self, packet: &Packet) -> Option<DropReason> {
        if !matches!(self.phase, Phase::Receiving) {
            return Some(DropReason::State);
        }
        let is_ours = matches!(
            (self.config.service, packet.opcode.transport()),
            (Type::Rc, Transport::Rc)
                | (Type::XrcTarget, Transport::Xrc)
                | (Type::Uc, Transport::Uc)
                | (Type::Ud | Type::Gsi, Transport::Ud)
        );
        if !is_ours || !packet.opcode.is_request() {
            return Some(DropReason::Opcode);
        }
        if !pkey::matches(self.config.pkey, packet.pkey) {
            return Some(DropReason::Pkey);
        }
        None
    }

    /// Whether a request of RC, XRC or UC is valid, before any key is looked at (IBTA 9.7.4.1.2 to
    /// 9.7.4.1.6, 9.8.2.2.2 to 9.8.2.2.5). That the QP does not allow for the operation is an
    /// invalid request, too.
    pub(super) fn is_valid(&self, packet: &Packet) -> bool {
        let opcode = packet.opcode;
        let len = packet.payload_len;
        let mtu = self.config.mtu.bytes();

        let operation = opcode.operation();
        let in_order = match self.message {
            Message::None => opcode.starts_message(),
            Message::Send { .. } => {
                matches!(operation, Operation::Send) && !opcode.starts_message()
            }
            Message::Write { .. } => {
                matches!(operation, Operation::Write) && !opcode.starts_message()
            }
        };
        let fits = match opcode.position() {
            Position::First | Position::Middle => len == mtu,
            Position::Last => (1..=mtu).contains(&len),
            Position::Only => len <= mtu,
        };
        let valid = match operation {
            Operation::Send => true,
            Operation::Write => {
                let left = match (self.message, packet.reth) {
                    (Message::Write { left, .. }, _) => left,
                    (_, Some(reth)) => reth.length,
                    _ => return false,
                };
                // It is as long as it says it is (IBTA 9.7.4.1.6).
                let fits = if opcode.ends_message() {
                    len == left
                } else {
                    len < left && left <= MAX_MESSAGE_LEN
                };
                self.config.access.write && fits
            }
            Operation::ReadRequest => {
                let fits = packet
                    .reth
                    .is_some_and(|reth| reth.length <= MAX_MESSAGE_LEN);
                self.config.access.read && fits && self.has_resource()
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let aligned = packet.atomic.is_some_and(|atomic| atomic.va & 7 == 0);
                self.config.access.atomic && aligned && self.has_resource()
            }
            // IBTA 1.7, A19.4.2: eight bytes, aligned.
            Operation::AtomicWrite => {
                let fits = packet
                    .reth
                    .is_some_and(|reth| reth.va & 7 == 0 && reth.length == ATOMIC_WRITE_LEN);
                self.config.access.write && fits && self.has_resource()
            }
            Operation::Flush => {
                let access = &self.config.access;
                let allowed = packet.flush.is_some_and(|flush| {
                    flush.is_valid()
                        && (access.flush_global || !flush.is_global())
                        && (access.flush_persistent || !flush.is_persistent())
                });
                allowed && self.has_resource()
            }
            _ => false,
        };
        in_order && fits && valid
    }

    /// XRC: whether the request that is expected next is for the SRQ of its message, and of the receive
    /// that has been taken for it.
    fn keeps_to_its_srq(&mut self, packet: &Packet) -> bool {
        let before = core::mem::replace(&mut self.xrc_srqn, packet.xrc_srqn);
        let is_bound = !packet.opcode.starts_message() || self.receive.is_some();
        !is_bound || packet.xrc_srqn == before
    }

    /// Whether one more READ or ATOMIC can be remembered: more than the QP allows for are an
    /// invalid request (IBTA 9.7.4.1.2).
    fn has_resource(&self) -> bool {
        self.resources
            .get(self.ring)
            .is_some_and(|oldest| !oldest.is_busy())
    }

    /// Answers the packet that is expected next with a NAK or an RNR NAK, in place of one that has not left.
    pub(super) fn nak(&mut self, syndrome: Syndrome) {
        let before = self.negative.take();
        self.negative = Some(Negative {
            psn: self.expected,
            syndrome,
            dropped_end: before.and_then(|before| before.dropped_end),
        });
    }

    /// Answers the packet that is expected next with an error, which ends the work of the queue.
    pub(super) fn refuse(&mut self, code: NakCode) {
        self.nak(Syndrome::Nak(code));
        self.phase = Phase::Failing(ResponderEvent::of_nak(code));
    }
}
