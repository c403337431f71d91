// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Responses that came before their turn.

/// How far ahead of what is missing a response may be and still be taken, in positions.
pub(super) const MAX_AHEAD: u64 = 256;

/// Which positions are answered although something before them is not: those at a distance of 0 to
/// [`MAX_AHEAD`] from `una`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// The lowest bit of the first word is for distance 0.
    words: [u64; 4],
}

impl Ahead {
    /// Whether the position at `distance` is answered.
    #[inline]
    pub(super) fn contains(&self, distance: u64) -> bool {
        let word = self.words.get((distance >> 6) as usize);
        word.is_some_and(|word| word.wrapping_shr(distance as u32 & 63) & 1 == 1)
    }

    /// The position at `distance` is answered. Nothing happens if that is too far.
    #[inline]
    pub(super) fn insert(&mut self, distance: u64) {
        if let Some(word) = self.words.get_mut((distance >> 6) as usize) {
            *word |= 1u64.wrapping_shl(distance as u32 & 63);
        }
    }

    /// The distance of the first position that is answered.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        // As a rule there is none.
        if self.words.iter().fold(0, |all, word| all | word) == 0 {
            return None;
        }
        let words = self.words.iter().zip([0u64, 64, 128, 192]);
        let mut set = words.filter(|(word, _)| **word != 0);
        let (word, base) = set.next()?;
        Some(base.wrapping_add(u64::from(word.trailing_zeros())))
    }

    /// `una` goes on by `count`.
    #[inline]
    pub(super) fn advance(&mut self, count: u64) {
        let [a, b, c, d] = self.words;
        let [a, b, c, d] = match count >> 6 {
            0 => [a, b, c, d],
            1 => [b, c, d, 0],
            2 => [c, d, 0, 0],
            3 => [d, 0, 0, 0],
            _ => [0; 4],
        };
        let bits = count as u32 & 63;
        self.words = if bits == 0 {
            [a, b, c, d]
        } else {
            let join = |low: u64, high: u64| {
                low.wrapping_shr(bits) | high.wrapping_shl(64u32.wrapping_sub(bits))
            };
            [join(a, b), join(b, c), join(c, d), join(d, 0)]
        };
    }
}
