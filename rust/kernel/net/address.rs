// SPDX-License-Identifier: GPL-2.0

//! IP addresses, which RoCEv2 carries in GIDs.

use kernel::bindings as kernel_bindings;

/// An IP address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

/// The prefix of an IPv4 address in a GID: `::ffff:a.b.c.d`.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl Address {
    /// Returns the address that the RoCEv2 GID `gid` stands for.
    #[inline]
    pub fn from_gid(gid: [u8; 16]) -> Self {
        match gid {
            [prefix @ .., a, b, c, d] if prefix == MAPPED => Self::V4([a, b, c, d]),
            _ => Self::V6(gid),
        }
    }

    /// Returns the RoCEv2 GID that stands for the address.
    #[inline(never)]
    pub fn to_gid(self) -> [u8; 16] {
        match self {
            Self::V4([a, b, c, d]) => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            Self::V6(address) => address,
        }
    }

    /// Returns whether this is an IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        matches!(self, Self::V4(_))
    }

    /// Returns whether this is the address that stands for none.
    #[inline]
    pub fn is_unspecified(self) -> bool {
        match self {
            Self::V4(address) => address == [0; 4],
            Self::V6(address) => address == [0; 16],
        }
    }

    /// Returns whether this is the address of a multicast group.
    pub fn is_multicast(self) -> bool {
        match self {
            Self::V4([first, ..]) => first & 0xf0 == 0xe0,
            Self::V6([first, ..]) => first == 0xff,
        }
    }

    /// Returns whether this is the IPv4 broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::V4([0xff; 4])
    }

    /// Returns whether this is an IPv6 link-local address, which means something on one link only.
    pub fn is_link_local(self) -> bool {
        matches!(self, Self::V6([0xfe, second, ..]) if second & 0xc0 == 0x80)
    }
}

/// Returns an address as C has it.
pub(crate) fn in6_addr(address: [u8; 16]) -> kernel_bindings::in6_addr {
    kernel_bindings::in6_addr {
        in6_u: kernel_bindings::in6_addr__bindgen_ty_1 { u6_addr8: address },
    }
}
