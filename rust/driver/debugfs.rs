// SPDX-License-Identifier: GPL-2.0

//! Files for tests, in `/sys/kernel/debug/ferroce`.

use crate::live::counts;
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*, //
};

/// Shows all counts: one line `type count` each.
fn show_counts(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    counts().try_for_each(|(name, count)| writeln!(f, "{name} {count}"))
}

/// The module's files; removed when this is dropped.
#[pin_data]
pub(crate) struct Files {
    #[pin]
    live_objects: File<()>,
    _directory: Dir,
}

impl Files {
    /// Makes the files. Context: process, may sleep.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        let directory = Dir::new(c"ferroce");
        let files = directory.clone();
        KBox::try_pin_init(
            try_pin_init!(Self {
                live_objects <- files.read_callback_file(c"live_objects", (), &show_counts),
                _directory: directory,
            }? Error),
            GFP_KERNEL,
        )
    }
}
