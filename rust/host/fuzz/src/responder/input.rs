// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the driver and the peer of a responder do, as the fuzzer's bytes have it.

use arbitrary::Arbitrary;
use roce::{
    psn::Psn,
    responder::{
        RemoteAccess,
        ResponderConfig, //
    }, //
};

use sim::rng::Rng;

use crate::any::{
    by_chance,
    events,
    mtu,
    AnyPacket,
    Fate,
    Number,
    Service, //
};

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Config {
    service: Service,
    mtu: u8,
    psn: Number,
    timer: u8,
    access: u8,
}

impl Config {
    pub(super) fn get(self) -> ResponderConfig {
        ResponderConfig {
            service: self.service.of_peer(),
            mtu: mtu(self.mtu),
            dest_qpn: 2,
            pkey: 0xffff,
            qkey: 5,
            expected_psn: Psn::new(0u32.wrapping_sub(self.psn.get())),
            min_rnr_timer: self.timer & 0x1f,
            access: access(self.access),
            has_srq: self.access & 0x80 != 0,
        }
    }
}

pub(super) fn access(bits: u8) -> RemoteAccess {
    RemoteAccess {
        write: bits & 7 != 1,
        read: bits & 7 != 2,
        atomic: bits & 7 != 3,
        flush_global: bits & 7 != 4,
        flush_persistent: bits & 7 != 5,
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Event {
    /// A packet, and what becomes of the steps that it takes.
    Receive(AnyPacket, [Fate; 2]),
    /// The next request, as an honest peer would send it.
    Next(AnyPacket, [Fate; 2]),
    /// One of the last requests once more.
    Again(u8, [Fate; 2]),
    Post(Number),
    PostMalformed,
    /// Takes a response; READ responses are committed, or dropped.
    Respond {
        budget: Number,
        fate: Option<Fate>,
    },
    /// Takes READ responses, and commits them after others have been dropped.
    RespondLater {
        drops: u8,
        fate: Fate,
    },
    /// Memory is there now.
    Resume([Fate; 2]),
    TakeEvents,
    Storage(u8),
    SetAccess(u8),
    SetTimer(u8),
    Flush,
    Reset,
    Configure(Config),
}

#[derive(Arbitrary, Debug)]
pub struct Input {
    pub(super) resources: u8,
    pub(super) config: Config,
    pub(super) events: Vec<Event>,
}

impl Input {
    /// Mostly requests, receives and responses. Sooner or later a request ends it all.
    pub fn by_chance(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let is_usual = |event: &Event| {
            matches!(
                event,
                Event::Receive(..)
                    | Event::Next(..)
                    | Event::Again(..)
                    | Event::Post(_)
                    | Event::Respond { .. }
            )
        };
        Self {
            resources: by_chance(rng),
            config: by_chance(rng),
            events: events(rng, 100, 8, is_usual),
        }
    }
}
