// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The attributes of the QP that the requester goes by, and their changes (IBTA 11.2.5.2).

use core::ops::DerefMut;

use crate::{
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    time::Duration, //
};

use super::{
    parts::Parts,
    probe::RoundTrip,
    recovery::retry_units,
    window::Window,
    Phase,
    Requester,
    SendSlot, //
};

/// The attributes of the QP that the requester goes by.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// The service.
    pub service: Type,
    /// Path MTU.
    pub mtu: Mtu,
    /// The QP's own number.
    pub src_qpn: u32,
    /// The peer's QP number. Not for UD.
    pub dest_qpn: u32,
    /// The partition key.
    pub pkey: u16,
    /// PSN of the first packet.
    pub initial_psn: Psn,
    /// How long to wait for an answer; see [`crate::time::ack_timeout`].
    pub timeout: Option<Duration>,
    /// How often to send again without progress, if the peer is not heard. If it is, that is no
    /// reason to give up so soon: then eight times as often.
    pub retry_count: u8,
    /// How often to send again after an RNR NAK. 7 means: for ever.
    pub rnr_retry: u8,
    /// READ requests and ATOMICs that may be outstanding: each part of a long READ is a request, and
    /// takes one of the peer's resources. With 0, a READ or ATOMIC fails.
    pub max_rd_atomic: u8,
    /// Packets that may be outstanding, at first: of requests, and as many of READ responses. More as
    /// long as none is lost, half as many when one is, but no fewer than 16, or than these. One request
    /// after an RNR NAK, and soon as many as before. One READ request may always be outstanding, however
    /// many responses it asks for.
    pub window_packets: u32,
    /// To how many these may grow.
    pub window_packets_most: u32,
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Takes over the QP's attributes, on the way to RTS. Nothing is in flight then; work requests
    /// that are posted stay. Nothing is sent before [`start`](Self::start).
    pub fn configure(&mut self, config: RequesterConfig) {
        self.abandon();
        self.config = config;
        self.phase = Phase::Idle;
        self.cursor = self.oldest;
        self.started = self.oldest;
        self.una = 0;
        self.sent = 0;
        self.max_sent = 0;
        self.requests = Window::new(config.window_packets, config.window_packets_most);
        self.responses = self.requests;
        self.parts = Parts::new();
        self.error = None;
        self.refill();
    }

    /// The attributes.
    #[inline]
    pub fn config(&self) -> &RequesterConfig {
        &self.config
    }

    /// Changes the timeout, from the next start of the timer on.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.config.timeout = timeout;
    }

    /// Changes the number of retries. Until the next progress, the requests under way get
    /// no more than they had.
    pub fn set_retry_count(&mut self, count: u8) {
        self.config.retry_count = count;
        let all = retry_units(count);
        self.retries_left = if self.drained() {
            all
        } else {
            self.retries_left.min(all)
        };
    }

    /// Changes the number of retries after an RNR NAK; as [`set_retry_count`](Self::set_retry_count).
    pub fn set_rnr_retry(&mut self, count: u8) {
        self.config.rnr_retry = count;
        self.rnr_retries_left = if self.drained() {
            count
        } else {
            self.rnr_retries_left.min(count)
        };
    }

    /// Tells whether the QP may migrate to an alternate path once the retries of this one are used up.
    #[inline]
    pub fn set_alternate(&mut self, has_alternate: bool) {
        self.has_alternate = has_alternate;
    }

    /// Whether the retries were used up and the QP has to migrate, once: what comes next from
    /// [`poll_action`](Self::poll_action) is for the alternate path. Its timeout is for the driver to
    /// set, with [`path_changed`](Self::path_changed).
    #[inline]
    pub fn take_migration(&mut self) -> bool {
        core::mem::take(&mut self.migrated)
    }

    /// The QP has migrated: to a path with this timeout, of which nothing is known yet, and with all
    /// of its retries left. The requests under way go on.
    pub fn path_changed(&mut self, timeout: Option<Duration>) {
        self.config.timeout = timeout;
        self.round_trip = RoundTrip::default();
        self.migrated = false;
        self.has_alternate = false;
        self.refill();
    }

    /// Changes the number of READs and ATOMICs that may be outstanding.
    pub fn set_max_rd_atomic(&mut self, count: u8) {
        self.config.max_rd_atomic = count;
    }
}
