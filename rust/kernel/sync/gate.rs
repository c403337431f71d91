// SPDX-License-Identifier: GPL-2.0

//! Users in flight, and waiting for their end.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Completion, //
    },
};

/// Set in the state of a gate that is closed; the bits below count passes.
const CLOSED: u32 = 1 << 31;

/// Lets users in until it is closed, and lets the one who closes wait for those inside.
///
/// An object that may end while others use it holds one: each use enters it, and the end closes it. It
/// waits for uses only, never for a grace period.
#[pin_data]
pub struct Gate {
    /// [`CLOSED`] and the number of passes.
    state: Atomic<u32>,
    /// Completed, for good, when the gate is closed and nobody is inside.
    #[pin]
    empty: Completion,
}

impl Gate {
    /// Makes an open gate.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: Atomic::new(0),
            empty <- Completion::new(),
        })
    }

    /// Lets the caller in, unless the gate is closed. Any context.
    ///
    /// A caller for which [`close_and_wait`](Self::close_and_wait) may wait in process context must get out
    /// soon, and must not wait for the closer.
    #[inline]
    pub fn enter(&self) -> Option<Pass<'_>> {
        self.count_in().then(|| Pass(self))
    }

    /// Closes the gate for good: nobody enters any more. Those inside stay. Any context.
    pub fn close(&self) {
        let mut state = self.state.load(Relaxed);
        while state & CLOSED == 0 {
            match self.state.cmpxchg(state, state | CLOSED, Full) {
                Ok(_) => {
                    if state == 0 {
                        self.empty.complete_all();
                    }
                    return;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Closes the gate and waits until everybody who was inside is out. Process, and not from inside.
    #[inline(never)]
    pub fn close_and_wait(&self) {
        self.close();
        self.empty.wait_for_completion();
    }

    /// Counts a pass, if the gate is open.
    ///
    /// A closed gate's count never rises, so that it reaches zero once.
    #[inline]
    fn count_in(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        // The second condition keeps the count from running into `CLOSED`: 2^31 passes are a leak, and no
        // more of it is allowed.
        while state & CLOSED == 0 && state < CLOSED.wrapping_sub(1) {
            match self.state.cmpxchg(state, state.wrapping_add(1), Full) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Counts out a pass that was counted in.
    #[inline]
    fn count_out(&self) {
        // The gate outlives this call, although the closer may go on as soon as the count is down: the
        // caller borrows it.
        if self.state.fetch_sub(1, Full) == CLOSED.wrapping_add(1) {
            self.empty.complete_all();
        }
    }
}

/// Permission to be inside a [`Gate`], until it is dropped. Drop: any context.
#[must_use = "the pass ends when it is dropped"]
pub struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.count_out();
    }
}
