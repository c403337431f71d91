// SPDX-License-Identifier: GPL-2.0

//! The fields of packets, read and changed without a call into C.
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

/// Bytes of a packet's control block.
pub(crate) const CONTROL_BLOCK_LEN: usize = 48;

/// Returns whether a `T` may stand in a packet's control block.
pub(crate) const fn fits_control_block<T>() -> bool {
    size_of::<T>() <= CONTROL_BLOCK_LEN
        && core::mem::offset_of!(kernel_bindings::sk_buff, cb) % align_of::<T>() == 0
        && align_of::<kernel_bindings::sk_buff>() % align_of::<T>() == 0
}

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
/// The initial bytes are not specified.
pub(crate) fn alloc(headroom: u32, len: u32) -> Option<NonNull<kernel_bindings::sk_buff>> {
    let size = headroom.checked_add(len)?;
    // SAFETY: No requirements.
    let skb = unsafe { bindings::alloc_skb(size, kernel_bindings::GFP_ATOMIC) };
    let skb = NonNull::new(skb)?;
    // SAFETY: The packet is empty, and has room for as much as is reserved and put there, together.
    unsafe {
        reserve_and_put(skb.as_ptr(), headroom, len);
    }
    Some(skb)
}

/// Gives an empty packet `headroom` bytes of room, and `len` bytes of data behind them.
///
/// # Safety
///
/// `skb` is a packet that the caller owns, without data, and with room for so much in its head.
#[inline]
pub(crate) unsafe fn reserve_and_put(skb: *mut kernel_bindings::sk_buff, headroom: u32, len: u32) {
    // SAFETY: The caller promises a packet, and that the head has room.
    // CAST: `usize` is not narrower than 32 bits.
    unsafe {
        (*skb).data = (*skb).data.add(headroom as usize);
        (*skb).tail = (*skb).tail.wrapping_add(headroom).wrapping_add(len);
        (*skb).len = (*skb).len.wrapping_add(len);
    }
}

/// Takes the first `len` bytes off the data.
///
/// # Safety
///
/// `skb` is a packet that the caller owns, with so many bytes in its linear part.
#[inline]
pub(crate) unsafe fn pull(skb: *mut kernel_bindings::sk_buff, len: usize) {
    // SAFETY: The caller promises a packet, and that the bytes are in its head.
    // CAST: A head has less than 4 GiB.
    unsafe {
        (*skb).data = (*skb).data.add(len);
        (*skb).len = (*skb).len.wrapping_sub(len as u32);
    }
}

/// Puts the `len` bytes in front of the data to it, and returns where they start.
///
/// # Safety
///
/// `skb` is a packet that the caller owns, with so many bytes in front of its data.
#[inline]
pub(crate) unsafe fn push(skb: *mut kernel_bindings::sk_buff, len: usize) -> *mut u8 {
    // SAFETY: The caller promises a packet, and that the bytes are in its head.
    // CAST: A head has less than 4 GiB.
    unsafe {
        (*skb).data = (*skb).data.sub(len);
        (*skb).len = (*skb).len.wrapping_add(len as u32);
        (*skb).data
    }
}

/// Says that the data start with a network header of `len` bytes, and that a transport header follows it.
///
/// # Safety
///
/// `skb` is a packet that the caller owns, with both in its linear part.
#[inline]
pub(crate) unsafe fn set_headers(skb: *mut kernel_bindings::sk_buff, len: usize) {
    // SAFETY: The caller promises a packet. Both offsets are those of places in its head.
    // CAST: The stack keeps them in 16 bits.
    unsafe {
        let start = (*skb).data.addr().wrapping_sub((*skb).head.addr());
        let headers = (*skb).__bindgen_anon_4.headers.as_mut();
        headers.network_header = start as u16;
        headers.transport_header = start.wrapping_add(len) as u16;
    }
}

/// Takes a packet off its socket and its route, which most have not, and off the IPsec states that it came by.
///
/// # Safety
///
/// `skb` is a packet that the caller owns.
#[inline]
pub(crate) unsafe fn detach(skb: *mut kernel_bindings::sk_buff) {
    // SAFETY: The caller promises it; of the union, this member is in use as long as the packet is in no socket's queue.
    unsafe {
        let held = (*skb).__bindgen_anon_3.__bindgen_anon_1;
        if held.destructor.is_some() || !(*skb).sk.is_null() {
            bindings::skb_orphan(skb);
        }
        if held._skb_refdst != 0 {
            bindings::skb_dst_drop(skb);
        }
        bindings::skb_ext_reset(skb);
    }
}

/// Returns whether a packet is a super-packet.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn is_gso(skb: *const kernel_bindings::sk_buff) -> bool {
    // SAFETY: The caller promises it.
    unsafe { gso_size(skb) != 0 }
}

/// Returns how many bytes the members of a super-packet have; 0 if it is none.
///
/// # Safety
///
/// `skb` is a packet.
#[inline]
pub(crate) unsafe fn gso_size(skb: *const kernel_bindings::sk_buff) -> u16 {
    // SAFETY: The caller promises it.
    unsafe { (*shared_info(skb)).gso_size }
}

/// The size of the memory of a head with `len` bytes of room, which `build_skb()` wants.
pub(crate) fn head_size(len: u32) -> Option<usize> {
    const ALIGN: usize = kernel_bindings::SMP_CACHE_BYTES as usize;
    const SHARED: usize = size_of::<kernel_bindings::skb_shared_info>().next_multiple_of(ALIGN);
    // CAST: `usize` is not narrower than 32 bits.
    (len as usize)
        .checked_next_multiple_of(ALIGN)?
        .checked_add(SHARED)
}

/// Returns where the fragments of a packet are described.
///
/// # Safety
///
/// `skb` is a packet. The result is valid as long as it is, and its head is not replaced.
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

/// Sets the first packet of the list.
///
/// # Safety
///
/// `skb` is a packet of the caller's; `list` is null, or packets that are linked, and become part of it.
#[inline]
pub(crate) unsafe fn set_frag_list(
    skb: *mut kernel_bindings::sk_buff,
    list: *mut kernel_bindings::sk_buff,
) {
    // SAFETY: The caller promises it: nobody else reads or writes the field.
    unsafe { (*shared_info(skb).cast_mut()).frag_list = list };
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
