// SPDX-License-Identifier: GPL-2.0

//! The paths of a connected QP, and the change from one to the other.

use super::{
    send::SendSide,
    Qp, //
};
use crate::{
    device::Device,
    packet::path::{
        Path,
        PathQuery, //
    }, //
};
use core::sync::atomic::Ordering;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use rdma::qp::Event;
use roce::{
    qp::{
        migration::{
            Verdict,
            Way, //
        },
        Migration,
        MigrationState, //
    },
    time, //
};

/// The paths of a QP, under the lock [`Qp::paths`], which is taken inside the send lock and the receive lock.
#[derive(Default)]
pub(super) struct Paths {
    migration: Migration,
    primary: Option<Arc<Path>>,
    /// While there is no primary path: how to find it again, if it was dropped because its source address went.
    lost: Option<PathQuery>,
    alternate: Option<Alternate>,
    /// The primary path before the last migration: the peer may not have heard of that yet.
    former: Option<Arc<Path>>,
    /// Migrations since the QP was reset. The number wraps around.
    migrations: u32,
}

/// The path that a QP may migrate to.
pub(super) struct Alternate {
    pub(super) path: Arc<Path>,
    /// Its Local ACK timeout, as in `alt_timeout`.
    pub(super) timeout: u8,
}

/// A QP has migrated, to a path with this Local ACK timeout: [`Qp::migrated`] is to be called once the lock
/// is released.
#[must_use]
pub(super) struct Migrated {
    timeout: u8,
}

/// The path that packets leave by, and the MigReq bit in their BTH.
pub(super) struct TxPath {
    pub(super) path: Arc<Path>,
    /// The MigReq bit.
    pub(super) migrated: bool,
}

impl Paths {
    /// Forgets all paths (RESET).
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes out the paths whose source address is gone. The primary path comes back with its address.
    fn take_lost(&mut self, device: &Device) -> [Option<Arc<Path>>; 3] {
        let is_lost = |path: &mut Arc<Path>| !path.has_source(device);
        let alternate = self
            .alternate
            .take_if(|alternate| is_lost(&mut alternate.path));
        let primary = self.primary.take_if(is_lost);
        if let Some(path) = &primary {
            self.lost = Some(path.query());
        }
        [
            primary,
            alternate.map(|alternate| alternate.path),
            self.former.take_if(is_lost),
        ]
    }

    /// Where the migration stands.
    pub(super) fn state(&self) -> MigrationState {
        self.migration.state()
    }

    /// How often the QP has migrated.
    pub(super) fn migrations(&self) -> u32 {
        self.migrations
    }

    /// The primary path, looked up again if its route has changed, or if its source address was gone. [`None`] if there is no
    /// route.
    fn valid_primary(&mut self, device: &Device) -> Option<Arc<Path>> {
        let query = match &self.primary {
            Some(path) if path.is_valid(device) => return Some(path.clone()),
            Some(path) => path.query(),
            None => self.lost?,
        };
        let path = query.lookup(device).ok()?;
        self.primary = Some(path.clone());
        Some(path)
    }

    /// The way of packets to the peer, over the route that is valid now.
    pub(super) fn tx_path(&mut self, qp: &Qp) -> Option<TxPath> {
        Some(TxPath {
            path: self.valid_primary(qp.device())?,
            migrated: self.migration.migrated_bit(),
        })
    }

    /// Makes the changes that a consumer asks for, all of them or none.
    ///
    /// Errors: `EINVAL` for what the state of the migration does not allow.
    pub(super) fn modify(
        &mut self,
        primary: Option<Arc<Path>>,
        alternate: Option<Alternate>,
        wanted: Option<MigrationState>,
    ) -> Result<Option<Migrated>> {
        // Another primary path would not be the one that the peer has been armed for.
        if primary.is_some() && self.state() != MigrationState::Migrated {
            return Err(EINVAL);
        }
        let has_migrated = self
            .migration
            .modify(alternate.is_some(), wanted)
            .map_err(|_| EINVAL)?;
        if primary.is_some() {
            self.primary = primary;
            self.former = None;
        }
        if alternate.is_some() {
            self.alternate = alternate;
        }
        if self.state() != MigrationState::Migrated {
            self.former = None;
        }
        Ok(if has_migrated { self.switch() } else { None })
    }

    /// The retries of the primary path are used up.
    fn exhausted(&mut self) -> Option<Migrated> {
        if self.migration.exhausted() {
            self.switch()
        } else {
            None
        }
    }

    /// The alternate path is the primary one from now on.
    fn switch(&mut self) -> Option<Migrated> {
        let Alternate { path, timeout } = self.alternate.take()?;
        self.former = self.primary.replace(path);
        self.migrations = self.migrations.wrapping_add(1);
        Some(Migrated { timeout })
    }
}

impl Migrated {
    fn timeout(&self) -> Option<time::Duration> {
        time::ack_timeout(self.timeout)
    }
}

impl Qp {
    /// Does `change` to the paths.
    pub(super) fn with_paths<T>(&self, change: impl FnOnce(&mut Paths) -> T) -> T {
        let mut paths = self.paths.lock();
        let result = change(&mut paths);
        let is_armed = paths.state() == MigrationState::Armed;
        self.is_armed.store(is_armed, Ordering::Relaxed);
        result
    }

    /// Drops the paths whose source address is gone, as a path keeps its network namespace. These are paths from an address
    /// that went from another namespace than the device's own, and all paths once the device has detached from the
    /// network. No new ones come then. Context: process or softirq, no lock held.
    ///
    /// A caller that stores a path calls this afterwards, or stores the path under the lock of its lookup.
    pub(crate) fn lose_paths(&self) {
        // The device waits for it: an address handle refers to the GID table. Once the gate is closed, `destroy` drops the
        // paths.
        let Some(_pass) = self.gate.enter() else {
            return;
        };
        let lost = (
            self.with_paths(|paths| paths.take_lost(self.device())),
            self.send.lock().take_lost_path(self.device()),
        );
        drop(lost);
    }

    /// The way of packets to the connected peer.
    pub(super) fn tx_path(&self) -> Option<TxPath> {
        self.paths.lock().tx_path(self)
    }

    /// Whether `skb` comes from the connected peer ([`Path::is_reverse`]). `migrated` is its MigReq bit, which may make the
    /// QP migrate; [`None`] for a CNP, whose bit means nothing (annex A17.9.3). Context: bottom halves off, no lock held.
    pub(crate) fn admits(self: &Arc<Self>, skb: &RxSkb, migrated: Option<bool>) -> bool {
        let (verdict, switched) = self.with_paths(|paths| {
            let is_of = |path: Option<&Arc<Path>>| path.is_some_and(|path| path.is_reverse(skb));
            let mut way = Way {
                primary: is_of(paths.primary.as_ref()),
                alternate: is_of(paths.alternate.as_ref().map(|alternate| &alternate.path)),
                former: is_of(paths.former.as_ref()),
            };
            // The primary path may have been lost, and be back; its netdev may have another number, or VRF; or the peer's
            // address may have gone from the device.
            if !way.primary {
                way.primary = is_of(paths.valid_primary(self.device()).as_ref());
            }
            let verdict = match migrated {
                Some(migrated) => paths.migration.receive(way, migrated),
                None if way.primary => Verdict::Accept,
                None => Verdict::Drop,
            };
            let migrates = verdict == Verdict::Migrate;
            (verdict, migrates.then(|| paths.switch()).flatten())
        });
        match verdict {
            Verdict::Accept => true,
            Verdict::Migrate => {
                if let Some(switched) = switched {
                    self.migrated(&switched);
                }
                true
            }
            Verdict::Drop => false,
            Verdict::Refuse => {
                self.verbs.handle.raise(Event::PathMigrationError);
                false
            }
        }
    }

    /// The QP has migrated. Context: process or softirq, no lock held.
    pub(super) fn migrated(&self, switched: &Migrated) {
        self.send.lock().requester.path_changed(switched.timeout());
        self.verbs.handle.raise(Event::PathMigrated);
    }

    /// Migrates if the requester has used up the retries of the primary path. `send` is this QP's own send side, which
    /// the caller has locked. Context: process or softirq.
    pub(super) fn follow_migration(&self, send: &mut SendSide) {
        if !send.requester.take_migration() {
            return;
        }
        // Nothing is left to do where a packet of the peer has made it migrate in between.
        if let Some(switched) = self.with_paths(Paths::exhausted) {
            send.requester.path_changed(switched.timeout());
            self.verbs.handle.raise(Event::PathMigrated);
        }
    }
}
