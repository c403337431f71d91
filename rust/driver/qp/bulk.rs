// SPDX-License-Identifier: GPL-2.0

//! Packets that a thread builds, as they are many.
//!
//! What a softirq sends within this machine arrives only when it has ended, on the same CPU: until then all others would
//! wait for it to build all that there is room for.

use super::Qp;
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        HasWork,
        WorkItem, //
    }, //
};
use sync::{
    BhGuard,
    Cpu,
    Timer,
    TimerCallback, //
};

/// The numbers of this work among a QP's, and those of the timers that look after it.
pub(super) const BULK_SEND: u64 = 2;
pub(super) const BULK_RESPOND: u64 = 3;

/// Bytes that a softirq leaves to a thread.
pub(super) const BULK_BYTES: u32 = 128 << 10;

/// Stands for no CPU.
const NO_CPU: u32 = u32::MAX;

/// After so long, in nanoseconds, in which a thread was not let to begin, a softirq builds the packets itself: the CPU
/// may be a program's that lets nobody else have it.
const STARVED_NS: u64 = 2_000_000;

/// Where a side's packets are built, if they are many.
#[pin_data]
struct Place<const ID: u64>
where
    Qp: TimerCallback<ID>,
{
    cpu: AtomicU32,
    /// When the thread was asked for last, in nanoseconds.
    asked: AtomicU64,
    /// Looks whether it has begun: nothing else may happen that would.
    #[pin]
    rescue: Timer<Qp, ID>,
}

impl<const ID: u64> Place<ID>
where
    Qp: TimerCallback<ID>,
{
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            cpu: AtomicU32::new(NO_CPU),
            asked: AtomicU64::new(0),
            rescue <- Timer::new(),
        })
    }
}

/// Which CPUs build a QP's packets: not those that take in what these are answered with, which may be what lets a side
/// go on. There is enough to do.
#[pin_data]
pub(super) struct Places {
    /// Where the consumer posted last.
    #[pin]
    send: Place<BULK_SEND>,
    /// Where the first request came that took a thread to respond to.
    #[pin]
    respond: Place<BULK_RESPOND>,
}

impl Places {
    /// Nothing has been posted, and no request has come.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            send <- Place::new(),
            respond <- Place::new(),
        })
    }

    /// Nobody is to look after threads any more. Context: process.
    pub(super) fn shutdown(&self) {
        self.send.rescue.shutdown();
        self.respond.rescue.shutdown();
    }

    /// The consumer posts requests, on this CPU. Context: any.
    #[inline]
    pub(super) fn posted_here(&self) {
        self.send
            .cpu
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

impl TimerCallback<BULK_SEND> for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        Arc::from(this).kick();
    }
}

impl TimerCallback<BULK_RESPOND> for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        Arc::from(this).kick();
    }
}

impl Qp {
    /// Has a thread send requests, soon. Returns whether it will: if not, it has been asked before, and its CPU has not
    /// let it begin. Context: process or softirq.
    pub(super) fn send_in_bulk(self: &Arc<Self>) -> bool {
        let place = &self.places.send;
        self.build_in_bulk(place, place.cpu.load(Ordering::Relaxed))
    }

    /// As [`Qp::send_in_bulk`], for responses. Context: softirq, or a thread of the same kind.
    pub(super) fn respond_in_bulk(self: &Arc<Self>) -> bool {
        let place = &self.places.respond;
        let own = CpuId::current().as_u32();
        let before = place
            .cpu
            .compare_exchange(NO_CPU, own, Ordering::Relaxed, Ordering::Relaxed);
        self.build_in_bulk(place, before.err().unwrap_or(own))
    }

    fn build_in_bulk<const ID: u64>(self: &Arc<Self>, place: &Place<ID>, cpu: u32) -> bool
    where
        Self: WorkItem<ID, Pointer = Arc<Self>> + HasWork<Self, ID> + TimerCallback<ID>,
    {
        let now = sync::monotonic_ns();
        let queue = self.device().bulk_queue();
        let asked = {
            let bh = BhGuard::new();
            match Cpu::numbered(cpu, &bh) {
                Some(cpu) => queue.enqueue_on::<_, ID>(&cpu, self.clone()),
                None => queue.queue().enqueue::<_, ID>(self.clone()),
            }
        };
        if asked.is_err() {
            return now.saturating_sub(place.asked.load(Ordering::Relaxed)) < STARVED_NS;
        }
        place.asked.store(now, Ordering::Relaxed);
        place.rescue.start_in(self.as_arc_borrow(), STARVED_NS);
        true
    }
}
