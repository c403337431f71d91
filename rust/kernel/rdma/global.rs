// SPDX-License-Identifier: GPL-2.0

//! State of a module that C callbacks without a context argument must reach.

use core::ptr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        rcu,
        Arc, //
    },
};

/// A place in static memory for a value that exists from module init to module exit.
///
/// Reading it costs an RCU read section. The [`Guard`] that [`Global::set`] returns empties the
/// place when it is dropped, and waits for readers.
///
/// # Invariants
///
/// The pointer is null, or was made by [`Arc::into_raw`] and belongs to the one guard that exists.
pub struct Global<T: Send + Sync + 'static>(Atomic<*const T>);

impl<T: Send + Sync + 'static> Global<T> {
    /// An empty place.
    pub const fn new() -> Self {
        // INVARIANT: The pointer is null.
        Self(Atomic::new(ptr::null()))
    }

    /// Fills the place; `EBUSY` if it is not empty. Context: any in which a `T` may be dropped.
    pub fn set(&'static self, value: Arc<T>) -> Result<Guard<T>> {
        let value = Arc::into_raw(value);
        // INVARIANT: If the exchange succeeds, the pointer belongs to the new guard.
        match self.0.cmpxchg(ptr::null(), value, Full) {
            Ok(_) => Ok(Guard(self)),
            Err(_) => {
                // SAFETY: The pointer was just made by `into_raw`, and nobody else knows it.
                drop(unsafe { Arc::from_raw(value) });
                Err(EBUSY)
            }
        }
    }

    /// The value, for as long as the RCU read lock is held. Any context.
    #[inline]
    pub fn get<'a>(&'static self, _rcu: &'a rcu::Guard) -> Option<&'a T> {
        // SAFETY: By the type invariant the pointer is null, or came from an `Arc` that belongs to the guard,
        // which waits for a grace period after it has emptied the place; the caller's read lock
        // is held for `'a`.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// The value, counted. Any context.
    pub fn get_arc(&'static self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let value = self.0.load(Acquire);
        if value.is_null() {
            return None;
        }
        // SAFETY: `value` came from `Arc::into_raw`, and a reference is counted at least until the
        // RCU read lock is released, as in `get`. The count is incremented by the clone, and the
        // borrowed one is not given up.
        let borrowed = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(value) });
        Some(Arc::clone(&borrowed))
    }
}

/// Empties a [`Global`] when it is dropped. Process context.
#[must_use]
pub struct Guard<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync + 'static> Drop for Guard<T> {
    fn drop(&mut self) {
        let value = self.0 .0.xchg(ptr::null(), Full);
        sync::synchronize_rcu();
        if !value.is_null() {
            // SAFETY: By the type invariant the pointer came from `Arc::into_raw` and belongs to
            // `self`; readers are gone after the grace period.
            drop(unsafe { Arc::from_raw(value) });
        }
    }
}
