// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Two RoCEv2 endpoints on a virtual wire with a virtual clock.
//!
//! Everything that happens is made up from a seed: the attributes of the queue pairs, the work
//! requests of both sides, what is planted to go wrong, what the wire does to each packet. So a run
//! can be had again, with its trace and a capture: `cargo run -p sim -- SEED`.

pub mod attacker;
pub mod checker;
pub mod frame;
pub mod host;
pub mod memory;
pub mod oracle;
pub mod pcap;
pub mod rng;
pub mod scenario;
pub mod storm;
pub mod trace;
pub mod verify;
pub mod world;
