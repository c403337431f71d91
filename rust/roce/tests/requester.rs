// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester, one point of the protocol at a time.

mod common;

use common::*;
use proptest::prelude::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    packet::{
        Flush,
        NakCode,
        Packet, //
    },
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    requester::{
        Full,
        Received,
        Requester,
        RequesterConfig,
        SendAction,
        SendOperation,
        SendSlot,
        SendWr,
        MAX_BURST_PACKETS, //
    },
    status::Status,
    ticket::Outcome,
    time::{
        rnr_delay,
        Duration, //
    }, //
};

#[test]
fn packets_of_a_message() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(0)).unwrap();
        requester.post(send(256)).unwrap();
        let wr = SendWr {
            immediate: Some(9),
            solicited: true,
            ..operation(SendOperation::Write, 600)
        };
        requester.post(wr).unwrap();
        let wr = SendWr {
            invalidate_rkey: Some(5),
            ..send(257)
        };
        requester.post(wr).unwrap();
        let packets = transmit(&mut requester, us(0));
        use Opcode::*;
        assert_eq!(
            outline(&packets, psn),
            [
                (RcSendOnly, 0),
                (RcSendOnly, 1),
                (RcWriteFirst, 2),
                (RcWriteMiddle, 3),
                (RcWriteLastImm, 4),
                (RcSendFirst, 5),
                (RcSendLastInvalidate, 6),
            ]
        );
        let lengths: Vec<_> = packets.iter().map(|packet| packet.payload_len).collect();
        assert_eq!(lengths, [0, 256, 256, 256, 88, 256, 1]);
        assert_eq!(packets[2].reth.map(|reth| reth.length), Some(600));
        assert_eq!(packets[4].immediate, Some(9));
        assert!(packets[4].solicited && !packets[2].solicited);
        assert_eq!(packets[6].invalidate_rkey, Some(5));
        let mut buffer = [0; roce::packet::MAX_HEADER_LEN];
        assert!(packets
            .iter()
            .all(|packet| packet.emit(&mut buffer).is_some()));
    });
}

#[test]
fn acknowledgements_coalesce() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        for _ in 0..4 {
            requester.post(send(300)).unwrap();
        }
        transmit(&mut requester, us(0));
        // The middle of the third message.
        assert_eq!(
            respond(&mut requester, us(1), &ack(psn.add(4))),
            Received::Nothing
        );
        assert_eq!(
            completions(&mut requester),
            [(0, Status::Success), (1, Status::Success)]
        );
        respond(&mut requester, us(1), &ack(psn.add(7)));
        assert_eq!(completions(&mut requester).len(), 2);
        assert_eq!(requester.poll_timeout(), None);
    });
}

#[test]
fn acknowledgements_are_asked_for() {
    let config = RequesterConfig {
        window_packets: 60,
        window_packets_most: 60,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(200 * MTU)).unwrap();
    let packets = transmit(&mut requester, us(0));
    assert_eq!(packets.len(), 60);
    let asking: Vec<_> = packets
        .iter()
        .filter(|packet| packet.ack_request)
        .map(|packet| packet.psn.get())
        .collect();
    // Every 32nd, and the end of the window.
    assert_eq!(asking, [0, 32, 59]);
    // Room for a few is not worth a burst; room for more is.
    respond(&mut requester, us(1), &ack(Psn::new(3)));
    assert!(transmit(&mut requester, us(1)).is_empty());
    respond(&mut requester, us(1), &ack(Psn::new(32)));
    assert_eq!(transmit(&mut requester, us(1)).len(), 33);
}

/// Which packets ask for an acknowledgement.
fn asking(packets: &[Packet]) -> Vec<bool> {
    packets.iter().map(|packet| packet.ack_request).collect()
}

#[test]
fn the_last_of_several_messages_asks() {
    let psn = Psn::new(1);
    let mut requester = requester(psn);
    for _ in 0..3 {
        requester.post(send(300)).unwrap();
    }
    let packets = transmit(&mut requester, us(0));
    assert_eq!(asking(&packets), [false, false, false, false, false, true]);
    respond(&mut requester, us(1), &ack(psn.add(5)));
    assert_eq!(completions(&mut requester).len(), 3);

    // One behind which something else comes, which may have to wait.
    for wr in [send(1), read(1), send(1), send(1)] {
        requester.post(wr).unwrap();
    }
    let packets = transmit(&mut requester, us(2));
    assert_eq!(asking(&packets), [true, true, false, true]);

    // One behind which there is no room.
    let config = RequesterConfig {
        window_packets: 2,
        window_packets_most: 2,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    for _ in 0..3 {
        requester.post(send(1)).unwrap();
    }
    assert_eq!(asking(&transmit(&mut requester, us(0))), [false, true]);
}

#[test]
fn the_window_grows_and_shrinks() {
    let psn = Psn::new(1);
    let config = RequesterConfig {
        window_packets: 64,
        window_packets_most: 100,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    requester.post(send(4000 * MTU)).unwrap();
    let mut sent = 0;
    let mut windows = Vec::new();
    for _ in 0..4 {
        let packets = transmit(&mut requester, us(0)).len() as u32;
        sent += packets;
        windows.push(packets);
        respond(&mut requester, us(1), &ack(psn.add(sent - 1)));
    }
    // One more for each four that are acknowledged.
    assert_eq!(windows, [64, 80, 100, 100]);
    // Half of it for each that is lost, and sixteen at the least.
    let mut windows = Vec::new();
    for _ in 0..4 {
        let lost = psn.add(sent);
        transmit(&mut requester, us(2));
        respond(&mut requester, us(2), &nak(lost, NakCode::SequenceError));
        let packets = transmit(&mut requester, us(2)).len() as u32;
        sent += packets;
        windows.push(packets);
        respond(&mut requester, us(3), &ack(psn.add(sent - 1)));
    }
    assert_eq!(windows, [50, 31, 19, 16]);
}

#[test]
fn what_is_still_to_be_sent() {
    let psn = Psn::new(1);
    let config = RequesterConfig {
        window_packets: 32,
        window_packets_most: 32,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    assert!(!requester.has_unsent(1));
    // READs are requests of one packet.
    for wr in [send(40 * MTU), read(1000), send(300)] {
        requester.post(wr).unwrap();
    }
    let all = 40 * MTU + 300;
    assert!(requester.has_unsent(all) && !requester.has_unsent(all + 1));
    // The window is full, or too small for a burst.
    assert_eq!(transmit(&mut requester, us(0)).len(), 32);
    assert!(!requester.has_unsent(1));
    respond(&mut requester, us(1), &ack(psn.add(14)));
    assert!(!requester.has_unsent(1));
    // All of what has begun counts.
    respond(&mut requester, us(1), &ack(psn.add(15)));
    assert!(requester.has_unsent(all) && !requester.has_unsent(all + 1));
    // Not while the peer asks for patience.
    respond(&mut requester, us(1), &rnr(psn.add(16), 14));
    assert!(!requester.has_unsent(1));

    // The next few are looked at, not all.
    let mut requester = requester_with(config);
    for _ in 0..20 {
        requester.post(send(10)).unwrap();
    }
    assert!(requester.has_unsent(160) && !requester.has_unsent(161));
    transmit(&mut requester, us(0));
    assert!(!requester.has_unsent(1));

    // Not what a fence holds back.
    let mut requester = requester_with(config);
    requester.post(read(1000)).unwrap();
    transmit(&mut requester, us(0));
    let fenced = SendWr {
        fence: true,
        ..send(300)
    };
    for wr in [send(10), fenced, send(20)] {
        requester.post(wr).unwrap();
    }
    assert!(requester.has_unsent(10) && !requester.has_unsent(11));

    // Of what waits in SQD only what has begun.
    let mut requester = requester_with(config);
    for wr in [send(40 * MTU), send(300)] {
        requester.post(wr).unwrap();
    }
    requester.pause();
    assert!(!requester.has_unsent(1));
    requester.start();
    assert_eq!(transmit(&mut requester, us(0)).len(), 32);
    requester.pause();
    respond(&mut requester, us(1), &ack(psn.add(31)));
    let begun = 40 * MTU;
    assert!(requester.has_unsent(begun) && !requester.has_unsent(begun + 1));
}

#[test]
fn each_message_asks_where_there_is_no_timer() {
    let config = RequesterConfig {
        timeout: None,
        ..requester_config(Psn::new(1))
    };
    let mut requester = requester_with(config);
    for _ in 0..3 {
        requester.post(send(1)).unwrap();
    }
    assert_eq!(asking(&transmit(&mut requester, us(0))), [true, true, true]);
}

#[test]
fn a_probe_asks_in_place_of_what_does_not_follow() {
    for outcome in [Outcome::Again, Outcome::Protection] {
        let psn = Psn::new(1);
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(send(1)).unwrap();
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        assert!(!requester.packet(&burst, 0).unwrap().0.ack_request);
        requester.commit(us(0), burst.ticket, Outcome::Done);
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        requester.commit(us(5), burst.ticket, outcome);
        assert_eq!(requester.poll_timeout(), Some(us(5)));
        assert!(requester.poll_action().is_none());
        requester.on_timeout(us(6));
        let packets = transmit(&mut requester, us(6));
        assert_eq!(outline(&packets, psn), [(Opcode::RcSendOnly, 0)]);
        assert_eq!(asking(&packets), [true]);

        respond(&mut requester, us(7), &ack(psn));
        assert_eq!(completions(&mut requester)[0], (0, Status::Success));
        if outcome == Outcome::Again {
            assert!(requester.is_parked() && requester.poll_action().is_none());
            requester.resume();
            let packets = transmit(&mut requester, us(8));
            assert_eq!(outline(&packets, psn), [(Opcode::RcSendOnly, 1)]);
            assert_eq!(asking(&packets), [true]);
        } else {
            assert_eq!(requester.take_error(), Some(Status::LocalProtection));
        }
    }
}

#[test]
fn ghost_and_stale_responses_are_dropped() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        assert_eq!(
            respond(&mut requester, us(0), &ack(psn)),
            Received::Dropped(DropReason::Ghost)
        );
        requester.post(send(1)).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        respond(&mut requester, us(0), &ack(psn));
        assert_eq!(
            respond(&mut requester, us(0), &ack(psn)),
            Received::Dropped(DropReason::Stale)
        );
        assert_eq!(
            respond(&mut requester, us(0), &nak(psn, NakCode::RemoteAccess)),
            Received::Dropped(DropReason::Stale)
        );
        assert_eq!(
            respond(&mut requester, us(0), &ack(psn.add(2))),
            Received::Dropped(DropReason::Ghost)
        );
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        assert_eq!(requester.counters().stale_responses, 2);
        assert_eq!(requester.counters().ghost_responses, 2);
    });
}

#[test]
fn sequence_nak_goes_back_once_per_gap() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        for _ in 0..5 {
            requester.post(send(1)).unwrap();
        }
        transmit(&mut requester, us(0));
        let lost = nak(psn.add(2), NakCode::SequenceError);
        respond(&mut requester, us(1), &lost);
        // It acknowledges what was before.
        assert_eq!(completions(&mut requester).len(), 2);
        // Nothing has been sent again yet: this can only be a duplicate.
        respond(&mut requester, us(1), &lost);
        let packets = transmit(&mut requester, us(1));
        assert_eq!(packets[0].psn, psn.add(2));
        assert_eq!(packets.len(), 3);
        respond(&mut requester, us(2), &lost);
        assert!(transmit(&mut requester, us(2)).is_empty());
        assert_eq!(requester.counters().sequence_naks, 1);
        assert_eq!(requester.counters().retransmitted_packets, 3);
        // A new gap is another matter.
        respond(
            &mut requester,
            us(3),
            &nak(psn.add(4), NakCode::SequenceError),
        );
        assert_eq!(transmit(&mut requester, us(3)).len(), 1);
    });
}

#[test]
fn implied_nak_by_an_acknowledgement() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(read(300)).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        // The ACK for the last SEND: the READ responses have been lost.
        assert_eq!(
            respond(&mut requester, us(1), &ack(psn.add(3))),
            Received::Dropped(DropReason::OutOfOrder)
        );
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        let packets = transmit(&mut requester, us(1));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcReadRequest, 1), (Opcode::RcSendOnly, 3)]
        );
        // The same again is of no use before there is progress.
        respond(&mut requester, us(2), &ack(psn.add(3)));
        assert!(transmit(&mut requester, us(2)).is_empty());
        assert_eq!(requester.counters().implied_naks, 1);
    });
}

#[test]
fn implied_nak_by_a_response() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(fetch_add()).unwrap();
        requester.post(read(1)).unwrap();
        transmit(&mut requester, us(0));
        let response = read_response(Opcode::RcReadResponseOnly, psn.add(1), 1);
        let received = respond(&mut requester, us(1), &response);
        // Its data are good all the same.
        assert!(matches!(received, Received::Place { sequence: 1, .. }));
        let packets = transmit(&mut requester, us(1));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcFetchAdd, 0), (Opcode::RcReadRequest, 1)]
        );
        respond(&mut requester, us(2), &atomic_ack(psn, 7));
        assert_eq!(completions(&mut requester).len(), 2);
        assert_eq!(
            respond(&mut requester, us(2), &response),
            Received::Dropped(DropReason::Stale)
        );
    });
}

#[test]
fn acknowledgement_on_a_read_says_nothing_of_its_response() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(read(300)).unwrap();
        transmit(&mut requester, us(0));
        respond(&mut requester, us(1), &ack(psn.add(2)));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        assert!(transmit(&mut requester, us(1)).is_empty());
    });
}

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
        assert!(matches!(placed, Received::Place { offset: 512, .. }));
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
    requester.on_timeout(us(1_000));
    let mut actions = 0;
    while let Some(action) = requester.poll_action() {
        let SendAction::Transmit(burst) = action else {
            panic!("executed again");
        };
        requester.commit(us(1_000), burst.ticket, Outcome::Done);
        actions += 1;
    }
    assert_eq!(actions, 2);
}

#[test]
fn rnr_nak_waits_its_time() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        // Code 1 is 10 microseconds.
        respond(&mut requester, us(100), &rnr(psn, 1));
        assert_eq!(requester.poll_timeout(), Some(us(110)));
        assert!(transmit(&mut requester, us(105)).is_empty());
        requester.on_timeout(us(109));
        assert!(transmit(&mut requester, us(109)).is_empty());
        // A duplicate changes nothing.
        respond(&mut requester, us(109), &rnr(psn, 1));
        requester.on_timeout(us(110));
        assert_eq!(transmit(&mut requester, us(110)).len(), 2);
        assert_eq!(requester.counters().rnr_naks, 1);
    });
}

#[test]
fn rnr_nak_at_the_end_of_the_wait_is_another() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        respond(&mut requester, us(100), &rnr(psn, 1));
        respond(&mut requester, us(110), &rnr(psn, 1));
        assert_eq!(requester.poll_timeout(), Some(us(120)));
        assert_eq!(requester.counters().rnr_naks, 2);
    });
}

#[test]
fn rnr_retries_are_counted() {
    with_psns(|psn| {
        for limit in [0u8, 1, 6] {
            let config = RequesterConfig {
                rnr_retry: limit,
                ..requester_config(psn)
            };
            let mut requester = requester_with(config);
            requester.post(send(1)).unwrap();
            requester.post(send(1)).unwrap();
            transmit(&mut requester, us(0));
            let mut now = us(0);
            for _ in 0..limit {
                respond(&mut requester, now, &rnr(psn, 14));
                now = now.add(rnr_delay(14));
                requester.on_timeout(now);
                assert_eq!(transmit(&mut requester, now).len(), 2);
                assert_eq!(requester.take_error(), None);
            }
            respond(&mut requester, now, &rnr(psn, 14));
            assert_eq!(requester.take_error(), Some(Status::RnrRetryExceeded));
            requester.flush();
            assert_eq!(
                completions(&mut requester),
                [(0, Status::RnrRetryExceeded), (1, Status::Flushed)]
            );
        }
    });
}

#[test]
fn rnr_retry_7_is_for_ever() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        let mut now = us(0);
        for _ in 0..1_000 {
            assert_eq!(transmit(&mut requester, now).len(), 1);
            respond(&mut requester, now, &rnr(psn, 1));
            now = now.add(rnr_delay(1));
            requester.on_timeout(now);
        }
        assert_eq!(requester.take_error(), None);
    });
}

#[test]
fn rnr_nak_is_an_answer() {
    with_psns(|psn| {
        let config = RequesterConfig {
            retry_count: 1,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(send(1)).unwrap();
        let mut now = us(0);
        // One transmission is lost, the next is answered: that can go on.
        for _ in 0..10 {
            transmit(&mut requester, now);
            now = now.add(TIMEOUT);
            requester.on_timeout(now);
            transmit(&mut requester, now);
            respond(&mut requester, now, &rnr(psn, 1));
            now = now.add(rnr_delay(1));
            requester.on_timeout(now);
        }
        assert_eq!(requester.take_error(), None);
        assert_eq!(requester.counters().timeouts, 10);
    });
}

#[test]
fn rnr_nak_behind_a_sequence_nak() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        respond(&mut requester, us(1), &nak(psn, NakCode::SequenceError));
        // The packet was late, not lost.
        respond(&mut requester, us(2), &rnr(psn, 1));
        assert!(transmit(&mut requester, us(2)).is_empty());
        assert_eq!(requester.poll_timeout(), Some(us(12)));
        requester.on_timeout(us(12));
        assert_eq!(transmit(&mut requester, us(12)).len(), 1);
    });
}

#[test]
fn rnr_nak_behind_a_sequence_nak_is_an_answer() {
    let config = RequesterConfig {
        retry_count: 1,
        rnr_retry: 1,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    let gap = nak(Psn::new(0), NakCode::SequenceError);
    respond(&mut requester, us(1), &gap);
    respond(&mut requester, us(2), &rnr(Psn::new(0), 1));
    requester.on_timeout(us(12));
    // The retry counter is full again,
    transmit(&mut requester, us(12));
    respond(&mut requester, us(13), &gap);
    assert_eq!(requester.take_error(), None);
    // and the one for RNR NAKs has counted the first, or the two could go on for ever.
    respond(&mut requester, us(14), &rnr(Psn::new(0), 1));
    assert_eq!(requester.take_error(), Some(Status::RnrRetryExceeded));
}

#[test]
fn rnr_nak_before_the_packets_are_committed() {
    let mut requester = requester(Psn::new(0));
    requester.post(send(1)).unwrap();
    let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
        panic!("nothing to send");
    };
    respond(&mut requester, us(10), &rnr(Psn::new(0), 1));
    requester.commit(us(11), burst.ticket, Outcome::Done);
    assert_eq!(requester.poll_timeout(), Some(us(20)));
    requester.on_timeout(us(20));
    assert_eq!(transmit(&mut requester, us(20)).len(), 1);
}

#[test]
fn timer_runs_while_something_is_outstanding() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        assert_eq!(requester.poll_timeout(), None);
        for _ in 0..3 {
            requester.post(send(1)).unwrap();
        }
        transmit(&mut requester, us(0));
        assert_eq!(requester.poll_timeout(), Some(us(1_000)));
        // Progress starts it again.
        respond(&mut requester, us(400), &ack(psn));
        assert_eq!(requester.poll_timeout(), Some(us(1_400)));
        // What is no progress does not.
        respond(&mut requester, us(500), &ack(psn));
        assert_eq!(requester.poll_timeout(), Some(us(1_400)));
        respond(&mut requester, us(600), &ack(psn.add(2)));
        assert_eq!(requester.poll_timeout(), None);
    });
}

#[test]
fn timer_starts_again_with_each_response() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(read(300 * MTU)).unwrap();
        let packets = transmit(&mut requester, us(0));
        assert_eq!(requester.poll_timeout(), Some(us(1_000)));
        let mut now = 0;
        for response in read_responses(&packets) {
            now += 900;
            respond(&mut requester, us(now), &response);
            assert_eq!(requester.poll_timeout(), Some(us(now + 1_000)));
            // Asking for the next part does not put it off.
            transmit(&mut requester, us(now + 5));
            assert_eq!(requester.poll_timeout(), Some(us(now + 1_000)));
        }
        assert_eq!(requester.counters().timeouts, 0);
    });
}

#[test]
fn timeout_sends_again() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(300)).unwrap();
        transmit(&mut requester, us(0));
        requester.on_timeout(us(999));
        assert!(transmit(&mut requester, us(999)).is_empty());
        requester.on_timeout(us(1_000));
        // Not running while nothing is on its way.
        assert_eq!(requester.poll_timeout(), None);
        let packets = transmit(&mut requester, us(1_005));
        assert_eq!(packets.len(), 2);
        assert!(packets[0].ack_request);
        assert_eq!(requester.poll_timeout(), Some(us(2_005)));
        assert_eq!(requester.counters().timeouts, 1);
    });
}

#[test]
fn no_timeout_means_for_ever() {
    let config = RequesterConfig {
        timeout: None,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    assert_eq!(requester.poll_timeout(), None);
}

#[test]
fn retries_are_exceeded_after_the_promised_time() {
    with_psns(|psn| {
        for retries in [0u8, 1, 7] {
            let config = RequesterConfig {
                retry_count: retries,
                ..requester_config(psn)
            };
            let mut requester = requester_with(config);
            requester.post(send(1)).unwrap();
            requester.post(read(1)).unwrap();
            let mut sent = 0;
            while requester.take_error().is_none() {
                let now = us(0).add(Duration::from_ms(sent));
                requester.on_timeout(now);
                if !transmit(&mut requester, now).is_empty() {
                    sent += 1;
                }
            }
            assert_eq!(sent, u64::from(retries) + 1);
            requester.flush();
            assert_eq!(
                completions(&mut requester),
                [(0, Status::RetryExceeded), (1, Status::Flushed)]
            );
            assert_eq!(requester.poll_timeout(), None);
        }
    });
}

#[test]
fn used_up_retries_migrate_once_and_count_anew() {
    with_psns(|psn| {
        for retries in [0u8, 1, 7] {
            let config = RequesterConfig {
                retry_count: retries,
                ..requester_config(psn)
            };
            let mut requester = requester_with(config);
            requester.post(send(1)).unwrap();
            requester.post(read(1)).unwrap();
            let mut sent = 0;
            let mut migrated_after = None;
            while requester.take_error().is_none() {
                let now = us(0).add(Duration::from_ms(sent));
                requester.set_alternate(migrated_after.is_none());
                requester.on_timeout(now);
                if requester.take_migration() {
                    assert_eq!(migrated_after, None);
                    migrated_after = Some(sent);
                    requester.path_changed(Some(TIMEOUT));
                }
                if !transmit(&mut requester, now).is_empty() {
                    sent += 1;
                }
            }
            let attempts = u64::from(retries) + 1;
            assert_eq!(migrated_after, Some(attempts));
            assert_eq!(sent, 2 * attempts);
            assert!(!requester.take_migration());
            requester.flush();
            assert_eq!(
                completions(&mut requester),
                [(0, Status::RetryExceeded), (1, Status::Flushed)]
            );
        }
    });
}

#[test]
fn requests_complete_over_the_alternate_path() {
    with_psns(|psn| {
        let config = RequesterConfig {
            retry_count: 0,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.set_alternate(true);
        requester.post(send(3 * MTU)).unwrap();
        let first = transmit(&mut requester, us(0));
        requester.on_timeout(us(1_000));
        assert!(requester.take_migration());
        // With its own timeout from the first packet on.
        requester.path_changed(Some(Duration::from_ms(5)));
        let again = transmit(&mut requester, us(1_000));
        assert_eq!(first.len(), again.len());
        assert_eq!(first[0].psn, again[0].psn);
        assert_eq!(requester.poll_timeout(), Some(us(6_000)));
        respond(&mut requester, us(1_100), &ack(psn.add(2)));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        assert_eq!(requester.take_error(), None);
    });
}

#[test]
fn a_gap_after_the_last_retry_migrates_too() {
    let config = RequesterConfig {
        retry_count: 0,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.set_alternate(true);
    requester.post(read(2 * MTU)).unwrap();
    transmit(&mut requester, us(0));
    let behind = read_response(Opcode::RcReadResponseLast, Psn::new(1), MTU);
    respond(&mut requester, us(1), &behind);
    assert!(requester.take_migration());
    assert_eq!(requester.take_error(), None);
    assert_eq!(transmit(&mut requester, us(1)).len(), 1);
}

#[test]
fn a_receiver_that_is_never_ready_is_no_reason_to_migrate() {
    let config = RequesterConfig {
        rnr_retry: 0,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.set_alternate(true);
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    respond(&mut requester, us(1), &rnr(Psn::new(0), 1));
    assert!(!requester.take_migration());
    assert_eq!(requester.take_error(), Some(Status::RnrRetryExceeded));
}

#[test]
fn progress_resets_the_retry_counter() {
    with_psns(|psn| {
        let config = RequesterConfig {
            retry_count: 1,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        for _ in 0..20 {
            requester.post(send(1)).unwrap();
        }
        let mut now = us(0);
        for number in 0..20 {
            transmit(&mut requester, now);
            now = now.add(TIMEOUT);
            requester.on_timeout(now);
            transmit(&mut requester, now);
            respond(&mut requester, now, &ack(psn.add(number)));
        }
        assert_eq!(requester.take_error(), None);
        assert_eq!(completions(&mut requester).len(), 20);
    });
}

#[test]
fn retries_changed_between_messages_count_from_the_next_one() {
    for (before, after) in [(0, 3), (5, 1), (2, 0)] {
        let config = RequesterConfig {
            retry_count: before,
            rnr_retry: before,
            ..requester_config(Psn::new(0))
        };
        let ready = || {
            let mut requester = requester_with(config);
            requester.post(send(1)).unwrap();
            transmit(&mut requester, us(0));
            respond(&mut requester, us(1), &ack(Psn::new(0)));
            requester.pause();
            assert!(requester.drained());
            requester.set_retry_count(after);
            requester.set_rnr_retry(after);
            requester.start();
            requester.post(send(1)).unwrap();
            requester
        };

        let mut requester = ready();
        let mut sent = 0;
        while requester.take_error().is_none() {
            let now = us(1_000).add(Duration::from_ms(sent));
            requester.on_timeout(now);
            sent += transmit(&mut requester, now).len() as u64;
        }
        assert_eq!(sent, u64::from(after) + 1);

        let mut requester = ready();
        let mut sent = 0;
        while requester.take_error().is_none() {
            let now = us(1_000).add(Duration::from_ms(sent));
            requester.on_timeout(now);
            sent += transmit(&mut requester, now).len() as u64;
            respond(&mut requester, now, &rnr(Psn::new(1), 1));
        }
        assert_eq!(sent, u64::from(after) + 1);
    }
}

#[test]
fn retries_changed_under_way_are_no_more_than_before() {
    let config = RequesterConfig {
        retry_count: 1,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(1)).unwrap();
    assert_eq!(transmit(&mut requester, us(0)).len(), 1);
    requester.set_retry_count(7);
    requester.on_timeout(us(1_000));
    assert_eq!(transmit(&mut requester, us(1_000)).len(), 1);
    requester.on_timeout(us(2_000));
    assert_eq!(requester.take_error(), Some(Status::RetryExceeded));
}

#[test]
fn retry_is_counted_once_per_transmission() {
    let config = RequesterConfig {
        retry_count: 1,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(1)).unwrap();
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    respond(
        &mut requester,
        us(1),
        &nak(Psn::new(0), NakCode::SequenceError),
    );
    // Before anything is sent again, neither the same NAK nor time can fail the request.
    respond(
        &mut requester,
        us(1),
        &nak(Psn::new(0), NakCode::SequenceError),
    );
    requester.on_timeout(us(1_000_000));
    assert_eq!(requester.take_error(), None);
}

/// A requester that has asked for five responses, has missed the first, and has asked again.
fn requester_with_a_gap(psn: Psn, retry_count: u8) -> Requester<Vec<SendSlot>> {
    let config = RequesterConfig {
        retry_count,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    requester.post(read(5 * MTU)).unwrap();
    assert_eq!(transmit(&mut requester, us(0)).len(), 1);
    let behind = read_response(Opcode::RcReadResponseMiddle, psn.add(1), MTU);
    respond(&mut requester, us(1), &behind);
    assert_eq!(transmit(&mut requester, us(1)).len(), 1);
    requester
}

#[test]
fn signs_of_life_are_waited_for_to_stop() {
    with_psns(|psn| {
        let mut requester = requester_with_a_gap(psn, 1);
        assert_eq!(requester.poll_timeout(), Some(us(1_001)));
        // The rest of the first answer: an eighth of the timeout after it, nothing more will come.
        for (now, number) in [(200, 2), (300, 3)] {
            let behind = read_response(Opcode::RcReadResponseMiddle, psn.add(number), MTU);
            respond(&mut requester, us(now), &behind);
            assert!(transmit(&mut requester, us(now)).is_empty());
            assert_eq!(requester.poll_timeout(), Some(us(now + 125)));
        }
        requester.on_timeout(us(425));
        let packets = transmit(&mut requester, us(425));
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadRequest, 0)]);
        assert_eq!(requester.poll_timeout(), Some(us(1_425)));
        // What comes in now answers what was sent now: the first is missing again.
        let behind = read_response(Opcode::RcReadResponseMiddle, psn.add(1), MTU);
        respond(&mut requester, us(500), &behind);
        assert_eq!(transmit(&mut requester, us(500)).len(), 1);
        assert_eq!(requester.counters().implied_naks, 3);
        assert_eq!(requester.counters().timeouts, 0);
        // Progress ends it.
        let first = read_response(Opcode::RcReadResponseFirst, psn, MTU);
        respond(&mut requester, us(600), &first);
        assert_eq!(requester.poll_timeout(), Some(us(1_600)));
        let last = read_response(Opcode::RcReadResponseLast, psn.add(4), MTU);
        respond(&mut requester, us(700), &last);
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    });
}

#[test]
fn quiet_time_is_short_with_any_timeout() {
    let config = RequesterConfig {
        timeout: Some(Duration::from_ms(4_000)),
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(read(5 * MTU)).unwrap();
    transmit(&mut requester, us(0));
    for number in 1..3 {
        let behind = read_response(Opcode::RcReadResponseMiddle, Psn::new(number), MTU);
        respond(&mut requester, us(1), &behind);
        transmit(&mut requester, us(1));
    }
    assert_eq!(requester.poll_timeout(), Some(us(64_001)));
}

#[test]
fn silence_behind_a_gap_is_as_long_as_any() {
    with_psns(|psn| {
        for retries in [1u8, 3, 7] {
            let mut requester = requester_with_a_gap(psn, retries);
            for number in 0..=u64::from(retries) {
                assert_eq!(requester.take_error(), None);
                let now = us(1 + 1_000 * (number + 1));
                assert_eq!(requester.poll_timeout(), Some(now));
                requester.on_timeout(now);
                transmit(&mut requester, now);
            }
            assert_eq!(requester.take_error(), Some(Status::RetryExceeded));
            assert_eq!(requester.counters().timeouts, u64::from(retries) + 1);
        }
    });
}

#[test]
fn no_retries_means_none_for_a_gap_either() {
    let config = RequesterConfig {
        retry_count: 0,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(read(2 * MTU)).unwrap();
    transmit(&mut requester, us(0));
    let behind = read_response(Opcode::RcReadResponseLast, Psn::new(1), MTU);
    respond(&mut requester, us(1), &behind);
    assert_eq!(requester.take_error(), Some(Status::RetryExceeded));
}

#[test]
fn signs_of_life_do_not_hold_a_request_for_ever() {
    with_psns(|psn| {
        // Faster than the quiet time, slower, and at its edge.
        for interval in [10, 100, 125, 130, 900] {
            let mut requester = requester_with_a_gap(psn, 7);
            let mut now = 1;
            let mut sent_at = now;
            while requester.take_error().is_none() {
                now += interval;
                requester.on_timeout(us(now));
                if !transmit(&mut requester, us(now)).is_empty() {
                    sent_at = now;
                }
                let behind = read_response(Opcode::RcReadResponseMiddle, psn.add(1), MTU);
                respond(&mut requester, us(now), &behind);
                if !transmit(&mut requester, us(now)).is_empty() {
                    sent_at = now;
                }
                assert!(now - sent_at <= 4_000 + interval, "{interval}");
            }
            // Eight times seven attempts, and the first.
            assert!(now <= 57 * 4_000 + interval, "{interval}: {now}");
            assert_eq!(requester.poll_timeout(), None);
        }
    });
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
            let Received::Place {
                sequence, offset, ..
            } = received
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
            window_responses: 1000,
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
        assert!(matches!(received, Received::Place { .. }));
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
        assert_eq!(matches!(received, Received::Place { .. }), is_kept);
    }
}

#[test]
fn early_response_that_cannot_be_placed_fails_in_its_turn() {
    let mut requester = requester(Psn::new(0));
    requester.post(read(2 * MTU)).unwrap();
    let responses = read_responses(&transmit(&mut requester, us(0)));
    let mut place = |now, response: &Packet, outcome| {
        transmit(&mut requester, now);
        let Received::Place { ticket, .. } = requester.receive(now, response) else {
            panic!("not wanted");
        };
        requester.commit_place(now, ticket, outcome);
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
                Received::Place { length, .. } => bytes += length,
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
                if let Received::Place { sequence, length, .. } = respond(&mut requester, us(1), response) {
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
fn nak_codes_become_statuses() {
    with_psns(|psn| {
        for (code, status) in [
            (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
            (NakCode::RemoteAccess, Status::RemoteAccess),
            (NakCode::RemoteOperational, Status::RemoteOperational),
            (NakCode::InvalidRdRequest, Status::BadResponse),
        ] {
            let mut requester = requester(psn);
            requester.post(SendWr::default()).unwrap();
            requester
                .post(SendWr {
                    length: 600,
                    ..SendWr::default()
                })
                .unwrap();
            requester.post(send(1)).unwrap();
            transmit(&mut requester, us(0));
            respond(&mut requester, us(1), &nak(psn.add(2), code));
            assert_eq!(requester.take_error(), Some(status));
            assert_eq!(requester.take_error(), None);
            assert!(requester.poll_action().is_none());
            assert_eq!(
                respond(&mut requester, us(2), &ack(psn.add(4))),
                Received::Dropped(DropReason::State)
            );
            requester.flush();
            assert_eq!(requester.post(send(1)), Ok(3));
            let ends: Vec<_> = std::iter::from_fn(|| requester.poll_completion())
                .map(|completion| (completion.status, completion.signaled))
                .collect();
            assert_eq!(
                ends,
                [
                    (Status::Success, false),
                    (status, true),
                    (Status::Flushed, true),
                    (Status::Flushed, true),
                ]
            );
        }
    });
}

#[test]
fn bad_responses_fail_the_request() {
    with_psns(|psn| {
        use Opcode::*;
        for (response, status) in [
            (
                read_response(RcReadResponseOnly, psn, MTU),
                Status::BadResponse,
            ),
            (
                read_response(RcReadResponseLast, psn, 1),
                Status::BadResponse,
            ),
            (
                read_response(RcReadResponseFirst, psn, 255),
                Status::LocalLength,
            ),
            (atomic_ack(psn, 0), Status::BadResponse),
        ] {
            let mut requester = requester(psn);
            requester.post(read(300)).unwrap();
            transmit(&mut requester, us(0));
            respond(&mut requester, us(1), &response);
            assert_eq!(requester.take_error(), Some(status));
        }
        let mut requester = requester(psn);
        requester.post(fetch_add()).unwrap();
        transmit(&mut requester, us(0));
        let response = read_response(RcReadResponseOnly, psn, 8);
        respond(&mut requester, us(1), &response);
        assert_eq!(requester.take_error(), Some(Status::BadResponse));
    });
}

#[test]
fn read_of_no_bytes() {
    let mut requester = requester(Psn::new(0));
    requester.post(read(0)).unwrap();
    assert_eq!(transmit(&mut requester, us(0)).len(), 1);
    let response = read_response(Opcode::RcReadResponseOnly, Psn::new(0), 0);
    assert!(matches!(
        respond(&mut requester, us(1), &response),
        Received::Place { length: 0, .. }
    ));
    assert_eq!(completions(&mut requester), [(0, Status::Success)]);
}

/// The packets of a READ's answer: what the requests in `packets` ask for.
fn read_responses(packets: &[Packet]) -> Vec<Packet> {
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

#[test]
fn long_read_is_asked_for_in_parts() {
    with_psns(|psn| {
        let config = RequesterConfig {
            max_rd_atomic: 16,
            window_responses: 300,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(read(300 * MTU + 1)).unwrap();
        requester.post(read(50 * MTU)).unwrap();
        requester.post(send(1)).unwrap();
        // The first two parts are 256 responses; the third, of 45, would be one too many.
        let packets = transmit(&mut requester, us(0));
        let asked: Vec<_> = packets
            .iter()
            .map(|packet| {
                let reth = packet.reth.unwrap();
                (packet.psn.diff(psn), reth.va, reth.length)
            })
            .collect();
        let part = 128 * MTU;
        assert_eq!(
            asked,
            [(0, 0x1000, part), (128, 0x1000 + u64::from(part), part)]
        );
        let mut responses = read_responses(&packets).into_iter();
        respond(&mut requester, us(1), &responses.next().unwrap());
        let packets = transmit(&mut requester, us(1));
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadRequest, 256)]);
        assert_eq!(packets[0].reth.unwrap().length, 44 * MTU + 1);
        let responses = responses.chain(read_responses(&packets));
        for response in responses {
            let received = respond(&mut requester, us(2), &response);
            assert!(matches!(received, Received::Place { sequence: 0, .. }));
        }
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        let packets = transmit(&mut requester, us(2));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcReadRequest, 301), (Opcode::RcSendOnly, 351)]
        );
    });
}

#[test]
fn one_part_after_the_other_with_one_resource() {
    with_psns(|psn| {
        let config = RequesterConfig {
            max_rd_atomic: 1,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(read(300 * MTU)).unwrap();
        for (first, count) in [(0, 128), (128, 128), (256, 44)] {
            let packets = transmit(&mut requester, us(0));
            assert_eq!(outline(&packets, psn), [(Opcode::RcReadRequest, first)]);
            assert_eq!(packets[0].reth.unwrap().length, count * MTU);
            for response in read_responses(&packets) {
                assert!(transmit(&mut requester, us(1)).is_empty());
                respond(&mut requester, us(1), &response);
            }
        }
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    });
}

#[test]
fn read_resumes_in_the_middle_of_a_part() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(read(300 * MTU)).unwrap();
        let responses = read_responses(&transmit(&mut requester, us(0)));
        for response in &responses[..150] {
            respond(&mut requester, us(1), response);
        }
        requester.on_timeout(us(1_001));
        // What is left of the second part, which is within what was asked for before; then the
        // third, which has not been asked for before.
        let packets = transmit(&mut requester, us(1_001));
        let asked: Vec<_> = packets
            .iter()
            .map(|packet| (packet.psn.diff(psn), packet.reth.unwrap().length / MTU))
            .collect();
        assert_eq!(asked, [(150, 106), (256, 44)]);
        assert_eq!(requester.counters().retransmitted_packets, 1);
        // What was sent in answer to the request before is as good.
        for response in &responses[150..200] {
            let received = respond(&mut requester, us(1_002), response);
            assert!(matches!(received, Received::Place { .. }));
        }
        for response in read_responses(&packets) {
            respond(&mut requester, us(1_003), &response);
        }
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        assert_eq!(requester.counters().stale_responses, 50);
    });
}

#[test]
fn one_read_may_be_outstanding_in_any_window() {
    let config = RequesterConfig {
        window_responses: 0,
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

/// The response to a FLUSH or ATOMIC WRITE.
fn empty_response(psn: Psn) -> Packet {
    read_response(Opcode::RcReadResponseOnly, psn, 0)
}

#[test]
fn packets_of_a_flush_and_an_atomic_write() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        let flush = SendWr {
            flush: Flush {
                placement: 3,
                selectivity: 1,
            },
            ..operation(SendOperation::Flush, u32::MAX)
        };
        requester.post(flush).unwrap();
        requester.post(atomic_write()).unwrap();
        let packets = transmit(&mut requester, us(0));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcFlush, 0), (Opcode::RcAtomicWrite, 1)]
        );
        assert_eq!(packets[0].flush, Some(flush.flush));
        let reth = packets.iter().map(|packet| packet.reth.unwrap());
        let reth: Vec<_> = reth.map(|reth| (reth.va, reth.rkey, reth.length)).collect();
        assert_eq!(reth, [(0x1000, 0x77, u32::MAX), (0x1000, 0x77, 8)]);
        assert!(packets.iter().all(|packet| packet.ack_request));
        assert_eq!((packets[0].payload_len, packets[1].payload_len), (0, 8));
        let mut buffer = [0; roce::packet::MAX_HEADER_LEN];
        assert!(packets
            .iter()
            .all(|packet| packet.emit(&mut buffer).is_some()));
    });
}

#[test]
fn payload_of_an_atomic_write() {
    let mut requester = requester(Psn::new(0));
    // The length is eight, whatever the consumer says.
    let wr = SendWr {
        length: 5,
        ..atomic_write()
    };
    requester.post(wr).unwrap();
    let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
        panic!("nothing to send");
    };
    assert_eq!((burst.offset, burst.length, burst.packets), (0, 8, 1));
    let (_, offset, length) = requester.packet(&burst, 0).unwrap();
    assert_eq!((offset, length), (0, 8));
    assert!(requester.packet(&burst, 1).is_none());
}

#[test]
fn flush_and_atomic_write_complete_with_their_responses() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(flush(300)).unwrap();
        requester.post(atomic_write()).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        // It acknowledges what was before; there is nothing to place.
        assert_eq!(
            respond(&mut requester, us(1), &empty_response(psn.add(1))),
            Received::Nothing
        );
        assert_eq!(
            completions(&mut requester),
            [(0, Status::Success), (1, Status::Success)]
        );
        assert_eq!(
            respond(&mut requester, us(1), &empty_response(psn.add(1))),
            Received::Dropped(DropReason::Stale)
        );
        respond(&mut requester, us(1), &empty_response(psn.add(2)));
        let completion = requester.poll_completion().unwrap();
        assert_eq!(completion.operation, SendOperation::AtomicWrite);
        assert_eq!((completion.sequence, completion.length), (2, 8));
        respond(&mut requester, us(1), &ack(psn.add(3)));
        assert_eq!(completions(&mut requester), [(3, Status::Success)]);
        assert_eq!(requester.poll_timeout(), None);
    });
}

#[test]
fn acknowledgement_does_not_complete_a_flush() {
    with_psns(|psn| {
        for wr in [flush(8), atomic_write()] {
            let mut requester = requester(psn);
            requester.post(wr).unwrap();
            requester.post(send(1)).unwrap();
            transmit(&mut requester, us(0));
            // Its response has been lost: it is asked for again.
            respond(&mut requester, us(1), &ack(psn.add(1)));
            assert!(completions(&mut requester).is_empty());
            let packets = transmit(&mut requester, us(1));
            assert_eq!(packets.len(), 2);
            assert_eq!(packets[0].psn, psn);
            assert_eq!(requester.counters().implied_naks, 1);
            respond(&mut requester, us(2), &empty_response(psn));
            respond(&mut requester, us(2), &ack(psn.add(1)));
            assert_eq!(completions(&mut requester).len(), 2);
        }
    });
}

#[test]
fn responses_that_answer_no_flush() {
    use Opcode::*;
    with_psns(|psn| {
        for wr in [flush(8), atomic_write()] {
            for (response, status) in [
                (
                    read_response(RcReadResponseOnly, psn, 8),
                    Status::LocalLength,
                ),
                (
                    read_response(RcReadResponseFirst, psn, 0),
                    Status::BadResponse,
                ),
                (
                    read_response(RcReadResponseLast, psn, 0),
                    Status::BadResponse,
                ),
                (atomic_ack(psn, 1), Status::BadResponse),
                (nak(psn, NakCode::RemoteAccess), Status::RemoteAccess),
                (
                    nak(psn, NakCode::InvalidRequest),
                    Status::RemoteInvalidRequest,
                ),
            ] {
                let mut requester = requester(psn);
                requester.post(wr).unwrap();
                transmit(&mut requester, us(0));
                assert_eq!(respond(&mut requester, us(1), &response), Received::Nothing);
                assert_eq!(completions(&mut requester), [(0, status)]);
            }
        }
    });
}

#[test]
fn flushes_and_atomic_writes_count_as_reads() {
    let psn = Psn::new(0);
    let config = RequesterConfig {
        max_rd_atomic: 2,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    requester.post(flush(8)).unwrap();
    requester.post(atomic_write()).unwrap();
    requester.post(read(1)).unwrap();
    requester.post(flush(8)).unwrap();
    // Behind a fence, all of them are waited for.
    let wr = SendWr {
        fence: true,
        ..send(1)
    };
    requester.post(wr).unwrap();
    use Opcode::*;
    assert_eq!(
        outline(&transmit(&mut requester, us(0)), psn),
        [(RcFlush, 0), (RcAtomicWrite, 1)]
    );
    respond(&mut requester, us(1), &empty_response(psn));
    assert_eq!(
        outline(&transmit(&mut requester, us(1)), psn),
        [(RcReadRequest, 2)]
    );
    respond(&mut requester, us(2), &empty_response(psn.add(1)));
    assert_eq!(
        outline(&transmit(&mut requester, us(2)), psn),
        [(RcFlush, 3)]
    );
    respond(
        &mut requester,
        us(3),
        &read_response(RcReadResponseOnly, psn.add(2), 1),
    );
    assert!(transmit(&mut requester, us(3)).is_empty());
    respond(&mut requester, us(4), &empty_response(psn.add(3)));
    assert_eq!(
        outline(&transmit(&mut requester, us(4)), psn),
        [(RcSendOnly, 4)]
    );
}

#[test]
fn flushes_and_atomic_writes_that_cannot_be() {
    let unreliable = RequesterConfig {
        service: Type::Uc,
        ..requester_config(Psn::new(0))
    };
    let none = RequesterConfig {
        max_rd_atomic: 0,
        ..requester_config(Psn::new(0))
    };
    let any = requester_config(Psn::new(0));
    let with = |placement, selectivity| SendWr {
        flush: Flush {
            placement,
            selectivity,
        },
        ..flush(8)
    };
    let extended = RequesterConfig {
        service: Type::XrcInitiator,
        ..requester_config(Psn::new(0))
    };
    for (config, wr) in [
        (unreliable, flush(8)),
        (unreliable, atomic_write()),
        (extended, flush(8)),
        (extended, atomic_write()),
        (none, flush(8)),
        (none, atomic_write()),
        (any, with(0, 0)),
        (any, with(4, 0)),
        (any, with(1, 2)),
    ] {
        let mut requester = requester_with(config);
        requester.post(wr).unwrap();
        assert!(transmit(&mut requester, us(0)).is_empty());
        assert_eq!(completions(&mut requester), [(0, Status::LocalQpOperation)]);
    }
}

/// Nothing but the burst bounds what an unreliable service sends in one go.
#[test]
fn bursts_are_bounded_in_packets() {
    let config = RequesterConfig {
        service: Type::Uc,
        mtu: Mtu::M256,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(100 * 256)).unwrap();
    let mut lengths = Vec::new();
    while let Some(SendAction::Transmit(burst)) = requester.poll_action() {
        lengths.push(burst.packets);
        requester.commit(us(0), burst.ticket, Outcome::Done);
    }
    assert_eq!(lengths, [MAX_BURST_PACKETS, 100 - MAX_BURST_PACKETS]);
}

#[test]
fn read_of_two_gib_completes() {
    let psn = Psn::new(0xff_fff0);
    let mut requester = requester(psn);
    requester.post(read(1 << 31)).unwrap();
    let mut expected = 0u64;
    let total = 1u32 << 23;
    for number in 0..total {
        transmit(&mut requester, us(0));
        let within = number % 128;
        let opcode = match within {
            0 => Opcode::RcReadResponseFirst,
            127 => Opcode::RcReadResponseLast,
            _ => Opcode::RcReadResponseMiddle,
        };
        let response = read_response(opcode, psn.add(number), MTU);
        let Received::Place { offset, length, .. } = respond(&mut requester, us(0), &response)
        else {
            panic!("response {number} is not wanted");
        };
        assert_eq!(u64::from(offset), expected);
        expected += u64::from(length);
    }
    assert_eq!(expected, 1 << 31);
    assert_eq!(completions(&mut requester), [(0, Status::Success)]);
}

#[test]
fn send_of_two_gib_in_bursts() {
    for (mtu, psns) in [(Mtu::M256, 1u32 << 23), (Mtu::M4096, 1 << 19)] {
        let psn = Psn::new(0xff_ff00);
        let config = RequesterConfig {
            mtu,
            window_packets: u32::MAX,
            window_packets_most: u32::MAX,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(send(1 << 31)).unwrap();
        let mut sent = 0;
        let mut bytes = 0u64;
        while let Some(SendAction::Transmit(burst)) = requester.poll_action() {
            assert!(burst.length <= 65_536 && burst.packets > 0);
            assert_eq!(u64::from(burst.offset), bytes);
            let (last, ..) = requester.packet(&burst, burst.packets - 1).unwrap();
            assert_eq!(last.psn, psn.add(sent + burst.packets - 1));
            assert_eq!(last.opcode.ends_message(), sent + burst.packets == psns);
            sent += burst.packets;
            bytes += u64::from(burst.length);
            requester.commit(us(0), burst.ticket, Outcome::Done);
            if sent % (1 << 16) == 0 {
                respond(&mut requester, us(0), &ack(psn.add(sent - 1)));
            }
        }
        assert_eq!((bytes, sent), (1 << 31, psns));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    }
}

#[test]
fn acknowledgement_before_commit() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(read(1)).unwrap();
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        respond(&mut requester, us(1), &ack(psn));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        requester.commit(us(2), burst.ticket, Outcome::Done);
        assert_eq!(requester.poll_timeout(), None);
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        let response = read_response(Opcode::RcReadResponseOnly, psn.add(1), 1);
        respond(&mut requester, us(3), &response);
        requester.commit(us(4), burst.ticket, Outcome::Done);
        assert_eq!(completions(&mut requester), [(1, Status::Success)]);
        assert!(requester.drained());
    });
}

#[test]
fn going_back_before_commit() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        requester.post(send(1)).unwrap();
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        respond(&mut requester, us(1), &nak(psn, NakCode::SequenceError));
        requester.commit(us(2), burst.ticket, Outcome::Done);
        let packets = transmit(&mut requester, us(2));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcSendOnly, 0), (Opcode::RcSendOnly, 1)]
        );
    });
}

#[test]
fn local_errors_wait_for_what_was_before() {
    with_psns(|psn| {
        for (outcome, status) in [
            (Outcome::Protection, Status::LocalProtection),
            (Outcome::Operational, Status::LocalQpOperation),
        ] {
            let mut requester = requester(psn);
            requester.post(send(1)).unwrap();
            transmit(&mut requester, us(0));
            requester.post(send(1)).unwrap();
            requester.post(send(1)).unwrap();
            let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
                panic!("nothing to send");
            };
            requester.commit(us(0), burst.ticket, outcome);
            assert!(requester.poll_action().is_none());
            assert_eq!(requester.take_error(), None);
            // The one before is even sent again.
            requester.on_timeout(us(1_000));
            assert_eq!(transmit(&mut requester, us(1_000)).len(), 1);
            respond(&mut requester, us(1_001), &ack(psn));
            assert_eq!(requester.take_error(), Some(status));
            requester.flush();
            assert_eq!(
                completions(&mut requester),
                [(0, Status::Success), (1, status), (2, Status::Flushed)]
            );
        }
    });
}

/// What failed was sending once more what had arrived; the one behind it is refused all the same.
#[test]
fn refusal_is_not_forgotten_for_an_error_before() {
    let mut requester = requester_with(RequesterConfig {
        max_rd_atomic: 0,
        ..requester_config(Psn::new(0))
    });
    for wr in [send(1), send(1), read(1), send(1)] {
        requester.post(wr).unwrap();
    }
    assert_eq!(transmit(&mut requester, us(0)).len(), 2);
    requester.on_timeout(us(1_000));
    for outcome in [Outcome::Done, Outcome::Protection] {
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        requester.commit(us(1_000), burst.ticket, outcome);
    }
    assert!(requester.poll_action().is_none());
    respond(&mut requester, us(1_001), &ack(Psn::new(1)));
    assert!(transmit(&mut requester, us(1_001)).is_empty());
    assert_eq!(requester.take_error(), Some(Status::LocalQpOperation));
    requester.flush();
    let ends = completions(&mut requester);
    assert_eq!(ends.len(), 4);
    assert_eq!(ends[2], (2, Status::LocalQpOperation));
}

#[test]
fn local_operation_fails() {
    for (outcome, status) in [
        (Outcome::Protection, Status::LocalProtection),
        (Outcome::Length, Status::LocalLength),
        (Outcome::MemoryWindowBind, Status::MemoryWindowBind),
    ] {
        let mut requester = requester(Psn::new(0));
        let wr = SendWr {
            operation: SendOperation::Local,
            ..SendWr::default()
        };
        requester.post(wr).unwrap();
        let Some(SendAction::Local {
            ticket,
            sequence: 0,
        }) = requester.poll_action()
        else {
            panic!("nothing to execute");
        };
        requester.commit(us(0), ticket, outcome);
        assert_eq!(requester.take_error(), Some(status));
    }
}

#[test]
fn placing_fails() {
    let mut requester = requester(Psn::new(0));
    requester.post(read(1)).unwrap();
    transmit(&mut requester, us(0));
    let response = read_response(Opcode::RcReadResponseOnly, Psn::new(0), 1);
    let Received::Place { ticket, .. } = requester.receive(us(1), &response) else {
        panic!("not placed");
    };
    // One at a time.
    assert_eq!(
        requester.receive(us(1), &response),
        Received::Dropped(DropReason::Busy)
    );
    requester.commit_place(us(1), ticket, Outcome::Protection);
    assert_eq!(requester.take_error(), Some(Status::LocalProtection));
}

#[test]
fn again_parks_a_transmission() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(300)).unwrap();
        let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
            panic!("nothing to send");
        };
        assert!(requester.poll_action().is_none());
        requester.commit(us(0), burst.ticket, Outcome::Again);
        assert!(requester.is_parked() && requester.poll_action().is_none());
        assert_eq!(requester.poll_timeout(), None);
        requester.resume();
        assert_eq!(transmit(&mut requester, us(1)).len(), 2);
    });
}

#[test]
fn again_holds_a_response() {
    with_psns(|psn| {
        let config = RequesterConfig {
            retry_count: 0,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(read(1)).unwrap();
        transmit(&mut requester, us(0));
        let response = read_response(Opcode::RcReadResponseOnly, psn, 1);
        for number in 0..5 {
            let now = us(number * 1_000);
            let Received::Place { ticket, .. } = requester.receive(now, &response) else {
                panic!("not placed");
            };
            requester.commit_place(now, ticket, Outcome::Again);
            // The peer has answered: it is not its fault.
            requester.on_timeout(us(number * 1_000 + 2_000));
            assert_eq!(requester.take_error(), None);
        }
        transmit(&mut requester, us(10_000));
        respond(&mut requester, us(10_000), &response);
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    });
}

#[test]
fn pause_drains() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(200 * MTU)).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        requester.pause();
        assert!(!requester.drained());
        // The message that has begun goes on, recovery included.
        respond(
            &mut requester,
            us(1),
            &nak(psn.add(100), NakCode::SequenceError),
        );
        // With half the window.
        assert_eq!(transmit(&mut requester, us(1)).len(), 64);
        respond(&mut requester, us(2), &ack(psn.add(163)));
        assert!(!requester.drained());
        assert_eq!(transmit(&mut requester, us(2)).len(), 36);
        respond(&mut requester, us(2), &ack(psn.add(199)));
        assert!(requester.drained());
        assert!(transmit(&mut requester, us(2)).is_empty());
        requester.start();
        assert_eq!(transmit(&mut requester, us(3)).len(), 1);
    });
}

#[test]
fn queue_is_bounded() {
    let mut requester = requester(Psn::new(0));
    for number in 0..64 {
        assert_eq!(requester.post(send(1)), Ok(number));
    }
    assert_eq!(requester.post(send(1)), Err(Full));
    transmit(&mut requester, us(0));
    respond(&mut requester, us(1), &ack(Psn::new(0)));
    // Only the completion makes room.
    assert_eq!(requester.post(send(1)), Err(Full));
    completions(&mut requester);
    assert_eq!(requester.post(send(1)), Ok(64));
}

#[test]
fn storage_may_have_any_length() {
    for (len, capacity) in [(0, 0), (1, 1), (3, 2), (64, 64), (65, 64)] {
        let mut requester = roce::requester::Requester::new(vec![Default::default(); len]);
        requester.configure(requester_config(Psn::new(0)));
        requester.start();
        assert_eq!(requester.capacity(), capacity);
        for _ in 0..capacity {
            requester.post(send(1)).unwrap();
        }
        assert_eq!(requester.post(send(1)), Err(Full));
        transmit(&mut requester, us(0));
        requester.flush();
        assert_eq!(completions(&mut requester).len(), capacity as usize);
    }
}

#[test]
fn reset_forgets_everything() {
    let mut requester = requester(Psn::new(5));
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    requester.post(send(1)).unwrap();
    let Some(SendAction::Transmit(burst)) = requester.poll_action() else {
        panic!("nothing to send");
    };
    requester.reset();
    requester.commit(us(1), burst.ticket, Outcome::Done);
    assert!(completions(&mut requester).is_empty());
    assert_eq!(requester.poll_timeout(), None);
    requester.configure(requester_config(Psn::new(9)));
    requester.start();
    assert_eq!(requester.post(send(1)), Ok(0));
    assert_eq!(transmit(&mut requester, us(2))[0].psn, Psn::new(9));
}

#[test]
fn requests_that_cannot_be() {
    for (service, wr, status) in [
        (Type::Rc, send((1 << 31) + 1), Status::LocalLength),
        (Type::XrcInitiator, send((1 << 31) + 1), Status::LocalLength),
        (Type::Uc, read(1), Status::LocalQpOperation),
        (Type::Ud, send(257), Status::LocalLength),
        (
            Type::Ud,
            operation(SendOperation::Write, 1),
            Status::LocalQpOperation,
        ),
    ] {
        let config = RequesterConfig {
            service,
            ..requester_config(Psn::new(0))
        };
        let mut requester = requester_with(config);
        requester.post(send(1)).unwrap();
        requester.post(wr).unwrap();
        transmit(&mut requester, us(0));
        for answer in [ack(Psn::new(0)), xrc(ack(Psn::new(0)), 0)] {
            respond(&mut requester, us(1), &answer);
        }
        assert_eq!(requester.take_error(), Some(status));
        assert_eq!(
            completions(&mut requester),
            [(0, Status::Success), (1, status)]
        );
    }
}

#[test]
fn unreliable_services_need_no_answer() {
    with_psns(|psn| {
        let config = RequesterConfig {
            service: Type::Uc,
            ..requester_config(psn)
        };
        let mut requester = requester_with(config);
        requester.post(send(300)).unwrap();
        requester.post(operation(SendOperation::Write, 1)).unwrap();
        let packets = transmit(&mut requester, us(0));
        use Opcode::*;
        assert_eq!(
            outline(&packets, psn),
            [(UcSendFirst, 0), (UcSendLast, 1), (UcWriteOnly, 2)]
        );
        assert_eq!(completions(&mut requester).len(), 2);
        assert_eq!(requester.poll_timeout(), None);
        assert_eq!(
            respond(&mut requester, us(1), &ack(psn)),
            Received::Dropped(DropReason::Opcode)
        );
    });
}

fn initiator(psn: Psn) -> Requester<Vec<SendSlot>> {
    requester_with(RequesterConfig {
        service: Type::XrcInitiator,
        ..requester_config(psn)
    })
}

/// The numbers of the SRQs that packets are for.
fn srqns(packets: &[Packet]) -> Vec<u32> {
    let number = |packet: &Packet| packet.xrc_srqn.unwrap().get();
    packets.iter().map(number).collect()
}

#[test]
fn requests_of_xrc_name_their_srq() {
    use Opcode::*;
    with_psns(|psn| {
        let mut requester = initiator(psn);
        let wrs = [
            send(600),
            SendWr {
                immediate: Some(9),
                ..operation(SendOperation::Write, 300)
            },
            SendWr {
                invalidate_rkey: Some(5),
                ..send(1)
            },
            operation(SendOperation::Write, 0),
            read(300),
            fetch_add(),
            operation(SendOperation::CompareSwap, 8),
        ];
        for (srqn, wr) in (0xff_fffd..).zip(wrs) {
            requester
                .post(SendWr {
                    xrc_srqn: srqn,
                    ..wr
                })
                .unwrap();
        }
        let packets = transmit(&mut requester, us(0));
        assert_eq!(
            outline(&packets, psn),
            [
                (XrcSendFirst, 0),
                (XrcSendMiddle, 1),
                (XrcSendLast, 2),
                (XrcWriteFirst, 3),
                (XrcWriteLastImm, 4),
                (XrcSendOnlyInvalidate, 5),
                (XrcWriteOnly, 6),
                (XrcReadRequest, 7),
                (XrcFetchAdd, 9),
                (XrcCompareSwap, 10),
            ]
        );
        // In each packet; of the number, the lower 24 bits.
        let (a, b, c) = (0xff_fffd, 0xff_fffe, 0xff_ffff);
        assert_eq!(srqns(&packets), [a, a, a, b, b, c, 0, 1, 2, 3]);
        assert!(packets.iter().all(|packet| packet.dest_qpn == 0x22));
        let mut buffer = [0; roce::packet::MAX_HEADER_LEN];
        assert!(packets
            .iter()
            .all(|packet| packet.emit(&mut buffer).is_some()));

        // What RC answers is not for it.
        assert_eq!(
            respond(&mut requester, us(1), &ack(psn.add(6))),
            Received::Dropped(DropReason::Opcode)
        );
        for (answer, completed) in [
            (ack(psn.add(6)), 4),
            (read_response(RcReadResponseFirst, psn.add(7), MTU), 0),
            (read_response(RcReadResponseLast, psn.add(8), 300 - MTU), 1),
            (atomic_ack(psn.add(9), 1), 1),
            (atomic_ack(psn.add(10), 2), 1),
        ] {
            respond(&mut requester, us(1), &xrc(answer, 0));
            let done = completions(&mut requester);
            assert_eq!(done.len(), completed);
            assert!(done.iter().all(|(_, status)| *status == Status::Success));
        }
        assert_eq!(requester.poll_timeout(), None);
    });
}

#[test]
fn requests_of_xrc_are_sent_again() {
    use Opcode::*;
    with_psns(|psn| {
        let mut requester = initiator(psn);
        for (xrc_srqn, length) in [(7, 300), (8, 1)] {
            let wr = SendWr {
                xrc_srqn,
                ..send(length)
            };
            requester.post(wr).unwrap();
        }
        transmit(&mut requester, us(0));
        // After a gap.
        let gap = nak(psn.add(1), NakCode::SequenceError);
        respond(&mut requester, us(1), &xrc(gap, 0));
        let packets = transmit(&mut requester, us(1));
        let expected = [(XrcSendLast, 1), (XrcSendOnly, 2)];
        assert_eq!(outline(&packets, psn), expected);
        assert_eq!(srqns(&packets), [7, 8]);
        // The SRQ is empty.
        respond(&mut requester, us(2), &xrc(rnr(psn.add(2), 1), 0));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        let deadline = requester.poll_timeout().unwrap();
        requester.on_timeout(deadline);
        let packets = transmit(&mut requester, deadline);
        assert_eq!(outline(&packets, psn), [(XrcSendOnly, 2)]);
        assert_eq!(srqns(&packets), [8]);
        // There is none.
        let refusal = nak(psn.add(2), NakCode::InvalidRequest);
        respond(&mut requester, deadline, &xrc(refusal, 0));
        let status = Status::RemoteInvalidRequest;
        assert_eq!(requester.take_error(), Some(status));
        assert_eq!(completions(&mut requester), [(1, status)]);
    });
}

#[test]
fn targets_of_xrc_send_nothing() {
    let config = RequesterConfig {
        service: Type::XrcTarget,
        ..requester_config(Psn::new(0))
    };
    for wr in [
        send(1),
        operation(SendOperation::Write, 1),
        read(1),
        fetch_add(),
        flush(8),
        atomic_write(),
    ] {
        let mut requester = requester_with(config);
        requester.post(wr).unwrap();
        assert!(transmit(&mut requester, us(0)).is_empty());
        assert_eq!(completions(&mut requester), [(0, Status::LocalQpOperation)]);
    }
    let mut requester = requester_with(config);
    assert_eq!(
        respond(&mut requester, us(0), &xrc(ack(Psn::new(0)), 0)),
        Received::Dropped(DropReason::Opcode)
    );
}

#[test]
fn raw_packets_are_for_the_driver() {
    let frame = SendWr {
        operation: SendOperation::Local,
        length: 1514,
        signaled: true,
        ..SendWr::default()
    };
    let mut requester = requester_with(RequesterConfig {
        service: Type::RawPacket,
        ..requester_config(Psn::new(0))
    });
    for _ in 0..3 {
        requester.post(frame).unwrap();
    }
    let local = |requester: &mut Requester<_>, outcome| {
        let Some(SendAction::Local { ticket, .. }) = requester.poll_action() else {
            panic!("nothing to execute");
        };
        requester.commit(us(0), ticket, outcome);
    };
    local(&mut requester, Outcome::Done);
    let done = requester.poll_completion().unwrap();
    assert_eq!((done.status, done.length), (Status::Success, 1514));
    // Pages are faulted in, and the frame is not sent before.
    local(&mut requester, Outcome::Again);
    assert!(requester.poll_action().is_none() && requester.is_parked());
    requester.resume();
    local(&mut requester, Outcome::Length);
    assert_eq!(requester.take_error(), Some(Status::LocalLength));
    requester.flush();
    let rest = [(1, Status::LocalLength), (2, Status::Flushed)];
    assert_eq!(completions(&mut requester), rest);
    assert_eq!(requester.poll_timeout(), None);
    // After SQE it goes on. What needs a transport has none.
    requester.start();
    requester.post(frame).unwrap();
    local(&mut requester, Outcome::Done);
    requester.post(send(64)).unwrap();
    assert!(requester.poll_action().is_none());
    let rest = [(3, Status::Success), (4, Status::LocalQpOperation)];
    assert_eq!(completions(&mut requester), rest);
}

#[test]
fn datagrams_name_their_destination() {
    for service in [Type::Ud, Type::Gsi] {
        let config = RequesterConfig {
            service,
            ..requester_config(Psn::new(0))
        };
        let mut requester = requester_with(config);
        let wr = SendWr {
            qkey: 0x8001_0000,
            dest_qpn: 1,
            immediate: Some(3),
            ..send(256)
        };
        requester.post(wr).unwrap();
        let packet = transmit(&mut requester, us(0))[0];
        assert_eq!(packet.opcode, Opcode::UdSendOnlyImm);
        assert_eq!(packet.dest_qpn, 1);
        let deth = packet.deth.unwrap();
        assert_eq!((deth.qkey, deth.src_qpn), (0x8001_0000, 0x11));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    }
}

#[test]
fn send_queue_error_of_an_unreliable_service_is_recovered_from() {
    let config = RequesterConfig {
        service: Type::Ud,
        ..requester_config(Psn::new(0))
    };
    let mut requester = requester_with(config);
    requester.post(send(1_000)).unwrap();
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    assert_eq!(requester.take_error(), Some(Status::LocalLength));
    requester.start();
    requester.post(send(1)).unwrap();
    assert_eq!(transmit(&mut requester, us(0)).len(), 1);
    assert_eq!(
        completions(&mut requester),
        [
            (0, Status::LocalLength),
            (1, Status::Flushed),
            (2, Status::Success)
        ]
    );
}

#[test]
fn partitions_are_kept_apart() {
    let mut requester = requester(Psn::new(0));
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    let mut response = ack(Psn::new(0));
    response.pkey = 0x8001;
    assert_eq!(
        respond(&mut requester, us(1), &response),
        Received::Dropped(DropReason::Pkey)
    );
    response.pkey = 0x7fff;
    assert_eq!(respond(&mut requester, us(1), &response), Received::Nothing);
}

/// A requester that has seen an answer within 10 us, and whose timeout is 100 ms.
fn quick_requester(psn: Psn, retry_count: u8) -> Requester<Vec<SendSlot>> {
    let mut requester = requester_with(RequesterConfig {
        timeout: Some(Duration::from_ms(100)),
        retry_count,
        ..requester_config(psn)
    });
    requester.post(send(1)).unwrap();
    transmit(&mut requester, us(0));
    respond(&mut requester, us(10), &ack(psn));
    assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    requester
}

#[test]
fn silence_is_probed_with_one_packet() {
    with_psns(|psn| {
        let mut requester = quick_requester(psn, 0);
        requester.post(send(3 * MTU)).unwrap();
        assert_eq!(transmit(&mut requester, us(1_000)).len(), 3);
        // Each probe waits twice as long, and the timeout runs on.
        let mut at = 1_000;
        for wait in [4_000, 8_000, 16_000, 32_000] {
            at += wait;
            assert_eq!(requester.poll_timeout(), Some(us(at)));
            requester.on_timeout(us(at));
            let packets = transmit(&mut requester, us(at));
            assert_eq!(outline(&packets, psn), [(Opcode::RcSendFirst, 1)]);
            assert!(packets[0].ack_request);
        }
        assert_eq!(requester.poll_timeout(), Some(us(101_000)));
        requester.on_timeout(us(101_000));
        assert_eq!(requester.take_error(), Some(Status::RetryExceeded));
    });
}

#[test]
fn the_answer_to_a_probe_goes_on() {
    with_psns(|psn| {
        // Nothing of the retry counter is there to be taken.
        let mut requester = quick_requester(psn, 0);
        requester.post(send(3 * MTU)).unwrap();
        transmit(&mut requester, us(1_000));
        requester.on_timeout(us(5_000));
        assert_eq!(transmit(&mut requester, us(5_000)).len(), 1);
        // The first packet had been lost, and those behind it went unanswered.
        respond(&mut requester, us(5_010), &ack(psn.add(1)));
        let packets = transmit(&mut requester, us(5_010));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcSendMiddle, 2), (Opcode::RcSendLast, 3)]
        );
        // The ACK is lost; a probe has it sent again.
        let deadline = requester.poll_timeout().unwrap();
        assert!(deadline < us(20_000));
        requester.on_timeout(deadline);
        assert_eq!(transmit(&mut requester, deadline).len(), 1);
        respond(&mut requester, deadline, &ack(psn.add(3)));
        assert_eq!(completions(&mut requester), [(1, Status::Success)]);
        assert_eq!(requester.poll_timeout(), None);
    });
}

#[test]
fn what_was_sent_twice_is_not_measured() {
    with_psns(|psn| {
        let mut requester = requester_with(RequesterConfig {
            timeout: Some(Duration::from_ms(100)),
            ..requester_config(psn)
        });
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        requester.on_timeout(us(100_000));
        transmit(&mut requester, us(100_000));
        respond(&mut requester, us(100_010), &ack(psn));
        // So nothing is known, and the timeout is all there is.
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(200_000));
        assert_eq!(requester.poll_timeout(), Some(us(300_000)));
    });
}
