// SPDX-License-Identifier: GPL-2.0

//! What is read of each packet, without a call into C.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use core::ptr::NonNull;
use kernel::{
    bindings as kernel_bindings,
    prelude::*, //
};
use rdma_bindings as bindings;

// `sk_buff_data_t` is an offset then.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// Returns the number of bytes in the linear part.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn headlen(skb: *const kernel_bindings::sk_buff) -> usize {
    // SAFETY: The caller promises it.
    // CAST: `usize` is not narrower than 32 bits.
    unsafe { (*skb).len.wrapping_sub((*skb).data_len) as usize }
}

/// Returns where the linear part is, and the number of bytes in it.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn linear(skb: *const kernel_bindings::sk_buff) -> (*mut u8, usize) {
    // SAFETY: The caller promises it.
    unsafe { ((*skb).data, headlen(skb)) }
}

/// Makes a packet of `len` bytes in one piece, with `headroom` bytes of room in front of them. Any context. [`None`]
/// if there is no memory.
///
/// What the bytes are at first is not specified.
pub(crate) fn alloc(headroom: u32, len: u32) -> Option<NonNull<kernel_bindings::sk_buff>> {
    let size = headroom.checked_add(len)?;
    let headroom = c_int::try_from(headroom).ok()?;
    // SAFETY: No requirements.
    let skb = unsafe { bindings::alloc_skb(size, kernel_bindings::GFP_ATOMIC) };
    let skb = NonNull::new(skb)?;
    // SAFETY: The packet is empty, and has room for as much as is reserved and put there, together.
    unsafe {
        bindings::skb_reserve(skb.as_ptr(), headroom);
        bindings::skb_put(skb.as_ptr(), len);
    }
    Some(skb)
}

/// Returns where the fragments of a packet are described.
///
/// # Safety
///
/// `skb` is a packet. What is returned is valid as long as it is, and its head is not replaced.
#[inline]
pub(crate) unsafe fn shared_info(
    skb: *const kernel_bindings::sk_buff,
) -> *const kernel_bindings::skb_shared_info {
    // SAFETY: The caller promises a packet; its shared information is at the end of its head.
    unsafe { (*skb).head.add((*skb).end as usize).cast() }
}

/// Returns the number of fragments.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn nr_frags(skb: *const kernel_bindings::sk_buff) -> u32 {
    // SAFETY: The caller promises it.
    unsafe { u32::from((*shared_info(skb)).nr_frags) }
}

/// Returns the first member of the fragment list, or null.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn frag_list(
    skb: *const kernel_bindings::sk_buff,
) -> *mut kernel_bindings::sk_buff {
    // SAFETY: The caller promises it.
    unsafe { (*shared_info(skb)).frag_list }
}

/// Returns the packet's network header.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn network_header(skb: *const kernel_bindings::sk_buff) -> *const u8 {
    // SAFETY: The caller promises it; the offset is that of a place in the head.
    unsafe {
        let offset = (*skb).__bindgen_anon_4.headers.as_ref().network_header;
        (*skb).head.add(usize::from(offset))
    }
}

/// Returns the packet behind `skb` in a list, or null.
///
/// # Safety
///
/// `skb` is a packet, which nobody changes.
#[inline]
pub(crate) unsafe fn next_in_list(
    skb: *mut kernel_bindings::sk_buff,
) -> *mut kernel_bindings::sk_buff {
    // SAFETY: The caller promises it; of the union, the list's member is in use as long as the packet is in
    // the stack.
    unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next }
}

/// Links a packet to the next one of its list.
///
/// # Safety
///
/// `skb` is a packet that the caller owns.
#[inline]
pub(crate) unsafe fn set_next(
    skb: *mut kernel_bindings::sk_buff,
    next: *mut kernel_bindings::sk_buff,
) {
    // SAFETY: The caller promises it.
    unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next = next };
}
