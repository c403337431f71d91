// SPDX-License-Identifier: GPL-2.0

//! The memory that a work request names: its scatter/gather list, private to the kernel.

use crate::memory::{
    access::{
        Access,
        Fault,
        MrAccess,
        Touch, //
    },
    key::Recent,
    pd::Pd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use rdma::memory::{
    self,
    KernelBuffer,
    Memory, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    KnownLayout, //
};

/// `struct ib_sge`: one part of a work request's buffer, as it stands in WQEs, too.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Sge {
    /// Virtual address in the memory region's address space.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Local key.
    pub(crate) lkey: u32,
}

/// One piece of a work request's memory.
#[derive(Clone, Copy)]
pub(crate) enum Buffer {
    /// A range of a memory region, checked at each use.
    Keyed(Sge),
    /// Memory that a kernel consumer vouches for, by the reserved local key.
    Kernel(KernelBuffer),
}

impl Default for Buffer {
    fn default() -> Self {
        Self::Keyed(Sge::default())
    }
}

impl Buffer {
    /// A kernel consumer's scatter/gather element.
    pub(crate) fn from_kernel(sge: &rdma::wr::Sge) -> Self {
        match sge.buffer() {
            Some(buffer) => Self::Kernel(buffer),
            None => Self::Keyed(Sge {
                addr: sge.addr(),
                length: sge.length(),
                lkey: sge.lkey(),
            }),
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Keyed(sge) => u64::from(sge.length),
            Self::Kernel(buffer) => buffer.len() as u64,
        }
    }
}

/// Bytes of all of `buffers`; what cannot be counted is more than any message has.
pub(crate) fn total_len(buffers: &[Buffer]) -> u32 {
    let sum = buffers
        .iter()
        .fold(0u64, |sum, buffer| sum.saturating_add(buffer.len()));
    u32::try_from(sum).unwrap_or(u32::MAX)
}

/// Where a [`Cursor`] stands in its list.
#[derive(Default)]
pub(crate) struct Place {
    /// Where the element starts within the list, in bytes.
    base: u64,
    /// Of the element.
    index: usize,
    /// Whether [`Self::recent`] has accessed all of the element. [`None`] before its key was checked.
    is_whole: Option<bool>,
    recent: Recent,
}

impl Place {
    /// Goes to the start, of any list.
    pub(crate) fn rewind(&mut self) {
        self.base = 0;
        self.index = 0;
        self.is_whole = None;
    }

    /// Leaves the element, which has `len` bytes.
    fn go_on(&mut self, len: u64) {
        self.base = self.base.wrapping_add(len);
        self.index = self.index.wrapping_add(1);
        self.is_whole = None;
    }
}

/// A cursor over a scatter/gather list.
///
/// The key of each element is checked when the cursor enters it, over the element's whole range,
/// and the region stays alive while the cursor stands in it. So a cursor is short-lived: a lock is
/// held, or a packet is in work.
///
/// A receive may name more memory than its message comes to fill, and more than its region has: then
/// the bytes that are accessed are checked, and only those, as hardware does.
pub(crate) struct Cursor<'a> {
    pd: &'a Arc<Pd>,
    buffers: &'a [Buffer],
    need: Access,
    place: &'a mut Place,
}

impl<'a> Cursor<'a> {
    /// A cursor over `buffers`, for accesses that need `need`. It stands at `place`: at the start, if that is the
    /// default, or where another one over the same list, for the same accesses, was left.
    pub(crate) fn new(
        pd: &'a Arc<Pd>,
        buffers: &'a [Buffer],
        need: Access,
        place: &'a mut Place,
    ) -> Self {
        Self {
            pd,
            buffers,
            need,
            place,
        }
    }

    /// Fills `out` from the list, starting `offset` bytes into it.
    pub(crate) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.walk(offset, out.len(), |memory, at, done, n| {
            let part = out.get_mut(done..done.wrapping_add(n));
            memory.read(at, part.ok_or(memory::Fault::OutOfRange)?)
        })
    }

    /// Writes `data` into the list, starting `offset` bytes into it.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.walk(offset, data.len(), |memory, at, done, n| {
            let part = data.get(done..done.wrapping_add(n));
            memory.write(at, part.ok_or(memory::Fault::OutOfRange)?)
        })
    }

    /// Writes `len` bytes of a datagram, from `from` bytes into its UDP payload, into the list,
    /// starting `offset` bytes into it.
    pub(crate) fn write_datagram(
        &mut self,
        offset: u64,
        skb: &RxSkb,
        from: usize,
        len: usize,
    ) -> Result<(), Fault> {
        if let Some(piece) = skb.piece(from, len) {
            return self.write(offset, piece);
        }
        self.walk(offset, len, |memory, at, done, n| {
            let mut at = at;
            for segment in skb.segments(from.wrapping_add(done), n) {
                memory.write_segment(at, &segment)?;
                at = at.wrapping_add(segment.len() as u64);
            }
            Ok(())
        })
    }

    /// Calls `f` for each part of `len` bytes at `offset` of the list that lies in one element: with its
    /// memory, where the part is in that, the bytes before the part, and its length.
    fn walk(
        &mut self,
        offset: u64,
        len: usize,
        mut f: impl FnMut(&dyn Memory, u64, usize, usize) -> Result<(), memory::Fault>,
    ) -> Result<(), Fault> {
        if offset < self.place.base {
            self.place.rewind();
        }
        let mut done = 0usize;
        while done < len {
            let Place {
                base,
                index,
                is_whole,
                recent,
            } = &mut *self.place;
            let buffer = self.buffers.get(*index).ok_or(Fault::Protection)?;
            let within = offset.wrapping_add(done as u64).wrapping_sub(*base);
            if within >= buffer.len() {
                self.place.go_on(buffer.len());
                continue;
            }
            let available = usize::try_from(buffer.len().wrapping_sub(within));
            let n = len.wrapping_sub(done).min(available.unwrap_or(usize::MAX));
            let mut part = |memory: &dyn Memory, at: u64| f(memory, at, done, n);
            match buffer {
                Buffer::Keyed(Sge { addr, length, lkey }) => {
                    if is_whole.is_none() {
                        let all = recent.access(self.pd, *lkey, *addr, (*length).into(), self.need);
                        *is_whole = Some(match all {
                            Ok(_) => true,
                            Err(Fault::Protection) => false,
                            Err(fault) => return Err(fault),
                        });
                    }
                    match is_whole {
                        Some(true) => {
                            let access = recent.accessed().ok_or(Fault::Protection)?;
                            access.with(within, n, &mut part)?
                        }
                        _ => {
                            let va = addr.checked_add(within).ok_or(Fault::Protection)?;
                            recent
                                .access(self.pd, *lkey, va, n as u64, self.need)?
                                .with_any(0, n, &mut part)?
                        }
                    }
                }
                Buffer::Kernel(buffer) => with_kernel(buffer, within, &mut part)?,
            }
            done = done.wrapping_add(n);
        }
        Ok(())
    }
}

/// Where the payload of a packet comes from.
pub(crate) enum Payload<'a, 'b> {
    /// There is none.
    None,
    /// Inline data, from so many bytes into it on.
    Inline(&'a [u8], u32),
    /// A scatter/gather list, from so many bytes into it on.
    List(&'a mut Cursor<'b>, u64),
    /// A range of a region, from so many bytes into it on.
    Range(&'a MrAccess, u64),
}

impl Payload<'_, '_> {
    /// Fills `out` with it, whose length it has.
    pub(crate) fn copy_to(self, out: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::None => Ok(()),
            Self::Inline(data, offset) => {
                let rest = data.get(offset as usize..).unwrap_or_default();
                let (part, _) = rest.split_at_checked(out.len()).ok_or(Fault::Protection)?;
                out.copy_from_slice(part);
                Ok(())
            }
            Self::List(cursor, offset) => cursor.read(offset, out),
            Self::Range(access, offset) => access.read(offset, out),
        }
    }
}

/// Calls `f` with the kernel memory `buffer` and `at`.
#[inline(never)]
fn with_kernel(buffer: &KernelBuffer, at: u64, f: &mut dyn Touch) -> Result<(), Fault> {
    f.touch(buffer, at).or(Err(Fault::Protection))
}
