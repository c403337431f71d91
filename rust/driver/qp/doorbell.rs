// SPDX-License-Identifier: GPL-2.0

//! Bursts of doorbells: the requests behind them leave together.
//!
//! A packet alone costs a pass through the stack at both ends, an acknowledgement, and mostly a wakeup. So of a
//! program that does nothing but post, requests are held until there is a batch of them. A burst is over
//! when the program takes a completion. A program that waits for each message has nothing held.

use super::{
    deadlines::Deadline,
    send::FLUSH_ROUNDS,
    Qp, //
};
use crate::device::counters::Counter;
use core::sync::atomic::Ordering;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::qp::State;
use roce::qp::Type;

/// Doorbells of a burst after which requests are held: at first, and at the least.
const THRESHOLD_FIRST: u32 = 8;
const THRESHOLD_LEAST: u32 = 2;
/// Held requests that leave together.
const BATCH: u32 = 32;
/// How long requests are held at the most, in nanoseconds.
const HOLD_NS: u64 = 500_000;

/// The doorbells of a QP. Belongs under [`Sending::doorbells`](super::send::Sending::doorbells).
pub(super) struct Doorbells {
    /// How many the burst has so far, and how many the one before had.
    burst: u32,
    before: u32,
    /// How many bursts in a row had the length of the one before.
    repeats: u32,
    /// After so many the next burst is expected to have that length, too.
    wanted: u32,
    /// After how many doorbells requests are held in a burst of unknown length.
    threshold: u32,
    /// A batch of this burst was full.
    has_filled: bool,
    /// [`Qp::polled`] when the burst began.
    polled: (u32, u32),
}

impl Doorbells {
    /// No doorbell has come.
    pub(super) fn new() -> Self {
        Self {
            burst: 0,
            before: 0,
            repeats: 0,
            wanted: 1,
            threshold: THRESHOLD_FIRST,
            has_filled: false,
            polled: (0, 0),
        }
    }

    /// The burst is expected to be as long as the one before.
    fn has_known_length(&self) -> bool {
        self.repeats >= self.wanted
    }

    /// After how many doorbells requests are held.
    fn threshold(&self) -> u32 {
        if self.has_known_length() {
            THRESHOLD_LEAST
        } else {
            self.threshold
        }
    }

    /// The program has taken a completion.
    fn end_burst(&mut self) {
        let burst = core::mem::take(&mut self.burst);
        if burst == 0 {
            return;
        }
        let before = core::mem::replace(&mut self.before, burst);
        self.repeats = if burst == before {
            self.repeats.saturating_add(1)
        } else {
            0
        };
        if core::mem::take(&mut self.has_filled) {
            self.threshold = (self.threshold / 2).max(THRESHOLD_LEAST);
        }
    }

    /// Requests were held until the timer fired: the program has stopped, and may have waited in vain.
    fn timer_fired(&mut self) {
        if self.has_known_length() {
            self.wanted = self.wanted.saturating_mul(2);
        } else {
            self.threshold = self.threshold.saturating_mul(2);
        }
        self.repeats = 0;
        self.has_filled = false;
    }
}

impl Qp {
    /// Numbers that change when the program takes completions.
    fn polled(&self) -> (u32, u32) {
        let send = self.send.cq.polled();
        if Arc::ptr_eq(&self.send.cq, &self.receive.cq) {
            (send, 0)
        } else {
            (send, self.receive.cq.polled())
        }
    }

    /// librxe's doorbell: send requests were put into the shared ring. Errors: `EINVAL` in RESET, INIT and RTR.
    /// Context: process.
    pub(super) fn ring_doorbell(self: &Arc<Self>) -> Result {
        let Some(_pass) = self.gate.enter() else {
            return Err(EINVAL);
        };
        if !self.takes_sends() {
            let mut send = self.send.lock();
            // The state changes under this lock. If it just has, requests of other threads may be in the ring.
            if !self.takes_sends() {
                send.discard(self);
                return Err(EINVAL);
            }
        }
        trace::post_send(self.number);
        self.send.worker.move_here();
        if self.is_datagram() {
            self.fetch_datagrams();
        }
        if !self.holds_back() {
            self.run_send();
        }
        Ok(())
    }

    /// Copies what was posted out of the ring. A program may destroy the AH of a datagram that it takes for sent, and it may
    /// be that another thread sends it, later. Context: process, no lock held.
    fn fetch_datagrams(&self) {
        for _ in 0..FLUSH_ROUNDS {
            if !self.send.lock().fetch_posted(self) {
                return;
            }
        }
    }

    /// A doorbell has come. Returns whether its request is held; if not, the caller sends it, and what was held before.
    /// Context: process.
    fn holds_back(self: &Arc<Self>) -> bool {
        if self.ty == Type::RawPacket || self.state() != State::Rts {
            return false;
        }
        let doorbells = &mut *self.send.doorbells.lock();
        let polled = self.polled();
        if doorbells.polled != polled {
            doorbells.polled = polled;
            doorbells.end_burst();
        }
        doorbells.burst = doorbells.burst.saturating_add(1);
        if doorbells.burst <= doorbells.threshold() {
            return false;
        }
        let held = self
            .send
            .held
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1);
        doorbells.has_filled |= held >= BATCH;
        if held >= BATCH || doorbells.burst == doorbells.before {
            // If it was the only one, something else has sent those before: that the burst goes on says nothing.
            if held > 1 && doorbells.has_known_length() {
                doorbells.wanted = 1;
            }
            return false;
        }
        if held == 1 {
            let time = sync::monotonic_ns().saturating_add(HOLD_NS);
            self.deadlines.set(self, Deadline::Hold, time);
        }
        true
    }

    /// Whether requests are held. Context: any.
    #[inline]
    pub(super) fn has_held(&self) -> bool {
        self.send.held.load(Ordering::Relaxed) != 0
    }

    /// No request is held any more: the caller is about to send them all.
    pub(super) fn release_held(&self) {
        if self.has_held() {
            // Acquire: the requests that were counted can be seen in the ring.
            self.send.held.swap(0, Ordering::AcqRel);
        }
    }

    /// The deadline has passed. Returns whether anything is held. Context: softirq.
    pub(super) fn held_long_enough(&self) -> bool {
        let is_held = self.send.held.load(Ordering::Acquire) != 0;
        if is_held {
            self.send.doorbells.lock().timer_fired();
            self.count(Counter::HoldTimeout);
        }
        is_held
    }
}
