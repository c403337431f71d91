// SPDX-License-Identifier: GPL-2.0

//! Responses that leave: acknowledgements, and what READs are answered with.

use super::{
    super::{
        engine::wait_for_queues,
        paths::TxPath,
        Qp, //
    },
    access,
    ReceiveSide, //
};
use crate::{
    memory::{
        access::{
            Access,
            Fault, //
        },
        buffer::Payload, //
    },
    packet::datagram::{
        Batch,
        BuildError, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use roce::{
    outcome::Outcome,
    responder::{
        ReadBurst,
        Response, //
    }, //
};

impl ReceiveSide {
    /// Builds responses until the batch is full.
    pub(super) fn respond(&mut self, qp: &Arc<Qp>, batch: &mut Batch) {
        if !self.responder.has_responses() {
            return;
        }
        let Some(tx_path) = qp.tx_path() else {
            self.lose_responses(qp);
            return;
        };
        let path = &tx_path.path;
        if self.engine.waits_for_queues(qp, Some(path)) {
            return;
        }
        while batch.room() >= Batch::BURST {
            let room = batch.room();
            let budget = u32::try_from(room).unwrap_or(0);
            let is_done = match self.responder.poll_response(budget) {
                None => break,
                Some(Response::Packet(mut packet)) => {
                    packet.migrated = tx_path.migrated;
                    let pages = &qp.device().registry.pages;
                    let built = batch.build(path, &packet, pages, Payload::None);
                    if built.is_err() {
                        qp.count_unsent(1);
                    }
                    true
                }
                Some(Response::Read(burst)) => {
                    let sent = self.read(qp, &tx_path, &burst, batch);
                    let outcome = self.engine.outgoing.outcome(qp, sent);
                    self.responder.commit_read(burst, outcome);
                    matches!(outcome, Outcome::Done)
                }
            };
            if is_done && batch.room() == room {
                // No memory: without a pause all of a long READ would be lost in one long go.
                wait_for_queues(qp);
                return;
            }
        }
    }

    /// There is no route: that is a loss in the network. Nothing waits for ever for a response to leave, above all
    /// not the end of a QP that has failed.
    fn lose_responses(&mut self, qp: &Qp) {
        for _ in 0..Batch::BURST {
            match self.responder.poll_response(u32::MAX) {
                None => return,
                Some(Response::Packet(_)) => qp.count_unsent(1),
                Some(Response::Read(burst)) => {
                    qp.count_unsent(burst.packets);
                    self.responder.commit_read(burst, Outcome::Done);
                }
            }
        }
        self.engine.again = true;
    }

    /// Builds READ responses, all or none.
    fn read(
        &self,
        qp: &Qp,
        tx_path: &TxPath,
        burst: &ReadBurst,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        // The key is checked again for each burst: it may have been invalidated since.
        let srq = burst.xrc_srqn.and_then(|number| self.queue.xrc_srq(number));
        let pd = match burst.xrc_srqn {
            None => Some(&qp.pd),
            Some(_) => srq.as_ref().map(|srq| srq.pd()),
        };
        let access = if burst.length == 0 {
            None
        } else {
            Some(access(
                qp,
                pd,
                burst.rkey,
                burst.va,
                u64::from(burst.length),
                Access::REMOTE_READ,
            )?)
        };
        let built = batch.len();
        if burst.is_repeated {
            batch.scatter();
            trace::retransmit(qp.number, burst.packets);
        }
        for index in 0..burst.packets {
            let Some((mut packet, offset)) = self.responder.read_packet(burst, index) else {
                break;
            };
            packet.migrated = tx_path.migrated;
            let payload = match &access {
                Some(access) => Payload::Range(access, u64::from(offset)),
                None => Payload::None,
            };
            match batch.build(&tx_path.path, &packet, &qp.device().registry.pages, payload) {
                Ok(()) => {}
                Err(BuildError::NoMemory) => qp.count_unsent(1),
                Err(BuildError::Payload(fault)) => {
                    batch.truncate(built);
                    return Err(fault);
                }
            }
        }
        Ok(())
    }
}
