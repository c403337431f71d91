// SPDX-License-Identifier: GPL-2.0

//! Counters that CPUs do not contend for.

use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The counters of one CPU, on cache lines of their own.
#[repr(align(128))]
struct Shard<const N: usize>([Atomic<u64>; N]);

/// `N` counters, each the sum of one value per CPU.
///
/// A sum taken while others add misses some of what they add, but never goes back.
pub struct ShardedCounters<const N: usize> {
    shards: KVec<Shard<N>>,
}

impl<const N: usize> ShardedCounters<N> {
    /// Makes counters that are all zero. Process.
    pub fn new() -> Result<Self> {
        let cpus = usize::try_from(nr_cpu_ids())?;
        let mut shards = KVec::with_capacity(cpus, GFP_KERNEL)?;
        for _ in 0..cpus {
            let shard = Shard([const { Atomic::new(0) }; N]);
            shards.push_within_capacity(shard).map_err(|_| ENOMEM)?;
        }
        Ok(Self { shards })
    }

    /// Adds `n` to counter `index`; there is nothing to add to beyond `N`. Any context.
    #[inline(never)]
    pub fn add(&self, index: usize, n: u64) {
        // The task may move to another CPU after this: the addition is atomic, so only speed is lost.
        let shard = usize::try_from(CpuId::current().as_u32()).ok();
        if let Some(counter) = shard
            .and_then(|shard| self.shards.get(shard))
            .and_then(|shard| shard.0.get(index))
        {
            counter.fetch_add(n, Relaxed);
        }
    }

    /// Returns the value of counter `index`, 0 beyond `N`. Any context.
    #[inline(never)]
    pub fn sum(&self, index: usize) -> u64 {
        self.shards
            .iter()
            .filter_map(|shard| shard.0.get(index))
            .fold(0, |sum, counter| sum.wrapping_add(counter.load(Relaxed)))
    }
}
