// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The two ends, the wire between them, and the clock.

use std::{
    cmp::Ordering,
    collections::{
        BinaryHeap,
        VecDeque, //
    }, //
};

use roce::{
    packet::Packet,
    time::{
        Duration,
        Instant, //
    }, //
};

use crate::{
    attacker::Attacker,
    frame,
    host::{
        qpn,
        Host,
        Output,
        Wake, //
    },
    pcap,
    rng::Rng,
    scenario::Scenario,
    trace::{
        Record,
        What, //
    }, //
};

/// More than any scenario has. One that has more does not end.
const MAX_EVENTS: u64 = 5_000_000;

/// Something that will happen.
#[derive(Debug)]
enum Event {
    Deliver(Vec<u8>, Packet),
    /// From an attacker.
    Forged(Vec<u8>),
    Wake(Wake),
}

/// What the wire does to one packet, where a script says so.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// How often it is delivered.
    pub copies: u8,
    /// How much later than others the first copy is; the second, twice as much.
    pub late: Duration,
    /// Which bit is damaged, of what is behind the UDP header.
    pub damage: Option<u16>,
}

/// When and where.
#[derive(Debug)]
struct Scheduled {
    at: Instant,
    order: u64,
    host: usize,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The earliest is the greatest: the heap gives out the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// A run under way, or at its end.
#[derive(Debug)]
pub struct World {
    /// What it is a run of.
    pub scenario: Scenario,
    /// The ends.
    pub hosts: [Host; 2],
    /// What happened on the wire.
    pub trace: Vec<Record>,
    /// The time.
    pub now: Instant,
    /// What the wire does to the first packets. What is behind them is up to the scenario's wire.
    pub script: VecDeque<Fate>,
    /// Who sends forged packets into the conversation.
    pub attacker: Option<Attacker>,
    rng: Rng,
    heap: BinaryHeap<Scheduled>,
    order: u64,
    /// Until when each end's link is busy with what it has sent.
    busy: [Instant; 2],
    /// How many packets of each end are on the way.
    flying: [u32; 2],
    capture: Option<pcap::Writer>,
}

impl World {
    /// The beginning of a scenario.
    pub fn new(scenario: Scenario, capture: Option<pcap::Writer>) -> Self {
        let hosts = [Host::new(&scenario, 0), Host::new(&scenario, 1)];
        Self {
            rng: Rng::new(scenario.seed ^ 0xa11),
            scenario,
            hosts,
            trace: Vec::new(),
            now: Instant::from_ns(0),
            script: VecDeque::new(),
            attacker: None,
            heap: BinaryHeap::new(),
            order: 0,
            busy: [Instant::from_ns(0); 2],
            flying: [0; 2],
            capture,
        }
    }

    /// Runs to the end: when nothing will happen any more. `Err` if that does not come.
    pub fn run(&mut self) -> Result<(), String> {
        for host in 0..2 {
            let mut out = Output::default();
            self.hosts[host].work(self.now, &mut out);
            self.take(host, out);
            for at in self.hosts[host].agenda() {
                self.schedule(at, host, Event::Wake(Wake::Timer));
            }
        }
        let mut events = 0;
        while let Some(Scheduled {
            at, host, event, ..
        }) = self.heap.pop()
        {
            events += 1;
            if events > MAX_EVENTS {
                return Err("it does not end".into());
            }
            self.now = at;
            let mut out = Output::default();
            match event {
                Event::Wake(wake) => self.hosts[host].wake(at, wake, &mut out),
                Event::Forged(bytes) => {
                    // What is for another QP, the host does not hand in to this one.
                    if let Some((packet, payload)) =
                        frame::parse(&bytes).filter(|(packet, _)| packet.dest_qpn == qpn(host))
                    {
                        self.hosts[host].deliver(at, packet, payload, &mut out);
                    }
                }
                Event::Deliver(bytes, sent) => {
                    self.flying[1 - host] -= 1;
                    match frame::parse(&bytes) {
                        Some((packet, payload)) => {
                            let kept = self.hosts[host].deliver(at, packet, payload, &mut out);
                            let what = if kept { What::Received } else { What::Crowded };
                            self.record(host, what, packet);
                        }
                        None => self.record(host, What::Damaged, sent),
                    }
                }
            }
            self.take(host, out);
        }
        Ok(())
    }

    /// Takes what a host has to say.
    fn take(&mut self, host: usize, out: Output) {
        for (what, packet) in out.noted {
            self.record(host, what, packet);
        }
        for (packet, payload) in out.packets {
            self.send(host, packet, &payload);
        }
        for (at, wake) in out.wakes {
            self.schedule(at, host, Event::Wake(wake));
        }
    }

    /// Puts a packet on the wire.
    fn send(&mut self, host: usize, packet: Packet, payload: &[u8]) {
        self.record(host, What::Sent, packet);
        let bytes = frame::build(host, &packet, payload);
        if let Some(capture) = &mut self.capture {
            capture.write(self.now, &bytes).expect("a capture file");
        }

        if let Some(attacker) = &mut self.attacker {
            for (to, late, bytes) in attacker.overhear(host, &bytes) {
                self.schedule(self.now.add(late), to, Event::Forged(bytes));
            }
        }

        let wire = self.scenario.wire;
        if wire.limit != 0 && self.flying[host] >= wire.limit {
            self.record(host, What::Lost, packet);
            return;
        }
        let time = bytes.len() as u64 * wire.ps_per_byte / 1_000;
        let left = self.busy[host].max(self.now).add(Duration::from_ns(time));
        self.busy[host] = left;
        if let Some(fate) = self.script.pop_front() {
            self.follow(fate, host, packet, &bytes, left.add(wire.delay));
            return;
        }
        if self.rng.chance(wire.loss) {
            self.record(host, What::Lost, packet);
            return;
        }
        let copies = if self.rng.chance(wire.duplication) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut at = left;
            if wire.overtaking == 0 || !self.rng.chance(wire.overtaking) {
                at = at.add(wire.delay);
            }
            if self.rng.chance(wire.reordering) {
                at = at.add(Duration::from_ns(self.rng.below(wire.late.as_ns())));
            }
            let mut bytes = bytes.clone();
            if self.rng.chance(wire.corruption) {
                let len = bytes.len() - frame::OUTER_LEN;
                let place = frame::OUTER_LEN + self.rng.below(len as u64) as usize;
                bytes[place] ^= 1 << self.rng.below(8);
            }
            self.flying[host] += 1;
            self.schedule(at, 1 - host, Event::Deliver(bytes, packet));
        }
    }

    /// Does to a packet what the script says.
    fn follow(&mut self, fate: Fate, host: usize, packet: Packet, bytes: &[u8], mut at: Instant) {
        if fate.copies == 0 {
            self.record(host, What::Lost, packet);
        }
        for _ in 0..fate.copies {
            at = at.add(fate.late);
            let mut bytes = bytes.to_vec();
            if let Some(bit) = fate.damage {
                let bits = 8 * (bytes.len() - frame::OUTER_LEN);
                let bit = usize::from(bit) % bits;
                bytes[frame::OUTER_LEN + bit / 8] ^= 1 << (bit % 8);
            }
            self.flying[host] += 1;
            self.schedule(at, 1 - host, Event::Deliver(bytes, packet));
        }
    }

    fn schedule(&mut self, at: Instant, host: usize, event: Event) {
        self.order += 1;
        self.heap.push(Scheduled {
            at,
            order: self.order,
            host,
            event,
        });
    }

    fn record(&mut self, host: usize, what: What, packet: Packet) {
        self.trace.push(Record {
            now: self.now,
            host,
            what,
            packet,
        });
    }
}
