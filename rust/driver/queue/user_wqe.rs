// SPDX-License-Identifier: GPL-2.0

//! Work queue elements (WQEs) as librxe writes them into the shared rings: their layouts, and all that is read in them.
//!
//! Source: `include/uapi/rdma/rdma_user_rxe.h`. Every byte of a WQE is chosen by an untrusted
//! process and may change at any moment, so these types are only ever filled from a private copy
//! of the WQE; nothing in this file looks at shared memory.

use crate::{
    memory::{
        access::Access,
        buffer::{
            total_len,
            Buffer,
            Sge, //
        },
        mw,
        pd::Pd, //
    },
    packet::ah,
    queue::{
        wqe::{
            list_len,
            request,
            Local,
            RecvWqe,
            SendWqe,
            SendWqes,
            Slot, //
        },
        xrcd, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    wc,
    wr::flags, //
};
use roce::{
    packet,
    qp::Type,
    requester::{
        SendOperation,
        SendWr, //
    }, //
};
use zerocopy::FromBytes;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    KnownLayout, //
};

/// Bytes in front of a send WQE's scatter/gather list or inline data.
const SEND_HEADER_LEN: usize = 208;
/// Bytes in front of a receive WQE's scatter list.
const RECV_HEADER_LEN: usize = 40;
/// Bytes of one SGE.
const SGE_LEN: usize = 16;

/// Bytes of a send WQE with room for so many SGEs, or so many bytes of inline data: a power of two.
/// Errors: `EINVAL` if that is too much.
pub(crate) fn send_wqe_len(sges: u32, inline: u32) -> Result<usize> {
    wqe_len(SEND_HEADER_LEN, sges, inline)
}

/// Bytes of inline data that fit where `sges` SGEs do.
pub(crate) const fn inline_room(sges: u32) -> u32 {
    sges.saturating_mul(SGE_LEN as u32)
}

/// Bytes of a receive WQE with room for so many SGEs: a power of two.
/// Errors: `EINVAL` if that is too much.
pub(crate) fn recv_wqe_len(sges: u32) -> Result<usize> {
    wqe_len(RECV_HEADER_LEN, sges, 0)
}

fn wqe_len(header: usize, sges: u32, inline: u32) -> Result<usize> {
    let list = (sges as usize).checked_mul(SGE_LEN).ok_or(EINVAL)?;
    list.max(inline as usize)
        .checked_add(header)
        .and_then(usize::checked_next_power_of_two)
        .ok_or(EINVAL)
}

/// `ibv_wr_opcode`; the same numbers as `enum ib_wr_opcode`.
mod opcode {
    pub(super) const RDMA_WRITE: u32 = 0;
    pub(super) const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(super) const SEND: u32 = 2;
    pub(super) const SEND_WITH_IMM: u32 = 3;
    pub(super) const RDMA_READ: u32 = 4;
    pub(super) const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(super) const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(super) const LOCAL_INV: u32 = 7;
    pub(super) const BIND_MW: u32 = 8;
    pub(super) const SEND_WITH_INV: u32 = 9;
    pub(super) const FLUSH: u32 = 14;
    pub(super) const ATOMIC_WRITE: u32 = 15;
}

/// `struct rxe_dma_info` without its trailing data. Only `num_sge` and `length` are input; the
/// other fields are leftovers of the C driver's working state and mean nothing here.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DmaInfo {
    length: u32,
    _resid: u32,
    _cur_sge: u32,
    num_sge: u32,
    _sge_offset: u32,
    _reserved: u32,
}

/// The fixed part of a send WQE.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SendHeader {
    wr_id: u64,
    /// The number of an XRC SRQ. librxe does not know XRC: the field is reserved there, and 0.
    xrc_srqn: u32,
    opcode: u32,
    flags: u32,
    /// Immediate data in network byte order, or the key to invalidate in native order.
    immediate_or_key: [u8; 4],
    /// The union of the operations' own fields.
    operation: [u8; 128],
    _iova: u64,
    _mask_and_psn: [u8; 24],
    dma: DmaInfo,
}

/// `wr.rdma`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Rdma {
    addr: u64,
    rkey: u32,
    _reserved: u32,
}

/// `wr.atomic`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Atomic {
    addr: u64,
    compare_add: u64,
    swap: u64,
    rkey: u32,
    _reserved: u32,
}

/// `wr.flush`. The provider gives the length of the range in `dma.length`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Flush {
    addr: u64,
    _length: u32,
    rkey: u32,
    /// `ib_placement_type`.
    placement: u8,
    /// `ib_selectivity_level`.
    selectivity: u8,
    _reserved: [u8; 6],
}

/// `wr.mw`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BindMw {
    addr: u64,
    length: u64,
    mr_lkey: u32,
    /// The window, by the key that the process knows.
    mw_rkey: u32,
    /// Its new key.
    rkey: u32,
    /// `ibv_access_flags`.
    access: u32,
}

/// `wr.ud`, as far as it is input.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ud {
    remote_qpn: u32,
    remote_qkey: u32,
    _pkey_index: u16,
    _reserved: u16,
    ah_num: u32,
}

/// The fixed part of a receive WQE.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecvHeader {
    wr_id: u64,
    _reserved: u64,
    dma: DmaInfo,
}

const _: () = {
    assert!(size_of::<SendHeader>() == SEND_HEADER_LEN);
    assert!(core::mem::offset_of!(SendHeader, operation) == 24);
    assert!(core::mem::offset_of!(SendHeader, dma) == 184);
    assert!(size_of::<RecvHeader>() == RECV_HEADER_LEN);
    assert!(size_of::<Sge>() == SGE_LEN);
};

impl SendHeader {
    /// The operation's own fields.
    fn operation<T: FromBytes>(&self) -> Option<T> {
        Some(T::read_from_prefix(&self.operation).ok()?.0)
    }

    /// Immediate data, in native order.
    fn immediate(&self) -> u32 {
        u32::from_be_bytes(self.immediate_or_key)
    }

    /// The key to invalidate.
    fn invalidate_rkey(&self) -> u32 {
        u32::from_ne_bytes(self.immediate_or_key)
    }
}

impl SendWqes {
    /// Fetches a WQE that librxe wrote, from its private copy `bytes`, for a QP of type `ty` and of the domain `pd`.
    ///
    /// A WQE that makes no sense never is an error of the queue: the request is marked as refused and
    /// completes with an error in its turn.
    #[inline]
    pub(crate) fn take_user(
        &mut self,
        sequence: u32,
        ty: Type,
        pd: &Arc<Pd>,
        bytes: &[u8],
    ) -> Option<SendWr> {
        let (header, data) = SendHeader::read_from_prefix(bytes).ok()?;
        let mut slot = self.slot(sequence)?;
        let mut wqe = SendWqe::new(header.wr_id);
        let mut wr = request(header.flags);

        wqe.refused = read_operation(&header, ty, pd, &mut wqe, &mut wr)
            .and_then(|()| read_data(&header, data, &mut slot, &mut wqe, &mut wr))
            .is_none();
        *slot.head = Some(wqe);
        Some(wr)
    }
}

/// Notes what a process asks for with this WQE, of a QP of type `ty`. [`None`] if that makes no sense. The requester
/// refuses operations on the wire that the service lacks.
#[inline]
fn read_operation(
    header: &SendHeader,
    ty: Type,
    pd: &Arc<Pd>,
    wqe: &mut SendWqe,
    wr: &mut SendWr,
) -> Option<()> {
    let mut rdma = |operation, opcode, addr, rkey| {
        wqe.opcode = opcode;
        wr.operation = operation;
        wr.remote_va = addr;
        wr.rkey = rkey;
    };
    match header.opcode {
        opcode::SEND => {}
        opcode::SEND_WITH_IMM => wr.immediate = Some(header.immediate()),
        opcode::SEND_WITH_INV => wr.invalidate_rkey = Some(header.invalidate_rkey()),
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_WITH_IMM => {
            let Rdma { addr, rkey, .. } = header.operation()?;
            rdma(SendOperation::Write, wc::Opcode::RdmaWrite, addr, rkey);
            if header.opcode == opcode::RDMA_WRITE_WITH_IMM {
                wr.immediate = Some(header.immediate());
            }
        }
        opcode::RDMA_READ => {
            let Rdma { addr, rkey, .. } = header.operation()?;
            rdma(SendOperation::Read, wc::Opcode::RdmaRead, addr, rkey);
        }
        opcode::ATOMIC_CMP_AND_SWP | opcode::ATOMIC_FETCH_AND_ADD => {
            let atomic: Atomic = header.operation()?;
            let (addr, rkey) = (atomic.addr, atomic.rkey);
            if header.opcode == opcode::ATOMIC_CMP_AND_SWP {
                let (operation, opcode) = (SendOperation::CompareSwap, wc::Opcode::CompSwap);
                rdma(operation, opcode, addr, rkey);
                wr.compare = atomic.compare_add;
                wr.swap_add = atomic.swap;
            } else {
                rdma(SendOperation::FetchAdd, wc::Opcode::FetchAdd, addr, rkey);
                wr.swap_add = atomic.compare_add;
            }
        }
        opcode::ATOMIC_WRITE => {
            let Rdma { addr, rkey, .. } = header.operation()?;
            let (operation, opcode) = (SendOperation::AtomicWrite, wc::Opcode::AtomicWrite);
            rdma(operation, opcode, addr, rkey);
        }
        opcode::FLUSH => {
            let flush: Flush = header.operation()?;
            let (operation, opcode) = (SendOperation::Flush, wc::Opcode::Flush);
            rdma(operation, opcode, flush.addr, flush.rkey);
            wr.flush = packet::Flush {
                placement: flush.placement,
                selectivity: flush.selectivity,
            };
        }
        opcode::LOCAL_INV if ty.is_connected() => {
            wqe.opcode = wc::Opcode::LocalInv;
            wqe.local = Some(Local::Invalidate(header.invalidate_rkey()));
            wr.operation = SendOperation::Local;
            wr.fence = true;
        }
        opcode::BIND_MW if ty.is_connected() => {
            let bind: BindMw = header.operation()?;
            wqe.opcode = wc::Opcode::BindMw;
            wqe.local = Some(Local::Bind(mw::Bind {
                window: bind.mw_rkey,
                key: bind.rkey,
                region: bind.mr_lkey,
                start: bind.addr,
                len: bind.length,
                access: Access::from_bits(bind.access),
            }));
            // Requests under way need no window of this side: it waits for them only if asked to.
            wr.operation = SendOperation::Local;
        }
        _ => return None,
    }
    match ty {
        Type::Rc | Type::Uc => {}
        Type::XrcInitiator if *xrcd::NUMBERS.end() < header.xrc_srqn => return None,
        Type::XrcInitiator => wr.xrc_srqn = header.xrc_srqn,
        // Nobody can post to it.
        Type::XrcTarget => return None,
        Type::Ud | Type::Gsi => {
            let ud: Ud = header.operation()?;
            wqe.ah = Some(ah::find(pd, ud.ah_num)?);
            wr.dest_qpn = ud.remote_qpn;
            wr.qkey = ud.remote_qkey;
        }
        Type::RawPacket => {
            // It has no headers of its own, and nobody fills in checksums.
            if header.opcode != opcode::SEND || header.flags & flags::IP_CSUM != 0 {
                return None;
            }
            wqe.local = Some(Local::Frame);
            wr.operation = SendOperation::Local;
        }
    }
    Some(())
}

/// Reads what follows the fixed part, as the operation asks for it. [`None`] if that makes no sense.
fn read_data(
    header: &SendHeader,
    data: &[u8],
    slot: &mut Slot<'_>,
    wqe: &mut SendWqe,
    wr: &mut SendWr,
) -> Option<()> {
    let is_frame = match wqe.local {
        None => false,
        Some(Local::Frame) => true,
        Some(_) => return Some(()),
    };
    // Neither has a list, whatever the flags say.
    match wr.operation {
        SendOperation::AtomicWrite => {
            wqe.word = Some(*data.first_chunk()?);
            wr.length = 8;
            return Some(());
        }
        SendOperation::Flush => {
            wr.length = header.dma.length;
            return Some(());
        }
        _ => {}
    }
    // The provider leaves `num_sge` at either value for inline data: the flag decides.
    if header.flags & flags::INLINE != 0 {
        if !is_frame && !matches!(wr.operation, SendOperation::Send | SendOperation::Write) {
            return None;
        }
        let len = header.dma.length as usize;
        let inline = slot.inline.get_mut(..len)?;
        inline.copy_from_slice(data.get(..len)?);
        wqe.inline = Some(len);
        wr.length = header.dma.length;
        return Some(());
    }
    let list = read_list(header.dma, data, slot.buffers)?;
    wqe.buffers = list.len();
    wr.length = list_len(wr.operation, list)?;
    Some(())
}

impl RecvWqe {
    /// Fetches a WQE that librxe wrote, from its private copy `bytes`. [`None`] if it makes no sense. `wr_id` is set in
    /// any case.
    #[inline]
    pub(super) fn take_user(&mut self, bytes: &[u8]) -> Option<()> {
        let (header, data) = RecvHeader::read_from_prefix(bytes).ok()?;
        self.wr_id = header.wr_id;
        self.count = 0;
        self.capacity = 0;
        let list = read_list(header.dma, data, &mut self.buffers)?;
        self.capacity = total_len(list);
        self.count = list.len();
        Some(())
    }
}

/// Reads a scatter/gather list into the front of `room`. [`None`] if it does not fit, or is longer than `data`.
#[inline]
fn read_list<'a>(dma: DmaInfo, mut data: &[u8], room: &'a mut [Buffer]) -> Option<&'a [Buffer]> {
    let list = room.get_mut(..dma.num_sge as usize)?;
    for slot in list.iter_mut() {
        let (sge, rest) = Sge::read_from_prefix(data).ok()?;
        *slot = Buffer::Keyed(sge);
        data = rest;
    }
    Some(list)
}
