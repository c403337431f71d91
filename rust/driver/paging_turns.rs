// SPDX-License-Identifier: GPL-2.0

//! Limits how many workers fault in pages for one context at the same time.
//!
//! A worker waits until the page is there. A process that serves its own page faults (`userfaultfd`) can make that last
//! for ever, and the workqueue has 1024 workers for all processes. So the QPs and protection domains of one context
//! share 64 turns. A QP that finds none free waits behind the others of its context; other contexts do not wait for it.
//! A process that opens the device several times has several contexts.

use crate::{
    pd::Pd,
    prefetch::PREFETCH,
    qp::{
        Qp,
        PAGING, //
    },
    storage::{
        append_now,
        take, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// Workers that the QPs and protection domains of a context have at the same time, at the most.
const MAX_TURNS: u32 = 64;

/// Where the work of a QP or of a protection domain stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There is nothing to do.
    #[default]
    None,
    /// It waits for a turn.
    Waiting,
    /// It has one: the work is queued, or runs.
    Running,
    /// The same, and there may be more to do than the work has seen.
    Again,
}

/// An object whose work needs a turn.
#[derive(Clone)]
pub(crate) enum Pager {
    Qp(Arc<Qp>),
    Pd(Arc<Pd>),
}

impl Pager {
    fn pd(&self) -> &Arc<Pd> {
        match self {
            Self::Qp(qp) => &qp.pd,
            Self::Pd(pd) => pd,
        }
    }

    fn turn(&self) -> &SpinLockBh<Turn> {
        match self {
            Self::Qp(qp) => qp.turn(),
            Self::Pd(pd) => pd.turn(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Qp(qp), Self::Qp(other)) => Arc::ptr_eq(qp, other),
            (Self::Pd(pd), Self::Pd(other)) => Arc::ptr_eq(pd, other),
            _ => false,
        }
    }

    /// Queues the work. It has a turn.
    fn run(self) {
        let device = self.pd().device().clone();
        let queue = device.paging_queue().queue();
        match self {
            Self::Qp(qp) => {
                let _ = queue.enqueue::<_, PAGING>(qp);
            }
            Self::Pd(pd) => {
                let _ = queue.enqueue::<_, PREFETCH>(pd);
            }
        }
    }

    /// There is something to do: has the work run, once it has a turn. Context: any but hard interrupt.
    pub(crate) fn want(self) {
        let mut turn = self.turn().lock();
        match *turn {
            Turn::None => {}
            Turn::Running => {
                *turn = Turn::Again;
                return;
            }
            Turn::Waiting | Turn::Again => return,
        }
        let has_turn = self.pd().turns().begin(&self);
        *turn = if has_turn {
            Turn::Running
        } else {
            Turn::Waiting
        };
        drop(turn);
        if has_turn {
            self.run();
        }
    }

    /// The work has run: its turn is the next one's. Context: process.
    pub(crate) fn end(self) {
        let before = core::mem::take(&mut *self.turn().lock());
        if let Some(next) = self.pd().turns().end() {
            *next.turn().lock() = Turn::Running;
            next.run();
        }
        if before == Turn::Again {
            self.want();
        }
    }

    /// It is being destroyed, and need not wait any more. Context: process.
    pub(crate) fn withdraw(self) {
        if *self.turn().lock() == Turn::Waiting {
            self.pd().turns().withdraw(&self);
        }
    }
}

/// The turns of a context.
#[pin_data]
pub(crate) struct Turns {
    #[pin]
    queue: SpinLockBh<Queue>,
}

#[derive(Default)]
struct Queue {
    taken: u32,
    /// The waiting ones: `front` in reverse order, then `back` in order.
    front: KVec<Pager>,
    back: KVec<Pager>,
}

impl Queue {
    fn pop(&mut self) -> Option<Pager> {
        if self.front.is_empty() {
            core::mem::swap(&mut self.front, &mut self.back);
            self.front.reverse();
        }
        self.front.pop()
    }

    fn remove(&mut self, pager: &Pager) -> Option<Pager> {
        let Self { front, back, .. } = self;
        [front, back].into_iter().find_map(|waiting| {
            let index = waiting.iter().position(|other| other.is(pager))?;
            take(waiting, index)
        })
    }
}

impl Turns {
    /// All are free. Context: process, may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                queue <- new_spin_lock_bh!(Queue::default()),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Takes a turn. Returns whether one was free; if not, `pager` waits for one. Where there is no memory to wait in,
    /// it has one more than there are.
    fn begin(&self, pager: &Pager) -> bool {
        let mut queue = self.queue.lock();
        if queue.taken >= MAX_TURNS && append_now(&mut queue.back, pager.clone()).is_ok() {
            return false;
        }
        queue.taken = queue.taken.wrapping_add(1);
        true
    }

    /// Gives a turn back, or to the one who is returned.
    fn end(&self) -> Option<Pager> {
        let mut queue = self.queue.lock();
        let next = queue.pop();
        if next.is_none() {
            queue.taken = queue.taken.wrapping_sub(1);
        }
        next
    }

    /// Has `pager` wait no more.
    fn withdraw(&self, pager: &Pager) {
        let withdrawn = self.queue.lock().remove(pager);
        drop(withdrawn);
    }
}
