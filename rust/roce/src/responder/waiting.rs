// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests that wait for memory, and a peer that grows impatient (IBTA 9.7.5.2.8).
//!
//! While a request is parked, the peer hears nothing of it, and does not know better than to count
//! retries. So when it repeats what waits, it is told with an RNR NAK that it need not: it comes
//! again by itself, as often as it takes.
//!
//! With that NAK goes all that waits, the parked request too. None of it has been executed, and the
//! peer sends all of it again: whatever it sends now is executed once and in order, as if the packets
//! had never come. Were the parked request executed after all, its acknowledgement would contradict
//! the NAK.

use core::ops::DerefMut;

use crate::{
    dropped::DropReason,
    opcode::Operation,
    packet::{
        Packet,
        Syndrome, //
    },
    psn::Psn,
    qp::Type, //
};

use super::{
    Negative,
    Resource,
    Responder,
    Step, //
};

/// What becomes of a request that comes while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits behind the others.
    Keep,
    /// It waits for nobody: hand it in.
    Receive,
    /// It is dropped, and so are all that wait, the parked one too: the peer will be told to send
    /// them again.
    DropAll,
}

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// Looks at a request that comes after [`Step::Park`] and before the parked one is handed in
    /// again.
    pub fn arrive(&mut self, packet: &Packet) -> Arrival {
        let Some(end) = self.waiting_end else {
            return Arrival::Keep;
        };
        if self.objection(packet).is_some() {
            return Arrival::Keep;
        }
        if packet.psn.is_before(self.expected) {
            // Its answer, too, is a sign of life; and an RNR NAK would not answer a READ.
            return Arrival::Receive;
        }
        if packet.psn.is_before(end) {
            self.postpone();
            return Arrival::DropAll;
        }
        if packet.psn == end {
            self.waiting_end = Some(self.psn_after(packet));
        }
        Arrival::Keep
    }

    /// The driver cannot execute a request now.
    pub(super) fn park(&mut self, packet: &Packet) -> Step {
        if !matches!(self.config.service, Type::Rc) {
            return Step::Park;
        }
        if self.postponed.is_some() {
            // The peer has come again because of an RNR NAK. It must not take silence for loss now.
            self.postpone();
            return Step::Dropped(DropReason::NotResident);
        }
        self.waiting_end = Some(self.psn_after(packet));
        Step::Park
    }

    /// Asks the peer to send what is expected next, and all behind it, again after a while: each time
    /// twice as long, so that few retries bridge a long time, and of that at most half is wasted.
    fn postpone(&mut self) {
        let timer = match self.postponed {
            Some(timer) => longer(timer),
            None => self.config.min_rnr_timer & 0x1f,
        };
        self.postponed = Some(timer);
        self.waiting_end = None;
        // What follows is dropped without a word until the packet comes again.
        self.gap_answered = true;
        self.negative = Some(Negative {
            psn: self.expected,
            syndrome: Syndrome::Rnr { timer },
        });
    }

    /// The PSN of the request behind this one.
    fn psn_after(&self, packet: &Packet) -> Psn {
        let psns = match (packet.opcode.operation(), packet.reth) {
            (Operation::ReadRequest, Some(reth)) => self.psns_of(reth.length),
            _ => 1,
        };
        packet.psn.add(psns)
    }
}

/// The timer code of twice the time, or of the longest there is: that has code 0.
const fn longer(code: u8) -> u8 {
    match code {
        1..=29 => code.wrapping_add(2),
        _ => 0,
    }
}
