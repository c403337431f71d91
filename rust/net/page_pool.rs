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
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*, //
};
use rdma_bindings as bindings;
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// Pages that come back when packets are freed, and are handed out again as they are: the page allocator clears each
/// page that it hands out.
///
/// What it has had at once, up to as many pages as it was made for, it keeps.
///
/// # Invariants
///
/// `pool` is a page pool, which is ours.
#[pin_data(PinnedDrop)]
pub struct PagePool {
    pool: NonNull<kernel_bindings::page_pool>,
    /// Held by who takes pages out: page pools let one do so at a time.
    #[pin]
    taking: SpinLockBh<()>,
}

// SAFETY: A page pool belongs to no thread.
unsafe impl Send for PagePool {}
// SAFETY: Pages are taken out under a lock, and may be put back by anybody at any time.
unsafe impl Sync for PagePool {}

impl PagePool {
    /// Makes a pool that keeps up to `pages` pages. Context: process, may sleep.
    ///
    /// Errors: `ENOMEM`; `E2BIG` if that are too many (32,768).
    pub fn new(pages: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // INVARIANT: As just made.
            pool: {
                // SAFETY: No requirements.
                let pool = from_err_ptr(unsafe { bindings::page_pool_create(pages) })?;
                NonNull::new(pool).ok_or(ENOMEM)?
            },
            taking <- new_spin_lock_bh!((), "PagePool::taking"),
        })
    }

    /// Hands out memory of `len` bytes, at most a page, for the middle part of a datagram. [`None`] if there is none.
    /// Context: process or softirq.
    ///
    /// What the bytes are at first is not specified: all of them are to be written.
    pub fn fragment(&self, len: usize) -> Option<Fragment<'_>> {
        if !(1..=PAGE_SIZE).contains(&len) {
            return None;
        }
        let gfp = kernel_bindings::GFP_ATOMIC | kernel_bindings::__GFP_NOWARN;
        let taking = self.taking.lock();
        // SAFETY: By the type invariant this is a page pool. Bottom halves are off, and nobody else takes pages out,
        // as the lock is held.
        let start = unsafe { bindings::page_pool_alloc_page_va(self.pool.as_ptr(), gfp) };
        drop(taking);
        // INVARIANT: As just made.
        Some(Fragment {
            start: NonNull::new(start)?.cast(),
            len,
            pool: self,
        })
    }
}

#[pinned_drop]
impl PinnedDrop for PagePool {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the pool is ours. Nobody takes pages out any more. It stays for those that are
        // not back yet.
        unsafe { bindings::page_pool_destroy(self.pool.as_ptr()) };
    }
}

/// Memory that a datagram may have for its middle part, to be filled before. Drop: any context.
///
/// # Invariants
///
/// `start` is that of a page of `pool`, which is ours, and has at least `len` bytes.
pub struct Fragment<'a> {
    start: NonNull<u8>,
    len: usize,
    pool: &'a PagePool,
}

impl Fragment<'_> {
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
