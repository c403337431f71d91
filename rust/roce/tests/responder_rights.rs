// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder: what a peer may do, and what becomes of it if it may not.

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
        Receive,
        RemoteAccess,
        ResponderEvent,
        Step, //
    },
    status::Status, //
};

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
        let burst = peer.poll_read(1);
        peer.responder.commit_read(burst, Outcome::Done);
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
