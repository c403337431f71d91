// SPDX-License-Identifier: GPL-2.0

//! Memory that others access at the same time: it is only ever copied from and into.
//!
//! What a memory region covers belongs to a user process, or to a kernel consumer that may hand it
//! to a CPU or to another device while packets arrive for it. So no reference to it is ever made;
//! bytes move by `memcpy`, and the aligned words of atomic operations by atomic instructions.

use kernel::{
    alloc::flags::__GFP_NOWARN,
    page::PAGE_SHIFT,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
};
use net::Piece;

// Kernel memory is addressed through its direct mapping.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// An access beyond the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

/// Copies bytes that others may be changing meanwhile.
///
/// # Safety
///
/// - `dst` must be valid for writes of `len` bytes, `src` for reads of `len` bytes, and they must
///   not overlap.
/// - Rust references to shared bytes among them must not exist.
#[inline]
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `memcpy` asks for nothing beyond the promises of the caller. It is C code, for which
    // the kernel's memory model allows the bytes to change underneath: what is read of them is
    // unspecified, and nothing here depends on it.
    unsafe { kernel::bindings::memcpy(dst.cast(), src.cast(), len) };
}

/// Kernel memory for whose addresses a kernel consumer vouches.
///
/// A kernel consumer that posts a work request with the local DMA key promises that its memory
/// stays valid until the request completes, and drivers of real hardware just pass its addresses
/// to the hardware. Only this crate makes such values, and only out of such work requests.
#[derive(Clone, Copy)]
pub struct KernelBuffer {
    addr: usize,
    len: usize,
}

impl KernelBuffer {
    /// Wraps kernel memory.
    ///
    /// # Safety
    ///
    /// The `len` bytes from the kernel address `addr` must stay valid for reads and writes for as
    /// long as the result and its copies are used.
    #[inline]
    pub(crate) unsafe fn new(addr: usize, len: usize) -> Self {
        Self { addr, len }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        let end = offset.checked_add(len).ok_or(OutOfRange)?;
        if end > self.len {
            return Err(OutOfRange);
        }
        Ok(core::ptr::with_exposed_provenance_mut::<u8>(
            self.addr.wrapping_add(offset),
        ))
    }

    /// Copies from the buffer.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfRange> {
        let src = self.at(offset, out.len())?;
        // SAFETY: `out` is an exclusive reference; the source range lies within the buffer, whose
        // validity the creator of `self` promised.
        unsafe { copy(out.as_mut_ptr(), src, out.len()) };
        Ok(())
    }

    /// Copies into the buffer.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), OutOfRange> {
        let dst = self.at(offset, data.len())?;
        // SAFETY: As for `read`, with the directions exchanged.
        unsafe { copy(dst, data.as_ptr(), data.len()) };
        Ok(())
    }

    /// Copies a piece of a packet into the buffer.
    #[inline]
    pub fn write_piece(&self, offset: usize, piece: &Piece<'_>) -> Result<(), OutOfRange> {
        let dst = self.at(offset, piece.len())?;
        // SAFETY: As for `write`; the piece is valid for reads of its length, and page fragments
        // of a packet are not part of a consumer's buffer, or if they are (a packet that was sent
        // to ourselves without a copy), `memmove` semantics do not matter to anybody: it is the
        // consumer who sends from where it receives.
        unsafe { copy(dst, piece.as_ptr(), piece.len()) };
        Ok(())
    }
}

impl KernelBuffer {
    /// The aligned word at `offset`.
    fn word(&self, offset: usize) -> Result<&Atomic<u64>, OutOfRange> {
        let ptr = self.at(offset, size_of::<u64>())?.cast::<u64>();
        if !ptr.is_aligned() {
            return Err(OutOfRange);
        }
        // SAFETY: `ptr` is aligned and points to 8 bytes of the buffer, which its creator promised to
        // be valid. All other accesses of the kernel are the copies of this module and the
        // consumer's own, which the memory model of `copy` covers.
        Ok(unsafe { Atomic::from_ptr(ptr) })
    }

    /// Compares the word at `offset` with `compare` and, if they are equal, replaces it by `swap`;
    /// returns the old value. An unaligned word is out of range.
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, OutOfRange> {
        Ok(match self.word(offset)?.cmpxchg(compare, swap, Full) {
            Ok(old) | Err(old) => old,
        })
    }

    /// Adds to the word at `offset`; returns the old value. An unaligned word is out of range.
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, OutOfRange> {
        Ok(self.word(offset)?.fetch_add(add, Full))
    }
}

/// A list of blocks of kernel memory, all of one size, that make up one range of bytes.
///
/// # Invariants
///
/// - The kernel addresses in `blocks` are valid for reads and writes of `1 << shift` bytes each,
///   except that the first is valid only from `first_offset` on, and the last up to the end of the
///   range, for as long as the owner of this value keeps it.
/// - The range `first_offset .. first_offset + len` does not reach beyond the blocks.
pub(crate) struct Blocks {
    blocks: KVVec<usize>,
    shift: u32,
    first_offset: usize,
    len: u64,
}

impl Blocks {
    /// An empty list that can grow to `capacity` blocks without allocating.
    pub(crate) fn with_capacity(capacity: usize) -> Result<Self> {
        // A process chooses the size: it pays for it, and too much of it is no news.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        // INVARIANT: The range is empty.
        Ok(Self {
            blocks: KVVec::with_capacity(capacity, flags)?,
            shift: PAGE_SHIFT as u32,
            first_offset: 0,
            len: 0,
        })
    }

    /// Makes the list a copy of `other`, whose blocks the caller of [`Self::set_range`] vouched for.
    /// Returns false if that would need an allocation.
    pub(crate) fn copy_from(&mut self, other: &Self) -> bool {
        self.clear();
        for &block in other.blocks.iter() {
            if !self.push(block) {
                self.clear();
                return false;
            }
        }
        // INVARIANT: As for `other`.
        self.shift = other.shift;
        self.first_offset = other.first_offset;
        self.len = other.len;
        true
    }

    /// Empties the list; its capacity stays.
    pub(crate) fn clear(&mut self) {
        // INVARIANT: The range is empty.
        self.blocks.clear();
        self.len = 0;
        self.first_offset = 0;
    }

    /// Adds a block. Returns false if that would need an allocation.
    pub(crate) fn push(&mut self, addr: usize) -> bool {
        // INVARIANT: The range does not change.
        self.blocks.push_within_capacity(addr).is_ok()
    }

    /// Sets the size of the blocks and the range within them.
    ///
    /// # Safety
    ///
    /// The blocks from byte `first_offset` of the first on, for `len` bytes, must be valid for
    /// reads and writes until the list is cleared or dropped.
    pub(crate) unsafe fn set_range(&mut self, shift: u32, first_offset: usize, len: u64) -> Result {
        let size = 1usize.checked_shl(shift).ok_or(EINVAL)?;
        let total = (self.blocks.len() as u64)
            .checked_mul(size as u64)
            .ok_or(EINVAL)?;
        let end = (first_offset as u64).checked_add(len).ok_or(EINVAL)?;
        if first_offset >= size || end > total {
            return Err(EINVAL);
        }
        // INVARIANT: The range lies within the blocks, as just checked; they are valid by the
        // promise of the caller.
        self.shift = shift;
        self.first_offset = first_offset;
        self.len = len;
        Ok(())
    }

    /// Bytes in the range.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Calls `f` with the address and length of each contiguous piece of `offset .. offset + len`,
    /// the third argument counting the bytes before it.
    #[inline]
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut f: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), OutOfRange> {
        let end = offset.checked_add(len as u64).ok_or(OutOfRange)?;
        if end > self.len {
            return Err(OutOfRange);
        }
        let size = 1usize.wrapping_shl(self.shift);
        // No overflow: the invariant bounds the sum by the bytes in all blocks.
        let position = (self.first_offset as u64).wrapping_add(offset);
        let mut index = position.wrapping_shr(self.shift) as usize;
        let mut within = (position as usize) & size.wrapping_sub(1);
        let mut done = 0usize;
        while done < len {
            let start = *self.blocks.get(index).ok_or(OutOfRange)?;
            let mut run = size.wrapping_sub(within);
            let mut next = start.wrapping_add(size);
            index = index.wrapping_add(1);
            // Merge the blocks that follow each other in memory.
            while run < len.wrapping_sub(done) {
                match self.blocks.get(index) {
                    Some(&block) if block == next => {
                        run = run.wrapping_add(size);
                        next = next.wrapping_add(size);
                        index = index.wrapping_add(1);
                    }
                    _ => break,
                }
            }
            let piece = run.min(len.wrapping_sub(done));
            f(
                core::ptr::with_exposed_provenance_mut::<u8>(start.wrapping_add(within)),
                piece,
                done,
            );
            done = done.wrapping_add(piece);
            within = 0;
        }
        Ok(())
    }

    /// Copies from the range.
    #[inline]
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        let len = out.len();
        let base = out.as_mut_ptr();
        // SAFETY: `pieces` calls back with pieces of the range, valid by the type invariant, whose
        // lengths add up to `len`, so that `done + len` never exceeds `out`; `out` is an exclusive
        // reference and cannot overlap with memory that is nobody's reference.
        self.pieces(offset, len, |src, len, done| unsafe {
            copy(base.add(done), src, len)
        })
    }

    /// Copies into the range.
    #[inline]
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), OutOfRange> {
        let base = data.as_ptr();
        // SAFETY: As for `read`, with the directions exchanged.
        self.pieces(offset, data.len(), |dst, len, done| unsafe {
            copy(dst, base.add(done), len)
        })
    }

    /// Copies a piece of a packet into the range.
    #[inline]
    pub(crate) fn write_piece(&self, offset: u64, piece: &Piece<'_>) -> Result<(), OutOfRange> {
        let base = piece.as_ptr();
        // SAFETY: As for `write`; the piece is valid for reads of its length.
        self.pieces(offset, piece.len(), |dst, len, done| unsafe {
            copy(dst, base.add(done), len)
        })
    }

    /// The aligned word at `offset`.
    fn word(&self, offset: u64) -> Result<&Atomic<u64>, OutOfRange> {
        let mut word = None;
        self.pieces(offset, size_of::<u64>(), |ptr, len, _| {
            if len == size_of::<u64>() && ptr.cast::<u64>().is_aligned() {
                word = Some(ptr.cast::<u64>());
            }
        })?;
        let ptr = word.ok_or(OutOfRange)?;
        // SAFETY: `ptr` is aligned and points to 8 bytes of the range, valid by the type invariant
        // for as long as `self` is borrowed. All other accesses of the kernel are the copies of
        // this module and the users' own, which the memory model of `copy` covers.
        Ok(unsafe { Atomic::from_ptr(ptr) })
    }

    /// Compares the word at `offset` with `compare` and, if they are equal, replaces it by `swap`;
    /// returns the old value. An unaligned word is out of range.
    pub(crate) fn compare_swap(
        &self,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, OutOfRange> {
        Ok(match self.word(offset)?.cmpxchg(compare, swap, Full) {
            Ok(old) | Err(old) => old,
        })
    }

    /// Adds to the word at `offset`; returns the old value. An unaligned word is out of range.
    pub(crate) fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, OutOfRange> {
        Ok(self.word(offset)?.fetch_add(add, Full))
    }
}

/// Gives a type that lends a [`Blocks`] its methods.
macro_rules! forward_accesses {
    ($ty:ty, |$this:ident| $blocks:expr) => {
        impl $ty {
            /// Copies from the memory.
            #[inline]
            pub fn read(
                &self,
                offset: u64,
                out: &mut [u8],
            ) -> Result<(), $crate::memory::OutOfRange> {
                let $this = self;
                $blocks.read(offset, out)
            }

            /// Copies into the memory.
            #[inline]
            pub fn write(
                &self,
                offset: u64,
                data: &[u8],
            ) -> Result<(), $crate::memory::OutOfRange> {
                let $this = self;
                $blocks.write(offset, data)
            }

            /// Copies a piece of a packet into the memory.
            #[inline]
            pub fn write_piece(
                &self,
                offset: u64,
                piece: &net::Piece<'_>,
            ) -> Result<(), $crate::memory::OutOfRange> {
                let $this = self;
                $blocks.write_piece(offset, piece)
            }

            /// Compares the word at `offset` with `compare` and, if they are equal, replaces it by
            /// `swap`; returns the old value. An unaligned word is out of range.
            pub fn compare_swap(
                &self,
                offset: u64,
                compare: u64,
                swap: u64,
            ) -> Result<u64, $crate::memory::OutOfRange> {
                let $this = self;
                $blocks.compare_swap(offset, compare, swap)
            }

            /// Adds to the word at `offset`; returns the old value. An unaligned word is out of
            /// range.
            pub fn fetch_add(
                &self,
                offset: u64,
                add: u64,
            ) -> Result<u64, $crate::memory::OutOfRange> {
                let $this = self;
                $blocks.fetch_add(offset, add)
            }
        }
    };
}
pub(crate) use forward_accesses;

/// Reads and writes through the direct mapping of all kernel memory, for regions without
/// translation (DMA regions). The consumers of such a region vouch for every address they use or
/// hand to a peer.
pub struct Unchecked(());

impl Unchecked {
    /// # Safety
    ///
    /// The kernel consumer that asked for a region over all memory vouches for the addresses that
    /// are used with the region's keys, as it must with real hardware.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }

    /// The buffer at the kernel address `addr`.
    #[inline]
    pub fn buffer(&self, addr: u64, len: usize) -> KernelBuffer {
        // SAFETY: Vouched for by the consumer, see the constructor.
        unsafe { KernelBuffer::new(addr as usize, len) }
    }
}
