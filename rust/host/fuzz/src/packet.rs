// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Packets: in from any bytes, out, and in again.

use arbitrary::Arbitrary;
use roce::{
    icrc,
    opcode::{
        Opcode,
        Operation, //
    },
    packet::{
        Packet,
        MAX_HEADER_LEN,
        MAX_PAYLOAD_LEN, //
    },
    psn::Psn, //
};

use crate::any::AnyPacket;

#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    built: AnyPacket,
    /// How long the datagram is said to be, if not as long as it is.
    declared: Option<u32>,
    bytes: &'a [u8],
}

pub fn run(input: Input<'_>) {
    let len = input
        .declared
        .map_or(input.bytes.len(), |len| len as usize % 8192);
    come_in(input.bytes, len);
    come_in(input.bytes, input.declared.unwrap_or(u32::MAX) as usize);

    let packet = input.built.build(Psn::new(input.built.qpn), 1024);
    let bytes = go_out(&packet);
    come_in(&bytes[..], packet.datagram_len());
    for short in 0..bytes.len() {
        assert!(Packet::parse(&bytes[..short], packet.datagram_len()).is_err());
    }
}

/// The headers of a packet that is well-formed: all of it, and nothing else, is read from them.
pub(crate) fn go_out(packet: &Packet) -> Vec<u8> {
    let mut out = [0xa5; MAX_HEADER_LEN + 1];
    let len = packet.emit(&mut out).expect("a well-formed packet");
    assert_eq!(len, packet.header_len());
    assert!(out[len..].iter().all(|byte| *byte == 0xa5));
    assert_eq!(packet.emit(&mut [0; MAX_HEADER_LEN][..len - 1]), None);
    assert_eq!(
        Packet::parse(&out[..len], packet.datagram_len()),
        Ok(*packet)
    );
    out[..len].to_vec()
}

fn come_in(bytes: &[u8], len: usize) {
    let parsed = Packet::parse(bytes, len);
    assert_eq!(parsed.is_ok(), is_packet(bytes, len), "{parsed:?}");
    let Ok(packet) = parsed else {
        return;
    };
    assert_eq!(packet.datagram_len(), len);
    assert!(packet.payload_len <= MAX_PAYLOAD_LEN);
    let out = go_out(&packet);
    assert_eq!(Packet::parse(&out, len), Ok(packet));

    // What does not come out as it came in is reserved: it means nothing.
    let mut bytes = bytes.to_vec();
    for (at, byte) in out.iter().enumerate() {
        if bytes[at] != *byte {
            bytes[at] = *byte;
            assert_eq!(Packet::parse(&bytes, len), Ok(packet), "byte {at}");
        }
    }
}

/// Whether `bytes` begin a packet of `len` bytes: written down once more, from the formats.
fn is_packet(bytes: &[u8], len: usize) -> bool {
    let [opcode, flags, ..] = *bytes else {
        return false;
    };
    let Ok(opcode) = Opcode::try_from(opcode) else {
        return false;
    };
    let header_len = opcode.header_len();
    let Some(padded) = len.checked_sub(header_len + icrc::LEN) else {
        return false;
    };
    let Some(payload) = padded.checked_sub(usize::from((flags >> 4) & 3)) else {
        return false;
    };
    let fits = match opcode.operation() {
        Operation::AtomicWrite => payload == 8,
        _ => payload == 0 || opcode.has_payload(),
    };
    bytes.len() >= header_len
        && flags & 0xf == 0
        && padded % 4 == 0
        && padded <= MAX_PAYLOAD_LEN as usize
        && fits
}
