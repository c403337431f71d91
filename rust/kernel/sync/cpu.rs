// SPDX-License-Identifier: GPL-2.0

//! CPUs that work can be given to.
//!
//! C headers: [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h),
//! [`include/linux/sched/isolation.h`](srctree/include/linux/sched/isolation.h)

use crate::context::BhGuard;
use core::marker::PhantomData;
use kernel::cpu::{
    nr_cpu_ids,
    CpuId, //
};
use rdma_bindings as bindings;

/// A CPU that is online, and stays so for as long as this one has bottom halves off: none goes without all others
/// taking part. (With `PREEMPT_RT` it may go. Work that was queued on it runs all the same.)
///
/// # Invariants
///
/// `number` is that of such a CPU.
pub struct Cpu<'a> {
    number: u32,
    _bh: PhantomData<&'a BhGuard>,
}

impl<'a> Cpu<'a> {
    /// Returns the CPU with a number; [`None`] if it is not online. Bottom halves off.
    #[inline]
    pub fn numbered(number: u32, _bh: &'a BhGuard) -> Option<Self> {
        // SAFETY: This is the number of a CPU that might be there.
        let is_online = number < nr_cpu_ids() && unsafe { bindings::cpu_online(number) };
        // INVARIANT: Just seen.
        is_online.then_some(Self {
            number,
            _bh: PhantomData,
        })
    }

    /// Returns a CPU other than this one, out of those that are not kept free of others' work (`isolcpus`); [`None`] if
    /// there is none. For one `spread` always the same, if it can be; for different ones different CPUs. Bottom halves
    /// off.
    #[inline]
    pub fn other(spread: u32, _bh: &'a BhGuard) -> Option<Self> {
        let own = CpuId::current().as_u32();
        let start = own.wrapping_add(spread) % nr_cpu_ids().max(1);
        // SAFETY: This is the number of a CPU that might be there.
        let mut number = unsafe { bindings::next_housekeeping_cpu(start) };
        if number == own {
            // SAFETY: As above.
            number = unsafe { bindings::next_housekeeping_cpu(own) };
        }
        // INVARIANT: One of those that are online, if it is a CPU at all.
        (number != own && number < nr_cpu_ids()).then_some(Self {
            number,
            _bh: PhantomData,
        })
    }

    /// Returns its number.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Returns how many memory nodes the machine has now, at least 1. Any context.
pub fn online_nodes() -> u32 {
    // SAFETY: It reads a bitmap, or is a constant.
    let count = unsafe { bindings::num_online_nodes() };
    u32::try_from(count).unwrap_or(1).max(1)
}
