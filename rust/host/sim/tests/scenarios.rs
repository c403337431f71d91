// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Many scenarios.

use std::{
    env,
    panic,
    sync::{
        atomic::{
            AtomicU64,
            Ordering, //
        },
        Mutex, //
    },
    thread, //
};

use sim::{
    scenario::Scenario,
    verify::{
        check,
        Tally, //
    }, //
};

/// How many scenarios are run, unless `SIM_SCENARIOS` says otherwise.
const SCENARIOS: u64 = 10_000;

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Every scenario ends, with every byte right and every completion once and in order; every error
/// was due; and where only loss can go wrong, of up to 10 % of the packets, hardly anything does.
#[test]
fn scenarios() {
    let first = number("SIM_SEED", 0);
    let end = first + number("SIM_SCENARIOS", SCENARIOS);
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    // All, and those that must succeed.
    let tallies = Mutex::new([Tally::default(); 2]);

    let worker = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            break;
        }
        let scenario = Scenario::new(seed);
        let counts = scenario.benign && scenario.service.is_reliable();
        let result = panic::catch_unwind(|| check(scenario));
        match result.unwrap_or_else(|_| Err("it panicked".into())) {
            Ok(tally) => {
                let mut tallies = tallies.lock().unwrap();
                tallies[0].add(&tally);
                if counts {
                    tallies[1].add(&tally);
                }
            }
            Err(error) => failures.lock().unwrap().push((seed, error)),
        }
    };
    let threads = thread::available_parallelism().map_or(2, |count| count.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });

    let [all, benign] = *tallies.lock().unwrap();
    println!("{} scenarios: {all:?}; benign: {benign:?}", end - first);
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    for (seed, error) in failures.iter().take(20) {
        println!("seed {seed}: {error} (cargo run -p sim -- {seed})");
    }
    assert!(failures.is_empty(), "{} scenarios failed", failures.len());
    assert!(benign.messages > 0, "no scenario had to succeed");
    let lost = benign.messages - benign.delivered;
    assert!(
        lost * 1_000 <= benign.messages,
        "{lost} of {} messages were not delivered",
        benign.messages
    );
}
