// SPDX-License-Identifier: GPL-2.0

//! From a header stack and a payload to a RoCEv2 datagram that may leave.

use crate::{
    device::{
        counters::Counter,
        Device, //
    },
    memory::{
        access::Fault,
        buffer::Payload, //
    },
    packet::{
        frame::Frames,
        path::Path, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::{
    PagePools,
    RxList,
    RxSkb,
    Transmit,
    TxSkb, //
};
use roce::{
    icrc::{
        self,
        LEN as ICRC_LEN, //
    },
    packet::Packet,
    requester::MAX_BURST_PACKETS, //
};

/// Why a datagram could not be built.
pub(crate) enum BuildError {
    /// No memory for the packet. For a reliable QP this is a loss like any other.
    NoMemory,
    /// The payload's memory may not be read.
    Payload(Fault),
}

/// The fields of the events of `packet`. Context: any.
#[cold]
#[inline(never)]
pub(crate) fn traced(packet: &Packet) -> trace::Packet {
    trace::Packet {
        dest_qpn: packet.dest_qpn,
        opcode: packet.opcode as u8,
        psn: packet.psn.get(),
        len: packet.payload_len,
        syndrome: packet.aeth.map(|aeth| aeth.syndrome.to_byte()),
    }
}

/// How many packets of a batch left, and how many were dropped.
#[derive(Default)]
struct Outcome {
    sent: u64,
    sent_bytes: u64,
    dropped: u64,
}

impl Outcome {
    fn sent(&mut self, packets: u64, bytes: u64) {
        self.sent = self.sent.wrapping_add(packets);
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes);
    }

    fn dropped(&mut self, packets: u64) {
        self.dropped = self.dropped.wrapping_add(packets);
    }

    /// Sends a datagram, or several that leave together.
    fn transmit(&mut self, skb: TxSkb, path: &Path) {
        let (datagrams, bytes) = (u64::from(skb.datagrams()), skb.total_len() as u64);
        match skb.transmit(&path.route) {
            Transmit::Sent => self.sent(datagrams, bytes),
            Transmit::Dropped => self.dropped(datagrams),
        }
    }
}

/// Datagrams that were built under a QP's lock and leave once it is released.
///
/// The vectors' memory is kept from one batch to the next, so a batch allocates nothing.
#[derive(Default)]
pub(crate) struct Batch {
    /// Each with the index of its path.
    datagrams: KVec<(TxSkb, usize)>,
    /// No two that follow one another are the same.
    paths: KVec<Arc<Path>>,
    /// How many are for groups with QPs of the device.
    to_own_groups: u32,
    /// Each datagram is to leave on its own.
    is_scattered: bool,
    /// A raw packet QP has these instead.
    pub(crate) frames: Option<Frames>,
}

impl Batch {
    /// Most datagrams of a batch.
    const CAPACITY: usize = 96;
    /// Room that a batch must have before another burst is built into it.
    pub(crate) const BURST: usize = MAX_BURST_PACKETS as usize;

    /// Datagrams to groups of the device that fill a batch. Each may be for 64 QPs, and all of these take it in before bottom
    /// halves run again.
    const MOST_TO_OWN_GROUPS: u32 = 8;

    /// Allocates an empty batch. Context: process, may sleep.
    pub(crate) fn new() -> Result<KBox<Self>> {
        let batch = Self {
            datagrams: KVec::with_capacity(Self::CAPACITY, GFP_KERNEL_ACCOUNT)?,
            paths: KVec::with_capacity(Self::CAPACITY, GFP_KERNEL_ACCOUNT)?,
            ..Self::default()
        };
        Ok(KBox::new(batch, GFP_KERNEL_ACCOUNT)?)
    }

    /// Allocates an empty batch for frames. Context: process, may sleep.
    pub(crate) fn of_frames() -> Result<KBox<Self>> {
        let batch = Self {
            frames: Some(Frames::new()?),
            ..Self::default()
        };
        Ok(KBox::new(batch, GFP_KERNEL_ACCOUNT)?)
    }

    /// Builds the datagram of `packet` towards `path` and adds it; if there is no room it is dropped, as the network may
    /// drop any. The packet never refers to the memory that the payload comes from, which the consumer gets back before the
    /// packet is gone. The ICRC of what goes to a QP of the same device is 0.
    ///
    /// Context: bottom halves off.
    pub(crate) fn build(
        &mut self,
        path: &Arc<Path>,
        packet: &Packet,
        pages: &PagePools,
        payload: Payload<'_, '_>,
    ) -> Result<(), BuildError> {
        let header_len = packet.header_len();
        let rest_len = packet.datagram_len().saturating_sub(header_len);
        let checksum_room = match path.is_loopback() {
            true => 0,
            false => icrc::LRH_LEN,
        };
        // Datagrams are never fragmented (DF), so the identification carries nothing (RFC 6864). But it is part of what the
        // ICRC covers, and who takes a super-packet apart counts it up.
        let id = self.datagrams.len() as u16;
        let route = &path.route;
        let mut skb = TxSkb::alloc(pages, route, id, header_len, rest_len, checksum_room)
            .ok_or(BuildError::NoMemory)?;
        let (headers, rest) = skb.parts_mut();
        packet.emit(headers).ok_or(BuildError::NoMemory)?;
        let (body, tail) = rest
            .split_at_mut_checked(packet.payload_len as usize)
            .ok_or(BuildError::NoMemory)?;
        payload.copy_to(body).map_err(BuildError::Payload)?;
        // Pad and ICRC are four to seven bytes.
        *tail.first_chunk_mut().ok_or(BuildError::NoMemory)? = [0; ICRC_LEN];
        *tail.last_chunk_mut().ok_or(BuildError::NoMemory)? = [0; ICRC_LEN];
        if !path.is_loopback() {
            skb.with_headers_mut(icrc::LRH_LEN)
                .and_then(|(bytes, is_copy)| icrc::seal(bytes, is_copy, net::crc32_le))
                .ok_or(BuildError::NoMemory)?;
        }
        trace::packet_out(|| traced(packet));
        self.push(skb, path).ok_or(BuildError::NoMemory)
    }

    /// Adds a datagram, if there is room. Not a part of [`Self::build`]: that would contain panics of the kernel's vectors.
    fn push(&mut self, skb: TxSkb, path: &Arc<Path>) -> Option<()> {
        let is_last = |last: &Arc<Path>| Arc::ptr_eq(last, path);
        if !self.paths.last().is_some_and(is_last) {
            self.paths.push_within_capacity(path.clone()).ok()?;
        }
        let index = self.paths.len().wrapping_sub(1);
        self.datagrams.push_within_capacity((skb, index)).ok()
    }

    /// The last datagram is for a group with QPs of the device. Context: any.
    pub(crate) fn add_to_own_group(&mut self) {
        self.to_own_groups = self.to_own_groups.saturating_add(1);
    }

    /// Has each datagram leave on its own, for packets that are sent again: segmentation of super-packets on the way
    /// may lack memory, now and the next time.
    pub(crate) fn scatter(&mut self) {
        self.is_scattered = true;
    }

    /// How many datagrams there are.
    pub(crate) fn len(&self) -> usize {
        self.datagrams.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let frames = self.frames.as_ref();
        self.datagrams.is_empty() && frames.is_none_or(|frames| frames.is_empty())
    }

    /// Whether there is no room for another burst, or frame.
    pub(crate) fn is_full(&self) -> bool {
        let least = if self.frames.is_some() {
            1
        } else {
            Self::BURST
        };
        self.room() < least || self.to_own_groups >= Self::MOST_TO_OWN_GROUPS
    }

    /// How many more datagrams fit, or frames.
    pub(crate) fn room(&self) -> usize {
        match &self.frames {
            Some(frames) => frames.room(),
            None => Self::CAPACITY.saturating_sub(self.datagrams.len()),
        }
    }

    /// Forgets all but the first `len` datagrams.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.datagrams.truncate(len);
        let paths = |(_, index): &(TxSkb, usize)| index.wrapping_add(1);
        self.paths.truncate(self.datagrams.last().map_or(0, paths));
    }

    /// Sends all datagrams, and all frames, of the QP `number`: the batch is empty then. Context: bottom halves off, no lock
    /// held.
    pub(crate) fn send(&mut self, device: &Arc<Device>, number: u32) {
        let mut outcome = Outcome::default();
        let mut burst: Option<(TxSkb, usize, &Path)> = None;
        // Those for QPs of the device.
        let mut own = RxList::default();
        for (skb, index) in self.datagrams.drain_all() {
            let Some(path) = self.paths.get(index) else {
                continue;
            };
            if path.is_loopback() {
                let len = skb.len() as u64;
                match RxSkb::of_sent(skb, path.netns(), path.ifindex(), number) {
                    Some(skb) => {
                        outcome.sent(1, len);
                        own.push(skb);
                    }
                    None => outcome.dropped(1),
                }
                continue;
            }
            // The packet itself leaves, whatever becomes of the copy.
            if path.has_own_group(device) {
                let copy = skb
                    .try_copy()
                    .and_then(|copy| RxSkb::of_sent(copy, path.netns(), path.ifindex(), number));
                match copy {
                    Some(copy) => own.push(copy),
                    None => outcome.dropped(1),
                }
            }
            let rest = match &mut burst {
                Some((first, way, _)) if *way == index && !self.is_scattered => {
                    first.append(skb, &path.route)
                }
                _ => Err(skb),
            };
            if let Err(skb) = rest {
                if let Some((full, _, path)) = burst.replace((skb, index, path)) {
                    outcome.transmit(full, path);
                }
            }
        }
        if let Some((last, _, path)) = burst {
            outcome.transmit(last, path);
        }
        self.paths.clear();
        self.to_own_groups = 0;
        self.is_scattered = false;
        if !own.is_empty() {
            device.receive_own(own);
        }
        if let Some(frames) = &mut self.frames {
            let (sent, bytes, dropped) = frames.send();
            outcome.sent(sent, bytes);
            outcome.dropped(dropped);
        }
        let counters = &device.counters;
        counters.add(Counter::SentPackets, outcome.sent);
        counters.add(Counter::SentBytes, outcome.sent_bytes);
        if outcome.dropped > 0 {
            counters.add(Counter::SendDropped, outcome.dropped);
        }
    }
}
