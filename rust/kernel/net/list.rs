// SPDX-License-Identifier: GPL-2.0

//! Lists of received datagrams.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    receive::RxSkb,
    skb::{
        next_in_list,
        set_next, //
    },
};
use core::{
    mem::ManuallyDrop,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::bindings as kernel_bindings;

/// Received datagrams in a row, first in, first out. It takes no memory, and has no lock. Drop: process or
/// softirq.
///
/// # Invariants
///
/// `first` and `last` are both null, and `len` and `memory` are 0; or they are the ends of a list of `len` packets, each
/// from `RxSkb::into_raw` but for its link to the next one, which is null in the last, with `memory` bytes.
pub struct RxList {
    first: *mut kernel_bindings::sk_buff,
    last: *mut kernel_bindings::sk_buff,
    len: u32,
    memory: u32,
}

// SAFETY: By the type invariant the packets are ours, and they are `Send`.
unsafe impl Send for RxList {}

impl Default for RxList {
    fn default() -> Self {
        // INVARIANT: There is no packet.
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            len: 0,
            memory: 0,
        }
    }
}

impl RxList {
    /// Puts a packet at the end. Any context.
    #[inline]
    pub fn push(&mut self, packet: RxSkb) {
        let memory = packet.memory();
        let skb = packet.into_raw().as_ptr();
        if self.last.is_null() {
            self.first = skb;
        } else {
            // SAFETY: By the type invariant `last` is a packet that is ours.
            unsafe { set_next(self.last, skb) };
        }
        // INVARIANT: The packet, whose link is null, is the last one now.
        self.last = skb;
        self.len = self.len.wrapping_add(1);
        self.memory = self.memory.wrapping_add(memory);
    }

    /// Puts a packet before all others. Any context.
    pub fn push_front(&mut self, packet: RxSkb) {
        let others = core::mem::take(self);
        self.push(packet);
        self.append(others);
    }

    /// Takes the first packet. Any context.
    #[inline]
    pub fn pop(&mut self) -> Option<RxSkb> {
        let skb = NonNull::new(self.first)?;
        // SAFETY: By the type invariant this is the first packet of the list.
        unsafe {
            self.first = next_in_list(skb.as_ptr());
            set_next(skb.as_ptr(), ptr::null_mut());
        }
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        // SAFETY: By the type invariant it is from `into_raw`; it is in no list any more.
        let packet = unsafe { RxSkb::from_raw(skb) };
        // INVARIANT: The rest of the list, or nothing. The memory of a packet does not change while it is in a list.
        self.len = self.len.wrapping_sub(1);
        self.memory = self.memory.wrapping_sub(packet.memory());
        Some(packet)
    }

    /// Puts all packets of `other` behind these. Any context.
    #[inline]
    pub fn append(&mut self, other: Self) {
        if other.first.is_null() {
            return;
        }
        let other = ManuallyDrop::new(other);
        if self.last.is_null() {
            self.first = other.first;
        } else {
            // SAFETY: By the type invariant `last` is a packet that is ours.
            unsafe { set_next(self.last, other.first) };
        }
        // INVARIANT: The end of `other` is that of both, now.
        self.last = other.last;
        self.len = self.len.wrapping_add(other.len);
        self.memory = self.memory.wrapping_add(other.memory);
    }

    /// Takes the first packets, `count` of them at most. Any context.
    #[inline]
    pub fn take(&mut self, count: u32) -> Self {
        if self.len <= count {
            return core::mem::take(self);
        }
        let mut taken = Self::default();
        while taken.len < count {
            let Some(packet) = self.pop() else {
                break;
            };
            taken.push(packet);
        }
        taken
    }

    /// Returns the number of packets.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns how many bytes the datagrams have, behind their UDP headers. It goes through all of them.
    pub fn datagram_bytes(&self) -> u64 {
        let mut bytes = 0u64;
        let mut next = self.first;
        while let Some(skb) = NonNull::new(next) {
            // SAFETY: By the type invariant this is a packet of the list, as an `RxSkb` is but for its link.
            unsafe {
                let packet = ManuallyDrop::new(RxSkb::from_raw(skb));
                bytes = bytes.wrapping_add(packet.datagram_len() as u64);
                next = next_in_list(skb.as_ptr());
            }
        }
        bytes
    }

    /// Returns how many bytes of memory the packets use, with all that is the kernel's own of it.
    #[inline]
    pub fn memory(&self) -> u32 {
        self.memory
    }

    /// Returns whether there is no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}

impl Drop for RxList {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
