// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Packets that no honest peer sends, and a driver that does things in any order.
//!
//! Whatever comes, nothing may panic (the arithmetic is checked), no access may go beyond a buffer,
//! and every work request completes once and in order.

mod random;

use roce::{
    opcode::Operation,
    packet::{
        Flush,
        MAX_HEADER_LEN, //
    },
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    requester::{
        Burst,
        Received,
        Requester,
        RequesterConfig,
        SendAction,
        SendOperation,
        SendSlot,
        SendWr,
        MAX_BURST_LEN, //
    },
    responder::{
        ReadBurst,
        Receive,
        RemoteAccess,
        Resource,
        Responder,
        ResponderConfig,
        Response,
        Step, //
    },
    status::Status,
    ticket::{
        Outcome,
        Ticket, //
    },
    time::{
        Duration,
        Instant, //
    }, //
};
use sim::rng::Rng;

use crate::random::{
    number,
    outcome,
    packet, //
};

const RUNS: u64 = 10_000;
const EVENTS: u64 = 500;

const SERVICES: [Type; 9] = [
    Type::Rc,
    Type::Rc,
    Type::Rc,
    Type::Uc,
    Type::Ud,
    Type::Gsi,
    Type::RawPacket,
    Type::XrcInitiator,
    Type::XrcTarget,
];

struct Sender {
    rng: Rng,
    requester: Requester<Vec<SendSlot>>,
    mtu: Mtu,
    posted: Vec<SendWr>,
    completed: u32,
    bursts: Vec<(Ticket, Option<Burst>)>,
    places: Vec<Ticket>,
    psn: Psn,
    now: Instant,
}

impl Sender {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mtu = rng.pick(&Mtu::ALL);
        let psn = Psn::new(rng.pick(&[0, 0xff_fff0, 0x7f_fff0]));
        let len = rng.pick(&[0, 1, 3, 16]);
        let mut requester = Requester::new(vec![SendSlot::default(); len]);
        requester.configure(RequesterConfig {
            service: rng.pick(&SERVICES),
            mtu,
            src_qpn: 1,
            dest_qpn: 2,
            pkey: 0xffff,
            initial_psn: psn,
            timeout: rng.pick(&[None, Some(Duration::from_us(10))]),
            retry_count: rng.below(8) as u8,
            rnr_retry: rng.below(8) as u8,
            max_rd_atomic: rng.below(4) as u8,
            window_packets: number(&mut rng),
            window_packets_most: number(&mut rng),
        });
        requester.start();
        Self {
            rng,
            requester,
            mtu,
            posted: Vec::new(),
            completed: 0,
            bursts: Vec::new(),
            places: Vec::new(),
            psn,
            now: Instant::from_ns(0),
        }
    }

    fn step(&mut self) {
        self.now = self.now.add(Duration::from_ns(self.rng.below(3_000)));
        match self.rng.below(16) {
            0 | 1 => self.post(),
            2..=5 => self.send(),
            6..=9 => self.receive(),
            10 => {
                if self.rng.below(3) == 0 {
                    self.now = self.now.add(Duration::from_us(11));
                }
                self.requester.on_timeout(self.now);
            }
            11 => self.commit(),
            12 => self.requester.resume(),
            13 => match self.rng.below(20) {
                0 => self.requester.flush(),
                1 => self.requester.pause(self.now),
                2 => self.requester.set_retry_count(self.rng.below(8) as u8),
                3 => self.requester.set_max_rd_atomic(self.rng.below(8) as u8),
                _ => self.requester.start(),
            },
            _ => self.reap(),
        }
        if self.requester.take_error().is_some() {
            self.requester.flush();
            self.reap();
            assert_eq!(self.completed as usize, self.posted.len());
            // And once more from the beginning; what is still out is from before.
            let config = *self.requester.config();
            self.requester.reset();
            self.requester.configure(config);
            self.requester.start();
            self.posted.clear();
            self.completed = 0;
            self.bursts.truncate(1);
            self.psn = config.initial_psn;
        }
        if let Some(deadline) = self.requester.poll_timeout() {
            // 655 ms is the longest RNR timer.
            assert!(deadline.since(self.now) <= Duration::from_ms(656));
        }
    }

    fn post(&mut self) {
        let rng = &mut self.rng;
        let wr = SendWr {
            operation: rng.pick(&[
                SendOperation::Send,
                SendOperation::Write,
                SendOperation::Read,
                SendOperation::CompareSwap,
                SendOperation::FetchAdd,
                SendOperation::Flush,
                SendOperation::AtomicWrite,
                SendOperation::Local,
            ]),
            length: number(rng),
            remote_va: rng.word(),
            immediate: rng.pick(&[None, Some(1)]),
            invalidate_rkey: rng.pick(&[None, Some(1)]),
            flush: Flush {
                placement: rng.below(5) as u8,
                selectivity: rng.below(3) as u8,
            },
            fence: rng.below(4) == 0,
            ..SendWr::default()
        };
        if let Ok(sequence) = self.requester.post(wr) {
            assert_eq!(sequence as usize, self.posted.len());
            self.posted.push(wr);
        }
    }

    fn send(&mut self) {
        let Some(action) = self.requester.poll_action() else {
            return;
        };
        let burst = match action {
            SendAction::Local { ticket, .. } => {
                self.bursts.push((ticket, None));
                return;
            }
            SendAction::Transmit(burst) => burst,
        };
        self.bursts.push((burst.ticket, Some(burst)));
        let wr = &self.posted[burst.sequence as usize];
        assert!(burst.packets > 0 && burst.length <= MAX_BURST_LEN);
        let end = u64::from(burst.offset) + u64::from(burst.length);
        let is_atomic = wr.operation as u8 >= SendOperation::CompareSwap as u8;
        assert!(is_atomic || end <= u64::from(wr.length));
        let mut bytes = 0;
        for index in 0..burst.packets {
            let (packet, offset, length) = self.requester.packet(&burst, index).unwrap();
            assert_eq!(offset, burst.offset + bytes);
            assert_eq!(length, packet.payload_len);
            assert!(length <= self.mtu.bytes());
            assert!(packet.emit(&mut [0; MAX_HEADER_LEN]).is_some());
            self.psn = packet.psn;
            bytes += length;
        }
        assert_eq!(bytes, burst.length);
    }

    fn commit(&mut self) {
        if self.bursts.is_empty() {
            return;
        }
        // Any of them, some of them twice.
        let index = self.rng.below(self.bursts.len() as u64) as usize;
        let (ticket, burst) = self.bursts[index];
        if let Some(burst) = burst.filter(|burst| burst.sequence < self.posted.len() as u32) {
            let _ = self.requester.packet(&burst, 0);
        }
        let ticket = match self.rng.below(3) {
            0 => ticket,
            _ => self.bursts[self.bursts.len() - 1].0,
        };
        let outcome = outcome(&mut self.rng);
        self.requester.commit(self.now, ticket, outcome);
    }

    fn receive(&mut self) {
        let packet = packet(&mut self.rng, self.psn, self.mtu, true);
        match self.requester.receive(self.now, &packet) {
            Received::Place {
                ticket,
                sequence,
                offset,
                length,
            } => {
                let wr = &self.posted[sequence as usize];
                assert_eq!(wr.operation, SendOperation::Read);
                assert_eq!(length, packet.payload_len);
                assert!(u64::from(offset) + u64::from(length) <= u64::from(wr.length));
                self.places.push(ticket);
            }
            Received::PlaceAtomic { ticket, .. } => self.places.push(ticket),
            Received::Nothing | Received::Dropped(_) => {}
        }
        if self.rng.below(8) > 0 {
            if let Some(ticket) = self.places.last() {
                let outcome = outcome(&mut self.rng);
                self.requester.commit_place(self.now, *ticket, outcome);
            }
        }
    }

    fn reap(&mut self) {
        while let Some(completion) = self.requester.poll_completion() {
            assert_eq!(completion.sequence, self.completed);
            assert!(self.completed < self.posted.len() as u32);
            self.completed += 1;
            if completion.status != Status::Success {
                assert!(completion.signaled);
            }
        }
    }
}

#[test]
fn requester() {
    for seed in 0..RUNS {
        let mut sender = Sender::new(seed);
        for _ in 0..EVENTS {
            sender.step();
        }
        sender.requester.flush();
        sender.reap();
        assert_eq!(sender.completed as usize, sender.posted.len(), "{seed}");
        assert_eq!(sender.requester.poll_timeout(), None);
        assert!(sender.requester.poll_action().is_none());
    }
}

struct Receiver {
    rng: Rng,
    responder: Responder<Vec<Resource>>,
    mtu: Mtu,
    psn: Psn,
    grh: u32,
    capacity: u32,
    reads: Vec<ReadBurst>,
}

impl Receiver {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mtu = rng.pick(&Mtu::ALL);
        let psn = Psn::new(rng.pick(&[0, 0xff_fff0, 0x7f_fff0]));
        let service = rng.pick(&SERVICES);
        let len = rng.pick(&[0, 1, 4]);
        let mut responder = Responder::new(vec![Resource::default(); len]);
        responder.configure(ResponderConfig {
            service,
            mtu,
            dest_qpn: 2,
            pkey: 0xffff,
            qkey: 5,
            expected_psn: psn,
            min_rnr_timer: 3,
            access: RemoteAccess {
                write: rng.below(8) > 0,
                read: rng.below(8) > 0,
                atomic: rng.below(8) > 0,
                flush_global: rng.below(8) > 0,
                flush_persistent: rng.below(8) > 0,
            },
        });
        let grh = if matches!(service, Type::Ud | Type::Gsi) {
            40
        } else {
            0
        };
        Self {
            rng,
            responder,
            mtu,
            psn,
            grh,
            capacity: 0,
            reads: Vec::new(),
        }
    }

    fn event(&mut self) {
        match self.rng.below(12) {
            0..=6 => self.receive(),
            7 | 8 => self.respond(),
            9 => self.responder.resume(),
            10 => while self.responder.take_event().is_some() {},
            _ => match self.rng.below(10) {
                0 => {
                    let len = self.rng.below(6) as usize;
                    self.responder
                        .replace_storage(vec![Resource::default(); len]);
                }
                1 => self.responder.set_access(RemoteAccess::default()),
                _ => self.commit_read(),
            },
        }
    }

    fn receive(&mut self) {
        let packet = packet(&mut self.rng, self.psn, self.mtu, false);
        let mut step = self.responder.receive(&packet);
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 6);
            let outcome = outcome(&mut self.rng);
            step = match step {
                Step::Done | Step::Complete(_) => {
                    if packet.psn == self.psn {
                        let psns = match packet.reth {
                            Some(reth) if packet.opcode.operation() == Operation::ReadRequest => {
                                reth.length.div_ceil(self.mtu.bytes()).max(1)
                            }
                            _ => 1,
                        };
                        self.psn = self.psn.add(psns);
                    }
                    return;
                }
                Step::Dropped(_) | Step::Park => return,
                Step::TakeReceive { ticket } => {
                    self.capacity = number(&mut self.rng);
                    let receive = match self.rng.below(8) {
                        0 => Receive::Empty,
                        1 => Receive::Malformed,
                        2 => Receive::Invalid,
                        _ => Receive::Taken {
                            capacity: self.capacity,
                        },
                    };
                    self.responder.commit_receive(ticket, &packet, receive)
                }
                Step::PlaceReceive {
                    ticket,
                    offset,
                    length,
                } => {
                    assert_eq!(length, packet.payload_len);
                    assert!(offset >= self.grh);
                    assert!(u64::from(offset) + u64::from(length) <= u64::from(self.capacity));
                    self.responder.commit(ticket, &packet, outcome)
                }
                Step::PlaceRemote {
                    ticket,
                    length,
                    check_length,
                    ..
                } => {
                    assert_eq!(length, packet.payload_len);
                    assert!(length > 0 && length <= check_length && check_length <= 1 << 31);
                    self.responder.commit(ticket, &packet, outcome)
                }
                Step::CheckRead { ticket, length, .. } => {
                    assert!(length > 0 && length <= 1 << 31);
                    self.responder.commit(ticket, &packet, outcome)
                }
                Step::Invalidate { ticket, .. } => self.responder.commit(ticket, &packet, outcome),
                Step::AtomicWrite { ticket, va, .. } => {
                    assert_eq!((va & 7, packet.payload_len), (0, 8));
                    self.responder.commit(ticket, &packet, outcome)
                }
                Step::Flush { ticket, flush, .. } => {
                    assert!(flush.is_valid());
                    self.responder.commit(ticket, &packet, outcome)
                }
                Step::Atomic { ticket, va, .. } => {
                    assert_eq!(va & 7, 0);
                    if matches!(outcome, Outcome::Done) {
                        self.responder.commit_atomic(ticket, &packet, 1)
                    } else {
                        self.responder.commit(ticket, &packet, outcome)
                    }
                }
            };
        }
    }

    fn respond(&mut self) {
        let budget = number(&mut self.rng);
        match self.responder.poll_response(budget) {
            None => {}
            Some(Response::Packet(packet)) => {
                assert!(packet.emit(&mut [0; MAX_HEADER_LEN]).is_some());
            }
            Some(Response::Read(burst)) => {
                assert!(burst.packets > 0 && burst.length <= MAX_BURST_LEN);
                let mut bytes = 0;
                for index in 0..burst.packets {
                    let (packet, offset, length) =
                        self.responder.read_packet(&burst, index).unwrap();
                    assert_eq!((offset, length), (bytes, packet.payload_len));
                    assert!(length <= self.mtu.bytes());
                    assert!(packet.emit(&mut [0; MAX_HEADER_LEN]).is_some());
                    bytes += length;
                }
                assert_eq!(bytes, burst.length);
                self.reads.push(burst);
                if self.rng.below(4) > 0 {
                    self.commit_read();
                }
            }
        }
    }

    fn commit_read(&mut self) {
        let back = self.rng.below(2) as usize;
        if let Some(burst) = self.reads.iter().rev().nth(back) {
            let outcome = outcome(&mut self.rng);
            self.responder.commit_read(burst.ticket, outcome);
        }
    }
}

#[test]
fn responder() {
    for seed in 0..RUNS {
        let mut receiver = Receiver::new(seed);
        for _ in 0..EVENTS {
            receiver.event();
        }
        receiver.responder.flush();
        assert_eq!(receiver.responder.poll_response(1), None);
    }
}
