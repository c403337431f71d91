// SPDX-License-Identifier: GPL-2.0

//! Datagrams that arrive together: a packet of the network, or a super-packet of several.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    address::Address,
    header::{
        is_same_flow,
        IPV4_LEN,
        IPV6_LEN,
        UDP,
        UDP_LEN, //
    },
    list::RxList,
    receive::RxSkb,
    skb::{
        self,
        next_in_list,
        set_next, //
    },
    transmit::MAX_DATAGRAMS,
};
use core::{
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::bindings as kernel_bindings;
use rdma_bindings as bindings;

/// Datagrams from one address and port to another.
pub struct RxBurst {
    /// The UDP port that they were sent from.
    pub source_port: u16,
    /// Bytes of all of them, with the headers of IP.
    pub bytes: u32,
    /// They themselves, in the order in which they were sent.
    pub packets: RxList,
}

impl RxBurst {
    /// Takes a packet that is about to be delivered on this machine, if it is UDP for `port` of an address that
    /// `owner` says something has, of a form that can be handled; otherwise nothing was done to it. Returns the owner,
    /// too.
    ///
    /// Left to the stack are packets for others than this host, with IP options or extensions, with headers in
    /// pieces; those that another socket was chosen for, that a policy of IPsec refuses, whose connection
    /// conntrack is still to confirm; super-packets that others refer to, or that are to be cut up by length.
    ///
    /// # Safety
    ///
    /// `skb` is a packet as the functions of `NF_INET_LOCAL_IN` get it, of IPv4 or IPv6 as `is_v4` says, which
    /// is the caller's if it is taken; softirq or process context, under RCU.
    pub(crate) unsafe fn take<O>(
        skb: NonNull<kernel_bindings::sk_buff>,
        is_v4: bool,
        port: u16,
        owner: impl FnOnce(&Address) -> Option<O>,
    ) -> Option<(O, Self)> {
        let raw = skb.as_ptr();
        let ip_len = if is_v4 { IPV4_LEN } else { IPV6_LEN };
        // SAFETY: The caller promises a packet.
        let (len, linear) = unsafe { ((*raw).len as usize, skb::headlen(raw)) };
        let headers_len = ip_len.wrapping_add(UDP_LEN);
        if linear < headers_len {
            return None;
        }
        // SAFETY: So many bytes are there. Nobody changes them as long as `headers` is used.
        let headers = unsafe { slice::from_raw_parts((*raw).data.cast_const(), headers_len) };
        let flow = Flow::of(headers, is_v4)?;
        if flow.port != port || flow.destination.is_multicast() {
            return None;
        }
        // Before anything that changes the packet or a counter.
        let owner = owner(&flow.destination)?;
        // SAFETY: The caller promises a packet in a receive path.
        let is_free = unsafe {
            ptr::eq(skb::network_header(raw), (*raw).data)
                && (*raw).__bindgen_anon_1.__bindgen_anon_1.next.is_null()
                && (*raw).sk.is_null()
                && bindings::skb_is_to_host(raw)
                && bindings::skb_is_exclusive(raw)
                && !bindings::skb_nf_ct_is_unconfirmed(raw)
        };
        if !is_free {
            return None;
        }
        let udp_len = usize::from(flow.len);
        // SAFETY: As above.
        if !unsafe { skb::is_gso(raw) } {
            if udp_len != len.wrapping_sub(ip_len) {
                return None;
            }
        } else {
            // SAFETY: As above; nobody else refers to it or changes it, as it was just seen not to be shared.
            if !unsafe { members_are_sound(raw, headers, udp_len) } {
                return None;
            }
        }
        // SAFETY: As above.
        let control = unsafe { RxSkb::control_of(raw)? };
        // Last, as it may take from the packet what it needs.
        // SAFETY: As above.
        if !unsafe { bindings::xfrm_policy_check_in(raw, family(is_v4)) } {
            return None;
        }
        let source_port = flow.source_port;

        // From here on the packet is ours.
        // SAFETY: As above; the device stays under RCU. `raw` is not cloned if it has members, so its headers
        // and the list are ours to change; and those were seen to be there.
        let mut next = unsafe {
            let list = split(raw, headers_len);
            skb::pull(raw, ip_len);
            bindings::nf_reset_ct(raw);
            list
        };
        let mut packets = RxList::default();
        // SAFETY: As above; its data start with the UDP header now.
        if let Some(packet) = unsafe { RxSkb::take_over(skb, control) } {
            packets.push(packet);
        }
        while let Some(member) = NonNull::new(next) {
            // SAFETY: This is a packet of the list, and ours. It is in no list any more when it is taken over, and its data
            // start with the UDP header then.
            let packet = unsafe {
                next = next_in_list(member.as_ptr());
                set_next(member.as_ptr(), ptr::null_mut());
                skb::push(member.as_ptr(), UDP_LEN);
                RxSkb::take_over(member, control)
            };
            if let Some(packet) = packet {
                packets.push(packet);
            }
        }
        let burst = Self {
            source_port,
            // CAST: It was 32 bits wide.
            bytes: len as u32,
            packets,
        };
        Some((owner, burst))
    }
}

/// Returns the family of a packet's addresses.
fn family(is_v4: bool) -> u16 {
    // CAST: Small numbers, both.
    if is_v4 {
        kernel_bindings::AF_INET as u16
    } else {
        kernel_bindings::AF_INET6 as u16
    }
}

/// The addresses, ports and length in the headers of a UDP datagram.
struct Flow {
    destination: Address,
    source_port: u16,
    port: u16,
    len: u16,
}

impl Flow {
    /// Reads headers, of IP and of UDP; `None` if they are not of the form that is handled.
    #[inline]
    fn of(headers: &[u8], is_v4: bool) -> Option<Self> {
        let (ip, udp) = headers.split_last_chunk::<UDP_LEN>()?;
        let [source1, source2, port1, port2, len1, len2, _, _] = *udp;
        let destination = if is_v4 {
            let ip = <&[u8; IPV4_LEN]>::try_from(ip).ok()?;
            let [first, _, _, _, _, _, frag1, frag2, _, protocol, ..] = *ip;
            if first != 0x45 || protocol != UDP || u16::from_be_bytes([frag1, frag2]) & 0x3fff != 0
            {
                return None;
            }
            Address::V4(*ip.last_chunk()?)
        } else {
            let ip = <&[u8; IPV6_LEN]>::try_from(ip).ok()?;
            let [first, _, _, _, _, _, protocol, ..] = *ip;
            if first >> 4 != 6 || protocol != UDP {
                return None;
            }
            Address::V6(*ip.last_chunk()?)
        };
        Some(Self {
            destination,
            source_port: u16::from_be_bytes([source1, source2]),
            port: u16::from_be_bytes([port1, port2]),
            len: u16::from_be_bytes([len1, len2]),
        })
    }
}

/// Returns whether a super-packet is a list of datagrams, each with headers of its own, which are ours to
/// take apart.
///
/// # Safety
///
/// `head` is a packet with data at its network header, which nobody changes meanwhile: `headers`, of IP and of UDP, stand
/// there, and `udp_len` in the latter.
unsafe fn members_are_sound(
    head: *mut kernel_bindings::sk_buff,
    headers: &[u8],
    udp_len: usize,
) -> bool {
    let headers_len = headers.len();
    let ip_len = headers_len.wrapping_sub(UDP_LEN);
    // SAFETY: The caller promises a packet.
    let (len, gso_size, mut member) = unsafe {
        if !bindings::skb_is_udp_fraglist(head) || bindings::skb_cloned(head) {
            return false;
        }
        (
            (*head).len as usize,
            usize::from(skb::gso_size(head)),
            skb::frag_list(head),
        )
    };
    if member.is_null() || udp_len != len.wrapping_sub(ip_len) {
        return false;
    }
    // All bytes, less those of the members so far. The rest is the head's.
    let mut left = len;
    let mut room = MAX_DATAGRAMS;
    while !member.is_null() {
        // SAFETY: A member of the list is a packet.
        let (member_len, next) = unsafe {
            let is_free = (*member).sk.is_null() && bindings::skb_is_exclusive(member);
            let data = (*member).data.cast_const();
            let network = skb::network_header(member);
            if !is_free || data.addr().wrapping_sub(network.addr()) != headers_len {
                return false;
            }
            // So many bytes are in front of its data.
            let own = slice::from_raw_parts(network, headers_len);
            if !is_same_flow(own, headers) {
                return false;
            }
            ((*member).len as usize, next_in_list(member))
        };
        room = room.saturating_sub(1);
        left = match left.checked_sub(member_len) {
            Some(left) if room != 0 => left,
            _ => return false,
        };
        member = next;
    }
    left == headers_len.wrapping_add(gso_size)
}

/// Takes the members off a super-packet, whose headers, `headers_len` bytes of IP and UDP, then say what is left.
/// Returns the list, or null if it is none.
///
/// # Safety
///
/// `head` is a packet that the caller owns, with data at its network header, and headers of so many bytes; if it
/// is a super-packet, [`members_are_sound`].
unsafe fn split(
    head: *mut kernel_bindings::sk_buff,
    headers_len: usize,
) -> *mut kernel_bindings::sk_buff {
    // SAFETY: The caller promises it.
    unsafe {
        if !skb::is_gso(head) {
            return ptr::null_mut();
        }
        let list = skb::frag_list(head);
        // CAST: A small number.
        let udp_len = skb::gso_size(head).wrapping_add(UDP_LEN as u16);
        skb::set_frag_list(head, ptr::null_mut());
        bindings::skb_gso_reset(head);
        let (mut len, mut truesize) = (0u32, 0u32);
        let mut member = list;
        while !member.is_null() {
            len = len.wrapping_add((*member).len);
            truesize = truesize.wrapping_add((*member).truesize);
            member = next_in_list(member);
        }
        (*head).len = (*head).len.wrapping_sub(len);
        (*head).data_len = (*head).data_len.wrapping_sub(len);
        (*head).truesize = (*head).truesize.wrapping_sub(truesize);

        let start = (*head).data;
        let ip_len = headers_len.wrapping_sub(UDP_LEN);
        start
            .add(ip_len.wrapping_add(4))
            .cast::<[u8; 2]>()
            .write(udp_len.to_be_bytes());
        if ip_len == IPV4_LEN {
            let tot_len = udp_len.wrapping_add(IPV4_LEN as u16);
            start.add(2).cast::<[u8; 2]>().write(tot_len.to_be_bytes());
        } else {
            start.add(4).cast::<[u8; 2]>().write(udp_len.to_be_bytes());
        }
        list
    }
}
