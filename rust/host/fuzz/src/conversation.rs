// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Two honest ends with any attributes and work, on a wire that does to each packet what the input
//! says. The simulator's oracle judges: every byte, every completion, and that every error was due.

use std::env;

use arbitrary::Arbitrary;
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
use sim::{
    scenario::{
        plant_srq,
        srqn_of,
        takes_receive,
        timeout,
        Fault,
        Posted,
        Scenario,
        Side,
        Wire,
        Work,
        ATOMIC_KEY,
        BAD_KEY,
        INVALIDATE_KEY,
        READ_KEY,
        REGION_VA,
        SRQNS,
        WRITE_KEY, //
    },
    verify,
    world::{
        Fate,
        World, //
    }, //
};

use crate::any::{
    mtu,
    Service, //
};

/// Length of every region, and of the longest message.
const REGION_LEN: u32 = 8192;

const MAX_WORK: usize = 12;
const MAX_FATES: usize = 400;

#[derive(Arbitrary, Clone, Copy, Debug)]
struct AnyWork {
    operation: u8,
    length: u16,
    va: u16,
    flags: u8,
    fault: u8,
    /// How much later than the one before it is posted, and its receive, in microseconds.
    late: u8,
    receive_late: u8,
    extra: u8,
}

#[derive(Arbitrary, Debug)]
struct AnySide {
    psn: u8,
    far: bool,
    timeout: u8,
    retries: u8,
    max_rd_atomic: u8,
    rnr_timer: u8,
    window: u8,
    /// Of no use any more; without it, the inputs of the corpus would mean something else.
    _window_responses: u8,
    queue: u8,
    again: u8,
    absent: u8,
    absent_for: u8,
    /// As `_window_responses`.
    _commit_delay: u8,
    respond_delay: u8,
    work: Vec<AnyWork>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum AnyFate {
    Fine,
    FineToo,
    Lost,
    Twice(u8),
    Late(u16),
    Damaged(u16),
}

#[derive(Arbitrary, Debug)]
pub struct Input {
    seed: u32,
    service: Service,
    mtu: u8,
    delay: u8,
    loss: u8,
    limit: u8,
    sides: [AnySide; 2],
    fates: Vec<AnyFate>,
}

pub fn run(input: Input) {
    let scenario = scenario(&input);
    let mut world = World::new(scenario, None);
    world.script = input.fates.iter().take(MAX_FATES).map(fate).collect();
    let ended = world.run();
    if env::var_os("FUZZ_TRACE").is_some() {
        eprintln!("{:#?}", world.scenario);
        for record in &world.trace {
            eprintln!("{record}");
        }
    }
    if let Err(error) = ended.and_then(|()| verify::check_world(&world)) {
        panic!("{error}");
    }
}

fn fate(any: &AnyFate) -> Fate {
    let mut fate = Fate {
        copies: 1,
        late: Duration::ZERO,
        damage: None,
    };
    match *any {
        AnyFate::Fine | AnyFate::FineToo => {}
        AnyFate::Lost => fate.copies = 0,
        AnyFate::Twice(us) => {
            fate.copies = 2;
            fate.late = Duration::from_us(us.into());
        }
        AnyFate::Late(ns) => fate.late = Duration::from_ns(u64::from(ns) * 8),
        AnyFate::Damaged(bit) => fate.damage = Some(bit),
    }
    fate
}

fn scenario(input: &Input) -> Scenario {
    let service = match input.service.get() {
        Type::Gsi => Type::Ud,
        Type::XrcTarget => Type::XrcInitiator,
        other => other,
    };
    let mtu = mtu(input.mtu);
    let mut sides = input.sides.each_ref().map(|any| side(any, service, mtu));
    for host in 0..2 {
        sides[host].receives = receives(&input.sides[1 - host], &sides[1 - host], service);
    }
    Scenario {
        seed: input.seed.into(),
        service,
        mtu,
        sides,
        region_len: REGION_LEN as usize,
        wire: Wire {
            // Never a clean one: the script makes trouble.
            loss: 1 + u32::from(input.loss & 0xf) * 10_000,
            delay: Duration::from_us(1 + u64::from(input.delay)),
            late: Duration::from_us(1),
            ps_per_byte: 80,
            limit: match input.limit {
                0..200 => 0,
                limit => limit.into(),
            },
            ..Wire::default()
        },
        benign: false,
    }
}

fn side(any: &AnySide, service: Type, mtu: Mtu) -> Side {
    let mut side = Side {
        psn: Psn::new(u32::from(any.far).wrapping_mul(0x7f_ffff)).sub(any.psn.into()),
        timeout: timeout(5 + any.timeout % 9),
        retry_count: any.retries & 7,
        rnr_retry: (any.retries >> 3) & 7,
        max_rd_atomic: 1 + any.max_rd_atomic % 16,
        // Not the longest, so that a run ends soon.
        min_rnr_timer: 1 + any.rnr_timer % 16,
        window: 1 + u32::from(any.window),
        queue: 1 << (any.queue % 5),
        work: Vec::new(),
        receives: Vec::new(),
        again: u32::from(any.again) * 1_000,
        absent: u32::from(any.absent & 0x3f) * 1_000,
        absent_for: Duration::from_us(u64::from(any.absent_for) * 16),
        respond_delay: Duration::from_us(any.respond_delay.into()),
    };
    let mut now = Instant::from_ns(0);
    let mut fence = false;
    let mut faulty = false;
    for (index, any) in any.work.iter().take(MAX_WORK).enumerate() {
        now = now.add(Duration::from_us(any.late.into()));
        let mut wr = work_request(any, service, mtu, index as u32);
        wr.fence |= fence;
        // What is read must not be overwritten before it is read.
        fence = matches!(wr.operation, SendOperation::Read) && wr.rkey == WRITE_KEY;
        let mut work = Work {
            wr,
            fault: Fault::None,
            post_at: now,
        };
        if service.is_reliable() && any.fault & 0xf == 0xf && !faulty {
            faulty = true;
            let is_srq = service == Type::XrcInitiator && any.fault & 0x80 != 0;
            if is_srq {
                plant_srq(any.fault & 0x40 != 0, &mut work);
            } else {
                plant(any.fault >> 4, &mut work);
            }
        }
        side.work.push(work);
    }
    side
}

fn work_request(any: &AnyWork, service: Type, mtu: Mtu, index: u32) -> SendWr {
    let max = match service {
        Type::Ud => mtu.bytes(),
        _ => REGION_LEN - 8,
    };
    let mut wr = SendWr {
        // Mostly around a multiple of the MTU.
        length: match any.length & 1 {
            0 => u32::from(any.length >> 1) % (max + 1),
            _ => (u32::from(any.length >> 4) % 20 * mtu.bytes() + u32::from(any.length >> 1) % 3)
                .saturating_sub(1)
                .min(max),
        },
        solicited: any.flags & 1 != 0,
        signaled: any.flags & 2 != 0,
        fence: any.flags & 0x1c == 0x1c,
        qkey: 0x1234_5678,
        ..SendWr::default()
    };
    let immediate = Some(u32::from(any.va));
    let kinds = match service {
        Type::Rc => 13,
        Type::XrcInitiator => 10,
        Type::Uc => 4,
        _ => 2,
    };
    match any.operation % kinds {
        0 => {}
        1 => wr.immediate = immediate,
        2 => wr.operation = SendOperation::Write,
        3 => {
            wr.operation = SendOperation::Write;
            wr.immediate = immediate;
        }
        4 => wr.invalidate_rkey = Some(INVALIDATE_KEY + index),
        5 | 6 => {
            wr.operation = SendOperation::Read;
            wr.rkey = READ_KEY;
        }
        7 => {
            wr.operation = SendOperation::Read;
            wr.rkey = WRITE_KEY;
        }
        8 => wr.operation = SendOperation::CompareSwap,
        9 => wr.operation = SendOperation::FetchAdd,
        10 => wr.operation = SendOperation::AtomicWrite,
        11 => {
            wr.operation = SendOperation::Flush;
            wr.flush = Flush {
                placement: 1 + (any.flags >> 5) % 3,
                selectivity: u8::from(any.flags & 4 != 0),
            };
        }
        _ => {
            wr.operation = SendOperation::Local;
            wr.length = 0;
        }
    }
    let room = REGION_LEN - wr.length;
    let offset = u64::from(u32::from(any.va) % (room + 1));
    match wr.operation {
        SendOperation::Write => {
            wr.rkey = WRITE_KEY;
            wr.remote_va = REGION_VA.wrapping_add(offset);
        }
        SendOperation::Read => wr.remote_va = REGION_VA.wrapping_add(offset),
        SendOperation::CompareSwap | SendOperation::FetchAdd => {
            wr.length = 8;
            wr.rkey = ATOMIC_KEY;
            wr.remote_va = REGION_VA.wrapping_add(8 * u64::from(any.va % 3));
            wr.compare = u64::from((any.flags >> 5) & 1);
            wr.swap_add = u64::from(any.flags >> 6);
        }
        SendOperation::AtomicWrite => {
            wr.length = 8;
            wr.rkey = ATOMIC_KEY;
            wr.remote_va = REGION_VA.wrapping_add(8 * u64::from(2 + any.va % 3));
        }
        SendOperation::Flush => {
            wr.rkey = WRITE_KEY;
            wr.remote_va = REGION_VA.wrapping_add(offset);
        }
        SendOperation::Send | SendOperation::Local => {}
    }
    if service == Type::XrcInitiator {
        wr.xrc_srqn = match wr.operation {
            SendOperation::Send => SRQNS[usize::from(any.flags >> 7)],
            _ => srqn_of(wr.rkey),
        };
    }
    wr
}

/// Makes something go wrong with a work request.
fn plant(kind: u8, work: &mut Work) {
    let wr = &mut work.wr;
    let kinds: &[Fault] = match wr.operation {
        SendOperation::Send => &[Fault::ReceiveTooShort, Fault::LocalKey, Fault::ReceiveKey],
        SendOperation::Local => &[Fault::Operation],
        SendOperation::Write | SendOperation::Read => {
            &[Fault::RemoteKey, Fault::RemoteRange, Fault::LocalKey]
        }
        SendOperation::Flush if wr.flush.is_region() => &[Fault::RemoteKey],
        SendOperation::Flush => &[Fault::RemoteKey, Fault::RemoteRange],
        SendOperation::AtomicWrite => &[Fault::RemoteKey, Fault::Alignment],
        SendOperation::CompareSwap | SendOperation::FetchAdd => {
            &[Fault::RemoteKey, Fault::Alignment, Fault::LocalKey]
        }
    };
    work.fault = kinds[usize::from(kind) % kinds.len()];
    if wr.length == 0 && !matches!(wr.operation, SendOperation::Local) {
        wr.length = 1;
    }
    match work.fault {
        Fault::RemoteKey => wr.rkey = BAD_KEY,
        Fault::RemoteRange => {
            let end = REGION_VA.wrapping_add(REGION_LEN.into());
            wr.remote_va = end.wrapping_sub(u64::from(wr.length - 1));
        }
        Fault::Alignment => wr.remote_va = wr.remote_va.wrapping_add(3),
        _ => {}
    }
}

/// The receives for what the peer sends.
fn receives(any: &AnySide, peer: &Side, service: Type) -> Vec<Posted> {
    let grh = if service == Type::Ud { 40 } else { 0 };
    let mut now = Instant::from_ns(0);
    let mut receives = Vec::new();
    for (work, any) in peer.work.iter().zip(&any.work) {
        if !takes_receive(&work.wr) {
            continue;
        }
        now = now.add(Duration::from_us(any.receive_late.into()));
        let mut capacity = grh + u32::from(any.extra);
        if matches!(work.wr.operation, SendOperation::Send) {
            capacity += work.wr.length;
        }
        if matches!(work.fault, Fault::ReceiveTooShort) {
            capacity = u32::from(any.extra) % work.wr.length;
        }
        receives.push(Posted {
            capacity,
            post_at: now,
            fault: matches!(work.fault, Fault::ReceiveKey),
            xrc_srqn: work.wr.xrc_srqn,
        });
    }
    if !service.is_reliable() {
        // Some are lost, so others come into receives that were not meant for them.
        let max = receives.iter().map(|posted| posted.capacity).max();
        for posted in &mut receives {
            posted.capacity = max.unwrap_or(0);
        }
    }
    receives
}
