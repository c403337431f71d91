// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Why a packet was dropped.

/// Why a packet had no effect. None of them is an error of the QP; the driver counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The QP is not configured, or in error.
    State,
    /// The opcode is of another service, or not for this half of the QP.
    Opcode,
    /// The partition key does not match (IBTA 9.6.1.1.3).
    Pkey,
    /// The queue key does not match (IBTA 9.6.1.1.5).
    Qkey,
    /// A response with a PSN that is not outstanding (a "ghost", IBTA 9.7.5.1).
    Ghost,
    /// A response that was processed before.
    Stale,
    /// A response behind one that is missing: the request will be sent again.
    OutOfOrder,
    /// A response with a reserved syndrome.
    Syndrome,
    /// A request behind one that is missing (IBTA 9.7.4.1.1): answered once per gap.
    SequenceGap,
    /// A duplicate of a READ or ATOMIC that is no longer remembered, or that differs from it.
    Forgotten,
    /// UC: in the middle of a message whose beginning is missing.
    NoMessage,
    /// UC and UD: no receive is posted.
    NoReceive,
    /// Reliable services: no receive is posted. The answer is an RNR NAK (IBTA 9.7.5.2.8).
    NotReady,
    /// UC and UD: the message is longer than the receive buffer, which is kept for the next message.
    TooLong,
    /// UC: a request that RC would have answered with an error (IBTA 9.8.2.2).
    Invalid,
}
