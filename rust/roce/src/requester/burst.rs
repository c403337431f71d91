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
    qp::Type,
    ticket::Ticket,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// To be returned with the outcome.
    pub ticket: Ticket,
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

    /// The `index`-th packet of a burst, where in the work request's payload its own begins, and
    /// how long that is, in bytes.
    ///
    /// `None` behind the last packet, and if the work request is not there any more: then its
    /// packets need not be sent.
    pub fn packet(&self, burst: &Burst, index: u32) -> Option<(Packet, u32, u32)> {
        let age = burst.sequence.wrapping_sub(self.tail);
        if index >= burst.packets || age >= self.len() {
            return None;
        }
        let slot = self.slot(burst.sequence)?;
        let wr = &slot.wr;
        let psn = self.psn(burst.first.wrapping_add(u64::from(index)));
        match wr.operation {
            SendOperation::Local => None,
            SendOperation::Read => {
                let shift = self.config.mtu.shift();
                let part = self.parts.left(slot.first, slot.end(), burst.first);
                let part_len = u64::from(part).wrapping_shl(shift);
                let part_len = u32::try_from(part_len).unwrap_or(u32::MAX);
                let mut packet = self.new_packet(Opcode::RcReadRequest, wr, psn);
                packet.ack_request = true;
                packet.reth = Some(Reth {
                    va: wr.remote_va.wrapping_add(u64::from(burst.offset)),
                    rkey: wr.rkey,
                    length: wr.length.saturating_sub(burst.offset).min(part_len),
                });
                Some((packet, burst.offset, 0))
            }
            SendOperation::CompareSwap | SendOperation::FetchAdd => {
                let opcode = match wr.operation {
                    SendOperation::CompareSwap => Opcode::RcCompareSwap,
                    _ => Opcode::RcFetchAdd,
                };
                let mut packet = self.new_packet(opcode, wr, psn);
                packet.ack_request = true;
                packet.atomic = Some(AtomicRequest {
                    va: wr.remote_va,
                    rkey: wr.rkey,
                    swap_add: wr.swap_add,
                    compare: wr.compare,
                });
                Some((packet, 0, 0))
            }
            SendOperation::Flush => {
                let mut packet = self.new_packet(Opcode::RcFlush, wr, psn);
                packet.ack_request = true;
                packet.flush = Some(wr.flush);
                packet.reth = Some(Reth {
                    va: wr.remote_va,
                    rkey: wr.rkey,
                    length: wr.length,
                });
                Some((packet, 0, 0))
            }
            SendOperation::AtomicWrite => {
                let mut packet = self.new_packet(Opcode::RcAtomicWrite, wr, psn);
                packet.ack_request = true;
                packet.payload_len = ATOMIC_WRITE_LEN;
                packet.reth = Some(Reth {
                    va: wr.remote_va,
                    rkey: wr.rkey,
                    length: ATOMIC_WRITE_LEN,
                });
                Some((packet, 0, ATOMIC_WRITE_LEN))
            }
            SendOperation::Send | SendOperation::Write => {
                let mtu = self.config.mtu;
                let within = index.wrapping_shl(mtu.shift());
                let offset = burst.offset.wrapping_add(within);
                let length = burst.length.saturating_sub(within).min(mtu.bytes());
                let starts = offset == 0;
                let ends = offset.wrapping_add(length) >= wr.length;
                let opcode = message_opcode(self.config.service, wr, starts, ends)?;

                let mut packet = self.new_packet(opcode, wr, psn);
                packet.payload_len = length;
                packet.solicited = wr.solicited
                    && ends
                    && (matches!(wr.operation, SendOperation::Send) || wr.immediate.is_some());
                packet.ack_request = self.config.service.is_reliable()
                    && ((burst.asks && index.wrapping_add(1) == burst.packets)
                        || asks_anyway(psn)
                        || (burst.again && index == 0));
                if opcode.has_reth() {
                    packet.reth = Some(Reth {
                        va: wr.remote_va,
                        rkey: wr.rkey,
                        length: wr.length,
                    });
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
                Some((packet, offset, length))
            }
        }
    }

    /// A packet of a work request with what is the same in all of them. `opcode` is that of RC, where
    /// the service has what RC has.
    fn new_packet(&self, opcode: Opcode, wr: &SendWr, psn: Psn) -> Packet {
        let dest_qpn = if self.config.service.is_connected() {
            self.config.dest_qpn
        } else {
            wr.dest_qpn
        };
        let mut packet = Packet::new(opcode, dest_qpn, psn);
        packet.pkey = self.config.pkey;
        if matches!(self.config.service, Type::XrcInitiator) {
            packet.opcode = opcode.for_xrc();
            packet.xrc_srqn = Some(U24::new(wr.xrc_srqn));
        }
        packet
    }
}

/// The opcode of a packet of a SEND or WRITE, for XRC that of RC; `None` for what the service does not
/// have.
fn message_opcode(service: Type, wr: &SendWr, starts: bool, ends: bool) -> Option<Opcode> {
    use Opcode::*;

    let service = match service {
        Type::XrcInitiator => Type::Rc,
        other => other,
    };
    let is_write = matches!(wr.operation, SendOperation::Write);
    let immediate = wr.immediate.is_some();
    let invalidate = wr.invalidate_rkey.is_some() && !immediate && !is_write;
    let opcode = match (service, is_write, starts, ends) {
        (Type::Rc, false, true, false) => RcSendFirst,
        (Type::Rc, false, false, false) => RcSendMiddle,
        (Type::Rc, false, false, true) if immediate => RcSendLastImm,
        (Type::Rc, false, false, true) if invalidate => RcSendLastInvalidate,
        (Type::Rc, false, false, true) => RcSendLast,
        (Type::Rc, false, true, true) if immediate => RcSendOnlyImm,
        (Type::Rc, false, true, true) if invalidate => RcSendOnlyInvalidate,
        (Type::Rc, false, true, true) => RcSendOnly,
        (Type::Rc, true, true, false) => RcWriteFirst,
        (Type::Rc, true, false, false) => RcWriteMiddle,
        (Type::Rc, true, false, true) if immediate => RcWriteLastImm,
        (Type::Rc, true, false, true) => RcWriteLast,
        (Type::Rc, true, true, true) if immediate => RcWriteOnlyImm,
        (Type::Rc, true, true, true) => RcWriteOnly,
        (Type::Uc, false, true, false) => UcSendFirst,
        (Type::Uc, false, false, false) => UcSendMiddle,
        (Type::Uc, false, false, true) if immediate => UcSendLastImm,
        (Type::Uc, false, false, true) => UcSendLast,
        (Type::Uc, false, true, true) if immediate => UcSendOnlyImm,
        (Type::Uc, false, true, true) => UcSendOnly,
        (Type::Uc, true, true, false) => UcWriteFirst,
        (Type::Uc, true, false, false) => UcWriteMiddle,
        (Type::Uc, true, false, true) if immediate => UcWriteLastImm,
        (Type::Uc, true, false, true) => UcWriteLast,
        (Type::Uc, true, true, true) if immediate => UcWriteOnlyImm,
        (Type::Uc, true, true, true) => UcWriteOnly,
        (Type::Ud | Type::Gsi, false, true, true) if immediate => UdSendOnlyImm,
        (Type::Ud | Type::Gsi, false, true, true) => UdSendOnly,
        (Type::Ud | Type::Gsi, ..) => return None,
        (Type::RawPacket | Type::XrcInitiator | Type::XrcTarget, ..) => return None,
    };
    Some(opcode)
}
