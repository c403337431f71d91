// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How many request packets may be outstanding: more as long as none is lost, half as many when one is.
//!
//! What is behind a lost packet is sent again, all of it. So a window that is more than the network, or a receiver's
//! queue, has room for costs more than it gains, and where that is, nobody says.

use super::transmit::MIN_BURST_PACKETS;

/// So many packets have to be acknowledged for one more to be allowed: who has lost something has its old window back
/// after two or three of them.
const PER_PACKET: u32 = 4;

/// It gets no smaller than this by losses: as many as are sent together.
const LEAST: u32 = MIN_BURST_PACKETS as u32;

/// The window of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    packets: u32,
    most: u32,
    /// Acknowledged since it grew.
    acknowledged: u32,
    /// All before this was acknowledged.
    una: u64,
}

impl Window {
    /// Begins with so many `packets`, but one at the least, to grow up to `most`. The first position is 0.
    pub(super) fn new(packets: u32, most: u32) -> Self {
        let packets = packets.max(1);
        Self {
            packets,
            most: most.max(packets),
            acknowledged: 0,
            una: 0,
        }
    }

    /// How many packets may be outstanding.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Everything before `una` is acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, una: u64) {
        let fresh = u32::try_from(una.wrapping_sub(self.una)).unwrap_or(0);
        self.una = una;
        if self.packets >= self.most {
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(fresh);
        let more = self.acknowledged / PER_PACKET;
        self.acknowledged %= PER_PACKET;
        self.packets = self.packets.saturating_add(more).min(self.most);
    }

    /// A packet was lost.
    pub(super) fn lost(&mut self) {
        self.packets = (self.packets / 2).max(LEAST.min(self.packets));
        self.acknowledged = 0;
    }
}
