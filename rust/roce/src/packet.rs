// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A packet's headers in native form, for both ways: everything that stands in front of the payload.

use zerocopy::{
    byteorder::big_endian::{
        U32,
        U64, //
    },
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::{
    icrc,
    opcode::{
        Opcode,
        OpcodeError,
        Operation, //
    },
    psn::Psn,
    wire::{
        self,
        bth,
        extensions,
        U24, //
    }, //
};

pub use crate::wire::aeth::{
    NakCode,
    Syndrome, //
};

/// Length of the longest header stack (BTH and extension headers) in bytes.
pub const MAX_HEADER_LEN: usize = Opcode::MAX_HEADER_LEN;

/// Length of the longest payload in bytes: that of the largest path MTU.
pub const MAX_PAYLOAD_LEN: u32 = 4096;

/// Length of an ATOMIC WRITE's payload in bytes (IBTA 1.7, A19.4.2).
pub const ATOMIC_WRITE_LEN: u32 = 8;

/// The bytes behind the BTH of a congestion notification packet. The sender zeroes them, the receiver ignores them (IBTA
/// A17.9.3).
type CnpReserved = [u8; 16];

/// Where an RDMA operation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// Length of the whole operation in bytes. As it came: a length above 2^31 is for the
    /// responder to refuse.
    pub length: u32,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Virtual address. As it came: alignment is for the responder to check.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// The value that is swapped in, or added.
    pub swap_add: u64,
    /// The value that is compared with; ignored by FetchAdd.
    pub compare: u64,
}

/// A responder's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Positive, negative, not ready.
    pub syndrome: Syndrome,
    /// Message sequence number, in `0..2^24`.
    pub msn: u32,
}

/// The fields that a datagram has besides the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Number of the QP that sent it, in `0..2^24`.
    pub src_qpn: u32,
}

/// The kind of a FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Placement type, 4 bits: see [`extensions::PLACEMENT_GLOBAL`], [`extensions::PLACEMENT_PERSISTENT`].
    pub placement: u8,
    /// Selectivity level, 2 bits: see [`extensions::SELECTIVITY_REGION`].
    pub selectivity: u8,
}

impl Flush {
    /// Whether it asks for something, and for nothing that the specification reserves.
    #[inline]
    pub const fn is_valid(self) -> bool {
        let placements = extensions::PLACEMENT_GLOBAL | extensions::PLACEMENT_PERSISTENT;
        self.placement != 0
            && self.placement & !placements == 0
            && self.selectivity <= extensions::SELECTIVITY_REGION
    }

    /// Whether what was written is to become visible to all.
    #[inline]
    pub const fn is_global(self) -> bool {
        self.placement & extensions::PLACEMENT_GLOBAL != 0
    }

    /// Whether what was written is to become persistent.
    #[inline]
    pub const fn is_persistent(self) -> bool {
        self.placement & extensions::PLACEMENT_PERSISTENT != 0
    }

    /// Whether it is for all of the memory region, whatever the range.
    #[inline]
    pub const fn is_region(self) -> bool {
        self.selectivity == extensions::SELECTIVITY_REGION
    }
}

/// Why a datagram is not a packet. Every one of them is dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The datagram is too short for the headers that its opcode asks for, and the ICRC; or the
    /// caller has handed in less of it than it should.
    TooShort,
    /// The payload is longer than the largest path MTU.
    TooLong,
    /// The transport header version is not 0.
    Version,
    /// An opcode of a transport service that is not supported: RD.
    Transport,
    /// A reserved opcode, or a manufacturer's.
    Opcode,
    /// The length is not a multiple of four, or the pad is longer than what it should pad.
    Pad,
    /// The payload is not as long as the opcode asks for: not 8 bytes for ATOMIC WRITE, or there
    /// is one where there must be none.
    PayloadLength,
}

impl From<OpcodeError> for ParseError {
    #[inline]
    fn from(error: OpcodeError) -> Self {
        match error {
            OpcodeError::Transport => Self::Transport,
            OpcodeError::Reserved => Self::Opcode,
        }
    }
}

/// The headers of a packet.
///
/// Which of the optional parts are there is a matter of the opcode: [`Packet::read`] makes only those that the opcode has,
/// and [`Packet::emit`] writes only those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Transport, operation, and place in the message.
    pub opcode: Opcode,
    /// Whether the responder shall raise a solicited event.
    pub solicited: bool,
    /// Whether the path is the migrated one.
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Number of the QP that the packet is for, in `0..2^24`.
    pub dest_qpn: u32,
    /// Whether the responder shall acknowledge this packet soon.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
    /// For READ requests, the first packet of a WRITE, FLUSH, ATOMIC WRITE.
    pub reth: Option<Reth>,
    /// For CompareSwap and FetchAdd.
    pub atomic: Option<AtomicRequest>,
    /// For acknowledgements and READ responses, but not their middle packets.
    pub aeth: Option<Aeth>,
    /// For ATOMIC acknowledgements: what stood at the address before (AtomicAckETH, IBTA 9.3.5.3).
    pub atomic_ack: Option<u64>,
    /// For UD.
    pub deth: Option<Deth>,
    /// Immediate data: the native value of the big-endian field (ImmDt, IBTA 9.3.6).
    pub immediate: Option<u32>,
    /// For SEND with Invalidate: the R_Key (IETH, IBTA 9.3.7).
    pub invalidate_rkey: Option<u32>,
    /// For FLUSH.
    pub flush: Option<Flush>,
    /// For requests of XRC: number of the XRC SRQ. In this form it fits into what the other parts
    /// leave free.
    pub xrc_srqn: Option<U24>,
    /// Length of the payload in bytes, without pad and ICRC; at most [`MAX_PAYLOAD_LEN`].
    pub payload_len: u32,
}

/// Takes the header `T` off the front of `bytes`.
#[inline]
fn take<T>(bytes: &mut &[u8]) -> Result<T, ParseError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned + Copy,
{
    let (header, rest) = T::read_from_prefix(bytes).map_err(|_| ParseError::TooShort)?;
    *bytes = rest;
    Ok(header)
}

/// Writes the header `header` to the front of `out`, and leaves in `out` what follows it.
#[inline]
#[allow(clippy::mut_mut)] // The place to write to moves on.
fn put<T: IntoBytes + Immutable>(out: &mut &mut [u8], header: &T) -> Option<()> {
    let (place, rest) = core::mem::take(out).split_at_mut_checked(size_of::<T>())?;
    header.write_to(place).ok()?;
    *out = rest;
    Some(())
}

/// `bit` if `on`, else nothing.
#[inline]
const fn flag(on: bool, bit: u8) -> u8 {
    if on {
        bit
    } else {
        0
    }
}

impl Default for Packet {
    /// Some packet, for [`Packet::read`].
    fn default() -> Self {
        Self::new(Opcode::RcSendOnly, 0, Psn::new(0))
    }
}

impl Packet {
    /// A packet with nothing but a BTH: the default partition, the migrated path (which is what a
    /// QP without path migration sends, IBTA 17.2.8), no flags, no payload.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_request: false,
            psn,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            deth: None,
            immediate: None,
            invalidate_rkey: None,
            flush: None,
            xrc_srqn: None,
            payload_len: 0,
        }
    }

    /// Reads the headers of a datagram, as [`read`](Self::read), and returns them.
    #[inline]
    pub fn parse(bytes: &[u8], datagram_len: usize) -> Result<Self, ParseError> {
        let mut packet = Self::default();
        packet.read(bytes, datagram_len)?;
        Ok(packet)
    }

    /// Becomes the headers of a datagram; with an error, anything. To return them instead would take longer than to
    /// read them: most packets have only a BTH.
    ///
    /// `bytes` is the beginning of the UDP payload, at least the first `MAX_HEADER_LEN` bytes of it,
    /// or all if there are fewer; `datagram_len` is the length of the whole UDP payload in bytes,
    /// ICRC included. Reserved bits are ignored, as IBTA 9.2 asks for. The ICRC is not looked at.
    ///
    /// Without an error, header, payload, pad and ICRC of the packet fill the datagram exactly.
    #[inline]
    pub fn read(&mut self, bytes: &[u8], datagram_len: usize) -> Result<(), ParseError> {
        let mut rest = bytes;
        let header: bth::Bth = take(&mut rest)?;

        if header.flags & bth::VERSION_MASK != bth::VERSION {
            return Err(ParseError::Version);
        }
        let opcode = Opcode::try_from(header.opcode)?;
        let padded = datagram_len
            .checked_sub(opcode.header_len())
            .and_then(|len| len.checked_sub(icrc::LEN))
            .ok_or(ParseError::TooShort)?;
        let padded = u32::try_from(padded).map_err(|_| ParseError::TooLong)?;
        if padded > MAX_PAYLOAD_LEN {
            return Err(ParseError::TooLong);
        }
        let pad = u32::from((header.flags & bth::PAD_MASK) >> bth::PAD_SHIFT);
        if padded & 3 != 0 {
            return Err(ParseError::Pad);
        }
        let payload_len = padded.checked_sub(pad).ok_or(ParseError::Pad)?;
        if !payload_fits(opcode, payload_len) {
            return Err(ParseError::PayloadLength);
        }

        *self = Self::new(opcode, header.dest_qpn.get(), Psn::new(header.psn.get()));
        self.solicited = header.flags & bth::SOLICITED != 0;
        self.migrated = header.flags & bth::MIGRATED != 0;
        self.pkey = header.pkey.get();
        self.fecn = header.ecn & bth::FECN != 0;
        self.becn = header.ecn & bth::BECN != 0;
        self.ack_request = header.ack & bth::ACK_REQUEST != 0;
        self.payload_len = payload_len;
        if opcode.has_extensions() {
            self.read_extensions(rest)?;
        }
        Ok(())
    }

    /// Reads the extension headers, in the order in which they follow the BTH.
    #[inline]
    fn read_extensions(&mut self, mut rest: &[u8]) -> Result<(), ParseError> {
        let opcode = self.opcode;
        let rest = &mut rest;

        if opcode.has_xrceth() {
            let xrceth: extensions::XrcEth = take(rest)?;
            self.xrc_srqn = Some(xrceth.srqn);
        }
        if opcode.has_deth() {
            let deth: extensions::Deth = take(rest)?;
            self.deth = Some(Deth {
                qkey: deth.qkey.get(),
                src_qpn: deth.src_qpn.get(),
            });
        }
        if opcode.has_flush() {
            let [_, _, _, flags] = take::<U32>(rest)?.to_bytes();
            self.flush = Some(Flush {
                placement: flags & 0x0f,
                selectivity: (flags & 0x30) >> extensions::SELECTIVITY_SHIFT,
            });
        }
        if opcode.has_reth() {
            let reth: extensions::Reth = take(rest)?;
            self.reth = Some(Reth {
                va: reth.va.get(),
                rkey: reth.rkey.get(),
                length: reth.length.get(),
            });
        }
        if opcode.has_atomic() {
            let atomic: extensions::AtomicEth = take(rest)?;
            self.atomic = Some(AtomicRequest {
                va: atomic.va.get(),
                rkey: atomic.rkey.get(),
                swap_add: atomic.swap_add.get(),
                compare: atomic.compare.get(),
            });
        }
        if opcode.has_aeth() {
            let aeth: wire::aeth::Aeth = take(rest)?;
            self.aeth = Some(Aeth {
                syndrome: Syndrome::from_byte(aeth.syndrome),
                msn: aeth.msn.get(),
            });
        }
        if opcode.has_atomic_ack() {
            self.atomic_ack = Some(take::<U64>(rest)?.get());
        }
        if opcode.has_immediate() {
            self.immediate = Some(take::<U32>(rest)?.get());
        }
        if opcode.has_invalidate() {
            self.invalidate_rkey = Some(take::<U32>(rest)?.get());
        }
        if matches!(opcode.operation(), Operation::Cnp) {
            take::<CnpReserved>(rest)?;
        }
        Ok(())
    }

    /// Length of the header stack in bytes: BTH and extension headers.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.opcode.header_len()
    }

    /// Number of zero bytes, 0 to 3, that fill the payload up to a multiple of four.
    #[inline]
    pub const fn pad(&self) -> u8 {
        (self.payload_len.wrapping_neg() & 3) as u8
    }

    /// Length of the UDP payload in bytes: headers, payload, pad and ICRC. Saturates for a payload
    /// length that no packet can have.
    #[inline]
    pub fn datagram_len(&self) -> usize {
        self.header_len()
            .saturating_add(self.payload_len as usize)
            .saturating_add(self.pad() as usize)
            .saturating_add(icrc::LEN)
    }

    /// Writes the header stack to the front of `out`, and returns its length in bytes.
    ///
    /// `None`, if `out` is too short, if a part that the opcode has is missing, or if the opcode does not allow for the
    /// length of the payload. `out` may have been written to then. Parts that the opcode does not have are left out. Of
    /// fields that are shorter on the wire, the lower bits count.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let opcode = self.opcode;
        if self.payload_len > MAX_PAYLOAD_LEN || !payload_fits(opcode, self.payload_len) {
            return None;
        }

        let len = opcode.header_len();
        let rest = &mut out.get_mut(..len)?;
        let flags = flag(self.solicited, bth::SOLICITED)
            | flag(self.migrated, bth::MIGRATED)
            | (self.pad() << bth::PAD_SHIFT)
            | bth::VERSION;
        put(
            rest,
            &bth::Bth {
                opcode: opcode as u8,
                flags,
                pkey: self.pkey.into(),
                ecn: flag(self.fecn, bth::FECN) | flag(self.becn, bth::BECN),
                dest_qpn: U24::new(self.dest_qpn),
                ack: flag(self.ack_request, bth::ACK_REQUEST),
                psn: U24::new(self.psn.get()),
            },
        )?;
        if opcode.has_extensions() {
            self.emit_extensions(rest)?;
        }
        Some(len)
    }

    /// Writes the extension headers, in the order in which they follow the BTH.
    #[inline(never)] // Most packets of long messages have none.
    #[allow(clippy::mut_mut)] // As for `put`.
    fn emit_extensions(&self, out: &mut &mut [u8]) -> Option<()> {
        let opcode = self.opcode;

        if opcode.has_xrceth() {
            let srqn = self.xrc_srqn?;
            put(out, &extensions::XrcEth { reserved: 0, srqn })?;
        }
        if opcode.has_deth() {
            let deth = self.deth?;
            let header = extensions::Deth {
                qkey: deth.qkey.into(),
                reserved: 0,
                src_qpn: U24::new(deth.src_qpn),
            };
            put(out, &header)?;
        }
        if opcode.has_flush() {
            let flush = self.flush?;
            let flags = (flush.placement & 0x0f)
                | ((flush.selectivity & 0x03) << extensions::SELECTIVITY_SHIFT);
            put(out, &U32::new(flags.into()))?;
        }
        if opcode.has_reth() {
            let reth = self.reth?;
            let header = extensions::Reth {
                va: reth.va.into(),
                rkey: reth.rkey.into(),
                length: reth.length.into(),
            };
            put(out, &header)?;
        }
        if opcode.has_atomic() {
            let atomic = self.atomic?;
            let header = extensions::AtomicEth {
                va: atomic.va.into(),
                rkey: atomic.rkey.into(),
                swap_add: atomic.swap_add.into(),
                compare: atomic.compare.into(),
            };
            put(out, &header)?;
        }
        if opcode.has_aeth() {
            let aeth = self.aeth?;
            let header = wire::aeth::Aeth {
                syndrome: aeth.syndrome.to_byte(),
                msn: U24::new(aeth.msn),
            };
            put(out, &header)?;
        }
        if opcode.has_atomic_ack() {
            put(out, &U64::new(self.atomic_ack?))?;
        }
        if opcode.has_immediate() {
            put(out, &U32::new(self.immediate?))?;
        }
        if opcode.has_invalidate() {
            put(out, &U32::new(self.invalidate_rkey?))?;
        }
        if matches!(opcode.operation(), Operation::Cnp) {
            put(out, &CnpReserved::default())?;
        }
        Some(())
    }
}

/// Whether `opcode` allows for a payload of `len` bytes. The path MTU is for
/// the QP to check.
#[inline]
fn payload_fits(opcode: Opcode, len: u32) -> bool {
    match opcode.operation() {
        Operation::AtomicWrite => len == ATOMIC_WRITE_LEN,
        _ => len == 0 || opcode.has_payload(),
    }
}
