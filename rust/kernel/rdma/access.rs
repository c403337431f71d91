// SPDX-License-Identifier: GPL-2.0

//! Access rights of memory regions and QPs.

use core::ops::BitOr;
use rdma_bindings as bindings;

/// A set of access rights (`enum ib_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// No rights beyond local reading, which is always granted.
    pub const NONE: Self = Self(0);
    /// Local write.
    pub const LOCAL_WRITE: Self = Self(bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE);
    /// Remote write.
    pub const REMOTE_WRITE: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE);
    /// Remote read.
    pub const REMOTE_READ: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_READ);
    /// Remote atomic operations.
    pub const REMOTE_ATOMIC: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC);
    /// Remote flushes for global visibility.
    pub const FLUSH_GLOBAL: Self = Self(bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL);
    /// Remote flushes for persistence.
    pub const FLUSH_PERSISTENT: Self = Self(bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT);
    /// Memory windows may be bound.
    pub const MW_BIND: Self = Self(bindings::ib_access_flags_IB_ACCESS_MW_BIND);
    /// Addresses count from zero.
    pub const ZERO_BASED: Self = Self(bindings::ib_access_flags_IB_ZERO_BASED);
    /// Paging on demand.
    pub const ON_DEMAND: Self = Self(bindings::ib_access_flags_IB_ACCESS_ON_DEMAND);
    /// Huge pages hint.
    pub const HUGETLB: Self = Self(bindings::ib_access_flags_IB_ACCESS_HUGETLB);
    /// The flags that a driver may ignore.
    pub const OPTIONAL: Self = Self(bindings::ib_access_flags_IB_ACCESS_OPTIONAL);
    /// Remote flushes of all kinds.
    pub const FLUSH: Self = Self(Self::FLUSH_GLOBAL.0 | Self::FLUSH_PERSISTENT.0);
    /// Those whose memory must be writable (`ib_access_writable()`).
    pub(crate) const WRITABLE: Self =
        Self(Self::LOCAL_WRITE.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0 | Self::MW_BIND.0);
    /// The rights of remote peers to read and write.
    pub const REMOTE: Self =
        Self(Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0);

    /// Makes a set from its bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all rights of `other` are in `self`.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether some right of `other` is in `self`.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The rights of `self` that are not in `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Access {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
