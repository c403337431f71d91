// SPDX-License-Identifier: GPL-2.0

//! The addresses of all devices: by them a packet finds its device.

use crate::{
    device::Device,
    hash, //
};
use core::ops::RangeInclusive;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    }, //
};
use net::{
    NetId,
    RxSkb,
    Sender, //
};
use rdma::gid::{
    Entry,
    Gid, //
};
use sync::{
    RcuTable,
    WorkQueue, //
};

/// An address of a device.
pub(crate) struct Known {
    gid: Gid,
    device: Arc<Device>,
    /// The namespace of the netdev that has the address.
    netns: NetId,
    /// The number there of that netdev.
    ifindex: u32,
    /// The VLAN that it is in.
    vlan: Option<u16>,
    /// The sender of that namespace, if the netdev is one above the device's own.
    sender: Option<Sender>,
}

impl Known {
    /// An address of `device`, which a netdev in the namespace `netns` has: its own, or if there is a `sender`, one above.
    pub(crate) fn new(
        entry: &Entry<'_>,
        device: &Arc<Device>,
        netns: NetId,
        sender: Option<Sender>,
    ) -> Self {
        Self {
            gid: entry.gid(),
            device: device.clone(),
            netns,
            ifindex: entry.netdev().map_or(0, |netdev| netdev.ifindex()),
            vlan: entry.vlan(),
            sender,
        }
    }

    /// The namespace of the netdev that has it.
    pub(crate) fn netns(&self) -> NetId {
        self.netns
    }

    /// Whether the device's own netdev has it. One above that may have a device, too, whose address it is then.
    pub(crate) fn is_own(&self) -> bool {
        self.sender.is_none()
    }
}

/// The addresses of all devices of the module, hashed.
#[pin_data]
pub(crate) struct Addresses {
    #[pin]
    table: RcuTable<Known>,
    /// How often they have changed. The number wraps around.
    changes: Atomic<u32>,
    /// How many are of netdevs above those of their devices. While there are none, each netdev's are of one device.
    above: Atomic<u32>,
}

/// Where `gid` in the namespace `netns` may be. The same address counts once for each netdev that has it.
fn keys(netns: NetId, gid: &Gid) -> RangeInclusive<u32> {
    let [low, high] = hash::words_of(gid);
    hash::keys([netns.to_bits(), low, high])
}

impl Addresses {
    /// No addresses.
    pub(crate) fn new(queue: Arc<WorkQueue>) -> impl PinInit<Self> {
        pin_init!(Self {
            table <- RcuTable::new(queue),
            changes: Atomic::new(0),
            above: Atomic::new(0),
        })
    }

    /// A number that is another one after each change: what was found before may not hold any more. Context: any.
    pub(crate) fn changes(&self) -> u32 {
        // Acquire: a later look-up sees the addresses as new as the number, at least.
        self.changes.load(Acquire)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Release);
    }

    /// The device that has the address `gid` in the namespace `netns`. Context: any.
    pub(crate) fn find<'a>(
        &'a self,
        netns: NetId,
        gid: &Gid,
        rcu: &'a rcu::Guard,
    ) -> Option<&'a Arc<Device>> {
        let mut above = None;
        for known in self.all(netns, gid, rcu) {
            if known.is_own() {
                return Some(&known.device);
            }
            above.get_or_insert(&known.device);
        }
        above
    }

    /// The device whose QP 1 gets a packet: the device with the destination address on the netdev by which the packet came.
    /// If several devices have that, it is the first one, as in `rdma_cm`. If none has, it is the first device with the
    /// address on any netdev. Context: any.
    pub(crate) fn serves<'a>(
        &'a self,
        packet: &RxSkb,
        rcu: &'a rcu::Guard,
    ) -> Option<&'a Arc<Device>> {
        self.nearest(packet, None, rcu).map(|known| &known.device)
    }

    /// The VLAN of the address of `device` that a packet was sent to. If several netdevs have that address, it is that of
    /// the netdev that the packet came by. Context: any.
    pub(crate) fn vlan(&self, device: &Device, packet: &RxSkb) -> Option<u16> {
        self.nearest(packet, Some(device), &rcu::read_lock())?.vlan
    }

    /// Whether `device` has the address `gid` in the namespace `netns`. Context: any.
    pub(crate) fn has(&self, device: &Device, netns: NetId, gid: &Gid) -> bool {
        self.of_device(device, netns, gid, &rcu::read_lock())
            .is_some()
    }

    /// The sender for packets of `device` from its address `gid` in the namespace `netns`, if a netdev above the device's own
    /// has the address. Context: any.
    pub(crate) fn sender(&self, device: &Device, netns: NetId, gid: &Gid) -> Option<Sender> {
        self.of_device(device, netns, gid, &rcu::read_lock())?
            .sender
            .clone()
    }

    /// Lets packets find an address. Errors: `ENOSPC` if there are too many like it. Context: process, may sleep.
    pub(crate) fn insert(&self, known: Known) -> Result<Arc<Known>> {
        let known = Arc::new(known, GFP_KERNEL)?;
        let inserted = hash::insert(&self.table, keys(known.netns, &known.gid), &known);
        self.changed();
        inserted?;
        if !known.is_own() {
            self.above.fetch_add(1, Relaxed);
        }
        Ok(known)
    }

    /// Packets find an address no more. Context: process.
    pub(crate) fn remove(&self, known: &Arc<Known>) {
        hash::remove(&self.table, keys(known.netns, &known.gid), known);
        self.changed();
        if !known.is_own() {
            self.above.fetch_sub(1, Relaxed);
        }
    }

    /// The address, of `device` or of any, that a packet was sent to: the one on the netdev that the packet came by. If
    /// several devices have that, or that netdev does not have the address, it is that of the first device. Link-local
    /// addresses, and those of VRFs, can be the same on several netdevs.
    #[inline(never)]
    fn nearest<'a>(
        &'a self,
        packet: &RxSkb,
        device: Option<&Device>,
        rcu: &'a rcu::Guard,
    ) -> Option<&'a Arc<Known>> {
        let ifindex = packet.ifindex();
        let rank = |known: &Known| (known.ifindex != ifindex, known.device.number);
        // Of a netdev, all entries are alike, unless they are of several devices.
        let is_unique = device.is_some() || self.above.load(Relaxed) == 0;
        let mut nearest: Option<&Arc<Known>> = None;
        for known in self.all(packet.netns(), &packet.destination().to_gid(), rcu) {
            if device.is_some_and(|device| !core::ptr::eq(&*known.device, device)) {
                continue;
            }
            if nearest.is_none_or(|other| rank(known) < rank(other)) {
                nearest = Some(known);
            }
            if is_unique && known.ifindex == ifindex {
                break;
            }
        }
        nearest
    }

    #[inline(never)]
    fn of_device<'a>(
        &'a self,
        device: &Device,
        netns: NetId,
        gid: &Gid,
        rcu: &'a rcu::Guard,
    ) -> Option<&'a Arc<Known>> {
        self.all(netns, gid, rcu)
            .find(|known| core::ptr::eq(&*known.device, device))
    }

    fn all<'a>(
        &'a self,
        netns: NetId,
        gid: &Gid,
        rcu: &'a rcu::Guard,
    ) -> impl Iterator<Item = &'a Arc<Known>> + 'a {
        let gid = *gid;
        self.table
            .read_range(keys(netns, &gid), rcu)
            .filter(move |known| {
                known.gid == gid && known.netns == netns && !known.device.is_dead()
            })
    }
}
