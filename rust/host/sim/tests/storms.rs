// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Long messages through storms.

use std::{
    env,
    sync::{
        atomic::{
            AtomicUsize,
            Ordering, //
        },
        Mutex, //
    },
    thread, //
};

use roce::{
    qp::Mtu,
    requester::SendOperation, //
};
use sim::{
    storm::{
        self,
        Storm, //
    },
    verify::check_world,
    world::World, //
};

/// How many runs there are of each storm, unless `SIM_STORMS` says otherwise.
const RUNS: u64 = 2;

/// What became of the runs of one storm.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    messages: u64,
    delivered: u64,
    packets: u64,
    timeouts: u64,
    gaps: u64,
    /// The longest run, in milliseconds of its own time.
    longest_ms: u64,
}

/// Every byte arrives, with the retries that tools ask for.
#[test]
fn storms() {
    let runs = env::var("SIM_STORMS").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let operations = [
        SendOperation::Read,
        SendOperation::Send,
        SendOperation::Write,
    ];
    let mut kinds = Vec::new();
    for storm in Storm::ALL {
        for operation in operations {
            for mtu in [Mtu::M1024, Mtu::M4096] {
                kinds.push((storm, operation, mtu));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let worker = || loop {
        let Some(&(storm, operation, mtu)) = kinds.get(next.fetch_add(1, Ordering::Relaxed)) else {
            break;
        };
        let mut outcome = Outcome::default();
        for seed in 0..runs {
            let mut world = World::new(storm::scenario(seed, storm, operation, mtu), None);
            match world.run().and_then(|()| check_world(&world)) {
                Ok(tally) => {
                    let counters = world.hosts[0].requester_counters();
                    let ms = world.now.as_ns() / 1_000_000;
                    outcome.messages += tally.messages;
                    outcome.delivered += tally.delivered;
                    outcome.packets += tally.packets;
                    outcome.timeouts += counters.timeouts;
                    outcome.gaps += counters.implied_naks + counters.sequence_naks;
                    outcome.longest_ms = outcome.longest_ms.max(ms);
                }
                Err(error) => failures.lock().unwrap().push(format!(
                    "{storm:?} {operation:?} {mtu:?} seed {seed}: {error}"
                )),
            }
        }
        println!("{storm:?} {operation:?} {mtu:?}: {outcome:?}");
        // A storm in which nothing is missed shows nothing.
        let is_calm = outcome.gaps + outcome.timeouts == 0;
        if outcome.delivered != outcome.messages || is_calm {
            failures
                .lock()
                .unwrap()
                .push(format!("{storm:?} {operation:?} {mtu:?}: {outcome:?}"));
        }
    };
    let threads = thread::available_parallelism().map_or(2, |count| count.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures:#?}");
}
