// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: packets of messages, acknowledgements, windows and bursts.

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
    qp::{
        Mtu,
        Type, //
    },
    requester::{
        Placement,
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
    time::{
        rnr_delay,
        Instant, //
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
fn congestion_halves_the_window_once_a_round_trip() {
    let psn = Psn::new(1);
    let mut requester = requester_with(RequesterConfig {
        window_packets: 64,
        window_packets_most: 100,
        ..requester_config(psn)
    });
    let notification = Packet::new(Opcode::Cnp, 1, Psn::new(0));
    requester.post(send(4000 * MTU)).unwrap();
    // Nothing is outstanding.
    respond(&mut requester, us(0), &notification);
    let mut sent = 0;
    let mut windows = Vec::new();
    for notifications in [3, 1, 0, 0] {
        let packets = transmit(&mut requester, us(0)).len() as u32;
        sent += packets;
        windows.push(packets);
        // A marked acknowledgement says nothing of requests.
        let mut marked = ack(psn.add(sent - packets));
        marked.fecn = true;
        respond(&mut requester, us(1), &marked);
        for _ in 0..notifications {
            respond(&mut requester, us(1), &notification);
        }
        respond(&mut requester, us(1), &ack(psn.add(sent - 1)));
    }
    // It grows by a quarter of what is acknowledged afterwards.
    assert_eq!(windows, [64, 47, 35, 44]);
    assert_eq!(requester.counters().retransmitted_packets, 0);
}

/// A requester with that window, which may grow to 100, and 64 messages of a byte.
fn with_window_and_messages(psn: Psn, packets: u32) -> Requester<Vec<SendSlot>> {
    let config = RequesterConfig {
        window_packets: packets,
        window_packets_most: 100,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    for _ in 0..64 {
        requester.post(send(1)).unwrap();
    }
    assert_eq!(transmit(&mut requester, us(0)).len() as u32, packets);
    requester
}

/// Has all be sent and acknowledged so many times, from the packet `next` on. Returns how many were sent each time.
fn answered(
    requester: &mut Requester<Vec<SendSlot>>,
    now: Instant,
    next: &mut Psn,
    times: u32,
) -> Vec<u32> {
    let send = |_| {
        let packets = transmit(requester, now).len() as u32;
        *next = next.add(packets);
        respond(requester, now, &ack(next.sub(1)));
        packets
    };
    (0..times).map(send).collect()
}

/// The responder is not ready for the packet `next`. Returns when the requester may try again, and tells it.
fn not_ready(requester: &mut Requester<Vec<SendSlot>>, now: Instant, next: Psn) -> Instant {
    respond(requester, now, &rnr(next, 1));
    let now = now.add(rnr_delay(1));
    requester.on_timeout(now);
    now
}

#[test]
fn the_window_begins_with_one_packet_after_a_responder_was_not_ready() {
    let mut next = Psn::new(1);
    let mut requester = with_window_and_messages(next, 16);
    let mut now = us(0);
    // Twice as many each time, up to what it was; then one more for each four.
    for (times, windows) in [(0, &[][..]), (3, &[1, 2, 4]), (6, &[1, 2, 4, 8, 16, 20])] {
        now = not_ready(&mut requester, now, next);
        assert_eq!(answered(&mut requester, now, &mut next, times), windows);
        transmit(&mut requester, now);
    }
    assert_eq!(requester.take_error(), None);
}

#[test]
fn a_loss_after_a_responder_was_not_ready_halves_what_the_window_grows_to() {
    let mut next = Psn::new(1);
    let mut requester = with_window_and_messages(next, 40);
    let now = not_ready(&mut requester, us(1), next);
    assert_eq!(transmit(&mut requester, now).len(), 1);
    respond(&mut requester, now, &nak(next, NakCode::SequenceError));
    assert_eq!(
        answered(&mut requester, now, &mut next, 7),
        [1, 2, 4, 8, 16, 20, 13]
    );
}

#[test]
fn a_message_that_begins_to_arrive_has_a_receive() {
    let mut next = Psn::new(1);
    let config = RequesterConfig {
        window_packets: 40,
        window_packets_most: 40,
        ..requester_config(next)
    };
    let mut requester = requester_with(config);
    requester.post(send(30 * MTU)).unwrap();
    requester.post(send(1)).unwrap();
    assert_eq!(transmit(&mut requester, us(0)).len(), 31);
    let now = not_ready(&mut requester, us(1), next);
    // One packet; then the rest of the first message, and none of the second.
    assert_eq!(answered(&mut requester, now, &mut next, 2), [1, 29]);
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
    requester.pause(us(0));
    assert!(!requester.has_unsent(1));
    requester.start();
    assert_eq!(transmit(&mut requester, us(0)).len(), 32);
    requester.pause(us(0));
    respond(&mut requester, us(1), &ack(psn.add(31)));
    let begun = 40 * MTU;
    assert!(requester.has_unsent(begun) && !requester.has_unsent(begun + 1));
}

/// A requester of two messages. The first one has left and does not ask, as the second one is to.
fn first_of_two(psn: Psn) -> Requester<Vec<SendSlot>> {
    let mut requester = requester(psn);
    requester.post(send(1)).unwrap();
    requester.post(send(1)).unwrap();
    let burst = poll_burst(&mut requester);
    assert!(!requester.packet(&burst, 0).unwrap().0.ack_request);
    commit_burst(&mut requester, us(0), burst, Outcome::Done);
    requester
}

/// Where the message that was to ask does not follow any more, a probe asks at once.
#[test]
fn what_has_not_asked_before_a_pause_asks_then() {
    let psn = Psn::new(1);
    let mut requester = first_of_two(psn);
    requester.pause(us(5));
    assert_eq!(requester.poll_timeout(), Some(us(5)));
    requester.on_timeout(us(5));
    let packets = transmit(&mut requester, us(5));
    assert_eq!(outline(&packets, psn), [(Opcode::RcSendOnly, 0)]);
    assert!(packets[0].ack_request);
    respond(&mut requester, us(6), &ack(psn));
    assert!(requester.drained());
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
        let mut requester = first_of_two(psn);
        let burst = poll_burst(&mut requester);
        commit_burst(&mut requester, us(5), burst, outcome);
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
    });
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
        commit_burst(&mut requester, us(0), burst, Outcome::Done);
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
        let Received::Place(Placement { offset, length, .. }) =
            respond(&mut requester, us(0), &response)
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
            let (last, _) = requester.packet(&burst, burst.packets - 1).unwrap();
            assert_eq!(last.psn, psn.add(sent + burst.packets - 1));
            assert_eq!(last.opcode.ends_message(), sent + burst.packets == psns);
            sent += burst.packets;
            bytes += u64::from(burst.length);
            commit_burst(&mut requester, us(0), burst, Outcome::Done);
            if sent % (1 << 16) == 0 {
                respond(&mut requester, us(0), &ack(psn.add(sent - 1)));
            }
        }
        assert_eq!((bytes, sent), (1 << 31, psns));
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    }
}

#[test]
fn action_that_is_dropped_comes_again() {
    for wr in [send(600), read(600), fetch_add(), flush(8), atomic_write()] {
        let psn = Psn::new(0xff_ffff);
        let mut requester = requester(psn);
        requester.post(wr).unwrap();
        let local = SendWr {
            operation: SendOperation::Local,
            ..SendWr::default()
        };
        requester.post(local).unwrap();
        for sequence in 0..2 {
            let dropped = requester.poll_action().unwrap();
            assert_eq!(dropped.sequence(), sequence);
            // Nothing was sent.
            assert_eq!(
                respond(&mut requester, us(0), &ack(psn.add(sequence * 9))),
                Received::Dropped(DropReason::Ghost)
            );
            assert_eq!(requester.poll_timeout().is_some(), sequence > 0);
            let action = requester.poll_action().unwrap();
            assert_eq!(action, dropped);
            requester.commit(us(0), action, Outcome::Done);
        }
        assert!(requester.poll_action().is_none());
        assert_eq!(requester.counters().retransmitted_packets, 0);
    }
}
