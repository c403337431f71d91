// SPDX-License-Identifier: GPL-2.0

//! Where a QP's receive requests wait until a message takes them.

use crate::{
    element::RecvElement,
    queue::{
        Consumer,
        SharedRing, //
    },
    storage::filled, //
};
use kernel::prelude::*;

/// Where a QP's receive requests come from.
pub(crate) enum RecvSource {
    /// A ring shared with a process.
    User {
        ring: SharedRing,
        consumer: Consumer,
        /// One element of the ring, while it is taken over.
        scratch: KVVec<u8>,
    },
    /// [`super::Qp::kernel_receives`].
    Kernel,
}

/// Receive requests of a kernel consumer.
pub(crate) struct StagedReceives {
    slots: KVVec<RecvElement>,
    first: u32,
    len: u32,
}

impl StagedReceives {
    /// Allocates room for `slots` requests. Context: process, may sleep.
    pub(crate) fn new(slots: u32, max_sge: u32) -> Result<Self> {
        Ok(Self {
            slots: filled(slots as usize, || RecvElement::new(max_sge))?,
            first: 0,
            len: 0,
        })
    }

    fn slot(&mut self, ahead: u32) -> Option<&mut RecvElement> {
        let index = (self.first.wrapping_add(ahead) as usize).checked_rem(self.slots.len())?;
        self.slots.get_mut(index)
    }

    /// Copies a consumer's request. Errors: `ENOMEM` if the queue is full, `EINVAL` if the list is
    /// too long. Context: any.
    pub(crate) fn push(&mut self, wr: &rdma::wr::RecvWr<'_>) -> Result {
        if self.len as usize >= self.slots.len() {
            return Err(ENOMEM);
        }
        self.slot(self.len).ok_or(ENOMEM)?.take_kernel(wr)?;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Swaps the oldest request into `out`.
    pub(super) fn pop(&mut self, out: &mut RecvElement) -> Option<()> {
        if self.len == 0 {
            return None;
        }
        core::mem::swap(self.slot(0)?, out);
        self.len = self.len.wrapping_sub(1);
        let next = (self.first as usize)
            .wrapping_add(1)
            .checked_rem(self.slots.len())?;
        self.first = u32::try_from(next).ok()?;
        Some(())
    }

    /// Forgets every request.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}
