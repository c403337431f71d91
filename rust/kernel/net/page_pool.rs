// SPDX-License-Identifier: GPL-2.0

//! Memory for packets that are sent.
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
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::SpinLock, //
};
use rdma_bindings as bindings;

/// As many pools as there are CPUs, but so many at the most: then some share one.
const MOST_POOLS: u32 = 16;

/// What the addresses of all memory are multiples of, and its sizes: as the heads of packets are aligned.
// CAST: A small number.
pub(crate) const ALIGN: usize = kernel_bindings::SMP_CACHE_BYTES as usize;
const _: () = assert!(PAGE_SIZE % ALIGN == 0);

/// Pages that come back when packets are freed, and are handed out again as they are, in one piece or in several: the
/// page allocator clears each page that it hands out. For each CPU a pool.
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

    /// Hands out memory of `len` bytes, at most a page, for a packet, or for a part of it. [`None`] if there is none,
    /// or unless bottom halves are off.
    ///
    /// What the bytes are at first is not specified: all of them are to be written.
    pub fn fragment(&self, len: usize) -> Option<Fragment<'_>> {
        let own = CpuId::current().as_u32() % MOST_POOLS;
        self.pools.get(own as usize)?.take(len)
    }
}

/// One page pool.
///
/// # Invariants
///
/// `pool` is a page pool, which is ours.
// A cache line for each CPU's.
#[repr(align(64))]
#[pin_data(PinnedDrop)]
struct Pool {
    pool: NonNull<kernel_bindings::page_pool>,
    /// Held by who takes pages out, with bottom halves off: page pools let one do so at a time.
    #[pin]
    taking: SpinLock<()>,
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
            taking <- new_spinlock!((), "Pool::taking"),
        })
    }

    /// Takes memory of `len` bytes out: a page, or a part of one.
    fn take(&self, len: usize) -> Option<Fragment<'_>> {
        if !(1..=PAGE_SIZE).contains(&len) || !sync::owns_softirq() {
            return None;
        }
        let gfp = kernel_bindings::GFP_ATOMIC | kernel_bindings::__GFP_NOWARN;
        let mut size = u32::try_from(len.checked_next_multiple_of(ALIGN)?).ok()?;
        let taking = self.taking.lock();
        // SAFETY: By the type invariant this is a page pool. Bottom halves are off, and nobody else takes pages out, as
        // the lock is held. `size` is at most a page.
        let start = unsafe { bindings::page_pool_alloc_va(self.pool.as_ptr(), &mut size, gfp) };
        drop(taking);
        // INVARIANT: As just made. Nobody else gets these bytes until they are back.
        Some(Fragment {
            start: NonNull::new(start.cast())?,
            len,
            size,
            pool: self,
        })
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

/// Memory for a packet, or for its middle part, to be filled before. Drop: process or softirq.
///
/// # Invariants
///
/// At `start` are `size` bytes within one page of `pool`, which are ours, with one reference to the page. `len` is at
/// most `size`, which is at most a page.
pub struct Fragment<'a> {
    start: NonNull<u8>,
    len: usize,
    size: u32,
    pool: &'a Pool,
}

impl Fragment<'_> {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariant these bytes are ours. They come from the allocator, behind a C function, so
        // they count as initialised. Only an exclusive reference writes them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns the bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariant these bytes are ours. They come from the allocator, behind a C function, so
        // they count as initialised. Nobody else has a reference, as ours is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Returns where the memory is.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns how much memory it is: at least the bytes that were asked for, at most a page.
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Returns where the bytes are, and their number, at most a page. The memory is the caller's now, with a reference
    /// to its page of a pool.
    #[inline]
    pub(crate) fn into_raw(self) -> (NonNull<u8>, usize) {
        let fragment = ManuallyDrop::new(self);
        (fragment.start, fragment.len)
    }
}

impl Drop for Fragment<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is in a page of the pool, to which a reference is ours.
        unsafe {
            bindings::page_pool_free_va(self.pool.pool.as_ptr(), self.start.as_ptr().cast());
        }
    }
}
