// SPDX-License-Identifier: GPL-2.0

//! Keys, and what they lead to: the one table of regions and windows, and the one place where keys are checked.

use crate::{
    live::{
        Kind,
        Live, //
    },
    memory::{
        access::{
            Access,
            Fault,
            MrAccess,
            Range,
            Source, //
        },
        mw::Window,
        pd::Pd, //
    },
    table::Table, //
};
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
};
use rdma::{
    memory::Unchecked,
    mr::{
        Activation,
        FastPages,
        UserMemory, //
    }, //
};
use sync::{
    new_spin_lock_bh,
    smp_mb,
    SpinLockBh, //
};

/// A key is a 24-bit index and an 8-bit tag, which the consumer of a fast-registration region or of a window may choose.
const INDICES: core::ops::RangeInclusive<u32> = 1..=0x00ff_ffff;
pub(crate) const TAG_BITS: u32 = 8;
pub(crate) const TAG_MASK: u32 = (1 << TAG_BITS) - 1;
/// Random indices that are tried before the next free one is taken.
const RANDOM_TRIES: u32 = 16;

/// The memory behind a key.
pub(super) enum Backing {
    /// A process's.
    User { memory: UserMemory, range: Range },
    /// All memory, for a kernel consumer.
    Dma { memory: Unchecked, access: Access },
    /// Pages that a kernel consumer registers by work requests.
    Fast { pages: Arc<FastPages>, state: Fast },
    /// None of its own: a part of a region.
    Window(Window),
}

/// State of a fast-registration region.
#[derive(Default)]
pub(super) struct Fast {
    pub(super) tag: u32,
    /// [`None`] while the region is free or invalidated.
    pub(super) range: Option<(Range, Activation)>,
}

/// The part of a region or window that changes. A process's region may get into another protection domain.
pub(super) struct State {
    pub(super) pd: Arc<Pd>,
    pub(super) backing: Backing,
}

impl State {
    /// Errors: it is of another protection domain.
    pub(super) fn check_pd(&self, pd: &Arc<Pd>) -> Result<(), Fault> {
        if !Arc::ptr_eq(&self.pd, pd) {
            return Err(Fault::Protection);
        }
        Ok(())
    }
}

/// A memory region or window: the target of a key. Outlives the `ib_mr`, though its memory does not.
#[pin_data]
pub(crate) struct Mr {
    pub(super) index: u32,
    #[pin]
    pub(super) state: SpinLockBh<State>,
    /// Windows that are bound to it. Raised under the lock of `state`.
    pub(super) windows: Atomic<i64>,
    /// Raised under the lock of `state` when a process's region changes or ends. It is no `Atomic`, as the operations of that
    /// are calls of C functions.
    version: AtomicU32,
    _live: Live,
}

/// The regions and windows of all devices, by the index in their keys.
pub(crate) static REGIONS: Table<Mr> = Table::new();

/// Makes a region or window known under a new key. Context: process, may sleep.
pub(super) fn publish(pd: &Arc<Pd>, backing: Backing) -> Result<Arc<Mr>> {
    let kind = match &backing {
        Backing::Window(_) => Kind::Mw,
        _ => Kind::Mr,
    };
    let table = REGIONS.whole()?;
    // Random indices make keys hard to guess. If many are taken, the next free one does.
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
            version: AtomicU32::new(0),
            _live: Live::new(kind),
        }),
        GFP_KERNEL_ACCOUNT,
    )?;
    reservation.fill(mr.clone())?;
    Ok(mr)
}

impl Mr {
    /// Nobody finds it by its key any more. Context: process.
    pub(super) fn withdraw(self: &Arc<Self>) {
        REGIONS.remove_if(self.index, self);
    }

    /// A process's region changes, or ends: earlier checks of it do not hold any more. The caller holds the lock of `state`.
    pub(super) fn raise_version(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The state of a window; an error if this is a region. Context: process or softirq.
    pub(super) fn with_window<R>(&self, f: impl FnOnce(&mut Window) -> R) -> Result<R, Fault> {
        match &mut self.state.lock().backing {
            Backing::Window(window) => Ok(f(window)),
            _ => Err(Fault::Protection),
        }
    }

    /// The first address that the key leads to.
    fn start(&self) -> Result<u64, Fault> {
        match &self.state.lock().backing {
            Backing::User { range, .. } => Ok(range.start),
            Backing::Dma { .. } => Ok(0),
            Backing::Fast { state, .. } => match &state.range {
                Some((range, _)) => Ok(range.start),
                None => Err(Fault::Protection),
            },
            Backing::Window(window) => window.start(),
        }
    }

    /// Whether `va .. va + len` may be accessed in `pd` through `key` as `need` says, by the peer of the QP
    /// `qp` or, without one, locally. Returns the memory to copy from or into; of a process's region also all of its range,
    /// and the version for which that holds.
    fn check(
        self: &Arc<Self>,
        pd: &Arc<Pd>,
        qp: Option<u32>,
        key: u32,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<(MrAccess, Option<(Range, u32)>), Fault> {
        let open = |source, start| MrAccess {
            source,
            start,
            len,
            window: None,
        };
        let state = self.state.lock();
        state.check_pd(pd)?;
        let mut whole = None;
        let (source, range, tag) = match &state.backing {
            Backing::User { memory, range } => {
                whole = Some((*range, self.version.load(Ordering::Relaxed)));
                (Source::User(memory.clone()), *range, 0)
            }
            Backing::Dma { memory, access } => {
                if key & TAG_MASK != 0 || !access.contains(need) {
                    return Err(Fault::Protection);
                }
                va.checked_add(len).ok_or(Fault::Protection)?;
                let len = usize::try_from(len).or(Err(Fault::Protection))?;
                return Ok((open(Source::Dma(memory.buffer(va, len)), 0), None));
            }
            Backing::Fast { pages, state } => {
                let (range, activation) = state.range.ok_or(Fault::Protection)?;
                (Source::Fast(pages.clone(), activation), range, state.tag)
            }
            Backing::Window(window) => {
                let qp = qp.ok_or(Fault::Protection)?;
                let (source, start, generation) = window.check(qp, key, va, len, need)?;
                let access = MrAccess {
                    window: Some((self.clone(), generation)),
                    ..open(source, start)
                };
                return Ok((access, None));
            }
        };
        if key & TAG_MASK != tag {
            return Err(Fault::Protection);
        }
        Ok((open(source, range.offset_of(va, len, need)?), whole))
    }
}

/// The region that was accessed last: the next is the same, more often than not. Not to be kept for longer than a lock is
/// held, as it keeps the region and its memory.
///
/// A region that changes or ends meanwhile waits for accesses under way, as ever: by the gate of its memory, or by a grace
/// period.
#[derive(Default)]
pub(crate) struct Recent(Option<Checked>);

/// The outcome of the check of a local key.
struct Checked {
    mr: Arc<Mr>,
    pd: Arc<Pd>,
    key: u32,
    /// The range of a process's region, and the version for which it holds. [`None`] of other memory.
    range: Option<(Range, u32)>,
    access: MrAccess,
}

impl Checked {
    fn new(pd: &Arc<Pd>, key: u32, va: u64, len: u64, need: Access) -> Result<Self, Fault> {
        let mr = find(key)?;
        let (access, range) = mr.check(pd, None, key, va, len, need)?;
        Ok(Self {
            mr,
            pd: pd.clone(),
            key,
            range,
            access,
        })
    }

    /// The range that `key` gives access to in `pd`, if that was checked, and the region has not changed since.
    #[inline]
    fn range(&self, pd: &Arc<Pd>, key: u32) -> Option<Range> {
        let (range, version) = self.range.as_ref()?;
        let is_it = self.key == key
            && Arc::ptr_eq(&self.pd, pd)
            && self.mr.version.load(Ordering::Relaxed) == *version;
        is_it.then_some(*range)
    }
}

impl Recent {
    /// Checks a local key. `need` are the rights; [`Access::NONE`] is a read. Context: bottom halves off, until the copy is
    /// done: `reregister_user()` may wait for that by a grace period.
    pub(crate) fn access(
        &mut self,
        pd: &Arc<Pd>,
        key: u32,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<&MrAccess, Fault> {
        let range = self.0.as_ref().and_then(|last| last.range(pd, key));
        match (range, &mut self.0) {
            (Some(range), Some(last)) => {
                last.access.start = range.offset_of(va, len, need)?;
                last.access.len = len;
            }
            (_, last) => *last = Some(Checked::new(pd, key, va, len, need)?),
        }
        self.accessed().ok_or(Fault::Protection)
    }

    /// The access that [`Self::access`] has returned last.
    #[inline]
    pub(crate) fn accessed(&self) -> Option<&MrAccess> {
        self.0.as_ref().map(|last| &last.access)
    }
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
    let (access, _) = find(key)?.check(pd, Some(qp), key, va, len, need)?;
    Ok(access)
}

/// Checks a key that the peer of the QP with the number `qp` has sent with a FLUSH, of all that the key
/// leads to or of `va .. va + len`; when this returns, what was written by way of it is where `need` says:
/// [`Access::FLUSH_GLOBAL`], [`Access::FLUSH_PERSISTENT`].
///
/// It waits for the writes of this CPU (a memory barrier). Earlier writes were made under locks that have been released
/// since; caches are coherent, and bytes that are to be persistent became so when they were written
/// ([`Memory::is_persistent`](rdma::memory::Memory::is_persistent)). Context: process or softirq.
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

/// The region or window of `key`, whatever its tag and protection domain. Context: any.
pub(super) fn find(key: u32) -> Result<Arc<Mr>, Fault> {
    REGIONS.get(key >> TAG_BITS).ok_or(Fault::Protection)
}

/// Invalidates a fast-registration region or a window of type 2: by its owner, with a request on the QP with
/// the number `qp`, or by the peer of that QP. When this returns nothing is copied from or into it any more.
///
/// A region may be invalid already; a window must be bound to that QP. A peer does not invalidate a region that
/// grants no remote access: that has no R_Key in IBTA's sense.
/// Context: process or softirq.
pub(crate) fn invalidate(pd: &Arc<Pd>, qp: u32, key: u32, by_peer: bool) -> Result<(), Fault> {
    let mr = find(key)?;
    let mut state = mr.state.lock();
    state.check_pd(pd)?;
    match &mut state.backing {
        Backing::Fast { pages, state } if state.tag == key & TAG_MASK => {
            let is_local =
                |(range, _): (Range, _)| !range.access.intersects(Access::REMOTE | Access::FLUSH);
            if by_peer && state.range.is_some_and(is_local) {
                return Err(Fault::Protection);
            }
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
