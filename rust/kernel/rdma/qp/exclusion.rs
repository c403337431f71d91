// SPDX-License-Identifier: GPL-2.0

//! Calls of a process that must not meet on one queue pair.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic, //
        },
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use rdma_bindings as bindings;

/// How often [`Exclusion::enter`] looks, and how long it sleeps in between.
const LOOKS: u32 = 50;
const PAUSE: Delta = Delta::from_millis(1);

/// The calls that wait to be the only one on a queue pair.
#[pin_data]
pub(super) struct Exclusion {
    #[pin]
    waiting: SpinLock<i32>,
}

impl Exclusion {
    /// Nobody waits.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            waiting <- new_spinlock!(0, "rdma::qp::Exclusion"),
        })
    }

    /// Waits until no other call of a process uses `qp`, but for those that wait here. Only then may a call give it
    /// another source GID: `ib_core` puts the old one and notes the new one after the driver, without a lock. Two calls
    /// at once would put the old one twice, and it would be freed in use (Documentation/upstream.rst).
    ///
    /// A second call that comes now finds this one, and waits in turn, until `ib_core` is done with this one. The targets
    /// of XRC connections are not covered: `ib_core` does not say which call they are used by.
    ///
    /// Errors: `EBUSY` if others do not end. Context: process, may sleep.
    ///
    /// # Safety
    ///
    /// `qp` must be valid, `self` its own, and this must be within a call of `ib_core`.
    pub(super) unsafe fn enter(&self, qp: *mut bindings::ib_qp) -> Result {
        // SAFETY: The caller promises that `qp` is valid; the field does not change while it is in use.
        let uobject = unsafe { (*qp).uobject }.cast::<bindings::ib_uobject>();
        if uobject.is_null() {
            return Ok(());
        }
        // The core alone knows `struct ib_uqp_object`. It begins with a `struct ib_uobject`, whose `object` is the queue
        // pair: if it is not, the struct is another one now.
        // SAFETY: So many bytes are there; they are initialised, as kzalloc() made them.
        if unsafe { (*uobject).object } != qp.cast() {
            return Ok(());
        }
        // SAFETY: It is an `atomic_t`, which the core changes by atomic operations only, and lives as long as the QP is
        // in use.
        let users = unsafe { Atomic::<i32>::from_ptr(&raw mut (*uobject).usecnt.counter) };
        self.add(1);
        for _ in 0..LOOKS {
            {
                let mut waiting = self.waiting.lock();
                // All who wait are users, and this one is no longer one who waits.
                if users.load(Acquire) <= *waiting {
                    *waiting = waiting.wrapping_sub(1);
                    return Ok(());
                }
            }
            fsleep(PAUSE);
        }
        self.add(-1);
        Err(EBUSY)
    }

    fn add(&self, change: i32) {
        let mut waiting = self.waiting.lock();
        *waiting = waiting.wrapping_add(change);
    }
}
