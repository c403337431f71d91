// SPDX-License-Identifier: GPL-2.0

//! Limits how many workers fault in pages for one context at the same time.
//!
//! A worker waits until the page is there. A process that serves its own page faults (`userfaultfd`) can make that last
//! for ever, and the workqueue has 1024 workers for all processes. So the QPs and protection domains of one context
//! share 64 turns. With several memory nodes, each has its share of the workers, and there are as many turns fewer: a
//! process that runs on one node takes no larger part of that node's workers. A QP that finds no turn free waits behind
//! the others of its context; other contexts do not wait for it. A process that opens the device several times has
//! several contexts.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
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
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is nothing to do.
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

/// The memory to wait in.
type WaitNode = RBTreeNodeReservation<u64, Arc<dyn Pager>>;

/// The work of a QP or of a protection domain.
pub(crate) struct Turn {
    state: State,
    /// [`None`] while it waits. It is allocated with the object: to wait takes no memory, and does not fail.
    node: Option<WaitNode>,
    /// Its number in the queue, while it waits.
    number: u64,
}

impl Turn {
    /// There is nothing to do yet. Context: process, may sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            state: State::None,
            node: Some(WaitNode::new(GFP_KERNEL_ACCOUNT)?),
            number: 0,
        })
    }
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

/// There is something to do: has the work run, once it has a turn. Context: any but hard interrupt.
pub(crate) fn want(pager: Arc<dyn Pager>) {
    let mut turn = pager.turn().lock();
    match turn.state {
        State::None => {}
        State::Running => {
            turn.state = State::Again;
            return;
        }
        State::Waiting | State::Again | State::Ended => return,
    }
    let has_turn = pager.turns().begin(&pager, &mut turn);
    turn.state = match has_turn {
        true => State::Running,
        false => State::Waiting,
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
        let before = turn.state;
        if before != State::Ended {
            turn.state = State::None;
        }
        before
    };
    while let Some((next, node)) = pager.turns().end() {
        {
            let mut turn = next.turn().lock();
            if turn.state == State::Ended {
                continue;
            }
            turn.state = State::Running;
            turn.node = Some(node);
        }
        next.run();
        break;
    }
    if before == State::Again {
        want(pager);
    }
}

/// It is being destroyed, and will not wait any more. Context: process.
pub(crate) fn withdraw(pager: &Arc<dyn Pager>) {
    let (before, number) = {
        let mut turn = pager.turn().lock();
        let before = core::mem::replace(&mut turn.state, State::Ended);
        (before, turn.number)
    };
    if before == State::Waiting {
        pager.turns().withdraw(number);
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

struct Queue {
    taken: u32,
    /// The waiting ones, by their numbers: in the order in which they came.
    waiting: RBTree<u64, Arc<dyn Pager>>,
    /// How many have ever waited.
    numbers: u64,
}

impl Turns {
    /// All are free. Context: process, may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                count: MAX_TURNS.checked_div(sync::online_nodes()).unwrap_or(1).max(1),
                queue <- new_spin_lock_bh!(Queue {
                    taken: 0,
                    waiting: RBTree::new(),
                    numbers: 0,
                }),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Takes a turn. Returns whether one was free; if not, `pager`, whose turn it is, waits for one.
    fn begin(&self, pager: &Arc<dyn Pager>, turn: &mut Turn) -> bool {
        let mut queue = self.queue.lock();
        if queue.taken >= self.count {
            if let Some(node) = turn.node.take() {
                queue.numbers = queue.numbers.wrapping_add(1);
                turn.number = queue.numbers;
                queue
                    .waiting
                    .insert(node.into_node(turn.number, pager.clone()));
                return false;
            }
        }
        queue.taken = queue.taken.wrapping_add(1);
        true
    }

    /// Gives a turn back, or to the one who is returned, with its memory to wait in.
    fn end(&self) -> Option<(Arc<dyn Pager>, WaitNode)> {
        let mut queue = self.queue.lock();
        let Some(first) = queue.waiting.cursor_front_mut() else {
            queue.taken = queue.taken.wrapping_sub(1);
            return None;
        };
        let pager = first.current().1.clone();
        let (_, node) = first.remove_current();
        Some((pager, node.into_reservation()))
    }

    /// The one with this number waits no more.
    fn withdraw(&self, number: u64) {
        let withdrawn = self.queue.lock().waiting.remove_node(&number);
        drop(withdrawn);
    }
}
