// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Numbers that users and peers choose: timer codes, states, attributes, opcodes, syndromes, PSNs.

use arbitrary::Arbitrary;
use roce::{
    opcode::Opcode,
    packet::Syndrome,
    pkey,
    psn::Psn,
    qp::{
        check,
        transition,
        AttrMask,
        Mtu,
        State,
        TransitionError,
        Type, //
    },
    time::{
        ack_timeout,
        rnr_delay,
        Duration,
        Instant, //
    }, //
};

#[derive(Arbitrary, Debug)]
pub struct Input {
    states: [u8; 2],
    ty: u8,
    mask: u32,
    /// Start from what is asked for, and change bits.
    from_required: bool,
    byte: u8,
    pkeys: [u16; 2],
    psn: u32,
    steps: u32,
    time: u64,
    duration: u64,
}

pub fn run(input: Input) {
    transitions(&input);
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

    if let Some(mtu) = Mtu::at_most(input.mask) {
        assert!(mtu.bytes() <= input.mask && 1 << mtu.shift() == mtu.bytes());
    } else {
        assert!(input.mask < 256);
    }
}

fn transitions(input: &Input) {
    let [from, to] = input
        .states
        .map(|state| State::try_from(u32::from(state % 8)));
    let (Ok(from), Ok(to), Ok(ty)) = (from, to, Type::try_from(u32::from(input.ty % 12))) else {
        return;
    };
    let table = transition(from, to, ty);
    let mut mask = AttrMask::from_bits(input.mask);
    if let (true, Some(row)) = (input.from_required, table) {
        mask = AttrMask::from_bits(row.required.bits() ^ (1 << (input.mask % 32)));
    }
    match (check(from, to, ty, mask), table) {
        (Ok(()), Some(row)) => {
            assert!(mask.contains(row.required));
            assert!((row.required | row.optional | AttrMask::STATE).contains(mask));
        }
        (Err(TransitionError::Missing(missing)), Some(row)) => {
            assert!(!missing.is_empty() && row.required.contains(missing));
            assert_eq!(mask.bits() & missing.bits(), 0);
        }
        (Err(TransitionError::Unexpected(unexpected)), Some(row)) => {
            assert!(!unexpected.is_empty() && mask.contains(unexpected));
            let allowed = row.required | row.optional | AttrMask::STATE;
            assert_eq!(allowed.bits() & unexpected.bits(), 0);
        }
        (Err(TransitionError::NotAllowed), None) => {}
        (result, row) => panic!("{result:?} for {row:?}"),
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
        Some(timeout) => assert_eq!(timeout.as_ns(), 4096 << (code & 0x1f)),
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
