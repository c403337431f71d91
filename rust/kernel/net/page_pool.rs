// SPDX-License-Identifier: GPL-2.0

//! Memory for packets that are sent.
//!
//! C header: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h)

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
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

/// Bytes of a block of pages: six or seven packets of 4 KiB with what goes with them.
const BLOCK: usize = 32 << 10;

/// Whether a packet of 4 KiB needs more than a page.
const HAS_BLOCKS: bool = PAGE_SIZE < (8 << 10);

/// Binary logarithm of the pages of a block.
const ORDER: u32 = if HAS_BLOCKS {
    (BLOCK / PAGE_SIZE).trailing_zeros()
} else {
    0
};

/// The alignment of all memory and of its sizes: that of the heads of packets.
// CAST: A small number.
const ALIGN: usize = kernel_bindings::SMP_CACHE_BYTES as usize;
const _: () = assert!(PAGE_SIZE % ALIGN == 0);

/// Pages, and blocks of pages, that come back when packets are freed, and are handed out again as they are, in pieces:
/// the page allocator clears all that it hands out. For each CPU a pool of either.
///
/// A pool keeps the memory that was in use at once: at most the size that it was made for, and 64 pages or blocks more.
///
/// A socket that holds a packet holds the whole page or block, but is charged for the packet only. So a packet that
/// fits into a page never comes from a block: with pages of 4 KiB, at most eight times the charged memory is held.
pub struct PagePools {
    pages: KVec<Pin<KBox<Pool>>>,
    blocks: KVec<Pin<KBox<Pool>>>,
}

impl PagePools {
    /// Makes pools that keep up to `bytes` bytes each, at most 16,384 pages or blocks. Context: process, may sleep; so
    /// is that of drop.
    ///
    /// Errors: `ENOMEM`.
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self {
            pages: Self::of_each_cpu(bytes / PAGE_SIZE, 0)?,
            blocks: if HAS_BLOCKS {
                Self::of_each_cpu(bytes / BLOCK, ORDER)?
            } else {
                KVec::new()
            },
        })
    }

    /// Makes a pool for each CPU, which keeps so many blocks of `1 << order` pages.
    fn of_each_cpu(blocks: usize, order: u32) -> Result<KVec<Pin<KBox<Pool>>>> {
        let blocks = u32::try_from(blocks)?;
        let count = nr_cpu_ids().min(MOST_POOLS);
        let mut pools = KVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            let pool = KBox::try_pin_init(Pool::new(blocks, order), GFP_KERNEL)?;
            pools.push_within_capacity(pool).or(Err(ENOMEM))?;
        }
        Ok(pools)
    }

    /// Hands out memory of `len` bytes, at most a block, for a packet. [`None`] if there is none, or unless bottom
    /// halves are off.
    ///
    /// The initial bytes are not specified: all of them are to be written.
    pub(crate) fn fragment(&self, len: usize) -> Option<Fragment<'_>> {
        let pools = match len {
            ..=PAGE_SIZE => &self.pages,
            _ => &self.blocks,
        };
        let own = CpuId::current().as_u32() % MOST_POOLS;
        pools.get(own as usize)?.take(len)
    }
}

/// One page pool.
///
/// # Invariants
///
/// `pool` is a page pool, which is ours, of blocks of `1 << order` pages.
// A cache line for each CPU's.
#[repr(align(64))]
#[pin_data(PinnedDrop)]
struct Pool {
    pool: NonNull<kernel_bindings::page_pool>,
    order: u32,
    /// Held to take pages out, with bottom halves off: a page pool lets one thread do so at a time.
    #[pin]
    taking: SpinLock<()>,
}

// SAFETY: A page pool belongs to no thread.
unsafe impl Send for Pool {}
// SAFETY: Pages are taken out under a lock, and may be put back by anybody at any time.
unsafe impl Sync for Pool {}

impl Pool {
    /// Context: process, may sleep.
    fn new(blocks: u32, order: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // INVARIANT: As just made.
            pool: {
                // SAFETY: No requirements, in process context.
                let pool = from_err_ptr(unsafe { bindings::page_pool_create(blocks, order) })?;
                NonNull::new(pool).ok_or(ENOMEM)?
            },
            order,
            taking <- new_spinlock!((), "Pool::taking"),
        })
    }

    /// Takes memory of `len` bytes out: a block, or a part of one.
    fn take(&self, len: usize) -> Option<Fragment<'_>> {
        let most = PAGE_SIZE.wrapping_shl(self.order);
        if !(1..=most).contains(&len) || !sync::owns_softirq() {
            return None;
        }
        let gfp = kernel_bindings::GFP_ATOMIC | kernel_bindings::__GFP_NOWARN;
        let mut size = u32::try_from(len.checked_next_multiple_of(ALIGN)?).ok()?;
        let taking = self.taking.lock();
        // SAFETY: By the type invariant this is a page pool. Bottom halves are off, and nobody else takes pages out, as
        // the lock is held. `size` is at most a block.
        let start = unsafe { bindings::page_pool_alloc_va(self.pool.as_ptr(), &mut size, gfp) };
        drop(taking);
        // INVARIANT: As just made. Nobody else gets these bytes until they are back.
        Some(Fragment {
            start: NonNull::new(start.cast())?,
            size,
            pool: self,
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Pool {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the pool is ours, and nobody takes pages out any more. It stays for those that
        // are not back yet. It may sleep: only the drop of `PagePools`, which may sleep too, drops this.
        unsafe { bindings::page_pool_destroy(self.pool.as_ptr()) };
    }
}

/// Memory for a packet. Drop: process or softirq.
///
/// # Invariants
///
/// At `start` are `size` bytes within one block of `pool`, which are ours, with one reference to the block.
pub(crate) struct Fragment<'a> {
    start: NonNull<u8>,
    size: u32,
    pool: &'a Pool,
}

impl Fragment<'_> {
    /// Returns where the memory is.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns how much memory it is: at least the bytes that were asked for, at most a block.
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Leaves the memory to the caller, with a reference to its block of a pool.
    #[inline]
    pub(crate) fn leak(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for Fragment<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is in a block of the pool, to which a reference is ours.
        unsafe {
            bindings::page_pool_free_va(self.pool.pool.as_ptr(), self.start.as_ptr().cast());
        }
    }
}
