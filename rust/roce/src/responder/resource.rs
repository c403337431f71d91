// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Responder resources: the READs, ATOMICs, FLUSHes and ATOMIC WRITEs that are being answered, or may
//! be asked for again (IBTA 9.7.5.1.3, 9.7.7.1.1; 1.7, annex A19).

use crate::{
    psn::Psn,
    wire::U24, //
};

/// The request that a resource is kept for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    #[default]
    Free,
    /// A READ.
    Read {
        /// Beginning of the range.
        va: u64,
        /// R_Key.
        rkey: u32,
        /// Length of the range in bytes.
        length: u32,
        /// For XRC: the SRQ that it is for.
        xrc_srqn: Option<U24>,
    },
    /// An ATOMIC.
    Atomic {
        /// The value at the address before.
        original: u64,
    },
    /// A FLUSH.
    Flush,
    /// An ATOMIC WRITE.
    AtomicWrite,
}

/// Which responses are to be sent, counted from the first of the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// The first one of the answer.
    pub(super) begin: u32,
    /// The next one to be sent.
    pub(super) next: u32,
    /// The first one that is not part of the answer.
    pub(super) end: u32,
    /// Where the answer ends in the range of a READ, in bytes.
    pub(super) end_offset: u32,
    /// The peer has asked for them again.
    pub(super) again: bool,
}

/// One READ, ATOMIC, FLUSH or ATOMIC WRITE: an element of a responder's storage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource {
    pub(super) kind: Kind,
    /// PSN of the first response.
    pub(super) first: Psn,
    /// Number of responses.
    pub(super) psns: u32,
    /// The MSN in the responses.
    pub(super) msn: u32,
    /// The responses to be sent now.
    pub(super) run: Option<Run>,
    /// Whether the last response has been sent at least once.
    pub(super) answered: bool,
}

impl Resource {
    /// Whether it must not be overwritten: its request has not been answered yet.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.run.is_some() && !self.answered
    }

    /// Number of the response with this PSN, if there is one.
    #[inline]
    pub(super) fn index_of(&self, psn: Psn) -> Option<u32> {
        let index = psn.steps_from(self.first);
        (!matches!(self.kind, Kind::Free) && index < self.psns).then_some(index)
    }
}
