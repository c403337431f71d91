// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Packets as bytes: IPv4, UDP, RoCEv2 headers, payload, pad, ICRC.

use roce::{
    icrc::{
        self,
        Crc32,
        SoftCrc32, //
    },
    packet::{
        Packet,
        MAX_HEADER_LEN, //
    }, //
};

/// Length of the IP and UDP headers in bytes.
pub const OUTER_LEN: usize = 28;

/// Length of what the ICRC of every packet covers, at least: up to the end of the BTH.
pub const MIN_BODY_LEN: usize = OUTER_LEN + 12;

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// The address of a host.
fn address(host: usize) -> [u8; 4] {
    [10, 0, 0, host as u8 + 1]
}

/// The bytes of a packet from `host` to the other one.
pub fn build(host: usize, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    assert_eq!(payload.len(), packet.payload_len as usize);
    let len = OUTER_LEN + packet.datagram_len();
    let mut bytes = Vec::with_capacity(len);

    bytes.extend_from_slice(&[0x45, 0]);
    bytes.extend_from_slice(&(len as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend_from_slice(&address(host));
    bytes.extend_from_slice(&address(1 - host));
    let checksum = ip_checksum(&bytes);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());

    bytes.extend_from_slice(&0xc000u16.to_be_bytes());
    bytes.extend_from_slice(&ROCE_PORT.to_be_bytes());
    bytes.extend_from_slice(&((len - 20) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);

    let mut header = [0; MAX_HEADER_LEN];
    let header_len = packet.emit(&mut header).expect("a packet that fits");
    bytes.extend_from_slice(&header[..header_len]);
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + usize::from(packet.pad()), 0);
    let trailer = checksum_of(&bytes);
    bytes.extend_from_slice(&trailer);
    assert_eq!(bytes.len(), len);
    bytes
}

/// The packet in `bytes` and its payload; `None` if it is damaged.
pub fn parse(bytes: &[u8]) -> Option<(Packet, &[u8])> {
    let split = bytes.len().checked_sub(icrc::LEN)?;
    let (body, trailer) = bytes.split_at(split);
    if body.len() < MIN_BODY_LEN || checksum_of(body) != trailer {
        return None;
    }
    let datagram = &bytes[OUTER_LEN..];
    let packet = Packet::parse(datagram, datagram.len()).ok()?;
    let payload = &datagram[packet.header_len()..][..packet.payload_len as usize];
    Some((packet, payload))
}

/// Makes the ICRC at the end of a forged packet right.
pub fn seal(bytes: &mut [u8]) {
    let split = bytes.len() - icrc::LEN;
    let trailer = checksum_of(&bytes[..split]);
    bytes[split..].copy_from_slice(&trailer);
}

/// The ICRC of everything in front of it.
fn checksum_of(bytes: &[u8]) -> [u8; icrc::LEN] {
    let ip = bytes[..20].try_into().expect("20 bytes");
    let udp = bytes[20..28].try_into().expect("8 bytes");
    let bth = bytes[28..40].try_into().expect("12 bytes");
    let crc = SoftCrc32.update(icrc::SEED, &icrc::masked_v4(ip, udp, bth));
    icrc::finish(SoftCrc32.update(crc, &bytes[40..]))
}

fn ip_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
