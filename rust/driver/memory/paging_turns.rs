// SPDX-License-Identifier: GPL-2.0

//! Limits how many workers fault in pages for one context at the same time.
//!
//! A worker waits until the page is there. A process that serves its own page faults (`userfaultfd`) can make that last
//! for ever, and the workqueue has 1024 workers for all processes. So the QPs and protection domains of one context
//! share 64 turns. With several memory nodes, each has its share of the workers, and there are as many turns fewer: a
//! process that runs on one node takes no larger part of that node's workers. A QP that finds no turn free waits behind
//! the others of its context; other contexts do not wait for it. A process that opens the device several times has
//! several contexts.

use crate::storage::{
    append_now,
    take, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// Workers that the QPs and protection domains of a context have at the same time, at the most, on a machine with one
/// memory node.
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
    /// It is being destroyed: there will be nothing to do.
    Ended,
}

/// An object whose work needs a turn: a QP or a protection domain.
pub(crate) trait Pager: Send + Sync {
    /// The turns of its context. Context: any.
    fn turns(&self) -> &Turns;

    /// Where its work stands. Context: any.
    fn turn(&self) -> &SpinLockBh<Turn>;

    /// Queues the work, which calls [`end`] last. It has a turn. Context: any but hard interrupt.
    fn run(self: Arc<Self>);
}

/// Whether these are the same object, whatever their vtables.
fn is_same(one: &Arc<dyn Pager>, other: &Arc<dyn Pager>) -> bool {
    core::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// There is something to do: has the work run, once it has a turn. Context: any but hard interrupt.
pub(crate) fn want(pager: Arc<dyn Pager>) {
    let mut turn = pager.turn().lock();
    match *turn {
        Turn::None => {}
        Turn::Running => {
            *turn = Turn::Again;
            return;
        }
        Turn::Waiting | Turn::Again | Turn::Ended => return,
    }
    let has_turn = pager.turns().begin(&pager);
    *turn = if has_turn {
        Turn::Running
    } else {
        Turn::Waiting
    };
    drop(turn);
    if has_turn {
        pager.run();
    }
}

/// The work has run: its turn is the next one's. Context: process.
pub(crate) fn end(pager: Arc<dyn Pager>) {
    let before = {
        let mut turn = pager.turn().lock();
        let before = *turn;
        if before != Turn::Ended {
            *turn = Turn::None;
        }
        before
    };
    while let Some(next) = pager.turns().end() {
        {
            let mut turn = next.turn().lock();
            if *turn == Turn::Ended {
                continue;
            }
            *turn = Turn::Running;
        }
        next.run();
        break;
    }
    if before == Turn::Again {
        want(pager);
    }
}

/// It is being destroyed, and will not wait any more. Context: process.
pub(crate) fn withdraw(pager: &Arc<dyn Pager>) {
    let before = core::mem::replace(&mut *pager.turn().lock(), Turn::Ended);
    if before == Turn::Waiting {
        pager.turns().withdraw(pager);
    }
}

/// The turns of a context.
#[pin_data]
pub(crate) struct Turns {
    /// How many there are.
    count: u32,
    #[pin]
    queue: SpinLockBh<Queue>,
}

#[derive(Default)]
struct Queue {
    taken: u32,
    /// The waiting ones: `front` in reverse order, then `back` in order.
    front: KVec<Arc<dyn Pager>>,
    back: KVec<Arc<dyn Pager>>,
}

impl Queue {
    fn pop(&mut self) -> Option<Arc<dyn Pager>> {
        if self.front.is_empty() {
            core::mem::swap(&mut self.front, &mut self.back);
            self.front.reverse();
        }
        self.front.pop()
    }

    fn remove(&mut self, pager: &Arc<dyn Pager>) -> Option<Arc<dyn Pager>> {
        let Self { front, back, .. } = self;
        [front, back].into_iter().find_map(|waiting| {
            let index = waiting.iter().position(|other| is_same(other, pager))?;
            take(waiting, index)
        })
    }
}

impl Turns {
    /// All are free. Context: process, may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                count: MAX_TURNS.checked_div(sync::online_nodes()).unwrap_or(1).max(1),
                queue <- new_spin_lock_bh!(Queue::default()),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Takes a turn. Returns whether one was free; if not, `pager` waits for one. Where there is no memory to wait in,
    /// it has one more than there are.
    fn begin(&self, pager: &Arc<dyn Pager>) -> bool {
        let mut queue = self.queue.lock();
        if queue.taken >= self.count && append_now(&mut queue.back, pager.clone()).is_ok() {
            return false;
        }
        queue.taken = queue.taken.wrapping_add(1);
        true
    }

    /// Gives a turn back, or to the one who is returned.
    fn end(&self) -> Option<Arc<dyn Pager>> {
        let mut queue = self.queue.lock();
        let next = queue.pop();
        if next.is_none() {
            queue.taken = queue.taken.wrapping_sub(1);
        }
        next
    }

    /// Has `pager` wait no more.
    fn withdraw(&self, pager: &Arc<dyn Pager>) {
        let withdrawn = self.queue.lock().remove(pager);
        drop(withdrawn);
    }
}
