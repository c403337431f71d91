// SPDX-License-Identifier: GPL-2.0

//! Packets that a thread builds, as they are many.
//!
//! What a softirq sends within this machine arrives only when it has ended, on the same CPU: until then all others would
//! wait for it to build all that there is room for.

use super::Qp;
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    cpu::CpuId,
    sync::Arc,
    workqueue::WorkItem, //
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

/// Which CPUs build a QP's packets: not those that take in what these are answered with, which may be what lets a side
/// go on. There is enough to do.
pub(super) struct Places {
    /// Where the consumer posted last.
    send: AtomicU32,
    /// Where the first request came that took a thread to respond to.
    respond: AtomicU32,
}

impl Places {
    /// Nothing has been posted, and no request has come.
    pub(super) fn new() -> Self {
        Self {
            send: AtomicU32::new(NO_CPU),
            respond: AtomicU32::new(NO_CPU),
        }
    }

    /// The consumer posts requests, on this CPU. Context: any.
    #[inline]
    pub(super) fn posted_here(&self) {
        self.send
            .store(CpuId::current().as_u32(), Ordering::Relaxed);
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
    /// Has a thread send requests, soon. Context: process or softirq.
    pub(super) fn send_in_bulk(self: &Arc<Self>) {
        let bh = BhGuard::new();
        let queue = self.device().bulk_queue();
        let place = self.places.send.load(Ordering::Relaxed);
        let _ = match Cpu::numbered(place, &bh) {
            Some(cpu) => queue.enqueue_on::<_, BULK_SEND>(&cpu, self.clone()),
            None => queue.queue().enqueue::<_, BULK_SEND>(self.clone()),
        };
    }

    /// Has a thread send responses, soon. Context: softirq, or a thread of the same kind.
    pub(super) fn respond_in_bulk(self: &Arc<Self>) {
        let bh = BhGuard::new();
        let queue = self.device().bulk_queue();
        let own = CpuId::current().as_u32();
        let place = &self.places.respond;
        let before = place.compare_exchange(NO_CPU, own, Ordering::Relaxed, Ordering::Relaxed);
        let _ = match Cpu::numbered(before.err().unwrap_or(own), &bh) {
            Some(cpu) => queue.enqueue_on::<_, BULK_RESPOND>(&cpu, self.clone()),
            None => queue.queue().enqueue::<_, BULK_RESPOND>(self.clone()),
        };
    }
}
