// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The ICRC: known values, and which bits count.

use proptest::prelude::*;
use roce::icrc::{
    finish,
    masked_v4,
    masked_v6,
    seal,
    Crc32,
    SoftCrc32,
    LRH_LEN,
    RESIDUE,
    SEED, //
};

/// The CRC from its definition, one bit at a time.
struct BitCrc32;

impl Crc32 for BitCrc32 {
    fn update(&self, crc: u32, data: &[u8]) -> u32 {
        data.iter().fold(crc, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 }
            })
        })
    }
}

/// A SEND of nine bytes over IPv4, from the IP header to the ICRC. The ICRC was computed by Scapy
/// 2.8.0 (contrib.roce).
#[rustfmt::skip]
const PACKET_V4: [u8; 56] = [
    0x45, 0x02, 0x00, 0x38, 0x12, 0x34, 0x40, 0x00, 0x11, 0x11, 0x43, 0x7d,
    0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02,
    0xc1, 0x23, 0x12, 0xb7, 0x00, 0x24, 0x9c, 0x74,
    0x04, 0xf0, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x00, 0x00, 0x00,
    0x45, 0xf4, 0x54, 0x58,
];

/// The same over IPv6.
#[rustfmt::skip]
const PACKET_V6: [u8; 76] = [
    0x61, 0x25, 0x43, 0x21, 0x00, 0x24, 0x11, 0x21,
    0xfd, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
    0xfd, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
    0xc1, 0x23, 0x12, 0xb7, 0x00, 0x24, 0x00, 0x00,
    0x04, 0x70, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x07,
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x00, 0x00, 0x00,
    0x05, 0x6b, 0xe9, 0x4e,
];

/// The state of the CRC after the whole of `packet`, a UDP datagram over the IP version that its
/// first byte names, without the last `without` bytes.
fn state(crc: &impl Crc32, packet: &[u8], without: usize) -> u32 {
    let packet = &packet[..packet.len() - without];
    let (headers, rest) = if packet[0] >> 4 == 4 {
        let (ip, rest) = packet.split_first_chunk().unwrap();
        let (udp, rest) = rest.split_first_chunk().unwrap();
        let (bth, rest) = rest.split_first_chunk().unwrap();
        (crc.update(SEED, &masked_v4(ip, udp, bth)), rest)
    } else {
        let (ip, rest) = packet.split_first_chunk().unwrap();
        let (udp, rest) = rest.split_first_chunk().unwrap();
        let (bth, rest) = rest.split_first_chunk().unwrap();
        (crc.update(SEED, &masked_v6(ip, udp, bth)), rest)
    };
    crc.update(headers, rest)
}

#[test]
fn crc_has_its_check_value() {
    assert_eq!(!SoftCrc32.update(SEED, b"123456789"), 0xcbf4_3926);
    assert_eq!(!BitCrc32.update(SEED, b"123456789"), 0xcbf4_3926);
}

#[test]
fn icrc_is_that_of_others() {
    for packet in [&PACKET_V4[..], &PACKET_V6[..]] {
        let icrc = &packet[packet.len() - 4..];
        assert_eq!(finish(state(&SoftCrc32, packet, 4)), icrc);
        assert_eq!(finish(state(&BitCrc32, packet, 4)), icrc);
    }
}

#[test]
fn residue_tells_a_good_packet() {
    for packet in [&PACKET_V4[..], &PACKET_V6[..]] {
        assert_eq!(state(&SoftCrc32, packet, 0), RESIDUE);
    }
}

/// A sender writes it, and sees its headers as they were, or as the ICRC covers them.
#[test]
fn sender_seals() {
    for packet in [&PACKET_V4[..], &PACKET_V6[..]] {
        let sealed = [&[0xa5; LRH_LEN], packet].concat();
        let mut bytes = sealed.to_vec();
        let icrc = bytes.len() - 4;
        bytes[icrc..].fill(0);
        let crc32 = |crc, data: &[u8]| SoftCrc32.update(crc, data);
        assert_eq!(seal(&mut bytes, false, crc32), Some(()));
        assert_eq!(bytes, sealed);

        bytes[icrc..].fill(0);
        assert_eq!(seal(&mut bytes, true, crc32), Some(()));
        assert_eq!(bytes[icrc..], sealed[icrc..]);
        assert_eq!(SoftCrc32.update(SEED, &bytes), RESIDUE);

        let headers = LRH_LEN + if packet[0] >> 4 == 4 { 40 } else { 60 };
        assert_eq!(seal(&mut bytes[..headers + 3], false, crc32), None);
    }
}

/// Each single bit counts, or is masked.
#[test]
fn exactly_the_variant_fields_do_not_matter() {
    let masked_v4 = |byte, _bit| matches!(byte, 1 | 8 | 10 | 11 | 26 | 27 | 32);
    let masked_v6 = |byte, bit| matches!((byte, bit), (0, 0..4) | (1..4 | 7 | 46 | 47 | 52, _));

    fn flip_each(packet: &[u8], masked: impl Fn(usize, u32) -> bool) {
        let good = state(&SoftCrc32, packet, 4);
        for byte in 0..packet.len() - 4 {
            for bit in 0..8 {
                // The version of IP says which header it is: not for flipping here.
                if byte == 0 && bit >= 4 {
                    continue;
                }
                let mut flipped = packet.to_vec();
                flipped[byte] ^= 1 << bit;
                let same = state(&SoftCrc32, &flipped, 4) == good;
                assert_eq!(same, masked(byte, bit), "byte {byte}, bit {bit}");
            }
        }
    }
    flip_each(&PACKET_V4, masked_v4);
    flip_each(&PACKET_V6, masked_v6);
}

proptest! {
    #[test]
    fn table_is_the_definition(crc: u32, data: Vec<u8>) {
        prop_assert_eq!(SoftCrc32.update(crc, &data), BitCrc32.update(crc, &data));
    }

    #[test]
    fn pieces_make_the_whole(crc: u32, a: Vec<u8>, b: Vec<u8>) {
        let whole = [&a[..], &b[..]].concat();
        prop_assert_eq!(
            SoftCrc32.update(SoftCrc32.update(crc, &a), &b),
            SoftCrc32.update(crc, &whole)
        );
    }
}
