// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Responses: those of an honest peer and any others, and the data that they bring.

use roce::{
    opcode::{
        Opcode,
        Operation, //
    },
    outcome::Outcome,
    packet::{
        Aeth,
        Packet,
        Syndrome, //
    },
    qp::Type,
    requester::{
        Received,
        SendOperation, //
    }, //
};

use super::{
    input::Answer,
    Model, //
};
use crate::any::Fate;

impl Model {
    pub(super) fn answer(&mut self, back: u8, how: Answer, fate: Option<Fate>) {
        let Some((position, operation, sequence)) =
            self.sent.iter().rev().nth(back.into()).copied()
        else {
            return;
        };
        let config = *self.requester.config();
        let psn = config.initial_psn.add(position as u32);
        let syndrome = match how {
            Answer::Good => 0x1f,
            Answer::Rnr(timer) => 0x20 | timer & 0x1f,
            Answer::Gap => 0x60,
            Answer::Refused(code) => 0x61 + code % 4,
        };
        let work = &self.works[sequence as usize];
        let mut packets = vec![(Opcode::RcAcknowledge, psn, 0)];
        if let (Answer::Good, Some(first)) = (how, work.first) {
            match operation {
                Operation::ReadRequest => {
                    let mtu = config.mtu.bytes();
                    let number = (position - first) as u32;
                    packets.clear();
                    // All of this request, if it is short.
                    for more in 0..8u32 {
                        let at = u64::from(number + more) * u64::from(mtu);
                        let left = u64::from(work.wr.length).saturating_sub(at);
                        if u64::from(number + more) >= work.psns {
                            break;
                        }
                        let length = left.min(mtu.into()) as u32;
                        let last = left <= mtu.into() || (number + more) % 128 == 127;
                        let opcode = match (more == 0, last) {
                            (true, true) => Opcode::RcReadResponseOnly,
                            (true, false) => Opcode::RcReadResponseFirst,
                            (false, false) => Opcode::RcReadResponseMiddle,
                            (false, true) => Opcode::RcReadResponseLast,
                        };
                        packets.push((opcode, psn.add(more), length));
                        if last {
                            break;
                        }
                    }
                }
                Operation::CompareSwap | Operation::FetchAdd => {
                    packets = vec![(Opcode::RcAtomicAcknowledge, psn, 0)];
                }
                Operation::Flush | Operation::AtomicWrite => {
                    packets = vec![(Opcode::RcReadResponseOnly, psn, 0)];
                }
                _ => {}
            }
        }
        for (opcode, psn, length) in packets {
            let opcode = match config.service {
                Type::XrcInitiator => Opcode::try_from(0xa0 | opcode as u8).unwrap_or(opcode),
                _ => opcode,
            };
            let mut packet = Packet::new(opcode, 1, psn);
            packet.payload_len = length;
            packet.aeth = opcode.has_aeth().then_some(Aeth {
                syndrome: Syndrome::from_byte(syndrome),
                msn: 0,
            });
            packet.atomic_ack = opcode.has_atomic_ack().then_some(9);
            self.receive(&packet, fate);
        }
    }

    pub(super) fn receive(&mut self, packet: &Packet, fate: Option<Fate>) {
        let was_over = self.flushed || self.over;
        if packet.opcode == Opcode::RcReadResponseOnly && packet.payload_len == 0 {
            self.answered.insert(packet.psn.get());
        }
        let placement = match self.requester.receive(self.now, packet) {
            Received::Nothing | Received::Dropped(_) => return,
            Received::Place(placement) => placement,
        };
        let (offset, length) = (placement.offset, placement.length);
        let work = &mut self.works[placement.sequence as usize];
        assert_eq!(placement.original, packet.atomic_ack);
        if placement.original.is_some() {
            assert!(matches!(
                work.wr.operation,
                SendOperation::CompareSwap | SendOperation::FetchAdd
            ));
            assert_eq!((offset, length), (0, 8));
        } else {
            assert_eq!(work.wr.operation, SendOperation::Read);
            assert_eq!(length, packet.payload_len);
            assert!(u64::from(offset) + u64::from(length) <= work.wr.length.into());
        }
        let mtu = self.requester.config().mtu.bytes();
        assert!(u64::from(offset / mtu) < work.handed, "not asked for");
        assert!(!was_over, "data after a flush");
        assert!(!work.completed);
        self.responses.push(*packet);
        // A response that is dropped is lost.
        let Some(fate) = fate else {
            return;
        };
        if fate.outcome() == Outcome::Done {
            work.placed.insert(offset);
        }
        self.requester
            .commit_place(self.now, placement, fate.outcome());
    }

    pub(super) fn repeat(&mut self, back: u8, fate: Fate) {
        let back = usize::from(back % 4);
        if let Some(packet) = self.responses.iter().rev().nth(back).copied() {
            self.receive(&packet, Some(fate));
        }
    }
}
