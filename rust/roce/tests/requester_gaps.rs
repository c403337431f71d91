// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: gaps, which it goes back for, and receivers that are not ready.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::NakCode,
    psn::Psn,
    requester::{
        Placement,
        Received,
        Requester,
        RequesterConfig,
        SendSlot, //
    },
    status::Status,
    time::{
        rnr_delay,
        Duration, //
    }, //
};

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
        assert!(matches!(
            received,
            Received::Place(Placement { sequence: 1, .. })
        ));
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
        // One packet tries, and the next follows its acknowledgement.
        assert_eq!(transmit(&mut requester, us(110)).len(), 1);
        respond(&mut requester, us(120), &ack(psn));
        assert_eq!(transmit(&mut requester, us(120)).len(), 1);
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
                assert_eq!(transmit(&mut requester, now).len(), 1);
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

/// A requester with a message of three packets, which the driver has sent, and one of a packet, which it could not.
fn requester_with_a_parked_message(config: RequesterConfig) -> Requester<Vec<SendSlot>> {
    let mut requester = requester_with(config);
    requester.post(send(700)).unwrap();
    requester.post(send(1)).unwrap();
    let burst = poll_burst(&mut requester);
    assert_eq!(burst.packets, 3);
    commit_burst(&mut requester, us(0), burst, Outcome::Done);
    let burst = poll_burst(&mut requester);
    assert_eq!(burst.sequence, 1);
    commit_burst(&mut requester, us(0), burst, Outcome::Again);
    assert!(requester.is_parked());
    requester
}

/// The driver waits for memory, maybe for long: what lies before need not.
#[test]
fn gap_before_a_parked_message_is_filled() {
    with_psns(|psn| {
        let mut requester = requester_with_a_parked_message(requester_config(psn));
        let lost = nak(psn.add(1), NakCode::SequenceError);
        respond(&mut requester, us(1), &lost);
        let packets = transmit(&mut requester, us(1));
        use Opcode::*;
        assert_eq!(outline(&packets, psn), [(RcSendMiddle, 1), (RcSendLast, 2)]);
        // The parked one asks for nothing.
        assert_eq!(asking(&packets), [true, true]);
        assert!(requester.is_parked() && requester.poll_timeout().is_some());
        respond(&mut requester, us(2), &ack(psn.add(2)));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
        assert!(transmit(&mut requester, us(2)).is_empty());
        requester.resume();
        let packets = transmit(&mut requester, us(3));
        assert_eq!(outline(&packets, psn), [(RcSendOnly, 3)]);
    });
}

#[test]
fn receiver_that_is_not_ready_is_asked_again_before_a_parked_message() {
    with_psns(|psn| {
        let mut requester = requester_with_a_parked_message(requester_config(psn));
        respond(&mut requester, us(1), &rnr(psn, 1));
        assert!(transmit(&mut requester, us(1)).is_empty());
        let ready = us(1).add(rnr_delay(1));
        assert_eq!(requester.poll_timeout(), Some(ready));
        requester.on_timeout(ready);
        let packets = transmit(&mut requester, ready);
        assert_eq!(outline(&packets, psn), [(Opcode::RcSendFirst, 0)]);
        respond(&mut requester, ready, &ack(psn));
        let packets = transmit(&mut requester, ready);
        let rest = [(Opcode::RcSendMiddle, 1), (Opcode::RcSendLast, 2)];
        assert_eq!(outline(&packets, psn), rest);
    });
}

/// A probe that is answered says how far the peer is: the rest follows.
#[test]
fn rest_before_a_parked_message_follows_the_probe() {
    with_psns(|psn| {
        let mut requester = requester_with_a_parked_message(requester_config(psn));
        let now = requester.poll_timeout().unwrap();
        requester.on_timeout(now);
        assert_eq!(
            outline(&transmit(&mut requester, now), psn),
            [(Opcode::RcSendFirst, 0)]
        );
        respond(&mut requester, now, &ack(psn));
        let rest = [(Opcode::RcSendMiddle, 1), (Opcode::RcSendLast, 2)];
        assert_eq!(outline(&transmit(&mut requester, now), psn), rest);
        assert!(requester.poll_timeout().is_some());
    });
}

/// That the driver waits for memory does not hide that the peer is gone.
#[test]
fn silence_before_a_parked_message_fails() {
    with_psns(|psn| {
        let config = RequesterConfig {
            retry_count: 2,
            ..requester_config(psn)
        };
        let mut requester = requester_with_a_parked_message(config);
        let mut attempts = 0;
        while let Some(deadline) = requester.poll_timeout() {
            requester.on_timeout(deadline);
            attempts += transmit(&mut requester, deadline).len();
        }
        // A probe, and two retries.
        assert_eq!(attempts, 3);
        assert_eq!(requester.take_error(), Some(Status::RetryExceeded));
    });
}

/// The driver may stop in the middle of a message.
#[test]
fn gap_in_a_parked_message_is_filled_up_to_where_it_is_parked() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(100 * MTU)).unwrap();
        let burst = poll_burst(&mut requester);
        let sent = burst.packets;
        commit_burst(&mut requester, us(0), burst, Outcome::Done);
        let burst = poll_burst(&mut requester);
        commit_burst(&mut requester, us(0), burst, Outcome::Again);
        let lost = nak(psn.add(sent - 2), NakCode::SequenceError);
        respond(&mut requester, us(2), &lost);
        let packets = transmit(&mut requester, us(2));
        let rest = [-2, -1].map(|index| (Opcode::RcSendMiddle, sent as i32 + index));
        assert_eq!(outline(&packets, psn), rest);
        requester.resume();
        let packets = transmit(&mut requester, us(3));
        assert_eq!(packets[0].psn, psn.add(sent));
    });
}

/// A message that was executed, and whose acknowledgement was lost, is parked when it is repeated.
#[test]
fn parked_message_that_is_acknowledged_does_not_hold_up_the_next() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(send(1)).unwrap();
        assert_eq!(transmit(&mut requester, us(0)).len(), 2);
        let lost = nak(psn, NakCode::SequenceError);
        respond(&mut requester, us(1), &lost);
        let burst = poll_burst(&mut requester);
        commit_burst(&mut requester, us(1), burst, Outcome::Done);
        let burst = poll_burst(&mut requester);
        assert_eq!(burst.sequence, 1);
        commit_burst(&mut requester, us(1), burst, Outcome::Again);
        requester.post(send(1)).unwrap();
        assert!(transmit(&mut requester, us(1)).is_empty());
        respond(&mut requester, us(2), &ack(psn.add(1)));
        assert_eq!(completions(&mut requester).len(), 2);
        let packets = transmit(&mut requester, us(2));
        assert_eq!(outline(&packets, psn), [(Opcode::RcSendOnly, 2)]);
    });
}
