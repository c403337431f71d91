// SPDX-License-Identifier: GPL-2.0

//! Packets that a thread builds, as they are many.
//!
//! What a softirq sends within this machine arrives only when it has ended, on the same CPU: until then all others would
//! wait for it to build all that there is room for.

use super::{
    deadlines::Deadline,
    Qp, //
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel::{
    cpu::CpuId,
    sync::Arc,
    workqueue::{
        HasWork,
        WorkItem, //
    }, //
};
use sync::{
    BhGuard,
    Cpu, //
};

/// The numbers of this work among a QP's.
pub(super) const BULK_SEND: u64 = 2;
pub(super) const BULK_RESPOND: u64 = 3;

/// Bytes that a softirq leaves to a thread.
pub(super) const BULK_BYTES: u32 = 128 << 10;

/// Stands for no CPU.
const NO_CPU: u32 = u32::MAX;

/// After so long, in nanoseconds, in which a thread was not let to begin, a softirq builds the packets itself: the CPU
/// may be a program's that lets nobody else have it.
const STARVED_NS: u64 = 2_000_000;

/// Where a side's packets are built, if they are many: not by those CPUs that take in what these are answered with,
/// which may be what lets the side go on. There is enough to do.
pub(super) struct Place {
    cpu: AtomicU32,
    /// When the thread was asked for last, in nanoseconds.
    asked: AtomicU64,
}

impl Place {
    /// On any CPU.
    pub(super) fn new() -> Self {
        Self {
            cpu: AtomicU32::new(NO_CPU),
            asked: AtomicU64::new(0),
        }
    }

    /// From now on it is this CPU. Context: any.
    #[inline]
    pub(super) fn move_here(&self) {
        self.cpu.store(CpuId::current().as_u32(), Ordering::Relaxed);
    }

    /// It is this CPU, if it was none before. Context: any.
    pub(super) fn settle_here(&self) {
        let own = CpuId::current().as_u32();
        let _ = self
            .cpu
            .compare_exchange(NO_CPU, own, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl WorkItem<BULK_SEND> for Qp {
    type Pointer = Arc<Qp>;

    fn run(qp: Arc<Qp>) {
        if let Some(_pass) = qp.gate.enter() {
            qp.run_send();
        }
    }
}

impl WorkItem<BULK_RESPOND> for Qp {
    type Pointer = Arc<Qp>;

    fn run(qp: Arc<Qp>) {
        if let Some(_pass) = qp.gate.enter() {
            qp.run_receive();
        }
    }
}

impl Qp {
    /// Has a thread build, soon. Returns whether it will: if not, it has been asked before, and its CPU has not let it
    /// begin. Context: process or softirq.
    pub(super) fn build_in_bulk<const ID: u64>(
        self: &Arc<Self>,
        place: &Place,
        rescue: Deadline,
    ) -> bool
    where
        Self: WorkItem<ID, Pointer = Arc<Self>> + HasWork<Self, ID>,
    {
        let now = sync::monotonic_ns();
        let queue = self.device().bulk_queue();
        let asked = {
            let bh = BhGuard::new();
            match Cpu::numbered(place.cpu.load(Ordering::Relaxed), &bh) {
                Some(cpu) => queue.enqueue_on::<_, ID>(&cpu, self.clone()),
                None => queue.enqueue::<_, ID>(self.clone()),
            }
        };
        if asked.is_err() {
            return now.saturating_sub(place.asked.load(Ordering::Relaxed)) < STARVED_NS;
        }
        place.asked.store(now, Ordering::Relaxed);
        let time = now.saturating_add(STARVED_NS);
        self.deadlines.set(self, rescue, time);
        true
    }
}
