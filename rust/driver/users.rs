// SPDX-License-Identifier: GPL-2.0

//! The QPs that fail with an object that they use: their device, a CQ, an SRQ.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Mutex, //
    },
};

/// The QPs that use one object.
///
/// An object that fails walks over these QPs only, not over all of the module. A queue does so only if one of them has left
/// RESET since the last time: otherwise a process whose queue fails all the time would keep a worker busy.
#[pin_data]
pub(crate) struct Users {
    /// Their numbers. References would be a circle.
    #[pin]
    numbers: Mutex<RBTree<u32, ()>>,
    /// One of them has left RESET since the last walk.
    has_started: Atomic<bool>,
}

impl Users {
    /// No QPs.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            numbers <- new_mutex!(RBTree::new()),
            has_started: Atomic::new(false),
        })
    }

    /// A QP, which is in RESET, is to fail with the object. Context: process, may sleep.
    pub(crate) fn add(&self, number: u32) -> Result {
        let node = RBTreeNode::new(number, (), GFP_KERNEL_ACCOUNT)?;
        self.numbers.lock().insert(node);
        Ok(())
    }

    /// A QP does not use the object any more. Context: process, may sleep.
    pub(crate) fn remove(&self, number: u32) {
        self.numbers.lock().remove(&number);
    }

    /// One of the QPs has left RESET. Context: any.
    pub(crate) fn started(&self) {
        self.has_started.store(true, Release);
    }

    /// Whether a QP may have left RESET since the last [`Users::for_each`]. Context: any.
    pub(crate) fn may_fail(&self) -> bool {
        self.has_started.load(Relaxed)
    }

    /// Calls `f` with the number of each QP, which may be another QP's by now. Context: process, may sleep.
    pub(crate) fn for_each(&self, f: impl Fn(u32)) {
        // First: a QP that starts while the others are looked at may be missed, and is noted for the next time.
        self.has_started.xchg(false, Full);
        let mut from = 0;
        while let Some(number) = self.first_from(from) {
            f(number);
            from = number.saturating_add(1);
        }
    }

    /// The lowest number that is not below `from`. QP numbers end before `u32` does.
    fn first_from(&self, from: u32) -> Option<u32> {
        let numbers = self.numbers.lock();
        let number = *numbers.cursor_lower_bound(&from)?.current().0;
        Some(number)
    }
}
