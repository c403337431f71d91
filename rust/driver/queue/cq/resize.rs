// SPDX-License-Identifier: GPL-2.0

//! Completion queues that get another ring: a process asks for it, or a kernel consumer makes a QP.

use super::{
    Cq,
    Queue, //
};
use crate::queue::{
    ring::KernelRing,
    user_cq::UserCq, //
};
use kernel::prelude::*;

/// How often the completions of a queue that is resized are copied without its lock, while more come, and how many may
/// be left to be copied under it: then, and after the last round.
const COPY_ROUNDS: u32 = 64;
const COPY_REST: u32 = 64;
const COPY_MOST: u32 = 4096;

impl Cq {
    /// Moves a process's queue to another ring, which is empty. Returns the old one. The completions are copied
    /// without the lock, but for the last ones: there may be many, and interrupts are off under it. Errors: `EBUSY` if
    /// more come all the time than are copied; then the queue is as it was. The caller has its turn.
    pub(super) fn move_to(&self, mut new: UserCq) -> Result<UserCq> {
        let mut moving = match &mut self.state.lock().queue {
            Queue::User(old) => old.begin_move(),
            Queue::Kernel(_) => return Err(EINVAL),
        };
        let mut rounds = 0..COPY_ROUNDS;
        loop {
            moving.copy(&new)?;
            let is_last = rounds.next().is_none();
            let most = if is_last { COPY_MOST } else { COPY_REST };
            let mut state = self.state.lock();
            let Queue::User(old) = &mut state.queue else {
                return Err(EINVAL);
            };
            if old.end_move(&mut moving, &mut new, most)? {
                return Ok(new);
            }
            if is_last {
                return Err(EBUSY);
            }
        }
    }

    /// A QP that completes here has so many WRs. A kernel consumer's queue has room for all of them, beside the completions
    /// that it asked for. A consumer counts a completion for each WR that is signaled, but a QP in error completes all of
    /// them: `nvmet_rdma` asks for 385 completions of a QP that has 1281 WRs, and several QPs share a queue.
    ///
    /// Errors: `ENOMEM`; [`Self::release`] has to be called all the same. Context: process, may sleep.
    pub(crate) fn reserve(&self, wrs: u32) -> Result {
        // Nothing completes in the stand-in.
        if self.is_user || self.events.is_none() {
            return Ok(());
        }
        {
            let mut reserved = self.resizing.lock();
            *reserved = reserved.saturating_add(wrs);
        }
        loop {
            let needed = self.asked.saturating_add(*self.resizing.lock());
            let capacity = match &self.state.lock().queue {
                Queue::User(_) => return Ok(()),
                Queue::Kernel(ring) => u32::try_from(ring.capacity()).unwrap_or(u32::MAX),
            };
            if capacity >= needed {
                return Ok(());
            }
            // More than is needed: many QPs may come, one after the other. Without a lock: to get memory may take a QP of
            // another consumer of this queue.
            let more = capacity.saturating_add(capacity.wrapping_div(2));
            let larger = KernelRing::with_capacity(needed.max(more))?;
            let reserved = self.resizing.lock();
            if larger.capacity() < self.asked.saturating_add(*reserved) as usize {
                continue;
            }
            // As a rule few completions wait when a QP is made.
            let former = match &mut self.state.lock().queue {
                Queue::Kernel(ring) if ring.capacity() < larger.capacity() => {
                    Some(ring.replace(larger))
                }
                _ => None,
            };
            drop(reserved);
            drop(former);
            return Ok(());
        }
    }

    /// Undoes one [`Self::reserve`]. The ring stays as large as it is. Context: process, may sleep.
    pub(crate) fn release(&self, wrs: u32) {
        if !self.is_user && self.events.is_some() {
            let mut reserved = self.resizing.lock();
            *reserved = reserved.saturating_sub(wrs);
        }
    }
}
