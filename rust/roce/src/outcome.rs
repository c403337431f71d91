// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The two-phase contract: an action is handed out, and takes effect when it comes back with its outcome.
//!
//! Between the two phases nothing else happens to the requester or responder: the driver holds its lock. An action of the
//! requester cannot be copied, nor can the `Stage` that comes with one of the responder, and `commit` takes it by value,
//! so it has one outcome. An action that is dropped has none: nothing has changed, and what is due comes again.

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
