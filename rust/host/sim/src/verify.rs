// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Whether a run ended as it must: every byte, every completion.

use roce::{
    qp::Type,
    requester::{
        SendOperation,
        SendWr, //
    },
    responder::{
        AtomicOperation,
        ReceiveCompletion,
        ReceiveOperation, //
    },
    status::Status, //
};

use crate::{
    checker,
    host::Host,
    memory::{
        apply,
        Flushed, //
    },
    oracle,
    scenario::{
        payload_len,
        takes_receive,
        Scenario,
        REGION_VA,
        WRITE_KEY, //
    },
    world::World, //
};

/// Checks with a message.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// How many messages there were, and how many of them were delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Work requests.
    pub messages: u64,
    /// Those that ended well.
    pub delivered: u64,
    /// Packets sent.
    pub packets: u64,
    /// Work requests that ended with an error other than a flush.
    pub errors: u64,
}

impl Tally {
    /// Adds another tally to this one.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.delivered += other.delivered;
        self.packets += other.packets;
        self.errors += other.errors;
    }
}

/// Runs a scenario and checks all of it.
pub fn check(scenario: Scenario) -> Result<Tally, String> {
    let mut world = World::new(scenario, None);
    world.run()?;
    check_world(&world)
}

/// Checks a world whose run is over.
pub fn check_world(world: &World) -> Result<Tally, String> {
    let mut tally = Tally {
        packets: world.trace.len() as u64,
        ..Tally::default()
    };
    let fresh = World::new(world.scenario.clone(), None);
    for host in 0..2 {
        let delivered = check_completions(world, host)?;
        let work = &world.scenario.sides[host].work;
        tally.messages += work.len() as u64;
        tally.delivered += delivered as u64;
        let (this, peer) = (&world.hosts[host], &world.hosts[1 - host]);
        let initial = &fresh.hosts[1 - host];
        let works: Vec<_> = work.iter().map(|work| work.wr).collect();
        match world.scenario.service {
            service if service.is_reliable() => {
                checker::check(world, host)?;
                check_receives(host, &works, delivered, this, peer)?;
                check_memory(host, &works, delivered, this, peer, initial)?;
            }
            _ => check_unreliable(host, &works, this, peer, initial)?,
        }
        if let Some(index) = oracle::failed(world, host) {
            tally.errors += 1;
            oracle::confirm(world, host, index)
                .map_err(|why| format!("host {host}: work request {index}: {why}"))?;
        }
    }
    Ok(tally)
}

/// Send completions: each once, in order, successes before one error before flushes. Returns the
/// number of successes.
fn check_completions(world: &World, id: usize) -> Result<usize, String> {
    let host = &world.hosts[id];
    let work = &world.scenario.sides[id].work;
    ensure!(
        host.completions.len() == work.len(),
        "host {id}: {} completions for {} work requests",
        host.completions.len(),
        work.len()
    );
    let mut delivered = 0;
    let mut errors = 0;
    for (index, (_, completion)) in host.completions.iter().enumerate() {
        let wr = &work[index].wr;
        ensure!(
            completion.sequence as usize == index && completion.operation == wr.operation,
            "host {id}: completion {index} is out of order: {completion:?}"
        );
        let success = completion.status == Status::Success;
        ensure!(
            completion.signaled == (wr.signaled || !success),
            "host {id}: completion {index} is wrongly signaled"
        );
        match completion.status {
            Status::Success => {
                ensure!(
                    delivered == index,
                    "host {id}: work request {index} succeeds after an error"
                );
                ensure!(
                    completion.length == payload_len(wr),
                    "host {id}: completion {index} has a wrong length"
                );
                delivered += 1;
            }
            Status::Flushed => {
                ensure!(
                    host.has_failed(),
                    "host {id}: work request {index} is flushed without an error"
                );
            }
            _ => {
                errors += 1;
                ensure!(
                    delivered == index && errors == 1,
                    "host {id}: work request {index} is not the first error"
                );
            }
        }
    }
    Ok(delivered)
}

/// Receive completions, against what was sent: in order, each once, with the right bytes.
fn check_receives(
    id: usize,
    works: &[SendWr],
    delivered: usize,
    this: &Host,
    peer: &Host,
) -> Result<(), String> {
    let senders: Vec<_> = works
        .iter()
        .enumerate()
        .filter(|(_, wr)| takes_receive(wr))
        .collect();
    let mut over = false;
    let mut received = 0;
    for (index, completion) in peer.receive_completions.iter().enumerate() {
        if completion.status != Status::Success {
            ensure!(
                !over || completion.status == Status::Flushed,
                "host {id}: two errors at the receiver"
            );
            over = true;
            continue;
        }
        ensure!(!over, "host {id}: a receive after an error");
        let Some((work, wr)) = senders.get(index) else {
            return Err(format!("host {id}: more was received than was sent"));
        };
        let taken = peer.taken[index];
        ensure!(
            peer.srqn_of_receive(taken) == wr.xrc_srqn,
            "host {id}: receive {index} is not of the SRQ {:#x}",
            wr.xrc_srqn
        );
        check_receive(completion, wr, &this.buffers[*work], &peer.received[taken])
            .map_err(|what| format!("host {id}: receive {index} of {work}: {what}"))?;
        received += 1;
    }
    let must = senders.iter().filter(|(work, _)| *work < delivered).count();
    ensure!(
        received >= must,
        "host {id}: {must} messages are acknowledged, {received} were received"
    );
    ensure!(
        over == peer.has_failed() || peer.receive_completions.len() == received,
        "host {id}: errors of receives without an error"
    );

    let invalidated: Vec<_> = senders
        .iter()
        .take(received)
        .filter_map(|(_, wr)| wr.invalidate_rkey)
        .collect();
    // Of the message that failed, the key may be invalidated already.
    ensure!(
        peer.memory.invalidated.starts_with(&invalidated),
        "host {id}: invalidated are {:x?}, not {invalidated:x?}",
        peer.memory.invalidated
    );
    Ok(())
}

/// One receive.
fn check_receive(
    completion: &ReceiveCompletion,
    wr: &SendWr,
    sent: &[u8],
    received: &[u8],
) -> Result<(), String> {
    let operation = match wr.operation {
        SendOperation::Send => ReceiveOperation::Send,
        _ => ReceiveOperation::Write,
    };
    ensure!(completion.operation == operation, "the operation differs");
    ensure!(completion.length == wr.length, "the length differs");
    ensure!(completion.immediate == wr.immediate, "immediate differs");
    ensure!(
        completion.invalidated_rkey == wr.invalidate_rkey,
        "the invalidated key differs"
    );
    ensure!(completion.solicited == wr.solicited, "solicited differs");
    let placed = match operation {
        ReceiveOperation::Send => sent,
        ReceiveOperation::Write => &[],
    };
    ensure!(received.starts_with(placed), "the data differ");
    ensure!(
        received[placed.len()..].iter().all(|byte| *byte == 0),
        "bytes behind the data were written"
    );
    Ok(())
}

/// The peer's memory, and what was read from it, against the work requests executed in order.
fn check_memory(
    id: usize,
    works: &[SendWr],
    delivered: usize,
    this: &Host,
    peer: &Host,
    initial: &Host,
) -> Result<(), String> {
    let mut model = initial.memory.regions.clone();
    // What may be one or the other, because the work request did not end well.
    let mut unknown = model
        .each_ref()
        .map(|region| vec![false; region.bytes.len()]);
    let mut unflushed = model.each_ref().map(|_| false);
    let mut flushes: Vec<Flushed> = Vec::new();
    for (index, wr) in works.iter().enumerate() {
        let Some(which) = model.iter().position(|region| region.rkey == wr.rkey) else {
            continue;
        };
        let start = wr.remote_va.wrapping_sub(REGION_VA) as usize;
        let end = start.wrapping_add(wr.length as usize);
        let buffer = &this.buffers[index];
        if wr.operation == SendOperation::Flush {
            if index >= delivered {
                unflushed[which] = true;
                continue;
            }
            let is_flushed = model[which].flush(wr.flush, wr.remote_va, wr.length);
            ensure!(is_flushed, "host {id}: FLUSH {index} of what is not there");
            flushes.push((wr.rkey, wr.flush, wr.remote_va, wr.length));
            continue;
        }
        if index >= delivered {
            if wr.operation != SendOperation::Read && end <= unknown[which].len() {
                unknown[which][start..end].fill(true);
            }
            continue;
        }
        let memory = &mut model[which].bytes[start..end];
        match wr.operation {
            SendOperation::Write | SendOperation::AtomicWrite => memory.copy_from_slice(buffer),
            SendOperation::Read => {
                let same = memory
                    .iter()
                    .zip(buffer)
                    .position(|(is, read)| is != read)
                    .map_or(Ok(()), Err);
                ensure!(
                    same.is_ok(),
                    "host {id}: READ {index} of {} bytes at {start} differs at {same:?}",
                    wr.length
                );
            }
            SendOperation::CompareSwap | SendOperation::FetchAdd => {
                let bytes: [u8; 8] = (&*memory).try_into().expect("8 bytes");
                let original = u64::from_ne_bytes(bytes);
                let operation = match wr.operation {
                    SendOperation::CompareSwap => AtomicOperation::CompareSwap {
                        compare: wr.compare,
                        swap: wr.swap_add,
                    },
                    _ => AtomicOperation::FetchAdd { add: wr.swap_add },
                };
                memory.copy_from_slice(&apply(original, operation).to_ne_bytes());
                ensure!(
                    *buffer == original.to_ne_bytes(),
                    "host {id}: ATOMIC {index} returned {buffer:x?}, not {original:#x}"
                );
            }
            SendOperation::Send | SendOperation::Local | SendOperation::Flush => {}
        }
    }
    // Each once, in order. Of those that did not end well, some may have been done.
    ensure!(
        peer.memory.flushes.starts_with(&flushes),
        "host {id}: flushed was {:x?}, not {flushes:x?}",
        peer.memory.flushes
    );
    for (which, region) in model.iter().enumerate() {
        let is = &peer.memory.regions[which].bytes;
        let wrong = (0..is.len()).find(|at| !unknown[which][*at] && is[*at] != region.bytes[*at]);
        ensure!(
            wrong.is_none(),
            "host {id}: the peer's memory {:#x} differs at {wrong:?}",
            region.rkey
        );
        ensure!(
            unflushed[which] || peer.memory.regions[which].durable == region.durable,
            "host {id}: of the peer's memory {:#x}, not what should be is flushed",
            region.rkey
        );
    }
    Ok(())
}

/// UC and UD promise little: what is received was sent, what is written was to be written.
fn check_unreliable(
    id: usize,
    works: &[SendWr],
    this: &Host,
    peer: &Host,
    initial: &Host,
) -> Result<(), String> {
    let grh = if this.service() == Type::Ud { 40 } else { 0 };
    for (index, completion) in peer.receive_completions.iter().enumerate() {
        let received = &peer.received[index];
        let is_known = works.iter().enumerate().any(|(work, wr)| {
            let completion = ReceiveCompletion {
                length: completion.length.wrapping_sub(grh),
                ..*completion
            };
            // An abandoned message may have left bytes behind the data of this one.
            let length = completion.length.min(received.len() as u32) as usize;
            takes_receive(wr)
                && received.len() >= grh as usize + length
                && (wr.operation != SendOperation::Send
                    || received[grh as usize..].starts_with(&this.buffers[work]))
                && completion.length == wr.length
                && completion.immediate == wr.immediate
        });
        ensure!(
            completion.status == Status::Success && is_known,
            "host {id}: receive {index} is nothing that was sent: {completion:?}"
        );
    }
    for (region, before) in peer.memory.regions.iter().zip(&initial.memory.regions) {
        for (at, byte) in region.bytes.iter().enumerate() {
            let is_written = || {
                works.iter().enumerate().any(|(work, wr)| {
                    let start = wr.remote_va.wrapping_sub(REGION_VA) as usize;
                    region.rkey == WRITE_KEY
                        && wr.operation == SendOperation::Write
                        && (start..start + wr.length as usize).contains(&at)
                        && this.buffers[work][at - start] == *byte
                })
            };
            ensure!(
                *byte == before.bytes[at] || is_written(),
                "host {id}: byte {at} of {:#x} was never written",
                region.rkey
            );
        }
    }
    Ok(())
}
