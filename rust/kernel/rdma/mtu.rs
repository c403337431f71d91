// SPDX-License-Identifier: GPL-2.0

//! Path MTUs.

/// Bytes that RoCEv2 may add around a payload, as `iboe_get_mtu()` has it, by which `rdma_cm` chooses path MTUs: IPv6,
/// UDP, BTH, XRCETH and AtomicETH headers and ICRC take 40 + 8 + 12 + 4 + 28 + 4 bytes.
pub const HEADROOM: u32 = 96;

/// A path MTU (`enum ib_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// The largest MTU whose packets fit a netdev MTU of `bytes`; 256 if none does.
    pub const fn of_netdev(bytes: u32) -> Self {
        match bytes.saturating_sub(HEADROOM) {
            4096.. => Self::Mtu4096,
            2048.. => Self::Mtu2048,
            1024.. => Self::Mtu1024,
            512.. => Self::Mtu512,
            _ => Self::Mtu256,
        }
    }

    /// The MTU's number in `enum ib_mtu`.
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The MTU in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Mtu256 => 256,
            Self::Mtu512 => 512,
            Self::Mtu1024 => 1024,
            Self::Mtu2048 => 2048,
            Self::Mtu4096 => 4096,
        }
    }
}
