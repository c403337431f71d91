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
    opcode::Transport,
    packet::{
        Packet,
        ParseError,
        MAX_HEADER_LEN, //
    },
};

/// Bytes of the BTH.
const BTH_LEN: usize = 12;

/// The kernel's architecture-optimised CRC32.
///
/// Context: process or softirq; not hard interrupt (it uses the FPU).
struct KernelCrc;

impl icrc::Crc32 for KernelCrc {
    #[inline]
    fn update(&self, crc: u32, data: &[u8]) -> u32 {
        net::crc32_le(crc, data)
    }
}

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

/// What is left of the datagrams that came together.
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

    /// Takes the next packet out.
    pub(crate) fn pop(&mut self) -> Option<RxSkb> {
        self.ahead.take().or_else(|| self.packets.pop())
    }

    /// As the function of that name.
    #[inline(always)]
    pub(crate) fn check<'p>(
        &self,
        skb: &RxSkb,
        parsed: &'p Result<Packet, ParseError>,
    ) -> Option<&'p Packet> {
        if self.came == Came::Own {
            let packet = parsed.as_ref().ok()?;
            trace::packet_in(|| datagram::traced(packet));
            return Some(packet);
        }
        check(self.device, skb, parsed)
    }
}

/// Packets that follow one another, for one side of one QP, which takes them all or none.
pub(crate) struct Run<'a, 'b> {
    /// The first of them, and its headers.
    pub(crate) packet: &'a Packet,
    pub(crate) skb: RxSkb,
    /// What comes behind it, of which some may belong to it.
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
        let ends = |skb: &RxSkb| (skb.netns(), skb.source(), skb.destination());
        let first_ends = is_mixed.then(|| ends(&skb));
        f(first, skb);
        while let Some(skb) = burst.packets.pop() {
            let parsed = parse(&skb);
            let Some(packet) = burst.check(&skb, &parsed) else {
                continue;
            };
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
            f(packet, skb);
        }
    }
}

/// Counts datagrams that came to `device`, of `bytes` bytes together.
#[inline]
pub(crate) fn count(device: &Device, packets: u32, bytes: u64) {
    let counters = device.counters();
    counters.add(Counter::ReceivedPackets, u64::from(packets));
    counters.add(Counter::ReceivedBytes, bytes);
}

/// Reads the headers of a datagram.
#[inline(always)]
pub(crate) fn parse(skb: &RxSkb) -> Result<Packet, ParseError> {
    // They are in one piece as a rule. If that is too short, as it may be, there are others.
    match Packet::parse(skb.linear(), skb.datagram_len()) {
        Err(ParseError::TooShort) => parse_segments(skb),
        parsed => parsed,
    }
}

/// As [`parse`], of headers that need not be in one piece.
#[cold]
#[inline(never)]
fn parse_segments(skb: &RxSkb) -> Result<Packet, ParseError> {
    let mut headers = [0u8; MAX_HEADER_LEN];
    let copied = skb.header(&mut headers);
    Packet::parse(headers.get(..copied).unwrap_or(&[]), skb.datagram_len())
}

/// Whether a datagram that came to `device` is a packet for one of its QPs: returns what [`parse`] found, by
/// reference, as it is much to move around for each packet.
#[inline(always)] // For each packet.
pub(crate) fn check<'a>(
    device: &Device,
    skb: &RxSkb,
    parsed: &'a Result<Packet, ParseError>,
) -> Option<&'a Packet> {
    let Ok(packet) = parsed else {
        device.count_drop(Counter::Malformed, 0);
        return None;
    };
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
    let (ip, udp) = skb.headers().split_last_chunk()?;
    let state = if let Ok(ip) = ip.try_into() {
        icrc::header_crc_v4(&KernelCrc, ip, udp, bth)
    } else {
        icrc::header_crc_v6(&KernelCrc, ip.try_into().ok()?, udp, bth)
    };
    // Behind the right ICRC the state is always the same.
    let rest = skb.datagram_len().saturating_sub(BTH_LEN);
    if skb.crc32_le(state, BTH_LEN, rest) != Some(icrc::RESIDUE) {
        device.count_drop(Counter::BadIcrc, 0);
        return None;
    }
    trace::packet_in(|| datagram::traced(packet));
    if packet.opcode.transport() == Transport::Cnp {
        device.counters().add(Counter::CongestionNotifications, 1);
        return None;
    }
    Some(packet)
}

/// Parses a packet again that was parsed before, and has been kept since.
pub(crate) fn reparse(skb: &RxSkb) -> Option<Packet> {
    parse(skb).ok()
}
