// SPDX-License-Identifier: GPL-2.0

//! The send queue: where send requests are posted, and how they are fetched and completed.

use super::{
    super::{
        status,
        Qp, //
    },
    SendSide,
    ROUND_BUDGET, //
};
use crate::{
    device::{
        attributes::MAX_QP_WR,
        counters::{
            Counter,
            OF_SENDS, //
        }, //
    },
    memory::key::Mr,
    packet::ah::Ah,
    queue::{
        ring::{
            KernelRing,
            RequestRing, //
        },
        user_wqe,
        wqe::SendWqes, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    qp::Cap,
    ring::SharedRing,
    wc::{
        self,
        Completion, //
    }, //
};
use roce::requester::SendWr;

/// Where a QP's send requests come from.
pub(crate) enum SendSource {
    /// A ring shared with a process.
    User(RequestRing),
    /// [`super::Sending::posted`].
    Kernel,
}

impl SendSource {
    /// A ring for a process. It can fill it, whatever it asked for: `cap` says so, up to what it may ask for.
    /// Context: process, may sleep.
    pub(in super::super) fn user(cap: &mut Cap) -> Result<Self> {
        // A WQE with room for SGEs has the same room for inline data. Programs know, and send
        // such data without having asked for it.
        let room = user_wqe::inline_room(cap.max_send_sge);
        cap.max_inline_data = cap.max_inline_data.max(room);
        let len = user_wqe::send_wqe_len(cap.max_send_sge, cap.max_inline_data)?;
        let requests = RequestRing::new(cap.max_send_wr.max(1), len)?;
        cap.max_send_wr = requests.ring().capacity().min(MAX_QP_WR);
        Ok(Self::User(requests))
    }

    /// The ring, if it is shared with a process.
    pub(in super::super) fn ring(&self) -> Option<&Arc<SharedRing>> {
        match self {
            Self::User(requests) => Some(requests.ring()),
            Self::Kernel => None,
        }
    }
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
    pub(crate) fn new(slots: u32, cap: &Cap) -> Result<Self> {
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

impl SendSide {
    /// Drops what was posted and not fetched: a refused doorbell consumes its requests.
    pub(in super::super) fn discard(&mut self, qp: &Qp) {
        qp.release_held();
        match &mut self.source {
            SendSource::User(requests) => {
                if self.requester.is_empty() {
                    requests.discard_all();
                }
            }
            SendSource::Kernel => {
                if let Some(posted) = &mut *qp.send.posted.lock() {
                    posted.clear();
                }
            }
        }
    }

    /// Fetches what was posted since the last time, or as much of it as a round may, if the QP's state allows it. Returns
    /// whether there may be more.
    pub(in super::super) fn fetch_posted(&mut self, qp: &Qp) -> bool {
        if !qp.takes_sends() {
            return false;
        }
        let mut posted = None;
        let mut fresh = match &self.source {
            // The slots of requests that are not complete are still the kernel's. The producer index is read once a
            // round: there is an end to it.
            SendSource::User(requests) => requests.available().saturating_sub(self.requester.len()),
            SendSource::Kernel => {
                posted = Some(qp.send.posted.lock());
                u32::MAX
            }
        };
        for _ in 0..ROUND_BUDGET {
            if fresh == 0 || self.requester.len() >= self.requester.capacity() {
                return false;
            }
            fresh = fresh.wrapping_sub(1);
            let sequence = self.requester.next_sequence();
            let wr = match &mut self.source {
                SendSource::User(requests) => {
                    let Some(wqe) = requests.peek(self.requester.len()) else {
                        return false;
                    };
                    self.wqes.take_user(sequence, qp.ty, &qp.pd, wqe)
                }
                SendSource::Kernel => match posted.as_deref_mut() {
                    Some(Some(posted)) => posted.pop(&mut self.wqes, sequence),
                    _ => None,
                },
            };
            let Some(mut wr) = wr else {
                return false;
            };
            wr.signaled |= qp.send.signal_all;
            // The top bit of a datagram's queue key asks for that of the QP (IBTA 10.2.5).
            if wr.qkey >> 31 != 0 {
                wr.qkey = self.qkey;
            }
            if self.requester.post(wr).is_err() {
                return false;
            }
        }
        fresh > 0 && self.requester.len() < self.requester.capacity()
    }

    /// Hands finished requests to the CQ, or as many as a round may. Returns whether the CQ wants to be notified.
    pub(super) fn complete(&mut self, qp: &Qp) -> bool {
        let mut notify = false;
        // A kernel consumer may have posted more than it asked for. While the requester is full, that is not fetched.
        let is_full = self.requester.len() >= self.requester.capacity();
        let may_wait = is_full && matches!(self.source, SendSource::Kernel);
        for _ in 0..ROUND_BUDGET {
            let Some(done) = self.requester.poll_completion() else {
                return notify;
            };
            self.engine.again |= may_wait;
            let released = self.wqes.release(done.sequence);
            if let SendSource::User(requests) = &mut self.source {
                requests.advance();
            }
            let Some((wr_id, opcode)) = released else {
                continue;
            };
            let status = status(done.status);
            if status == wc::Status::Success && opcode == wc::Opcode::Send {
                self.sends = self.sends.wrapping_add(1);
            }
            if !done.signaled {
                continue;
            }
            match status {
                wc::Status::RetryExc => qp.count(Counter::RetryExceeded),
                wc::Status::RnrRetryExc => qp.count(Counter::RnrRetryExceeded),
                _ => {}
            }
            let mut completion = Completion::new(wr_id, status, opcode, qp.number);
            if status == wc::Status::Success {
                completion.byte_len = done.length;
            }
            notify |= qp.send.cq.post(&qp.verbs.handle, &completion, false).notify;
        }
        self.engine.again = true;
        notify
    }

    /// The counts since the QP was created, in the order of [`OF_SENDS`].
    pub(in super::super) fn counted(&self) -> [u64; OF_SENDS.len()] {
        let requester = self.requester.counters();
        [
            self.sends,
            requester.retransmitted_packets,
            requester.timeouts,
            requester.rnr_naks,
            requester.sequence_naks,
            requester.implied_naks,
        ]
    }

    /// Tells the device, or the counter that the QP is bound to, what has happened since the last time.
    pub(in super::super) fn report(&mut self, qp: &Qp) {
        let now = self.counted();
        self.tally.tell(&qp.device().counters, &OF_SENDS, now);
    }
}
