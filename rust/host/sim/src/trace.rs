// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What happened on the wire.

use std::fmt;

use roce::{
    packet::{
        Packet,
        Syndrome, //
    },
    time::Instant, //
};

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The host has sent it.
    Sent,
    /// It was lost on the way from the host.
    Lost,
    /// The host has received it.
    Received,
    /// The host has taken note of a response that it had received.
    Noted,
    /// As `Noted`, but the payload, if any, was not placed: it could not be, or its turn had not come.
    Unplaced,
    /// The host has received it damaged: for the protocol, a loss.
    Damaged,
    /// The host has no room for it: a loss, too.
    Crowded,
}

/// One packet at one end.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// When.
    pub now: Instant,
    /// At which end: 0 or 1.
    pub host: usize,
    /// What happened.
    pub what: What,
    /// The packet. For a damaged one, as it was sent.
    pub packet: Packet,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = &self.packet;
        let us = self.now.as_ns() as f64 / 1_000.0;
        let host = self.host;
        write!(
            f,
            "{us:>12.3} us  host {host}  {:<8} {:?} psn {:#08x}",
            format!("{:?}", self.what),
            packet.opcode,
            packet.psn.get()
        )?;
        if packet.payload_len > 0 {
            write!(f, " +{}", packet.payload_len)?;
        }
        if packet.ack_request {
            write!(f, " ack!")?;
        }
        if let Some(srqn) = packet.xrc_srqn {
            write!(f, " srq {:#x}", srqn.get())?;
        }
        if let Some(reth) = packet.reth {
            write!(f, " va {:#x} len {}", reth.va, reth.length)?;
        }
        if let Some(aeth) = packet.aeth {
            match aeth.syndrome {
                Syndrome::Ack { .. } => write!(f, " ACK")?,
                other => write!(f, " {other:?}")?,
            }
            write!(f, " msn {}", aeth.msn)?;
        }
        Ok(())
    }
}
