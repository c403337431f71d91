// SPDX-License-Identifier: GPL-2.0

//! Vectors that are allocated once.
//!
//! The kernel's vectors do sums that their invariants keep from overflowing, but the compiler does not
//! know that. They are done here and nowhere else, so that `scripts/checks/panics.allowed` need not
//! except whole functions of the driver.

use core::ops::{
    Deref,
    DerefMut, //
};
use kernel::{
    alloc::{
        flags::__GFP_NOWARN,
        Allocator,
        Vec, //
    },
    prelude::*, //
};

/// Allocates a vector of `len` elements. The memory is charged to the calling process's cgroup.
/// Context: process, may sleep.
#[inline(never)]
pub(crate) fn filled<T>(len: usize, mut make: impl FnMut() -> Result<T>) -> Result<KVVec<T>> {
    // The process chooses the size, so a failure deserves no warning of the kernel.
    let mut vector = KVVec::with_capacity(len, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?;
    for _ in 0..len {
        vector.push_within_capacity(make()?).map_err(|_| ENOMEM)?;
    }
    Ok(vector)
}

/// Bytes that are allocated once, in blocks: to fill them in one by one takes ten times as long.
pub(crate) struct Bytes(KVVec<[u8; Bytes::BLOCK]>);

impl Bytes {
    /// So many that the compiler calls `memset()` instead of having a loop of stores unrolled.
    const BLOCK: usize = 256;

    /// Allocates `len` zeroes, or a few more. As [`filled`].
    pub(crate) fn zeroes(len: usize) -> Result<Self> {
        let blocks = len.div_ceil(Self::BLOCK);
        Ok(Self(filled(blocks, || Ok([0; Self::BLOCK]))?))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

impl DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_flattened_mut()
    }
}

/// Appends an element. The memory is charged to the calling process's cgroup. Context: process, may sleep.
#[inline(never)]
pub(crate) fn append<T, A: Allocator>(vector: &mut Vec<T, A>, value: T) -> Result {
    Ok(vector.push(value, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?)
}

/// Takes the element at `index` out. Context: any.
#[inline(never)]
pub(crate) fn take<T>(vector: &mut KVec<T>, index: usize) -> Option<T> {
    vector.remove(index).ok()
}
