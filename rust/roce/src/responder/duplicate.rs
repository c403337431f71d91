// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests that come again (IBTA 9.7.5.1.3).

use core::ops::DerefMut;

use crate::{
    dropped::DropReason,
    opcode::Operation,
    packet::{
        Packet,
        Reth, //
    }, //
};

use super::{
    resource::{
        Kind,
        Run, //
    },
    Resource,
    Responder,
    Step, //
};

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// Answers a request that was executed before: a SEND or WRITE is acknowledged again, a READ is
    /// executed again, an ATOMIC, ATOMIC WRITE or FLUSH is answered as before.
    ///
    /// A READ that comes again need not be the one that came before: the peer asks for what it has
    /// not got.
    ///
    /// Answers that are due to later requests stay due. A peer that has gone back asks for them
    /// again, which takes the place of what is left of them; but the network may have made the
    /// duplicate, and then the peer would wait for them in vain, for the whole of its timeout.
    #[cold]
    #[inline(never)]
    pub(super) fn duplicate(&mut self, packet: &Packet) -> Step {
        self.counters.duplicates = self.counters.duplicates.wrapping_add(1);
        let run = match (packet.opcode.operation(), packet.reth) {
            (Operation::Send | Operation::Write, _) => {
                // With the PSN of the newest one, never with that of a READ or ATOMIC: a peer may
                // take this for the whole of the answer.
                self.acknowledge |= self.executed.is_some();
                return Step::Done;
            }
            (Operation::ReadRequest, Some(reth)) => self.read_again(packet, &reth),
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                self.answer_again(packet, |kind| matches!(kind, Kind::Atomic { .. }))
            }
            (Operation::Flush, _) => self.answer_again(packet, |kind| matches!(kind, Kind::Flush)),
            (Operation::AtomicWrite, _) => {
                self.answer_again(packet, |kind| matches!(kind, Kind::AtomicWrite))
            }
            _ => None,
        };
        match run {
            Some(()) => Step::Done,
            None => Step::Dropped(DropReason::Forgotten),
        }
    }

    fn read_again(&mut self, packet: &Packet, reth: &Reth) -> Option<()> {
        // The data is read anew.
        if !self.config.access.read {
            return None;
        }
        let psns = self.config.mtu.packets(reth.length);
        let shift = self.config.mtu.shift();
        let (index, begin) = self.find(packet, |kind| matches!(kind, Kind::Read { .. }))?;
        let resource = self.resources.get_mut(index)?;
        let Kind::Read {
            va,
            rkey,
            length,
            xrc_srqn,
        } = resource.kind
        else {
            return None;
        };

        // It must lie within what was asked for, and its responses on the same PSNs.
        let offset = begin.wrapping_shl(shift);
        let end_offset = offset.checked_add(reth.length)?;
        let end = begin.checked_add(psns)?;
        let is_part = reth.rkey == rkey
            && packet.xrc_srqn == xrc_srqn
            && reth.va == va.wrapping_add(u64::from(offset))
            && end_offset <= length
            && end <= resource.psns
            && (reth.length > 0 || length == 0);
        if !is_part {
            return None;
        }
        self.run(
            index,
            Run {
                begin,
                next: begin,
                end,
                end_offset,
                again: true,
            },
        )
    }

    /// Answers what has one response as before, without executing it: an ATOMIC or ATOMIC WRITE must
    /// not undo what was written since, and what a FLUSH was for has been flushed (IBTA 1.7, annex A19).
    #[inline(never)]
    fn answer_again(&mut self, packet: &Packet, is_kind: fn(&Kind) -> bool) -> Option<()> {
        let (index, _) = self.find(packet, is_kind)?;
        self.run(
            index,
            Run {
                begin: 0,
                next: 0,
                end: 1,
                end_offset: 0,
                again: true,
            },
        )
    }

    /// The resource, and the number of its response, that has the PSN of the packet. The newest, if
    /// there is an old one from the last time around the circle.
    #[inline(never)]
    fn find(&self, packet: &Packet, is_kind: fn(&Kind) -> bool) -> Option<(usize, u32)> {
        let mut newest = self.by_age().rev();
        let (index, resource, response) = newest.find_map(|(index, resource)| {
            Some((index, resource, resource.index_of(packet.psn)?))
        })?;
        is_kind(&resource.kind).then_some((index, response))
    }

    /// Lets a resource be answered from the beginning of `run` on, whatever is under way with it.
    fn run(&mut self, index: usize, run: Run) -> Option<()> {
        let resource = self.resources.get_mut(index)?;
        if resource.run.replace(run).is_none() {
            self.runs = self.runs.saturating_add(1);
        }
        Some(())
    }
}
