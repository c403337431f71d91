// SPDX-License-Identifier: GPL-2.0

//! Where a QP's send requests wait until the send side takes them over.

use crate::{
    memory::mr::Mr,
    packet::ah::Ah,
    queue::{
        ring::{
            Consumer,
            KernelRing,
            SharedRing, //
        },
        wqe::SendWqes, //
    }, //
};
use kernel::prelude::*;
use roce::requester::SendWr;

/// Where a QP's send requests come from.
pub(crate) enum SendSource {
    /// A ring shared with a process.
    User {
        ring: SharedRing,
        consumer: Consumer,
        /// Requests fetched and not complete: their ring slots are still the kernel's.
        outstanding: u32,
        /// One WQE of the ring, while it is fetched.
        scratch: KVVec<u8>,
    },
    /// [`super::Qp::kernel_sends`].
    Kernel,
}

/// Work requests of a kernel consumer that the send side has not fetched.
pub(crate) struct PostedSends {
    wqes: SendWqes,
    queue: KernelRing<SendWr>,
    first: u32,
    next: u32,
}

impl PostedSends {
    /// Allocates room for `slots` requests, a power of two. Context: process, may sleep.
    pub(crate) fn new(slots: u32, cap: &rdma::qp::Cap) -> Result<Self> {
        Ok(Self {
            wqes: SendWqes::new(slots, cap)?,
            queue: KernelRing::with_capacity(slots)?,
            first: 0,
            next: 0,
        })
    }

    /// Copies a consumer's request. Errors: `ENOMEM` if the queue is full, `EINVAL` if the request
    /// does not fit the QP. Context: any.
    pub(crate) fn push(&mut self, wr: &rdma::wr::SendWr<'_, Ah, Mr>) -> Result {
        if self.queue.is_full() {
            return Err(ENOMEM);
        }
        let wr = self.wqes.take_kernel(self.next, wr)?;
        self.queue.push(wr).or(Err(ENOMEM))?;
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Moves the oldest request into `wqes` as `sequence`.
    pub(super) fn pop(&mut self, wqes: &mut SendWqes, sequence: u32) -> Option<SendWr> {
        let wr = self.queue.pop()?;
        let from = self.first;
        self.first = self.first.wrapping_add(1);
        wqes.take_from(&mut self.wqes, from, sequence)?;
        Some(wr)
    }

    /// Forgets every request.
    pub(crate) fn clear(&mut self) {
        while self.queue.pop().is_some() {
            self.wqes.release(self.first);
            self.first = self.first.wrapping_add(1);
        }
    }
}
