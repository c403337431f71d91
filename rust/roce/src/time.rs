// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Time as the protocol sees it: nanoseconds on a clock that the caller reads.

/// A point in time: nanoseconds since some fixed moment, on a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point `ns` nanoseconds after the clock's zero.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The point `duration` later; the end of time if that is beyond it.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `ns` nanoseconds.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds, saturating.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds, saturating.
    #[inline]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Nanoseconds.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

/// How long a requester waits after an RNR NAK with the 5-bit timer `code` (IBTA 9.7.5.2.8,
/// table 45): 10 us to 655.36 ms. Bits above the lower five are ignored.
///
/// The codes are not in order of time: 0 is the longest.
pub const fn rnr_delay(code: u8) -> Duration {
    // In units of 10 us, as the specification's table is.
    let tens: u64 = match code & 0x1f {
        0 => 65_536,
        1 => 1,
        2 => 2,
        3 => 3,
        // From here on, each pair of codes doubles the pair before: 4, 6, 8, 12, 16, 24, ...
        even @ (4 | 6 | 8 | 10 | 12 | 14 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30) => {
            2u64.wrapping_shl((even >> 1) as u32).wrapping_shr(1)
        }
        odd => 3u64.wrapping_shl((odd >> 1) as u32).wrapping_shr(1),
    };
    Duration::from_us(tens.saturating_mul(10))
}

/// The local ACK timeout that smaller ones count as: 4.2 ms. A round trip through software takes longer than the smallest
/// ones. Programs ask for them all the same: RDMA network cards have a least timeout, too.
const LEAST_ACK_TIMEOUT: u32 = 10;

/// How long a requester waits for an acknowledgement, from the 5-bit local ACK timeout `code`
/// (IBTA 9.7.6.1.3): 4.096 us times 2^code, but not less than 4.2 ms, or `None` for 0, which means for ever. Bits above
/// the lower five are ignored.
#[inline]
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    let exponent = match (code & 0x1f) as u32 {
        0 => return None,
        1..LEAST_ACK_TIMEOUT => LEAST_ACK_TIMEOUT,
        exponent => exponent,
    };
    Some(Duration::from_ns(4_096u64.wrapping_shl(exponent)))
}
