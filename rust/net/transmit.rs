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
    prelude::*, //
};
use rdma_bindings as bindings;

/// The room in front of a datagram, for all headers that the stack or we put there.
const HEADROOM: u32 = bindings::LL_MAX_HEADER + HEADERS_LEN as u32;
/// The length of the longest headers of ours.
const HEADERS_LEN: usize = IPV6_LEN + UDP_LEN;
/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// The most datagrams of a super-packet: enough for 64 KiB of 1 KiB each.
const MAX_DATAGRAMS: u16 = 64;

/// A datagram to be sent, in one piece of memory, or several that leave together. Drop: any context.
///
/// # Invariants
///
/// - The packet is ours alone. Without what follows it, it is linear, and `body` to `body + len`, its end, is the datagram.
/// - If `headers` is `None`, the data is the datagram alone, with `HEADROOM` in front of it; otherwise these
///   headers are in front of it, the packet's network and transport header are set, and the data starts at
///   the network header.
/// - `len` and the headers together are no more than 65535 bytes.
/// - `followers`, if there are any, are its fragment list: packets like it, with headers of their own, but with
///   data from the datagram on; its length and size are theirs, too.
pub struct TxSkb {
    skb: NonNull<kernel_bindings::sk_buff>,
    body: NonNull<u8>,
    len: usize,
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
        let size = len32.checked_add(HEADROOM)?;
        // SAFETY: No requirements.
        let skb = unsafe { bindings::alloc_skb(size, kernel_bindings::GFP_ATOMIC) };
        let skb = NonNull::new(skb)?;
        // SAFETY: The packet is empty, and has room for `size` bytes, `HEADROOM` and the datagram.
        let body = unsafe {
            bindings::skb_reserve(skb.as_ptr(), HEADROOM as c_int);
            bindings::skb_put(skb.as_ptr(), len32)
        };
        // INVARIANT: As just made.
        Some(Self {
            skb,
            body: NonNull::new(body.cast::<u8>())?,
            len,
            headers: None,
            followers: None,
        })
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

    /// Returns the datagram.
    #[inline]
    pub fn body(&self) -> &[u8] {
        // SAFETY: By the type invariant these bytes are the packet's, which is ours. They come from the
        // allocator, behind a C function, so each is some byte.
        unsafe { slice::from_raw_parts(self.body.as_ptr(), self.len) }
    }

    /// Returns the datagram, to be written.
    #[inline]
    pub fn body_mut(&mut self) -> &mut [u8] {
        // SAFETY: As in `body`; nobody else has a reference, as ours is exclusive.
        unsafe { slice::from_raw_parts_mut(self.body.as_ptr(), self.len) }
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
        let headers = self.headers?;
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
