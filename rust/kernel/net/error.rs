// SPDX-License-Identifier: GPL-2.0

//! Error numbers of the network that the kernel crate does not name.

use kernel::{
    bindings,
    error::Error, //
};

/// Address family not supported: there is no IPv6.
pub(crate) fn eafnosupport() -> Error {
    from_code(bindings::EAFNOSUPPORT)
}

/// Cannot assign requested address: it is not ours, or none that one sends to.
pub(crate) fn eaddrnotavail() -> Error {
    from_code(bindings::EADDRNOTAVAIL)
}

/// No route to host.
pub(crate) fn ehostunreach() -> Error {
    from_code(bindings::EHOSTUNREACH)
}

fn from_code(code: u32) -> Error {
    // CAST: Error numbers are small.
    Error::from_errno((code as i32).wrapping_neg())
}
