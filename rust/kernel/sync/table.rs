// SPDX-License-Identifier: GPL-2.0

//! Tables from numbers to reference-counted objects, read without locks.
//!
//! C header: [`include/linux/xarray.h`](srctree/include/linux/xarray.h)

use crate::workqueue::WorkQueue;
use core::{
    cell::UnsafeCell,
    iter,
    marker::PhantomData,
    mem::MaybeUninit,
    ops::RangeInclusive,
    ptr, //
};
use kernel::{
    container_of,
    error::to_result,
    ffi::c_void,
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    types::Opaque,
};
use rdma_bindings as bindings;

/// What the table points at: the table's own reference, and what gives it back after a grace period.
///
/// `value` is first so that the pointer that the xarray stores is as aligned as any allocation; `repr(C)`
/// only for that.
#[repr(C)]
struct Entry<T> {
    value: Arc<T>,
    release: Opaque<kernel::bindings::rcu_work>,
}

impl<T: Send + Sync + 'static> Entry<T> {
    /// Drops an entry whose grace period is over. Process.
    ///
    /// # Safety
    ///
    /// To be called by the workqueue only, with the `work` of the `release` field of an entry that
    /// [`RcuTable::release`] owned and queued.
    unsafe extern "C" fn release(work: *mut kernel::bindings::work_struct) {
        // SAFETY: `work` is the field of an `rcu_work`, as the caller promises.
        let release = unsafe { container_of!(work, kernel::bindings::rcu_work, work) };
        let release = Opaque::cast_from(release.cast_const()).cast_mut();
        // SAFETY: That is the `release` field of an entry, as the caller promises.
        let entry = unsafe { container_of!(release, Self, release) };
        // SAFETY: The entry came from `KBox::into_raw`, and the one who queued it owned it. Nobody reads
        // it any more: it was in no table, and the readers that still saw it are over.
        drop(unsafe { KBox::from_raw(entry) });
    }
}

/// A table from `u32` to `Arc<T>`.
///
/// Looking up takes no lock. What was removed keeps its reference from the table until a grace period is
/// over; then a work item in process context gives it back.
///
/// Dropping the table (process) drops what is in it, and waits for a grace period.
///
/// # Invariants
///
/// - Each entry of `xa` is either reserved, or a pointer to an `Entry<T>` from `KBox::into_raw` that
///   the table owns. An entry that leaves the table is freed only after a grace period.
/// - `next` is used under the lock of `xa` only.
#[pin_data(PinnedDrop)]
pub struct RcuTable<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<kernel::bindings::xarray>,
    /// Where the next cyclic search starts.
    next: UnsafeCell<u32>,
    queue: Arc<WorkQueue>,
    _entries: PhantomData<Arc<T>>,
}

// SAFETY: The table owns `Arc<T>`s, which are `Send` as `T` is `Send + Sync`.
unsafe impl<T: Send + Sync + 'static> Send for RcuTable<T> {}
// SAFETY: All changes are made under the lock of `xa`; reading is RCU's.
unsafe impl<T: Send + Sync + 'static> Sync for RcuTable<T> {}

impl<T: Send + Sync + 'static> RcuTable<T> {
    /// Makes an empty table, which gives back its references on `queue`: one whose work may sleep. As long as an
    /// object of the table owns the queue, somebody else must, too.
    pub fn new(queue: Arc<WorkQueue>) -> impl PinInit<Self> {
        // INVARIANT: The array is empty.
        pin_init!(Self {
            xa <- Opaque::ffi_init(|xa| {
                // SAFETY: `xa` is valid for writes.
                unsafe {
                    kernel::bindings::xa_init_flags(
                        xa,
                        bindings::XA_FLAGS_ALLOC
                            | bindings::XA_FLAGS_LOCK_IRQ
                            | bindings::XA_FLAGS_ACCOUNT,
                    )
                }
            }),
            next: UnsafeCell::new(0),
            queue,
            _entries: PhantomData,
        })
    }

    /// Returns the object at `key`, uncounted: whatever happens to the table, it stays as long as the RCU read lock is
    /// held. Any context.
    #[inline]
    pub fn read<'a>(&'a self, key: u32, _rcu: &'a rcu::Guard) -> Option<&'a Arc<T>> {
        // SAFETY: `xa` is initialised, by the type invariant.
        let entry = unsafe { kernel::bindings::xa_load(self.xa.get(), index(key)) };
        // SAFETY: A reserved entry reads as null. Any other is an `Entry<T>` by the type invariant, which is not freed
        // before the RCU read lock is released, that is, before the end of `'a`.
        unsafe { entry.cast::<Entry<T>>().as_ref() }.map(|entry| &entry.value)
    }

    /// Returns the objects at `keys`, in the order of the keys, each as [`Self::read`] does. Keys with nothing cost less than
    /// a look-up. Any context.
    pub fn read_range<'a>(
        &'a self,
        keys: RangeInclusive<u32>,
        rcu: &'a rcu::Guard,
    ) -> impl Iterator<Item = &'a Arc<T>> + 'a {
        let mut at = index(*keys.start());
        let mut inclusive = true;
        iter::from_fn(move || {
            let found = self.find(&mut at, *keys.end(), inclusive, rcu);
            inclusive = false;
            found
        })
    }

    /// Puts `value` at `key`; `EBUSY` if something is there. Process.
    pub fn insert(&self, key: u32, value: Arc<T>) -> Result {
        self.reserve(key)?.fill(value)
    }

    /// Takes the first free key of `range`, from behind the last one that was given out, round and round, for an object
    /// that is still to be made; `EBUSY` if there is none. Process.
    pub fn reserve_cyclic(&self, range: RangeInclusive<u32>) -> Result<Reservation<'_, T>> {
        let entry = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let limit = kernel::bindings::xa_limit {
            min: *range.start(),
            max: *range.end(),
        };
        let mut key = 0;
        // SAFETY: `locked` holds the lock of `xa`, which is initialised and tracks free entries. `key` is valid for
        // writes, and so is `next`, which nobody else uses while the lock is held; it may be released while memory is
        // allocated.
        let err = self.locked(|xa| unsafe {
            kernel::bindings::__xa_alloc_cyclic(
                xa,
                &mut key,
                ptr::null_mut(),
                limit,
                self.next.get(),
                kernel::bindings::GFP_KERNEL,
            )
        });
        // 1 says that the search went round: no error.
        if err < 0 {
            return Err(Error::from_errno(err));
        }
        // INVARIANT: `key` was free, and is reserved now.
        Ok(Reservation {
            table: self,
            key,
            entry: Some(entry),
        })
    }

    /// Takes `key` for an object that is still to be made; `EBUSY` if something is there. Process.
    pub fn reserve(&self, key: u32) -> Result<Reservation<'_, T>> {
        let entry = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
        self.locked(|xa| {
            // SAFETY: `locked` holds the lock.
            to_result(unsafe {
                kernel::bindings::__xa_insert(
                    xa,
                    index(key),
                    ptr::null_mut(),
                    kernel::bindings::GFP_KERNEL,
                )
            })
        })?;
        // INVARIANT: `key` was free, and is reserved now.
        Ok(Reservation {
            table: self,
            key,
            entry: Some(entry),
        })
    }

    /// Takes away what is at `key` if it is `value`. Any context.
    #[inline(never)]
    pub fn remove_if(&self, key: u32, value: &Arc<T>) {
        let entry = self.locked(|xa| {
            // SAFETY: `xa` is initialised, and its lock held.
            let entry = unsafe { kernel::bindings::xa_load(xa, index(key)) }.cast::<Entry<T>>();
            // SAFETY: By the type invariant this is null or an entry, which stays as long as we hold the
            // lock.
            match unsafe { entry.as_ref() } {
                Some(found) if Arc::ptr_eq(&found.value, value) => {
                    // SAFETY: `xa` is initialised, and its lock held.
                    unsafe { kernel::bindings::__xa_erase(xa, index(key)) };
                    entry
                }
                _ => ptr::null_mut(),
            }
        });
        // SAFETY: The entry, if any, was the table's, and is ours since it left the table.
        unsafe { self.release(entry) };
    }

    /// Calls `f` for each object, in the order of the keys. Process. `f` may change the table.
    pub fn for_each(&self, mut f: impl FnMut(u32, &Arc<T>)) {
        let mut at = 0;
        let mut found = self.get_next(&mut at, true);
        while let Some(value) = found {
            // Keys are 32 bits wide: the conversion does not fail.
            f(u32::try_from(at).unwrap_or(u32::MAX), &value);
            found = self.get_next(&mut at, false);
        }
    }

    /// Returns the first object at or, if not `inclusive`, behind `at`, which becomes its key. Any context.
    fn get_next(&self, at: &mut usize, inclusive: bool) -> Option<Arc<T>> {
        self.find(at, u32::MAX, inclusive, &rcu::read_lock())
            .cloned()
    }

    /// As [`Self::get_next`], uncounted, and up to `last`.
    #[inline(never)]
    fn find<'a>(
        &'a self,
        at: &mut usize,
        last: u32,
        inclusive: bool,
        _rcu: &'a rcu::Guard,
    ) -> Option<&'a Arc<T>> {
        let find = if inclusive {
            kernel::bindings::xa_find
        } else {
            kernel::bindings::xa_find_after
        };
        // SAFETY: `xa` is initialised, and `at` valid for reads and writes.
        let entry = unsafe { find(self.xa.get(), at, index(last), kernel::bindings::XA_PRESENT) };
        // SAFETY: Reserved entries are not found, so by the type invariant this is null or an `Entry<T>`. It is not freed
        // before the RCU read lock is released, that is, before the end of `'a`.
        unsafe { entry.cast::<Entry<T>>().as_ref() }.map(|entry| &entry.value)
    }

    /// Runs `f` with the lock of `xa` held.
    fn locked<R>(&self, f: impl FnOnce(*mut kernel::bindings::xarray) -> R) -> R {
        let xa = self.xa.get();
        // SAFETY: `xa` is initialised.
        let flags = unsafe { bindings::xa_lock_irqsave(xa) };
        let result = f(xa);
        // SAFETY: The lock is held, and `flags` are those of its locking.
        unsafe { bindings::xa_unlock_irqrestore(xa, flags) };
        result
    }

    /// Gives back the table's reference of `entry` after a grace period, if there is one.
    ///
    /// # Safety
    ///
    /// `entry` is null, or was the table's and has left it; the caller hands it over.
    unsafe fn release(&self, entry: *mut Entry<T>) {
        if entry.is_null() {
            return;
        }
        // SAFETY: The work is initialised, and queued only here, once, as the caller handed the entry
        // over. The workqueue outlives it: a table waits, when it is dropped, until such work has reached
        // the queue, and the queue runs what it has before it goes. `Entry::release` frees the entry.
        unsafe {
            kernel::bindings::queue_rcu_work(self.queue.as_ptr(), (*entry).release.get());
        }
    }
}

#[pinned_drop]
impl<T: Send + Sync + 'static> PinnedDrop for RcuTable<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut at = 0;
        while let Some(value) = self.get_next(&mut at, true) {
            // CAST: Keys are 32 bits wide.
            self.remove_if(at as u32, &value);
        }
        // SAFETY: `xa` is initialised, and nobody uses the table any more. What may be left are
        // reservations, of which none is left either: they borrow the table.
        unsafe { kernel::bindings::xa_destroy(self.xa.get()) };
        // Work that waits for its grace period refers to the queue by a bare pointer.
        crate::rcu::rcu_barrier();
    }
}

/// A key that was taken, for an object that is still to be made. Dropping it frees the key.
///
/// # Invariants
///
/// `key` of the table is reserved by us alone, as long as `entry` is `Some`.
pub struct Reservation<'a, T: Send + Sync + 'static> {
    table: &'a RcuTable<T>,
    key: u32,
    /// The memory of the entry to come, so that filling needs none.
    entry: Option<KBox<MaybeUninit<Entry<T>>>>,
}

impl<T: Send + Sync + 'static> Reservation<'_, T> {
    /// Returns the key.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Puts `value` at the key, and ends the reservation. Any context.
    pub fn fill(mut self, value: Arc<T>) -> Result {
        let entry = self.entry.take().ok_or(EINVAL)?;
        let entry = KBox::write(
            entry,
            Entry {
                value,
                release: Opaque::uninit(),
            },
        );
        // SAFETY: The work is valid for writes, and does not move: it is behind the box.
        unsafe { bindings::init_rcu_work(entry.release.get(), Some(Entry::<T>::release)) };
        let entry = KBox::into_raw(entry);
        // INVARIANT: If nothing fails, the table owns the entry.
        // SAFETY: `locked` holds the lock of `xa`, which is initialised. The slot exists, so no memory is needed.
        let old = self.table.locked(|xa| unsafe {
            kernel::bindings::__xa_store(
                xa,
                index(self.key),
                entry.cast::<c_void>(),
                kernel::bindings::GFP_ATOMIC,
            )
        });
        // SAFETY: `old` is what `__xa_store` returned.
        to_result(unsafe { kernel::bindings::xa_err(old) }).inspect_err(|_| {
            // SAFETY: It came from `into_raw` just now, and went nowhere.
            drop(unsafe { KBox::from_raw(entry) });
            self.free();
        })
    }

    /// Makes the key free again.
    fn free(&self) {
        let key = self.key;
        self.table.locked(|xa| {
            // SAFETY: `xa` is initialised, and its lock held. By the type invariant, and as `fill` failed
            // or was not called, there is nothing but our reservation.
            unsafe { kernel::bindings::__xa_erase(xa, index(key)) };
        });
    }
}

impl<T: Send + Sync + 'static> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        if self.entry.is_some() {
            self.free();
        }
    }
}

/// Returns the index of `key` in an xarray.
#[inline]
const fn index(key: u32) -> usize {
    // CAST: The kernel has no target whose `usize` is narrower than 32 bits.
    key as usize
}
