// SPDX-License-Identifier: GPL-2.0

//! The attributes of a device (`ib_device_attr`), and the limits among them that are enforced.
//!
//! They are the same for all devices. The numbers of objects are not enforced: there may be as many as there are keys and
//! memory, which is charged to the cgroup of the process.

use kernel::prelude::*;
use rdma::{
    device::{
        cap,
        paging,
        Attr, //
    },
    qp::Cap,
    umem, //
};

/// WRs of a queue of a QP: as many as RDMA network cards take, which consumers are written for. The kernel keeps a private
/// copy of each slot of a send queue: at the most 130 MB for a QP.
pub(crate) const MAX_QP_WR: u32 = 1 << 15;
/// SGEs of a WR.
pub(crate) const MAX_SGE: u32 = 32;
/// Bytes of inline data.
const MAX_INLINE: u32 = 1024;
/// Completions of a CQ. libfabric's rxm has one queue for the completions of all its peers, and asks for 196,608 and more.
pub(crate) const MAX_CQE: u32 = (1 << 22) - 1;
/// WRs of an SRQ.
pub(crate) const MAX_SRQ_WR: u32 = 1 << 15;
/// Reads and atomics of a QP as a responder: as many as RDMA network cards take. A consumer may ask its peer, who has
/// another device, for as many as its own has.
pub(crate) const MAX_RD_ATOMIC: u32 = 16;
/// Reads and atomics that a requester takes as `max_rd_atomic`. perftest asks its own device for as many as its peer's
/// says; rdma_rxe says 128.
pub(crate) const MAX_TAKEN_RD_ATOMIC: u32 = 128;
/// Multicast groups of a device: they cost memory of the network stack, too.
pub(crate) const MAX_MULTICAST_GROUPS: usize = 1 << 10;
/// QPs of a multicast group: a packet is handed to all of them in one go.
pub(crate) const MAX_MULTICAST_QPS: usize = 64;
/// Attachments of QPs to multicast groups.
pub(crate) const MAX_MULTICAST_ATTACHMENTS: u32 = 1 << 14;
/// Pages of the largest fast-registration region. SMC registers a buffer in one piece, and without asking: one of more than
/// 8 MiB goes over TCP. SMB Direct asks for 2048.
pub(crate) const MAX_FAST_PAGES: u32 = 2048;

/// Objects of each type.
const MAX_OBJECTS: u32 = 1 << 20;

/// The operations of RC and XRC on memory that is paged on demand.
const PAGING_CONNECTED: u32 =
    paging::SEND | paging::SHARED_RECEIVE | paging::WRITE | paging::READ | paging::ATOMIC;

/// Checks the sizes that a consumer asks of a QP. Those of the receive queue mean nothing if that is
/// shared. Errors: `EINVAL` if one is out of range.
pub(crate) fn check_qp_cap(cap: &Cap, shared: bool) -> Result {
    let refused = cap.max_send_wr > MAX_QP_WR
        || (cap.max_recv_wr > MAX_QP_WR && !shared)
        || cap.max_send_sge > MAX_SGE
        || (cap.max_recv_sge > MAX_SGE && !shared)
        || cap.max_inline_data > MAX_INLINE;
    if refused {
        return Err(EINVAL);
    }
    Ok(())
}

/// The attributes of the device with this GUID. Context: any.
pub(crate) fn of(guid: [u8; 8]) -> Attr {
    Attr {
        sys_image_guid: guid,
        max_mr_size: umem::MAX_LEN,
        page_sizes: 0xffff_f000,
        vendor_id: 0x00ff_ffff,
        cap_flags: cap::CURRENT_QP_STATE
            | cap::BAD_PKEY_COUNTER
            | cap::BAD_QKEY_COUNTER
            | cap::PORT_ACTIVE_EVENT
            | cap::SYS_IMAGE_GUID
            | cap::RNR_NAK
            | cap::SRQ_RESIZE
            | cap::MEM_MGT_EXTENSIONS
            | cap::MEM_WINDOW
            | cap::MEM_WINDOW_TYPE_2B
            | cap::FLUSH_GLOBAL
            | cap::FLUSH_PERSISTENT
            | cap::ATOMIC_WRITE,
        max_objects: MAX_OBJECTS,
        max_qp_wr: MAX_QP_WR,
        max_sge: MAX_SGE,
        max_cqe: MAX_CQE,
        max_srq_wr: MAX_SRQ_WR,
        max_rd_atomic: MAX_RD_ATOMIC,
        max_multicast_groups: MAX_MULTICAST_GROUPS as u32,
        max_multicast_qps: MAX_MULTICAST_QPS as u32,
        max_multicast_attachments: MAX_MULTICAST_ATTACHMENTS,
        ack_delay: 15,
        paging_rc: PAGING_CONNECTED | paging::RECEIVE | paging::FLUSH | paging::ATOMIC_WRITE,
        paging_xrc: PAGING_CONNECTED,
        paging_ud: paging::SEND | paging::RECEIVE | paging::SHARED_RECEIVE,
    }
}
