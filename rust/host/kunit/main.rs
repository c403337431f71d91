// SPDX-License-Identifier: GPL-2.0

//! roce_kunit.ko: the tests of `roce` in the kernel. KUnit runs them when the module is loaded.
//!
//! Each file of `rust/roce/tests` is a suite, each `#[test]` a case.

// The tests are written as programs of the host, where nobody asks for this.
#![allow(missing_docs, unreachable_pub)]
// What becomes of separate programs in one crate, and of a line without its #[test].
#![allow(clippy::duplicate_mod, clippy::empty_line_after_doc_comments)]

// `mod NAME;` for each file.
include!(concat!(env!("FERROCE_KUNIT"), "/suites.rs"));

/// There is nothing to do but to be there.
struct RoceKunit;

impl kernel::Module for RoceKunit {
    fn init(_module: &'static kernel::ThisModule) -> kernel::error::Result<Self> {
        Ok(Self)
    }
}

kernel::prelude::module! {
    type: RoceKunit,
    name: "roce_kunit",
    authors: ["The ferroce developers"],
    description: "KUnit tests of the RoCEv2 protocol",
    license: "GPL v2",
}
