// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The responder: FLUSH and ATOMIC WRITE.

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
        Action,
        RemoteAccess,
        Step, //
    }, //
};

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
                    .actions
                    .iter()
                    .any(|action| matches!(action, Action::Flush { .. })));
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
            .actions
            .iter()
            .filter_map(|action| match *action {
                Action::Flush {
                    rkey,
                    flush,
                    va,
                    length,
                } => Some((rkey, flush.placement, flush.is_region(), va, length)),
                Action::AtomicWrite { rkey, va } => Some((rkey, 0, false, va, 8)),
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
        peer.actions.clear();
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
        assert!(peer.actions.is_empty());
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
