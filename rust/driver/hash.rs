// SPDX-License-Identifier: GPL-2.0

//! Hashing into tables whose keys are numbers.

/// Entries that have the same hash and yet find room.
const PROBES: u32 = 16;

/// The keys at which what `parts` identify may be, in the order in which they are tried. Context: any.
pub(crate) fn keys(parts: &[&[u8]]) -> impl Iterator<Item = u32> {
    let hash = parts
        .iter()
        .fold(!0, |state, part| sync::crc32_le(state, part));
    let first = hash & !(PROBES.wrapping_sub(1));
    (0..PROBES).map(move |probe| first | probe)
}
