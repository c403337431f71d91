// SPDX-License-Identifier: GPL-2.0

//! Packets that another CPU takes in than the one that they came by.
//!
//! On a machine's own networks a packet arrives on the CPU of its sender, within the call that sends it; by a network
//! card, on the one that the card's queue belongs to. To check and to copy it takes longer than to make it. So of a
//! stream of large messages each UDP port has a lane to another CPU, as receive packet steering has
//! ([`Documentation/networking/scaling.rst`](srctree/Documentation/networking/scaling.rst)); messages that come one at a
//! time are taken in where they are, at once.

use crate::{
    counters::Counter,
    demux,
    device::Device,
    storage::append, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};
use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use net::{
    RxBurst,
    RxList, //
};
use sync::{
    monotonic_ns,
    new_spin_lock_bh,
    BhGuard,
    Cpu,
    SpinLockBh, //
};

/// Lanes of a device.
const LANES: usize = 32;

/// Bytes that have to come together to count as part of a stream.
const BURST_LEAST: u32 = 4096;

/// Bytes that have to come without a pause before another CPU takes in the rest: to wake it takes as long as to take
/// in a message of 64 KiB.
const STREAM_LEAST: u32 = 128 << 10;

/// A pause is longer than so many times the time that it took to take in what came before.
const PAUSE: u64 = 2;

/// Packets that wait for all other CPUs together before QPs of this machine send no more.
const SENDERS_WAIT: u32 = 256;

/// Packets that may wait for all other CPUs together: the rest is lost, as in a network. With the largest, some 32 MiB.
const MAX_WAITING: u32 = 8192;

/// Packets that are taken in at once, and acknowledged together.
const TOGETHER: u32 = 32;

/// Packets after which it is the next one's turn that waits for the same CPU.
const PACKETS_PER_TURN: u32 = 512;

/// How many packets of all devices wait.
#[derive(Default)]
pub(crate) struct Steered(AtomicU32);

impl Steered {
    /// Whether there are so many that senders should wait. Context: any.
    pub(crate) fn is_congested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > SENDERS_WAIT
    }

    /// Counts so many more, unless that would be too many. Returns whether it has.
    fn add(&self, packets: u32) -> bool {
        let before = self.0.fetch_add(packets, Ordering::Relaxed);
        let has_room = before <= MAX_WAITING;
        if !has_room {
            self.remove(packets);
        }
        has_room
    }

    fn remove(&self, packets: u32) {
        self.0.fetch_sub(packets, Ordering::Relaxed);
    }
}

/// What a device has for packets that other CPUs take in.
pub(crate) struct Steering {
    /// What comes from one UDP port always goes by the same one.
    lanes: KVec<Arc<Lane>>,
}

/// The way of packets to another CPU, in their order.
#[pin_data]
struct Lane {
    /// As in [`Waiting`], for who does not want to wait for the lock. Who opens it sees that at once; closed it is only
    /// once all that went by it has been taken in.
    is_open: AtomicBool,
    #[pin]
    waiting: SpinLockBh<Waiting>,
    #[pin]
    work: Work<Lane>,
}

#[derive(Default)]
struct Waiting {
    /// Whose they are, while the lane is open: the work is queued, or runs, and whatever comes goes by it.
    device: Option<Arc<Device>>,
    packets: RxList,
    /// When it was opened.
    begin: u64,
    stream: Stream,
}

/// What has come without a pause.
#[derive(Default)]
struct Stream {
    bytes: u32,
    /// When the last of it had been taken in, and how long that took, in nanoseconds.
    end: u64,
    effort: u64,
}

impl Stream {
    /// More comes. Returns whether that is a stream that is worth another CPU.
    fn is_long(&mut self, now: u64, bytes: u32) -> bool {
        if now.saturating_sub(self.end) > self.effort.saturating_mul(PAUSE) {
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes > STREAM_LEAST
    }

    /// It has been taken in.
    fn taken_in(&mut self, begin: u64) {
        self.end = monotonic_ns();
        self.effort = self.end.saturating_sub(begin);
    }
}

impl_has_work! {
    impl HasWork<Self> for Lane { self.work }
}

impl WorkItem for Lane {
    type Pointer = Arc<Lane>;

    fn run(lane: Arc<Lane>) {
        let mut budget = PACKETS_PER_TURN;
        loop {
            // What the packets are answered with leaves, and arrives, when bottom halves are on again.
            let _bh = BhGuard::new();
            let (device, packets) = {
                let mut waiting = lane.waiting.lock();
                let Some(device) = waiting.device.clone() else {
                    return;
                };
                if waiting.packets.is_empty() {
                    let begin = waiting.begin;
                    waiting.stream.taken_in(begin);
                    waiting.device = None;
                    lane.is_open.store(false, Ordering::Release);
                    return;
                }
                if budget == 0 {
                    drop(waiting);
                    let _ = device.bulk_queue().queue().enqueue(lane);
                    return;
                }
                (device, waiting.packets.take(TOGETHER))
            };
            let taken = packets.len();
            budget = budget.saturating_sub(taken);
            demux::receive_steered(&device, packets);
            device.registry().steered().remove(taken);
        }
    }
}

impl Lane {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                is_open: AtomicBool::new(false),
                waiting <- new_spin_lock_bh!(Waiting::default()),
                work <- new_work!("Lane::work"),
            }),
            GFP_KERNEL,
        )
    }
}

impl Steering {
    /// Context: process, may sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut lanes = KVec::new();
        for _ in 0..LANES {
            append(&mut lanes, Lane::new()?)?;
        }
        Ok(Self { lanes })
    }

    /// Has packets that came to `device` taken in by `here`, now, or by another CPU. Context: softirq.
    pub(crate) fn take_in(&self, device: &Arc<Device>, burst: RxBurst, here: impl FnOnce(RxList)) {
        let RxBurst {
            packets,
            bytes,
            source_port,
            ..
        } = burst;
        let index = usize::from(source_port) % LANES;
        let Some(lane) = self.lanes.get(index) else {
            return here(packets);
        };
        if bytes < BURST_LEAST && !lane.is_open.load(Ordering::Acquire) {
            return here(packets);
        }
        let bh = BhGuard::new();
        let begin = monotonic_ns();
        let arrived = packets.len();
        let steered = device.registry().steered();
        let counters = device.counters();
        {
            let mut waiting = lane.waiting.lock();
            if waiting.device.is_some() {
                if steered.add(arrived) {
                    counters.add(Counter::Steered, u64::from(arrived));
                    waiting.packets.append(packets);
                } else {
                    counters.add(Counter::SteeringDropped, u64::from(arrived));
                }
                return;
            }
            if waiting.stream.is_long(begin, bytes) {
                // CAST: A small number.
                let other = Cpu::other(index as u32, &bh).filter(|_| steered.add(arrived));
                if let Some(cpu) = other {
                    counters.add(Counter::Steered, u64::from(arrived));
                    waiting.packets.append(packets);
                    waiting.begin = begin;
                    waiting.device = Some(device.clone());
                    lane.is_open.store(true, Ordering::Relaxed);
                    drop(waiting);
                    let _ = device.bulk_queue().enqueue_on::<_, 0>(&cpu, lane.clone());
                    return;
                }
            }
        }
        here(packets);
        lane.waiting.lock().stream.taken_in(begin);
    }
}
