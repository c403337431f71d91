// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Somebody on the path who knows addresses, ports and QP numbers, sees every packet, and sends forged
//! ones.
//!
//! RoCEv2 has no authentication: who can guess a PSN of the window can do what the peer can. So there
//! are two kinds of forgeries. What [`Forgery::HARMLESS`] lists, a conversation must withstand: it ends
//! well, every byte right. What [`Forgery::IN_THE_WINDOW`] lists may break the connection or forge its
//! data, and no more than that: the ends stay sound, every work request completes once and in order.

use roce::{
    icrc,
    opcode::Opcode,
    psn::Psn,
    time::Duration, //
};

use crate::{
    frame,
    host::qpn,
    rng::Rng, //
};

/// Where things are in a packet.
const OPCODE: usize = frame::OUTER_LEN;
const FLAGS: usize = OPCODE + 1;
const PKEY: usize = OPCODE + 2;
const QPN: usize = OPCODE + 5;
const PSN: usize = OPCODE + 9;
const EXTENSION: usize = OPCODE + 12;

/// A kind of forged packets. But for `Damaged` and `Truncated`, the ICRC is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A packet of the conversation, with bits flipped.
    Damaged,
    /// A packet of the conversation, cut off at any byte.
    Truncated,
    /// The same, with an ICRC over what is left, and a PSN out of the window.
    TruncatedAndSealed,
    /// Any pad count for any length, and a PSN out of the window.
    Pads,
    /// Any opcode with any contents, and a PSN out of the window.
    Opcodes,
    /// Any syndrome, and a PSN out of the window.
    Syndromes,
    /// READ responses and ATOMIC acknowledgements with PSNs out of the window.
    Unasked,
    /// RETHs that lie about the length, with PSNs out of the window.
    Lengths,
    /// Reserved syndromes in the window.
    ReservedSyndromes,
    /// Congestion notifications, with any contents.
    Congestion,
    /// A packet of the conversation for another QP, partition or version, or of another service.
    Foreign,
    /// A packet of the conversation once more, later.
    Replayed,
    /// Any response in the window.
    Response,
    /// Any request in the window.
    Request,
}

impl Forgery {
    /// What a conversation withstands.
    pub const HARMLESS: [Self; 12] = [
        Self::Damaged,
        Self::Truncated,
        Self::TruncatedAndSealed,
        Self::Pads,
        Self::Opcodes,
        Self::Syndromes,
        Self::Unasked,
        Self::Lengths,
        Self::ReservedSyndromes,
        Self::Congestion,
        Self::Foreign,
        Self::Replayed,
    ];

    /// What may break it.
    pub const IN_THE_WINDOW: [Self; 2] = [Self::Response, Self::Request];
}

/// The attacker.
#[derive(Debug)]
pub struct Attacker {
    rng: Rng,
    forgeries: Vec<Forgery>,
    /// How many forgeries there are for a packet of the conversation, per million.
    rate: u32,
    /// PSN of each end's first request.
    first: [Psn; 2],
    /// Counts through what there is to try.
    turn: usize,
    /// How many packets it has sent.
    pub sent: u64,
}

impl Attacker {
    /// One who forges packets of these kinds.
    pub fn new(seed: u64, forgeries: &[Forgery], rate: u32, first: [Psn; 2]) -> Self {
        Self {
            rng: Rng::new(seed ^ 0xbad),
            forgeries: forgeries.to_vec(),
            rate,
            first,
            turn: 0,
            sent: 0,
        }
    }

    /// `host` sends a packet. Returns what the attacker sends: to whom, how much later, and what.
    pub fn overhear(&mut self, host: usize, bytes: &[u8]) -> Vec<(usize, Duration, Vec<u8>)> {
        if !self.rng.chance(self.rate) {
            return Vec::new();
        }
        self.sent += 1;
        self.turn += 1;
        let forgery = self.rng.pick(&self.forgeries);
        let (to, bytes) = self.forge(forgery, host, bytes);
        let late = Duration::from_ns(self.rng.below(100_000));
        vec![(to, late, bytes)]
    }

    fn forge(&mut self, forgery: Forgery, host: usize, real: &[u8]) -> (usize, Vec<u8>) {
        let to = 1 - host;
        let mut bytes = real.to_vec();
        match forgery {
            Forgery::Damaged => {
                for _ in 0..self.rng.between(1, 8) {
                    let at = self.rng.between(OPCODE as u64, bytes.len() as u64 - 1) as usize;
                    // Not the byte of the congestion bits, which the ICRC does not cover.
                    if at != OPCODE + 4 {
                        bytes[at] ^= 1 << self.rng.below(8);
                    }
                }
                if bytes == real {
                    bytes[OPCODE] ^= 1;
                }
            }
            Forgery::Truncated => {
                let len = self.turn % bytes.len();
                bytes.truncate(len);
            }
            Forgery::TruncatedAndSealed => {
                let min = frame::MIN_BODY_LEN + icrc::LEN;
                let len = min + self.turn % (bytes.len() - min + 1);
                bytes.truncate(len);
                self.put_far_psn(&mut bytes);
                frame::seal(&mut bytes);
            }
            Forgery::Pads => {
                let cut = self.rng.below(9) as usize;
                let len = (bytes.len() - cut).max(frame::MIN_BODY_LEN + icrc::LEN);
                bytes.truncate(len);
                bytes[FLAGS] = (bytes[FLAGS] & 0xcf) | ((self.turn as u8 & 3) << 4);
                self.put_far_psn(&mut bytes);
                frame::seal(&mut bytes);
            }
            Forgery::Opcodes => {
                let opcode = self.turn as u8;
                let len = self.rng.below(80) as usize;
                return (to, self.make_up(to, opcode, len, None));
            }
            Forgery::Syndromes => {
                let opcodes = [
                    Opcode::RcAcknowledge,
                    Opcode::RcReadResponseOnly,
                    Opcode::RcAtomicAcknowledge,
                ];
                let opcode = self.rng.pick(&opcodes) as u8;
                let mut bytes = self.make_up(to, opcode, 12, None);
                bytes[EXTENSION] = self.turn as u8;
                frame::seal(&mut bytes);
                return (to, bytes);
            }
            Forgery::Unasked => {
                let opcodes = [
                    Opcode::RcReadResponseFirst,
                    Opcode::RcReadResponseMiddle,
                    Opcode::RcReadResponseLast,
                    Opcode::RcReadResponseOnly,
                    Opcode::RcAtomicAcknowledge,
                ];
                let opcode = self.rng.pick(&opcodes) as u8;
                let len = 4 * self.rng.below(260) as usize;
                return (to, self.make_up(to, opcode, len, None));
            }
            Forgery::Lengths => {
                let opcodes = [
                    Opcode::RcReadRequest,
                    Opcode::RcWriteFirst,
                    Opcode::RcWriteOnly,
                    Opcode::RcWriteOnlyImm,
                ];
                let opcode = self.rng.pick(&opcodes) as u8;
                let len = self.rng.pick(&[16, 20, 24, 256 + 16]);
                let mut bytes = self.make_up(to, opcode, len, None);
                let length: u32 = self.rng.pick(&[0, 1, 255, 1 << 23, 1 << 31, u32::MAX]);
                bytes[EXTENSION + 12..][..4].copy_from_slice(&length.to_be_bytes());
                frame::seal(&mut bytes);
                return (to, bytes);
            }
            Forgery::ReservedSyndromes => {
                // Of an answer that could be: from the receiver of a request.
                let psn = psn_of(real);
                let opcode = Opcode::RcAcknowledge as u8;
                let mut bytes = self.make_up(host, opcode, 4, Some(psn));
                let code = self.rng.below(32) as u8;
                bytes[EXTENSION] =
                    self.rng
                        .pick(&[0x40 | code, 0x60 | (5 + code % 27), 0x80 | code]);
                frame::seal(&mut bytes);
                return (host, bytes);
            }
            Forgery::Congestion => {
                let psn = psn_of(real);
                return (to, self.make_up(to, Opcode::Cnp as u8, 16, Some(psn)));
            }
            Forgery::Foreign => {
                match self.turn % 4 {
                    0 => bytes[QPN + 2] ^= 1 << self.rng.below(4),
                    1 => bytes[PKEY + 1] ^= 1 << self.rng.below(8),
                    2 => bytes[FLAGS] |= self.rng.between(1, 15) as u8,
                    _ => bytes[OPCODE] ^= (self.rng.between(1, 7) as u8) << 5,
                }
                frame::seal(&mut bytes);
            }
            Forgery::Replayed => {}
            Forgery::Response => {
                let opcodes: Vec<_> = Opcode::ALL
                    .iter()
                    .filter(|opcode| opcode.is_response())
                    .collect();
                let opcode = *opcodes[self.turn % opcodes.len()] as u8;
                let psn = psn_of(real).add(self.rng.below(5) as u32).sub(2);
                let len = self.rng.pick(&[4, 12, 256, 260, 1024, 1028]);
                return (host, self.make_up(host, opcode, len, Some(psn)));
            }
            Forgery::Request => {
                let opcode = Opcode::ALL[self.turn % Opcode::ALL.len()] as u8;
                let psn = psn_of(real).add(self.rng.below(5) as u32);
                let len = self.rng.pick(&[0, 4, 16, 28, 256, 272, 1024, 1040]);
                return (to, self.make_up(to, opcode, len, Some(psn)));
            }
        }
        (to, bytes)
    }

    /// A packet with any contents of `len` bytes behind the BTH; without a PSN, one out of the window.
    fn make_up(&mut self, to: usize, opcode: u8, len: usize, psn: Option<Psn>) -> Vec<u8> {
        let template = roce::packet::Packet::new(Opcode::RcSendOnly, qpn(to), Psn::new(0));
        let mut bytes = frame::build(1 - to, &template, &[]);
        bytes[OPCODE] = opcode;
        let mut contents = vec![0; len];
        self.rng.fill(&mut contents);
        bytes.truncate(EXTENSION);
        bytes.extend(contents);
        bytes.extend([0; icrc::LEN]);
        match psn {
            Some(psn) => put_psn(&mut bytes, psn),
            None => self.put_far_psn(&mut bytes),
        }
        frame::seal(&mut bytes);
        bytes
    }

    /// A PSN far before all that both ends will send, or far behind.
    fn put_far_psn(&mut self, bytes: &mut [u8]) {
        // Neither end's numbers may be in reach: it is one end's request or the other's response.
        loop {
            let psn = Psn::new(self.rng.word() as u32);
            let is_far = |first: &Psn| psn.diff(*first).unsigned_abs() > 1 << 21;
            if self.first.iter().all(is_far) {
                put_psn(bytes, psn);
                return;
            }
        }
    }
}

fn psn_of(bytes: &[u8]) -> Psn {
    Psn::new(u32::from_be_bytes([
        0,
        bytes[PSN],
        bytes[PSN + 1],
        bytes[PSN + 2],
    ]))
}

fn put_psn(bytes: &mut [u8], psn: Psn) {
    bytes[PSN..][..3].copy_from_slice(&psn.get().to_be_bytes()[1..]);
}
