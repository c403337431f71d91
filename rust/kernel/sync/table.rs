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

/// Room for an `Arc<T>` of any sized `T`: that is `repr(transparent)`, a pointer.
type Reference = MaybeUninit<*const c_void>;

/// An entry of a table: the table's own reference, and the work that gives it back after a grace period.
///
/// `value` is first so that the pointer that the xarray stores is as aligned as any allocation; `repr(C)`
/// only for that.
#[repr(C)]
struct Entry {
    value: Reference,
    release: Opaque<kernel::bindings::rcu_work>,
}

impl Entry {
    /// # Safety
    ///
    /// `self.value` holds an `Arc<T>`.
    #[inline]
    unsafe fn value<T>(&self) -> &Arc<T> {
        // SAFETY: The caller promises it.
        unsafe { &*self.value.as_ptr().cast::<Arc<T>>() }
    }

    /// Drops an entry whose grace period is over. Process.
    ///
    /// # Safety
    ///
    /// To be called by the workqueue only, with the `work` of the `release` field of an entry that holds an `Arc<T>`,
    /// and that [`Entries::remove`] owned and queued.
    unsafe extern "C" fn release<T: Send + Sync + 'static>(
        work: *mut kernel::bindings::work_struct,
    ) {
        // SAFETY: `work` is the field of an `rcu_work`, as the caller promises.
        let release = unsafe { container_of!(work, kernel::bindings::rcu_work, work) };
        let release = Opaque::cast_from(release.cast_const()).cast_mut();
        // SAFETY: That is the `release` field of an entry, as the caller promises.
        let entry = unsafe { container_of!(release, Self, release) };
        // SAFETY: The entry came from `KBox::into_raw`, and the one who queued it owned it. Nobody reads
        // it any more: it was in no table, and the readers that still saw it are over.
        let entry = unsafe { KBox::from_raw(entry) };
        // SAFETY: It holds an `Arc<T>`, as the caller promises, which is used no more.
        drop(unsafe { entry.value.as_ptr().cast::<Arc<T>>().read() });
    }
}

/// The entries of a table. Only [`RcuTable`] knows the type of the values, so this is compiled once.
///
/// # Invariants
///
/// - Each entry of `xa` is either reserved, or a pointer to an `Entry` from `KBox::into_raw` that
///   the table owns. Its `value` holds an `Arc<T>`, and the function of its work is `Entry::release::<T>`, of the table's
///   `T`. An entry that leaves the table is freed only after a grace period.
/// - `next` is used under the lock of `xa` only.
#[pin_data(PinnedDrop)]
struct Entries {
    #[pin]
    xa: Opaque<kernel::bindings::xarray>,
    /// Where the next cyclic search starts.
    next: UnsafeCell<u32>,
    queue: Arc<WorkQueue>,
}

impl Entries {
    fn new(queue: Arc<WorkQueue>) -> impl PinInit<Self> {
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
        })
    }

    /// The entry at `key`. It stays as long as the RCU read lock is held.
    #[inline]
    fn read<'a>(&'a self, key: u32, _rcu: &'a rcu::Guard) -> Option<&'a Entry> {
        // SAFETY: `xa` is initialised, by the type invariant.
        let entry = unsafe { kernel::bindings::xa_load(self.xa.get(), index(key)) };
        // SAFETY: A reserved entry reads as null. Any other is an `Entry` by the type invariant, which is not freed
        // before the RCU read lock is released, that is, before the end of `'a`.
        unsafe { entry.cast::<Entry>().as_ref() }
    }

    /// The first entry at or, if not `inclusive`, behind `at`, which becomes its key, and up to `last`. It stays as long as
    /// the RCU read lock is held.
    #[inline(never)]
    fn find<'a>(
        &'a self,
        at: &mut usize,
        last: u32,
        inclusive: bool,
        _rcu: &'a rcu::Guard,
    ) -> Option<&'a Entry> {
        let find = if inclusive {
            kernel::bindings::xa_find
        } else {
            kernel::bindings::xa_find_after
        };
        // SAFETY: `xa` is initialised, and `at` valid for reads and writes.
        let entry = unsafe { find(self.xa.get(), at, index(last), kernel::bindings::XA_PRESENT) };
        // SAFETY: Reserved entries are not found, so by the type invariant this is null or an `Entry`. It is not freed
        // before the RCU read lock is released, that is, before the end of `'a`.
        unsafe { entry.cast::<Entry>().as_ref() }
    }

    /// Reserves the first free key of `range` behind the last one that was given out, round and round.
    fn reserve_cyclic(&self, range: RangeInclusive<u32>) -> Result<Slot<'_>> {
        let memory = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
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
        Ok(Slot {
            entries: self,
            key,
            memory: Some(memory),
        })
    }

    /// Reserves `key`.
    fn reserve(&self, key: u32) -> Result<Slot<'_>> {
        let memory = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
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
        Ok(Slot {
            entries: self,
            key,
            memory: Some(memory),
        })
    }

    /// Removes the entry at `key`; if `value` is `Some`, only if it refers to that. Any context.
    #[inline(never)]
    fn remove(&self, key: u32, value: Option<*const c_void>) {
        let entry = self.locked(|xa| {
            // SAFETY: `xa` is initialised, and its lock held.
            let entry = unsafe { kernel::bindings::xa_load(xa, index(key)) }.cast::<Entry>();
            // SAFETY: By the type invariant this is null or an entry, which stays as long as we hold the
            // lock, and whose reference is initialised.
            let found = unsafe { entry.as_ref().map(|entry| entry.value.assume_init()) };
            if found.is_none() || value.is_some() && found != value {
                return ptr::null_mut();
            }
            // SAFETY: `xa` is initialised, and its lock held.
            unsafe { kernel::bindings::__xa_erase(xa, index(key)) };
            entry
        });
        if entry.is_null() {
            return;
        }
        // SAFETY: The entry was the table's, and is ours since it left the table. Its work is initialised, and queued only
        // here, once. The workqueue outlives it: a table waits, when it is dropped, until such work has reached the queue,
        // and the queue runs what it has before it goes. `Entry::release` frees the entry.
        unsafe {
            kernel::bindings::queue_rcu_work(self.queue.as_ptr(), (*entry).release.get());
        }
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
}

#[pinned_drop]
impl PinnedDrop for Entries {
    fn drop(self: Pin<&mut Self>) {
        let mut at = 0;
        while self
            .find(&mut at, u32::MAX, true, &rcu::read_lock())
            .is_some()
        {
            // CAST: Keys are 32 bits wide.
            self.remove(at as u32, None);
        }
        // SAFETY: `xa` is initialised, and nobody uses the table any more. Only reservations that were
        // forgotten (`mem::forget`) can be left.
        unsafe { kernel::bindings::xa_destroy(self.xa.get()) };
        // Work that waits for its grace period refers to the queue by a bare pointer.
        crate::rcu::rcu_barrier();
    }
}

/// A key that was taken. Dropping it frees the key.
///
/// # Invariants
///
/// `key` of the table is reserved by us alone, as long as `memory` is `Some`.
struct Slot<'a> {
    entries: &'a Entries,
    key: u32,
    /// The memory of the entry to come, so that filling needs none.
    memory: Option<KBox<MaybeUninit<Entry>>>,
}

impl Slot<'_> {
    /// Puts `value` at the key, and ends the reservation. `value` is handed over unless there is an error.
    ///
    /// # Safety
    ///
    /// `value` holds an `Arc<T>`, of the table's `T`, and `release` is `Entry::release::<T>`.
    unsafe fn fill(
        &mut self,
        value: Reference,
        release: unsafe extern "C" fn(*mut kernel::bindings::work_struct),
    ) -> Result {
        let entry = self.memory.take().ok_or(EINVAL)?;
        let entry = KBox::write(
            entry,
            Entry {
                value,
                release: Opaque::uninit(),
            },
        );
        // SAFETY: The work is valid for writes, and does not move: it is behind the box.
        unsafe { bindings::init_rcu_work(entry.release.get(), Some(release)) };
        let entry = KBox::into_raw(entry);
        // INVARIANT: If nothing fails, the table owns the entry.
        // SAFETY: `locked` holds the lock of `xa`, which is initialised. The slot exists, so no memory is needed.
        let old = self.entries.locked(|xa| unsafe {
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
        self.entries.locked(|xa| {
            // SAFETY: `xa` is initialised, and its lock held. The key is still reserved by us alone, as `fill` failed or was
            // not called.
            unsafe { kernel::bindings::__xa_erase(xa, index(key)) };
        });
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.memory.is_some() {
            self.free();
        }
    }
}

/// A table from `u32` to `Arc<T>`.
///
/// Looking up takes no lock. The table keeps its reference to an object that was removed until a grace period is
/// over; then a work item in process context gives it back.
///
/// Dropping the table (process) drops what is in it, and waits for a grace period.
///
/// # Invariants
///
/// `T` is the type of the values of `entries`.
#[pin_data]
pub struct RcuTable<T: Send + Sync + 'static> {
    #[pin]
    entries: Entries,
    _values: PhantomData<UnsafeCell<Arc<T>>>,
}

// SAFETY: The table owns `Arc<T>`s, which are `Send` as `T` is `Send + Sync`.
unsafe impl<T: Send + Sync + 'static> Send for RcuTable<T> {}
// SAFETY: All changes are made under the lock of `entries.xa`; reading is RCU's.
unsafe impl<T: Send + Sync + 'static> Sync for RcuTable<T> {}

impl<T: Send + Sync + 'static> RcuTable<T> {
    /// Makes an empty table, which gives back its references on `queue`: one whose work may sleep. As long as an
    /// object of the table owns the queue, somebody else must, too.
    pub fn new(queue: Arc<WorkQueue>) -> impl PinInit<Self> {
        // INVARIANT: There is no entry.
        pin_init!(Self {
            entries <- Entries::new(queue),
            _values: PhantomData,
        })
    }

    /// Returns the object at `key`, uncounted: whatever happens to the table, it stays as long as the RCU read lock is
    /// held. Any context.
    #[inline]
    pub fn read<'a>(&'a self, key: u32, rcu: &'a rcu::Guard) -> Option<&'a Arc<T>> {
        let found = self.entries.read(key, rcu);
        // SAFETY: By the type invariant the value is an `Arc<T>`.
        found.map(|entry| unsafe { entry.value() })
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
            let found = self.entries.find(&mut at, *keys.end(), inclusive, rcu);
            inclusive = false;
            // SAFETY: By the type invariant the value is an `Arc<T>`.
            found.map(|entry| unsafe { entry.value() })
        })
    }

    /// Puts `value` at `key`; `EBUSY` if something is there. Process.
    pub fn insert(&self, key: u32, value: Arc<T>) -> Result {
        self.reserve(key)?.fill(value)
    }

    /// Takes the first free key of `range`, from behind the last one that was given out, round and round, for an object
    /// that is still to be made; `EBUSY` if there is none. Process.
    pub fn reserve_cyclic(&self, range: RangeInclusive<u32>) -> Result<Reservation<'_, T>> {
        let slot = self.entries.reserve_cyclic(range)?;
        // SAFETY: It is one of ours.
        Ok(unsafe { Reservation::of(slot) })
    }

    /// Takes `key` for an object that is still to be made; `EBUSY` if something is there. Process.
    pub fn reserve(&self, key: u32) -> Result<Reservation<'_, T>> {
        let slot = self.entries.reserve(key)?;
        // SAFETY: It is one of ours.
        Ok(unsafe { Reservation::of(slot) })
    }

    /// Takes away what is at `key` if it is `value`. Any context.
    pub fn remove_if(&self, key: u32, value: &Arc<T>) {
        const { assert!(size_of::<Arc<T>>() == size_of::<Reference>()) };
        // SAFETY: An `Arc<T>` is a pointer (see [`Reference`]), and initialised.
        let value = unsafe { ptr::from_ref(value).cast::<*const c_void>().read() };
        self.entries.remove(key, Some(value));
    }
}

/// A key that was taken, for an object that is still to be made. Dropping it frees the key.
///
/// # Invariants
///
/// `slot` belongs to an `RcuTable<T>`.
pub struct Reservation<'a, T: Send + Sync + 'static> {
    slot: Slot<'a>,
    _table: PhantomData<&'a RcuTable<T>>,
}

impl<'a, T: Send + Sync + 'static> Reservation<'a, T> {
    /// # Safety
    ///
    /// `slot` belongs to an `RcuTable<T>`.
    unsafe fn of(slot: Slot<'a>) -> Self {
        // INVARIANT: By the promise of the caller.
        Self {
            slot,
            _table: PhantomData,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> u32 {
        self.slot.key
    }

    /// Puts `value` at the key, and ends the reservation. It needs no memory, so no error is expected; after one the key is
    /// free, and the reference is dropped. Any context.
    pub fn fill(mut self, value: Arc<T>) -> Result {
        let mut reference = Reference::uninit();
        const { assert!(size_of::<Arc<T>>() == size_of::<Reference>()) };
        const { assert!(align_of::<Arc<T>>() <= align_of::<Reference>()) };
        // SAFETY: There is room for an `Arc<T>`.
        unsafe { reference.as_mut_ptr().cast::<Arc<T>>().write(value) };
        // SAFETY: The value is an `Arc<T>`, and by the type invariant so are the table's.
        unsafe { self.slot.fill(reference, Entry::release::<T>) }.inspect_err(|_| {
            // SAFETY: The value is an `Arc<T>`, and was not handed over.
            drop(unsafe { reference.as_ptr().cast::<Arc<T>>().read() });
        })
    }
}

/// Returns the index of `key` in an xarray.
#[inline]
const fn index(key: u32) -> usize {
    // CAST: The kernel has no target whose `usize` is narrower than 32 bits.
    key as usize
}
