// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Whether an error was due.
//!
//! The oracle knows the attributes of the queue pairs, what was planted to go wrong, and the trace
//! of packets; nothing of what the protocol core thought.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use roce::{
    opcode::Operation,
    packet::{
        NakCode,
        Packet,
        Syndrome, //
    },
    psn::Psn,
    requester::SendOperation,
    status::Status,
    time::{
        rnr_delay,
        Duration,
        Instant, //
    }, //
};

use crate::{
    scenario::Fault,
    trace::What,
    world::World, //
};

/// The first work request of an end that ended with an error and was not flushed.
pub fn failed(world: &World, host: usize) -> Option<usize> {
    world.hosts[host]
        .completions
        .iter()
        .position(|(_, completion)| !matches!(completion.status, Status::Success | Status::Flushed))
}

/// Confirms that work request `index` of `host` had to fail, in the way it did.
pub fn confirm(world: &World, host: usize, index: usize) -> Result<(), String> {
    let (at, completion) = world.hosts[host].completions[index];
    let work = &world.scenario.sides[host].work[index];
    let replay = Replay::new(world, host, at);
    let planted = |faults: &[Fault]| {
        if faults.contains(&work.fault) {
            Ok(())
        } else {
            Err(format!("{:?}, but nothing was planted", completion.status))
        }
    };
    let refused = |code: NakCode| {
        if replay.refused == Some(code) {
            Ok(())
        } else {
            Err(format!(
                "{:?}, but the answer was {:?}",
                completion.status, replay.refused
            ))
        }
    };
    match completion.status {
        Status::RetryExceeded => replay.confirm_retries(at),
        Status::RnrRetryExceeded => replay.confirm_rnr_retries(),
        Status::RemoteAccess => {
            refused(NakCode::RemoteAccess)?;
            planted(&[Fault::RemoteKey, Fault::RemoteRange, Fault::OtherSrq])
        }
        Status::RemoteInvalidRequest => {
            refused(NakCode::InvalidRequest)?;
            planted(&[Fault::ReceiveTooShort, Fault::Alignment, Fault::NoSrq])
        }
        Status::RemoteOperational => {
            refused(NakCode::RemoteOperational)?;
            planted(&[Fault::ReceiveKey])
        }
        Status::LocalProtection => match work.wr.operation {
            SendOperation::Local => planted(&[Fault::Operation]),
            _ => planted(&[Fault::LocalKey]),
        },
        other => Err(format!("{other:?} can never be")),
    }
}

/// So far ahead of what is missing, READ responses are taken.
const MAX_AHEAD: u64 = 256;

/// What is asked for with one PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Acknowledgement,
    ReadResponse,
    AtomicResponse,
    /// To a FLUSH or ATOMIC WRITE: a READ response without data.
    EmptyResponse,
}

/// Why a requester may send something again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The packet was sent, at this time.
    Sent(Instant),
    /// An answer says that the packet, or its response, was lost.
    Gap,
}

/// The trace of one requester, played again up to some moment.
#[derive(Debug)]
pub(crate) struct Replay {
    first: Psn,
    timeout: Option<Duration>,
    retry_count: u8,
    rnr_retry: u8,
    /// What is asked for with each PSN, by its distance from the first.
    wanted: BTreeMap<u64, Wanted>,
    /// When each PSN was last sent, or asked for.
    last_sent: BTreeMap<u64, Instant>,
    /// Everything before is answered.
    una: u64,
    /// When that became so.
    progress: Instant,
    /// What has happened with the packet at `una` since then, or since the last RNR NAK for it.
    causes: Vec<Cause>,
    /// RNR NAKs for the packet at `una`.
    rnr_naks: u32,
    /// Not before this time the packet may be sent again.
    not_before: Option<Instant>,
    /// When it was sent earlier than that.
    pub(crate) early: Option<Instant>,
    /// The error that it was answered with.
    refused: Option<NakCode>,
    /// READ responses that have come before their turn.
    ahead: BTreeSet<u64>,
    /// READs and ATOMICs that may be outstanding.
    max_rd_atomic: u8,
    /// READ responses that may be outstanding.
    window_most: u32,
    /// Where each READ and ATOMIC ends that is outstanding.
    open: Vec<u64>,
    /// When more were asked for than may be outstanding.
    pub(crate) greedy: Option<Instant>,
}

impl Replay {
    pub(crate) fn new(world: &World, host: usize, until: Instant) -> Self {
        let side = &world.scenario.sides[host];
        let mut replay = Self {
            first: side.psn,
            timeout: side.timeout,
            retry_count: side.retry_count,
            rnr_retry: side.rnr_retry,
            wanted: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            una: 0,
            progress: Instant::from_ns(0),
            causes: Vec::new(),
            rnr_naks: 0,
            not_before: None,
            early: None,
            refused: None,
            ahead: BTreeSet::new(),
            max_rd_atomic: side.max_rd_atomic,
            window_most: side.window_most(),
            open: Vec::new(),
            greedy: None,
        };
        let shift = world.scenario.mtu.shift();
        let mine = world
            .trace
            .iter()
            .filter(|record| record.host == host && record.now <= until);
        for record in mine {
            let packet = &record.packet;
            match record.what {
                What::Sent if packet.opcode.is_request() => replay.sent(record.now, packet, shift),
                What::Noted => replay.received(record.now, packet, true),
                What::Unplaced => replay.received(record.now, packet, false),
                _ => {}
            }
        }
        replay
    }

    /// The distance of a PSN from the first one. PSNs in question are near `una`.
    fn position(&self, psn: Psn) -> Option<u64> {
        let una = self.first.add(self.una as u32);
        self.una.checked_add_signed(i64::from(psn.diff(una)))
    }

    fn sent(&mut self, now: Instant, packet: &Packet, shift: u32) {
        let Some(position) = self.position(packet.psn) else {
            return;
        };
        let (wanted, psns) = match packet.opcode.operation() {
            Operation::ReadRequest => {
                let length = packet.reth.map_or(0, |reth| reth.length);
                let psns = length.div_ceil(1 << shift).max(1);
                (Wanted::ReadResponse, u64::from(psns))
            }
            Operation::CompareSwap | Operation::FetchAdd => (Wanted::AtomicResponse, 1),
            Operation::Flush | Operation::AtomicWrite => (Wanted::EmptyResponse, 1),
            _ => (Wanted::Acknowledgement, 1),
        };
        if wanted != Wanted::Acknowledgement {
            self.ask(now, wanted, position, position + psns);
        }
        for position in position..position + psns {
            self.wanted.entry(position).or_insert(wanted);
            self.last_sent.insert(position, now);
        }
        if (position..position + psns).contains(&self.una) {
            if self.not_before.is_some_and(|at| now < at) {
                self.early = Some(now);
            }
            self.causes.push(Cause::Sent(now));
        }
    }

    /// A READ or ATOMIC is sent. What has been sent of the requests behind it will be sent again.
    fn ask(&mut self, now: Instant, wanted: Wanted, begin: u64, end: u64) {
        let una = self.una;
        self.open.retain(|end| (una + 1..=begin).contains(end));
        let before = self
            .wanted
            .range(una..begin)
            .filter(|(_, wanted)| **wanted == Wanted::ReadResponse)
            .count() as u64;
        let is_too_long = wanted == Wanted::ReadResponse
            && before > 0
            && before + end - begin > u64::from(self.window_most);
        self.open.push(end);
        if is_too_long || self.open.len() > usize::from(self.max_rd_atomic) {
            self.greedy = Some(now);
        }
    }

    fn received(&mut self, now: Instant, packet: &Packet, placed: bool) {
        let Some(position) = self.position(packet.psn) else {
            return;
        };
        if position < self.una || !self.wanted.contains_key(&position) {
            return;
        }
        let syndrome = packet.aeth.map(|aeth| aeth.syndrome);
        let positive = matches!(
            (packet.opcode.operation(), syndrome),
            (Operation::Acknowledge, Some(Syndrome::Ack { .. }))
        );
        let answered = match packet.opcode.operation() {
            Operation::ReadResponse => match self.wanted.get(&position) {
                Some(Wanted::EmptyResponse) if packet.payload_len == 0 => {
                    Some(Wanted::EmptyResponse)
                }
                _ => Some(Wanted::ReadResponse),
            },
            Operation::AtomicAcknowledge => Some(Wanted::AtomicResponse),
            _ => None,
        };
        let end = if positive { position + 1 } else { position };
        self.acknowledge(now, end);
        if self.una < end {
            if placed
                && answered == Some(Wanted::ReadResponse)
                && self.wanted.get(&position) == answered.as_ref()
                && position - self.una < MAX_AHEAD
            {
                self.ahead.insert(position);
            }
            // Something before was answered, and the answer has not come.
            if position > self.una {
                self.causes.push(Cause::Gap);
            }
            return;
        }
        match syndrome {
            Some(Syndrome::Nak(NakCode::SequenceError)) => self.causes.push(Cause::Gap),
            Some(Syndrome::Nak(code)) => self.refused = Some(code),
            // A duplicate.
            Some(Syndrome::Rnr { .. }) if self.not_before.is_some_and(|at| now < at) => {}
            Some(Syndrome::Rnr { timer }) => {
                self.rnr_naks += 1;
                self.causes.clear();
                self.progress = now;
                self.not_before = Some(now.add(rnr_delay(timer)));
            }
            _ => {
                if answered.is_some() && self.wanted.get(&self.una) == answered.as_ref() {
                    self.advance(now);
                }
            }
        }
    }

    /// Everything before `end` was answered, but for READs and ATOMICs.
    fn acknowledge(&mut self, now: Instant, end: u64) {
        while self.una < end && self.wanted.get(&self.una) == Some(&Wanted::Acknowledgement) {
            self.advance(now);
        }
    }

    fn advance(&mut self, now: Instant) {
        self.una += 1;
        self.ahead = self.ahead.split_off(&self.una);
        self.progress = now;
        self.causes.clear();
        let sent = self.last_sent.get(&self.una).copied();
        self.causes.extend(sent.map(Cause::Sent));
        self.rnr_naks = 0;
        self.not_before = None;
        if let Some(next) = self.ahead.first().copied() {
            self.acknowledge(now, next);
            if self.ahead.contains(&self.una) {
                self.advance(now);
            }
        }
    }

    /// As many transmissions as the retry counter allows for, and after each, the whole timeout
    /// without an answer, or an answer that asked for the next. Probes within a timeout do not begin it
    /// anew.
    fn confirm_retries(&self, at: Instant) -> Result<(), String> {
        // Gaps may have been noticed of which the requester took no notice; each is enough to
        // explain one transmission.
        let mut explained = 0;
        let mut last = None;
        for cause in &self.causes {
            match cause {
                Cause::Gap => {
                    if last.take().is_some() {
                        explained += 1;
                    }
                }
                Cause::Sent(now) => match last {
                    Some(before) if !self.has_expired(before, *now) => {}
                    Some(_) => {
                        explained += 1;
                        last = Some(*now);
                    }
                    None => last = Some(*now),
                },
            }
        }
        if let Some(before) = last {
            explained += u32::from(self.has_expired(before, at));
        }
        let due = u32::from(self.retry_count) + 1;
        if explained >= due {
            Ok(())
        } else {
            Err(format!(
                "after {explained} of {due} transmissions without an answer: {:?}",
                self.causes
            ))
        }
    }

    fn has_expired(&self, from: Instant, to: Instant) -> bool {
        let from = from.max(self.progress);
        self.timeout
            .is_some_and(|timeout| to.since(from) >= timeout)
    }

    fn confirm_rnr_retries(&self) -> Result<(), String> {
        if self.rnr_retry >= 7 {
            return Err("RNR retries exceeded, but they are without limit".into());
        }
        let due = u32::from(self.rnr_retry) + 1;
        if self.rnr_naks >= due {
            Ok(())
        } else {
            Err(format!("after {} of {due} RNR NAKs", self.rnr_naks))
        }
    }
}
