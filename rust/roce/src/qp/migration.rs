// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Automatic path migration of a connected queue pair (IBTA 17.2.8).
//!
//! A QP may have an alternate path besides its primary one. Each end tells the other in the MigReq
//! bit of each packet whether it has migrated: it is set in [`MigrationState::Migrated`], which is
//! where a QP begins, and clear in the other two states.
//!
//! - The consumer loads an alternate path and asks for [`MigrationState::Rearm`]. Once the peer's
//!   packets show that it has done so, too, the QP is [`MigrationState::Armed`].
//! - An armed QP migrates when its consumer asks for it, when the retries of its primary path are
//!   used up, or when a packet comes over the alternate path with the bit set: then the peer has. That
//!   can come before the QP knows that it is armed.
//! - What was the alternate path is the primary path from then on, and there is no alternate one
//!   until the consumer loads another.
//!
//! A peer that has not heard of it goes on over the path that was the primary one, with the bit
//! clear; those packets are taken. So nothing is lost on the way, and a peer that only answers hears
//! of it with the next response. (The specification leaves it open what becomes of them.)

/// Where the migration of a QP's path stands. The numbers are those of `enum ib_mig_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MigrationState {
    /// It has migrated, or was never armed.
    #[default]
    Migrated = 0,
    /// It has an alternate path, and waits for the peer to have one.
    Rearm = 1,
    /// Both ends have an alternate path: it may migrate at any time.
    Armed = 2,
}

impl MigrationState {
    /// Every state, in ascending order of number.
    pub const ALL: [Self; 3] = [Self::Migrated, Self::Rearm, Self::Armed];
}

impl TryFrom<u32> for MigrationState {
    type Error = ();

    fn try_from(number: u32) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|state| *state as u32 == number)
            .ok_or(())
    }
}

/// Over which of the QP's paths a packet has come, by its addresses. Paths may have addresses in
/// common, and a stranger's packet has come over none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    /// The primary path.
    pub primary: bool,
    /// The alternate path.
    pub alternate: bool,
    /// The path that was the primary one before the last migration.
    pub former: bool,
}

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is the peer's: take it in.
    Accept,
    /// The same; and the QP has just migrated, as the peer has before.
    Migrate,
    /// Drop it, and tell the consumer that the peer has migrated to a path that is not the alternate
    /// one.
    Refuse,
    /// Drop it: it is not the peer's.
    Drop,
}

/// The consumer asks for what the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowed;

/// The path migration of one QP. Everything is called under one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Migration {
    state: MigrationState,
    /// There is an alternate path.
    is_loaded: bool,
    /// The consumer has been told of a refusal since it asked to rearm. Once is enough: anybody can
    /// make packets that are refused.
    refusal_told: bool,
}

impl Migration {
    /// Where it stands.
    #[inline]
    pub const fn state(&self) -> MigrationState {
        self.state
    }

    /// Whether there is an alternate path.
    #[inline]
    pub const fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// The MigReq bit of every packet that is sent.
    #[inline]
    pub const fn migrated_bit(&self) -> bool {
        matches!(self.state, MigrationState::Migrated)
    }

    /// The consumer's request (modify QP): whether it loads an alternate path, and which state
    /// it wants. Returns whether the QP has just migrated.
    ///
    /// Errors: nothing is changed
    /// - if an alternate path is loaded in Armed, when the peer may migrate to the one before;
    /// - if Rearm is asked for in Armed, or without an alternate path;
    /// - if Migrated is asked for in Rearm, when the peer may be armed already;
    /// - if Armed is asked for: that comes by itself.
    pub fn modify(
        &mut self,
        loads: bool,
        wanted: Option<MigrationState>,
    ) -> Result<bool, NotAllowed> {
        use MigrationState::*;

        if loads && self.state == Armed {
            return Err(NotAllowed);
        }
        let is_loaded = self.is_loaded || loads;
        match (self.state, wanted) {
            (_, None) | (Migrated, Some(Migrated)) => self.is_loaded = is_loaded,
            (Migrated | Rearm, Some(Rearm)) if is_loaded => {
                *self = Self {
                    state: Rearm,
                    is_loaded,
                    refusal_told: false,
                }
            }
            (Armed, Some(Migrated)) => {
                self.migrate();
                return Ok(true);
            }
            (_, Some(_)) => return Err(NotAllowed),
        }
        Ok(false)
    }

    /// A packet has come over `way`, with this MigReq bit.
    pub fn receive(&mut self, way: Way, migrated: bool) -> Verdict {
        match (self.state, migrated) {
            (MigrationState::Migrated, _) if way.primary => Verdict::Accept,
            (MigrationState::Migrated, false) if way.former => Verdict::Accept,
            (MigrationState::Rearm, _) if way.primary => {
                if !migrated {
                    self.state = MigrationState::Armed;
                }
                Verdict::Accept
            }
            (MigrationState::Armed, false) if way.primary => Verdict::Accept,
            // In Rearm, the peer was armed by our packets before its own came here.
            (MigrationState::Rearm | MigrationState::Armed, true) if way.alternate => {
                self.migrate();
                Verdict::Migrate
            }
            (MigrationState::Armed, true) if !self.refusal_told => {
                self.refusal_told = true;
                Verdict::Refuse
            }
            _ => Verdict::Drop,
        }
    }

    /// The retries of the primary path are used up. Returns whether the QP has just migrated.
    pub fn exhausted(&mut self) -> bool {
        let can = self.state == MigrationState::Armed;
        if can {
            self.migrate();
        }
        can
    }

    fn migrate(&mut self) {
        *self = Self::default();
    }
}
