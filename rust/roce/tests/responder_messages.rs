// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder: messages, acknowledgements, duplicates.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    packet::{
        NakCode,
        Packet,
        Syndrome, //
    },
    psn::Psn,
    responder::{
        Action,
        ReceiveOperation,
        ResponderEvent,
        Step, //
    },
    status::Status, //
};

#[test]
fn send_of_several_packets() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.post(600);
        peer.deliver(&request(Opcode::RcSendFirst, psn, MTU));
        peer.deliver(&request(Opcode::RcSendMiddle, psn.add(1), MTU));
        assert!(peer.responses().is_empty());
        assert!(peer.has_receive);
        let mut last = request(Opcode::RcSendLastImm, psn.add(2), 88);
        last.solicited = true;
        peer.deliver(&last);
        let offsets: Vec<_> = peer
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::PlaceReceive { offset, length } => Some((*offset, *length)),
                _ => None,
            })
            .collect();
        assert_eq!(offsets, [(0, 256), (256, 256), (512, 88)]);
        let completion = peer.completions[0];
        assert_eq!(completion.status, Status::Success);
        assert_eq!(completion.operation, ReceiveOperation::Send);
        assert_eq!(
            (completion.length, completion.immediate),
            (600, Some(0xabcd))
        );
        assert!(completion.solicited && !peer.has_receive);
        let (at, aeth) = peer.response();
        // No credits are given: 0x1f (IBTA 9.7.7.2).
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(2), ACK, 1));
    });
}

#[test]
fn acknowledgements_coalesce_with_exact_msn() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        for number in 0..5 {
            peer.deliver(&remote(Opcode::RcWriteOnly, psn.add(number), 0, 0, 0));
        }
        let mut first = remote(Opcode::RcWriteFirst, psn.add(5), MTU, 0, 300);
        first.ack_request = true;
        peer.deliver(&first);
        assert!(peer.responder.owes_acknowledgement());
        // The sixth message is not complete.
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.msn), (psn.add(5), 5));
        assert!(!peer.responder.owes_acknowledgement());
        assert!(peer.responses().is_empty());
    });
}

#[test]
fn msn_wraps_around() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    for number in 0..(1 << 24) + 1 {
        peer.responder
            .receive(&remote(Opcode::RcWriteOnly, psn.add(number), 0, 0, 0));
    }
    assert_eq!(peer.response().1.msn, 1);
}

#[test]
fn all_is_acknowledged_before_the_end() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.responder.acknowledge_all();
        assert!(peer.responses().is_empty());
        for number in 0..2 {
            let mut write = remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
            write.ack_request = false;
            peer.deliver(&write);
        }
        assert!(peer.responses().is_empty());
        peer.responder.acknowledge_all();
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.msn), (psn.add(1), 2));
        // Once is enough.
        peer.responder.acknowledge_all();
        assert!(peer.responses().is_empty());
    });
}

#[test]
fn what_many_reads_have_acknowledged_is_not_acknowledged_later() {
    with_psns(|psn| {
        for (psns, is_owed) in [(6 << 20, true), (7 << 20, false), ((1 << 23) - 1, false)] {
            let mut peer = peer(psn);
            let mut write = remote(Opcode::RcWriteOnly, psn, 1, 0, 1);
            write.ack_request = false;
            peer.deliver(&write);
            peer.deliver(&read_request(psn.next(), 0, psns * MTU));
            peer.responder.acknowledge_all();
            assert_eq!(peer.responder.owes_acknowledgement(), is_owed);
        }
    });
}

#[test]
fn no_acknowledgement_unasked() {
    let mut peer = peer(Psn::new(0));
    let mut write = remote(Opcode::RcWriteOnly, Psn::new(0), 1, 0, 1);
    write.ack_request = false;
    assert_eq!(peer.deliver(&write), Step::Done);
    assert!(peer.responses().is_empty());
}

const SEQUENCE_NAK: Syndrome = Syndrome::Nak(NakCode::SequenceError);

/// A WRITE of one byte.
fn write_only(psn: Psn) -> Packet {
    remote(Opcode::RcWriteOnly, psn, 1, 0, 1)
}

#[test]
fn sequence_nak_once_per_gap() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let write = |number| write_only(psn.add(number));
        peer.deliver(&write(0));
        for number in [2, 3, 4] {
            assert_eq!(
                peer.deliver(&write(number)),
                Step::Dropped(DropReason::SequenceGap)
            );
        }
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(1), SEQUENCE_NAK, 1));
        peer.deliver(&write(5));
        assert!(peer.responses().is_empty());
        // The gap is filled; there is another one.
        peer.deliver(&write(1));
        peer.deliver(&write(3));
        let (at, aeth) = peer.response();
        assert_eq!(at, psn.add(2));
        assert_eq!(aeth.syndrome, SEQUENCE_NAK);
    });
}

#[test]
fn sequence_nak_that_has_not_left_asks_for_what_was_dropped() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&write_only(psn.add(1)));
        peer.deliver(&write_only(psn));
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(1), SEQUENCE_NAK, 1));
        // It was told.
        peer.deliver(&write_only(psn.add(2)));
        assert!(peer.responses().is_empty());
        peer.deliver(&write_only(psn.add(1)));
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome), (psn.add(1), ACK));
    });
}

#[test]
fn sequence_nak_is_not_sent_once_all_has_come_again() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let write = |number| write_only(psn.add(number));
        for number in [2, 1, 0, 1, 2] {
            peer.deliver(&write(number));
        }
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(2), ACK, 3));
        // The next gap is another one.
        peer.deliver(&write(4));
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome), (psn.add(3), SEQUENCE_NAK));
    });
}

#[test]
fn rnr_nak_that_has_not_left_asks_for_what_was_dropped() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let send = |number| request(Opcode::RcSendOnly, psn.add(number), 1);
        peer.deliver(&send(0));
        peer.deliver(&send(1));
        peer.post(2);
        peer.deliver(&send(0));
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(1), SEQUENCE_NAK, 1));
    });
}

#[test]
fn sequence_nak_that_has_not_left_asks_for_what_was_dropped_behind_a_read() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&write_only(psn.add(2)));
        peer.deliver(&read_request(psn, 0, 2 * MTU));
        let packets = peer.responses();
        let last = packets
            .last()
            .and_then(|packet| Some((packet.psn, packet.aeth?.syndrome)));
        assert_eq!((packets.len(), last), (3, Some((psn.add(2), SEQUENCE_NAK))));
    });
}

#[test]
fn rnr_nak_and_silence_until_the_retry() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let send = |number| request(Opcode::RcSendOnly, psn.add(number), 1);
        assert_eq!(peer.deliver(&send(0)), Step::Dropped(DropReason::NotReady));
        peer.deliver(&send(1));
        let (at, aeth) = peer.response();
        assert_eq!(
            (at, aeth.syndrome, aeth.msn),
            (psn, Syndrome::Rnr { timer: 5 }, 0)
        );
        peer.post(1);
        assert_eq!(
            peer.deliver(&send(2)),
            Step::Dropped(DropReason::SequenceGap)
        );
        assert!(peer.responses().is_empty());
        assert!(matches!(peer.deliver(&send(0)), Step::Complete(_)));
        assert_eq!(peer.response().1.syndrome, ACK);
        // And now there is a gap again.
        peer.deliver(&send(2));
        assert_eq!(peer.response().1.syndrome, SEQUENCE_NAK);
    });
}

#[test]
fn rnr_nak_at_the_end_of_a_write_with_immediate() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&remote(Opcode::RcWriteFirst, psn, MTU, 0x1000, 300));
        let last = request(Opcode::RcWriteLastImm, psn.add(1), 44);
        peer.deliver(&last);
        let (at, aeth) = peer.response();
        assert_eq!(
            (at, aeth.syndrome),
            (psn.add(1), Syndrome::Rnr { timer: 5 })
        );
        peer.post(0);
        peer.deliver(&last);
        let completion = peer.completions[0];
        assert_eq!(completion.operation, ReceiveOperation::Write);
        assert_eq!(
            (completion.length, completion.immediate),
            (300, Some(0xabcd))
        );
    });
}

#[test]
fn write_checks_the_whole_message_first() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    peer.deliver(&remote(Opcode::RcWriteFirst, psn, MTU, 0x1000, 600));
    peer.deliver(&request(Opcode::RcWriteMiddle, psn.add(1), MTU));
    peer.deliver(&request(Opcode::RcWriteLast, psn.add(2), 88));
    let places: Vec<_> = peer
        .actions
        .iter()
        .filter_map(|action| match *action {
            Action::PlaceRemote {
                rkey,
                va,
                length,
                check_length,
            } => Some((rkey, va, length, check_length)),
            _ => None,
        })
        .collect();
    assert_eq!(
        places,
        [
            (0x77, 0x1000, 256, 600),
            (0x77, 0x1100, 256, 256),
            (0x77, 0x1200, 88, 88),
        ]
    );
}

#[test]
fn duplicate_sends_and_writes_are_acknowledged_again() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.post(9);
        let send = request(Opcode::RcSendOnly, psn, 9);
        let write = remote(Opcode::RcWriteOnly, psn.add(1), 1, 0, 1);
        peer.deliver(&send);
        peer.deliver(&write);
        peer.deliver(&read_request(psn.add(2), 0, 1));
        assert_eq!(peer.responses().len(), 2);
        peer.actions.clear();
        assert_eq!(peer.deliver(&send), Step::Done);
        assert_eq!(peer.deliver(&write), Step::Done);
        assert!(peer.actions.is_empty());
        // The newest SEND or WRITE, never the READ.
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(1), ACK, 2));
        assert_eq!(peer.responder.counters().duplicates, 2);
    });
}

#[test]
fn opcode_sequence() {
    use Opcode::*;
    let starts = [RcSendFirst, RcWriteFirst];
    let in_send = [
        RcSendMiddle,
        RcSendLast,
        RcSendLastImm,
        RcSendLastInvalidate,
    ];
    let in_write = [RcWriteMiddle, RcWriteLast, RcWriteLastImm];
    let packet = |opcode: Opcode, psn| {
        let len = if opcode.ends_message() { 44 } else { MTU };
        match opcode {
            RcWriteFirst => remote(opcode, psn, len, 0, 300),
            RcWriteMiddle => request(opcode, psn, len),
            RcWriteOnly | RcWriteOnlyImm => remote(opcode, psn, len, 0, len),
            RcReadRequest => read_request(psn, 0, 9),
            RcFetchAdd => atomic_request(psn, 0),
            _ => request(opcode, psn, len),
        }
    };
    with_psns(|psn| {
        for start in [None, Some(RcSendFirst), Some(RcWriteFirst)] {
            let nexts = [RcSendOnly, RcWriteOnly, RcReadRequest, RcFetchAdd];
            let nexts = nexts
                .into_iter()
                .chain(starts)
                .chain(in_send)
                .chain(in_write);
            for next in nexts {
                let mut peer = peer(psn);
                for _ in 0..3 {
                    peer.post(1_000);
                }
                let mut at = psn;
                if let Some(start) = start {
                    peer.deliver(&packet(start, at));
                    at = at.next();
                }
                peer.deliver(&packet(next, at));
                let is_valid = match start {
                    None => next.starts_message(),
                    Some(RcSendFirst) => in_send.contains(&next),
                    // A middle packet would leave nothing for the last.
                    Some(_) => in_write.contains(&next) && next != RcWriteMiddle,
                };
                if is_valid {
                    assert_eq!(peer.responder.counters().error_naks, 0);
                    let event = peer.responder.take_event();
                    assert_eq!(event, Some(ResponderEvent::CommunicationEstablished));
                } else {
                    // The receive that the SEND was filling ends with it.
                    let fills_receive = start == Some(RcSendFirst);
                    let event = match fills_receive {
                        true => ResponderEvent::ReceiveError,
                        false => ResponderEvent::RequestError,
                    };
                    assert_eq!(
                        error(&mut peer),
                        (at, Syndrome::Nak(NakCode::InvalidRequest), event),
                        "{next:?} after {start:?}"
                    );
                    let completed: Vec<_> =
                        peer.completions.iter().map(|done| done.status).collect();
                    let expected = fills_receive.then_some(Status::RemoteInvalidRequest);
                    assert_eq!(completed, Vec::from_iter(expected));
                    assert!(!peer.has_receive);
                }
            }
        }
    });
}

#[test]
fn lengths_that_cannot_be() {
    use Opcode::*;
    with_psns(|psn| {
        let next = psn.add(1);
        let send_first = request(RcSendFirst, psn, MTU);
        let write_first = remote(RcWriteFirst, psn, MTU, 0, 600);
        for packets in [
            vec![request(RcSendFirst, psn, MTU - 1)],
            vec![request(RcSendFirst, psn, 0)],
            vec![request(RcSendOnly, psn, MTU + 1)],
            vec![send_first, request(RcSendMiddle, next, MTU - 1)],
            vec![send_first, request(RcSendLast, next, 0)],
            vec![send_first, request(RcSendLast, next, MTU + 1)],
            vec![remote(RcWriteOnly, psn, 1, 0, 2)],
            vec![remote(RcWriteOnly, psn, 2, 0, 1)],
            vec![remote(RcWriteFirst, psn, MTU, 0, MTU)],
            vec![remote(RcWriteFirst, psn, MTU, 0, (1 << 31) + 1)],
            vec![remote(RcWriteFirst, psn, MTU, 0, u32::MAX)],
            vec![write_first, request(RcWriteLast, next, 100)],
            vec![
                write_first,
                request(RcWriteMiddle, next, MTU),
                request(RcWriteMiddle, psn.add(2), MTU),
            ],
            vec![read_request(psn, 0, (1 << 31) + 1)],
            vec![atomic_request(psn, 4)],
            vec![atomic_write_request(psn, 4)],
            vec![remote(RcAtomicWrite, psn, 8, 0, 7)],
            vec![remote(RcAtomicWrite, psn, 8, 0, 16)],
            vec![flush_request(psn, 0, 0, 0, 8)],
            vec![flush_request(psn, 4, 0, 0, 8)],
            vec![flush_request(psn, 9, 0, 0, 8)],
            vec![flush_request(psn, 1, 2, 0, 8)],
            vec![flush_request(psn, 1, 3, 0, 8)],
        ] {
            let mut peer = peer(psn);
            peer.post(10_000);
            for packet in &packets {
                peer.deliver(packet);
            }
            let (at, syndrome, event) = error(&mut peer);
            let last = packets.last().unwrap();
            let expected = match packets[0].opcode {
                RcSendFirst if packets.len() > 1 => ResponderEvent::ReceiveError,
                _ => ResponderEvent::RequestError,
            };
            assert_eq!(
                (at, syndrome, event),
                (last.psn, Syndrome::Nak(NakCode::InvalidRequest), expected),
                "{last:?}"
            );
        }
    });
}

#[test]
fn send_that_is_too_long_for_its_receive() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.post(300);
        peer.deliver(&request(Opcode::RcSendFirst, psn, MTU));
        peer.deliver(&request(Opcode::RcSendLast, psn.add(1), 45));
        assert_eq!(peer.completions[0].status, Status::LocalLength);
        assert!(!peer.has_receive);
        assert_eq!(
            error(&mut peer),
            (
                psn.add(1),
                Syndrome::Nak(NakCode::InvalidRequest),
                ResponderEvent::ReceiveError
            )
        );
    });
}
