// SPDX-License-Identifier: GPL-2.0

//! The receive side of a QP: from requests to memory, completions and responses.

pub(super) mod queue;
mod response;
mod round;

use self::queue::{
    ReceiveQueue,
    RecvSource, //
};
use super::{
    bulk::WorkerCpu,
    engine::Engine,
    side::Round,
    Qp, //
};
use crate::{
    device::counters::{
        Tally,
        OF_RECEIVES, //
    },
    memory::{
        access::{
            Access,
            Fault,
            MrAccess, //
        },
        buffer::Place,
        key,
        pd::Pd, //
    },
    packet::datagram::Batch,
    queue::{
        cq::Cq,
        posted_receives::PostedReceives,
        srq::Srq, //
    }, //
};
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use rdma::{
    qp::{
        Event,
        Init,
        State, //
    },
    wc::{
        self,
        Completion, //
    },
};
use roce::{
    responder::{
        Resource,
        Responder, //
    },
    wire::U24, //
};
use sync::{
    new_spin_lock_bh,
    new_spin_lock_irq,
    SpinLockBh,
    SpinLockBhGuard,
    SpinLockIrq, //
};

/// How often, and how long each time in microseconds, a QP that is destroyed waits for its
/// acknowledgements to leave.
const SETTLE_ATTEMPTS: u32 = 20;
const SETTLE_PAUSE_US: i64 = 200;

/// Receive requests that are flushed in one go.
const FLUSH_BUDGET: u32 = 256;

/// The receive half of a QP.
#[pin_data]
pub(super) struct Receiving {
    /// Where requests complete.
    pub(super) cq: Arc<Cq>,
    /// Where requests come from, if that is a shared queue.
    pub(super) srq: Option<Arc<Srq>>,
    #[pin]
    side: SpinLockBh<ReceiveSide>,
    /// A kernel consumer's requests that no message has taken.
    #[pin]
    pub(super) posted: SpinLockIrq<Option<PostedReceives>>,
    /// Where the first request came that took a thread to respond to.
    worker: WorkerCpu,
    /// How long a QP in the error state waits until it looks for requests again.
    pub(super) rescan_ns: AtomicU32,
}

impl Receiving {
    /// The receive half of a new QP. Context: process, may sleep.
    pub(super) fn new(init: &Init<Qp>, source: RecvSource) -> Result<impl PinInit<Self> + use<>> {
        let cap = &init.cap;
        let posted = match source {
            RecvSource::Kernel => {
                let slots = cap.max_recv_wr.max(1);
                Some(PostedReceives::new(slots, cap.max_recv_sge)?)
            }
            RecvSource::User(_) | RecvSource::Shared(_) | RecvSource::Domain(_) => None,
        };
        let queue = ReceiveQueue::new(cap.max_recv_sge, source)?;
        let batch = Batch::new()?;
        // Made in its place: it is too large for the stack.
        let side = init!(ReceiveSide {
            responder: Responder::new(KVVec::new()),
            queue,
            place: Place::default(),
            target: None,
            engine: Engine::new(batch),
            tally: Tally::new(),
            receives: 0,
            failed: None,
        });
        let (cq, srq) = (init.recv_cq.clone(), init.srq.clone());
        Ok(pin_init!(Self {
            cq,
            srq,
            side <- new_spin_lock_bh!(side, "Qp::receive"),
            posted <- new_spin_lock_irq!(posted, "Receiving::posted"),
            worker: WorkerCpu::new(),
            rescan_ns: AtomicU32::new(0),
        }))
    }

    /// Takes the receive lock.
    #[inline]
    pub(super) fn lock(&self) -> SpinLockBhGuard<'_, ReceiveSide> {
        self.side.lock()
    }
}

/// Everything under a QP's receive lock.
pub(crate) struct ReceiveSide {
    pub(crate) responder: Responder<KVVec<Resource>>,
    queue: ReceiveQueue,
    /// Where the current receive request is written to, as long as the lock is held.
    place: Place,
    /// Where an RDMA WRITE goes, as long as the lock is held.
    target: Option<Target>,
    engine: Engine,
    /// How much of [`OF_RECEIVES`] has been told.
    pub(super) tally: Tally<{ OF_RECEIVES.len() }>,
    /// Receive requests that were completed without an error.
    receives: u64,
    /// The completion of the request in use, which has failed. It is posted once the QP is in error.
    failed: Option<Completion>,
}

/// A range of memory that a peer may write to: the rest of a message, as a rule.
struct Target {
    /// Of an XRC QP, the SRQ whose protection domain the key is of.
    xrc_srqn: Option<U24>,
    rkey: u32,
    va: u64,
    access: MrAccess,
}

impl ReceiveSide {
    /// Whether the QP was made with an SRQ.
    pub(super) fn has_srq(&self) -> bool {
        self.queue.is_shared()
    }

    /// Forgets all requests without completing them (RESET).
    pub(crate) fn reset(&mut self, qp: &Qp) {
        self.responder.reset();
        self.engine.wait_no_more(qp);
        self.queue.reset(qp);
        self.failed = None;
    }

    /// Completes the request that has failed, if there is one, of a QP in error.
    fn complete_failed(&mut self, qp: &Qp, round: &mut Round) {
        if let Some(completion) = self.failed.take() {
            self.queue.finish();
            // An error is solicited in any case.
            self.post(qp, &completion, true, round);
        }
    }

    /// Completes some receive requests of a QP in error with a flush error, in order. Returns whether there may be
    /// more.
    fn flush(&mut self, qp: &Qp, round: &mut Round) -> bool {
        // A reset that came in between wins.
        if qp.state() != State::Error {
            return false;
        }
        self.responder.flush();
        self.engine.wait_no_more(qp);
        self.complete_failed(qp, round);
        let mut more = true;
        for _ in 0..FLUSH_BUDGET {
            let Some(wr_id) = self.queue.take_flushed(qp) else {
                more = false;
                break;
            };
            // Where some were posted late, more may follow soon.
            qp.receive.rescan_ns.store(0, Ordering::Relaxed);
            let completion =
                Completion::new(wr_id, wc::Status::WrFlush, wc::Opcode::Recv, qp.number);
            self.post(qp, &completion, false, round);
        }
        round.event = self.queue.tell_last().then_some(Event::LastWqeReached);
        more
    }

    /// Posts the completion of the request that was taken last.
    fn post(&self, qp: &Qp, completion: &Completion, solicited: bool, round: &mut Round) {
        let Some((srq, cq)) = self.queue.xrc() else {
            let posted = qp.receive.cq.post(&qp.verbs.handle, completion, solicited);
            round.notify |= posted.notify;
            return;
        };
        let Some(_pass) = srq.enter() else {
            // It is destroyed: its consumer expects nothing any more, and its CQ may be gone.
            return;
        };
        let posted = cq.post(&qp.verbs.handle, completion, solicited);
        if posted.is_lost {
            srq.fail();
        }
        if posted.notify {
            cq.notify_later();
        }
    }

    /// The counts since the QP was created, in the order of [`OF_RECEIVES`].
    pub(super) fn counted(&self) -> [u64; OF_RECEIVES.len()] {
        let responder = self.responder.counters();
        [
            self.receives,
            responder.duplicates,
            responder.sequence_naks,
            responder.rnr_naks,
            responder.error_naks,
        ]
    }

    /// Tells the device, or the counter that the QP is bound to, what has happened since the last time.
    pub(super) fn report(&mut self, qp: &Qp) {
        let now = self.counted();
        self.tally.tell(&qp.device().counters, &OF_RECEIVES, now);
    }
}

/// Checks a key that the peer has sent for memory of the domain `pd`: [`None`] if it is that of an XRC SRQ that is not
/// there.
fn access(
    qp: &Qp,
    pd: Option<&Arc<Pd>>,
    rkey: u32,
    va: u64,
    len: u64,
    need: Access,
) -> Result<MrAccess, Fault> {
    key::remote_access(pd.ok_or(Fault::NoQueue)?, qp.number, rkey, va, len, need)
}

impl Qp {
    /// Acknowledges all that has been executed, and lets the acknowledgements leave, and requests that are held or left to
    /// a worker that has not begun. The consumer saw completions of receives whose acknowledgements may have to wait still, for full
    /// queues or for another CPU; if it ends now, they are all that its peer waits for. Takes a few ms at most, and not
    /// where they wait behind READ responses that wait for pages. Context: process, may sleep, no lock held.
    pub(super) fn settle(self: &Arc<Self>) {
        if let Some(_pass) = self.gate.enter() {
            self.drive::<ReceiveSide>(|receive, _| receive.responder.acknowledge_all());
        }
        for _ in 0..SETTLE_ATTEMPTS {
            {
                let Some(_pass) = self.gate.enter() else {
                    return;
                };
                self.run_send();
                self.run_receive();
            }
            let owes = {
                let receive = self.receive.lock();
                receive.responder.owes_acknowledgement() && !receive.responder.is_parked()
            };
            if !owes {
                return;
            }
            fsleep(Delta::from_micros(SETTLE_PAUSE_US));
        }
    }

    /// Completes receive requests with a flush error: some now, and the rest from BH work. Returns whether
    /// there is a rest. Context: process or softirq, no lock held.
    pub(crate) fn flush_receives(self: &Arc<Self>) -> bool {
        let mut round = Round::default();
        let more = self.receive.lock().flush(self, &mut round);
        round.finish::<ReceiveSide>(self);
        if more {
            self.kick();
        }
        more
    }
}
