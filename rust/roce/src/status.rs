// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How a work request ended (IBTA 11.6.2).

use crate::packet::NakCode;

/// The status of a completion, with the meanings of `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is done.
    Success,
    /// The message is longer than the buffer or than the service allows for, or a READ response
    /// is not as long as it must be.
    LocalLength,
    /// The work request is malformed, or the device failed at it.
    LocalQpOperation,
    /// The local buffers may not be accessed in this way.
    LocalProtection,
    /// The queue was in error before it was the work request's turn.
    Flushed,
    /// A memory window could not be bound.
    MemoryWindowBind,
    /// A response makes no sense.
    BadResponse,
    /// A WRITE with immediate data could not be placed (responder).
    LocalAccess,
    /// The responder could not make sense of the request, or (responder) it was such a request.
    RemoteInvalidRequest,
    /// The responder's memory may not be accessed in this way.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
    /// No answer, for as often and as long as the QP's attributes say.
    RetryExceeded,
    /// The responder was not ready, for as often as the QP's attributes say.
    RnrRetryExceeded,
}

impl Status {
    /// How a request ends that is answered with `code`; `None` for the one that is sent again.
    #[inline]
    pub const fn from_nak(code: NakCode) -> Option<Self> {
        match code {
            NakCode::SequenceError => None,
            NakCode::InvalidRequest => Some(Self::RemoteInvalidRequest),
            NakCode::RemoteAccess => Some(Self::RemoteAccess),
            NakCode::RemoteOperational => Some(Self::RemoteOperational),
            // Of RD only: on another service the response is not a sensible one.
            NakCode::InvalidRdRequest => Some(Self::BadResponse),
        }
    }
}
