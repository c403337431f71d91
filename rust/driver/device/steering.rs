// SPDX-License-Identifier: GPL-2.0

//! Packets that another CPU takes in than the one that they came by.
//!
//! On a machine's own networks a packet arrives on the CPU of its sender, within the call that sends it; by a network
//! card, on the one that the card's queue belongs to. To check and to copy it takes longer than to make it. So of a
//! stream of large messages each UDP port has a lane to another CPU, as receive packet steering has
//! ([`Documentation/networking/scaling.rst`](srctree/Documentation/networking/scaling.rst)); messages that come one at a
//! time are taken in where they are, at once.

use crate::{
    device::{
        counters::Counter,
        Device, //
    },
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
    RxList,
    RxSkb, //
};
use sync::{
    monotonic_ns,
    new_spin_lock_bh,
    BhGuard,
    Cpu,
    SpinLockBh,
    SpinLockBhGuard, //
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

/// Bytes of memory that may wait in lanes before QPs of this machine whose service has no window wait, too.
const CROWDED: u32 = 2 << 20;

/// Bytes of memory that may wait in a lane, and in all of them together: the rest is lost, as in a network.
const LANE_MAX: u32 = 8 << 20;
const ALL_MAX: u32 = 64 << 20;

/// Packets that are taken in at once, and acknowledged together.
const TOGETHER: u32 = 32;

/// Packets after which a thread makes a pause, for who waits for the end of its work.
const PACKETS_PER_TURN: u32 = 512;

/// After so long, in nanoseconds, in which a thread was not let to do anything, those who bring packets do it, until it
/// is: the CPU may be a program's that lets nobody else have it.
const STARVED_NS: u64 = 10_000_000;

/// Packets that who brings some then takes in: more than come together, so that there is an end to it.
const PACKETS_PER_HELP: u32 = 128;

/// What waits in lanes of all devices, in bytes of memory.
#[derive(Default)]
pub(crate) struct Steered(AtomicU32);

impl Steered {
    /// Whether there is so much that more would soon be lost. Context: any.
    pub(crate) fn is_congested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > CROWDED
    }

    /// Counts so much more, unless that would be too much. Returns whether it has.
    fn add(&self, memory: u32) -> bool {
        let before = self.0.fetch_add(memory, Ordering::Relaxed);
        let has_room = before <= ALL_MAX;
        if !has_room {
            self.remove(memory);
        }
        has_room
    }

    fn remove(&self, memory: u32) {
        self.0.fetch_sub(memory, Ordering::Relaxed);
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
    /// Somebody takes some in, and nobody else may: the thread, or in its place who brings packets.
    is_served: bool,
    /// When the thread took some in last, or when it was opened, in nanoseconds.
    served: u64,
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

    /// It has been taken in, from `begin` on.
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
        let begin = monotonic_ns();
        lane.serve(PACKETS_PER_TURN, Server::Thread);
        let mut waiting = lane.waiting.lock();
        if waiting.is_served || !waiting.packets.is_empty() {
            let device = waiting.device.clone();
            drop(waiting);
            if let Some(device) = device {
                let _ = device.bulk_queue().enqueue(lane);
            }
            return;
        }
        waiting.stream.taken_in(begin);
        let device = waiting.device.take();
        lane.is_open.store(false, Ordering::Release);
        drop(waiting);
        // It may be the last reference.
        drop(device);
    }
}

/// Who takes in packets of a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    /// The lane's own, on its CPU.
    Thread,
    /// Who brings others, in its place.
    Bringer,
}

impl Waiting {
    /// Takes some packets out, unless somebody else is taking some in, for the caller to take in and then to say so.
    fn next(&mut self) -> Option<(Arc<Device>, RxList)> {
        let device = self.device.clone()?;
        if self.is_served || self.packets.is_empty() {
            return None;
        }
        self.is_served = true;
        Some((device, self.packets.take(TOGETHER)))
    }

    /// Puts packets behind the others, or drops them if there are too many.
    fn push(&mut self, device: &Device, packets: RxList) {
        let count = u64::from(packets.len());
        let has_room =
            self.packets.memory() <= LANE_MAX && device.registry().steered.add(packets.memory());
        if has_room {
            device.counters().add(Counter::Steered, count);
            self.packets.append(packets);
        } else {
            device.counters().add(Counter::SteeringDropped, count);
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

    /// Puts packets behind those that wait in the lane, which is open, and helps if its thread is not let to do anything.
    /// Context: softirq, no lock held but that of `waiting`.
    fn bring(
        &self,
        mut waiting: SpinLockBhGuard<'_, Waiting>,
        device: &Device,
        packets: RxList,
        now: u64,
    ) {
        waiting.push(device, packets);
        let is_starved = now.saturating_sub(waiting.served) > STARVED_NS;
        drop(waiting);
        if is_starved {
            self.serve(PACKETS_PER_HELP, Server::Bringer);
        }
    }

    /// Takes in what waits, until there is nothing, or `most` packets, or somebody else does. Context: process or
    /// softirq, no lock held.
    fn serve(&self, most: u32, server: Server) {
        let mut left = most;
        while left > 0 {
            // What the packets are answered with leaves, and arrives, when bottom halves are on again.
            let _bh = BhGuard::new();
            let next = self.waiting.lock().next();
            let Some((device, packets)) = next else {
                return;
            };
            left = left.saturating_sub(packets.len());
            let memory = packets.memory();
            (device.registry().receivers.steered)(&device, packets);
            device.registry().steered.remove(memory);
            let now = monotonic_ns();
            let mut waiting = self.waiting.lock();
            if server == Server::Thread {
                waiting.served = now;
            }
            waiting.is_served = false;
        }
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
        {
            let mut waiting = lane.waiting.lock();
            if waiting.device.is_some() {
                return lane.bring(waiting, device, packets, begin);
            }
            if waiting.stream.is_long(begin, bytes) {
                // CAST: A small number.
                if let Some(cpu) = Cpu::other(index as u32, &bh) {
                    waiting.push(device, packets);
                    waiting.served = begin;
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

    /// Has a packet that came to `device` by way of the socket go by its lane, if that is open: or it would overtake
    /// others. Returns it if it is to be taken in here and now. Context: softirq.
    pub(crate) fn follow(&self, device: &Device, packet: RxSkb) -> Option<RxSkb> {
        let index = usize::from(packet.source_port()) % LANES;
        let lane = self.lanes.get(index);
        let Some(lane) = lane.filter(|lane| lane.is_open.load(Ordering::Acquire)) else {
            return Some(packet);
        };
        let waiting = lane.waiting.lock();
        if waiting.device.is_none() {
            return Some(packet);
        }
        let mut packets = RxList::default();
        packets.push(packet);
        lane.bring(waiting, device, packets, monotonic_ns());
        None
    }
}
