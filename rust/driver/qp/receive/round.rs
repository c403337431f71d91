// SPDX-License-Identifier: GPL-2.0

//! A round of the receive side: from requests to memory, receive requests and their completions.

use super::{
    super::{
        bulk::{
            self,
            BULK_RESPOND, //
        },
        deadlines::Deadline,
        engine::Engine,
        paging::WaitsForPages,
        side::{
            Round,
            Side, //
        },
        status,
        Qp, //
    },
    access,
    ReceiveSide,
    Target, //
};
use crate::{
    memory::{
        access::{
            Access,
            Fault, //
        },
        buffer::{
            Cursor,
            Place, //
        },
        key,
        pd::Pd, //
    },
    packet::datagram::Batch,
    queue::{
        cq::Cq,
        srq::Srq, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use rdma::{
    memory::Exchange,
    qp::{
        Event,
        State, //
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
    qp::Type,
    requester::MAX_BURST_LEN,
    responder::{
        Action,
        Arrival,
        AtomicOperation,
        ReceiveCompletion,
        ReceiveOperation,
        ResponderEvent,
        Step,
        GRH_LEN, //
    },
    wire::U24, //
};
use sync::SpinLockBhGuard;

impl Target {
    /// Whether it is reached by the key `rkey` of that XRC SRQ's domain, and has all of `len` bytes at `va`.
    fn covers(&self, xrc_srqn: Option<U24>, rkey: u32, va: u64, len: u64) -> bool {
        let offset = va.checked_sub(self.va);
        self.rkey == rkey
            && self.xrc_srqn == xrc_srqn
            && offset.is_some_and(|offset| self.access.has(offset, len))
    }
}

impl Side for ReceiveSide {
    const BATCHES_PER_CALL: u32 = 2;

    #[inline]
    fn lock(qp: &Qp) -> SpinLockBhGuard<'_, Self> {
        qp.receive.lock()
    }

    fn cq(qp: &Qp) -> &Arc<Cq> {
        &qp.receive.cq
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn arrive(&mut self, packet: &Packet) -> Arrival {
        self.responder.arrive(packet)
    }

    /// Takes in a request: walks the responder's steps to the end. `Err` if that has to wait for pages.
    fn take_in(
        &mut self,
        qp: &Arc<Qp>,
        packet: &Packet,
        skb: &RxSkb,
        round: &mut Round,
    ) -> Result<(), WaitsForPages> {
        let (srq, pass);
        // Of XRC: the SRQ that the packet names, if it is there. It stays as long as the pass.
        let mut xrc = None;
        // The domain that guards memory from the request: of XRC, that of the SRQ (IBTA A14).
        let pd = match packet.xrc_srqn {
            None => Some(&qp.pd),
            Some(number) => {
                srq = self.queue.xrc_srq(number);
                pass = srq.as_ref().and_then(|srq| srq.enter());
                xrc = srq.as_ref().filter(|_| pass.is_some());
                xrc.map(|srq| srq.pd())
            }
        };
        let mut step = self.responder.receive(packet);
        loop {
            let (action, stage) = match step {
                Step::Do(action, stage) => (action, stage),
                Step::Done => return Ok(()),
                Step::Park => return Err(WaitsForPages),
                Step::Complete(completion) => {
                    self.complete(qp, packet, skb, &completion, round);
                    return Ok(());
                }
                Step::Dropped(reason) => {
                    qp.count_drop(reason);
                    return Ok(());
                }
            };
            let done = match action {
                Action::TakeReceive => {
                    self.place.rewind();
                    let receive = self.queue.take(qp, xrc);
                    step = self.responder.commit_receive(stage, packet, receive);
                    continue;
                }
                Action::PlaceReceive { offset, length } => {
                    let (offset, from) = (u64::from(offset), packet.header_len());
                    self.place_receive(qp, xrc, offset, skb, from, length as usize)
                }
                Action::Atomic {
                    rkey,
                    va,
                    operation,
                } => match atomic(qp, pd, rkey, va, operation) {
                    Ok(original) => {
                        step = self.responder.commit_atomic(stage, packet, original);
                        continue;
                    }
                    Err(fault) => Err(fault),
                },
                action => self.access_remote(qp, pd, action, packet, skb),
            };
            let outcome = self.engine.incoming.outcome(qp, done);
            step = self.responder.commit(stage, packet, outcome);
        }
    }

    fn resume(&mut self) {
        self.responder.resume();
    }

    fn is_long(&self) -> bool {
        self.responder
            .has_unsent(bulk::bulk_bytes(self.responder.config().mtu))
    }

    fn build_in_bulk(qp: &Arc<Qp>) -> bool {
        let worker = &qp.receive.worker;
        worker.settle_here();
        qp.build_in_bulk::<BULK_RESPOND>(worker, Deadline::Respond)
    }

    fn build(&mut self, qp: &Arc<Qp>, _round: &mut Round, batch: &mut Batch) {
        self.respond(qp, batch);
    }

    fn settle(&mut self, qp: &Arc<Qp>, round: &mut Round, _is_sent: bool) {
        // An error is told of once its NAK is in the batch.
        while let Some(event) = self.responder.take_event() {
            match event {
                ResponderEvent::CommunicationEstablished => {
                    if !qp.is_datagram() && qp.state() == State::Rtr {
                        qp.verbs.handle.raise(Event::CommEstablished);
                    }
                }
                error => {
                    // Now: once the lock is released, the consumer may bring the QP up anew.
                    let before = qp.mark_failed();
                    round.failed = before.is_some();
                    if round.failed {
                        self.complete_failed(qp, round);
                    }
                    round.event = error_event(error)
                        .filter(|_| before.is_some_and(|state| state != State::Error));
                }
            }
        }
        self.place = Place::default();
        self.target = None;
        self.queue.settle();
        self.report(qp);
    }
}

impl ReceiveSide {
    /// Accesses memory by the key that a request names, but for atomics, or invalidates the key. Not a part of
    /// [`Side::take_in`]: receives would take longer.
    #[inline(never)]
    fn access_remote(
        &mut self,
        qp: &Qp,
        pd: Option<&Arc<Pd>>,
        action: Action,
        packet: &Packet,
        skb: &RxSkb,
    ) -> Result<(), Fault> {
        let payload = packet.header_len();
        match action {
            // The key is checked for the whole message with its first packet, so that nothing is written of a message that
            // does not fit.
            Action::PlaceRemote {
                rkey,
                va,
                length,
                check_length,
            } => {
                let (xrc_srqn, check) = (packet.xrc_srqn, u64::from(check_length));
                // A copy fails if the memory is no more, so a key that was right for the message's first packet need not
                // be looked up again for those that came with it.
                let target = match self.target.take() {
                    Some(target) if target.covers(xrc_srqn, rkey, va, check) => target,
                    _ => Target {
                        xrc_srqn,
                        rkey,
                        va,
                        access: access(qp, pd, rkey, va, check, Access::REMOTE_WRITE)?,
                    },
                };
                let target = self.target.insert(target);
                let mut at = va.wrapping_sub(target.va);
                for segment in skb.segments(payload, length as usize) {
                    target.access.write_segment(at, &segment)?;
                    at = at.wrapping_add(segment.len() as u64);
                }
                Ok(())
            }
            Action::CheckRead { rkey, va, length } => {
                let checked = access(qp, pd, rkey, va, u64::from(length), Access::REMOTE_READ);
                // The peer is told of pages that are not there as long as this is not executed.
                checked.and_then(|access| access.probe(u64::from(MAX_BURST_LEN)))
            }
            Action::AtomicWrite { rkey, va } => atomic_write(qp, pd, rkey, va, skb, payload),
            Action::Flush {
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
                pd.ok_or(Fault::NoQueue)
                    .and_then(|pd| key::remote_flush(pd, qp.number, rkey, range, need))
            }
            Action::Invalidate { rkey } => pd
                .ok_or(Fault::NoQueue)
                .and_then(|pd| key::invalidate(pd, qp.number, rkey, true)),
            // The steps of a receive, and atomics, are for `take_in`.
            Action::TakeReceive | Action::PlaceReceive { .. } | Action::Atomic { .. } => {
                Err(Fault::Protection)
            }
        }
    }

    /// Places payload into the current receive request; a datagram's is preceded by the GRH.
    fn place_receive(
        &mut self,
        qp: &Qp,
        xrc: Option<&Arc<Srq>>,
        offset: u64,
        skb: &RxSkb,
        from: usize,
        len: usize,
    ) -> Result<(), Fault> {
        let mut cursor = Cursor::new(
            self.queue.pd(qp, xrc).ok_or(Fault::NoQueue)?,
            self.queue.current().buffers(),
            Access::LOCAL_WRITE,
            &mut self.place,
        );
        if qp.is_datagram() && offset == u64::from(GRH_LEN) {
            cursor.write(0, &skb.network_header_40())?;
        }
        cursor.write_datagram(offset, skb, from, len)
    }

    /// Posts the completion of the current receive request.
    fn complete(
        &mut self,
        qp: &Qp,
        packet: &Packet,
        skb: &RxSkb,
        done: &ReceiveCompletion,
        round: &mut Round,
    ) {
        let opcode = match done.operation {
            ReceiveOperation::Send => wc::Opcode::Recv,
            ReceiveOperation::Write => wc::Opcode::RecvRdmaWithImm,
        };
        let mut completion = Completion::new(
            self.queue.current().wr_id,
            status(done.status),
            opcode,
            qp.number,
        );
        completion.byte_len = done.length;
        if completion.is_success() {
            self.receives = self.receives.wrapping_add(1);
        }
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
                // The connection manager compares it with that of the address that the request was for.
                completion.vlan_id = qp.device().registry.addresses.vlan(qp.device(), skb);
            }
        }
        self.place.rewind();
        if !self.responder.has_failed() {
            self.queue.finish();
            self.post(qp, &completion, done.solicited, round);
        } else {
            self.failed = Some(completion);
        }
    }
}

/// Places an ATOMIC WRITE's payload, which begins `from` bytes into the datagram.
fn atomic_write(
    qp: &Qp,
    pd: Option<&Arc<Pd>>,
    rkey: u32,
    va: u64,
    skb: &RxSkb,
    from: usize,
) -> Result<(), Fault> {
    let mut bytes = [0; size_of::<u64>()];
    skb.copy(from, &mut bytes).or(Err(Fault::Protection))?;
    let access = access(qp, pd, rkey, va, bytes.len() as u64, Access::REMOTE_WRITE)?;
    access
        .exchange(Exchange::Store(u64::from_ne_bytes(bytes)))
        .map(|_| ())
}

/// Carries out an atomic operation of the peer. Returns what was there before.
fn atomic(
    qp: &Qp,
    pd: Option<&Arc<Pd>>,
    rkey: u32,
    va: u64,
    operation: AtomicOperation,
) -> Result<u64, Fault> {
    let len = size_of::<u64>() as u64;
    let access = access(qp, pd, rkey, va, len, Access::REMOTE_ATOMIC)?;
    access.exchange(match operation {
        AtomicOperation::CompareSwap { compare, swap } => Exchange::CompareSwap { compare, swap },
        AtomicOperation::FetchAdd { add } => Exchange::Add(add),
    })
}

/// The event of an error, where no completion tells of it.
fn error_event(error: ResponderEvent) -> Option<Event> {
    match error {
        ResponderEvent::CommunicationEstablished | ResponderEvent::ReceiveError => None,
        ResponderEvent::AccessError => Some(Event::AccessError),
        ResponderEvent::RequestError => Some(Event::RequestError),
        ResponderEvent::Fatal => Some(Event::Fatal),
    }
}
