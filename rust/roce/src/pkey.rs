// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Partition keys (IBTA 10.9).

/// The membership bit: full, not limited.
const FULL: u16 = 0x8000;

/// Whether a packet with the partition key `theirs` is for a QP with `ours`: the same partition,
/// and at least one of both a full member (IBTA 10.9.3).
#[inline]
pub const fn matches(ours: u16, theirs: u16) -> bool {
    (ours ^ theirs) & !FULL == 0 && (ours | theirs) & FULL != 0
}
