// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A requester between a consumer, a driver and a peer that do whatever they like.
//!
//! The model knows what was posted, where on the circle of PSNs it was first seen, what of it was
//! handed out, and which data came: so it can tell whether a completion was earned.

mod input;
mod responses;

use std::collections::HashSet;

use roce::{
    opcode::{
        Opcode,
        Operation, //
    },
    outcome::Outcome,
    packet::Packet,
    psn::Psn,
    qp::Type,
    requester::{
        Burst,
        Received,
        Requester,
        RequesterConfig,
        RequesterCounters,
        SendAction,
        SendOperation,
        SendSlot,
        SendWr,
        MAX_BURST_LEN, //
    },
    status::Status,
    time::{
        Duration,
        Instant, //
    },
    wire::U24, //
};
use sim::scenario::timeout;

use self::input::Event;
use crate::{
    any::Fate,
    packet::go_out, //
};

pub use self::input::Input;

/// More makes a run slow, and nothing new happens.
const MAX_EVENTS: usize = 300;

/// The longest RNR timer.
const MAX_RNR: Duration = Duration::from_us(655_360);

/// What is known of a work request.
#[derive(Debug)]
struct Work {
    wr: SendWr,
    psns: u64,
    /// Position of its first PSN, once seen.
    first: Option<u64>,
    /// How far into it packets have been sent.
    handed: u64,
    /// The offsets of the data that have been placed; of an ATOMIC, 0.
    placed: HashSet<u32>,
    /// A local operation that is done.
    executed: bool,
    completed: bool,
}

struct Model {
    requester: Requester<Vec<SendSlot>>,
    now: Instant,
    works: Vec<Work>,
    completed: usize,
    /// A work request has failed or was flushed: all that follows is flushed.
    over: bool,
    flushed: bool,
    /// It was asked for an action.
    polled: bool,
    /// The responses that have brought data.
    responses: Vec<Packet>,
    /// The work request, and how far into its payload, of the last action that the driver could not carry out yet.
    parked: Option<(u32, u32)>,
    /// Positions count from here; the requester has been configured anew since the last ones.
    sent: Vec<(u64, Operation, u32)>,
    /// The PSNs for which there was a READ response without data.
    answered: HashSet<u32>,
    /// All that has been handed out lies before this position.
    end: u64,
    counters: RequesterCounters,
}

pub fn run(input: Input) {
    let slots = usize::from(input.slots % 20);
    let mut requester = Requester::new(vec![SendSlot::default(); slots]);
    assert!(requester.capacity() as usize <= slots);
    requester.configure(input.config.get());
    requester.start();
    let mut model = Model {
        requester,
        now: Instant::from_ns(0),
        works: Vec::new(),
        completed: 0,
        over: false,
        flushed: false,
        polled: false,
        responses: Vec::new(),
        parked: None,
        sent: Vec::new(),
        answered: HashSet::new(),
        end: 0,
        counters: RequesterCounters::default(),
    };
    for event in input.events.into_iter().take(MAX_EVENTS) {
        model.event(event);
        model.check();
    }
    model.flush();
    model.reap();
    assert_eq!(model.completed, model.works.len(), "not all completed");
    model.check();
}

impl Model {
    fn event(&mut self, event: Event) {
        match event {
            Event::Post(wr) => self.post(wr.get()),
            Event::Send(fate) => self.send(fate),
            Event::SendLater { drops, fate } => {
                for _ in 0..drops % 4 {
                    self.send(None);
                }
                self.send(Some(fate));
            }
            Event::Receive(packet, fate) => {
                let here = self.requester.config().initial_psn.add(self.una() as u32);
                let mtu = self.requester.config().mtu.bytes();
                self.receive(&packet.build(here, mtu), fate);
            }
            Event::Answer { back, how, fate } => self.answer(back, how, fate),
            Event::Repeat { back, fate } => self.repeat(back, fate),
            Event::Advance(ns) => self.now = self.now.add(Duration::from_ns(ns.into())),
            Event::Timeout => {
                if let Some(deadline) = self.requester.poll_timeout() {
                    self.now = self.now.max(deadline);
                    self.requester.on_timeout(self.now);
                }
            }
            Event::TimeoutNow => self.requester.on_timeout(self.now),
            Event::Resume => self.requester.resume(),
            Event::Pause => self.requester.pause(self.now),
            Event::Start => {
                // Of an error, the driver takes note and flushes first.
                self.take_error();
                self.reap();
                let is_reliable = self.requester.config().service.is_reliable();
                if self.flushed && !is_reliable {
                    self.requester.start();
                    self.flushed = false;
                    self.reap();
                    assert_eq!(self.completed, self.works.len());
                    self.over = false;
                    // What is handed out next begins where it likes.
                    self.forget_positions();
                } else {
                    self.requester.start();
                }
            }
            Event::Flush => self.flush(),
            Event::Reset => {
                let config = *self.requester.config();
                self.requester.reset();
                assert!(self.requester.is_empty());
                assert_eq!(self.requester.poll_completion(), None);
                self.works.clear();
                self.completed = 0;
                self.begin(config);
            }
            Event::Configure(config) => {
                // Only before anything is started; work requests may have been posted.
                if !self.polled && !self.flushed {
                    self.begin(config.get());
                }
            }
            Event::SetTimeout(code) => self.requester.set_timeout(timeout(code)),
            Event::SetRetries(count) => self.requester.set_retry_count(count & 7),
            Event::SetRnrRetries(count) => self.requester.set_rnr_retry(count & 7),
            Event::SetReads(count) => self.requester.set_max_rd_atomic(count),
            Event::Reap => self.reap(),
            Event::TakeError => self.take_error(),
        }
    }

    fn begin(&mut self, config: RequesterConfig) {
        self.requester.configure(config);
        self.requester.start();
        self.over = false;
        self.flushed = false;
        self.polled = false;
        self.forget_positions();
        let shift = config.mtu;
        for work in &mut self.works[self.completed..] {
            work.psns = psns(&work.wr, shift.bytes());
        }
    }

    fn forget_positions(&mut self) {
        self.sent.clear();
        self.answered.clear();
        self.end = 0;
        for work in &mut self.works {
            work.first = None;
            if !work.completed {
                work.handed = 0;
                work.placed.clear();
            }
        }
    }

    fn una(&self) -> u64 {
        let oldest = self.works[self.completed..].iter().find_map(|w| w.first);
        oldest.unwrap_or(self.end)
    }

    fn post(&mut self, wr: SendWr) {
        let is_full = self.requester.len() >= self.requester.capacity();
        match self.requester.post(wr) {
            Ok(sequence) => {
                assert!(!is_full);
                assert_eq!(sequence as usize, self.works.len());
                self.works.push(Work {
                    wr,
                    psns: psns(&wr, self.requester.config().mtu.bytes()),
                    first: None,
                    handed: 0,
                    placed: HashSet::new(),
                    executed: false,
                    completed: false,
                });
            }
            Err(_) => assert!(is_full),
        }
    }

    fn send(&mut self, fate: Option<Fate>) {
        self.polled = true;
        let Some(action) = self.requester.poll_action() else {
            return;
        };
        assert!(!self.flushed, "an action after a flush");
        if let (true, Some(parked)) = (self.requester.is_parked(), self.parked) {
            let SendAction::Transmit(burst) = &action else {
                panic!("{action:?} while parked");
            };
            let (_, offset) = self
                .requester
                .packet(burst, burst.packets - 1)
                .expect("a packet");
            assert!((burst.sequence, offset) < parked, "{burst:?} while parked");
            assert!(self.works[burst.sequence as usize].handed > 0);
        }
        let again = self.requester.poll_action();
        assert_eq!(again.as_ref(), Some(&action), "it was not committed");
        let sequence = action.sequence();
        let (offset, sent) = match &action {
            SendAction::Local { .. } => {
                let work = &self.works[sequence as usize];
                assert_eq!(work.wr.operation, SendOperation::Local);
                assert!(!work.executed && !work.completed, "executed twice");
                (0, Vec::new())
            }
            SendAction::Transmit(burst) => (burst.offset, self.check_burst(burst)),
        };
        // An action that is dropped has changed nothing.
        let Some(fate) = fate else {
            return;
        };
        let outcome = fate.outcome();
        let work = &mut self.works[sequence as usize];
        match outcome {
            Outcome::Again => self.parked = Some((sequence, offset)),
            Outcome::Done => {
                work.executed |= work.wr.operation == SendOperation::Local;
                for (position, operation, end) in sent {
                    work.handed = work.handed.max(end);
                    self.sent.push((position, operation, sequence));
                }
            }
            _ => {}
        }
        self.requester.commit(self.now, action, outcome);
    }

    /// Returns of each packet its position, what it is, and how far into its work request it goes.
    fn check_burst(&mut self, burst: &Burst) -> Vec<(u64, Operation, u64)> {
        let config = *self.requester.config();
        let mtu = config.mtu.bytes();
        let sequence = burst.sequence as usize;
        assert!(burst.packets > 0 && burst.length <= MAX_BURST_LEN);
        assert!(sequence >= self.completed, "of what is complete");
        let before = self.works[..sequence]
            .iter()
            .rev()
            .take_while(|work| work.first.is_some() || work.psns == 0)
            .find(|work| work.psns > 0)
            .and_then(|work| Some(work.first? + work.psns));
        let una = self.una();
        let work = &mut self.works[sequence];
        let is_message = matches!(
            work.wr.operation,
            SendOperation::Send | SendOperation::Write
        );
        let begin = u64::from(burst.offset) / u64::from(mtu);
        let mut bytes = 0;
        let mut sent = Vec::new();
        for index in 0..burst.packets {
            let (packet, offset) = self.requester.packet(burst, index).expect("a packet");
            let length = packet.payload_len;
            go_out(&packet);
            assert!(packet.opcode.is_request());
            let srqn = U24::new(work.wr.xrc_srqn);
            let is_xrc = config.service == Type::XrcInitiator;
            assert_eq!(packet.xrc_srqn, is_xrc.then_some(srqn));
            assert_eq!(offset, burst.offset + bytes);
            assert!(length <= mtu);
            bytes += length;

            // PSNs follow each other, in a work request and from one to the next.
            let steps = packet.psn.steps_from(config.initial_psn);
            let number = begin + u64::from(index);
            let first = *work.first.get_or_insert_with(|| {
                before.unwrap_or_else(|| {
                    let near = u64::from(steps).wrapping_sub(number) & 0xff_ffff;
                    // The first one on this turn of the circle.
                    una + ((near + (1 << 24) - una % (1 << 24)) & 0xff_ffff)
                })
            });
            assert_eq!(
                (first + number) & 0xff_ffff,
                u64::from(steps),
                "a PSN out of turn: {packet:?}"
            );
            let mut end = number + 1;
            match packet.opcode.operation() {
                Operation::ReadRequest => {
                    let reth = packet.reth.expect("a RETH");
                    end = number + u64::from(reth.length.div_ceil(mtu).max(1));
                    assert_eq!(reth.va, work.wr.remote_va.wrapping_add(offset.into()));
                    assert!(u64::from(offset) + u64::from(reth.length) <= work.wr.length.into());
                    assert_eq!(burst.packets, 1);
                }
                Operation::AtomicWrite => {
                    let reth = packet.reth.expect("a RETH");
                    assert_eq!((reth.va, reth.length), (work.wr.remote_va, 8));
                    assert_eq!((burst.packets, length), (1, 8));
                }
                Operation::Flush => {
                    let reth = packet.reth.expect("a RETH");
                    assert_eq!((reth.va, reth.length), (work.wr.remote_va, work.wr.length));
                    assert_eq!(packet.flush, Some(work.wr.flush));
                    assert!(work.wr.flush.is_valid());
                    assert_eq!((burst.packets, length), (1, 0));
                }
                Operation::Send | Operation::Write => {
                    assert_eq!(packet.opcode.starts_message(), offset == 0);
                    let ends = u64::from(offset) + u64::from(length) == work.wr.length.into();
                    assert_eq!(packet.opcode.ends_message(), ends);
                }
                _ => {}
            }
            assert!(end <= work.psns);
            // The peer could not tell new from old.
            if config.service.is_reliable() {
                assert!(
                    first + end - una < (1 << 23) + work.psns.max(1 << 23),
                    "a PSN out of the window"
                );
            }
            self.end = self.end.max(first + end);
            sent.push((first + number, packet.opcode.operation(), end));
        }
        assert_eq!(bytes, burst.length);
        if is_message {
            assert!(u64::from(burst.offset) + u64::from(bytes) <= work.wr.length.into());
        }
        assert!(self.requester.packet(burst, burst.packets).is_none());
        sent
    }

    fn take_error(&mut self) {
        if let Some(status) = self.requester.take_error() {
            assert_ne!(status, Status::Success);
            assert_ne!(status, Status::Flushed);
            self.flush();
            assert_eq!(self.requester.take_error(), None, "twice");
        }
    }

    fn flush(&mut self) {
        self.requester.flush();
        self.flushed = true;
        assert_eq!(self.requester.poll_action(), None);
        assert_eq!(self.requester.poll_timeout(), None);
        let answer = Packet::new(Opcode::RcReadResponseMiddle, 1, Psn::new(0));
        assert!(matches!(
            self.requester.receive(self.now, &answer),
            Received::Dropped(_)
        ));
    }

    fn reap(&mut self) {
        while let Some(completion) = self.requester.poll_completion() {
            let index = completion.sequence as usize;
            assert_eq!(index, self.completed, "out of order");
            let work = &mut self.works[index];
            assert!(!work.completed, "twice");
            work.completed = true;
            self.completed += 1;
            assert_eq!(completion.operation, work.wr.operation);
            let is_success = completion.status == Status::Success;
            assert_eq!(completion.signaled, work.wr.signaled || !is_success);
            if !is_success {
                assert!(!self.over || completion.status == Status::Flushed);
                assert!(completion.status != Status::Flushed || self.over || self.flushed);
                self.over = true;
                continue;
            }
            assert!(!self.over, "a success after an error");
            match work.wr.operation {
                SendOperation::Local => assert!(work.executed),
                SendOperation::Read => {
                    assert_eq!(work.placed.len() as u64, work.psns, "data are missing")
                }
                SendOperation::CompareSwap | SendOperation::FetchAdd => {
                    assert!(!work.placed.is_empty(), "data are missing")
                }
                SendOperation::Flush | SendOperation::AtomicWrite => {
                    let first = self.requester.config().initial_psn;
                    let psn = work.first.map(|position| first.add(position as u32).get());
                    let is_answered = psn.is_some_and(|psn| self.answered.contains(&psn));
                    assert!(work.handed == 1 && is_answered, "it was not answered")
                }
                SendOperation::Send | SendOperation::Write => {
                    assert_eq!(work.handed, work.psns, "not all was sent")
                }
            }
        }
    }

    fn check(&mut self) {
        let counters = *self.requester.counters();
        let numbers = |counters: &RequesterCounters| {
            [
                counters.retransmitted_packets,
                counters.timeouts,
                counters.rnr_naks,
                counters.sequence_naks,
                counters.implied_naks,
            ]
        };
        let before = numbers(&self.counters);
        assert!(numbers(&counters)
            .iter()
            .zip(before)
            .all(|(now, before)| *now >= before));
        self.counters = counters;

        assert!(self.requester.len() <= self.requester.capacity());
        assert_eq!(
            self.requester.len() as usize,
            self.works.len() - self.completed
        );
        if let Some(deadline) = self.requester.poll_timeout() {
            // Not longer than four times the longest timeout code, or the longest RNR timer.
            let longest = Duration::from_ns(4 * (4096 << 31)).max(MAX_RNR);
            assert!(deadline.since(self.now) <= longest);
        }
    }
}

/// How many PSNs a work request takes.
fn psns(wr: &SendWr, mtu: u32) -> u64 {
    match wr.operation {
        SendOperation::Local => 0,
        SendOperation::CompareSwap
        | SendOperation::FetchAdd
        | SendOperation::Flush
        | SendOperation::AtomicWrite => 1,
        _ => wr.length.div_ceil(mtu).max(1).into(),
    }
}
