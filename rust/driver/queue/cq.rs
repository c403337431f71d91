// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

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
    memory::context::{
        Context,
        MmapInfo,
        Published, //
    },
    queue::{
        ring::{
            KernelRing,
            Producer,
            Relocation,
            SharedRing, //
        },
        user_cqe::UserCompletion,
        users::Users, //
    }, //
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
use zerocopy::IntoBytes;

/// A ring that a process polls without a system call.
struct UserQueue {
    ring: SharedRing,
    producer: Producer,
    published: Option<Published>,
}

enum Queue {
    User(UserQueue),
    /// What `poll_cq` takes from.
    Kernel(KernelRing<(Handle, Completion)>),
}

/// Completions that raised no notification.
#[derive(Clone, Copy, Default)]
struct Missed {
    any: u32,
    /// Those that are solicited, or errors.
    solicited: u32,
    /// The timer notifies the consumer of them at this time of [`sync::monotonic_ns`].
    deadline: Option<u64>,
}

struct State {
    queue: Queue,
    armed: Option<Arm>,
    /// What has come since the last notification.
    missed: Missed,
    moderation: Moderation,
    /// The consumer has been told of an overflow.
    told: bool,
}

impl Missed {
    fn add(&mut self, is_solicited: bool) {
        self.any = self.any.saturating_add(1);
        self.solicited = self.solicited.saturating_add(is_solicited.into());
    }

    /// Forgets those that were polled: `queued` are left, which came last.
    fn keep(&mut self, queued: u32) {
        if queued == 0 {
            *self = Self::default();
        }
        self.any = self.any.min(queued);
        self.solicited = self.solicited.min(queued);
    }

    fn matching(self, arm: Arm) -> u32 {
        match arm {
            Arm::Next => self.any,
            Arm::Solicited => self.solicited,
        }
    }
}

impl State {
    fn notified(&mut self) {
        self.armed = None;
        self.missed = Missed::default();
    }
}

/// A completion queue. Outlives the `ib_cq`.
#[pin_data]
pub(crate) struct Cq {
    device: Arc<Device>,
    is_user: bool,
    /// The completion vector: the CPU with this number calls a kernel consumer, while it is online.
    vector: u32,
    /// [`None`] for the stand-in of QPs that complete nothing.
    events: Option<Events>,
    #[pin]
    state: SpinLockIrq<State>,
    /// Held while a process's ring is replaced.
    #[pin]
    resizing: Mutex<()>,
    /// Calls a kernel consumer, one call at a time.
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

/// How often the completions of a queue that is resized are copied without its lock, while more come, and how many may
/// be left to be copied under it.
const COPY_ROUNDS: u32 = 64;
const COPY_REST: u32 = 64;

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
        let is_due = {
            let mut state = this.state.lock();
            // The deadline may have moved since the timer fired. The timer was started again then.
            let deadline = state.missed.deadline;
            let is_due = deadline.is_some_and(|deadline| deadline <= sync::monotonic_ns());
            if is_due {
                state.notified();
            }
            is_due
        };
        if is_due {
            Arc::from(this).notify();
        }
    }
}

/// What posting a completion asks of the caller.
#[must_use]
pub(crate) struct Posted {
    /// Call [`Cq::notify`] once no lock is held.
    pub(crate) notify: bool,
    /// There was no room for it.
    pub(crate) is_lost: bool,
}

impl UserQueue {
    /// Allocates a ring, lets the process map it and tells it where. Context: process, may sleep.
    fn new(context: &Arc<Context>, entries: u32, udata: &mut Udata<'_>) -> Result<Self> {
        let ring = SharedRing::new(entries, size_of::<UserCompletion>())?;
        let published = context.publish(ring.memory())?;
        udata.copy_out::<MmapInfo>(&published.info())?;
        Ok(Self {
            ring,
            producer: Producer::new(),
            published: Some(published),
        })
    }
}

impl Cq {
    fn new(
        device: &Arc<Device>,
        queue: Queue,
        vector: u32,
        events: Option<Events>,
    ) -> Result<Arc<Self>> {
        let is_user = matches!(queue, Queue::User(_));
        Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                is_user,
                vector,
                events,
                state <- new_spin_lock_irq!(State {
                    queue,
                    armed: None,
                    missed: Missed::default(),
                    moderation: Moderation::default(),
                    told: false,
                }),
                resizing <- new_mutex!(()),
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
            Queue::User(queue) => queue.ring.consumed(),
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
            Queue::User(queue) => {
                let element = UserCompletion::new(completion);
                queue.producer.push(&queue.ring, element.as_bytes())
            }
            Queue::Kernel(ring) => ring.push((qp.clone(), *completion)),
        };
        if pushed.is_err() {
            self.device.counters().add(Counter::CompletionOverflow, 1);
            let is_known = state.told && !self.users.may_fail();
            drop(state);
            if !is_known {
                let _ = self
                    .device
                    .process_queue()
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
        state.missed.add(solicited || !completion.is_success());
        Posted {
            notify: self.settle(&mut state),
            is_lost: false,
        }
    }

    /// Returns whether the caller has to notify the consumer. Starts the timer if completions wait for more.
    #[inline]
    fn settle(self: &Arc<Self>, state: &mut State) -> bool {
        let matching = state.armed.map_or(0, |arm| state.missed.matching(arm));
        if matching >= state.moderation.least() {
            state.notified();
            return true;
        }
        if matching > 0 && state.missed.deadline.is_none() {
            let deadline = sync::monotonic_ns().saturating_add(state.moderation.period_ns());
            state.missed.deadline = Some(deadline);
            self.timer.start_at(self.as_arc_borrow(), deadline);
        }
        false
    }

    /// Calls the consumer: a process's queue at once, a kernel consumer from BH work on the CPU of its vector.
    /// Context: process or softirq, no lock held.
    pub(crate) fn notify(self: &Arc<Self>) {
        if self.is_user {
            self.call();
            return;
        }
        let queue = self.device.bh_queue();
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

    /// Moves a process's queue to another ring, which is empty. Returns the old one. The completions are copied
    /// without the lock, but for the last ones: there may be many, and interrupts are off under it. The caller has its
    /// turn.
    fn move_to(&self, mut new: UserQueue) -> Result<UserQueue> {
        let (ring, mut producer) = self.queued().ok_or(EINVAL)?;
        let mut relocation = Relocation::new(&producer);
        let mut rounds = 0..COPY_ROUNDS;
        loop {
            relocation.copy(&ring, &producer, &new.ring)?;
            let is_last = rounds.next().is_none();
            let mut state = self.state.lock();
            let Queue::User(old) = &mut state.queue else {
                return Err(EINVAL);
            };
            old.producer.catch_up(&ring);
            if is_last || relocation.remaining(&old.producer) <= COPY_REST {
                new.producer = relocation.finish(&ring, &old.producer, &new.ring)?;
                return Ok(core::mem::replace(old, new));
            }
            producer = old.producer;
        }
    }

    /// A process's ring, and what is in it now.
    fn queued(&self) -> Option<(SharedRing, Producer)> {
        match &mut self.state.lock().queue {
            Queue::User(queue) => {
                queue.producer.catch_up(&queue.ring);
                Some((queue.ring.clone(), queue.producer))
            }
            Queue::Kernel(_) => None,
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
            (Some(context), Some(udata)) => {
                Queue::User(UserQueue::new(context, init.entries, udata)?)
            }
            _ => Queue::Kernel(KernelRing::with_capacity(init.entries)?),
        };
        Self::new(device, queue, init.vector, Some(init.events))
    }

    fn entries(&self) -> u32 {
        match &self.state.lock().queue {
            Queue::User(queue) => queue.ring.capacity(),
            Queue::Kernel(ring) => u32::try_from(ring.capacity()).unwrap_or(u32::MAX),
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
        let new = UserQueue::new(context, entries, udata)?;
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

    /// For a process, completions that have come since its last notification, and that it has not polled, count as if they
    /// came now, as with RDMA network cards. UCX relies on that: it does not poll between arming and sleeping.
    fn request_notify(self: &Arc<Self>, arm: Arm) -> bool {
        let mut state = self.state.lock();
        let queued = match &mut state.queue {
            Queue::User(queue) => queue.producer.len(&queue.ring),
            Queue::Kernel(ring) => u32::try_from(ring.len()).unwrap_or(u32::MAX),
        };
        // A kernel consumer polls what came before it armed the queue.
        let counts = self.is_user || state.armed.is_some();
        state.missed.keep(if counts { queued } else { 0 });
        // Arming for any completion is not taken back by arming for solicited ones.
        if state.armed != Some(Arm::Next) {
            state.armed = Some(arm);
        }
        let is_late = self.is_user && self.settle(&mut state);
        drop(state);
        if is_late {
            self.call();
        }
        queued > 0
    }

    fn moderate(self: &Arc<Self>, moderation: Moderation) {
        let mut state = self.state.lock();
        state.moderation = moderation;
        // Completions that wait do so for the new period.
        state.missed.deadline = None;
        let notify = self.settle(&mut state);
        drop(state);
        if notify {
            self.notify();
        }
    }

    fn destroy(self: &Arc<Self>) {
        self.timer.shutdown();
        let published = match &mut self.state.lock().queue {
            Queue::User(queue) => queue.published.take(),
            Queue::Kernel(_) => None,
        };
        if let Some(published) = published {
            published.withdraw();
        }
    }

    fn describe(&self, details: &mut Details<'_>) -> Result {
        let (armed, moderation) = {
            let state = self.state.lock();
            (state.armed, state.moderation)
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
