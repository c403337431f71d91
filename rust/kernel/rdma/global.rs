// SPDX-License-Identifier: GPL-2.0

//! State of a module that C callbacks without a context argument must reach.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
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
/// The address is 0, or was made by [`Arc::into_raw`] and belongs to the one guard that exists.
pub struct Global<T: Send + Sync + 'static> {
    address: Atomic<usize>,
    _value: PhantomData<Arc<T>>,
}

// SAFETY: Readers get shared references, from whatever CPU.
unsafe impl<T: Send + Sync + 'static> Sync for Global<T> {}

impl<T: Send + Sync + 'static> Global<T> {
    /// An empty place.
    pub const fn new() -> Self {
        // INVARIANT: The address is 0.
        Self {
            address: Atomic::new(0),
            _value: PhantomData,
        }
    }

    /// Fills the place; `EBUSY` if it is not empty.
    pub fn set(&'static self, value: Arc<T>) -> Result<Guard<T>> {
        let address = Arc::into_raw(value).expose_provenance();
        // INVARIANT: If the exchange succeeds, the address belongs to the new guard.
        match self.address.cmpxchg(0, address, Full) {
            Ok(_) => Ok(Guard(self)),
            Err(_) => {
                // SAFETY: The address was just made by `into_raw`, and nobody else knows it.
                drop(unsafe { Arc::from_raw(core::ptr::with_exposed_provenance::<T>(address)) });
                Err(EBUSY)
            }
        }
    }

    #[inline]
    fn load(&self) -> Option<NonNull<T>> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(
            self.address.load(Acquire),
        ))
    }

    /// The value, for as long as the RCU read lock is held. Any context.
    #[inline]
    pub fn get<'a>(&'static self, _rcu: &'a rcu::Guard) -> Option<&'a T> {
        let value = self.load()?;
        // SAFETY: By the type invariant the address came from an `Arc` that belongs to the guard,
        // which waits for a grace period after it has emptied the place; the caller's read lock
        // is held for `'a`.
        Some(unsafe { value.as_ref() })
    }

    /// The value, counted. Any context.
    pub fn get_arc(&'static self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let value = self.load()?.as_ptr();
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
        let address = self.0.address.xchg(0, Full);
        sync::synchronize_rcu();
        if address != 0 {
            // SAFETY: By the type invariant the address came from `Arc::into_raw` and belongs to
            // `self`; readers are gone after the grace period.
            drop(unsafe { Arc::from_raw(core::ptr::with_exposed_provenance::<T>(address)) });
        }
    }
}
