// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The parts of a long READ: each is a READ request on the wire.
//!
//! A responder may send all responses to a request, wanted or not, before it looks at a repetition. The requester always asks
//! for one part at least, however small the window of responses is. So a part is half of the window: a small window needs
//! short parts, and long parts cost less in a large one.
//!
//! The requester repeats a part as it was, or the unanswered end of it. A responder finds a duplicate by the request that it
//! repeats (IBTA 9.7.5.1.1). It need not answer a duplicate that goes beyond that request, nor two pieces of one request.

use super::window;

/// The most PSNs of a part. 128 responses keep a link busy for longer than the request for the next part is on its way. A
/// power of two.
const MOST: u32 = 128;

/// The least, but at the end of a READ: a part is never less than the smallest window. A power of two.
const LEAST: u32 = window::LEAST;

/// How many PSNs the parts of READs have: powers of two, counted from the beginning of each READ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// From position `since` on.
    psns: u32,
    /// Before that.
    before: u32,
    since: u64,
}

impl Parts {
    /// For positions from 0 on.
    pub(super) fn new() -> Self {
        Self {
            psns: MOST,
            before: MOST,
            since: 0,
        }
    }

    /// `position` is about to be asked for, for the first time, with this window of responses; everything before `una` is
    /// answered. One change at a time: the size stays as it is while something from before the last change is outstanding.
    pub(super) fn choose(&mut self, una: u64, position: u64, window: u32) {
        let psns = 1u32.wrapping_shl((window / 2).clamp(LEAST, MOST).ilog2());
        if una < self.since && position != self.since {
            return;
        }
        if psns != self.psns {
            if position != self.since {
                self.before = self.psns;
                self.since = position;
            }
            self.psns = psns;
        }
    }

    /// How many PSNs, with that at `position`, the request for it asks for. It belongs to the READ from `first` to `end`.
    #[inline]
    pub(super) fn left(&self, first: u64, end: u64, position: u64) -> u32 {
        let part = if position < self.since {
            self.before
        } else {
            self.psns
        };
        // CAST: A work request has fewer than 2^32 PSNs.
        let done = position.wrapping_sub(first) as u32;
        let left = end.wrapping_sub(position) as u32;
        part.wrapping_sub(done & part.wrapping_sub(1)).min(left)
    }
}
