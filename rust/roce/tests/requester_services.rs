// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester of other services than RC.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    outcome::Outcome,
    packet::{
        NakCode,
        Packet, //
    },
    psn::Psn,
    qp::Type,
    requester::{
        Received,
        Requester,
        RequesterConfig,
        SendAction,
        SendOperation,
        SendSlot,
        SendWr, //
    },
    status::Status, //
};

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
        let action = requester.poll_action().unwrap();
        assert!(matches!(action, SendAction::Local { .. }));
        requester.commit(us(0), action, outcome);
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
fn local_operations_do_not_run_far_ahead() {
    let mut requester = Requester::new(vec![SendSlot::default(); 4096]);
    requester.configure(requester_config(Psn::new(0)));
    requester.start();
    let local = SendWr {
        operation: SendOperation::Local,
        ..SendWr::default()
    };
    requester.post(send(1)).unwrap();
    for _ in 0..4000 {
        requester.post(local).unwrap();
    }
    let executed = |requester: &mut Requester<_>| {
        let mut count = 0;
        while let Some(action) = requester.poll_action() {
            count += u32::from(matches!(action, SendAction::Local { .. }));
            requester.commit(us(0), action, Outcome::Done);
        }
        count
    };
    // The SEND is not complete.
    assert_eq!(executed(&mut requester), 1023);
    respond(&mut requester, us(1), &ack(Psn::new(0)));
    assert_eq!(executed(&mut requester), 4000 - 1023);
    assert_eq!(completions(&mut requester).len(), 4001);
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
