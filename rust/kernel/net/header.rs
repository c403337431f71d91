// SPDX-License-Identifier: GPL-2.0

//! The headers of IP and UDP in front of a datagram.

use crate::address::Address;

/// The length of a UDP header.
pub(crate) const UDP_LEN: usize = 8;
/// The length of an IPv4 header without options.
pub(crate) const IPV4_LEN: usize = 20;
/// The length of an IPv6 header.
pub(crate) const IPV6_LEN: usize = 40;
/// The length of the longest headers in front of a datagram.
pub(crate) const MAX_LEN: usize = IPV6_LEN + UDP_LEN;
/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// The longest datagram behind them: an IPv4 packet is at most 65535 bytes long, and IPv6 has longer headers.
pub(crate) const MAX_DATAGRAM: usize = 65535 - MAX_LEN;

/// The two bits of ECN in a traffic class. Both are set in a packet that was marked (CE, RFC 3168).
pub const CE: u8 = 3;

/// The parameters of a packet's route and of its headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// The local address.
    pub source: Address,
    /// The address of the peer, of the same family.
    pub destination: Address,
    /// The number of the network device to leave by, 0 for any. A destination in the same namespace is
    /// reached over `lo` in any case. A multicast group is one of a network device, which must be named.
    pub oif: u32,
    /// DSCP and ECN: what IPv4 calls type of service.
    pub traffic_class: u8,
    /// The hop limit, or time to live; 0 for 64, or for 1 towards a multicast group.
    pub hop_limit: u8,
    /// The flow label of IPv6: 20 bits.
    pub flow_label: u32,
    /// The UDP port to send from: any, as it is there for the entropy only.
    pub source_port: u16,
    /// The UDP port to send to.
    pub destination_port: u16,
    /// The service level: 0 for none, else the PCP of a VLAN, or the traffic class, if the network device maps priorities
    /// to it, and the priority (`skb->priority`) if not.
    pub service_level: u32,
}

/// The headers of all datagrams that leave by one path, but for the lengths and the identification.
#[derive(Clone, Copy)]
pub(crate) enum Template {
    /// IPv4 and UDP.
    V4([u8; IPV4_LEN + UDP_LEN]),
    /// IPv6 and UDP.
    V6([u8; IPV6_LEN + UDP_LEN]),
}

impl Template {
    /// Makes the headers for a path. IPv4 headers say not to fragment; UDP headers have no checksum.
    pub(crate) fn new(query: &Query) -> Self {
        let from = query.source_port.to_be_bytes();
        let to = query.destination_port.to_be_bytes();
        let hops = query.hop_limit;
        let class = query.traffic_class;
        match (query.source, query.destination) {
            (Address::V4([s0, s1, s2, s3]), Address::V4([d0, d1, d2, d3])) => Self::V4([
                0x45, class, 0, 0, //
                0, 0, 0x40, 0, //
                hops, UDP, 0, 0, //
                s0, s1, s2, s3, //
                d0, d1, d2, d3, //
                from[0], from[1], to[0], to[1], //
                0, 0, 0, 0, //
            ]),
            (source, destination) => {
                let flow = query.flow_label.to_be_bytes();
                let mut bytes = [0; IPV6_LEN + UDP_LEN];
                let parts: [&[u8]; 5] = [
                    &[
                        0x60 | class >> 4,
                        class << 4 | flow[1] & 0xf,
                        flow[2],
                        flow[3], //
                        0,
                        0,
                        UDP,
                        hops, //
                    ],
                    &source.to_gid(),
                    &destination.to_gid(),
                    &from,
                    &to,
                ];
                for (byte, value) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
                    *byte = *value;
                }
                Self::V6(bytes)
            }
        }
    }

    /// Returns the length of the headers in bytes.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::V4(bytes) => bytes.len(),
            Self::V6(bytes) => bytes.len(),
        }
    }

    /// Returns whether these are headers of IPv4.
    #[inline]
    pub(crate) const fn is_v4(&self) -> bool {
        matches!(self, Self::V4(_))
    }
}

/// Returns whether two headers of IP and UDP are from and to the same addresses and ports.
#[inline]
pub(crate) fn is_same_flow(one: &[u8], other: &[u8]) -> bool {
    const V4: usize = IPV4_LEN + UDP_LEN;
    const V6: usize = IPV6_LEN + UDP_LEN;
    if let (Ok(one), Ok(other)) = (<&[u8; V4]>::try_from(one), <&[u8; V4]>::try_from(other)) {
        return part::<12>(one, 12) == part::<12>(other, 12);
    }
    if let (Ok(one), Ok(other)) = (<&[u8; V6]>::try_from(one), <&[u8; V6]>::try_from(other)) {
        return part::<36>(one, 8) == part::<36>(other, 8);
    }
    false
}

/// Returns `N` bytes from `at` on.
#[inline]
fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}
