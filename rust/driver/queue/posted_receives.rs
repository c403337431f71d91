// SPDX-License-Identifier: GPL-2.0

//! Receive requests of a kernel consumer, until a message takes them.

use crate::{
    queue::wqe::RecvWqe,
    storage::filled, //
};
use kernel::prelude::*;
use rdma::wr::RecvWrs;
use roce::responder::Receive;

/// Receive requests of a kernel consumer. Belongs under an irqsave lock.
pub(crate) struct PostedReceives {
    slots: KVVec<RecvWqe>,
    first: u32,
    len: u32,
}

impl PostedReceives {
    /// Allocates room for `slots` requests. Context: process, may sleep.
    pub(crate) fn new(slots: u32, max_sge: u32) -> Result<Self> {
        Ok(Self {
            slots: filled(slots as usize, || RecvWqe::new(max_sge))?,
            first: 0,
            len: 0,
        })
    }

    /// How many requests there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    fn slot(&mut self, ahead: u32) -> Option<&mut RecvWqe> {
        let index = (self.first.wrapping_add(ahead) as usize).checked_rem(self.slots.len())?;
        self.slots.get_mut(index)
    }

    /// Copies a consumer's request.
    fn push(&mut self, wr: &rdma::wr::RecvWr<'_>) -> Result {
        if self.len as usize >= self.slots.len() {
            return Err(ENOMEM);
        }
        self.slot(self.len).ok_or(ENOMEM)?.take_kernel(wr)?;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Copies a consumer's requests, up to the first one that cannot be posted.
    ///
    /// Errors: `ENOMEM` if the queue is full, `EINVAL` if a list is too long. Context: any.
    pub(crate) fn post(&mut self, wrs: &mut RecvWrs<'_>) -> Result {
        for wr in wrs.by_ref() {
            self.push(&wr)?;
        }
        Ok(())
    }

    /// Copies the oldest request to `out`, which has room for as long a list, and takes it off the queue. [`None`] if
    /// there is no request. Not a swap: `out` of an XRC QP serves SRQs of different `max_sge`, and each slot keeps the
    /// room of its queue.
    pub(crate) fn pop(&mut self, out: &mut RecvWqe) -> Option<Receive> {
        if self.len == 0 {
            return None;
        }
        out.copy(self.slot(0)?)?;
        self.len = self.len.wrapping_sub(1);
        let next = (self.first as usize)
            .wrapping_add(1)
            .checked_rem(self.slots.len())?;
        self.first = u32::try_from(next).ok()?;
        Some(Receive::Taken {
            capacity: out.capacity,
        })
    }

    /// Forgets every request.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}
