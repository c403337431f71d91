// SPDX-License-Identifier: GPL-2.0

//! Entries of the GID table: the addresses of a device as they come and go.

use crate::{
    device::{
        addresses::Known,
        registry::why_not_attached,
        Device,
        LOSE_PATHS, //
    },
    qp::table, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use rdma::{
    error,
    gid::{
        Entry,
        TableAddress, //
    }, //
};

impl TableAddress for Known {
    type Device = Device;

    /// A netdev above the device's own (VLAN, macvlan, ipvlan) may be in another namespace. Packets for its addresses come
    /// there. Such an address is of no use if nobody there can use the device (the exclusive mode), or if it cannot get
    /// packets: somebody else has the UDP port there, netfilter takes no more hooks, or there are too many addresses
    /// like it. It stays so until it is added again.
    ///
    /// Errors: `ENOSPC` if there are too many like one of the device's own netdev. Of a netdev above: `EOPNOTSUPP` if that is
    /// not Ethernet, `ENODEV` if its namespace is about to end.
    fn add(device: &Arc<Device>, entry: &Entry<'_>) -> Result<Arc<Self>> {
        let registry = &device.registry;
        let addresses = &registry.addresses;
        let known = |netns, sender| Self::new(entry, device, netns, sender);
        let Some(above) = entry.netdev().filter(|netdev| !device.is_on(netdev)) else {
            let netns = device.site().ok_or(ENODEV)?.net_id;
            return addresses.insert(known(netns, None));
        };
        // `ib_core` finds its addresses, when a device comes or a netdev gets another upper one, but does not hear that it
        // goes: the entry would keep it, and its namespace.
        if !above.is_ethernet() {
            return Err(error::not_supported());
        }
        let inert = || Ok(Arc::new(known(above.net_id(), None), GFP_KERNEL)?);
        if device.is_dead() || !entry.is_accessible() {
            return inert();
        }
        let entered = registry.enter(above).and_then(|sender| {
            let netns = sender.net().id();
            addresses
                .insert(known(netns, Some(sender)))
                .inspect_err(|_| registry.leave(netns))
        });
        entered.or_else(|error| {
            if net::may_log() {
                pr_err!(
                    "an address of {} is of no use until it is added again: {} (error {})\n",
                    above.name(),
                    why_not_attached(error),
                    error.to_errno()
                );
            }
            // `ib_core` reports an error each time, without a limit, and a pod can repeat this as it likes.
            if error == ENODEV {
                return Err(error);
            }
            inert()
        })
    }

    fn remove(self: Arc<Self>, device: &Arc<Device>) {
        device.registry.addresses.remove(&self);
        if !self.is_own() {
            device.lose_paths_later();
            device.registry.leave(self.netns());
        }
    }
}

impl WorkItem<LOSE_PATHS> for Device {
    type Pointer = Arc<Device>;

    fn run(device: Arc<Device>) {
        table::lose_paths(&device);
    }
}
