// SPDX-License-Identifier: GPL-2.0

//! The addresses of all devices: by them a packet finds its device.

use crate::{
    device::Device,
    hash,
    qp::table,
    registry::why_not_attached, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};
use net::{
    NetId,
    Sender, //
};
use rdma::gid::{
    Entry,
    Gid,
    TableAddress, //
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
    /// The sender of that namespace, if the netdev is one above the device's own.
    sender: Option<Sender>,
}

impl Known {
    /// Whether the device's own netdev has it. One above that may have a device, too, whose address it is then.
    fn is_own(&self) -> bool {
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
}

/// Where `gid` in the namespace `netns` may be. The same address counts once for each netdev that has it.
fn keys(netns: NetId, gid: &Gid) -> impl Iterator<Item = u32> {
    hash::keys(&[&netns.to_bytes(), gid])
}

impl Addresses {
    /// No addresses.
    pub(crate) fn new(queue: Arc<WorkQueue>) -> impl PinInit<Self> {
        pin_init!(Self {
            table <- RcuTable::new(queue),
            changes: Atomic::new(0),
        })
    }

    /// A number that is another one after each change: what was found before may not hold any more. Context: any.
    pub(crate) fn changes(&self) -> u32 {
        // What is looked up after this is as new as the number, at least.
        self.changes.load(Acquire)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Release);
    }

    /// The device that has the address `gid` in the namespace `netns`. Context: any.
    pub(crate) fn find(&self, netns: NetId, gid: &Gid) -> Option<Arc<Device>> {
        let mut above = None;
        for known in self.all(netns, gid) {
            if known.is_own() {
                return Some(known.device.clone());
            }
            above.get_or_insert(known);
        }
        above.map(|known| known.device.clone())
    }

    /// Whether `device` has the address `gid` in the namespace `netns`. Context: any.
    pub(crate) fn has(&self, device: &Device, netns: NetId, gid: &Gid) -> bool {
        self.all(netns, gid)
            .any(|known| core::ptr::eq(&*known.device, device))
    }

    /// The sender for packets of `device` from its address `gid` in the namespace `netns`, if a netdev above the device's own
    /// has the address. Context: any.
    pub(crate) fn sender(&self, device: &Device, netns: NetId, gid: &Gid) -> Option<Sender> {
        self.all(netns, gid)
            .find(|known| core::ptr::eq(&*known.device, device))?
            .sender
            .clone()
    }

    fn all<'a>(&'a self, netns: NetId, gid: &'a Gid) -> impl Iterator<Item = Arc<Known>> + 'a {
        keys(netns, gid)
            .filter_map(|key| self.table.get(key))
            .filter(move |known| {
                known.gid == *gid && known.netns == netns && !known.device.is_dead()
            })
    }
}

fn insert(device: &Device, known: Known) -> Result<Arc<Known>> {
    let addresses = device.known_addresses();
    let known = Arc::new(known, GFP_KERNEL)?;
    let inserted = hash::insert(&addresses.table, keys(known.netns, &known.gid), &known);
    addresses.changed();
    inserted.map(|()| known)
}

impl TableAddress for Known {
    type Device = Device;

    /// One of a netdev above the device's own, as a VLAN, a macvlan or an ipvlan, which may be in another namespace, has its
    /// packets in the namespace of that netdev. If nobody there can use the device (the exclusive mode), it is nobody's.
    ///
    /// Errors: `ENOSPC` if there are too many addresses like it; `EADDRINUSE` if somebody else has the UDP port in that other
    /// namespace, `ENODEV` if that is about to end.
    fn add(device: &Arc<Device>, entry: &Entry<'_>) -> Result<Arc<Self>> {
        let registry = device.registry();
        let known = |netns, sender| Self {
            gid: entry.gid(),
            device: device.clone(),
            netns,
            sender,
        };
        let Some(above) = entry.netdev().filter(|netdev| !device.is_on(netdev)) else {
            let netns = device.net_id().ok_or(ENODEV)?;
            return insert(device, known(netns, None));
        };
        if device.is_dead() || !entry.is_accessible() {
            return Ok(Arc::new(known(above.net_id(), None), GFP_KERNEL)?);
        }
        let sender = registry.enter(above).inspect_err(|error| {
            if net::may_log() {
                pr_err!(
                    "an address of {} is of no use: {} (error {})\n",
                    above.name(),
                    why_not_attached(*error),
                    error.to_errno()
                );
            }
        })?;
        let netns = sender.net().id();
        insert(device, known(netns, Some(sender))).inspect_err(|_| registry.leave(netns))
    }

    fn remove(self: Arc<Self>, device: &Arc<Device>) {
        let addresses = device.known_addresses();
        hash::remove(&addresses.table, keys(self.netns, &self.gid), &self);
        addresses.changed();
        if self.sender.is_some() {
            table::lose_paths(device);
            device.registry().leave(self.netns);
        }
    }
}
