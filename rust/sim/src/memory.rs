// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Memory that the peer may access.

use roce::responder::AtomicOperation;

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
}

/// The memory of one end.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The regions.
    pub regions: [Region; 3],
    /// The keys that the peer has invalidated. None of them is that of a region.
    pub invalidated: Vec<u32>,
}

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
            Region { rkey, bytes }
        });
        Self {
            regions,
            invalidated: Vec::new(),
        }
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
