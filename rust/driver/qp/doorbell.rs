// SPDX-License-Identifier: GPL-2.0

//! Bursts of doorbells: the requests behind them leave together.
//!
//! A packet alone costs a pass through the stack at both ends, an acknowledgement, and mostly a wakeup. So of a
//! program that does nothing but post, requests are held in the ring until there is a batch of them. A burst is over
//! when the program takes a completion: of one that waits for each message, nothing is held.

use super::Qp;
use core::sync::atomic::Ordering;
use kernel::sync::Arc;
use rdma::qp::{
    State,
    Type, //
};

/// Doorbells of a burst after which requests are held: at first, at the least, and at the most.
const THRESHOLD_FIRST: u32 = 8;
const THRESHOLD_LEAST: u32 = 2;
const THRESHOLD_MOST: u32 = 1 << 16;
/// Held requests that leave together.
const BATCH: u32 = 32;
/// How long requests are held at the most, in nanoseconds.
const HOLD_NS: u64 = 500_000;

/// The doorbells of a QP. Belongs under [`Qp::doorbells`].
pub(super) struct Doorbells {
    /// How many the burst has so far.
    burst: u32,
    /// From how many on requests are held. A program that stops before a batch is full has to wait for the timer:
    /// each time that happens doubles it, each full batch halves it.
    threshold: u32,
    /// What the program had taken from the completion queues when the burst began.
    polled: (u32, u32),
}

impl Doorbells {
    /// No doorbell has come.
    pub(super) fn new() -> Self {
        Self {
            burst: 0,
            threshold: THRESHOLD_FIRST,
            polled: (0, 0),
        }
    }

    /// A doorbell has come, when the program had taken so many completions. Returns whether its request is to be held.
    fn ring(&mut self, polled: (u32, u32)) -> bool {
        if self.polled != polled {
            self.polled = polled;
            self.burst = 0;
        }
        self.burst = self.burst.saturating_add(1);
        self.burst > self.threshold
    }

    /// A batch is full.
    fn is_full(&mut self) {
        self.threshold = (self.threshold / 2).max(THRESHOLD_LEAST);
    }

    /// The timer has expired before a batch was full.
    fn has_expired(&mut self) {
        self.burst = 0;
        self.threshold = self.threshold.saturating_mul(2).min(THRESHOLD_MOST);
    }
}

impl Qp {
    /// Numbers that change when the program takes completions.
    fn polled(&self) -> (u32, u32) {
        let send = self.send_cq.polled();
        if Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            (send, 0)
        } else {
            (send, self.recv_cq.polled())
        }
    }

    /// A doorbell has come. Returns whether its request is held; if not, the caller sends it, and what was held before.
    /// Context: process.
    pub(super) fn holds_back(self: &Arc<Self>) -> bool {
        if self.ty != Type::Rc || self.state() != State::Rts {
            return false;
        }
        let mut doorbells = self.doorbells.lock();
        if !doorbells.ring(self.polled()) {
            return false;
        }
        let held = self.held.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        if held >= BATCH {
            doorbells.is_full();
            return false;
        }
        if held == 1 {
            self.hold.start_in(self.as_arc_borrow(), HOLD_NS);
        }
        true
    }

    /// Sends what is held, if anything. Context: process, no lock held.
    pub(super) fn send_held(self: &Arc<Self>) {
        if self.held.load(Ordering::Relaxed) != 0 {
            self.run_send();
        }
    }

    /// What is held, if anything, is about to be fetched.
    pub(super) fn release_held(&self) {
        if self.held.load(Ordering::Relaxed) != 0 {
            // What was counted before can be seen in the ring.
            self.held.swap(0, Ordering::AcqRel);
        }
    }

    /// The timer has expired. Context: softirq.
    pub(super) fn held_long_enough(self: &Arc<Self>) {
        if self.held.load(Ordering::Acquire) == 0 {
            return;
        }
        self.doorbells.lock().has_expired();
        self.kick();
    }
}
