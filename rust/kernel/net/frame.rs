// SPDX-License-Identifier: GPL-2.0

//! Frames that are sent as they are, past the IP stack.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h),
//! [`include/linux/if_ether.h`](srctree/include/linux/if_ether.h)

use crate::{
    listener::Sender,
    netdev::{
        NetDev,
        ARPHRD_ETHER, //
    },
    skb,
    transmit::Transmit, //
};
use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings as kernel_bindings,
    prelude::*,
    sync::rcu, //
};
use rdma_bindings as bindings;

/// The length of an Ethernet header: no frame is shorter.
pub const ETHERNET_LEN: usize = 14;
/// The length of a VLAN tag.
const TAG_LEN: usize = 4;
/// The longest IP packet that a frame may carry, whatever the MTU: that of the loopback device.
const MAX_PACKET: usize = 65536;

/// The most tags that are looked behind: `VLAN_MAX_DEPTH` of the kernel.
const MAX_TAGS: usize = 8;

/// The types of VLAN tags (802.1Q and 802.1ad).
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// An Ethernet frame to be sent, from its destination address on, without the checksum of the link. Drop: any
/// context.
///
/// # Invariants
///
/// The packet is ours alone and linear; its data are at least [`ETHERNET_LEN`] bytes, with `LL_MAX_HEADER` bytes of
/// room in front of them.
pub struct TxFrame(NonNull<kernel_bindings::sk_buff>);

// SAFETY: By the type invariant the packet is ours alone.
unsafe impl Send for TxFrame {}
// SAFETY: A shared reference only reads.
unsafe impl Sync for TxFrame {}

impl TxFrame {
    /// Makes a frame of `len` bytes. [`None`] if that is too short or too long for any frame, or if there is no
    /// memory. Any context.
    ///
    /// The initial bytes are not specified: all of them are to be written.
    pub fn alloc(len: usize) -> Option<Self> {
        if !(ETHERNET_LEN..=MAX_PACKET + ETHERNET_LEN + TAG_LEN).contains(&len) {
            return None;
        }
        // INVARIANT: As just made, and looked at.
        skb::alloc(bindings::LL_MAX_HEADER, u32::try_from(len).ok()?).map(Self)
    }

    /// Returns where the bytes are, and how many.
    #[inline]
    fn place(&self) -> (*mut u8, usize) {
        // SAFETY: By the type invariant this is a packet.
        unsafe { skb::linear(self.0.as_ptr()) }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        let (_, len) = self.place();
        len
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let (start, len) = self.place();
        // SAFETY: By the type invariant these bytes are the packet's, which is ours. They come from the
        // allocator, behind a C function, so they count as initialised.
        unsafe { slice::from_raw_parts(start, len) }
    }

    /// Returns the bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = self.place();
        // SAFETY: As in `bytes`; nobody else has a reference, as ours is exclusive.
        unsafe { slice::from_raw_parts_mut(start, len) }
    }

    /// Returns the type, or what is in its place: of the frame, or of what is behind a tag that ends at `at`.
    fn ethertype(&self, at: usize) -> Option<u16> {
        let (_, rest) = self.bytes().split_at_checked(at.checked_sub(2)?)?;
        rest.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Returns where the packet that the frame carries begins: behind the header and the tags.
    fn packet_offset(&self) -> usize {
        let is_tag = |at: usize| {
            matches!(self.ethertype(at), Some(CUSTOMER_TAG | SERVICE_TAG))
                && at.wrapping_add(TAG_LEN) <= self.len()
        };
        let mut at = ETHERNET_LEN;
        for _ in 0..MAX_TAGS {
            if is_tag(at) {
                at = at.wrapping_add(TAG_LEN);
            }
        }
        at
    }
}

impl Drop for TxFrame {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the packet is ours.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) };
    }
}

/// Where frames leave: a network device.
///
/// As each [`NetDev`] and each [`Sender`], it holds off the end of the device and of its namespace: not to be
/// kept.
pub struct TxNetdev {
    netdev: NetDev,
    sender: Sender,
}

impl TxNetdev {
    /// Sends by `netdev`, which is in the namespace of `sender`, and charges its frames to the socket
    /// that the packets of `sender` are charged to. Any context.
    pub fn new(netdev: NetDev, sender: Sender) -> Self {
        Self { netdev, sender }
    }

    /// Returns the length of the longest frame without a VLAN tag, and of the longest one with a tag, at the
    /// moment. Any context.
    pub fn max_len(&self) -> (usize, usize) {
        let mtu = usize::try_from(self.netdev.mtu()).unwrap_or(MAX_PACKET);
        let plain = mtu.min(MAX_PACKET).wrapping_add(ETHERNET_LEN);
        // As a packet socket has it.
        let tagged = if self.netdev.arp_type() == ARPHRD_ETHER {
            plain.wrapping_add(TAG_LEN)
        } else {
            plain
        };
        (plain, tagged)
    }

    /// Returns whether `frame` is not too long. Any context.
    pub fn takes(&self, frame: &TxFrame) -> bool {
        let (plain, tagged) = self.max_len();
        let max = match frame.ethertype(ETHERNET_LEN) {
            Some(CUSTOMER_TAG) => tagged,
            _ => plain,
        };
        frame.len() <= max
    }

    /// Gives a frame to the network device's queues; drops it if too many are in them already, or if the device is not
    /// up.
    ///
    /// Process or softirq context, interrupts on, and with no lock held: the frame may arrive, with all that
    /// follows from it, before this returns.
    pub fn transmit(&self, frame: TxFrame) -> Transmit {
        let Some(sock) = self.sender.sock(true) else {
            return Transmit::Dropped;
        };
        if self.sender.is_full(true) {
            return Transmit::Dropped;
        }
        let dev = self.netdev.as_ptr();
        let _guard = rcu::read_lock();
        // A netdev that is up under RCU keeps its queues until the guard is dropped: to be taken down, to leave
        // the namespace or to end, it waits for a grace period.
        // SAFETY: `netdev` is a network device, valid as long as `self`.
        let header_len = usize::from(unsafe { bindings::netdev_hard_header_len(dev) });
        if !self.netdev.is_up() || !self.netdev.is_in(self.sender.net()) || frame.len() < header_len
        {
            return Transmit::Dropped;
        }
        let ethertype = frame.ethertype(ETHERNET_LEN).unwrap_or_default();
        let offset = frame.packet_offset();
        let skb = ManuallyDrop::new(frame).0.as_ptr();
        // SAFETY: The packet is ours, linear, and at least as long as `ETHERNET_LEN` and as `offset`, so each
        // header is at a place in its data; the device outlives the guard. The socket is charged, and
        // `sock_wfree` gives that back: it is in vmlinux, so the packet may outlive this module. The stack takes the
        // packet.
        let verdict = unsafe {
            bindings::skb_set_dev(skb, dev);
            bindings::skb_set_protocol(skb, ethertype.to_be());
            bindings::skb_reset_mac_header(skb);
            // CAST: Small numbers, here and below.
            bindings::skb_set_network_header(skb, ETHERNET_LEN as c_int);
            bindings::skb_probe_transport_header(skb);
            bindings::skb_set_network_header(skb, offset as c_int);
            bindings::skb_set_owner_w(skb, sock.as_ptr());
            bindings::dev_queue_xmit(skb)
        };
        Transmit::of_verdict(verdict)
    }
}
