// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that is paged on demand.
//!
//! Nothing is pinned. A list says which pages are known to be where; whatever changes the process's
//! page tables first has them taken off the list. Who finds a page missing has it
//! [brought in](OnDemand::bring_in), which may sleep, and tries again.
//!
//! C header: [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

use crate::memory::{
    Fault,
    Intent,
    Memory, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
    bindings as kernel_bindings, container_of, current,
    mm::{
        Mm,
        MmWithUser, //
    },
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full, //
        },
    },
    types::Opaque,
};
use rdma_bindings as bindings;
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// An entry of a page that is not known.
const ABSENT: usize = 0;
/// The bit of an entry, which is a page's address, that says that it may be written to.
const WRITABLE: usize = 1;

/// Pages that are brought in at once, at the most.
const MAX_BATCH: usize = 512;

/// Pages that an access needs and does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The first, as an index into the list.
    first: usize,
    count: usize,
    intent: Intent,
}

impl Absence {
    /// Asks for more than the access needs: for all up to byte `end` of the memory, which accesses
    /// will need soon.
    pub fn extended(mut self, memory: &OnDemand, end: u64) -> Self {
        let pages = memory
            .first_offset
            .saturating_add(usize::try_from(end).unwrap_or(usize::MAX))
            .div_ceil(PAGE_SIZE);
        self.count = self.count.max(pages.saturating_sub(self.first));
        self
    }
}

/// A process's pages, as far as they are known.
struct Known {
    /// For each page [`ABSENT`], or its kernel address, with [`WRITABLE`].
    ///
    /// A page on it is mapped by the process, at the address that goes with its index, and for writing
    /// if the bit is set: before that changes, [`OnDemand::invalidate`] takes it off.
    pages: KVVec<usize>,
    /// The address space; [`None`] once the memory is released.
    mm: Option<ARef<Mm>>,
}

/// Memory of a process that is paged on demand.
///
/// # Invariants
///
/// - `notifier` is registered for the pages' addresses until `released` is set.
/// - `first_offset + len` bytes do not exceed the pages that the list was made for.
#[pin_data(PinnedDrop)]
pub struct OnDemand {
    /// The address of the first page.
    start: usize,
    first_offset: usize,
    len: u64,
    released: Atomic<u32>,
    #[pin]
    known: SpinLockBh<Known>,
    #[pin]
    notifier: Opaque<kernel_bindings::mmu_interval_notifier>,
}

// SAFETY: A notifier can be removed by any task.
unsafe impl Send for OnDemand {}
// SAFETY: What changes is under a lock, or atomic; the notifier's functions do their own locking.
unsafe impl Sync for OnDemand {}

impl OnDemand {
    const OPERATIONS: kernel_bindings::mmu_interval_notifier_ops =
        kernel_bindings::mmu_interval_notifier_ops {
            invalidate: Some(Self::invalidate),
            invalidate_start: None,
            invalidate_finish: None,
        };

    /// Prepares `len` bytes at the user address `start` of the current process.
    ///
    /// That something is mapped there is found out when it is accessed. Errors: `EINVAL` for no bytes, or
    /// for more than there are addresses; `ENOMEM`. Context: process, may sleep.
    pub(crate) fn new(start: u64, len: u64) -> Result<impl PinInit<Self, Error>> {
        let size = usize::try_from(len)?;
        let first = usize::try_from(start)?;
        let first_offset = first & PAGE_SIZE.wrapping_sub(1);
        let page = first.wrapping_sub(first_offset);
        let span = first_offset
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .ok_or(EINVAL)?;
        if size == 0 || page.checked_add(span).is_none() {
            return Err(EINVAL);
        }
        // A process chooses the size: it pays for it, and too much of it is no news.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        let pages = KVVec::from_elem(ABSENT, span >> PAGE_SHIFT, flags)?;
        let task = current!();
        let mm: ARef<Mm> = ARef::from(&**task.mm().ok_or(EINVAL)?);
        let space = mm.as_raw();
        let known = Known {
            pages,
            mm: Some(mm),
        };
        Ok(try_pin_init!(Self {
            start: page,
            first_offset,
            len,
            released: Atomic::new(0),
            known <- new_spin_lock_bh!(known),
            // INVARIANT: This registers it. From then on it is called back, so it comes last.
            notifier <- Opaque::try_ffi_init(
                move |notifier: *mut kernel_bindings::mmu_interval_notifier| {
                // SAFETY: `notifier` is zeroed memory for a notifier, which stays where it is until it
                // is removed by `release`, at the latest when `self` is dropped. The address space is
                // that of the current process, which `known` refers to, and the operations are static.
                kernel::error::to_result(unsafe {
                    notifier.write(pin_init::zeroed());
                    kernel_bindings::mmu_interval_notifier_insert(
                        notifier,
                        space,
                        page as c_ulong,
                        span as c_ulong,
                        &Self::OPERATIONS,
                    )
                })
            }),
        }? Error))
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The process's mapping of some pages changes: they are not known any more.
    ///
    /// # Safety
    ///
    /// Only the memory management may call this, with the notifier of an [`OnDemand`].
    unsafe extern "C" fn invalidate(
        notifier: *mut kernel_bindings::mmu_interval_notifier,
        range: *const kernel_bindings::mmu_notifier_range,
        sequence: c_ulong,
    ) -> bool {
        // SAFETY: The notifier is part of an `OnDemand`, which stays until after its removal, and that
        // waits for this function; the range is valid.
        let (this, start, end) = unsafe {
            let this = &*container_of!(Opaque::cast_from(notifier), Self, notifier);
            (this, (*range).start, (*range).end)
        };
        let first = start.saturating_sub(this.start) >> PAGE_SHIFT;
        let end = end.saturating_sub(this.start).div_ceil(PAGE_SIZE);
        let mut known = this.known.lock();
        // SAFETY: The notifier is valid, and this is under the lock that `bring_in` compares under.
        unsafe { bindings::mmu_interval_set_seq(notifier, sequence) };
        let end = end.min(known.pages.len());
        if let Some(pages) = known.pages.get_mut(first..end) {
            pages.fill(ABSENT);
        }
        true
    }

    /// Brings pages in, as many of `absence` as there are in a row from the first on. Others may take
    /// them away again at once.
    ///
    /// It may sleep for as long as whoever serves the process's page faults likes. Errors: `EFAULT` and
    /// others, if the process could not access the first page either. Context: process.
    pub fn bring_in(&self, absence: &Absence) -> Result {
        let mm = {
            let known = self.known.lock();
            known.mm.as_ref().and_then(|mm| mm.mmget_not_zero())
        };
        // The last reference tears the address space down, which is not for us to wait for.
        let mm = MmWithUser::into_mmput_async(mm.ok_or(EFAULT)?);
        let count = absence.count.min(MAX_BATCH);
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL)?;
        let offset = absence.first.checked_mul(PAGE_SIZE).ok_or(EFAULT)?;
        let address = self.start.checked_add(offset).ok_or(EFAULT)?;
        let flags = match absence.intent {
            Intent::Read => 0,
            Intent::Write => kernel_bindings::FOLL_WRITE,
        };

        // SAFETY: The notifier was registered, and the address space exists as long as `mm` does.
        let sequence = unsafe { kernel_bindings::mmu_interval_read_begin(self.notifier.get()) };
        let mut locked: c_int = 1;
        // SAFETY: The address space has users, of whom `mm` is one. The lock is taken, and released
        // unless the function has done that; there is room for `count` pages.
        let got = unsafe {
            kernel_bindings::mmap_read_lock(mm.as_raw());
            let got = kernel_bindings::get_user_pages_remote(
                mm.as_raw(),
                address,
                count,
                flags,
                pages.spare_capacity_mut().as_mut_ptr().cast(),
                &mut locked,
            );
            if locked != 0 {
                kernel_bindings::mmap_read_unlock(mm.as_raw());
            }
            got
        };
        let got = match usize::try_from(got) {
            Ok(0) => return Err(EFAULT),
            // CAST: A negative errno fits.
            Err(_) => return Err(Error::from_errno(got as c_int)),
            Ok(got) => got.min(count),
        };
        // SAFETY: That many page pointers were written, into the capacity.
        unsafe { pages.inc_len(got) };

        self.note(absence, sequence, &pages);

        for &page in pages.iter() {
            // SAFETY: The reference is from `get_user_pages_remote`. While the page is on the list the
            // process's mapping keeps it, and tells us before it lets go.
            unsafe { bindings::put_page(page) };
        }
        Ok(())
    }

    /// Puts pages on the list, unless the process's mapping has changed since `sequence`.
    fn note(&self, absence: &Absence, sequence: c_ulong, pages: &[*mut kernel_bindings::page]) {
        let mut known = self.known.lock();
        // SAFETY: The notifier is valid, and this is under the lock that `invalidate` holds.
        if unsafe { bindings::mmu_interval_read_retry(self.notifier.get(), sequence) } {
            return;
        }
        if known.mm.is_none() {
            return;
        }
        let writable = match absence.intent {
            Intent::Read => 0,
            Intent::Write => WRITABLE,
        };
        let entries = known.pages.iter_mut().skip(absence.first);
        for (entry, &page) in entries.zip(pages) {
            // SAFETY: The caller has a reference to the page; it has a kernel address, as pages that are
            // taken out of the direct mapping are not given to `get_user_pages_remote`.
            let address = unsafe { bindings::page_address(page) } as usize;
            // One that is known for writing stays so.
            if *entry & !WRITABLE != address || writable != 0 {
                *entry = address | writable;
            }
        }
    }

    /// Ends all access: when this returns, nobody accesses the pages any more. Context: process.
    pub fn release(&self) {
        if self.released.xchg(1, Full) != 0 {
            return;
        }
        let (pages, mm) = {
            let mut known = self.known.lock();
            (core::mem::take(&mut known.pages), known.mm.take())
        };
        // SAFETY: By the type invariant the notifier is registered, and the flag sees to it that it is
        // removed once. No lock is held that `invalidate` takes.
        unsafe { kernel_bindings::mmu_interval_notifier_remove(self.notifier.get()) };
        drop((pages, mm));
    }
}

// SAFETY: A page on the list is mapped by the process, hence allocated, as long as the lock is held: who
// unmaps it waits for `invalidate`. It is written to only if the process may. Each piece ends with its page
// or with what is left to do; before the first, all pages were seen to be there.
unsafe impl Memory for OnDemand {
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let end = offset.checked_add(len as u64).ok_or(Fault::OutOfRange)?;
        if end > self.len {
            return Err(Fault::OutOfRange);
        }
        if len == 0 {
            return Ok(());
        }
        // CAST: At most `self.len`, which was a `usize`. No overflow, by the type invariant.
        let start = self.first_offset.wrapping_add(offset as usize);
        let first = start >> PAGE_SHIFT;
        let past = start.wrapping_add(len).div_ceil(PAGE_SIZE);
        let known = self.known.lock();
        let pages = known.pages.get(first..past).ok_or(Fault::OutOfRange)?;
        let needed = match intent {
            Intent::Read => 0,
            Intent::Write => WRITABLE,
        };
        for (index, &entry) in (first..).zip(pages) {
            if entry == ABSENT || entry & needed != needed {
                return Err(Fault::Absent(Absence {
                    first: index,
                    count: past.wrapping_sub(index),
                    intent,
                }));
            }
        }
        let mut within = start & PAGE_SIZE.wrapping_sub(1);
        let mut done = 0usize;
        for &entry in pages {
            let piece = PAGE_SIZE.wrapping_sub(within).min(len.wrapping_sub(done));
            let address = (entry & !WRITABLE).wrapping_add(within);
            f(
                core::ptr::with_exposed_provenance_mut::<u8>(address),
                piece,
                done,
            );
            done = done.wrapping_add(piece);
            within = 0;
        }
        Ok(())
    }
}

#[pinned_drop]
impl PinnedDrop for OnDemand {
    fn drop(self: Pin<&mut Self>) {
        self.release();
    }
}
