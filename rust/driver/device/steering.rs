// SPDX-License-Identifier: GPL-2.0

//! Steers packets of a stream to another CPU than the one that they arrive on.
//!
//! Over a machine's own networks a packet arrives on the CPU of its sender, within the call that sends it. From a
//! network card it arrives on the CPU that the card's queue belongs to. To check and copy a packet takes longer than to
//! build it. So large messages that come without a pause go to another CPU, by a lane for each UDP source port, as with
//! receive packet steering ([`Documentation/networking/scaling.rst`](srctree/Documentation/networking/scaling.rst)).
//! Messages that come one at a time are taken in at once, on the CPU that they arrive on. Small bursts of several flows
//! go to another CPU while this one is busy with them ([`super::load`]).

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
    cpu::CpuId,
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
    cpu_clock_ns,
    monotonic_ns,
    new_spin_lock_bh,
    BhGuard,
    Cpu,
    SpinLockBh,
    SpinLockBhGuard, //
};

/// Lanes of a device.
pub(super) const LANES: usize = 1 << LANE_BITS;
const LANE_BITS: u32 = 5;

/// Bytes that have to come together to count as part of a stream.
const BURST_LEAST: u32 = 4096;

/// Bytes that have to come without a pause before a lane opens for a stream: to wake another CPU takes as long as to take
/// in a message of 64 KiB.
const STREAM_LEAST: u32 = 128 << 10;

/// A pause is longer than so many times the time that it took to take in what came before.
const PAUSE: u64 = 2;

/// Bytes of memory that may wait in lanes before QPs of this machine whose service has no window wait, too.
const CROWDED: u32 = 2 << 20;

/// If so many bytes of memory wait in a lane for small bursts, callers that add packets take some in themselves. To queue
/// packets is faster than to receive them, and what is lost is of no use.
const LATE: u32 = CROWDED / 2;

/// Bytes of memory that may wait in a lane, and in all of them together: the rest is lost, as in a network.
const LANE_MAX: u32 = 8 << 20;
/// A lane with more bytes of memory fills up: its CPU may stand still. The windows of RC QPs hardly need so much.
const LANE_FULL: u32 = LANE_MAX / 2;
const ALL_MAX: u32 = 64 << 20;

/// Packets that are taken in at once, and acknowledged together.
pub(crate) const TOGETHER: u32 = 32;

/// Packets after which a lane's worker returns and is queued again, so that a flush of its workqueue ends.
const PACKETS_PER_TURN: u32 = 512;

/// If a lane's worker has not run for so long, in nanoseconds, callers that add packets take some in themselves: a
/// real-time program may occupy the worker's CPU.
const STARVED_NS: u64 = 10_000_000;

/// Packets that such a caller takes in. They are more than a caller adds at once, so the lane drains.
const PACKETS_PER_HELP: u32 = 128;

/// The packets that wait in the lanes of all devices.
#[derive(Default)]
pub(crate) struct Steered {
    /// Bytes of memory.
    memory: AtomicU32,
    /// Lanes with more than [`LANE_FULL`].
    full: AtomicU32,
}

impl Steered {
    /// Whether QPs whose service has no window are to wait. Context: any.
    pub(crate) fn is_congested(&self) -> bool {
        self.memory.load(Ordering::Relaxed) > CROWDED
    }

    /// Whether a lane is so full that more would soon be lost. Context: any.
    pub(crate) fn has_full_lane(&self) -> bool {
        self.full.load(Ordering::Relaxed) > 0
    }

    /// Counts so much more, unless that would be too much. Returns whether it has.
    fn add(&self, memory: u32) -> bool {
        let before = self.memory.fetch_add(memory, Ordering::Relaxed);
        let has_room = before <= ALL_MAX;
        if !has_room {
            self.remove(memory);
        }
        has_room
    }

    fn remove(&self, memory: u32) {
        self.memory.fetch_sub(memory, Ordering::Relaxed);
    }

    /// A lane had packets with `before` bytes of memory, and has `after` now: counts it among the full ones, or no longer.
    fn changed(&self, before: u32, after: u32) {
        match (before > LANE_FULL, after > LANE_FULL) {
            (false, true) => _ = self.full.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.full.fetch_sub(1, Ordering::Relaxed),
            _ => (),
        }
    }
}

/// The lane of packets from a UDP source port. Ports are products of QP numbers as a rule: some residues are rare.
fn index_of(source_port: u16) -> usize {
    usize::from(source_port.wrapping_mul(0x9e37) >> (u16::BITS - LANE_BITS))
}

/// The lanes of a device.
pub(crate) struct Steering {
    /// A UDP source port always has the same one.
    lanes: KVec<Arc<Lane>>,
}

/// The way of packets to another CPU, in their order.
#[pin_data]
struct Lane {
    /// Whether [`Waiting::device`] is set, to be read without the lock. It is cleared only after all packets of the
    /// lane have been taken in.
    is_open: AtomicBool,
    #[pin]
    waiting: SpinLockBh<Waiting>,
    #[pin]
    work: Work<Lane>,
}

#[derive(Default)]
struct Waiting {
    /// Whose packets they are, while the lane is open. The work is queued or runs then, and later packets join the
    /// queue.
    device: Option<Arc<Device>>,
    packets: RxList,
    /// The worker, or a caller in its place, takes packets of the lane in. Nobody else may.
    is_served: bool,
    /// The number of the CPU whose small burst opened the lane, if one did: all of the lane counts for that CPU.
    origin: Option<u32>,
    /// When the worker took some in last, or when the lane opened, in nanoseconds.
    served: u64,
    stream: Stream,
}

/// Packets that have come without a pause.
#[derive(Default)]
struct Stream {
    bytes: u32,
    /// When the last of it had been taken in, and how long that took, both in nanoseconds.
    end: u64,
    effort: u64,
}

impl Stream {
    /// More comes. Returns whether the stream is long enough for a lane.
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
        lane.serve(PACKETS_PER_TURN, Server::Worker);
        let mut waiting = lane.waiting.lock();
        if waiting.is_served || !waiting.packets.is_empty() {
            let device = waiting.device.clone();
            drop(waiting);
            if let Some(device) = device {
                let _ = device.registry.bulk.enqueue(lane);
            }
            return;
        }
        if waiting.origin.is_none() {
            waiting.stream.taken_in(begin);
        }
        let device = waiting.device.take();
        lane.is_open.store(false, Ordering::Release);
        drop(waiting);
        // It may be the last reference.
        drop(device);
    }
}

/// The two kinds of callers that take packets of a lane in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    /// The lane's worker, on its CPU.
    Worker,
    /// A caller that adds packets, in its place.
    Caller,
}

impl Waiting {
    /// Takes some packets out and sets `is_served`, unless that is set. The caller takes them in and clears it.
    fn next(&mut self) -> Option<(Arc<Device>, RxList)> {
        let device = self.device.clone()?;
        if self.is_served || self.packets.is_empty() {
            return None;
        }
        self.is_served = true;
        let before = self.packets.memory();
        let packets = self.packets.take(TOGETHER);
        let steered = &device.registry.steered;
        steered.changed(before, self.packets.memory());
        Some((device, packets))
    }

    /// Queues packets, or drops them if too many wait.
    fn push(&mut self, device: &Device, packets: RxList) {
        let count = u64::from(packets.len());
        let steered = &device.registry.steered;
        let before = self.packets.memory();
        let has_room = before <= LANE_MAX && steered.add(packets.memory());
        if has_room {
            device.counters.add(Counter::Steered, count);
            self.packets.append(packets);
            steered.changed(before, self.packets.memory());
        } else {
            device.counters.add(Counter::SteeringDropped, count);
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

    /// Queues packets in the lane, which is open. Takes some in if the worker has not run for long, or is too slow.
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
        let is_late = waiting.origin.is_some() && waiting.packets.memory() > LATE;
        drop(waiting);
        if is_starved || is_late {
            self.serve(PACKETS_PER_HELP, Server::Caller);
        }
    }

    /// Takes waiting packets in: `most` at the most, and none while another server does. Context: process or softirq,
    /// no lock held.
    fn serve(&self, most: u32, server: Server) {
        let mut left = most;
        while left > 0 {
            // Replies leave, and may arrive, when bottom halves are enabled again.
            let bh = BhGuard::new();
            let next = self.waiting.lock().next();
            let Some((device, packets)) = next else {
                return;
            };
            left = left.saturating_sub(packets.len());
            let memory = packets.memory();
            let begin = cpu_clock_ns();
            let registry = &device.registry;
            let mut received = || {
                registry.steered.remove(memory);
                let time = cpu_clock_ns().wrapping_sub(begin);
                let now = monotonic_ns();
                let mut waiting = self.waiting.lock();
                if server == Server::Worker {
                    waiting.served = now;
                }
                waiting.is_served = false;
                registry.loads.received_for(time, waiting.origin);
            };
            (registry.receivers.steered)(&device, packets, bh, &mut received);
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

    /// Takes in packets that came to `device`: by `here`, now, or by a lane. Context: softirq.
    pub(crate) fn take_in(&self, device: &Arc<Device>, burst: RxBurst, here: impl FnOnce(RxList)) {
        let RxBurst {
            packets,
            bytes,
            source_port,
            ..
        } = burst;
        let index = index_of(source_port);
        let Some(lane) = self.lanes.get(index) else {
            return here(packets);
        };
        let bh = BhGuard::new();
        let (loads, steered) = (&device.registry.loads, &device.registry.steered);
        let clock = cpu_clock_ns();
        let is_small = bytes < BURST_LEAST;
        let turn = if is_small {
            loads
                .turn(clock, index, &bh)
                .filter(|_| !steered.is_congested())
        } else {
            None
        };
        if is_small && turn.is_none() && !lane.is_open.load(Ordering::Acquire) {
            here(packets);
            return loads.received(cpu_clock_ns().wrapping_sub(clock), true);
        }
        let begin = monotonic_ns();
        {
            let mut waiting = lane.waiting.lock();
            if waiting.device.is_some() {
                return lane.bring(waiting, device, packets, begin);
            }
            let is_stream = !is_small && waiting.stream.is_long(begin, bytes);
            // CAST: A small number.
            let turn = turn.or_else(|| is_stream.then_some(index as u32));
            if let Some(cpu) = turn.and_then(|turn| Cpu::other(turn, &bh)) {
                waiting.push(device, packets);
                waiting.served = begin;
                waiting.origin = is_small.then(|| CpuId::current().as_u32());
                waiting.device = Some(device.clone());
                lane.is_open.store(true, Ordering::Relaxed);
                drop(waiting);
                let _ = device.registry.bulk.enqueue_on::<_, 0>(&cpu, lane.clone());
                return;
            }
        }
        here(packets);
        if !is_small {
            lane.waiting.lock().stream.taken_in(begin);
        }
        loads.received(cpu_clock_ns().wrapping_sub(clock), is_small);
    }

    /// Queues a packet that came to `device` by the socket in its lane, if that is open: otherwise the packet would
    /// overtake others. Returns the packet if the caller is to take it in. Context: softirq.
    pub(crate) fn follow(&self, device: &Device, packet: RxSkb) -> Option<RxSkb> {
        let lane = self.lanes.get(index_of(packet.source_port()));
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
