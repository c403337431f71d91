// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder of other services than RC.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::{
        Deth,
        NakCode,
        Packet,
        Syndrome, //
    },
    psn::Psn,
    qp::Type,
    responder::{
        Action,
        Receive,
        ResponderConfig,
        ResponderEvent,
        Response,
        Step, //
    },
    status::Status,
    wire::U24, //
};

fn datagram(qkey: u32, length: u32) -> Packet {
    let mut packet = request(Opcode::UdSendOnlyImm, Psn::new(77), length);
    packet.deth = Some(Deth { qkey, src_qpn: 9 });
    packet
}

#[test]
fn datagrams() {
    for service in [Type::Ud, Type::Gsi] {
        let config = ResponderConfig {
            service,
            ..responder_config(Psn::new(0))
        };
        let mut peer = Peer::new(config);
        assert_eq!(
            peer.deliver(&datagram(0x56, 1)),
            Step::Dropped(DropReason::Qkey)
        );
        assert_eq!(
            peer.deliver(&datagram(0x55, 1)),
            Step::Dropped(DropReason::NoReceive)
        );
        peer.post(140);
        // The receive is kept for one that fits.
        assert_eq!(
            peer.deliver(&datagram(0x55, 101)),
            Step::Dropped(DropReason::TooLong)
        );
        assert_eq!(
            peer.responder.take_event(),
            Some(ResponderEvent::CommunicationEstablished)
        );
        assert_eq!(peer.responder.take_event(), None);
        peer.deliver(&datagram(0x55, 100));
        // Behind the place for the GRH.
        assert!(matches!(
            peer.actions.last(),
            Some(Action::PlaceReceive {
                offset: 40,
                length: 100,
            })
        ));
        let completion = peer.completions[0];
        assert_eq!(
            (completion.length, completion.immediate),
            (140, Some(0xabcd))
        );
        // Its sender knows how long a datagram may be.
        peer.post(40 + 2 * MTU);
        peer.deliver(&datagram(0x55, 2 * MTU));
        assert_eq!(peer.completions[1].length, 40 + 2 * MTU);
        assert!(peer.responses().is_empty());
    }
}

/// A dropped message completes the receive that the QP took from an SRQ, as other QPs could have had it.
#[test]
fn receives_of_an_srq_are_not_kept() {
    use Opcode::*;
    let end = |peer: &mut Peer, packet: &Packet| match peer.deliver(packet) {
        Step::Complete(completion) => completion.status,
        step => panic!("{step:?}"),
    };
    let mut peer = Peer::new(ResponderConfig {
        service: Type::Ud,
        has_srq: true,
        ..responder_config(Psn::new(0))
    });
    peer.post(140);
    peer.post(140);
    assert_eq!(end(&mut peer, &datagram(0x55, 101)), Status::LocalLength);
    assert!(!peer.has_receive && !peer.responder.has_failed());
    assert_eq!(end(&mut peer, &datagram(0x55, 100)), Status::Success);

    with_psns(|psn| {
        let mut peer = Peer::new(ResponderConfig {
            service: Type::Uc,
            has_srq: true,
            ..responder_config(psn)
        });
        for _ in 0..4 {
            peer.post(300);
        }
        // Too long in its second packet. The rest of the message is dropped.
        peer.deliver(&request(UcSendFirst, psn, MTU));
        let middle = request(UcSendMiddle, psn.add(1), MTU);
        assert_eq!(end(&mut peer, &middle), Status::LocalLength);
        assert_eq!(
            peer.deliver(&request(UcSendLast, psn.add(2), 1)),
            Step::Dropped(DropReason::NoMessage)
        );
        // The second packet is missing.
        peer.deliver(&request(UcSendFirst, psn.add(3), MTU));
        let last = request(UcSendLast, psn.add(5), 1);
        assert_eq!(end(&mut peer, &last), Status::RemoteInvalidRequest);
        // The last one is: the next message takes over.
        peer.deliver(&request(UcSendFirst, psn.add(6), MTU));
        let only = request(UcSendOnly, psn.add(8), 300 - MTU);
        assert_eq!(end(&mut peer, &only), Status::Success);
        // The immediate data of a WRITE that is refused.
        peer.outcome = Outcome::Protection;
        let write = remote(UcWriteOnlyImm, psn.add(9), 1, 0, 1);
        assert_eq!(end(&mut peer, &write), Status::LocalAccess);
        assert!(peer.receives.is_empty() && !peer.has_receive);
        assert_eq!(
            peer.responder.take_event(),
            Some(ResponderEvent::CommunicationEstablished)
        );
        assert_eq!(peer.responder.take_event(), None);
    });
}

#[test]
fn unreliable_connection_drops_broken_messages() {
    use Opcode::*;
    with_psns(|psn| {
        let config = ResponderConfig {
            service: Type::Uc,
            ..responder_config(psn)
        };
        let mut peer = Peer::new(config);
        peer.post(600);
        // The first packet is missing.
        assert_eq!(
            peer.deliver(&request(UcSendMiddle, psn.add(1), MTU)),
            Step::Dropped(DropReason::NoMessage)
        );
        // The second is.
        peer.deliver(&request(UcSendFirst, psn.add(3), MTU));
        assert_eq!(
            peer.deliver(&request(UcSendLast, psn.add(5), 1)),
            Step::Dropped(DropReason::NoMessage)
        );
        // The last is.
        peer.deliver(&request(UcSendFirst, psn.add(6), MTU));
        peer.deliver(&request(UcSendFirst, psn.add(8), MTU));
        peer.deliver(&request(UcSendLast, psn.add(9), 1));
        assert_eq!(peer.completions.len(), 1);
        assert_eq!(peer.completions[0].length, 257);
        // One receive has been enough.
        peer.post(10);
        assert_eq!(
            peer.deliver(&request(UcSendOnly, psn.add(10), 11)),
            Step::Dropped(DropReason::TooLong)
        );
        assert!(matches!(
            peer.deliver(&request(UcSendOnly, psn.add(11), 10)),
            Step::Complete(_)
        ));
        // Errors are nobody's business.
        assert_eq!(
            peer.deliver(&remote(UcWriteOnly, psn.add(12), 1, 0, 2)),
            Step::Dropped(DropReason::Invalid)
        );
        peer.outcome = Outcome::Protection;
        assert_eq!(
            peer.deliver(&remote(UcWriteOnly, psn.add(13), 1, 0, 1)),
            Step::Dropped(DropReason::Invalid)
        );
        assert!(peer.responses().is_empty());
    });
}

#[test]
fn unreliable_connection_parks_in_the_middle_of_a_message() {
    let psn = Psn::new(0);
    let config = ResponderConfig {
        service: Type::Uc,
        ..responder_config(psn)
    };
    let mut peer = Peer::new(config);
    peer.post(600);
    peer.deliver(&request(Opcode::UcSendFirst, psn, MTU));
    peer.outcome = Outcome::Again;
    let last = request(Opcode::UcSendLast, psn.add(1), 1);
    assert_eq!(peer.deliver(&last), Step::Park);
    peer.outcome = Outcome::Done;
    assert!(matches!(peer.deliver(&last), Step::Complete(_)));
}

fn target(psn: Psn) -> Peer {
    Peer::new(ResponderConfig {
        service: Type::XrcTarget,
        ..responder_config(psn)
    })
}

#[test]
fn requests_of_xrc_are_executed_and_answered() {
    use Opcode::*;
    with_psns(|psn| {
        let mut peer = target(psn);
        peer.post(300);
        peer.post(0);
        for (packet, srqn) in [
            (request(RcSendFirst, psn, MTU), 5),
            (request(RcSendLast, psn.add(1), 44), 5),
            (remote(RcWriteOnlyImm, psn.add(2), 1, 0, 1), 6),
            (read_request(psn.add(3), 0, 2 * MTU), 7),
            (atomic_request(psn.add(5), 0), 8),
        ] {
            peer.deliver(&xrc(packet, srqn));
        }
        assert_eq!(peer.completions.len(), 2);
        assert!(peer
            .completions
            .iter()
            .all(|done| done.status == Status::Success));
        // The SRQ has its receives, and no credits are told of.
        let Some(Response::Packet(first)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        assert_eq!((first.opcode, first.psn), (XrcAcknowledge, psn.add(2)));
        assert_eq!(first.aeth.unwrap().syndrome, ACK);
        let burst = peer.poll_read(1);
        assert_eq!(burst.xrc_srqn, Some(U24::new(7)));
        peer.responder.commit_read(burst, Outcome::Again);
        peer.responder.resume();
        let packets = peer.responses();
        assert_eq!(
            outline(&packets, psn),
            [
                (XrcReadResponseFirst, 3),
                (XrcReadResponseLast, 4),
                (XrcAtomicAcknowledge, 5)
            ]
        );
        // An XRC target drops RC's packets. Its RNR NAK has XRC's opcode.
        assert_eq!(
            peer.deliver(&request(RcSendOnly, psn.add(6), 1)),
            Step::Dropped(DropReason::Opcode)
        );
        let send = xrc(request(RcSendOnly, psn.add(6), 1), 5);
        assert_eq!(peer.deliver(&send), Step::Dropped(DropReason::NotReady));
        let answer = peer.responses()[0];
        assert_eq!(answer.opcode, XrcAcknowledge);
        let syndrome = answer.aeth.unwrap().syndrome;
        assert_eq!(syndrome, Syndrome::Rnr { timer: 5 });
    });
}

#[test]
fn message_of_xrc_is_for_one_srq() {
    use Opcode::*;
    with_psns(|psn| {
        for (first, next) in [
            (
                request(RcSendFirst, psn, MTU),
                request(RcSendMiddle, psn, MTU),
            ),
            (request(RcSendFirst, psn, MTU), request(RcSendLast, psn, 1)),
            (
                remote(RcWriteFirst, psn, MTU, 0, 300),
                request(RcWriteLast, psn, 44),
            ),
            (
                remote(RcWriteFirst, psn, MTU, 0, 300),
                request(RcWriteLastImm, psn, 44),
            ),
        ] {
            for srqn in [1, 2] {
                let mut peer = target(psn);
                peer.post(1_000);
                peer.deliver(&xrc(first, 1));
                let mut next = next;
                next.psn = psn.add(1);
                peer.deliver(&xrc(next, srqn));
                if srqn == 1 {
                    assert_eq!(peer.responder.counters().error_naks, 0);
                    continue;
                }
                let event = match first.opcode {
                    // The receive that it was filling ends with it.
                    RcSendFirst => {
                        assert_eq!(peer.completions.len(), 1);
                        assert_eq!(peer.completions[0].status, Status::RemoteInvalidRequest);
                        ResponderEvent::ReceiveError
                    }
                    _ => {
                        assert!(peer.completions.is_empty());
                        ResponderEvent::RequestError
                    }
                };
                let syndrome = Syndrome::Nak(NakCode::InvalidRequest);
                assert_eq!(error(&mut peer), (psn.add(1), syndrome, event));
            }
        }
    });
}

#[test]
fn receive_of_one_srq_is_not_for_another() {
    let psn = Psn::new(0);
    let send = request(Opcode::RcSendOnly, psn, 1);
    for srqn in [1, 2] {
        let mut peer = target(psn);
        peer.post(1);
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&xrc(send, 1)), Step::Park);
        assert!(peer.has_receive);
        peer.outcome = Outcome::Done;
        // The parked one was lost, and is not what it was when it comes again.
        peer.deliver(&xrc(send, srqn));
        assert!(!peer.has_receive);
        assert_eq!(peer.completions.len(), 1);
        let status = peer.completions[0].status;
        if srqn == 1 {
            assert_eq!(status, Status::Success);
        } else {
            assert_eq!(status, Status::RemoteInvalidRequest);
            assert_eq!(error(&mut peer).1, Syndrome::Nak(NakCode::InvalidRequest));
        }
    }
    // The next message has its own.
    let mut peer = target(psn);
    for srqn in [1, 2, 1] {
        peer.post(1);
        let send = request(
            Opcode::RcSendOnly,
            psn.add(peer.completions.len() as u32),
            1,
        );
        peer.deliver(&xrc(send, srqn));
    }
    assert_eq!(peer.completions.len(), 3);
}

#[test]
fn srq_that_there_is_not() {
    use Opcode::*;
    with_psns(|psn| {
        for packet in [
            request(RcSendOnly, psn, 1),
            request(RcSendFirst, psn, MTU),
            remote(RcWriteOnlyImm, psn, 1, 0, 1),
            remote(RcWriteOnly, psn, 1, 0, 1),
            read_request(psn, 0, 1),
            atomic_request(psn, 0),
        ] {
            let mut peer = target(psn);
            peer.receives.push(Receive::Invalid);
            peer.outcome = Outcome::InvalidRequest;
            assert_eq!(peer.deliver(&xrc(packet, 9)), Step::Done);
            assert!(!peer.has_receive && peer.completions.is_empty());
            assert_eq!(
                error(&mut peer),
                (
                    psn,
                    Syndrome::Nak(NakCode::InvalidRequest),
                    ResponderEvent::RequestError
                )
            );
        }
        // It goes in the middle of a message, or before the data of a READ are sent.
        let mut peer = target(psn);
        peer.post(300);
        peer.deliver(&xrc(request(RcSendFirst, psn, MTU), 9));
        peer.outcome = Outcome::InvalidRequest;
        peer.deliver(&xrc(request(RcSendLast, psn.add(1), 44), 9));
        assert_eq!(peer.completions[0].status, Status::RemoteInvalidRequest);
        assert_eq!(
            error(&mut peer),
            (
                psn.add(1),
                Syndrome::Nak(NakCode::InvalidRequest),
                ResponderEvent::ReceiveError
            )
        );
        let mut peer = target(psn);
        peer.deliver(&xrc(read_request(psn, 0, 1), 9));
        let burst = peer.poll_read(1);
        peer.responder.commit_read(burst, Outcome::InvalidRequest);
        assert_eq!(
            error(&mut peer),
            (
                psn,
                Syndrome::Nak(NakCode::InvalidRequest),
                ResponderEvent::RequestError
            )
        );
    });
}

#[test]
fn duplicates_of_xrc() {
    use Opcode::*;
    with_psns(|psn| {
        let mut peer = target(psn);
        let read = read_request(psn, 0, 2 * MTU);
        let atomic = atomic_request(psn.add(2), 0);
        peer.deliver(&xrc(read, 3));
        peer.deliver(&xrc(atomic, 3));
        let answers = peer.responses();
        peer.deliver(&xrc(read, 3));
        let burst = peer.poll_read(2);
        assert!(burst.is_repeated && burst.xrc_srqn == Some(U24::new(3)));
        peer.responder.commit_read(burst, Outcome::Again);
        peer.responder.resume();
        peer.deliver(&xrc(atomic, 3));
        assert_eq!(peer.responses(), answers);
        assert_eq!(peer.value, 1);
        assert_eq!(answers[2].opcode, XrcAtomicAcknowledge);
        // Of another SRQ, it is not what came before.
        assert_eq!(
            peer.deliver(&xrc(read, 4)),
            Step::Dropped(DropReason::Forgotten)
        );
    });
}

#[test]
fn initiators_of_xrc_take_no_requests() {
    let psn = Psn::new(0);
    let mut peer = Peer::new(ResponderConfig {
        service: Type::XrcInitiator,
        ..responder_config(psn)
    });
    peer.post(1);
    let send = request(Opcode::RcSendOnly, psn, 1);
    for packet in [send, xrc(send, 0)] {
        assert_eq!(peer.deliver(&packet), Step::Dropped(DropReason::Opcode));
    }
    assert!(peer.responses().is_empty());
}

#[test]
fn raw_packets_are_no_requests() {
    let psn = Psn::new(77);
    for packet in [
        request(Opcode::RcSendOnly, psn, 1),
        request(Opcode::UcSendOnly, psn, 1),
        xrc(request(Opcode::RcSendOnly, psn, 1), 0),
        datagram(0x55, 1),
    ] {
        let mut peer = Peer::new(ResponderConfig {
            service: Type::RawPacket,
            ..responder_config(psn)
        });
        peer.post(140);
        assert_eq!(peer.deliver(&packet), Step::Dropped(DropReason::Opcode));
    }
}
