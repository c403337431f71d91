// SPDX-License-Identifier: GPL-2.0

//! Error codes that the kernel crate does not have.

use kernel::{
    bindings,
    error::Error, //
};

/// `EOPNOTSUPP`: the device does not do that.
pub fn not_supported() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as i32))
}

/// `EPROTONOSUPPORT`: that kind of device cannot be used.
pub fn protocol_not_supported() -> Error {
    Error::from_errno(-(bindings::EPROTONOSUPPORT as i32))
}

/// `EADDRINUSE`: somebody else has the address.
pub fn address_in_use() -> Error {
    Error::from_errno(-(bindings::EADDRINUSE as i32))
}

/// `ENETDOWN`: the network device is going away.
pub fn network_down() -> Error {
    Error::from_errno(-(bindings::ENETDOWN as i32))
}
