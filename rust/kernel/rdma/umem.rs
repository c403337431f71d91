// SPDX-License-Identifier: GPL-2.0

//! Pinned memory of a user process.

use crate::{
    access::Access,
    memory::{
        Blocks,
        Fault,
        Intent,
        Memory, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
};
use rdma_bindings as bindings;
use sync::{
    Gate,
    Pass, //
};

/// Pages of a process, pinned (`struct ib_umem`).
///
/// They are given back by [`Umem::release`], in process context. Dropping the value releases them
/// too; so if that can happen elsewhere, `release` must have been called before.
///
/// # Invariants
///
/// While the gate is open, and while there are passes, `raw` is a valid `ib_umem` that belongs to
/// this value, and the blocks are its pages.
#[pin_data(PinnedDrop)]
pub struct Umem {
    raw: NonNull<bindings::ib_umem>,
    blocks: Blocks,
    /// The pages keep their contents without power, and are to be flushed.
    persistent: bool,
    released: Atomic<u32>,
    #[pin]
    gate: Gate,
}

// SAFETY: A `struct ib_umem` can be released by any task. Its pages are accessed through `Blocks`.
unsafe impl Send for Umem {}
// SAFETY: As above.
unsafe impl Sync for Umem {}

/// An `ib_umem` on its way into a [`Umem`].
struct Raw(NonNull<bindings::ib_umem>);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: The umem belongs to `self` and is released only here.
        unsafe { bindings::ib_umem_release(self.0.as_ptr()) };
    }
}

impl Umem {
    /// Pins `len` bytes at the user address `start` of the current process.
    ///
    /// Errors: `EINVAL`, if they are to be flushed for persistence ([`Access::FLUSH_PERSISTENT`]) and are
    /// not all of memory that keeps its contents without power; those of pinning.
    ///
    /// # Safety
    ///
    /// `device` must be a registered device without a DMA device.
    pub(crate) unsafe fn get(
        device: *mut bindings::ib_device,
        start: u64,
        len: u64,
        access: Access,
    ) -> Result<impl PinInit<Self>> {
        let size = usize::try_from(len)?;
        // SAFETY: The device is valid by the promise of the caller, there are no attributes, and
        // any address and size may be asked for.
        let raw = unsafe {
            bindings::ib_umem_get_attr_or_va(
                device,
                core::ptr::null(),
                0,
                start,
                size,
                access.bits() as c_int,
            )
        };
        let raw = Raw(NonNull::new(kernel::error::from_err_ptr(raw)?).ok_or(ENOMEM)?);
        let first_offset = (start as usize) & PAGE_SIZE.wrapping_sub(1);
        let pages = first_offset
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .ok_or(EINVAL)?
            >> PAGE_SHIFT;
        let persistent = access.contains(Access::FLUSH_PERSISTENT);
        let mut blocks = Blocks::with_capacity(pages)?;
        let mut iter: bindings::ib_block_iter = pin_init::zeroed();
        // SAFETY: The umem is valid; its table lists its pages, mapped for the device.
        unsafe {
            let table = &raw const (*raw.0.as_ptr()).sgt_append.sgt;
            bindings::__rdma_block_iter_start(
                &raw mut iter,
                (*table).sgl,
                (*table).nents,
                PAGE_SIZE,
            );
        }
        for _ in 0..pages {
            // SAFETY: The iterator was started above, and the table that it walks is valid.
            if !unsafe { bindings::__rdma_block_iter_next(&raw mut iter) } {
                return Err(EFAULT);
            }
            // For a device without a DMA device, DMA addresses are kernel addresses.
            let page = (iter.__dma_addr as usize) & !PAGE_SIZE.wrapping_sub(1);
            let address = core::ptr::with_exposed_provenance(page);
            // SAFETY: That is the kernel address of a page in the direct mapping.
            let is_fit = !persistent || unsafe { bindings::is_persistent_page(address) };
            if !is_fit {
                return Err(EINVAL);
            }
            if !blocks.push(page) {
                return Err(EFAULT);
            }
        }
        // SAFETY: The blocks are the pinned pages, in order, and stay so until the umem is
        // released, which waits for those who use the blocks (see `release`).
        unsafe { blocks.set_range(PAGE_SHIFT as u32, first_offset, len)? };
        Ok(pin_init!(Self {
            // INVARIANT: The umem belongs to the new value from here on, not before: there may be no memory
            // for one, and then this is dropped as it is.
            raw: core::mem::ManuallyDrop::new(raw).0,
            blocks,
            persistent,
            released: Atomic::new(0),
            gate <- Gate::new(),
        }))
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.blocks.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the pages are pinned such that a region may have these rights. Process context.
    ///
    /// Errors: `EACCES` if they are not pinned for writing, `EINVAL` if they do not keep their contents without power, or
    /// are released.
    pub(crate) fn check_access(&self, access: Access) -> Result {
        let _pages = self.enter().ok_or(EINVAL)?;
        if access.contains(Access::FLUSH_PERSISTENT) && !self.persistent {
            return Err(EINVAL);
        }
        // SAFETY: There is a pass, so the umem is valid by the type invariant.
        to_result(unsafe {
            bindings::ib_umem_check_rereg(
                self.raw.as_ptr(),
                bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS as c_int,
                access.bits() as c_int,
            )
        })
    }

    /// Access to the pages; [`None`] once they are, or are about to be, released. Any context.
    #[inline]
    pub fn enter(&self) -> Option<Pages<'_>> {
        Some(Pages {
            _pass: self.gate.enter()?,
            blocks: &self.blocks,
            persistent: self.persistent,
        })
    }

    /// Waits for those who use the pages, then gives them back. Process context.
    pub fn release(&self) {
        self.gate.close_and_wait();
        if self.released.xchg(1, Full) == 0 {
            // SAFETY: The gate is closed and idle, so nobody uses the pages any more; the umem
            // belongs to `self`, and the flag sees to it that it is released once.
            unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Umem {
    fn drop(self: Pin<&mut Self>) {
        if self.released.load(kernel::sync::atomic::Relaxed) == 0 {
            self.release();
        }
    }
}

/// Pages that stay pinned while this value lives. Short-lived: releasing waits for it.
pub struct Pages<'a> {
    _pass: Pass<'a>,
    blocks: &'a Blocks,
    persistent: bool,
}

// SAFETY: The pieces are those of the blocks, which stay valid as long as the pass does.
unsafe impl Memory for Pages<'_> {
    #[inline]
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        self.blocks.pieces(offset, len, intent, f)
    }

    #[inline]
    fn is_persistent(&self) -> bool {
        self.persistent
    }
}

impl Pages<'_> {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.blocks.len()
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
