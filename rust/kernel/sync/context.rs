// SPDX-License-Identifier: GPL-2.0

//! The context that code runs in.
//!
//! C headers: [`include/linux/preempt.h`](srctree/include/linux/preempt.h),
//! [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h),
//! [`include/linux/sched/signal.h`](srctree/include/linux/sched/signal.h)

use kernel::{
    current,
    types::NotThreadSafe, //
};
use rdma_bindings as bindings;

/// Evidence that bottom halves are disabled on this CPU.
///
/// Not [`Send`], as this is a property of the CPU and the task. Guards nest. To be made and dropped with
/// interrupts on: dropping the last one runs the softirqs that became due meanwhile.
///
/// # Invariants
///
/// Bottom halves are disabled while the guard exists.
pub struct BhGuard(NotThreadSafe);

impl BhGuard {
    /// Disables bottom halves. Process or softirq context, interrupts on.
    #[inline]
    pub fn new() -> Self {
        // SAFETY: No requirements; the guard's drop is the other half.
        unsafe { bindings::local_bh_disable() };
        // INVARIANT: Just disabled; enabled again in `drop` only.
        Self(NotThreadSafe)
    }
}

impl Drop for BhGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant bottom halves were disabled by `new`, on this task, as the guard
        // is not `Send`.
        unsafe { bindings::local_bh_enable() };
    }
}

/// Keeps other threads from this CPU, but not softirqs. With `PREEMPT_RT` it does nothing, so that spinlocks can be taken.
///
/// Not [`Send`], as this is a property of the CPU and the task. Guards nest.
///
/// # Invariants
///
/// Without `PREEMPT_RT`, preemption is disabled while the guard exists.
pub struct PreemptionGuard(NotThreadSafe);

impl PreemptionGuard {
    /// Disables preemption. Any context.
    #[inline]
    pub fn new() -> Self {
        // SAFETY: No requirements; the guard's drop is the other half.
        unsafe { bindings::preempt_disable_without_rt() };
        // INVARIANT: Just disabled; enabled again in `drop` only.
        Self(NotThreadSafe)
    }
}

impl Drop for PreemptionGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant preemption was disabled by `new`, on this task, as the guard is not `Send`.
        unsafe { bindings::preempt_enable_without_rt() };
    }
}

/// Returns whether what belongs to this CPU's softirqs may be used: bottom halves are off, and this is no hard
/// interrupt. Any context.
#[inline]
pub fn owns_softirq() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::owns_softirq() }
}

/// Returns whether the current task is being killed: what it waits for is of no use to it any more. Context: process.
#[inline]
pub fn fatal_signal_pending() -> bool {
    // SAFETY: The current task exists.
    unsafe { bindings::fatal_signal_pending(current!().as_ptr()) != 0 }
}
