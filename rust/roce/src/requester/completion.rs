// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Completions: in the order of posting, each once.

use core::ops::DerefMut;

use crate::status::Status;

use super::{
    Phase,
    Requester,
    SendCompletion,
    SendOperation,
    SendSlot, //
};

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Whether there are completions to be taken, other than those of a queue that is flushed.
    #[inline]
    pub fn has_completions(&self) -> bool {
        self.tail != self.oldest
    }

    /// The next completion. Unsignaled successes are among them: the driver frees what belongs to
    /// the work request and tells nobody.
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        if self.tail == self.oldest {
            if self.tail == self.head || !matches!(self.phase, Phase::Flushing) {
                return None;
            }
            self.complete_oldest(Status::Flushed);
        }

        let sequence = self.tail;
        let slot = self.slot(sequence)?;
        let status = slot.status.unwrap_or(Status::Flushed);
        let completion = SendCompletion {
            sequence,
            status,
            signaled: slot.wr.signaled || !matches!(status, Status::Success),
            operation: slot.wr.operation,
            length: match slot.wr.operation {
                SendOperation::Send
                | SendOperation::Write
                | SendOperation::Read
                | SendOperation::Local => slot.wr.length,
                SendOperation::CompareSwap
                | SendOperation::FetchAdd
                | SendOperation::AtomicWrite => 8,
                SendOperation::Flush => 0,
            },
        };
        self.tail = sequence.wrapping_add(1);
        Some(completion)
    }

    /// To the error state: everything that is not complete, and everything that is posted from now
    /// on, completes as flushed.
    pub fn flush(&mut self) {
        self.abandon();
        self.phase = Phase::Flushing;
    }

    /// Completes the oldest work request with `status`.
    #[inline]
    pub(super) fn complete_oldest(&mut self, status: Status) {
        let sequence = self.oldest;
        if sequence == self.head {
            return;
        }
        if let Some(slot) = self.slot_mut(sequence) {
            slot.status = Some(status);
        }
        let next = sequence.wrapping_add(1);
        // INVARIANT: neither is left behind.
        if self.cursor == sequence {
            self.cursor = next;
        }
        if self.started == sequence {
            self.started = next;
        }
        self.oldest = next;
    }

    /// Completes what is done, and fails what cannot be done once everything before it is complete.
    pub(super) fn settle(&mut self) {
        while self.oldest != self.started {
            let Some(slot) = self.slot(self.oldest) else {
                return;
            };
            let done = match slot.wr.operation {
                SendOperation::Local => slot.executed,
                _ => self.una >= slot.end(),
            };
            if done {
                if self
                    .stop
                    .is_some_and(|(sequence, _)| sequence == self.oldest)
                {
                    // It was acknowledged all the same: what failed was sending it again.
                    self.stop = None;
                }
                self.complete_oldest(Status::Success);
                continue;
            }
            break;
        }
        if let Some((sequence, status)) = self.stop {
            if sequence == self.oldest {
                self.fail(status);
            }
        }
    }

    /// Completes the oldest work request with an error, which ends the work of the queue.
    #[cold]
    pub(super) fn fail(&mut self, status: Status) {
        self.abandon();
        self.complete_oldest(status);
        self.phase = Phase::Failed;
        self.error = Some(status);
    }
}
