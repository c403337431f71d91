// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of the module, for perf, bpftrace and ftrace. One that is off costs a load and a branch.
//!
//! The kernel's `declare_trace!` takes the tracepoints of the kernel crate's own bindings, and asks a static key by code
//! that is patched, for which a module that is built out of tree has no template. So the key is read here.
//!
//! All functions may be called in any context, with any lock held.
//!
//! C header: `include/trace/events/ferroce.h`.

use core::sync::atomic::{
    AtomicI32,
    Ordering, //
};
use kernel::prelude::*;
use rdma_bindings as bindings;

/// Whether somebody listens to the tracepoint of that name.
macro_rules! is_on {
    ($tracepoint:ident) => {{
        // SAFETY: The tracepoint is a static of this module. C changes the count atomically, and so it is read: an
        // `atomic_t` is laid out as `AtomicI32`.
        let enabled = unsafe {
            AtomicI32::from_ptr(&raw mut bindings::$tracepoint.key.key.enabled.counter)
        };
        enabled.load(Ordering::Relaxed) > 0
    }};
}

/// The fields of a packet event.
#[derive(Clone, Copy)]
pub struct Packet {
    /// Number of the QP that it is for.
    pub dest_qpn: u32,
    /// The opcode of its BTH.
    pub opcode: u8,
    /// Packet sequence number.
    pub psn: u32,
    /// Bytes of payload.
    pub len: u32,
    /// The syndrome of its AETH.
    pub syndrome: Option<u8>,
}

impl Packet {
    fn syndrome(&self) -> i32 {
        self.syndrome.map_or(-1, i32::from)
    }
}

/// Send requests were posted to the QP with the number `qpn`.
#[inline]
pub fn post_send(qpn: u32) {
    if is_on!(__tracepoint_ferroce_post_send) {
        // SAFETY: The function takes any number, in any context.
        unsafe { bindings::rust_do_trace_ferroce_post_send(qpn) };
    }
}

/// A packet was built, and is about to leave.
#[inline]
pub fn packet_out(packet: impl FnOnce() -> Packet) {
    if is_on!(__tracepoint_ferroce_packet_out) {
        let packet = packet();
        // SAFETY: The function takes any numbers, in any context.
        unsafe {
            bindings::rust_do_trace_ferroce_packet_out(
                packet.dest_qpn,
                packet.opcode,
                packet.psn,
                packet.len,
                packet.syndrome(),
            )
        };
    }
}

/// A packet came whose headers and ICRC are right.
#[inline]
pub fn packet_in(packet: impl FnOnce() -> Packet) {
    if is_on!(__tracepoint_ferroce_packet_in) {
        let packet = packet();
        // SAFETY: As in `packet_out`.
        unsafe {
            bindings::rust_do_trace_ferroce_packet_in(
                packet.dest_qpn,
                packet.opcode,
                packet.psn,
                packet.len,
                packet.syndrome(),
            )
        };
    }
}

/// A packet for the QP with the number `qpn`, or 0, was dropped, for the reason that the counter `reason` is named after.
#[inline]
pub fn drop(qpn: u32, reason: &'static CStr) {
    if is_on!(__tracepoint_ferroce_drop) {
        // SAFETY: The function takes any number and a string, which it copies, in any context.
        unsafe { bindings::rust_do_trace_ferroce_drop(qpn, reason.as_char_ptr()) };
    }
}

/// The QP with the number `qpn` sends so many packets again.
#[inline]
pub fn retransmit(qpn: u32, packets: u32) {
    if is_on!(__tracepoint_ferroce_retransmit) {
        // SAFETY: The function takes any numbers, in any context.
        unsafe { bindings::rust_do_trace_ferroce_retransmit(qpn, packets) };
    }
}

/// A work request of the QP with the number `qpn` ended. `status` and `opcode` are those of `struct ib_wc`.
#[inline]
pub fn completion(qpn: u32, wr_id: u64, status: u32, opcode: u32) {
    if is_on!(__tracepoint_ferroce_completion) {
        // SAFETY: The function takes any numbers, in any context.
        unsafe { bindings::rust_do_trace_ferroce_completion(qpn, wr_id, status, opcode) };
    }
}

/// The QP with the number `qpn` goes from one state to another, as `enum ib_qp_state` counts them.
#[inline]
pub fn qp_state(qpn: u32, from: u32, to: u32) {
    if is_on!(__tracepoint_ferroce_qp_state) {
        // SAFETY: The function takes any numbers, in any context.
        unsafe { bindings::rust_do_trace_ferroce_qp_state(qpn, from, to) };
    }
}

/// A side of the QP with the number `qpn` needs pages that are not present, and stops until they are.
#[inline]
pub fn page_wait(qpn: u32) {
    if is_on!(__tracepoint_ferroce_page_wait) {
        // SAFETY: The function takes any number, in any context.
        unsafe { bindings::rust_do_trace_ferroce_page_wait(qpn) };
    }
}

/// A side of the QP with the number `qpn` goes on, with the pages or without.
#[inline]
pub fn page_ready(qpn: u32) {
    if is_on!(__tracepoint_ferroce_page_ready) {
        // SAFETY: The function takes any number, in any context.
        unsafe { bindings::rust_do_trace_ferroce_page_ready(qpn) };
    }
}
