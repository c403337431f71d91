// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The RoCEv2 protocol without I/O.
//!
//! The format on the wire ([`wire`], [`packet`], [`opcode`], [`icrc`]), the queue pair ([`qp`]), and
//! the state machines that move messages. Nothing in here knows a kernel type, allocates, reads
//! a clock or can panic: the kernel module is compiled from the same source as the host's tests,
//! and a gate checks that no panic is reachable.
//!
//! The rules are those of the InfiniBand Architecture Specification, volume 1 ("IBTA" below), and
//! of its annexes A14 (XRC) and A17 (RoCEv2).
//!
//! # Panics
//!
//! None, nowhere: no indexing, no `unwrap()`, no plain arithmetic that may overflow. To check this
//! crate alone, compile it as the kernel does and look for undefined symbols:
//!
//! ```sh
//! RUSTFLAGS='--cfg CONFIG_RUST' cargo rustc -p roce --lib --release --target-dir DIR -- \
//!     --emit=obj -C overflow-checks=on -C opt-level=2 -C codegen-units=1
//! nm -uC DIR/release/deps/roce-*.o | grep core::panicking
//! ```
//!
//! That leaves out inline functions that nothing here calls. With `-C link-dead-code` they are there
//! too, and so is much of `core` and `zerocopy` that is never called: then ask with `objdump -dr`
//! that no function of `roce` refers to a panic.
//!
//! # Examples
//!
//! ```
//! use roce::{opcode::Opcode, packet::Packet, psn::Psn};
//!
//! let mut packet = Packet::new(Opcode::RcSendOnly, 0x11, Psn::new(7));
//! packet.payload_len = 5;
//!
//! let mut header = [0; roce::packet::MAX_HEADER_LEN];
//! assert_eq!(packet.emit(&mut header), Some(12));
//! assert_eq!(Packet::parse(&header, packet.datagram_len()), Ok(packet));
//! ```

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

pub mod dropped;
pub mod icrc;
pub mod opcode;
pub mod outcome;
pub mod packet;
pub mod pkey;
pub mod psn;
pub mod qp;
pub mod requester;
pub mod responder;
pub mod status;
pub mod time;
pub mod wire;
