// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requester: FLUSH and ATOMIC WRITE.

mod common;

use common::*;
use roce::{
    dropped::DropReason,
    opcode::Opcode,
    packet::{
        Flush,
        NakCode,
        Packet, //
    },
    psn::Psn,
    qp::Type,
    requester::{
        Received,
        RequesterConfig,
        SendOperation,
        SendWr, //
    },
    status::Status, //
};

/// The response to a FLUSH or ATOMIC WRITE.
fn empty_response(psn: Psn) -> Packet {
    read_response(Opcode::RcReadResponseOnly, psn, 0)
}

#[test]
fn packets_of_a_flush_and_an_atomic_write() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        let flush = SendWr {
            flush: Flush {
                placement: 3,
                selectivity: 1,
            },
            ..operation(SendOperation::Flush, u32::MAX)
        };
        requester.post(flush).unwrap();
        requester.post(atomic_write()).unwrap();
        let packets = transmit(&mut requester, us(0));
        assert_eq!(
            outline(&packets, psn),
            [(Opcode::RcFlush, 0), (Opcode::RcAtomicWrite, 1)]
        );
        assert_eq!(packets[0].flush, Some(flush.flush));
        let reth = packets.iter().map(|packet| packet.reth.unwrap());
        let reth: Vec<_> = reth.map(|reth| (reth.va, reth.rkey, reth.length)).collect();
        assert_eq!(reth, [(0x1000, 0x77, u32::MAX), (0x1000, 0x77, 8)]);
        assert!(packets.iter().all(|packet| packet.ack_request));
        assert_eq!((packets[0].payload_len, packets[1].payload_len), (0, 8));
    });
}

#[test]
fn payload_of_an_atomic_write() {
    let mut requester = requester(Psn::new(0));
    // The length is eight, whatever the consumer says.
    let wr = SendWr {
        length: 5,
        ..atomic_write()
    };
    requester.post(wr).unwrap();
    let burst = poll_burst(&mut requester);
    assert_eq!((burst.offset, burst.length, burst.packets), (0, 8, 1));
    let (packet, offset) = requester.packet(&burst, 0).unwrap();
    assert_eq!((offset, packet.payload_len), (0, 8));
    assert!(requester.packet(&burst, 1).is_none());
}

#[test]
fn flush_and_atomic_write_complete_with_their_responses() {
    with_psns(|psn| {
        let mut requester = requester(psn);
        requester.post(send(1)).unwrap();
        requester.post(flush(300)).unwrap();
        requester.post(atomic_write()).unwrap();
        requester.post(send(1)).unwrap();
        transmit(&mut requester, us(0));
        // It acknowledges what was before; there is nothing to place.
        assert_eq!(
            respond(&mut requester, us(1), &empty_response(psn.add(1))),
            Received::Nothing
        );
        assert_eq!(
            completions(&mut requester),
            [(0, Status::Success), (1, Status::Success)]
        );
        assert_eq!(
            respond(&mut requester, us(1), &empty_response(psn.add(1))),
            Received::Dropped(DropReason::Stale)
        );
        respond(&mut requester, us(1), &empty_response(psn.add(2)));
        let completion = requester.poll_completion().unwrap();
        assert_eq!(completion.operation, SendOperation::AtomicWrite);
        assert_eq!((completion.sequence, completion.length), (2, 8));
        respond(&mut requester, us(1), &ack(psn.add(3)));
        assert_eq!(completions(&mut requester), [(3, Status::Success)]);
        assert_eq!(requester.poll_timeout(), None);
    });
}

#[test]
fn acknowledgement_does_not_complete_a_flush() {
    with_psns(|psn| {
        for wr in [flush(8), atomic_write()] {
            let mut requester = requester(psn);
            requester.post(wr).unwrap();
            requester.post(send(1)).unwrap();
            transmit(&mut requester, us(0));
            // Its response has been lost: it is asked for again.
            respond(&mut requester, us(1), &ack(psn.add(1)));
            assert!(completions(&mut requester).is_empty());
            let packets = transmit(&mut requester, us(1));
            assert_eq!(packets.len(), 2);
            assert_eq!(packets[0].psn, psn);
            assert_eq!(requester.counters().implied_naks, 1);
            respond(&mut requester, us(2), &empty_response(psn));
            respond(&mut requester, us(2), &ack(psn.add(1)));
            assert_eq!(completions(&mut requester).len(), 2);
        }
    });
}

#[test]
fn responses_that_answer_no_flush() {
    use Opcode::*;
    with_psns(|psn| {
        for wr in [flush(8), atomic_write()] {
            for (response, status) in [
                (
                    read_response(RcReadResponseOnly, psn, 8),
                    Status::LocalLength,
                ),
                (
                    read_response(RcReadResponseFirst, psn, 0),
                    Status::BadResponse,
                ),
                (
                    read_response(RcReadResponseLast, psn, 0),
                    Status::BadResponse,
                ),
                (atomic_ack(psn, 1), Status::BadResponse),
                (nak(psn, NakCode::RemoteAccess), Status::RemoteAccess),
                (
                    nak(psn, NakCode::InvalidRequest),
                    Status::RemoteInvalidRequest,
                ),
            ] {
                let mut requester = requester(psn);
                requester.post(wr).unwrap();
                transmit(&mut requester, us(0));
                assert_eq!(respond(&mut requester, us(1), &response), Received::Nothing);
                assert_eq!(completions(&mut requester), [(0, status)]);
            }
        }
    });
}

#[test]
fn flushes_and_atomic_writes_count_as_reads() {
    let psn = Psn::new(0);
    let config = RequesterConfig {
        max_rd_atomic: 2,
        ..requester_config(psn)
    };
    let mut requester = requester_with(config);
    requester.post(flush(8)).unwrap();
    requester.post(atomic_write()).unwrap();
    requester.post(read(1)).unwrap();
    requester.post(flush(8)).unwrap();
    // Behind a fence, all of them are waited for.
    let wr = SendWr {
        fence: true,
        ..send(1)
    };
    requester.post(wr).unwrap();
    use Opcode::*;
    assert_eq!(
        outline(&transmit(&mut requester, us(0)), psn),
        [(RcFlush, 0), (RcAtomicWrite, 1)]
    );
    respond(&mut requester, us(1), &empty_response(psn));
    assert_eq!(
        outline(&transmit(&mut requester, us(1)), psn),
        [(RcReadRequest, 2)]
    );
    respond(&mut requester, us(2), &empty_response(psn.add(1)));
    assert_eq!(
        outline(&transmit(&mut requester, us(2)), psn),
        [(RcFlush, 3)]
    );
    respond(
        &mut requester,
        us(3),
        &read_response(RcReadResponseOnly, psn.add(2), 1),
    );
    assert!(transmit(&mut requester, us(3)).is_empty());
    respond(&mut requester, us(4), &empty_response(psn.add(3)));
    assert_eq!(
        outline(&transmit(&mut requester, us(4)), psn),
        [(RcSendOnly, 4)]
    );
}

#[test]
fn flushes_and_atomic_writes_that_cannot_be() {
    let unreliable = RequesterConfig {
        service: Type::Uc,
        ..requester_config(Psn::new(0))
    };
    let none = RequesterConfig {
        max_rd_atomic: 0,
        ..requester_config(Psn::new(0))
    };
    let any = requester_config(Psn::new(0));
    let with = |placement, selectivity| SendWr {
        flush: Flush {
            placement,
            selectivity,
        },
        ..flush(8)
    };
    let extended = RequesterConfig {
        service: Type::XrcInitiator,
        ..requester_config(Psn::new(0))
    };
    for (config, wr) in [
        (unreliable, flush(8)),
        (unreliable, atomic_write()),
        (extended, flush(8)),
        (extended, atomic_write()),
        (none, flush(8)),
        (none, atomic_write()),
        (any, with(0, 0)),
        (any, with(4, 0)),
        (any, with(1, 2)),
    ] {
        let mut requester = requester_with(config);
        requester.post(wr).unwrap();
        assert!(transmit(&mut requester, us(0)).is_empty());
        assert_eq!(completions(&mut requester), [(0, Status::LocalQpOperation)]);
    }
}
