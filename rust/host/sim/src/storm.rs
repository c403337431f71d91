// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Long messages on a path where much goes wrong: what real peers meet under `netem`, or when a queue
//! on the way is too short.

use roce::{
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    requester::{
        SendOperation,
        SendWr, //
    },
    time::{
        ack_timeout,
        Duration, //
    }, //
};

use crate::{
    rng::Rng,
    scenario::{
        Posted,
        Scenario,
        Side,
        Wire,
        Work,
        READ_KEY,
        REGION_VA,
        WRITE_KEY, //
    }, //
};

/// Length of every message in bytes.
pub const MESSAGE_LEN: u32 = 1 << 20;

/// How many there are.
pub const MESSAGES: u32 = 4;

/// A LAN of 10 Gbit/s on a good day.
const CALM: Wire = Wire {
    loss: 0,
    duplication: 0,
    reordering: 0,
    overtaking: 0,
    corruption: 0,
    delay: Duration::from_us(20),
    late: Duration::from_ms(1),
    ps_per_byte: 800,
    // That of `netem`, and of a receiver's backlog.
    limit: 1000,
};

/// What is wrong with the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    /// A packet in ten is lost.
    Loss,
    /// A packet in four is up to a millisecond late.
    Late,
    /// A packet in four overtakes what was sent in the millisecond before.
    Early,
    /// All together, and duplicates, and damage.
    All,
}

impl Storm {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Loss, Self::Late, Self::Early, Self::All];

    /// What it does to packets.
    pub fn wire(self) -> Wire {
        match self {
            Self::Loss => Wire {
                loss: 100_000,
                ..CALM
            },
            Self::Late => Wire {
                reordering: 250_000,
                ..CALM
            },
            Self::Early => Wire {
                overtaking: 250_000,
                delay: Duration::from_ms(1),
                ..CALM
            },
            Self::All => Wire {
                loss: 10_000,
                duplication: 20_000,
                reordering: 250_000,
                corruption: 10_000,
                ..CALM
            },
        }
    }
}

/// Messages of one kind from the first end to the second, with the attributes that common tools
/// (and the driver) have.
pub fn scenario(seed: u64, storm: Storm, operation: SendOperation, mtu: Mtu) -> Scenario {
    let mut rng = Rng::new(seed);
    let mut sides = [(); 2].map(|()| Side {
        psn: Psn::new(rng.word() as u32),
        timeout: ack_timeout(14),
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 16,
        min_rnr_timer: 12,
        window: 64,
        queue: 128,
        work: Vec::new(),
        receives: Vec::new(),
        again: 0,
        absent: 0,
        absent_for: Duration::ZERO,
        respond_delay: Duration::ZERO,
    });
    for _ in 0..MESSAGES {
        sides[0].work.push(Work {
            wr: SendWr {
                operation,
                length: MESSAGE_LEN,
                remote_va: REGION_VA,
                rkey: match operation {
                    SendOperation::Read => READ_KEY,
                    _ => WRITE_KEY,
                },
                ..SendWr::default()
            },
            ..Work::default()
        });
        if operation == SendOperation::Send {
            sides[1].receives.push(Posted {
                capacity: MESSAGE_LEN,
                ..Posted::default()
            });
        }
    }
    Scenario {
        seed,
        service: Type::Rc,
        mtu,
        sides,
        region_len: MESSAGE_LEN as usize,
        wire: storm.wire(),
        benign: true,
    }
}
