// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The path MTU.

/// Path MTU: the longest payload of a packet. The numbers are those of `enum ib_mtu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    M256 = 1,
    /// 512 bytes.
    M512 = 2,
    /// 1024 bytes.
    M1024 = 3,
    /// 2048 bytes.
    M2048 = 4,
    /// 4096 bytes.
    M4096 = 5,
}

impl Mtu {
    /// Every MTU, in ascending order.
    pub const ALL: [Self; 5] = [
        Self::M256,
        Self::M512,
        Self::M1024,
        Self::M2048,
        Self::M4096,
    ];

    /// The MTU in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1u32.wrapping_shl(self.shift())
    }

    /// Binary logarithm of [`bytes`](Self::bytes): 8 to 12. A shift divides faster.
    #[inline]
    pub const fn shift(self) -> u32 {
        (self as u32).wrapping_add(7)
    }

    /// How many packets `len` bytes take, at least one.
    #[inline]
    pub fn packets(self, len: u32) -> u32 {
        len.saturating_add(self.bytes().wrapping_sub(1))
            .wrapping_shr(self.shift())
            .max(1)
    }

    /// The largest MTU of at most `bytes` bytes.
    #[inline]
    pub fn at_most(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }
}

impl TryFrom<u32> for Mtu {
    type Error = ();

    fn try_from(number: u32) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|mtu| *mtu as u32 == number)
            .ok_or(())
    }
}
