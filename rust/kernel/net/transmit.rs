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
    page_pool::{
        Fragment,
        PagePools, //
    },
    path::Path,
    skb::{
        self,
        set_next,
        CONTROL_BLOCK_LEN, //
    }, //
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
    prelude::*,
    sync::rcu, //
};
use rdma_bindings as bindings;

/// The room in front of a datagram, for all headers that the stack or we put there.
const HEADROOM: u32 = bindings::LL_MAX_HEADER + header::MAX_LEN as u32;

/// The most datagrams of a super-packet, as in those that GRO makes: enough for 64 KiB of 1 KiB each.
pub(crate) const MAX_DATAGRAMS: u16 = 64;
const _: () = assert!(MAX_DATAGRAMS <= u8::MAX as u16);

/// The most bytes of the datagrams of a super-packet. A netdev takes packets of less than 64 KiB in one piece by default,
/// with all that is in front of them: our headers, those of the link layer, and of tunnels that the way may lead through.
const MAX_BURST: usize = (64 << 10) - 1 - header::MAX_LEN - 256;

/// Bytes of the shortest body that becomes a fragment: that of shorter ones would save no instructions.
const LEAST_FRAGMENT: usize = 512;

/// The state of a packet until it leaves: in its control block, so that only a pointer is moved around.
struct Control {
    last: *mut kernel_bindings::sk_buff,
    body: *mut u8,
    len: u32,
    total: u32,
    front_len: u16,
    in_front: u16,
    followers: u8,
    headers_len: u8,
}

const _: () = assert!(skb::fits_control_block::<Control>());

/// The outcome for a packet that was given to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Transmit {
    /// It is on its way, as far as is known here.
    Sent,
    /// It was dropped on this machine: no memory, a full queue, a filter rule, a route that is no more.
    Dropped,
}

impl Transmit {
    /// Makes it of what the stack returned.
    #[inline]
    pub(crate) fn of_verdict(verdict: c_int) -> Self {
        // Congestion is notified for a packet that was sent, or for another one.
        if verdict == NET_XMIT_SUCCESS || verdict == NET_XMIT_CN {
            Self::Sent
        } else {
            Self::Dropped
        }
    }
}

// CAST: Small numbers, both.
const NET_XMIT_SUCCESS: c_int = bindings::NET_XMIT_SUCCESS as c_int;
const NET_XMIT_CN: c_int = bindings::NET_XMIT_CN as c_int;

/// A datagram to be sent, or several that leave together. Drop: process or softirq.
///
/// It has a front and a body. The body may be a fragment, which nobody changes on the way. In front of it, in the same
/// memory, stands all else that the sender's checksum covers ([`Self::with_headers_mut`]). A receiver on this host that
/// finds the same in the packet need not compute the checksum ([`RxSkb::follows`](crate::RxSkb::follows)). All memory is
/// the packet's own: no packet refers to memory of a process.
///
/// # Invariants
///
/// - The packet is ours alone, and its control block is a `Control`, of which the rest speaks.
/// - The datagram has `len` bytes; the first `front_len` are its front, the others its body. The linear part is
///   `headers_len` bytes of headers, and the datagram behind them. If `body` is not null, the body is not there but at that
///   address: in the packet's only fragment, with `in_front` bytes in front of it that are the packet's, too. There is
///   nothing else but the fragment list below.
/// - These are the headers of IP and UDP of the datagram, with `LL_MAX_HEADER` in front of them. The packet's network and
///   transport header are set.
/// - `len` is at most `header::MAX_DATAGRAM`, and `front_len` at most `len`.
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
    /// Makes a datagram for `path`: the headers of IP and UDP, a front of `front_len` bytes, and a body of `body_len` bytes.
    /// The bytes of front and body are not specified at first: all of them are to be written.
    ///
    /// The headers are as they will leave, but for the IPv4 header's checksum. The IPv4 header says not to fragment, and has
    /// the identification `id`. The UDP header has no checksum.
    ///
    /// The memory is of `pages` if bottom halves are off and there is some. Then a body of at least 512 bytes is a fragment
    /// if a receiver may be on this host, and `checksum_room` is not 0: in front of it is room for
    /// [`Self::with_headers_mut`] of `checksum_room`. Any context.
    pub fn alloc(
        pages: &PagePools,
        path: &Path,
        id: u16,
        front_len: usize,
        body_len: usize,
        checksum_room: usize,
    ) -> Option<Self> {
        let len = front_len.checked_add(body_len)?;
        if len > header::MAX_DATAGRAM {
            return None;
        }
        let headers_len = path.template.len();
        let in_front = headers_len
            .checked_add(front_len)?
            .checked_add(checksum_room)?;
        let in_front = u16::try_from(in_front).ok()?;
        let packet = if path.may_stay_on_host && checksum_room != 0 && body_len >= LEAST_FRAGMENT {
            Self::alloc_apart(pages, front_len, in_front, body_len)
        } else {
            Self::alloc_linear(pages, len).map(|skb| (skb, ptr::null_mut()))
        };
        // CAST: `MAX_DATAGRAM` is 16 bits, here and below.
        let (skb, body) = match packet {
            Some(packet) => packet,
            None => (skb::alloc(HEADROOM, len as u32)?, ptr::null_mut()),
        };
        let control = Control {
            last: ptr::null_mut(),
            body,
            len: len as u32,
            total: len as u32,
            front_len: front_len as u16,
            in_front,
            followers: 0,
            // CAST: 28 or 48.
            headers_len: headers_len as u8,
        };
        // SAFETY: The packet is ours. Its control block is free for use; it is as aligned as a `Control`, and no smaller.
        // It was made with `HEADROOM`.
        unsafe {
            Self::control_of(skb).write(control);
            push_headers(skb, &path.template, id, len as u16);
        }
        // INVARIANT: The packet was just made with `HEADROOM`, into which the headers were put. All of `len` bytes are in its
        // linear part, or all but `body_len` in its fragment, with `in_front` bytes in front of it.
        Some(Self(skb))
    }

    /// Makes a packet of memory of `pages`, with `HEADROOM` and `len` bytes behind it.
    fn alloc_linear(pages: &PagePools, len: usize) -> Option<NonNull<kernel_bindings::sk_buff>> {
        let len = u32::try_from(len).ok()?;
        let memory = pages.fragment(skb::head_size(HEADROOM.checked_add(len)?)?)?;
        let size = memory.size();
        // SAFETY: That is the size of the memory, which has room for so much, and what goes with it.
        unsafe { Self::build(memory, size, len) }
    }

    /// As [`Self::alloc_linear`], with `front_len` bytes, and a fragment of `body_len` bytes, with `in_front` more in front
    /// of it. Returns where the fragment is, too.
    fn alloc_apart(
        pages: &PagePools,
        front_len: usize,
        in_front: u16,
        body_len: usize,
    ) -> Option<(NonNull<kernel_bindings::sk_buff>, *mut u8)> {
        let front_len = u32::try_from(front_len).ok()?;
        let head_size = skb::head_size(HEADROOM.checked_add(front_len)?)?;
        let body_at = head_size.checked_add(usize::from(in_front))?;
        let memory = pages.fragment(body_at.checked_add(body_len)?)?;
        // CAST: No more than the size of the memory, which is 32 bits.
        let (head_size, body_len) = (head_size as u32, body_len as u32);
        let rest = memory.size().wrapping_sub(head_size);
        // SAFETY: The memory has so many bytes. The first of them have room for `HEADROOM` and the front, and what goes with
        // them; behind those, the body is in the same memory, to which the fragment gets a reference of its own.
        unsafe {
            let body = memory.as_ptr().add(body_at);
            let skb = Self::build(memory, head_size, front_len)?;
            bindings::skb_set_pool_fragment(skb.as_ptr(), body.cast(), body_len, rest);
            Some((skb, body))
        }
    }

    /// Makes a packet whose head is the first `size` bytes of `memory`, with `HEADROOM` and `len` bytes behind it.
    ///
    /// # Safety
    ///
    /// `size` is at most the size of the memory, and at least [`skb::head_size`] of `HEADROOM` and `len` bytes.
    #[inline]
    unsafe fn build(
        memory: Fragment<'_>,
        size: u32,
        len: u32,
    ) -> Option<NonNull<kernel_bindings::sk_buff>> {
        // SAFETY: The caller promises that the memory has room. Bottom halves are off: otherwise there is none. It is the
        // packet's if there is one, which gives it back to the pool.
        unsafe {
            let skb = bindings::napi_build_skb(memory.as_ptr().cast(), size);
            let skb = NonNull::new(skb)?;
            memory.leak();
            bindings::skb_mark_for_recycle(skb.as_ptr());
            skb::reserve_and_put(skb.as_ptr(), HEADROOM, len);
            Some(skb)
        }
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
    pub(crate) fn release(self) -> NonNull<kernel_bindings::sk_buff> {
        let skb = ManuallyDrop::new(self).0;
        // SAFETY: The packet is ours, and so is its control block.
        unsafe { (*skb.as_ptr()).cb = [0; CONTROL_BLOCK_LEN] };
        skb
    }

    /// Returns the length of the datagram.
    #[inline]
    pub fn len(&self) -> usize {
        // CAST: `usize` is not narrower than 32 bits.
        self.control().len as usize
    }

    /// Returns the front and the body of the datagram, to be written.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let front_len = usize::from(self.control().front_len);
        let headers_len = usize::from(self.control().headers_len);
        // SAFETY: By the type invariant this is a packet, whose linear part starts with so many bytes of headers.
        let start = unsafe { (*self.0.as_ptr()).data.add(headers_len) };
        let body = match self.control().body {
            // SAFETY: Then the datagram is in the linear part, and has at least `front_len` bytes.
            body if body.is_null() => unsafe { start.add(front_len) },
            body => body,
        };
        let body_len = self.len().wrapping_sub(front_len);
        // SAFETY: By the type invariant these are the front and the rest of the datagram, all of them ours. They come from
        // the allocator, behind a C function, so they count as initialised. Nobody else has a reference, as ours is
        // exclusive, and they do not overlap.
        unsafe {
            (
                slice::from_raw_parts_mut(start, front_len),
                slice::from_raw_parts_mut(body, body_len),
            )
        }
    }

    /// Returns the headers of IP and UDP.
    #[inline]
    pub fn headers(&self) -> &[u8] {
        // SAFETY: By the type invariant the linear part, which is ours, starts with so many bytes of headers.
        unsafe {
            let start = (*self.0.as_ptr()).data.cast_const();
            slice::from_raw_parts(start, usize::from(self.control().headers_len))
        }
    }

    /// Returns `room` bytes, the headers of IP and UDP, and the datagram, to be written. The first `room` bytes are no part
    /// of the packet. If the body is a fragment, the headers and the front are a copy in front of it, and no part of the
    /// packet either: then the second value is [`true`]. [`None`] if it has not so much room.
    #[inline]
    pub fn with_headers_mut(&mut self, room: usize) -> Option<(&mut [u8], bool)> {
        let control = self.control();
        if room > bindings::LL_MAX_HEADER as usize {
            return None;
        }
        // SAFETY: By the type invariant this is a packet.
        let (start, len) = unsafe { skb::linear(self.0.as_ptr()) };
        if control.body.is_null() {
            // SAFETY: By the type invariant the linear part is ours, and `LL_MAX_HEADER` bytes in front of it. All come
            // from the allocator, behind a C function, so they count as initialised. Nobody else has a reference, as ours
            // is exclusive.
            let bytes =
                unsafe { slice::from_raw_parts_mut(start.sub(room), len.wrapping_add(room)) };
            return Some((bytes, false));
        }
        let body_len = self.len().wrapping_sub(usize::from(control.front_len));
        let in_front = room.wrapping_add(len);
        if in_front > usize::from(control.in_front) {
            return None;
        }
        // SAFETY: By the type invariant the body is ours, and so many bytes in front of it, apart from the linear part;
        // otherwise as above.
        unsafe {
            ptr::copy_nonoverlapping(start, control.body.sub(len), len);
            let bytes = slice::from_raw_parts_mut(
                control.body.sub(in_front),
                in_front.wrapping_add(body_len),
            );
            Some((bytes, true))
        }
    }

    /// Returns the number of datagrams.
    #[inline]
    pub fn datagrams(&self) -> u16 {
        u16::from(self.control().followers).wrapping_add(1)
    }

    /// Returns the length of all datagrams together.
    #[inline]
    pub fn total_len(&self) -> usize {
        // CAST: `usize` is not narrower than 32 bits.
        self.control().total as usize
    }

    /// Puts a datagram behind this one, so that both leave in one super-packet, if that can be; if not, gives
    /// it back. Both were made for `path`. Bottom halves are off.
    ///
    /// All datagrams must be as long as the first; only the last may be shorter. A host that segments the super-packet
    /// copies it and goes by the first one's length. So no datagram behind the first needs room for headers of others.
    /// The identifications of IPv4 count up, as they do after such a segmentation: the caller sees to it.
    pub fn append(&mut self, other: Self, path: &Path) -> Result<(), Self> {
        let count = self.datagrams();
        if count == 1 && !path.takes_bursts(self.len()) {
            return Err(other);
        }
        let (control, added) = (self.control(), other.control());
        let total = control.total.wrapping_add(added.len);
        if added.followers != 0
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
    pub fn try_copy(&self) -> Option<Self> {
        if self.datagrams() != 1 {
            return None;
        }
        // SAFETY: By the type invariant this is a packet.
        let copy = unsafe { bindings::skb_copy(self.0.as_ptr(), kernel_bindings::GFP_ATOMIC) };
        let copy = NonNull::new(copy)?;
        // SAFETY: The copy is ours, and has the same control block.
        unsafe { (*Self::control_of(copy)).body = ptr::null_mut() };
        // INVARIANT: The copy is ours alone. It has all bytes in its linear part, the same header offsets and the same
        // control block, which names no followers, and no body elsewhere.
        Some(Self(copy))
    }

    /// Gives the packet, which was made for `path`, to the stack; drops it if too many of the same port are in the machine's
    /// queues.
    ///
    /// Process or softirq context, interrupts on, and with no lock held: the packet may arrive, with all that
    /// follows from it, before this returns. In process context, bottom halves should be enabled; but many
    /// packets go faster with bottom halves disabled around all of them.
    pub fn transmit(self, path: &Path) -> Transmit {
        let headers_len = path.template.len();
        let is_v4 = path.template.is_v4();
        // A packet for a path of the other family is not for this one.
        if self.headers().len() != headers_len {
            return Transmit::Dropped;
        }
        let Some(sock) = path.sender.sock(is_v4) else {
            return Transmit::Dropped;
        };
        if path.sender.is_full(is_v4) {
            return Transmit::Dropped;
        }
        let count = self.datagrams();
        let &Control { len, total, .. } = self.control();
        let skb = self.release().as_ptr();
        if count > 1 {
            // CAST: At most `MAX_DATAGRAM`.
            let udp_len = (total as u16).wrapping_add(UDP_LEN as u16);
            let at = headers_len.wrapping_sub(UDP_LEN).wrapping_add(4);
            // SAFETY: By the type invariant the packet's data starts with its headers, the UDP header last.
            // Its length is that of all datagrams, until the super-packet is taken apart.
            unsafe {
                let place = (*skb).data.add(at).cast::<[u8; 2]>();
                place.write(udp_len.to_be_bytes());
                bindings::skb_gso_set_udp_fraglist(skb, len, u32::from(count));
            }
        }
        let (sock, net) = (sock.as_ptr(), path.sender.net().as_ptr());
        // The stack takes a reference to the route (`skb_dst_force()`) before it queues the packet.
        let _rcu = rcu::read_lock();
        // SAFETY: The packet is ours, and has the headers of an IP packet of this family in its linear part. `path` has
        // a reference to the route for all of this call, under the RCU read lock. The socket is charged, and its
        // `sock_wfree`, which is no text of a module, gives that back.
        unsafe {
            bindings::skb_dst_set_noref(skb, path.as_ptr());
            bindings::skb_set_owner_w(skb, sock);
            bindings::skb_set_sender_cpu(skb, path.cpu);
            // A new packet has 0.
            if path.priority != 0 {
                bindings::skb_set_priority(skb, path.priority);
            }
        }
        // SAFETY: `net` and `sock` stay as long as `path`; the stack takes the packet, which has a route.
        let verdict = unsafe {
            if is_v4 {
                bindings::ip_local_out(net, sock, skb)
            } else {
                bindings::ip6_local_out(net, sock, skb)
            }
        };
        Transmit::of_verdict(verdict)
    }
}

/// Puts the headers of a path's datagrams in front of one of `len` bytes, IPv4 with the identification `id`.
///
/// # Safety
///
/// `skb` is a packet of the caller's alone, with `HEADROOM`.
#[inline]
unsafe fn push_headers(
    skb: NonNull<kernel_bindings::sk_buff>,
    template: &Template,
    id: u16,
    len: u16,
) {
    let skb = skb.as_ptr();
    let headers_len = template.len();
    let udp_len = len.wrapping_add(UDP_LEN as u16);
    // SAFETY: The caller promises `HEADROOM` in front of the data, which is enough for both headers; what `push` returns is
    // valid for writes of as much as was pushed. The offsets are within the headers of the family.
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
}

impl Drop for TxSkb {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the packet is ours.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) };
    }
}
