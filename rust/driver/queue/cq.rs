// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

mod resize;

use crate::{
    device::{
        attributes::MAX_CQE,
        counters::Counter,
        Device, //
    },
    live::{
        Kind,
        Live, //
    },
    memory::context::Context,
    queue::{
        notification::{
            Action,
            Notification, //
        },
        ring::KernelRing,
        user_cq::UserCq, //
    },
    users::Users, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use rdma::{
    cq::{
        Arm,
        CompletionQueue,
        Events,
        Init,
        Moderation,
        WcSlots, //
    },
    details::Details,
    qp::Handle,
    udata::Udata,
    wc::Completion,
};
use sync::{
    new_spin_lock_irq,
    BhGuard,
    Cpu,
    SpinLockIrq,
    Timer,
    TimerCallback, //
};

enum Queue {
    User(UserCq),
    /// The completions for `poll_cq`.
    Kernel(KernelRing<(Handle, Completion)>),
}

struct State {
    queue: Queue,
    notification: Notification,
    /// The consumer has been told of an overflow.
    told: bool,
}

/// A completion queue. Outlives the `ib_cq`.
#[pin_data]
pub(crate) struct Cq {
    device: Arc<Device>,
    is_user: bool,
    /// The completion vector: the CPU with this number calls a consumer from BH work, while it is online.
    vector: u32,
    /// [`None`] for the stand-in of QPs that complete nothing.
    events: Option<Events>,
    #[pin]
    state: SpinLockIrq<State>,
    /// The completions that a kernel consumer asked for.
    asked: u32,
    /// Held while the ring is replaced. The WRs of a kernel consumer's QPs.
    #[pin]
    resizing: Mutex<u32>,
    /// Calls the consumer, one call at a time: a kernel consumer, or a process for a completion of an XRC SRQ.
    #[pin]
    notification: Work<Cq, NOTIFICATION>,
    /// Tells of an overflow, the QPs too: `qp/failure.rs`.
    #[pin]
    overflow: Work<Cq, OVERFLOW>,
    /// Fires when the period of the moderation is over.
    #[pin]
    timer: Timer<Cq>,
    /// The QPs whose completions come here.
    #[pin]
    users: Users,
    _live: Live,
}

const NOTIFICATION: u64 = 0;
pub(crate) const OVERFLOW: u64 = 1;

impl_has_work! {
    impl HasWork<Self, NOTIFICATION> for Cq { self.notification }
    impl HasWork<Self, OVERFLOW> for Cq { self.overflow }
}

impl WorkItem<NOTIFICATION> for Cq {
    type Pointer = Arc<Cq>;

    fn run(cq: Arc<Cq>) {
        cq.call();
    }
}

impl TimerCallback for Cq {
    fn expired(this: ArcBorrow<'_, Self>) {
        let is_due = this.state.lock().notification.expire();
        if is_due {
            Arc::from(this).notify();
        }
    }
}

/// The outcome of posting a completion.
#[must_use]
pub(crate) struct Posted {
    /// Call [`Cq::notify`] once no lock is held, or [`Cq::notify_later`].
    pub(crate) notify: bool,
    /// There was no room for it.
    pub(crate) is_lost: bool,
}

impl Cq {
    fn new(
        device: &Arc<Device>,
        queue: Queue,
        vector: u32,
        events: Option<Events>,
    ) -> Result<Arc<Self>> {
        let (is_user, asked) = match &queue {
            Queue::User(_) => (true, 0),
            Queue::Kernel(ring) => (false, u32::try_from(ring.capacity())?),
        };
        Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                is_user,
                asked,
                vector,
                events,
                state <- new_spin_lock_irq!(State {
                    queue,
                    notification: Notification::default(),
                    told: false,
                }),
                resizing <- new_mutex!(0),
                notification <- new_work!("Cq::notification"),
                overflow <- new_work!("Cq::overflow"),
                timer <- Timer::new(),
                users <- Users::new(),
                _live: Live::new(Kind::Cq),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// A queue for QPs that complete nothing. Context: process, may sleep.
    pub(crate) fn stand_in(device: &Arc<Device>) -> Result<Arc<Self>> {
        let queue = Queue::Kernel(KernelRing::with_capacity(1)?);
        Self::new(device, queue, 0, None)
    }

    /// The QPs whose completions come here.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Tells the consumer of an overflow, once. Context: process.
    pub(crate) fn tell_overflow(&self) {
        if !core::mem::replace(&mut self.state.lock().told, true) {
            if let Some(events) = &self.events {
                events.error();
            }
        }
    }

    /// A number that changes when a process takes completions. Context: any.
    #[inline]
    pub(crate) fn polled(&self) -> u32 {
        match &self.state.lock().queue {
            Queue::User(queue) => queue.ring.consumer(),
            Queue::Kernel(_) => 0,
        }
    }

    /// Appends a completion of `qp`. One that finds no room is lost, and the consumer is told of the
    /// overflow once (IBTA 11.6.3.2); the QPs of the queue go to the error state, each time that there are some that
    /// have left RESET since. Context: any.
    pub(crate) fn post(
        self: &Arc<Self>,
        qp: &Handle,
        completion: &Completion,
        solicited: bool,
    ) -> Posted {
        let mut state = self.state.lock();
        let pushed = match &mut state.queue {
            Queue::User(queue) => queue.push(completion),
            Queue::Kernel(ring) => ring.push((qp.clone(), *completion)),
        };
        if pushed.is_err() {
            self.device.counters.add(Counter::CompletionOverflow, 1);
            let is_known = state.told && !self.users.may_fail();
            drop(state);
            if !is_known {
                let _ = self
                    .device
                    .registry
                    .process
                    .enqueue::<_, OVERFLOW>(self.clone());
            }
            return Posted {
                notify: false,
                is_lost: true,
            };
        }
        trace::completion(
            completion.qp_num,
            completion.wr_id,
            completion.status as u32,
            completion.opcode as u32,
        );
        let action = state
            .notification
            .add(solicited || !completion.is_success());
        Posted {
            notify: self.act(action),
            is_lost: false,
        }
    }

    /// Returns whether the caller has to notify the consumer, once no lock is held. The state's lock is held: the timer
    /// of an earlier deadline does not start behind that of a later one.
    #[inline]
    fn act(self: &Arc<Self>, action: Action) -> bool {
        if let Action::NotifyAt(deadline) = action {
            self.timer.start_at(self.as_arc_borrow(), deadline);
        }
        matches!(action, Action::Notify)
    }

    /// Calls the consumer: a process at once, a kernel consumer as [`Self::notify_later`] does.
    /// Context: process or softirq, no lock held.
    pub(crate) fn notify(self: &Arc<Self>) {
        if self.is_user {
            self.call();
        } else {
            self.notify_later();
        }
    }

    /// Calls the consumer from BH work on the CPU of its vector. Context: process or softirq.
    pub(crate) fn notify_later(self: &Arc<Self>) {
        let queue = &self.device.registry.bh;
        let bh = BhGuard::new();
        let _ = match Cpu::numbered(self.vector, &bh) {
            Some(cpu) => queue.enqueue_on::<_, NOTIFICATION>(&cpu, self.clone()),
            None => queue.enqueue::<_, NOTIFICATION>(self.clone()),
        };
    }

    fn call(&self) {
        if let Some(events) = &self.events {
            events.notify();
        }
    }

    /// Drops the completions of `qp` that a kernel consumer has not polled. A process's ring is its
    /// own business. Context: any.
    pub(crate) fn forget(&self, qp: &Handle) {
        if let Queue::Kernel(ring) = &mut self.state.lock().queue {
            ring.retain(|(owner, _)| !owner.is_same(qp));
        }
    }
}

impl CompletionQueue for Cq {
    type Device = Device;
    type Context = Context;

    fn create(
        device: &Arc<Device>,
        init: Init<'_, Context>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>> {
        if init.entries == 0 || init.entries > MAX_CQE {
            return Err(EINVAL);
        }
        let queue = match (init.context, udata) {
            (Some(context), Some(udata)) => Queue::User(UserCq::new(context, init.entries, udata)?),
            _ => Queue::Kernel(KernelRing::with_capacity(init.entries)?),
        };
        Self::new(device, queue, init.vector, Some(init.events))
    }

    fn entries(&self) -> u32 {
        match &self.state.lock().queue {
            Queue::User(queue) => queue.ring.capacity(),
            Queue::Kernel(_) => self.asked,
        }
    }

    /// There is a new ring; what was not polled moves over.
    fn resize(
        self: &Arc<Self>,
        entries: u32,
        context: &Arc<Context>,
        udata: &mut Udata<'_>,
    ) -> Result {
        if entries == 0 || entries > MAX_CQE {
            return Err(EINVAL);
        }
        let new = UserCq::new(context, entries, udata)?;
        let _turn = self.resizing.lock();
        self.move_to(new).map(drop)
    }

    fn poll(&self, slots: &mut WcSlots<'_>) {
        let mut state = self.state.lock();
        let Queue::Kernel(ring) = &mut state.queue else {
            return;
        };
        while !slots.is_full() {
            let Some((qp, completion)) = ring.pop() else {
                break;
            };
            slots.push(&qp, &completion);
        }
    }

    /// For a process, completions that have come since its last notification, and that it has not polled, count as if
    /// they came now, as with RDMA network cards. UCX relies on that: it does not poll between arming and sleeping.
    fn request_notify(self: &Arc<Self>, arm: Arm) -> bool {
        let mut state = self.state.lock();
        let queued = match &mut state.queue {
            Queue::User(queue) => queue.len(),
            Queue::Kernel(ring) => u32::try_from(ring.len()).unwrap_or(u32::MAX),
        };
        // A kernel consumer polls what came before it armed the queue.
        let counts = self.is_user || state.notification.armed().is_some();
        state.notification.arm(arm, if counts { queued } else { 0 });
        let is_late = self.is_user && self.act(state.notification.settle());
        drop(state);
        if is_late {
            self.call();
        }
        queued > 0
    }

    fn moderate(self: &Arc<Self>, moderation: Moderation) {
        let mut state = self.state.lock();
        let notify = self.act(state.notification.moderate(moderation));
        drop(state);
        if notify {
            self.notify();
        }
    }

    fn destroy(self: &Arc<Self>) {
        self.timer.shutdown();
        let published = match &mut self.state.lock().queue {
            Queue::User(queue) => queue.unpublish(),
            Queue::Kernel(_) => None,
        };
        drop(published);
    }

    fn describe(&self, details: &mut Details<'_>) -> Result {
        let (armed, moderation) = {
            let state = self.state.lock();
            (state.notification.armed(), state.notification.moderation())
        };
        details.number(c"vector", self.vector.into())?;
        details.text(
            c"armed",
            match armed {
                None => c"no",
                Some(Arm::Next) => c"next",
                Some(Arm::Solicited) => c"solicited",
            },
        )?;
        details.number(c"moderation-count", moderation.count.into())?;
        details.number(c"moderation-period", moderation.period.into())
    }
}
