// SPDX-License-Identifier: GPL-2.0

//! The ring of a CQ that belongs to a process.

use crate::{
    memory::context::{
        Context,
        MmapInfo,
        Published, //
    },
    queue::{
        ring::{
            Full,
            Producer,
            Relocation, //
        },
        user_cqe::UserCompletion, //
    },
};
use core::mem;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ring::SharedRing,
    udata::Udata,
    wc::Completion, //
};
use zerocopy::IntoBytes;

/// A ring that a process polls without a system call.
pub(super) struct UserCq {
    pub(super) ring: Arc<SharedRing>,
    producer: Producer,
    /// Keeps the ring mappable.
    published: Option<Published>,
}

impl UserCq {
    /// Allocates a ring, lets the process map it and tells it where. Context: process, may sleep.
    pub(super) fn new(context: &Arc<Context>, entries: u32, udata: &mut Udata<'_>) -> Result<Self> {
        let ring = SharedRing::new(entries, size_of::<UserCompletion>())?;
        let published = context.publish(&ring)?;
        udata.copy_out::<MmapInfo>(&published.info())?;
        Ok(Self {
            ring,
            producer: Producer::new(),
            published: Some(published),
        })
    }

    /// How many completions the process has not polled.
    pub(super) fn len(&mut self) -> u32 {
        self.producer.len(&self.ring)
    }

    /// Appends a completion, if there is room.
    #[inline]
    pub(super) fn push(&mut self, completion: &Completion) -> Result<(), Full> {
        let element = UserCompletion::new(completion);
        self.producer.push(&self.ring, element.as_bytes())
    }

    /// No process can map the ring any more, once the result is dropped.
    pub(super) fn unpublish(&mut self) -> Option<Published> {
        self.published.take()
    }

    /// Begins to move what is in the ring now, and what comes until [`Self::end_move`].
    pub(super) fn begin_move(&mut self) -> Relocation {
        self.producer.catch_up(&self.ring);
        Relocation::new(&self.ring, &self.producer)
    }

    /// If at most `most` completions are left to be copied, copies them, and swaps this ring and `new`. Returns whether
    /// it has.
    pub(super) fn end_move(
        &mut self,
        moving: &mut Relocation,
        new: &mut Self,
        most: u32,
    ) -> Result<bool> {
        self.producer.catch_up(&self.ring);
        if moving.follow(&self.producer) > most {
            return Ok(false);
        }
        new.producer = moving.finish(&new.ring)?;
        mem::swap(self, new);
        Ok(true)
    }
}
