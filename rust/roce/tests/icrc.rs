// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The ICRC: known values, and which bits count.

use proptest::prelude::*;
use roce::icrc::{
    finish,
    header_crc_v4,
    header_crc_v6,
    Crc32,
    HeaderCrc,
    SoftCrc32,
    RESIDUE,
    SEED, //
};
use std::cell::Cell;

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
        (header_crc_v4(crc, ip, udp, bth), rest)
    } else {
        let (ip, rest) = packet.split_first_chunk().unwrap();
        let (udp, rest) = rest.split_first_chunk().unwrap();
        let (bth, rest) = rest.split_first_chunk().unwrap();
        (header_crc_v6(crc, ip, udp, bth), rest)
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

/// Counts how often it is asked.
#[derive(Default)]
struct CountingCrc32(Cell<u32>);

impl Crc32 for CountingCrc32 {
    fn update(&self, crc: u32, data: &[u8]) -> u32 {
        self.0.set(self.0.get() + 1);
        SoftCrc32.update(crc, data)
    }
}

/// The state behind the BTH of `packet`, the next after those that `headers` has seen.
fn next_state(headers: &mut HeaderCrc, crc: &impl Crc32, packet: &[u8]) -> u32 {
    if packet[0] >> 4 == 4 {
        let (ip, rest) = packet.split_first_chunk().unwrap();
        let (udp, rest) = rest.split_first_chunk().unwrap();
        headers.v4(crc, ip, udp, rest.first_chunk().unwrap())
    } else {
        let (ip, rest) = packet.split_first_chunk().unwrap();
        let (udp, rest) = rest.split_first_chunk().unwrap();
        headers.v6(crc, ip, udp, rest.first_chunk().unwrap())
    }
}

/// Bytes of IP, UDP and BTH.
fn headers_len(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 {
        40
    } else {
        60
    }
}

/// After a packet, each that differs in one bit: of the same state as by itself, and without a look at the whole only
/// where it is meant to be.
#[test]
fn what_follows_has_its_own_crc() {
    for packet in [&PACKET_V4[..], &PACKET_V6[..]] {
        let len = headers_len(packet);
        let is_v4 = len == 40;
        let bth = len - 12;
        for byte in 0..len {
            for bit in 0..8 {
                if byte == 0 && bit >= 4 {
                    continue;
                }
                let mut flipped = packet[..len].to_vec();
                flipped[byte] ^= 1 << bit;
                let mut headers = HeaderCrc::default();
                let counting = CountingCrc32::default();
                next_state(&mut headers, &counting, packet);
                assert_eq!(counting.0.get(), 1);
                assert_eq!(
                    next_state(&mut headers, &counting, &flipped),
                    state(&BitCrc32, &flipped, 0),
                    "byte {byte}, bit {bit}"
                );
                let is_short = if is_v4 {
                    matches!(byte, 1 | 4 | 5 | 8 | 10 | 11 | 26 | 27)
                } else {
                    matches!((byte, bit), (0, 0..4) | (1..4 | 7 | 46 | 47, _))
                } || byte == bth
                    || byte == bth + 4
                    || byte >= bth + 8;
                assert_eq!(counting.0.get() == 1, is_short, "byte {byte}, bit {bit}");
            }
        }
    }
}

/// What is like nothing at all, or like the beginning of the other kind, is no packet that follows.
#[test]
fn zeroes_follow_nothing() {
    let (v4, v6, udp, bth) = ([0; 20], [0; 40], [0; 8], [0; 12]);
    let crc_v4 = header_crc_v4(&BitCrc32, &v4, &udp, &bth);
    let crc_v6 = header_crc_v6(&BitCrc32, &v6, &udp, &bth);
    let mut headers = HeaderCrc::default();
    assert_eq!(headers.v4(&SoftCrc32, &v4, &udp, &bth), crc_v4);
    assert_eq!(headers.v6(&SoftCrc32, &v6, &udp, &bth), crc_v6);
    assert_eq!(headers.v4(&SoftCrc32, &v4, &udp, &bth), crc_v4);
    let mut headers = HeaderCrc::default();
    assert_eq!(headers.v6(&SoftCrc32, &v6, &udp, &bth), crc_v6);
}

proptest! {
    /// Packets of either kind, each like the last one but for a few bytes.
    #[test]
    fn each_of_many_has_its_own_crc(
        steps in proptest::collection::vec(
            (0..2usize, proptest::collection::vec((0..60usize, any::<u8>()), 0..6)),
            1..20,
        ),
    ) {
        let mut packets = [PACKET_V4[..40].to_vec(), PACKET_V6[..60].to_vec()];
        let mut headers = HeaderCrc::default();
        for (family, changes) in steps {
            let packet = &mut packets[family];
            for (byte, value) in changes {
                if (1..packet.len()).contains(&byte) {
                    packet[byte] = value;
                }
            }
            prop_assert_eq!(
                next_state(&mut headers, &SoftCrc32, packet),
                state(&BitCrc32, packet, 0)
            );
        }
    }

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
