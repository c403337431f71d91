// SPDX-License-Identifier: GPL-2.0

//! When a QP is to look after itself: deadlines, and the one timer for all of them.
//!
//! Most deadlines are moved away before they pass. So the timer is started only for one that comes before all others.
//! If that was moved since, the timer fires early, and is started again.

use super::Qp;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};
use sync::{
    new_spin_lock_bh,
    SpinLockBh,
    Timer,
    TimerCallback, //
};

/// The kinds of deadlines. Each says what the QP does when one passes.
#[derive(Clone, Copy)]
pub(super) enum Deadline {
    /// Held requests are sent.
    Hold,
    /// The requester repeats what was lost.
    Protocol,
    /// A QP in error looks for receives that were posted without a system call. It may have left that state since: so
    /// the requester's deadline is another.
    Rescan,
    /// Checks again whether the machine's queues have drained.
    Pace,
    /// Checks whether the worker has begun to send, or to respond: without it, nothing might wake the QP.
    Send,
    Respond,
}

/// How many there are.
const KINDS: usize = Deadline::Respond as usize + 1;

/// Stands for no time.
const NEVER: u64 = u64::MAX;

/// The deadlines of a QP.
#[pin_data]
pub(super) struct Deadlines {
    #[pin]
    times: SpinLockBh<Times>,
    #[pin]
    timer: Timer<Qp>,
}

/// Times of the monotonic clock, in nanoseconds.
struct Times {
    due: [u64; KINDS],
    /// When the timer fires: not after any of these.
    armed: u64,
}

impl Deadlines {
    /// None is set.
    pub(super) fn new() -> impl PinInit<Self> {
        let (due, armed) = ([NEVER; KINDS], NEVER);
        pin_init!(Self {
            times <- new_spin_lock_bh!(Times { due, armed }),
            timer <- Timer::new(),
        })
    }

    /// Sets a deadline, in place of the one of its kind. Context: process or softirq.
    pub(super) fn set(&self, qp: &Arc<Qp>, deadline: Deadline, time: u64) {
        self.set_if(qp, deadline, time, |_| true);
    }

    /// As [`Self::set`], but one of the same kind that comes before it stays.
    pub(super) fn set_first(&self, qp: &Arc<Qp>, deadline: Deadline, time: u64) {
        self.set_if(qp, deadline, time, |before| time < before);
    }

    fn set_if(
        &self,
        qp: &Arc<Qp>,
        deadline: Deadline,
        time: u64,
        replaces: impl FnOnce(u64) -> bool,
    ) {
        let mut times = self.times.lock();
        let Some(due) = times.due.get_mut(deadline as usize) else {
            return;
        };
        if !replaces(*due) {
            return;
        }
        *due = time;
        if time < times.armed {
            times.armed = time;
            self.timer.start_at(qp.as_arc_borrow(), time);
        }
    }

    /// Takes out those that have passed, and starts the timer for the others. Returns which have. Context: softirq.
    fn take_passed(&self, qp: ArcBorrow<'_, Qp>) -> [bool; KINDS] {
        let now = sync::monotonic_ns();
        let mut times = self.times.lock();
        let passed = times.due.map(|due| due <= now);
        times.due = times.due.map(|due| if due <= now { NEVER } else { due });
        times.armed = times.due.into_iter().min().unwrap_or(NEVER);
        if times.armed != NEVER {
            self.timer.start_at(qp, times.armed);
        }
        passed
    }

    /// None passes any more. Context: process, no lock held.
    pub(super) fn shutdown(&self) {
        self.timer.shutdown();
    }
}

impl TimerCallback for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        // The work serves all sides that wait for the queues so far. One that waits later sets the deadline again.
        let [hold, others @ ..] = this.deadlines.take_passed(this);
        let was_held = hold && this.held_long_enough();
        if was_held || others.contains(&true) {
            Arc::from(this).kick();
        }
    }
}
