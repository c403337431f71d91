// SPDX-License-Identifier: GPL-2.0

//! Waiting for pages of memory that is paged on demand.
//!
//! A side of a QP that finds pages absent tells its protocol engine, and processes no more received packets, or builds no
//! more packets. Work that may sleep faults the pages in, without a lock and without holding off the QP's end, and lets the
//! side go on. Packets that come meanwhile wait in a queue of bounded length, behind the one that found the pages absent;
//! what does not fit is a packet lost.
//!
//! A QP has one work item, which faults pages in one after the other: a page that comes late delays those that are found
//! absent after it.

use super::{
    engine::Engine,
    receive::ReceiveSide,
    send::SendSide,
    side::{
        Round,
        Side, //
    },
    Qp, //
};
use crate::{
    device::counters::Counter,
    memory::{
        access::{
            Absent,
            Fault, //
        },
        paging_turns::{
            self,
            Pager,
            Turn,
            Turns, //
        }, //
    },
    packet::arrival, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use net::{
    RxList,
    RxSkb, //
};
use roce::{
    outcome::Outcome,
    packet::Packet,
    responder::Arrival, //
};
use sync::SpinLockBh;

/// The number of the work that faults in pages, among a QP's.
pub(super) const PAGING: u64 = 1;

/// Packets of either side that wait, at the most.
const MAX_WAITING: u32 = 512;

/// Waiting packets that are handled under one hold of a lock.
const REPLAY_BUDGET: u32 = 16;

/// A packet cannot be taken in before pages are faulted in.
pub(super) struct WaitsForPages;

/// The pages that one direction of one side of a QP waits for.
#[derive(Default)]
pub(super) struct Paging {
    /// To be faulted in.
    wanted: Option<Absent>,
    /// Could not be faulted in: the next access that finds these pages absent fails.
    unfaultable: Option<Absent>,
    /// From an access that found pages absent until it is tried again. Only received packets are held up by it: the protocol
    /// engine holds up those to be sent.
    waiting: bool,
}

impl Paging {
    /// The outcome of an access.
    pub(super) fn outcome(&mut self, qp: &Arc<Qp>, done: Result<(), Fault>) -> Outcome {
        let absent = match done {
            Ok(()) => return Outcome::Done,
            Err(Fault::Protection) => return Outcome::Protection,
            Err(Fault::NoQueue) => return Outcome::InvalidRequest,
            Err(Fault::Absent(absent)) => absent,
        };
        if self
            .unfaultable
            .take()
            .is_some_and(|unfaultable| unfaultable == absent)
        {
            return Outcome::Protection;
        }
        self.wanted = Some(absent);
        self.waiting = true;
        trace::page_wait(qp.number);
        qp.fault_in_pages();
        Outcome::Again
    }
}

/// The packets of one side of a QP that wait, in order, for as long as it takes: so none has pages that somebody else may
/// write to, or uses much more memory than its bytes take. Their memory is charged to nobody, and a process has as many QPs
/// as it likes: the device bounds them all together, by their number and by their memory.
///
/// To be cleared before it is dropped, or the device goes on counting them.
#[derive(Default)]
pub(super) struct Waiting(RxList);

impl Waiting {
    /// Keeps a packet for later, behind the others; or drops it if there are too many.
    fn keep(&mut self, qp: &Qp, skb: RxSkb) {
        if self.0.len() >= MAX_WAITING {
            qp.device().count_drop(Counter::PagingDropped, qp.number);
        } else if let Some(skb) = admit(qp, skb, false) {
            self.0.push(skb);
        }
    }

    /// Puts the packet back that found the pages absent, before the others; or drops it if the device has too many of
    /// these, as the network might have. Returns whether it is kept.
    fn push_front(&mut self, qp: &Qp, skb: RxSkb) -> bool {
        let kept = admit(qp, skb, true);
        kept.map(|skb| self.0.push_front(skb)).is_some()
    }

    /// Takes the first.
    fn pop(&mut self, qp: &Qp) -> Option<RxSkb> {
        let skb = self.0.pop()?;
        qp.device().packet_waits_no_more(skb.memory());
        Some(skb)
    }

    /// Drops all.
    pub(super) fn clear(&mut self, qp: &Qp) {
        while self.pop(qp).is_some() {}
    }
}

/// Makes a packet one that may wait, if there is room for it; drops it otherwise.
fn admit(qp: &Qp, skb: RxSkb, is_first: bool) -> Option<RxSkb> {
    let device = qp.device();
    let kept = skb
        .into_kept()
        .filter(|skb| device.packet_may_wait(skb.memory(), is_first));
    if kept.is_none() {
        device.count_drop(Counter::PagingDropped, qp.number);
    }
    kept
}

impl Pager for Qp {
    fn turns(&self) -> &Turns {
        self.pd.turns()
    }

    fn turn(&self) -> &SpinLockBh<Turn> {
        &self.turn
    }

    fn run(self: Arc<Self>) {
        let device = self.device().clone();
        let _ = device.registry.paging.enqueue::<_, PAGING>(self);
    }
}

impl WorkItem<PAGING> for Qp {
    type Pointer = Arc<Qp>;

    fn run(qp: Arc<Qp>) {
        for direction in [Direction::In, Direction::Out] {
            fault_in::<SendSide>(&qp, direction);
            fault_in::<ReceiveSide>(&qp, direction);
        }
        paging_turns::end(qp);
    }
}

/// Received packets, or packets to be sent.
#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

/// The pages that packets of that direction wait for.
fn paging(engine: &mut Engine, direction: Direction) -> &mut Paging {
    match direction {
        Direction::In => &mut engine.incoming,
        Direction::Out => &mut engine.outgoing,
    }
}

/// Faults in the pages that a side waits for, if it does, and lets it go on.
fn fault_in<S: Side>(qp: &Arc<Qp>, direction: Direction) {
    let wanted = paging(S::lock(qp).engine(), direction).wanted.take();
    let Some(wanted) = wanted else {
        return;
    };
    // No pass while pages are faulted in: a process could make that last for ever.
    let unfaultable = wanted.fault_in().is_err().then_some(wanted);
    let Some(_pass) = qp.gate.enter() else {
        return;
    };
    trace::page_ready(qp.number);
    let mut faulted = Some(unfaultable);
    let mut more = true;
    while more {
        qp.drive::<S>(|side, round| {
            if let Some(unfaultable) = faulted.take() {
                let paging = paging(side.engine(), direction);
                // This says nothing about another access that waits since, or about a QP that was reset meanwhile.
                if paging.wanted.is_none() && core::mem::take(&mut paging.waiting) {
                    paging.unfaultable = unfaultable;
                }
            }
            more = match direction {
                Direction::In => replay(side, qp, round),
                Direction::Out => {
                    side.resume();
                    false
                }
            };
        });
    }
}

/// Takes in a packet, unless it has to wait for others.
pub(super) fn take_in<S: Side>(
    side: &mut S,
    qp: &Arc<Qp>,
    packet: &Packet,
    skb: RxSkb,
    round: &mut Round,
) {
    if !side.engine().waiting.0.is_empty() {
        match side.arrive(packet) {
            Arrival::Receive => {}
            Arrival::Keep => {
                side.engine().waiting.keep(qp, skb);
                return;
            }
            Arrival::Duplicate => return,
        }
    }
    take_in_first(side, qp, packet, skb, round);
}

/// Takes in a packet whose turn it is. If pages are absent, it waits before all others.
fn take_in_first<S: Side>(
    side: &mut S,
    qp: &Arc<Qp>,
    packet: &Packet,
    skb: RxSkb,
    round: &mut Round,
) {
    let waits = side.take_in(qp, packet, &skb, round).is_err();
    if waits && !side.engine().waiting.push_front(qp, skb) {
        side.lost();
    }
}

/// Takes in some of the packets that waited. Returns whether there are more.
fn replay<S: Side>(side: &mut S, qp: &Arc<Qp>, round: &mut Round) -> bool {
    for _ in 0..REPLAY_BUDGET {
        if side.engine().incoming.waiting {
            return false;
        }
        let Some(skb) = side.engine().waiting.pop(qp) else {
            return false;
        };
        let Some(packet) = arrival::reread(&skb) else {
            continue;
        };
        take_in_first(side, qp, &packet, skb, round);
    }
    true
}

impl Qp {
    /// Has work fault in the pages that a side wants. Context: any.
    fn fault_in_pages(self: &Arc<Self>) {
        self.count(Counter::PageFaults);
        paging_turns::want(self.clone());
    }
}
