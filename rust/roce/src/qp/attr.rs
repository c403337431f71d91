// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Attributes of a queue pair.

/// Names of the bits of an [`AttrMask`], one constant and one text each.
macro_rules! attrs {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl AttrMask {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// Every attribute that has a name, with it, in ascending order of bit.
            pub const NAMES: &'static [(Self, &'static str)] = &[
                $((Self::$name, stringify!($name)),)*
            ];
        }
    };
}

/// A set of attributes, with the bits of `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttrMask(u32);

attrs! {
    /// The next state.
    STATE = 0;
    /// The state that the QP is believed to be in.
    CUR_STATE = 1;
    /// Whether an event tells that the send queue is drained.
    EN_SQD_ASYNC_NOTIFY = 2;
    /// What the peer may do to memory: read, write, atomics.
    ACCESS_FLAGS = 3;
    /// Index into the port's P_Key table.
    PKEY_INDEX = 4;
    /// Number of the port.
    PORT = 5;
    /// The Q_Key of a datagram QP.
    QKEY = 6;
    /// Address vector: the way to the peer.
    AV = 7;
    /// Path MTU.
    PATH_MTU = 8;
    /// Local ACK timeout.
    TIMEOUT = 9;
    /// How often a request is sent again after a timeout or a sequence error.
    RETRY_CNT = 10;
    /// How often a request is sent again after an RNR NAK.
    RNR_RETRY = 11;
    /// The first PSN that is expected.
    RQ_PSN = 12;
    /// READs and atomics that may be outstanding as requester.
    MAX_QP_RD_ATOMIC = 13;
    /// The alternate path.
    ALT_PATH = 14;
    /// What an RNR NAK tells the peer to wait.
    MIN_RNR_TIMER = 15;
    /// The first PSN that is sent.
    SQ_PSN = 16;
    /// READs and atomics that may be outstanding as responder.
    MAX_DEST_RD_ATOMIC = 17;
    /// Path migration state.
    PATH_MIG_STATE = 18;
    /// Sizes of the queues.
    CAP = 19;
    /// The peer's QP number.
    DEST_QPN = 20;
    /// Rate limit; raw packet QPs only.
    RATE_LIMIT = 25;
}

impl AttrMask {
    /// No attribute.
    pub const NONE: Self = Self(0);

    /// The set with the bits of `bits`; those without a name too.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is in the set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// What is in either set.
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this set and not in `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl core::ops::BitOr for AttrMask {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

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
