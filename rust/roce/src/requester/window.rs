// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How many packets may be outstanding: more as long as none is lost, half as many when one is. Requests have one window,
//! the READ responses that were asked for another.
//!
//! After a loss everything behind the lost packet is sent again. So a window that is larger than what the network, or the
//! receiver's queue, has room for costs more than it gains. The right size is not known in advance.
//!
//! A responder without a receive drops all of what is outstanding. So the requester then tries with one packet, and twice
//! as many after each round trip, until the window is as large as before. Requests of READs are not counted, but their
//! responses. A responder sends all that it is asked for, so READs that are asked for again while their responses wait in a
//! queue would fill that queue for ever.

use super::transmit::MIN_BURST_PACKETS;

/// The window grows by one for each so many packets that are acknowledged.
const PER_PACKET: u32 = 4;

/// Losses make the window, or what it grows back to, no smaller than this: as many packets as are sent together.
pub(super) const LEAST: u32 = MIN_BURST_PACKETS as u32;

/// A window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    packets: u32,
    most: u32,
    /// How large it was before the responder was not ready; half of that after a loss.
    before: u32,
    /// Acknowledged since it grew.
    acknowledged: u32,
    /// Positions before this were outstanding when it was halved last.
    halved_end: u64,
}

impl Window {
    /// Begins with so many `packets`, but one at the least, to grow up to `most`. The first position is 0.
    pub(super) fn new(packets: u32, most: u32) -> Self {
        let packets = packets.max(1);
        Self {
            packets,
            most: most.max(packets),
            before: 0,
            acknowledged: 0,
            halved_end: 0,
        }
    }

    /// How many packets may be outstanding.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// The same, but as if the responder had always been ready.
    #[inline]
    pub(super) fn packets_when_ready(&self) -> u32 {
        self.packets.max(self.before)
    }

    /// So many packets more are acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, fresh: u32) {
        if self.packets >= self.most {
            return;
        }
        if self.packets < self.before {
            self.packets = self.packets.saturating_add(fresh).min(self.before);
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(fresh);
        let more = self.acknowledged / PER_PACKET;
        self.acknowledged %= PER_PACKET;
        self.packets = self.packets.saturating_add(more).min(self.most);
    }

    /// A packet was lost. `end` is the position behind the last packet that is outstanding.
    pub(super) fn lost(&mut self, end: u64) {
        self.halved_end = end;
        let full = self.packets_when_ready();
        self.before = (full / 2).max(LEAST.min(full));
        self.packets = self.packets.min(self.before);
        self.acknowledged = 0;
    }

    /// The network is congested: the window is halved, as after a loss. The packets from position `una` up to `end` are
    /// outstanding. Other signs of congestion that come for these packets are ignored.
    pub(super) fn congested(&mut self, una: u64, end: u64) {
        if una >= self.halved_end {
            self.lost(end);
        }
    }

    /// The responder was not ready for a packet.
    pub(super) fn not_ready(&mut self) {
        self.before = self.before.max(self.packets);
        self.packets = 1;
    }
}
