// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the tests of both state machines share.

#![allow(dead_code)]

use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::{
        Aeth,
        AtomicRequest,
        Flush,
        NakCode,
        Packet,
        Reth,
        Syndrome,
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
        SendWr, //
    },
    responder::{
        Action,
        ReadBurst,
        Receive,
        ReceiveCompletion,
        RemoteAccess,
        Resource,
        Responder,
        ResponderConfig,
        ResponderEvent,
        Response,
        Step, //
    },
    status::Status,
    time::{
        Duration,
        Instant, //
    },
    wire::U24, //
};

/// The MTU of the tests, in bytes.
pub const MTU: u32 = 256;

/// The timeout of the tests.
pub const TIMEOUT: Duration = Duration::from_ms(1);

/// Runs a test with PSNs of which some wrap around in it.
pub fn with_psns(test: impl Fn(Psn)) {
    for psn in [0, 0x1234, 0x7f_fffe, 0xff_fffe, 0xff_ffff] {
        test(Psn::new(psn));
    }
}

/// So many microseconds after the clock's zero.
pub fn us(us: u64) -> Instant {
    Instant::from_ns(us * 1_000)
}

/// The attributes of a requester.
pub fn requester_config(psn: Psn) -> RequesterConfig {
    RequesterConfig {
        service: Type::Rc,
        mtu: Mtu::M256,
        src_qpn: 0x11,
        dest_qpn: 0x22,
        pkey: 0xffff,
        initial_psn: psn,
        timeout: Some(TIMEOUT),
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 4,
        window_packets: 256,
        window_packets_most: 256,
    }
}

/// A requester with a queue of 64.
pub fn requester_with(config: RequesterConfig) -> Requester<Vec<SendSlot>> {
    let mut requester = Requester::new(vec![SendSlot::default(); 64]);
    requester.configure(config);
    requester.start();
    requester
}

/// A requester like all others.
pub fn requester(psn: Psn) -> Requester<Vec<SendSlot>> {
    requester_with(requester_config(psn))
}

/// A SEND.
pub fn send(length: u32) -> SendWr {
    SendWr {
        length,
        signaled: true,
        ..SendWr::default()
    }
}

/// Another operation.
pub fn operation(operation: SendOperation, length: u32) -> SendWr {
    SendWr {
        operation,
        remote_va: 0x1000,
        rkey: 0x77,
        ..send(length)
    }
}

/// A READ.
pub fn read(length: u32) -> SendWr {
    operation(SendOperation::Read, length)
}

/// An ATOMIC.
pub fn fetch_add() -> SendWr {
    operation(SendOperation::FetchAdd, 8)
}

/// A FLUSH of a range, for global visibility.
pub fn flush(length: u32) -> SendWr {
    SendWr {
        flush: Flush {
            placement: 1,
            selectivity: 0,
        },
        ..operation(SendOperation::Flush, length)
    }
}

/// An ATOMIC WRITE.
pub fn atomic_write() -> SendWr {
    operation(SendOperation::AtomicWrite, 8)
}

/// Takes the next packets to send.
pub fn poll_burst(requester: &mut Requester<Vec<SendSlot>>) -> Burst {
    match requester.poll_action() {
        Some(SendAction::Transmit(burst)) => burst,
        other => panic!("nothing to send: {other:?}"),
    }
}

/// Tells the requester what became of them.
pub fn commit_burst(
    requester: &mut Requester<Vec<SendSlot>>,
    now: Instant,
    burst: Burst,
    outcome: Outcome,
) {
    requester.commit(now, SendAction::Transmit(burst), outcome);
}

/// Asserts that the packet's headers have all of it, and nothing else.
pub fn assert_comes_back(packet: &Packet) {
    let mut headers = [0; MAX_HEADER_LEN];
    assert_eq!(packet.emit(&mut headers), Some(packet.header_len()));
    assert_eq!(Packet::parse(&headers, packet.datagram_len()), Ok(*packet));
}

/// Does all that the requester wants done, and returns the packets.
pub fn transmit(requester: &mut Requester<Vec<SendSlot>>, now: Instant) -> Vec<Packet> {
    let mut packets = Vec::new();
    while let Some(action) = requester.poll_action() {
        if let SendAction::Transmit(burst) = &action {
            for index in 0..burst.packets {
                let (packet, _) = requester.packet(burst, index).unwrap();
                assert_comes_back(&packet);
                packets.push(packet);
            }
        }
        requester.commit(now, action, Outcome::Done);
    }
    packets
}

/// The opcodes and PSNs of packets, the latter counted from `psn`.
pub fn outline(packets: &[Packet], psn: Psn) -> Vec<(Opcode, i32)> {
    packets
        .iter()
        .map(|packet| (packet.opcode, packet.psn.diff(psn)))
        .collect()
}

/// An acknowledge packet.
pub fn answer(psn: Psn, syndrome: Syndrome) -> Packet {
    let mut packet = Packet::new(Opcode::RcAcknowledge, 0x11, psn);
    packet.aeth = Some(Aeth { syndrome, msn: 0 });
    packet
}

/// An ACK.
pub fn ack(psn: Psn) -> Packet {
    answer(psn, Syndrome::Ack { credits: 0x1f })
}

/// A NAK.
pub fn nak(psn: Psn, code: NakCode) -> Packet {
    answer(psn, Syndrome::Nak(code))
}

/// An RNR NAK.
pub fn rnr(psn: Psn, timer: u8) -> Packet {
    answer(psn, Syndrome::Rnr { timer })
}

/// A READ response.
pub fn read_response(opcode: Opcode, psn: Psn, length: u32) -> Packet {
    let mut packet = ack(psn);
    packet.opcode = opcode;
    packet.payload_len = length;
    if !opcode.has_aeth() {
        packet.aeth = None;
    }
    packet
}

/// An ATOMIC acknowledgement.
pub fn atomic_ack(psn: Psn, value: u64) -> Packet {
    let mut packet = ack(psn);
    packet.opcode = Opcode::RcAtomicAcknowledge;
    packet.atomic_ack = Some(value);
    packet
}

/// What XRC has for a packet of RC; a request is for the SRQ `srqn`.
pub fn xrc(mut packet: Packet, srqn: u32) -> Packet {
    packet.opcode = Opcode::try_from(0xa0 | packet.opcode as u8).unwrap();
    packet.xrc_srqn = packet.opcode.has_xrceth().then_some(U24::new(srqn));
    packet
}

/// Hands in a response, and places its payload. It is handed in twice: a placement that is dropped changes nothing.
pub fn respond(
    requester: &mut Requester<Vec<SendSlot>>,
    now: Instant,
    packet: &Packet,
) -> Received {
    let received = requester.receive(now, packet);
    if let Received::Place(_) = received {
        let again = requester.receive(now, packet);
        assert_eq!(again, received);
        if let Received::Place(placement) = again {
            requester.commit_place(now, placement, Outcome::Done);
        }
    }
    received
}

/// Takes all completions.
pub fn completions(requester: &mut Requester<Vec<SendSlot>>) -> Vec<(u32, Status)> {
    std::iter::from_fn(|| requester.poll_completion())
        .map(|completion| (completion.sequence, completion.status))
        .collect()
}

/// The attributes of a responder.
pub fn responder_config(psn: Psn) -> ResponderConfig {
    ResponderConfig {
        service: Type::Rc,
        mtu: Mtu::M256,
        dest_qpn: 0x11,
        pkey: 0xffff,
        qkey: 0x55,
        expected_psn: psn,
        min_rnr_timer: 5,
        access: RemoteAccess {
            write: true,
            read: true,
            atomic: true,
            flush_global: true,
            flush_persistent: true,
        },
        has_srq: false,
    }
}

/// A responder and what a driver has around it.
pub struct Peer {
    /// The responder.
    pub responder: Responder<Vec<Resource>>,
    /// Lengths of the receives that are posted.
    pub receives: Vec<Receive>,
    /// The actions of all packets, in order.
    pub actions: Vec<Action>,
    /// The completions.
    pub completions: Vec<ReceiveCompletion>,
    /// A receive has been taken, and is not complete.
    pub has_receive: bool,
    /// What becomes of accesses to memory.
    pub outcome: Outcome,
    /// What stands where ATOMICs work.
    pub value: u64,
}

impl Peer {
    /// One that remembers four READs, ATOMICs, FLUSHes and ATOMIC WRITEs.
    pub fn new(config: ResponderConfig) -> Self {
        let mut responder = Responder::new(vec![Resource::default(); 4]);
        responder.configure(config);
        Self {
            responder,
            receives: Vec::new(),
            actions: Vec::new(),
            completions: Vec::new(),
            has_receive: false,
            outcome: Outcome::Done,
            value: 0,
        }
    }

    /// Takes at most so many READ responses to send.
    pub fn poll_read(&mut self, packets: u32) -> ReadBurst {
        match self.responder.poll_response(packets) {
            Some(Response::Read(burst)) => burst,
            other => panic!("no response: {other:?}"),
        }
    }

    /// Posts a receive.
    pub fn post(&mut self, capacity: u32) {
        self.receives.push(Receive::Taken { capacity });
    }

    /// Hands in a packet, and returns the step that ended it.
    pub fn deliver(&mut self, packet: &Packet) -> Step {
        let mut step = self.responder.receive(packet);
        loop {
            let (action, stage) = match step {
                Step::Do(action, stage) => (action, stage),
                Step::Complete(completion) => {
                    assert!(self.has_receive);
                    self.has_receive = false;
                    self.completions.push(completion);
                    return step;
                }
                _ => return step,
            };
            self.actions.push(action);
            step = match action {
                Action::TakeReceive => {
                    let receive = if self.receives.is_empty() {
                        Receive::Empty
                    } else {
                        self.receives.remove(0)
                    };
                    assert!(!self.has_receive, "a receive is lost");
                    self.has_receive =
                        matches!(receive, Receive::Taken { .. } | Receive::Malformed);
                    self.responder.commit_receive(stage, packet, receive)
                }
                Action::Atomic { .. } if self.outcome == Outcome::Done => {
                    self.value += 1;
                    self.responder.commit_atomic(stage, packet, self.value - 1)
                }
                _ => self.responder.commit(stage, packet, self.outcome),
            };
        }
    }

    /// Takes all responses.
    pub fn responses(&mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        while let Some(response) = self.responder.poll_response(1000) {
            match response {
                Response::Packet(packet) => {
                    assert_comes_back(&packet);
                    packets.push(packet);
                }
                Response::Read(burst) => {
                    for index in 0..burst.packets {
                        let (packet, _) = self.responder.read_packet(&burst, index).unwrap();
                        assert_comes_back(&packet);
                        packets.push(packet);
                    }
                    self.responder.commit_read(burst, Outcome::Done);
                }
            }
        }
        packets
    }

    /// The one response that there is.
    pub fn response(&mut self) -> (Psn, Aeth) {
        let packets = self.responses();
        assert_eq!(packets.len(), 1, "{packets:?}");
        (packets[0].psn, packets[0].aeth.unwrap())
    }
}

/// A request without anything but a payload.
pub fn request(opcode: Opcode, psn: Psn, length: u32) -> Packet {
    let mut packet = Packet::new(opcode, 0x22, psn);
    packet.payload_len = length;
    packet.ack_request = opcode.ends_message();
    if opcode.has_immediate() {
        packet.immediate = Some(0xabcd);
    }
    if opcode.has_invalidate() {
        packet.invalidate_rkey = Some(0xdead);
    }
    packet
}

/// The first or only packet of a WRITE, or a READ request, of `length` bytes at `va`.
pub fn remote(opcode: Opcode, psn: Psn, payload: u32, va: u64, length: u32) -> Packet {
    let mut packet = request(opcode, psn, payload);
    packet.reth = Some(Reth {
        va,
        rkey: 0x77,
        length,
    });
    packet
}

/// A READ request.
pub fn read_request(psn: Psn, va: u64, length: u32) -> Packet {
    remote(Opcode::RcReadRequest, psn, 0, va, length)
}

/// An ATOMIC WRITE request.
pub fn atomic_write_request(psn: Psn, va: u64) -> Packet {
    remote(Opcode::RcAtomicWrite, psn, 8, va, 8)
}

/// A FLUSH request.
pub fn flush_request(psn: Psn, placement: u8, selectivity: u8, va: u64, length: u32) -> Packet {
    let mut packet = remote(Opcode::RcFlush, psn, 0, va, length);
    packet.flush = Some(Flush {
        placement,
        selectivity,
    });
    packet
}

/// A FetchAdd request.
pub fn atomic_request(psn: Psn, va: u64) -> Packet {
    let mut packet = request(Opcode::RcFetchAdd, psn, 0);
    packet.atomic = Some(AtomicRequest {
        va,
        rkey: 0x77,
        swap_add: 1,
        compare: 0,
    });
    packet
}

/// Which packets ask for an acknowledgement.
pub fn asking(packets: &[Packet]) -> Vec<bool> {
    packets.iter().map(|packet| packet.ack_request).collect()
}

/// The packets of a READ's answer: what the requests in `packets` ask for.
pub fn read_responses(packets: &[Packet]) -> Vec<Packet> {
    let mut responses = Vec::new();
    for request in packets {
        let length = request.reth.unwrap().length;
        let count = length.div_ceil(MTU).max(1);
        for number in 0..count {
            let opcode = match (number == 0, number + 1 == count) {
                (true, true) => Opcode::RcReadResponseOnly,
                (true, false) => Opcode::RcReadResponseFirst,
                (false, false) => Opcode::RcReadResponseMiddle,
                (false, true) => Opcode::RcReadResponseLast,
            };
            let left = length - number * MTU;
            responses.push(read_response(
                opcode,
                request.psn.add(number),
                left.min(MTU),
            ));
        }
    }
    responses
}

pub const ACK: Syndrome = Syndrome::Ack { credits: 0x1f };

pub fn peer(psn: Psn) -> Peer {
    Peer::new(responder_config(psn))
}

/// The error that a peer has answered with, and gone into the error state for.
pub fn error(peer: &mut Peer) -> (Psn, Syndrome, ResponderEvent) {
    // Not before the NAK is on its way.
    let mut event = peer.responder.take_event();
    if event == Some(ResponderEvent::CommunicationEstablished) {
        event = peer.responder.take_event();
    }
    assert_eq!(event, None);
    let responses = peer.responses();
    let last = responses.last().unwrap();
    let event = peer.responder.take_event().unwrap();
    assert!(event != ResponderEvent::CommunicationEstablished);
    assert_eq!(peer.responder.take_event(), None);
    assert_eq!(
        peer.responder.receive(last),
        Step::Dropped(DropReason::State)
    );
    (last.psn, last.aeth.unwrap().syndrome, event)
}
