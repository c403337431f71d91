// SPDX-License-Identifier: GPL-2.0

//! The payload of a received packet, as the segments of memory that it lies in.

use crate::skb::{
    self,
    next_in_list, //
};
use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    bindings as kernel_bindings,
    ffi::c_void, //
};
use rdma_bindings as bindings;

/// One segment of a received packet: bytes that nobody changes but by mistake.
///
/// It is no slice, as the bytes may belong to the pages of a sender on this very machine: they are read once,
/// by one of the functions here, and what was read counts.
///
/// # Invariants
///
/// `start` is valid for reads of `len` bytes, for `'a`.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    start: NonNull<u8>,
    len: usize,
    _packet: PhantomData<&'a u8>,
}

impl<'a> Segment<'a> {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns where the bytes are. They may be read, as what may change meanwhile, for `'a`.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Feeds the bytes to [`crc32_le`](sync::crc32_le).
    #[inline]
    pub fn crc32_le(&self, state: u32) -> u32 {
        // SAFETY: By the type invariant the bytes may be read.
        unsafe { bindings::crc32_le(state, self.as_ptr().cast::<c_void>(), self.len) }
    }
}

/// The segments of a part of a received packet, in order.
///
/// If the part goes beyond the packet's end, the segments end there: compare the lengths.
///
/// # Invariants
///
/// `head` is a packet that stays as it is for `'a`. `current` is `head`, a member of its fragment list, or
/// null; nested lists are not looked into.
pub struct Segments<'a> {
    head: *mut kernel_bindings::sk_buff,
    current: *mut kernel_bindings::sk_buff,
    /// The next segment of `current`: 0 is the linear part, the fragments follow.
    index: u32,
    /// The bytes in front of the part that are still to be passed over.
    skip: usize,
    /// The bytes that are still to come.
    left: usize,
    _packet: PhantomData<&'a u8>,
}

impl<'a> Segments<'a> {
    /// Makes an iterator over the `len` bytes of a packet that `skip` bytes of its data stand in front of.
    ///
    /// # Safety
    ///
    /// `skb` is a packet that nobody changes or frees for `'a`.
    pub(crate) unsafe fn new(
        skb: NonNull<kernel_bindings::sk_buff>,
        skip: usize,
        len: usize,
    ) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            head: skb.as_ptr(),
            current: skb.as_ptr(),
            index: 0,
            skip,
            left: len,
            _packet: PhantomData,
        }
    }

    /// Returns the next segment of memory, of any length, and moves behind it.
    fn advance(&mut self) -> Option<(NonNull<u8>, usize)> {
        loop {
            let raw = NonNull::new(self.current)?.as_ptr();
            let index = self.index;
            self.index = index.wrapping_add(1);
            let Some(fragment) = index.checked_sub(1) else {
                // SAFETY: By the type invariant `raw` is a packet.
                let (data, len) = unsafe { skb::linear(raw) };
                return Some((NonNull::new(data)?, len));
            };
            // SAFETY: By the type invariant `raw` is a packet.
            if fragment < unsafe { skb::nr_frags(raw) } {
                // SAFETY: As above, and it has that fragment.
                let (data, len) = unsafe {
                    (
                        bindings::skb_frag_address_at(raw, fragment),
                        (*(&raw const (*skb::shared_info(raw)).frags)
                            .cast::<kernel_bindings::skb_frag>()
                            .add(fragment as usize))
                        .len,
                    )
                };
                // CAST: `usize` is not narrower than 32 bits.
                return Some((NonNull::new(data.cast::<u8>())?, len as usize));
            }
            // INVARIANT: The first member of the list, the next one, or null.
            self.current = if ptr::eq(raw, self.head) {
                // SAFETY: As above.
                unsafe { skb::frag_list(raw) }
            } else {
                // SAFETY: `raw` is a member of the list.
                unsafe { next_in_list(raw) }
            };
            self.index = 0;
        }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    #[inline]
    fn next(&mut self) -> Option<Segment<'a>> {
        while self.left != 0 {
            let (start, len) = self.advance()?;
            let Some(len) = len.checked_sub(self.skip) else {
                self.skip = self.skip.wrapping_sub(len);
                continue;
            };
            let skip = core::mem::take(&mut self.skip);
            let len = len.min(self.left);
            if len == 0 {
                continue;
            }
            self.left = self.left.wrapping_sub(len);
            // INVARIANT: The packet's memory stays for `'a`, by the type invariant.
            return Some(Segment {
                // SAFETY: `skip` is at most the length of the segment.
                start: unsafe { start.add(skip) },
                len,
                _packet: PhantomData,
            });
        }
        None
    }
}
