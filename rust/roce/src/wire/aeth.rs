// SPDX-License-Identifier: GPL-2.0 OR MIT

//! AETH: acknowledge extended transport header (IBTA 9.3.5), and its syndrome (IBTA 9.7.5.1,
//! tables 43 to 46).

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::U24;

/// The credit count that says: no end-to-end credits (IBTA 9.7.7.2).
pub const CREDITS_INVALID: u8 = 0x1f;

/// A responder's answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Aeth {
    /// See [`Syndrome`].
    pub syndrome: u8,
    /// Message sequence number: how many messages the responder has completed, modulo 2^24.
    pub msn: U24,
}

const _: () = assert!(size_of::<Aeth>() == 4);

/// The code of a NAK (IBTA table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A request is missing: send again from the PSN of the NAK on.
    SequenceError = 0,
    /// The responder does not support the request, or cannot make sense of it.
    InvalidRequest = 1,
    /// Memory may not be accessed in this way.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
    /// Invalid RD request; RC never sends it.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// The NAK with the 5-bit `code`, or `None` if the code is reserved.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::SequenceError),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccess),
            3 => Some(Self::RemoteOperational),
            4 => Some(Self::InvalidRdRequest),
            _ => None,
        }
    }
}

/// The meaning of the first byte of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive acknowledgement.
    Ack {
        /// Encoded end-to-end credits, in `0..32`; see [`CREDITS_INVALID`].
        credits: u8,
    },
    /// Receiver not ready.
    Rnr {
        /// How long to wait, in `0..32`; see [`crate::time::rnr_delay`].
        timer: u8,
    },
    /// Negative acknowledgement.
    Nak(NakCode),
    /// A syndrome that means nothing; the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// The syndrome in `byte`. Every byte is some syndrome.
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte & 0xe0 {
            0x00 => Self::Ack { credits: value },
            0x20 => Self::Rnr { timer: value },
            0x60 => match NakCode::from_code(value) {
                Some(code) => Self::Nak(code),
                None => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    /// The byte. Only the lower five bits of credits and timers count.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::Rnr { timer } => 0x20 | (timer & 0x1f),
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}
