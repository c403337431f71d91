// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys for peers to a part of a region, which work requests bind and invalidate
//! (IBTA 10.6.7.2).
//!
//! A window stands in the table of keys like a region; [`remote_access`](crate::memory::key::remote_access) checks it.
//! A bound window holds its region, which cannot be deregistered meanwhile. A copy holds the window's lock, so that
//! when a window is bound anew, invalidated or destroyed, nobody is copying through its old key any more.
//!
//! Windows of type 2 are of the kind 2B: of a QP, by its number, and of a protection domain. A window whose QP
//! is gone stays bound, and can only be destroyed.

use crate::memory::{
    access::{
        Access,
        Fault,
        Range,
        Source, //
    },
    key::{
        find,
        publish,
        Backing,
        Mr,
        TAG_BITS,
        TAG_MASK, //
    },
    pd::Pd, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};
use rdma::{
    mr::MemoryRegion,
    mw::{
        MemoryWindow,
        Type, //
    }, //
};

/// A bind request.
#[derive(Clone, Copy)]
pub(crate) struct Bind {
    /// The window, by a key of it.
    pub(crate) window: u32,
    /// Its new key.
    pub(crate) key: u32,
    /// The region, by its local key.
    pub(crate) region: u32,
    /// Where the window begins, in the region's addresses.
    pub(crate) start: u64,
    /// Bytes. None of them: the window is unbound.
    pub(crate) len: u64,
    /// The rights of the peer.
    pub(crate) access: Access,
}

impl Bind {
    /// The state that the request asks for: it holds the part of the region. `qp` made it.
    fn state(&self, pd: &Arc<Pd>, qp: u32) -> Result<State, Fault> {
        if self.len == 0 {
            return Ok(State::Unbound);
        }
        let access = self.access.without(Access::OPTIONAL);
        // Local rights are the region's affair.
        let known = Access::REMOTE | Access::FLUSH | Access::LOCAL_WRITE | Access::ZERO_BASED;
        if access.without(known) != Access::NONE {
            return Err(Fault::Protection);
        }
        // The region's own remote rights do not matter.
        let mut need = Access::MW_BIND;
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            need = need | Access::LOCAL_WRITE;
        }
        // But for this one, which not every memory can grant.
        if access.contains(Access::FLUSH_PERSISTENT) {
            need = need | Access::FLUSH_PERSISTENT;
        }
        let hold = hold(pd, self.region, self.start, self.len, need)?;
        let start = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            self.start
        };
        Ok(State::Bound(Binding {
            hold,
            range: Range {
                start,
                len: self.len,
                access,
            },
            qp,
        }))
    }
}

/// A part of a region that a window is bound to: the region cannot be destroyed.
struct Hold {
    region: Arc<Mr>,
    /// The region's memory.
    source: Source,
    /// Where the part starts within it, in bytes.
    start: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.region.windows.add(-1, Relaxed);
    }
}

/// Holds `va .. va + len` of the region with the local key `key`, which must have the rights `need`. It must
/// be a process's. Context: process or softirq.
fn hold(pd: &Arc<Pd>, key: u32, va: u64, len: u64, need: Access) -> Result<Hold, Fault> {
    let region = find(key)?;
    let state = region.state.lock();
    state.check_pd(pd)?;
    let Backing::User { memory, range } = &state.backing else {
        return Err(Fault::Protection);
    };
    if key & TAG_MASK != 0 {
        return Err(Fault::Protection);
    }
    let start = range.offset_of(va, len, need)?;
    region.windows.add(1, Relaxed);
    let source = Source::User(memory.clone());
    drop(state);
    Ok(Hold {
        region,
        source,
        start,
    })
}

/// The part of a region that a window is bound to.
pub(crate) struct Binding {
    hold: Hold,
    /// In a peer's addresses.
    range: Range,
    /// The number of the QP whose peer may use it; for type 2.
    qp: u32,
}

enum State {
    Unbound,
    Bound(Binding),
    /// Destroyed.
    Gone,
}

/// The state of a window, under the lock of its [`Mr`].
pub(crate) struct Window {
    ty: Type,
    tag: u32,
    state: State,
    /// Counts binds, so that an access that one admitted does not act on the next.
    generation: u64,
}

impl Window {
    /// The low bits of its key.
    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    /// Where it starts, in a peer's addresses.
    pub(super) fn start(&self) -> Result<u64, Fault> {
        match &self.state {
            State::Bound(binding) => Ok(binding.range.start),
            _ => Err(Fault::Protection),
        }
    }

    /// Whether it still is bound as it was in `generation`.
    pub(super) fn is_bound(&self, generation: u64) -> bool {
        self.generation == generation && matches!(self.state, State::Bound(_))
    }

    /// Whether the peer of the QP `qp` may access `va .. va + len` as `need` says. Returns the memory, where
    /// in it the range starts, and the generation.
    pub(super) fn check(
        &self,
        qp: u32,
        key: u32,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<(Source, u64, u64), Fault> {
        let State::Bound(binding) = &self.state else {
            return Err(Fault::Protection);
        };
        if key & TAG_MASK != self.tag || (self.ty == Type::Two && binding.qp != qp) {
            return Err(Fault::Protection);
        }
        let offset = binding.range.offset_of(va, len, need)?;
        let start = binding.hold.start.checked_add(offset);
        Ok((
            binding.hold.source.clone(),
            start.ok_or(Fault::Protection)?,
            self.generation,
        ))
    }

    /// Exchanges its state for that which `request` asks for. The old one is to be dropped without the lock.
    fn bind(&mut self, request: &Bind, state: &mut State) -> Result<(), Fault> {
        if request.key >> TAG_BITS != request.window >> TAG_BITS {
            return Err(Fault::Protection);
        }
        let tag = request.key & TAG_MASK;
        let is_zero_based = request.access.contains(Access::ZERO_BASED);
        let binds = matches!(state, State::Bound(_));
        let is_allowed = match self.ty {
            // It may be bound already; peers lose it by the change of the key.
            Type::One => {
                !matches!(self.state, State::Gone)
                    && request.window & TAG_MASK == self.tag
                    && tag != self.tag
                    && !(binds && is_zero_based)
            }
            // Its consumer owns the low bits of the key, and has to invalidate it first.
            Type::Two => matches!(self.state, State::Unbound) && binds,
        };
        if !is_allowed {
            return Err(Fault::Protection);
        }
        self.tag = tag;
        self.generation = self.generation.wrapping_add(1);
        core::mem::swap(&mut self.state, state);
        Ok(())
    }

    /// Invalidates it, for the QP `qp` or its peer. Returns what it was bound to; to be dropped without the
    /// lock.
    pub(super) fn invalidate(&mut self, qp: u32, key: u32) -> Result<Binding, Fault> {
        let is_allowed = self.ty == Type::Two && key & TAG_MASK == self.tag;
        match core::mem::replace(&mut self.state, State::Unbound) {
            State::Bound(binding) if is_allowed && binding.qp == qp => Ok(binding),
            state => {
                self.state = state;
                Err(Fault::Protection)
            }
        }
    }
}

impl MemoryWindow for Mr {
    type Pd = Pd;

    fn alloc(pd: &Arc<Pd>, ty: Type) -> Result<Arc<Self>> {
        publish(
            pd,
            Backing::Window(Window {
                ty,
                tag: 0,
                state: State::Unbound,
                generation: 0,
            }),
        )
    }

    fn key(&self) -> u32 {
        MemoryRegion::key(self)
    }

    fn dealloc(self: &Arc<Self>) {
        self.withdraw();
        let state = self.with_window(|window| core::mem::replace(&mut window.state, State::Gone));
        drop(state);
    }
}

/// Binds a window, by a request of the QP with the number `qp`, or unbinds it.
///
/// Errors: the window, the region, the part of it or the rights are not such that it can be bound; nothing is
/// changed then. Context: process or softirq.
pub(crate) fn bind(pd: &Arc<Pd>, qp: u32, request: &Bind) -> Result<(), Fault> {
    let window = find(request.window)?;
    window.state.lock().check_pd(pd)?;
    let mut state = request.state(pd, qp)?;
    window.with_window(|window| window.bind(request, &mut state))?
}
