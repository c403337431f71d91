// SPDX-License-Identifier: GPL-2.0

//! Raw bindings to the RDMA and network headers and to our C helpers.
//!
//! Types that the kernel crate binds too are the kernel crate's own, so that a pointer that one crate
//! made can be handed to the other. Only `trace`, `sync`, `net` and `rdma` use this crate.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unknown_lints,
    unnecessary_transmutes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

mod versions;

/// The bindings of the headers, by bindgen.
mod raw {
    use kernel::{
        bindings::*,
        ffi, //
    };
    use pin_init::{
        MaybeZeroable,
        Zeroable, //
    };

    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    // SAFETY: A newtype around `S`: all-zero bytes are one of its values if they are one of `S`'s.
    unsafe impl<S: Zeroable> Zeroable for __BindgenBitfieldUnit<S> {}

    // SAFETY: A marker without content.
    unsafe impl<T> Zeroable for __BindgenUnionField<T> {}

    // bindgen would make one for each type: hundreds of functions that nobody calls, in the module nevertheless.
    impl Default for udp_port_cfg {
        #[inline]
        fn default() -> Self {
            pin_init::zeroed()
        }
    }

    include!(concat!(env!("FERROCE_BINDINGS"), "/bindings_generated.rs"));
}

/// The bindings of our helpers, by bindgen.
mod helpers {
    // Declared, but not defined, in the kernel crate's bindings.
    use super::raw::ib_device;
    // In those of some kernels, too.
    use super::raw::netdevice_tracker;
    use super::raw::*;
    use kernel::{
        bindings::*,
        ffi, //
    };

    include!(concat!(env!("FERROCE_BINDINGS"), "/helpers_generated.rs"));
}

pub use helpers::*;
pub use raw::*;
pub use versions::*;
