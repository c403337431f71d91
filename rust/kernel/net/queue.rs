// SPDX-License-Identifier: GPL-2.0

//! Queues of received datagrams.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::receive::RxSkb;
use core::ptr::NonNull;
use kernel::{
    bindings as kernel_bindings,
    prelude::*,
    types::Opaque, //
};
use rdma_bindings as bindings;

/// A queue of received datagrams, first in, first out. Queuing takes no memory.
///
/// # Invariants
///
/// Each packet of `list` is from `RxSkb::into_raw`.
#[pin_data(PinnedDrop)]
pub struct RxQueue {
    #[pin]
    list: Opaque<kernel_bindings::sk_buff_head>,
}

// SAFETY: The packets are `Send`, and the list has a lock of its own.
unsafe impl Send for RxQueue {}
// SAFETY: As above.
unsafe impl Sync for RxQueue {}

impl RxQueue {
    /// Makes an empty queue.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: There is no packet.
        pin_init!(Self {
            list <- Opaque::ffi_init(|list| {
                // SAFETY: `list` is valid for writes, and stays where it is, as it is pinned.
                unsafe { bindings::skb_queue_head_init(list) }
            }),
        })
    }

    /// Puts a packet at the end. Any context.
    #[inline]
    pub fn push(&self, packet: RxSkb) {
        // SAFETY: The list is initialised; the packet is ours, so it is in no list.
        // INVARIANT: It is from `into_raw`.
        unsafe { bindings::skb_queue_tail(self.list.get(), packet.into_raw().as_ptr()) };
    }

    /// Puts a packet back to the front. Any context.
    #[inline]
    pub fn push_front(&self, packet: RxSkb) {
        // SAFETY: The list is initialised; the packet is ours, so it is in no list.
        // INVARIANT: It is from `into_raw`.
        unsafe { bindings::skb_queue_head(self.list.get(), packet.into_raw().as_ptr()) };
    }

    /// Takes the first packet. Any context.
    #[inline]
    pub fn pop(&self) -> Option<RxSkb> {
        // SAFETY: The list is initialised.
        let skb = unsafe { bindings::skb_dequeue(self.list.get()) };
        // SAFETY: By the type invariant it is from `into_raw`, and the list had it.
        NonNull::new(skb).map(|skb| unsafe { RxSkb::from_raw(skb) })
    }

    /// Returns the number of packets at some moment. Any context.
    #[inline]
    pub fn len(&self) -> u32 {
        // SAFETY: The list is initialised.
        unsafe { bindings::skb_queue_len_lockless(self.list.get()) }
    }

    /// Returns whether there was no packet at some moment. Any context.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[pinned_drop]
impl PinnedDrop for RxQueue {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The list is initialised, and its packets are its own.
        unsafe { bindings::skb_queue_purge(self.list.get()) };
    }
}
