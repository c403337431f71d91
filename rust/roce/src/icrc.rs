// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The invariant CRC of RoCEv2 (annex A17.3.3, IBTA 7.8.1).
//!
//! It covers everything from the IP header to the end of the pad, after eight bytes of ones in place
//! of the LRH, and with those fields as ones that may change on the way. A receiver makes what the ICRC
//! covers of the headers up to the BTH ([`masked_v4`], [`masked_v6`]). It computes the CRC of that, from [`SEED`] on, and of the
//! extension headers, the payload, the pad and the ICRC: then the state is the [`RESIDUE`]. A sender has all in one piece
//! of memory that it may write to, and masks the headers there ([`seal`]).
//!
//! # Examples
//!
//! ```
//! use roce::icrc::{finish, masked_v4, Crc32, SoftCrc32, SEED};
//!
//! # let (ip, udp, bth) = ([0x45; 20], [0; 8], [0; 12]);
//! let crc = SoftCrc32.update(SEED, &masked_v4(&ip, &udp, &bth));
//! let crc = SoftCrc32.update(crc, b"payload\0");
//! let _trailer: [u8; 4] = finish(crc);
//! ```

use zerocopy_derive::{
    Immutable,
    IntoBytes,
    Unaligned, //
};

/// Length of the ICRC in bytes.
pub const LEN: usize = 4;

/// The state of the CRC before the first byte.
pub const SEED: u32 = !0;

/// The state of the CRC after a packet and its correct ICRC: the residue.
pub const RESIDUE: u32 = 0xdebb_20e3;

/// The CRC that Ethernet also uses: polynomial 0x04c11db7, reflected (0xedb88320). For the host and for tests.
#[cfg(any(not(CONFIG_RUST), ROCE_KUNIT))]
pub trait Crc32 {
    /// The state after `data`, from the state `crc` before. Nothing is inverted; this is the
    /// kernel's `crc32_le(crc, data, len)`.
    fn update(&self, crc: u32, data: &[u8]) -> u32;
}

/// Length of what stands in place of the LRH, in front of the IP header.
pub const LRH_LEN: usize = 8;

/// Length of all that is in front of what follows the BTH, over IPv4.
pub const PREFIX_V4_LEN: usize = LRH_LEN + 20 + 8 + 12;

/// The same, over IPv6.
pub const PREFIX_V6_LEN: usize = LRH_LEN + 40 + 8 + 12;

/// The bytes up to the end of the BTH: those in place of the LRH, and headers.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Prefix<IP> {
    lrh: [u8; LRH_LEN],
    ip: IP,
    udp: [u8; 8],
    bth: [u8; 12],
}

/// All that the ICRC covers up to the BTH of a packet over IPv4.
///
/// Type of service, time to live and header checksum count as ones. `ip` is a header without
/// options: packets whose header has any must be dropped before, their ICRC is not supported.
#[inline]
pub fn masked_v4(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; 12]) -> [u8; PREFIX_V4_LEN] {
    let mut bytes: [u8; PREFIX_V4_LEN] = zerocopy::transmute!(Prefix {
        lrh: [0; LRH_LEN],
        ip: *ip,
        udp: *udp,
        bth: *bth,
    });
    mask_v4(&mut bytes);
    bytes
}

/// All that the ICRC covers up to the BTH of a packet over IPv6.
///
/// Traffic class, flow label and hop limit count as ones. `ip` is a header that UDP follows:
/// packets with extension headers are not supported.
#[inline]
pub fn masked_v6(ip: &[u8; 40], udp: &[u8; 8], bth: &[u8; 12]) -> [u8; PREFIX_V6_LEN] {
    let mut bytes: [u8; PREFIX_V6_LEN] = zerocopy::transmute!(Prefix {
        lrh: [0; LRH_LEN],
        ip: *ip,
        udp: *udp,
        bth: *bth,
    });
    mask_v6(&mut bytes);
    bytes
}

/// Makes ones of what may change on the way: of what stands in place of the LRH and of the headers of IPv4, UDP and BTH.
#[inline]
#[rustfmt::skip]
fn mask_v4(bytes: &mut [u8; PREFIX_V4_LEN]) {
    let [
        lrh1, lrh2, lrh3, lrh4, lrh5, lrh6, lrh7, lrh8,
        _, service, _, _, _, _, _, _, time, _, sum1, sum2, _, _, _, _, _, _, _, _,
        _, _, _, _, _, _, check1, check2,
        _, _, _, _, congestion, _, _, _, _, _, _, _,
    ] = bytes;
    let masked = [
        lrh1, lrh2, lrh3, lrh4, lrh5, lrh6, lrh7, lrh8,
        service, time, sum1, sum2,
        check1, check2,
        congestion,
    ];
    for byte in masked {
        *byte = 0xff;
    }
}

/// The same, over IPv6.
#[inline]
#[rustfmt::skip]
fn mask_v6(bytes: &mut [u8; PREFIX_V6_LEN]) {
    let [
        lrh1, lrh2, lrh3, lrh4, lrh5, lrh6, lrh7, lrh8,
        version, class, flow1, flow2, _, _, _, hops,
        _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
        _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
        _, _, _, _, _, _, check1, check2,
        _, _, _, _, congestion, _, _, _, _, _, _, _,
    ] = bytes;
    *version |= 0x0f;
    let masked = [
        lrh1, lrh2, lrh3, lrh4, lrh5, lrh6, lrh7, lrh8,
        class, flow1, flow2, hops,
        check1, check2,
        congestion,
    ];
    for byte in masked {
        *byte = 0xff;
    }
}

/// Computes the ICRC of a packet, and writes it into its last bytes. `packet` begins with the place of the LRH. This and
/// the headers are left as they were, unless `leaves_masked`.
///
/// `crc32` computes the state after some bytes, from the state before, as the kernel's `crc32_le()`. It is called once, as
/// each call asks for the SIMD unit. [`None`] if there is less than the headers and the ICRC.
#[inline]
pub fn seal(
    packet: &mut [u8],
    leaves_masked: bool,
    crc32: impl FnOnce(u32, &[u8]) -> u32,
) -> Option<()> {
    let (covered, icrc) = packet.split_last_chunk_mut()?;
    let state = match covered.get(LRH_LEN)? >> 4 {
        4 => masked(covered, mask_v4, leaves_masked, crc32),
        _ => masked(covered, mask_v6, leaves_masked, crc32),
    };
    *icrc = finish(state?);
    Some(())
}

/// The state after `covered`, whose headers `mask` masks. They stay so if `leaves_masked`.
#[inline]
fn masked<const N: usize>(
    covered: &mut [u8],
    mask: impl FnOnce(&mut [u8; N]),
    leaves_masked: bool,
    crc32: impl FnOnce(u32, &[u8]) -> u32,
) -> Option<u32> {
    let prefix = covered.first_chunk_mut()?;
    let plain = *prefix;
    mask(prefix);
    let state = crc32(SEED, covered);
    if !leaves_masked {
        *covered.first_chunk_mut()? = plain;
    }
    Some(state)
}

/// The four bytes of the ICRC as they stand on the wire, from the state after the pad.
#[inline]
pub const fn finish(state: u32) -> [u8; LEN] {
    (!state).to_le_bytes()
}

/// A CRC in plain Rust, eight bytes at a time. For the host and for tests: the kernel has faster ones.
#[cfg(any(not(CONFIG_RUST), ROCE_KUNIT))]
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftCrc32;

#[cfg(any(not(CONFIG_RUST), ROCE_KUNIT))]
mod soft {
    use super::{
        Crc32,
        SoftCrc32, //
    };

    /// The state that each byte makes of an empty one, if `ZEROS` zero bytes follow it.
    #[inline]
    fn behind<const ZEROS: u32>() -> &'static [u32; 256] {
        struct Table<const ZEROS: u32>;
        impl<const ZEROS: u32> Table<ZEROS> {
            const VALUES: &'static [u32; 256] = &table(ZEROS);
        }
        Table::<ZEROS>::VALUES
    }

    const fn table(zeros: u32) -> [u32; 256] {
        let bits = zeros.wrapping_add(1).wrapping_mul(8);
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut state = byte as u32;
            let mut bit = 0;
            while bit < bits {
                let low = state & 1;
                state >>= 1;
                if low != 0 {
                    state ^= 0xedb8_8320;
                }
                bit = u32::wrapping_add(bit, 1);
            }
            table[byte] = state;
            byte = usize::wrapping_add(byte, 1);
        }
        table
    }

    #[inline]
    fn look_up(table: &[u32; 256], byte: u8) -> u32 {
        table.get(usize::from(byte)).copied().unwrap_or_default()
    }

    impl Crc32 for SoftCrc32 {
        fn update(&self, mut crc: u32, mut data: &[u8]) -> u32 {
            while let Some((head, rest)) = data.split_first_chunk::<8>() {
                let [b0, b1, b2, b3, b4, b5, b6, b7] = *head;
                let [c0, c1, c2, c3] = (crc ^ u32::from_le_bytes([b0, b1, b2, b3])).to_le_bytes();
                crc = look_up(behind::<7>(), c0)
                    ^ look_up(behind::<6>(), c1)
                    ^ look_up(behind::<5>(), c2)
                    ^ look_up(behind::<4>(), c3)
                    ^ look_up(behind::<3>(), b4)
                    ^ look_up(behind::<2>(), b5)
                    ^ look_up(behind::<1>(), b6)
                    ^ look_up(behind::<0>(), b7);
                data = rest;
            }
            for byte in data {
                let [low, ..] = crc.to_le_bytes();
                crc = (crc >> 8) ^ look_up(behind::<0>(), low ^ byte);
            }
            crc
        }
    }
}
