// SPDX-License-Identifier: GPL-2.0

//! The counters of a device (`rdma statistic show`), and of its QPs (`rdma statistic qp show`).

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use roce::dropped::DropReason;
use sync::ShardedCounters;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One counter of a device.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Counter {
            $($(#[$doc])* $name,)*
        }

        /// The counters' names, in the order of [`Counter`].
        pub(crate) const NAMES: &[&CStr] = &[$($text),*];
    };
}

counters! {
    /// Packets that went into the network, or to QPs of the same device.
    SentPackets = c"sent_pkts",
    /// Packets that came for an address of the device.
    ReceivedPackets = c"rcvd_pkts",
    /// UDP payload bytes sent, and bytes of raw packets.
    SentBytes = c"sent_bytes",
    /// UDP payload bytes received.
    ReceivedBytes = c"rcvd_bytes",
    /// SEND requests that were completed without an error.
    Sends = c"rdma_sends",
    /// Receive requests that were completed without an error.
    Receives = c"rdma_recvs",
    /// Requests that had been seen before.
    DuplicateRequest = c"duplicate_request",
    /// Requests behind a gap.
    OutOfSequence = c"out_of_seq_request",
    /// RNR NAKs received.
    ReceivedRnr = c"rcvd_rnr_err",
    /// RNR NAKs sent.
    SentRnr = c"send_rnr_err",
    /// Sequence error NAKs received.
    ReceivedSequenceError = c"rcvd_seq_err",
    /// Responses that showed the loss of an earlier one.
    ImpliedNak = c"implied_nak_seq_err",
    /// Sequence error NAKs sent.
    SentSequenceError = c"sent_seq_err",
    /// Other NAKs sent.
    SentError = c"sent_nak",
    /// Requests given up after the last retry.
    RetryExceeded = c"retry_exceeded_err",
    /// Requests given up after the last RNR retry.
    RnrRetryExceeded = c"retry_rnr_exceeded_err",
    /// Expiries of the transport timer.
    RetransmitTimeout = c"completer_retry_err",
    /// Packets sent again.
    Retransmitted = c"retransmitted_pkts",
    /// Responses without effect: stale, out of order, unexpected.
    StaleResponse = c"stale_response",
    /// Duplicates of READs and ATOMICs that are no longer remembered.
    Forgotten = c"forgotten_request",
    /// Packets whose ICRC is wrong.
    BadIcrc = c"icrc_err",
    /// Packets that are no RoCE packets.
    Malformed = c"malformed_pkts",
    /// Packets for no QP that would take them.
    UnknownQp = c"unknown_qp",
    /// Packets for a multicast group that no QP of the device is attached to.
    UnknownGroup = c"unknown_group",
    /// Packets with a wrong P_Key.
    BadPkey = c"bad_pkey",
    /// Datagrams with a wrong Q_Key.
    BadQkey = c"bad_qkey",
    /// Packets that the QP's service or state does not take.
    Refused = c"refused_pkts",
    /// Datagrams that met no receive, or too short a one.
    NoReceive = c"no_receive",
    /// Congestion notification packets received.
    CongestionNotifications = c"rcvd_cnp",
    /// The same sent.
    SentCongestionNotifications = c"sent_cnp",
    /// Packets that did not get there: no memory, no route, a full queue, a datagram longer than the port's MTU.
    SendDropped = c"send_err",
    /// Completions lost because the CQ was full.
    CompletionOverflow = c"cq_overflow",
    /// Accesses to memory that is paged on demand that found pages absent.
    PageFaults = c"page_faults",
    /// Packets dropped because too many waited for pages.
    PagingDropped = c"page_fault_dropped",
    /// Packets that another CPU took in than the one that they came by.
    Steered = c"steered_pkts",
    /// Packets dropped because too many waited for other CPUs.
    SteeringDropped = c"steering_dropped",
    /// How often held requests left only when their timer fired: the program had stopped in the middle of a burst.
    HoldTimeout = c"hold_timeouts",
    /// How often the link went down.
    LinkDowned = c"link_downed",
}

/// The counters that the send side of a QP keeps itself.
pub(crate) const OF_SENDS: [Counter; 6] = [
    Counter::Sends,
    Counter::Retransmitted,
    Counter::RetransmitTimeout,
    Counter::ReceivedRnr,
    Counter::ReceivedSequenceError,
    Counter::ImpliedNak,
];

/// The counters that the receive side of a QP keeps itself.
pub(crate) const OF_RECEIVES: [Counter; 5] = [
    Counter::Receives,
    Counter::DuplicateRequest,
    Counter::SentSequenceError,
    Counter::SentRnr,
    Counter::SentError,
];

impl Counter {
    /// Its name.
    pub(crate) fn name(self) -> &'static CStr {
        NAMES.get(self as usize).copied().unwrap_or_default()
    }

    /// The counter of packets that a QP dropped for `reason`; [`None`] if it counts its answers.
    pub(crate) fn of_drop(reason: DropReason) -> Option<Self> {
        let counter = match reason {
            // Counted as an RNR NAK.
            DropReason::NotReady => return None,
            DropReason::Pkey => Self::BadPkey,
            DropReason::Qkey => Self::BadQkey,
            DropReason::SequenceGap => Self::OutOfSequence,
            DropReason::Forgotten => Self::Forgotten,
            DropReason::NoReceive | DropReason::TooLong => Self::NoReceive,
            DropReason::Ghost | DropReason::Stale | DropReason::OutOfOrder => Self::StaleResponse,
            _ => Self::Refused,
        };
        Some(counter)
    }
}

/// The counters of one device.
pub(crate) struct Counters(ShardedCounters<{ NAMES.len() }>);

impl Counters {
    /// Allocates counters at zero. Context: process, may sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(ShardedCounters::new()?))
    }

    /// Adds `n`. Context: any.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.0.add(counter as usize, n);
    }

    /// The value of counter number `index`. Context: any.
    pub(crate) fn value(&self, index: usize) -> u64 {
        self.0.sum(index)
    }
}

/// The counters of the QPs that are bound to it, in place of the device's (`rdma statistic qp`).
pub(crate) struct QpCounter([Atomic<u64>; NAMES.len()]);

impl QpCounter {
    fn add(&self, counter: Counter, n: u64) {
        if let Some(value) = self.0.get(counter as usize) {
            value.fetch_add(n, Relaxed);
        }
    }
}

impl rdma::counter::Counter for QpCounter {
    fn is_of_qp(index: usize) -> bool {
        let is_it = |&counter: &Counter| counter as usize == index;
        OF_SENDS.iter().any(is_it) || OF_RECEIVES.iter().any(is_it)
    }

    fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self([const { Atomic::new(0) }; NAMES.len()]),
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    fn read(&self, values: &[Atomic<u64>]) {
        for (value, counted) in values.iter().zip(&self.0) {
            value.store(counted.load(Relaxed), Relaxed);
        }
    }
}

/// How much a side of a QP has told of the `N` events that it counts by itself. They count up, and wrap around.
pub(crate) struct Tally<const N: usize> {
    told: [u64; N],
    /// It is told instead of the device, if there is one.
    counter: Option<Arc<QpCounter>>,
}

impl<const N: usize> Tally<N> {
    /// Nothing has happened, and the device is told.
    pub(crate) fn new() -> Self {
        Self {
            told: [0; N],
            counter: None,
        }
    }

    /// Tells what has been counted up to `now` in each of `counters`. Context: any.
    #[inline]
    pub(crate) fn tell(&mut self, device: &Counters, counters: &[Counter; N], now: [u64; N]) {
        if now != self.told {
            let told = core::mem::replace(&mut self.told, now);
            self.tell_of(device, counters, &told);
        }
    }

    fn tell_of(&self, device: &Counters, counters: &[Counter; N], before: &[u64; N]) {
        for ((&counter, now), before) in counters.iter().zip(self.told).zip(before) {
            let n = now.wrapping_sub(*before);
            match &self.counter {
                _ if n == 0 => (),
                None => device.add(counter, n),
                Some(bound) => bound.add(counter, n),
            }
        }
    }

    /// Whether a counter is told, and not the device.
    pub(crate) fn is_bound(&self) -> bool {
        self.counter.is_some()
    }

    /// Says who is told from now on.
    pub(crate) fn bind(&mut self, counter: Option<Arc<QpCounter>>) {
        self.counter = counter;
    }
}
