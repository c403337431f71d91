// SPDX-License-Identifier: GPL-2.0

//! Pages that are faulted in before they are needed, because a process said that they will be
//! (`ibv_advise_mr(3)`).
//!
//! A call that is to wait (`flush`) does it all itself, as for memory that is pinned. For the others there is work: of
//! each protection domain at most one at a time, so that pages that never come cost no more than one worker.

use crate::{
    memory::{
        access::Access,
        key::{
            Backing,
            REGIONS,
            TAG_BITS,
            TAG_MASK, //
        },
        paging_turns,
        pd::{
            Pd,
            Wanted,
            PREFETCH, //
        }, //
    },
    storage::append, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use rdma::{
    memory::Intent,
    mr::{
        Advice,
        Advise,
        Advised,
        AdvisedRanges,
        UserMemory, //
    },
    on_demand::{
        Effort,
        MissingPages,
        OnDemand, //
    },
};

/// Ranges of a protection domain that wait, at the most. An advice binds nobody: what is beyond is forgotten.
const MAX_PENDING: usize = 64;

impl Wanted {
    /// Brings them in, for `pd`. Errors: `EFAULT` if the process could not access a page itself, or the memory is
    /// released; `ENODEV` if the device goes away; `EINTR` if the process that waits is being killed.
    fn fault_in(mut self, pd: &Pd) -> Result {
        while !self.pages.is_empty() {
            if pd.device().is_retired() {
                return Err(ENODEV);
            }
            // Others wait until the pages are there: a system call that begins anew each time, with a timer that expires
            // more often than it gets to its end, would never end.
            if sync::fatal_signal_pending() {
                return Err(EINTR);
            }
            let count = self.memory.fault_in(&self.pages, self.effort)?;
            self.pages = self.pages.without_first(count);
        }
        Ok(())
    }
}

/// Memory that is paged on demand, of a region with the local key `key`, and where `va .. va + len` is in it.
///
/// Errors: `ENOENT` for no such key, `EPERM` for that of another protection domain or for a region that may not
/// be written to, `EINVAL` for a key of something else, `EFAULT` beyond the region's end.
/// Context: process or softirq.
fn paged(pd: &Arc<Pd>, advice: Advice, at: &Advised) -> Result<(OnDemand, MissingPages)> {
    let mr = REGIONS.get(at.key >> TAG_BITS).ok_or(ENOENT)?;
    let state = mr.state.lock();
    state.check_pd(pd).or(Err(EPERM))?;
    let Backing::User {
        memory: UserMemory::OnDemand(memory),
        range,
    } = &state.backing
    else {
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

impl Advise for Pd {
    /// Faults in, or if not `flush` has work fault in, the ranges.
    ///
    /// Errors: those of [`paged`]; with `flush` also those of [`Wanted::fault_in`].
    fn advise(self: &Arc<Self>, advice: Advice, flush: bool, ranges: AdvisedRanges<'_>) -> Result {
        let effort = match advice {
            Advice::Read | Advice::Write => Effort::Fault,
            Advice::IfPresent => Effort::Present,
        };
        let mut all = KVVec::new();
        for range in ranges {
            let (memory, pages) = paged(self, advice, &range)?;
            let wanted = Wanted {
                memory,
                pages,
                effort,
            };
            append(&mut all, wanted)?;
        }
        if flush {
            for wanted in all {
                wanted.fault_in(self)?;
            }
            return Ok(());
        }
        let queued = self.queue(all);
        paging_turns::want(self.clone());
        queued
    }
}

impl Pd {
    /// Has `all` wait for the work, or as much of it as there is room for.
    fn queue(&self, all: KVVec<Wanted>) -> Result {
        let mut pending = self.pending.lock();
        for wanted in all {
            if pending.len() >= MAX_PENDING {
                break;
            }
            append(&mut *pending, wanted)?;
        }
        Ok(())
    }
}

impl WorkItem<PREFETCH> for Pd {
    type Pointer = Arc<Pd>;

    fn run(pd: Arc<Pd>) {
        let wanted = core::mem::take(&mut *pd.pending.lock());
        for wanted in wanted {
            // A later access to a missing page reports the error.
            let _ = wanted.fault_in(&pd);
        }
        paging_turns::end(pd);
    }
}
