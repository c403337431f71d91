// SPDX-License-Identifier: GPL-2.0

//! Datagrams to be sent.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    address::Address,
    burst::set_next,
    path::{
        Path,
        Query, //
    },
    receive::{
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    skb, //
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
    page::PAGE_SIZE,
    prelude::*, //
};
use rdma_bindings as bindings;

/// The room in front of a datagram, for all headers that the stack or we put there.
const HEADROOM: u32 = bindings::LL_MAX_HEADER + HEADERS_LEN as u32;
/// The length of the longest headers of ours.
const HEADERS_LEN: usize = IPV6_LEN + UDP_LEN;
/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// The most datagrams of a super-packet, as in those that GRO makes: enough for 64 KiB of 1 KiB each.
pub(crate) const MAX_DATAGRAMS: u16 = 64;

/// The longest datagram whose memory goes round within the CPU: longer ones would use up the pages for nothing.
const MAX_LIGHT: usize = 1200;

/// The most pages that a datagram refers to: two, and one more for each piece of memory beyond the first, up to
/// this.
const MAX_PAGES: u32 = 6;

/// A datagram to be sent, or several that leave together. Drop: any context.
///
/// It is in one piece of memory, or it has a middle part in pages of others, which stay theirs.
///
/// # Invariants
///
/// - The packet is ours alone. `body` to `body + body_len`, the end of its linear part, is the datagram's first
///   part; the rest of the `len` bytes, or those of them that were put there so far, is in fragments.
/// - `tail` is valid for writes of `tail_len` bytes, which belong to the page that the packet's head is in, and
///   to nobody else, until they become the last fragment.
/// - If `headers` is `None`, the data is the datagram alone, with `HEADROOM` in front of it; otherwise these
///   headers are in front of it, the packet's network and transport header are set, and the data starts at
///   the network header.
/// - `len` and the headers together are no more than 65535 bytes.
/// - `followers`, if there are any, are its fragment list: packets like it, with headers of their own, but with
///   data from the datagram on; its length and size are theirs, too.
pub struct TxSkb {
    skb: NonNull<kernel_bindings::sk_buff>,
    body: NonNull<u8>,
    body_len: usize,
    len: usize,
    tail: Option<(NonNull<u8>, usize)>,
    /// What [`Self::push`] feeds bytes to.
    crc: u32,
    headers: Option<Headers>,
    followers: Option<Followers>,
}

/// Datagrams that follow another one.
struct Followers {
    last: NonNull<kernel_bindings::sk_buff>,
    count: u16,
    /// The bytes of all datagrams together, the first one's too.
    len: usize,
}

// SAFETY: By the type invariant the packet is ours alone.
unsafe impl Send for TxSkb {}
// SAFETY: A shared reference only reads.
unsafe impl Sync for TxSkb {}

impl TxSkb {
    /// Makes a datagram of `len` bytes, all that is to stand behind the UDP header. Any context.
    ///
    /// What the bytes are at first is not specified: all of them are to be written.
    pub fn alloc(len: usize) -> Option<Self> {
        if len > MAX_LEN {
            return None;
        }
        let len32 = u32::try_from(len).ok()?;
        let light = if len <= MAX_LIGHT {
            Self::light(len32, 0)
        } else {
            None
        };
        let skb = match light {
            Some((skb, _)) => skb,
            None => {
                let size = len32.checked_add(HEADROOM)?;
                // SAFETY: No requirements.
                let skb = unsafe { bindings::alloc_skb(size, kernel_bindings::GFP_ATOMIC) };
                let skb = NonNull::new(skb)?;
                // SAFETY: The packet is empty, and has room for `size` bytes, `HEADROOM` and the datagram.
                unsafe { bindings::skb_reserve(skb.as_ptr(), HEADROOM as c_int) };
                skb
            }
        };
        // SAFETY: The packet is empty, and has room for the datagram.
        let body = unsafe { bindings::skb_put(skb.as_ptr(), len32) };
        // INVARIANT: As just made.
        Some(Self {
            skb,
            body: NonNull::new(body.cast::<u8>())?,
            body_len: len,
            len,
            tail: None,
            crc: 0,
            headers: None,
            followers: None,
        })
    }

    /// Makes a datagram whose first `body_len` bytes and last `tail_len` are its own, and the `middle_len` between
    /// them those of pages, which are put there with [`Self::push`], before [`Self::finish`] ends it.
    ///
    /// `None` if there is no memory, or in process context with bottom halves on. What the bytes are at first is
    /// not specified: all of them are to be written.
    pub fn with_pages(body_len: usize, middle_len: usize, tail_len: usize) -> Option<Self> {
        let len = body_len.checked_add(middle_len)?.checked_add(tail_len)?;
        if len > MAX_LEN {
            return None;
        }
        // CAST: Less than `MAX_LEN`, both.
        let (skb, tail) = Self::light(body_len as u32, tail_len as u32)?;
        // SAFETY: The packet is ours, empty, and has room for the first part.
        let body = unsafe {
            bindings::skb_set_shared_frag(skb.as_ptr());
            bindings::skb_put(skb.as_ptr(), body_len as u32)
        };
        // INVARIANT: As just made.
        Some(Self {
            skb,
            body: NonNull::new(body.cast::<u8>())?,
            body_len,
            len,
            tail: Some((tail, tail_len)),
            crc: 0,
            headers: None,
            followers: None,
        })
    }

    /// Makes an empty packet, from memory that goes round within this CPU, with `HEADROOM` and room for `len` bytes
    /// behind it. Returns it and `extra` bytes that are in the same page as its head. Bottom halves must be off:
    /// `None` otherwise.
    fn light(len: u32, extra: u32) -> Option<(NonNull<kernel_bindings::sk_buff>, NonNull<u8>)> {
        if !sync::owns_softirq() {
            return None;
        }
        let room = HEADROOM.checked_add(len)?;
        // SAFETY: No requirements.
        let size = unsafe { bindings::skb_head_size(room) };
        // What is extra has its place behind all that is the head's: who pulls bytes into the head does not
        // overwrite it.
        let total = size.checked_add(extra)?;
        // SAFETY: Bottom halves are off, as was just seen.
        let memory = NonNull::new(unsafe { bindings::napi_alloc_frag(total) })?;
        // SAFETY: As above; `memory` has `size` bytes, as many as `room` bytes of data and what goes with them
        // take. It is the packet's if there is one. `extra` bytes follow them.
        unsafe {
            let skb = NonNull::new(bindings::napi_build_skb(memory.as_ptr(), size));
            match skb {
                Some(skb) => bindings::skb_reserve(skb.as_ptr(), HEADROOM as c_int),
                None => bindings::skb_free_frag(memory.as_ptr()),
            }
            Some((skb?, memory.cast::<u8>().add(size as usize)))
        }
    }

    /// Sets the state of the CRC that [`Self::push`] goes on with.
    #[inline]
    pub fn set_crc(&mut self, state: u32) {
        self.crc = state;
    }

    /// Returns the state of the CRC.
    #[inline]
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Puts bytes of pages behind what there is, and feeds them, as they are now, to
    /// [`crc32_le`](sync::crc32_le); returns whether there was room.
    ///
    /// # Safety
    ///
    /// The `len` bytes from `start` on are valid for reads, in the direct mapping, in pages that are counted and
    /// that somebody holds a reference to.
    pub unsafe fn push(&mut self, start: *const u8, len: usize) -> bool {
        let (mut start, mut left) = (start, len);
        let skb = self.skb.as_ptr();
        while left != 0 {
            let offset = start.addr() & PAGE_SIZE.wrapping_sub(1);
            let part = left.min(PAGE_SIZE.wrapping_sub(offset));
            // SAFETY: By the type invariant this is a packet.
            if unsafe { skb::nr_frags(skb) } >= MAX_PAGES {
                return false;
            }
            // SAFETY: The caller promises such a page, of which `part` bytes are at `offset`. The packet has room
            // for more fragments than `MAX_PAGES`.
            // CAST: At most a page.
            unsafe {
                self.crc = bindings::crc32_le(self.crc, start.cast(), part);
                let page = bindings::virt_to_page(start.cast());
                bindings::get_page(page);
                bindings::skb_add_frag(skb, page, offset as c_int, part as c_int, part as u32);
            }
            start = start.wrapping_add(part);
            left = left.wrapping_sub(part);
        }
        true
    }

    /// Writes the end of a datagram with pages, `tail` as long as it was said to be. Returns whether the datagram
    /// is complete.
    pub fn finish(&mut self, tail: &[u8]) -> bool {
        let Some((place, len)) = self.tail.take_if(|(_, len)| *len == tail.len()) else {
            return false;
        };
        // SAFETY: By the type invariant there are so many bytes; they are in the page of the packet's head, which
        // gets another reference. The packet has room for more fragments than `MAX_PAGES`.
        // CAST: Small numbers.
        unsafe {
            ptr::copy_nonoverlapping(tail.as_ptr(), place.as_ptr(), len);
            let page = bindings::virt_to_page(place.as_ptr().cast());
            let offset = place.addr().get() & PAGE_SIZE.wrapping_sub(1);
            bindings::get_page(page);
            let size = len as u32;
            bindings::skb_add_frag(self.skb.as_ptr(), page, offset as c_int, len as c_int, size);
        }
        self.is_complete()
    }

    /// Returns whether all bytes are there.
    fn is_complete(&self) -> bool {
        // SAFETY: By the type invariant this is a packet.
        let len = unsafe { (*self.skb.as_ptr()).len } as usize;
        self.followers.is_some() || len == self.headers_len().wrapping_add(self.len)
    }

    /// Returns how long the headers in front of the datagram are.
    fn headers_len(&self) -> usize {
        self.headers.map_or(0, |headers| headers.as_bytes().len())
    }

    /// Returns the length of the datagram.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the datagram has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the datagram, or what is in front of the pages.
    #[inline]
    pub fn body(&self) -> &[u8] {
        // SAFETY: By the type invariant these bytes are the packet's, which is ours. They come from the
        // allocator, behind a C function, so each is some byte.
        unsafe { slice::from_raw_parts(self.body.as_ptr(), self.body_len) }
    }

    /// Returns the datagram, or what is in front of the pages, to be written.
    #[inline]
    pub fn body_mut(&mut self) -> &mut [u8] {
        // SAFETY: As in `body`; nobody else has a reference, as ours is exclusive.
        unsafe { slice::from_raw_parts_mut(self.body.as_ptr(), self.body_len) }
    }

    /// Puts an IP and a UDP header in front of the datagram, and returns them as they will leave, but for the
    /// IPv4 header's checksum. Once only: the second time returns what the first did.
    ///
    /// The IPv4 header says not to fragment, and has the identification `id`. The UDP header has no checksum.
    pub fn address(&mut self, path: &Path, id: u16) -> Headers {
        if let Some(headers) = self.headers {
            return headers;
        }
        let headers = Headers::new(path.query(), id, self.len);
        let bytes = headers.as_bytes();
        // CAST: 28 or 48.
        let len = bytes.len() as u32;
        let ip_len = len.wrapping_sub(UDP_LEN as u32);
        let skb = self.skb.as_ptr();
        // SAFETY: By the type invariant there is `HEADROOM` in front of the data, which is enough for both
        // headers; what `skb_push` returns is valid for writes of as much as was pushed.
        unsafe {
            bindings::skb_push(skb, UDP_LEN as u32);
            bindings::skb_reset_transport_header(skb);
            let start = bindings::skb_push(skb, ip_len);
            bindings::skb_reset_network_header(skb);
            ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast::<u8>(), bytes.len());
        }
        // INVARIANT: That is what was just done.
        self.headers = Some(headers);
        headers
    }

    /// Returns the number of datagrams.
    #[inline]
    pub fn datagrams(&self) -> u16 {
        let more = self.followers.as_ref();
        more.map_or(0, |followers| followers.count).wrapping_add(1)
    }

    /// Puts a datagram behind this one, so that both leave in one super-packet, if that can be; if not, gives
    /// it back.
    ///
    /// Both must be addressed, from one address and port to another; no datagram may be longer than the first;
    /// the identifications of IPv4 must count up, as they will if the super-packet is cut up on its way.
    pub(crate) fn append(&mut self, other: Self) -> Result<(), Self> {
        let (Some(own), Some(its)) = (&self.headers, &other.headers) else {
            return Err(other);
        };
        let count = self.datagrams();
        let so_far = self.followers.as_ref().map_or(self.len, |all| all.len);
        let len = so_far.wrapping_add(other.len);
        if !its.follows(own, count)
            || !self.is_complete()
            || !other.is_complete()
            || other.followers.is_some()
            || other.len > self.len
            || other.len == 0
            || len > MAX_LEN
            || count >= MAX_DATAGRAMS
        {
            return Err(other);
        }
        let headers_len = its.as_bytes().len();
        let is_v4 = its.is_v4();
        let (head, member) = (self.skb.as_ptr(), ManuallyDrop::new(other).skb);
        // SAFETY: Both packets are ours. By the type invariant the data of `member` starts with its headers,
        // and `last` is the last of the fragment list of `head`.
        unsafe {
            let raw = member.as_ptr();
            if is_v4 {
                bindings::ip_send_check((*raw).data.cast());
            }
            // CAST: 28 or 48.
            bindings::skb_pull(raw, headers_len as u32);
            match &self.followers {
                Some(followers) => set_next(followers.last.as_ptr(), raw),
                None => bindings::skb_set_frag_list(head, raw),
            }
            (*head).len = (*head).len.wrapping_add((*raw).len);
            (*head).data_len = (*head).data_len.wrapping_add((*raw).len);
            (*head).truesize = (*head).truesize.wrapping_add((*raw).truesize);
        }
        // INVARIANT: That is what was just done.
        self.followers = Some(Followers {
            last: member,
            count,
            len,
        });
        Ok(())
    }

    /// Returns the C packet, which is the caller's now, if it was addressed.
    pub(crate) fn into_raw(self) -> Option<NonNull<kernel_bindings::sk_buff>> {
        let headers = self.headers.filter(|_| self.is_complete())?;
        let this = ManuallyDrop::new(self);
        if let Some(followers) = &this.followers {
            // CAST: At most `MAX_LEN`, both.
            let udp_len = (followers.len as u16).wrapping_add(UDP_LEN as u16);
            let size = this.len as u32;
            let at = headers
                .as_bytes()
                .len()
                .wrapping_sub(UDP_LEN)
                .wrapping_add(4);
            let raw = this.skb.as_ptr();
            // SAFETY: By the type invariant the packet's data starts with its headers, the UDP header last.
            // Its length is that of all datagrams, until the super-packet is taken apart.
            unsafe {
                let place = (*raw).data.add(at).cast::<[u8; 2]>();
                place.write(udp_len.to_be_bytes());
                bindings::skb_gso_set_udp_fraglist(raw, size, u32::from(this.datagrams()));
            }
        }
        Some(this.skb)
    }

    /// Returns the headers, if it was addressed.
    pub(crate) fn headers(&self) -> Option<&Headers> {
        self.headers.as_ref()
    }
}

impl Drop for TxSkb {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the packet is ours.
        unsafe { bindings::kfree_skb(self.skb.as_ptr()) };
    }
}

/// The longest datagram: an IPv4 packet is at most 65535 bytes long, and IPv6 has longer headers.
const MAX_LEN: usize = 65535 - HEADERS_LEN;

/// The headers of a packet, as they stand in front of the datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// IPv4 and UDP.
    V4([u8; IPV4_LEN + UDP_LEN]),
    /// IPv6 and UDP.
    V6([u8; IPV6_LEN + UDP_LEN]),
}

impl Headers {
    /// Makes the headers of a datagram of `len` bytes, at most [`MAX_LEN`].
    fn new(query: &Query, id: u16, len: usize) -> Self {
        // CAST: `MAX_LEN` and the longest headers are 16 bits.
        let len = len as u16;
        let udp_len = len.wrapping_add(UDP_LEN as u16);
        let ip_len = udp_len.wrapping_add(IPV4_LEN as u16).to_be_bytes();
        let udp_len = udp_len.to_be_bytes();
        let id = id.to_be_bytes();
        let from = query.source_port.to_be_bytes();
        let to = query.destination_port.to_be_bytes();
        let hops = query.hop_limit;
        let class = query.traffic_class;
        match (query.source, query.destination) {
            (Address::V4([s0, s1, s2, s3]), Address::V4([d0, d1, d2, d3])) => Self::V4([
                0x45, class, ip_len[0], ip_len[1], //
                id[0], id[1], 0x40, 0, //
                hops, UDP, 0, 0, //
                s0, s1, s2, s3, //
                d0, d1, d2, d3, //
                from[0], from[1], to[0], to[1], //
                udp_len[0], udp_len[1], 0, 0, //
            ]),
            (source, destination) => {
                let flow = query.flow_label.to_be_bytes();
                let mut bytes = [0; IPV6_LEN + UDP_LEN];
                let parts: [&[u8]; 6] = [
                    &[
                        0x60 | class >> 4,
                        class << 4 | flow[1] & 0xf,
                        flow[2],
                        flow[3], //
                        udp_len[0],
                        udp_len[1],
                        UDP,
                        hops, //
                    ],
                    &source.to_gid(),
                    &destination.to_gid(),
                    &from,
                    &to,
                    &[udp_len[0], udp_len[1], 0, 0],
                ];
                for (byte, value) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
                    *byte = *value;
                }
                Self::V6(bytes)
            }
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::V4(bytes) => bytes,
            Self::V6(bytes) => bytes,
        }
    }

    /// Returns whether these are headers of a datagram that is the `distance`-th behind one with the headers
    /// `first`: from and to the same, with an identification that counts up.
    fn follows(&self, first: &Self, distance: u16) -> bool {
        match (first, self) {
            (Self::V4(first), Self::V4(own)) => {
                let ([_, _, _, _, i1, i2, ..], [_, _, _, _, j1, j2, ..]) = (first, own);
                let id = u16::from_be_bytes([*i1, *i2]).wrapping_add(distance);
                id == u16::from_be_bytes([*j1, *j2]) && first.get(12..24) == own.get(12..24)
            }
            (Self::V6(first), Self::V6(own)) => first.get(8..44) == own.get(8..44),
            _ => false,
        }
    }

    /// Returns whether these are headers of IPv4.
    #[inline]
    pub const fn is_v4(&self) -> bool {
        matches!(self, Self::V4(_))
    }
}
