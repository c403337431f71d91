// SPDX-License-Identifier: GPL-2.0

//! Lists of pieces of kernel memory, of any address and length.

use crate::memory::{
    Fault,
    Intent,
    Memory,
    Visit, //
};
use kernel::prelude::*;

/// One piece.
#[derive(Clone, Copy)]
struct Extent {
    addr: usize,
    /// The number of bytes in this piece and in all before it.
    end: u64,
}

/// Segments of kernel memory that make up one range of bytes.
///
/// # Invariants
///
/// - The `end`s increase, by at most `isize::MAX` each.
/// - Each address is valid for reads and writes of as many bytes as its `end` exceeds that of the piece before, or 0,
///   whenever the owner of this value uses it as [`Memory`].
pub(crate) struct Extents(KVVec<Extent>);

impl Extents {
    /// An empty list that can grow to `capacity` pieces without allocating.
    pub(crate) fn with_capacity(capacity: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(capacity, GFP_KERNEL_ACCOUNT)?))
    }

    /// Makes the list a copy of `other`, for whose pieces the caller of [`Self::push`] vouched. Returns false if that
    /// would need an allocation.
    pub(crate) fn copy_from(&mut self, other: &Self) -> bool {
        self.0.clear();
        for &extent in other.0.iter() {
            // INVARIANT: As for `other`.
            if self.0.push_within_capacity(extent).is_err() {
                self.0.clear();
                return false;
            }
        }
        true
    }

    /// Empties the list; its capacity stays.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.last().map_or(0, |extent| extent.end)
    }

    /// The index of the piece with the byte at `offset`, or one beyond the last. (`partition_point()` may panic, as far as
    /// the compiler knows.)
    fn index_of(&self, offset: u64) -> usize {
        let (mut low, mut high) = (0, self.0.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self
                .0
                .get(middle)
                .is_some_and(|extent| extent.end <= offset)
            {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        low
    }

    /// Adds a piece. Returns false if that would need an allocation, or if there are no bytes in it.
    ///
    /// # Safety
    ///
    /// The `len` bytes from the kernel address `addr` on must be valid for reads and writes whenever the list, or a copy of
    /// it, is used as [`Memory`].
    pub(crate) unsafe fn push(&mut self, addr: usize, len: u32) -> bool {
        let Some(end) = self.len().checked_add(u64::from(len)) else {
            return false;
        };
        // INVARIANT: The end is as much behind that of the last one as the caller vouches for.
        len != 0 && self.0.push_within_capacity(Extent { addr, end }).is_ok()
    }
}

// SAFETY: The pieces lie in extents, valid by the type invariant. Each is as long as what is left to do at the most, and
// the loop ends when that is nothing.
unsafe impl Memory for Extents {
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        _intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        let last = offset.checked_add(len as u64).ok_or(Fault::OutOfRange)?;
        if last > self.len() {
            return Err(Fault::OutOfRange);
        }
        let first = self.index_of(offset);
        let mut position = offset;
        let mut begin = match first.checked_sub(1).and_then(|index| self.0.get(index)) {
            Some(before) => before.end,
            None => 0,
        };
        for extent in self.0.get(first..).unwrap_or_default() {
            if position >= last {
                break;
            }
            // CAST: Both are at most the length of a piece, which is an address's at the most.
            let within = position.wrapping_sub(begin) as usize;
            let piece = extent.end.min(last).wrapping_sub(position) as usize;
            f.visit(
                core::ptr::with_exposed_provenance_mut::<u8>(extent.addr.wrapping_add(within)),
                piece,
                position.wrapping_sub(offset) as usize,
            );
            position = extent.end;
            begin = extent.end;
        }
        Ok(())
    }
}
