// SPDX-License-Identifier: GPL-2.0

//! Packets that have arrived: what is checked of them before a QP is looked for.

use crate::{
    device::{
        counters::Counter,
        Device, //
    },
    packet::datagram, //
};
use kernel::sync::Arc;
use net::{
    RxList,
    RxSkb, //
};
use roce::{
    icrc,
    opcode::{
        Transport,
        BTH_LEN, //
    },
    packet::{
        Packet,
        ParseError,
        MAX_HEADER_LEN, //
    },
};

/// How packets came that are taken in one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// By the network, from one address to another.
    Together,
    /// By the network, then from another CPU: from many addresses.
    Steered,
    /// From QPs of the same device: from many addresses, and without ICRC.
    Own,
}

/// The rest of the datagrams that came together.
pub(crate) struct Burst<'a> {
    device: &'a Arc<Device>,
    packets: RxList,
    /// The first of them, if it was looked at already.
    ahead: Option<RxSkb>,
    came: Came,
}

impl<'a> Burst<'a> {
    /// `packets` are counted, too.
    pub(crate) fn new(device: &'a Arc<Device>, packets: RxList, came: Came) -> Self {
        count(device, packets.len(), packets.datagram_bytes());
        Self {
            device,
            packets,
            ahead: None,
            came,
        }
    }

    /// Whether its packets are the device's own.
    pub(crate) fn is_own(&self) -> bool {
        self.came == Came::Own
    }

    /// Takes the next packet for a QP out, whose headers `packet` becomes. Drops all in front of it.
    pub(crate) fn next(&mut self, packet: &mut Packet) -> Option<RxSkb> {
        loop {
            let skb = self.ahead.take().or_else(|| self.packets.pop())?;
            let is_good = if self.came == Came::Own {
                let is_good = read(packet, &skb).is_ok();
                if is_good {
                    trace::packet_in(|| datagram::traced(packet));
                }
                is_good
            } else {
                check(self.device, packet, &skb)
            };
            if is_good {
                return Some(skb);
            }
        }
    }
}

/// Packets that follow one another, for one side of one QP, which takes them all or none.
pub(crate) struct Run<'a, 'b> {
    /// The first of them, and its headers.
    pub(crate) packet: &'a Packet,
    pub(crate) skb: RxSkb,
    /// The packets behind it. The run may go on there.
    pub(crate) burst: &'a mut Burst<'b>,
}

impl Run<'_, '_> {
    /// Calls `f` with each packet.
    pub(crate) fn for_each(self, f: &mut dyn FnMut(&Packet, RxSkb)) {
        let Self {
            packet: first,
            skb,
            burst,
        } = self;
        let is_mixed = burst.came != Came::Together;
        // The same addresses may be other hosts' on another link, or other QPs' of the device.
        let ends = |skb: &RxSkb| {
            let link = (skb.netns(), skb.ifindex(), skb.sender());
            (link, skb.source(), skb.destination())
        };
        let first_ends = is_mixed.then(|| ends(&skb));
        f(first, skb);
        let mut packet = Packet::default();
        while let Some(skb) = burst.next(&mut packet) {
            if first_ends.is_some_and(|first| first != ends(&skb))
                || packet.dest_qpn != first.dest_qpn
                || packet.opcode.transport() != first.opcode.transport()
                || packet.opcode.is_request() != first.opcode.is_request()
                || packet.pkey != first.pkey
                || packet.migrated != first.migrated
            {
                burst.ahead = Some(skb);
                return;
            }
            f(&packet, skb);
        }
    }
}

/// Counts datagrams that came to `device`, of `bytes` bytes together.
#[inline]
pub(crate) fn count(device: &Device, packets: u32, bytes: u64) {
    let counters = &device.counters;
    counters.add(Counter::ReceivedPackets, u64::from(packets));
    counters.add(Counter::ReceivedBytes, bytes);
}

/// Has `packet` become the headers of a datagram. A switch marks the IP header instead of the BTH (annex A17.9).
#[inline(always)]
fn read(packet: &mut Packet, skb: &RxSkb) -> Result<(), ParseError> {
    // They are in one piece as a rule. If that is too short, as it may be, there are others.
    let read = match packet.read(skb.linear(), skb.datagram_len()) {
        Err(ParseError::TooShort) => read_segments(packet, skb),
        read => read,
    };
    packet.fecn = skb.has_congestion_mark();
    read
}

/// As [`read`], of headers that need not be in one piece.
#[cold]
#[inline(never)]
fn read_segments(packet: &mut Packet, skb: &RxSkb) -> Result<(), ParseError> {
    let mut headers = [0u8; MAX_HEADER_LEN];
    let copied = skb.header(&mut headers);
    packet.read(headers.get(..copied).unwrap_or(&[]), skb.datagram_len())
}

/// Has `packet` become the headers of a datagram that came to `device`. Returns whether it is sound, with the right ICRC.
/// Others are counted, and CNPs, too.
pub(crate) fn check(device: &Device, packet: &mut Packet, skb: &RxSkb) -> bool {
    if read(packet, skb).is_err() {
        device.count_drop(Counter::Malformed, 0);
        return false;
    }
    if !has_right_icrc(skb) {
        device.count_drop(Counter::BadIcrc, 0);
        return false;
    }
    trace::packet_in(|| datagram::traced(packet));
    if packet.opcode.transport() == Transport::Cnp {
        device.counters.add(Counter::CongestionNotifications, 1);
    }
    true
}

/// Whether a datagram that has the headers of a packet ends with their ICRC, and that of the payload.
#[inline(always)]
fn has_right_icrc(skb: &RxSkb) -> bool {
    let mut copy = [0u8; BTH_LEN];
    let bth = match skb.linear().first_chunk() {
        Some(bth) => bth,
        None => {
            // It was parsed, so it is there.
            let _ = skb.copy(0, &mut copy);
            &copy
        }
    };
    // There always are headers of IPv4 or IPv6, and UDP.
    let Some((ip, udp)) = skb.headers().split_last_chunk() else {
        return false;
    };
    if let Ok(ip) = ip.try_into() {
        covers(&icrc::masked_v4(ip, udp, bth), skb)
    } else if let Ok(ip) = ip.try_into() {
        covers(&icrc::masked_v6(ip, udp, bth), skb)
    } else {
        false
    }
}

/// Whether a datagram ends with the ICRC of `prefix`, its headers up to the BTH, and of all that follows.
#[inline(always)]
fn covers(prefix: &[u8], skb: &RxSkb) -> bool {
    let rest = skb.linear().get(BTH_LEN..);
    // Then the sender has computed the ICRC of these very bytes. The UDP header says how many they are.
    if rest.is_some_and(|rest| skb.follows(prefix, rest)) {
        return true;
    }
    // Behind the right ICRC the state is always the same.
    let state = net::crc32_le(icrc::SEED, prefix);
    let len = skb.datagram_len().saturating_sub(BTH_LEN);
    skb.crc32_le(state, BTH_LEN, len) == Some(icrc::RESIDUE)
}

/// Reads the headers again of a packet that has been kept since they were read.
pub(crate) fn reread(skb: &RxSkb) -> Option<Packet> {
    let mut packet = Packet::default();
    read(&mut packet, skb).is_ok().then_some(packet)
}
