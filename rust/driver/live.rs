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
#[derive(Clone, Copy, PartialEq, Eq)]
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
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Device,
        Self::Context,
        Self::Pd,
        Self::Cq,
        Self::Qp,
        Self::Srq,
        Self::Mr,
        Self::Mw,
        Self::Ah,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Context => "context",
            Self::Pd => "pd",
            Self::Cq => "cq",
            Self::Qp => "qp",
            Self::Srq => "srq",
            Self::Mr => "mr",
            Self::Mw => "mw",
            Self::Ah => "ah",
        }
    }

    fn count(self) -> &'static Atomic<i64> {
        static DEVICE: Atomic<i64> = Atomic::new(0);
        static CONTEXT: Atomic<i64> = Atomic::new(0);
        static PD: Atomic<i64> = Atomic::new(0);
        static CQ: Atomic<i64> = Atomic::new(0);
        static QP: Atomic<i64> = Atomic::new(0);
        static SRQ: Atomic<i64> = Atomic::new(0);
        static MR: Atomic<i64> = Atomic::new(0);
        static MW: Atomic<i64> = Atomic::new(0);
        static AH: Atomic<i64> = Atomic::new(0);
        match self {
            Self::Device => &DEVICE,
            Self::Context => &CONTEXT,
            Self::Pd => &PD,
            Self::Cq => &CQ,
            Self::Qp => &QP,
            Self::Srq => &SRQ,
            Self::Mr => &MR,
            Self::Mw => &MW,
            Self::Ah => &AH,
        }
    }
}

/// One object that is alive; a field of the object. Context: any.
pub(crate) struct Live(Kind);

impl Live {
    /// Counts an object of type `kind`.
    pub(crate) fn new(kind: Kind) -> Self {
        kind.count().add(1, Relaxed);
        Self(kind)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.count().add(-1, Relaxed);
    }
}

/// Whether there is any object, of any type. Context: any.
pub(crate) fn is_any() -> bool {
    let mut kinds = Kind::ALL.iter();
    kinds.any(|kind| kind.count().load(Relaxed) != 0)
}

/// All counts: one line `type count` each.
pub(crate) struct Counts;

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            writeln!(f, "{} {}", kind.name(), kind.count().load(Relaxed))?;
        }
        Ok(())
    }
}

/// The sum of all counts, and the types that are not at zero.
pub(crate) struct Summary;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sum: i64 = 0;
        for kind in Kind::ALL {
            sum = sum.wrapping_add(kind.count().load(Relaxed));
        }
        write!(f, "{sum}")?;
        for kind in Kind::ALL {
            let count = kind.count().load(Relaxed);
            if count != 0 {
                write!(f, ", {} {count}", kind.name())?;
            }
        }
        Ok(())
    }
}
