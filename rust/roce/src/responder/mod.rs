// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The receive side of a queue pair: from the peer's requests to accesses to memory, receive
//! completions and responses (IBTA 9.7.4, 9.7.5, 9.8.2, 9.9.3, annex A14).
//!
//! # Use
//!
//! Everything is called under one lock, the QP's receive-side lock. The driver
//! - hands in each request with [`Responder::receive`], and follows the [`Step`]s that come of it to
//!   the end: in between the responder may only be looked at, and so between READ responses and their
//!   [`Responder::commit_read`];
//! - after [`Step::Park`] asks [`Responder::arrive`] what to do with each request that comes, until
//!   it hands in the parked one again;
//! - after a batch of requests sends what [`Responder::poll_response`] has, as long as it can send;
//! - then asks [`Responder::take_event`] until there is nothing more.
//!
//! For XRC, receives come from the SRQ [`Packet::xrc_srqn`](crate::packet::Packet::xrc_srqn) of the request,
//! and memory is accessed on its behalf; responses to a READ have the number in [`ReadBurst`]. It is
//! for the driver to find the SRQ each time, and to say so if there is none: [`Receive::Invalid`],
//! [`Outcome::InvalidRequest`](crate::outcome::Outcome::InvalidRequest).
//!
//! When the QP goes to the error state or is reset, the driver completes the current receive, if one has been taken and is
//! not complete, and then the receives in the queue.

mod duplicate;
mod execute;
mod receive;
mod resource;
mod respond;
mod step;
mod unreliable;
mod waiting;

use core::ops::DerefMut;

use crate::{
    packet::Syndrome,
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    wire::U24, //
};

pub use self::{
    resource::Resource,
    respond::{
        ReadBurst,
        Response, //
    },
    step::{
        Action,
        AtomicOperation,
        Receive,
        ReceiveCompletion,
        ReceiveOperation,
        ResponderEvent,
        Stage,
        Step, //
    },
    waiting::Arrival, //
};

/// Length of the place for the GRH in front of a datagram's payload in bytes (IBTA 11.4.1.2).
pub const GRH_LEN: u32 = 40;

/// The bits of an MSN.
const MSN_MASK: u32 = 0xff_ffff;

/// The peer's rights to memory, as far as the QP has a say. Wherever READs and ATOMICs are spoken
/// of as requests with responses of their own, FLUSHes and ATOMIC WRITEs are meant, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAccess {
    /// RDMA WRITE.
    pub write: bool,
    /// RDMA READ.
    pub read: bool,
    /// ATOMICs. (For an ATOMIC WRITE, the right to write counts.)
    pub atomic: bool,
    /// FLUSH, for global visibility.
    pub flush_global: bool,
    /// FLUSH, for persistence.
    pub flush_persistent: bool,
}

/// The attributes of the QP that the responder goes by.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// The service.
    pub service: Type,
    /// Path MTU. Not for UD.
    pub mtu: Mtu,
    /// The peer's QP number. Not for UD.
    pub dest_qpn: u32,
    /// The partition key.
    pub pkey: u16,
    /// The queue key. Only for UD.
    pub qkey: u32,
    /// The PSN of the first request.
    pub expected_psn: Psn,
    /// The 5-bit timer code in RNR NAKs.
    pub min_rnr_timer: u8,
    /// The peer's rights to memory.
    pub access: RemoteAccess,
    /// Receives come from an SRQ.
    pub has_srq: bool,
}

/// Counts of events so far. They wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounters {
    /// Requests that had been executed before.
    pub duplicates: u64,
    /// Sequence error NAKs sent.
    pub sequence_naks: u64,
    /// RNR NAKs sent.
    pub rnr_naks: u64,
    /// Other NAKs sent.
    pub error_naks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not configured.
    Idle,
    /// Everything goes on.
    Receiving,
    /// There was an error. Responses are still sent, up to the NAK; nothing is received.
    Failing(ResponderEvent),
    /// Nothing goes on.
    Error,
}

/// The message that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// There is none.
    None,
    /// A SEND.
    Send {
        /// How many bytes of it have been placed.
        done: u32,
    },
    /// A WRITE.
    Write {
        /// Where the next byte goes.
        va: u64,
        /// R_Key.
        rkey: u32,
        /// How many bytes are missing.
        left: u32,
        /// Length of the whole message in bytes.
        length: u32,
    },
}

/// A negative acknowledgement that is to be sent, behind all responses.
#[derive(Clone, Copy, Debug)]
struct Negative {
    psn: Psn,
    syndrome: Syndrome,
    /// The PSN after the last packet that came behind a gap, and was dropped, while this has not left.
    dropped_end: Option<Psn>,
}

/// The receive side of a queue pair.
///
/// # Invariants
///
/// - The elements of `resources` from `ring` on (and around its end) are in the order of their
///   requests, the oldest first.
/// - `runs` is the number of resources with a run.
#[derive(Debug)]
pub struct Responder<R> {
    resources: R,
    config: ResponderConfig,
    phase: Phase,

    /// The PSN of the next request.
    expected: Psn,
    /// Number of completed messages, modulo 2^24.
    msn: u32,
    message: Message,
    /// Length of the current receive in bytes.
    receive: Option<u32>,
    /// XRC: the SRQ of the last request that was expected: in the middle of a message, that of the
    /// message; with a current receive, that of the receive.
    xrc_srqn: Option<U24>,
    /// The gap before `expected` has been answered, with a sequence error NAK or an RNR NAK.
    gap_answered: bool,
    /// The request that is expected next waits, and those behind it up to this PSN (exclusive).
    waiting_end: Option<Psn>,
    /// The timer code of the last RNR NAK for the request that is expected next, if it was for want
    /// of memory.
    postponed: Option<u8>,

    /// Index of the oldest resource: the next to be overwritten.
    ring: usize,
    runs: u32,
    /// The driver said `Again` to READ responses.
    parked: bool,

    /// The last SEND or WRITE request that has been executed, and the MSN after it.
    executed: Option<(Psn, u32)>,
    /// `executed` is to be acknowledged.
    acknowledge: bool,
    /// The peer has not been told of `executed`.
    ack_pending: bool,
    negative: Option<Negative>,

    established: bool,
    /// The event of it has been taken.
    established_told: bool,
    counters: ResponderCounters,
}

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// A responder that remembers as many READs and ATOMICs as `storage` is long.
    pub fn new(storage: R) -> Self {
        Self {
            resources: storage,
            config: ResponderConfig {
                service: Type::Rc,
                mtu: Mtu::M256,
                dest_qpn: 0,
                pkey: 0xffff,
                qkey: 0,
                expected_psn: Psn::new(0),
                min_rnr_timer: 0,
                access: RemoteAccess::default(),
                has_srq: false,
            },
            phase: Phase::Idle,
            expected: Psn::new(0),
            msn: 0,
            message: Message::None,
            receive: None,
            xrc_srqn: None,
            gap_answered: false,
            waiting_end: None,
            postponed: None,
            ring: 0,
            runs: 0,
            parked: false,
            executed: None,
            acknowledge: false,
            ack_pending: false,
            negative: None,
            established: false,
            established_told: false,
            counters: ResponderCounters::default(),
        }
    }

    /// Lets the responder remember as many READs and ATOMICs as `storage` is long, at any time;
    /// returns the storage before. Of what it remembers it forgets the oldest, if there is less
    /// room now.
    pub fn replace_storage(&mut self, mut storage: R) -> R {
        let old_len = self.resources.len();
        let kept = old_len.min(storage.len());
        let forgotten = old_len.saturating_sub(kept);
        storage.fill(Resource::default());
        let free = storage.len().saturating_sub(kept);

        // The newest to the end: then the oldest, or a free one, is in front.
        let ordered = self.by_age().skip(forgotten);
        for (to, (_, from)) in storage.iter_mut().skip(free).zip(ordered) {
            *to = *from;
        }
        self.ring = 0;
        self.runs = 0;
        for resource in storage.iter() {
            if resource.run.is_some() {
                self.runs = self.runs.saturating_add(1);
            }
        }
        core::mem::replace(&mut self.resources, storage)
    }

    /// Takes over the QP's attributes, on the way to RTR. From now on requests are executed.
    pub fn configure(&mut self, config: ResponderConfig) {
        self.reset();
        self.config = config;
        self.expected = config.expected_psn;
        self.phase = Phase::Receiving;
    }

    /// The attributes.
    #[inline]
    pub fn config(&self) -> &ResponderConfig {
        &self.config
    }

    /// The PSN of the next request.
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Changes the timer code in RNR NAKs.
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        self.config.min_rnr_timer = code;
    }

    /// Changes what the peer may do to memory.
    pub fn set_access(&mut self, access: RemoteAccess) {
        self.config.access = access;
    }

    /// Changes the queue key.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.config.qkey = qkey;
    }

    /// To the reset state: forgets everything, also the current receive.
    pub fn reset(&mut self) {
        self.flush();
        self.phase = Phase::Idle;
        self.expected = Psn::new(0);
        self.msn = 0;
        self.receive = None;
        self.xrc_srqn = None;
        self.executed = None;
        self.established = false;
        self.established_told = false;
    }

    /// To the error state: nothing is received or sent any more.
    pub fn flush(&mut self) {
        self.phase = Phase::Error;
        self.message = Message::None;
        self.gap_answered = false;
        self.waiting_end = None;
        self.postponed = None;
        self.resources.fill(Resource::default());
        self.ring = 0;
        self.runs = 0;
        self.parked = false;
        self.acknowledge = false;
        self.ack_pending = false;
        self.negative = None;
    }

    /// Whether there was an error that ends the work of the queue.
    #[inline]
    pub fn has_failed(&self) -> bool {
        matches!(self.phase, Phase::Failing(_) | Phase::Error)
    }

    /// Whether requests have been executed, completed maybe, of which the peer has not been told.
    #[inline]
    pub fn owes_acknowledgement(&self) -> bool {
        self.acknowledge || self.negative.is_some()
    }

    /// Whether [`poll_response`](Self::poll_response) may have something.
    #[inline]
    pub fn has_responses(&self) -> bool {
        self.runs > 0 || self.owes_acknowledgement()
    }

    /// Lets everything that has been executed be acknowledged, also what the peer has not asked for yet:
    /// before the QP ends, when it would ask in vain.
    pub fn acknowledge_all(&mut self) {
        if self.ack_pending && matches!(self.phase, Phase::Receiving) {
            self.acknowledge = true;
        }
    }

    /// All resources with their indices, the oldest first.
    fn by_age(&self) -> impl DoubleEndedIterator<Item = (usize, &Resource)> {
        let (ring, len) = (self.ring, self.resources.len());
        (0..len).filter_map(move |age| {
            let index = age.wrapping_add(ring);
            let index = if index < len {
                index
            } else {
                index.wrapping_sub(len)
            };
            Some((index, self.resources.get(index)?))
        })
    }

    /// The counts of events so far.
    #[inline]
    pub fn counters(&self) -> &ResponderCounters {
        &self.counters
    }

    /// The next thing that the driver must hear of. An error is told once the responses up to the
    /// NAK have been taken from [`poll_response`](Self::poll_response).
    pub fn take_event(&mut self) -> Option<ResponderEvent> {
        if self.established && !self.established_told {
            self.established_told = true;
            return Some(ResponderEvent::CommunicationEstablished);
        }
        match self.phase {
            Phase::Failing(event) if self.negative.is_none() => {
                self.phase = Phase::Error;
                Some(event)
            }
            _ => None,
        }
    }
}
