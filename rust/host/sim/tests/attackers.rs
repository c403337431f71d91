// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Forged packets in conversations that are under way.

use roce::{
    qp::Type,
    requester::SendOperation,
    time::{
        ack_timeout,
        Duration, //
    }, //
};
use sim::{
    attacker::{
        Attacker, //
        Forgery,
    },
    scenario::{
        Scenario,
        Wire, //
    },
    verify::check_world,
    world::World, //
};

/// The conversation of a seed: nothing goes wrong in it but for the attacker.
fn conversation(seed: u64, forgeries: &[Forgery], rate: u32) -> World {
    let mut scenario = (0..)
        .map(|more| Scenario::new(seed * 1_000 + more))
        .find(|scenario| scenario.benign && scenario.service == Type::Rc)
        .unwrap();
    scenario.wire = Wire {
        // As good as none; but what the attacker does looks like trouble.
        loss: 1,
        delay: Duration::from_us(5),
        ps_per_byte: 80,
        ..Wire::default()
    };
    for side in &mut scenario.sides {
        side.timeout = ack_timeout(12);
        side.absent = 0;
    }
    let first = scenario.sides.each_ref().map(|side| side.psn);
    let mut world = World::new(scenario, None);
    world.attacker = Some(Attacker::new(seed, forgeries, rate, first));
    world
}

/// Each kind alone, and all of them together.
#[test]
fn harmless_forgeries_do_no_harm() {
    let mut kinds: Vec<_> = Forgery::HARMLESS.iter().map(std::slice::from_ref).collect();
    kinds.push(&Forgery::HARMLESS);
    for forgeries in kinds {
        let mut sent = 0;
        for seed in 0..60 {
            let mut world = conversation(seed, forgeries, 500_000);
            let tally = world
                .run()
                .and_then(|()| check_world(&world))
                .unwrap_or_else(|error| panic!("{forgeries:?}, seed {seed}: {error}"));
            assert_eq!(
                tally.delivered, tally.messages,
                "{forgeries:?}, seed {seed}: not all delivered"
            );
            sent += world.attacker.unwrap().sent;
        }
        println!("{forgeries:?}: {sent} packets");
        assert!(sent > 1_000, "{forgeries:?}: {sent}");
    }
}

/// The connection may break, and data may be forged; but every work request completes, once and in
/// order, and the run ends.
#[test]
fn forgeries_in_the_window_only_break_the_connection() {
    let mut broken = 0;
    for forgery in Forgery::IN_THE_WINDOW {
        for seed in 0..200 {
            let mut world = conversation(seed, &[forgery], 50_000);
            world
                .run()
                .unwrap_or_else(|error| panic!("{forgery:?}, seed {seed}: {error}"));
            for (host, side) in world.hosts.iter().zip(&world.scenario.sides) {
                broken += u32::from(host.has_failed());
                let completions = host.completions.iter().enumerate();
                for (index, (_, completion)) in completions.clone() {
                    assert_eq!(completion.sequence as usize, index);
                    assert_eq!(completion.operation, side.work[index].wr.operation);
                }
                assert!(completions.len() <= side.work.len());
                // Without an error, nothing is left undone, but what waits for a receive that a forged
                // SEND has taken.
                let takes =
                    |operation| matches!(operation, SendOperation::Send | SendOperation::Write);
                let next = side.work.get(host.completions.len());
                assert!(
                    host.is_finished() || next.is_some_and(|work| takes(work.wr.operation)),
                    "{forgery:?}, seed {seed}: stuck"
                );
            }
        }
    }
    // Otherwise they were not in the window.
    assert!(broken > 50, "{broken}");
}
