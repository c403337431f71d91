// SPDX-License-Identifier: GPL-2.0

//! Memory shared with a user process for its queues.

use crate::memory;
use core::ptr::NonNull;
use kernel::{
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
};
use rdma_bindings as bindings;

/// Zeroed pages that a process can map.
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
/// `start` is the start of a `vmalloc` area of `len` bytes that belongs to this value; `size` is `len`
/// up to the end of its last page.
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
    /// Allocates `len` bytes, zeroed. Process context.
    pub fn new(len: usize) -> Result<Self> {
        let size = len
            .checked_next_multiple_of(PAGE_SIZE)
            .filter(|&size| size != 0)
            .ok_or(EINVAL)?;
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

    /// Bytes that a process maps, a multiple of the page size.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// A pointer to `len` bytes at `offset`, if they are within the memory.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `offset` is at most `len`, so the result stays within the area.
        Some(unsafe { self.start.as_ptr().add(offset) })
    }

    /// The aligned word at `offset`.
    #[inline]
    fn word(&self, offset: usize) -> Option<&Atomic<u32>> {
        let ptr = self.at(offset, size_of::<u32>())?.cast::<u32>();
        if !ptr.is_aligned() {
            return None;
        }
        // SAFETY: The word is aligned and within the area, which lives as long as `self`. The
        // kernel accesses words only through here; what the process does to it, and whole-element
        // copies, which never touch the words of the header, do not race in the kernel's model.
        Some(unsafe { Atomic::from_ptr(ptr) })
    }

    /// Reads the word at `offset`, ordered before what follows.
    #[inline]
    pub fn load_acquire(&self, offset: usize) -> Option<u32> {
        Some(self.word(offset)?.load(Acquire))
    }

    /// Writes the word at `offset`, ordered behind what precedes.
    #[inline]
    pub fn store_release(&self, offset: usize, value: u32) -> Option<()> {
        self.word(offset)?.store(value, Release);
        Some(())
    }

    /// Writes the word at `offset`.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) -> Option<()> {
        self.word(offset)?.store(value, Relaxed);
        Some(())
    }

    /// Copies from the memory, once: a private snapshot.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let src = self.at(offset, out.len())?;
        // SAFETY: The source is within the area, to which there are no references; the destination is an exclusive one.
        unsafe { memory::copy(out.as_mut_ptr(), src, out.len()) };
        Some(())
    }

    /// Copies into the memory.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Option<()> {
        let dst = self.at(offset, data.len())?;
        // SAFETY: As for `read`, with the directions exchanged.
        unsafe { memory::copy(dst, data.as_ptr(), data.len()) };
        Some(())
    }

    /// Maps the whole memory; `EINVAL` if `vma` is larger.
    pub fn map(&self, vma: &VmaNew) -> Result {
        let len = vma.end().wrapping_sub(vma.start());
        if len > self.size {
            return Err(EINVAL);
        }
        vma.set_dontexpand();
        vma.set_dontdump();
        let mut done = 0usize;
        while done < len {
            // A byte of each page: the last page may be more than the area.
            let Some(ptr) = self.at(done, 1) else {
                return Err(EINVAL);
            };
            // SAFETY: `ptr` is the start of a page of the area (the type invariant), for which
            // `vmalloc_to_page` is made; `vma` is being set up, `start + done` lies within it and
            // is page-aligned. `vm_insert_page` takes its own reference to the page.
            let ret = unsafe {
                kernel::bindings::vm_insert_page(
                    vma.as_ptr(),
                    vma.start().wrapping_add(done),
                    kernel::bindings::vmalloc_to_page(ptr.cast()),
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
