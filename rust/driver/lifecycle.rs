// SPDX-License-Identifier: GPL-2.0

//! How a device ends: it is retired, unregistered, and as the last part of that stopped and forgotten; then drained.
//!
//! - *Retired*: the QPs of processes fail. Those of kernel clients go on: each client ends its own.
//! - *Unregistered*: `ib_core` has its clients leave, and destroys all objects, those of processes too. Packets flow
//!   meanwhile: a client disconnects, and many wait until the CM says that the peer knows.
//! - *Stopped*: the device lets go of the network. If the netdev goes, that does not wait for clients for long.
//! - *Forgotten*: it is taken off the list of devices.
//! - *Drained*: work waits until packets in flight, and what the tables give back, refer to nothing of it any more.

use crate::{
    device::{
        attributes,
        registry::Registry,
        Device,
        UNREGISTER, //
    },
    qp::{
        failure,
        table, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};
use net::NetDevice;
use rdma::device::{
    Attr,
    Handle, //
};
use sync::WorkQueue;

/// How long clients may take to leave before the netdev is set down, which holds RTNL as long; in ns. Of twelve removals
/// with a connection of rdma_cm (`selftests/run kverbs`), each took less; without the wait, the fifth one failed.
const LEAVE_NS: u64 = 1_000_000_000;

/// `device` will be unregistered: the QPs of processes fail, as nothing else tells a process that polls its CQs. So does
/// one that a process moves out of RESET from now on, and no advice about memory holds the device up.
/// Context: process, RTNL may be held.
pub(crate) fn retire(device: &Device) {
    device.retire();
    failure::fail_users(device);
}

/// `netdev`, that of `device`, will be set down and unregistered. Unregisters the device, and waits at most [`LEAVE_NS`] until
/// its clients have left.
///
/// Once the netdev is unregistered, `ib_core` removes its GIDs. Then `ib_send_cm_dreq()` can make no AH and fails, and a
/// client of the CM that waits for the end of its connection, as xprtrdma does, waits for ever.
///
/// Netdevs that go together go one after the other, under RTNL. Their devices are all unregistered with the first one, so
/// that the waits are one.
///
/// Context: process, under RTNL. A client that needs it to leave does so after the wait; the device does not.
pub(crate) fn leave(device: &Arc<Device>, netdev: &NetDevice) {
    let until = sync::monotonic_ns().saturating_add(LEAVE_NS);
    let goes = |device: &Device| {
        let netdev = device.netdev();
        device.leaves_until() == 0 && netdev.is_some_and(|netdev| netdev.is_dismantled())
    };
    while let Some(device) = device.registry.find(goes) {
        device.leaves_by(until);
        // The work fails the QPs of processes: they may be many, and RTNL is held.
        device.retire();
        device.unregister_later();
    }
    // One that is still being made may wait for RTNL. It goes once it is made. The general services QP belongs to `ib_mad`,
    // the first client to come and the last one to leave.
    let has_clients = || table::general_services(device, &rcu::read_lock()).is_some();
    while device.handle().is_some() && has_clients() {
        if sync::monotonic_ns() >= device.leaves_until() {
            if net::may_log() {
                pr_warn!(
                    "the device on {} is still in use while its netdev goes: kernel clients may take long to notice\n",
                    netdev.name()
                );
            }
            return;
        }
        fsleep(Delta::from_millis(1));
    }
}

/// Lets go of the network for `device` and, soon, for its QPs: the namespace may end then, while a QP stays for as long as a
/// verbs call of its process takes. Done once, by the first caller, who has the device unregistered. That retires it:
/// QPs may be many, and RTNL may be held. Context: process.
pub(crate) fn stop(device: &Arc<Device>) {
    if let Some(site) = device.detach() {
        device.retire();
        device.lose_paths_later();
        device.registry.vacate(device, site);
    }
}

/// `netdev`, that of `device`, is unregistered: all references to it have to go. Stops the device, and unregisters it
/// soon. That deletes its addresses, which refer to the netdev, but may take as long as a verbs call of a process. So they
/// are deleted now: by `ib_core` for an Ethernet netdev, and here for any other. Context: process, under RTNL.
pub(crate) fn lose(device: &Arc<Device>, netdev: &NetDevice) {
    if let Some(handle) = device.handle().filter(|_| !netdev.is_ethernet()) {
        handle.delete_gids(netdev);
    }
    stop(device);
    device.unregister_later();
}

/// The netdev of `device` leaves its namespace for another one. Context: process, RTNL may be held.
pub(crate) fn depart(device: &Arc<Device>) {
    let site = device.depart();
    device.lose_paths_later();
    device.registry.vacate(device, site);
}

/// Retires `device`, and unregisters it: before any client of `ib_core` leaves, as `ib_uverbs` destroys QPs and completes
/// nothing. Context: process, may sleep.
fn unregister(device: &Device, handle: &Handle) {
    retire(device);
    handle.unregister();
}

/// Unregisters every device, and takes it off the list. New ones must not appear. Context: process, may sleep.
pub(crate) fn unregister_all(registry: &Registry) {
    while let Some(device) = registry.find(|_| true) {
        match device.handle() {
            // Calls `Device::gone`, or waits for the one who is doing so.
            Some(handle) => unregister(&device, &handle),
            // It was stopped before its work took the handle, or has none yet.
            None => {
                stop(&device);
                registry.forget(&device);
            }
        }
    }
}

/// Prepares for the end of an `ib_device` that is not registered, or not any more. Context: as for
/// [`Registry::flush_releases`].
///
/// Cores may live a little longer than their C objects, and with them references to the GID table,
/// which is freed with the last handle of the device. So those must go first: with packets in flight, and when the
/// tables have given back what was removed from them.
pub(crate) fn drain(registry: &Registry, handle: &Handle) {
    registry.flush_releases();
    handle.flush_gids();
}

impl WorkItem<UNREGISTER> for Device {
    type Pointer = Arc<Device>;

    /// Unregisters the device, or waits for the one who is doing so, and lets go of the `ib_device`.
    fn run(device: Arc<Device>) {
        // Until it is unregistered, others find the handle, too: `lose` for one.
        if let Some(handle) = device.handle() {
            unregister(&device, &handle);
            drain(&device.registry, &handle);
            // Not one that came meanwhile, which is registered: the thread that sets it queues this work again.
            drop(device.take_handle());
        }
    }
}

impl rdma::device::Device for Device {
    fn process_queue(&self) -> Arc<WorkQueue> {
        self.registry.process.clone()
    }

    fn query(&self) -> Attr {
        attributes::of(self.guid)
    }

    /// After a change of the namespace (`rdma dev set netns`) the device goes on, unless its netdev goes.
    fn enabled(self: &Arc<Self>) {
        if self.is_leaving() || !self.reinstate() {
            return;
        }
        // Its netdev may have begun to go just now.
        if self.is_leaving() {
            retire(self);
            return;
        }
        self.has_moved();
        // QPs of processes have left groups meanwhile, which a retired device may not have told the network.
        self.settle_groups();
    }

    fn disabled(self: &Arc<Self>) {
        retire(self);
    }

    /// Lets go of the network. There is no QP that would have to, too, as in [`stop`].
    fn gone(self: &Arc<Self>) {
        if let Some(site) = self.detach() {
            self.registry.vacate_now(self, site);
        }
        // In this order: a thread that does not find the device on the list must find the work, which waits
        // for the end of the unregistering that we are in. So the module cannot go before.
        self.unregister_later();
        self.registry.forget(self);
    }
}
