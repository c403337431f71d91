// SPDX-License-Identifier: GPL-2.0

//! Packets between QPs of one device: as in a host channel adapter, they never see the network.
//!
//! A packet may be answered by another, which goes to yet another QP, and so on: so none is handed over while another
//! one is, further up on the same stack. It waits for its turn, in a queue of the CPU.

use crate::{
    demux,
    device::Device, //
};
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    prelude::*,
    sync::Arc, //
};
use net::RxList;
use sync::{
    new_spin_lock_bh,
    BhGuard,
    SpinLockBh, //
};

/// Packets after which a CPU leaves the rest to BH work, but for those that waited together with the last of them:
/// some milliseconds without bottom halves, at the most.
const PACKETS_PER_CALL: u32 = 512;

/// Packets that may wait: the rest is lost, as in a network. So many may wait on a CPU's way into the stack
/// (`net.core.netdev_max_backlog`).
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

/// What a device has for packets that are its own.
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
            queues.push(queue, GFP_KERNEL)?;
        }
        Ok(Self { queues })
    }

    /// The queue of this CPU.
    fn own(&self, _bh: &BhGuard) -> Option<&SpinLockBh<Queue>> {
        let index = usize::try_from(CpuId::current().as_u32()).ok()?;
        self.queues.get(index).map(|queue| &**queue)
    }
}

/// Hands packets of `device` over to its QPs: at once, or, within a packet's handing over, when their turn comes.
/// Returns how many were lost. Context: process or softirq, no lock held.
///
/// What is handed over at once may have pages of memory regions in it: its sender, who calls this, is not done with
/// them before. What has to wait is copied.
pub(crate) fn deliver(device: &Arc<Device>, mut packets: RxList) -> u32 {
    let bh = BhGuard::new();
    let Some(queue) = device.loopback().own(&bh) else {
        return packets.len();
    };
    let sent = packets.len();
    // If it is not, it will not be before this CPU does it; BH work may end it elsewhere.
    let is_served = queue.lock().is_served;
    if is_served {
        packets = private(packets);
    }
    let lost = sent.saturating_sub(packets.len());
    {
        let mut queue = queue.lock();
        if queue.packets.len() > MAX_WAITING {
            return sent;
        }
        queue.packets.append(packets);
        if queue.is_served {
            return lost;
        }
        queue.is_served = true;
    }
    if !serve(device, queue) {
        device.loop_back_later();
    }
    lost
}

/// Makes the bytes of all packets their own. Those for which there is no memory are missing.
fn private(mut packets: RxList) -> RxList {
    let mut all = RxList::default();
    while let Some(skb) = packets.pop() {
        if let Some(skb) = skb.into_private() {
            all.push(skb);
        }
    }
    all
}

/// Goes on with what was left. Context: BH work.
pub(crate) fn resume(device: &Arc<Device>) {
    let mut is_done = true;
    for queue in &device.loopback().queues {
        if core::mem::take(&mut queue.lock().is_left) {
            is_done &= serve(device, queue);
        }
    }
    if !is_done {
        device.loop_back_later();
    }
}

/// Hands over what waits, and what comes to wait meanwhile. Returns whether that was all.
fn serve(device: &Arc<Device>, queue: &SpinLockBh<Queue>) -> bool {
    let mut left = PACKETS_PER_CALL;
    while left > 0 {
        let packets = {
            let mut queue = queue.lock();
            let packets = core::mem::take(&mut queue.packets);
            queue.is_served = !packets.is_empty();
            packets
        };
        if packets.is_empty() {
            return true;
        }
        left = left.saturating_sub(packets.len());
        demux::receive_own(device, packets);
    }
    queue.lock().is_left = true;
    false
}
