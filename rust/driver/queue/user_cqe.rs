// SPDX-License-Identifier: GPL-2.0

//! Completion queue elements (CQEs) as librxe reads them from the shared rings.

use crate::packet::ah::{
    PACKET_UDP_IPV4,
    PACKET_UDP_IPV6, //
};
use rdma::wc::{
    Completion,
    Extra,
    Network, //
};
use zerocopy_derive::{
    Immutable,
    IntoBytes, //
};

/// `struct ib_uverbs_wc`, which userspace takes for a `struct ibv_wc`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct UserCompletion {
    wr_id: u64,
    status: u32,
    opcode: u32,
    vendor_err: u32,
    byte_len: u32,
    /// Immediate data in network byte order, or a key in native order.
    extra: [u8; 4],
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
    port_num: u8,
    reserved: u8,
}

/// `ibv_wc_flags`. They differ from the kernel's: what is 8 here is 4 there.
const WC_GRH: u32 = 1 << 0;
const WC_WITH_IMM: u32 = 1 << 1;
const WC_WITH_INV: u32 = 1 << 3;

/// A RoCE network has no service levels: other completions have 0.
fn packet_type(network: Option<Network>) -> u8 {
    match network {
        Some(Network::Ipv6) => PACKET_UDP_IPV6,
        Some(Network::Ipv4) => PACKET_UDP_IPV4,
        None => 0,
    }
}

impl UserCompletion {
    /// The completion `from`, as a process gets it.
    pub(super) fn new(from: &Completion) -> Self {
        let grh = if from.grh { WC_GRH } else { 0 };
        let (flags, extra) = match from.extra {
            Extra::None => (grh, [0; 4]),
            Extra::Imm(value) => (grh | WC_WITH_IMM, value.to_be_bytes()),
            Extra::Invalidated(key) => (grh | WC_WITH_INV, key.to_ne_bytes()),
        };
        Self {
            wr_id: from.wr_id,
            status: from.status as u32,
            opcode: from.opcode as u32,
            vendor_err: 0,
            byte_len: from.byte_len,
            extra,
            qp_num: from.qp_num,
            src_qp: from.src_qp,
            wc_flags: flags,
            pkey_index: 0,
            slid: 0,
            sl: packet_type(from.network),
            dlid_path_bits: 0,
            port_num: 1,
            reserved: 0,
        }
    }
}

const _: () = assert!(size_of::<UserCompletion>() == 48);
