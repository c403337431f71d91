// SPDX-License-Identifier: GPL-2.0

//! Datagrams to be sent.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    header::{
        self,
        Template,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    page_pool::PagePools,
    path::Path,
    skb::{
        self,
        set_next, //
    },
};
use core::{
    mem::ManuallyDrop,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    bindings as kernel_bindings,
    ffi::c_char,
    prelude::*, //
};
use rdma_bindings as bindings;

/// The room in front of a datagram, for all headers that the stack or we put there.
const HEADROOM: u32 = bindings::LL_MAX_HEADER + header::MAX_LEN as u32;

/// The length of the headers, if they are of IPv4.
const IPV4_HEADERS_LEN: usize = IPV4_LEN + UDP_LEN;

/// The most datagrams of a super-packet, as in those that GRO makes: enough for 64 KiB of 1 KiB each.
pub(crate) const MAX_DATAGRAMS: u16 = 64;
const _: () = assert!(MAX_DATAGRAMS <= u8::MAX as u16);

/// The most bytes of the datagrams of a super-packet. A netdev takes packets of less than 64 KiB in one piece by default,
/// with all that is in front of them: our headers, those of the link layer, and of tunnels that the way may lead through.
const MAX_BURST: usize = (64 << 10) - 1 - header::MAX_LEN - 256;

/// What is known of a packet until it leaves: in its control block, so that only a pointer is moved around.
struct Control {
    last: *mut kernel_bindings::sk_buff,
    len: u32,
    total: u32,
    followers: u8,
    headers_len: u8,
}

/// Bytes of a packet's control block.
const CONTROL_BLOCK_LEN: usize = 48;
const _: () = assert!(size_of::<Control>() <= CONTROL_BLOCK_LEN);
const _: () = assert!(
    core::mem::offset_of!(kernel_bindings::sk_buff, cb) % align_of::<Control>() == 0
        && align_of::<kernel_bindings::sk_buff>() % align_of::<Control>() == 0
);

/// A datagram to be sent, or several that leave together. Drop: process or softirq.
///
/// It is in one piece of memory, which is its own: no packet refers to memory of a process.
///
/// # Invariants
///
/// - The packet is ours alone, and its control block is a `Control`, of which the rest speaks.
/// - The linear part is `headers_len` bytes of headers and the `len` bytes of the datagram, and there is nothing else
///   but the fragment list below. If `headers_len` is 0, the linear part has `HEADROOM` in front of it;
///   otherwise `LL_MAX_HEADER`, these are the headers of IP and UDP of the datagram, and the packet's network and
///   transport header are set.
/// - `len` is at most `header::MAX_DATAGRAM`.
/// - If `last` is not null, it is the last packet of its fragment list, of `followers` packets with headers of their
///   own, but with data from the datagram on, and with nothing in their control blocks; its length and size are theirs,
///   too. The datagrams together have `total` bytes.
#[repr(transparent)]
pub struct TxSkb(NonNull<kernel_bindings::sk_buff>);

// SAFETY: By the type invariant the packet is ours alone.
unsafe impl Send for TxSkb {}
// SAFETY: A shared reference only reads.
unsafe impl Sync for TxSkb {}

impl TxSkb {
    /// Makes a datagram of `len` bytes, all that is to stand behind the UDP header, of memory of `pages` if bottom
    /// halves are off and there is some. Any context.
    ///
    /// What the bytes are at first is not specified: all of them are to be written.
    pub fn alloc(pages: &PagePools, len: usize) -> Option<Self> {
        if len > header::MAX_DATAGRAM {
            return None;
        }
        // CAST: `MAX_DATAGRAM` is 16 bits.
        let len32 = len as u32;
        let room = HEADROOM.checked_add(len32)?;
        let skb = if let Some(memory) = pages.fragment(skb::head_size(room)?) {
            // SAFETY: Bottom halves are off: otherwise there is no fragment. `memory` has at least as many bytes as
            // `room` bytes of data and what goes with them take. It is the packet's if there is one, which gives it
            // back to the pool.
            unsafe {
                let skb = bindings::napi_build_skb(memory.as_ptr().cast(), memory.size());
                let skb = NonNull::new(skb)?;
                memory.leak();
                bindings::skb_mark_for_recycle(skb.as_ptr());
                skb::reserve_and_put(skb.as_ptr(), HEADROOM, len32);
                skb
            }
        } else {
            skb::alloc(HEADROOM, len32)?
        };
        let control = Control {
            last: ptr::null_mut(),
            len: len32,
            total: len32,
            followers: 0,
            headers_len: 0,
        };
        // SAFETY: The control block of a packet that is ours is free for use; it is as aligned as a `Control`, and no
        // smaller.
        unsafe { Self::control_of(skb).write(control) };
        // INVARIANT: The packet was just made, with `HEADROOM`, and all of `len32` bytes in its linear part.
        Some(Self(skb))
    }

    /// Returns where a packet's control block is.
    ///
    /// # Safety
    ///
    /// `skb` is a packet.
    #[inline]
    unsafe fn control_of(skb: NonNull<kernel_bindings::sk_buff>) -> *mut Control {
        // SAFETY: The caller promises a packet.
        let control_block: *mut [c_char; CONTROL_BLOCK_LEN] =
            unsafe { &raw mut (*skb.as_ptr()).cb };
        control_block.cast()
    }

    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: By the type invariant that is what the control block is; a shared reference only reads.
        unsafe { &*Self::control_of(self.0) }
    }

    #[inline]
    fn control_mut(&mut self) -> &mut Control {
        // SAFETY: As in `control`; nobody else has a reference, as ours is exclusive.
        unsafe { &mut *Self::control_of(self.0) }
    }

    /// Returns the C packet, with nothing of ours in its control block: the stack takes what it finds there for its
    /// own.
    fn release(self) -> NonNull<kernel_bindings::sk_buff> {
        let skb = ManuallyDrop::new(self).0;
        // SAFETY: The packet is ours, and so is its control block.
        unsafe { (*skb.as_ptr()).cb = [0; CONTROL_BLOCK_LEN] };
        skb
    }

    /// Returns where the datagram is, and its length.
    #[inline]
    fn place(&self) -> (*mut u8, usize) {
        let headers_len = usize::from(self.control().headers_len);
        // SAFETY: By the type invariant this is a packet, whose linear part starts with so many bytes of headers.
        unsafe {
            let (start, len) = skb::linear(self.0.as_ptr());
            (start.add(headers_len), len.wrapping_sub(headers_len))
        }
    }

    /// Returns the length of the datagram.
    #[inline]
    pub fn len(&self) -> usize {
        // CAST: `usize` is not narrower than 32 bits.
        self.control().len as usize
    }

    /// Returns whether the datagram has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the datagram, to be written.
    #[inline]
    pub fn body_mut(&mut self) -> &mut [u8] {
        let (start, len) = self.place();
        // SAFETY: As in `body`; nobody else has a reference, as ours is exclusive.
        unsafe { slice::from_raw_parts_mut(start, len) }
    }

    /// Puts an IP and a UDP header in front of the datagram: as they will leave, but for the IPv4 header's checksum.
    /// Once only: the second time does nothing.
    ///
    /// The IPv4 header says not to fragment, and has the identification `id`. The UDP header has no checksum.
    #[inline]
    pub(crate) fn address(&mut self, template: &Template, id: u16) {
        if self.control().headers_len != 0 {
            return;
        }
        let headers_len = template.len();
        let skb = self.0.as_ptr();
        // CAST: `MAX_DATAGRAM` and the longest headers are 16 bits.
        let udp_len = (self.len() as u16).wrapping_add(UDP_LEN as u16);
        // SAFETY: By the type invariant there is `HEADROOM` in front of the data, which is enough for both
        // headers; what `push` returns is valid for writes of as much as was pushed. The offsets are within the
        // headers of the family.
        unsafe {
            let start = skb::push(skb, headers_len);
            skb::set_headers(skb, headers_len.wrapping_sub(UDP_LEN));
            let put = |at: usize, value: u16| {
                start.add(at).cast::<[u8; 2]>().write(value.to_be_bytes());
            };
            match template {
                Template::V4(bytes) => {
                    start.cast::<[u8; IPV4_LEN + UDP_LEN]>().write(*bytes);
                    put(2, udp_len.wrapping_add(IPV4_LEN as u16));
                    put(4, id);
                    put(IPV4_LEN + 4, udp_len);
                }
                // It has no identification.
                Template::V6(bytes) => {
                    start.cast::<[u8; IPV6_LEN + UDP_LEN]>().write(*bytes);
                    put(4, udp_len);
                    put(IPV6_LEN + 4, udp_len);
                }
            }
        }
        // INVARIANT: That is what was just done.
        // CAST: 28 or 48.
        self.control_mut().headers_len = headers_len as u8;
    }

    /// Returns the headers of IP and UDP, none if it was not addressed.
    #[inline]
    pub fn headers(&self) -> &[u8] {
        // SAFETY: By the type invariant the linear part, which is ours, starts with so many bytes of headers.
        unsafe {
            let start = (*self.0.as_ptr()).data.cast_const();
            slice::from_raw_parts(start, usize::from(self.control().headers_len))
        }
    }

    /// Returns `room` bytes, the headers of IP and UDP, and the datagram, to be written. The first bytes are no part of
    /// the packet. [`None`] if it was not addressed, or has not so much room.
    #[inline]
    pub fn with_headers_mut(&mut self, room: usize) -> Option<&mut [u8]> {
        if self.control().headers_len == 0 || room > bindings::LL_MAX_HEADER as usize {
            return None;
        }
        // SAFETY: By the type invariant the linear part is ours, and `LL_MAX_HEADER` bytes in front of it. All come from
        // the allocator, behind a C function, so they count as initialised. Nobody else has a reference, as ours is
        // exclusive.
        unsafe {
            let (start, len) = skb::linear(self.0.as_ptr());
            let start = start.sub(room);
            Some(slice::from_raw_parts_mut(start, len.wrapping_add(room)))
        }
    }

    /// Returns the number of datagrams.
    #[inline]
    pub fn datagrams(&self) -> u16 {
        u16::from(self.control().followers).wrapping_add(1)
    }

    /// Puts a datagram behind this one, so that both leave in one super-packet, if that can be; if not, gives
    /// it back. Both were addressed for `path`. Bottom halves are off.
    ///
    /// All datagrams must be as long as the first; only the last may be shorter. A host that segments the super-packet
    /// copies it and goes by the first one's length. So no datagram behind the first needs room for headers of others.
    /// The identifications of IPv4 must count up, as they do after such a segmentation.
    pub fn append(&mut self, other: Self, path: &Path) -> Result<(), Self> {
        let count = self.datagrams();
        if count == 1 && !path.takes_bursts(self.len()) {
            return Err(other);
        }
        let (control, added) = (self.control(), other.control());
        let total = control.total.wrapping_add(added.len);
        if control.headers_len == 0
            || !header::follows(other.headers(), self.headers(), count)
            || added.followers != 0
            || added.len > control.len
            || control.total != control.len.wrapping_mul(u32::from(count))
            || added.len == 0
            || total as usize > MAX_BURST
            || count >= MAX_DATAGRAMS
        {
            return Err(other);
        }
        let headers_len = added.headers_len;
        let (head, member) = (self.0.as_ptr(), other.release().as_ptr());
        let control = self.control_mut();
        // SAFETY: Both packets are ours. By the type invariant the data of `member` starts with its headers,
        // and `last` is the last of the fragment list of `head`.
        unsafe {
            if usize::from(headers_len) == IPV4_HEADERS_LEN {
                bindings::ip_send_check((*member).data.cast());
            }
            skb::pull(member, usize::from(headers_len));
            if control.last.is_null() {
                skb::set_frag_list(head, member);
            } else {
                set_next(control.last, member);
            }
            (*head).len = (*head).len.wrapping_add((*member).len);
            (*head).data_len = (*head).data_len.wrapping_add((*member).len);
            (*head).truesize = (*head).truesize.wrapping_add((*member).truesize);
        }
        // INVARIANT: That is what was just done.
        // CAST: Less than `MAX_DATAGRAMS`.
        control.last = member;
        control.followers = count as u8;
        control.total = total;
        Ok(())
    }

    /// Copies a datagram. Any context. [`None`] if it is several, or there is no memory.
    pub(crate) fn try_copy(&self) -> Option<Self> {
        if self.datagrams() != 1 {
            return None;
        }
        // SAFETY: By the type invariant this is a packet.
        let copy = unsafe { bindings::skb_copy(self.0.as_ptr(), kernel_bindings::GFP_ATOMIC) };
        // INVARIANT: The copy is ours alone. It has all bytes in its linear part, the same header offsets and the same
        // control block, which names no followers.
        NonNull::new(copy).map(Self)
    }

    /// Returns the C packet, which is the caller's now, if it was addressed.
    pub(crate) fn into_raw(self) -> Option<NonNull<kernel_bindings::sk_buff>> {
        let control = self.control();
        if control.headers_len == 0 {
            return None;
        }
        if control.followers != 0 {
            // CAST: At most `MAX_DATAGRAM`.
            let udp_len = (control.total as u16).wrapping_add(UDP_LEN as u16);
            let at = usize::from(control.headers_len)
                .wrapping_sub(UDP_LEN)
                .wrapping_add(4);
            let raw = self.0.as_ptr();
            // SAFETY: By the type invariant the packet's data starts with its headers, the UDP header last.
            // Its length is that of all datagrams, until the super-packet is taken apart.
            unsafe {
                let place = (*raw).data.add(at).cast::<[u8; 2]>();
                place.write(udp_len.to_be_bytes());
                bindings::skb_gso_set_udp_fraglist(raw, control.len, u32::from(self.datagrams()));
            }
        }
        Some(self.release())
    }
}

impl Drop for TxSkb {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the packet is ours.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) };
    }
}
