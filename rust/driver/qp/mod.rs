// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod attributes;
mod bulk;
mod deadlines;
mod doorbell;
mod engine;
pub(crate) mod failure;
mod multicast;
mod paging;
mod paths;
mod receive;
mod send;
mod side;
pub(crate) mod table;
mod verbs;

use self::{
    attributes::Attributes,
    bulk::{
        BULK_RESPOND,
        BULK_SEND, //
    },
    deadlines::Deadlines,
    multicast::Attached,
    paging::PAGING,
    paths::Paths,
    receive::Receiving,
    send::Sending, //
};
use crate::{
    device::{
        counters::Counter,
        Device, //
    },
    live::Live,
    memory::{
        context::Published,
        paging_turns::Turn,
        pd::Pd, //
    },
    users::Users, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use rdma::{
    qp::{
        Cap,
        Handle,
        Init,
        State, //
    },
    wc, //
};
use roce::{
    dropped::DropReason,
    qp::Type,
    status::Status,
    time::Instant, //
};
use sync::{
    Gate,
    SpinLockBh, //
};

/// A queue pair. Outlives the `ib_qp`: work in flight holds references, and packets are taken in under RCU.
#[pin_data]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) ty: Type,
    pub(crate) pd: Arc<Pd>,
    /// Users in flight; closed by destroy.
    #[pin]
    gate: Gate,
    state: AtomicU32,
    /// The peer's number, for completions.
    remote: AtomicU32,
    #[pin]
    verbs: Verbs,
    #[pin]
    send: Sending,
    #[pin]
    receive: Receiving,
    /// The ways to the connected peer; inside the other two.
    #[pin]
    paths: SpinLockBh<Paths>,
    /// Whether the QP may migrate to an alternate path: written under the lock of the paths.
    is_armed: AtomicBool,
    #[pin]
    deadlines: Deadlines,
    #[pin]
    work: Work<Qp>,
    #[pin]
    paging: Work<Qp, PAGING>,
    #[pin]
    turn: SpinLockBh<Turn>,
    #[pin]
    bulk_send: Work<Qp, BULK_SEND>,
    #[pin]
    bulk_respond: Work<Qp, BULK_RESPOND>,
    _live: Live,
}

/// The attributes that a QP was created with, and those that its consumer has set since.
#[pin_data]
struct Verbs {
    is_user: bool,
    cap: Cap,
    handle: Handle,
    /// Keeps the rings mappable.
    published: [Option<Published>; 2],
    #[pin]
    attributes: Mutex<Attributes>,
    #[pin]
    attached: Mutex<Attached>,
}

impl Verbs {
    /// Those of a QP that is created so.
    fn new(init: &Init<Qp>, published: [Option<Published>; 2]) -> impl PinInit<Self> + use<'_> {
        pin_init!(Self {
            is_user: init.context.is_some(),
            cap: init.cap,
            handle: init.handle.clone(),
            published,
            attributes <- new_mutex!(Attributes::default()),
            attached <- new_mutex!(Attached::default()),
        })
    }
}

impl_has_work! {
    impl HasWork<Self> for Qp { self.work }
    impl HasWork<Self, PAGING> for Qp { self.paging }
    impl HasWork<Self, BULK_SEND> for Qp { self.bulk_send }
    impl HasWork<Self, BULK_RESPOND> for Qp { self.bulk_respond }
}

impl WorkItem for Qp {
    type Pointer = Arc<Qp>;

    fn run(qp: Arc<Qp>) {
        let Some(_pass) = qp.gate.enter() else {
            return;
        };
        qp.expire();
        qp.run_receive();
        if qp.state() == State::Error
            && !qp.flush_receives()
            && qp.verbs.is_user
            && qp.receive.srq.is_none()
        {
            qp.rescan_later();
        }
    }
}

/// The driver's clock.
pub(crate) fn now() -> Instant {
    Instant::from_ns(sync::monotonic_ns())
}

/// The protocol's status as the verbs call it.
fn status(status: Status) -> wc::Status {
    match status {
        Status::Success => wc::Status::Success,
        Status::LocalLength => wc::Status::LocLen,
        Status::LocalQpOperation => wc::Status::LocQpOp,
        Status::LocalProtection => wc::Status::LocProt,
        Status::Flushed => wc::Status::WrFlush,
        Status::MemoryWindowBind => wc::Status::MwBind,
        Status::BadResponse => wc::Status::BadResp,
        Status::LocalAccess => wc::Status::LocAccess,
        Status::RemoteInvalidRequest => wc::Status::RemInvReq,
        Status::RemoteAccess => wc::Status::RemAccess,
        Status::RemoteOperational => wc::Status::RemOp,
        Status::RetryExceeded => wc::Status::RetryExc,
        Status::RnrRetryExceeded => wc::Status::RnrRetryExc,
    }
}

impl Qp {
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// Whether it is a UC or a UD QP: it has no window, and nobody repeats what is lost.
    fn is_unreliable(&self) -> bool {
        matches!(self.ty, Type::Uc | Type::Ud)
    }

    /// Whether processes have it, who may poll its CQs for ever. `ib_core` makes XRC targets itself, for them.
    fn is_of_process(&self) -> bool {
        self.verbs.is_user || self.ty == Type::XrcTarget
    }

    /// Whether the QP sends datagrams rather than messages of a connection.
    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.ty, Type::Ud | Type::Gsi)
    }

    /// Whether it is one of `device`. Context: any.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        core::ptr::eq(Arc::as_ptr(self.device()), device)
    }

    /// Whether it is QP 1 of its device.
    fn is_general_services(&self) -> bool {
        self.ty == Type::Gsi
    }

    /// The number of the connected peer; 0 for datagram QPs.
    pub(crate) fn remote_number(&self) -> u32 {
        self.remote.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> State {
        State::from_bits(self.state.load(Ordering::Acquire))
    }

    fn set_state(&self, state: State) {
        let before = self.state.swap(state as u32, Ordering::AcqRel);
        trace::qp_state(self.number, before, state as u32);
    }

    /// Goes from one state to another, unless it has left the first. Returns whether it went.
    fn change_state(&self, from: State, to: State) -> bool {
        let changed = self.state.compare_exchange(
            from as u32,
            to as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if changed.is_err() {
            return false;
        }
        // After the change: a thread that does not see it yet is not the last to look.
        if from == State::Reset {
            self.lists().for_each(Users::started);
        }
        trace::qp_state(self.number, from as u32, to as u32);
        true
    }

    /// Whether packets may come in.
    pub(crate) fn takes_packets(&self) -> bool {
        matches!(
            self.state(),
            State::Rtr | State::Rts | State::Sqd | State::Sqe
        )
    }

    /// Whether posted send requests are fetched, to be sent or to be flushed.
    fn takes_sends(&self) -> bool {
        matches!(
            self.state(),
            State::Rts | State::Sqd | State::Sqe | State::Error
        )
    }

    /// A pass for somebody who brings a packet; [`None`] once the QP is being destroyed.
    #[inline]
    pub(crate) fn enter(&self) -> Option<sync::Pass<'_>> {
        self.gate.enter()
    }

    /// Has BH work look after both sides. Context: any.
    pub(crate) fn kick(self: &Arc<Self>) {
        let _ = self.device().registry.bh.enqueue::<_, 0>(self.clone());
    }

    fn count(&self, counter: Counter) {
        self.device().counters.add(counter, 1);
    }

    fn count_drop(&self, reason: DropReason) {
        if let Some(counter) = Counter::of_drop(reason) {
            self.device().count_drop(counter, self.number);
        }
    }

    /// Packets could not leave: there is no route, no memory, or a datagram is longer than the port's MTU.
    #[inline(never)]
    fn count_unsent(&self, packets: u32) {
        self.device()
            .count_drops(Counter::SendDropped, self.number, packets);
    }
}
