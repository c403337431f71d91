// SPDX-License-Identifier: GPL-2.0

//! The receive side of a QP: from requests to memory, completions and responses.

mod request;
mod response;

use super::{
    bulk::BULK_BYTES,
    paging::Paging,
    receive_queue::{
        ReceiveQueue,
        RecvSource, //
    },
    Pacing,
    Qp,
    FLUSH_BUDGET, //
};
use crate::{
    device::counters::{
        Tally,
        OF_RECEIVES, //
    },
    memory::{
        buffer::Place,
        mr::{
            self,
            Absent,
            Access,
            Fault,
            MrAccess, //
        }, //
    },
    packet::{
        arrival::Run,
        datagram::Batch, //
    },
    queue::cq::Cq, //
};
use core::sync::atomic::Ordering;
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use net::RxSkb;
use rdma::{
    qp::{
        Event,
        State, //
    },
    wc::{
        self,
        Completion, //
    },
};
use roce::{
    packet::Packet,
    responder::{
        Resource,
        Responder,
        ResponderEvent, //
    },
    ticket::Outcome, //
};
use sync::BhGuard;

/// Batches of responses that one caller sends before it leaves the rest to a thread.
const BATCHES_PER_CALL: u32 = 2;

/// How often, and how long each time in microseconds, a QP that is destroyed waits for its
/// acknowledgements to leave.
const SETTLE_ATTEMPTS: u32 = 20;
const SETTLE_PAUSE_US: i64 = 200;

/// Everything under a QP's receive lock.
pub(crate) struct ReceiveSide {
    pub(crate) responder: Responder<KVVec<Resource>>,
    queue: ReceiveQueue,
    /// Where the current receive request is written to, as long as the lock is held.
    place: Place,
    /// Where an RDMA WRITE goes, as long as the lock is held.
    target: Option<Target>,
    /// The owner bit, as on the send side.
    busy: bool,
    again: bool,
    batch: Batch,
    pacing: Pacing,
    pub(super) paging: Paging,
    /// What of [`OF_RECEIVES`] has been told.
    pub(super) tally: Tally<{ OF_RECEIVES.len() }>,
    /// Receive requests that were completed without an error.
    receives: u64,
}

/// A range of memory that a peer may write to: the rest of a message, as a rule.
struct Target {
    rkey: u32,
    va: u64,
    access: MrAccess,
}

/// Work that is deferred until the receive lock is released.
#[derive(Default)]
struct Deferred {
    notify: bool,
    established: bool,
    /// The QP has failed, under the lock; what is to be told of it, if it had not before.
    failed: bool,
    event: Option<Event>,
}

/// What a flush leaves to be done once the receive lock is released.
#[derive(Default)]
struct Flushed {
    notify: bool,
    /// Some were flushed.
    any: bool,
    /// There may be more.
    more: bool,
    /// Nothing more will be taken from the shared queue.
    last: bool,
}

impl ReceiveSide {
    /// Allocates the receive side. Context: process, may sleep.
    pub(crate) fn new(cap: &rdma::qp::Cap, source: RecvSource) -> Result<Self> {
        Ok(Self {
            responder: Responder::new(KVVec::new()),
            queue: ReceiveQueue::new(cap.max_recv_sge, source)?,
            place: Place::default(),
            target: None,
            busy: false,
            again: false,
            batch: Batch::new()?,
            pacing: Pacing::default(),
            paging: Paging::default(),
            tally: Tally::new(),
            receives: 0,
        })
    }

    /// Forgets all requests without completing them (RESET).
    pub(crate) fn reset(&mut self, qp: &Qp) {
        self.responder.reset();
        self.paging = Paging::default();
        qp.waiting_requests.clear();
        self.queue.reset(qp);
    }

    fn outcome(&mut self, qp: &Arc<Qp>, done: Result<(), Fault>) -> Outcome {
        done.map_or_else(|fault| self.paging.outcome(qp, fault), |()| Outcome::Done)
    }

    /// Completes up to `budget` receive requests of a QP in error with a flush error, in order.
    fn flush(&mut self, qp: &Qp, budget: u32) -> Flushed {
        let mut flushed = Flushed::default();
        // A reset that came in between wins.
        if qp.state() != State::Error {
            return flushed;
        }
        self.responder.flush();
        self.paging = Paging::default();
        qp.waiting_requests.clear();
        flushed.more = true;
        for _ in 0..budget {
            let Some(wr_id) = self.queue.take_flushed(qp) else {
                flushed.more = false;
                break;
            };
            flushed.any = true;
            let completion =
                Completion::new(wr_id, wc::Status::WrFlush, wc::Opcode::Recv, qp.number);
            flushed.notify |= qp.recv_cq.post(&qp.handle, &completion, false).notify;
        }
        flushed.last = self.queue.tell_last();
        flushed
    }

    /// What has happened since the QP was created, in the order of [`OF_RECEIVES`].
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
        self.tally.tell(qp.device().counters(), &OF_RECEIVES, now);
    }
}

/// What is told of an error, where no completion tells it.
fn error_event(error: ResponderEvent) -> Option<Event> {
    match error {
        ResponderEvent::CommunicationEstablished | ResponderEvent::ReceiveError => None,
        ResponderEvent::AccessError => Some(Event::AccessError),
        ResponderEvent::RequestError => Some(Event::RequestError),
        ResponderEvent::Fatal => Some(Event::Fatal),
    }
}

/// Checks a key that the peer has sent.
fn access(qp: &Qp, rkey: u32, va: u64, len: u64, need: Access) -> Result<MrAccess, Fault> {
    mr::remote_access(&qp.pd, qp.number, rkey, va, len, need)
}

impl Qp {
    /// Takes in a request packet. Context: bottom halves off, no lock held.
    pub(crate) fn receive_request(self: &Arc<Self>, packet: &Packet, skb: RxSkb) {
        self.drive_receive(|receive, after| receive.request(self, packet, skb, after));
    }

    /// Takes in request packets that came together. Context: bottom halves off, no lock held.
    pub(crate) fn receive_requests(self: &Arc<Self>, run: Run<'_, '_>) {
        self.drive_receive(|receive, after| {
            run.for_each(|packet, skb| receive.request(self, packet, skb, after));
        });
    }

    /// Goes on after waiting for pages; `unfaultable` could not be faulted in.
    /// Context: process, no lock held.
    pub(super) fn resume_receive(self: &Arc<Self>, unfaultable: Option<Absent>) {
        self.drive_receive(|receive, _| {
            receive.paging.resume(unfaultable);
            receive.responder.resume();
        });
        let mut more = true;
        while more {
            self.drive_receive(|receive, after| more = receive.replay(self, after));
        }
    }

    /// Goes on with responses that are not finished. Context: softirq, no lock held.
    pub(crate) fn run_receive(self: &Arc<Self>) {
        self.drive_receive(|_, _| ());
    }

    /// Acknowledges all that has been executed, and lets the acknowledgements leave, and requests that are held
    /// back. The consumer saw completions of receives whose acknowledgements may have to wait still, for full
    /// queues or for another CPU; if it ends now, they are all that its peer waits for. Takes a few ms at most.
    /// Context: process, may sleep, no lock held.
    pub(super) fn settle(self: &Arc<Self>) {
        if let Some(_pass) = self.gate.enter() {
            self.drive_receive(|receive, _| receive.responder.acknowledge_all());
        }
        for _ in 0..SETTLE_ATTEMPTS {
            {
                let Some(_pass) = self.gate.enter() else {
                    return;
                };
                self.send_held();
                self.run_receive();
            }
            if !self.receive.lock().responder.owes_acknowledgement() {
                return;
            }
            fsleep(Delta::from_micros(SETTLE_PAUSE_US));
        }
    }

    /// Completes receive requests with a flush error: some now, and the rest from BH work. Returns whether
    /// there is a rest. Context: process or softirq, no lock held.
    pub(crate) fn flush_receives(self: &Arc<Self>) -> bool {
        let flushed = self.receive.lock().flush(self, FLUSH_BUDGET);
        if flushed.notify {
            Cq::notify(&self.recv_cq);
        }
        if flushed.last {
            self.events.raise(Event::LastWqeReached);
        }
        if flushed.any {
            // Where some were posted late, more may follow soon.
            self.rescan_ns.store(0, Ordering::Relaxed);
        }
        if flushed.more {
            self.kick();
        }
        flushed.more
    }

    /// Does `first` under the receive lock, then sends responses as [`Qp::run_send`] sends requests.
    fn drive_receive(self: &Arc<Self>, first: impl FnOnce(&mut ReceiveSide, &mut Deferred)) {
        // A softirq, or whoever else has to end before its packets arrive.
        let has_bh_off = sync::owns_softirq();
        let mut first = Some(first);
        let mut owner = false;
        let mut given_back: Option<Batch> = None;
        for _ in 0..BATCHES_PER_CALL {
            let bh = BhGuard::new();
            let mut after = Deferred::default();
            let batch = {
                let mut receive = self.receive.lock();
                if let Some(first) = first.take() {
                    first(&mut receive, &mut after);
                    receive.place = Place::default();
                    receive.target = None;
                }
                receive.report(self);
                if receive.busy && !owner {
                    receive.again = true;
                    None
                } else if has_bh_off
                    && !owner
                    && !receive.pacing.is_waiting()
                    && receive.responder.has_unsent(BULK_BYTES)
                    && self.respond_in_bulk()
                {
                    None
                } else {
                    owner = true;
                    receive.busy = true;
                    receive.again = false;
                    let mut batch = given_back
                        .take()
                        .unwrap_or_else(|| core::mem::take(&mut receive.batch));
                    receive.respond(self, &mut batch);
                    // An error is told of once its NAK is in the batch.
                    while let Some(event) = receive.responder.take_event() {
                        match event {
                            ResponderEvent::CommunicationEstablished => after.established = true,
                            error => {
                                // Now: once the lock is released, the consumer may bring the QP up anew.
                                let before = self.mark_failed();
                                after.failed = before.is_some();
                                after.event = error_event(error)
                                    .filter(|_| before.is_some_and(|state| state != State::Error));
                            }
                        }
                    }
                    if batch.is_empty() && !receive.again {
                        receive.batch = batch;
                        receive.busy = false;
                        None
                    } else {
                        Some(batch)
                    }
                }
            };
            let done = batch.is_none();
            given_back = batch.map(|batch| batch.send(self.device()));
            self.after_receive(&after);
            drop(bh);
            if done {
                return;
            }
        }
        {
            let mut receive = self.receive.lock();
            if let Some(batch) = given_back {
                receive.batch = batch;
            }
            receive.busy = false;
        }
        if !self.respond_in_bulk() {
            self.kick();
        }
    }

    fn after_receive(self: &Arc<Self>, after: &Deferred) {
        if after.notify {
            Cq::notify(&self.recv_cq);
        }
        let is_connected = !self.is_datagram();
        if after.established && is_connected && self.state() == State::Rtr {
            self.events.raise(Event::CommEstablished);
        }
        if after.failed {
            self.flush(after.event);
        }
    }
}
