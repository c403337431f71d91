// SPDX-License-Identifier: GPL-2.0

//! Counters of a port, as `rdma statistic` and sysfs show them.

use crate::{
    driver::Driver,
    port::Port, //
};
use kernel::{
    prelude::*,
    str::{
        as_char_ptr_in_const_context,
        CStr, //
    },
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use rdma_bindings as bindings;

/// Milliseconds for which `ib_core` shows the values that it has got (`RDMA_HW_STATS_DEFAULT_LIFESPAN`).
const LIFESPAN: c_ulong = 10;

/// The description of one counter.
#[repr(transparent)]
pub struct Descriptor(bindings::rdma_stat_desc);

// SAFETY: The only pointer in use is a name that lives for ever and never changes.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// A counter called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: as_char_ptr_in_const_context(name),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}

/// Makes room for the values of all counters of a driver; null if there is no memory. Process context.
pub(crate) fn of_driver<D: Driver>() -> *mut bindings::rdma_hw_stats {
    // SAFETY: The descriptors live for ever, and are `rdma_stat_desc`s by `repr(transparent)`.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            D::COUNTERS.as_ptr().cast(),
            D::COUNTERS.len() as c_int,
            LIFESPAN,
        )
    }
}

/// The values of all counters of a driver. `ib_core` reads them at any time.
///
/// # Safety
///
/// `stats` must come from [`of_driver`], and be valid for `'a`.
pub(crate) unsafe fn values<'a, D: Driver>(
    stats: *mut bindings::rdma_hw_stats,
) -> &'a [Atomic<u64>] {
    // SAFETY: There is room for as many values as there are descriptors, and the caller promises that it stays there.
    // `Atomic<u64>` is laid out as `u64`, and all that Rust does to the values goes through it.
    unsafe {
        let values = (*stats).value.as_mut_ptr().cast();
        core::slice::from_raw_parts(values, D::COUNTERS.len())
    }
}

/// `alloc_hw_port_stats`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn alloc<D: Driver>(
    _device: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    of_driver::<D>()
}

/// `get_hw_stats`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn get<D: Driver>(
    device: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    port: u32,
    _index: c_int,
) -> c_int {
    // Port 0 is the device as a whole, which has no counters.
    if port == 0 || stats.is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: `ib_core` passes a device of this driver, and a struct that `alloc` made, which is locked.
    let (core, values) = unsafe { (crate::device::core::<D::Device>(device), values::<D>(stats)) };
    for (index, value) in (0..D::COUNTERS.len()).zip(values) {
        value.store(core.counter(index), Relaxed);
    }
    D::COUNTERS.len() as c_int
}
