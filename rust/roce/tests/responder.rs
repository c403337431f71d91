// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder, one point of the protocol at a time.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    packet::{
        Deth,
        NakCode,
        Packet,
        Syndrome, //
    },
    psn::Psn,
    qp::Type,
    responder::{
        Arrival,
        Receive,
        ReceiveOperation,
        RemoteAccess,
        Resource,
        ResponderConfig,
        ResponderEvent,
        Response,
        Step, //
    },
    status::Status,
    ticket::Outcome,
    wire::U24, //
};

const ACK: Syndrome = Syndrome::Ack { credits: 0x1f };

fn peer(psn: Psn) -> Peer {
    Peer::new(responder_config(psn))
}

/// The error that a peer has answered with, and gone into the error state for.
fn error(peer: &mut Peer) -> (Psn, Syndrome, ResponderEvent) {
    // Not before the NAK is on its way.
    let mut event = peer.responder.take_event();
    if event == Some(ResponderEvent::CommunicationEstablished) {
        event = peer.responder.take_event();
    }
    assert_eq!(event, None);
    let responses = peer.responses();
    let last = responses.last().unwrap();
    let event = peer.responder.take_event().unwrap();
    assert!(event.is_error());
    assert_eq!(peer.responder.take_event(), None);
    assert_eq!(
        peer.responder.receive(last),
        Step::Dropped(DropReason::State)
    );
    (last.psn, last.aeth.unwrap().syndrome, event)
}

#[test]
fn send_of_several_packets() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.post(600);
        peer.deliver(&request(Opcode::RcSendFirst, psn, MTU));
        peer.deliver(&request(Opcode::RcSendMiddle, psn.add(1), MTU));
        assert!(peer.responses().is_empty());
        assert!(peer.responder.has_receive());
        let mut last = request(Opcode::RcSendLastImm, psn.add(2), 88);
        last.solicited = true;
        peer.deliver(&last);
        let offsets: Vec<_> = peer
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::PlaceReceive { offset, length, .. } => Some((*offset, *length)),
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
        assert!(completion.solicited && !peer.responder.has_receive());
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

#[test]
fn sequence_nak_once_per_gap() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let write = |number| remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
        peer.deliver(&write(0));
        for number in [2, 3, 4] {
            assert_eq!(
                peer.deliver(&write(number)),
                Step::Dropped(DropReason::SequenceGap)
            );
        }
        let (at, aeth) = peer.response();
        assert_eq!(
            (at, aeth.syndrome, aeth.msn),
            (psn.add(1), Syndrome::Nak(NakCode::SequenceError), 1)
        );
        peer.deliver(&write(5));
        assert!(peer.responses().is_empty());
        // The gap is filled; there is another one.
        peer.deliver(&write(1));
        peer.deliver(&write(3));
        let (at, aeth) = peer.response();
        assert_eq!(at, psn.add(2));
        assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::SequenceError));
    });
}

#[test]
fn sequence_nak_that_is_settled_is_not_sent() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&remote(Opcode::RcWriteOnly, psn.add(1), 1, 0, 1));
        peer.deliver(&remote(Opcode::RcWriteOnly, psn, 1, 0, 1));
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome), (psn, ACK));
    });
}

#[test]
fn rnr_nak_and_silence_until_the_retry() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let send = |number| request(Opcode::RcSendOnly, psn.add(number), 1);
        assert_eq!(peer.deliver(&send(0)), Step::Dropped(DropReason::NoReceive));
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
        assert_eq!(
            peer.response().1.syndrome,
            Syndrome::Nak(NakCode::SequenceError)
        );
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
        .steps
        .iter()
        .filter_map(|step| match *step {
            Step::PlaceRemote {
                rkey,
                va,
                length,
                check_va,
                check_length,
                ..
            } => Some((rkey, va, length, check_va, check_length)),
            _ => None,
        })
        .collect();
    assert_eq!(
        places,
        [
            (0x77, 0x1000, 256, 0x1000, 600),
            (0x77, 0x1100, 256, 0x1100, 256),
            (0x77, 0x1200, 88, 0x1200, 88),
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
        peer.steps.clear();
        assert_eq!(peer.deliver(&send), Step::Done);
        assert_eq!(peer.deliver(&write), Step::Done);
        assert_eq!(peer.steps, [Step::Done, Step::Done]);
        // The newest SEND or WRITE, never the READ.
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(1), ACK, 2));
        assert_eq!(peer.responder.counters().duplicates, 2);
    });
}

#[test]
fn duplicate_read_is_executed_again_in_any_part() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&read_request(psn, 0x1000, 5 * MTU + 3));
        assert_eq!(peer.responses().len(), 6);
        // From the middle to the end.
        let again = read_request(psn.add(2), 0x1200, 3 * MTU + 3);
        assert_eq!(peer.deliver(&again), Step::Done);
        let Some(Response::Read(burst)) = peer.responder.poll_response(1000) else {
            panic!("no response");
        };
        assert_eq!(
            (burst.rkey, burst.va, burst.length, burst.packets),
            (0x77, 0x1200, 3 * MTU + 3, 4)
        );
        peer.responder.commit_read(burst.ticket, Outcome::Again);
        peer.responder.resume();
        let packets = peer.responses();
        use Opcode::*;
        assert_eq!(
            outline(&packets, psn),
            [
                (RcReadResponseFirst, 2),
                (RcReadResponseMiddle, 3),
                (RcReadResponseMiddle, 4),
                (RcReadResponseLast, 5),
            ]
        );
        assert_eq!(packets[0].aeth.unwrap().msn, 1);
        // A piece in the middle.
        peer.deliver(&read_request(psn.add(1), 0x1100, 2 * MTU));
        assert_eq!(
            outline(&peer.responses(), psn),
            [(RcReadResponseFirst, 1), (RcReadResponseLast, 2)]
        );
        // What it never was.
        let forgotten = Step::Dropped(DropReason::Forgotten);
        for wrong in [
            read_request(psn.add(1), 0x1000, MTU),
            read_request(psn.add(2), 0x1200, 3 * MTU + 4),
            read_request(psn.add(2), 0x1200, 1 << 31),
            read_request(psn.add(5), 0x1500, 0),
            atomic_request(psn.add(2), 0x1000),
        ] {
            assert_eq!(peer.deliver(&wrong), forgotten);
        }
        assert!(peer.responses().is_empty());
        assert_eq!(peer.deliver(&read_request(psn.sub(1), 0, 1)), forgotten);
    });
}

#[test]
fn what_is_still_to_be_sent() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        assert!(!peer.responder.has_unsent(1));
        peer.deliver(&read_request(psn, 0x1000, 2 * MTU + 88));
        peer.deliver(&read_request(psn.add(3), 0x2000, 300));
        peer.deliver(&atomic_request(psn.add(5), 0x3000));
        let all = 2 * MTU + 88 + 300;
        assert!(peer.responder.has_unsent(all) && !peer.responder.has_unsent(all + 1));
        let Some(Response::Read(burst)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        peer.responder.commit_read(burst.ticket, Outcome::Done);
        let rest = all - MTU;
        assert!(peer.responder.has_unsent(rest) && !peer.responder.has_unsent(rest + 1));
        peer.responses();
        assert!(!peer.responder.has_unsent(1));
    });
}

#[test]
fn duplicate_read_restarts_the_one_under_way() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&read_request(psn, 0x1000, 4 * MTU));
        let Some(Response::Read(burst)) = peer.responder.poll_response(2) else {
            panic!("no response");
        };
        peer.deliver(&read_request(psn.add(1), 0x1100, 3 * MTU));
        // It is not wanted any more, and says nothing of the one that is.
        assert_eq!(peer.responder.read_packet(&burst, 0), None);
        peer.responder.commit_read(burst.ticket, Outcome::Done);
        let packets = peer.responses();
        assert_eq!(packets.len(), 3);
        assert_eq!(packets[0].psn, psn.add(1));
        assert_eq!(packets[0].opcode, Opcode::RcReadResponseFirst);
    });
}

#[test]
fn duplicate_read_leaves_later_ones_due() {
    with_psns(|psn| {
        use Opcode::*;
        let mut peer = peer(psn);
        let first = read_request(psn, 0x1000, 2 * MTU);
        let second = read_request(psn.add(2), 0x2000, 3 * MTU);
        peer.deliver(&first);
        peer.deliver(&second);
        for packets in [2, 1] {
            let Some(Response::Read(burst)) = peer.responder.poll_response(packets) else {
                panic!("no response");
            };
            peer.responder.commit_read(burst.ticket, Outcome::Done);
        }
        // A duplicate of the network's: what has not been sent of the second is still sent.
        peer.deliver(&first);
        let answers = [(RcReadResponseFirst, 0), (RcReadResponseLast, 1)];
        let rest = [(RcReadResponseMiddle, 3), (RcReadResponseLast, 4)];
        assert_eq!(
            outline(&peer.responses(), psn),
            [&answers[..], &rest[..]].concat()
        );
        // A peer that has gone back: each is answered once.
        peer.deliver(&first);
        peer.deliver(&second);
        let second = [
            (RcReadResponseFirst, 2),
            (RcReadResponseMiddle, 3),
            (RcReadResponseLast, 4),
        ];
        assert_eq!(
            outline(&peer.responses(), psn),
            [&answers[..], &second[..]].concat()
        );
    });
}

#[test]
fn duplicate_read_checks_the_key_again() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let read = read_request(psn, 0x1000, 2 * MTU);
        peer.deliver(&read);
        peer.responses();
        // Answered once: the key may be gone because all is well. Nobody is disturbed.
        peer.deliver(&read);
        let Some(Response::Read(burst)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        peer.responder
            .commit_read(burst.ticket, Outcome::Protection);
        assert!(peer.responses().is_empty());
        assert_eq!(
            peer.responder.take_event(),
            Some(ResponderEvent::CommunicationEstablished)
        );
        assert_eq!(peer.responder.take_event(), None);
    });
}

#[test]
fn key_that_goes_in_the_middle_of_a_read() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&read_request(psn, 0x1000, 4 * MTU));
        peer.deliver(&read_request(psn.add(4), 0x1000, 4 * MTU));
        let Some(Response::Read(burst)) = peer.responder.poll_response(2) else {
            panic!("no response");
        };
        peer.responder.commit_read(burst.ticket, Outcome::Done);
        let Some(Response::Read(burst)) = peer.responder.poll_response(2) else {
            panic!("no response");
        };
        peer.responder
            .commit_read(burst.ticket, Outcome::Protection);
        assert_eq!(
            error(&mut peer),
            (
                psn.add(2),
                Syndrome::Nak(NakCode::RemoteAccess),
                ResponderEvent::AccessError
            )
        );
    });
}

#[test]
fn duplicate_atomic_is_answered_from_memory() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.value = 40;
        let mut values = Vec::new();
        for number in 0..5 {
            peer.deliver(&atomic_request(psn.add(number), 0x1000));
            values.extend(peer.responses().iter().map(|packet| packet.atomic_ack));
        }
        assert_eq!(values, [40, 41, 42, 43, 44].map(Some));
        assert_eq!(peer.value, 45);
        // The first has made room for the fifth.
        assert_eq!(
            peer.deliver(&atomic_request(psn, 0x1000)),
            Step::Dropped(DropReason::Forgotten)
        );
        for number in 1..5 {
            let atomic = atomic_request(psn.add(number), 0x1000);
            assert_eq!(peer.deliver(&atomic), Step::Done);
            let packets = peer.responses();
            assert_eq!(packets.len(), 1);
            assert_eq!(packets[0].psn, psn.add(number));
            assert_eq!(packets[0].atomic_ack, Some(40 + u64::from(number)));
            assert_eq!(packets[0].aeth.unwrap().msn, number + 1);
        }
        assert_eq!(peer.value, 45);
    });
}

#[test]
fn more_reads_than_resources() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        for number in 0..4 {
            peer.deliver(&read_request(psn.add(number), 0, 1));
        }
        peer.deliver(&read_request(psn.add(4), 0, 1));
        assert_eq!(
            error(&mut peer),
            (
                psn.add(4),
                Syndrome::Nak(NakCode::InvalidRequest),
                ResponderEvent::RequestError
            )
        );
    });
}

#[test]
fn resources_under_repetition_are_free() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        for number in 0..4 {
            peer.deliver(&read_request(psn.add(number), 0, 1));
        }
        peer.responses();
        // The peer has the answer of the first and asks for a fifth, when the network delivers the
        // first request once more.
        for number in [0, 1, 2, 3] {
            peer.deliver(&read_request(psn.add(number), 0, 1));
        }
        assert_eq!(peer.deliver(&read_request(psn.add(4), 0, 1)), Step::Done);
        assert_eq!(peer.responses().last().unwrap().psn, psn.add(4));
    });
}

#[test]
fn no_resources_at_all() {
    let mut peer = peer(Psn::new(0));
    peer.responder.replace_storage(Vec::new());
    peer.deliver(&read_request(Psn::new(0), 0, 1));
    assert_eq!(error(&mut peer).1, Syndrome::Nak(NakCode::InvalidRequest));
}

#[test]
fn resources_move_to_new_storage() {
    with_psns(|psn| {
        for (len, kept) in [(2, 2), (4, 4), (9, 4)] {
            let mut peer = peer(psn);
            for number in 0..6 {
                peer.deliver(&atomic_request(psn.add(number), 0));
                peer.responses();
            }
            peer.responder
                .replace_storage(vec![Resource::default(); len]);
            for number in 0..6 {
                let step = peer.deliver(&atomic_request(psn.add(number), 0));
                assert_eq!(step == Step::Done, number >= 6 - kept);
            }
            assert_eq!(peer.responses().len(), kept as usize);
            peer.deliver(&atomic_request(psn.add(6), 0));
            assert_eq!(peer.responses().len(), 1);
        }
    });
}

#[test]
fn responses_leave_in_order() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let write = |number| remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
        peer.deliver(&write(0));
        peer.deliver(&write(1));
        peer.deliver(&read_request(psn.add(2), 0, 2 * MTU));
        // It need not wait for the data of the READ.
        let mut packets = Vec::new();
        if let Some(Response::Packet(packet)) = peer.responder.poll_response(1) {
            packets.push(packet);
        }
        peer.deliver(&atomic_request(psn.add(4), 0));
        peer.deliver(&write(5));
        peer.deliver(&write(6));
        packets.extend(peer.responses());
        use Opcode::*;
        assert_eq!(
            outline(&packets, psn),
            [
                (RcAcknowledge, 1),
                (RcReadResponseFirst, 2),
                (RcReadResponseLast, 3),
                (RcAtomicAcknowledge, 4),
                (RcAcknowledge, 6),
            ]
        );
        let msns: Vec<_> = packets
            .iter()
            .map(|packet| packet.aeth.unwrap().msn)
            .collect();
        assert_eq!(msns, [2, 3, 3, 4, 6]);
    });
}

#[test]
fn acknowledgement_waits_for_a_parked_read() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&read_request(psn, 0, 2 * MTU));
        peer.deliver(&remote(Opcode::RcWriteOnly, psn.add(2), 1, 0, 1));
        let Some(Response::Read(burst)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        assert_eq!(burst.packets, 1);
        assert_eq!(peer.responder.poll_response(1), None);
        peer.responder.commit_read(burst.ticket, Outcome::Again);
        assert!(peer.responder.is_parked());
        assert_eq!(peer.responder.poll_response(1), None);
        peer.responder.resume();
        assert_eq!(peer.responses().len(), 3);
    });
}

#[test]
fn read_responses_in_bursts() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let length = 300 * MTU - 1;
        peer.deliver(&read_request(psn, 0xffff_ffff_ffff_f000, length));
        let mut offset = 0;
        let mut number = 0;
        while let Some(Response::Read(burst)) = peer.responder.poll_response(u32::MAX) {
            assert!(burst.length <= 65_536);
            assert_eq!(
                burst.va,
                0xffff_ffff_ffff_f000u64.wrapping_add(u64::from(offset))
            );
            for index in 0..burst.packets {
                let (packet, at, len) = peer.responder.read_packet(&burst, index).unwrap();
                assert_eq!(packet.psn, psn.add(number));
                assert_eq!((at, len), (index * MTU, packet.payload_len));
                number += 1;
                let mut buffer = [0; roce::packet::MAX_HEADER_LEN];
                assert!(packet.emit(&mut buffer).is_some());
            }
            assert_eq!(peer.responder.read_packet(&burst, burst.packets), None);
            offset += burst.length;
            peer.responder.commit_read(burst.ticket, Outcome::Done);
        }
        assert_eq!((offset, number), (length, 300));
    });
}

#[test]
fn read_of_no_bytes_needs_no_key() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.outcome = Outcome::Protection;
        assert_eq!(peer.deliver(&read_request(psn, 0, 0)), Step::Done);
        assert_eq!(peer.steps.len(), 1);
        let packets = peer.responses();
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadResponseOnly, 0)]);
        let write = remote(Opcode::RcWriteOnly, psn.add(1), 0, 0, 0);
        assert_eq!(peer.deliver(&write), Step::Done);
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
                    assert_eq!(
                        error(&mut peer),
                        (
                            at,
                            Syndrome::Nak(NakCode::InvalidRequest),
                            ResponderEvent::RequestError
                        ),
                        "{next:?} after {start:?}"
                    );
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
            assert_eq!(
                (at, syndrome, event),
                (
                    last.psn,
                    Syndrome::Nak(NakCode::InvalidRequest),
                    ResponderEvent::RequestError
                ),
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
        assert!(!peer.responder.has_receive());
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

#[test]
fn access_flags_of_the_queue_pair() {
    with_psns(|psn| {
        let all = responder_config(psn).access;
        for (packet, access) in [
            (
                remote(Opcode::RcWriteOnly, psn, 1, 0, 1),
                RemoteAccess {
                    write: false,
                    ..all
                },
            ),
            (read_request(psn, 0, 1), RemoteAccess { read: false, ..all }),
            (
                atomic_request(psn, 0),
                RemoteAccess {
                    atomic: false,
                    ..all
                },
            ),
            (
                atomic_write_request(psn, 0),
                RemoteAccess {
                    write: false,
                    ..all
                },
            ),
        ] {
            let mut peer = peer(psn);
            peer.responder.set_access(access);
            peer.deliver(&packet);
            let (_, syndrome, event) = error(&mut peer);
            assert_eq!(syndrome, Syndrome::Nak(NakCode::InvalidRequest));
            assert_eq!(event, ResponderEvent::RequestError);
        }
    });
}

#[test]
fn flush_needs_the_right_of_each_placement() {
    let psn = Psn::new(0);
    for rights in 0..4u8 {
        for placement in 1..4u8 {
            let mut peer = peer(psn);
            peer.responder.set_access(RemoteAccess {
                flush_global: rights & 1 != 0,
                flush_persistent: rights & 2 != 0,
                ..RemoteAccess::default()
            });
            peer.deliver(&flush_request(psn, placement, 1, 0, 0));
            if placement & !rights == 0 {
                assert_eq!(peer.response().1.syndrome, ACK);
            } else {
                assert_eq!(error(&mut peer).1, Syndrome::Nak(NakCode::InvalidRequest));
                assert!(!peer
                    .steps
                    .iter()
                    .any(|step| matches!(step, Step::Flush { .. })));
            }
        }
    }
}

#[test]
fn atomic_write_and_flush_are_answered_by_empty_read_responses() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&remote(Opcode::RcWriteOnly, psn, 1, 0, 1));
        peer.deliver(&flush_request(psn.add(1), 3, 0, 0x1001, 300));
        peer.deliver(&atomic_write_request(psn.add(2), 0x1008));
        peer.deliver(&flush_request(psn.add(3), 1, 1, u64::MAX, u32::MAX));
        peer.deliver(&flush_request(psn.add(4), 2, 0, 0, 0));
        let done: Vec<_> = peer
            .steps
            .iter()
            .filter_map(|step| match *step {
                Step::Flush {
                    rkey,
                    flush,
                    va,
                    length,
                    ..
                } => Some((rkey, flush.placement, flush.is_region(), va, length)),
                Step::AtomicWrite { rkey, va, .. } => Some((rkey, 0, false, va, 8)),
                _ => None,
            })
            .collect();
        assert_eq!(
            done,
            [
                (0x77, 3, false, 0x1001, 300),
                (0x77, 0, false, 0x1008, 8),
                (0x77, 1, true, u64::MAX, u32::MAX),
                (0x77, 2, false, 0, 0),
            ]
        );
        // What was before the first is acknowledged by its response, but was asked for.
        let packets = peer.responses();
        let only = Opcode::RcReadResponseOnly;
        assert_eq!(
            outline(&packets, psn),
            [
                (Opcode::RcAcknowledge, 0),
                (only, 1),
                (only, 2),
                (only, 3),
                (only, 4)
            ]
        );
        for (packet, msn) in packets.iter().zip(1..) {
            assert_eq!(packet.payload_len, 0);
            assert_eq!(packet.dest_qpn, 0x11);
            let aeth = packet.aeth.unwrap();
            assert_eq!((aeth.syndrome, aeth.msn), (ACK, msn));
        }
    });
}

#[test]
fn duplicate_atomic_write_and_flush_are_answered_but_not_executed() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let flush = |number| flush_request(psn.add(number), 1, 0, 0, 8);
        let write = |number| atomic_write_request(psn.add(number), 0);
        for number in 0..3 {
            peer.deliver(&write(2 * number));
            peer.deliver(&flush(2 * number + 1));
            assert_eq!(peer.responses().len(), 2);
        }
        peer.steps.clear();
        // The first two have made room for the last.
        let forgotten = Step::Dropped(DropReason::Forgotten);
        assert_eq!(peer.deliver(&write(0)), forgotten);
        assert_eq!(peer.deliver(&flush(1)), forgotten);
        // Something else with that PSN was never asked for.
        assert_eq!(peer.deliver(&flush(2)), forgotten);
        assert_eq!(peer.deliver(&write(3)), forgotten);
        assert_eq!(peer.deliver(&atomic_request(psn.add(2), 0)), forgotten);
        assert_eq!(peer.deliver(&read_request(psn.add(3), 0, 8)), forgotten);
        assert!(peer.responses().is_empty());
        for (packet, number) in [(write(2), 2), (flush(3), 3), (write(4), 4), (flush(5), 5)] {
            for _ in 0..2 {
                assert_eq!(peer.deliver(&packet), Step::Done);
                let packets = peer.responses();
                let expected = (Opcode::RcReadResponseOnly, number);
                assert_eq!(outline(&packets, psn), [expected]);
                assert_eq!(packets[0].aeth.unwrap().msn, number as u32 + 1);
            }
        }
        assert!(peer
            .steps
            .iter()
            .all(|step| matches!(step, Step::Done | Step::Dropped(_))));
        // It goes on behind them.
        assert_eq!(peer.deliver(&write(6)), Step::Done);
        assert_eq!(peer.response().0, psn.add(6));
    });
}

#[test]
fn more_flushes_and_atomic_writes_than_resources() {
    let psn = Psn::new(0);
    for last in [
        flush_request(psn.add(4), 1, 0, 0, 8),
        atomic_write_request(psn.add(4), 0),
        read_request(psn.add(4), 0, 8),
    ] {
        let mut peer = peer(psn);
        for number in 0..4 {
            peer.deliver(&flush_request(psn.add(number), 1, 0, 0, 8));
        }
        peer.deliver(&last);
        let (at, syndrome, _) = error(&mut peer);
        assert_eq!(
            (at, syndrome),
            (psn.add(4), Syndrome::Nak(NakCode::InvalidRequest))
        );
    }
}

#[test]
fn again_parks_an_atomic_write_and_a_flush() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        for (number, packet) in [
            (0, atomic_write_request(psn, 0)),
            (1, flush_request(psn.add(1), 1, 0, 0, 8)),
        ] {
            peer.outcome = Outcome::Again;
            assert_eq!(peer.deliver(&packet), Step::Park);
            assert!(peer.responses().is_empty());
            peer.outcome = Outcome::Done;
            assert_eq!(peer.deliver(&packet), Step::Done);
            assert_eq!(peer.response().0, psn.add(number));
        }
    });
}

#[test]
fn faults_become_naks_and_events() {
    use Opcode::*;
    with_psns(|psn| {
        for (packet, outcome, code, event, completion) in [
            (
                remote(RcWriteOnly, psn, 1, 0, 1),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::AccessError,
                None,
            ),
            (
                remote(RcWriteOnly, psn, 1, 0, 1),
                Outcome::Operational,
                NakCode::RemoteOperational,
                ResponderEvent::Fatal,
                None,
            ),
            (
                remote(RcWriteOnlyImm, psn, 1, 0, 1),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::ReceiveError,
                Some(Status::LocalAccess),
            ),
            (
                read_request(psn, 0, 1),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::AccessError,
                None,
            ),
            (
                atomic_request(psn, 0),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::AccessError,
                None,
            ),
            (
                atomic_write_request(psn, 0),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::AccessError,
                None,
            ),
            (
                atomic_write_request(psn, 0),
                Outcome::Operational,
                NakCode::RemoteOperational,
                ResponderEvent::Fatal,
                None,
            ),
            (
                flush_request(psn, 2, 1, 0, 0),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::AccessError,
                None,
            ),
            (
                request(RcSendOnly, psn, 1),
                Outcome::Protection,
                NakCode::RemoteOperational,
                ResponderEvent::ReceiveError,
                Some(Status::LocalProtection),
            ),
            (
                request(RcSendOnlyInvalidate, psn, 0),
                Outcome::Protection,
                NakCode::RemoteAccess,
                ResponderEvent::ReceiveError,
                Some(Status::RemoteInvalidRequest),
            ),
        ] {
            let mut peer = peer(psn);
            peer.post(100);
            peer.outcome = outcome;
            peer.deliver(&packet);
            let statuses: Vec<_> = peer.completions.iter().map(|done| done.status).collect();
            assert_eq!(statuses, Vec::from_iter(completion));
            assert_eq!(error(&mut peer), (psn, Syndrome::Nak(code), event));
        }
    });
}

#[test]
fn malformed_receive() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    peer.receives.push(Receive::Malformed);
    peer.deliver(&request(Opcode::RcSendOnly, psn, 1));
    assert_eq!(peer.completions[0].status, Status::LocalQpOperation);
    assert_eq!(
        error(&mut peer),
        (
            psn,
            Syndrome::Nak(NakCode::RemoteOperational),
            ResponderEvent::ReceiveError
        )
    );
}

#[test]
fn error_waits_for_the_responses_before() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&read_request(psn, 0, 3 * MTU));
        peer.deliver(&remote(Opcode::RcWriteOnly, psn.add(3), 1, 0, 2));
        let Some(Response::Read(burst)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        peer.responder.commit_read(burst.ticket, Outcome::Done);
        peer.responder.take_event();
        assert_eq!(peer.responder.take_event(), None);
        let packets = peer.responses();
        assert_eq!(packets.len(), 3);
        assert_eq!(packets[2].psn, psn.add(3));
        assert_eq!(
            peer.responder.take_event(),
            Some(ResponderEvent::RequestError)
        );
    });
}

#[test]
fn invalidation_follows_the_data() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    peer.post(1);
    peer.deliver(&request(Opcode::RcSendOnlyInvalidate, psn, 1));
    assert!(matches!(
        peer.steps[..],
        [
            Step::TakeReceive { .. },
            Step::PlaceReceive { .. },
            Step::Invalidate { rkey: 0xdead, .. },
            Step::Complete(_)
        ]
    ));
    assert_eq!(peer.completions[0].invalidated_rkey, Some(0xdead));
}

#[test]
fn again_parks_the_packet_and_keeps_the_receive() {
    use Opcode::*;
    with_psns(|psn| {
        for packet in [
            request(RcSendOnly, psn, 1),
            request(RcSendOnlyInvalidate, psn, 0),
            remote(RcWriteOnlyImm, psn, 1, 0, 1),
            read_request(psn, 0, 1),
            atomic_request(psn, 0),
        ] {
            let mut peer = peer(psn);
            peer.post(1);
            peer.outcome = Outcome::Again;
            for _ in 0..3 {
                assert_eq!(peer.deliver(&packet), Step::Park);
            }
            assert!(peer.responses().is_empty());
            peer.outcome = Outcome::Done;
            assert!(matches!(
                peer.deliver(&packet),
                Step::Done | Step::Complete(_)
            ));
            let takes = peer
                .steps
                .iter()
                .filter(|step| matches!(step, Step::TakeReceive { .. }));
            assert!(takes.count() <= 1);
            assert_eq!(peer.responses().len(), 1);
        }
    });
}

#[test]
fn peer_that_repeats_what_waits_is_told_to_be_patient() {
    let rnr = |timer| Syndrome::Rnr { timer };
    with_psns(|psn| {
        let write = |number| remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
        let mut peer = peer(psn);
        peer.deliver(&write(0));
        peer.responses();
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&write(1)), Step::Park);
        for number in [2, 3, 5] {
            assert_eq!(peer.responder.arrive(&write(number)), Arrival::Keep);
        }
        assert!(peer.responses().is_empty());
        // All of it is repeated: one NAK, by which everything before is acknowledged.
        for repeated in [1, 2, 3] {
            let arrival = peer.responder.arrive(&write(repeated));
            assert_eq!(arrival, Arrival::Duplicate);
        }
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(1), rnr(5), 1));
        // Of these it was told nothing.
        assert_eq!(peer.responder.arrive(&write(2)), Arrival::Duplicate);
        assert_eq!(peer.responder.arrive(&write(4)), Arrival::Keep);
        assert!(peer.responses().is_empty());

        // The next one waits too: what waits behind it still does.
        peer.outcome = Outcome::Done;
        assert_eq!(peer.deliver(&write(1)), Step::Done);
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&write(2)), Step::Park);
        assert_eq!(peer.response().1.syndrome, ACK);
        assert_eq!(peer.responder.arrive(&write(1)), Arrival::Receive);
        assert_eq!(peer.responder.arrive(&write(4)), Arrival::Duplicate);
        assert_eq!(peer.responder.arrive(&write(5)), Arrival::Keep);
        peer.outcome = Outcome::Done;
        for number in 2..5 {
            assert_eq!(peer.deliver(&write(number)), Step::Done);
        }
        let (at, aeth) = peer.response();
        assert_eq!((at, aeth.syndrome, aeth.msn), (psn.add(4), ACK, 5));
    });
}

/// What waited for memory behind a request that meets no receive is lost, and waits no more: it comes again.
#[test]
fn what_waits_behind_a_send_that_is_not_received_comes_again() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let write = |number| remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
        let send = request(Opcode::RcSendOnly, psn.add(1), 1);
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&write(0)), Step::Park);
        assert_eq!(peer.responder.arrive(&send), Arrival::Keep);
        assert_eq!(peer.responder.arrive(&write(2)), Arrival::Keep);
        peer.outcome = Outcome::Done;
        assert_eq!(peer.deliver(&write(0)), Step::Done);
        peer.deliver(&send);
        assert_eq!(
            peer.deliver(&write(2)),
            Step::Dropped(DropReason::SequenceGap)
        );
        let (at, aeth) = peer.response();
        assert_eq!(
            (at, aeth.syndrome),
            (psn.add(1), Syndrome::Rnr { timer: 5 })
        );

        peer.post(1);
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&send), Step::Park);
        assert_eq!(peer.responder.arrive(&write(2)), Arrival::Keep);
    });
}

#[test]
fn memory_that_comes_settles_a_nak_that_has_not_left() {
    let psn = Psn::new(7);
    let mut peer = peer(psn);
    let write = remote(Opcode::RcWriteOnly, psn, 1, 0, 1);
    peer.outcome = Outcome::Again;
    assert_eq!(peer.deliver(&write), Step::Park);
    assert_eq!(peer.responder.arrive(&write), Arrival::Duplicate);
    peer.outcome = Outcome::Done;
    assert_eq!(peer.deliver(&write), Step::Done);
    let (at, aeth) = peer.response();
    assert_eq!((at, aeth.syndrome), (psn, ACK));
}

#[test]
fn peer_that_comes_again_is_asked_for_twice_the_patience() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let read = read_request(psn, 0, 600);
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&read), Step::Park);
        // All the PSNs of the READ wait.
        let part = read_request(psn.add(2), 512, 88);
        assert_eq!(peer.responder.arrive(&part), Arrival::Duplicate);
        assert!(peer.responses().is_empty());
        let behind = remote(Opcode::RcWriteOnly, psn.add(3), 1, 0, 1);
        assert_eq!(peer.responder.arrive(&behind), Arrival::Keep);
        let mut timers = Vec::new();
        for _ in 0..16 {
            assert_eq!(peer.responder.arrive(&read), Arrival::Duplicate);
            let Syndrome::Rnr { timer } = peer.response().1.syndrome else {
                panic!("not an RNR NAK");
            };
            timers.push(timer);
        }
        assert_eq!(timers[..5], [5, 7, 9, 11, 13]);
        assert_eq!(timers[13..], [31, 0, 0]);

        peer.outcome = Outcome::Done;
        assert_eq!(peer.deliver(&read), Step::Done);
        assert_eq!(peer.responses().len(), 3);
        // The next one has all the patience again.
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&behind), Step::Park);
        assert_eq!(peer.responder.arrive(&behind), Arrival::Duplicate);
        assert_eq!(peer.response().1.syndrome, Syndrome::Rnr { timer: 5 });
    });
}

#[test]
fn duplicates_do_not_wait() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let write = |number| remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
        let read = read_request(psn.add(1), 0, 600);
        peer.deliver(&write(0));
        peer.deliver(&read);
        assert_eq!(peer.responses().len(), 4);
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&write(4)), Step::Park);
        for again in [write(0), read] {
            assert_eq!(peer.responder.arrive(&again), Arrival::Receive);
            assert_eq!(peer.deliver(&again), Step::Done);
        }
        assert_eq!(peer.responses().len(), 4);
        // That changes nothing for what waits, and behind the responses comes the NAK.
        peer.deliver(&read);
        assert_eq!(peer.responder.arrive(&write(4)), Arrival::Duplicate);
        let responses = peer.responses();
        assert_eq!(responses.len(), 4);
        assert_eq!(
            (responses[3].psn, responses[3].aeth.unwrap().syndrome),
            (psn.add(4), Syndrome::Rnr { timer: 5 })
        );
    });
}

#[test]
fn message_goes_on_behind_an_rnr_nak_in_its_middle() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.post(600);
        let last = request(Opcode::RcSendLast, psn.add(2), 88);
        peer.deliver(&request(Opcode::RcSendFirst, psn, MTU));
        peer.deliver(&request(Opcode::RcSendMiddle, psn.add(1), MTU));
        peer.outcome = Outcome::Again;
        assert_eq!(peer.deliver(&last), Step::Park);
        assert_eq!(peer.responder.arrive(&last), Arrival::Duplicate);
        assert_eq!(peer.response().0, psn.add(2));
        assert!(peer.responder.has_receive());
        peer.outcome = Outcome::Done;
        assert!(matches!(peer.deliver(&last), Step::Complete(_)));
        assert_eq!(peer.completions[0].length, 600);
    });
}

#[test]
fn what_is_no_request_does_not_disturb_what_waits() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    let write = remote(Opcode::RcWriteOnly, psn, 1, 0, 1);
    peer.outcome = Outcome::Again;
    assert_eq!(peer.deliver(&write), Step::Park);
    let mut foreign = write;
    foreign.pkey = 0x1234;
    for packet in [foreign, ack(psn), request(Opcode::UcSendOnly, psn, 1)] {
        assert_eq!(peer.responder.arrive(&packet), Arrival::Keep);
    }
    // Once it is handed in again, it waits no more.
    peer.outcome = Outcome::Done;
    assert_eq!(peer.deliver(&write), Step::Done);
    assert_eq!(peer.responder.arrive(&write), Arrival::Keep);
    peer.outcome = Outcome::Again;
    let next = remote(Opcode::RcWriteOnly, psn.add(1), 1, 0, 1);
    assert_eq!(peer.deliver(&next), Step::Park);
    peer.responder.flush();
    assert_eq!(peer.responder.arrive(&next), Arrival::Keep);
    assert!(peer.responses().is_empty());
}

#[test]
fn one_packet_at_a_time() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    let write = remote(Opcode::RcWriteOnly, psn, 1, 0, 1);
    let Step::PlaceRemote { ticket, .. } = peer.responder.receive(&write) else {
        panic!("not placed");
    };
    assert_eq!(
        peer.responder.receive(&write),
        Step::Dropped(DropReason::Busy)
    );
    peer.responder.flush();
    assert_eq!(
        peer.responder.commit(ticket, &write, Outcome::Done),
        Step::Dropped(DropReason::State)
    );
}

#[test]
fn communication_is_established_once() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    assert_eq!(peer.responder.take_event(), None);
    peer.deliver(&remote(Opcode::RcWriteOnly, psn.add(5), 1, 0, 1));
    assert_eq!(peer.responder.take_event(), None);
    for number in 0..2 {
        peer.deliver(&remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1));
    }
    assert_eq!(
        peer.responder.take_event(),
        Some(ResponderEvent::CommunicationEstablished)
    );
    assert_eq!(peer.responder.take_event(), None);
}

#[test]
fn receive_in_the_middle_of_a_message_is_left_at_an_error() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    peer.post(600);
    peer.deliver(&request(Opcode::RcSendFirst, psn, MTU));
    peer.responder.flush();
    assert!(peer.responder.has_receive());
    peer.responder.reset();
    assert!(!peer.responder.has_receive());
}

#[test]
fn what_is_not_for_a_responder() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    for packet in [ack(psn), read_response(Opcode::RcReadResponseOnly, psn, 1)] {
        assert_eq!(peer.deliver(&packet), Step::Dropped(DropReason::Opcode));
    }
    let mut packet = request(Opcode::RcSendOnly, psn, 1);
    packet.pkey = 0x1234;
    assert_eq!(peer.deliver(&packet), Step::Dropped(DropReason::Pkey));
    for packet in [
        request(Opcode::UcSendOnly, psn, 1),
        xrc(request(Opcode::RcSendOnly, psn, 1), 0),
    ] {
        assert_eq!(peer.deliver(&packet), Step::Dropped(DropReason::Opcode));
    }
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
        assert_eq!(
            peer.deliver(&datagram(0x55, 257)),
            Step::Dropped(DropReason::TooLong)
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
            peer.steps[peer.steps.len() - 2],
            Step::PlaceReceive {
                offset: 40,
                length: 100,
                ..
            }
        ));
        let completion = peer.completions[0];
        assert_eq!(
            (completion.length, completion.immediate),
            (140, Some(0xabcd))
        );
        assert!(peer.responses().is_empty());
    }
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
        let Some(Response::Read(burst)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        assert_eq!(burst.xrc_srqn, Some(U24::new(7)));
        peer.responder.commit_read(burst.ticket, Outcome::Again);
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
        let mut buffer = [0; roce::packet::MAX_HEADER_LEN];
        assert!(packets
            .iter()
            .all(|packet| packet.emit(&mut buffer).is_some()));
        // An XRC target drops RC's packets. Its RNR NAK has XRC's opcode.
        assert_eq!(
            peer.deliver(&request(RcSendOnly, psn.add(6), 1)),
            Step::Dropped(DropReason::Opcode)
        );
        let send = xrc(request(RcSendOnly, psn.add(6), 1), 5);
        assert_eq!(peer.deliver(&send), Step::Dropped(DropReason::NoReceive));
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
                assert!(peer.completions.is_empty());
                assert_eq!(
                    error(&mut peer),
                    (
                        psn.add(1),
                        Syndrome::Nak(NakCode::InvalidRequest),
                        ResponderEvent::RequestError
                    )
                );
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
        assert!(peer.responder.has_receive());
        peer.outcome = Outcome::Done;
        // The parked one was lost, and is not what it was when it comes again.
        peer.deliver(&xrc(send, srqn));
        assert_eq!(peer.completions.len(), usize::from(srqn == 1));
        if srqn == 2 {
            assert!(peer.responder.has_receive());
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
            assert!(!peer.responder.has_receive() && peer.completions.is_empty());
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
        let Some(Response::Read(burst)) = peer.responder.poll_response(1) else {
            panic!("no response");
        };
        peer.responder
            .commit_read(burst.ticket, Outcome::InvalidRequest);
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
        let Some(Response::Read(burst)) = peer.responder.poll_response(2) else {
            panic!("no response");
        };
        assert!(burst.is_repeated && burst.xrc_srqn == Some(U24::new(3)));
        peer.responder.commit_read(burst.ticket, Outcome::Again);
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
