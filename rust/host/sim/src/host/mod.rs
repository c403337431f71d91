// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One end: what a driver does around the protocol core, with memory and queues.

mod requests;

use std::collections::VecDeque;

use roce::{
    dropped::DropReason,
    outcome::Outcome,
    packet::Packet,
    qp::Type,
    requester::{
        Received,
        Requester,
        RequesterConfig,
        RequesterCounters,
        SendAction,
        SendCompletion,
        SendOperation,
        SendSlot, //
    },
    responder::{
        Arrival,
        ReceiveCompletion,
        ReceiveOperation,
        RemoteAccess,
        Resource,
        Responder,
        ResponderConfig,
        ResponderEvent, //
    },
    status::Status,
    time::{
        Duration,
        Instant, //
    }, //
};

use crate::{
    memory::Memory,
    rng::Rng,
    scenario::{
        payload_len,
        Fault,
        Scenario,
        Side, //
    },
    trace::What, //
};

/// How many packets a host keeps while one cannot be processed.
const MAX_HELD: usize = 64;

/// Something that a host asks to be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A timer, or something to post.
    Timer,
    /// A send action can be done now.
    ResumeSend,
    /// A response can be placed now.
    ResumeResponses,
    /// A request can be executed now.
    ResumeRequests,
    /// READ responses can be sent now.
    ResumeRead,
    /// Time to respond.
    Respond,
}

/// What comes out of a host.
#[derive(Debug, Default)]
pub struct Output {
    /// Packets to send, with their payload.
    pub packets: Vec<(Packet, Vec<u8>)>,
    /// Reminders.
    pub wakes: Vec<(Instant, Wake)>,
    /// Responses that the requester has taken note of, in this order; later than they arrived, if
    /// the host was not able to process them.
    pub noted: Vec<(What, Packet)>,
}

/// One end.
#[derive(Debug)]
pub struct Host {
    side: Side,
    service: Type,
    rng: Rng,
    requester: Requester<Vec<SendSlot>>,
    responder: Responder<Vec<Resource>>,

    /// Memory that the peer may access.
    pub memory: Memory,
    /// The local buffer of each work request.
    pub buffers: Vec<Vec<u8>>,
    /// What became of the work requests, and when.
    pub completions: Vec<(Instant, SendCompletion)>,
    /// The buffers of the receives.
    pub received: Vec<Vec<u8>>,
    /// Which receives have been taken, in this order; the last of them may be current.
    pub taken: Vec<usize>,
    /// What became of the receives.
    pub receive_completions: Vec<ReceiveCompletion>,
    /// The events of the responder.
    pub events: Vec<ResponderEvent>,
    /// The error of the requester.
    pub error: Option<Status>,

    next_work: usize,
    next_receive: usize,
    /// The receives that have been posted and not taken.
    posted: VecDeque<usize>,
    failed: bool,

    responses: VecDeque<(Packet, Vec<u8>)>,
    requests: VecDeque<(Packet, Vec<u8>)>,
    responses_parked: bool,
    requests_parked: bool,
    /// Memory that a request needs is there from then on.
    absent_until: Option<Instant>,
    armed: Option<Instant>,
    responding: bool,
    /// Requests have come in since it last responded.
    owing: bool,
}

impl Host {
    /// The end `id` of a scenario.
    pub fn new(scenario: &Scenario, id: usize) -> Self {
        let side = scenario.sides[id].clone();
        let peer = &scenario.sides[1 - id];
        let mut rng = Rng::new(scenario.seed ^ (0x5eed << 32) ^ ((id as u64) << 48));

        let mut requester = Requester::new(vec![SendSlot::default(); side.queue as usize]);
        requester.configure(RequesterConfig {
            service: scenario.service,
            mtu: scenario.mtu,
            src_qpn: qpn(id),
            dest_qpn: qpn(1 - id),
            pkey: 0xffff,
            initial_psn: side.psn,
            timeout: side.timeout,
            retry_count: side.retry_count,
            rnr_retry: side.rnr_retry,
            max_rd_atomic: side.max_rd_atomic,
            window_packets: side.window,
            window_packets_most: side.window_most(),
        });
        requester.start();
        let resources = vec![Resource::default(); usize::from(peer.max_rd_atomic)];
        let mut responder = Responder::new(resources);
        responder.configure(ResponderConfig {
            service: match scenario.service {
                Type::XrcInitiator => Type::XrcTarget,
                service => service,
            },
            mtu: scenario.mtu,
            dest_qpn: qpn(1 - id),
            pkey: 0xffff,
            qkey: 0x1234_5678,
            expected_psn: peer.psn,
            min_rnr_timer: side.min_rnr_timer,
            access: RemoteAccess {
                write: true,
                read: true,
                atomic: true,
                flush_global: true,
                flush_persistent: true,
            },
            has_srq: false,
        });

        let memory = Memory::new(&mut rng, scenario.region_len);
        let buffers = side
            .work
            .iter()
            .map(|work| {
                let mut bytes = vec![0; payload_len(&work.wr) as usize];
                rng.fill(&mut bytes);
                bytes
            })
            .collect();
        let received = side
            .receives
            .iter()
            .map(|posted| vec![0; posted.capacity as usize])
            .collect();

        Self {
            service: scenario.service,
            rng,
            requester,
            responder,
            memory,
            buffers,
            completions: Vec::new(),
            received,
            taken: Vec::new(),
            receive_completions: Vec::new(),
            events: Vec::new(),
            error: None,
            next_work: 0,
            next_receive: 0,
            posted: VecDeque::new(),
            failed: false,
            responses: VecDeque::new(),
            requests: VecDeque::new(),
            responses_parked: false,
            requests_parked: false,
            absent_until: None,
            armed: None,
            responding: false,
            owing: false,
            side,
        }
    }

    /// A packet arrives. Returns whether there is room for it.
    pub fn deliver(
        &mut self,
        now: Instant,
        packet: Packet,
        payload: &[u8],
        out: &mut Output,
    ) -> bool {
        let (queue, parked) = if packet.opcode.is_response() {
            (&mut self.responses, self.responses_parked)
        } else {
            if self.requests_parked {
                match self.responder.arrive(&packet) {
                    Arrival::Keep => {}
                    Arrival::Receive => {
                        self.receive_request(now, packet, payload.to_vec(), out);
                        self.work(now, out);
                        return true;
                    }
                    Arrival::Duplicate => {
                        self.owing = true;
                        self.work(now, out);
                        return true;
                    }
                }
            }
            (&mut self.requests, self.requests_parked)
        };
        let has_room = queue.len() < MAX_HELD;
        if has_room {
            queue.push_back((packet, payload.to_vec()));
        }
        if !parked {
            self.work(now, out);
        }
        has_room
    }

    /// A reminder comes.
    pub fn wake(&mut self, now: Instant, wake: Wake, out: &mut Output) {
        match wake {
            Wake::Timer => {
                if self.armed == Some(now) {
                    self.armed = None;
                }
                self.requester.on_timeout(now);
            }
            Wake::ResumeSend => self.requester.resume(),
            Wake::ResumeResponses => self.responses_parked = false,
            Wake::ResumeRequests => self.requests_parked = false,
            Wake::ResumeRead => {
                self.owing = true;
                self.responder.resume();
            }
            Wake::Respond => {
                self.responding = false;
                self.respond(now, out);
            }
        }
        self.work(now, out);
    }

    /// Does all there is to do.
    pub fn work(&mut self, now: Instant, out: &mut Output) {
        while !self.responses_parked {
            let Some((packet, payload)) = self.responses.pop_front() else {
                break;
            };
            self.receive_response(now, packet, payload, out);
        }
        while !self.requests_parked {
            let Some((packet, payload)) = self.requests.pop_front() else {
                break;
            };
            self.receive_request(now, packet, payload, out);
        }
        loop {
            self.post(now);
            self.send(now, out);
            if let Some(error) = self.requester.take_error() {
                self.error = Some(error);
                self.fail();
            }
            if !self.reap(now) {
                break;
            }
        }
        if self.side.respond_delay == Duration::ZERO {
            self.respond(now, out);
        } else if core::mem::take(&mut self.owing) && !self.responding {
            self.responding = true;
            out.wakes
                .push((now.add(self.side.respond_delay), Wake::Respond));
        }
        while let Some(event) = self.responder.take_event() {
            self.events.push(event);
            if event != ResponderEvent::CommunicationEstablished {
                self.fail();
                self.work(now, out);
            }
        }

        let next = self.requester.poll_timeout();
        if next.is_some() && next != self.armed {
            self.armed = next;
            out.wakes.extend(next.map(|at| (at.max(now), Wake::Timer)));
        }
    }

    /// Whether nothing is left to be done.
    pub fn is_finished(&self) -> bool {
        self.completions.len() == self.side.work.len()
    }

    /// What the requester has counted.
    pub fn requester_counters(&self) -> &RequesterCounters {
        self.requester.counters()
    }

    /// Whether the QP is in error.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// When something is to be posted.
    pub fn agenda(&self) -> Vec<Instant> {
        let work = self.side.work.iter().map(|work| work.post_at);
        let receives = self.side.receives.iter().map(|posted| posted.post_at);
        let mut agenda: Vec<_> = work.chain(receives).collect();
        agenda.sort();
        agenda.dedup();
        agenda
    }

    /// Posts what it is time for.
    fn post(&mut self, now: Instant) {
        while let Some(posted) = self.side.receives.get(self.next_receive) {
            if posted.post_at > now {
                break;
            }
            self.posted.push_back(self.next_receive);
            self.next_receive += 1;
        }
        while let Some(work) = self.side.work.get(self.next_work) {
            if work.post_at > now {
                break;
            }
            match self.requester.post(work.wr) {
                Ok(sequence) => assert_eq!(sequence as usize, self.next_work),
                Err(_) => break,
            }
            self.next_work += 1;
        }
    }

    /// Whether what is to be done now cannot be done now.
    fn again(&mut self) -> bool {
        self.rng.chance(self.side.again)
    }

    /// Whether the memory that a request needs is not there now.
    fn is_absent(&mut self, now: Instant) -> bool {
        if self.absent_until.is_none() && self.rng.chance(self.side.absent) {
            self.absent_until = Some(now.add(self.side.absent_for));
        }
        self.absent_until = self.absent_until.filter(|until| now < *until);
        self.absent_until.is_some()
    }

    /// When it can be done.
    fn later(&mut self, now: Instant) -> Instant {
        now.add(Duration::from_us(self.rng.between(1, 400)))
    }

    fn send(&mut self, now: Instant, out: &mut Output) {
        while let Some(action) = self.requester.poll_action() {
            if self.again() {
                self.requester.commit(now, action, Outcome::Again);
                out.wakes.push((self.later(now), Wake::ResumeSend));
                break;
            }
            let sequence = action.sequence() as usize;
            let work = &self.side.work[sequence];
            let fails_here = match work.wr.operation {
                SendOperation::Send | SendOperation::Write => work.fault == Fault::LocalKey,
                _ => work.fault == Fault::Operation,
            };
            if fails_here {
                self.requester.commit(now, action, Outcome::Protection);
                continue;
            }
            let SendAction::Transmit(burst) = &action else {
                self.requester.commit(now, action, Outcome::Done);
                continue;
            };

            let buffer = &self.buffers[sequence];
            let mut bytes = 0;
            for index in 0..burst.packets {
                let (packet, offset) = self
                    .requester
                    .packet(burst, index)
                    .expect("a packet of the burst");
                let payload = &buffer[offset as usize..][..packet.payload_len as usize];
                bytes += packet.payload_len;
                out.packets.push((packet, payload.to_vec()));
            }
            assert_eq!(bytes, burst.length);
            assert!(self.requester.packet(burst, burst.packets).is_none());
            self.requester.commit(now, action, Outcome::Done);
        }
    }

    /// Takes the completions; returns whether there were any.
    fn reap(&mut self, now: Instant) -> bool {
        let before = self.completions.len();
        while let Some(completion) = self.requester.poll_completion() {
            self.completions.push((now, completion));
        }
        self.completions.len() > before
    }

    fn receive_response(
        &mut self,
        now: Instant,
        packet: Packet,
        payload: Vec<u8>,
        out: &mut Output,
    ) {
        let placement = match self.requester.receive(now, &packet) {
            Received::Dropped(
                DropReason::State | DropReason::Opcode | DropReason::Pkey | DropReason::Syndrome,
            ) => return,
            Received::Dropped(DropReason::OutOfOrder) => {
                out.noted.push((What::Unplaced, packet));
                return;
            }
            Received::Nothing | Received::Dropped(_) => {
                out.noted.push((What::Noted, packet));
                return;
            }
            Received::Place(placement) => placement,
        };
        let bytes = match placement.original {
            Some(value) => value.to_ne_bytes().to_vec(),
            None => payload.clone(),
        };
        assert_eq!(placement.length as usize, bytes.len());
        if self.again() {
            self.requester.commit_place(now, placement, Outcome::Again);
            self.responses.push_front((packet, payload));
            self.responses_parked = true;
            out.wakes.push((self.later(now), Wake::ResumeResponses));
            return;
        }
        let (sequence, offset) = (placement.sequence as usize, placement.offset as usize);
        if self.side.work[sequence].fault == Fault::LocalKey {
            out.noted.push((What::Unplaced, packet));
            self.requester
                .commit_place(now, placement, Outcome::Protection);
            return;
        }
        out.noted.push((What::Noted, packet));
        self.buffers[sequence][offset..][..bytes.len()].copy_from_slice(&bytes);
        self.requester.commit_place(now, placement, Outcome::Done);
    }

    /// To the error state.
    fn fail(&mut self) {
        if self.failed {
            return;
        }
        self.failed = true;
        self.requester.flush();
        // One is current.
        if self.receive_completions.len() < self.taken.len() {
            self.receive_completions.push(flushed());
        }
        self.responder.reset();
        let posted = self.posted.drain(..).map(|_| flushed());
        self.receive_completions.extend(posted);
    }

    /// The XRC SRQ that a receive was posted to.
    pub fn srqn_of_receive(&self, index: usize) -> u32 {
        self.side.receives[index].xrc_srqn
    }

    /// The service.
    pub fn service(&self) -> Type {
        self.service
    }
}

/// The completion of a receive that is flushed.
fn flushed() -> ReceiveCompletion {
    ReceiveCompletion {
        status: Status::Flushed,
        operation: ReceiveOperation::Send,
        length: 0,
        immediate: None,
        invalidated_rkey: None,
        solicited: true,
    }
}

/// The QP number of an end.
pub fn qpn(id: usize) -> u32 {
    [0x11, 0x22][id]
}
