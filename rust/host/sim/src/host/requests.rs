// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a driver does around the responder.

use roce::{
    packet::Packet,
    responder::{
        Atomic,
        Receive,
        Response,
        Step, //
    },
    ticket::Outcome,
    time::Instant, //
};

use crate::memory::apply;

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
            let parks = match step {
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
                _ => self.is_absent(now) || self.again(),
            };
            step = self.step(step, &packet, &payload, parks);
        }
    }

    /// Does one step of a request.
    fn step(&mut self, step: Step, packet: &Packet, payload: &[u8], parks: bool) -> Step {
        let current = self.taken.wrapping_sub(1);
        match step {
            Step::TakeReceive { ticket } => {
                let receive = if self.taken < self.next_receive {
                    let capacity = self.side.receives[self.taken].capacity;
                    self.taken += 1;
                    Receive::Taken { capacity }
                } else {
                    Receive::Empty
                };
                self.responder.commit_receive(ticket, packet, receive)
            }
            Step::PlaceReceive {
                ticket,
                offset,
                length,
            } => {
                assert_eq!(length as usize, payload.len());
                let outcome = if parks {
                    Outcome::Again
                } else if self.side.receives[current].fault {
                    Outcome::Protection
                } else {
                    self.received[current][offset as usize..][..payload.len()]
                        .copy_from_slice(payload);
                    Outcome::Done
                };
                self.responder.commit(ticket, packet, outcome)
            }
            Step::PlaceRemote {
                ticket,
                rkey,
                va,
                length,
                check_va,
                check_length,
            } => {
                assert_eq!(length as usize, payload.len());
                let outcome = if parks {
                    Outcome::Again
                } else if self.memory.range(rkey, check_va, check_length).is_none() {
                    Outcome::Protection
                } else {
                    let place = self.memory.range(rkey, va, length).expect("it was checked");
                    place.copy_from_slice(payload);
                    Outcome::Done
                };
                self.responder.commit(ticket, packet, outcome)
            }
            Step::CheckRead {
                ticket,
                rkey,
                va,
                length,
            } => {
                let outcome = if parks {
                    Outcome::Again
                } else if self.memory.range(rkey, va, length).is_none() {
                    Outcome::Protection
                } else {
                    Outcome::Done
                };
                self.responder.commit(ticket, packet, outcome)
            }
            Step::Atomic {
                ticket,
                rkey,
                va,
                operation,
            } => {
                let atomic = match self.memory.range(rkey, va, 8) {
                    _ if parks => Atomic::Again,
                    None => Atomic::Protection,
                    Some(place) => {
                        let bytes: [u8; 8] = (&*place).try_into().expect("8 bytes");
                        let original = u64::from_ne_bytes(bytes);
                        let new = apply(original, operation);
                        place.copy_from_slice(&new.to_ne_bytes());
                        Atomic::Done { original }
                    }
                };
                self.responder.commit_atomic(ticket, packet, atomic)
            }
            Step::AtomicWrite { ticket, rkey, va } => {
                let outcome = match self.memory.range(rkey, va, 8) {
                    _ if parks => Outcome::Again,
                    None => Outcome::Protection,
                    Some(place) => {
                        place.copy_from_slice(payload);
                        Outcome::Done
                    }
                };
                self.responder.commit(ticket, packet, outcome)
            }
            Step::Flush {
                ticket,
                rkey,
                flush,
                va,
                length,
            } => {
                let outcome = if parks {
                    Outcome::Again
                } else if self.memory.flush((rkey, flush, va, length)) {
                    Outcome::Done
                } else {
                    Outcome::Protection
                };
                self.responder.commit(ticket, packet, outcome)
            }
            Step::Invalidate { ticket, rkey } => {
                let outcome = if parks {
                    Outcome::Again
                } else {
                    self.memory.invalidated.push(rkey);
                    Outcome::Done
                };
                self.responder.commit(ticket, packet, outcome)
            }
            Step::Done | Step::Dropped(_) | Step::Park | Step::Complete(_) => step,
        }
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
                self.responder.commit_read(burst.ticket, Outcome::Again);
                out.wakes.push((self.later(now), Wake::ResumeRead));
                return;
            }
            let data = match self.memory.range(burst.rkey, burst.va, burst.length) {
                Some(data) => data.to_vec(),
                None if burst.length == 0 => Vec::new(),
                None => {
                    self.responder
                        .commit_read(burst.ticket, Outcome::Protection);
                    continue;
                }
            };
            let mut bytes = 0;
            for index in 0..burst.packets {
                let (packet, offset, length) = self
                    .responder
                    .read_packet(&burst, index)
                    .expect("the burst is the current one");
                let payload = &data[offset as usize..][..length as usize];
                bytes += length;
                out.packets.push((packet, payload.to_vec()));
            }
            assert_eq!(bytes, burst.length);
            self.responder.commit_read(burst.ticket, Outcome::Done);
        }
    }
}
