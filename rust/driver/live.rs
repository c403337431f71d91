// SPDX-License-Identifier: GPL-2.0

//! How many objects of each type are alive: what must be zero when the module goes.

use kernel::{
    fmt,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The types of objects that are counted.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Kind {
    Device,
    Context,
    Pd,
    Cq,
    Qp,
    Srq,
    Mr,
    Mw,
    Ah,
    Xrcd,
}

/// Their names, in the order of [`Kind`].
const NAMES: [&str; 10] = [
    "device", "context", "pd", "cq", "qp", "srq", "mr", "mw", "ah", "xrcd",
];

/// Their counts, in the same order.
static COUNTS: [Atomic<i64>; NAMES.len()] = [const { Atomic::new(0) }; NAMES.len()];

/// Adds `n` to the count of `kind`.
#[inline(never)]
fn add(kind: Kind, n: i64) {
    if let Some(count) = COUNTS.get(kind as usize) {
        count.add(n, Relaxed);
    }
}

/// The name and the count of each type.
pub(crate) fn counts() -> impl Iterator<Item = (&'static str, i64)> {
    let counts = COUNTS.iter().map(|count| count.load(Relaxed));
    NAMES.into_iter().zip(counts)
}

/// One object that is alive; a field of the object. Context: any.
pub(crate) struct Live(Kind);

impl Live {
    /// Counts an object of type `kind`.
    pub(crate) fn new(kind: Kind) -> Self {
        add(kind, 1);
        Self(kind)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        add(self.0, -1);
    }
}

/// The sum of all counts.
#[inline(never)]
fn sum() -> i64 {
    counts().fold(0, |sum, (_, count)| sum.wrapping_add(count))
}

/// Whether there is any object, of any type. Context: any.
pub(crate) fn is_any() -> bool {
    sum() != 0
}

/// The sum of all counts, and the types that are not at zero.
pub(crate) struct Summary;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", sum())?;
        counts()
            .filter(|(_, count)| *count != 0)
            .try_for_each(|(name, count)| write!(f, ", {name} {count}"))
    }
}
