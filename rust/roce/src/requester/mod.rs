// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The send side of a queue pair: from send work requests to packets, and from the peer's
//! responses to completions (IBTA 9.7.3, 9.7.5, 9.7.6, 9.8, 9.9.2, annex A14). XRC is RC, with other
//! opcodes and an SRQ number in each request.
//!
//! # Use
//!
//! Everything is called under one lock, the QP's send-side lock. The driver
//! - posts work requests with [`Requester::post`];
//! - as long as it can send, takes actions from [`Requester::poll_action`], does them, and gives
//!   each back with [`Requester::commit`]. It may do so before the packets are on their way. Having
//!   begun it goes on until there are no more: the last message asks for an acknowledgement on behalf
//!   of those before;
//! - hands in each response with [`Requester::receive`], places the data that this returns, and
//!   gives the [`Placement`] back with [`Requester::commit_place`];
//! - arms a timer for [`Requester::poll_timeout`], and calls [`Requester::on_timeout`] when it
//!   fires;
//! - where the QP may have an alternate path, tells so with [`Requester::set_alternate`] before
//!   [`Requester::receive`] and [`Requester::on_timeout`], and asks [`Requester::take_migration`] after
//!   [`Requester::on_timeout`], and after [`Requester::receive`] with the [`Requester::commit_place`] of its data;
//! - after any of these takes completions from [`Requester::poll_completion`] until there are no
//!   more, and asks [`Requester::take_error`] whether the QP is in error now.
//!
//! Between an action and its `commit`, and between a placement and its `commit_place`, the requester may only be looked at.
//! Neither can be copied, and each is committed by value: no outcome counts twice. One that is dropped has changed nothing:
//! the action comes again, and the response is as good as lost.

mod ahead;
mod attributes;
mod burst;
mod completion;
mod parts;
mod probe;
mod receive;
mod recovery;
mod slot;
mod transmit;
mod window;

use core::ops::DerefMut;

use crate::{
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    status::Status,
    time::Instant, //
};

use self::{
    ahead::Ahead,
    parts::Parts,
    probe::RoundTrip,
    recovery::retry_units,
    window::Window, //
};

pub use self::{
    attributes::RequesterConfig,
    burst::{
        Burst,
        MAX_BURST_LEN,
        MAX_BURST_PACKETS, //
    },
    receive::{
        Placement,
        Received, //
    },
    slot::{
        SendCompletion,
        SendOperation,
        SendSlot,
        SendWr, //
    },
    transmit::SendAction, //
};

/// The longest message of RC, XRC and UC in bytes (IBTA 9.7.1, C9-9).
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;

/// Number of outstanding PSNs that is never reached, or the responder could not tell new requests
/// from duplicates (IBTA 9.7.1).
const MAX_OUTSTANDING: u64 = 1 << 23;

/// Counts of events so far. They wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Packets sent more than once.
    pub retransmitted_packets: u64,
    /// Expiries of the transport timer.
    pub timeouts: u64,
    /// RNR NAKs received, duplicates excepted.
    pub rnr_naks: u64,
    /// Sequence error NAKs received that made us go back.
    pub sequence_naks: u64,
    /// Responses that showed the loss of an earlier response (IBTA 9.7.5.1.1, implied NAK).
    pub implied_naks: u64,
}

/// The send queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not started.
    Idle,
    /// Everything goes on.
    Running,
    /// Started work requests go on.
    Paused,
    /// A work request has failed: nothing goes on.
    Failed,
    /// Posted work requests are flushed.
    Flushing,
}

/// The send side of a queue pair.
///
/// # Positions
///
/// Inside, PSNs are counted by 64-bit positions that never wrap around: the first packet has
/// position 0 and the PSN `initial_psn`. A position and its PSN agree in the lower 24 bits but for
/// that offset.
///
/// # Invariants
///
/// - In this order, on the circle of sequence numbers: `tail` (not polled yet), `oldest` (not
///   complete yet), `cursor` (to be sent next), `started` (not started yet), `head` (to be posted
///   next); at most `capacity` apart.
/// - `una <= sent`; both lie within the work requests `oldest` and `cursor`, at their beginning if
///   those are not started.
/// - Fewer than `MAX_OUTSTANDING` positions lie between `una` and the end of what has been sent.
#[derive(Debug)]
pub struct Requester<S> {
    slots: S,
    config: RequesterConfig,
    phase: Phase,
    capacity: u32,

    tail: u32,
    oldest: u32,
    cursor: u32,
    started: u32,
    head: u32,

    /// The oldest position that is not acknowledged.
    una: u64,
    /// The position to be sent next.
    sent: u64,
    /// The end of what has ever been sent.
    max_sent: u64,
    /// READ requests and ATOMICs between `una` and `sent`.
    reads: u32,
    /// Of the positions between `una` and `sent`, those of READs.
    read_psns: u64,

    /// The driver said `Again` to an action: nothing at or behind this position is sent.
    parked_at: Option<u64>,
    /// The last burst sent does not ask for an acknowledgement: a later one does.
    unasked: bool,
    /// READ responses that are placed and wait for those before them.
    ahead: Ahead,
    /// The driver said `Again` to a response.
    held: bool,
    /// The work request that could not be executed here, and why. It fails when it is the oldest.
    stop: Option<(u32, Status)>,

    /// In units, of which an attempt that nothing answers takes several.
    retries_left: u16,
    rnr_retries_left: u8,
    /// A gap has been answered by going back, and nothing has come of it yet.
    recovering: bool,
    /// All that lies before this is being asked for again.
    recovery_end: u64,
    /// Since it went back, there have been answers to what lies behind the gap.
    alive: bool,
    /// The transport timer.
    deadline: Option<Instant>,
    /// No sign of life moves the deadline further than to this time. Means something only with a
    /// deadline.
    latest: Instant,
    /// The RNR timer.
    rnr_deadline: Option<Instant>,
    round_trip: RoundTrip,
    /// Of request packets.
    requests: Window,
    /// Of READ responses.
    responses: Window,
    parts: Parts,
    /// Probes since something was heard, or since the timeout began.
    probes: u32,
    /// When the timeout ends: probes do not begin it anew. Means something only with a deadline or a
    /// probe.
    silence_end: Instant,
    /// A probe is due or on its way: nothing at or behind this position is sent.
    probe_end: Option<u64>,
    /// Only one packet was sent again after the timeout, as answers may take longer than that: up to here packets may
    /// still be on their way.
    resume: Option<u64>,
    /// When the retries are used up, there is another path to be tried.
    has_alternate: bool,
    /// They were, and nobody has taken notice yet.
    migrated: bool,

    error: Option<Status>,
    counters: RequesterCounters,
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// A requester that keeps its work requests in `storage`.
    pub fn new(storage: S) -> Self {
        let len = u32::try_from(storage.len()).unwrap_or(u32::MAX);
        let capacity = match len.checked_ilog2() {
            // A queue longer than this could not tell full from empty.
            Some(log) => 1u32.wrapping_shl(log.min(30)),
            None => 0,
        };
        Self {
            slots: storage,
            config: RequesterConfig {
                service: Type::Rc,
                mtu: Mtu::M256,
                src_qpn: 0,
                dest_qpn: 0,
                pkey: 0xffff,
                initial_psn: Psn::new(0),
                timeout: None,
                retry_count: 0,
                rnr_retry: 0,
                max_rd_atomic: 0,
                window_packets: 1,
                window_packets_most: 1,
            },
            phase: Phase::Idle,
            capacity,
            tail: 0,
            oldest: 0,
            cursor: 0,
            started: 0,
            head: 0,
            una: 0,
            sent: 0,
            max_sent: 0,
            reads: 0,
            read_psns: 0,
            parked_at: None,
            unasked: false,
            ahead: Ahead::default(),
            held: false,
            stop: None,
            retries_left: 0,
            rnr_retries_left: 0,
            recovering: false,
            recovery_end: 0,
            alive: false,
            deadline: None,
            latest: Instant::from_ns(0),
            rnr_deadline: None,
            round_trip: RoundTrip::default(),
            requests: Window::new(1, 1),
            responses: Window::new(1, 1),
            parts: Parts::new(),
            probes: 0,
            silence_end: Instant::from_ns(0),
            probe_end: None,
            resume: None,
            has_alternate: false,
            migrated: false,
            error: None,
            counters: RequesterCounters::default(),
        }
    }

    /// How many work requests fit: the largest power of two that is not above the length of the
    /// storage. The work request `sequence` belongs to the driver's slot `sequence % capacity`.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The sequence number of the work request that is posted next.
    #[inline]
    pub fn next_sequence(&self) -> u32 {
        self.head
    }

    /// How many work requests are posted and not polled as complete.
    #[inline]
    pub fn len(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Whether there is no work request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// To the reset state: forgets every work request, without completions. The next one has the
    /// sequence number 0.
    pub fn reset(&mut self) {
        self.abandon();
        self.phase = Phase::Idle;
        self.tail = 0;
        self.oldest = 0;
        self.cursor = 0;
        self.started = 0;
        self.head = 0;
        self.una = 0;
        self.sent = 0;
        self.max_sent = 0;
        self.error = None;
    }

    /// To RTS: starts new work requests. Also from the paused state, and, for services that are not
    /// reliable, from error (SQE to RTS): what was posted before is flushed.
    pub fn start(&mut self) {
        match self.phase {
            Phase::Idle | Phase::Paused | Phase::Running => self.phase = Phase::Running,
            Phase::Failed | Phase::Flushing => {
                if self.config.service.is_reliable() {
                    return;
                }
                self.flush();
                while self.oldest != self.head {
                    self.complete_oldest(Status::Flushed);
                }
                self.cursor = self.head;
                self.started = self.head;
                self.error = None;
                self.phase = Phase::Running;
            }
        }
    }

    /// To SQD: no work request is started any more; those that are go on.
    pub fn pause(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Running) {
            self.phase = Phase::Paused;
            self.ask_soon(now);
        }
    }

    /// Whether every work request that was started is complete.
    #[inline]
    pub fn drained(&self) -> bool {
        self.oldest == self.started
    }

    /// Un-parks after [`Outcome::Again`](crate::outcome::Outcome::Again) for a send action.
    #[inline]
    pub fn resume(&mut self) {
        self.parked_at = None;
    }

    /// Whether [`resume`](Self::resume) is waited for.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.parked_at.is_some()
    }

    /// The error that the QP must go to the error state for (SQE for services that are not reliable), once.
    /// The driver then calls [`flush`](Self::flush); best before it polls completions, so that a
    /// consumer that sees the one in error finds the QP in its new state.
    #[inline]
    pub fn take_error(&mut self) -> Option<Status> {
        self.error.take()
    }

    /// Whether there is an error that [`take_error`](Self::take_error) has not returned yet.
    #[inline]
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// The PSN of the next packet that has not been sent before.
    pub fn next_psn(&self) -> Psn {
        self.psn(self.max_sent)
    }

    /// The counts of events so far.
    #[inline]
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// The slot of `sequence`. That the number is in use is for the caller to know.
    #[inline]
    fn slot(&self, sequence: u32) -> Option<&SendSlot> {
        let index = sequence & self.capacity.wrapping_sub(1);
        self.slots.get(index as usize)
    }

    /// As [`slot`](Self::slot).
    #[inline]
    fn slot_mut(&mut self, sequence: u32) -> Option<&mut SendSlot> {
        let index = sequence & self.capacity.wrapping_sub(1);
        self.slots.get_mut(index as usize)
    }

    /// The PSN at a position.
    #[inline]
    fn psn(&self, position: u64) -> Psn {
        self.config.initial_psn.add(position as u32)
    }

    /// Whether something is on its way and waits for an answer.
    #[inline]
    fn in_flight(&self) -> bool {
        self.una < self.sent
    }

    /// Fills the retry counters up.
    fn refill(&mut self) {
        self.retries_left = retry_units(self.config.retry_count);
        self.rnr_retries_left = self.config.rnr_retry;
        self.recovering = false;
        self.alive = false;
    }

    /// Gives up what is under way.
    #[inline(never)]
    fn abandon(&mut self) {
        self.ahead = Ahead::default();
        self.parked_at = None;
        self.unasked = false;
        self.held = false;
        self.stop = None;
        self.reads = 0;
        self.read_psns = 0;
        self.deadline = None;
        self.rnr_deadline = None;
        self.recovering = false;
        self.recovery_end = 0;
        self.alive = false;
        self.round_trip = RoundTrip::default();
        self.probe_end = None;
        self.resume = None;
        self.migrated = false;
    }
}
