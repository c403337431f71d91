// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and the one place where keys are checked: those of regions and of windows.

pub(crate) use rdma::access::Access;

use crate::{
    live::{
        Kind,
        Live, //
    },
    memory::{
        mw::Window,
        pd::Pd, //
    },
    table::Table, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};
use net::Segment;
use rdma::{
    details::Details,
    memory::{
        self,
        Exchange,
        Intent,
        Memory,
        Unchecked, //
    },
    mr::{
        Activation,
        Advice,
        Advised,
        FastPages,
        MemoryRegion,
        UserMemory,
        UserRegion, //
    },
    on_demand::{
        Effort,
        MissingPages,
        OnDemand, //
    },
    umem::Umem, //
};
use sync::{
    new_spin_lock_bh,
    smp_mb,
    SpinLockBh,
    SpinLockBhGuard, //
};

/// A key is a 24-bit index and an 8-bit tag, which the consumer of a fast-registration region or of a window may choose.
const INDICES: core::ops::RangeInclusive<u32> = 1..=0x00ff_ffff;
pub(crate) const TAG_BITS: u32 = 8;
pub(crate) const TAG_MASK: u32 = (1 << TAG_BITS) - 1;
/// Random indices that are tried before the next free one is taken.
const RANDOM_TRIES: u32 = 16;

/// Why memory is not touched.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Bad key, protection domain, state, right or range.
    Protection,
    /// Pages are not there. Copies are to be made anew.
    Absent(Absent),
}

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
    /// Brings them in, or the first of them. Errors: the process could not access them either.
    /// Context: process, may sleep for as long as whoever serves the process's page faults likes.
    pub(crate) fn fault_in(&self) -> Result {
        self.memory
            .fault_in(&self.missing, Effort::Fault)
            .map(|_| ())
    }
}

pub(crate) enum Backing {
    /// A process's pinned memory.
    User { umem: Arc<Umem>, range: Range },
    /// A process's memory that is paged on demand.
    OnDemand { memory: OnDemand, range: Range },
    /// All memory, for a kernel consumer.
    Dma { memory: Unchecked, access: Access },
    /// Pages that a kernel consumer registers by work requests.
    Fast { pages: Arc<FastPages>, state: Fast },
    /// None of its own: a part of a region.
    Window(Window),
}

impl Backing {
    fn of(memory: UserMemory, range: Range) -> Self {
        match memory {
            UserMemory::Pinned(umem) => Self::User { umem, range },
            UserMemory::OnDemand(memory) => Self::OnDemand { memory, range },
        }
    }
}

/// What a key gives access to.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
}

impl Range {
    /// Errors: `EINVAL` if the last byte had no address.
    fn of(region: &UserRegion) -> Result<Self> {
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
    pub(crate) fn offset_of(&self, va: u64, len: u64, need: Access) -> Result<u64, Fault> {
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
    fn end(&mut self) {
        self.len = 0;
        self.access = Access::NONE;
    }
}

/// State of a fast-registration region.
#[derive(Clone, Copy)]
pub(crate) struct Fast {
    tag: u32,
    /// [`None`] while the region is free or invalidated.
    range: Option<(Range, Activation)>,
}

/// What changes of a region or window. That of a process may get into another protection domain.
struct State {
    pd: Arc<Pd>,
    backing: Backing,
}

impl State {
    /// Errors: it is of another protection domain.
    fn check_pd(&self, pd: &Arc<Pd>) -> Result<(), Fault> {
        if !Arc::ptr_eq(&self.pd, pd) {
            return Err(Fault::Protection);
        }
        Ok(())
    }
}

/// What a key leads to: a memory region, or a window. Outlives the `ib_mr`, though its memory does not.
#[pin_data]
pub(crate) struct Mr {
    index: u32,
    #[pin]
    state: SpinLockBh<State>,
    /// Windows that are bound to it. Raised under the lock of `state`.
    windows: Atomic<i64>,
    /// Its key is no more, and may be another's.
    is_withdrawn: Atomic<bool>,
    _live: Live,
}

/// What was found by its key last: the next is the same, more often than not. Not to be kept for longer than a lock is
/// held, as the region or window is kept with it.
#[derive(Default)]
pub(crate) struct Recent(Option<Arc<Mr>>);

impl Recent {
    /// Checks a local key. `need` are the rights; [`Access::NONE`] is a read. Context: process or softirq.
    pub(crate) fn access(
        &mut self,
        pd: &Arc<Pd>,
        key: u32,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<MrAccess, Fault> {
        let is_it = |mr: &Arc<Mr>| mr.index == key >> TAG_BITS && !mr.is_withdrawn.load(Acquire);
        let mr = match self.0.take().filter(is_it) {
            Some(mr) => mr,
            None => find(key)?,
        };
        self.0.insert(mr).check(pd, None, key, va, len, need)
    }
}

/// The regions and windows of all devices, by the index in their keys.
pub(crate) static REGIONS: Table<Mr> = Table::new();

/// Makes a region or window known under a new key. Context: process, may sleep.
pub(crate) fn publish(pd: &Arc<Pd>, backing: Backing) -> Result<Arc<Mr>> {
    let kind = match &backing {
        Backing::Window(_) => Kind::Mw,
        _ => Kind::Mr,
    };
    let table = REGIONS.whole()?;
    // An index that cannot be guessed, as long as that is easy.
    let mut reservation = None;
    for _ in 0..RANDOM_TRIES {
        let index = sync::random_u32() >> TAG_BITS;
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
            index,
            state <- new_spin_lock_bh!(State {
                pd: pd.clone(),
                backing
            }),
            windows: Atomic::new(0),
            is_withdrawn: Atomic::new(false),
            _live: Live::new(kind),
        }),
        GFP_KERNEL_ACCOUNT,
    )?;
    reservation.fill(mr.clone())?;
    Ok(mr)
}

impl MemoryRegion for Mr {
    type Pd = Pd;

    fn register_user(pd: &Arc<Pd>, region: UserRegion) -> Result<Arc<Self>> {
        let range = Range::of(&region)?;
        publish(pd, Backing::of(region.memory, range))
    }

    fn user_region(&self) -> Result<UserRegion> {
        let (memory, range) = match &self.state.lock().backing {
            Backing::User { umem, range } => (UserMemory::Pinned(umem.clone()), *range),
            Backing::OnDemand { memory, range } => (UserMemory::OnDemand(memory.clone()), *range),
            _ => return Err(EINVAL),
        };
        Ok(UserRegion {
            iova: range.start,
            access: range.access,
            memory,
        })
    }

    fn reregister_user(&self, pd: &Arc<Pd>, region: UserRegion) -> Result {
        let range = Range::of(&region)?;
        let mut state = self.state.lock();
        if self.windows.load(Relaxed) != 0 {
            return Err(EBUSY);
        }
        let former = match &state.backing {
            Backing::User { umem, .. } => UserMemory::Pinned(umem.clone()),
            Backing::OnDemand { memory, .. } => UserMemory::OnDemand(memory.clone()),
            _ => return Err(EINVAL),
        };
        let is_same = former.is_same(&region.memory);
        let before = core::mem::replace(
            &mut *state,
            State {
                pd: pd.clone(),
                backing: Backing::of(region.memory, range),
            },
        );
        drop(state);
        drop(before);
        if is_same {
            // Who was let in by the rights or the domain of before has bottom halves off.
            sync::synchronize_rcu();
        } else {
            release(former);
        }
        Ok(())
    }

    fn get_dma(pd: &Arc<Pd>, access: Access, memory: Unchecked) -> Result<Arc<Self>> {
        // Nobody knows what memory its consumer will name.
        let access = access.without(Access::FLUSH_PERSISTENT);
        publish(pd, Backing::Dma { memory, access })
    }

    fn alloc(pd: &Arc<Pd>, pages: Arc<FastPages>) -> Result<Arc<Self>> {
        let state = Fast {
            tag: 0,
            range: None,
        };
        publish(pd, Backing::Fast { pages, state })
    }

    fn key(&self) -> u32 {
        let tag = match &self.state.lock().backing {
            Backing::Fast { state, .. } => state.tag,
            Backing::Window(window) => window.tag(),
            _ => 0,
        };
        (self.index << TAG_BITS) | tag
    }

    fn deregister(self: &Arc<Self>) -> Result {
        let state = self.state.lock();
        if self.windows.load(Relaxed) != 0 {
            return Err(EBUSY);
        }
        end(self, state)
    }

    fn abandon(self: &Arc<Self>) {
        // It is a region, so there is no error.
        let _ = end(self, self.state.lock());
    }

    fn describe(&self, details: &mut Details<'_>) -> Result {
        let (memory, access) = match &self.state.lock().backing {
            Backing::User { range, .. } => (c"pinned", Some(range.access)),
            Backing::OnDemand { range, .. } => (c"on demand", Some(range.access)),
            Backing::Dma { access, .. } => (c"all", Some(*access)),
            Backing::Fast { state, .. } => {
                (c"registered", state.range.map(|(range, _)| range.access))
            }
            Backing::Window(_) => return Ok(()),
        };
        details.text(c"memory", memory)?;
        if let Some(access) = access {
            details.hex(c"access", access.bits().into())?;
        }
        details.number(
            c"windows",
            u64::try_from(self.windows.load(Relaxed)).unwrap_or(0),
        )
    }
}

/// Ends a region. Errors: `EINVAL` if it is a window. Context: process, may sleep.
fn end(mr: &Mr, mut state: SpinLockBhGuard<'_, State>) -> Result {
    let memory = match &mut state.backing {
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
        Backing::Window(_) => return Err(EINVAL),
    };
    drop(state);
    mr.withdraw();
    if let Some(memory) = memory {
        release(memory);
    }
    Ok(())
}

/// Gives the memory of a region back, once nobody copies from or into it. Context: process, may sleep.
fn release(memory: UserMemory) {
    match memory {
        UserMemory::Pinned(umem) => umem.release(),
        UserMemory::OnDemand(memory) => memory.release(),
    }
}

impl Mr {
    /// Nobody finds it by its key any more. Context: process.
    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.store(true, Release);
        REGIONS.remove(self.index);
    }

    /// The state of a window; an error if this is a region. Context: process or softirq.
    pub(crate) fn with_window<R>(&self, f: impl FnOnce(&mut Window) -> R) -> Result<R, Fault> {
        match &mut self.state.lock().backing {
            Backing::Window(window) => Ok(f(window)),
            _ => Err(Fault::Protection),
        }
    }

    /// The first address that the key leads to.
    fn start(&self) -> Result<u64, Fault> {
        match &self.state.lock().backing {
            Backing::User { range, .. } | Backing::OnDemand { range, .. } => Ok(range.start),
            Backing::Dma { .. } => Ok(0),
            Backing::Fast { state, .. } => match &state.range {
                Some((range, _)) => Ok(range.start),
                None => Err(Fault::Protection),
            },
            Backing::Window(window) => window.start(),
        }
    }

    /// Whether `va .. va + len` may be accessed in `pd` through `key` as `need` says, by the peer of the QP
    /// `qp` or, without one, locally. Returns what to copy from or into.
    fn check(
        self: &Arc<Self>,
        pd: &Arc<Pd>,
        qp: Option<u32>,
        key: u32,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<MrAccess, Fault> {
        let open = |source, start| MrAccess {
            source,
            start,
            len,
            window: None,
        };
        let state = self.state.lock();
        state.check_pd(pd)?;
        let (source, range, tag) = match &state.backing {
            Backing::User { umem, range } => (Source::User(umem.clone()), *range, 0),
            Backing::OnDemand { memory, range } => (Source::OnDemand(memory.clone()), *range, 0),
            Backing::Dma { memory, access } => {
                if key & TAG_MASK != 0 || !access.contains(need) {
                    return Err(Fault::Protection);
                }
                va.checked_add(len).ok_or(Fault::Protection)?;
                let len = usize::try_from(len).or(Err(Fault::Protection))?;
                return Ok(open(Source::Dma(memory.buffer(va, len)), 0));
            }
            Backing::Fast { pages, state } => {
                let (range, activation) = state.range.ok_or(Fault::Protection)?;
                (Source::Fast(pages.clone(), activation), range, state.tag)
            }
            Backing::Window(window) => {
                let qp = qp.ok_or(Fault::Protection)?;
                let (source, start, generation) = window.check(qp, key, va, len, need)?;
                return Ok(MrAccess {
                    window: Some((self.clone(), generation)),
                    ..open(source, start)
                });
            }
        };
        if key & TAG_MASK != tag {
            return Err(Fault::Protection);
        }
        Ok(open(source, range.offset_of(va, len, need)?))
    }
}

/// A part of a region that a window is bound to: the region cannot be destroyed.
pub(crate) struct Hold {
    region: Arc<Mr>,
    /// The region's memory.
    pub(crate) source: Source,
    /// Where the part starts within it, in bytes.
    pub(crate) start: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.region.windows.add(-1, Relaxed);
    }
}

/// Holds `va .. va + len` of the region with the local key `key`, which must have the rights `need`. It must
/// be a process's. Context: process or softirq.
pub(crate) fn hold(pd: &Arc<Pd>, key: u32, va: u64, len: u64, need: Access) -> Result<Hold, Fault> {
    let region = find(key)?;
    let state = region.state.lock();
    state.check_pd(pd)?;
    let (source, range) = match &state.backing {
        Backing::User { umem, range } => (Source::User(umem.clone()), *range),
        Backing::OnDemand { memory, range } => (Source::OnDemand(memory.clone()), *range),
        _ => return Err(Fault::Protection),
    };
    if key & TAG_MASK != 0 {
        return Err(Fault::Protection);
    }
    let start = range.offset_of(va, len, need)?;
    region.windows.add(1, Relaxed);
    drop(state);
    Ok(Hold {
        region,
        source,
        start,
    })
}

/// Where the bytes are.
#[derive(Clone)]
pub(crate) enum Source {
    User(Arc<Umem>),
    OnDemand(OnDemand),
    Dma(memory::KernelBuffer),
    Fast(Arc<FastPages>, Activation),
}

/// A checked range of memory. Each copy finds the memory alive, or fails.
pub(crate) struct MrAccess {
    source: Source,
    /// Where the range starts within the source, in bytes.
    start: u64,
    len: u64,
    /// The window that it was reached through, and which bind of it.
    window: Option<(Arc<Mr>, u64)>,
}

/// Checks a key that the peer of the QP with the number `qp` has sent. `need` are remote rights.
/// Context: process or softirq.
pub(crate) fn remote_access(
    pd: &Arc<Pd>,
    qp: u32,
    key: u32,
    va: u64,
    len: u64,
    need: Access,
) -> Result<MrAccess, Fault> {
    find(key)?.check(pd, Some(qp), key, va, len, need)
}

/// Checks a key that the peer of the QP with the number `qp` has sent with a FLUSH, of all that the key
/// leads to or of `va .. va + len`; when this returns, what was written by way of it is where `need` says:
/// [`Access::FLUSH_GLOBAL`], [`Access::FLUSH_PERSISTENT`].
///
/// Nothing is to be done for it but to wait for the writes of this CPU. What was written before was
/// written under locks that have changed hands since; caches are coherent, and what is to be persistent
/// became so when it was written ([`Memory::is_persistent`]). Context: process or softirq.
pub(crate) fn remote_flush(
    pd: &Arc<Pd>,
    qp: u32,
    key: u32,
    range: Option<(u64, u64)>,
    need: Access,
) -> Result<(), Fault> {
    let mr = find(key)?;
    let (va, len) = match range {
        Some(range) => range,
        // No byte of it: the right is the same for all of them.
        None => (mr.start()?, 0),
    };
    mr.check(pd, Some(qp), key, va, len, need)?;
    smp_mb();
    Ok(())
}

/// What `key` leads to, whatever its tag, and whatever its protection domain. Context: any.
fn find(key: u32) -> Result<Arc<Mr>, Fault> {
    REGIONS.get(key >> TAG_BITS).ok_or(Fault::Protection)
}

/// The window of `pd` that `key` leads to, whatever its tag. Context: process or softirq.
pub(crate) fn find_window(pd: &Arc<Pd>, key: u32) -> Result<Arc<Mr>, Fault> {
    let mr = find(key)?;
    mr.state.lock().check_pd(pd)?;
    Ok(mr)
}

/// Memory that is paged on demand, of a region with the local key `key`, and where `va .. va + len` is in it.
///
/// Errors: `ENOENT` for no such key, `EPERM` for that of another protection domain or for a region that may not
/// be written to, `EINVAL` for a key of something else, `EFAULT` beyond the region's end.
/// Context: process or softirq.
pub(crate) fn paged(
    pd: &Arc<Pd>,
    advice: Advice,
    at: &Advised,
) -> Result<(OnDemand, MissingPages)> {
    let mr = REGIONS.get(at.key >> TAG_BITS).ok_or(ENOENT)?;
    let state = mr.state.lock();
    state.check_pd(pd).or(Err(EPERM))?;
    let Backing::OnDemand { memory, range } = &state.backing else {
        return Err(EINVAL);
    };
    if at.key & TAG_MASK != 0 {
        return Err(ENOENT);
    }
    let writable = range.access.contains(Access::LOCAL_WRITE);
    let intent = match advice {
        Advice::Read => Intent::Read,
        Advice::Write if !writable => return Err(EPERM),
        Advice::Write => Intent::Write,
        Advice::IfPresent if writable => Intent::Write,
        Advice::IfPresent => Intent::Read,
    };
    let offset = range
        .offset_of(at.start, at.len, Access::NONE)
        .or(Err(EFAULT))?;
    let span = memory.span(offset, at.len, intent).or(Err(EFAULT))?;
    Ok((memory.clone(), span))
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
    pub(crate) fn with(
        &self,
        offset: u64,
        len: usize,
        f: &mut impl FnMut(&dyn Memory, u64) -> Result<(), memory::Fault>,
    ) -> Result<(), Fault> {
        match (&self.source, &self.window) {
            (Source::User(umem), None) => {
                let at = self.locate(offset, len)?;
                let pages = umem.enter().ok_or(Fault::Protection)?;
                f(&pages, at).or(Err(Fault::Protection))
            }
            _ => self.with_any(offset, len, f),
        }
    }

    /// As [`Self::with`], whatever the memory is.
    #[inline(never)]
    pub(crate) fn with_any(
        &self,
        offset: u64,
        len: usize,
        f: &mut dyn FnMut(&dyn Memory, u64) -> Result<(), memory::Fault>,
    ) -> Result<(), Fault> {
        let at = self.locate(offset, len)?;
        // Who invalidates the window waits for the end of the copy.
        let window = self.window.as_ref();
        let bound = window.map(|(window, generation)| (window.state.lock(), *generation));
        if let Some((state, generation)) = &bound {
            match &state.backing {
                Backing::Window(window) if window.is_bound(*generation) => {}
                _ => return Err(Fault::Protection),
            }
        }
        let result = match &self.source {
            Source::User(umem) => f(&umem.enter().ok_or(Fault::Protection)?, at),
            Source::OnDemand(memory) => f(memory, at),
            Source::Dma(buffer) => f(buffer, at),
            Source::Fast(pages, activation) => pages.with(activation, |memory| f(memory, at)),
        };
        result.map_err(|fault| match (fault, &self.source) {
            (memory::Fault::Absent(missing), Source::OnDemand(memory)) => Fault::Absent(Absent {
                memory: memory.clone(),
                // What follows in this message will be wanted soon.
                missing: missing.extended(memory, self.start.saturating_add(self.len)),
            }),
            _ => Fault::Protection,
        })
    }

    /// Does `what` to the range, eight aligned bytes. Returns what was there.
    fn exchange(&self, what: Exchange) -> Result<u64, Fault> {
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
        if !matches!(self.source, Source::OnDemand(_)) {
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

    /// Compares the range, eight aligned bytes, with `compare` and replaces it by `swap` if they are
    /// equal. Returns what was there.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.exchange(Exchange::CompareSwap { compare, swap })
    }

    /// Adds `add` to the range, eight aligned bytes. Returns what was there.
    pub(crate) fn fetch_add(&self, add: u64) -> Result<u64, Fault> {
        self.exchange(Exchange::Add(add))
    }

    /// Writes `value` to the range, eight aligned bytes, with one store.
    pub(crate) fn store(&self, value: u64) -> Result<(), Fault> {
        self.exchange(Exchange::Store(value)).map(|_| ())
    }
}

/// Invalidates a fast-registration region or a window of type 2: by its owner, with a request on the QP with
/// the number `qp`, or by the peer of that QP. When this returns nothing is copied from or into it any more.
///
/// A region may be invalid already; a window must be bound to that QP.
/// Context: process or softirq.
pub(crate) fn invalidate(pd: &Arc<Pd>, qp: u32, key: u32) -> Result<(), Fault> {
    let mr = find(key)?;
    let mut state = mr.state.lock();
    state.check_pd(pd)?;
    match &mut state.backing {
        Backing::Fast { pages, state } if state.tag == key & TAG_MASK => {
            state.range = None;
            pages.deactivate();
            Ok(())
        }
        Backing::Window(window) => {
            let binding = window.invalidate(qp, key)?;
            drop(state);
            drop(binding);
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
    if key >> TAG_BITS != mr.index {
        return Err(Fault::Protection);
    }
    // Its pages are ordinary ones, as far as anybody knows.
    if access.contains(Access::FLUSH_PERSISTENT) {
        return Err(Fault::Protection);
    }
    let mut state = mr.state.lock();
    state.check_pd(pd)?;
    match &mut state.backing {
        Backing::Fast { pages, state } if state.range.is_none() => {
            let activation = pages.activate().ok_or(Fault::Protection)?;
            let (start, len) = (activation.iova, activation.len);
            start
                .checked_add(len.saturating_sub(1))
                .ok_or(Fault::Protection)?;
            state.tag = key & TAG_MASK;
            state.range = Some((Range { start, len, access }, activation));
            Ok(())
        }
        _ => Err(Fault::Protection),
    }
}
