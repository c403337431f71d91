// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Packets: out and in again, and what must not get in.

use proptest::prelude::*;
use roce::{
    opcode::{
        Opcode,
        Operation, //
    },
    packet::{
        Aeth,
        AtomicRequest,
        Deth,
        Flush,
        Packet,
        ParseError,
        Reth,
        Syndrome,
        MAX_HEADER_LEN,
        MAX_PAYLOAD_LEN, //
    },
    psn::Psn,
    wire::U24, //
};

/// A packet with every part that its opcode has, filled from `random`.
fn packet(opcode: Opcode, random: [u64; 8], payload_len: u32) -> Packet {
    let [a, b, c, d, e, f, g, h] = random;
    let mut packet = Packet::new(opcode, a as u32 & 0xff_ffff, Psn::new(b as u32));
    packet.solicited = c & 1 != 0;
    packet.migrated = c & 2 != 0;
    packet.fecn = c & 4 != 0;
    packet.becn = c & 8 != 0;
    packet.ack_request = c & 16 != 0;
    packet.pkey = d as u16;
    packet.reth = opcode.has_reth().then_some(Reth {
        va: e,
        rkey: f as u32,
        length: g as u32,
    });
    packet.atomic = opcode.has_atomic().then_some(AtomicRequest {
        va: e,
        rkey: f as u32,
        swap_add: g,
        compare: h,
    });
    packet.aeth = opcode.has_aeth().then_some(Aeth {
        syndrome: Syndrome::from_byte(e as u8),
        msn: f as u32 & 0xff_ffff,
    });
    packet.atomic_ack = opcode.has_atomic_ack().then_some(g);
    packet.deth = opcode.has_deth().then_some(Deth {
        qkey: e as u32,
        src_qpn: f as u32 & 0xff_ffff,
    });
    packet.immediate = opcode.has_immediate().then_some(h as u32);
    packet.invalidate_rkey = opcode.has_invalidate().then_some(h as u32);
    packet.flush = opcode.has_flush().then_some(Flush {
        placement: h as u8 & 0xf,
        selectivity: (h >> 8) as u8 & 3,
    });
    packet.xrc_srqn = opcode.has_xrceth().then_some(U24::new(f as u32));
    packet.payload_len = match opcode.operation() {
        Operation::AtomicWrite => 8,
        _ if opcode.has_payload() => payload_len,
        _ => 0,
    };
    packet
}

fn any_packet() -> impl Strategy<Value = Packet> {
    (
        proptest::sample::select(Opcode::ALL),
        any::<[u64; 8]>(),
        0..=MAX_PAYLOAD_LEN,
    )
        .prop_map(|(opcode, random, len)| packet(opcode, random, len))
}

/// The headers of `packet`.
fn headers(packet: &Packet) -> Vec<u8> {
    let mut out = [0xa5; MAX_HEADER_LEN + 1];
    let len = packet.emit(&mut out).unwrap();
    assert_eq!(len, packet.header_len());
    assert!(out[len..].iter().all(|byte| *byte == 0xa5));
    out[..len].to_vec()
}

proptest! {
    #[test]
    fn what_goes_out_comes_in(packet in any_packet(), rest: [u8; MAX_HEADER_LEN]) {
        let mut bytes = headers(&packet);
        // The buffer may hold what lies behind the headers, and more than the datagram.
        prop_assert_eq!(Packet::parse(&bytes, packet.datagram_len()), Ok(packet));
        bytes.extend(rest);
        prop_assert_eq!(Packet::parse(&bytes, packet.datagram_len()), Ok(packet));
    }

    #[test]
    fn every_opcode_comes_back(random: [u64; 8], len in 0..=MAX_PAYLOAD_LEN) {
        for opcode in Opcode::ALL {
            let packet = packet(*opcode, random, len);
            prop_assert_eq!(
                Packet::parse(&headers(&packet), packet.datagram_len()),
                Ok(packet)
            );
        }
    }

    #[test]
    fn parse_takes_anything(bytes: Vec<u8>, len: usize) {
        // Whatever it returns, it returns; and a packet fills the datagram exactly.
        for len in [len, len % 8192, bytes.len()] {
            if let Ok(packet) = Packet::parse(&bytes, len) {
                prop_assert_eq!(packet.datagram_len(), len);
                prop_assert!(packet.payload_len <= MAX_PAYLOAD_LEN);
            }
        }
    }

    #[test]
    fn parse_takes_anything_with_a_good_opcode(
        opcode in proptest::sample::select(Opcode::ALL),
        mut bytes: [u8; MAX_HEADER_LEN],
        len in 0usize..5000,
    ) {
        bytes[0] = opcode as u8;
        bytes[1] &= 0xf0;
        if let Ok(packet) = Packet::parse(&bytes, len) {
            prop_assert_eq!(packet.opcode, opcode);
            prop_assert_eq!(packet.datagram_len(), len);
            // What came in goes out, but for the reserved bits.
            prop_assert_eq!(Packet::parse(&headers(&packet), len), Ok(packet));
        }
    }

    #[test]
    fn truncated_packets_are_refused(packet in any_packet()) {
        let bytes = headers(&packet);
        for len in 0..bytes.len() {
            prop_assert_eq!(
                Packet::parse(&bytes[..len], packet.datagram_len()),
                Err(ParseError::TooShort)
            );
        }
        for len in 0..packet.header_len() + 4 {
            prop_assert_eq!(Packet::parse(&bytes, len), Err(ParseError::TooShort));
        }
        for missing in 1..4 {
            let len = packet.datagram_len() - missing;
            prop_assert!(Packet::parse(&bytes, len).is_err());
        }
    }

    #[test]
    fn short_buffers_are_refused(packet in any_packet()) {
        for len in 0..packet.header_len() {
            prop_assert_eq!(packet.emit(&mut vec![0; len]), None);
        }
    }

    #[test]
    fn missing_parts_are_refused_and_others_left_out(packet in any_packet()) {
        fn toggle<T>(part: &mut Option<T>, value: T) {
            *part = if part.is_some() { None } else { Some(value) };
        }
        let mut wrong = [packet; 9];
        toggle(&mut wrong[0].reth, Reth { va: 0, rkey: 0, length: 0 });
        toggle(
            &mut wrong[1].atomic,
            AtomicRequest { va: 0, rkey: 0, swap_add: 0, compare: 0 },
        );
        toggle(
            &mut wrong[2].aeth,
            Aeth { syndrome: Syndrome::Ack { credits: 0 }, msn: 0 },
        );
        toggle(&mut wrong[3].atomic_ack, 0);
        toggle(&mut wrong[4].deth, Deth { qkey: 0, src_qpn: 0 });
        toggle(&mut wrong[5].immediate, 0);
        toggle(&mut wrong[6].invalidate_rkey, 0);
        toggle(&mut wrong[7].flush, Flush { placement: 0, selectivity: 0 });
        toggle(&mut wrong[8].xrc_srqn, U24::new(0));
        let opcode = packet.opcode;
        let has = [
            opcode.has_reth(),
            opcode.has_atomic(),
            opcode.has_aeth(),
            opcode.has_atomic_ack(),
            opcode.has_deth(),
            opcode.has_immediate(),
            opcode.has_invalidate(),
            opcode.has_flush(),
            opcode.has_xrceth(),
        ];
        for (wrong, is_missing) in wrong.iter().zip(has) {
            if is_missing {
                prop_assert_eq!(wrong.emit(&mut [0; MAX_HEADER_LEN]), None);
            } else {
                prop_assert_eq!(headers(wrong), headers(&packet));
            }
        }
    }

    #[test]
    fn a_payload_longer_than_any_mtu_is_refused(mut packet in any_packet()) {
        packet.payload_len = MAX_PAYLOAD_LEN + 1;
        prop_assert_eq!(packet.emit(&mut [0; MAX_HEADER_LEN]), None);
    }
}

#[test]
fn bytes_are_where_the_specification_has_them() {
    let mut packet = Packet::new(Opcode::RcWriteOnlyImm, 0x12_3456, Psn::new(0xab_cdef));
    packet.solicited = true;
    packet.migrated = false;
    packet.becn = true;
    packet.ack_request = true;
    packet.reth = Some(Reth {
        va: 0x0102_0304_0506_0708,
        rkey: 0x1112_1314,
        length: 0x2122_2324,
    });
    packet.immediate = Some(0x3132_3334);
    packet.payload_len = 5;
    #[rustfmt::skip]
    let expected = [
        0x0b, 0x80 | 0x30, 0xff, 0xff,
        0x40, 0x12, 0x34, 0x56,
        0x80, 0xab, 0xcd, 0xef,
        1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
        0x31, 0x32, 0x33, 0x34,
    ];
    assert_eq!(headers(&packet), expected);
    assert_eq!(packet.datagram_len(), expected.len() + 5 + 3 + 4);

    let mut packet = Packet::new(Opcode::RcFlush, 1, Psn::new(2));
    packet.fecn = true;
    packet.flush = Some(Flush {
        placement: 2,
        selectivity: 1,
    });
    packet.reth = Some(Reth {
        va: 3,
        rkey: 4,
        length: 5,
    });
    #[rustfmt::skip]
    let expected = [
        0x1c, 0x40, 0xff, 0xff, 0x80, 0, 0, 1, 0, 0, 0, 2,
        0, 0, 0, 0x12,
        0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5,
    ];
    assert_eq!(headers(&packet), expected);

    let mut packet = Packet::new(Opcode::UdSendOnlyImm, 1, Psn::new(2));
    packet.deth = Some(Deth {
        qkey: 0x8001_0000,
        src_qpn: 0x10_2030,
    });
    packet.immediate = Some(7);
    #[rustfmt::skip]
    let expected = [
        0x65, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2,
        0x80, 0x01, 0, 0, 0, 0x10, 0x20, 0x30,
        0, 0, 0, 7,
    ];
    assert_eq!(headers(&packet), expected);

    let mut packet = Packet::new(Opcode::RcAtomicAcknowledge, 1, Psn::new(2));
    packet.aeth = Some(Aeth {
        syndrome: Syndrome::Ack { credits: 31 },
        msn: 0x01_0203,
    });
    packet.atomic_ack = Some(9);
    #[rustfmt::skip]
    let expected = [
        0x12, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2,
        0x1f, 1, 2, 3,
        0, 0, 0, 0, 0, 0, 0, 9,
    ];
    assert_eq!(headers(&packet), expected);

    let mut packet = Packet::new(Opcode::XrcWriteOnlyImm, 1, Psn::new(2));
    packet.xrc_srqn = Some(U24::new(0x10_2030));
    packet.reth = Some(Reth {
        va: 3,
        rkey: 4,
        length: 5,
    });
    packet.immediate = Some(7);
    packet.payload_len = 5;
    #[rustfmt::skip]
    let expected = [
        0xab, 0x40 | 0x30, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2,
        0, 0x10, 0x20, 0x30,
        0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5,
        0, 0, 0, 7,
    ];
    assert_eq!(headers(&packet), expected);

    // A middle packet has no other extension header.
    let mut packet = Packet::new(Opcode::XrcSendMiddle, 1, Psn::new(2));
    packet.xrc_srqn = Some(U24::new(0xff_fffe));
    #[rustfmt::skip]
    let expected = [
        0xa1, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2,
        0, 0xff, 0xff, 0xfe,
    ];
    assert_eq!(headers(&packet), expected);
}

#[test]
fn errors_say_what_is_wrong() {
    let good = headers(&Packet::new(Opcode::RcSendOnly, 1, Psn::new(2)));
    let parse = |byte: usize, value: u8, len: usize| {
        let mut bytes = good.clone();
        bytes[byte] = value;
        Packet::parse(&bytes, len)
    };
    assert!(parse(0, 0x04, 16).is_ok());
    assert_eq!(parse(1, 0x41, 16), Err(ParseError::Version));
    assert_eq!(parse(0, 0x44, 16), Err(ParseError::Transport));
    // XRC: its header is missing.
    assert_eq!(parse(0, 0xa4, 16), Err(ParseError::TooShort));
    assert_eq!(parse(0, 0xb5, 16), Err(ParseError::Opcode));
    assert_eq!(parse(0, 0x15, 16), Err(ParseError::Opcode));
    assert_eq!(parse(0, 0xff, 16), Err(ParseError::Opcode));
    assert_eq!(parse(0, 0x04, 17), Err(ParseError::Pad));
    assert_eq!(parse(1, 0x50, 16), Err(ParseError::Pad));
    assert_eq!(parse(0, 0x04, 16 + 4096), {
        let mut packet = Packet::new(Opcode::RcSendOnly, 1, Psn::new(2));
        packet.payload_len = 4096;
        Ok(packet)
    });
    assert_eq!(parse(0, 0x04, 16 + 4100), Err(ParseError::TooLong));
    assert_eq!(parse(0, 0x04, usize::MAX), Err(ParseError::TooLong));
    // An acknowledgement with a payload, and with a payload all of pad.
    let mut ack = Packet::new(Opcode::RcAcknowledge, 1, Psn::new(2));
    ack.aeth = Some(Aeth {
        syndrome: Syndrome::Rnr { timer: 1 },
        msn: 0,
    });
    let mut ack = headers(&ack);
    assert_eq!(Packet::parse(&ack, 24), Err(ParseError::PayloadLength));
    ack[1] |= 0x30;
    assert_eq!(Packet::parse(&ack, 24), Err(ParseError::PayloadLength));
    assert_eq!(Packet::parse(&ack, 20), Err(ParseError::Pad));
}

#[test]
fn atomic_write_has_eight_bytes() {
    for len in (0..=16).filter(|len| *len != 8) {
        let mut packet = packet(Opcode::RcAtomicWrite, [0; 8], 0);
        let mut bytes = headers(&packet);
        packet.payload_len = len;
        assert_eq!(packet.emit(&mut [0; 64]), None);
        bytes[1] |= packet.pad() << 4;
        assert_eq!(
            Packet::parse(&bytes, packet.datagram_len()),
            Err(ParseError::PayloadLength)
        );
    }
}

#[test]
fn reserved_bits_do_not_matter() {
    for (opcode, reserved) in [(Opcode::UdSendOnly, 16), (Opcode::XrcSendOnly, 12)] {
        let packet = packet(opcode, [0; 8], 0);
        let mut bytes = headers(&packet);
        bytes[4] |= 0x3f;
        bytes[8] |= 0x7f;
        bytes[reserved] = 0xff;
        assert_eq!(Packet::parse(&bytes, packet.datagram_len()), Ok(packet));
    }
}

#[test]
fn every_syndrome_comes_back() {
    for byte in 0..=255 {
        assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
    }
}

#[test]
fn longest_header_is_that_of_an_atomic_of_xrc() {
    assert_eq!(MAX_HEADER_LEN, 44);
}
