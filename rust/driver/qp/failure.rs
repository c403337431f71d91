// SPDX-License-Identifier: GPL-2.0

//! The error state: what brings a QP there, also with its device or a queue that it uses (IBTA 10.2.9.5, 11.6.3.2), and
//! what it does there.

use super::{
    deadlines::Deadline,
    table,
    Qp, //
};
use crate::{
    device::Device,
    queue::{
        cq::{
            Cq,
            OVERFLOW, //
        },
        srq::Srq, //
    },
    users::Users, //
};
use core::sync::atomic::Ordering;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use rdma::qp::{
    Event,
    State, //
};

/// How often a QP in the error state looks for receives that were posted without a system call,
/// in nanoseconds: first, and at most.
const RESCAN_FIRST_NS: u64 = 4_000_000;
const RESCAN_LAST_NS: u64 = 1_000_000_000;

impl WorkItem<OVERFLOW> for Cq {
    type Pointer = Arc<Cq>;

    fn run(cq: Arc<Cq>) {
        cq.tell_overflow();
        // Their consumers cannot know any more what has become of their requests.
        fail(cq.users(), is_not_in_error);
    }
}

impl WorkItem for Srq {
    type Pointer = Arc<Srq>;

    fn run(srq: Arc<Srq>) {
        srq.tell_failure();
        fail(srq.users(), is_not_in_error);
    }
}

/// A QP in the error state is flushed already, at its own pace.
fn is_not_in_error(qp: &Qp) -> bool {
    qp.state() != State::Error
}

/// Moves every QP of a process on `device` to the error state, so that a process that polls its CQs sees flushed
/// requests instead of nothing, for ever. One in error is flushed at once, not when it next looks for receives.
/// Context: process, may sleep, RTNL may be held.
pub(crate) fn fail_users(device: &Device) {
    fail(device.users(), Qp::is_of_process);
}

/// Moves the QPs that use what has failed, and are to, to the error state, and tells their consumers.
fn fail(users: &Users, is_to: impl Fn(&Qp) -> bool) {
    table::for_each(users, |qp| {
        if is_to(qp) {
            qp.fail();
        }
    });
}

impl Qp {
    /// The lists that the QP is on: the users of its device, its CQs and its SRQ, each once. It fails when one of these does.
    pub(super) fn lists(&self) -> impl Iterator<Item = &Users> {
        let has_two = !Arc::ptr_eq(&self.send.cq, &self.receive.cq);
        let recv_cq = has_two.then(|| self.receive.cq.users());
        let srq = self.receive.srq.as_ref().map(|srq| srq.users());
        let (device, send_cq) = (self.device().users(), self.send.cq.users());
        [Some(device), Some(send_cq), recv_cq, srq]
            .into_iter()
            .flatten()
    }

    /// Has the QP fail with its device and its queues, unless it is QP 1, which has no number of its own. Makes room for its
    /// completions. Errors: `ENOMEM`; [`Self::delist`] and [`Self::release_completions`] have to be called all the same.
    /// Context: process, may sleep.
    pub(super) fn enlist(&self) -> Result {
        for reserved in self.wrs().map(|(cq, wrs)| cq.reserve(wrs)) {
            reserved?;
        }
        if self.is_general_services() {
            return Ok(());
        }
        self.lists().try_for_each(|users| users.add(self.number))
    }

    /// The QP does not fail with its device and its queues any more. Context: process, may sleep.
    pub(super) fn delist(&self) {
        self.lists().for_each(|users| users.remove(self.number));
    }

    /// Nothing completes any more: undoes what is left of [`Self::enlist`]. Context: process, may sleep.
    pub(super) fn release_completions(&self) {
        for (cq, wrs) in self.wrs() {
            cq.release(wrs);
        }
    }

    /// How many WRs of the QP can complete in its CQs, but for receives of an SRQ.
    fn wrs(&self) -> [(&Cq, u32); 2] {
        let cap = &self.verbs.cap;
        let receives = match self.receive.srq {
            Some(_) => 0,
            None => cap.max_recv_wr,
        };
        [
            (&self.send.cq, cap.max_send_wr),
            (&self.receive.cq, receives),
        ]
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
    pub(super) fn mark_failed(&self) -> Option<State> {
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

    /// Flushes everything posted, in order, once, of a QP in the error state. `event` tells why, where no completion
    /// does. Nothing is done if it has left that since; in SQE, BH work flushes the sends that were not fetched.
    /// Context: process or softirq, no lock held.
    pub(super) fn flush(self: &Arc<Self>, event: Option<Event>) {
        if self.state() != State::Error {
            self.kick();
            return;
        }
        self.receive.rescan_ns.store(0, Ordering::Relaxed);
        self.flush_sends();
        self.run_send();
        self.flush_receives();
        self.kick();
        if let Some(event) = event.filter(|_| self.state() == State::Error) {
            self.verbs.handle.raise(event);
        }
    }

    fn flush_sends(&self) {
        let mut send = self.send.lock();
        // A reset changes the state before it takes the lock.
        if self.state() == State::Error {
            send.flush(self);
        }
    }

    /// Receives posted to a QP in error make no system call: look again after a while.
    pub(super) fn rescan_later(self: &Arc<Self>) {
        let delay = u64::from(self.receive.rescan_ns.load(Ordering::Relaxed)).max(RESCAN_FIRST_NS);
        let next = delay.saturating_mul(2).min(RESCAN_LAST_NS);
        self.receive
            .rescan_ns
            .store(u32::try_from(next).unwrap_or(u32::MAX), Ordering::Relaxed);
        let time = sync::monotonic_ns().saturating_add(delay);
        self.deadlines.set(self, Deadline::Rescan, time);
    }
}
