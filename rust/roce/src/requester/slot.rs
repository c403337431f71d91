// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Send work requests, where they are kept, and how they complete.

use crate::{
    packet::Flush,
    status::Status, //
};

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendOperation {
    /// SEND.
    #[default]
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// Something that the driver executes without a RoCE packet: local invalidate, fast registration,
    /// bind; the frame of a raw packet QP.
    Local,
}

impl SendOperation {
    /// Whether it has responses of its own, and counts against the limit of outstanding READs and
    /// ATOMICs: these, and FLUSHes and ATOMIC WRITEs (IBTA 1.7, annex A19). Statements about ATOMICs
    /// hold for those two wherever nothing else is said.
    #[inline]
    pub(crate) const fn is_read_or_atomic(self) -> bool {
        match self {
            Self::Read | Self::CompareSwap | Self::FetchAdd | Self::Flush | Self::AtomicWrite => {
                true
            }
            Self::Send | Self::Write | Self::Local => false,
        }
    }

    /// Whether what answers it is a READ response without data.
    #[inline]
    pub(super) const fn is_answered_empty(self) -> bool {
        matches!(self, Self::Flush | Self::AtomicWrite)
    }
}

/// A send work request, as far as the protocol is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWr {
    /// Its operation.
    pub operation: SendOperation,
    /// Length of the payload in bytes, or of a FLUSH's range. Ignored for ATOMICs and ATOMIC WRITEs (8);
    /// of a local operation, what its completion shall say.
    pub length: u32,
    /// Remote address of WRITE, READ, ATOMICs, ATOMIC WRITE and FLUSH.
    pub remote_va: u64,
    /// R_Key of WRITE, READ, ATOMICs, ATOMIC WRITE and FLUSH.
    pub rkey: u32,
    /// Immediate data of SEND and WRITE.
    pub immediate: Option<u32>,
    /// R_Key that a SEND invalidates; without `immediate` only.
    pub invalidate_rkey: Option<u32>,
    /// Compare data of a compare and swap.
    pub compare: u64,
    /// Swap or add data of an ATOMIC.
    pub swap_add: u64,
    /// The kind of a FLUSH.
    pub flush: Flush,
    /// Start only when all READs and ATOMICs before are complete (IBTA 10.8.3.3); for a local
    /// operation: only when everything before is complete. A local invalidate should always have
    /// it, or a retransmission could find its key gone.
    pub fence: bool,
    /// Raise a solicited event at the responder. SEND, and WRITE with immediate data, only.
    pub solicited: bool,
    /// Whether a success is reported to the consumer. Handed through.
    pub signaled: bool,
    /// UD: the Q_Key (that of the QP, if the consumer's has its highest bit set).
    pub qkey: u32,
    /// UD: the number of the destination QP.
    pub dest_qpn: u32,
    /// XRC: the number of the peer's SRQ. The lower 24 bits count.
    pub xrc_srqn: u32,
}

/// One element of a requester's storage.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSlot {
    /// The work request.
    pub(super) wr: SendWr,
    /// How it ended, once it has.
    pub(super) status: Option<Status>,
    /// Position (see [`Requester`](super::Requester)) of its first PSN, once started.
    pub(super) first: u64,
    /// Number of PSNs, once started. Zero for local operations.
    pub(super) psns: u32,
    /// A local operation that is done.
    pub(super) executed: bool,
    /// Its last packet is sent, and asked for an acknowledgement.
    pub(super) asked: bool,
}

impl SendSlot {
    /// The position behind the last PSN, once started.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.first.wrapping_add(u64::from(self.psns))
    }
}

/// How a send work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCompletion {
    /// The number that `post` gave it.
    pub sequence: u32,
    /// How it ended.
    pub status: Status,
    /// Whether the consumer hears of it: it asked for it, or the status is not `Success`.
    pub signaled: bool,
    /// Its operation.
    pub operation: SendOperation,
    /// Number of bytes moved: 8 for an ATOMIC or ATOMIC WRITE, 0 for a FLUSH, for a local operation what the
    /// request says.
    pub length: u32,
}
