// SPDX-License-Identifier: GPL-2.0

//! Memory shared with a user process for its queues.

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
    prelude::*, //
};
use rdma_bindings as bindings;

/// Zeroed pages that a process can map: a header of words, and elements behind it.
///
/// Every byte may be changed by the process at any moment; nothing that is read here can be
/// trusted twice. Mappings hold references to the pages themselves, so they stay valid when this
/// value is dropped. The pages are charged to the memory cgroup of the process that allocated them.
///
/// Must be dropped in a context where `vfree()` is allowed: not with interrupts off, and in process
/// context not under a spinlock that leaves bottom halves on.
///
/// # Invariants
///
/// - `start` is the start of a `vmalloc` area of `len` bytes that belongs to this value; `size` is `len`
///   up to the end of its last page.
/// - There are at least [`Self::HEADER_LEN`] bytes. These are accessed as words only, and those behind by copies only.
pub struct RingMemory {
    start: NonNull<u8>,
    len: usize,
    size: usize,
}

// SAFETY: The memory is only accessed by atomic instructions and copies that tolerate others.
unsafe impl Send for RingMemory {}
// SAFETY: As above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// The length of the header, in bytes: `struct rxe_queue_buf` in front of its data.
    pub const HEADER_LEN: usize = 384;

    /// Allocates the header, and `data` bytes behind it, zeroed. Context: process, may sleep.
    pub fn new(data: usize) -> Result<Self> {
        let len = Self::HEADER_LEN.checked_add(data).ok_or(EINVAL)?;
        let size = len.checked_next_multiple_of(PAGE_SIZE).ok_or(EINVAL)?;
        // Not `size` bytes: KASAN watches what is left of the last page.
        // SAFETY: Any size may be asked for; the result is checked.
        let start = unsafe { bindings::vmalloc_zeroed_accounted(len) };
        // INVARIANT: The area has `len` bytes and was just allocated for this value.
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(ENOMEM)?,
            len,
            size,
        })
    }

    /// Bytes that a process maps, a multiple of the page size. Context: any, here and below, if nothing else is said.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// A pointer to `len` bytes at `offset`, if they are behind the header and within the memory.
    #[inline]
    fn behind_header(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if offset < Self::HEADER_LEN || end > self.len {
            return None;
        }
        // SAFETY: `offset` is at most `len`, so the result stays within the area.
        Some(unsafe { self.start.as_ptr().add(offset) })
    }

    /// The word at `AT` of the header. Not of the kernel's own atomic type: its operations are calls of C functions, 167
    /// instructions of a message of 2 B.
    #[inline]
    fn word<const AT: usize>(&self) -> &AtomicU32 {
        const { assert!(AT % size_of::<u32>() == 0 && AT + size_of::<u32>() <= Self::HEADER_LEN) };
        // SAFETY: The word is aligned, as the area is, and within the header, which lives as long as `self`. By the type
        // invariant the kernel accesses the header only through here; accesses of the process do not race in the kernel's
        // model.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(AT).cast()) }
    }

    /// Reads the word at `AT` of the header, ordered before what follows.
    #[inline]
    pub fn load_acquire<const AT: usize>(&self) -> u32 {
        self.word::<AT>().load(Acquire)
    }

    /// Writes the word at `AT` of the header, ordered behind what precedes.
    #[inline]
    pub fn store_release<const AT: usize>(&self, value: u32) {
        self.word::<AT>().store(value, Release);
    }

    /// Writes the word at `AT` of the header.
    #[inline]
    pub fn store<const AT: usize>(&self, value: u32) {
        self.word::<AT>().store(value, Relaxed);
    }

    /// Copies from behind the header, once: a private snapshot. [`None`] if there are not so many bytes.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let src = self.behind_header(offset, out.len())?;
        // SAFETY: The source is within the area, to which there are no references; the destination is an exclusive one.
        unsafe { memory::copy(out.as_mut_ptr(), src, out.len()) };
        Some(())
    }

    /// Copies behind the header. [`None`] if there are not so many bytes.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Option<()> {
        let dst = self.behind_header(offset, data.len())?;
        // SAFETY: As for `read`, with the directions exchanged.
        unsafe { memory::copy(dst, data.as_ptr(), data.len()) };
        Some(())
    }

    /// Maps the whole memory; `EINVAL` if `vma` is larger. Context: process, with the mmap lock held for writing.
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

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the area belongs to `self` and is freed only here.
        unsafe { bindings::vfree(self.start.as_ptr().cast()) };
    }
}
