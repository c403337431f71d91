// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Timer codes and time arithmetic.

use roce::time::{
    ack_timeout,
    rnr_delay,
    Duration,
    Instant, //
};

/// IBTA table 45, in microseconds.
const RNR_US: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

#[test]
fn rnr_delay_is_the_table() {
    for (code, us) in RNR_US.into_iter().enumerate() {
        assert_eq!(rnr_delay(code as u8), Duration::from_us(us), "code {code}");
        assert_eq!(rnr_delay(code as u8 | 0xe0), Duration::from_us(us));
    }
}

#[test]
fn ack_timeout_doubles() {
    assert_eq!(ack_timeout(0), None);
    assert_eq!(ack_timeout(0x20), None);
    for code in 1..32 {
        let ns = 4_096 << code.max(10);
        assert_eq!(ack_timeout(code), Some(Duration::from_ns(ns)));
    }
}

#[test]
fn time_saturates() {
    let end = Instant::from_ns(u64::MAX);
    assert_eq!(end.add(Duration::from_ns(1)), end);
    assert_eq!(Instant::from_ns(3).since(end), Duration::ZERO);
    assert_eq!(end.since(Instant::from_ns(3)).as_ns(), u64::MAX - 3);
    assert_eq!(Duration::from_ms(u64::MAX).as_ns(), u64::MAX);
    assert_eq!(Duration::from_ms(2), Duration::from_us(2_000));
}
