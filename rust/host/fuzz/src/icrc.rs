// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The ICRC: in pieces as in one, and as the definition of it says.

use arbitrary::Arbitrary;
use roce::icrc::{
    finish,
    masked_v4,
    masked_v6,
    Crc32,
    SoftCrc32,
    RESIDUE,
    SEED, //
};

#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    is_v6: bool,
    ip: [u8; 40],
    udp: [u8; 8],
    bth: [u8; 12],
    /// What routers make of the fields that may change.
    changed: [u8; 8],
    /// The bit that is damaged.
    damaged: u16,
    cuts: [u8; 6],
    rest: &'a [u8],
}

/// One bit at a time, as the polynomial is defined.
fn definition(data: &[u8]) -> u32 {
    data.iter().fold(SEED, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

/// The state behind the BTH.
fn header(input: &Input<'_>) -> u32 {
    if input.is_v6 {
        SoftCrc32.update(SEED, &masked_v6(&input.ip, &input.udp, &input.bth))
    } else {
        let ip = input.ip[..20].try_into().expect("20 bytes");
        SoftCrc32.update(SEED, &masked_v4(ip, &input.udp, &input.bth))
    }
}

pub fn run(mut input: Input<'_>) {
    let ip_len = if input.is_v6 { 40 } else { 20 };
    let mut whole = vec![0xff; 8];
    whole.extend(&input.ip[..ip_len]);
    whole.extend(input.udp);
    whole.extend(input.bth);
    let masked: &[(usize, u8)] = if input.is_v6 {
        &[(8, 0x0f), (9, 0xff), (10, 0xff), (11, 0xff), (15, 0xff)]
    } else {
        &[(9, 0xff), (16, 0xff), (18, 0xff), (19, 0xff)]
    };
    let bth = 8 + ip_len + 8;
    let late = [(bth - 2, 0xff), (bth - 1, 0xff), (bth + 4, 0xff)];
    for (at, mask) in masked.iter().chain(&late) {
        whole[*at] |= mask;
    }
    let head_len = whole.len();
    whole.extend(input.rest);
    let state = definition(&whole);
    let head = header(&input);
    assert_eq!(head, definition(&whole[..head_len]));

    // In pieces, of any lengths.
    let mut crc = head;
    let mut left = input.rest;
    for cut in input.cuts {
        let (piece, rest) = left.split_at(usize::from(cut).min(left.len()));
        crc = SoftCrc32.update(crc, piece);
        left = rest;
    }
    crc = SoftCrc32.update(crc, left);
    assert_eq!(crc, state);
    assert_eq!(SoftCrc32.update(crc, &finish(crc)), RESIDUE);

    // Damage of one bit shows.
    if !input.rest.is_empty() {
        let bit = usize::from(input.damaged) % (8 * input.rest.len());
        let mut rest = input.rest.to_vec();
        rest[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(SoftCrc32.update(head, &rest), state);
    }

    // What may change on the way does not count.
    let [a, b, c, d, e, f, g, h] = input.changed;
    if input.is_v6 {
        input.ip[0] = input.ip[0] & 0xf0 | a & 0x0f;
        input.ip[1..4].copy_from_slice(&[b, c, d]);
        input.ip[7] = e;
    } else {
        input.ip[1] = a;
        input.ip[8] = b;
        input.ip[10..12].copy_from_slice(&[c, d]);
    }
    input.udp[6..].copy_from_slice(&[f, g]);
    input.bth[4] = h;
    assert_eq!(header(&input), head);
}
