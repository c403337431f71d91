// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Loss and congestion: timers, retry counters, going back (IBTA 9.7.5.1.1, 9.7.5.2.8, 9.7.6.1.3, 9.9.2).
//!
//! # When it goes back, and what that costs
//!
//! The retry counter is there to notice that nobody answers any more. It is full again with every
//! progress, so it counts attempts in a row that came to nothing; how much one costs depends on
//! whether the peer was heard.
//!
//! - A NAK, or a response to something behind what is missing (an implied NAK), says that the peer
//!   and the path are alive. We go back at once, once per gap, for one unit of the counter.
//! - While that is being answered, answers to what was sent before keep coming in. They are signs of
//!   life, not new gaps; and other gaps among what is being asked for again are about to be filled.
//!   When they have been coming in and then stop for a while ([`QUIET`]), what was sent again was
//!   lost, too: we go back again, for one unit.
//! - When nothing at all is heard for the whole timeout, we go back, for [`SILENCE`] units: of these
//!   attempts there are as many as the QP's attribute says.
//! - If it is not known that answers come within the timeout, they may be on their way. Then only
//!   one packet is sent again. Sending all would make a queue longer whose length is the reason.
//!   When an ACK covers more than that packet, and ends where one was asked for, it is taken for the
//!   answer to what was sent first, and nothing more is sent again. Otherwise we go on from there, as
//!   after a loss. Once it is known that answers may take longer (by RFC 6298: with a margin), the timer
//!   waits as long, up to [`PATIENCE`] timeouts.
//!
//! Apart from that, one packet is sent once more, at no cost, when nothing has been heard for much
//! longer than answers take: see [`super::probe`].
//!
//! Where the QP has an alternate path, the last unit does not fail the request: the QP migrates, and
//! the counter is full again.
//!
//! # Why it ends
//!
//! Without progress each time of going back takes at least one unit, and there are finitely many; an
//! alternate path can be migrated to once.
//! Between two of them lies at most [`PATIENCE`] times the timeout, whatever comes in: signs of life
//! only move the deadline within that, which is the span that IBTA 9.7.6.1.3 leaves to a requester
//! for noticing that its timer has expired. Probes do not begin the timeout anew, and are ever further
//! apart.
//!
//! Time does not count while the driver holds a response whose page is not there: the page
//! comes, the access fails, or the driver says that the response is lost.

use core::ops::DerefMut;

use crate::{
    status::Status,
    time::{
        rnr_delay,
        Duration,
        Instant, //
    }, //
};

use super::{
    probe::RoundTrip,
    Requester,
    SendSlot, //
};

/// The number of RNR retries that means: for ever (IBTA 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

/// The cost, in units of the retry counter, of an attempt after which nothing was heard. One after
/// which something was heard costs one unit.
///
/// READ needs the difference: at a loss of 10 %, an attempt fails with a probability of 0.19, as the
/// request or the response may be lost. Were each to cost the same, one gap in 10^5 would take the
/// last of 7 retries, and a READ of 1 MiB has a hundred gaps.
const SILENCE: u16 = 8;

/// After signs of life, so much of the timeout without one (as a shift) means that no more will come:
/// an eighth. That is many round trips, where the timeout is what it should be.
const QUIET: u32 = 3;

/// But no more than this: many timeouts are seconds, for the sake of a peer that is busy; and to ask
/// once too often costs little.
const MAX_QUIET: Duration = Duration::from_ms(64);

/// So many timeouts after the timer was started it expires, even if there are signs of life.
const PATIENCE: u64 = 4;

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
        if self.held {
            // The answer is here; it is the driver that is not done with it.
            self.restart_timer(now);
            return;
        }
        if !self.alive && now < self.silence_end {
            self.probe();
            return;
        }
        let cost = if self.alive {
            self.counters.implied_naks = self.counters.implied_naks.wrapping_add(1);
            1
        } else {
            self.counters.timeouts = self.counters.timeouts.wrapping_add(1);
            SILENCE
        };
        let doubt = self.doubt();
        // Responses from now on answer packets sent from now on.
        if self.retry(cost) {
            self.recovering = false;
            self.recovery_end = 0;
            if let Some((resume, round_trip)) = doubt.filter(|_| !self.migrated) {
                self.resume = Some(resume);
                self.probe_end = Some(self.una.wrapping_add(1));
                self.round_trip = round_trip;
                self.round_trip.forget_sample_of(self.una);
            }
        }
    }

    /// Where the packets end that may still be on their way although the timer has expired, and what is known of round trips.
    /// [`None`] unless answers may take longer than the timeout, only SENDs and WRITEs are outstanding, and the last packet
    /// asked for an acknowledgement.
    fn doubt(&self) -> Option<(u64, RoundTrip)> {
        let timeout = self.config.timeout?;
        let is_slow = !self.alive && self.round_trip.may_exceed(timeout);
        let end = self.resume.unwrap_or(self.sent).max(self.sent);
        (is_slow && self.reads == 0 && !self.unasked).then_some((end, self.round_trip))
    }

    /// Decides, now that everything before `una` is acknowledged, whether the first transmission arrives. After a timeout only
    /// one packet was sent again. If the acknowledgement covers more than that one, and ends where one was asked for, it is
    /// taken for the answer to the first transmission. Otherwise the packets behind are lost. Returns where sending goes on.
    pub(super) fn settle_doubt(&mut self) -> u64 {
        let (Some(resume), Some(probe_end)) = (self.resume, self.probe_end) else {
            return self.una;
        };
        let arrives = self.una > probe_end && self.asked_before(self.una);
        // Lost packets are sent again: their answers do not say which transmission they answer. Nor does an acknowledgement
        // of all packets.
        if !arrives || self.una >= resume {
            self.round_trip.forget_sample();
        }
        if arrives {
            self.una.max(resume)
        } else {
            self.una
        }
    }

    /// So many PSNs more are acknowledged.
    pub(super) fn progress(&mut self, now: Instant, fresh: u32) {
        self.round_trip.acknowledged(now, self.una);
        self.requests.acknowledged(fresh);
        self.responses.acknowledged(fresh);
        self.refill();
        self.rnr_deadline = None;
        self.restart_timer(now);
    }

    /// The transport timer runs as long as an answer is waited for.
    #[inline(never)]
    pub(super) fn restart_timer(&mut self, now: Instant) {
        self.probe_end = None;
        self.resume = None;
        self.start_timer(now);
    }

    /// As [`restart_timer`](Self::restart_timer), but what was held back still is.
    pub(super) fn start_timer(&mut self, now: Instant) {
        match self.config.timeout {
            Some(timeout) if self.in_flight() => {
                let most = Duration::from_ns(timeout.as_ns().saturating_mul(PATIENCE));
                self.latest = now.add(most);
                self.silence_end = now.add(self.round_trip.silence(timeout, most));
                self.probes = 0;
                self.await_answer(now);
            }
            _ => self.deadline = None,
        }
    }

    /// Waits for an answer to what was just sent: until it is time for a probe, or the timeout ends.
    #[inline]
    pub(super) fn await_answer(&mut self, now: Instant) {
        let end = self.silence_end;
        self.deadline = Some(match self.round_trip.patience(self.probes) {
            Some(patience) => now.add(patience).min(end),
            None => end,
        });
    }

    /// Asks how far the peer is: with one packet, the oldest that is not acknowledged.
    fn probe(&mut self) {
        self.go_back();
        self.probes = self.probes.saturating_add(1);
        self.probe_end = Some(self.una.wrapping_add(1));
        // A NAK that comes in from now on answers this.
        self.recovering = false;
        self.recovery_end = 0;
    }

    /// Answers the loss of the packet at `una` or of its response. Once: the responses to what is
    /// behind the gap keep coming in for a while. Returns whether it did.
    pub(super) fn recover(&mut self, now: Instant) -> bool {
        if !self.in_flight() {
            return false;
        }
        if self.recovering {
            self.sign_of_life(now);
            return false;
        }
        if self.retry(1) {
            self.recovering = true;
        }
        true
    }

    /// The peer was heard, but not with what is missing.
    pub(super) fn sign_of_life(&mut self, now: Instant) {
        self.alive = true;
        self.probe_end = None;
        if self.resume.take().is_some() {
            self.round_trip.forget_sample();
        }
        if let (Some(_), Some(timeout)) = (self.deadline, self.config.timeout) {
            let quiet = Duration::from_ns(timeout.as_ns().wrapping_shr(QUIET));
            self.deadline = Some(now.add(quiet.min(MAX_QUIET)).min(self.latest));
        }
    }

    /// Goes back, if that is still allowed.
    fn retry(&mut self, cost: u16) -> bool {
        if self.retries_left == 0 {
            if !core::mem::take(&mut self.has_alternate) {
                self.fail(Status::RetryExceeded);
                return false;
            }
            // All of it anew, over the other path.
            self.migrated = true;
            self.round_trip = RoundTrip::default();
            self.refill();
            self.go_back();
            return true;
        }
        // The counter may hold less than the cost: then this is the last attempt.
        self.retries_left = self.retries_left.saturating_sub(cost);
        self.requests.lost(self.max_sent);
        self.responses.lost(self.max_sent);
        self.go_back();
        true
    }

    /// The network is congested: a CNP says that requests met congestion, a mark that responses did (annex A17.9).
    #[cold]
    #[inline(never)]
    pub(super) fn congested(&mut self, by_requests: bool) {
        // UC has no window.
        if !self.config.service.is_reliable() || !self.in_flight() {
            return;
        }
        let window = match by_requests {
            true => &mut self.requests,
            false => &mut self.responses,
        };
        window.congested(self.una, self.max_sent);
    }

    /// The responder was not ready for the packet at `una`.
    pub(super) fn not_ready(&mut self, now: Instant, timer: u8) {
        if self.rnr_deadline.is_some_and(|deadline| now < deadline) {
            // A duplicate.
            return;
        }
        self.counters.rnr_naks = self.counters.rnr_naks.wrapping_add(1);
        // It is an answer, also if the packet is to be sent again for another reason and has not
        // been yet.
        self.retries_left = retry_units(self.config.retry_count);
        self.recovering = false;
        if self.config.rnr_retry != RNR_RETRY_FOREVER {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                self.fail(Status::RnrRetryExceeded);
                return;
            };
            self.rnr_retries_left = left;
        }
        self.requests.not_ready();
        self.go_back();
        self.rnr_deadline = Some(now.add(rnr_delay(timer)));
    }

    /// Goes back to the oldest packet that is not acknowledged. For a READ that is in the middle of
    /// it, if its first responses have arrived.
    #[cold]
    fn go_back(&mut self) {
        self.sent = self.una;
        self.cursor = self.oldest;
        self.reads = 0;
        self.read_psns = 0;
        self.alive = false;
        self.probe_end = None;
        self.resume = None;
        self.round_trip.forget_sample();
        // It runs again once the packet is sent again.
        self.deadline = None;
    }
}

/// A full retry counter, in units.
#[inline]
pub(super) fn retry_units(retry_count: u8) -> u16 {
    u16::from(retry_count).wrapping_mul(SILENCE)
}
