// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder: READs, atomics, and the resources that they take.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::{
        NakCode,
        Syndrome, //
    },
    psn::Psn,
    responder::{
        Resource,
        ResponderEvent,
        Response,
        Step, //
    }, //
};

#[test]
fn duplicate_read_needs_the_right_to_read() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        let request = read_request(psn, 0x1000, MTU);
        peer.deliver(&request);
        assert_eq!(peer.responses().len(), 1);
        let mut access = peer.responder.config().access;
        access.read = false;
        peer.responder.set_access(access);
        assert_eq!(peer.deliver(&request), Step::Dropped(DropReason::Forgotten));
        assert!(peer.responses().is_empty());
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
        let burst = peer.poll_read(1000);
        assert_eq!(
            (burst.rkey, burst.va, burst.length, burst.packets),
            (0x77, 0x1200, 3 * MTU + 3, 4)
        );
        peer.responder.commit_read(burst, Outcome::Again);
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
        let burst = peer.poll_read(1);
        peer.responder.commit_read(burst, Outcome::Done);
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
        let burst = peer.poll_read(2);
        peer.responder.commit_read(burst, Outcome::Done);
        peer.deliver(&read_request(psn.add(1), 0x1100, 3 * MTU));
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
            let burst = peer.poll_read(packets);
            peer.responder.commit_read(burst, Outcome::Done);
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
        let burst = peer.poll_read(1);
        peer.responder.commit_read(burst, Outcome::Protection);
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
        let burst = peer.poll_read(2);
        peer.responder.commit_read(burst, Outcome::Done);
        let burst = peer.poll_read(2);
        peer.responder.commit_read(burst, Outcome::Protection);
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
fn key_that_goes_after_a_piece_of_a_read() {
    with_psns(|psn| {
        let mut peer = peer(psn);
        peer.deliver(&read_request(psn, 0x1000, 4 * MTU));
        // The peer asks for the first half. The responder answers that, and has never answered the whole READ.
        peer.deliver(&read_request(psn, 0x1000, 2 * MTU));
        assert_eq!(peer.responses().len(), 2);
        peer.deliver(&read_request(psn.add(2), 0x1200, 2 * MTU));
        let burst = peer.poll_read(2);
        peer.responder.commit_read(burst, Outcome::Protection);
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
        let burst = peer.poll_read(1);
        assert_eq!(burst.packets, 1);
        // A burst that is dropped comes again.
        assert_eq!(peer.poll_read(1), burst);
        peer.responder.commit_read(burst, Outcome::Again);
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
                let (packet, at) = peer.responder.read_packet(&burst, index).unwrap();
                assert_eq!(packet.psn, psn.add(number));
                assert_eq!(at, index * MTU);
                number += 1;
                assert_comes_back(&packet);
            }
            assert_eq!(peer.responder.read_packet(&burst, burst.packets), None);
            offset += burst.length;
            peer.responder.commit_read(burst, Outcome::Done);
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
        assert!(peer.actions.is_empty());
        let packets = peer.responses();
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadResponseOnly, 0)]);
        let write = remote(Opcode::RcWriteOnly, psn.add(1), 0, 0, 0);
        assert_eq!(peer.deliver(&write), Step::Done);
    });
}
