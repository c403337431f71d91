// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the consumer, the driver and the peer of a requester do, as the fuzzer's bytes have it.

use arbitrary::Arbitrary;
use roce::{
    packet::Flush,
    psn::Psn,
    requester::{
        RequesterConfig,
        SendOperation,
        SendWr, //
    }, //
};

use sim::{
    rng::Rng,
    scenario::timeout, //
};

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
    timeout: u8,
    retry_count: u8,
    rnr_retry: u8,
    max_rd_atomic: u8,
    window_packets: Number,
    window_packets_most: Number,
    /// Of no use any more; without it, the inputs of the corpus would mean something else.
    _window_responses: Number,
}

impl Config {
    pub(super) fn get(self) -> RequesterConfig {
        RequesterConfig {
            service: self.service.get(),
            mtu: mtu(self.mtu),
            src_qpn: 1,
            dest_qpn: 2,
            pkey: 0xffff,
            initial_psn: Psn::new(0u32.wrapping_sub(self.psn.get())),
            timeout: timeout(self.timeout),
            retry_count: self.retry_count & 7,
            rnr_retry: self.rnr_retry & 7,
            max_rd_atomic: self.max_rd_atomic,
            window_packets: self.window_packets.get(),
            window_packets_most: self.window_packets_most.get(),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Wr {
    operation: u8,
    length: Number,
    va: u64,
    flags: u8,
}

impl Wr {
    pub(super) fn get(self) -> SendWr {
        const OPERATIONS: [SendOperation; 8] = [
            SendOperation::Send,
            SendOperation::Write,
            SendOperation::Read,
            SendOperation::CompareSwap,
            SendOperation::FetchAdd,
            SendOperation::Local,
            SendOperation::Flush,
            SendOperation::AtomicWrite,
        ];
        SendWr {
            operation: OPERATIONS[usize::from(self.operation) % 8],
            length: self.length.get(),
            remote_va: self.va,
            rkey: 7,
            immediate: (self.flags & 1 != 0).then_some(5),
            invalidate_rkey: (self.flags & 2 != 0).then_some(6),
            xrc_srqn: self.va as u32,
            fence: self.flags & 4 != 0,
            solicited: self.flags & 8 != 0,
            signaled: self.flags & 16 != 0,
            // Not all of them make sense.
            flush: Flush {
                placement: self.flags >> 5,
                selectivity: (self.va & 3) as u8,
            },
            ..SendWr::default()
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Event {
    Post(Wr),
    /// Takes an action; and commits it, or drops it.
    Send(Option<Fate>),
    /// Takes an action, and commits it after others have been dropped.
    SendLater {
        drops: u8,
        fate: Fate,
    },
    /// Any packet.
    Receive(AnyPacket, Option<Fate>),
    /// What an honest peer would answer to something that was sent.
    Answer {
        back: u8,
        how: Answer,
        fate: Option<Fate>,
    },
    /// A response that has brought data comes again.
    Repeat {
        back: u8,
        fate: Fate,
    },
    Advance(u32),
    /// To the next deadline.
    Timeout,
    TimeoutNow,
    Resume,
    Pause,
    Start,
    Flush,
    Reset,
    Configure(Config),
    SetTimeout(u8),
    SetRetries(u8),
    SetRnrRetries(u8),
    SetReads(u8),
    Reap,
    TakeError,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Answer {
    Good,
    Rnr(u8),
    Gap,
    Refused(u8),
}

#[derive(Arbitrary, Debug)]
pub struct Input {
    pub(super) slots: u8,
    pub(super) config: Config,
    pub(super) events: Vec<Event>,
}

impl Input {
    /// Mostly events that do not end what was begun.
    pub fn by_chance(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let is_usual = |event: &Event| {
            !matches!(
                event,
                Event::Flush | Event::Reset | Event::Configure(_) | Event::Pause
            )
        };
        Self {
            slots: by_chance(rng),
            config: by_chance(rng),
            events: events(rng, 300, 16, is_usual),
        }
    }
}
