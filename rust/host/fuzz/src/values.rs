// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Numbers that users and peers choose: timer codes, opcodes, syndromes, PSNs.

use arbitrary::Arbitrary;
use roce::{
    opcode::Opcode,
    packet::Syndrome,
    pkey,
    psn::Psn,
    qp::Mtu,
    time::{
        ack_timeout,
        rnr_delay,
        Duration,
        Instant, //
    }, //
};

#[derive(Arbitrary, Debug)]
pub struct Input {
    mtu: u32,
    byte: u8,
    pkeys: [u16; 2],
    psn: u32,
    steps: u32,
    time: u64,
    duration: u64,
}

pub fn run(input: Input) {
    times(&input);
    psns(&input);

    let byte = input.byte;
    if let Ok(opcode) = Opcode::try_from(byte) {
        assert_eq!(opcode as u8, byte);
        assert!(!opcode.is_request() || !opcode.is_response());
        assert!(opcode.header_len() <= roce::packet::MAX_HEADER_LEN);
    } else {
        assert!(Opcode::ALL.iter().all(|opcode| *opcode as u8 != byte));
    }
    let syndrome = Syndrome::from_byte(byte);
    assert_eq!(Syndrome::from_byte(syndrome.to_byte()), syndrome);

    // The same partition, and one of both a full member.
    let [a, b] = input.pkeys;
    let same = a & 0x7fff == b & 0x7fff && (a | b) & 0x8000 != 0;
    assert_eq!(pkey::matches(a, b), pkey::matches(b, a));
    assert!(!pkey::matches(a, b) || same);

    if let Some(mtu) = Mtu::at_most(input.mtu) {
        assert!(mtu.bytes() <= input.mtu && 1 << mtu.shift() == mtu.bytes());
    } else {
        assert!(input.mtu < 256);
    }
}

fn times(input: &Input) {
    let code = input.byte;
    let delay = rnr_delay(code);
    assert_eq!(delay, rnr_delay(code & 0x1f));
    assert!(delay >= Duration::from_us(10) && delay <= Duration::from_us(655_360));
    if (1..31).contains(&code) {
        assert!(delay < rnr_delay(code + 1));
    }
    match ack_timeout(code) {
        None => assert_eq!(code & 0x1f, 0),
        Some(timeout) => assert_eq!(timeout.as_ns(), 4096 << (code & 0x1f).max(10)),
    }
    let then = Instant::from_ns(input.time);
    let later = then.add(Duration::from_ns(input.duration));
    assert!(later >= then && later.since(then).as_ns() <= input.duration);
    assert_eq!(then.since(later), Duration::ZERO);
}

fn psns(input: &Input) {
    let psn = Psn::new(input.psn);
    let steps = input.steps & 0xff_ffff;
    let other = psn.add(input.steps);
    assert_eq!(other.sub(input.steps), psn);
    assert_eq!(other.steps_from(psn), steps);
    assert_eq!(psn.add(other.diff(psn) as u32), other);
    assert_eq!(other.is_after(psn), (1..1 << 23).contains(&steps));
    assert_eq!(other.is_before(psn), steps >= 1 << 23);
    assert_eq!(psn.next().sub(1), psn);
}
