// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A responder between a driver and a peer that do whatever they like.
//!
//! The model knows which PSN is next and what was executed: every access to memory must be the next
//! one's, and every answer must tell what happened.

mod answers;
mod input;

use std::collections::VecDeque;

use roce::{
    opcode::{
        Opcode,
        Operation,
        Transport, //
    },
    outcome::Outcome,
    packet::Packet,
    psn::Psn,
    qp::Type,
    responder::{
        Action,
        Arrival,
        Receive,
        Resource,
        Responder,
        ResponderConfig,
        ResponderCounters,
        ResponderEvent,
        Response,
        Step, //
    },
    status::Status,
    wire::U24, //
};

use self::input::{
    access,
    Event, //
};
use crate::any::{
    AnyPacket,
    Fate, //
};

pub use self::input::Input;

const MAX_EVENTS: usize = 300;

/// Packets that the driver keeps.
const MAX_WAITING: usize = 8;

/// A request that was executed.
#[derive(Clone, Copy, Debug)]
struct Executed {
    psn: Psn,
    psns: u32,
    packet: Packet,
    /// The number of complete messages after it.
    msn: u32,
    original: u64,
}

struct Model {
    responder: Responder<Vec<Resource>>,
    expected: Psn,
    msn: u32,
    executed: Vec<Executed>,
    /// The requests that have come, for repetition.
    history: Vec<Packet>,
    waiting: VecDeque<Packet>,
    receives: VecDeque<Receive>,
    /// Capacity of the current receive, its XRC SRQ, and how many bytes of the message are placed.
    current: Option<u32>,
    xrc_srqn: Option<U24>,
    done: u32,
    /// The ATOMICs' memory.
    value: u64,
    /// The responder was told to end, or has said that it does.
    dead: bool,
    in_message: bool,
    counters: ResponderCounters,
}

pub fn run(input: Input) {
    let resources = usize::from(input.resources % 6);
    let mut model = Model {
        responder: Responder::new(vec![Resource::default(); resources]),
        expected: Psn::new(0),
        msn: 0,
        executed: Vec::new(),
        history: Vec::new(),
        waiting: VecDeque::new(),
        receives: VecDeque::new(),
        current: None,
        xrc_srqn: None,
        done: 0,
        value: 0,
        dead: true,
        in_message: false,
        counters: ResponderCounters::default(),
    };
    model.configure(input.config.get());
    for event in input.events.into_iter().take(MAX_EVENTS) {
        model.event(event);
        model.check();
    }
    model.flush();
    model.check();
}

impl Model {
    fn is_reliable(&self) -> bool {
        self.responder.config().service.is_reliable()
    }

    /// Whether an opcode is of the service.
    fn is_ours(&self, opcode: Opcode) -> bool {
        let transport = match self.responder.config().service {
            Type::Rc => Transport::Rc,
            Type::Uc => Transport::Uc,
            Type::XrcInitiator | Type::XrcTarget => Transport::Xrc,
            _ => Transport::Ud,
        };
        opcode.transport() == transport
    }

    fn event(&mut self, event: Event) {
        let mtu = self.responder.config().mtu.bytes();
        match event {
            Event::Receive(packet, fates) => {
                self.arrive(packet.build(self.expected, mtu), fates);
            }
            Event::Next(packet, fates) => {
                let mut packet = packet.build_as(self.sensible(&packet), self.expected, mtu);
                packet.psn = self.expected;
                packet.pkey = 0xffff;
                if let Some(deth) = &mut packet.deth {
                    deth.qkey = 5;
                }
                if packet.opcode.operation() == Operation::AtomicWrite {
                    if let Some(reth) = &mut packet.reth {
                        reth.va &= !7;
                        reth.length = 8;
                    }
                }
                if let Some(flush) = &mut packet.flush {
                    flush.placement = 1 + flush.placement % 3;
                    flush.selectivity &= 1;
                }
                // As long as it says.
                if packet.opcode.starts_message() && packet.opcode.ends_message() {
                    if let (Operation::Write, Some(reth)) =
                        (packet.opcode.operation(), &mut packet.reth)
                    {
                        packet.payload_len = packet.payload_len.min(mtu);
                        reth.length = packet.payload_len;
                    }
                }
                self.arrive(packet, fates);
            }
            Event::Again(back, fates) => {
                if let Some(packet) = self.history.iter().rev().nth(back.into()).copied() {
                    self.arrive(packet, fates);
                }
            }
            Event::Post(capacity) => {
                let capacity = capacity.get();
                self.receives.push_back(Receive::Taken { capacity });
            }
            Event::PostMalformed => self.receives.push_back(Receive::Malformed),
            Event::Respond { budget, fate } => self.respond(budget.get(), fate),
            Event::RespondLater { drops, fate } => {
                for budget in 1..=drops % 3 {
                    self.respond(budget.into(), None);
                }
                self.respond(u32::MAX, Some(fate));
            }
            Event::Resume(fates) => {
                self.responder.resume();
                while let Some(packet) = self.waiting.pop_front() {
                    if !self.receive(packet, fates) {
                        self.waiting.push_front(packet);
                        break;
                    }
                }
            }
            Event::TakeEvents => self.take_events(),
            Event::Storage(len) => {
                let len = usize::from(len % 6);
                self.responder
                    .replace_storage(vec![Resource::default(); len]);
            }
            Event::SetAccess(bits) => self.responder.set_access(access(bits)),
            Event::SetTimer(code) => self.responder.set_min_rnr_timer(code & 0x1f),
            Event::Flush => self.flush(),
            Event::Reset => {
                self.responder.reset();
                self.forget();
                self.dead = true;
            }
            Event::Configure(config) => self.configure(config.get()),
        }
    }

    /// An opcode that may follow what came before.
    fn sensible(&self, any: &AnyPacket) -> Opcode {
        let opcode = any.opcode();
        let fits = |opcode: &Opcode| {
            self.is_ours(*opcode)
                && opcode.is_request()
                && opcode.starts_message() != self.in_message
        };
        if fits(&opcode) {
            return opcode;
        }
        let all: Vec<_> = Opcode::ALL.iter().copied().filter(fits).collect();
        all.get(usize::from(any.opcode) % all.len().max(1))
            .copied()
            .unwrap_or(opcode)
    }

    fn configure(&mut self, config: ResponderConfig) {
        self.responder.configure(config);
        self.forget();
        self.expected = config.expected_psn;
        self.dead = false;
    }

    fn forget(&mut self) {
        self.msn = 0;
        self.executed.clear();
        self.waiting.clear();
        self.current = None;
        self.done = 0;
        self.in_message = false;
    }

    fn flush(&mut self) {
        self.responder.flush();
        self.waiting.clear();
        self.dead = true;
        assert_eq!(self.responder.poll_response(1), None);
        let packet = Packet::new(Opcode::RcSendOnly, 1, self.expected);
        assert!(matches!(self.responder.receive(&packet), Step::Dropped(_)));
        assert_eq!(self.responder.arrive(&packet), Arrival::Keep);
    }

    /// A packet arrives at the driver.
    fn arrive(&mut self, packet: Packet, fates: [Fate; 2]) {
        self.history.push(packet);
        if !self.waiting.is_empty() {
            match self.responder.arrive(&packet) {
                Arrival::Keep => {
                    if self.waiting.len() < MAX_WAITING {
                        self.waiting.push_back(packet);
                    }
                    return;
                }
                Arrival::Duplicate => {
                    assert!(self.is_reliable() && !self.dead);
                    assert!(!packet.psn.is_before(self.expected));
                    return;
                }
                Arrival::Receive => {
                    assert!(self.is_reliable() && packet.psn.is_before(self.expected));
                    let done = self.receive(packet, fates);
                    assert!(done, "a duplicate waits");
                    return;
                }
            }
        }
        if !self.receive(packet, fates) {
            self.waiting.push_front(packet);
        }
    }

    /// Hands in a packet. Returns false if it has to wait.
    fn receive(&mut self, packet: Packet, fates: [Fate; 2]) -> bool {
        let mut step = self.responder.receive(&packet);
        let mut fates = fates.into_iter();
        let mut original = 0;
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 6, "no end");
            let is_next = packet.psn == self.expected;
            if let Step::Do(action, _) = &step {
                assert!(!self.dead, "an access after the end");
                // Each once, in order.
                assert!(!self.is_reliable() || is_next, "out of turn");
                // A step that is dropped comes again. An invalidation comes behind the access.
                if !matches!(action, Action::Invalidate { .. }) {
                    assert_eq!(self.responder.receive(&packet), step);
                }
            }
            let outcome = fates.next().map_or(Outcome::Done, Fate::outcome);
            let (action, stage) = match step {
                Step::Do(action, stage) => (action, stage),
                Step::Done => {
                    self.executed(&packet, original);
                    return true;
                }
                Step::Complete(completion) => {
                    let capacity = self.current.take().expect("a current receive");
                    if completion.status == Status::Success {
                        assert!(completion.length <= capacity || packet.opcode.has_immediate());
                        assert_eq!(completion.immediate, packet.immediate);
                        assert_eq!(completion.invalidated_rkey, packet.invalidate_rkey);
                        self.executed(&packet, original);
                    } else {
                        // UC and UD go on if the receive is of an SRQ.
                        self.dead |= self.responder.has_failed();
                        let has_srq = self.responder.config().has_srq;
                        assert!(self.dead || has_srq && !self.is_reliable());
                    }
                    self.done = 0;
                    return true;
                }
                Step::Dropped(_) => return true,
                Step::Park => return false,
            };
            match action {
                Action::TakeReceive => {
                    assert_eq!(self.current, None, "a receive is lost");
                    let receive = match outcome {
                        Outcome::InvalidRequest => Receive::Invalid,
                        _ => self.receives.pop_front().unwrap_or(Receive::Empty),
                    };
                    self.current = match receive {
                        Receive::Taken { capacity } => Some(capacity),
                        Receive::Malformed => Some(0),
                        Receive::Empty | Receive::Invalid => None,
                    };
                    self.xrc_srqn = packet.xrc_srqn;
                    step = self.responder.commit_receive(stage, &packet, receive);
                    continue;
                }
                Action::PlaceReceive { offset, length } => {
                    let capacity = self.current.expect("a current receive");
                    assert_eq!(packet.xrc_srqn, self.xrc_srqn, "of another SRQ");
                    assert_eq!(length, packet.payload_len);
                    assert!(u64::from(offset) + u64::from(length) <= capacity.into());
                    if self.is_reliable() {
                        assert_eq!(offset, self.done, "a hole in a message");
                    }
                }
                Action::PlaceRemote {
                    length,
                    check_length,
                    ..
                } => {
                    assert_eq!(length, packet.payload_len);
                    assert!(length > 0 && length <= check_length && check_length <= 1 << 31);
                    assert!(self.responder.config().access.write || self.in_message);
                }
                Action::CheckRead { length, .. } => {
                    assert!(length > 0 && length <= 1 << 31);
                    assert!(self.responder.config().access.read);
                }
                Action::Invalidate { rkey } => {
                    assert_eq!(packet.invalidate_rkey, Some(rkey));
                }
                Action::AtomicWrite { rkey, va } => {
                    let reth = packet.reth.expect("a RETH");
                    assert_eq!((reth.rkey, reth.va, reth.length), (rkey, va, 8));
                    assert_eq!((va & 7, packet.payload_len), (0, 8));
                    assert!(self.responder.config().access.write);
                }
                Action::Flush {
                    rkey,
                    flush,
                    va,
                    length,
                } => {
                    let reth = packet.reth.expect("a RETH");
                    assert_eq!((reth.rkey, reth.va, reth.length), (rkey, va, length));
                    assert_eq!(packet.flush, Some(flush));
                    let access = self.responder.config().access;
                    assert!(flush.is_valid());
                    assert!(access.flush_global || !flush.is_global());
                    assert!(access.flush_persistent || !flush.is_persistent());
                }
                Action::Atomic { va, .. } => {
                    assert_eq!(va & 7, 0);
                    assert!(self.responder.config().access.atomic);
                    if matches!(outcome, Outcome::Done) {
                        self.value += 1;
                        original = self.value;
                        step = self.responder.commit_atomic(stage, &packet, original);
                        continue;
                    }
                }
            }
            step = self.responder.commit(stage, &packet, outcome);
        }
    }

    /// A packet has been processed: if it was the next one, it has been executed or refused. If it
    /// was refused, nothing is executed any more, and it does not matter what is thought here.
    fn executed(&mut self, packet: &Packet, original: u64) {
        let mtu = self.responder.config().mtu.bytes();
        if !self.is_reliable() {
            self.expected = packet.psn.next();
            self.in_message = packet.opcode.starts_message() && !packet.opcode.ends_message()
                || self.in_message && !packet.opcode.ends_message();
            return;
        }
        if packet.psn != self.expected {
            return;
        }
        let (psns, ends) = match (packet.opcode.operation(), packet.reth) {
            (Operation::ReadRequest, Some(reth)) => (reth.length.div_ceil(mtu).max(1), true),
            (Operation::CompareSwap | Operation::FetchAdd, _) => (1, true),
            _ => (1, packet.opcode.ends_message()),
        };
        if ends {
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        self.in_message = !ends;
        if packet.opcode.operation() == Operation::Send {
            self.done = if ends {
                0
            } else {
                self.done + packet.payload_len
            };
        }
        self.executed.push(Executed {
            psn: packet.psn,
            psns,
            packet: *packet,
            msn: self.msn,
            original,
        });
        self.expected = packet.psn.add(psns);
    }

    fn respond(&mut self, budget: u32, fate: Option<Fate>) {
        let Some(response) = self.responder.poll_response(budget) else {
            return;
        };
        assert!(self.is_reliable(), "an answer that nobody waits for");
        match response {
            Response::Packet(packet) => self.check_answer(&packet),
            Response::Read(burst) => {
                self.check_read(&burst, budget);
                if let Some(fate) = fate {
                    self.responder.commit_read(burst, fate.outcome());
                }
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.responder.take_event() {
            if event != ResponderEvent::CommunicationEstablished {
                self.dead = true;
                assert_eq!(self.responder.poll_response(1), None, "after the end");
            }
        }
    }

    fn check(&mut self) {
        let counters = *self.responder.counters();
        let numbers = |counters: &ResponderCounters| {
            [
                counters.duplicates,
                counters.sequence_naks,
                counters.rnr_naks,
                counters.error_naks,
            ]
        };
        let before = numbers(&self.counters);
        assert!(numbers(&counters)
            .iter()
            .zip(before)
            .all(|(now, before)| *now >= before));
        self.counters = counters;
        assert!(self.waiting.len() <= MAX_WAITING + 1);
    }
}
