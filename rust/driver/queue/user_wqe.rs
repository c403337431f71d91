// SPDX-License-Identifier: GPL-2.0

//! Work queue elements (WQEs) as librxe writes them into the shared rings.
//!
//! Source: `include/uapi/rdma/rdma_user_rxe.h`. Every byte of a WQE is chosen by an untrusted
//! process and may change at any moment, so these types are only ever filled from a private copy
//! of the WQE; nothing in this file looks at shared memory.

use crate::memory::buffer::Sge;
use kernel::prelude::*;
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
pub(crate) mod opcode {
    pub(crate) const RDMA_WRITE: u32 = 0;
    pub(crate) const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(crate) const SEND: u32 = 2;
    pub(crate) const SEND_WITH_IMM: u32 = 3;
    pub(crate) const RDMA_READ: u32 = 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(crate) const LOCAL_INV: u32 = 7;
    pub(crate) const BIND_MW: u32 = 8;
    pub(crate) const SEND_WITH_INV: u32 = 9;
    pub(crate) const FLUSH: u32 = 14;
    pub(crate) const ATOMIC_WRITE: u32 = 15;
}

/// `struct rxe_dma_info` without its trailing data. Only `num_sge` and `length` are input; the
/// other fields are leftovers of the C driver's working state and mean nothing here.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DmaInfo {
    pub(crate) length: u32,
    _resid: u32,
    _cur_sge: u32,
    pub(crate) num_sge: u32,
    _sge_offset: u32,
    _reserved: u32,
}

/// The fixed part of a send WQE.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SendHeader {
    pub(crate) wr_id: u64,
    /// The number of an XRC SRQ. librxe does not know XRC: the field is reserved there, and 0.
    pub(crate) xrc_srqn: u32,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    /// Immediate data in network byte order, or the key to invalidate in native order.
    pub(crate) immediate_or_key: [u8; 4],
    /// The union of the operations' own fields.
    operation: [u8; 128],
    _iova: u64,
    _mask_and_psn: [u8; 24],
    pub(crate) dma: DmaInfo,
}

/// `wr.rdma`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rdma {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    _reserved: u32,
}

/// `wr.atomic`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Atomic {
    pub(crate) addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
    _reserved: u32,
}

/// `wr.flush`. The provider gives the length of the range in `dma.length`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Flush {
    pub(crate) addr: u64,
    _length: u32,
    pub(crate) rkey: u32,
    /// `ib_placement_type`.
    pub(crate) placement: u8,
    /// `ib_selectivity_level`.
    pub(crate) selectivity: u8,
    _reserved: [u8; 6],
}

/// `wr.mw`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct BindMw {
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mr_lkey: u32,
    /// The window, by the key that the process knows.
    pub(crate) mw_rkey: u32,
    /// Its new key.
    pub(crate) rkey: u32,
    /// `ibv_access_flags`.
    pub(crate) access: u32,
}

/// `wr.ud`, as far as it is input.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Ud {
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
    _pkey_index: u16,
    _reserved: u16,
    pub(crate) ah_num: u32,
}

/// The fixed part of a receive WQE.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecvHeader {
    pub(crate) wr_id: u64,
    _reserved: u64,
    pub(crate) dma: DmaInfo,
}

const _: () = {
    assert!(size_of::<SendHeader>() == SEND_HEADER_LEN);
    assert!(core::mem::offset_of!(SendHeader, operation) == 24);
    assert!(core::mem::offset_of!(SendHeader, dma) == 184);
    assert!(size_of::<RecvHeader>() == RECV_HEADER_LEN);
    assert!(size_of::<Sge>() == SGE_LEN);
};

impl SendHeader {
    /// Reads the fixed part of a WQE; [`None`] if `wqe` is too short.
    pub(crate) fn parse(wqe: &[u8]) -> Option<(Self, &[u8])> {
        Self::read_from_prefix(wqe).ok()
    }

    /// The operation's own fields.
    pub(crate) fn operation<T: FromBytes>(&self) -> Option<T> {
        Some(T::read_from_prefix(&self.operation).ok()?.0)
    }

    /// Immediate data, in native order.
    pub(crate) fn immediate(&self) -> u32 {
        u32::from_be_bytes(self.immediate_or_key)
    }

    /// The key to invalidate.
    pub(crate) fn invalidate_rkey(&self) -> u32 {
        u32::from_ne_bytes(self.immediate_or_key)
    }
}

impl RecvHeader {
    /// Reads the fixed part of a WQE; [`None`] if `wqe` is too short.
    pub(crate) fn parse(wqe: &[u8]) -> Option<(Self, &[u8])> {
        Self::read_from_prefix(wqe).ok()
    }
}

impl Sge {
    /// Takes an SGE off the front of `bytes`; [`None`] if there is none.
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (sge, rest) = Self::read_from_prefix(bytes).ok()?;
        *bytes = rest;
        Some(sge)
    }
}
