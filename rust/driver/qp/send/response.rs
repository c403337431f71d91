// SPDX-License-Identifier: GPL-2.0

//! Responses with data: from packets to the memory that the requests named.

use super::{
    super::{
        paging::WaitsForPages,
        Qp, //
    },
    SendSide, //
};
use crate::{
    memory::{
        access::Access,
        buffer::{
            Cursor,
            Place, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use roce::{
    outcome::Outcome,
    packet::Packet,
    requester::Placement,
    time::Instant, //
};

impl SendSide {
    /// Places the payload of a response straight where the request wants it. `Err` if that has to wait for pages.
    pub(super) fn place(
        &mut self,
        qp: &Arc<Qp>,
        now: Instant,
        placement: Placement,
        packet: &Packet,
        skb: &RxSkb,
    ) -> Result<(), WaitsForPages> {
        let mut cursor = self.response_cursor(qp, placement.sequence);
        let offset = u64::from(placement.offset);
        let placed = match placement.original {
            Some(value) => cursor.write(offset, &value.to_ne_bytes()),
            None => {
                let length = placement.length as usize;
                cursor.write_datagram(offset, skb, packet.header_len(), length)
            }
        };
        let outcome = self.engine.incoming.outcome(qp, placed);
        self.requester.commit_place(now, placement, outcome);
        match outcome {
            Outcome::Again => Err(WaitsForPages),
            _ => Ok(()),
        }
    }

    /// A cursor over the buffers of the request `sequence`, for its response.
    fn response_cursor<'a>(&'a mut self, qp: &'a Qp, sequence: u32) -> Cursor<'a> {
        let (placing, place) = self
            .placing
            .get_or_insert_with(|| (sequence, Place::default()));
        if *placing != sequence {
            *placing = sequence;
            place.rewind();
        }
        let buffers = self.wqes.buffers(sequence);
        Cursor::new(&qp.pd, buffers, Access::LOCAL_WRITE, place)
    }
}
