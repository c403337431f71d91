// SPDX-License-Identifier: GPL-2.0

//! Pages for the payloads of packets.
//!
//! C header: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h)

use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings as kernel_bindings,
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*, //
};
use rdma_bindings as bindings;
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// As many pools as there are CPUs, but so many at the most: then some share one.
const MOST_POOLS: u32 = 16;

/// Pages that come back when packets are freed, and are handed out again as they are: the page allocator clears each
/// page that it hands out. For each CPU a pool.
///
/// What they have had at once, up to as many pages as they were made for, they keep.
pub struct PagePools {
    pools: KVec<Pin<KBox<Pool>>>,
}

impl PagePools {
    /// Makes pools that keep up to `pages` pages each, at most 16,384. Context: process, may sleep; so is that of drop.
    ///
    /// Errors: `ENOMEM`.
    pub fn new(pages: u32) -> Result<Self> {
        let count = nr_cpu_ids().min(MOST_POOLS);
        let mut pools = KVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            let pool = KBox::try_pin_init(Pool::new(pages), GFP_KERNEL)?;
            pools.push_within_capacity(pool).or(Err(ENOMEM))?;
        }
        Ok(Self { pools })
    }

    /// Hands out memory of `len` bytes, at most a page, for the middle part of a datagram. [`None`] if there is none.
    /// Context: process or softirq.
    ///
    /// What the bytes are at first is not specified: all of them are to be written.
    pub fn fragment(&self, len: usize) -> Option<Fragment<'_>> {
        if !(1..=PAGE_SIZE).contains(&len) {
            return None;
        }
        let own = CpuId::current().as_u32() % MOST_POOLS;
        let pool = self.pools.get(own as usize)?;
        // INVARIANT: As just made.
        Some(Fragment {
            start: pool.page()?,
            len,
            pool,
        })
    }
}

/// One page pool.
///
/// # Invariants
///
/// `pool` is a page pool, which is ours.
#[pin_data(PinnedDrop)]
struct Pool {
    pool: NonNull<kernel_bindings::page_pool>,
    /// Held by who takes pages out: page pools let one do so at a time.
    #[pin]
    taking: SpinLockBh<()>,
}

// SAFETY: A page pool belongs to no thread.
unsafe impl Send for Pool {}
// SAFETY: Pages are taken out under a lock, and may be put back by anybody at any time.
unsafe impl Sync for Pool {}

impl Pool {
    /// Context: process, may sleep.
    fn new(pages: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // INVARIANT: As just made.
            pool: {
                // SAFETY: No requirements, in process context.
                let pool = from_err_ptr(unsafe { bindings::page_pool_create(pages) })?;
                NonNull::new(pool).ok_or(ENOMEM)?
            },
            taking <- new_spin_lock_bh!((), "Pool::taking"),
        })
    }

    /// Takes a page out.
    fn page(&self) -> Option<NonNull<u8>> {
        let gfp = kernel_bindings::GFP_ATOMIC | kernel_bindings::__GFP_NOWARN;
        let _taking = self.taking.lock();
        // SAFETY: By the type invariant this is a page pool. Bottom halves are off, and nobody else takes pages out,
        // as the lock is held.
        let start = unsafe { bindings::page_pool_alloc_page_va(self.pool.as_ptr(), gfp) };
        NonNull::new(start.cast())
    }
}

#[pinned_drop]
impl PinnedDrop for Pool {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the pool is ours, and nobody takes pages out any more. It stays for those that
        // are not back yet. It may sleep: so may who drops `PagePools`, and there is no other way to drop this.
        unsafe { bindings::page_pool_destroy(self.pool.as_ptr()) };
    }
}

/// Memory that a datagram may have for its middle part, to be filled before. Drop: process or softirq.
///
/// # Invariants
///
/// `start` is that of a page of `pool`, which is ours, and has at least `len` bytes.
pub struct Fragment<'a> {
    start: NonNull<u8>,
    len: usize,
    pool: &'a Pool,
}

impl Fragment<'_> {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariant these bytes are ours. They come from the allocator, behind a C function, so
        // each is some byte. Who writes them has an exclusive reference.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns the bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariant these bytes are ours. They come from the allocator, behind a C function, so
        // each is some byte. Nobody else has a reference, as ours is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Returns where the bytes are, and their number, at most a page. The page is the caller's now.
    #[inline]
    pub(crate) fn into_raw(self) -> (NonNull<u8>, usize) {
        let fragment = ManuallyDrop::new(self);
        (fragment.start, fragment.len)
    }
}

impl Drop for Fragment<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is a page of the pool, and ours.
        unsafe {
            bindings::page_pool_free_va(self.pool.pool.as_ptr(), self.start.as_ptr().cast());
        }
    }
}
