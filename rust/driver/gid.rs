// SPDX-License-Identifier: GPL-2.0

//! The addresses of all devices: by them a packet finds its device.

use crate::{
    device::Device,
    hash, //
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
use net::NetId;
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
    index: u16,
    device: Arc<Device>,
}

/// The addresses of all devices of the module, hashed.
#[pin_data]
pub(crate) struct Addresses {
    #[pin]
    table: RcuTable<Known>,
    /// How often they have changed. The number wraps around.
    changes: Atomic<u32>,
}

/// Where `gid` in the namespace `home` may be. The same address counts once for each netdev that has it.
fn keys(home: NetId, gid: &Gid) -> impl Iterator<Item = u32> {
    hash::keys(&[&home.to_bytes(), gid])
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

    /// The device in the namespace `home` that has the address `gid`. Context: any.
    pub(crate) fn find(&self, home: NetId, gid: &Gid) -> Option<Arc<Device>> {
        for key in keys(home, gid) {
            let Some(known) = self.table.get(key) else {
                continue;
            };
            let device = &known.device;
            if known.gid == *gid && device.net_id() == home && !device.is_dead() {
                return Some(device.clone());
            }
        }
        None
    }
}

/// An address enters the device's GID table. Context: process, may sleep.
///
/// One of a netdev that is in another namespace, as an ipvlan or macvlan above the device's own may be, is not known to
/// packets: in the device's namespace it is nobody's, or somebody else's.
///
/// Errors: `ENOSPC` if there are too many addresses like it.
pub(crate) fn add(device: &Arc<Device>, entry: &Entry<'_>) -> Result {
    if entry
        .netdev()
        .is_some_and(|netdev| netdev.net_id() != device.net_id())
    {
        return Ok(());
    }
    let gid = entry.gid();
    let known = Arc::new(
        Known {
            gid,
            index: entry.index(),
            device: device.clone(),
        },
        GFP_KERNEL,
    )?;
    let addresses = device.known_addresses();
    for key in keys(device.net_id(), &gid) {
        match addresses.table.insert(key, known.clone()) {
            Err(error) if error == EBUSY => {}
            other => {
                addresses.changed();
                return other;
            }
        }
    }
    Err(ENOSPC)
}

/// An address leaves the device's GID table. Context: process, may sleep.
pub(crate) fn remove(device: &Arc<Device>, entry: &Entry<'_>) {
    let addresses = device.known_addresses();
    for key in keys(device.net_id(), &entry.gid()) {
        let Some(known) = addresses.table.get(key) else {
            continue;
        };
        if known.index == entry.index() && Arc::ptr_eq(&known.device, device) {
            addresses.table.remove_if(key, &known);
        }
    }
    addresses.changed();
}
