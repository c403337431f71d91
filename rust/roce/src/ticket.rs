// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The two-phase contract: an action is handed out with a ticket, and takes effect when the ticket
//! comes back with its outcome.

/// Names one action that was handed out.
///
/// A ticket that is no longer wanted (the QP was flushed or reset in between) may still be
/// returned: it is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// Makes [`Ticket`]s; each differs from the 2^32 - 1 before.
#[derive(Debug, Default)]
pub(crate) struct Tickets(u32);

impl Tickets {
    /// A new ticket.
    #[inline]
    pub(crate) fn issue(&mut self) -> Ticket {
        self.0 = self.0.wrapping_add(1);
        Ticket(self.0)
    }
}

/// How an action went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done. For a transmission: handed to the network, or lost on the way there.
    Done,
    /// The memory may not be accessed in this way: bad key, bounds, permission, domain.
    Protection,
    /// The work request is malformed, or the device failed.
    Operational,
    /// The peer's request is for an XRC SRQ that there is not: none with this number, or one of another
    /// XRC domain. Only for what a responder asks for.
    InvalidRequest,
    /// The message is not of a length that can be sent. Only for what a requester asks for.
    Length,
    /// A memory window could not be bound. Only for [`SendAction::Local`].
    ///
    /// [`SendAction::Local`]: crate::requester::SendAction::Local
    MemoryWindowBind,
    /// It cannot be done now: memory is not resident, a queue is full. Nothing has happened. The
    /// description of the action says what comes next.
    Again,
}
