// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests that nobody acknowledges: UC (IBTA 9.8.2.2) and UD (IBTA 9.8.3.2).

use core::ops::DerefMut;

use crate::{
    dropped::DropReason,
    packet::Packet,
    status::Status, //
};

use super::{
    Message,
    Resource,
    Responder,
    Step, //
};

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// UC: a message with a packet missing is dropped as a whole. If the first packet of the next message shows that, the next
    /// SEND fills the receive, also one of an SRQ; otherwise see `give_up`.
    pub(super) fn receive_unreliable(&mut self, packet: &Packet) -> Step {
        self.established = true;
        if packet.opcode.starts_message() {
            self.message = Message::None;
        } else if packet.psn != self.expected || matches!(self.message, Message::None) {
            return self.give_up(packet, DropReason::NoMessage, Status::RemoteInvalidRequest);
        }
        if !self.is_valid(packet) {
            return self.give_up(packet, DropReason::Invalid, Status::RemoteInvalidRequest);
        }
        self.execute(packet)
    }

    /// UD: one packet is one message.
    pub(super) fn receive_datagram(&mut self, packet: &Packet) -> Step {
        let Some(deth) = packet.deth else {
            return Step::Dropped(DropReason::Opcode);
        };
        if deth.qkey != self.config.qkey {
            return Step::Dropped(DropReason::Qkey);
        }
        self.established = true;
        self.execute(packet)
    }
}
