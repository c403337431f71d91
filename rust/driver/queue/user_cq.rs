// SPDX-License-Identifier: GPL-2.0

//! The ring of a CQ that belongs to a process, and its elements (CQEs) as librxe reads them.

use crate::{
    memory::context::{
        Context,
        MmapInfo,
        Published, //
    },
    packet::ah::{
        PACKET_UDP_IPV4,
        PACKET_UDP_IPV6, //
    },
    queue::ring::Full, //
};
use core::mem;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ring::SharedRing,
    udata::Udata,
    wc::{
        Completion,
        Extra,
        Network, //
    }, //
};
use zerocopy::IntoBytes;
use zerocopy_derive::{
    Immutable,
    IntoBytes, //
};

/// A ring that a process polls without a system call. Belongs under a lock.
pub(super) struct UserCq {
    pub(super) ring: Arc<SharedRing>,
    unpolled: Unpolled,
    /// Keeps the ring mappable.
    published: Option<Published>,
}

/// The completions that the process has not polled: those from number `seen` on, before number `next`.
#[derive(Clone, Copy, Default)]
struct Unpolled {
    /// Where the process had come to when we looked last.
    seen: u32,
    /// The number of the next completion.
    next: u32,
}

impl Unpolled {
    fn len(self) -> u32 {
        self.next.wrapping_sub(self.seen)
    }
}

impl UserCq {
    /// Allocates a ring, lets the process map it and tells it where. Context: process, may sleep.
    pub(super) fn new(context: &Arc<Context>, entries: u32, udata: &mut Udata<'_>) -> Result<Self> {
        let ring = SharedRing::new(entries, size_of::<UserCompletion>())?;
        let published = context.publish(&ring)?;
        udata.copy_out::<MmapInfo>(&published.info())?;
        Ok(Self {
            ring,
            unpolled: Unpolled::default(),
            published: Some(published),
        })
    }

    /// Looks where the process has come to.
    ///
    /// Providers before rdma-core 55 go one slot too far where `ibv_next_poll()` finds nothing and
    /// `ibv_end_poll()` follows, as it should: the ring would look full, and for ever. A sound consumer
    /// never passes us. We go on where this one will look next.
    #[inline]
    fn catch_up(&mut self) {
        let (ring, unpolled) = (&self.ring, &mut self.unpolled);
        let polled = ring.wrap(ring.consumer().wrapping_sub(unpolled.seen));
        let passes_us = polled > unpolled.len();
        unpolled.seen = unpolled.seen.wrapping_add(polled);
        if passes_us {
            unpolled.next = unpolled.seen;
            ring.set_producer(unpolled.next);
        }
    }

    /// How many completions the process has not polled.
    pub(super) fn len(&mut self) -> u32 {
        self.catch_up();
        self.unpolled.len()
    }

    /// Appends a completion, if there is room.
    #[inline]
    pub(super) fn push(&mut self, completion: &Completion) -> Result<(), Full> {
        if self.len() >= self.ring.capacity() {
            return Err(Full);
        }
        let element = UserCompletion::new(completion);
        let next = &mut self.unpolled.next;
        self.ring.write(*next, element.as_bytes()).ok_or(Full)?;
        *next = next.wrapping_add(1);
        self.ring.set_producer(*next);
        Ok(())
    }

    /// No process can map the ring any more, once the result is dropped.
    pub(super) fn unpublish(&mut self) -> Option<Published> {
        self.published.take()
    }

    /// Begins to move what is in the ring now, and what comes until [`Self::end_move`].
    pub(super) fn begin_move(&mut self) -> Relocation {
        self.catch_up();
        Relocation {
            ring: self.ring.clone(),
            unpolled: self.unpolled,
            first: self.unpolled.seen,
            end: self.unpolled.seen,
        }
    }

    /// If at most `most` completions are left to be copied, copies them, and swaps this ring and `new`. Returns whether
    /// it has.
    pub(super) fn end_move(
        &mut self,
        moving: &mut Relocation,
        new: &mut Self,
        most: u32,
    ) -> Result<bool> {
        self.catch_up();
        moving.unpolled = self.unpolled;
        if self.unpolled.next.wrapping_sub(moving.begin()) > most {
            return Ok(false);
        }
        moving.copy(new)?;
        new.unpolled = Unpolled {
            seen: self.unpolled.seen.wrapping_sub(moving.first),
            next: self.unpolled.next.wrapping_sub(moving.first),
        };
        new.ring.set_consumer(new.unpolled.seen);
        new.ring.set_producer(new.unpolled.next);
        mem::swap(self, new);
        Ok(true)
    }
}

/// A move of what a process has not polled to another ring, which is new and empty and which nobody uses yet (resize).
pub(super) struct Relocation {
    ring: Arc<SharedRing>,
    /// The completions in the ring when it was looked at last.
    unpolled: Unpolled,
    /// The number that becomes 0.
    first: u32,
    /// The first one that is not copied.
    end: u32,
}

impl Relocation {
    /// The first number to be copied: what the process has polled meanwhile need not be.
    fn begin(&self) -> u32 {
        let seen = self.unpolled.seen;
        if self.end.wrapping_sub(seen) <= self.unpolled.len() {
            self.end
        } else {
            seen
        }
    }

    /// Copies what was in the ring when it was looked at last. Needs no lock: a slot of the ring that is filled anew
    /// meanwhile had an element that the process has polled.
    pub(super) fn copy(&mut self, to: &UserCq) -> Result<(), Full> {
        if self.unpolled.len() > to.ring.capacity() {
            return Err(Full);
        }
        let mut element = [0u8; size_of::<UserCompletion>()];
        let mut number = self.begin();
        while number != self.unpolled.next {
            self.ring.read(number, &mut element).ok_or(Full)?;
            let moved = number.wrapping_sub(self.first);
            to.ring.write(moved, &element).ok_or(Full)?;
            number = number.wrapping_add(1);
        }
        self.end = number;
        Ok(())
    }
}

/// `struct ib_uverbs_wc`, which userspace takes for a `struct ibv_wc`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct UserCompletion {
    wr_id: u64,
    status: u32,
    opcode: u32,
    vendor_err: u32,
    byte_len: u32,
    /// Immediate data in network byte order, or a key in native order.
    extra: [u8; 4],
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
    port_num: u8,
    reserved: u8,
}

/// `ibv_wc_flags`. They differ from the kernel's: what is 8 here is 4 there.
const WC_GRH: u32 = 1 << 0;
const WC_WITH_IMM: u32 = 1 << 1;
const WC_WITH_INV: u32 = 1 << 3;

/// A RoCE network has no service levels: other completions have 0.
fn packet_type(network: Option<Network>) -> u8 {
    match network {
        Some(Network::Ipv6) => PACKET_UDP_IPV6,
        Some(Network::Ipv4) => PACKET_UDP_IPV4,
        None => 0,
    }
}

impl UserCompletion {
    /// The completion `from`, as a process gets it.
    fn new(from: &Completion) -> Self {
        let grh = if from.grh { WC_GRH } else { 0 };
        let (flags, extra) = match from.extra {
            Extra::None => (grh, [0; 4]),
            Extra::Imm(value) => (grh | WC_WITH_IMM, value.to_be_bytes()),
            Extra::Invalidated(key) => (grh | WC_WITH_INV, key.to_ne_bytes()),
        };
        Self {
            wr_id: from.wr_id,
            status: from.status as u32,
            opcode: from.opcode as u32,
            vendor_err: 0,
            byte_len: from.byte_len,
            extra,
            qp_num: from.qp_num,
            src_qp: from.src_qp,
            wc_flags: flags,
            pkey_index: 0,
            slid: 0,
            sl: packet_type(from.network),
            dlid_path_bits: 0,
            port_num: 1,
            reserved: 0,
        }
    }
}

const _: () = assert!(size_of::<UserCompletion>() == 48);
