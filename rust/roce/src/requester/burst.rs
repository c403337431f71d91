// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The packets of a work request: their opcodes and headers (IBTA 9.2, 9.3, 9.4).

use core::ops::DerefMut;

use crate::{
    opcode::Opcode,
    packet::{
        AtomicRequest,
        Deth,
        Packet,
        Reth,
        ATOMIC_WRITE_LEN, //
    },
    psn::Psn,
    wire::U24, //
};

use super::{
    Requester,
    SendOperation,
    SendSlot,
    SendWr, //
};

/// The longest burst in bytes.
pub const MAX_BURST_LEN: u32 = 64 * 1024;

/// The longest burst in packets, whatever the path MTU.
pub const MAX_BURST_PACKETS: u32 = 64;

/// In long messages, a packet in so many asks for an acknowledgement. A power of two.
const ASK_INTERVAL: u32 = 32;

/// Consecutive packets of one work request.
#[derive(Debug, PartialEq, Eq)]
pub struct Burst {
    /// The work request.
    pub sequence: u32,
    /// Where in the work request's payload the burst begins, in bytes.
    pub offset: u32,
    /// Number of payload bytes in the burst, at most [`MAX_BURST_LEN`]. None for READ, ATOMIC and
    /// FLUSH requests.
    pub length: u32,
    /// Number of packets, at least 1 and at most [`MAX_BURST_PACKETS`].
    pub packets: u32,
    /// Position of the first packet.
    pub(super) first: u64,
    /// The position behind the last packet; of a READ request, behind the last response that it asks for.
    pub(super) end: u64,
    /// Whether it has been sent before: then the first packet asks for an acknowledgement, too.
    pub(super) again: bool,
    /// Whether the last packet asks for an acknowledgement.
    pub(super) asks: bool,
}

impl Burst {
    /// Whether some of it has been sent before.
    #[inline]
    pub fn is_repeated(&self) -> bool {
        self.again
    }
}

/// Whether a packet asks for an acknowledgement wherever it stands in its message.
#[inline]
fn asks_anyway(psn: Psn) -> bool {
    psn.get() % ASK_INTERVAL == 0
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Whether the packet before position `end`, which is outstanding, asked for an acknowledgement. Within a message, that
    /// is not known of all that did.
    pub(super) fn asked_before(&self, end: u64) -> bool {
        let mut sequence = self.oldest;
        while sequence != self.started {
            match self.slot(sequence) {
                Some(slot) if slot.end() < end => sequence = sequence.wrapping_add(1),
                Some(slot) if slot.end() == end => return slot.asked,
                _ => break,
            }
        }
        asks_anyway(self.psn(end.wrapping_sub(1)))
    }

    /// The `index`-th packet of a burst, and where in the work request's payload its own begins, in bytes.
    ///
    /// `None` behind the last packet.
    pub fn packet(&self, burst: &Burst, index: u32) -> Option<(Packet, u32)> {
        if index >= burst.packets {
            return None;
        }
        let slot = self.slot(burst.sequence)?;
        let wr = &slot.wr;
        let psn = self.psn(burst.first.wrapping_add(u64::from(index)));
        let service = self.config.service;
        let mtu = self.config.mtu;
        let mut offset = burst.offset;
        let mut payload_len = burst.length;
        // READ, ATOMIC and the like always ask for an answer.
        let mut asks = true;
        let mut solicited = false;
        let mut reth_length = wr.length;
        let opcode = match wr.operation {
            SendOperation::Local => return None,
            SendOperation::Read => {
                let part = self.parts.left(slot.first, slot.end(), burst.first);
                let part_len = u64::from(part).wrapping_shl(mtu.shift());
                let part_len = u32::try_from(part_len).unwrap_or(u32::MAX);
                reth_length = wr.length.saturating_sub(offset).min(part_len);
                Opcode::RcReadRequest
            }
            SendOperation::CompareSwap => Opcode::RcCompareSwap,
            SendOperation::FetchAdd => Opcode::RcFetchAdd,
            SendOperation::Flush => Opcode::RcFlush,
            SendOperation::AtomicWrite => {
                reth_length = ATOMIC_WRITE_LEN;
                Opcode::RcAtomicWrite
            }
            SendOperation::Send | SendOperation::Write => {
                let within = index.wrapping_shl(mtu.shift());
                offset = offset.wrapping_add(within);
                payload_len = payload_len.saturating_sub(within).min(mtu.bytes());
                let starts = offset == 0;
                let ends = offset.wrapping_add(payload_len) >= wr.length;
                let is_send = matches!(wr.operation, SendOperation::Send);
                solicited = wr.solicited && ends && (is_send || wr.immediate.is_some());
                asks = service.is_reliable()
                    && ((burst.asks && index.wrapping_add(1) == burst.packets)
                        || asks_anyway(psn)
                        || (burst.again && index == 0));
                message_opcode(wr, starts, ends)
            }
        };
        let opcode = opcode.of_service(service)?;
        let dest_qpn = match service.is_connected() {
            true => self.config.dest_qpn,
            false => wr.dest_qpn,
        };
        let mut packet = Packet::new(opcode, dest_qpn, psn);
        packet.pkey = self.config.pkey;
        packet.payload_len = payload_len;
        packet.ack_request = asks;
        packet.solicited = solicited;
        if !opcode.has_extensions() {
            return Some((packet, offset));
        }
        if opcode.has_xrceth() {
            packet.xrc_srqn = Some(U24::new(wr.xrc_srqn));
        }
        if opcode.has_reth() {
            packet.reth = Some(Reth {
                va: wr.remote_va.wrapping_add(u64::from(offset)),
                rkey: wr.rkey,
                length: reth_length,
            });
        }
        if opcode.has_atomic() {
            packet.atomic = Some(AtomicRequest {
                va: wr.remote_va,
                rkey: wr.rkey,
                swap_add: wr.swap_add,
                compare: wr.compare,
            });
        }
        if opcode.has_flush() {
            packet.flush = Some(wr.flush);
        }
        if opcode.has_immediate() {
            packet.immediate = wr.immediate;
        }
        if opcode.has_invalidate() {
            packet.invalidate_rkey = wr.invalidate_rkey;
        }
        if opcode.has_deth() {
            packet.deth = Some(Deth {
                qkey: wr.qkey,
                src_qpn: self.config.src_qpn,
            });
        }
        Some((packet, offset))
    }
}

/// The opcode that RC has for a packet of a SEND or WRITE.
fn message_opcode(wr: &SendWr, starts: bool, ends: bool) -> Opcode {
    use Opcode::*;

    let is_write = matches!(wr.operation, SendOperation::Write);
    let immediate = wr.immediate.is_some();
    let invalidate = wr.invalidate_rkey.is_some();
    match (is_write, starts, ends) {
        (false, true, false) => RcSendFirst,
        (false, false, false) => RcSendMiddle,
        (false, false, true) if immediate => RcSendLastImm,
        (false, false, true) if invalidate => RcSendLastInvalidate,
        (false, false, true) => RcSendLast,
        (false, true, true) if immediate => RcSendOnlyImm,
        (false, true, true) if invalidate => RcSendOnlyInvalidate,
        (false, true, true) => RcSendOnly,
        (true, true, false) => RcWriteFirst,
        (true, false, false) => RcWriteMiddle,
        (true, false, true) if immediate => RcWriteLastImm,
        (true, false, true) => RcWriteLast,
        (true, true, true) if immediate => RcWriteOnlyImm,
        (true, true, true) => RcWriteOnly,
    }
}
