// SPDX-License-Identifier: GPL-2.0

//! Packets between QPs of one device: as in a host channel adapter, they never see the network.
//!
//! A packet may be answered by another, which goes to yet another QP, and so on: so none is handed over while another
//! one is, further up on the same stack. It waits for its turn, in a queue of the CPU.

use super::{
    steering::TOGETHER,
    Device,
    LOOPBACK, //
};
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use net::RxList;
use sync::{
    new_spin_lock_bh,
    BhGuard,
    SpinLockBh, //
};

/// Packets after which a CPU leaves the rest to BH work, but for those that it took out together with the last of them:
/// some milliseconds without bottom halves, at the most. A packet to a group counts once for each QP that gets it: the
/// last 32 may be for 64 QPs each.
const PACKETS_PER_CALL: u32 = 512;

/// Packets that may wait: the rest is lost, as in a network, and with half of them QPs wait. So many may wait on a CPU's
/// way into the stack (`net.core.netdev_max_backlog`).
const MAX_WAITING: u32 = 1000;

/// The packets that wait for one CPU.
#[derive(Default)]
struct Queue {
    packets: RxList,
    /// Somebody hands them over, until there are none left: further up on this CPU's stack, or BH work will.
    is_served: bool,
    /// BH work will.
    is_left: bool,
}

/// A device's queues for packets to its own addresses.
pub(crate) struct Loopback {
    /// One for each CPU.
    queues: KVec<Pin<KBox<SpinLockBh<Queue>>>>,
}

impl Loopback {
    /// Context: process, may sleep.
    pub(crate) fn new() -> Result<Self> {
        let cpus = usize::try_from(nr_cpu_ids())?;
        let mut queues = KVec::with_capacity(cpus, GFP_KERNEL)?;
        for _ in 0..cpus {
            let queue = KBox::pin_init(new_spin_lock_bh!(Queue::default()), GFP_KERNEL)?;
            queues.push_within_capacity(queue).map_err(|_| ENOMEM)?;
        }
        Ok(Self { queues })
    }

    /// Whether so many packets wait on this CPU that more would soon be lost. Context: process or
    /// softirq.
    pub(crate) fn is_congested(&self) -> bool {
        let bh = BhGuard::new();
        let own = self.own(&bh);
        own.is_some_and(|queue| queue.lock().packets.len() > MAX_WAITING / 2)
    }

    /// Hands packets of `device`, whose this is, over to its QPs: at once, or, within a packet's handing over, when their
    /// turn comes. Returns how many were lost: all or none. Context: process or softirq, no lock held.
    pub(crate) fn deliver(&self, device: &Arc<Device>, packets: RxList) -> u32 {
        let bh = BhGuard::new();
        let sent = packets.len();
        let Some(queue) = self.own(&bh) else {
            return sent;
        };
        {
            let mut queue = queue.lock();
            if queue.packets.len() > MAX_WAITING {
                return sent;
            }
            queue.packets.append(packets);
            if core::mem::replace(&mut queue.is_served, true) {
                return 0;
            }
        }
        if !serve(device, queue, PACKETS_PER_CALL) {
            go_on_later(device);
        }
        0
    }

    /// Goes on with what was left, as [`Self::deliver`]. Context: BH work.
    fn resume(&self, device: &Arc<Device>) {
        let bh = BhGuard::new();
        let Some(own) = self.own(&bh) else {
            return;
        };
        // Answers to the packets of other queues wait here until their turn comes.
        let serves_own = {
            let mut own = own.lock();
            let was_left = core::mem::take(&mut own.is_left);
            was_left || !core::mem::replace(&mut own.is_served, true)
        };
        // A queue that never becomes empty leaves the others their turn.
        let share = PACKETS_PER_CALL.checked_div(nr_cpu_ids());
        let share = share.unwrap_or_default().max(TOGETHER);
        let mut is_done = true;
        for queue in &self.queues {
            if core::ptr::eq(&**queue, own) || !core::mem::take(&mut queue.lock().is_left) {
                continue;
            }
            is_done &= serve(device, queue, share);
        }
        if serves_own {
            is_done &= serve(device, own, share);
        }
        if !is_done {
            go_on_later(device);
        }
    }

    /// The queue of this CPU.
    fn own(&self, _bh: &BhGuard) -> Option<&SpinLockBh<Queue>> {
        let index = usize::try_from(CpuId::current().as_u32()).ok()?;
        self.queues.get(index).map(|queue| &**queue)
    }
}

impl WorkItem<LOOPBACK> for Device {
    type Pointer = Arc<Device>;

    fn run(device: Arc<Device>) {
        device.loopback.resume(&device);
    }
}

fn go_on_later(device: &Arc<Device>) {
    let _ = device.registry.bh.enqueue::<_, LOOPBACK>(device.clone());
}

/// Hands over what waits, and what comes to wait meanwhile, until `budget` packets are. Returns whether that was all.
fn serve(device: &Arc<Device>, queue: &SpinLockBh<Queue>, mut budget: u32) -> bool {
    loop {
        let packets = {
            let mut queue = queue.lock();
            if queue.packets.is_empty() {
                queue.is_served = false;
                return true;
            }
            if budget == 0 {
                queue.is_left = true;
                return false;
            }
            queue.packets.take(TOGETHER)
        };
        let deliveries = (device.registry.receivers.own)(device, packets);
        budget = budget.saturating_sub(deliveries);
    }
}
