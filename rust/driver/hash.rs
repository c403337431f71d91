// SPDX-License-Identifier: GPL-2.0

//! Hashing into tables whose keys are numbers.

use core::ops::RangeInclusive;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use rdma::gid::Gid;
use sync::RcuTable;

/// Entries that have the same hash and yet find room.
const PROBES: u32 = 16;

/// The bits of a key. An xarray has a level of nodes for six bits, so a look-up passes four.
const KEYS: u32 = 0x00ff_ffff;

/// The factor of each word: odd, with bits all over (2^64 over the golden ratio).
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;

/// A process must not guess this: it could choose addresses that take the places of somebody else's.
static SECRET: Atomic<u64> = Atomic::new(0);

/// Chooses the secret. Context: any, before anything is hashed.
pub(crate) fn begin() {
    let [high, low] = [sync::random_u32(), sync::random_u32()].map(u64::from);
    SECRET.store(high << 32 | low, Relaxed);
}

/// The keys at which what `words` identify may be, in the order in which they are tried. Context: any.
#[inline]
pub(crate) fn keys<const N: usize>(words: [u64; N]) -> RangeInclusive<u32> {
    // Each packet is looked up so: nothing that needs the FPU, as CRCs do.
    let mut hash = SECRET.load(Relaxed);
    for word in words {
        let product = u128::from(hash ^ word).wrapping_mul(FACTOR);
        // CAST: The lower half, and the upper one: each of its bits depends on all of the word's.
        hash = product as u64 ^ (product >> 64) as u64;
    }
    // CAST: The lower half.
    let last = hash as u32 & KEYS | (PROBES - 1);
    last & !(PROBES - 1)..=last
}

/// The two words of a GID.
#[inline]
pub(crate) fn words_of(gid: &Gid) -> [u64; 2] {
    let bits = u128::from_ne_bytes(*gid);
    // CAST: The lower half, and the upper one.
    [bits as u64, (bits >> 64) as u64]
}

/// Puts `value` at the first of these keys that is free. Errors: `ENOSPC` if none is. Context: process, may sleep.
pub(crate) fn insert<T: Send + Sync + 'static>(
    table: &RcuTable<T>,
    keys: RangeInclusive<u32>,
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
#[inline(never)]
pub(crate) fn remove<T: Send + Sync + 'static>(
    table: &RcuTable<T>,
    keys: RangeInclusive<u32>,
    value: &Arc<T>,
) {
    for key in keys {
        table.remove_if(key, value);
    }
}
