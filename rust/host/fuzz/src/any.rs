// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Segments of input that several targets share.

use arbitrary::{
    Arbitrary,
    Unstructured, //
};
use roce::{
    opcode::{
        Opcode,
        Operation, //
    },
    outcome::Outcome,
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
    qp::{
        Mtu,
        Type, //
    },
    wire::U24, //
};
use sim::rng::Rng;

/// A value by chance, where there is no fuzzer.
pub fn by_chance<T: for<'a> Arbitrary<'a>>(rng: &mut Rng) -> T {
    let bytes: Vec<u8> = (0..16).flat_map(|_| rng.word().to_ne_bytes()).collect();
    T::arbitrary(&mut Unstructured::new(&bytes)).expect("all bytes make a value")
}

/// Fewer than `most` events by chance. Of those that are not usual, one in `rarity` stays.
pub fn events<T: for<'a> Arbitrary<'a>>(
    rng: &mut Rng,
    most: u64,
    rarity: u64,
    is_usual: impl Fn(&T) -> bool,
) -> Vec<T> {
    let event = |rng: &mut Rng| loop {
        let event = by_chance(rng);
        if is_usual(&event) || rng.below(rarity) == 0 {
            return event;
        }
    };
    (0..rng.below(most)).map(|_| event(rng)).collect()
}

/// A number that is likely to be on the edge of something.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Small(u8),
    Short(u16),
    Any(u32),
    PowerOfTwo { log: u8, less: bool },
}

impl Number {
    pub fn get(self) -> u32 {
        match self {
            Self::Small(number) => number.into(),
            Self::Short(number) => number.into(),
            Self::Any(number) => number,
            Self::PowerOfTwo { log, less } => (1u32 << (log % 32)) - u32::from(less),
        }
    }
}

/// A PSN, by its distance from one that the target thinks of.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Where {
    Here,
    Near(i8),
    Far(u32),
    Opposite,
}

impl Where {
    pub fn from(self, here: Psn) -> Psn {
        match self {
            Self::Here => here,
            Self::Near(steps) => here.add(steps as u32),
            Self::Far(steps) => here.add(steps),
            Self::Opposite => here.add(1 << 23),
        }
    }
}

/// The length of a payload.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Payload {
    Full,
    None,
    Bytes(u16),
}

/// The headers of a packet: whatever its opcode has, filled.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct AnyPacket {
    pub opcode: u8,
    pub psn: Where,
    pub flags: u8,
    pub qpn: u32,
    pub foreign_pkey: bool,
    pub va: u64,
    pub aligned: bool,
    pub rkey: u8,
    pub length: Number,
    pub syndrome: u8,
    pub value: u64,
    pub payload: Payload,
}

impl AnyPacket {
    pub fn opcode(&self) -> Opcode {
        Opcode::ALL[usize::from(self.opcode) % Opcode::ALL.len()]
    }

    pub fn build(&self, here: Psn, mtu: u32) -> Packet {
        self.build_as(self.opcode(), here, mtu)
    }

    pub fn build_as(&self, opcode: Opcode, here: Psn, mtu: u32) -> Packet {
        let value = self.value as u32;
        let mut packet = Packet::new(opcode, self.qpn & 0xff_ffff, self.psn.from(here));
        packet.solicited = self.flags & 1 != 0;
        packet.migrated = self.flags & 2 != 0;
        packet.fecn = self.flags & 4 != 0;
        packet.becn = self.flags & 8 != 0;
        packet.ack_request = self.flags & 16 != 0;
        if self.foreign_pkey && self.flags & 0xe0 == 0xe0 {
            packet.pkey = value as u16;
        }
        packet.reth = opcode.has_reth().then_some(Reth {
            va: self.va,
            rkey: self.rkey.into(),
            length: self.length.get(),
        });
        packet.atomic = opcode.has_atomic().then_some(AtomicRequest {
            va: if self.aligned { self.va & !7 } else { self.va },
            rkey: self.rkey.into(),
            swap_add: self.value,
            compare: self.va,
        });
        packet.aeth = opcode.has_aeth().then_some(Aeth {
            syndrome: Syndrome::from_byte(self.syndrome),
            msn: value & 0xff_ffff,
        });
        packet.atomic_ack = opcode.has_atomic_ack().then_some(self.value);
        packet.deth = opcode.has_deth().then_some(Deth {
            qkey: self.rkey.into(),
            src_qpn: value & 0xff_ffff,
        });
        packet.immediate = opcode.has_immediate().then_some(value);
        packet.invalidate_rkey = opcode.has_invalidate().then_some(value);
        packet.flush = opcode.has_flush().then_some(Flush {
            placement: self.rkey & 0xf,
            selectivity: self.rkey >> 6,
        });
        // Mostly the same one.
        let srqn = U24::new(u32::from(self.flags & 0xe0 == 0xe0));
        packet.xrc_srqn = opcode.has_xrceth().then_some(srqn);
        packet.payload_len = match (opcode.operation(), self.payload) {
            (Operation::AtomicWrite, _) => 8,
            _ if !opcode.has_payload() => 0,
            (_, Payload::Full) => mtu,
            (_, Payload::None) => 0,
            (_, Payload::Bytes(bytes)) => u32::from(bytes) % 4097,
        };
        packet
    }
}

/// A service; mostly one of the reliable ones.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Service(u8);

impl Service {
    pub fn get(self) -> Type {
        match self.0 {
            0x10..0x20 => Type::Uc,
            0x20..0x30 => Type::Ud,
            0x30..0x38 => Type::Gsi,
            0x38..0x60 => Type::XrcInitiator,
            0x60..0x64 => Type::XrcTarget,
            _ => Type::Rc,
        }
    }

    /// That of the peer.
    pub fn of_peer(self) -> Type {
        match self.get() {
            Type::XrcInitiator => Type::XrcTarget,
            Type::XrcTarget => Type::XrcInitiator,
            other => other,
        }
    }
}

pub fn mtu(number: u8) -> Mtu {
    Mtu::ALL[usize::from(number) % Mtu::ALL.len()]
}

/// What becomes of an action; mostly it is done.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Fate(u8);

impl Fate {
    pub fn outcome(self) -> Outcome {
        match self.0 {
            1..=32 => Outcome::Again,
            33..=36 => Outcome::Protection,
            37..=40 => Outcome::Operational,
            41..=44 => Outcome::MemoryWindowBind,
            45..=48 => Outcome::Length,
            49..=52 => Outcome::InvalidRequest,
            _ => Outcome::Done,
        }
    }

    /// The same bytes, as a choice of one in `n`.
    pub fn choice(self, n: usize) -> usize {
        usize::from(self.0) % n.max(1)
    }
}
