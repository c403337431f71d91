// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A responder whose memory comes late: much later than its peer, with hardly a retry, would wait for
//! one that is silent.

use roce::{
    qp::Mtu,
    requester::SendOperation,
    time::Duration, //
};
use sim::{
    scenario::{
        timeout,
        Wire, //
    },
    storm::{
        self,
        Storm, //
    },
    verify::check_world,
    world::World, //
};

const OPERATIONS: [SendOperation; 3] = [
    SendOperation::Read,
    SendOperation::Send,
    SendOperation::Write,
];

/// Runs messages of one kind; returns the RNR NAKs that the requester has heard of.
fn run(
    seed: u64,
    operation: SendOperation,
    absent_for: Duration,
    rnr_retry: u8,
    wire: Option<Wire>,
) -> u64 {
    let mut scenario = storm::scenario(seed, Storm::Loss, operation, Mtu::M1024);
    scenario.wire = wire.unwrap_or(Wire {
        loss: 0,
        ..scenario.wire
    });
    let [requester, responder] = &mut scenario.sides;
    requester.timeout = timeout(8);
    requester.rnr_retry = rnr_retry;
    if wire.is_none() {
        requester.retry_count = 1;
    }
    // A READ is few requests.
    responder.absent = match operation {
        SendOperation::Read => 300_000,
        _ => 20_000,
    };
    responder.absent_for = absent_for;
    let mut world = World::new(scenario, None);
    world.run().unwrap();
    let tally = check_world(&world).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(tally.delivered, tally.messages, "seed {seed} {operation:?}");
    world.hosts[0].requester_counters().rnr_naks
}

/// A hundred timeouts long, with one retry: the peer is told to wait.
#[test]
fn one_retry_is_enough() {
    for operation in OPERATIONS {
        let naks: u64 = (0..3)
            .map(|seed| run(seed, operation, Duration::from_ms(100), 7, None))
            .sum();
        assert!(naks > 0, "{operation:?}");
    }
}

/// Six RNR retries, which begin at 0.64 ms, last for 40 ms.
#[test]
fn few_rnr_retries_last_long() {
    for operation in OPERATIONS {
        let naks: u64 = (0..3)
            .map(|seed| run(seed, operation, Duration::from_ms(35), 6, None))
            .sum();
        assert!(naks > 0, "{operation:?}");
    }
}

/// Packets that are lost, late or doubled make nothing worse.
#[test]
fn on_a_bad_path() {
    for operation in OPERATIONS {
        let wire = Some(Storm::All.wire());
        let naks: u64 = (0..2)
            .map(|seed| run(seed, operation, Duration::from_ms(20), 7, wire))
            .sum();
        assert!(naks > 0, "{operation:?}");
    }
}
