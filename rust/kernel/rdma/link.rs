// SPDX-License-Identifier: GPL-2.0

//! Link types: devices that are made by `rdma link add`.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use crate::{
    device,
    driver::Driver, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData, //
};
use kernel::{
    error::from_result,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
};
use rdma_bindings as bindings;

/// Makes and unmakes devices.
pub trait Operations: Driver {
    /// The name of the link type. The module should have the alias `rdma-link-` and this name.
    const TYPE: &'static CStr;

    /// Makes a device called `name` on `netdev`. Process context; may be called by several tasks at
    /// a time.
    fn add(name: &CStr, netdev: net::NetDev) -> Result;

    /// The device is about to be unregistered, by request of an administrator.
    fn delete(device: &Arc<Self::Device>);
}

/// The module's one link type.
struct Slot {
    ops: UnsafeCell<bindings::rdma_link_ops>,
    taken: Atomic<u32>,
}

// SAFETY: `ops` is only written by the one who has taken the slot, before and after it is known to
// `ib_core`, which has a lock of its own for it.
unsafe impl Sync for Slot {}

static SLOT: Slot = Slot {
    ops: UnsafeCell::new(pin_init::zeroed()),
    taken: Atomic::new(0),
};

/// The C struct, which devices refer to.
pub(crate) fn ops() -> *const bindings::rdma_link_ops {
    SLOT.ops.get()
}

/// A registered link type. When it is dropped, in process context, no further device is made.
#[must_use]
pub struct LinkType<T: Operations>(PhantomData<T>);

/// Registers the link type; `EBUSY` if the module has one already. Process context.
pub fn register<T: Operations>() -> Result<LinkType<T>> {
    if SLOT.taken.cmpxchg(0, 1, Full).is_err() {
        return Err(EBUSY);
    }
    let ops = SLOT.ops.get();
    // SAFETY: The slot is ours, and `ib_core` does not know it. `rdma_link_register` takes a
    // complete struct; the type's name lives for ever.
    unsafe {
        (*ops).type_ = T::TYPE.as_char_ptr();
        (*ops).newlink = Some(newlink::<T>);
        (*ops).dellink = Some(dellink::<T>);
        bindings::rdma_link_register(ops);
    }
    Ok(LinkType(PhantomData))
}

impl<T: Operations> Drop for LinkType<T> {
    fn drop(&mut self) {
        // SAFETY: `register` registered the struct. Afterwards nobody is in `newlink`: `ib_core`
        // calls it with the lock that unregistering takes for writing.
        unsafe { bindings::rdma_link_unregister(SLOT.ops.get()) };
        SLOT.taken.store(0, kernel::sync::atomic::Release);
    }
}

/// `newlink`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct rdma_link_ops` has it.
unsafe extern "C" fn newlink<T: Operations>(
    name: *const c_char,
    netdev: *mut kernel::bindings::net_device,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a string, and a netdev that it has a reference to.
        let (name, netdev) = unsafe {
            (
                CStr::from_char_ptr(name),
                net::NetDev::from_raw(netdev), //
            )
        };
        T::add(name, netdev)?;
        Ok(0)
    })
}

/// `dellink`. Never fails: `ib_core` would leak its reference to the device.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct rdma_link_ops` has it.
unsafe extern "C" fn dellink<T: Operations>(device: *mut bindings::ib_device) -> c_int {
    // SAFETY: `ib_core` passes a device with this link type, which it holds registered.
    if unsafe { device::is_of::<T>(device) } {
        // SAFETY: As above, and it is a device of the driver `T`.
        T::delete(unsafe { device::core::<T::Device>(device) });
    }
    0
}
