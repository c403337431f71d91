// SPDX-License-Identifier: GPL-2.0

//! When the consumer of a CQ is notified: the next time it asked for, or later, if its notifications are moderated.

use rdma::cq::{
    Arm,
    Moderation, //
};

/// The CQ does this after a change.
pub(super) enum Action {
    /// Notify the consumer.
    Notify,
    /// Notify it at this time of [`sync::monotonic_ns`]; [`Notification::expire`] says whether still.
    NotifyAt(u64),
    /// Nothing.
    Wait,
}

/// The consumer's request for a notification, and the completions since the last one.
#[derive(Default)]
pub(super) struct Notification {
    armed: Option<Arm>,
    moderation: Moderation,
    /// Completions since the last notification.
    any: u32,
    /// At most so many of them are solicited, or errors: polled ones may count, but not if no other is left.
    solicited: u32,
    /// Completions since the last solicited one, whether or not the consumer was notified.
    behind: u32,
    /// The consumer is notified of them at this time of [`sync::monotonic_ns`].
    deadline: Option<u64>,
}

impl Notification {
    /// The consumer's request, until it is notified.
    pub(super) fn armed(&self) -> Option<Arm> {
        self.armed
    }

    /// How notifications are moderated.
    pub(super) fn moderation(&self) -> Moderation {
        self.moderation
    }

    /// A completion has come.
    #[inline]
    pub(super) fn add(&mut self, is_solicited: bool) -> Action {
        self.any = self.any.saturating_add(1);
        if is_solicited {
            self.solicited = self.solicited.saturating_add(1);
            self.behind = 0;
        } else {
            self.behind = self.behind.saturating_add(1);
        }
        self.settle()
    }

    /// The consumer waits for a completion from now on. `queued` completions that it has not polled count as if they
    /// came now.
    pub(super) fn arm(&mut self, arm: Arm, queued: u32) {
        self.forget_polled(queued);
        // Arming for any completion is not taken back by arming for solicited ones.
        if self.armed != Some(Arm::Next) {
            self.armed = Some(arm);
        }
    }

    /// Notifications are moderated in another way. Completions that wait do so for the new period.
    pub(super) fn moderate(&mut self, moderation: Moderation) -> Action {
        self.moderation = moderation;
        self.deadline = None;
        self.settle()
    }

    /// The timer has fired. Returns whether the CQ notifies the consumer: not if the deadline has moved since, as the
    /// timer was started again then.
    pub(super) fn expire(&mut self) -> bool {
        let is_due = self
            .deadline
            .is_some_and(|deadline| deadline <= sync::monotonic_ns());
        if is_due {
            self.start_over();
        }
        is_due
    }

    /// Compares the completions with the consumer's request.
    #[inline]
    pub(super) fn settle(&mut self) -> Action {
        let matching = match self.armed {
            None => 0,
            Some(Arm::Next) => self.any,
            Some(Arm::Solicited) => self.solicited,
        };
        if matching >= self.moderation.least() {
            self.start_over();
            return Action::Notify;
        }
        if matching > 0 && self.deadline.is_none() {
            let deadline = sync::monotonic_ns().saturating_add(self.moderation.period_ns());
            self.deadline = Some(deadline);
            return Action::NotifyAt(deadline);
        }
        Action::Wait
    }

    /// `queued` completions are left, which came last.
    fn forget_polled(&mut self, queued: u32) {
        if queued == 0 {
            self.deadline = None;
        }
        self.any = self.any.min(queued);
        // Of those that are left, at least the ones behind the last solicited one are not solicited.
        self.solicited = self.solicited.min(queued.saturating_sub(self.behind));
    }

    /// The consumer is notified: it has to ask again.
    fn start_over(&mut self) {
        self.armed = None;
        self.any = 0;
        self.solicited = 0;
        self.deadline = None;
    }
}
