// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The opcode table, as a whole against a committed text, and its own consistency.

use std::fmt::Write;

use roce::opcode::{
    Opcode,
    OpcodeError,
    Position,
    Transport, //
};

mod snapshot;

/// The table as text: one line per opcode.
fn table() -> String {
    let mut text = String::new();
    for opcode in Opcode::ALL {
        let parts: Vec<&str> = [
            (opcode.has_xrceth(), "XRCETH"),
            (opcode.has_deth(), "DETH"),
            (opcode.has_flush(), "FETH"),
            (opcode.has_reth(), "RETH"),
            (opcode.has_atomic(), "AtomicETH"),
            (opcode.has_aeth(), "AETH"),
            (opcode.has_atomic_ack(), "AtomicAckETH"),
            (opcode.has_immediate(), "ImmDt"),
            (opcode.has_invalidate(), "IETH"),
            (opcode.has_payload(), "payload"),
        ]
        .into_iter()
        .filter_map(|(there, name)| there.then_some(name))
        .collect();
        let direction = match (opcode.is_request(), opcode.is_response()) {
            (true, false) => "request",
            (false, true) => "response",
            _ => "neither",
        };
        writeln!(
            text,
            "{:#04x} {opcode:?}: {:?} {direction} {:?} {:?}, {} bytes: {}",
            *opcode as u8,
            opcode.transport(),
            opcode.operation(),
            opcode.position(),
            opcode.header_len(),
            parts.join(" "),
        )
        .unwrap();
    }
    text
}

#[test]
fn table_is_as_committed() {
    snapshot::check("opcodes.txt", &table());
}

#[test]
fn every_byte_is_an_opcode_or_not() {
    let mut opcodes = 0;
    for code in 0..=255 {
        match Opcode::try_from(code) {
            Ok(opcode) => {
                opcodes += 1;
                assert_eq!(opcode as u8, code);
            }
            Err(OpcodeError::Transport) => assert_eq!(code >> 5, 2, "{code:#x}"),
            Err(OpcodeError::Reserved) => {}
        }
    }
    assert_eq!(opcodes, Opcode::ALL.len());
    assert!(Opcode::ALL.is_sorted_by_key(|opcode| *opcode as u8));
}

#[test]
fn transport_is_in_the_upper_three_bits() {
    for opcode in Opcode::ALL {
        let bits = match opcode.transport() {
            Transport::Rc => 0,
            Transport::Uc => 1,
            Transport::Ud => 3,
            Transport::Cnp => 4,
            Transport::Xrc => 5,
        };
        assert_eq!(*opcode as u8 >> 5, bits, "{opcode:?}");
    }
}

#[test]
fn xrc_is_rc_with_one_more_header() {
    for opcode in Opcode::ALL {
        if opcode.transport() != Transport::Xrc {
            assert!(!opcode.has_xrceth());
            continue;
        }
        let rc = Opcode::try_from(*opcode as u8 & 0x1f).unwrap();
        assert_eq!(opcode.operation(), rc.operation());
        assert_eq!(opcode.position(), rc.position());
        assert_eq!(opcode.is_request(), rc.is_request());
        assert_eq!(opcode.has_payload(), rc.has_payload());
        assert_eq!(opcode.has_xrceth(), opcode.is_request());
        let more = if opcode.has_xrceth() { 4 } else { 0 };
        assert_eq!(opcode.header_len(), rc.header_len() + more);
    }
}

#[test]
fn messages_start_and_end_by_position() {
    for opcode in Opcode::ALL {
        let (starts, ends) = match opcode.position() {
            Position::First => (true, false),
            Position::Middle => (false, false),
            Position::Last => (false, true),
            Position::Only => (true, true),
        };
        assert_eq!(opcode.starts_message(), starts);
        assert_eq!(opcode.ends_message(), ends);
    }
}
