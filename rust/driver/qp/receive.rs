// SPDX-License-Identifier: GPL-2.0

//! The receive side of a QP: from requests to memory, completions and responses.

use super::{
    paging::{
        Paging,
        REPLAY_BUDGET, //
    },
    paths::Course,
    receive_queue::{
        ReceiveQueue,
        RecvSource, //
    },
    Pacing,
    Qp,
    FLUSH_BUDGET, //
};
use crate::{
    buffer::{
        Cursor,
        Place, //
    },
    counters::Counter,
    cq::Cq,
    datagram::{
        self,
        Batch,
        BuildError, //
    },
    demux::{
        self,
        Run, //
    },
    mr::{
        self,
        Absent,
        Access,
        Fault,
        MrAccess, //
    }, //
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
        State,
        Type, //
    },
    wc::{
        self,
        Completion,
        Extra,
        Network, //
    },
};
use roce::{
    packet::Packet,
    requester::MAX_BURST_LEN,
    responder::{
        Arrival,
        Atomic,
        AtomicOperation,
        ReadBurst,
        ReceiveCompletion,
        ReceiveOperation,
        Resource,
        Responder,
        ResponderCounters,
        ResponderEvent,
        Response,
        Step, //
    },
    ticket::{
        Outcome,
        Ticket, //
    }, //
};
use sync::BhGuard;

/// Batches of responses that one caller sends before it leaves the rest to BH work.
const BATCHES_PER_CALL: u32 = 2;

/// How often, and how long each time in microseconds, a QP that is destroyed waits for its
/// acknowledgements to leave.
const SETTLE_ATTEMPTS: u32 = 20;
const SETTLE_PAUSE_US: i64 = 200;

/// Bytes in front of a datagram's payload in the receive buffer (IBTA 11.4.1.2).
const GRH_LEN: usize = 40;

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
    /// What the device's counters have been told of.
    reported: ResponderCounters,
}

/// A range of memory that a peer may write to: the rest of a message, as a rule.
struct Target {
    rkey: u32,
    va: u64,
    access: MrAccess,
}

/// A request cannot be executed before pages are brought in.
struct WaitsForPages;

/// What is left to be done once the receive lock is released.
#[derive(Default)]
struct Aftermath {
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

impl Target {
    /// Whether it is reached by the key `rkey` and has all of `len` bytes at `va`.
    fn covers(&self, rkey: u32, va: u64, len: u64) -> bool {
        let offset = va.checked_sub(self.va);
        self.rkey == rkey && offset.is_some_and(|offset| self.access.has(offset, len))
    }
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
            reported: ResponderCounters::default(),
        })
    }

    /// Forgets all requests without completing them (RESET).
    pub(crate) fn reset(&mut self, qp: &Qp) {
        self.responder.reset();
        self.paging = Paging::default();
        qp.waiting_requests.clear();
        self.queue.reset(qp);
    }

    /// Takes in a request, unless it has to wait for others.
    fn request(&mut self, qp: &Arc<Qp>, packet: &Packet, skb: RxSkb, after: &mut Aftermath) {
        if !qp.waiting_requests.is_empty() {
            match self.responder.arrive(packet) {
                Arrival::Receive => {}
                Arrival::Keep => {
                    qp.waiting_requests.keep(skb);
                    return;
                }
                Arrival::Duplicate => return,
            }
        }
        if self.execute(qp, packet, &skb, after).is_err() {
            qp.waiting_requests.push_front(skb);
        }
    }

    /// Takes in some of the requests that waited. Returns whether there are more.
    fn replay(&mut self, qp: &Arc<Qp>, after: &mut Aftermath) -> bool {
        for _ in 0..REPLAY_BUDGET {
            if self.paging.is_waiting() {
                return false;
            }
            let Some(skb) = qp.waiting_requests.pop() else {
                return false;
            };
            let Some(packet) = demux::reparse(&skb) else {
                continue;
            };
            if self.execute(qp, &packet, &skb, after).is_err() {
                qp.waiting_requests.push_front(skb);
            }
        }
        true
    }

    /// Takes in a request: walks the responder's steps to the end. `Err` if that has to wait for pages.
    fn execute(
        &mut self,
        qp: &Arc<Qp>,
        packet: &Packet,
        skb: &RxSkb,
        after: &mut Aftermath,
    ) -> Result<(), WaitsForPages> {
        let payload = packet.header_len();
        let mut step = self.responder.receive(packet);
        loop {
            step = match step {
                Step::Done => return Ok(()),
                Step::Park => return Err(WaitsForPages),
                Step::Complete(completion) => {
                    self.complete(qp, packet, skb, &completion, after);
                    return Ok(());
                }
                Step::Dropped(reason) => {
                    qp.count_drop(reason);
                    return Ok(());
                }
                Step::TakeReceive { ticket } => {
                    self.place.rewind();
                    let receive = self.queue.take(qp);
                    self.responder.commit_receive(ticket, packet, receive)
                }
                Step::PlaceReceive {
                    ticket,
                    offset,
                    length,
                } => {
                    let placed =
                        self.place_receive(qp, u64::from(offset), skb, payload, length as usize);
                    self.commit(qp, packet, ticket, placed)
                }
                Step::PlaceRemote {
                    ticket,
                    rkey,
                    va,
                    length,
                    check_va,
                    check_length,
                } => {
                    let check = (check_va, u64::from(check_length));
                    let length = length as usize;
                    let placed = self.place_remote(qp, rkey, check, va, skb, payload, length);
                    self.commit(qp, packet, ticket, placed)
                }
                Step::CheckRead {
                    ticket,
                    rkey,
                    va,
                    length,
                } => {
                    let checked = access(qp, rkey, va, u64::from(length), Access::REMOTE_READ);
                    // The peer is told of pages that are not there as long as this is not executed.
                    let checked = checked.and_then(|access| access.probe(u64::from(MAX_BURST_LEN)));
                    self.commit(qp, packet, ticket, checked)
                }
                Step::Atomic {
                    ticket,
                    rkey,
                    va,
                    operation,
                } => {
                    let answer = match atomic(qp, rkey, va, operation) {
                        Ok(original) => Atomic::Done { original },
                        Err(fault) => match self.paging.outcome(qp, fault) {
                            Outcome::Again => Atomic::Again,
                            _ => Atomic::Protection,
                        },
                    };
                    self.responder.commit_atomic(ticket, packet, answer)
                }
                Step::AtomicWrite { ticket, rkey, va } => {
                    let written = atomic_write(qp, rkey, va, skb, payload);
                    self.commit(qp, packet, ticket, written)
                }
                Step::Flush {
                    ticket,
                    rkey,
                    flush,
                    va,
                    length,
                } => {
                    let range = (!flush.is_region()).then_some((va, u64::from(length)));
                    let mut need = Access::NONE;
                    if flush.is_global() {
                        need = need | Access::FLUSH_GLOBAL;
                    }
                    if flush.is_persistent() {
                        need = need | Access::FLUSH_PERSISTENT;
                    }
                    let flushed = mr::remote_flush(&qp.pd, qp.number, rkey, range, need);
                    self.commit(qp, packet, ticket, flushed)
                }
                Step::Invalidate { ticket, rkey } => {
                    let invalidated = mr::invalidate(&qp.pd, qp.number, rkey);
                    self.commit(qp, packet, ticket, invalidated)
                }
            };
        }
    }

    fn commit(
        &mut self,
        qp: &Arc<Qp>,
        packet: &Packet,
        ticket: Ticket,
        done: Result<(), Fault>,
    ) -> Step {
        let outcome = self.outcome(qp, done);
        self.responder.commit(ticket, packet, outcome)
    }

    fn outcome(&mut self, qp: &Arc<Qp>, done: Result<(), Fault>) -> Outcome {
        done.map_or_else(|fault| self.paging.outcome(qp, fault), |()| Outcome::Done)
    }

    /// Places payload into the current receive request; a datagram's is preceded by the GRH.
    fn place_receive(
        &mut self,
        qp: &Qp,
        offset: u64,
        skb: &RxSkb,
        from: usize,
        len: usize,
    ) -> Result<(), Fault> {
        let mut cursor = Cursor::new(
            self.queue.pd(qp),
            self.queue.current().buffers(),
            Access::LOCAL_WRITE,
            &mut self.place,
        );
        if qp.is_datagram() && offset == GRH_LEN as u64 {
            cursor.write(0, &skb.network_header_40())?;
        }
        cursor.write_datagram(offset, skb, from, len)
    }

    /// Places an RDMA WRITE's payload. `check` is the range whose key is checked: the whole message's
    /// with its first packet, so that nothing is written of a message that does not fit.
    #[allow(clippy::too_many_arguments)] // A step of the responder, and where its payload is.
    fn place_remote(
        &mut self,
        qp: &Qp,
        rkey: u32,
        check: (u64, u64),
        va: u64,
        skb: &RxSkb,
        from: usize,
        len: usize,
    ) -> Result<(), Fault> {
        let (check_va, check_len) = check;
        // A zero-length write names no memory: its key is not looked at (IBTA 9.7.4.1.3).
        if check_len == 0 {
            return Ok(());
        }
        // A copy fails if the memory is no more, so a key that was right for the message's first packet need not be
        // looked up again for those that came with it.
        let target = match self.target.take() {
            Some(target) if target.covers(rkey, check_va, check_len) => target,
            _ => Target {
                rkey,
                va: check_va,
                access: access(qp, rkey, check_va, check_len, Access::REMOTE_WRITE)?,
            },
        };
        let target = self.target.insert(target);
        let mut at = va.wrapping_sub(target.va);
        for piece in skb.pieces(from, len) {
            target.access.write_piece(at, &piece)?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Posts the completion of the current receive request.
    fn complete(
        &mut self,
        qp: &Qp,
        packet: &Packet,
        skb: &RxSkb,
        done: &ReceiveCompletion,
        after: &mut Aftermath,
    ) {
        let opcode = match done.operation {
            ReceiveOperation::Send => wc::Opcode::Recv,
            ReceiveOperation::Write => wc::Opcode::RecvRdmaWithImm,
        };
        let mut completion = Completion::new(
            self.queue.current().wr_id,
            super::status(done.status),
            opcode,
            qp.number,
        );
        completion.byte_len = done.length;
        completion.extra = match (done.immediate, done.invalidated_rkey) {
            (Some(immediate), _) => Extra::Imm(immediate),
            (None, Some(key)) => Extra::Invalidated(key),
            (None, None) => Extra::None,
        };
        completion.src_qp = qp.remote_number();
        if qp.is_datagram() {
            completion.src_qp = packet.deth.map_or(0, |deth| deth.src_qpn);
            completion.grh = true;
            completion.network = Some(match skb.source() {
                net::Address::V4(_) => Network::Ipv4,
                net::Address::V6(_) => Network::Ipv6,
            });
            if qp.ty == Type::Gsi {
                // By it the connection manager finds the address that the request was for.
                let netdev = qp.device().netdev();
                completion.vlan_id = netdev.and_then(|netdev| netdev.vlan_of(skb.ifindex()));
            }
        }
        self.place.rewind();
        self.queue.finish();
        after.notify |= qp
            .recv_cq
            .post(&qp.handle, &completion, done.solicited)
            .notify;
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

    /// Adds what has happened since the last time to the device's counters.
    fn report(&mut self, qp: &Qp) {
        let now = *self.responder.counters();
        if now == self.reported {
            return;
        }
        let before = core::mem::replace(&mut self.reported, now);
        let counters = qp.device().counters();
        for (counter, new, old) in [
            (Counter::DuplicateRequest, now.duplicates, before.duplicates),
            (
                Counter::SentSequenceError,
                now.sequence_naks,
                before.sequence_naks,
            ),
            (Counter::SentRnr, now.rnr_naks, before.rnr_naks),
            (Counter::SentError, now.error_naks, before.error_naks),
        ] {
            let n = new.wrapping_sub(old);
            if n != 0 {
                counters.add(counter, n);
            }
        }
    }

    /// Builds responses until the batch is full.
    fn respond(&mut self, qp: &Arc<Qp>, batch: &mut Batch) {
        if !self.responder.has_responses() {
            return;
        }
        let Some(course) = qp.course() else {
            self.lose_responses();
            return;
        };
        let path = &course.path;
        if self.pacing.waits(path.is_congested(qp.device())) {
            qp.wait_for_queues();
            return;
        }
        while batch.room() >= Batch::BURST {
            let budget = u32::try_from(batch.room()).unwrap_or(0);
            match self.responder.poll_response(budget) {
                None => break,
                Some(Response::Packet(mut packet)) => {
                    packet.migrated = course.migrated;
                    if let Ok(skb) = datagram::build(path, &packet, batch, |_| Ok::<(), Fault>(()))
                    {
                        batch.push(skb, path);
                    }
                }
                Some(Response::Read(burst)) => {
                    let sent = self.read(qp, &course, &burst, batch);
                    let outcome = self.outcome(qp, sent);
                    self.responder.commit_read(burst.ticket, outcome);
                }
            }
        }
    }

    /// There is no route: that is a loss in the network. What waits for a response to leave must not wait for
    /// ever, above all the end of a QP that has failed.
    fn lose_responses(&mut self) {
        for _ in 0..Batch::BURST {
            match self.responder.poll_response(u32::MAX) {
                None => return,
                Some(Response::Packet(_)) => {}
                Some(Response::Read(burst)) => {
                    self.responder.commit_read(burst.ticket, Outcome::Done);
                }
            }
        }
        self.again = true;
    }

    /// Builds READ responses, all or none.
    fn read(
        &self,
        qp: &Qp,
        course: &Course,
        burst: &ReadBurst,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        // The key is checked again for each burst: it may have been invalidated since.
        let access = if burst.length == 0 {
            None
        } else {
            Some(access(
                qp,
                burst.rkey,
                burst.va,
                u64::from(burst.length),
                Access::REMOTE_READ,
            )?)
        };
        let built = batch.len();
        for index in 0..burst.packets {
            let Some((mut packet, offset, _)) = self.responder.read_packet(burst, index) else {
                break;
            };
            packet.migrated = course.migrated;
            let fill = |out: &mut [u8]| match &access {
                Some(access) => access.read(u64::from(offset), out),
                None => Ok(()),
            };
            match datagram::build(&course.path, &packet, batch, fill) {
                Ok(skb) => batch.push(skb, &course.path),
                Err(BuildError::NoMemory) => {
                    qp.device().counters().add(Counter::SendDropped, 1);
                }
                Err(BuildError::Payload(fault)) => {
                    batch.truncate(built);
                    return Err(fault);
                }
            }
        }
        Ok(())
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

/// Places an ATOMIC WRITE's payload, which begins `from` bytes into the datagram.
fn atomic_write(qp: &Qp, rkey: u32, va: u64, skb: &RxSkb, from: usize) -> Result<(), Fault> {
    let mut bytes = [0; size_of::<u64>()];
    skb.copy(from, &mut bytes).or(Err(Fault::Protection))?;
    let access = access(qp, rkey, va, bytes.len() as u64, Access::REMOTE_WRITE)?;
    access.store(u64::from_ne_bytes(bytes))
}

/// Carries out an atomic operation of the peer. Returns what was there before.
fn atomic(qp: &Qp, rkey: u32, va: u64, operation: AtomicOperation) -> Result<u64, Fault> {
    let len = size_of::<u64>() as u64;
    let access = access(qp, rkey, va, len, Access::REMOTE_ATOMIC)?;
    match operation {
        AtomicOperation::CompareSwap { compare, swap } => access.compare_swap(compare, swap),
        AtomicOperation::FetchAdd { add } => access.fetch_add(add),
    }
}

impl Qp {
    /// Takes in a request packet. Context: softirq, no lock held.
    pub(crate) fn receive_request(self: &Arc<Self>, packet: &Packet, skb: RxSkb) {
        self.drive_receive(|receive, after| receive.request(self, packet, skb, after));
    }

    /// Takes in request packets that came together. Context: softirq, no lock held.
    pub(crate) fn receive_requests(self: &Arc<Self>, run: Run<'_, '_>) {
        self.drive_receive(|receive, after| {
            run.for_each(|packet, skb| receive.request(self, packet, skb, after));
        });
    }

    /// Goes on after waiting for pages; `hopeless` could not be brought in.
    /// Context: process, no lock held.
    pub(super) fn resume_receive(self: &Arc<Self>, hopeless: Option<Absent>) {
        self.drive_receive(|receive, _| {
            receive.paging.resume(hopeless);
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
    fn drive_receive(self: &Arc<Self>, first: impl FnOnce(&mut ReceiveSide, &mut Aftermath)) {
        let mut first = Some(first);
        let mut owner = false;
        let mut given_back: Option<Batch> = None;
        for _ in 0..BATCHES_PER_CALL {
            let bh = BhGuard::new();
            let mut after = Aftermath::default();
            let batch = {
                let mut receive = self.receive.lock();
                if let Some(first) = first.take() {
                    first(&mut receive, &mut after);
                    receive.place = Place::default();
                    receive.target = None;
                }
                if receive.busy && !owner {
                    receive.again = true;
                    None
                } else {
                    owner = true;
                    receive.busy = true;
                    receive.again = false;
                    let mut batch = given_back
                        .take()
                        .unwrap_or_else(|| core::mem::take(&mut receive.batch));
                    receive.respond(self, &mut batch);
                    receive.report(self);
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
        self.kick();
    }

    fn after_receive(self: &Arc<Self>, after: &Aftermath) {
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
