// SPDX-License-Identifier: GPL-2.0

//! As much of `std` as the tests use. rustc takes it for `std`: its prelude and its macros are in scope without
//! being named.
//!
//! What asserts ends the KUnit case. A panic that is not written in a test - in `roce`, in `unwrap()` - is the
//! kernel's: a BUG in the thread of the case.

#[doc(hidden)]
pub use kunit_harness as harness;

pub use alloc::{
    boxed,
    fmt,
    format,
    string,
    vec, //
};
pub use core::{
    cell,
    debug_assert,
    debug_assert_eq,
    iter,
    marker,
    matches,
    ops,
    result,
    write,
    writeln, //
};

pub mod prelude {
    //! What is in scope everywhere.

    pub mod rust_2021 {
        //! In this edition.

        pub use alloc::{
            borrow::ToOwned,
            boxed::Box,
            string::{
                String,
                ToString, //
            },
            vec::Vec, //
        };
        pub use core::prelude::rust_2021::*;
    }
}

/// Fails the case.
#[macro_export]
macro_rules! panic {
    () => {
        $crate::panic!("explicit panic")
    };
    ($($message:tt)+) => {
        $crate::harness::fail(
            const { $crate::harness::c_str(::core::concat!(::core::file!(), "\0")) },
            ::core::line!(),
            ::core::format_args!($($message)+),
        )
    };
}

/// Fails the case unless a condition holds.
#[macro_export]
macro_rules! assert {
    ($condition:expr $(,)?) => {
        if !$condition {
            $crate::panic!("{}", ::core::stringify!($condition))
        }
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::panic!("{}: {}", ::core::stringify!($condition), ::core::format_args!($($message)+))
        }
    };
}

/// Fails the case unless two values are equal.
#[macro_export]
macro_rules! assert_eq {
    ($left:expr, $right:expr $(,)?) => {
        $crate::assert_eq!($left, $right, "they differ")
    };
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) => {
                if !(*left == *right) {
                    $crate::panic!(
                        "{} == {}: {}\n left: {left:?}\nright: {right:?}",
                        ::core::stringify!($left),
                        ::core::stringify!($right),
                        ::core::format_args!($($message)+)
                    )
                }
            }
        }
    };
}
