// SPDX-License-Identifier: GPL-2.0

//! Memory regions: how they are registered, and how they end.

use crate::memory::{
    access::{
        Access,
        Fault,
        Range, //
    },
    key::{
        publish,
        Backing,
        Fast,
        Mr,
        State,
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
    details::Details,
    memory::Unchecked,
    mr::{
        FastPages,
        MemoryRegion,
        UserMemory,
        UserRegion, //
    }, //
};
use sync::SpinLockBhGuard;

impl MemoryRegion for Mr {
    type Pd = Pd;

    fn register_user(pd: &Arc<Pd>, region: UserRegion) -> Result<Arc<Self>> {
        let range = Range::of(&region)?;
        let memory = region.memory;
        publish(pd, Backing::User { memory, range })
    }

    fn user_region(&self) -> Result<UserRegion> {
        match &self.state.lock().backing {
            Backing::User { memory, range } => Ok(UserRegion {
                iova: range.start,
                access: range.access,
                memory: memory.clone(),
            }),
            _ => Err(EINVAL),
        }
    }

    fn reregister_user(&self, pd: &Arc<Pd>, region: UserRegion) -> Result {
        let range = Range::of(&region)?;
        let mut state = self.state.lock();
        if self.windows.load(Relaxed) != 0 {
            return Err(EBUSY);
        }
        let Backing::User { memory: former, .. } = &state.backing else {
            return Err(EINVAL);
        };
        let (former, memory) = (former.clone(), region.memory);
        let is_same = former.is_same(&memory);
        let now = State {
            pd: pd.clone(),
            backing: Backing::User { memory, range },
        };
        self.raise_version();
        let before = core::mem::replace(&mut *state, now);
        drop(state);
        drop(before);
        if is_same {
            // Accesses by the former rights or domain have bottom halves off: a grace period waits for them.
            sync::synchronize_rcu();
        } else {
            former.release();
        }
        Ok(())
    }

    fn get_dma(pd: &Arc<Pd>, access: Access, memory: Unchecked) -> Result<Arc<Self>> {
        // Nobody knows what memory its consumer will name.
        let access = access.without(Access::FLUSH_PERSISTENT);
        publish(pd, Backing::Dma { memory, access })
    }

    fn alloc(pd: &Arc<Pd>, pages: Arc<FastPages>) -> Result<Arc<Self>> {
        let state = Fast::default();
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
            Backing::User { memory, range } => match memory {
                UserMemory::Pinned(umem) if umem.is_dma_buf() => (c"dma-buf", Some(range.access)),
                UserMemory::Pinned(_) => (c"pinned", Some(range.access)),
                UserMemory::OnDemand(_) => (c"on demand", Some(range.access)),
            },
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
fn end(mr: &Arc<Mr>, mut state: SpinLockBhGuard<'_, State>) -> Result {
    let is_dma = matches!(state.backing, Backing::Dma { .. });
    let memory = match &mut state.backing {
        Backing::User { memory, range } => {
            mr.raise_version();
            range.end();
            Some(memory.clone())
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
        memory.release();
    }
    if is_dma {
        // Accesses have bottom halves off: a grace period waits for them.
        sync::synchronize_rcu();
    }
    Ok(())
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
