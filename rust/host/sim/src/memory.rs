// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Memory that the peer may access.

use roce::{
    packet::Flush,
    responder::AtomicOperation, //
};

use crate::{
    rng::Rng,
    scenario::{
        ATOMIC_KEY,
        READ_KEY,
        REGION_VA,
        WRITE_KEY, //
    }, //
};

/// A region with a key.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its key.
    pub rkey: u32,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Its contents as far as they were flushed: what a machine without power would still have.
    pub durable: Vec<u8>,
}

impl Region {
    /// Flushes, if all of what is to be flushed is there. Returns whether it is.
    pub fn flush(&mut self, flush: Flush, va: u64, length: u32) -> bool {
        let range = if flush.is_region() {
            0..self.bytes.len()
        } else {
            let Ok(offset) = usize::try_from(va.wrapping_sub(REGION_VA)) else {
                return false;
            };
            offset..offset.saturating_add(length as usize)
        };
        match (self.durable.get_mut(range.clone()), self.bytes.get(range)) {
            (Some(durable), Some(bytes)) => {
                durable.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }
}

/// The memory of one end.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The regions.
    pub regions: [Region; 3],
    /// The keys that the peer has invalidated. None of them is that of a region.
    pub invalidated: Vec<u32>,
    /// The FLUSHes of the peer, in the order in which they were done.
    pub flushes: Vec<Flushed>,
}

/// A FLUSH as it was done: R_Key, what, address, length.
pub type Flushed = (u32, Flush, u64, u32);

impl Memory {
    /// Memory full of random bytes: regions of `len` bytes.
    pub fn new(rng: &mut Rng, len: usize) -> Self {
        let regions = [WRITE_KEY, READ_KEY, ATOMIC_KEY].map(|rkey| {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            if rkey == ATOMIC_KEY {
                // So that they compare equal now and then.
                bytes[..64].fill(0);
            }
            Region {
                rkey,
                durable: bytes.clone(),
                bytes,
            }
        });
        Self {
            regions,
            invalidated: Vec::new(),
            flushes: Vec::new(),
        }
    }

    /// Flushes, if all of what is to be flushed is there. Returns whether it is.
    pub fn flush(&mut self, flushed: Flushed) -> bool {
        let (rkey, flush, va, length) = flushed;
        let region = self.regions.iter_mut().find(|region| region.rkey == rkey);
        let is_done = region.is_some_and(|region| region.flush(flush, va, length));
        if is_done {
            self.flushes.push(flushed);
        }
        is_done
    }

    /// A range of a region, if all of it is there.
    pub fn range(&mut self, rkey: u32, va: u64, length: u32) -> Option<&mut [u8]> {
        let region = self.regions.iter_mut().find(|region| region.rkey == rkey)?;
        let offset = usize::try_from(va.wrapping_sub(REGION_VA)).ok()?;
        let end = offset.checked_add(length as usize)?;
        region.bytes.get_mut(offset..end)
    }
}

/// What an atomic operation makes of a value.
pub fn apply(original: u64, operation: AtomicOperation) -> u64 {
    match operation {
        AtomicOperation::CompareSwap { compare, swap } if original == compare => swap,
        AtomicOperation::CompareSwap { .. } => original,
        AtomicOperation::FetchAdd { add } => original.wrapping_add(add),
    }
}
