// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What happens in a run, made up from a seed.

use roce::{
    packet::Flush,
    psn::Psn,
    qp::{
        Mtu,
        Type, //
    },
    requester::{
        SendOperation,
        SendWr, //
    },
    time::{
        Duration,
        Instant, //
    }, //
};

use crate::rng::Rng;

/// R_Key of the region that is written, and read behind fences.
pub const WRITE_KEY: u32 = 0x100;
/// R_Key of the region that is only read.
pub const READ_KEY: u32 = 0x200;
/// R_Key of the region of the ATOMICs.
pub const ATOMIC_KEY: u32 = 0x300;
/// R_Key of nothing.
pub const BAD_KEY: u32 = 0x999;
/// The first of the keys that SENDs invalidate.
pub const INVALIDATE_KEY: u32 = 0x1000;

/// Numbers of the XRC SRQs of every end.
pub const SRQNS: [u32; 2] = [0x31, 0x32];
/// Number of no XRC SRQ.
pub const BAD_SRQN: u32 = 0x99;

/// The XRC SRQ whose protection domain the region with this key is in.
pub fn srqn_of(rkey: u32) -> u32 {
    SRQNS[usize::from(rkey == ATOMIC_KEY)]
}

/// Address of every region. Near the end of the address space, where sums wrap around.
pub const REGION_VA: u64 = 0xffff_ffff_fff0_0000;
/// Length of every region in bytes, where messages are short.
pub const REGION_LEN: usize = 96 * 1024;

/// What goes wrong on purpose with a work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The R_Key is wrong.
    RemoteKey,
    /// The range is not all in the region.
    RemoteRange,
    /// The receive is too short for it.
    ReceiveTooShort,
    /// An ATOMIC or ATOMIC WRITE at an odd address.
    Alignment,
    /// The local buffer may not be accessed.
    LocalKey,
    /// A local operation that fails.
    Operation,
    /// The receive's buffer may not be accessed.
    ReceiveKey,
    /// There is no such XRC SRQ.
    NoSrq,
    /// The region is in the protection domain of another XRC SRQ.
    OtherSrq,
}

/// A work request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// What the requester is given.
    pub wr: SendWr,
    /// What goes wrong with it.
    pub fault: Fault,
    /// When it is posted, if there is room by then.
    pub post_at: Instant,
}

/// A receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posted {
    /// Length of its buffer in bytes.
    pub capacity: u32,
    /// When it is posted.
    pub post_at: Instant,
    /// The buffer may not be accessed.
    pub fault: bool,
    /// To which XRC SRQ, if the service is XRC.
    pub xrc_srqn: u32,
}

/// One of the two ends.
#[derive(Clone, Debug)]
pub struct Side {
    /// PSN of its first request.
    pub psn: Psn,
    /// Its ACK timeout.
    pub timeout: Option<Duration>,
    /// Its retries.
    pub retry_count: u8,
    /// Its retries after RNR NAKs.
    pub rnr_retry: u8,
    /// READs and ATOMICs that it may have outstanding, and that the peer remembers.
    pub max_rd_atomic: u8,
    /// Its RNR timer, for the peer.
    pub min_rnr_timer: u8,
    /// Request packets that it may have outstanding at first, and as many READ responses.
    pub window: u32,
    /// Length of its send queue.
    pub queue: u32,
    /// What it sends.
    pub work: Vec<Work>,
    /// What it receives into.
    pub receives: Vec<Posted>,
    /// How often an action cannot be done at once, per million.
    pub again: u32,
    /// How often a request finds its memory not there, per million.
    pub absent: u32,
    /// How long it takes until the memory is there.
    pub absent_for: Duration,
    /// How long responses are collected.
    pub respond_delay: Duration,
}

impl Side {
    /// To how many the packets of [`Self::window`] may grow.
    pub(crate) fn window_most(&self) -> u32 {
        self.window.saturating_mul(4)
    }
}

/// What the wire does to packets, per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    /// Not delivered.
    pub loss: u32,
    /// Delivered twice.
    pub duplication: u32,
    /// Delivered late, behind others.
    pub reordering: u32,
    /// Delivered without the time on the way, ahead of others: what `netem` calls reordering.
    pub overtaking: u32,
    /// Damaged.
    pub corruption: u32,
    /// Time on the way.
    pub delay: Duration,
    /// How much later reordered packets are, at most.
    pub late: Duration,
    /// Time on the wire per byte, in picoseconds.
    pub ps_per_byte: u64,
    /// How many packets may be on the way in each direction; more are lost. 0: any number.
    pub limit: u32,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it was made from.
    pub seed: u64,
    /// The service. With [`Type::XrcInitiator`] each end is an initiator, and the target of the other.
    pub service: Type,
    /// Path MTU.
    pub mtu: Mtu,
    /// The two ends.
    pub sides: [Side; 2],
    /// Length of every region in bytes.
    pub region_len: usize,
    /// What is between them.
    pub wire: Wire,
    /// Whether nothing but loss that recovery is made for can go wrong: then everything must
    /// succeed, but for a few in a thousand.
    pub benign: bool,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let service = match rng.below(20) {
            0 => Type::Uc,
            1 => Type::Ud,
            2..=5 => Type::XrcInitiator,
            _ => Type::Rc,
        };
        let mtu = rng.pick(&Mtu::ALL);
        let wire = wire(&mut rng);
        let benign = rng.below(2) == 0;
        let mut sides = [(); 2].map(|()| side(&mut rng, service, mtu, benign));
        for host in 0..2 {
            let receives = receives(&mut rng, &sides[1 - host], service, benign);
            sides[host].receives = receives;
        }
        for side in &mut sides {
            if rng.below(8) == 0 {
                side.absent = rng.pick(&[1_000, 100_000]);
                side.absent_for = Duration::from_us(rng.between(1, 20_000));
            }
        }
        Self {
            seed,
            service,
            mtu,
            sides,
            region_len: REGION_LEN,
            wire,
            benign,
        }
    }
}

fn wire(rng: &mut Rng) -> Wire {
    let mut wire = Wire {
        delay: Duration::from_us(rng.between(1, 60)),
        late: Duration::from_us(rng.between(1, 300)),
        ps_per_byte: rng.pick(&[80, 200, 800]),
        ..Wire::default()
    };
    if rng.below(8) == 0 {
        return wire;
    }
    wire.loss = rng.pick(&[0, 1_000, 10_000, 30_000, 100_000]);
    if rng.below(2) == 0 {
        wire.duplication = rng.pick(&[1_000, 20_000, 100_000]);
    }
    if rng.below(2) == 0 {
        wire.reordering = rng.pick(&[1_000, 20_000, 250_000]);
    }
    if rng.below(8) == 0 {
        wire.overtaking = rng.pick(&[20_000, 250_000]);
    }
    if wire.loss < 100_000 && rng.below(3) == 0 {
        wire.corruption = rng.pick(&[1_000, 10_000]);
    }
    wire
}

/// A timeout as a consumer asks for it: the shortest ones, too, which [`roce::time::ack_timeout`] makes longer. The protocol
/// has to work with any.
pub const fn timeout(code: u8) -> Option<Duration> {
    match code & 0x1f {
        0 => None,
        code => Some(Duration::from_ns(4_096 << code)),
    }
}

fn side(rng: &mut Rng, service: Type, mtu: Mtu, benign: bool) -> Side {
    let psn = if rng.below(2) == 0 {
        // Around the end of the circle.
        Psn::new(0u32.wrapping_sub(rng.below(200) as u32))
    } else {
        Psn::new(rng.word() as u32)
    };
    let max_rd_atomic = rng.pick(&[1, 2, 4, 16]);
    let mut side = Side {
        psn,
        timeout: timeout(rng.between(9, 12) as u8),
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic,
        min_rnr_timer: rng.between(1, 12) as u8,
        window: rng.pick(&[1, 4, 16, 64, 128, 1024]),
        queue: rng.pick(&[1, 2, 16, 64]),
        work: Vec::new(),
        receives: Vec::new(),
        again: rng.pick(&[0, 0, 10_000, 200_000]),
        absent: 0,
        absent_for: Duration::ZERO,
        respond_delay: Duration::from_us(rng.pick(&[0, 0, 2, 20])),
    };
    if !benign {
        side.timeout = timeout(rng.between(5, 12) as u8);
        side.retry_count = rng.between(0, 7) as u8;
        side.rnr_retry = rng.between(0, 7) as u8;
    }

    let count = match rng.below(4) {
        0 => rng.between(0, 2),
        1 => rng.between(30, 60),
        _ => rng.between(3, 20),
    };
    let mut now = Instant::from_ns(0);
    let mut fence = false;
    for index in 0..count {
        if rng.below(4) == 0 {
            now = now.add(Duration::from_us(rng.below(300)));
        }
        let mut wr = work_request(rng, service, mtu, index);
        wr.fence |= fence;
        // What is read must not be overwritten before it is read.
        fence = matches!(wr.operation, SendOperation::Read) && wr.rkey == WRITE_KEY;
        side.work.push(Work {
            wr,
            fault: Fault::None,
            post_at: now,
        });
    }
    if service.is_reliable() && !benign && rng.below(2) == 0 && !side.work.is_empty() {
        let index = rng.below(side.work.len() as u64) as usize;
        let is_xrc = matches!(service, Type::XrcInitiator);
        if is_xrc && rng.below(3) == 0 {
            plant_srq(rng.below(2) == 0, &mut side.work[index]);
        } else {
            plant(rng, &mut side.work[index]);
        }
    }
    side
}

/// A length: mostly around a multiple of the MTU.
fn length(rng: &mut Rng, mtu: Mtu) -> u32 {
    let bytes = u64::from(mtu.bytes());
    let length = match rng.below(8) {
        0 => rng.below(3),
        1 => rng.below(bytes + 1),
        2..=5 => bytes * rng.between(1, 9) + rng.below(3) - 1,
        6 => rng.between(1, 20_000),
        _ => {
            if rng.below(4) == 0 {
                65_536 + rng.below(3) - 1
            } else {
                bytes * rng.between(10, 15)
            }
        }
    };
    length.min(REGION_LEN as u64 - 1) as u32
}

fn work_request(rng: &mut Rng, service: Type, mtu: Mtu, index: u64) -> SendWr {
    let mut wr = SendWr {
        length: length(rng, mtu),
        solicited: rng.below(4) == 0,
        signaled: rng.below(2) == 0,
        fence: rng.below(10) == 0,
        ..SendWr::default()
    };
    let immediate = Some(rng.word() as u32);
    let kinds = match service {
        Type::Rc => 12,
        Type::XrcInitiator => 9,
        Type::Uc => 4,
        _ => 2,
    };
    match rng.below(kinds) {
        0 => {}
        1 => wr.immediate = immediate,
        2 => wr.operation = SendOperation::Write,
        3 => {
            wr.operation = SendOperation::Write;
            wr.immediate = immediate;
        }
        4 => wr.invalidate_rkey = Some(INVALIDATE_KEY + index as u32),
        5 | 6 => {
            wr.operation = SendOperation::Read;
            wr.rkey = READ_KEY;
            if rng.below(4) == 0 {
                wr.rkey = WRITE_KEY;
            }
        }
        7 => wr.operation = SendOperation::CompareSwap,
        8 => wr.operation = SendOperation::FetchAdd,
        9 => wr.operation = SendOperation::AtomicWrite,
        10 => {
            wr.operation = SendOperation::Flush;
            wr.flush = Flush {
                placement: rng.between(1, 3) as u8,
                selectivity: rng.below(2) as u8,
            };
        }
        _ => {
            wr.operation = SendOperation::Local;
            wr.length = 0;
        }
    }
    if matches!(service, Type::Ud) {
        wr.length = wr.length.min(mtu.bytes());
        wr.qkey = 0x1234_5678;
    }
    let room = REGION_LEN as u64 - u64::from(wr.length);
    match wr.operation {
        SendOperation::Write => {
            wr.rkey = WRITE_KEY;
            wr.remote_va = REGION_VA.wrapping_add(rng.below(room + 1));
        }
        SendOperation::Read => wr.remote_va = REGION_VA.wrapping_add(rng.below(room + 1)),
        SendOperation::CompareSwap | SendOperation::FetchAdd => {
            wr.length = 8;
            wr.rkey = ATOMIC_KEY;
            // Few addresses and values, so that they meet.
            wr.remote_va = REGION_VA.wrapping_add(8 * rng.below(3));
            wr.compare = rng.below(2);
            wr.swap_add = rng.below(3);
        }
        SendOperation::AtomicWrite => {
            wr.length = 8;
            wr.rkey = ATOMIC_KEY;
            // One of them an ATOMIC's, too.
            wr.remote_va = REGION_VA.wrapping_add(8 * rng.between(2, 5));
        }
        SendOperation::Flush => {
            wr.rkey = rng.pick(&[WRITE_KEY, ATOMIC_KEY]);
            wr.remote_va = if wr.flush.is_region() {
                rng.word()
            } else {
                REGION_VA.wrapping_add(rng.below(room + 1))
            };
        }
        SendOperation::Send | SendOperation::Local => {}
    }
    if matches!(service, Type::XrcInitiator) {
        wr.xrc_srqn = match wr.operation {
            SendOperation::Send => rng.pick(&SRQNS),
            _ => srqn_of(wr.rkey),
        };
    }
    wr
}

/// Makes something go wrong with the XRC SRQ of a work request: there is none, or what is accessed
/// belongs to another.
pub fn plant_srq(exists: bool, work: &mut Work) {
    let wr = &mut work.wr;
    // Of no bytes nothing is looked at.
    wr.length = wr.length.max(1);
    let [first, second] = SRQNS;
    if exists && !matches!(wr.operation, SendOperation::Send) {
        work.fault = Fault::OtherSrq;
        wr.xrc_srqn ^= first ^ second;
    } else {
        work.fault = Fault::NoSrq;
        wr.xrc_srqn = BAD_SRQN;
    }
}

/// Makes something go wrong with a work request, if something can.
fn plant(rng: &mut Rng, work: &mut Work) {
    let wr = &mut work.wr;
    work.fault = match wr.operation {
        SendOperation::Send => {
            rng.pick(&[Fault::ReceiveTooShort, Fault::LocalKey, Fault::ReceiveKey])
        }
        SendOperation::Local => Fault::Operation,
        SendOperation::Write | SendOperation::Read => {
            rng.pick(&[Fault::RemoteKey, Fault::RemoteRange, Fault::LocalKey])
        }
        SendOperation::Flush if wr.flush.is_region() => Fault::RemoteKey,
        SendOperation::Flush => rng.pick(&[Fault::RemoteKey, Fault::RemoteRange]),
        SendOperation::AtomicWrite => rng.pick(&[Fault::RemoteKey, Fault::Alignment]),
        SendOperation::CompareSwap | SendOperation::FetchAdd => {
            rng.pick(&[Fault::RemoteKey, Fault::Alignment, Fault::LocalKey])
        }
    };
    if wr.length == 0 && !matches!(wr.operation, SendOperation::Local) {
        wr.length = 1;
    }
    match work.fault {
        Fault::RemoteKey => wr.rkey = BAD_KEY,
        Fault::RemoteRange => {
            let end = REGION_VA.wrapping_add(REGION_LEN as u64);
            wr.remote_va = end.wrapping_sub(rng.below(u64::from(wr.length)));
        }
        Fault::Alignment => wr.remote_va = wr.remote_va.wrapping_add(rng.between(1, 7)),
        _ => {}
    }
}

/// How many bytes there are in the local buffer of a work request.
pub fn payload_len(wr: &SendWr) -> u32 {
    match wr.operation {
        // Its length is that of the range.
        SendOperation::Flush => 0,
        _ => wr.length,
    }
}

/// Whether a work request takes a receive.
pub fn takes_receive(wr: &SendWr) -> bool {
    match wr.operation {
        SendOperation::Send => true,
        SendOperation::Write => wr.immediate.is_some(),
        _ => false,
    }
}

/// The receives for what the peer sends.
fn receives(rng: &mut Rng, peer: &Side, service: Type, benign: bool) -> Vec<Posted> {
    let mut now = Instant::from_ns(0);
    let hurried = rng.below(2) == 0;
    let grh = if matches!(service, Type::Ud) { 40 } else { 0 };
    let mut receives = Vec::new();
    for work in peer.work.iter().filter(|work| takes_receive(&work.wr)) {
        if !hurried && rng.below(3) == 0 {
            now = now.add(Duration::from_us(rng.below(1_000)));
        }
        let mut capacity = grh + rng.pick(&[0, 0, 1, 100]);
        if matches!(work.wr.operation, SendOperation::Send) {
            capacity += work.wr.length;
        }
        if matches!(work.fault, Fault::ReceiveTooShort) {
            capacity = rng.below(u64::from(work.wr.length)) as u32;
        }
        receives.push(Posted {
            capacity,
            post_at: now,
            fault: matches!(work.fault, Fault::ReceiveKey),
            xrc_srqn: work.wr.xrc_srqn,
        });
    }
    if matches!(service, Type::Uc | Type::Ud) {
        // Some are lost, so others come into receives that were not meant for them.
        let max = receives.iter().map(|posted| posted.capacity).max();
        for posted in &mut receives {
            posted.capacity = max.unwrap_or(0);
            posted.fault = false;
        }
    } else if !benign && peer.rnr_retry < 7 && rng.below(6) == 0 {
        receives.pop();
    }
    receives
}
