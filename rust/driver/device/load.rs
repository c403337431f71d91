// SPDX-License-Identifier: GPL-2.0

//! Whether another CPU is to receive small bursts of packets.
//!
//! A small burst is received on the CPU that it arrives on, as to wake another one takes longer. Over a machine's own
//! networks that is the CPU of its sender: a program that posts to many queue pairs keeps one CPU busy, while others may
//! have little to do. So a CPU hands small bursts over while
//!
//! - they are of several flows: a program with one flow often waits for each answer,
//! - to receive them takes more than a third of its time, and
//! - another CPU has less than half as much to receive; less than as much, once it receives them.
//!
//! From a network card with a small MTU all bursts may be small.

use crate::{
    device::steering::LANES,
    storage::append, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU64,
    Ordering::Relaxed, //
};
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    prelude::*, //
};
use sync::{
    BhGuard,
    Cpu, //
};

/// After so long, in nanoseconds, a CPU decides anew. A program with many queue pairs takes some time to go round them.
const WINDOW_NS: u64 = 10_000_000;

/// A window that was longer, in nanoseconds, had a pause in it, and says nothing.
const LONG_NS: u64 = 3 * WINDOW_NS;

/// How many flows are several. Lanes stand for flows.
const SEVERAL: u32 = 4;

// Each lane has a bit of `Load::lanes`.
const _: () = assert!(LANES <= u32::BITS as usize);

/// The loads of all CPUs.
pub(crate) struct Loads(KVec<Load>);

/// The load of a CPU. All times are in nanoseconds of real time: of a thread that is preempted, too.
#[derive(Default)]
struct Load {
    own: Own,
    seen: Seen,
}

/// The fields that only this CPU uses, with bottom halves off. With `PREEMPT_RT`, two threads of the CPU may use them at
/// once: then a count gets lost, which does no harm.
#[repr(align(64))]
#[derive(Default)]
struct Own {
    /// When the window began.
    begin: AtomicU64,
    /// How long small bursts have taken so far that were received here.
    here: AtomicU64,
    /// That and [`Seen::away`] when the window began.
    mine_before: AtomicU64,
    /// The lanes of small bursts, in this window and in the one before.
    lanes: AtomicU32,
    lanes_before: AtomicU32,
    /// Which CPU is the other one, and what that had to receive when the window began, but for what came from here.
    turn: AtomicU32,
    theirs_before: AtomicU64,
    /// Whether this CPU hands small bursts over.
    is_shared: AtomicBool,
}

/// The fields that other CPUs use, too.
#[repr(align(64))]
#[derive(Default)]
struct Seen {
    /// How long this CPU has received so far, whatever it was and wherever it had arrived.
    busy: AtomicU64,
    /// How long other CPUs have received so far what small bursts on this one had put into lanes.
    away: AtomicU64,
}

impl Loads {
    /// Context: process, may sleep.
    pub(super) fn new() -> Result<Self> {
        let mut loads = KVec::new();
        for _ in 0..nr_cpu_ids() {
            append(&mut loads, Load::default())?;
        }
        Ok(Self(loads))
    }

    fn of(&self, cpu: u32) -> Option<&Load> {
        self.0.get(cpu as usize)
    }

    fn current(&self) -> Option<&Load> {
        self.of(CpuId::current().as_u32())
    }

    /// Counts a small burst of a lane, which arrives on this CPU at the time `now`. Returns which other CPU is to receive
    /// it, for [`Cpu::other`]; [`None`] for this one. Context: softirq.
    pub(super) fn turn(&self, now: u64, lane: usize, bh: &BhGuard) -> Option<u32> {
        let load = self.current()?;
        let own = &load.own;
        if now.wrapping_sub(own.begin.load(Relaxed)) >= WINDOW_NS {
            self.decide(load, now, bh);
        }
        // CAST: A small number.
        let bit = 1u32.wrapping_shl(lane as u32);
        own.lanes.store(own.lanes.load(Relaxed) | bit, Relaxed);
        own.is_shared.load(Relaxed).then(|| own.turn.load(Relaxed))
    }

    /// This CPU has received for so long what arrived here: a small burst, or another one. Context: softirq.
    pub(super) fn received(&self, time: u64, is_small: bool) {
        if let Some(load) = self.current() {
            add(&load.seen.busy, time);
            if is_small {
                add(&load.own.here, time);
            }
        }
    }

    /// This CPU has received for so long from a lane, which small bursts on the CPU number `origin` had opened, or
    /// others. Context: softirq or process, with bottom halves off.
    pub(super) fn received_for(&self, time: u64, origin: Option<u32>) {
        let is_own = origin == Some(CpuId::current().as_u32());
        self.received(time, is_own);
        let origin = origin.filter(|_| !is_own);
        if let Some(origin) = origin.and_then(|number| self.of(number)) {
            origin.seen.away.fetch_add(time, Relaxed);
        }
    }

    #[inline(never)]
    fn decide(&self, load: &Load, now: u64, bh: &BhGuard) {
        let own = &load.own;
        let total = now.wrapping_sub(own.begin.swap(now, Relaxed));
        let away = load.seen.away.load(Relaxed);
        let mine = since(own.here.load(Relaxed).wrapping_add(away), &own.mine_before);
        let theirs = since(self.others(own, away, bh), &own.theirs_before);
        let lanes = own.lanes.swap(0, Relaxed);
        let flows = (lanes | own.lanes_before.swap(lanes, Relaxed)).count_ones();
        if total > LONG_NS {
            own.lanes_before.store(0, Relaxed);
            own.is_shared.store(false, Relaxed);
            return;
        }

        let is_busy = mine > total / 3;
        // The other CPU's bursts are answered, and it receives the answers: they count as its own.
        let bound = match own.is_shared.load(Relaxed) {
            true => mine,
            false => mine / 2,
        };
        if is_busy && theirs >= bound {
            own.turn.fetch_add(1, Relaxed);
            since(self.others(own, away, bh), &own.theirs_before);
        }
        let is_shared = flows >= SEVERAL && is_busy && theirs < bound;
        own.is_shared.store(is_shared, Relaxed);
    }

    /// Returns how long the other CPU has received so far, and how long others have received for it, less `away`: for so
    /// long others have received for this one.
    fn others(&self, own: &Own, away: u64, bh: &BhGuard) -> u64 {
        let other = Cpu::other(own.turn.load(Relaxed), bh);
        let seen = other
            .and_then(|cpu| self.of(cpu.number()))
            .map(|load| &load.seen);
        let all = seen.map_or(0, |seen| {
            let busy = seen.busy.load(Relaxed);
            busy.wrapping_add(seen.away.load(Relaxed))
        });
        all.wrapping_sub(away)
    }
}

/// Adds to what only this CPU counts.
fn add(counter: &AtomicU64, time: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(time), Relaxed);
}

/// How much has been counted since this was asked before; nothing, if it is less.
fn since(count: u64, before: &AtomicU64) -> u64 {
    let fresh = count.wrapping_sub(before.swap(count, Relaxed));
    // CAST: More than that is less than nothing.
    if (fresh as i64) < 0 {
        0
    } else {
        fresh
    }
}
