// SPDX-License-Identifier: GPL-2.0

//! A device: what its objects have in common.

pub(crate) mod addresses;
pub(crate) mod attributes;
pub(crate) mod counters;
mod load;
pub(crate) mod multicast;
pub(crate) mod network;
pub(crate) mod port;
pub(crate) mod registry;
pub(crate) mod sockets;
pub(crate) mod steering;

use self::{
    counters::{
        Counter,
        Counters, //
    },
    multicast::Groups,
    registry::Registry,
    steering::Steering, //
};
use crate::{
    live::{
        Kind,
        Live, //
    },
    users::Users, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    workqueue::Work,
};
use net::NetId;
use rdma::device::Handle;
use sync::{
    new_spin_lock_irq,
    smp_mb,
    SpinLockIrq, //
};

/// Packets of a device that wait for pages, at the most, and the bytes of memory that they use, with all that is the
/// kernel's own of it.
const MAX_WAITING_PACKETS: u32 = 8192;
const MAX_WAITING_MEMORY: u32 = 16 << 20;
/// The same for a packet that others wait behind: without it a QP gets on by the repeats of its peer alone.
const MAX_WAITING_MEMORY_OF_FIRST: u32 = 2 * MAX_WAITING_MEMORY;

/// Identifies a netdev by its namespace and its number there. Both may be gone already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) net_id: NetId,
    pub(crate) ifindex: u32,
}

impl Site {
    /// That of `netdev`, now.
    pub(crate) fn of(netdev: &net::NetDevice) -> Self {
        Self {
            net_id: netdev.net_id(),
            ifindex: netdev.ifindex(),
        }
    }
}

/// A device's netdev and its place, until the netdev goes.
struct Attachment {
    netdev: net::NetDev,
    /// [`None`] while the netdev is between two namespaces.
    place: Option<Place>,
}

/// The namespace that the netdev is in, and the sender for packets from there.
struct Place {
    site: Site,
    sender: net::Sender,
}

impl Place {
    fn new(netdev: &net::NetDevice, sender: net::Sender) -> Self {
        Self {
            site: Site {
                net_id: sender.net().id(),
                ifindex: netdev.ifindex(),
            },
            sender,
        }
    }
}

/// The number that the next device gets.
static NEXT_NUMBER: Atomic<u64> = Atomic::new(0);

/// A device. Outlives the `ib_device`: objects, and packets in lanes and in work, hold references.
///
/// Its locks are short; nothing else is locked under them.
#[pin_data]
pub(crate) struct Device {
    /// All devices of the module share it.
    pub(crate) registry: Arc<Registry>,
    /// No other device of the module ever has it.
    pub(crate) number: u64,
    /// In network byte order.
    pub(crate) guid: [u8; 8],
    pub(crate) counters: Counters,
    /// Set when it becomes known that the device will be unregistered, or goes to another namespace.
    retired: Atomic<bool>,
    /// Set once, when the device lets go of the network.
    dead: Atomic<bool>,
    /// Its netdev could send at the last event.
    was_active: Atomic<bool>,
    /// The MTU of its netdev in bytes, at the last event.
    netdev_mtu: Atomic<u32>,
    /// Its netdev has lost addresses that are still in the GID table, and that `ib_core` will not delete.
    addresses_gone: Atomic<bool>,
    /// It has come to another namespace, and which addresses of netdevs above its own it may use was decided before.
    has_moved: Atomic<bool>,
    /// Until when its clients may leave, as its netdev goes: by [`sync::monotonic_ns`]; 0 if it does not.
    leaves_until: Atomic<u64>,
    /// Packets of all QPs that wait for pages, and the bytes of memory that they use.
    waiting_packets: Atomic<u32>,
    waiting_memory: Atomic<u32>,
    #[pin]
    attachment: SpinLockIrq<Option<Attachment>>,
    /// Its multicast groups. Not locked under RTNL: its holders take RTNL.
    #[pin]
    pub(crate) groups: Mutex<Groups>,
    /// Its QPs, but for the general services QP.
    #[pin]
    users: Users,
    /// The way to unregister it; taken by the one who does.
    #[pin]
    handle: Mutex<Option<Arc<Handle>>>,
    #[pin]
    unregister: Work<Device, UNREGISTER>,
    #[pin]
    port_state: Work<Device, PORT_STATE>,
    #[pin]
    settle_groups: Work<Device, SETTLE_GROUPS>,
    #[pin]
    lose_paths: Work<Device, LOSE_PATHS>,
    /// Where packets wait for other CPUs.
    pub(crate) steering: Steering,
    _live: Live,
}

pub(crate) const UNREGISTER: u64 = 0;
const PORT_STATE: u64 = 1;
const SETTLE_GROUPS: u64 = 2;
pub(crate) const LOSE_PATHS: u64 = 3;

impl_has_work! {
    impl HasWork<Self, UNREGISTER> for Device { self.unregister }
    impl HasWork<Self, PORT_STATE> for Device { self.port_state }
    impl HasWork<Self, SETTLE_GROUPS> for Device { self.settle_groups }
    impl HasWork<Self, LOSE_PATHS> for Device { self.lose_paths }
}

impl Device {
    /// Makes the core of a device on `netdev`. Context: process, may sleep.
    pub(crate) fn new(
        registry: &Arc<Registry>,
        netdev: &net::NetDev,
        guid: [u8; 8],
        sender: net::Sender,
    ) -> Result<Arc<Self>> {
        let attachment = Attachment {
            netdev: netdev.clone(),
            place: Some(Place::new(netdev, sender)),
        };
        let counters = Counters::new()?;
        let steering = Steering::new()?;
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        let groups = Groups::new(number);
        Arc::pin_init(
            pin_init!(Self {
                registry: registry.clone(),
                number,
                guid,
                counters,
                retired: Atomic::new(false),
                dead: Atomic::new(false),
                was_active: Atomic::new(netdev.is_operational()),
                netdev_mtu: Atomic::new(netdev.mtu()),
                addresses_gone: Atomic::new(false),
                has_moved: Atomic::new(false),
                leaves_until: Atomic::new(0),
                waiting_packets: Atomic::new(0),
                waiting_memory: Atomic::new(0),
                attachment <- new_spin_lock_irq!(Some(attachment)),
                groups <- new_mutex!(groups),
                users <- Users::new(),
                handle <- new_mutex!(None),
                unregister <- new_work!("Device::unregister"),
                port_state <- new_work!("Device::port_state"),
                settle_groups <- new_work!("Device::settle_groups"),
                lose_paths <- new_work!("Device::lose_paths"),
                steering,
                _live: Live::new(Kind::Device),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes in packets that a QP of the device sends. Context: bottom halves off, no lock held.
    pub(crate) fn receive_own(self: &Arc<Self>, packets: net::RxList) {
        (self.registry.receivers.own)(self, packets);
    }

    /// One more packet, of so many bytes of memory, waits for pages, unless there are so many that it should not: of
    /// those that others wait behind there may be more. Returns whether it waits. Context: any.
    pub(crate) fn packet_may_wait(&self, memory: u32, is_first: bool) -> bool {
        let (packets, most) = if is_first {
            (u32::MAX, MAX_WAITING_MEMORY_OF_FIRST)
        } else {
            (MAX_WAITING_PACKETS, MAX_WAITING_MEMORY)
        };
        let others = self.waiting_packets.fetch_add(1, Relaxed);
        let theirs = self.waiting_memory.fetch_add(memory, Relaxed);
        let has_room = others < packets && theirs.saturating_add(memory) <= most;
        if !has_room {
            self.packet_waits_no_more(memory);
        }
        has_room
    }

    /// Undoes one [`Device::packet_may_wait`]. Context: any.
    pub(crate) fn packet_waits_no_more(&self, memory: u32) {
        self.waiting_packets.fetch_sub(1, Relaxed);
        self.waiting_memory.fetch_sub(memory, Relaxed);
    }

    /// Notes that the device will be unregistered. Of a thread that calls this and then reads the state of a QP, and one
    /// that changes that state and then calls [`Device::is_retired`], at least one sees what the other wrote. Context: any.
    pub(crate) fn retire(&self) {
        // Release: a thread that undoes this sees why it was done (`Device::is_leaving`).
        self.retired.store(true, Release);
        smp_mb();
    }

    /// Undoes [`Device::retire`]: the device is in another namespace. Returns whether there was anything to undo. Context: any.
    pub(crate) fn reinstate(&self) -> bool {
        self.retired.xchg(false, Full)
    }

    /// Whether the device will be unregistered. The barrier pairs with that of [`Device::retire`]. Context: any.
    pub(crate) fn is_retired(&self) -> bool {
        smp_mb();
        self.retired.load(Relaxed)
    }

    /// Until when its clients may leave; see [`Device::leaves_by`]. Context: any.
    pub(crate) fn leaves_until(&self) -> u64 {
        self.leaves_until.load(Relaxed)
    }

    /// Notes that its netdev goes, and its clients may leave until `time`, in ns by [`sync::monotonic_ns`]. Context: any.
    pub(crate) fn leaves_by(&self, time: u64) {
        self.leaves_until.store(time, Relaxed);
    }

    /// Whether the netdev is being removed, or the device is stopped. Context: any.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaves_until() != 0 || self.is_dead()
    }

    /// Whether the device has let go of the network. Context: any.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Acquire)
    }

    /// A packet was dropped that was for the QP with the number `qpn`, or 0 if that is not known. Context: any.
    pub(crate) fn count_drop(&self, reason: Counter, qpn: u32) {
        self.count_drops(reason, qpn, 1);
    }

    /// As [`Self::count_drop`], of so many packets. Context: any.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_drops(&self, reason: Counter, qpn: u32, packets: u32) {
        self.counters.add(reason, packets.into());
        trace::drop(qpn, reason.name());
    }

    /// Its QPs, but for the general services QP. Context: any.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// The way to unregister it, if it is registered. Context: process.
    pub(crate) fn handle(&self) -> Option<Arc<Handle>> {
        self.handle.lock().clone()
    }

    /// Notes the way to unregister it. Context: process.
    pub(crate) fn set_handle(&self, handle: Arc<Handle>) {
        *self.handle.lock() = Some(handle);
    }

    /// Unregisters it, unless it is already, and lets go of the `ib_device`, soon. Context: any.
    pub(crate) fn unregister_later(self: &Arc<Self>) {
        let _ = self.registry.process.enqueue::<_, UNREGISTER>(self.clone());
    }

    /// Has its QPs drop the paths that begin at an address that is gone, soon: they may be many, and callers hold RTNL, or
    /// the only worker of `ib_core` for GIDs. Until then the paths hold off the end of the namespace. Context: any.
    pub(crate) fn lose_paths_later(self: &Arc<Self>) {
        let _ = self.registry.process.enqueue::<_, LOSE_PATHS>(self.clone());
    }

    /// Takes the way to unregister it. Context: process.
    pub(crate) fn take_handle(&self) -> Option<Arc<Handle>> {
        self.handle.lock().take()
    }
}
