// SPDX-License-Identifier: GPL-2.0

//! Doorbells that follow one upon the other: the requests behind them leave together.
//!
//! A packet alone costs a pass through the stack at both ends, an acknowledgement, and mostly a wakeup. So
//! of a program that does nothing but post, the requests are held back until there are some; of one that
//! waits for anything in between, never.

use super::Qp;
use core::sync::atomic::Ordering;
use kernel::sync::Arc;
use rdma::qp::{
    State,
    Type, //
};

/// Doorbells in a row after which requests are held back: at the least, first, and at most.
const ROW_LEAST: u32 = 2;
const ROW_FIRST: u32 = 8;
const ROW_LAST: u32 = 1 << 16;
/// Rows of one length that follow one another, after which the next is taken to be like them.
const ALIKE: u32 = 4;
/// Doorbells after which what is held back leaves.
const HELD_MAX: u32 = 32;
/// What a doorbell takes whose request leaves at once, in nanoseconds: at the least, at first, and at the most.
const EFFORT_LEAST_NS: u64 = 1_000;
const EFFORT_FIRST_NS: u64 = 10_000;
const EFFORT_MOST_NS: u64 = 100_000;
/// A doorbell that comes so many times that long after the end of the one before does not belong to its row.
const BREAK: u64 = 4;
/// What is held back leaves after so many times that long anyway.
const HOLD: u64 = 8;

/// The doorbells of a QP. Belongs under [`Qp::doorbells`].
pub(super) struct Doorbells {
    /// How many came in a row, and from which number on requests are held back. Who stops before there
    /// are enough to leave has to wait for the timer: that is not to happen often.
    row: u32,
    patience: u32,
    /// How many the row before had, and how many before it had as many. At that length the row may be at its end:
    /// what is held back leaves.
    expected: u32,
    alike: u32,
    /// When the last one began, and whether others leave with it.
    begin: u64,
    releases: bool,
    /// How long those take that leave alone, in nanoseconds, on the average of the last ones. All times are measured by
    /// that: what is long on one machine is short on another, and a program that sends at a pace of its own is told
    /// from one that sends as fast as it can.
    effort: u64,
    /// When the last one ended.
    end: u64,
    /// What the program had taken from the completion queues when the row began.
    polled: (u32, u32),
    /// When what is held back leaves at the latest.
    due: u64,
    /// The timer will expire.
    armed: bool,
}

impl Doorbells {
    /// No doorbell has come.
    pub(super) fn new() -> Self {
        Self {
            row: 0,
            patience: ROW_FIRST,
            expected: 0,
            alike: 0,
            begin: 0,
            releases: false,
            effort: EFFORT_FIRST_NS,
            end: 0,
            polled: (0, 0),
            due: 0,
            armed: false,
        }
    }

    /// A doorbell has come. Returns whether its request may be held back.
    fn ring(&mut self, qp: &Qp, now: u64) -> bool {
        if now.saturating_sub(self.end) > self.effort.saturating_mul(BREAK) {
            self.end_row();
        }
        self.begin = now;
        self.releases = false;
        self.end = now;
        if self.row == 0 || self.row >= self.patience {
            let polled = qp.polled();
            if polled != self.polled {
                self.polled = polled;
                self.end_row();
            }
        }
        self.row = self.row.saturating_add(1);
        // One that is a little longer than the one before may end any time.
        let longer = self.expected.saturating_add(self.expected / 4);
        let may_end = self.row > self.expected && self.row <= longer.max(ROW_FIRST);
        self.row > self.patience && !may_end
    }

    /// A row is at its end.
    fn end_row(&mut self) {
        let row = core::mem::take(&mut self.row);
        if row == 0 {
            return;
        }
        if row != self.expected {
            self.expected = row;
            self.alike = 0;
            return;
        }
        self.alike = self.alike.saturating_add(1);
        // Of short rows nothing would be held back.
        if self.alike >= ALIKE && row > self.patience / 2 {
            self.be_bolder();
        }
    }

    /// Holding back has been worth it, or will be.
    fn be_bolder(&mut self) {
        self.patience = (self.patience / 2).max(ROW_LEAST);
    }

    /// The doorbell has ended, and was not held back.
    fn ended(&mut self, now: u64) {
        self.end = now;
        if self.releases {
            return;
        }
        // One among many that was interrupted does not count for much.
        let took = now
            .saturating_sub(self.begin)
            .min(self.effort.saturating_mul(2));
        let sum = self.effort.saturating_mul(7).saturating_add(took);
        self.effort = (sum / 8).clamp(EFFORT_LEAST_NS, EFFORT_MOST_NS);
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

    /// A doorbell has come. Returns whether there is nothing to be done now. Context: process.
    pub(super) fn holds_back(self: &Arc<Self>) -> bool {
        if self.ty != Type::Rc || self.state() != State::Rts {
            return false;
        }
        let now = sync::monotonic_ns();
        let mut doorbells = self.doorbells.lock();
        if !doorbells.ring(self, now) {
            return false;
        }
        let held = self.held.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let is_full = held >= HELD_MAX;
        if is_full {
            doorbells.be_bolder();
        }
        if is_full || doorbells.row == doorbells.expected {
            doorbells.releases = true;
            return false;
        }
        if held == 1 {
            doorbells.due = now.saturating_add(doorbells.effort.saturating_mul(HOLD));
        }
        // Whoever counts finds the timer armed, or arms it; it is disarmed when nobody has counted.
        if !doorbells.armed {
            doorbells.armed = true;
            self.hold.start_at(self.as_arc_borrow(), doorbells.due);
        }
        true
    }

    /// A doorbell ends that was not held back. Context: process.
    pub(super) fn doorbell_ended(&self) {
        if self.ty == Type::Rc {
            self.doorbells.lock().ended(sync::monotonic_ns());
        }
    }

    /// Sends what is held back, if anything. Context: process, no lock held.
    pub(super) fn send_held(self: &Arc<Self>) {
        if self.held.load(Ordering::Relaxed) != 0 {
            self.run_send();
        }
    }

    /// What is held back, if anything, is about to be fetched.
    pub(super) fn release_held(&self) {
        if self.held.load(Ordering::Relaxed) != 0 {
            // What was counted before can be seen in the ring.
            self.held.swap(0, Ordering::AcqRel);
        }
    }

    /// The timer has expired. Context: softirq.
    pub(super) fn held_long_enough(self: &Arc<Self>) {
        {
            let mut doorbells = self.doorbells.lock();
            doorbells.armed = false;
            if self.held.load(Ordering::Acquire) == 0 {
                return;
            }
            if sync::monotonic_ns() < doorbells.due {
                doorbells.armed = true;
                self.hold.start_at(self.as_arc_borrow(), doorbells.due);
                return;
            }
            doorbells.end_row();
            doorbells.patience = doorbells.patience.saturating_mul(2).min(ROW_LAST);
        }
        self.kick();
    }
}
