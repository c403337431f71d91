// SPDX-License-Identifier: GPL-2.0

//! Timers for reference-counted objects: high resolution, expiry in softirq context.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use crate::lock::SpinLockIrq;
use core::cell::UnsafeCell;
use kernel::{
    bindings, container_of,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque,
};

/// Returns the time of the monotonic clock, in nanoseconds. Any context.
#[inline]
pub fn monotonic_ns() -> u64 {
    // SAFETY: No requirements.
    let now = unsafe { bindings::ktime_get() };
    // CAST: The monotonic clock starts at zero, so it is not negative.
    now as u64
}

/// Returns the time of this CPU's clock, in nanoseconds: faster than [`monotonic_ns`], but to be compared with times of
/// the same CPU only. Any context.
#[inline]
pub fn cpu_clock_ns() -> u64 {
    // SAFETY: No requirements.
    unsafe { rdma_bindings::local_clock() }
}

/// An object with a timer.
pub trait TimerCallback: Send + Sync + Sized + 'static {
    /// Called when the timer expires. Softirq context, no lock held; never on two CPUs at once.
    ///
    /// It may start the timer again, and make an [`Arc`] of `this`. It must not wait, which rules out
    /// [`Timer::shutdown`].
    fn expired(this: ArcBorrow<'_, Self>);
}

/// A timer of an object of type `T`, to be embedded in it.
///
/// From its first start until [`shutdown`](Self::shutdown) the timer keeps a reference to the object that
/// it was started for, so an object whose timer was ever started is freed only once it was shut down:
/// the one that ends the object has to do that.
///
/// # Invariants
///
/// - `timer` was set up with `expire`; it is started only under the lock `open`, while that holds
///   `true`, and after `owner` was set.
/// - `owner` is written only under the lock `open`: from `None` to `Some` while that holds `true`, and
///   from `Some` to `None` by the one who set `open` to `false`, once the timer neither is queued nor
///   runs.
#[pin_data(PinnedDrop)]
pub struct Timer<T: TimerCallback> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    /// Whether the timer may still be started.
    #[pin]
    open: SpinLockIrq<bool>,
    owner: UnsafeCell<Option<Arc<T>>>,
}

// SAFETY: `Arc<T>` is `Send` as `T` is `Send + Sync`; a timer may be used on any CPU.
unsafe impl<T: TimerCallback> Send for Timer<T> {}
// SAFETY: The hrtimer functions lock for themselves; `owner` is guarded as the type invariants say.
unsafe impl<T: TimerCallback> Sync for Timer<T> {}

impl<T: TimerCallback> Timer<T> {
    /// Makes a timer that is not started.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: Set up with `expire`, not started, no owner.
        pin_init!(Self {
            timer <- Opaque::ffi_init(|timer| {
                // SAFETY: `timer` is valid for writes, and stays where it is, as it is pinned.
                unsafe {
                    bindings::hrtimer_setup(
                        timer,
                        Some(Self::expire),
                        MONOTONIC,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
                    )
                }
            }),
            open <- crate::new_spin_lock_irq!(true, "Timer::open"),
            owner: UnsafeCell::new(None),
        })
    }

    /// Lets the timer expire at `time` of [`monotonic_ns`], instead of when it was about to, if it was.
    ///
    /// Any context, under locks, and from the callback too. An expiry that is being handled goes on; the
    /// new one comes after it. `owner` is the object around the timer; after the first start it has no
    /// meaning. Does nothing after [`shutdown`](Self::shutdown).
    pub fn start_at(&self, owner: ArcBorrow<'_, T>, time: u64) {
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        let open = self.open.lock();
        if !*open {
            return;
        }
        // SAFETY: By the type invariant `owner` changes under the lock, which we hold. The callback may
        // read it meanwhile: then it is `Some` already, and not written here.
        unsafe {
            if (*self.owner.get()).is_none() {
                *self.owner.get() = Some(owner.into());
            }
        }
        // SAFETY: By the type invariant the timer is set up; it lives on, as `drop` cancels it.
        // INVARIANT: The lock is held, it holds `true`, and `owner` is set.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                time,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
            )
        };
    }

    /// Stops the timer, and waits until its callback is over. It may be started again, also by the
    /// callback that is waited for, whose new expiry is prevented then. Process, not under a lock that
    /// the callback takes.
    fn cancel(&self) {
        // SAFETY: By the type invariant the timer is set up.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }

    /// Stops the timer for good, waits until its callback is over, and gives back the reference to the
    /// owner. Process, not under a lock that the callback takes.
    pub fn shutdown(&self) {
        *self.open.lock() = false;
        self.cancel();
        let owner = {
            let _open = self.open.lock();
            // SAFETY: We set `open` to `false`, the lock is held, and the timer neither is queued nor
            // runs: `cancel` saw to that, and nobody starts it any more.
            unsafe { (*self.owner.get()).take() }
        };
        // Not the last reference: the caller borrows the object around `self`. If it is the last one
        // nevertheless, `owner` is another object, and may go.
        drop(owner);
    }

    /// Handles the expiry.
    ///
    /// # Safety
    ///
    /// To be called by the hrtimer core only, with the `timer` field of a [`Timer`] of this type, which
    /// was started.
    unsafe extern "C" fn expire(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let timer = Opaque::cast_from(timer.cast_const()).cast_mut();
        // SAFETY: `timer` is the field of a `Self`, as the caller promises. It outlives this function: it
        // is dropped only after its `hrtimer_cancel`, which waits for us.
        let this = unsafe { &*container_of!(timer, Self, timer) };
        // SAFETY: By the type invariant `owner` was set before the start, whose lock orders that before
        // us; and it is taken away only when no callback runs.
        if let Some(owner) = unsafe { &*this.owner.get() } {
            T::expired(owner.as_arc_borrow());
        }
        rdma_bindings::HRTIMER_NORESTART
    }
}

#[pinned_drop]
impl<T: TimerCallback> PinnedDrop for Timer<T> {
    fn drop(self: Pin<&mut Self>) {
        // The timer of the object that it keeps alive is idle by now, and this costs nothing. Only one
        // that was started for another object may have to be stopped.
        self.cancel();
    }
}

/// The clock of the timers.
// CAST: A small number.
const MONOTONIC: bindings::clockid_t = bindings::CLOCK_MONOTONIC as bindings::clockid_t;
