// SPDX-License-Identifier: GPL-2.0

//! Hashing into tables whose keys are numbers.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use sync::RcuTable;

/// Entries that have the same hash and yet find room.
const PROBES: u32 = 16;

/// What multiplies each word: odd, with bits all over (2^64 over the golden ratio).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The keys at which what `parts` identify may be, in the order in which they are tried. Context: any.
#[inline]
pub(crate) fn keys(parts: &[&[u8]]) -> impl Iterator<Item = u32> {
    // Each packet is looked up so: nothing that needs the FPU, as CRCs do.
    let words = parts.iter().flat_map(|part| part.chunks(size_of::<u64>()));
    let hash = words.fold(0u64, |state, word| {
        let mixed = (state ^ word_of(word)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 32)
    });
    // CAST: The lower half.
    let first = hash as u32 & !(PROBES.wrapping_sub(1));
    (0..PROBES).map(move |probe| first | probe)
}

/// Puts `value` at the first of these keys that is free. Errors: `ENOSPC` if none is. Context: process, may sleep.
pub(crate) fn insert<T: Send + Sync + 'static>(
    table: &RcuTable<T>,
    keys: impl Iterator<Item = u32>,
    value: &Arc<T>,
) -> Result {
    for key in keys {
        match table.insert(key, value.clone()) {
            Err(error) if error == EBUSY => {}
            other => return other,
        }
    }
    Err(ENOSPC)
}

/// Removes `value` from these keys, wherever it is. Context: process.
pub(crate) fn remove<T: Send + Sync + 'static>(
    table: &RcuTable<T>,
    keys: impl Iterator<Item = u32>,
    value: &Arc<T>,
) {
    for key in keys {
        table.remove_if(key, value);
    }
}

/// The number in a chunk of up to eight bytes.
#[inline]
fn word_of(chunk: &[u8]) -> u64 {
    if let Ok(bytes) = chunk.try_into() {
        return u64::from_ne_bytes(bytes);
    }
    chunk
        .iter()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}
