// SPDX-License-Identifier: GPL-2.0

//! Memory that others access at the same time: it is only ever copied from and into.
//!
//! The memory of a region belongs to a user process, or to a kernel consumer that may hand it
//! to a CPU or to another device while packets arrive for it. So no reference to it is ever made;
//! bytes move by `memcpy`, and the aligned words of atomic operations by atomic instructions.

use core::{
    mem::MaybeUninit,
    sync::atomic::{
        compiler_fence,
        Ordering, //
    }, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
    page::PAGE_SHIFT,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    },
    transmute::FromBytes, //
};
use net::Segment;
use rdma_bindings as bindings;

// Kernel memory is addressed through its direct mapping.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// Why memory cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The access goes beyond the end, or a word is not aligned.
    OutOfRange,
    /// Pages of a process are not there at the moment, or not for writing. It may be that a part was
    /// accessed: copying anew does no harm.
    Absent(MissingPages),
}

/// The purpose of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To read.
    Read,
    /// To write.
    Write,
}

/// Pages that an access needs and does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingPages {
    /// The first, as an index into the memory's pages.
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) intent: Intent,
}

/// An operation on eight aligned bytes at once.
#[derive(Clone, Copy)]
pub enum Exchange {
    /// `swap` replaces them if they are equal to `compare`.
    CompareSwap {
        /// The value that they are compared with.
        compare: u64,
        /// The value that replaces them.
        swap: u64,
    },
    /// This is added to them.
    Add(u64),
    /// This replaces them, after all that was written before.
    Store(u64),
}

/// Visits the pieces of a range of memory, as a closure does. A `dyn FnMut` would do, but comes with a second copy of each
/// closure, for `FnOnce`.
pub trait Visit {
    /// Visits a piece: its address, its length, and the number of bytes before it.
    fn visit(&mut self, start: *mut u8, len: usize, before: usize);
}

impl<F: FnMut(*mut u8, usize, usize)> Visit for F {
    #[inline]
    fn visit(&mut self, start: *mut u8, len: usize, before: usize) {
        self(start, len, before);
    }
}

/// Memory that is copied from and into.
///
/// # Safety
///
/// When [`Memory::pieces`] is asked for `len` bytes, it calls its argument only during the call, with an
/// address, a length and the number of bytes before them. Each address is valid for reads of that length,
/// and for writes too if that is the intent; no Rust reference to these bytes exists. The lengths add
/// up to no more than `len`, and to `len` if the result is `Ok`.
pub unsafe trait Memory {
    /// Has `f` visit each contiguous piece of `offset .. offset + len`, in order. `f` must not sleep: it may run under a
    /// spinlock, with bottom halves off. Context: process or softirq.
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault>;

    /// Whether the memory keeps its contents without power, and its writers rely on that. Then bytes are
    /// persistent as soon as they are written: a FLUSH that came later would have to walk
    /// all of a region, in softirq, and on each CPU that wrote to it.
    #[inline]
    fn is_persistent(&self) -> bool {
        false
    }

    /// Whether the CPU's atomic instructions work on the memory.
    #[inline]
    fn has_atomics(&self) -> bool {
        true
    }
}

impl dyn Memory + '_ {
    /// Copies from the memory.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let len = out.len();
        let base = out.as_mut_ptr();
        let f = &mut |src: *mut u8, n: usize, done: usize| {
            // SAFETY: `pieces` calls back with pieces that are valid for reads, whose lengths add up to at most
            // `len`, so that `done + n` never exceeds `out`; `out` is an exclusive reference and cannot
            // overlap with memory that is nobody's reference.
            unsafe { copy(base.add(done), src, n) };
        };
        self.pieces(offset, len, Intent::Read, f)
    }

    /// Copies into the memory.
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        // SAFETY: `data` is valid for reads of its length.
        unsafe { self.write_from(offset, data.as_ptr(), data.len()) }
    }

    /// Copies a segment of a packet into the memory.
    #[inline]
    pub fn write_segment(&self, offset: u64, segment: &Segment<'_>) -> Result<(), Fault> {
        // SAFETY: The segment is valid for reads of its length. A packet of ours has pages of its own; of another sender's it
        // may be part of the memory (spliced into a socket), which `write_from` allows.
        unsafe { self.write_from(offset, segment.as_ptr(), segment.len()) }
    }

    /// Copies `len` bytes from `base` into the memory, of which they may be a part.
    ///
    /// # Safety
    ///
    /// `base` must be valid for reads of `len` bytes.
    #[inline]
    unsafe fn write_from(&self, offset: u64, base: *const u8, len: usize) -> Result<(), Fault> {
        let persistent = self.is_persistent();
        let f = &mut |dst: *mut u8, len: usize, done: usize| {
            // SAFETY: `pieces` calls back with pieces that are valid for writes, whose lengths add up to at most that of
            // what is read, by the promise of the caller.
            unsafe { place(dst, base.add(done), len) };
            if persistent {
                // SAFETY: `dst` is valid for writes of `len` bytes.
                unsafe { persist(dst, len) };
            }
        };
        self.pieces(offset, len, Intent::Write, f)
    }

    /// Does `what` to the word at `offset`; returns the old value, 0 for [`Exchange::Store`]. An unaligned word is out of
    /// range; so is any if the memory has no atomics, but for [`Exchange::Store`].
    pub fn exchange(&self, offset: u64, what: Exchange) -> Result<u64, Fault> {
        if !matches!(what, Exchange::Store(_)) && !self.has_atomics() {
            return Err(Fault::OutOfRange);
        }
        let mut old = None;
        let persistent = self.is_persistent();
        self.pieces(
            offset,
            size_of::<u64>(),
            Intent::Write,
            &mut |bytes: *mut u8, len: usize, _: usize| {
                let ptr = bytes.cast::<u64>();
                if len != size_of::<u64>() || !ptr.is_aligned() {
                    return;
                }
                // SAFETY: `ptr` is aligned and points to 8 bytes that are valid for reads and
                // writes during this call. All other accesses of the kernel are the copies of this
                // module and the owner's own, which the memory model of `copy` covers.
                let word = unsafe { Atomic::<u64>::from_ptr(ptr) };
                old = Some(match what {
                    Exchange::CompareSwap { compare, swap } => {
                        match word.cmpxchg(compare, swap, Full) {
                            Ok(old) | Err(old) => old,
                        }
                    }
                    Exchange::Add(add) => word.fetch_add(add, Full),
                    Exchange::Store(value) => {
                        word.store(value, Release);
                        0
                    }
                });
                if persistent {
                    // SAFETY: `bytes` is valid for writes of `len` bytes.
                    unsafe { persist(bytes, len) };
                }
            },
        )?;
        old.ok_or(Fault::OutOfRange)
    }
}

/// Copies bytes that others may be changing meanwhile, once.
///
/// # Safety
///
/// - `dst` must be valid for writes of `len` bytes, `src` for reads of `len` bytes. Where they overlap, what is
///   written is unspecified.
/// - Rust references to shared bytes among them must not exist.
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: The caller promises that the bytes may be read and written. The kernel's `memcpy`, or what the compiler
    // makes of it for a few bytes, copies some byte to each place also if others change the bytes underneath, or if both
    // ranges overlap: what is read then is unspecified, and nothing here depends on it.
    unsafe { kernel::bindings::memcpy(dst.cast(), src.cast(), len) };
    // The compiler knows `memcpy`. Without the fence it may replace a later read of `dst` by a second read of `src`.
    compiler_fence(Ordering::SeqCst);
}

/// As [`copy`], but the last bytes are written after all others, and at once: eight of them, or four or two if they are
/// fewer or aligned no better, or one. Network cards write a packet in the order of addresses, and programs wait for the
/// end of an RDMA WRITE by looking at its last byte, or at a word of the processor. `memcpy` may begin at the end, and
/// write a word in parts.
///
/// # Safety
///
/// As for [`copy`].
#[inline]
unsafe fn place(dst: *mut u8, src: *const u8, len: usize) {
    let end = dst.addr().wrapping_add(len);
    let ends_with = |size| len >= size && end % size == 0;
    // SAFETY: By the promise of the caller. The bytes of the word are the last ones, and aligned for it.
    unsafe {
        if ends_with(size_of::<u64>()) {
            place_before_word::<u64>(dst, src, len);
        } else if ends_with(size_of::<u32>()) {
            place_before_word::<u32>(dst, src, len);
        } else if ends_with(size_of::<u16>()) {
            place_before_word::<u16>(dst, src, len);
        } else if len != 0 {
            place_before_word::<u8>(dst, src, len);
        }
    }
}

/// As [`place`], with the last bytes as one integer.
///
/// # Safety
///
/// As for [`copy`]. `len` is not less than the size of `W`, and `dst + len` is aligned for it.
#[inline]
unsafe fn place_before_word<W: FromBytes>(dst: *mut u8, src: *const u8, len: usize) {
    let before = len.wrapping_sub(size_of::<W>());
    let mut word = MaybeUninit::<W>::uninit();
    // SAFETY: By the promise of the caller, both parts may be read and written. Any bytes are a `W`. A volatile access of an
    // aligned word of the processor is one store.
    unsafe {
        copy(dst, src, before);
        copy(word.as_mut_ptr().cast(), src.add(before), size_of::<W>());
        bindings::smp_wmb();
        dst.add(before)
            .cast::<W>()
            .write_volatile(word.assume_init());
    }
}

/// Makes bytes persistent that were written, before this returns.
///
/// # Safety
///
/// `dst` must be valid for writes of `len` bytes.
#[inline]
unsafe fn persist(dst: *mut u8, len: usize) {
    // SAFETY: By the promise of the caller.
    unsafe { bindings::make_persistent(dst.cast(), len) };
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
}

// SAFETY: There is one piece: a part of the buffer, whose validity the creator of `self` promised.
unsafe impl Memory for KernelBuffer {
    #[inline]
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        _intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        let end = offset.checked_add(len as u64).ok_or(Fault::OutOfRange)?;
        if end > self.len as u64 {
            return Err(Fault::OutOfRange);
        }
        // CAST: At most `self.len`.
        let start = self.addr.wrapping_add(offset as usize);
        f.visit(core::ptr::with_exposed_provenance_mut::<u8>(start), len, 0);
        Ok(())
    }
}

/// A list of blocks of kernel memory, all of one size, that make up one range of bytes.
///
/// # Invariants
///
/// - The range `first_offset .. first_offset + len` does not reach beyond the blocks, which have `1 << shift` bytes each.
/// - The bytes of the range, at the kernel addresses in `blocks`, are valid for reads and writes whenever the owner of
///   this value uses it as [`Memory`].
pub(crate) struct Blocks {
    blocks: KVVec<usize>,
    shift: u32,
    first_offset: usize,
    len: u64,
}

impl Blocks {
    /// `kvmalloc()` refuses more than `INT_MAX` bytes.
    pub(crate) const MAX_CAPACITY: usize = i32::MAX as usize / size_of::<usize>();

    /// An empty list that can grow to `capacity` blocks without allocating.
    pub(crate) fn with_capacity(capacity: usize) -> Result<Self> {
        // A process chooses the size and is charged for it, so a failure deserves no warning of the kernel.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        // INVARIANT: The range is empty.
        Ok(Self {
            blocks: KVVec::with_capacity(capacity, flags)?,
            shift: PAGE_SHIFT as u32,
            first_offset: 0,
            len: 0,
        })
    }

    /// Makes the list a copy of `other`, for whose range the caller of [`Self::set_range`] vouched.
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

    /// Adds a block, behind the range. Returns false if that would need an allocation.
    pub(crate) fn push(&mut self, addr: usize) -> bool {
        // INVARIANT: Neither the range nor its bytes change.
        self.blocks.push_within_capacity(addr).is_ok()
    }

    /// Sets the size of the blocks and the range within them.
    ///
    /// # Safety
    ///
    /// The bytes of the range, from byte `first_offset` of the first block on, must be valid for reads and writes whenever
    /// the list, or a copy of it, is used as [`Memory`], until it is cleared.
    pub(crate) unsafe fn set_range(&mut self, shift: u32, first_offset: usize, len: u64) -> Result {
        let size = 1usize.checked_shl(shift).ok_or(EINVAL)?;
        let total = (self.blocks.len() as u64)
            .checked_mul(size as u64)
            .ok_or(EINVAL)?;
        let end = (first_offset as u64).checked_add(len).ok_or(EINVAL)?;
        if first_offset >= size || end > total {
            return Err(EINVAL);
        }
        // INVARIANT: The range lies within the blocks, as just checked; its bytes are valid by the
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
}

// SAFETY: The pieces lie in the range, valid by the type invariant. Each is as long as what is left to do at
// the most, and the loop ends when that is nothing.
unsafe impl Memory for Blocks {
    #[inline]
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        _intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        let end = offset.checked_add(len as u64).ok_or(Fault::OutOfRange)?;
        if end > self.len {
            return Err(Fault::OutOfRange);
        }
        let size = 1usize.wrapping_shl(self.shift);
        // No overflow: the invariant bounds the sum by the bytes in all blocks.
        let position = (self.first_offset as u64).wrapping_add(offset);
        let mut index = position.wrapping_shr(self.shift) as usize;
        let mut within = (position as usize) & size.wrapping_sub(1);
        let mut done = 0usize;
        while done < len {
            let start = *self.blocks.get(index).ok_or(Fault::OutOfRange)?;
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
            f.visit(
                core::ptr::with_exposed_provenance_mut::<u8>(start.wrapping_add(within)),
                piece,
                done,
            );
            done = done.wrapping_add(piece);
            within = 0;
        }
        Ok(())
    }
}

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
