// SPDX-License-Identifier: GPL-2.0

//! Memory that a process registers, and that stays where it is.

use crate::{
    access::Access,
    dma_buf::DmaBuf,
    memory::{
        Blocks,
        Fault,
        Intent,
        Memory,
        Visit, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use rdma_bindings as bindings;
use sync::{
    Gate,
    Pass, //
};

/// Memory that stays where it is: pages of a process (`struct ib_umem`), or another driver's buffer.
///
/// It is given back by [`Umem::release`], in process context. Dropping the value releases it
/// too; so if that can happen elsewhere, `release` must have been called before.
///
/// # Invariants
///
/// - While the gate is open, and while there are passes, there is an origin, and the blocks are its memory.
/// - Without a right to write in `access`, the memory is only to be read: pages are pinned for reading.
#[pin_data]
pub struct Umem {
    blocks: Blocks,
    /// The rights that the memory was taken for.
    access: Access,
    is_dma_buf: bool,
    #[pin]
    gate: Gate,
    #[pin]
    origin: Mutex<Option<Origin>>,
}

/// The owner of the memory; dropping it gives the memory back, in process context, and may sleep.
enum Origin {
    Process { _pages: PinnedPages },
    DmaBuf { _buffer: DmaBuf },
}

/// Pinned pages of a process.
///
/// # Invariants
///
/// `0` is a valid `ib_umem`, which belongs to this value.
struct PinnedPages(NonNull<bindings::ib_umem>);

// SAFETY: A `struct ib_umem` can be released by any task.
unsafe impl Send for PinnedPages {}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariant, and released only here.
        unsafe { bindings::ib_umem_release(self.0.as_ptr()) };
    }
}

/// The most bytes that can be pinned at once, from the start of a page: the list of pages is one allocation.
pub const MAX_LEN: u64 = (Blocks::MAX_CAPACITY as u64) << PAGE_SHIFT;

impl Umem {
    /// Pins `len` bytes at the user address `start` of the current process.
    ///
    /// Errors: `EINVAL`, if they are more pages than [`MAX_LEN`] has, or are to be flushed for persistence
    /// ([`Access::FLUSH_PERSISTENT`]) and are not all of memory that keeps its contents without power; those of pinning, as
    /// `ENOMEM` beyond the limit on locked memory. Context: process, may sleep, no spinlock held.
    ///
    /// # Safety
    ///
    /// `device` must be a registered device without a DMA device.
    pub(crate) unsafe fn get(
        device: *mut bindings::ib_device,
        start: u64,
        len: u64,
        access: Access,
    ) -> Result<Arc<Self>> {
        let size = usize::try_from(len)?;
        let first_offset = (start as usize) & PAGE_SIZE.wrapping_sub(1);
        let pages = first_offset
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .ok_or(EINVAL)?
            >> PAGE_SHIFT;
        if pages > Blocks::MAX_CAPACITY {
            return Err(EINVAL);
        }
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
        // INVARIANT: The function returned a new umem.
        let raw = PinnedPages(NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?);
        let is_persistent = access.contains(Access::FLUSH_PERSISTENT);
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
            let is_fit = !is_persistent || unsafe { bindings::is_persistent_page(address) };
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
        Self::new(Origin::Process { _pages: raw }, blocks, access)
    }

    /// `len` bytes from `offset` on, of the buffer that the current process has open as `fd`. Process context.
    ///
    /// Errors: see [`DmaBuf::new`].
    ///
    /// # Safety
    ///
    /// `device` must be valid for as long as the result is there.
    pub(crate) unsafe fn of_dma_buf(
        device: *mut kernel::bindings::device,
        fd: c_int,
        offset: u64,
        len: u64,
    ) -> Result<Arc<Self>> {
        // SAFETY: By the promise of the caller.
        let buffer = unsafe { DmaBuf::new(device, fd, offset, len)? };
        let (start, size) = buffer.place();
        // One block: the kernel's mapping has no gaps.
        let mut blocks = Blocks::with_capacity(1)?;
        let block_size = size.checked_next_power_of_two().ok_or(EINVAL)?;
        if !blocks.push(start) {
            return Err(ENOMEM);
        }
        // SAFETY: The block is the part of the buffer, and stays so until that is released, which waits for those who
        // use the blocks (see `release`).
        unsafe { blocks.set_range(block_size.trailing_zeros(), 0, len)? };
        Self::new(Origin::DmaBuf { _buffer: buffer }, blocks, Access::WRITABLE)
    }

    /// `blocks` must be the memory of `origin`, which was taken for `access`.
    fn new(origin: Origin, blocks: Blocks, access: Access) -> Result<Arc<Self>> {
        // INVARIANT: The gate is open, and there is an origin, with these blocks and rights.
        Arc::pin_init(
            pin_init!(Self {
                blocks,
                access,
                is_dma_buf: matches!(origin, Origin::DmaBuf { .. }),
                gate <- Gate::new(),
                origin <- new_mutex!(Some(origin)),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether it is another driver's buffer.
    pub fn is_dma_buf(&self) -> bool {
        self.is_dma_buf
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.blocks.len()
    }

    /// Whether the memory is such that a region may have these rights. Any context.
    ///
    /// Errors: `EACCES` if it is only to be read, `EINVAL` if it does not keep its contents without power.
    pub(crate) fn check_access(&self, access: Access) -> Result {
        if access.contains(Access::FLUSH_PERSISTENT) && !self.is_persistent() {
            return Err(EINVAL);
        }
        if access.intersects(Access::WRITABLE) && !self.is_writable() {
            return Err(EACCES);
        }
        Ok(())
    }

    /// Whether the pages keep their contents without power, and are to be flushed.
    #[inline]
    fn is_persistent(&self) -> bool {
        self.access.contains(Access::FLUSH_PERSISTENT)
    }

    #[inline]
    fn is_writable(&self) -> bool {
        self.access.intersects(Access::WRITABLE)
    }

    /// Access to the pages; [`None`] once they are, or are about to be, released. Any context.
    #[inline]
    pub fn enter(&self) -> Option<Pages<'_>> {
        Some(Pages {
            _pass: self.gate.enter()?,
            umem: self,
        })
    }

    /// Waits for those who use the memory, then gives it back. Process context.
    #[inline]
    pub fn release(&self) {
        self.gate.close_and_wait();
        let origin = self.origin.lock().take();
        drop(origin);
    }
}

/// Pages that stay pinned while this value lives. Short-lived: releasing waits for it.
pub struct Pages<'a> {
    _pass: Pass<'a>,
    umem: &'a Umem,
}

// SAFETY: The pieces are those of the blocks, which stay valid as long as the pass does. Memory that is only to be read has
// none for writing.
unsafe impl Memory for Pages<'_> {
    #[inline]
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        if intent == Intent::Write && !self.umem.is_writable() {
            return Err(Fault::OutOfRange);
        }
        self.umem.blocks.pieces(offset, len, intent, f)
    }

    #[inline]
    fn is_persistent(&self) -> bool {
        self.umem.is_persistent()
    }

    #[inline]
    fn has_atomics(&self) -> bool {
        // Its driver may have mapped it without caching. No CPU but x86 promises atomic instructions for such memory.
        !self.umem.is_dma_buf || cfg!(CONFIG_X86)
    }
}
