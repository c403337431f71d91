// SPDX-License-Identifier: GPL-2.0

//! The driver as a client of `ib_core`: it hears when a device of its own goes into use and out of it.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    device,
    device::Device,
    driver::Driver, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    }, //
};
use rdma_bindings as bindings;

/// The module's one client.
struct Slot {
    client: UnsafeCell<bindings::ib_client>,
    taken: Atomic<u32>,
}

// SAFETY: `client` is only written by the one who has taken the slot before `ib_core` knows it, and by `ib_core`, which has
// locks of its own for it.
unsafe impl Sync for Slot {}

static SLOT: Slot = Slot {
    client: UnsafeCell::new(pin_init::zeroed()),
    taken: Atomic::new(0),
};

/// A registered client. It is dropped in process context.
#[must_use]
pub struct Client<D: Driver>(PhantomData<D>);

/// From now on each device of the driver `D` has [`Device::enabled`] and [`Device::disabled`] called. Clients that register
/// later leave a device earlier.
///
/// Errors: `EBUSY` if the module has a client already, `ENOMEM`. Context: process, may sleep.
pub fn register<D: Driver>(name: &'static CStr) -> Result<Client<D>> {
    if SLOT.taken.cmpxchg(0, 1, Full).is_err() {
        return Err(EBUSY);
    }
    let client = SLOT.client.get();
    // SAFETY: The slot is ours, and `ib_core` does not know it. `ib_register_client` takes a struct with these fields set;
    // the name lives for ever.
    let registered = unsafe {
        (*client).name = name.as_char_ptr();
        (*client).add = Some(add::<D>);
        (*client).remove = Some(remove::<D>);
        bindings::ib_register_client(client)
    };
    to_result(registered).inspect_err(|_| SLOT.taken.store(0, Release))?;
    Ok(Client(PhantomData))
}

impl<D: Driver> Drop for Client<D> {
    fn drop(&mut self) {
        // SAFETY: `register` registered the struct. Afterwards nobody is in `add` or `remove`.
        unsafe { bindings::ib_unregister_client(SLOT.client.get()) };
        SLOT.taken.store(0, Release);
    }
}

/// `add`. `ib_core` does not call `remove` for a device for which this fails: other drivers'.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_client` has it.
unsafe extern "C" fn add<D: Driver>(device: *mut bindings::ib_device) -> c_int {
    // SAFETY: `ib_core` passes a device that is registered.
    if !unsafe { device::is_of::<D>(device) } {
        return ENODEV.to_errno();
    }
    // SAFETY: As above, and it is a device of the driver `D`.
    unsafe { device::core::<D::Device>(device) }.enabled();
    0
}

/// `remove`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_client` has it.
unsafe extern "C" fn remove<D: Driver>(device: *mut bindings::ib_device, _data: *mut c_void) {
    // SAFETY: `ib_core` passes a device for which `add` did not fail, so one of the driver `D`; `dealloc_driver` is called
    // when all clients have left.
    unsafe { device::core::<D::Device>(device) }.disabled();
}
