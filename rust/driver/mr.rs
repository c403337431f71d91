// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and the one place where keys are checked.

pub(crate) use rdma::access::Access;

use crate::{
    live::{
        Kind,
        Live, //
    },
    pd::Pd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::Piece;
use rdma::{
    memory::{
        self,
        Memory,
        Unchecked, //
    },
    mr::{
        Activation,
        FastPages,
        UserMemory, //
    },
    on_demand::{
        Absence,
        OnDemand, //
    },
    umem::Umem, //
};
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// Keys are a 24-bit index and 8 bits that the consumer of a fast-registration region may choose.
const INDICES: core::ops::RangeInclusive<u32> = 1..=0x00ff_ffff;
const VARIANT_BITS: u32 = 8;
const VARIANT_MASK: u32 = (1 << VARIANT_BITS) - 1;
/// Random indices that are tried before the next free one is taken.
const RANDOM_TRIES: u32 = 16;

/// Why memory is not touched.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Bad key, protection domain, state, right or range.
    Protection,
    /// Pages are not there. Nothing was touched.
    Absent(Absent),
}

/// Pages of a region that are not there.
#[derive(Clone)]
pub(crate) struct Absent {
    memory: Arc<OnDemand>,
    absence: Absence,
}

impl PartialEq for Absent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.absence == other.absence
    }
}

impl Absent {
    /// Brings them in, or the first of them. Errors: the process could not access them either.
    /// Context: process, may sleep for as long as whoever serves the process's page faults likes.
    pub(crate) fn bring_in(&self) -> Result {
        self.memory.bring_in(&self.absence)
    }
}

enum Backing {
    /// A process's pinned memory.
    User { umem: Arc<Umem>, range: Range },
    /// A process's memory that is paged on demand.
    OnDemand { memory: Arc<OnDemand>, range: Range },
    /// All memory, for a kernel consumer.
    Dma { memory: Unchecked, access: Access },
    /// Pages that a kernel consumer registers by work requests.
    Fast { pages: Arc<FastPages>, state: Fast },
}

/// What a key gives access to.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
    access: Access,
}

impl Range {
    /// Gives access to nothing any more.
    fn end(&mut self) {
        self.len = 0;
        self.access = Access::NONE;
    }
}

/// State of a fast-registration region.
#[derive(Clone, Copy)]
struct Fast {
    variant: u32,
    /// [`None`] while the region is free or invalidated.
    range: Option<(Range, Activation)>,
}

/// A memory region. Outlives the `ib_mr`, though its memory does not.
#[pin_data]
pub(crate) struct Mr {
    pd: Arc<Pd>,
    index: u32,
    #[pin]
    backing: SpinLockBh<Backing>,
    _live: Live,
}

/// Makes a region known under a new key.
fn publish(pd: &Arc<Pd>, backing: Backing) -> Result<Arc<Mr>> {
    let table = pd.device().memory_regions();
    // An index that cannot be guessed, as long as that is easy.
    let mut reservation = None;
    for _ in 0..RANDOM_TRIES {
        let index = sync::random_u32() >> VARIANT_BITS;
        if !INDICES.contains(&index) {
            continue;
        }
        match table.reserve(index) {
            Err(error) if error == EBUSY => {}
            other => {
                reservation = Some(other?);
                break;
            }
        }
    }
    let reservation = match reservation {
        Some(reservation) => reservation,
        None => table.reserve_cyclic(INDICES)?,
    };
    let index = reservation.key();
    let mr = Arc::pin_init(
        pin_init!(Mr {
            pd: pd.clone(),
            index,
            backing <- new_spin_lock_bh!(backing),
            _live: Live::new(Kind::Mr),
        }),
        GFP_KERNEL,
    )?;
    reservation.fill(mr.clone())?;
    Ok(mr)
}

/// Makes a region of a process's memory. Context: process, may sleep.
pub(crate) fn register_user(
    pd: &Arc<Pd>,
    iova: u64,
    access: Access,
    memory: UserMemory,
) -> Result<Arc<Mr>> {
    let len = memory.len();
    // The last byte must have an address.
    iova.checked_add(len.saturating_sub(1)).ok_or(EINVAL)?;
    let range = Range {
        start: iova,
        len,
        access,
    };
    let backing = match memory {
        UserMemory::Pinned(umem) => Backing::User { umem, range },
        UserMemory::OnDemand(memory) => Backing::OnDemand { memory, range },
    };
    publish(pd, backing)
}

/// Makes a region of all memory. Context: process, may sleep.
pub(crate) fn get_dma(pd: &Arc<Pd>, access: Access, memory: Unchecked) -> Result<Arc<Mr>> {
    publish(pd, Backing::Dma { memory, access })
}

/// Makes a fast-registration region, free for now. Context: process, may sleep.
pub(crate) fn alloc(pd: &Arc<Pd>, pages: Arc<FastPages>) -> Result<Arc<Mr>> {
    let state = Fast {
        variant: 0,
        range: None,
    };
    publish(pd, Backing::Fast { pages, state })
}

/// Destroys a region: when this returns its memory is not touched any more.
/// Context: process, may sleep.
pub(crate) fn deregister(mr: &Arc<Mr>) {
    mr.pd.device().memory_regions().remove(mr.index);
    #[cfg(planted = "leaked_mr")]
    core::mem::forget(mr.clone());
    let memory = match &mut *mr.backing.lock() {
        Backing::User { umem, range } => {
            range.end();
            Some(UserMemory::Pinned(umem.clone()))
        }
        Backing::OnDemand { memory, range } => {
            range.end();
            Some(UserMemory::OnDemand(memory.clone()))
        }
        Backing::Dma { access, .. } => {
            *access = Access::NONE;
            None
        }
        Backing::Fast { pages, state } => {
            state.range = None;
            pages.deactivate();
            None
        }
    };
    match memory {
        Some(UserMemory::Pinned(umem)) => umem.release(),
        Some(UserMemory::OnDemand(memory)) => memory.release(),
        None => {}
    }
}

impl Mr {
    /// The key, local and remote. Context: process or softirq.
    pub(crate) fn key(&self) -> u32 {
        let variant = match &*self.backing.lock() {
            Backing::Fast { state, .. } => state.variant,
            _ => 0,
        };
        (self.index << VARIANT_BITS) | variant
    }

    /// Whether `va .. va + len` may be accessed through `key` as `need` says. Returns what to copy
    /// from or into.
    fn check(&self, key: u32, va: u64, len: u64, need: Access) -> Result<(Source, u64), Fault> {
        let backing = self.backing.lock();
        let (source, range, variant) = match &*backing {
            Backing::User { umem, range } => (Source::User(umem.clone()), *range, 0),
            Backing::OnDemand { memory, range } => (Source::OnDemand(memory.clone()), *range, 0),
            Backing::Dma { memory, access } => {
                if key & VARIANT_MASK != 0 || !access.contains(need) {
                    return Err(Fault::Protection);
                }
                va.checked_add(len).ok_or(Fault::Protection)?;
                let len = usize::try_from(len).or(Err(Fault::Protection))?;
                return Ok((Source::Dma(memory.buffer(va, len)), 0));
            }
            Backing::Fast { pages, state } => {
                let (range, activation) = state.range.ok_or(Fault::Protection)?;
                (
                    Source::Fast(pages.clone(), activation),
                    range,
                    state.variant,
                )
            }
        };
        if key & VARIANT_MASK != variant || !range.access.contains(need) {
            return Err(Fault::Protection);
        }
        let offset = va.checked_sub(range.start).ok_or(Fault::Protection)?;
        let end = offset.checked_add(len).ok_or(Fault::Protection)?;
        if end > range.len {
            return Err(Fault::Protection);
        }
        Ok((source, offset))
    }
}

/// Where the bytes are.
enum Source {
    User(Arc<Umem>),
    OnDemand(Arc<OnDemand>),
    Dma(memory::KernelBuffer),
    Fast(Arc<FastPages>, Activation),
}

/// A checked range of memory. Each copy finds the memory alive, or fails.
pub(crate) struct MrAccess {
    source: Source,
    /// Where the range starts within the source, in bytes.
    start: u64,
    len: u64,
}

/// Checks a key: the one function that all accesses pass, local and remote.
///
/// `need` are the rights, remote ones for a peer; [`Access::NONE`] is a local read.
/// Context: process or softirq.
pub(crate) fn access(
    pd: &Arc<Pd>,
    key: u32,
    va: u64,
    len: u64,
    need: Access,
) -> Result<MrAccess, Fault> {
    let mr = find(pd, key)?;
    let (source, start) = mr.check(key, va, len, need)?;
    Ok(MrAccess { source, start, len })
}

fn find(pd: &Arc<Pd>, key: u32) -> Result<Arc<Mr>, Fault> {
    let mr = pd
        .device()
        .memory_regions()
        .get(key >> VARIANT_BITS)
        .ok_or(Fault::Protection)?;
    if !Arc::ptr_eq(&mr.pd, pd) {
        return Err(Fault::Protection);
    }
    Ok(mr)
}

impl MrAccess {
    /// Where `len` bytes at `offset` of the range are within the source.
    fn locate(&self, offset: u64, len: usize) -> Result<u64, Fault> {
        let end = offset.checked_add(len as u64).ok_or(Fault::Protection)?;
        if end > self.len {
            return Err(Fault::Protection);
        }
        self.start.checked_add(offset).ok_or(Fault::Protection)
    }

    /// Calls `f` with the memory of the range, and where `len` bytes at `offset` of the range are
    /// within it.
    pub(crate) fn with<R>(
        &self,
        offset: u64,
        len: usize,
        f: impl FnOnce(&dyn Memory, u64) -> Result<R, memory::Fault>,
    ) -> Result<R, Fault> {
        let at = self.locate(offset, len)?;
        let result = match &self.source {
            Source::User(umem) => f(&umem.enter().ok_or(Fault::Protection)?, at),
            Source::OnDemand(memory) => f(&**memory, at),
            Source::Dma(buffer) => f(buffer, at),
            Source::Fast(pages, activation) => pages.with(activation, |memory| f(memory, at)),
        };
        result.map_err(|fault| match (fault, &self.source) {
            (memory::Fault::Absent(absence), Source::OnDemand(memory)) => Fault::Absent(Absent {
                memory: memory.clone(),
                // What follows in this message will be wanted soon.
                absence: absence.extended(memory, self.start.saturating_add(self.len)),
            }),
            _ => Fault::Protection,
        })
    }

    /// Copies from the range.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.with(offset, out.len(), |memory, at| memory.read(at, out))
    }

    /// Copies a piece of a packet into the range.
    pub(crate) fn write_piece(&self, offset: u64, piece: &Piece<'_>) -> Result<(), Fault> {
        self.with(offset, piece.len(), |memory, at| {
            memory.write_piece(at, piece)
        })
    }

    /// Compares the range, eight aligned bytes, with `compare` and replaces it by `swap` if they are
    /// equal. Returns what was there.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.with(0, size_of::<u64>(), |memory, at| {
            memory.compare_swap(at, compare, swap)
        })
    }

    /// Adds `add` to the range, eight aligned bytes. Returns what was there.
    pub(crate) fn fetch_add(&self, add: u64) -> Result<u64, Fault> {
        self.with(0, size_of::<u64>(), |memory, at| memory.fetch_add(at, add))
    }
}

/// Invalidates a fast-registration region: by its owner, or by a peer that was given its key. When
/// this returns nothing is copied from or into it any more. Context: process or softirq.
pub(crate) fn invalidate(pd: &Arc<Pd>, key: u32) -> Result<(), Fault> {
    let mr = find(pd, key)?;
    let mut backing = mr.backing.lock();
    match &mut *backing {
        Backing::Fast { pages, state } if state.variant == key & VARIANT_MASK => {
            state.range = None;
            pages.deactivate();
            Ok(())
        }
        _ => Err(Fault::Protection),
    }
}

/// Registers the pages that were mapped to a fast-registration region, under `key`.
/// Context: process or softirq.
pub(crate) fn fast_register(
    pd: &Arc<Pd>,
    mr: &Arc<Mr>,
    key: u32,
    access: Access,
) -> Result<(), Fault> {
    if !Arc::ptr_eq(&mr.pd, pd) || key >> VARIANT_BITS != mr.index {
        return Err(Fault::Protection);
    }
    let mut backing = mr.backing.lock();
    match &mut *backing {
        Backing::Fast { pages, state } if state.range.is_none() => {
            let activation = pages.activate().ok_or(Fault::Protection)?;
            let (start, len) = (activation.iova, activation.len);
            start
                .checked_add(len.saturating_sub(1))
                .ok_or(Fault::Protection)?;
            state.variant = key & VARIANT_MASK;
            state.range = Some((Range { start, len, access }, activation));
            Ok(())
        }
        _ => Err(Fault::Protection),
    }
}
