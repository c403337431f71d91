// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: long READs, which are several requests on the wire.

mod common;

use common::*;
use proptest::{
    collection::vec,
    prelude::*, //
};
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    packet::Packet,
    psn::Psn,
    requester::{
        Placement,
        Received,
        Requester,
        RequesterConfig,
        SendSlot, //
    },
    status::Status,
    time::Instant, //
};

/// Lengths in packets of the parts of a long READ that the window has room for.
fn parts(requester: &mut Requester<Vec<SendSlot>>, now: Instant) -> (Vec<u32>, Vec<Packet>) {
    let packets = transmit(requester, now);
    let lengths = packets
        .iter()
        .map(|packet| packet.reth.unwrap().length / MTU)
        .collect();
    (lengths, packets)
}

#[test]
fn long_read_is_asked_for_in_parts() {
    with_psns(|psn| {
        let config = RequesterConfig {
            max_rd_atomic: 16,
            window_packets: 300,
            window_packets_most: 300,
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
            assert!(matches!(
                received,
                Received::Place(Placement { sequence: 0, .. })
            ));
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
        // The requester asks for the rest of the second part, as it did before. The third part does not fit into half the
        // window beside it.
        let packets = transmit(&mut requester, us(1_001));
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadRequest, 150)]);
        assert_eq!(packets[0].reth.unwrap().length, 106 * MTU);
        assert_eq!(requester.counters().retransmitted_packets, 1);
        // The requester also takes the responses to its first request.
        for response in &responses[150..200] {
            let received = respond(&mut requester, us(1_002), response);
            assert!(matches!(received, Received::Place(_)));
        }
        let mut stale = 0;
        for response in read_responses(&packets) {
            match respond(&mut requester, us(1_003), &response) {
                Received::Dropped(DropReason::Stale) => stale += 1,
                received => assert!(matches!(received, Received::Place(_))),
            }
        }
        assert_eq!(stale, 50);
        let packets = transmit(&mut requester, us(1_003));
        assert_eq!(outline(&packets, psn), [(Opcode::RcReadRequest, 256)]);
        assert_eq!(packets[0].reth.unwrap().length, 44 * MTU);
        assert_eq!(requester.counters().retransmitted_packets, 1);
        for response in read_responses(&packets) {
            let received = respond(&mut requester, us(1_003), &response);
            assert!(matches!(received, Received::Place(_)));
        }
        assert_eq!(completions(&mut requester), [(0, Status::Success)]);
    });
}

#[test]
fn parts_are_half_the_window() {
    with_psns(|psn| {
        for (window, part) in [
            (0, 16),
            (32, 16),
            (63, 16),
            (64, 32),
            (255, 64),
            (256, 128),
            (999, 128),
        ] {
            let mut requester = requester_with(RequesterConfig {
                max_rd_atomic: 16,
                window_packets: window,
                window_packets_most: window,
                ..requester_config(psn)
            });
            requester.post(read(1024 * MTU)).unwrap();
            let (lengths, _) = parts(&mut requester, us(0));
            assert_eq!(lengths, vec![part; lengths.len()], "{window}");
        }
    });
}

#[test]
fn marked_responses_halve_their_window_once_a_round_trip() {
    with_psns(|psn| {
        let mut requester = requester_with(RequesterConfig {
            max_rd_atomic: 16,
            window_packets: 128,
            window_packets_most: 128,
            ..requester_config(psn)
        });
        requester.post(read(1024 * MTU)).unwrap();
        let (lengths, packets) = parts(&mut requester, us(0));
        assert_eq!(lengths, [64, 64]);
        // A notification is about requests.
        let notification = Packet::new(Opcode::Cnp, 1, Psn::new(0));
        respond(&mut requester, us(1), &notification);
        for (index, mut response) in read_responses(&packets).into_iter().enumerate() {
            response.fecn = index < 2;
            respond(&mut requester, us(1), &response);
        }
        // 64, and one more for four that have come: 96.
        let (lengths, _) = parts(&mut requester, us(1));
        assert_eq!(lengths, [32, 32, 32]);
    });
}

#[test]
fn what_is_asked_for_again_has_the_parts_that_it_had() {
    with_psns(|psn| {
        let mut requester = requester_with(RequesterConfig {
            max_rd_atomic: 16,
            ..requester_config(psn)
        });
        requester.post(read(384 * MTU)).unwrap();
        requester.post(read(1024 * MTU)).unwrap();
        let (lengths, packets) = parts(&mut requester, us(0));
        assert_eq!(lengths, [128, 128]);
        for response in &read_responses(&packets)[..5] {
            respond(&mut requester, us(0), response);
        }
        // The window is halved until it has its least size.
        let mut at = 0;
        for _ in 0..5 {
            at += 1_000;
            requester.on_timeout(us(at));
            assert_eq!(parts(&mut requester, us(at)).0, [123]);
        }
        // The window grows, and the second part, still of 128, fits into it. New parts are shorter: half of the window.
        at += 1_000;
        requester.on_timeout(us(at));
        let mut asked = Vec::new();
        let mut responses = Vec::new();
        while !requester.is_empty() {
            let (lengths, packets) = parts(&mut requester, us(at));
            asked.extend(lengths);
            responses.extend(read_responses(&packets));
            let received = respond(&mut requester, us(at), &responses.remove(0));
            assert!(matches!(received, Received::Place(_)));
            completions(&mut requester);
        }
        let expected = [vec![123, 128], vec![32; 10], vec![64; 11], vec![128]];
        assert_eq!(asked, expected.concat());
    });
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Respond(usize),
    Lose(usize),
    TimeOut,
}

fn event() -> impl Strategy<Value = Event> {
    (0..11u8, 1..200usize).prop_map(|(kind, count)| match kind {
        0..=7 => Event::Respond(count),
        8..=9 => Event::Lose(count / 4),
        _ => Event::TimeOut,
    })
}

proptest! {
    /// A responder finds what it has answered before: each request for it is the rest of one before, or all of it.
    #[test]
    fn repeats_end_where_requests_have_ended(
        lengths in vec(1..2_000u32, 1..8),
        events in vec(event(), 0..100),
    ) {
        let psn = Psn::new(0xff_ff80);
        let mut requester = requester_with(RequesterConfig {
            max_rd_atomic: 16,
            ..requester_config(psn)
        });
        for length in lengths {
            requester.post(read(length * MTU)).unwrap();
        }
        let mut at = 0;
        let mut asked: Vec<(u32, u32)> = Vec::new();
        let mut responses = Vec::new();
        for event in events {
            let (lengths, packets) = parts(&mut requester, us(at));
            for (packet, length) in packets.iter().zip(lengths) {
                let first = u32::try_from(packet.psn.diff(psn)).unwrap();
                let end = first + length;
                match asked.iter().find(|(start, end)| (*start..*end).contains(&first)) {
                    Some((_, before)) => prop_assert_eq!(end, *before),
                    None => {
                        prop_assert_eq!(first, asked.last().map_or(0, |(_, end)| *end));
                        asked.push((first, end));
                    }
                }
            }
            responses.extend(read_responses(&packets));
            match event {
                Event::Respond(count) => {
                    for response in responses.drain(..count.min(responses.len())) {
                        respond(&mut requester, us(at), &response);
                    }
                }
                Event::Lose(count) => drop(responses.drain(..count.min(responses.len()))),
                Event::TimeOut => {
                    at += 5_000;
                    requester.on_timeout(us(at));
                }
            }
            if requester.take_error() == Some(Status::RetryExceeded) {
                break;
            }
            completions(&mut requester);
        }
    }
}
