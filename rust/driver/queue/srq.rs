// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues (IBTA 10.2.9): receive requests that several QPs take from, in order.
//!
//! # Locks
//!
//! A queue's state is under an irqsave lock, which a QP takes under its receive lock, and a kernel
//! consumer's post with interrupts off. Nothing is locked under it. Changes of size take turns by a
//! mutex, outside of it.

use crate::{
    device::{
        attributes::{
            MAX_SGE,
            MAX_SRQ_WR, //
        },
        Device, //
    },
    live::{
        Kind,
        Live, //
    },
    memory::{
        context::Context,
        pd::Pd, //
    },
    queue::{
        cq::Cq,
        posted_receives::PostedReceives,
        user_srq::UserSrq,
        wqe::RecvWqe,
        xrcd::{
            self,
            Xrcd, //
        }, //
    },
    users::Users, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::Work,
};
use rdma::{
    details::Details,
    error::not_supported,
    srq::{
        Attr,
        Change,
        Events,
        Init,
        SharedReceiveQueue, //
    },
    udata::Udata,
    wr::RecvWrs, //
};
use roce::responder::Receive;
use sync::{
    new_spin_lock_irq,
    Gate,
    Pass,
    SpinLockIrq, //
};

enum Queue {
    User(UserSrq),
    Kernel(PostedReceives),
}

struct State {
    queue: Queue,
    /// How many requests fit.
    max_wr: u32,
    /// The event is to be raised when there are fewer requests than this; 0 if not.
    limit: u32,
    /// The process has spoilt its ring, or its CQ has lost a completion: nothing is taken any more.
    failed: bool,
    /// The consumer has been told of that.
    told: bool,
}

/// The domain, CQ and number of an XRC SRQ.
struct Xrc {
    /// QPs of this domain take from the queue, whatever their number.
    domain: Arc<Xrcd>,
    /// Where its requests complete.
    cq: Arc<Cq>,
    /// Packets name it so.
    number: u32,
}

/// A shared receive queue. Outlives the `ib_srq`, for as long as a QP does.
#[pin_data]
pub(crate) struct Srq {
    pd: Arc<Pd>,
    xrc: Option<Xrc>,
    /// Targets that take from an XRC SRQ, or complete a request of it: `ib_core` does not know of them, so the end
    /// waits.
    #[pin]
    gate: Gate,
    max_sge: u32,
    events: Events,
    #[pin]
    state: SpinLockIrq<State>,
    /// Held while the size changes.
    #[pin]
    resizing: Mutex<()>,
    /// Tells of a spoilt ring, the QPs too: `qp/failure.rs`.
    #[pin]
    failure: Work<Srq>,
    /// The QPs that take from it.
    #[pin]
    users: Users,
    _live: Live,
}

impl_has_work! {
    impl HasWork<Self> for Srq { self.failure }
}

impl State {
    /// How many requests wait.
    fn len(&self) -> u32 {
        match &self.queue {
            Queue::User(queue) => queue.requests.available(),
            Queue::Kernel(posted) => posted.len(),
        }
    }

    /// Whether the process's index makes no sense (IBTA 10.2.9.5), or once did: what stands in the ring cannot be
    /// trusted to be requests, then.
    fn fails(&mut self) -> bool {
        if let Queue::User(queue) = &self.queue {
            self.failed |= !queue.requests.ring().is_sound();
        }
        self.failed
    }

    /// Whether the limit was armed and is reached; disarms it then (IBTA 10.2.9).
    #[inline]
    fn reaches_limit(&mut self) -> bool {
        let reached = self.limit != 0 && self.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

impl Srq {
    /// The domain that the keys of its requests belong to.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Whether it is an XRC SRQ of `domain`.
    pub(crate) fn is_in(&self, domain: &Arc<Xrcd>) -> bool {
        self.xrc
            .as_ref()
            .is_some_and(|xrc| Arc::ptr_eq(&xrc.domain, domain))
    }

    /// A pass for a target; [`None`] once the queue is being destroyed. Context: any.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        self.gate.enter()
    }

    /// Where the requests of an XRC SRQ complete.
    pub(crate) fn cq(&self) -> Option<&Arc<Cq>> {
        self.xrc.as_ref().map(|xrc| &xrc.cq)
    }

    /// Tells the consumer that the queue has failed, once. Context: process.
    pub(crate) fn tell_failure(&self) {
        if !core::mem::replace(&mut self.state.lock().told, true) {
            self.events.error();
        }
    }

    /// An XRC SRQ fails, as a completion is lost: its consumer is told, and nothing is taken any more. Context: any.
    pub(crate) fn fail(self: &Arc<Self>) {
        self.state.lock().failed = true;
        let _ = self.pd.device().registry.process.enqueue(self.clone());
    }

    /// The QPs that take from it.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Segments per request.
    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Takes the oldest request into `out`, which has room for [`max_sge`](Self::max_sge) SGEs. It
    /// belongs to the caller then, for good. Context: any.
    pub(crate) fn take(self: &Arc<Self>, out: &mut RecvWqe) -> Receive {
        let mut state = self.state.lock();
        if state.fails() {
            let is_known = state.told && !self.users.may_fail();
            drop(state);
            if !is_known {
                let _ = self.pd.device().registry.process.enqueue(self.clone());
            }
            // The QPs of an XRC SRQ do not fail with it: they have others.
            return match self.xrc {
                Some(_) => Receive::Invalid,
                None => Receive::Empty,
            };
        }
        let receive = match &mut state.queue {
            Queue::User(queue) => queue.take(out),
            Queue::Kernel(posted) => posted.pop(out).unwrap_or(Receive::Empty),
        };
        let reached = state.reaches_limit();
        drop(state);
        if reached {
            self.events.limit_reached();
        }
        receive
    }

    /// Whether the limit that there will be fits the size that there will be.
    fn check_limit(&self, change: &Change, max_wr: u32) -> Result {
        if change.limit.unwrap_or(self.query().limit) > max_wr {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Gives a process's queue a new ring; what is posted moves over in order. Returns the old one. The
    /// caller has its turn.
    ///
    /// The requests are copied without the lock, while QPs go on taking from the old ring. Requests
    /// that the process posts there meanwhile are lost: librxe posts none then.
    fn resize(
        &self,
        max_wr: u32,
        change: &Change,
        context: &Arc<Context>,
        udata: &mut Udata<'_>,
    ) -> Result<UserSrq> {
        if max_wr == 0 || max_wr > MAX_SRQ_WR {
            return Err(EINVAL);
        }
        let mut new = UserSrq::new(context, max_wr, self.max_sge)?;
        let capacity = new.requests.ring().capacity().min(MAX_SRQ_WR);
        self.check_limit(change, capacity)?;
        let posted = match &self.state.lock().queue {
            Queue::User(old) => old.requests.posted(),
            Queue::Kernel(_) => return Err(EINVAL),
        };
        new.requests.copy_from(&posted)?;
        new.answer_modify(udata)?;

        let mut state = self.state.lock();
        state.max_wr = capacity;
        match &mut state.queue {
            Queue::User(old) => Ok(old.move_to(new, &posted)),
            Queue::Kernel(_) => Err(EINVAL),
        }
    }
}

impl SharedReceiveQueue for Srq {
    type Device = Device;
    type Context = Context;
    type Pd = Pd;
    type Cq = Cq;
    type Xrcd = Xrcd;

    fn create(pd: &Arc<Pd>, init: Init<Self>, udata: Option<&mut Udata<'_>>) -> Result<Arc<Self>> {
        if init.max_wr == 0 || init.max_wr > MAX_SRQ_WR || init.max_sge > MAX_SGE {
            return Err(EINVAL);
        }
        let max_sge = init.max_sge.max(1);
        let table;
        let slot = match &init.xrc {
            Some(_) => {
                table = xrcd::SRQS.whole()?;
                Some(table.reserve_cyclic(xrcd::NUMBERS)?)
            }
            None => None,
        };
        let number = slot.as_ref().map(|slot| slot.key());
        let (queue, max_wr) = match (udata, &init.context) {
            (Some(udata), Some(context)) => {
                let queue = UserSrq::new(context, init.max_wr, max_sge)?;
                queue.answer_create(udata, number)?;
                // The process can fill its ring, whatever it asked for.
                let capacity = queue.requests.ring().capacity().min(MAX_SRQ_WR);
                (Queue::User(queue), capacity)
            }
            _ => (
                Queue::Kernel(PostedReceives::new(init.max_wr, max_sge)?),
                init.max_wr,
            ),
        };
        let events = init.events;
        let xrc = init.xrc.zip(number).map(|(xrc, number)| Xrc {
            domain: xrc.domain,
            cq: xrc.cq,
            number,
        });
        let srq = Arc::pin_init(
            pin_init!(Self {
                pd: pd.clone(),
                xrc,
                gate <- Gate::new(),
                max_sge,
                events,
                state <- new_spin_lock_irq!(State {
                    queue,
                    max_wr,
                    limit: 0,
                    failed: false,
                    told: false,
                }),
                resizing <- new_mutex!(()),
                failure <- new_work!("Srq::failure"),
                users <- Users::new(),
                _live: Live::new(Kind::Srq),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        if let Some(slot) = slot {
            slot.fill(srq.clone())?;
        }
        Ok(srq)
    }

    fn xrc_number(&self) -> Option<u32> {
        self.xrc.as_ref().map(|xrc| xrc.number)
    }

    fn query(&self) -> Attr {
        let state = self.state.lock();
        Attr {
            max_wr: state.max_wr,
            max_sge: self.max_sge,
            limit: state.limit,
        }
    }

    fn modify(
        self: &Arc<Self>,
        change: Change,
        udata: Option<(&Arc<Context>, &mut Udata<'_>)>,
    ) -> Result {
        let _turn = self.resizing.lock();
        if self.state.lock().failed {
            return Err(EINVAL);
        }
        let old = match (change.max_wr, udata) {
            (None, _) => {
                self.check_limit(&change, self.query().max_wr)?;
                None
            }
            (Some(max_wr), Some((context, udata))) => {
                Some(self.resize(max_wr, &change, context, udata)?)
            }
            (Some(_), None) => return Err(not_supported()),
        };
        let mut state = self.state.lock();
        if let Some(limit) = change.limit {
            state.limit = limit;
        }
        let reached = state.reaches_limit();
        drop(state);
        if reached {
            self.events.limit_reached();
        }
        drop(old);
        Ok(())
    }

    fn destroy(self: &Arc<Self>) {
        if let Some(xrc) = &self.xrc {
            xrcd::SRQS.remove_if(xrc.number, self);
            self.gate.close_and_wait();
        }
        let published = match &mut self.state.lock().queue {
            Queue::User(queue) => queue.unpublish(),
            Queue::Kernel(posted) => {
                posted.clear();
                None
            }
        };
        drop(published);
    }

    fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        match &mut self.state.lock().queue {
            Queue::Kernel(posted) => posted.post(wrs),
            Queue::User(_) => Err(EINVAL),
        }
    }

    fn describe(&self, details: &mut Details<'_>) -> Result {
        let attributes = self.query();
        details.number(c"max_recvs", attributes.max_wr.into())?;
        details.number(c"max_sges", attributes.max_sge.into())?;
        details.number(c"limit", attributes.limit.into())
    }
}
