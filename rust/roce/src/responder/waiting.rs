// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests that wait for memory, and a peer that grows impatient (IBTA 9.7.5.2.8).
//!
//! While a request is parked, the peer hears nothing of it, and does not know better than to count
//! retries. So when it repeats the parked one, it is told with an RNR NAK that it need not: it comes
//! again by itself, as often as it takes.
//!
//! The parked request stays where it is, and is executed as soon as it can be, whatever the peer was
//! told. Otherwise memory that is paged out again before each repetition would never be written. A
//! request that the peer then repeats is a duplicate, and answered as one.

use core::ops::DerefMut;

use crate::{
    opcode::Operation,
    packet::{
        Packet,
        Syndrome, //
    },
    psn::Psn, //
};

use super::{
    Resource,
    Responder,
    Step, //
};

/// The treatment of a request that comes while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits behind the others.
    Keep,
    /// It waits for nobody: hand it in.
    Receive,
    /// It waits already, and is dropped.
    Duplicate,
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
            // A peer that repeats what is not answered begins with the oldest: one NAK each time.
            if packet.psn == self.expected {
                self.postpone();
            }
            return Arrival::Duplicate;
        }
        if packet.psn == end {
            self.waiting_end = Some(self.psn_after(packet));
        }
        Arrival::Keep
    }

    /// The driver cannot execute a request now.
    pub(super) fn park(&mut self, packet: &Packet) -> Step {
        if self.config.service.is_reliable() {
            let after = self.psn_after(packet);
            self.waiting_end = match self.waiting_end {
                Some(end) if after.is_before(end) => Some(end),
                _ => Some(after),
            };
        }
        Step::Park
    }

    /// The request that was expected has been executed.
    pub(super) fn waits_no_more(&mut self) {
        self.postponed = None;
        if self
            .waiting_end
            .is_some_and(|end| !self.expected.is_before(end))
        {
            self.waiting_end = None;
        }
    }

    /// Tells the peer to send what is expected next, and all behind it, again after a while: each
    /// time twice as long, so that few retries bridge a long time.
    fn postpone(&mut self) {
        let timer = match self.postponed {
            Some(timer) => longer(timer),
            None => self.config.min_rnr_timer & 0x1f,
        };
        self.postponed = Some(timer);
        self.nak(Syndrome::Rnr { timer });
    }

    /// The PSN of the request behind this one.
    #[inline]
    fn psn_after(&self, packet: &Packet) -> Psn {
        let psns = match (packet.opcode.operation(), packet.reth) {
            (Operation::ReadRequest, Some(reth)) => self.config.mtu.packets(reth.length),
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
