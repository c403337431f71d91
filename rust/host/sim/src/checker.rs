// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Whether the rules were kept on the wire: what a run that ends well does not show.

use std::collections::HashSet;

use roce::{
    packet::{
        NakCode,
        Syndrome, //
    },
    time::Instant, //
};

use crate::{
    oracle::Replay,
    scenario::Wire,
    trace::What,
    world::World, //
};

/// Checks what `host` has sent.
pub fn check(world: &World, host: usize) -> Result<(), String> {
    let replay = Replay::new(world, host, Instant::from_ns(u64::MAX));
    if let Some(early) = replay.early {
        return Err(format!(
            "host {host}: sent again at {} ns, before the RNR timer of its peer expired",
            early.as_ns()
        ));
    }
    if let Some(at) = replay.greedy {
        return Err(format!(
            "host {host}: asked for more at {} ns than may be outstanding",
            at.as_ns()
        ));
    }
    check_naks(world, host)?;
    check_clean(world, host)
}

/// A sequence error NAK comes once per gap, and not at all for one that an RNR NAK has announced.
fn check_naks(world: &World, host: usize) -> Result<(), String> {
    let mut answered = HashSet::new();
    let mine = |what| what == What::Sent;
    for record in &world.trace {
        let Some(aeth) = record.packet.aeth.filter(|_| record.host == host) else {
            continue;
        };
        let psn = record.packet.psn;
        match aeth.syndrome {
            Syndrome::Rnr { .. } if mine(record.what) => {
                answered.insert(psn);
            }
            Syndrome::Nak(NakCode::SequenceError) if mine(record.what) => {
                if !answered.insert(psn) {
                    return Err(format!(
                        "host {host}: a second NAK for the gap at PSN {:#x}",
                        psn.get()
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where nothing is lost and nothing overtakes, nothing looks as if it were.
fn check_clean(world: &World, host: usize) -> Result<(), String> {
    let Wire {
        loss,
        duplication,
        reordering,
        overtaking,
        corruption,
        limit,
        ..
    } = world.scenario.wire;
    let is_crowded = world
        .trace
        .iter()
        .any(|record| record.what == What::Crowded);
    let counters = world.hosts[host].requester_counters();
    // A timeout that was too short makes duplicates, whose answers are out of order.
    let troubles = loss + duplication + reordering + overtaking + corruption + limit;
    let is_clean = troubles == 0 && !is_crowded && counters.timeouts == 0;
    if is_clean && counters.implied_naks + counters.sequence_naks > 0 {
        return Err(format!("host {host}: gaps on a clean wire: {counters:?}"));
    }
    Ok(())
}
