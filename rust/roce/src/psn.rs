// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Packet sequence numbers: arithmetic on a circle of 2^24 numbers (IBTA 9.7.1).

/// Number of PSNs on the circle.
const COUNT: u32 = 1 << 24;

/// The bits of a PSN.
const MASK: u32 = COUNT - 1;

/// Half the circle: a PSN less than this far ahead of another is "after" it.
const HALF: u32 = COUNT / 2;

/// A packet sequence number.
///
/// PSNs are ordered only in the neighbourhood of each other, which is why the type has no `Ord`:
/// of two PSNs, the one that is reached from the other in fewer than 2^23 steps forward is the
/// later one. At a distance of exactly 2^23 each is before the other.
///
/// # Invariants
///
/// The number is below 2^24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The PSN in the lower 24 bits of `value`. The upper 8 are ignored.
    #[inline]
    pub const fn new(value: u32) -> Self {
        // INVARIANT: the mask keeps 24 bits.
        Self(value & MASK)
    }

    /// The number, in `0..2^24`.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` steps forward.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` steps back.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub const fn sub(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// The PSN that follows.
    #[inline]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The signed distance `self - other`, in `[-2^23, 2^23)`.
    ///
    /// ```
    /// use roce::psn::Psn;
    ///
    /// assert_eq!(Psn::new(1).diff(Psn::new(0xff_ffff)), 2);
    /// ```
    #[inline]
    pub const fn diff(self, other: Self) -> i32 {
        // Moving bit 23 into the sign position and back extends the sign.
        (self.0.wrapping_sub(other.0).wrapping_shl(8) as i32).wrapping_shr(8)
    }

    /// Number of steps forward from `other` to `self`, in `0..2^24`.
    #[inline]
    pub const fn steps_from(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0) & MASK
    }

    /// Whether `self` is earlier than `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.steps_from(other) >= HALF
    }

    /// Whether `self` is later than `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        self.diff(other) > 0
    }
}
