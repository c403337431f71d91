// SPDX-License-Identifier: GPL-2.0

//! The handle of a registered device: the driver unregisters it, and tells `ib_core` of changes.

use super::embedded;
use crate::{
    gid::Attr,
    port, //
};
use core::ptr::NonNull;
use kernel::ffi::c_int;
use rdma_bindings as bindings;

/// A registered device, or one that was.
///
/// `ib_core` may unregister a device at any time, when another driver with the same id does away
/// with all of its devices. A handle keeps the memory of the C object, no more, and does not
/// unregister the device when it is dropped.
///
/// # Invariants
///
/// The pointer is a device that [`register`](super::register) made; a reference to it (`get_device()`) belongs to
/// this value.
pub struct Handle(pub(super) NonNull<bindings::ib_device>);

// SAFETY: Everything that is done through a handle may be done by any task.
unsafe impl Send for Handle {}
// SAFETY: As above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Unregisters the device, unless it is already. When this returns, the device is gone: all
    /// its objects are destroyed, and [`Device::gone`](super::Device::gone) has been called. Process context, may sleep for
    /// long; not under RTNL, which clients may take as they leave.
    pub fn unregister(&self) {
        // SAFETY: The memory of the device is valid by the type invariant, and `dealloc_driver` is
        // set, with which `ib_unregister_device` may be called any number of times.
        unsafe { bindings::ib_unregister_device(self.0.as_ptr()) };
    }

    /// Tells the consumers if the state of the port has changed. Process context.
    pub fn dispatch_port_state(&self, netdev: &net::NetDevice) {
        let device = self.0.as_ptr();
        // SAFETY: The memory of the device is valid. Only if it is registered, and for as long as
        // it is held so, its operations may be called.
        unsafe {
            if bindings::ib_device_try_get(device) {
                bindings::ib_dispatch_port_state_event(device, netdev.as_ptr());
                bindings::ib_device_put(device);
            }
        }
    }

    /// Has the GID table follow the addresses of the device's netdev and of those above. Does nothing if the device is not
    /// registered. Else `stale` is called, and what that returns says of a netdev whether its addresses are deleted before:
    /// they may get other places in the table, as `ib_core` deletes no single one. Context: process, may sleep, not under
    /// RTNL.
    pub fn rescan_gids<F: Fn(&net::NetDevice) -> bool>(&self, stale: impl FnOnce() -> F) {
        let device = self.0.as_ptr();
        // SAFETY: The memory of the device is valid. Only if it is registered, and for as long as
        // it is held so, entries may be looked up and added.
        unsafe {
            if !bindings::ib_device_try_get(device) {
                return;
            }
            let is_stale = stale();
            for index in 0..port::GID_TABLE_LEN as c_int {
                if let Some(netdev) = Attr::get(device, index).and_then(|attr| attr.to_netdev()) {
                    if is_stale(&netdev) {
                        self.delete_gids(&netdev);
                    }
                }
            }
            bindings::rdma_roce_rescan_port(device, port::NUMBER);
            bindings::ib_device_put(device);
        }
    }

    /// Deletes the addresses of a netdev from the GID table. Process context; RTNL may be held.
    pub fn delete_gids(&self, netdev: &net::NetDevice) {
        let device = self.0.as_ptr();
        // SAFETY: The memory of the device is valid, and with it the table, if there is one: not if its registration failed
        // early. Only entries of the table lead to the driver's part of the device: `ib_core` empties the table before that
        // part goes, and adds none afterwards.
        unsafe {
            let ports = (*device).port_data;
            if !ports.is_null() && !(*ports.add(port::NUMBER as usize)).cache.gid.is_null() {
                bindings::roce_del_all_netdev_gids(device, port::NUMBER, netdev.as_ptr());
            }
        }
    }

    /// Waits until `ib_core` has released the entries of the device's GID table whose last reference was dropped.
    /// Process context.
    ///
    /// Must be called between the last use of an entry and the end of the last handle.
    pub fn flush_gids(&self) {
        // SAFETY: The workqueue lives as long as `ib_core`, which this module depends on.
        unsafe { kernel::bindings::__flush_workqueue(bindings::ib_wq) };
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: The reference belongs to `self`.
        unsafe { kernel::bindings::put_device(embedded(self.0.as_ptr())) };
    }
}
