// SPDX-License-Identifier: GPL-2.0

//! Spinlocks that keep bottom halves, or interrupts, away from their holder.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use kernel::{
    ffi::c_char,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    },
};
use rdma_bindings as bindings;

// `assert_is_held` is called for each guard. Without lockdep it would be a call of a C function that is empty.

/// A spinlock shared by process and softirq context.
///
/// Taken with interrupts on: a holder of a [`SpinLockIrq`] must not take it.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// The guard of a [`SpinLockBh`].
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

/// A spinlock that any context may take; with `PREEMPT_RT` not hard interrupts, as it sleeps there.
///
/// A guard gives back the state of interrupts that it found. So of two guards the later one is dropped first.
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// Creates a [`SpinLockBh`] initialiser with a lock class of its own, and with the name given or the place
/// in the source.
#[macro_export]
macro_rules! new_spin_lock_bh {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::lock::SpinLockBh::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}

/// Creates a [`SpinLockIrq`] initialiser with a lock class of its own, and with the name given or the
/// place in the source.
#[macro_export]
macro_rules! new_spin_lock_irq {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::lock::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}

/// `spin_lock_bh`.
pub struct SpinLockBhBackend;

// SAFETY: `spin_lock_bh` gives one holder at a time the lock until `spin_unlock_bh`; the state must be
// initialised and pinned, which the trait's callers promise.
unsafe impl Backend for SpinLockBhBackend {
    type State = kernel::bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: The caller promises that `ptr` is valid for writes, and that `name` and `key` live as
        // long as the lock.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: The caller promises that `ptr` was initialised by `init`.
        unsafe { bindings::spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _state: &()) {
        // SAFETY: The caller promises that it holds the lock.
        unsafe { bindings::spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: The caller promises that `ptr` was initialised by `init`.
        (unsafe { bindings::spin_trylock_bh(ptr) } != 0).then_some(())
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The caller promises that `ptr` was initialised by `init`.
            unsafe { kernel::bindings::spin_assert_is_held(ptr) }
        }
    }
}

/// `spin_lock_irqsave`; the guard carries the flags.
pub struct SpinLockIrqBackend;

// SAFETY: `spin_lock_irqsave` gives one holder at a time the lock until `spin_unlock_irqrestore`, which
// gets the flags of its own `spin_lock_irqsave`; the state must be initialised and pinned, which the
// trait's callers promise.
unsafe impl Backend for SpinLockIrqBackend {
    type State = kernel::bindings::spinlock_t;
    type GuardState = usize;

    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: The caller promises that `ptr` is valid for writes, and that `name` and `key` live as
        // long as the lock.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> usize {
        // SAFETY: The caller promises that `ptr` was initialised by `init`.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, flags: &usize) {
        // SAFETY: The caller promises that it holds the lock, and passes what `lock` or `try_lock`
        // returned.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *flags) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<usize> {
        let mut flags = 0;
        // SAFETY: The caller promises that `ptr` was initialised by `init`; `flags` is valid for writes.
        unsafe { bindings::spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The caller promises that `ptr` was initialised by `init`.
            unsafe { kernel::bindings::spin_assert_is_held(ptr) }
        }
    }
}
