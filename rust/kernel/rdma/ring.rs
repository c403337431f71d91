// SPDX-License-Identifier: GPL-2.0

//! Rings that are shared with a user process.
//!
//! C header: [`include/uapi/rdma/rdma_user_rxe.h`](srctree/include/uapi/rdma/rdma_user_rxe.h)

use crate::memory;
use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicU32,
        Ordering::{
            Acquire,
            Relaxed,
            Release, //
        },
    },
};
use kernel::{
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// `struct rxe_queue_buf`: the offsets of its words, and its length up to the elements, in bytes.
const LOG2_ELEMENT_SIZE: usize = 0;
const INDEX_MASK: usize = 4;
const PRODUCER: usize = 128;
const CONSUMER: usize = 256;
const HEADER_LEN: usize = 384;

/// A ring in zeroed pages that a process can map: a header of words, and elements behind it.
///
/// Elements are numbered without end; the slots that they go to are numbers modulo the ring's.
///
/// Every byte may be changed by the process at any moment; nothing that is read here can be trusted twice. The process
/// reads the size of the ring and of its elements in the header; the kernel goes by its private copies alone.
///
/// Mappings hold references to the pages themselves, so they stay valid when this value is dropped. The pages are
/// charged to the memory cgroup of the process that allocated them.
///
/// Must be dropped in a context where `vfree()` is allowed: not with interrupts off, and in process
/// context not under a spinlock that leaves bottom halves on.
///
/// # Invariants
///
/// - `start` is the start of a `vmalloc` area that belongs to this value, until it is dropped. The area has
///   `HEADER_LEN` bytes, and behind them `mask + 1` elements of `1 << shift` bytes. `size` is its length up to the end
///   of its last page.
/// - `mask` is a power of two less one. Nothing writes `mask`, `shift` or `size` after [`Self::new`].
/// - There are no references to the area, but for those to words of the header while they are accessed. Through `start`
///   the header is accessed as words only, and the elements by copies only.
pub struct SharedRing {
    start: NonNull<u8>,
    size: usize,
    mask: u32,
    shift: u32,
}

// SAFETY: The area is only accessed by atomic instructions and copies that tolerate others. The rest is never written.
unsafe impl Send for SharedRing {}
// SAFETY: As above.
unsafe impl Sync for SharedRing {}

impl SharedRing {
    /// Allocates a ring that holds at least `min_entries` elements of at least `element_len` bytes.
    ///
    /// Errors: `EINVAL` if that is too much. Context: process, may sleep.
    pub fn new(min_entries: u32, element_len: usize) -> Result<Arc<Self>> {
        // One slot stays empty, so that full and empty differ.
        let slots = min_entries
            .checked_add(1)
            .and_then(u32::checked_next_power_of_two)
            .ok_or(EINVAL)?;
        let element = element_len.checked_next_power_of_two().ok_or(EINVAL)?;
        let len = element
            .checked_mul(slots as usize)
            .filter(|&bytes| bytes <= u32::MAX as usize)
            .and_then(|bytes| bytes.checked_add(HEADER_LEN))
            .ok_or(EINVAL)?;
        let size = len.checked_next_multiple_of(PAGE_SIZE).ok_or(EINVAL)?;
        // Not `size` bytes: KASAN watches what is left of the last page.
        // SAFETY: Any size may be asked for; the result is checked.
        let start = unsafe { bindings::vmalloc_zeroed_accounted(len) };
        // INVARIANT: The area was just allocated for this value. It has the header, and behind it `slots` elements of
        // `element` bytes; both are powers of two. The process cannot reach it yet, and there are no references to it.
        let ring = Self {
            start: NonNull::new(start.cast()).ok_or(ENOMEM)?,
            size,
            mask: slots.wrapping_sub(1),
            shift: element.trailing_zeros(),
        };
        ring.word::<LOG2_ELEMENT_SIZE>().store(ring.shift, Relaxed);
        ring.word::<INDEX_MASK>().store(ring.mask, Relaxed);
        Ok(Arc::new(ring, GFP_KERNEL_ACCOUNT)?)
    }

    /// Bytes that a process maps, a multiple of the page size. Context: any, here and below, if nothing else is said.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Number of slots, a power of two.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// How many elements the ring holds.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.mask
    }

    /// Bytes of an element, a power of two.
    #[inline]
    fn element_len(&self) -> usize {
        1usize.wrapping_shl(self.shift)
    }

    /// `number` modulo the number of slots.
    #[inline]
    pub fn wrap(&self, number: u32) -> u32 {
        number & self.mask
    }

    /// The word at `AT` of the header. Not of the kernel's own atomic type: its operations are calls of C functions,
    /// 167 instructions of a message of 2 B.
    #[inline]
    fn word<const AT: usize>(&self) -> &AtomicU32 {
        const { assert!(AT % size_of::<u32>() == 0 && AT + size_of::<u32>() <= HEADER_LEN) };
        // SAFETY: The word is aligned, as the area is, and within the header, which by the type invariant lives as long
        // as `self` and is accessed only through here. Accesses of the process by its own mapping, or of the kernel to
        // a memory region that the process has there, do not race in the kernel's model.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(AT).cast()) }
    }

    /// The slot that the producer fills next, whatever the process wrote. The elements before can be seen.
    #[inline]
    pub fn producer(&self) -> u32 {
        self.wrap(self.word::<PRODUCER>().load(Acquire))
    }

    /// Whether the producer's index is one that a sound process writes.
    #[inline]
    pub fn is_sound(&self) -> bool {
        self.word::<PRODUCER>().load(Acquire) <= self.mask
    }

    /// The slot that the consumer takes from next, whatever the process wrote. Those before may be filled anew.
    #[inline]
    pub fn consumer(&self) -> u32 {
        self.wrap(self.word::<CONSUMER>().load(Acquire))
    }

    /// Lets the process see the elements before `number`.
    #[inline]
    pub fn set_producer(&self, number: u32) {
        self.word::<PRODUCER>().store(self.wrap(number), Release);
    }

    /// Gives the slots of the elements before `number` back to the process.
    #[inline]
    pub fn set_consumer(&self, number: u32) {
        self.word::<CONSUMER>().store(self.wrap(number), Release);
    }

    /// A pointer to the element `number`, at which `len` bytes can be copied as long as `self` lives. [`None`] if
    /// elements are shorter.
    #[inline]
    fn element(&self, number: u32, len: usize) -> Option<*mut u8> {
        if len > self.element_len() {
            return None;
        }
        let offset = (self.wrap(number) as usize).wrapping_shl(self.shift);
        // SAFETY: The slot is at most `mask`: by the type invariant the elements before it and its own are within the
        // area, behind the header. So the shift loses nothing, the sums are within the area, and at least `len` bytes
        // of it follow.
        Some(unsafe { self.start.as_ptr().add(HEADER_LEN).add(offset) })
    }

    /// Copies the beginning of the element `number`, once: a private snapshot. [`None`] if elements are shorter.
    #[inline]
    pub fn read(&self, number: u32, out: &mut [u8]) -> Option<()> {
        let src = self.element(number, out.len())?;
        // SAFETY: `src` points to at least `out.len()` bytes of the area. By the type invariant there are no references
        // to them, so `out`, an exclusive reference, is not among them.
        unsafe { memory::copy(out.as_mut_ptr(), src, out.len()) };
        Some(())
    }

    /// Copies to the beginning of the element `number`. [`None`] if elements are shorter.
    #[inline]
    pub fn write(&self, number: u32, data: &[u8]) -> Option<()> {
        let dst = self.element(number, data.len())?;
        // SAFETY: As for `read`, with the directions exchanged.
        unsafe { memory::copy(dst, data.as_ptr(), data.len()) };
        Some(())
    }

    /// Maps the whole ring; `EINVAL` if `vma` is larger. Context: process, with the mmap lock held for writing.
    pub fn map(&self, vma: &VmaNew) -> Result {
        let len = vma.end().wrapping_sub(vma.start());
        if len > self.size {
            return Err(EINVAL);
        }
        vma.set_dontexpand();
        vma.set_dontdump();
        let mut done = 0usize;
        while done < len {
            // SAFETY: `start + done` is the start of a page of the area, as `done` is a multiple of the page size below
            // `size`; for that `vmalloc_to_page` is made. `vma` is being set up, and its start and `done` together lie
            // within it and are page-aligned. `vm_insert_page` takes its own reference to the page.
            let ret = unsafe {
                let page = self.start.as_ptr().add(done);
                kernel::bindings::vm_insert_page(
                    vma.as_ptr(),
                    vma.start().wrapping_add(done),
                    kernel::bindings::vmalloc_to_page(page.cast()),
                )
            };
            kernel::error::to_result(ret)?;
            done = done.wrapping_add(PAGE_SIZE);
        }
        Ok(())
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the area belongs to `self` and is freed only here.
        unsafe { bindings::vfree(self.start.as_ptr().cast()) };
    }
}
