// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: timeouts, retries, probes.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    psn::Psn,
    requester::{
        Received,
        Requester,
        RequesterConfig,
        SendSlot, //
    },
    status::Status,
    time::Duration, //
};

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
        respond(&mut requester, us(300), &ack(psn));
        assert_eq!(requester.poll_timeout(), Some(us(1_300)));
        // What is no progress does not.
        respond(&mut requester, us(400), &ack(psn));
        assert_eq!(requester.poll_timeout(), Some(us(1_300)));
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
            now += 300;
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
        // One packet, until there is an answer.
        let packets = transmit(&mut requester, us(1_005));
        assert_eq!(outline(&packets, psn), [(Opcode::RcSendFirst, 0)]);
        assert!(packets[0].ack_request);
        assert_eq!(requester.poll_timeout(), Some(us(2_005)));
        assert_eq!(requester.counters().timeouts, 1);
        // That one had been lost, so the other one was, too.
        respond(&mut requester, us(1_010), &ack(psn));
        let packets = transmit(&mut requester, us(1_010));
        assert_eq!(outline(&packets, psn), [(Opcode::RcSendLast, 1)]);
        respond(&mut requester, us(1_020), &ack(psn.add(1)));
        // How long its answer took is not known, as it was sent twice.
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(2_000));
        assert_eq!(requester.poll_timeout(), Some(us(3_000)));
    });
}

/// An acknowledgement that was not asked for answers the packet that was sent again: what lies behind is lost.
#[test]
fn unasked_answer_after_a_timeout_means_loss() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        for _ in 0..8 {
            requester.post(send(1)).unwrap();
        }
        let packets = transmit(&mut requester, us(0));
        assert_eq!(packets.len(), 8);
        assert!(!asking(&packets)[3]);
        requester.on_timeout(us(1_000));
        assert_eq!(transmit(&mut requester, us(1_000)).len(), 1);
        respond(&mut requester, us(1_010), &ack(psn.add(3)));
        assert_eq!(transmit(&mut requester, us(1_010)).len(), 4);
    });
}

/// A lost acknowledgement says nothing of how long answers take.
#[test]
fn lost_acknowledgement_is_not_measured() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(300)).unwrap();
        transmit(&mut requester, us(0));
        requester.on_timeout(us(1_000));
        assert_eq!(transmit(&mut requester, us(1_000)).len(), 1);
        respond(&mut requester, us(1_010), &ack(psn.add(1)));
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(2_000));
        assert_eq!(requester.poll_timeout(), Some(us(3_000)));
    });
}

/// Where answers take longer than the timeout, what is on its way is not sent again: each packet in a queue that grows
/// would make them take longer still.
#[test]
fn slow_answers_are_waited_for() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        // Each asks for an acknowledgement, as no other follows at once.
        for _ in 0..4 {
            requester.post(send(4 * MTU)).unwrap();
            assert_eq!(transmit(&mut requester, us(0)).len(), 4);
        }
        for attempt in 1..3 {
            requester.on_timeout(us(1_000 * attempt));
            let packets = transmit(&mut requester, us(1_000 * attempt));
            assert_eq!(outline(&packets, psn), [(Opcode::RcSendFirst, 0)]);
        }
        // The answer to the first message is one to what was sent first.
        respond(&mut requester, us(2_500), &ack(psn.add(3)));
        assert!(transmit(&mut requester, us(2_500)).is_empty());
        // New messages are sent.
        requester.post(send(1)).unwrap();
        let packets = transmit(&mut requester, us(2_510));
        assert_eq!(outline(&packets, psn), [(Opcode::RcSendOnly, 16)]);
        // How long answers take is known by now. Four timeouts are the most (IBTA 9.7.6.1.3).
        respond(&mut requester, us(3_300), &ack(psn.add(7)));
        assert_eq!(requester.poll_timeout(), Some(us(3_300 + 4_000)));
        // The timer expires after all, and what is acknowledged then asked for no acknowledgement: all behind is lost.
        requester.on_timeout(us(7_300));
        assert_eq!(transmit(&mut requester, us(7_300)).len(), 1);
        respond(&mut requester, us(7_400), &ack(psn.add(9)));
        assert_eq!(transmit(&mut requester, us(7_400)).len(), 7);
        assert_eq!(requester.counters().timeouts, 3);
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
            requester.pause(us(1));
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
