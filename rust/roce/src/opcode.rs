// SPDX-License-Identifier: GPL-2.0 OR MIT

//! BTH opcodes (IBTA 9.2.1 and table 38, annex A14 for XRC, annex A17.9.3 for CNP), and what each one brings.

use crate::qp::Type;

/// The transport service that an opcode belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// No transport service: the congestion notification packet.
    Cnp,
}

/// The place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last,
    /// The message's only packet.
    Only,
}

/// The operation that a packet is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND, of all kinds.
    Send,
    /// RDMA WRITE, with or without immediate data.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response; also the response to FLUSH and ATOMIC WRITE.
    ReadResponse,
    /// Acknowledge: ACK, NAK and RNR NAK.
    Acknowledge,
    /// ATOMIC acknowledge.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// Congestion notification.
    Cnp,
}

/// Why a byte is not an [`Opcode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeError {
    /// An opcode of a transport service that RoCEv2 knows but this crate does not speak: RD.
    Transport,
    /// A code that the specification reserves, or leaves to manufacturers.
    Reserved,
}

/// The properties of an opcode: one row of the table.
#[derive(Clone, Copy)]
struct Info {
    /// The opcode itself, or why the code is none.
    opcode: Result<Opcode, OpcodeError>,
    transport: Transport,
    operation: Operation,
    position: Position,
    /// The parts behind the BTH: a set of the constants below.
    parts: u16,
    /// Length in bytes of the header stack.
    header_len: u8,
}

impl Info {
    /// A code that is no opcode.
    const RESERVED: Self = Self {
        opcode: Err(OpcodeError::Reserved),
        transport: Transport::Rc,
        operation: Operation::Acknowledge,
        position: Position::Only,
        parts: NOTHING,
        header_len: 0,
    };

    /// The row of `code`.
    #[inline]
    fn of(code: u8) -> &'static Self {
        // The table has a row for every byte: the default is for the eyes of the compiler only.
        TABLE
            .get(usize::from(code))
            .unwrap_or(const { &Self::RESERVED })
    }
}

const RETH: u16 = 1 << 0;
const ATOMIC: u16 = 1 << 1;
const AETH: u16 = 1 << 2;
const ATOMIC_ACK: u16 = 1 << 3;
const DETH: u16 = 1 << 4;
const IMM: u16 = 1 << 5;
const IETH: u16 = 1 << 6;
const FETH: u16 = 1 << 7;
const CNP: u16 = 1 << 8;
const PAYLOAD: u16 = 1 << 9;
const XRCETH: u16 = 1 << 10;
const NOTHING: u16 = 0;

/// Length of the BTH in bytes.
pub const BTH_LEN: usize = 12;

/// Lengths in bytes of what may follow the BTH.
const LENGTHS: [(u16, usize); 10] = [
    (RETH, 16),
    (ATOMIC, 28),
    (AETH, 4),
    (ATOMIC_ACK, 8),
    (DETH, 8),
    (IMM, 4),
    (IETH, 4),
    (FETH, 4),
    (CNP, 16),
    (XRCETH, 4),
];

/// The length in bytes of the BTH and of `parts` without the payload.
const fn header_len(parts: u16) -> usize {
    let mut len = BTH_LEN;
    let mut rest: &[(u16, usize)] = &LENGTHS;
    while let [(part, part_len), tail @ ..] = rest {
        if parts & *part != 0 {
            len = len.wrapping_add(*part_len);
        }
        rest = tail;
    }
    len
}

macro_rules! opcodes {
    ($(
        $(#[$doc:meta])*
        $code:literal $name:ident: $transport:ident $operation:ident $position:ident
        [$($part:ident)|+];
    )*) => {
        /// An opcode of RC, UC, UD or XRC, or CNP.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl Opcode {
            /// Every opcode, in ascending order of code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The length in bytes of the longest header stack of any opcode.
            pub(crate) const MAX_HEADER_LEN: usize = {
                let mut max = 0;
                $(
                    if header_len($($part)|+) > max {
                        max = header_len($($part)|+);
                    }
                )*
                max
            };
        }

        /// The table: one row for each code. Computed at compile time; an index that does not fit
        /// would not compile.
        static TABLE: [Info; 256] = {
            let mut table = [Info::RESERVED; 256];
            let mut code = 0;
            while code < table.len() {
                // RD.
                if matches!(code, 0x40..=0x55) {
                    table[code].opcode = Err(OpcodeError::Transport);
                }
                code += 1;
            }
            $(
                table[$code] = Info {
                    opcode: Ok(Opcode::$name),
                    transport: Transport::$transport,
                    operation: Operation::$operation,
                    position: Position::$position,
                    parts: $($part)|+,
                    header_len: header_len($($part)|+) as u8,
                };
            )*
            table
        };
    };
}

opcodes! {
    /// RC SEND First.
    0x00 RcSendFirst: Rc Send First [PAYLOAD];
    /// RC SEND Middle.
    0x01 RcSendMiddle: Rc Send Middle [PAYLOAD];
    /// RC SEND Last.
    0x02 RcSendLast: Rc Send Last [PAYLOAD];
    /// RC SEND Last with Immediate.
    0x03 RcSendLastImm: Rc Send Last [IMM | PAYLOAD];
    /// RC SEND Only.
    0x04 RcSendOnly: Rc Send Only [PAYLOAD];
    /// RC SEND Only with Immediate.
    0x05 RcSendOnlyImm: Rc Send Only [IMM | PAYLOAD];
    /// RC RDMA WRITE First.
    0x06 RcWriteFirst: Rc Write First [RETH | PAYLOAD];
    /// RC RDMA WRITE Middle.
    0x07 RcWriteMiddle: Rc Write Middle [PAYLOAD];
    /// RC RDMA WRITE Last.
    0x08 RcWriteLast: Rc Write Last [PAYLOAD];
    /// RC RDMA WRITE Last with Immediate.
    0x09 RcWriteLastImm: Rc Write Last [IMM | PAYLOAD];
    /// RC RDMA WRITE Only.
    0x0a RcWriteOnly: Rc Write Only [RETH | PAYLOAD];
    /// RC RDMA WRITE Only with Immediate.
    0x0b RcWriteOnlyImm: Rc Write Only [RETH | IMM | PAYLOAD];
    /// RC RDMA READ Request.
    0x0c RcReadRequest: Rc ReadRequest Only [RETH];
    /// RC RDMA READ response First.
    0x0d RcReadResponseFirst: Rc ReadResponse First [AETH | PAYLOAD];
    /// RC RDMA READ response Middle.
    0x0e RcReadResponseMiddle: Rc ReadResponse Middle [PAYLOAD];
    /// RC RDMA READ response Last.
    0x0f RcReadResponseLast: Rc ReadResponse Last [AETH | PAYLOAD];
    /// RC RDMA READ response Only.
    0x10 RcReadResponseOnly: Rc ReadResponse Only [AETH | PAYLOAD];
    /// RC Acknowledge.
    0x11 RcAcknowledge: Rc Acknowledge Only [AETH];
    /// RC ATOMIC Acknowledge.
    0x12 RcAtomicAcknowledge: Rc AtomicAcknowledge Only [AETH | ATOMIC_ACK];
    /// RC CmpSwap.
    0x13 RcCompareSwap: Rc CompareSwap Only [ATOMIC];
    /// RC FetchAdd.
    0x14 RcFetchAdd: Rc FetchAdd Only [ATOMIC];
    /// RC SEND Last with Invalidate.
    0x16 RcSendLastInvalidate: Rc Send Last [IETH | PAYLOAD];
    /// RC SEND Only with Invalidate.
    0x17 RcSendOnlyInvalidate: Rc Send Only [IETH | PAYLOAD];
    /// RC FLUSH.
    0x1c RcFlush: Rc Flush Only [FETH | RETH];
    /// RC ATOMIC WRITE.
    0x1d RcAtomicWrite: Rc AtomicWrite Only [RETH | PAYLOAD];
    /// UC SEND First.
    0x20 UcSendFirst: Uc Send First [PAYLOAD];
    /// UC SEND Middle.
    0x21 UcSendMiddle: Uc Send Middle [PAYLOAD];
    /// UC SEND Last.
    0x22 UcSendLast: Uc Send Last [PAYLOAD];
    /// UC SEND Last with Immediate.
    0x23 UcSendLastImm: Uc Send Last [IMM | PAYLOAD];
    /// UC SEND Only.
    0x24 UcSendOnly: Uc Send Only [PAYLOAD];
    /// UC SEND Only with Immediate.
    0x25 UcSendOnlyImm: Uc Send Only [IMM | PAYLOAD];
    /// UC RDMA WRITE First.
    0x26 UcWriteFirst: Uc Write First [RETH | PAYLOAD];
    /// UC RDMA WRITE Middle.
    0x27 UcWriteMiddle: Uc Write Middle [PAYLOAD];
    /// UC RDMA WRITE Last.
    0x28 UcWriteLast: Uc Write Last [PAYLOAD];
    /// UC RDMA WRITE Last with Immediate.
    0x29 UcWriteLastImm: Uc Write Last [IMM | PAYLOAD];
    /// UC RDMA WRITE Only.
    0x2a UcWriteOnly: Uc Write Only [RETH | PAYLOAD];
    /// UC RDMA WRITE Only with Immediate.
    0x2b UcWriteOnlyImm: Uc Write Only [RETH | IMM | PAYLOAD];
    /// UD SEND Only.
    0x64 UdSendOnly: Ud Send Only [DETH | PAYLOAD];
    /// UD SEND Only with Immediate.
    0x65 UdSendOnlyImm: Ud Send Only [DETH | IMM | PAYLOAD];
    /// Congestion notification packet. Neither request nor response.
    0x81 Cnp: Cnp Cnp Only [CNP | NOTHING];
    /// XRC SEND First.
    0xa0 XrcSendFirst: Xrc Send First [XRCETH | PAYLOAD];
    /// XRC SEND Middle.
    0xa1 XrcSendMiddle: Xrc Send Middle [XRCETH | PAYLOAD];
    /// XRC SEND Last.
    0xa2 XrcSendLast: Xrc Send Last [XRCETH | PAYLOAD];
    /// XRC SEND Last with Immediate.
    0xa3 XrcSendLastImm: Xrc Send Last [XRCETH | IMM | PAYLOAD];
    /// XRC SEND Only.
    0xa4 XrcSendOnly: Xrc Send Only [XRCETH | PAYLOAD];
    /// XRC SEND Only with Immediate.
    0xa5 XrcSendOnlyImm: Xrc Send Only [XRCETH | IMM | PAYLOAD];
    /// XRC RDMA WRITE First.
    0xa6 XrcWriteFirst: Xrc Write First [XRCETH | RETH | PAYLOAD];
    /// XRC RDMA WRITE Middle.
    0xa7 XrcWriteMiddle: Xrc Write Middle [XRCETH | PAYLOAD];
    /// XRC RDMA WRITE Last.
    0xa8 XrcWriteLast: Xrc Write Last [XRCETH | PAYLOAD];
    /// XRC RDMA WRITE Last with Immediate.
    0xa9 XrcWriteLastImm: Xrc Write Last [XRCETH | IMM | PAYLOAD];
    /// XRC RDMA WRITE Only.
    0xaa XrcWriteOnly: Xrc Write Only [XRCETH | RETH | PAYLOAD];
    /// XRC RDMA WRITE Only with Immediate.
    0xab XrcWriteOnlyImm: Xrc Write Only [XRCETH | RETH | IMM | PAYLOAD];
    /// XRC RDMA READ Request.
    0xac XrcReadRequest: Xrc ReadRequest Only [XRCETH | RETH];
    /// XRC RDMA READ response First.
    0xad XrcReadResponseFirst: Xrc ReadResponse First [AETH | PAYLOAD];
    /// XRC RDMA READ response Middle.
    0xae XrcReadResponseMiddle: Xrc ReadResponse Middle [PAYLOAD];
    /// XRC RDMA READ response Last.
    0xaf XrcReadResponseLast: Xrc ReadResponse Last [AETH | PAYLOAD];
    /// XRC RDMA READ response Only.
    0xb0 XrcReadResponseOnly: Xrc ReadResponse Only [AETH | PAYLOAD];
    /// XRC Acknowledge.
    0xb1 XrcAcknowledge: Xrc Acknowledge Only [AETH];
    /// XRC ATOMIC Acknowledge.
    0xb2 XrcAtomicAcknowledge: Xrc AtomicAcknowledge Only [AETH | ATOMIC_ACK];
    /// XRC CmpSwap.
    0xb3 XrcCompareSwap: Xrc CompareSwap Only [XRCETH | ATOMIC];
    /// XRC FetchAdd.
    0xb4 XrcFetchAdd: Xrc FetchAdd Only [XRCETH | ATOMIC];
    /// XRC SEND Last with Invalidate.
    0xb6 XrcSendLastInvalidate: Xrc Send Last [XRCETH | IETH | PAYLOAD];
    /// XRC SEND Only with Invalidate.
    0xb7 XrcSendOnlyInvalidate: Xrc Send Only [XRCETH | IETH | PAYLOAD];
}

impl TryFrom<u8> for Opcode {
    type Error = OpcodeError;

    #[inline]
    fn try_from(code: u8) -> Result<Self, OpcodeError> {
        Info::of(code).opcode
    }
}

impl Opcode {
    /// The same opcode of another service, [`None`] if that has none. `self` is one of RC; the top three bits are the
    /// service (IBTA 9.2.1).
    #[inline]
    pub(crate) fn of_service(self, service: Type) -> Option<Self> {
        let top = match service {
            Type::Rc => return Some(self),
            Type::Uc => 0x20,
            Type::Ud | Type::Gsi => 0x60,
            Type::XrcInitiator | Type::XrcTarget => 0xa0,
            Type::RawPacket => return None,
        };
        Self::try_from(top | (self as u8 & 0x1f)).ok()
    }

    /// The opcode's row of the table.
    #[inline]
    fn info(self) -> &'static Info {
        Info::of(self as u8)
    }

    /// Length in bytes of the header stack: BTH and all extension headers.
    #[inline]
    pub fn header_len(self) -> usize {
        usize::from(self.info().header_len)
    }

    /// The transport service.
    #[inline]
    pub fn transport(self) -> Transport {
        self.info().transport
    }

    /// The operation that the packet is a part of.
    #[inline]
    pub fn operation(self) -> Operation {
        self.info().operation
    }

    /// The packet's place in its message.
    #[inline]
    pub fn position(self) -> Position {
        self.info().position
    }

    /// Whether a requester sends it. False for CNP.
    #[inline]
    pub fn is_request(self) -> bool {
        !self.is_response() && !matches!(self, Self::Cnp)
    }

    /// Whether a responder sends it, in answer to a request. False for CNP.
    #[inline]
    pub fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// Whether a message starts here: first or only.
    #[inline]
    pub fn starts_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// Whether a message ends here: last or only.
    #[inline]
    pub fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    /// Whether extension headers follow the BTH.
    #[inline]
    pub fn has_extensions(self) -> bool {
        self.header_len() > BTH_LEN
    }

    #[inline]
    fn has(self, part: u16) -> bool {
        self.info().parts & part != 0
    }

    /// Whether an XRC extended transport header follows.
    #[inline]
    pub fn has_xrceth(self) -> bool {
        self.has(XRCETH)
    }

    /// Whether an RDMA extended transport header follows.
    #[inline]
    pub fn has_reth(self) -> bool {
        self.has(RETH)
    }

    /// Whether an atomic extended transport header follows.
    #[inline]
    pub fn has_atomic(self) -> bool {
        self.has(ATOMIC)
    }

    /// Whether an acknowledge extended transport header follows.
    #[inline]
    pub fn has_aeth(self) -> bool {
        self.has(AETH)
    }

    /// Whether an atomic acknowledge extended transport header follows.
    #[inline]
    pub fn has_atomic_ack(self) -> bool {
        self.has(ATOMIC_ACK)
    }

    /// Whether a datagram extended transport header follows.
    #[inline]
    pub fn has_deth(self) -> bool {
        self.has(DETH)
    }

    /// Whether immediate data follow.
    #[inline]
    pub fn has_immediate(self) -> bool {
        self.has(IMM)
    }

    /// Whether an invalidate extended transport header follows.
    #[inline]
    pub fn has_invalidate(self) -> bool {
        self.has(IETH)
    }

    /// Whether a FLUSH extended transport header follows.
    #[inline]
    pub fn has_flush(self) -> bool {
        self.has(FETH)
    }

    /// Whether the packet may have a payload.
    #[inline]
    pub fn has_payload(self) -> bool {
        self.has(PAYLOAD)
    }
}
