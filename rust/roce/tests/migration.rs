// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The whole table of path migration, and two ends of a connection.

use proptest::prelude::*;
use roce::qp::{
    migration::{
        NotAllowed,
        Verdict,
        Way, //
    },
    Migration,
    MigrationState, //
};

use MigrationState::{
    Armed,
    Migrated,
    Rearm, //
};
use Verdict::{
    Accept,
    Drop,
    Migrate,
    Refuse, //
};

const PRIMARY: Way = Way {
    primary: true,
    alternate: false,
    former: false,
};
const ALTERNATE: Way = Way {
    primary: false,
    alternate: true,
    former: false,
};
const FORMER: Way = Way {
    primary: false,
    alternate: false,
    former: true,
};
const STRANGER: Way = Way {
    primary: false,
    alternate: false,
    former: false,
};
/// Both paths have the same addresses.
const BOTH: Way = Way {
    primary: true,
    alternate: true,
    former: false,
};

/// A QP in `state`, with an alternate path unless it is Migrated.
fn migration(state: MigrationState) -> Migration {
    let mut migration = Migration::default();
    if state != Migrated {
        assert_eq!(migration.modify(true, Some(Rearm)), Ok(false));
    }
    if state == Armed {
        assert_eq!(migration.receive(PRIMARY, false), Accept);
    }
    assert_eq!(migration.state(), state);
    migration
}

#[test]
fn packets_are_taken_as_the_table_says() {
    // State, way, MigReq bit: verdict, state after it.
    let table = [
        (Migrated, PRIMARY, true, Accept, Migrated),
        (Migrated, PRIMARY, false, Accept, Migrated),
        (Migrated, ALTERNATE, true, Drop, Migrated),
        (Migrated, ALTERNATE, false, Drop, Migrated),
        (Migrated, FORMER, true, Drop, Migrated),
        (Migrated, FORMER, false, Accept, Migrated),
        (Migrated, STRANGER, true, Drop, Migrated),
        (Migrated, STRANGER, false, Drop, Migrated),
        (Migrated, BOTH, true, Accept, Migrated),
        (Migrated, BOTH, false, Accept, Migrated),
        (Rearm, PRIMARY, true, Accept, Rearm),
        (Rearm, PRIMARY, false, Accept, Armed),
        (Rearm, ALTERNATE, true, Migrate, Migrated),
        (Rearm, ALTERNATE, false, Drop, Rearm),
        (Rearm, FORMER, true, Drop, Rearm),
        (Rearm, FORMER, false, Drop, Rearm),
        (Rearm, STRANGER, true, Drop, Rearm),
        (Rearm, STRANGER, false, Drop, Rearm),
        (Rearm, BOTH, true, Accept, Rearm),
        (Rearm, BOTH, false, Accept, Armed),
        (Armed, PRIMARY, true, Refuse, Armed),
        (Armed, PRIMARY, false, Accept, Armed),
        (Armed, ALTERNATE, true, Migrate, Migrated),
        (Armed, ALTERNATE, false, Drop, Armed),
        (Armed, FORMER, true, Refuse, Armed),
        (Armed, FORMER, false, Drop, Armed),
        (Armed, STRANGER, true, Refuse, Armed),
        (Armed, STRANGER, false, Drop, Armed),
        (Armed, BOTH, true, Migrate, Migrated),
        (Armed, BOTH, false, Accept, Armed),
    ];
    for (before, way, bit, verdict, after) in table {
        let mut migration = migration(before);
        assert_eq!(
            migration.receive(way, bit),
            verdict,
            "{before:?} {way:?} {bit}"
        );
        assert_eq!(migration.state(), after, "{before:?} {way:?} {bit}");
    }
}

#[test]
fn consumers_are_answered_as_the_table_says() {
    let no = Err(NotAllowed);
    // State, whether an alternate path is loaded, what is asked for: answer, state after it.
    let table = [
        (Migrated, false, None, Ok(false), Migrated),
        (Migrated, false, Some(Migrated), Ok(false), Migrated),
        (Migrated, false, Some(Rearm), no, Migrated),
        (Migrated, false, Some(Armed), no, Migrated),
        (Migrated, true, None, Ok(false), Migrated),
        (Migrated, true, Some(Migrated), Ok(false), Migrated),
        (Migrated, true, Some(Rearm), Ok(false), Rearm),
        (Migrated, true, Some(Armed), no, Migrated),
        (Rearm, false, None, Ok(false), Rearm),
        (Rearm, false, Some(Migrated), no, Rearm),
        (Rearm, false, Some(Rearm), Ok(false), Rearm),
        (Rearm, false, Some(Armed), no, Rearm),
        (Rearm, true, None, Ok(false), Rearm),
        (Rearm, true, Some(Migrated), no, Rearm),
        (Rearm, true, Some(Rearm), Ok(false), Rearm),
        (Rearm, true, Some(Armed), no, Rearm),
        (Armed, false, None, Ok(false), Armed),
        (Armed, false, Some(Migrated), Ok(true), Migrated),
        (Armed, false, Some(Rearm), no, Armed),
        (Armed, false, Some(Armed), no, Armed),
        (Armed, true, None, no, Armed),
        (Armed, true, Some(Migrated), no, Armed),
        (Armed, true, Some(Rearm), no, Armed),
        (Armed, true, Some(Armed), no, Armed),
    ];
    for (before, loads, wanted, answer, after) in table {
        let mut migration = migration(before);
        let untouched = migration;
        assert_eq!(
            migration.modify(loads, wanted),
            answer,
            "{before:?} {loads} {wanted:?}"
        );
        assert_eq!(migration.state(), after, "{before:?} {loads} {wanted:?}");
        if answer == no {
            assert_eq!(migration, untouched);
        }
    }
}

#[test]
fn only_an_armed_one_outlives_its_retries() {
    for state in MigrationState::ALL {
        let mut migration = migration(state);
        assert_eq!(migration.exhausted(), state == Armed);
        let after = if state == Armed { Migrated } else { state };
        assert_eq!(migration.state(), after);
    }
}

#[test]
fn a_path_is_used_up_by_migrating() {
    let ways: [fn(&mut Migration); 3] = [
        |migration| assert_eq!(migration.modify(false, Some(Migrated)), Ok(true)),
        |migration| assert!(migration.exhausted()),
        |migration| assert_eq!(migration.receive(ALTERNATE, true), Migrate),
    ];
    for migrate in ways {
        let mut migration = migration(Armed);
        migrate(&mut migration);
        assert!(!migration.is_loaded());
        assert_eq!(migration.modify(false, Some(Rearm)), Err(NotAllowed));
        assert_eq!(migration.modify(true, None), Ok(false));
        assert_eq!(migration.modify(false, Some(Rearm)), Ok(false));
        assert_eq!(migration.state(), Rearm);
    }
}

#[test]
fn a_refusal_is_told_once() {
    let mut migration = migration(Armed);
    assert_eq!(migration.receive(STRANGER, true), Refuse);
    assert_eq!(migration.receive(STRANGER, true), Drop);
    assert_eq!(migration.receive(PRIMARY, true), Drop);
    // It is armed as before, and tells of it again when it has been armed again.
    assert_eq!(migration.receive(ALTERNATE, true), Migrate);
    assert_eq!(migration.modify(true, Some(Rearm)), Ok(false));
    assert_eq!(migration.receive(PRIMARY, false), Accept);
    assert_eq!(migration.receive(STRANGER, true), Refuse);
}

#[test]
fn the_bit_is_set_in_migrated_only() {
    for state in MigrationState::ALL {
        assert_eq!(migration(state).migrated_bit(), state == Migrated);
    }
}

#[test]
fn numbers_are_those_of_the_verbs() {
    for (number, state) in (0..).zip(MigrationState::ALL) {
        assert_eq!(MigrationState::try_from(number), Ok(state));
    }
    assert_eq!(MigrationState::try_from(3), Err(()));
}

/// One end: its migration, and which of the paths 0 and 1 is which.
#[derive(Clone, Copy)]
struct End {
    migration: Migration,
    primary: u8,
    alternate: Option<u8>,
    former: Option<u8>,
}

/// A packet: its path, and the bit.
type Packet = (u8, bool);

impl End {
    fn new() -> Self {
        Self {
            migration: Migration::default(),
            primary: 0,
            alternate: None,
            former: None,
        }
    }

    /// Loads the other path, and asks to rearm.
    fn rearm(&mut self) {
        let other = 1 - self.primary;
        if self.migration.modify(true, Some(Rearm)).is_ok() {
            self.alternate = Some(other);
            self.former = None;
        }
    }

    fn migrated(&mut self) {
        let alternate = self.alternate.take().unwrap();
        self.former = Some(core::mem::replace(&mut self.primary, alternate));
    }

    fn request(&mut self) {
        if self.migration.modify(false, Some(Migrated)) == Ok(true) {
            self.migrated();
        }
    }

    fn exhaust(&mut self) {
        if self.migration.exhausted() {
            self.migrated();
        }
    }

    fn packet(&self) -> Packet {
        (self.primary, self.migration.migrated_bit())
    }

    fn receive(&mut self, (path, bit): Packet) -> Verdict {
        let way = Way {
            primary: self.primary == path,
            alternate: self.alternate == Some(path),
            former: self.former == Some(path),
        };
        let verdict = self.migration.receive(way, bit);
        if verdict == Migrate {
            self.migrated();
        }
        verdict
    }
}

/// Lets both talk until nothing changes any more, over paths of which `dead` carries nothing. As in RC, an
/// end whose packets are lost runs out of retries.
fn settle(ends: &mut [End; 2], dead: Option<u8>) {
    for _ in 0..4 {
        for from in 0..2 {
            let packet = ends[from].packet();
            if dead == Some(packet.0) {
                ends[from].exhaust();
                continue;
            }
            let verdict = ends[1 - from].receive(packet);
            assert!(matches!(verdict, Accept | Migrate), "{verdict:?}");
        }
    }
}

fn armed_pair() -> [End; 2] {
    let mut ends = [End::new(); 2];
    ends[0].rearm();
    settle(&mut ends, None);
    assert_eq!(ends[0].migration.state(), Rearm);
    ends[1].rearm();
    settle(&mut ends, None);
    for end in &ends {
        assert_eq!(end.migration.state(), Armed);
    }
    ends
}

#[test]
fn both_ends_arm_and_migrate_by_request_of_either() {
    for who in 0..2 {
        let mut ends = armed_pair();
        for path in [1, 0, 1] {
            ends[who].request();
            settle(&mut ends, None);
            for end in &ends {
                assert_eq!((end.migration.state(), end.primary), (Migrated, path));
            }
            ends[0].rearm();
            ends[1].rearm();
            settle(&mut ends, None);
            assert_eq!(ends[1 - who].migration.state(), Armed);
        }
    }
}

#[test]
fn both_ends_leave_a_path_that_is_dead() {
    let mut ends = armed_pair();
    settle(&mut ends, Some(0));
    for end in &ends {
        assert_eq!((end.migration.state(), end.primary), (Migrated, 1));
    }
    // And stay there, without an alternate path.
    settle(&mut ends, None);
    assert_eq!(ends[0].primary, 1);
}

#[test]
fn a_peer_that_only_answers_hears_of_it() {
    let mut ends = armed_pair();
    ends[0].request();
    // It does not know yet, and sends over the path that was.
    assert_eq!(ends[1].packet(), (0, false));
    let packet = ends[1].packet();
    assert_eq!(ends[0].receive(packet), Accept);
    let answer = ends[0].packet();
    assert_eq!(ends[1].receive(answer), Migrate);
    assert_eq!(ends[1].packet(), (1, true));
}

proptest! {
    // Whatever is asked for, and whichever packets are lost: an end without an alternate path never leaves
    // Migrated, and both can talk again once nothing is lost any more, at the latest when retries run out.
    // Only, nobody rearms before the peer is on the same path: their consumers have to agree on that.
    #[test]
    fn ends_find_each_other(steps in proptest::collection::vec(0u8..10, 0..40)) {
        let mut ends = [End::new(); 2];
        for step in steps {
            let who = usize::from(step & 1);
            match step >> 1 {
                0 if ends[0].primary != ends[1].primary => {}
                0 => ends[who].rearm(),
                1 => ends[who].request(),
                2 => ends[who].exhaust(),
                _ => {
                    let packet = ends[who].packet();
                    ends[1 - who].receive(packet);
                }
            }
            for end in &ends {
                let migration = end.migration;
                prop_assert_eq!(migration.is_loaded(), end.alternate.is_some());
                prop_assert!(migration.is_loaded() || migration.state() == Migrated);
            }
        }
        for _ in 0..4 {
            for from in 0..2 {
                let packet = ends[from].packet();
                if ends[1 - from].receive(packet) == Drop {
                    ends[from].exhaust();
                }
            }
        }
        let verdicts = [0, 1].map(|from: usize| {
            let packet = ends[from].packet();
            ends[1 - from].receive(packet)
        });
        prop_assert_eq!(verdicts, [Accept, Accept]);
    }
}
