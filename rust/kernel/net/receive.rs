// SPDX-License-Identifier: GPL-2.0

//! Received datagrams.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    address::Address,
    header::{
        CE,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    namespace::NetId,
    netdev::NetDevice,
    segment::Segments,
    skb::{
        self,
        next_in_list, //
    },
    transmit::TxSkb,
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
    ffi::c_void,
    prelude::*, //
};
use rdma_bindings as bindings;

/// A packet that is kept may use so many times as much memory as it has bytes, or this many bytes of memory: any that
/// comes in one piece does not use more.
const WASTE: u32 = 4;
const SMALL: u32 = 8 << 10;

/// The number of `lo` in each namespace.
const LOOPBACK_IFINDEX: u32 = kernel_bindings::LOOPBACK_IFINDEX;

/// Where a packet came in: in its control block, as the network device may go before the packet does.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Control {
    netns: NetId,
    ifindex: u32,
    vrf_ifindex: u32,
    /// As [`RxSkb::of_sent`] was told, of a packet that saw no network.
    sender: u32,
}

/// A received UDP datagram. May be kept as long as one likes; drop: process or softirq.
///
/// # Invariants
///
/// - The packet is ours alone, apart from data that others may read too. It is neither a super-packet nor
///   does it have unreadable fragments or nested lists.
/// - `data` is at the UDP header, which is in the linear part; `len` is what the UDP header says.
/// - In front of it, at the network header, is an IPv4 header without options, or an IPv6 header without
///   extensions.
/// - Its control block is a `Control`; it refers to no network device, route or socket, and has no
///   extensions. It is in no list: its link to the next packet is null.
#[repr(transparent)]
pub struct RxSkb(NonNull<kernel_bindings::sk_buff>);

// SAFETY: By the type invariant the packet is ours alone.
unsafe impl Send for RxSkb {}
// SAFETY: A shared reference only reads.
unsafe impl Sync for RxSkb {}

impl RxSkb {
    /// Makes a packet ours. If it cannot be handled it is dropped, and its destination is returned.
    ///
    /// # Safety
    ///
    /// `skb` is a packet that the caller owns, as a UDP socket's `encap_rcv` gets it; softirq context,
    /// under RCU.
    pub(crate) unsafe fn from_encapsulation(
        skb: NonNull<kernel_bindings::sk_buff>,
    ) -> Result<Self, Address> {
        let raw = skb.as_ptr();
        // SAFETY: The caller promises a packet in a receive path, under RCU, and that it is ours. UDP goes through the
        // segments of a super-packet, and leaves each its link to the next one, which it knows already.
        let is_adopted = unsafe {
            skb::set_next(raw, ptr::null_mut());
            Self::control_of(raw)
                .map(|control| Self::adopt(raw, control))
                .is_some()
        };
        // SAFETY: As the caller promises, the packet is one whose headers were parsed.
        if is_adopted && unsafe { Self::is_sound(raw) } {
            // INVARIANT: All of it was just done or seen.
            Ok(Self(skb))
        } else {
            // SAFETY: IP has parsed its own header, which is in the linear part and stays. The packet is ours.
            unsafe {
                let destination = Self::destination_of(raw);
                bindings::kfree_skb(raw);
                Err(destination)
            }
        }
    }

    /// Returns what to keep of the network device that a packet came in by; [`None`] if there is none.
    ///
    /// # Safety
    ///
    /// `skb` is a packet in a receive path, so it has a device or none, between IP and a socket, so its control block
    /// is that of IP; under RCU.
    pub(crate) unsafe fn control_of(skb: *mut kernel_bindings::sk_buff) -> Option<Control> {
        // SAFETY: The caller promises a packet.
        let dev = unsafe {
            (*skb)
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1
                .dev
        };
        if dev.is_null() {
            return None;
        }
        // SAFETY: As the caller promises; the device stays under RCU.
        let dev = unsafe { NetDevice::from_raw(dev) };
        // A VRF puts itself in the place of the device below it, which only the control block still names.
        let ifindex = if dev.is_l3_master() {
            // SAFETY: The control block begins with `struct inet_skb_parm` or `inet6_skb_parm`, and these with this
            // number.
            unsafe { (&raw const (*skb).cb).cast::<u32>().read() }
        } else {
            dev.ifindex()
        };
        Some(Control {
            netns: dev.net_id(),
            ifindex,
            vrf_ifindex: dev.vrf_ifindex(),
            sender: 0,
        })
    }

    /// Has a packet refer to nothing but its data, and keep `control`.
    ///
    /// # Safety
    ///
    /// `skb` is a packet that the caller owns, but for its place in a list.
    pub(crate) unsafe fn adopt(skb: *mut kernel_bindings::sk_buff, control: Control) {
        const { assert!(skb::fits_control_block::<Control>()) };
        // SAFETY: The packet is the caller's, so its socket, route and device may be taken off. So its control
        // block is free for use; a `Control` fits, as just asserted.
        unsafe {
            skb::detach(skb);
            (*skb)
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1
                .dev = ptr::null_mut();
            (&raw mut (*skb).cb).cast::<Control>().write(control);
        }
    }

    /// Returns whether the packet is as the type invariants ask.
    ///
    /// # Safety
    ///
    /// `skb` is a packet that the caller owns, and the stack has put its `data` to the UDP header and the
    /// network header in front; it may be in a list.
    pub(crate) unsafe fn is_sound(skb: *mut kernel_bindings::sk_buff) -> bool {
        // SAFETY: The caller promises a packet.
        let (len, linear) = unsafe { ((*skb).len as usize, skb::headlen(skb)) };
        if linear < UDP_LEN || len < UDP_LEN {
            return false;
        }
        // SAFETY: The caller promises a packet; of its UDP header there are all bytes.
        let (udp_len, data, network) = unsafe {
            let data = (*skb).data.cast_const();
            let udp_len = u16::from_be_bytes([*data.add(4), *data.add(5)]);
            (udp_len, data, skb::network_header(skb))
        };
        if usize::from(udp_len) != len {
            return false;
        }
        // Both point into the same head, the network header in front.
        let ip_len = data.addr().wrapping_sub(network.addr());
        if ip_len != IPV4_LEN && ip_len != IPV6_LEN {
            return false;
        }
        // SAFETY: The network header is in front of `data`, and not empty.
        let first = unsafe { *network };
        // IPv4 with options is not taken for granted to be hashed as the sender did; neither is IPv6 with
        // extensions. An IPv4 header of 40 bytes has options.
        if !(first == 0x45 && ip_len == IPV4_LEN || first >> 4 == 6 && ip_len == IPV6_LEN) {
            return false;
        }
        // SAFETY: The caller promises a packet.
        if unsafe { skb::is_gso(skb) || !bindings::skb_frags_readable(skb) } {
            return false;
        }
        // SAFETY: As above.
        let mut member = unsafe { skb::frag_list(skb) };
        while !member.is_null() {
            // SAFETY: A member of the list is a packet.
            unsafe {
                if !skb::frag_list(member).is_null() || !bindings::skb_frags_readable(member) {
                    return false;
                }
                member = next_in_list(member);
            }
        }
        true
    }

    /// Makes a packet ours, which keeps `control`; [`None`] if it is not as the type invariants ask. Then it is dropped.
    ///
    /// # Safety
    ///
    /// As for [`Self::adopt`] and [`Self::is_sound`]. The packet is in no list.
    #[inline]
    pub(crate) unsafe fn take_over(
        skb: NonNull<kernel_bindings::sk_buff>,
        control: Control,
    ) -> Option<Self> {
        // SAFETY: The caller promises it.
        unsafe {
            Self::adopt(skb.as_ptr(), control);
            if !Self::is_sound(skb.as_ptr()) {
                bindings::kfree_skb(skb.as_ptr());
                return None;
            }
        }
        // INVARIANT: As just seen.
        Some(Self(skb))
    }

    /// Returns the C packet.
    pub(crate) fn into_raw(self) -> NonNull<kernel_bindings::sk_buff> {
        ManuallyDrop::new(self).0
    }

    /// Takes a packet back.
    ///
    /// # Safety
    ///
    /// `skb` is from [`Self::into_raw`], which is undone by that, or the caller's, and as the type invariants ask.
    pub(crate) unsafe fn from_raw(skb: NonNull<kernel_bindings::sk_buff>) -> Self {
        // INVARIANT: The caller promises it, or it held before `into_raw`.
        Self(skb)
    }

    /// Makes a received datagram of one to be sent, for a receiver in the namespace `netns` that it reaches without a
    /// network, as if it had come in by netdev number `ifindex` there. `sender` is any number but 0. [`None`] if it is several, or
    /// its headers were changed into others; it is dropped then. Any context.
    pub fn of_sent(packet: TxSkb, netns: NetId, ifindex: u32, sender: u32) -> Option<Self> {
        let ip_len = packet.headers().len().checked_sub(UDP_LEN)?;
        if packet.datagrams() != 1 {
            return None;
        }
        let skb = packet.release();
        // SAFETY: The packet is ours; its data are the headers of IP and UDP, in the linear part, and the datagram,
        // and its network header is set. Of an IPv4 header it is `ip_len` bytes; whatever it says of its length, a packet's
        // memory is longer.
        unsafe {
            skb::pull(skb.as_ptr(), ip_len);
            let control = Control {
                netns,
                ifindex,
                vrf_ifindex: 0,
                sender,
            };
            Self::take_over(skb, control)
        }
    }

    /// Makes another packet of the same bytes, which both share. Any context. [`None`] if there is no memory.
    pub fn try_clone(&mut self) -> Option<Self> {
        // SAFETY: By the type invariant this is a packet of ours. Cloning writes to its flags, and so wants an
        // exclusive reference.
        let clone = unsafe { bindings::skb_clone(self.0.as_ptr(), kernel_bindings::GFP_ATOMIC) };
        // INVARIANT: A clone has the same headers, data and control block, and neither device, route,
        // socket nor extensions, as the original has none. It is ours, and nobody writes what both share.
        NonNull::new(clone).map(Self)
    }

    /// Copies `N` bytes that start `offset` bytes behind the network header.
    ///
    /// # Safety
    ///
    /// These bytes are in front of the end of the UDP header.
    #[inline]
    unsafe fn copy_header<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: By the type invariant all from the network header to the end of the UDP header is in the
        // linear part, and the caller promises to stay there.
        unsafe {
            skb::network_header(self.0.as_ptr())
                .add(offset)
                .cast::<[u8; N]>()
                .read()
        }
    }

    /// Returns whether the packet came with IPv4.
    #[inline]
    pub fn is_v4(&self) -> bool {
        // SAFETY: That is the first byte of the network header.
        let [first] = unsafe { self.copy_header(0) };
        first >> 4 == 4
    }

    /// Returns where the packet came from.
    pub fn source(&self) -> Address {
        if self.is_v4() {
            // SAFETY: An IPv4 header has 20 bytes.
            Address::V4(unsafe { self.copy_header(12) })
        } else {
            // SAFETY: An IPv6 header has 40 bytes.
            Address::V6(unsafe { self.copy_header(8) })
        }
    }

    /// Returns where the packet was sent to.
    pub fn destination(&self) -> Address {
        // SAFETY: By the type invariant the IP header is in the linear part.
        unsafe { Self::destination_of(self.0.as_ptr()) }
    }

    /// Returns where a packet was sent to.
    ///
    /// # Safety
    ///
    /// `skb` is a packet whose IP header is in its linear part.
    #[inline]
    unsafe fn destination_of(skb: *const kernel_bindings::sk_buff) -> Address {
        // SAFETY: The caller promises the header, which has 20 bytes with IPv4, and 40 with IPv6.
        unsafe {
            let network = skb::network_header(skb);
            match *network >> 4 {
                4 => Address::V4(network.add(16).cast::<[u8; 4]>().read()),
                _ => Address::V6(network.add(24).cast::<[u8; 16]>().read()),
            }
        }
    }

    /// Returns the UDP port that the packet came from.
    pub fn source_port(&self) -> u16 {
        let ip_len = if self.is_v4() { IPV4_LEN } else { IPV6_LEN };
        // SAFETY: The UDP header follows the IP header.
        u16::from_be_bytes(unsafe { self.copy_header(ip_len) })
    }

    fn control(&self) -> Control {
        // SAFETY: By the type invariant the control block is a `Control`.
        unsafe { *(&raw const (*self.0.as_ptr()).cb).cast::<Control>() }
    }

    /// Returns the namespace that the packet came to.
    pub fn netns(&self) -> NetId {
        self.control().netns
    }

    /// Returns the number there of the network device that the packet came in by, below a VRF. A packet of this host came
    /// in by `lo`; in a VRF with IPv4 by the VRF, with IPv6 by the device that has the destination.
    pub fn ifindex(&self) -> u32 {
        self.control().ifindex
    }

    /// Returns who sent it ([`Self::of_sent`]); [`None`] if it came by the network.
    pub fn sender(&self) -> Option<u32> {
        Some(self.control().sender).filter(|sender| *sender != 0)
    }

    /// Returns whether it came by the netdev with the number `oif`, or, from an address that is not a link's, by one of the
    /// VRF with that number (0: by one of none). Packets of this host that came by `lo` are of any link.
    pub fn is_from(&self, oif: u32) -> bool {
        let control = self.control();
        if self.source().is_link_local() {
            control.ifindex == oif || control.ifindex == LOOPBACK_IFINDEX
        } else {
            control.vrf_ifindex == oif
        }
    }

    /// Returns the number of bytes of the datagram, behind the UDP header.
    #[inline]
    pub fn datagram_len(&self) -> usize {
        // SAFETY: By the type invariant this is a packet.
        let len = unsafe { (*self.0.as_ptr()).len };
        // CAST: `usize` is not narrower than 32 bits. By the type invariant there is a UDP header.
        (len as usize).wrapping_sub(UDP_LEN)
    }

    /// Returns how many bytes of memory the packet uses, with all that is the kernel's own of it.
    #[inline]
    pub fn memory(&self) -> u32 {
        // SAFETY: By the type invariant this is a packet.
        unsafe { (*self.0.as_ptr()).truesize }
    }

    /// Returns the headers in front of the datagram.
    #[inline]
    pub fn headers(&self) -> &[u8] {
        let ip_len = if self.is_v4() { IPV4_LEN } else { IPV6_LEN };
        // SAFETY: By the type invariant the UDP header follows the IP header, both in the linear part, which nobody
        // writes to as long as the packet is ours.
        unsafe {
            let start = skb::network_header(self.0.as_ptr());
            slice::from_raw_parts(start, ip_len.wrapping_add(UDP_LEN))
        }
    }

    /// Whether a router or queue on the way was congested, and has marked the packet (CE, RFC 3168).
    #[inline]
    pub fn has_congestion_mark(&self) -> bool {
        // The traffic class of IPv6 begins four bits later than IPv4's type of service.
        let shift = if self.is_v4() { 0 } else { 4 };
        self.headers()
            .get(1)
            .is_some_and(|byte| byte >> shift & CE == CE)
    }

    /// Returns the first bytes of the datagram: as many as the packet has in one piece with its headers.
    #[inline]
    pub fn linear(&self) -> &[u8] {
        let raw = self.0.as_ptr();
        // SAFETY: By the type invariant the linear part starts with the UDP header; nobody writes to it as long as
        // the packet is ours.
        unsafe {
            let (start, len) = skb::linear(raw);
            slice::from_raw_parts(start.add(UDP_LEN), len.wrapping_sub(UDP_LEN))
        }
    }

    /// Returns the `len` bytes of the datagram from `offset` on, if they are in one piece with its headers, as those of small
    /// packets are as a rule.
    #[inline]
    pub fn piece(&self, offset: usize, len: usize) -> Option<&[u8]> {
        self.linear().get(offset..)?.get(..len)
    }

    /// Returns the 40 bytes that stand in front of a datagram in a receive buffer of UD: an IPv6 header, or
    /// 20 bytes of nothing and an IPv4 header. The checksum of that is computed here: that in the packet may be of other
    /// fields.
    pub fn network_header_40(&self) -> [u8; 40] {
        if !self.is_v4() {
            // SAFETY: An IPv6 header has 40 bytes.
            return unsafe { self.copy_header(0) };
        }
        /// As `struct iphdr` is aligned.
        #[repr(align(4))]
        struct Area([u8; 40]);

        let mut area = Area([0; 40]);
        if let Some((_, end)) = area.0.split_last_chunk_mut::<IPV4_LEN>() {
            // SAFETY: An IPv4 header has 20 bytes.
            *end = unsafe { self.copy_header(0) };
            // SAFETY: These are the 20 bytes of an IPv4 header without options, aligned for it: 20 bytes into the area.
            unsafe { bindings::ip_send_check(end.as_mut_ptr().cast()) };
        }
        area.0
    }

    /// Copies the first bytes of the datagram, as many as there are and as `out` has room for, and returns
    /// their number.
    pub fn header(&self, out: &mut [u8]) -> usize {
        let len = self.datagram_len().min(out.len());
        let copied = out.get_mut(..len).map(|out| self.copy(0, out));
        if matches!(copied, Some(Ok(()))) {
            len
        } else {
            0
        }
    }

    /// Copies the bytes of the datagram from `offset` on; `EINVAL` if there are not enough.
    pub fn copy(&self, offset: usize, out: &mut [u8]) -> Result {
        let end = offset.checked_add(out.len()).ok_or(EINVAL)?;
        if end > self.datagram_len() {
            return Err(EINVAL);
        }
        let offset = offset.checked_add(UDP_LEN).ok_or(EINVAL)?;
        let end = end.checked_add(UDP_LEN).ok_or(EINVAL)?;
        // SAFETY: By the type invariant this is a packet, and `data` is the start of its linear part.
        unsafe {
            let skb = self.0.as_ptr();
            if end <= skb::headlen(skb) {
                let start = (*skb).data.cast_const().add(offset);
                ptr::copy_nonoverlapping(start, out.as_mut_ptr(), out.len());
                return Ok(());
            }
        }
        let offset = c_int::try_from(offset)?;
        let len = c_int::try_from(out.len())?;
        // SAFETY: By the type invariant this is a packet; `out` has room for `len` bytes.
        let err = unsafe {
            bindings::skb_copy_bits(
                self.0.as_ptr(),
                offset,
                out.as_mut_ptr().cast::<c_void>(),
                len,
            )
        };
        kernel::error::to_result(err)
    }

    /// Returns the segments of memory that the `len` bytes of the datagram from `offset` on lie in.
    #[inline]
    pub fn segments(&self, offset: usize, len: usize) -> Segments<'_> {
        // SAFETY: By the type invariant the packet is ours; it stays as it is as long as it is borrowed.
        unsafe { Segments::new(self.0, offset.saturating_add(UDP_LEN), len) }
    }

    /// Feeds the `len` bytes of the datagram from `offset` on to [`crc32_le`](sync::crc32_le); `None` if
    /// there are not so many.
    pub fn crc32_le(&self, mut state: u32, offset: usize, len: usize) -> Option<u32> {
        if let Some(piece) = self.piece(offset, len) {
            return Some(sync::crc32_le(state, piece));
        }
        let mut left = len;
        for segment in self.segments(offset, len) {
            state = segment.crc32_le(state);
            left = left.wrapping_sub(segment.len());
        }
        (left == 0).then_some(state)
    }

    /// Returns whether all behind the linear part is the memory that a sender on this host wrote it to, and in front of it
    /// the sender has left `front`, and then `rest` ([`TxSkb::with_headers_mut`]).
    ///
    /// Nobody changes that memory: before a packet is changed on the way, its bytes are moved to the linear part, or to
    /// other memory. If `rest` ends where the linear part ends, and `front` has the length of the datagram, all of the
    /// datagram is as the sender wrote it: no byte is missing at either end.
    #[inline]
    pub fn follows(&self, front: &[u8], rest: &[u8]) -> bool {
        let raw = self.0.as_ptr();
        // SAFETY: By the type invariant this is a packet of ours, without unreadable fragments. `front` and `rest` are
        // valid for reads.
        unsafe {
            (*raw).data_len != 0
                && bindings::skb_pool_fragment_follows(
                    raw,
                    front.as_ptr().cast::<c_void>(),
                    front.len(),
                    rest.as_ptr().cast::<c_void>(),
                    rest.len(),
                )
        }
    }

    /// Returns a packet that may be kept for long: this one, or a compact copy of it. It copies a packet
    ///
    /// - in several pieces: somebody else may be able to write to their pages, as a program that has spliced them into a
    ///   socket;
    /// - that uses far more memory than its bytes take;
    /// - from a page pool, as it would hold a whole page or block.
    ///
    /// Drops the packet and returns [`None`] if there is no memory. Any context.
    pub fn into_kept(self) -> Option<Self> {
        // SAFETY: By the type invariant this is a packet.
        let (len, is_own) = unsafe {
            let raw = self.0.as_ptr();
            let is_own = (*raw).data_len == 0 && !bindings::skb_is_pooled(raw);
            ((*raw).len, is_own)
        };
        if is_own && self.memory() <= len.saturating_mul(WASTE).max(SMALL) {
            return Some(self);
        }
        let ip_len = if self.is_v4() { IPV4_LEN } else { IPV6_LEN };
        // SAFETY: By the type invariant this is a packet, with so many bytes of the network header in front of its
        // data.
        // CAST: 20 or 40.
        let copy = unsafe {
            bindings::skb_copy_expand(
                self.0.as_ptr(),
                ip_len as c_int,
                0,
                kernel_bindings::GFP_ATOMIC,
            )
        };
        // INVARIANT: A copy has the same data, control block and network header, which is all that is in front of the
        // data, and neither device, route nor socket, as the original has none. It is in one piece, and ours alone.
        NonNull::new(copy).map(Self)
    }
}

impl Drop for RxSkb {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the packet is ours. NAPI's function needs bottom halves
        // off; packets to be sent use the memory again.
        unsafe {
            if sync::owns_softirq() {
                bindings::napi_consume_skb(self.0.as_ptr(), 1);
            } else {
                bindings::consume_skb(self.0.as_ptr());
            }
        }
    }
}
