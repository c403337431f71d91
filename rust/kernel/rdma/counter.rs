// SPDX-License-Identifier: GPL-2.0

//! Counters of single queue pairs, as `rdma statistic qp` binds and shows them.

use crate::{
    driver::Driver,
    object::Object,
    qp::{
        self,
        QueuePair, //
    },
    stats, //
};
use kernel::{
    bitmap::Bitmap,
    error::from_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    },
};
use rdma_bindings as bindings;

/// The core of a counter: what single queue pairs count that are bound to it.
pub trait Counter: Sized + Send + Sync + 'static {
    /// Whether the counter with that index in [`Driver::COUNTERS`] can be read for single QPs.
    fn is_of_qp(index: usize) -> bool;

    /// Makes one, at zero. Context: process, may sleep.
    fn new() -> Result<Arc<Self>>;

    /// Fills in the value of each of [`Driver::COUNTERS`]. Context: any.
    fn read(&self, values: &[Atomic<u64>]);
}

/// There is nothing until the first queue pair is bound: `ib_core` frees the counter if that fails, and does not say so.
pub(crate) type Obj<T> = Object<bindings::rdma_counter, SetOnce<Arc<T>>>;

/// The number of the next counter. By these `ib_core` tells the counters of a device apart; it leaves them to the driver.
static NEXT_ID: Atomic<u32> = Atomic::new(1);

/// A number that no other counter has, and not 0, as long as there are not four billion of them.
fn new_id() -> u32 {
    loop {
        let id = NEXT_ID.fetch_add(1, Relaxed);
        if id != 0 {
            return id;
        }
    }
}

/// `counter_init`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn init<C: Counter>(counter: *mut bindings::rdma_counter) {
    // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
    unsafe { Obj::<C>::init(counter, SetOnce::new()) };
}

/// `counter_alloc_stats`: what QPs do not count is not shown. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn alloc<D: Driver>(
    _counter: *mut bindings::rdma_counter,
) -> *mut bindings::rdma_hw_stats {
    let stats = stats::of_driver::<D>();
    if !stats.is_null() {
        // SAFETY: There is a bit for each counter, and nobody else knows of the struct. In memory a bitmap of `unsigned long`
        // is one of `usize`.
        let hidden =
            unsafe { Bitmap::from_raw_mut((*stats).is_disabled.cast(), D::COUNTERS.len()) };
        for index in (0..D::COUNTERS.len()).filter(|&index| !D::Counter::is_of_qp(index)) {
            hidden.set_bit(index);
        }
    }
    stats
}

/// `counter_bind_qp`. Process context; no other operation on the counter is in progress.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn bind<Q: QueuePair>(
    counter: *mut bindings::rdma_counter,
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a counter that was initialised, and a queue pair.
        let (once, core) =
            unsafe { (Obj::<Q::Counter>::get(counter), &qp::Obj::<Q>::get(qp).core) };
        match once.as_ref() {
            Some(bound) => core.bind_counter(bound)?,
            None => {
                let bound = Q::Counter::new()?;
                core.bind_counter(&bound)?;
                once.populate(bound);
                // SAFETY: The counter is valid, and `ib_core` does not look at its number before this returns.
                unsafe { (*counter).id = new_id() };
            }
        }
        // SAFETY: The queue pair is valid, and no other counter has it, or there would have been an error.
        unsafe { (*qp).counter = counter };
        Ok(0)
    })
}

/// `counter_unbind_qp`. Process context; no other operation on the counter is in progress.
///
/// Errors: `EINVAL` if the queue pair is not bound. Two callers may want to unbind it at once, as `ib_core` looks before it
/// takes the lock; it lets go of a reference for each that is told of success.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn unbind<Q: QueuePair>(
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> c_int {
    // SAFETY: `ib_core` passes a queue pair.
    unsafe {
        if (*qp).counter.is_null() {
            return EINVAL.to_errno();
        }
        // Before it can be bound to another one.
        (*qp).counter = core::ptr::null_mut();
        qp::Obj::<Q>::get(qp).core.unbind_counter();
    }
    0
}

/// `counter_dealloc`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn dealloc<C: Counter>(counter: *mut bindings::rdma_counter) -> c_int {
    // SAFETY: `ib_core` passes a counter that nothing is bound to any more, and then frees it.
    drop(unsafe { Obj::<C>::take(counter) });
    0
}

/// `counter_update_stats`. Process context; no other operation on the counter is in progress.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn update<D: Driver>(counter: *mut bindings::rdma_counter) -> c_int {
    // SAFETY: `ib_core` passes a counter of a device of this driver, with what `alloc` made for it.
    let (once, values) = unsafe {
        (
            Obj::<D::Counter>::get(counter),
            stats::values::<D>((*counter).stats),
        )
    };
    if let Some(core) = once.as_ref() {
        core.read(values);
    }
    0
}
