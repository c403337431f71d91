// SPDX-License-Identifier: GPL-2.0

//! Where a QP's receive requests wait until a message takes them.

use super::super::Qp;
use crate::{
    device::attributes::{
        MAX_QP_WR,
        MAX_SGE, //
    },
    memory::pd::Pd,
    queue::{
        cq::Cq,
        ring::RequestRing,
        srq::Srq,
        user_wqe,
        wqe::RecvWqe,
        xrcd::Xrcd, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    qp::Cap,
    ring::SharedRing, //
};
use roce::{
    responder::Receive,
    wire::U24, //
};

/// Where a QP's receive requests come from.
pub(crate) enum RecvSource {
    /// A ring shared with a process.
    User(RequestRing),
    /// [`super::Receiving::posted`]: of a kernel consumer. An XRC initiator has an empty one.
    Kernel,
    /// A queue that other QPs take from, too.
    Shared(Arc<Srq>),
    /// The XRC SRQs of this domain: each packet names one.
    Domain(Arc<Xrcd>),
}

impl RecvSource {
    /// A ring for a process. It can fill it, whatever it asked for: `cap` says so, up to what it may ask for.
    /// Context: process, may sleep.
    pub(in super::super) fn user(cap: &mut Cap) -> Result<Self> {
        let len = user_wqe::recv_wqe_len(cap.max_recv_sge)?;
        let requests = RequestRing::new(cap.max_recv_wr.max(1), len)?;
        cap.max_recv_wr = requests.ring().capacity().min(MAX_QP_WR);
        Ok(Self::User(requests))
    }

    /// The QP's own ring, if it is shared with a process.
    pub(in super::super) fn ring(&self) -> Option<&Arc<SharedRing>> {
        match self {
            Self::User(requests) => Some(requests.ring()),
            Self::Kernel | Self::Shared(_) | Self::Domain(_) => None,
        }
    }
}

/// A QP's receive requests, and the one that is in use. Belongs under the receive lock.
pub(super) struct ReceiveQueue {
    source: RecvSource,
    /// The request that the message in work fills.
    current: RecvWqe,
    /// `current` is in use.
    holding: bool,
    /// The XRC SRQ that `current` is from.
    xrc_srq: Option<Arc<Srq>>,
    /// That nothing more is taken from the shared queue has been told.
    last_told: bool,
}

impl ReceiveQueue {
    /// A queue of requests of up to `max_sge` buffers. Context: process, may sleep.
    pub(super) fn new(max_sge: u32, source: RecvSource) -> Result<Self> {
        let max_sge = match &source {
            RecvSource::Shared(srq) => srq.max_sge(),
            RecvSource::Domain(_) => MAX_SGE,
            RecvSource::User(_) | RecvSource::Kernel => max_sge,
        };
        Ok(Self {
            source,
            current: RecvWqe::new(max_sge)?,
            holding: false,
            xrc_srq: None,
            last_told: false,
        })
    }

    /// Whether its requests come from an SRQ that the QP was made with.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.source, RecvSource::Shared(_))
    }

    /// The request that was taken last.
    pub(super) fn current(&self) -> &RecvWqe {
        &self.current
    }

    /// The domain that the keys of receive requests belong to: the shared queue's own, which may be
    /// another than the QP's (IBTA 10.2.9).
    ///
    /// [`None`] if no request is in use, or one that is not of the XRC SRQ `xrc`, which the caller is inside.
    pub(super) fn pd<'a>(&'a self, qp: &'a Qp, xrc: Option<&'a Arc<Srq>>) -> Option<&'a Arc<Pd>> {
        if !self.holding {
            return None;
        }
        match &self.source {
            RecvSource::Shared(srq) => Some(srq.pd()),
            RecvSource::User(_) | RecvSource::Kernel => Some(&qp.pd),
            RecvSource::Domain(_) => {
                let (held, xrc) = self.xrc_srq.as_ref().zip(xrc)?;
                Arc::ptr_eq(held, xrc).then(|| xrc.pd())
            }
        }
    }

    /// The XRC SRQ that the request which was taken last is from, and where it completes.
    pub(super) fn xrc(&self) -> Option<(&Arc<Srq>, &Arc<Cq>)> {
        let srq = self.xrc_srq.as_ref()?;
        Some((srq, srq.cq()?))
    }

    /// The XRC SRQ `number`, if it is of the QP's domain.
    pub(super) fn xrc_srq(&self, number: U24) -> Option<Arc<Srq>> {
        match &self.source {
            RecvSource::Domain(domain) => domain.srq(number.get()),
            _ => None,
        }
    }

    /// Takes the oldest request, unless one is in use; of a target, from `xrc`, which the caller is inside.
    pub(super) fn take(&mut self, qp: &Qp, xrc: Option<&Arc<Srq>>) -> Receive {
        if self.holding {
            return Receive::Taken {
                capacity: self.current.capacity,
            };
        }
        let receive = match &mut self.source {
            RecvSource::User(requests) => self.current.receive_user(requests),
            RecvSource::Kernel => {
                let taken = match &mut *qp.receive.posted.lock() {
                    Some(posted) => posted.pop(&mut self.current),
                    None => None,
                };
                taken.unwrap_or(Receive::Empty)
            }
            RecvSource::Shared(srq) => srq.take(&mut self.current),
            RecvSource::Domain(_) => {
                self.xrc_srq = xrc.cloned();
                match xrc {
                    Some(srq) => srq.take(&mut self.current),
                    None => Receive::Invalid,
                }
            }
        };
        self.holding = !matches!(receive, Receive::Empty | Receive::Invalid);
        receive
    }

    /// Gives the request in use back: its completion is about to be posted.
    pub(super) fn finish(&mut self) {
        if !self.holding {
            return;
        }
        self.holding = false;
        if let RecvSource::User(requests) = &mut self.source {
            requests.advance();
        }
    }

    /// Lets go of an XRC SRQ whose requests are all complete.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.holding {
            self.xrc_srq = None;
        }
    }

    /// Takes the next request that a QP in error completes without a message. Of a shared queue that is
    /// the one in use alone: the others are for other QPs (IBTA 10.2.9).
    pub(super) fn take_flushed(&mut self, qp: &Qp) -> Option<u64> {
        if !self.holding && matches!(self.source, RecvSource::Shared(_) | RecvSource::Domain(_)) {
            return None;
        }
        if matches!(self.take(qp, None), Receive::Empty | Receive::Invalid) {
            return None;
        }
        self.finish();
        Some(self.current.wr_id)
    }

    /// Whether the QP, which is in error, has just taken its last from a shared queue. Says so once.
    pub(super) fn tell_last(&mut self) -> bool {
        let is_last = self.is_shared() && !self.last_told;
        self.last_told |= is_last;
        is_last
    }

    /// Forgets all requests without completing them. Of a shared queue that is the one in use.
    pub(super) fn reset(&mut self, qp: &Qp) {
        self.holding = false;
        self.xrc_srq = None;
        self.last_told = false;
        match &mut self.source {
            RecvSource::User(requests) => requests.discard_all(),
            RecvSource::Kernel => {
                if let Some(posted) = &mut *qp.receive.posted.lock() {
                    posted.clear();
                }
            }
            RecvSource::Shared(_) | RecvSource::Domain(_) => {}
        }
    }
}
