// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a driver does around the responder.

use roce::{
    outcome::Outcome,
    packet::Packet,
    responder::{
        Action,
        Receive,
        Response,
        Stage,
        Step, //
    },
    time::Instant,
    wire::U24, //
};

use crate::{
    memory::apply,
    scenario::{
        srqn_of,
        SRQNS, //
    }, //
};

use super::{
    Host,
    Output,
    Wake, //
};

impl Host {
    /// Executes a request.
    pub(super) fn receive_request(
        &mut self,
        now: Instant,
        packet: Packet,
        payload: Vec<u8>,
        out: &mut Output,
    ) {
        self.owing = true;
        let mut step = self.responder.receive(&packet);
        loop {
            step = match step {
                Step::Do(action, stage) => {
                    let parks = self.is_absent(now) || self.again();
                    self.act(action, stage, &packet, &payload, parks)
                }
                Step::Done | Step::Dropped(_) => return,
                Step::Park => {
                    self.requests.push_front((packet, payload));
                    self.requests_parked = true;
                    let at = self.absent_until.unwrap_or_else(|| self.later(now));
                    out.wakes.push((at, Wake::ResumeRequests));
                    return;
                }
                Step::Complete(completion) => {
                    self.receive_completions.push(completion);
                    return;
                }
            };
        }
    }

    /// Does one action of a request.
    fn act(
        &mut self,
        action: Action,
        stage: Stage,
        packet: &Packet,
        payload: &[u8],
        parks: bool,
    ) -> Step {
        let srqn = packet.xrc_srqn;
        let is_srq_absent = srqn.is_some_and(|srqn| !SRQNS.contains(&srqn.get()));
        let outcome = match action {
            Action::TakeReceive => {
                let receive = if is_srq_absent {
                    Receive::Invalid
                } else {
                    self.take_receive(srqn)
                };
                return self.responder.commit_receive(stage, packet, receive);
            }
            _ if is_srq_absent => Outcome::InvalidRequest,
            _ if parks => Outcome::Again,
            Action::PlaceReceive { offset, length } => {
                assert_eq!(length as usize, payload.len());
                let current = *self.taken.last().expect("a current receive");
                if self.side.receives[current].fault {
                    Outcome::Protection
                } else {
                    self.received[current][offset as usize..][..payload.len()]
                        .copy_from_slice(payload);
                    Outcome::Done
                }
            }
            Action::PlaceRemote {
                rkey,
                va,
                length,
                check_length,
            } => {
                assert_eq!(length as usize, payload.len());
                if self.range(srqn, rkey, va, check_length).is_none() {
                    Outcome::Protection
                } else {
                    let place = self.memory.range(rkey, va, length).expect("it was checked");
                    place.copy_from_slice(payload);
                    Outcome::Done
                }
            }
            Action::CheckRead { rkey, va, length } => match self.range(srqn, rkey, va, length) {
                None => Outcome::Protection,
                Some(_) => Outcome::Done,
            },
            Action::Atomic {
                rkey,
                va,
                operation,
            } => match self.range(srqn, rkey, va, 8) {
                None => Outcome::Protection,
                Some(place) => {
                    let bytes: [u8; 8] = (&*place).try_into().expect("8 bytes");
                    let original = u64::from_ne_bytes(bytes);
                    let new = apply(original, operation);
                    place.copy_from_slice(&new.to_ne_bytes());
                    return self.responder.commit_atomic(stage, packet, original);
                }
            },
            Action::AtomicWrite { rkey, va } => match self.range(srqn, rkey, va, 8) {
                None => Outcome::Protection,
                Some(place) => {
                    place.copy_from_slice(payload);
                    Outcome::Done
                }
            },
            Action::Flush {
                rkey,
                flush,
                va,
                length,
            } => {
                if self.memory.flush((rkey, flush, va, length)) {
                    Outcome::Done
                } else {
                    Outcome::Protection
                }
            }
            Action::Invalidate { rkey } => {
                self.memory.invalidated.push(rkey);
                Outcome::Done
            }
        };
        self.responder.commit(stage, packet, outcome)
    }

    /// Takes the first receive; for XRC, of this SRQ.
    fn take_receive(&mut self, srqn: Option<U24>) -> Receive {
        let is_of_srq =
            |index: &usize| srqn.is_none_or(|srqn| self.srqn_of_receive(*index) == srqn.get());
        let Some(at) = self.posted.iter().position(is_of_srq) else {
            return Receive::Empty;
        };
        let index = self.posted.remove(at).expect("it was found there");
        self.taken.push(index);
        Receive::Taken {
            capacity: self.side.receives[index].capacity,
        }
    }

    /// A range of memory, if all of it is there; for XRC, in the protection domain of this SRQ.
    fn range(&mut self, srqn: Option<U24>, rkey: u32, va: u64, length: u32) -> Option<&mut [u8]> {
        if srqn.is_some_and(|srqn| srqn.get() != srqn_of(rkey)) {
            return None;
        }
        self.memory.range(rkey, va, length)
    }

    /// Sends all the responses that can be sent.
    pub(super) fn respond(&mut self, now: Instant, out: &mut Output) {
        let budget = self.rng.pick(&[1, 7, 1000]);
        while let Some(response) = self.responder.poll_response(budget) {
            let burst = match response {
                Response::Packet(packet) => {
                    out.packets.push((packet, Vec::new()));
                    continue;
                }
                Response::Read(burst) => burst,
            };
            if self.again() {
                self.responder.commit_read(burst, Outcome::Again);
                out.wakes.push((self.later(now), Wake::ResumeRead));
                return;
            }
            let data = match self.range(burst.xrc_srqn, burst.rkey, burst.va, burst.length) {
                Some(data) => data.to_vec(),
                None if burst.length == 0 => Vec::new(),
                None => {
                    self.responder.commit_read(burst, Outcome::Protection);
                    continue;
                }
            };
            let mut bytes = 0;
            for index in 0..burst.packets {
                let (packet, offset) = self
                    .responder
                    .read_packet(&burst, index)
                    .expect("the burst is the current one");
                let payload = &data[offset as usize..][..packet.payload_len as usize];
                bytes += packet.payload_len;
                out.packets.push((packet, payload.to_vec()));
            }
            assert_eq!(bytes, burst.length);
            self.responder.commit_read(burst, Outcome::Done);
        }
    }
}
