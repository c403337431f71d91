// SPDX-License-Identifier: GPL-2.0

//! Users in flight, and waiting for their end.

use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Completion, //
};

/// Set in the state of a gate that is closed; the bits below count passes.
const CLOSED: u32 = 1 << 31;

/// Lets users in until it is closed, and lets the one who closes wait for those inside.
///
/// An object that may end while others use it holds one: each use enters it, and the end closes it. It
/// waits for uses only, never for a grace period.
#[pin_data]
pub struct Gate {
    /// [`CLOSED`] and the number of passes. Not the kernel's own type, whose operations are calls of C functions.
    state: AtomicU32,
    /// Completed, for good, when the gate is closed and nobody is inside.
    #[pin]
    empty: Completion,
}

impl Gate {
    /// Makes an open gate.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: AtomicU32::new(0),
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

    /// Closes the gate for good, and waits until everybody who was inside is out. Process, and not from inside.
    #[inline(never)]
    pub fn close_and_wait(&self) {
        // Acquire: those who are out have done all that they did inside.
        if self.state.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
            self.empty.complete_all();
        }
        self.empty.wait_for_completion();
    }

    /// Counts a pass, if the gate is open.
    ///
    /// A closed gate's count never rises, so that it reaches zero once.
    #[inline]
    fn count_in(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        // The second condition keeps the count from running into `CLOSED`: 2^31 passes are a leak, and no
        // more of it is allowed.
        while state & CLOSED == 0 && state < CLOSED.wrapping_sub(1) {
            let (inside, acquire) = (state.wrapping_add(1), Ordering::Acquire);
            match self
                .state
                .compare_exchange_weak(state, inside, acquire, Ordering::Relaxed)
            {
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
        // The last one out speaks for all who were out before.
        if self.state.fetch_sub(1, Ordering::AcqRel) == CLOSED.wrapping_add(1) {
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
