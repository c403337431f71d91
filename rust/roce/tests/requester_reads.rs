// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: READs, atomics, and the order of what waits for them.

mod common;

use common::*;
use proptest::prelude::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::{
        NakCode,
        Packet, //
    },
    psn::Psn,
    requester::{
        Placement,
        Received,
        Requester,
        RequesterConfig,
        SendAction,
        SendOperation,
        SendWr, //
    },
    status::Status, //
};

#[test]
fn read_resumes_from_the_first_missing_response() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(read(5 * MTU + 3)).unwrap();
        let packets = transmit(&mut requester, us(0));
        assert_eq!(packets.len(), 1);
        respond(
            &mut requester,
            us(1),
            &read_response(Opcode::RcReadResponseFirst, psn, MTU),
        );
        respond(
            &mut requester,
            us(1),
            &read_response(Opcode::RcReadResponseMiddle, psn.add(1), MTU),
        );
        // Response 2 is lost.
        respond(
            &mut requester,
            us(1),
            &read_response(Opcode::RcReadResponseMiddle, psn.add(3), MTU),
        );
        let packets = transmit(&mut requester, us(1));
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadRequest, 2)]);
        let reth = packets[0].reth.unwrap();
        assert_eq!((reth.va, reth.length), (0x1000 + 512, 3 * MTU + 3));
        let placed = respond(
            &mut requester,
            us(2),
            &read_response(Opcode::RcReadResponseFirst, psn.add(2), MTU),
        );
        assert!(matches!(
            placed,
            Received::Place(Placement { offset: 512, .. })
        ));
        for number in 3..5 {
            respond(
                &mut requester,
                us(2),
                &read_response(Opcode::RcReadResponseMiddle, psn.add(number), MTU),
            );
        }
        assert!(completions(&mut requester).is_empty());
        respond(
            &mut requester,
            us(2),
            &read_response(Opcode::RcReadResponseLast, psn.add(5), 3),
        );
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    });
}

#[test]
fn outstanding_reads_and_atomics_are_limited() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        for _ in 0..3 {
            requester.post(read(300)).unwrap();
            requester.post(fetch_add()).unwrap();
        }
        assert_eq!(transmit(&mut requester, us(0)).len(), 4);
        // Half of a READ does not make room.
        respond(
            &mut requester,
            us(1),
            &read_response(Opcode::RcReadResponseFirst, psn, MTU),
        );
        assert!(transmit(&mut requester, us(1)).is_empty());
        respond(
            &mut requester,
            us(1),
            &read_response(Opcode::RcReadResponseLast, psn.add(1), 44),
        );
        assert_eq!(transmit(&mut requester, us(1)).len(), 1);
        respond(&mut requester, us(1), &atomic_ack(psn.add(2), 0));
        assert_eq!(transmit(&mut requester, us(1)).len(), 1);
        // All is sent again within the limit.
        requester.on_timeout(us(5_000));
        assert_eq!(transmit(&mut requester, us(5_000)).len(), 4);
    });
}

#[test]
fn fence_waits_for_reads() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(read(1)).unwrap();
        requester.post(send(1)).unwrap();
        requester
            .post(SendWr {
                fence: true,
                ..send(1)
            })
            .unwrap();
        assert_eq!(transmit(&mut requester, us(0)).len(), 2);
        respond(
            &mut requester,
            us(1),
            &read_response(Opcode::RcReadResponseOnly, psn, 1),
        );
        // Not for SENDs.
        assert_eq!(transmit(&mut requester, us(1)).len(), 1);
    });
}

#[test]
fn fence_of_a_local_operation_waits_for_everything() {
    let mut requester = requester(Psn::new(0));
    requester.post(send(1)).unwrap();
    let local = SendWr {
        operation: SendOperation::Local,
        ..SendWr::default()
    };
    requester.post(local).unwrap();
    let fenced = SendWr {
        fence: true,
        ..local
    };
    requester.post(fenced).unwrap();
    requester.post(send(1)).unwrap();
    // The first is executed at once.
    assert_eq!(transmit(&mut requester, us(0)).len(), 1);
    assert!(completions(&mut requester).is_empty());
    respond(&mut requester, us(1), &ack(Psn::new(0)));
    assert_eq!(transmit(&mut requester, us(1)).len(), 1);
    assert_eq!(completions(&mut requester).len(), 3);
}

#[test]
fn local_operations_are_not_executed_again() {
    let mut requester = requester(Psn::new(0));
    requester.post(send(1)).unwrap();
    requester
        .post(SendWr {
            operation: SendOperation::Local,
            ..SendWr::default()
        })
        .unwrap();
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    respond(
        &mut requester,
        us(1_000),
        &nak(Psn::new(0), NakCode::SequenceError),
    );
    let mut actions = 0;
    while let Some(action) = requester.poll_action() {
        assert!(matches!(action, SendAction::Transmit(_)), "executed again");
        requester.commit(us(1_000), action, Outcome::Done);
        actions += 1;
    }
    assert_eq!(actions, 2);
}

#[test]
fn early_responses_are_kept() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(read(5 * MTU)).unwrap();
        requester.post(send(1)).unwrap();
        requester.post(read(2 * MTU)).unwrap();
        let packets = transmit(&mut requester, us(0));
        let responses = [read_responses(&packets[..1]), read_responses(&packets[2..])].concat();
        for (number, place) in [(0, (0, 0)), (3, (0, 3))] {
            let received = respond(&mut requester, us(1), &responses[number]);
            let Received::Place(Placement {
                sequence, offset, ..
            }) = received
            else {
                panic!("{received:?}");
            };
            assert_eq!((sequence, offset / MTU), place);
        }
        // Those of a READ behind one that is executed once more are not: it would have been executed before that.
        for number in [6, 5] {
            let received = respond(&mut requester, us(1), &responses[number]);
            assert_eq!(received, Received::Dropped(DropReason::OutOfOrder));
        }
        // One gap, which is asked for once.
        let packets = transmit(&mut requester, us(1));
        use Opcode::*;
        assert_eq!(
            outline(&packets, psn),
            [(RcReadRequest, 1), (RcSendOnly, 5), (RcReadRequest, 6)]
        );
        assert_eq!(requester.counters().implied_naks, 1);
        respond(&mut requester, us(2), &responses[2]);
        respond(&mut requester, us(2), &responses[1]);
        assert_eq!(requester.poll_timeout(), Some(us(1_002)));
        assert!(completions(&mut requester).is_empty());
        // The last that was missing of the first READ. What is read behind the SEND says that it was executed.
        respond(&mut requester, us(3), &responses[4]);
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        respond(&mut requester, us(3), &responses[5]);
        respond(&mut requester, us(3), &responses[6]);
        assert_eq!(
            completions(&mut requester),
            [1, 2].map(|sequence| (sequence, Status::Success))
        );
        assert_eq!(requester.poll_timeout(), None);
        assert!(transmit(&mut requester, us(3)).is_empty());
        for response in &responses {
            let received = respond(&mut requester, us(4), response);
            assert_eq!(received, Received::Dropped(DropReason::Stale));
        }
    });
}

#[test]
fn acknowledgement_goes_on_past_early_responses() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        for wr in [fetch_add(), send(1), read(MTU), send(1)] {
            requester.post(wr).unwrap();
        }
        transmit(&mut requester, us(0));
        let early = read_response(Opcode::RcReadResponseOnly, psn.add(2), MTU);
        respond(&mut requester, us(1), &early);
        transmit(&mut requester, us(1));
        respond(&mut requester, us(2), &atomic_ack(psn, 0));
        assert_eq!(completions(&mut requester).len(), 3);
        respond(&mut requester, us(3), &ack(psn.add(3)));
        assert_eq!(completions(&mut requester), [(3, Status::Success)]);
    });
}

#[test]
fn early_responses_that_are_not_kept() {
    with_psns(|psn| {
        let config = RequesterConfig {
            window_packets: 1000,
            window_packets_most: 1000,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(read(300 * MTU)).unwrap();
        let responses = read_responses(&transmit(&mut requester, us(0)));
        let dropped = Received::Dropped(DropReason::OutOfOrder);
        // Too far away; the wrong kind; the wrong length; and one that is there already.
        let wrong = [
            responses[256],
            read_response(Opcode::RcReadResponseLast, psn.add(7), MTU),
            read_response(Opcode::RcReadResponseMiddle, psn.add(7), MTU - 1),
            atomic_ack(psn.add(7), 0),
        ];
        for response in wrong {
            assert_eq!(respond(&mut requester, us(1), &response), dropped);
            assert_eq!(requester.take_error(), None);
        }
        let received = respond(&mut requester, us(1), &responses[255]);
        assert!(matches!(received, Received::Place(_)));
        assert_eq!(respond(&mut requester, us(1), &responses[255]), dropped);
    });
}

#[test]
fn early_responses_behind_many_requests_are_not_kept() {
    for (between, is_kept) in [(30, true), (31, false)] {
        let mut requester = requester(Psn::new(0));
        requester.post(fetch_add()).unwrap();
        for _ in 0..between {
            requester.post(send(1)).unwrap();
        }
        requester.post(read(MTU)).unwrap();
        let packets = transmit(&mut requester, us(0));
        let response = read_responses(&packets[packets.len() - 1..]);
        let received = respond(&mut requester, us(1), &response[0]);
        assert_eq!(matches!(received, Received::Place(_)), is_kept);
    }
}

#[test]
fn early_response_that_cannot_be_placed_fails_in_its_turn() {
    let mut requester = requester(Psn::new(0));
    requester.post(read(2 * MTU)).unwrap();
    let responses = read_responses(&transmit(&mut requester, us(0)));
    let mut place = |now, response: &Packet, outcome| {
        transmit(&mut requester, now);
        let Received::Place(placement) = requester.receive(now, response) else {
            panic!("not wanted");
        };
        requester.commit_place(now, placement, outcome);
        requester.take_error()
    };
    assert_eq!(place(us(1), &responses[1], Outcome::Protection), None);
    assert_eq!(place(us(2), &responses[0], Outcome::Done), None);
    assert_eq!(
        place(us(3), &responses[1], Outcome::Protection),
        Some(Status::LocalProtection)
    );
    requester.flush();
    assert_eq!(completions(&mut requester), [(0, Status::LocalProtection)]);
}

proptest! {
    #[test]
    fn responses_in_any_order(
        length in 1u32..240 * MTU,
        order in proptest::collection::vec(any::<u32>(), 256),
    ) {
        let mut requester = requester(Psn::new(0xff_fff0));
        requester.post(read(length)).unwrap();
        let packets = transmit(&mut requester, us(0));
        let mut responses: Vec<_> = read_responses(&packets).into_iter().zip(order).collect();
        responses.sort_by_key(|(_, key)| *key);
        let mut bytes = 0;
        for (response, _) in &responses {
            match respond(&mut requester, us(1), response) {
                Received::Place(Placement { length, .. }) => bytes += length,
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(bytes, length);
        prop_assert_eq!(completions(&mut requester).len(), 1);
        prop_assert!(transmit(&mut requester, us(1)).is_empty());
        prop_assert_eq!(requester.poll_timeout(), None);
    }

    /// What is missing of one READ is read anew, and so is all of those behind it, after that.
    #[test]
    fn responses_to_several_reads_in_any_order(
        lengths in proptest::collection::vec(1u32..60 * MTU, 1..5),
        order in proptest::collection::vec(any::<u32>(), 256),
        lost in any::<u32>(),
    ) {
        let mut requester = requester(Psn::new(0xff_fff0));
        let count = lengths.len();
        for length in &lengths {
            requester.post(read(*length)).unwrap();
        }
        let packets = transmit(&mut requester, us(0));
        prop_assert_eq!(packets.len(), count);
        let mut responses: Vec<_> = read_responses(&packets).into_iter().zip(order).collect();
        // Of the very last nobody would know.
        if responses.len() > 1 {
            responses.remove(lost as usize % (responses.len() - 1));
        }
        responses.sort_by_key(|(_, key)| *key);
        let mut bytes = 0;
        // Of each READ, when the first byte came, and when the last of those before.
        let mut begun = vec![None; count];
        let mut ended = vec![0; count];
        let again = |requester: &mut Requester<_>| read_responses(&transmit(requester, us(1)));
        let mut round: Vec<_> = responses.into_iter().map(|(response, _)| response).collect();
        for turn in 0..=count {
            for response in &round {
                if let Received::Place(Placement { sequence, length, .. }) = respond(&mut requester, us(1), response) {
                    bytes += length;
                    begun[sequence as usize].get_or_insert(turn);
                    ended[sequence as usize] = turn;
                }
            }
            round = again(&mut requester);
        }
        for (earlier, later) in ended.iter().zip(&begun[1..]) {
            prop_assert!(later.is_some_and(|later| later >= *earlier));
        }
        prop_assert_eq!(bytes, lengths.iter().sum::<u32>());
        prop_assert_eq!(completions(&mut requester).len(), count);
        prop_assert!(transmit(&mut requester, us(1)).is_empty());
        prop_assert_eq!(requester.poll_timeout(), None);
    }
}

#[test]
fn read_of_no_bytes() {
    let mut requester = requester(Psn::new(0));
    requester.post(read(0)).unwrap();
    assert_eq!(transmit(&mut requester, us(0)).len(), 1);
    let response = read_response(Opcode::RcReadResponseOnly, Psn::new(0), 0);
    assert!(matches!(
        respond(&mut requester, us(1), &response),
        Received::Place(Placement { length: 0, .. })
    ));
    assert_eq!(completions(&mut requester), [(0, Status::Success)]);
}

#[test]
fn losses_halve_the_window_of_responses() {
    with_psns(|psn| {
        let mut requester = requester_with(RequesterConfig {
            max_rd_atomic: 16,
            ..requester_config(psn)
        });
        for _ in 0..16 {
            requester.post(read(16 * MTU)).unwrap();
        }
        // 256 responses at first; no fewer than 16.
        let mut at = 0;
        for requests in [16, 8, 4, 2, 1, 1] {
            assert_eq!(transmit(&mut requester, us(at)).len(), requests);
            at += 1_000;
            requester.on_timeout(us(at));
        }
        // Each four responses make room for one more.
        let packets = transmit(&mut requester, us(at));
        for response in read_responses(&packets) {
            respond(&mut requester, us(at), &response);
        }
        for requests in [1, 1, 1, 2, 2] {
            let packets = transmit(&mut requester, us(at));
            assert_eq!(packets.len(), requests);
            for response in read_responses(&packets) {
                respond(&mut requester, us(at), &response);
            }
        }
    });
}

#[test]
fn one_read_may_be_outstanding_in_any_window() {
    let config = RequesterConfig {
        window_packets: 0,
        window_packets_most: 0,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(read(2 * MTU)).unwrap();
    requester.post(fetch_add()).unwrap();
    requester.post(read(MTU)).unwrap();
    let packets = transmit(&mut requester, us(0));
    assert_eq!(
        outline(&packets, Psn::new(0)),
        [(Opcode::RcReadRequest, 0), (Opcode::RcFetchAdd, 2)]
    );
    for response in read_responses(&packets[..1]) {
        respond(&mut requester, us(1), &response);
    }
    let packets = transmit(&mut requester, us(1));
    assert_eq!(outline(&packets, Psn::new(0)), [(Opcode::RcReadRequest, 3)]);
}
