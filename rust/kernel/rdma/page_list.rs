// SPDX-License-Identifier: GPL-2.0

//! A list of pages of a process, as far as they are known.
//!
//! Nothing is pinned. The list says which pages are known to be where; whatever changes the process's
//! page tables first has them taken off the list. A thread that finds a page missing has it
//! [faulted in](PageList::fault_in), which may sleep, and tries again.
//!
//! C header: [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

use crate::memory::{
    Fault,
    Intent,
    Memory,
    MissingPages,
    Visit, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
    bindings as kernel_bindings, container_of,
    mm::{
        virt::VmaRef,
        Mm,
        MmWithUser,
        MmWithUserAsync, //
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
        Arc, //
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

/// Entries that are cleared under the lock at once, at the most: a process may unmap more than can be cleared
/// while bottom halves wait.
const CLEARED_AT_ONCE: usize = 4096;

/// Pages that are faulted in at once, at the most.
pub(crate) const MAX_BATCH: usize = 512;

/// How often pages are looked up, at the most, if the process's mapping changes meanwhile.
const TRIES: usize = 4;

/// Which pages are faulted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Those that the process could access, as if it did.
    Fault,
    /// Those that the process has mapped already.
    Present,
}

/// The first address behind those that the owner of `mm` may have.
pub(crate) fn end_of(mm: &MmWithUser) -> usize {
    // SAFETY: The address space exists; the field does not change.
    unsafe { (*mm.as_raw()).__bindgen_anon_1.task_size }
}

/// The address space with one more user. Errors: `EFAULT` if the process is gone or the memory released. Context: any.
pub(crate) fn used(mm: &Option<ARef<Mm>>) -> Result<ARef<MmWithUserAsync>> {
    let mm = mm.as_ref().and_then(|mm| mm.mmget_not_zero());
    // The last reference tears the address space down, which is not for us to wait for.
    Ok(MmWithUser::into_mmput_async(mm.ok_or(EFAULT)?))
}

/// How many of `count` pages from `address` on are before the process's next mapping. Context: process.
pub(crate) fn unmapped(mm: &MmWithUser, address: usize, count: usize) -> usize {
    let _lock = mm.mmap_read_lock();
    // SAFETY: The lock is held.
    let next = unsafe { kernel_bindings::find_vma(mm.as_raw(), address) };
    if next.is_null() {
        return count;
    }
    // SAFETY: Not null, so it is a mapping, which stays as it is as long as the lock is held.
    let next = unsafe { VmaRef::from_raw(next) };
    count.min(next.start().saturating_sub(address) >> PAGE_SHIFT)
}

/// Has the process of `mm` access up to `count` pages from `address` on, with `flags` of
/// `get_user_pages_remote`. Puts them into `pages`, as many as there is room for, each with a reference.
/// Returns how many, at least 1. Errors: those of the first.
fn look_up(
    mm: &MmWithUser,
    address: usize,
    count: usize,
    flags: c_uint,
    pages: &mut KVVec<*mut kernel_bindings::page>,
) -> Result<usize> {
    pages.clear();
    let room = pages.spare_capacity_mut();
    let count = count.min(room.len());
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
            room.as_mut_ptr().cast(),
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
    Ok(got)
}

/// A process's pages, as far as they are known.
struct Known {
    /// For each page [`ABSENT`], or its kernel address, with [`WRITABLE`].
    ///
    /// A page on it is mapped by the process, at the address that goes with its index, and for writing
    /// if the bit is set: before that changes, [`PageList::invalidate`] takes it off.
    pages: KVVec<usize>,
    /// The address space; [`None`] once the memory is released.
    mm: Option<ARef<Mm>>,
}

impl Known {
    /// The entries of the pages of `span`, all of them known. Errors: which are not; out of range if the
    /// memory is released.
    fn present(&self, span: &MissingPages) -> Result<&[usize], Fault> {
        let past = span.first.saturating_add(span.count);
        let pages = self.pages.get(span.first..past).ok_or(Fault::OutOfRange)?;
        let needed = match span.intent {
            Intent::Read => 0,
            Intent::Write => WRITABLE,
        };
        for (index, &entry) in (span.first..).zip(pages) {
            if entry == ABSENT || entry & needed != needed {
                return Err(Fault::Absent(MissingPages {
                    first: index,
                    count: past.wrapping_sub(index),
                    intent: span.intent,
                }));
            }
        }
        Ok(pages)
    }
}

/// The contents of a list before it forgot them. Drop: process context, no lock held.
pub(crate) struct Forgotten {
    _pages: KVVec<usize>,
    _mm: Option<ARef<Mm>>,
}

/// Charges allocations meanwhile to the owner of an address space, whichever task is the current one.
pub(crate) struct Charge {
    group: *mut kernel_bindings::mem_cgroup,
    before: *mut kernel_bindings::mem_cgroup,
}

impl Charge {
    /// Context: process.
    pub(crate) fn to(mm: &MmWithUser) -> Self {
        // SAFETY: The address space exists. The result comes with a reference, or is null where there are no
        // memory cgroups, which is as good for the second function.
        unsafe {
            let group = bindings::get_mem_cgroup_from_mm(mm.as_raw());
            let before = bindings::set_active_memcg(group);
            Self { group, before }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: `before` is what the current task had, and its own affair. The reference of `group` is ours.
        // This is the task that made `self`, which is not `Send`.
        unsafe {
            bindings::set_active_memcg(self.before);
            bindings::mem_cgroup_put(self.group);
        }
    }
}

/// A range of a process's memory, and what is known of its pages.
///
/// # Invariants
///
/// - `notifier` is registered for the pages' addresses until `released` is set.
/// - `first_offset + len` bytes do not exceed the pages that the list was made for.
#[pin_data(PinnedDrop)]
pub(crate) struct PageList {
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
unsafe impl Send for PageList {}
// SAFETY: All that changes is under a lock, or atomic; the notifier's functions do their own locking.
unsafe impl Sync for PageList {}

impl PageList {
    const OPERATIONS: kernel_bindings::mmu_interval_notifier_ops =
        kernel_bindings::mmu_interval_notifier_ops {
            invalidate: Some(Self::invalidate),
            invalidate_start: None,
            invalidate_finish: None,
        };

    /// Prepares `len` bytes at the user address `start` of the address space `mm`, whose owner pays for the
    /// list.
    ///
    /// That something is mapped there is found out when it is accessed. Errors: `EINVAL` for no bytes, or
    /// for addresses that no process has; `ENOMEM`. Context: process, may sleep.
    pub(crate) fn new(mm: &MmWithUser, start: u64, len: u64) -> Result<Arc<Self>> {
        let size = usize::try_from(len)?;
        let first = usize::try_from(start)?;
        let first_offset = first & PAGE_SIZE.wrapping_sub(1);
        let page = first.wrapping_sub(first_offset);
        let span = first_offset
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .ok_or(EINVAL)?;
        // An address with a tag (of x86's LAM, say) is one of these: it would be paged in without its tag, but
        // the notifier would wait for changes at the address with it.
        let end = page.checked_add(span).ok_or(EINVAL)?;
        if size == 0 || end > end_of(mm) {
            return Err(EINVAL);
        }
        // A process chooses the size and is charged for it, so a failure deserves no warning of the kernel.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        let _charge = Charge::to(mm);
        let pages = KVVec::from_elem(ABSENT, span >> PAGE_SHIFT, flags)?;
        let space = mm.as_raw();
        let known = Known {
            pages,
            mm: Some(ARef::from(&**mm)),
        };
        let this = try_pin_init!(Self {
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
                // `mm`, which has users and which `known` refers to, and the operations are static.
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
        }? Error);
        Arc::pin_init(this, flags)
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The process's mapping of some pages changes: they are not known any more.
    ///
    /// # Safety
    ///
    /// Only the memory management may call this, with the notifier of a [`PageList`].
    unsafe extern "C" fn invalidate(
        notifier: *mut kernel_bindings::mmu_interval_notifier,
        range: *const kernel_bindings::mmu_notifier_range,
        sequence: c_ulong,
    ) -> bool {
        // SAFETY: The notifier is part of a `PageList`, which stays until after its removal, and that
        // waits for this function; the range is valid.
        let (this, start, end) = unsafe {
            let this = &*container_of!(Opaque::cast_from(notifier), Self, notifier);
            (this, (*range).start, (*range).end)
        };
        let mut first = start.saturating_sub(this.start) >> PAGE_SHIFT;
        let end = end.saturating_sub(this.start).div_ceil(PAGE_SIZE);
        let mut known = this.known.lock();
        // SAFETY: The notifier is valid, and this is under the lock that `fault_in` compares under.
        unsafe { bindings::mmu_interval_set_seq(notifier, sequence) };
        // From here on nothing is put on the list until this returns: a thread with an earlier sequence finds it
        // changed, and `mmu_interval_read_begin` hands out this one only when all invalidations are over. So
        // the lock may be released between two pieces. A page that is not cleared yet is accessed
        // meanwhile, which does no harm: the mapping changes only after this has returned.
        loop {
            // Anew each time: nothing is left of the list if it is released meanwhile.
            let past = end
                .min(known.pages.len())
                .min(first.saturating_add(CLEARED_AT_ONCE));
            if let Some(pages) = known.pages.get_mut(first..past) {
                pages.fill(ABSENT);
            }
            first = past;
            if past >= end.min(known.pages.len()) {
                return true;
            }
            drop(known);
            known = this.known.lock();
        }
    }

    /// Pages of the range.
    pub(crate) fn pages(&self) -> usize {
        // CAST: It was a `usize`. No overflow, by the type invariant.
        self.first_offset
            .wrapping_add(self.len as usize)
            .div_ceil(PAGE_SIZE)
    }

    /// The pages of `offset .. offset + len`. Errors: it is not within the range.
    pub(crate) fn span(
        &self,
        offset: u64,
        len: u64,
        intent: Intent,
    ) -> Result<MissingPages, Fault> {
        let end = offset.checked_add(len).ok_or(Fault::OutOfRange)?;
        if end > self.len {
            return Err(Fault::OutOfRange);
        }
        // CAST: At most `self.len`, which was a `usize`. No overflow, by the type invariant.
        let start = self.first_offset.wrapping_add(offset as usize);
        let first = start >> PAGE_SHIFT;
        let past = match len {
            0 => first,
            _ => start.wrapping_add(len as usize).div_ceil(PAGE_SIZE),
        };
        Ok(MissingPages {
            first,
            count: past.saturating_sub(first),
            intent,
        })
    }

    /// The user address of a page.
    fn address_of(&self, page: usize) -> Result<usize> {
        let offset = page.checked_mul(PAGE_SIZE).ok_or(EFAULT)?;
        self.start.checked_add(offset).ok_or(EFAULT)
    }

    /// Whether nobody accesses the pages any more, and nobody will.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.known.lock().mm.is_none()
    }

    /// Faults pages in: as many of `missing` as there are in a row from the first on, and no more than
    /// [`MAX_BATCH`]. Others may take them away again at once. Returns how many of them are done with, at
    /// least 1: with [`Effort::Present`], those that are not there are passed over.
    ///
    /// It may sleep for as long as the server of the process's page faults likes. Errors: `EFAULT` and
    /// others, if the process could not access the first page either, or if the memory is released.
    /// Context: process.
    pub(crate) fn fault_in(&self, missing: &MissingPages, effort: Effort) -> Result<usize> {
        let mm = used(&self.known.lock().mm)?;
        let mut wanted = *missing;
        wanted.count = wanted
            .count
            .min(MAX_BATCH)
            .min(self.pages().saturating_sub(wanted.first));
        // Page tables and the page cache of files.
        let _charge = Charge::to(&mm);
        let mut pages = KVVec::with_capacity(wanted.count, GFP_KERNEL)?;
        match effort {
            Effort::Fault => self.get_pages(&mm, &wanted, 0, &mut pages),
            Effort::Present => {
                let count = wanted.count;
                let no_fault = kernel_bindings::FOLL_NOFAULT;
                while !wanted.is_empty() {
                    let mut got = self.get_pages(&mm, &wanted, no_fault, &mut pages);
                    if got.is_err() {
                        let hole = unmapped(&mm, self.address_of(wanted.first)?, wanted.count);
                        if hole > 0 {
                            wanted = wanted.without_first(hole);
                            continue;
                        }
                    }
                    if got.is_err() && wanted.intent == Intent::Write {
                        // Not for writing: for reading, one by one.
                        let one = MissingPages {
                            count: 1,
                            intent: Intent::Read,
                            ..wanted
                        };
                        got = self.get_pages(&mm, &one, no_fault, &mut pages);
                    }
                    wanted = wanted.without_first(got.unwrap_or(1));
                }
                Ok(count)
            }
        }
    }

    /// Has the process access pages, with `flags` of `get_user_pages_remote`, and puts them on the list.
    /// Returns how many there were in a row from the first on, at least 1.
    ///
    /// `pages` is empty, with room for as many, and stays so.
    fn get_pages(
        &self,
        mm: &MmWithUser,
        missing: &MissingPages,
        mut flags: c_uint,
        pages: &mut KVVec<*mut kernel_bindings::page>,
    ) -> Result<usize> {
        let address = self.address_of(missing.first)?;
        if missing.intent == Intent::Write {
            flags |= kernel_bindings::FOLL_WRITE;
        }
        let mut count = missing.count;
        for _ in 0..TRIES {
            // SAFETY: The notifier was registered, and the address space exists as long as `mm` does.
            let sequence = unsafe { kernel_bindings::mmu_interval_read_begin(self.notifier.get()) };
            count = look_up(mm, address, missing.count, flags, pages)?;
            let noted = self.note(missing, sequence, pages);
            for &page in pages.iter() {
                // SAFETY: The reference is from `look_up`. While the page is on the list the process's
                // mapping keeps it, and tells us before it lets go.
                unsafe { bindings::put_page(page) };
            }
            pages.clear();
            if noted {
                break;
            }
            // The lookup itself may have changed it: it gives the process a copy of a page that it shares with a child,
            // or with others as the page of zeros. Next time there is nothing left to copy.
        }
        Ok(count)
    }

    /// Puts pages on the list. Returns `false` instead if the process's mapping has changed since `sequence`.
    fn note(
        &self,
        missing: &MissingPages,
        sequence: c_ulong,
        pages: &[*mut kernel_bindings::page],
    ) -> bool {
        let mut known = self.known.lock();
        if known.mm.is_none() {
            return true;
        }
        // SAFETY: The notifier is valid, and this is under the lock that `invalidate` holds.
        if unsafe { bindings::mmu_interval_read_retry(self.notifier.get(), sequence) } {
            return false;
        }
        let writable = match missing.intent {
            Intent::Read => 0,
            Intent::Write => WRITABLE,
        };
        let entries = known.pages.iter_mut().skip(missing.first);
        for (entry, &page) in entries.zip(pages) {
            // SAFETY: The caller has a reference to the page; it has a kernel address, as pages that are
            // taken out of the direct mapping are not given to `get_user_pages_remote`.
            let address = unsafe { bindings::page_address(page) } as usize;
            // One that is known for writing stays so.
            if *entry & !WRITABLE != address || writable != 0 {
                *entry = address | writable;
            }
        }
        true
    }

    /// Whether no page is known.
    pub(crate) fn is_blank(&self) -> bool {
        self.known.lock().pages.iter().all(|&entry| entry == ABSENT)
    }

    /// Whether all pages of `offset .. offset + len` are known. Errors: which are not.
    pub(crate) fn check(&self, offset: u64, len: u64, intent: Intent) -> Result<(), Fault> {
        let span = self.span(offset, len, intent)?;
        self.known.lock().present(&span).map(|_| ())
    }

    /// Ends all access: when this returns, nobody accesses the pages any more.
    /// [`PageList::release`] does the rest. Context: process or softirq.
    pub(crate) fn forget(&self) -> Forgotten {
        let mut known = self.known.lock();
        Forgotten {
            _pages: core::mem::take(&mut known.pages),
            _mm: known.mm.take(),
        }
    }

    /// Ends all access, and listens to the process's mapping no more. Context: process.
    pub(crate) fn release(&self) {
        let forgotten = self.forget();
        if self.released.xchg(1, Full) == 0 {
            // SAFETY: By the type invariant the notifier is registered, and the flag sees to it that it is
            // removed once. No lock is held that `invalidate` takes.
            unsafe { kernel_bindings::mmu_interval_notifier_remove(self.notifier.get()) };
        }
        drop(forgotten);
    }
}

// SAFETY: A page on the list is mapped by the process, hence allocated, as long as the lock is held: a thread that
// unmaps it waits for `invalidate`. It is written to only if the process may. Each piece ends with its page
// or with what is left to do; before the first, all pages were seen to be there.
unsafe impl Memory for PageList {
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        let span = self.span(offset, len as u64, intent)?;
        if len == 0 {
            return Ok(());
        }
        let known = self.known.lock();
        let pages = known.present(&span)?;
        // CAST: At most `self.len`, which was a `usize`. No overflow, by the type invariant.
        let start = self.first_offset.wrapping_add(offset as usize);
        let mut within = start & PAGE_SIZE.wrapping_sub(1);
        let mut done = 0usize;
        for &entry in pages {
            let piece = PAGE_SIZE.wrapping_sub(within).min(len.wrapping_sub(done));
            let address = (entry & !WRITABLE).wrapping_add(within);
            f.visit(
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
impl PinnedDrop for PageList {
    fn drop(self: Pin<&mut Self>) {
        self.release();
    }
}
