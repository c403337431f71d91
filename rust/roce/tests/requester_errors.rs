// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: what fails, what has to wait, and limits.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::NakCode,
    psn::Psn,
    qp::Type,
    requester::{
        Full,
        Received,
        RequesterConfig,
        SendAction,
        SendOperation,
        SendWr, //
    },
    status::Status, //
};

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
            let burst = poll_burst(&mut requester);
            commit_burst(&mut requester, us(0), burst, outcome);
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

/// A request that had arrived fails when it is sent once more. The one behind it is refused all the same.
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
    respond(
        &mut requester,
        us(1_000),
        &nak(Psn::new(0), NakCode::SequenceError),
    );
    for outcome in [Outcome::Done, Outcome::Protection] {
        let burst = poll_burst(&mut requester);
        commit_burst(&mut requester, us(1_000), burst, outcome);
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
        let action = requester.poll_action().unwrap();
        assert_eq!(action, SendAction::Local { sequence: 0 });
        requester.commit(us(0), action, outcome);
        assert_eq!(requester.take_error(), Some(status));
    }
}

#[test]
fn placing_fails() {
    let mut requester = requester(Psn::new(0));
    requester.post(read(1)).unwrap();
    transmit(&mut requester, us(0));
    let response = read_response(Opcode::RcReadResponseOnly, Psn::new(0), 1);
    let Received::Place(placement) = requester.receive(us(1), &response) else {
        panic!("not placed");
    };
    requester.commit_place(us(1), placement, Outcome::Protection);
    assert_eq!(requester.take_error(), Some(Status::LocalProtection));
}

#[test]
fn again_parks_a_transmission() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(300)).unwrap();
        let burst = poll_burst(&mut requester);
        commit_burst(&mut requester, us(0), burst, Outcome::Again);
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
            let Received::Place(placement) = requester.receive(now, &response) else {
                panic!("not placed");
            };
            requester.commit_place(now, placement, Outcome::Again);
            // The peer has answered: it is not its fault.
            requester.on_timeout(us(number * 1_000 + 2_000));
            assert_eq!(requester.take_error(), None);
        }
        transmit(&mut requester, us(10_000));
        respond(&mut requester, us(10_000), &response);
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    });
}

/// The driver could not keep the response, and the peer is gone by then.
#[test]
fn response_that_could_not_be_held() {
    with_psns(|psn| {
        let mut requester = requester_with(RequesterConfig {
            retry_count: 2,
            ..requester_config(psn)
        });
        requester.post(read(1)).unwrap();
        transmit(&mut requester, us(0));
        let response = read_response(Opcode::RcReadResponseOnly, psn, 1);
        let Received::Place(placement) = requester.receive(us(0), &response) else {
            panic!("not placed");
        };
        requester.commit_place(us(0), placement, Outcome::Again);
        requester.response_lost();
        for attempt in 1..=2 {
            let now = us(attempt * 1_000);
            requester.on_timeout(now);
            assert_eq!(transmit(&mut requester, now).len(), 1);
            assert_eq!(requester.take_error(), None);
        }
        requester.on_timeout(us(3_000));
        assert_eq!(requester.take_error(), Some(Status::RetryExceeded));
        assert_eq!(completions(&mut requester), [(0, Status::RetryExceeded)]);
    });
}

#[test]
fn nothing_is_asked_for_while_a_response_is_held() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        // It knows how long answers take, and would ask early.
        requester.post(read(1)).unwrap();
        transmit(&mut requester, us(0));
        let response = |psn| read_response(Opcode::RcReadResponseOnly, psn, 1);
        respond(&mut requester, us(1), &response(psn));
        requester.post(read(1)).unwrap();
        transmit(&mut requester, us(1));
        let Received::Place(placement) = requester.receive(us(2), &response(psn.add(1))) else {
            panic!("not placed");
        };
        requester.commit_place(us(2), placement, Outcome::Again);
        for _ in 0..100 {
            let now = requester.poll_timeout().unwrap();
            requester.on_timeout(now);
            assert!(transmit(&mut requester, now).is_empty());
        }
        assert_eq!(requester.counters().timeouts, 0);
        respond(&mut requester, us(1_000_000), &response(psn.add(1)));
        assert_eq!(
            completions(&mut requester),
            [(0, Status::Success), (1, Status::Success)]
        );
    });
}

#[test]
fn pause_drains() {
    with_psns(|psn| {
        let mut requester = requester_with(RequesterConfig {
            window_packets: 128,
            window_packets_most: 128,
            ..requester_config(psn)
        });
        requester.post(send(200 * MTU)).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        requester.pause(us(0));
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
    poll_burst(&mut requester);
    requester.reset();
    assert!(completions(&mut requester).is_empty());
    assert_eq!(requester.poll_timeout(), None);
    requester.configure(requester_config(Psn::new(9)));
    requester.start();
    assert_eq!(requester.post(send(1)), Ok(0));
    assert_eq!(transmit(&mut requester, us(2))[0].psn, Psn::new(9));
}

#[test]
fn requests_that_cannot_be() {
    let send_invalidate = SendWr {
        invalidate_rkey: Some(5),
        ..send(1)
    };
    for (service, wr, status) in [
        (Type::Rc, send((1 << 31) + 1), Status::LocalLength),
        (Type::XrcInitiator, send((1 << 31) + 1), Status::LocalLength),
        (Type::Uc, read(1), Status::LocalQpOperation),
        (Type::Uc, send_invalidate, Status::LocalQpOperation),
        (Type::Ud, send_invalidate, Status::LocalQpOperation),
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
