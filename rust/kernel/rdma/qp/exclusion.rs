// SPDX-License-Identifier: GPL-2.0

//! Calls of a process that must not meet on one queue pair.

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire, //
        Atomic,
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use rdma_bindings as bindings;

/// How often [`await_other_calls`] looks, and how long it sleeps in between.
const LOOKS: u32 = 50;
const PAUSE: Delta = Delta::from_millis(1);

/// Waits until no other call of a process uses `qp`. Only then may a call give it another source GID: `ib_core` puts
/// the old one and notes the new one after the driver, without a lock. Two calls at once would put the old one twice,
/// and it would be freed in use (Documentation/upstream.rst).
///
/// A second call that comes now finds this one, and waits in turn. The targets of XRC connections are not covered:
/// `ib_core` does not say which call they are used by.
///
/// Errors: `EBUSY` if others do not end, as two that both wait. Context: process, may sleep.
///
/// # Safety
///
/// `qp` must be valid, and this must be within a call of `ib_core`.
pub(super) unsafe fn await_other_calls(qp: *mut bindings::ib_qp) -> Result {
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
    // SAFETY: It is an `atomic_t`, which the core changes by atomic operations only, and lives as long as the QP is in
    // use.
    let users = unsafe { Atomic::<i32>::from_ptr(&raw mut (*uobject).usecnt.counter) };
    for _ in 0..LOOKS {
        if users.load(Acquire) <= 1 {
            return Ok(());
        }
        fsleep(PAUSE);
    }
    Err(EBUSY)
}
