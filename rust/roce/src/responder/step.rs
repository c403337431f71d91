// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The actions that a request asks of the driver.

use crate::{
    dropped::DropReason,
    packet::{
        Flush,
        NakCode, //
    },
    status::Status, //
};

/// The next step for the packet that was handed in.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The packet has been processed.
    Done,
    /// The packet has been processed, and the current receive is complete with it.
    Complete(ReceiveCompletion),
    /// The packet had no effect.
    Dropped(DropReason),
    /// The driver said [`Outcome::Again`](crate::outcome::Outcome::Again). It keeps this packet and
    /// those behind it, in order and bounded, as [`arrive`](super::Responder::arrive) says, and hands
    /// it in again later; a packet that it does not keep is a lost packet.
    Park,
    /// Do this, and answer with the `commit` function of the [`Responder`](super::Responder) that the action names: it
    /// returns what comes next. Every other step ends the packet.
    Do(Action, Stage),
}

/// The action under way for a packet: to be returned with its result, once, as it can neither be made nor copied
/// elsewhere. If it is dropped, nothing has changed, and the packet is as good as lost.
#[derive(Debug, PartialEq, Eq)]
pub struct Stage(pub(super) Doing);

/// See [`Stage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It takes a receive.
    Take,
    /// It moves data, or checks a key.
    Access,
    /// It invalidates a key.
    Invalidate,
}

/// An action of the driver for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take a receive from the receive queue, to be the current one; answer with `commit_receive`.
    TakeReceive,
    /// Place the packet's payload into the current receive; answer with `commit`. For UD the payload may
    /// be empty: there is the GRH in front of it.
    PlaceReceive {
        /// Where in the receive's buffers, in bytes. For UD 40: the GRH goes to the front, which
        /// is the driver's to write.
        offset: u32,
        /// How many bytes: the whole payload.
        length: u32,
    },
    /// Place the packet's payload at a remotely accessible address; answer with `commit`.
    ///
    /// The key must allow for a remote write of all of `va..va + check_length`. On the first
    /// packet of a message that is the whole message, otherwise the payload.
    PlaceRemote {
        /// R_Key.
        rkey: u32,
        /// Where the payload goes.
        va: u64,
        /// How many bytes: the whole payload.
        length: u32,
        /// Length of the range to check in bytes, not less than `length`.
        check_length: u32,
    },
    /// Check that the key allows for a remote read of all of `va..va + length`; answer with
    /// `commit`. The data are asked for later, by
    /// [`poll_response`](super::Responder::poll_response).
    CheckRead {
        /// R_Key.
        rkey: u32,
        /// Beginning of the range.
        va: u64,
        /// Length of the range in bytes, not zero.
        length: u32,
    },
    /// Execute an atomic operation on the 8 bytes at `va`, which is a multiple of 8; answer with
    /// `commit_atomic` if it is done, else with `commit`.
    Atomic {
        /// R_Key.
        rkey: u32,
        /// Address.
        va: u64,
        /// The operation, in native byte order.
        operation: AtomicOperation,
    },
    /// Write the packet's payload, 8 bytes, to `va`, which is a multiple of 8, all at once: nobody
    /// may ever see some of the new bytes and some of the old ones. Answer with `commit`.
    ///
    /// The key must allow for a remote write.
    AtomicWrite {
        /// R_Key.
        rkey: u32,
        /// Address.
        va: u64,
    },
    /// See that whatever was written before, by way of this key, gets as far as `flush` says; answer
    /// with `commit`.
    ///
    /// The key must allow for a FLUSH of each kind that is asked for, of all of `va..va + length`
    /// if `flush` is not for the whole region.
    Flush {
        /// R_Key.
        rkey: u32,
        /// The kind of the FLUSH. It is valid.
        flush: Flush,
        /// Beginning of the range. Means nothing for a whole region.
        va: u64,
        /// Length of the range in bytes, may be zero. Means nothing for a whole region.
        length: u32,
    },
    /// Invalidate `rkey`; answer with `commit`.
    Invalidate {
        /// R_Key.
        rkey: u32,
    },
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Write `swap` if what stands there is `compare`.
    CompareSwap {
        /// Compare data.
        compare: u64,
        /// Swap data.
        swap: u64,
    },
    /// Add `add`, wrapping.
    FetchAdd {
        /// Add data.
        add: u64,
    },
}

/// The result of [`Action::TakeReceive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// There is a current receive now.
    Taken {
        /// Length of its buffers in bytes. For UD that includes the 40 bytes for the GRH.
        capacity: u32,
    },
    /// The receive queue is empty.
    Empty,
    /// There is a current receive now, but it is malformed: it will complete with an error.
    Malformed,
    /// The request is for an XRC SRQ that there is not. No receive is current.
    Invalid,
}

/// The operation that a receive completion tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOperation {
    /// A SEND.
    Send,
    /// A WRITE with immediate data.
    Write,
}

/// How the current receive completed. There is no current one afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveCompletion {
    /// How it ended.
    pub status: Status,
    /// By what.
    pub operation: ReceiveOperation,
    /// Length of the message in bytes, for UD with the 40 of the GRH. Means something only on
    /// success.
    pub length: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The R_Key that the message has invalidated.
    pub invalidated_rkey: Option<u32>,
    /// Whether the sender asks for a solicited event. True with any error.
    pub solicited: bool,
}

/// Something that the driver must hear of, apart from completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponderEvent {
    /// The first packet has arrived. `COMM_EST` if the QP is in RTR; else nothing.
    CommunicationEstablished,
    /// The peer's request was invalid. To the error state; `QP_REQ_ERR`.
    RequestError,
    /// The peer may not access memory as it wanted to. To the error state; `QP_ACCESS_ERR`.
    AccessError,
    /// A local failure. To the error state; `QP_FATAL`.
    Fatal,
    /// To the error state; a receive completion has told why.
    ReceiveError,
}

impl ResponderEvent {
    /// The event that tells of a NAK with this code.
    pub(super) const fn of_nak(code: NakCode) -> Self {
        match code {
            NakCode::RemoteAccess => Self::AccessError,
            NakCode::RemoteOperational => Self::Fatal,
            _ => Self::RequestError,
        }
    }
}
