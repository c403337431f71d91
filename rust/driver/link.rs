// SPDX-License-Identifier: GPL-2.0

//! The link type: devices come by `rdma link add`, and go with their netdev or by `rdma link
//! delete`.

use crate::{
    device::{
        registry::{
            self,
            why_not_attached,
            Registry, //
        },
        Device,
        Site, //
    },
    lifecycle,
    verbs::Ferroce, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        UniqueArc, //
    },
};
use net::{
    netdev::{
        ARPHRD_ETHER,
        ARPHRD_LOOPBACK,
        ARPHRD_NONE, //
    },
    NetDevice,
    NetdevEvent,
    NetdevHandler, //
};
use rdma::{
    device::{
        register,
        Failure,
        Registration, //
    },
    error,
    link::Operations, //
};

/// Why there is no device: an error, and a reason in words.
struct Refusal(Error, &'static str);

/// Checks that a netdev of that kind can carry RoCE.
fn check_kind(netdev: &NetDevice) -> Result<(), Refusal> {
    if netdev.is_vlan() {
        return Err(Refusal(
            error::not_supported(),
            "it is a VLAN; its addresses belong to the device on the netdev below",
        ));
    }
    if !matches!(
        netdev.arp_type(),
        ARPHRD_ETHER | ARPHRD_NONE | ARPHRD_LOOPBACK
    ) {
        return Err(Refusal(
            error::protocol_not_supported(),
            "it is neither Ethernet, nor tun, nor loopback",
        ));
    }
    Ok(())
}

fn add(name: &CStr, netdev: &net::NetDev) -> Result<(), Refusal> {
    check_kind(netdev)?;
    let failed = |error| Refusal(error, "the device could not be made");
    let registry = registry::get().map_err(failed)?;
    let device = registry.attach(netdev).map_err(|error| {
        let is_retired = || {
            let old = registry.device_on(netdev);
            old.is_some_and(|old| old.is_retired())
        };
        let reason = if error != EEXIST {
            why_not_attached(error)
        } else if is_retired() {
            "its device is still being deleted: a client or a process holds it"
        } else {
            "it has a device already"
        };
        Refusal(error, reason)
    })?;
    // Room for the handle is made before there is one: a device that nobody could unregister must
    // not be.
    let room = match UniqueArc::new_uninit(GFP_KERNEL) {
        Ok(room) => room,
        Err(error) => {
            registry.withdraw(&device);
            return Err(failed(error.into()));
        }
    };
    let was_operational = netdev.is_operational();
    let registered = register::<Ferroce>(Registration {
        name,
        module: registry.module,
        netdev,
        node_guid: device.guid,
        description: c"ferroce",
        core: device.clone(),
    });
    let handle = match registered {
        Ok(handle) => handle,
        Err(Failure { error, handle }) => {
            // `Device::gone` was called.
            if let Some(handle) = handle {
                lifecycle::drain(&registry, &handle);
            }
            let reason = if error == ENFILE {
                "an RDMA device of that name exists"
            } else {
                "the RDMA core refused the device"
            };
            return Err(Refusal(error, reason));
        }
    };
    device.set_handle(room.write(handle).into());
    // Nobody was told of a change up to here: of the link, or of addresses that `ib_core` does not follow.
    if netdev.is_operational() != was_operational || !netdev.is_ethernet() {
        device.port_changed();
    }
    if device.is_leaving() {
        // The netdev went, or somebody has unregistered the device, before the way to do so was
        // known. Both are harmless twice.
        device.unregister_later();
    }
    Ok(())
}

impl Operations for Ferroce {
    const TYPE: &'static CStr = c"ferroce";

    fn add(name: &CStr, netdev: net::NetDev) -> Result {
        match add(name, &netdev) {
            Ok(()) => {
                pr_info!("{}: made on {}\n", name, netdev.name());
                Ok(())
            }
            Err(Refusal(error, reason)) => {
                pr_err!(
                    "no device on {}: {} (error {})\n",
                    netdev.name(),
                    reason,
                    error.to_errno()
                );
                Err(error)
            }
        }
    }

    fn delete(device: &Arc<Device>) {
        lifecycle::retire(device);
    }
}

/// Follows the netdevs.
impl NetdevHandler for Registry {
    fn event(&self, netdev: &NetDevice, event: NetdevEvent) {
        let Some(device) = self.device_on(netdev) else {
            return;
        };
        match event {
            NetdevEvent::Unregister if netdev.is_registered() => lifecycle::depart(&device),
            NetdevEvent::Register => {
                // Its default GID still is one of the former namespace.
                if !netdev.is_ethernet() {
                    device.addresses_lost();
                }
                if let Err(error) = device.registry.arrive(&device, netdev) {
                    if net::may_log() {
                        pr_err!(
                            "the device on {} does not follow it to another namespace, and goes: {} (error {})\n",
                            netdev.name(),
                            why_not_attached(error),
                            error.to_errno()
                        );
                    }
                    lifecycle::stop(&device);
                    device.unregister_later();
                }
            }
            // The namespace may end as soon as its netdevs are gone.
            NetdevEvent::Unregister => lifecycle::lose(&device, netdev),
            NetdevEvent::GoingDown if netdev.is_dismantled() => lifecycle::leave(&device, netdev),
            NetdevEvent::GoingDown => {}
            NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change => {
                device.link_changed(netdev)
            }
            NetdevEvent::ChangeMtu => device.mtu_changed(netdev),
        }
    }

    fn address_event(&self, netdev: &NetDevice, removed: bool) {
        // Those of Ethernet `ib_core` follows itself.
        if !netdev.is_ethernet() {
            let site = Site::of(netdev);
            // Not by the list, which is behind a mutex.
            if let Some(device) = registry::device_on_site(&site, &rcu::read_lock()) {
                if removed {
                    device.addresses_lost();
                } else {
                    device.port_changed();
                }
            }
        }
    }
}
