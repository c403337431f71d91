// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder: packets that wait for memory.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::Syndrome,
    psn::Psn,
    responder::{
        Action,
        Arrival,
        ResponderEvent,
        Step, //
    }, //
};

#[test]
fn invalidation_follows_the_data() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    peer.post(1);
    let end = peer.deliver(&request(Opcode::RcSendOnlyInvalidate, psn, 1));
    assert!(matches!(end, Step::Complete(_)));
    assert!(matches!(
        peer.actions[..],
        [
            Action::TakeReceive,
            Action::PlaceReceive { .. },
            Action::Invalidate { rkey: 0xdead }
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
                .actions
                .iter()
                .filter(|action| matches!(action, Action::TakeReceive));
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
        assert!(peer.has_receive);
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
fn step_that_is_dropped_changes_nothing() {
    let psn = Psn::new(0);
    let mut peer = peer(psn);
    for number in 0..2 {
        let write = remote(Opcode::RcWriteOnly, psn.add(number), 1, 0, 1);
        assert!(matches!(
            peer.responder.receive(&write),
            Step::Do(Action::PlaceRemote { .. }, _)
        ));
        assert_eq!(peer.responder.expected_psn(), psn.add(number));
        assert!(peer.responses().is_empty());
        // It comes again.
        assert_eq!(peer.deliver(&write), Step::Done);
        assert_eq!(peer.response().0, psn.add(number));
    }
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
