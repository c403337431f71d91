// SPDX-License-Identifier: GPL-2.0

//! The ring of an SRQ that belongs to a process.

use crate::{
    memory::context::{
        Context,
        MmapInfo,
        Published, //
    },
    queue::{
        ring::{
            Posted,
            RequestRing, //
        },
        user_wqe,
        wqe::RecvWqe, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use rdma::udata::Udata;
use roce::responder::Receive;
use zerocopy::IntoBytes;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// The response of `create_srq` to librxe: where its ring is.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct CreateResponse {
    ring: MmapInfo,
    number: u32,
    reserved: u32,
}

/// The request of librxe for `modify_srq`.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct ModifyRequest {
    /// Where to write a [`MmapInfo`], if there is a new ring.
    answer_at: u64,
}

/// A ring that a process posts to without a system call.
pub(super) struct UserSrq {
    pub(super) requests: RequestRing,
    /// Keeps the ring mappable.
    published: Option<Published>,
}

/// A number that the queue goes by in the process; nothing is looked up by it.
fn next_number() -> u32 {
    static TURN: Atomic<u32> = Atomic::new(1);
    TURN.fetch_add(1, Relaxed)
}

impl UserSrq {
    /// Allocates a ring and lets the process map it. Context: process, may sleep.
    pub(super) fn new(context: &Arc<Context>, max_wr: u32, max_sge: u32) -> Result<Self> {
        let requests = RequestRing::new(max_wr, user_wqe::recv_wqe_len(max_sge)?)?;
        let published = context.publish(requests.ring())?;
        Ok(Self {
            requests,
            published: Some(published),
        })
    }

    /// No process can map the ring any more, once the result is dropped.
    pub(super) fn unpublish(&mut self) -> Option<Published> {
        self.published.take()
    }

    fn info(&self) -> Result<MmapInfo> {
        Ok(self.published.as_ref().ok_or(EINVAL)?.info())
    }

    /// Tells the process where the ring is, and the number of an XRC SRQ.
    pub(super) fn answer_create(&self, udata: &mut Udata<'_>, number: Option<u32>) -> Result {
        udata.copy_out(&CreateResponse {
            ring: self.info()?,
            number: number.unwrap_or_else(next_number),
            reserved: 0,
        })
    }

    /// Tells the process where the new ring is.
    pub(super) fn answer_modify(&self, udata: &mut Udata<'_>) -> Result {
        let request: ModifyRequest = udata.copy_in()?;
        let at = usize::try_from(request.answer_at).or(Err(EFAULT))?;
        UserSlice::new(UserPtr::from_addr(at), size_of::<MmapInfo>())
            .writer()
            .write_slice(self.info()?.as_bytes())
    }

    /// Takes the oldest request. Its slot is free from now on.
    pub(super) fn take(&mut self, out: &mut RecvWqe) -> Receive {
        let receive = out.receive_user(&mut self.requests);
        if !matches!(receive, Receive::Empty) {
            self.requests.advance();
        }
        receive
    }

    /// Goes on with the ring `new`, which has a copy of `posted`. Returns the old ring.
    pub(super) fn move_to(&mut self, mut new: Self, posted: &Posted) -> Self {
        new.requests.follow(&self.requests, posted);
        core::mem::replace(self, new)
    }
}

const _: () = assert!(size_of::<CreateResponse>() == 24 && size_of::<ModifyRequest>() == 8);
