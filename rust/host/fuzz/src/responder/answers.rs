// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Checks of the responder's answers.

use roce::{
    opcode::Operation,
    packet::{
        NakCode,
        Packet,
        Syndrome, //
    },
    requester::MAX_BURST_LEN,
    responder::{
        ReadBurst,
        Response, //
    }, //
};

use crate::packet::go_out;

use super::{
    Executed,
    Model, //
};

impl Model {
    pub(super) fn check_answer(&self, packet: &Packet) {
        go_out(packet);
        assert_eq!(packet.dest_qpn, 2);
        assert!(self.is_ours(packet.opcode));
        let aeth = packet.aeth.expect("an AETH");
        let of_psn = |executed: &&Executed| executed.psn == packet.psn;
        if packet.opcode.operation() == Operation::AtomicAcknowledge {
            let original = packet.atomic_ack;
            let is_known = self.executed.iter().filter(of_psn).any(|executed| {
                let is_atomic = matches!(
                    executed.packet.opcode.operation(),
                    Operation::CompareSwap | Operation::FetchAdd
                );
                is_atomic && Some(executed.original) == original && executed.msn == aeth.msn
            });
            assert!(is_known, "an ATOMIC that was not executed: {packet:?}");
            return;
        }
        if packet.opcode.operation() == Operation::ReadResponse {
            assert_eq!(packet.payload_len, 0);
            let is_known = self.executed.iter().filter(of_psn).any(|executed| {
                let is_empty = matches!(
                    executed.packet.opcode.operation(),
                    Operation::Flush | Operation::AtomicWrite
                );
                is_empty && executed.msn == aeth.msn
            });
            assert!(is_known, "an answer to what was not executed: {packet:?}");
            return;
        }
        assert_eq!(packet.opcode.operation(), Operation::Acknowledge);
        let last = self.executed.last();
        match aeth.syndrome {
            Syndrome::Ack { credits } => {
                assert_eq!(credits, 0x1f);
                let is_known = self
                    .executed
                    .iter()
                    .filter(of_psn)
                    .any(|executed| executed.msn == aeth.msn);
                assert!(is_known, "an ACK for what was not executed: {packet:?}");
            }
            Syndrome::Rnr { .. } | Syndrome::Nak(NakCode::SequenceError) => {
                assert_eq!((packet.psn, aeth.msn), (self.expected, self.msn));
            }
            Syndrome::Nak(_) => {
                // The model thinks that the last one was executed, or a READ has failed late.
                let is_read = self.executed.iter().any(|executed| {
                    executed.packet.opcode.operation() == Operation::ReadRequest
                        && packet.psn.steps_from(executed.psn) < executed.psns
                });
                let is_last = last.is_some_and(|last| last.psn == packet.psn);
                assert!(is_read || is_last || packet.psn == self.expected);
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn check_read(&mut self, burst: &ReadBurst, budget: u32) {
        let mtu = self.responder.config().mtu.bytes();
        let again = self.responder.poll_response(budget);
        assert!(matches!(again, Some(Response::Read(again)) if again == *burst));
        assert!(burst.packets > 0 && burst.packets <= budget.max(1));
        assert!(burst.length <= MAX_BURST_LEN);
        let mut bytes = 0;
        for index in 0..burst.packets {
            let (packet, offset) = self
                .responder
                .read_packet(burst, index)
                .expect("a READ response");
            assert_eq!(offset, bytes);
            let length = packet.payload_len;
            assert!(length <= mtu && self.is_ours(packet.opcode));
            go_out(&packet);
            bytes += length;
            if index > 0 && index + 1 < burst.packets {
                continue;
            }
            // The data of exactly this PSN.
            let va = burst.va.wrapping_add(offset.into());
            let is_known = self.executed.iter().any(|executed| {
                let number = packet.psn.steps_from(executed.psn);
                let at = u64::from(number) * u64::from(mtu);
                executed.packet.reth.is_some_and(|reth| {
                    executed.packet.opcode.operation() == Operation::ReadRequest
                        && executed.packet.xrc_srqn == burst.xrc_srqn
                        && number < executed.psns
                        && reth.rkey == burst.rkey
                        && va == reth.va.wrapping_add(at)
                        && at + u64::from(length) <= reth.length.into()
                })
            });
            assert!(is_known, "a READ that was not allowed: {packet:?}");
        }
        assert_eq!(bytes, burst.length);
        assert!(self.responder.read_packet(burst, burst.packets).is_none());
    }
}
