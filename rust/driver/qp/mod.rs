// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! # Locks
//!
//! A QP has a send lock and a receive lock, both taken with bottom halves off, by the doorbell, by
//! BH work, by threads that build what is long, and by the packet handler; never one inside the other.
//! Inside either, the lock of its paths may be taken. A
//! kernel consumer's post, which may come with interrupts off, takes only the lock of the QP's kernel
//! ring and kicks BH work. No lock is held while packets leave or consumers are called.

mod attributes;
mod bulk;
mod deadlines;
mod doorbell;
mod engine;
mod multicast;
mod paging;
mod paths;
mod queue_failure;
mod receive;
mod receive_queue;
mod send;
mod send_queue;
pub(crate) mod table;

use self::{
    attributes::Attributes,
    bulk::{
        Place,
        BULK_RESPOND,
        BULK_SEND, //
    },
    deadlines::{
        Deadline,
        Deadlines, //
    },
    doorbell::Doorbells,
    multicast::Attached,
    paging::{
        Waiting,
        PAGING, //
    },
    paths::Paths,
    receive::ReceiveSide,
    receive_queue::RecvSource,
    send::SendSide,
    send_queue::{
        PostedSends, //
        SendSource,
    },
};
use crate::{
    device::{
        counters::{
            self,
            Counter,
            QpCounter, //
        },
        Device, //
    },
    live::{
        Kind,
        Live, //
    },
    memory::{
        context::{
            Context,
            MmapInfo,
            Published, //
        },
        mr::Mr,
        paging_turns::{
            self,
            Pager,
            Turn, //
        },
        pd::Pd, //
    },
    packet::ah::Ah,
    queue::{
        cq::Cq,
        posted_receives::PostedReceives,
        ring::{
            Consumer,
            SharedRing, //
        },
        srq::Srq,
        user_wqe,
        users::Users, //
    },
    storage::filled, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use rdma::{
    details::Details,
    error::not_supported,
    qp::{
        Cap,
        Event,
        Events,
        Handle,
        Init,
        QueuePair,
        State,
        Type, //
    },
    udata::Udata,
    wc,
    wr::{
        RecvWrs,
        SendWrs, //
    },
};
use roce::{
    dropped::DropReason,
    status::Status,
    time::Instant, //
};
use sync::{
    new_spin_lock_bh,
    new_spin_lock_irq,
    Gate,
    SpinLockBh,
    SpinLockIrq, //
};

/// Receive requests that are flushed in one go.
const FLUSH_BUDGET: u32 = 256;
/// How often a QP in the error state looks for receives that were posted without a system call,
/// in nanoseconds: first, and at most.
const RESCAN_FIRST_NS: u64 = 4_000_000;
const RESCAN_LAST_NS: u64 = 1_000_000_000;

/// The number of the general services QP.
const GSI_NUMBER: u32 = 1;

/// A queue pair. Outlives the `ib_qp`: packets and work in flight hold references.
#[pin_data]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) ty: Type,
    is_user: bool,
    signal_all: bool,
    /// Where receive requests come from, if that is a shared queue.
    srq: Option<Arc<Srq>>,
    cap: Cap,
    pub(crate) pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    events: Events,
    handle: Handle,
    /// Users in flight; closed by destroy.
    #[pin]
    gate: Gate,
    state: AtomicU32,
    /// The peer's number, for completions.
    remote: AtomicU32,
    rescan_ns: AtomicU32,
    #[pin]
    attributes: Mutex<Attributes>,
    #[pin]
    attached: Mutex<Attached>,
    #[pin]
    send: SpinLockBh<SendSide>,
    #[pin]
    receive: SpinLockBh<ReceiveSide>,
    /// The ways to the connected peer; inside the other two.
    #[pin]
    paths: SpinLockBh<Paths>,
    /// Whether the QP may migrate to an alternate path: written under the lock of the paths.
    is_armed: AtomicBool,
    #[pin]
    kernel_sends: SpinLockIrq<Option<PostedSends>>,
    #[pin]
    kernel_receives: SpinLockIrq<Option<PostedReceives>>,
    /// Packets that wait for pages, under the send lock and the receive lock.
    #[pin]
    waiting_responses: Waiting,
    #[pin]
    waiting_requests: Waiting,
    /// Keeps the rings mappable.
    published: [Option<Published>; 2],
    #[pin]
    deadlines: Deadlines,
    #[pin]
    doorbells: SpinLockBh<Doorbells>,
    /// Doorbells whose requests are held: counted under [`Qp::doorbells`], taken back under the send lock.
    held: AtomicU32,
    /// Where the consumer posted last: there requests are built, if they are many.
    send_place: Place,
    /// Where the first request came that took a thread to respond to.
    respond_place: Place,
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
        if qp.state() == State::Error && !qp.flush_receives() && qp.is_user && qp.srq.is_none() {
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
    fn remote_number(&self) -> u32 {
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
        // After the change: who does not see it yet is not the last to look.
        if from == State::Reset {
            self.queues().for_each(Users::started);
        }
        trace::qp_state(self.number, from as u32, to as u32);
        true
    }

    /// The lists of users of the QP's CQs and SRQ, each once: the QP fails when one of these queues does.
    fn queues(&self) -> impl Iterator<Item = &Users> {
        let has_two = !Arc::ptr_eq(&self.send_cq, &self.recv_cq);
        let recv_cq = has_two.then(|| self.recv_cq.users());
        let srq = self.srq.as_ref().map(|srq| srq.users());
        [Some(self.send_cq.users()), recv_cq, srq]
            .into_iter()
            .flatten()
    }

    /// Has the QP fail with the queues that it uses, unless it is QP 1, which has no number of its own.
    /// Context: process, may sleep.
    fn enlist(&self) -> Result {
        if self.is_general_services() {
            return Ok(());
        }
        self.queues().try_for_each(|users| users.add(self.number))
    }

    /// Undoes [`Qp::enlist`]. Context: process, may sleep.
    fn delist(&self) {
        self.queues().for_each(|users| users.remove(self.number));
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
    pub(crate) fn enter(&self) -> Option<sync::Pass<'_>> {
        self.gate.enter()
    }

    /// Has BH work look after both sides. Context: any.
    pub(crate) fn kick(self: &Arc<Self>) {
        let _ = self
            .device()
            .bh_queue()
            .queue()
            .enqueue::<_, 0>(self.clone());
    }

    /// Receives posted to a QP in error make no system call: look again after a while.
    fn rescan_later(self: &Arc<Self>) {
        let delay = u64::from(self.rescan_ns.load(Ordering::Relaxed)).max(RESCAN_FIRST_NS);
        let next = delay.saturating_mul(2).min(RESCAN_LAST_NS);
        self.rescan_ns
            .store(u32::try_from(next).unwrap_or(u32::MAX), Ordering::Relaxed);
        let time = sync::monotonic_ns().saturating_add(delay);
        self.deadlines.set(self, Deadline::Protocol, time);
    }

    fn count(&self, counter: Counter) {
        self.device().counters().add(counter, 1);
    }

    fn count_drop(&self, reason: DropReason) {
        self.device()
            .count_drop(Counter::of_drop(reason), self.number);
    }

    /// Whether completions of the QP go to `cq`.
    pub(crate) fn posts_to(&self, cq: &Arc<Cq>) -> bool {
        Arc::ptr_eq(&self.send_cq, cq) || Arc::ptr_eq(&self.recv_cq, cq)
    }

    /// Whether the QP takes its receives from `srq`.
    pub(crate) fn takes_from(&self, srq: &Arc<Srq>) -> bool {
        self.srq.as_ref().is_some_and(|own| Arc::ptr_eq(own, srq))
    }

    /// The device is going away, or a queue that the QP needs is lost: nothing will be sent or received
    /// any more. Context: process or softirq, no lock held.
    pub(crate) fn fail(self: &Arc<Self>) {
        if let Some(_pass) = self.gate.enter() {
            self.enter_error(Some(Event::Fatal));
        }
    }

    /// Moves the QP to the error state, if it is in any but RESET: then a reset that came in between wins.
    /// Returns the state before.
    fn mark_failed(&self) -> Option<State> {
        let (reset, error) = (State::Reset as u32, State::Error as u32);
        let before = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                (now != reset).then_some(error)
            })
            .ok()?;
        if before != error {
            trace::qp_state(self.number, before, error);
        }
        Some(State::from_bits(before))
    }

    /// Moves the QP to the error state: everything posted is flushed, in order, once. `event` tells
    /// why, where no completion does. Context: process or softirq, no lock held.
    pub(crate) fn enter_error(self: &Arc<Self>, event: Option<Event>) {
        if let Some(before) = self.mark_failed() {
            self.flush(event.filter(|_| before != State::Error));
        }
    }

    /// Flushes everything posted, in order, once, of a QP in the error state. Nothing is done if it has left
    /// that since. `event` tells why, where no completion does. Context: process or softirq, no lock held.
    fn flush(self: &Arc<Self>, event: Option<Event>) {
        if self.state() != State::Error {
            return;
        }
        self.rescan_ns.store(0, Ordering::Relaxed);
        self.flush_sends();
        self.run_send();
        self.flush_receives();
        self.kick();
        if let Some(event) = event {
            self.events.raise(event);
        }
    }

    fn flush_sends(&self) {
        let mut send = self.send.lock();
        // A reset changes the state before it takes the lock.
        if self.state() == State::Error {
            send.flush(self);
        }
    }
}

/// What `create_qp` answers to librxe: where its rings are.
#[derive(Clone, Copy, zerocopy_derive::IntoBytes, zerocopy_derive::Immutable)]
#[repr(C)]
struct CreateQpResponse {
    receive: MmapInfo,
    send: MmapInfo,
}

impl QueuePair for Qp {
    type Device = Device;
    type Context = Context;
    type Pd = Pd;
    type Ah = Ah;
    type Cq = Cq;
    type Srq = Srq;
    type Mr = Mr;
    type Counter = QpCounter;

    fn create(
        pd: &Arc<Pd>,
        init: &mut Init<Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>> {
        let mut cap = init.cap;
        crate::device::check_qp_cap(&cap, init.srq.is_some())?;
        if init.ty == Type::Gsi && init.srq.is_some() {
            return Err(EINVAL);
        }
        if init.ty == Type::RawPacket {
            let netdev = pd.device().netdev().ok_or(ENODEV)?;
            // A kernel consumer that wants to send frames has the network stack.
            if !init.is_user || !netdev.has_ethernet_frames() {
                return Err(not_supported());
            }
        }

        let mut published = [None, None];
        let (send_source, own_source, posted_sends, posted_receives, slots);
        if let (Some(udata), Some(context)) = (udata, init.context.as_ref()) {
            // A WQE with room for SGEs has the same room for inline data. Programs know, and send
            // such data without having asked for it.
            cap.max_inline_data = cap
                .max_inline_data
                .max(user_wqe::inline_room(cap.max_send_sge));
            let send_len = user_wqe::send_wqe_len(cap.max_send_sge, cap.max_inline_data)?;
            let send_ring = SharedRing::new(cap.max_send_wr.max(1), send_len)?;
            let mut receive = None;
            own_source = match &init.srq {
                Some(_) => None,
                None => {
                    let recv_len = user_wqe::recv_wqe_len(cap.max_recv_sge)?;
                    let ring = SharedRing::new(cap.max_recv_wr.max(1), recv_len)?;
                    receive = Some(context.publish(ring.memory())?);
                    cap.max_recv_wr = ring.capacity();
                    Some(RecvSource::User {
                        consumer: Consumer::new(),
                        ring,
                        scratch: filled(recv_len, || Ok(0))?,
                    })
                }
            };
            let send = context.publish(send_ring.memory())?;
            udata.copy_out(&CreateQpResponse {
                receive: receive.as_ref().map_or(MmapInfo::NONE, Published::info),
                send: send.info(),
            })?;
            published = [receive, Some(send)];
            // The process can fill its rings, whatever it asked for.
            cap.max_send_wr = send_ring.capacity();
            slots = send_ring.slots();
            send_source = SendSource::User {
                consumer: Consumer::new(),
                ring: send_ring,
                outstanding: 0,
                scratch: filled(send_len, || Ok(0))?,
            };
            (posted_sends, posted_receives) = (None, None);
        } else {
            slots = cap
                .max_send_wr
                .max(1)
                .checked_next_power_of_two()
                .ok_or(EINVAL)?;
            send_source = SendSource::Kernel;
            posted_sends = Some(PostedSends::new(slots, &cap)?);
            (own_source, posted_receives) = match &init.srq {
                Some(_) => (None, None),
                None => (
                    Some(RecvSource::Kernel),
                    Some(PostedReceives::new(
                        cap.max_recv_wr.max(1),
                        cap.max_recv_sge,
                    )?),
                ),
            };
        }
        let recv_source = match (own_source, &init.srq) {
            (Some(own), _) => own,
            (None, Some(srq)) => {
                (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
                RecvSource::Shared(srq.clone())
            }
            (None, None) => return Err(EINVAL),
        };

        init.cap = cap;

        let send = SendSide::new(init.ty, slots, &cap, send_source)?;
        let receive = ReceiveSide::new(&cap, recv_source)?;
        let number = if init.ty == Type::Gsi {
            GSI_NUMBER
        } else {
            table::reserve_number()?
        };
        let (ty, is_user, signal_all) = (init.ty, init.is_user, init.signal_all);
        let srq = init.srq.clone();
        let (send_cq, recv_cq) = (init.send_cq.clone(), init.recv_cq.clone());
        let (events, handle) = (init.events.clone(), init.handle.clone());
        let qp = Arc::pin_init(
            pin_init!(Self {
                number,
                ty,
                is_user,
                signal_all,
                srq,
                cap,
                pd: pd.clone(),
                send_cq,
                recv_cq,
                events,
                handle,
                gate <- Gate::new(),
                state: AtomicU32::new(State::Reset as u32),
                remote: AtomicU32::new(0),
                rescan_ns: AtomicU32::new(0),
                attributes <- new_mutex!(Attributes::default()),
                attached <- new_mutex!(Attached::default()),
                send <- new_spin_lock_bh!(send),
                receive <- new_spin_lock_bh!(receive),
                paths <- new_spin_lock_bh!(Paths::default()),
                is_armed: AtomicBool::new(false),
                kernel_sends <- new_spin_lock_irq!(posted_sends),
                kernel_receives <- new_spin_lock_irq!(posted_receives),
                waiting_responses <- Waiting::new(pd.device()),
                waiting_requests <- Waiting::new(pd.device()),
                published,
                deadlines <- Deadlines::new(),
                doorbells <- new_spin_lock_bh!(Doorbells::new()),
                held: AtomicU32::new(0),
                send_place: Place::new(),
                respond_place: Place::new(),
                work <- new_work!("Qp::work"),
                paging <- new_work!("Qp::paging"),
                turn <- new_spin_lock_bh!(Turn::default()),
                bulk_send <- new_work!("Qp::bulk_send"),
                bulk_respond <- new_work!("Qp::bulk_respond"),
                _live: Live::new(Kind::Qp),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        match qp.enlist().and_then(|()| table::publish(&qp)) {
            Ok(()) => Ok(qp),
            Err(error) => {
                qp.delist();
                Err(error)
            }
        }
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn destroy(self: &Arc<Self>) {
        multicast::detach_all(self);
        table::withdraw(self);
        self.delist();
        self.settle();
        self.gate.close_and_wait();
        self.deadlines.shutdown();
        let pager: Arc<dyn Pager> = self.clone();
        paging_turns::withdraw(&pager);
        self.set_state(State::Reset);
        for ring in self.published.iter().flatten() {
            ring.withdraw();
        }
        // Requests hold references to address handles, regions and routes, and the attributes one to
        // the GID table: let go of them now, not when the last packet in flight lets go of the QP.
        *self.attributes.lock() = Attributes::default();
        self.send.lock().reset(self);
        self.receive.lock().reset(self);
        self.with_paths(Paths::reset);
    }

    /// librxe's doorbell: send requests were put into the shared ring.
    fn doorbell(self: &Arc<Self>) -> Result {
        let Some(_pass) = self.gate.enter() else {
            return Err(EINVAL);
        };
        if !self.takes_sends() {
            self.send.lock().discard(self);
            return Err(EINVAL);
        }
        trace::post_send(self.number);
        self.send_place.move_here();
        if !self.holds_back() {
            self.run_send();
        }
        Ok(())
    }

    fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_, Ah, Mr>) -> Result {
        if !self.takes_sends() {
            let _ = wrs.next();
            return Err(EINVAL);
        }
        let result = {
            let mut guard = self.kernel_sends.lock();
            let Some(posted) = &mut *guard else {
                return Err(EINVAL);
            };
            let mut result = Ok(());
            for wr in wrs.by_ref() {
                result = posted.push(&wr);
                if result.is_err() {
                    break;
                }
            }
            result
        };
        trace::post_send(self.number);
        self.send_place.move_here();
        self.kick();
        result
    }

    fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        if self.state() == State::Reset {
            let _ = wrs.next();
            return Err(EINVAL);
        }
        let result = {
            let mut guard = self.kernel_receives.lock();
            let Some(posted) = &mut *guard else {
                return Err(EINVAL);
            };
            posted.post(wrs)
        };
        if self.state() == State::Error {
            self.kick();
        }
        result
    }

    fn bind_counter(&self, counter: &Arc<QpCounter>) -> Result {
        {
            let mut send = self.send.lock();
            if send.tally.is_bound() {
                return Err(EBUSY);
            }
            send.report(self);
            send.tally.bind(Some(counter.clone()));
        }
        let mut receive = self.receive.lock();
        receive.report(self);
        receive.tally.bind(Some(counter.clone()));
        Ok(())
    }

    fn unbind_counter(&self) {
        {
            let mut receive = self.receive.lock();
            receive.report(self);
            receive.tally.bind(None);
        }
        let mut send = self.send.lock();
        send.report(self);
        send.tally.bind(None);
    }

    /// Its sizes, and what it has counted, if anything.
    fn describe(&self, details: &mut Details<'_>) -> Result {
        let posted = self.send.lock().requester.len();
        details.number(c"max_sends", self.cap.max_send_wr.into())?;
        details.number(c"sends", posted.into())?;
        details.number(c"max_recvs", self.cap.max_recv_wr.into())?;
        let sent = self.send.lock().counted();
        let received = self.receive.lock().counted();
        for (counter, value) in (counters::OF_SENDS.into_iter().zip(sent))
            .chain(counters::OF_RECEIVES.into_iter().zip(received))
        {
            if value != 0 {
                details.number(counter.name(), value)?;
            }
        }
        Ok(())
    }
}
