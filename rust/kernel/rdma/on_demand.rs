// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that is paged on demand: a range of it, or all.

pub use crate::{
    memory::MissingPages,
    page_list::Effort, //
};

use crate::{
    address_space::AddressSpace,
    memory::{
        Fault,
        Intent,
        Memory,
        Visit, //
    },
    page_list::PageList, //
};
use kernel::{
    current,
    mm::MmWithUser,
    prelude::*,
    sync::Arc, //
};

impl MissingPages {
    /// Asks for more than the access needs: for all up to byte `end` of the memory, which accesses
    /// will need soon.
    pub fn extended(mut self, memory: &OnDemand, end: u64) -> Self {
        if let Ok(all) = memory.span(0, end, self.intent) {
            self.count = self.count.max(all.count.saturating_sub(self.first));
        }
        self
    }

    /// Whether it is about no page.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rest of it, without its first `pages`.
    pub fn without_first(mut self, pages: usize) -> Self {
        let pages = pages.min(self.count);
        self.first = self.first.saturating_add(pages);
        self.count = self.count.saturating_sub(pages);
        self
    }
}

#[derive(Clone)]
enum Extent {
    Range(Arc<PageList>),
    All(Arc<AddressSpace>),
}

/// Memory of a process that is paged on demand. Copies are of the same memory.
#[derive(Clone)]
pub struct OnDemand(Extent);

impl OnDemand {
    /// `len` bytes at the user address `start` of the current process.
    ///
    /// That something is mapped there is found out when it is accessed. Errors: `EINVAL` for no bytes, or
    /// for addresses that no process has; `ENOMEM`. Context: process, may sleep.
    pub(crate) fn range(start: u64, len: u64) -> Result<Self> {
        let list = with_current(|mm| PageList::new(mm, start, len))?;
        Ok(Self(Extent::Range(list)))
    }

    /// All memory of the current process, now and later: byte `n` is at the user address `n`.
    /// Errors: `ENOMEM`. Context: process, may sleep.
    pub(crate) fn all() -> Result<Self> {
        Ok(Self(Extent::All(with_current(AddressSpace::new)?)))
    }

    /// Bytes; `u64::MAX` for all memory.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Extent::Range(list) => list.len(),
            Extent::All(_) => u64::MAX,
        }
    }

    /// Whether it is the same memory: of one registration.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Extent::Range(one), Extent::Range(other)) => Arc::ptr_eq(one, other),
            (Extent::All(one), Extent::All(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The pages of `offset .. offset + len`, to be faulted in whether they are there or not.
    /// Errors: out of range, if there are no such bytes.
    pub fn span(&self, offset: u64, len: u64, intent: Intent) -> Result<MissingPages, Fault> {
        match &self.0 {
            Extent::Range(list) => list.span(offset, len, intent),
            Extent::All(space) => space.span(offset, len, intent),
        }
    }

    /// Faults pages in, some of `missing`, from the first on. Others may take them away again at once.
    /// Returns how many, at least 1.
    ///
    /// It may sleep for as long as the server of the process's page faults likes. Errors: `EFAULT` and
    /// others, if the process could not access the first page either, or if the memory is released.
    /// Context: process.
    pub fn fault_in(&self, missing: &MissingPages, effort: Effort) -> Result<usize> {
        match &self.0 {
            Extent::Range(list) => list.fault_in(missing, effort),
            Extent::All(space) => space.fault_in(missing, effort),
        }
    }

    /// Ends all access: when this returns, nobody accesses the pages any more. Context: process.
    #[inline]
    pub fn release(&self) {
        match &self.0 {
            Extent::Range(list) => list.release(),
            Extent::All(space) => space.release(),
        }
    }
}

/// Calls `f` with the address space of the current process. Errors: `EINVAL` if it has none.
fn with_current<R>(f: impl FnOnce(&MmWithUser) -> Result<R>) -> Result<R> {
    let task = current!();
    f(task.mm().ok_or(EINVAL)?)
}

// SAFETY: The pieces are those of another memory.
unsafe impl Memory for OnDemand {
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        match &self.0 {
            Extent::Range(list) => list.pieces(offset, len, intent, f),
            Extent::All(space) => space.pieces(offset, len, intent, f),
        }
    }
}
