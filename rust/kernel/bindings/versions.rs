// SPDX-License-Identifier: GPL-2.0

//! Where the kernels that the module is built for differ.
//!
//! An item with another name or another type in one of them has one name here, with which all other
//! source is the same for all. `linux_7_3` means "that or later": Kbuild sets it, and nothing else asks for it.

use kernel::{
    bindings::{
        dma_data_direction,
        hrtimer_restart, //
    },
    ffi::c_int, //
};
use pin_init::PinInit;

/// The direction of DMA that goes both ways.
///
/// Until 7.2 an integer, from 7.3 on of a type of its own, as [`HRTIMER_NORESTART`].
pub const DMA_BIDIRECTIONAL: dma_data_direction = {
    #[cfg(not(linux_7_3))]
    let value = kernel::bindings::dma_data_direction_DMA_BIDIRECTIONAL;
    #[cfg(linux_7_3)]
    let value = dma_data_direction::DMA_BIDIRECTIONAL;
    value
};

/// The return value of a timer's callback, if the timer is not to be started again.
///
/// Until 7.2 the kernel crate has C's `enum hrtimer_restart` as an integer and constants beside it, from 7.3
/// on as a type of its own, for CFI.
pub const HRTIMER_NORESTART: hrtimer_restart = {
    #[cfg(not(linux_7_3))]
    let value = kernel::bindings::hrtimer_restart_HRTIMER_NORESTART;
    #[cfg(linux_7_3)]
    let value = hrtimer_restart::HRTIMER_NORESTART;
    value
};

/// The value of a limit in `ib_device_attr`: no more than fits a `c_int`, which is what consumers of any
/// kernel make of it.
///
/// Until 7.2 the fields are `int`, from 7.3 on `u32`.
#[cfg(not(linux_7_3))]
pub fn device_limit(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// The value of a limit in `ib_device_attr`: no more than fits a `c_int`, which is what consumers of any
/// kernel make of it.
///
/// Until 7.2 the fields are `int`, from 7.3 on `u32`.
#[cfg(linux_7_3)]
pub fn device_limit(value: u32) -> u32 {
    value.min(c_int::MAX.unsigned_abs())
}

/// A full memory barrier between CPUs. Any context.
///
/// Until 7.2 it is a function without arguments, from 7.3 on one that is told what to order.
#[inline]
pub fn smp_mb() {
    #[cfg(not(linux_7_3))]
    kernel::sync::barrier::smp_mb();
    #[cfg(linux_7_3)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Full);
}

/// A barrier between stores, between CPUs. Any context.
///
/// Until 7.2 it is a function of its own, from 7.3 on [`smp_mb`] that is told what to order.
#[inline]
pub fn smp_wmb() {
    #[cfg(not(linux_7_3))]
    kernel::sync::barrier::smp_wmb();
    #[cfg(linux_7_3)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Write);
}

/// Makes a value where it is going to stay, by an initializer that cannot fail.
///
/// Until 7.2 initializers have `__pinned_init()` for this, from 7.3 on there is `pin_init::raw_init()`.
///
/// # Safety
///
/// `slot` is valid for writes and has nothing to drop in it. The value is not moved from there.
pub unsafe fn init_in_place<T>(slot: *mut T, init: impl PinInit<T>) {
    #[cfg(not(linux_7_3))]
    // SAFETY: It needs no more than the caller has promised. Nothing is done if it fails.
    match unsafe { init.__pinned_init(slot) } {
        Ok(()) => {}
        Err(infallible) => match infallible {},
    }
    #[cfg(linux_7_3)]
    // SAFETY: It needs no more than the caller has promised.
    unsafe {
        pin_init::raw_init(slot, init);
    }
}
