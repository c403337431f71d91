// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Runs one scenario again: `sim SEED [CAPTURE]`.

use std::{
    env,
    path::PathBuf,
    process::ExitCode, //
};

use sim::{
    pcap,
    scenario::Scenario,
    verify,
    world::World, //
};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let Some(seed) = args.next().and_then(|arg| arg.parse().ok()) else {
        eprintln!("usage: sim SEED [CAPTURE]");
        return ExitCode::from(2);
    };
    let path = args
        .next()
        .map_or_else(|| PathBuf::from(format!("sim-{seed}.pcap")), PathBuf::from);
    let capture = match pcap::Writer::create(&path) {
        Ok(capture) => capture,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    };

    let scenario = Scenario::new(seed);
    println!("{scenario:#?}");
    let mut world = World::new(scenario, Some(capture));
    let result = world.run();
    for record in &world.trace {
        println!("{record}");
    }
    for (id, host) in world.hosts.iter().enumerate() {
        for (at, completion) in &host.completions {
            println!("host {id} at {} ns: {completion:?}", at.as_ns());
        }
        for completion in &host.receive_completions {
            println!("host {id}: {completion:?}");
        }
    }
    println!("capture: {}", path.display());
    match result.and_then(|()| verify::check_world(&world)) {
        Ok(tally) => {
            println!("{tally:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
