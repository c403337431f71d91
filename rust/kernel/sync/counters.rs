// SPDX-License-Identifier: GPL-2.0

//! Counters that CPUs do not contend for.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use core::ptr::NonNull;
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*, //
};
use rdma_bindings as bindings;

// A value is read in one piece.
const _: () = assert!(usize::BITS == 64);

/// `N` counters, each the sum of one value per CPU.
///
/// A sum taken while others add misses some of what they add, but never goes back.
///
/// # Invariants
///
/// `values` is memory of each CPU, from `alloc_percpu`, with `N` values, which others read and write only as below.
pub struct ShardedCounters<const N: usize> {
    values: NonNull<u64>,
}

// SAFETY: The memory belongs to no task or CPU in particular.
unsafe impl<const N: usize> Send for ShardedCounters<N> {}
// SAFETY: Each CPU adds to its own values, by `this_cpu_add()`, which nothing on that CPU interrupts; reading is one load.
unsafe impl<const N: usize> Sync for ShardedCounters<N> {}

impl<const N: usize> ShardedCounters<N> {
    /// Makes counters that are all zero. Process.
    pub fn new() -> Result<Self> {
        // SAFETY: No requirements: too large a size gets null.
        let values = unsafe { bindings::alloc_percpu(size_of::<[u64; N]>(), align_of::<u64>()) };
        // INVARIANT: The memory is ours, of this size, and zero.
        Ok(Self {
            values: NonNull::new(values.cast()).ok_or(ENOMEM)?,
        })
    }

    /// Adds `n` to counter `index`; there is nothing to add to beyond `N`. Any context.
    #[inline]
    pub fn add(&self, index: usize, n: u64) {
        if index < N {
            // SAFETY: There is such a value, by the type invariant.
            unsafe { bindings::this_cpu_add_u64(self.values.as_ptr().wrapping_add(index), n) };
        }
    }

    /// Returns the value of counter `index`, 0 beyond `N`. Any context.
    #[inline(never)]
    pub fn sum(&self, index: usize) -> u64 {
        if index >= N {
            return 0;
        }
        (0..nr_cpu_ids())
            // SAFETY: No requirements but that it is below `nr_cpu_ids`.
            .filter(|&cpu| unsafe { bindings::cpu_possible(cpu) })
            .fold(0, |sum: u64, cpu| {
                // SAFETY: There is such a value, by the type invariant, of each CPU that is possible.
                sum.wrapping_add(unsafe {
                    bindings::per_cpu_u64(self.values.as_ptr().wrapping_add(index), cpu)
                })
            })
    }
}

impl<const N: usize> Drop for ShardedCounters<N> {
    fn drop(&mut self) {
        // SAFETY: The memory came from `alloc_percpu`, and nobody uses it any more.
        unsafe { kernel::bindings::free_percpu(self.values.as_ptr().cast()) };
    }
}
