// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Asking early: the timeout is an attribute, and often a thousand round trips long.
//!
//! The requester measures how long answers take, as TCP does (RFC 6298), never on a packet that was
//! sent twice. When nothing has been heard for much longer than that, it sends the oldest packet that
//! is not acknowledged once more, and nothing else until it hears something: a probe. The responder
//! answers a duplicate by telling how far it is, and a packet that it has not seen by executing it, so
//! a lost ACK, a lost last packet and a lost request all show after a round trip or two. Each probe
//! waits twice as long as the one before.
//!
//! A probe costs nothing of the retry counter and does not touch the timeout, which runs on beside.

use crate::time::{
    Duration,
    Instant, //
};

/// The least time to wait before a probe. Below this it is more likely that a CPU is busy.
const LEAST: u64 = 4_000_000;

/// Doublings after which no more are made: the timeout ends this long before.
const MAX_DOUBLINGS: u32 = 16;

/// How long answers take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// Mean and mean deviation in nanoseconds, once one was measured.
    estimate: Option<(u64, u64)>,
    /// The position whose acknowledgement is waited for, and since when.
    sample: Option<(u64, Instant)>,
}

impl RoundTrip {
    /// The packet at `position` was sent, for the first time.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, position: u64) {
        if self.sample.is_none() {
            self.sample = Some((position, now));
        }
    }

    /// Everything before `una` is acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, now: Instant, una: u64) {
        if let Some((_, since)) = self.sample.take_if(|(position, _)| *position < una) {
            self.measured(now.since(since));
        }
    }

    /// How long answers may take, as far as is known (RFC 6298).
    fn longest(&self) -> Option<Duration> {
        let (mean, deviation) = self.estimate?;
        Some(Duration::from_ns(
            mean.saturating_add(deviation.saturating_mul(4)),
        ))
    }

    /// Whether answers may take longer than `timeout`: unless it is known that they do not.
    pub(super) fn may_exceed(&self, timeout: Duration) -> bool {
        self.longest().is_none_or(|longest| longest > timeout)
    }

    /// How long to wait for an answer before the timer expires: the timeout, or as long as answers may take, but no longer
    /// than `most`.
    pub(super) fn silence(&self, timeout: Duration, most: Duration) -> Duration {
        self.longest()
            .map_or(timeout, |longest| longest.max(timeout).min(most))
    }

    /// The packet at `position` is sent again, and no other: answers to others still say what they answer.
    pub(super) fn forget_sample_of(&mut self, position: u64) {
        self.sample.take_if(|(sample, _)| *sample == position);
    }

    /// Packets under way are sent again: answers do not say which transmission they answer.
    #[inline]
    pub(super) fn forget_sample(&mut self) {
        self.sample = None;
    }

    fn measured(&mut self, took: Duration) {
        let took = took.as_ns();
        let (mean, deviation) = match self.estimate {
            None => (took, took / 2),
            Some((mean, deviation)) => (
                smooth(mean, took, 3),
                smooth(deviation, mean.abs_diff(took), 2),
            ),
        };
        self.estimate = Some((mean, deviation));
    }

    /// How long to wait for an answer before the next probe, after so many of them; `None` as long as
    /// nothing is known.
    #[inline]
    pub(super) fn patience(&self, probes: u32) -> Option<Duration> {
        let (mean, deviation) = self.estimate?;
        let once = mean
            .saturating_mul(2)
            .saturating_add(deviation.saturating_mul(4))
            .max(LEAST);
        let factor = 1u64.wrapping_shl(probes.min(MAX_DOUBLINGS));
        Some(Duration::from_ns(once.saturating_mul(factor)))
    }
}

/// Moves `mean` towards `value` by a `2^-shift` of the difference.
fn smooth(mean: u64, value: u64, shift: u32) -> u64 {
    mean.saturating_sub(mean.wrapping_shr(shift))
        .saturating_add(value.wrapping_shr(shift))
}
