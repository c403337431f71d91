// SPDX-License-Identifier: GPL-2.0

//! Workers that build packets when there are many.
//!
//! A packet that a softirq sends within this machine arrives only after that softirq has ended, on the same CPU. So a
//! softirq that built a whole window of packets would hold up their receiver, and all other work of the CPU.

use super::{
    deadlines::Deadline,
    engine::{
        BATCHES_IN_SOFTIRQ,
        STALL_NS, //
    },
    Qp, //
};
use crate::packet::datagram::Batch;
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
use roce::qp::Mtu;
use sync::{
    BhGuard,
    Cpu, //
};

/// The numbers of this work among a QP's.
pub(super) const BULK_SEND: u64 = 2;
pub(super) const BULK_RESPOND: u64 = 3;

/// A softirq leaves so many bytes, and more, to a worker.
const BULK_BYTES: u32 = 128 << 10;

/// The same for this MTU, if that is less: as many full-sized packets as a softirq sends. If a softirq sent some, and a
/// worker the rest from another CPU, the rest would arrive first.
#[inline]
pub(super) fn bulk_bytes(mtu: Mtu) -> u32 {
    // CAST: A small number.
    const PACKETS: u32 = BATCHES_IN_SOFTIRQ * Batch::BURST as u32;
    PACKETS.wrapping_shl(mtu.shift()).min(BULK_BYTES)
}

/// Stands for no CPU.
const NO_CPU: u32 = u32::MAX;

/// If the worker has not begun after so long, in nanoseconds, a softirq builds the packets: a real-time program may occupy
/// the worker's CPU. For UC and UD QPs the time is [`STALL_NS`], as what the softirq sends may overtake what the
/// worker's CPU has not delivered.
const STARVED_NS: u64 = 2_000_000;

/// The CPU that builds a side's packets when there are many. Another CPU takes in the replies, which let the side go on.
pub(super) struct WorkerCpu {
    cpu: AtomicU32,
    /// When the worker was queued last, in nanoseconds.
    asked: AtomicU64,
}

impl WorkerCpu {
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
        let own = CpuId::current().as_u32();
        // Others read this cache line.
        if self.cpu.load(Ordering::Relaxed) != own {
            self.cpu.store(own, Ordering::Relaxed);
        }
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
    /// Queues the worker. Returns whether it will build: if not, it was queued long ago, and has not begun.
    /// Context: process or softirq.
    pub(super) fn build_in_bulk<const ID: u64>(
        self: &Arc<Self>,
        worker: &WorkerCpu,
        rescue: Deadline,
    ) -> bool
    where
        Self: WorkItem<ID, Pointer = Arc<Self>> + HasWork<Self, ID>,
    {
        let starved = match self.is_unreliable() {
            true => STALL_NS,
            false => STARVED_NS,
        };
        let now = sync::monotonic_ns();
        let queue = &self.device().registry.bulk;
        let bh = BhGuard::new();
        let asked = match Cpu::numbered(worker.cpu.load(Ordering::Relaxed), &bh) {
            Some(cpu) => queue.enqueue_on::<_, ID>(&cpu, self.clone()),
            None => queue.enqueue::<_, ID>(self.clone()),
        };
        drop(bh);
        if asked.is_ok() {
            // The worker may have run since, and another call have queued it again and noted a later time.
            let last = worker.asked.fetch_max(now, Ordering::Relaxed).max(now);
            self.deadlines
                .set(self, rescue, last.saturating_add(starved));
            return true;
        }
        let last = worker.asked.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= starved {
            return false;
        }
        // The call that queued the worker may not have set this deadline yet, or has set an earlier one that has passed.
        let time = last.saturating_add(starved);
        self.deadlines.set_first(self, rescue, time);
        true
    }
}
