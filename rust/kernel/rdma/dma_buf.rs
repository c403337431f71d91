// SPDX-License-Identifier: GPL-2.0

//! Memory of another device's driver, as a process passes it by a file descriptor: `include/linux/dma-buf.h`.
//!
//! The CPU does all that this device does to memory. So a buffer is mapped for the CPU, and pinned meanwhile: its driver
//! may not move it.

use crate::error::not_supported;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};
use rdma_bindings::DMA_BIDIRECTIONAL;

/// A buffer.
///
/// # Invariants
///
/// This value owns a reference to the `dma_buf` at `0`, which keeps it valid.
struct Buffer(NonNull<bindings::dma_buf>);

impl Buffer {
    /// The buffer that a process has open as `fd`. Errors: `EBADF`, `EINVAL` if the file is none.
    fn get(fd: c_int) -> Result<Self> {
        // SAFETY: Any number may be asked for.
        let buffer = from_err_ptr(unsafe { bindings::dma_buf_get(fd) })?;
        // INVARIANT: The function returned a reference.
        Ok(Self(NonNull::new(buffer).ok_or(EINVAL)?))
    }

    /// Bytes.
    fn len(&self) -> usize {
        // SAFETY: Valid by the type invariant; the size never changes.
        unsafe { (*self.0.as_ptr()).size }
    }

    /// Takes the buffer's reservation lock, which the operations of its driver are called under. May sleep.
    fn lock(&self) -> Reservation<'_> {
        // SAFETY: The buffer is valid by the type invariant, and has a reservation object. Without a context there is
        // no other such lock to wait for, and so no error.
        unsafe { bindings::dma_resv_lock((*self.0.as_ptr()).resv, core::ptr::null_mut()) };
        Reservation(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: The reference belongs to `self`, and nobody uses it any more.
        unsafe { bindings::dma_buf_put(self.0.as_ptr()) };
    }
}

/// A buffer whose reservation lock is held.
struct Reservation<'a>(&'a Buffer);

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // SAFETY: The buffer is valid, and the lock was taken when this value was made.
        unsafe { bindings::dma_resv_unlock((*self.0 .0.as_ptr()).resv) };
    }
}

/// A device's use of a buffer.
///
/// # Invariants
///
/// `attachment` is valid, one of `buffer`, and belongs to this value.
struct Attachment {
    attachment: NonNull<bindings::dma_buf_attachment>,
    buffer: Buffer,
}

/// It does not move while it is pinned, which all our attachments are.
static ATTACH_OPS: bindings::dma_buf_attach_ops = pin_init::zeroed();

impl Attachment {
    /// # Safety
    ///
    /// `device` must be valid for as long as the result is there.
    unsafe fn new(device: *mut bindings::device, buffer: Buffer) -> Result<Self> {
        // SAFETY: The buffer is valid by its type invariant, and the device by the promise of the caller.
        let attachment = from_err_ptr(unsafe {
            bindings::dma_buf_dynamic_attach(
                buffer.0.as_ptr(),
                device,
                &raw const ATTACH_OPS,
                core::ptr::null_mut(),
            )
        })?;
        let attachment = NonNull::new(attachment).ok_or(EINVAL)?;
        // INVARIANT: The function returned a new attachment of this buffer.
        Ok(Self { attachment, buffer })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: The attachment belongs to `self`, which goes, and is one of this buffer.
        unsafe { bindings::dma_buf_detach(self.buffer.0.as_ptr(), self.attachment.as_ptr()) };
    }
}

/// A buffer that stays where it is.
///
/// # Invariants
///
/// `0` is pinned, by this value.
struct Pinned(Attachment);

impl Pinned {
    fn new(attachment: Attachment) -> Result<Self> {
        let reservation = attachment.buffer.lock();
        // SAFETY: The attachment is valid by its type invariant, was made with operations, and the lock is held.
        let result = to_result(unsafe { bindings::dma_buf_pin(attachment.attachment.as_ptr()) });
        drop(reservation);
        result?;
        // INVARIANT: It was just pinned.
        let pinned = Self(attachment);
        // Its driver may be about to bring it here.
        // SAFETY: The buffer is valid, and has a reservation object.
        let left = unsafe {
            bindings::dma_resv_wait_timeout(
                (*pinned.0.buffer.0.as_ptr()).resv,
                bindings::dma_resv_usage_DMA_RESV_USAGE_KERNEL,
                true,
                kernel::time::msecs_to_jiffies(ARRIVAL_MS) as c_ulong,
            )
        };
        match left {
            1.. => Ok(pinned),
            0 => Err(ETIMEDOUT),
            error => Err(Error::from_errno(error as c_int)),
        }
    }

    fn buffer(&self) -> *mut bindings::dma_buf {
        self.0.buffer.0.as_ptr()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _reservation = self.0.buffer.lock();
        // SAFETY: The attachment is valid, pinned by `self`, and the lock is held.
        unsafe { bindings::dma_buf_unpin(self.0.attachment.as_ptr()) };
    }
}

/// How long a buffer may take to arrive where it is pinned, in milliseconds. A guard against a driver that never
/// signals its fence: `dma_fence` requires each to be signalled within a finite time, and ordinary moves take milliseconds.
const ARRIVAL_MS: u32 = 10_000;

/// A buffer that the CPU may read and write at an address of the kernel.
///
/// # Invariants
///
/// `map` is a mapping of the buffer, of this value's own, into ordinary memory: not of device registers.
struct Mapped {
    map: bindings::iosys_map,
    pinned: Pinned,
}

impl Mapped {
    fn new(pinned: Pinned) -> Result<Self> {
        let mut map = pin_init::zeroed();
        // SAFETY: The buffer is valid, `map` is where the mapping is returned, and the lock is not held.
        to_result(unsafe { bindings::dma_buf_vmap_unlocked(pinned.buffer(), &raw mut map) })?;
        // INVARIANT: It was just mapped. If it is device memory the value is dropped at once.
        let mapped = Self { map, pinned };
        if mapped.map.is_iomem {
            return Err(not_supported());
        }
        Ok(mapped)
    }

    fn address(&self) -> *mut c_void {
        // SAFETY: Both fields of the union are addresses.
        unsafe { self.map.__bindgen_anon_1.vaddr }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: The buffer is valid, and the mapping is this value's own; the lock is not held.
        unsafe { bindings::dma_buf_vunmap_unlocked(self.pinned.buffer(), &raw mut self.map) };
    }
}

/// A part of a buffer that the CPU has access to. Drop: process context, may sleep.
///
/// # Invariants
///
/// The CPU's access has begun; it ends with this value. The buffer has the bytes of the part.
pub(crate) struct DmaBuf {
    mapped: Mapped,
    offset: usize,
    len: usize,
}

impl DmaBuf {
    /// `len` bytes from `offset` on, of the buffer that the current process has open as `fd`.
    ///
    /// Errors: `EBADF`; `EINVAL` if it is none, has fewer bytes, there are none, or its driver cannot map it for the CPU;
    /// `EOPNOTSUPP` if it is memory of a device; `ETIMEDOUT`, `ERESTARTSYS` while it is moved; those of its driver.
    /// Context: process, may sleep.
    ///
    /// # Safety
    ///
    /// `device` must be valid for as long as the result is there.
    pub(crate) unsafe fn new(
        device: *mut bindings::device,
        fd: c_int,
        offset: u64,
        len: u64,
    ) -> Result<Self> {
        let buffer = Buffer::get(fd)?;
        let (offset, len) = (usize::try_from(offset)?, usize::try_from(len)?);
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end > buffer.len() {
            return Err(EINVAL);
        }
        // SAFETY: By the promise of the caller.
        let attachment = unsafe { Attachment::new(device, buffer)? };
        let mapped = Mapped::new(Pinned::new(attachment)?)?;
        // SAFETY: The buffer is valid, and the lock is not held.
        to_result(unsafe {
            bindings::dma_buf_begin_cpu_access(mapped.pinned.buffer(), DMA_BIDIRECTIONAL)
        })?;
        // INVARIANT: The access has just begun, and the part lies in the buffer, as checked.
        Ok(Self {
            mapped,
            offset,
            len,
        })
    }

    /// The address of the part's first byte, and how many bytes there are. They are valid for reads and writes as long as
    /// this value is there.
    pub(crate) fn place(&self) -> (usize, usize) {
        let start = self.mapped.address().expose_provenance();
        (start.wrapping_add(self.offset), self.len)
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: The buffer is valid, its access has begun by the type invariant, and the lock is not held. An error
        // means that caches may not be flushed: nobody is left to be told.
        unsafe {
            bindings::dma_buf_end_cpu_access(self.mapped.pinned.buffer(), DMA_BIDIRECTIONAL);
        }
    }
}

// SAFETY: None of what a `DmaBuf` holds belongs to a task: any one may end it.
unsafe impl Send for DmaBuf {}
