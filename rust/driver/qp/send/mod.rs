// SPDX-License-Identifier: GPL-2.0

//! The send side of a QP: from work requests to datagrams, and from responses to completions.

pub(super) mod queue;
mod response;
mod round;

use self::queue::{
    PostedSends,
    SendSource, //
};
use super::{
    bulk::WorkerCpu,
    doorbell::Doorbells,
    engine::Engine,
    side::{
        Round,
        Side, //
    },
    Qp, //
};
use crate::{
    device::{
        attributes::MAX_QP_WR,
        counters::{
            Tally,
            OF_SENDS, //
        },
        Device, //
    },
    memory::buffer::Place,
    packet::{
        datagram::Batch,
        path::Path, //
    },
    queue::{
        cq::Cq,
        wqe::SendWqes, //
    },
    storage::filled, //
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
use rdma::qp::{
    Init,
    State,
    Type, //
};
use roce::{
    requester::{
        Requester,
        SendSlot, //
    },
    time::Instant, //
};
use sync::{
    new_spin_lock_bh,
    new_spin_lock_irq,
    SpinLockBh,
    SpinLockBhGuard,
    SpinLockIrq, //
};

/// Requests that are fetched, and requests that are completed, in one round: others wait for the lock.
const ROUND_BUDGET: u32 = 256;

/// Rounds in which all of a queue can be fetched, and completed.
pub(super) const FLUSH_ROUNDS: u32 = 2 * (MAX_QP_WR / ROUND_BUDGET + 1);

/// How often, and how long each time in microseconds, a QP that is reset waits for a batch to leave.
const SENT_ATTEMPTS: u32 = 200;
const SENT_PAUSE_US: i64 = 50;

/// The send half of a QP.
#[pin_data]
pub(super) struct Sending {
    /// Where requests complete, all of them if `signal_all`.
    pub(super) cq: Arc<Cq>,
    signal_all: bool,
    #[pin]
    side: SpinLockBh<SendSide>,
    /// A kernel consumer's requests that are not fetched.
    #[pin]
    pub(super) posted: SpinLockIrq<Option<PostedSends>>,
    #[pin]
    pub(super) doorbells: SpinLockBh<Doorbells>,
    /// Doorbells whose requests are held: counted under the lock of `doorbells`, taken back under the send lock.
    pub(super) held: AtomicU32,
    /// Where the consumer posted last: there requests are built, if they are many.
    pub(super) worker: WorkerCpu,
}

impl Sending {
    /// The send half of a new QP. Context: process, may sleep.
    pub(super) fn new(init: &Init<Qp>, source: SendSource) -> Result<impl PinInit<Self> + use<>> {
        let slots = match source.ring() {
            Some(ring) => ring.slots(),
            None => {
                let least = init.cap.max_send_wr.max(1);
                least.checked_next_power_of_two().ok_or(EINVAL)?
            }
        };
        let posted = match source {
            SendSource::User(_) => None,
            SendSource::Kernel => Some(PostedSends::new(slots, &init.cap)?),
        };
        let batch = match init.ty {
            Type::RawPacket => Batch::of_frames()?,
            _ => Batch::new()?,
        };
        let requests = filled(slots as usize, || Ok(SendSlot::default()))?;
        let wqes = SendWqes::new(slots, &init.cap)?;
        // Made in its place: it is too large for the stack.
        let side = init!(SendSide {
            requester: Requester::new(requests),
            wqes,
            source,
            qkey: 0,
            datagram_path: None,
            engine: Engine::new(batch),
            is_late: false,
            tell_drained: false,
            placing: None,
            armed: None,
            tally: Tally::new(),
            sends: 0,
        });
        let (cq, signal_all) = (init.send_cq.clone(), init.signal_all);
        Ok(pin_init!(Self {
            cq,
            signal_all,
            side <- new_spin_lock_bh!(side, "Qp::send"),
            posted <- new_spin_lock_irq!(posted, "Sending::posted"),
            doorbells <- new_spin_lock_bh!(Doorbells::new(), "Sending::doorbells"),
            held: AtomicU32::new(0),
            worker: WorkerCpu::new(),
        }))
    }

    /// Takes the send lock.
    #[inline]
    pub(super) fn lock(&self) -> SpinLockBhGuard<'_, SendSide> {
        self.side.lock()
    }
}

/// Everything under a QP's send lock.
pub(crate) struct SendSide {
    pub(crate) requester: Requester<KVVec<SendSlot>>,
    wqes: SendWqes,
    source: SendSource,
    /// The QP's own queue key, for datagrams that ask for it.
    pub(crate) qkey: u32,
    /// The route of the last datagram, and the serial number of its address handle, which may be gone: the handle itself
    /// would keep an entry of the GID table.
    datagram_path: Option<(u64, Arc<Path>)>,
    engine: Engine,
    /// The timer has expired: the next packets are built here, by no worker.
    is_late: bool,
    /// The consumer wants to be told once the queue has drained (SQD).
    pub(super) tell_drained: bool,
    /// The request whose response is being placed, and where, as long as the lock is held.
    placing: Option<(u32, Place)>,
    /// When the timer fires, if it is armed.
    armed: Option<Instant>,
    /// How much of [`OF_SENDS`] has been told.
    pub(super) tally: Tally<{ OF_SENDS.len() }>,
    /// SEND requests that were completed without an error.
    sends: u64,
}

impl SendSide {
    /// Takes the route of the last datagram out, if its source address is gone.
    pub(super) fn take_lost_path(&mut self, device: &Device) -> Option<Arc<Path>> {
        let is_lost = |(_, path): &mut (u64, Arc<Path>)| !path.has_source(device);
        self.datagram_path.take_if(is_lost).map(|(_, path)| path)
    }

    /// Forgets all requests without completing them, posted ones included (RESET).
    pub(crate) fn reset(&mut self, qp: &Qp) {
        self.requester.reset();
        self.tell_drained = false;
        self.engine.wait_no_more(qp);
        self.wqes.clear();
        self.datagram_path = None;
        // The next time must not be taken for later than this one.
        self.armed = None;
        self.discard(qp);
    }

    /// Flushes all requests (ERR, SQE).
    pub(super) fn flush(&mut self, qp: &Qp) {
        self.requester.flush();
        self.tell_drained = false;
        self.engine.wait_no_more(qp);
    }

    /// Whether all that was begun has ended, and its completions are posted.
    pub(super) fn is_drained(&self) -> bool {
        self.requester.drained() && !self.requester.has_completions()
    }
}

impl Qp {
    /// Waits until the packets that were built before have left, but not for much longer than 10 ms: then they may still
    /// leave later. Context: process, may sleep, no lock held.
    pub(super) fn wait_until_sent(&self) {
        for _ in 0..SENT_ATTEMPTS {
            if !self.send.lock().engine.has_owner() {
                return;
            }
            fsleep(Delta::from_micros(SENT_PAUSE_US));
        }
    }

    /// The timer has expired. Context: softirq, no lock held.
    pub(crate) fn expire(self: &Arc<Self>) {
        self.drive::<SendSide>(|send, round| {
            let now = round.now();
            if send.armed.is_some_and(|armed| armed <= now) {
                send.armed = None;
            }
            if send.requester.poll_timeout().is_some_and(|due| due <= now) {
                send.requester
                    .set_alternate(self.is_armed.load(Ordering::Relaxed));
                send.requester.on_timeout(now);
                self.follow_migration(send);
                send.is_late = true;
            }
        });
    }

    /// Fetches and flushes all that has been posted, of a QP in SQE. Context: process, no lock held.
    pub(super) fn flush_posted_sends(self: &Arc<Self>) {
        for _ in 0..FLUSH_ROUNDS {
            let mut round = Round::default();
            let is_empty = {
                let mut send = self.send.lock();
                if self.state() != State::Sqe {
                    return;
                }
                self.release_held();
                // Complete requests make room for more.
                send.settle(self, &mut round, true);
                let has_more = send.fetch_posted(self);
                send.settle(self, &mut round, true);
                !has_more && send.requester.is_empty()
            };
            round.finish::<SendSide>(self);
            if is_empty {
                return;
            }
        }
    }
}
