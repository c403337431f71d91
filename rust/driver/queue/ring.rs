// SPDX-License-Identifier: GPL-2.0

//! The kernel's end of rings that a process posts requests to, and the rings of kernel consumers.

use crate::storage::filled;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::ring::SharedRing;

/// The ring is full.
pub(crate) struct Full;

impl From<Full> for Error {
    fn from(_: Full) -> Self {
        EINVAL
    }
}

/// A ring of requests, whose producer is a process, and the kernel's end of it. Belongs under a lock.
pub(crate) struct RequestRing {
    ring: Arc<SharedRing>,
    /// The number of the oldest element.
    index: u32,
    /// One WQE of the ring, while it is fetched.
    scratch: KVVec<u8>,
}

/// The requests of a ring at some time.
pub(super) struct Posted {
    ring: Arc<SharedRing>,
    index: u32,
    count: u32,
}

impl RequestRing {
    /// As [`SharedRing::new`], of WQEs.
    pub(crate) fn new(min_entries: u32, wqe_len: usize) -> Result<Self> {
        Ok(Self {
            ring: SharedRing::new(min_entries, wqe_len)?,
            index: 0,
            scratch: filled(wqe_len, || Ok(0))?,
        })
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Arc<SharedRing> {
        &self.ring
    }

    /// How many elements there are: never more than the ring holds.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        let ring = &self.ring;
        ring.wrap(ring.producer().wrapping_sub(self.index))
    }

    /// A copy, made once, of the element `ahead` behind the oldest. The caller has seen that it is available.
    pub(crate) fn peek(&mut self, ahead: u32) -> Option<&[u8]> {
        let number = self.index.wrapping_add(ahead);
        self.ring.read(number, &mut self.scratch)?;
        Some(&self.scratch)
    }

    /// Gives the oldest element's slot back to the process.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.go_to(self.index.wrapping_add(1));
    }

    /// Gives all slots back.
    pub(crate) fn discard_all(&mut self) {
        self.go_to(self.ring.producer());
    }

    fn go_to(&mut self, index: u32) {
        self.index = index;
        self.ring.set_consumer(index);
    }

    /// The requests that are posted now. [`Self::copy_from`] needs no lock for them.
    pub(super) fn posted(&self) -> Posted {
        Posted {
            ring: self.ring.clone(),
            index: self.index,
            count: self.available(),
        }
    }

    /// Copies requests into this ring, which is new, and which nobody uses yet (resize). Context: process.
    pub(super) fn copy_from(&mut self, posted: &Posted) -> Result<(), Full> {
        let (to, scratch) = (&self.ring, &mut self.scratch);
        if posted.count > to.capacity() {
            return Err(Full);
        }
        for ahead in 0..posted.count {
            let number = posted.index.wrapping_add(ahead);
            posted.ring.read(number, scratch).ok_or(Full)?;
            to.write(ahead, scratch).ok_or(Full)?;
        }
        to.set_producer(posted.count);
        Ok(())
    }

    /// This ring has a copy of `posted`, the requests of `old` at some time. The next request is the one that would be the
    /// next of `old`. Requests that the process has added to `old` since are lost.
    pub(super) fn follow(&mut self, old: &Self, posted: &Posted) {
        let taken = old.ring.wrap(old.index.wrapping_sub(posted.index));
        self.go_to(taken.min(posted.count));
    }
}

/// A first-in first-out queue of fixed capacity, for kernel consumers. Belongs under a lock.
pub(crate) struct KernelRing<T> {
    slots: KVVec<Option<T>>,
    first: usize,
    len: usize,
}

impl<T> KernelRing<T> {
    /// Allocates room for `capacity` elements, at least one. Context: process, may sleep.
    pub(crate) fn with_capacity(capacity: u32) -> Result<Self> {
        let capacity = capacity.max(1) as usize;
        Ok(Self {
            slots: filled(capacity, || Ok(None))?,
            first: 0,
            len: 0,
        })
    }

    fn slot(&mut self, ahead: usize) -> Option<&mut Option<T>> {
        let index = self
            .first
            .wrapping_add(ahead)
            .checked_rem(self.slots.len())?;
        self.slots.get_mut(index)
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many elements fit.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.slots.len()
    }

    /// Appends an element.
    pub(crate) fn push(&mut self, value: T) -> Result<(), Full> {
        if self.is_full() {
            return Err(Full);
        }
        *self.slot(self.len).ok_or(Full)? = Some(value);
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest element.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = self.slot(0)?.take();
        self.len = self.len.wrapping_sub(1);
        self.first = self.first.wrapping_add(1).checked_rem(self.slots.len())?;
        value
    }

    /// The elements move to `larger`, which takes the place of this queue. Returns this one, empty.
    pub(crate) fn replace(&mut self, mut larger: Self) -> Self {
        while let Some(value) = self.pop() {
            let _ = larger.push(value);
        }
        core::mem::replace(self, larger)
    }

    /// Keeps the elements for which `keep` says so, in order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for _ in 0..self.len {
            if let Some(value) = self.pop() {
                if keep(&value) {
                    let _ = self.push(value);
                }
            }
        }
    }
}
