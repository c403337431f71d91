// SPDX-License-Identifier: GPL-2.0

//! A checked range of memory: what may be accessed, where its bytes are, and copies from and into it.

pub(crate) use rdma::access::Access;

use crate::memory::key::{
    Backing,
    Mr, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use net::Segment;
use rdma::{
    memory::{
        self,
        Exchange,
        KernelBuffer,
        Memory, //
    },
    mr::{
        Activation,
        FastPages,
        UserMemory,
        UserRegion, //
    },
    on_demand::{
        Effort,
        MissingPages,
        OnDemand, //
    }, //
};

/// Why memory is not touched.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Bad key, protection domain, state, right or range.
    Protection,
    /// The XRC SRQ that a request names is not there, or is of another domain.
    NoQueue,
    /// Pages are not there. Copies are to be made anew.
    Absent(Absent),
}

/// How long a worker waits when pages cannot be brought in now: the cgroup of their process has no memory left, say. Not
/// less: for each try in a cgroup where nothing can be killed, the kernel logs a report.
const PAUSE: Delta = Delta::from_millis(100);

/// Pages of a region that are not there.
#[derive(Clone)]
pub(crate) struct Absent {
    memory: OnDemand,
    missing: MissingPages,
}

impl PartialEq for Absent {
    fn eq(&self, other: &Self) -> bool {
        self.memory.is_same(&other.memory) && self.missing == other.missing
    }
}

impl Absent {
    /// Brings them in, or the first of them; or just waits a while, if that cannot be done now. Errors: the process
    /// could not access them either. Context: process, may sleep for as long as the server of the process's page
    /// faults likes.
    pub(crate) fn fault_in(&self) -> Result {
        match self.memory.fault_in(&self.missing, Effort::Fault) {
            Ok(_) => Ok(()),
            // The process itself would not be told, but would try again. So does the access, which finds them absent.
            Err(error) if [ENOMEM, EAGAIN, EINTR].contains(&error) => {
                fsleep(PAUSE);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The addresses that a key gives access to, and the rights.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

impl Range {
    /// Errors: `EINVAL` if the last byte had no address.
    pub(super) fn of(region: &UserRegion) -> Result<Self> {
        let len = region.memory.len();
        region
            .iova
            .checked_add(len.saturating_sub(1))
            .ok_or(EINVAL)?;
        Ok(Self {
            start: region.iova,
            len,
            access: region.access,
        })
    }

    /// How far from the start `va .. va + len` is, if it may be accessed as `need` says.
    pub(super) fn offset_of(&self, va: u64, len: u64, need: Access) -> Result<u64, Fault> {
        if !self.access.contains(need) {
            return Err(Fault::Protection);
        }
        let offset = va.checked_sub(self.start).ok_or(Fault::Protection)?;
        let end = offset.checked_add(len).ok_or(Fault::Protection)?;
        if end > self.len {
            return Err(Fault::Protection);
        }
        Ok(offset)
    }

    /// Gives access to nothing any more.
    pub(super) fn end(&mut self) {
        self.len = 0;
        self.access = Access::NONE;
    }
}

/// Where the bytes are.
#[derive(Clone)]
pub(super) enum Source {
    User(UserMemory),
    Dma(KernelBuffer),
    Fast(Arc<FastPages>, Activation),
}

/// Copies from or into memory, as a closure does. A trait instead of a `dyn FnMut`: see [`Visit`](memory::Visit).
pub(super) trait Touch {
    /// Copies from or into `memory`, from `at` bytes into it on.
    fn touch(&mut self, memory: &dyn Memory, at: u64) -> Result<(), memory::Fault>;
}

impl<F: FnMut(&dyn Memory, u64) -> Result<(), memory::Fault>> Touch for F {
    #[inline]
    fn touch(&mut self, memory: &dyn Memory, at: u64) -> Result<(), memory::Fault> {
        self(memory, at)
    }
}

/// A checked range of memory. Each copy finds the memory alive, or fails.
pub(crate) struct MrAccess {
    pub(super) source: Source,
    /// Where the range starts within the source, in bytes.
    pub(super) start: u64,
    pub(super) len: u64,
    /// The window that it was reached through, and which bind of it.
    pub(super) window: Option<(Arc<Mr>, u64)>,
}

impl MrAccess {
    /// Whether `len` bytes at `offset` are in the range.
    pub(crate) fn has(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= self.len)
    }

    /// Where `len` bytes at `offset` of the range are within the source.
    fn locate(&self, offset: u64, len: usize) -> Result<u64, Fault> {
        if !self.has(offset, len as u64) {
            return Err(Fault::Protection);
        }
        self.start.checked_add(offset).ok_or(Fault::Protection)
    }

    /// Calls `f` with the memory of the range, and where `len` bytes at `offset` of the range are
    /// within it.
    ///
    /// `f` is compiled in for a process's pinned memory, as it is what most packets are copied from and into.
    #[inline]
    pub(super) fn with(
        &self,
        offset: u64,
        len: usize,
        f: &mut impl FnMut(&dyn Memory, u64) -> Result<(), memory::Fault>,
    ) -> Result<(), Fault> {
        match (&self.source, &self.window) {
            (Source::User(UserMemory::Pinned(umem)), None) => {
                let at = self.locate(offset, len)?;
                let pages = umem.enter().ok_or(Fault::Protection)?;
                f(&pages, at).or(Err(Fault::Protection))
            }
            _ => self.with_any(offset, len, f),
        }
    }

    /// As [`Self::with`], whatever the memory is.
    #[inline(never)]
    pub(super) fn with_any(&self, offset: u64, len: usize, f: &mut dyn Touch) -> Result<(), Fault> {
        let at = self.locate(offset, len)?;
        // Held to the end of the copy: an invalidation of the window waits for it.
        let window = self.window.as_ref();
        let bound = window.map(|(window, generation)| (window.state.lock(), *generation));
        if let Some((state, generation)) = &bound {
            match &state.backing {
                Backing::Window(window) if window.is_bound(*generation) => {}
                _ => return Err(Fault::Protection),
            }
        }
        let result = match &self.source {
            Source::User(UserMemory::Pinned(umem)) => {
                f.touch(&umem.enter().ok_or(Fault::Protection)?, at)
            }
            Source::User(UserMemory::OnDemand(memory)) => f.touch(memory, at),
            Source::Dma(buffer) => f.touch(buffer, at),
            Source::Fast(pages, activation) => pages.with(activation, |memory| f.touch(memory, at)),
        };
        result.map_err(|fault| match (fault, &self.source) {
            (memory::Fault::Absent(missing), Source::User(UserMemory::OnDemand(memory))) => {
                Fault::Absent(Absent {
                    memory: memory.clone(),
                    // The rest of the message will be wanted soon.
                    missing: missing.extended(memory, self.start.saturating_add(self.len)),
                })
            }
            _ => Fault::Protection,
        })
    }

    /// Does `what` to the range, eight aligned bytes. Returns what was there.
    pub(crate) fn exchange(&self, what: Exchange) -> Result<u64, Fault> {
        let mut old = 0;
        self.with(0, size_of::<u64>(), &mut |memory, at| {
            old = memory.exchange(at, what)?;
            Ok(())
        })?;
        Ok(old)
    }

    /// Copies from the range.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.with(offset, out.len(), &mut |memory, at| memory.read(at, out))
    }

    /// Finds out whether the pages of the first `len` bytes are there, where they need not be.
    pub(crate) fn probe(&self, len: u64) -> Result<(), Fault> {
        if !matches!(self.source, Source::User(UserMemory::OnDemand(_))) {
            return Ok(());
        }
        let Some(last) = len.min(self.len).checked_sub(1) else {
            return Ok(());
        };
        // A byte of each page.
        for at in (0..last).step_by(PAGE_SIZE) {
            self.read(at, &mut [0])?;
        }
        self.read(last, &mut [0])
    }

    /// Copies a segment of a packet into the range.
    pub(crate) fn write_segment(&self, offset: u64, segment: &Segment<'_>) -> Result<(), Fault> {
        self.with(offset, segment.len(), &mut |memory, at| {
            memory.write_segment(at, segment)
        })
    }
}
