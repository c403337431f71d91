// SPDX-License-Identifier: GPL-2.0

//! RCU: ways of waiting.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use kernel::bindings;

/// Waits until every RCU reader that was there at the call is done. Process.
pub fn synchronize_rcu() {
    // SAFETY: No requirements but the context.
    unsafe { bindings::synchronize_rcu() };
}

/// Waits until every RCU callback that was queued before the call has run. Process.
///
/// A module calls this before its text goes away.
pub fn rcu_barrier() {
    // SAFETY: No requirements but the context.
    unsafe { bindings::rcu_barrier() };
}
