// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Loss: timers, retry counters, going back (IBTA 9.7.5.1.1, 9.7.5.2.8, 9.7.6.1.3, 9.9.2).

use core::ops::DerefMut;

use crate::{
    status::Status,
    time::{
        rnr_delay,
        Instant, //
    }, //
};

use super::{
    Requester,
    SendSlot, //
};

/// The number of RNR retries that means: for ever (IBTA 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// When [`on_timeout`](Self::on_timeout) is to be called. To be asked again after each other
    /// call.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rnr_deadline.or(self.deadline)
    }

    /// Tells that time has gone by. Too early a call does nothing.
    pub fn on_timeout(&mut self, now: Instant) {
        if let Some(deadline) = self.rnr_deadline {
            if now >= deadline {
                self.rnr_deadline = None;
            }
            return;
        }
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.place.is_some() {
            // The answer is here; it is the driver that is not done with it.
            self.restart_timer(now);
            return;
        }
        self.counters.timeouts = self.counters.timeouts.wrapping_add(1);
        if self.held {
            // As above; but the driver may have lost it. It does not count as a retry.
            self.go_back();
            return;
        }
        if self.retry() {
            self.recovering = false;
        }
    }

    /// Something new was acknowledged.
    pub(super) fn progress(&mut self, now: Instant) {
        self.refill();
        self.rnr_deadline = None;
        self.restart_timer(now);
    }

    /// The transport timer runs as long as an answer is waited for.
    pub(super) fn restart_timer(&mut self, now: Instant) {
        self.deadline = match self.config.timeout {
            Some(timeout) if self.in_flight() => Some(now.add(timeout)),
            _ => None,
        };
    }

    /// Answers the loss of the packet at `una` or of its response. Once: the responses to what is
    /// behind the gap keep coming in for a while. Returns whether it did.
    pub(super) fn recover(&mut self) -> bool {
        if self.recovering || !self.in_flight() {
            return false;
        }
        if self.retry() {
            self.recovering = true;
        }
        true
    }

    /// Goes back, if that is still allowed.
    fn retry(&mut self) -> bool {
        match self.retries_left.checked_sub(1) {
            Some(left) => {
                self.retries_left = left;
                self.go_back();
                true
            }
            None => {
                self.fail(Status::RetryExceeded);
                false
            }
        }
    }

    /// The responder was not ready for the packet at `una`.
    pub(super) fn not_ready(&mut self, now: Instant, timer: u8) {
        if self.rnr_deadline.is_some() {
            // A duplicate.
            return;
        }
        self.counters.rnr_naks = self.counters.rnr_naks.wrapping_add(1);
        // It is an answer, also if the packet is to be sent again for another reason and has not
        // been yet.
        self.retries_left = self.config.retry_count;
        self.recovering = false;
        if self.config.rnr_retry != RNR_RETRY_FOREVER {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                self.fail(Status::RnrRetryExceeded);
                return;
            };
            self.rnr_retries_left = left;
        }
        self.go_back();
        self.rnr_deadline = Some(now.add(rnr_delay(timer)));
    }

    /// Goes back to the oldest packet that is not acknowledged. For a READ that is in the middle of
    /// it, if its first responses have arrived.
    fn go_back(&mut self) {
        self.sent = self.una;
        self.cursor = self.oldest;
        self.reads = 0;
        self.read_psns = 0;
        // It runs again once the packet is sent again.
        self.deadline = None;
        if let Some(pending) = &mut self.pending {
            pending.overtaken = true;
        }
    }
}
