// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Numbers, outcomes and packets by chance, most of them near an edge.

use roce::{
    opcode::Opcode,
    packet::{
        Aeth,
        AtomicRequest,
        Deth,
        Flush,
        Packet,
        Reth,
        Syndrome, //
    },
    psn::Psn,
    qp::Mtu,
    ticket::Outcome,
    wire::U24, //
};
use sim::rng::Rng;

/// A number that is likely to be on the edge of something.
pub(crate) fn number(rng: &mut Rng) -> u32 {
    let edge = rng.pick(&[
        0,
        1,
        8,
        255,
        256,
        257,
        4096,
        1 << 22,
        1 << 23,
        1 << 31,
        u32::MAX,
    ]);
    match rng.below(3) {
        0 => edge,
        1 => edge.wrapping_add(rng.below(5) as u32).wrapping_sub(2),
        _ => rng.word() as u32,
    }
}

pub(crate) fn outcome(rng: &mut Rng) -> Outcome {
    rng.pick(&[
        Outcome::Done,
        Outcome::Done,
        Outcome::Done,
        Outcome::Done,
        Outcome::Again,
        Outcome::Protection,
        Outcome::Operational,
        Outcome::InvalidRequest,
        Outcome::Length,
        Outcome::MemoryWindowBind,
    ])
}

/// A packet near `psn` that is well-formed, and makes no more sense than that.
pub(crate) fn packet(rng: &mut Rng, psn: Psn, mtu: Mtu, response: bool) -> Packet {
    let opcode = loop {
        let opcode = rng.pick(Opcode::ALL);
        if opcode.is_response() == response || rng.below(20) == 0 {
            break opcode;
        }
    };
    let psn = match rng.below(8) {
        0 => Psn::new(rng.word() as u32),
        1 => psn.add(1 << 23),
        2 | 3 => psn.add(rng.below(6) as u32).sub(3),
        _ => psn,
    };
    let mut packet = Packet::new(opcode, 0x11, psn);
    packet.ack_request = rng.below(2) == 0;
    packet.solicited = rng.below(2) == 0;
    if opcode.has_reth() {
        packet.reth = Some(Reth {
            va: rng.word(),
            rkey: 7,
            length: number(rng),
        });
    }
    if opcode.has_atomic() {
        packet.atomic = Some(AtomicRequest {
            va: rng.word() & !rng.pick(&[0, 7, 7]),
            rkey: 7,
            swap_add: 1,
            compare: 1,
        });
    }
    if opcode.has_aeth() {
        let byte = rng.pick(&[0x1f, 0x1f, 0x00, 0x21, 0x60, 0x61, 0x62, 0x63, 0x64, 0xff]);
        packet.aeth = Some(Aeth {
            syndrome: Syndrome::from_byte(byte),
            msn: rng.word() as u32 & 0xff_ffff,
        });
    }
    packet.atomic_ack = opcode.has_atomic_ack().then_some(9);
    packet.flush = opcode.has_flush().then_some(Flush {
        placement: rng.below(5) as u8,
        selectivity: rng.below(3) as u8,
    });
    packet.deth = opcode.has_deth().then_some(Deth {
        qkey: 5,
        src_qpn: 3,
    });
    packet.immediate = opcode.has_immediate().then_some(6);
    packet.invalidate_rkey = opcode.has_invalidate().then_some(6);
    // Mostly the same one.
    let srqn = U24::new(u32::from(rng.below(16) == 0));
    packet.xrc_srqn = opcode.has_xrceth().then_some(srqn);
    if opcode == Opcode::RcAtomicWrite {
        packet.payload_len = 8;
        packet.reth = packet.reth.map(|reth| Reth {
            va: reth.va & !rng.pick(&[0, 7, 7]),
            length: rng.pick(&[reth.length, 8, 8]),
            ..reth
        });
    } else if opcode.has_payload() {
        packet.payload_len = match rng.below(4) {
            0 => rng.below(u64::from(mtu.bytes()) + 2) as u32,
            1 => 0,
            _ => mtu.bytes(),
        };
    }
    packet
}
